//! Which build this is: its version, its commit, and how it introduces itself to an API server.

use std::ffi::OsStr;
use std::path::Path;

use http::HeaderValue;

/// The version of all crates.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit that a release was made from (`deploy/release.sh`). Empty in any other build, because cargo does not know
/// the commit.
pub const COMMIT: &str = match option_env!("ADDON_SIGNER_COMMIT") {
    Some(commit) => commit,
    None => "",
};

/// What `--version` prints after the program's name. `features` are those of cargo that this build has.
pub fn long(features: &str) -> String {
    let commit = if COMMIT.is_empty() { "unknown" } else { COMMIT };
    format!("{VERSION}\ncommit: {commit}\nfeatures: {features}")
}

/// The User-Agent of requests to API servers, in the form of Kubernetes' programs; the API server's audit log has it.
pub(crate) fn user_agent() -> HeaderValue {
    let program = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&program).file_name().and_then(OsStr::to_str).unwrap_or("addon-signer");
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    let text = match COMMIT {
        "" => format!("{name}/{VERSION} ({platform})"),
        commit => format!("{name}/{VERSION} ({platform}) {commit}"),
    };
    // A program may have any name.
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("addon-signer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_people_are_told_the_version() {
        assert!(long("demo").starts_with(concat!(env!("CARGO_PKG_VERSION"), "\ncommit: ")));
        let agent = user_agent();
        let agent = agent.to_str().unwrap();
        assert!(agent.contains(concat!("/", env!("CARGO_PKG_VERSION"), " (linux/")), "{agent}");
    }
}
