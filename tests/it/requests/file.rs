//! The files of the corpus: one JSON document per case, and a table of all cases.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};

use super::cases::{cases, too_large_to_keep};
use super::{Case, Fixture, Profile, Verdict};

/// A case on disk, similar to the object on an API server. The order of the fields is the order in the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    comment: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    approved: Option<Approval>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<Refused>,
    profile: Profile,
    fixture: Fixture,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    username: String,
    groups: Vec<String>,
    usages: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expiration_seconds: Option<i32>,
    /// The request, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<String>,
    /// The request, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_base64: Option<ByteString>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Approval {
    lifetime_seconds: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Refused {
    rule: u8,
    reason: String,
}

/// Writes the files if that is asked for, once, before the first test reads them.
static UPDATED: LazyLock<()> = LazyLock::new(|| {
    if std::env::var_os("UPDATE_REQUESTS").is_some() {
        write(&cases());
    }
});

/// Every case of `certs/requests`, and the few that are too large to be kept in files.
pub(crate) fn corpus() -> Vec<Case> {
    LazyLock::force(&UPDATED);
    let mut cases: Vec<Case> = documents().iter().map(|path| read(path)).collect();
    cases.extend(too_large_to_keep());
    cases
}

/// `certs/requests`.
pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("certs/requests")
}

/// The paths of all case files, sorted.
pub(crate) fn documents() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for verdict in ["good", "refused"] {
        let entries = fs::read_dir(directory().join(verdict)).unwrap();
        let is_document = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
        paths.extend(entries.map(|entry| entry.unwrap().path()).filter(is_document));
    }
    paths.sort();
    paths
}

/// The path of a case's file, below [`directory`].
pub(crate) fn location(case: &Case) -> PathBuf {
    let verdict = match case.verdict {
        Verdict::Good { .. } => "good",
        Verdict::Refused { .. } => "refused",
    };
    Path::new(verdict).join(format!("{}.json", case.name))
}

fn read(path: &Path) -> Case {
    let text = fs::read_to_string(path).unwrap();
    let document: Document = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let verdict = match (document.approved, document.refused) {
        (Some(Approval { lifetime_seconds }), None) => Verdict::Good { lifetime_seconds },
        (None, Some(Refused { rule, reason })) => Verdict::Refused { rule, reason },
        _ => panic!("{}: must have either `approved` or `refused`", path.display()),
    };
    let request = match (document.request, document.request_base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(ByteString(bytes))) => bytes,
        _ => panic!("{}: must have either `request` or `requestBase64`", path.display()),
    };
    Case {
        name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
        comment: document.comment,
        verdict,
        fixture: document.fixture,
        profile: document.profile,
        username: document.username,
        groups: document.groups,
        annotations: document.annotations,
        labels: document.labels,
        usages: document.usages,
        expiration_seconds: document.expiration_seconds,
        request,
    }
}

/// Writes every case and the table, and removes files of cases that no longer exist.
fn write(cases: &[Case]) {
    for verdict in ["good", "refused"] {
        fs::create_dir_all(directory().join(verdict)).unwrap();
    }
    for path in documents() {
        fs::remove_file(path).unwrap();
    }
    for case in cases {
        let text = serde_json::to_string_pretty(&document(case)).unwrap();
        fs::write(directory().join(location(case)), text + "\n").unwrap();
    }
    fs::write(directory().join("README.md"), table(cases)).unwrap();
}

fn document(case: &Case) -> Document {
    let (approved, refused) = match case.verdict.clone() {
        Verdict::Good { lifetime_seconds } => (Some(Approval { lifetime_seconds }), None),
        Verdict::Refused { rule, reason } => (None, Some(Refused { rule, reason })),
    };
    let (request, request_base64) = match String::from_utf8(case.request.clone()) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(ByteString(case.request.clone()))),
    };
    Document {
        comment: case.comment.clone(),
        approved,
        refused,
        profile: case.profile,
        fixture: case.fixture,
        annotations: case.annotations.clone(),
        labels: case.labels.clone(),
        username: case.username.clone(),
        groups: case.groups.clone(),
        usages: case.usages.clone(),
        expiration_seconds: case.expiration_seconds,
        request,
        request_base64,
    }
}

const INTRODUCTION: &str = "\
# The corpus of certificate requests

What reaches a signer, good and bad, one JSON file per case: nearly the CertificateSigningRequest that an API server
holds, with the verdict that policy must give, the `fixture` it is judged against and the signer it is for (`profile`).
The name of a refused case begins with the rule that must refuse it; `reason` is the reason of the condition.

- Rules: 1 requester, 2 subject, 3 names and extensions, 4 key and encoding, 5 registry, 6 usages and lifetime.
- Fixtures and signers: `tests/it/requests/fixture.rs`. `installed` is the usual one: cluster `spoke1` is accepted, the
  addon `telemetry` is installed there, the signer `example.com/telemetry` has the default rules.
- `cargo test --test it requests` evaluates every file and compares this table with the files.
- `UPDATE_REQUESTS=1 cargo test --test it requests` writes all of it from the table in `tests/it/requests/cases`, with
  new keys; each case there varies one thing of a good request. What OpenSSL made is in `tests/it/requests/openssl`.
- `good/ocm-agent-v1.3.pem` is what OCM's own registration agent v1.3 sent, and is never written.

";

/// The README of the corpus, with the cases that have files and those that have none.
pub(crate) fn table(cases: &[Case]) -> String {
    let mut text = INTRODUCTION.to_owned();
    let cases = [cases, &too_large_to_keep()].concat();
    let (good, refused): (Vec<_>, Vec<_>) = cases.iter().partition(|case| matches!(case.verdict, Verdict::Good { .. }));
    text += &format!("## Refused ({})\n\n| case | rule | reason | what is wrong |\n|---|---|---|---|\n", refused.len());
    for case in refused {
        if let Verdict::Refused { rule, reason } = &case.verdict {
            text += &format!("| {} | {rule} | {reason} | {} |\n", link(case), case.comment);
        }
    }
    text += &format!("\n## Good ({})\n\n| case | what is special |\n|---|---|\n", good.len());
    for case in good {
        text += &format!("| {} | {} |\n", link(case), case.comment);
    }
    text
}

fn link(case: &Case) -> String {
    if too_large_to_keep().iter().any(|large| large.name == case.name) {
        return format!("{} (made by the test)", case.name);
    }
    format!("[{}]({})", case.name, location(case).display())
}
