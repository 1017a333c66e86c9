//! Lists in sentences.

use std::fmt::Display;

/// How many names a sentence lists.
const NAMED: usize = 3;

/// The first few names, and how many more there are.
pub fn few<T: Display>(names: impl IntoIterator<Item = T>) -> String {
    let mut names = names.into_iter();
    let first: Vec<T> = names.by_ref().take(NAMED).collect();
    let count = first.len() + names.count();
    few_of(first, count)
}

/// The first few of these names, out of `count`.
pub fn few_of<T: Display>(names: impl IntoIterator<Item = T>, count: usize) -> String {
    let named: Vec<String> = names.into_iter().take(NAMED).map(|name| name.to_string()).collect();
    match count.saturating_sub(NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_is_counted() {
        assert_eq!(few(["a", "b", "c"]), "a, b, c");
        assert_eq!(few(["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
        assert_eq!(few_of(["a", "b", "c", "d"], 9), "a, b, c and 6 more");
    }
}
