//! Tests that have a long form.

/// The long form of something if `ADDON_SIGNER_SOAK` is set, as by `just soak`; else the short one.
pub fn soak<T>(long: T, short: T) -> T {
    if std::env::var_os("ADDON_SIGNER_SOAK").is_some() { long } else { short }
}
