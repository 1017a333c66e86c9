//! What tests need besides this repository. A test that lacks something does nothing and passes, so `.ci/run` names by
//! `ADDON_SIGNER_TESTS_NEED` what must be there.
//!
//! Whatever a test can find on a machine, it asks for here, so this is also where it shows which tests use something
//! real: with `ADDON_SIGNER_ASKED` naming a file, each question is a line of it, the need and then the test. `.ci/run`
//! runs on the real parts what has asked on the stand-in.

use std::env;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::thread;

/// The variable that names the directory with the real parts, as for Kubernetes' envtest.
const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// What a test may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    ApiServer,
    Postgres,
    Kubectl,
    Openssl,
    Mount,
    Network,
    Peers,
    Issuers,
    Curl,
    Prometheus,
    Cluster,
}

impl Needed {
    const ALL: [Self; 11] = [
        Self::ApiServer,
        Self::Postgres,
        Self::Kubectl,
        Self::Openssl,
        Self::Mount,
        Self::Network,
        Self::Peers,
        Self::Issuers,
        Self::Curl,
        Self::Prometheus,
        Self::Cluster,
    ];

    /// Its name in the variable.
    const fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "api-server",
            Self::Postgres => "postgres",
            Self::Kubectl => "kubectl",
            Self::Openssl => "openssl",
            Self::Mount => "mount",
            Self::Network => "network",
            Self::Peers => "peers",
            Self::Issuers => "issuers",
            Self::Curl => "curl",
            Self::Prometheus => "prometheus",
            Self::Cluster => "cluster",
        }
    }

    const fn lack(self) -> &'static str {
        match self {
            Self::ApiServer => "KUBEBUILDER_ASSETS names no real API server",
            Self::Postgres => "ADDON_SIGNER_POSTGRES names no PostgreSQL",
            Self::Kubectl => "there is no kubectl on the PATH",
            Self::Openssl => "there is no openssl on the PATH",
            Self::Mount => "this process may not mount a file system",
            Self::Network => "this process may not make networks by unshare and ip",
            Self::Peers => "KUBEBUILDER_ASSETS names no programs that talk to the gateway",
            Self::Issuers => "KUBEBUILDER_ASSETS names no cert-manager",
            Self::Curl => "there is no curl on the PATH",
            Self::Prometheus => "there is no prometheus on the PATH",
            Self::Cluster => "this is not run by tests/real/cluster.sh",
        }
    }
}

/// That directory, without noting that a test asks for it.
pub(crate) fn real_parts() -> Option<PathBuf> {
    env::var_os(ASSETS).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Whether the test has what it asks for, which is `there` or not; otherwise it does something else. Fails if this run
/// names what is lacking.
#[track_caller]
pub fn asks(needed: Needed, there: bool) -> bool {
    note(needed);
    if there {
        return true;
    }
    if let Err(sentence) = may_lack(needed, &env::var("ADDON_SIGNER_TESTS_NEED").unwrap_or_default()) {
        panic!("{sentence}");
    }
    false
}

/// Like [`asks`], for a test that does nothing without it, and says so.
#[track_caller]
pub fn has(needed: Needed, there: bool) -> bool {
    let has = asks(needed, there);
    if !has {
        eprintln!("skipped: {}", needed.lack());
    }
    has
}

/// Like [`has`], for what is `there` if it is something.
#[track_caller]
pub fn found<T>(needed: Needed, there: Option<T>) -> Option<T> {
    has(needed, there.is_some());
    there
}

/// Writes that this test asks for it. libtest names a test's thread after the test; `.ci/run` fails on another name.
fn note(needed: Needed) {
    let Some(file) = env::var_os("ADDON_SIGNER_ASKED") else { return };
    let line = format!("{} {}\n", needed.name(), thread::current().name().unwrap_or("nobody"));
    // One write, which others cannot split.
    File::options().append(true).create(true).open(file).unwrap().write_all(line.as_bytes()).unwrap();
}

/// What [`asks`] says when a run names these.
pub fn may_lack(needed: Needed, named: &str) -> Result<(), String> {
    let known = |name: &&str| Needed::ALL.iter().any(|needed| needed.name() == *name);
    if let Some(unknown) = named.split_whitespace().find(|name| !known(name)) {
        return Err(format!("ADDON_SIGNER_TESTS_NEED names {unknown}, which no test needs"));
    }
    match named.split_whitespace().any(|name| name == needed.name()) {
        true => Err(format!("ADDON_SIGNER_TESTS_NEED names {}, but {}", needed.name(), needed.lack())),
        false => Ok(()),
    }
}
