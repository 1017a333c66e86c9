//! The table of cases. Each case changes one thing of a good request, so that only one rule can refuse it.

use std::collections::BTreeMap;

use super::pkcs10::Request;
use super::{Case, Fixture, Profile, Verdict};

mod encoding;
mod extensions;
mod gateway_client;
mod good;
mod keys;
mod registry;
mod requester;
mod serving;
mod subject;

/// Every case that has a file.
pub(crate) fn cases() -> Vec<Case> {
    let mut all = good::cases();
    all.extend(requester::cases());
    all.extend(subject::cases());
    all.extend(extensions::cases());
    all.extend(encoding::cases());
    all.extend(keys::cases());
    all.extend(registry::cases());
    all.extend(serving::cases());
    all.extend(gateway_client::cases());
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Cases about size, which are too large for the repository.
pub(crate) fn too_large_to_keep() -> Vec<Case> {
    let spaces = |size: usize| {
        let mut request = include_bytes!("../../../../certs/requests/good/ocm-agent-v1.3.pem").to_vec();
        request.resize(size, b'\n');
        request
    };
    vec![
        refused("rule4-one-mebibyte", "RequestTooLarge", "1 MiB of dashes", vec![b'-'; 1024 * 1024]),
        refused("rule4-one-byte-too-large", "RequestTooLarge", "one byte more than 16 KiB", spaces(16 * 1024 + 1)),
        good("as-large-as-allowed", "exactly 16 KiB", spaces(16 * 1024)),
    ]
}

/// A request by the registration agent of spoke1 that is approved.
fn good(name: &str, comment: &str, request: Vec<u8>) -> Case {
    let owned = |texts: &[&str]| texts.iter().copied().map(str::to_owned).collect();
    Case {
        name: name.to_owned(),
        comment: comment.to_owned(),
        verdict: Verdict::Good { lifetime_seconds: 86_400 },
        fixture: Fixture::Installed,
        profile: Profile::Client,
        username: "system:open-cluster-management:spoke1:a1".to_owned(),
        groups: owned(&[
            "system:open-cluster-management:spoke1",
            "system:open-cluster-management:managed-clusters",
            "system:authenticated",
        ]),
        annotations: BTreeMap::new(),
        labels: BTreeMap::from([
            ("open-cluster-management.io/cluster-name".to_owned(), "spoke1".to_owned()),
            ("open-cluster-management.io/addon-name".to_owned(), "telemetry".to_owned()),
        ]),
        usages: owned(&["digital signature", "key encipherment", "client auth"]),
        expiration_seconds: None,
        request,
    }
}

/// A request by the same agent that is refused. `name` begins with `rule<n>-`.
fn refused(name: &str, reason: &str, comment: &str, request: Vec<u8>) -> Case {
    let rule = name.strip_prefix("rule").and_then(|rest| rest[..1].parse().ok()).unwrap();
    Case { verdict: Verdict::Refused { rule, reason: reason.to_owned() }, ..good(name, comment, request) }
}

/// A good request that is refused because of the fields around it.
fn refused_around(name: &str, reason: &str, comment: &str) -> Case {
    refused(name, reason, comment, Request::good().pem())
}

impl Case {
    fn by(self, username: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().copied().map(str::to_owned).collect();
        Self { username: username.to_owned(), groups, ..self }
    }

    /// By the registration agent of `cluster`, with its labels.
    fn by_cluster(self, cluster: &str) -> Self {
        let group = format!("system:open-cluster-management:{cluster}");
        self.by(&format!("{group}:a1"), &[&group]).label("cluster-name", cluster)
    }

    fn with(self, fixture: Fixture) -> Self {
        Self { fixture, ..self }
    }

    fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(format!("open-cluster-management.io/{name}"), value.to_owned());
        self
    }

    fn unlabelled(self) -> Self {
        Self { labels: BTreeMap::new(), ..self }
    }

    fn annotation(mut self, name: &str, value: &str) -> Self {
        self.annotations.insert(name.to_owned(), value.to_owned());
        self
    }

    fn usages(self, usages: &[&str]) -> Self {
        Self { usages: usages.iter().copied().map(str::to_owned).collect(), ..self }
    }

    fn expires(self, seconds: i32) -> Self {
        Self { expiration_seconds: Some(seconds), ..self }
    }

    fn lives(self, lifetime_seconds: u64) -> Self {
        Self { verdict: Verdict::Good { lifetime_seconds }, ..self }
    }
}
