//! What tests need besides this repository. A test that lacks something does nothing and passes, so `.ci/run` names by
//! `ADDON_SIGNER_TESTS_NEED` what must be there.

use std::env;

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
            Self::Issuers => "KUBEBUILDER_ASSETS names no cert-manager or no Vault",
            Self::Curl => "there is no curl on the PATH",
            Self::Prometheus => "there is no prometheus on the PATH",
            Self::Cluster => "this is not run by tests/real/cluster.sh",
        }
    }
}

/// Fails if this run names what is lacking.
#[track_caller]
pub fn lacks(needed: Needed) {
    if let Err(sentence) = may_lack(needed, &env::var("ADDON_SIGNER_TESTS_NEED").unwrap_or_default()) {
        panic!("{sentence}");
    }
}

/// Says that a test does nothing; fails if this run names what is lacking.
#[track_caller]
pub fn skip(needed: Needed) {
    lacks(needed);
    eprintln!("skipped: {}", needed.lack());
}

fn may_lack(needed: Needed, named: &str) -> Result<(), String> {
    let known = |name: &&str| Needed::ALL.iter().any(|needed| needed.name() == *name);
    if let Some(unknown) = named.split_whitespace().find(|name| !known(name)) {
        return Err(format!("ADDON_SIGNER_TESTS_NEED names {unknown}, which no test needs"));
    }
    match named.split_whitespace().any(|name| name == needed.name()) {
        true => Err(format!("ADDON_SIGNER_TESTS_NEED names {}, but {}", needed.name(), needed.lack())),
        false => Ok(()),
    }
}

#[test]
fn what_a_run_names_must_be_there() {
    assert_eq!(may_lack(Needed::Openssl, ""), Ok(()));
    assert_eq!(may_lack(Needed::Openssl, "postgres mount"), Ok(()));
    let sentence = "ADDON_SIGNER_TESTS_NEED names mount, but this process may not mount a file system";
    assert_eq!(may_lack(Needed::Mount, "postgres mount"), Err(sentence.to_owned()));
    let typo = "ADDON_SIGNER_TESTS_NEED names mounts, which no test needs";
    assert_eq!(may_lack(Needed::Mount, "mounts"), Err(typo.to_owned()));
}
