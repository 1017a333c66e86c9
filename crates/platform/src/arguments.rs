//! Command lines and their secrets: a value that may contain a password is never printed, whatever is wrong with it.

use std::ffi::OsString;
use std::fmt;
use std::process::exit;

use addon_signer_core::table;
use clap::Parser;

table! {
    /// The exit codes of the programs.
    pub EXIT_CODES of pub u8;
    /// Done, or stopped by SIGTERM or SIGINT.
    DONE = 0;
    /// Failed; one sentence on standard error says why. With `--once`: a certificate was due, and there is no new one.
    FAILED = 1;
    /// The command line is wrong.
    WRONG_USAGE = 2;
    /// Refused, or found by `ca plan`: agents would or may be locked out, which the output lists.
    REFUSED = 3;
}

/// The value of a flag or variable that may contain a password, such as a URL. clap takes every value, so that it never
/// prints one in an error; our own code reads it.
#[derive(Clone, PartialEq, Eq)]
pub struct Opaque(OsString);

impl Opaque {
    /// The value; `None` if it is not UTF-8.
    pub fn text(&self) -> Option<&str> {
        self.0.to_str()
    }
}

impl From<OsString> for Opaque {
    fn from(value: OsString) -> Self {
        Self(value)
    }
}

impl fmt::Debug for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opaque(…)")
    }
}

/// Reads the command line, or ends the process as clap does. A misplaced argument or variable may contain a password
/// too, so clap's message is printed without any that look like it.
pub fn parse<C: Parser>() -> C {
    C::try_parse().unwrap_or_else(|error| {
        if !error.use_stderr() {
            error.exit() // help, or the version
        }
        let is_ours = |(name, _): &(OsString, OsString)| name.to_string_lossy().starts_with("ADDON_SIGNER_");
        let variables = std::env::vars_os().filter(is_ours).map(|(_, value)| value);
        let all = std::env::args_os().skip(1).chain(variables).map(|value| value.to_string_lossy().into_owned());
        eprint!("{}", hide(&error.render().to_string(), all));
        exit(error.exit_code())
    })
}

/// The text with the arguments that may contain a password removed.
fn hide(text: &str, arguments: impl Iterator<Item = String>) -> String {
    let is_suspect = |argument: &&str| argument.contains("://") || argument.contains('@');
    let values = |argument: String| match argument.split_once('=') {
        Some((flag, value)) if flag.starts_with('-') => vec![argument.clone(), value.to_owned()],
        _ => vec![argument],
    };
    // clap splits some values.
    let parts = |value: String| value.split(',').map(str::to_owned).chain([value.clone()]).collect::<Vec<_>>();
    // Some messages quote a value as a Rust string literal.
    let escaped = |value: String| [value.escape_debug().to_string(), value];
    let all: Vec<String> = arguments.flat_map(values).flat_map(parts).flat_map(escaped).collect();
    let mut suspects: Vec<&str> = all.iter().map(String::as_str).filter(is_suspect).collect();
    suspects.sort_by_key(|value| std::cmp::Reverse(value.len())); // a part of another one comes after it
    suspects.iter().fold(text.to_owned(), |text, suspect| text.replace(suspect, "(hidden)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_may_be_a_secret_is_not_shown() {
        let opaque = Opaque::from(OsString::from("postgres://me:secret@host/db"));
        assert_eq!(format!("{opaque:?}"), "Opaque(…)");
        assert_eq!(opaque.text(), Some("postgres://me:secret@host/db"));
    }

    #[test]
    fn what_looks_like_a_url_is_hidden_wherever_it_is() {
        let hidden = |text: &str, argument: &str| hide(text, [argument.to_owned()].into_iter());
        let url = "postgres://me:secret@host/db";
        assert_eq!(
            hidden(&format!("unexpected '{url}', use '-- {url}'"), url),
            "unexpected '(hidden)', use '-- (hidden)'"
        );
        assert_eq!(hidden(&format!("invalid value '{url}'"), &format!("--ledgr={url}")), "invalid value '(hidden)'");
        assert_eq!(hidden("unexpected 'me:secret@host'", "me:secret@host"), "unexpected '(hidden)'");
        assert_eq!(
            hidden("invalid value 'me:secret@b'", "--gateway=https://a,me:secret@b"),
            "invalid value '(hidden)'"
        );
        assert_eq!(hidden("unexpected 'frobnicate'", "frobnicate"), "unexpected 'frobnicate'");
    }
}
