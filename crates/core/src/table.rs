//! Names and values that others rely on, each with its docstring, as constants and as the table that
//! `docs/reference.md` is made from.

/// A row of such a table.
#[derive(Debug, Clone, Copy)]
pub struct Named<T: 'static> {
    /// The value of the constant.
    pub value: T,
    /// Further columns.
    pub more: &'static [&'static str],
    /// The docstring.
    pub meaning: &'static str,
}

/// Declares constants and the table of them: `pub TABLE of pub Type; /// Its meaning. NAME = value => "column"; …`.
#[macro_export]
macro_rules! table {
    ($(#[$about:meta])* $of_table:vis $table:ident of $vis:vis $type:ty;
     $($(#[doc = $doc:literal])+ $name:ident = $value:expr $(=> $($more:expr),+)?;)+) => {
        $($(#[doc = $doc])+ $vis const $name: $type = $value;)+
        $(#[$about])*
        $of_table const $table: &[$crate::table::Named<$type>] = &[$($crate::table::Named {
            value: $name, more: &[$($($more),+)?], meaning: concat!($($doc),+),
        }),+];
    };
}
