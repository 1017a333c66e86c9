//! The corpus as seeds of the fuzz targets: `EXPORT_SEEDS=1 cargo test --test it seeds` writes `fuzz/corpus`.

use std::fs;
use std::path::{Path, PathBuf};

use addon_signer_core::identity::{DEFAULT_GROUPS, DEFAULT_USER};
use k8s_openapi::ByteString;

use super::tlv::children;
use super::{Case, corpus};
use crate::profiles::golden;

#[test]
fn every_fuzz_target_has_seeds() {
    let scratch = tempfile::tempdir().unwrap();
    let asked = std::env::var_os("EXPORT_SEEDS").is_some();
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let root = if asked { checkout } else { scratch.path().to_path_buf() };
    let cases = corpus();
    let requests = cases.iter().map(|case| (case.name.clone(), case.request.clone()));
    let ders = cases.iter().filter_map(|case| Some((format!("{}.der", case.name), der(case)?)));
    let parts = cases.iter().filter_map(|case| Some((case.name.clone(), subject_and_attributes(&der(case)?)?)));
    let names = identities(&cases).into_iter().enumerate().map(|(index, text)| (index.to_string(), text.into_bytes()));
    for (target, at_least, seeds) in [
        ("certificate", 8, certificates()),
        ("csr_policy", 400, requests.chain(ders).collect::<Vec<_>>()),
        ("csr_signed", 200, parts.collect()),
        ("identity", 50, names.collect()),
        ("kubeconfig", 6, kubeconfigs()),
        ("request_head", 20, request_heads()),
    ] {
        assert!(seeds.len() >= at_least, "{target} has {} seeds", seeds.len());
        write(&root.join(target), &seeds);
    }
}

fn write(directory: &PathBuf, seeds: &[(String, Vec<u8>)]) {
    fs::create_dir_all(directory).unwrap();
    for (name, bytes) in seeds {
        fs::write(directory.join(name), bytes).unwrap();
    }
}

/// The golden certificates, and the parts of the leaves that the target `certificate` signs again.
fn certificates() -> Vec<(String, Vec<u8>)> {
    let whole = golden().map(|der| der.to_vec());
    let parts = whole.iter().filter_map(|der| {
        let pieces = children(children(der)?.first()?)?;
        let validity = pieces.get(4)?;
        let subject = pieces.get(5)?;
        let extensions = pieces.get(7)?;
        let length = u16::try_from(subject.len()).ok()?.to_be_bytes();
        Some([&length, *subject, *validity, *extensions].concat())
    });
    let parts: Vec<_> = parts.collect();
    whole.into_iter().chain(parts).enumerate().map(|(index, bytes)| (index.to_string(), bytes)).collect()
}

/// The content of the case's PEM block, if it has any.
fn der(case: &Case) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(&case.request).ok()?;
    let body: String = text.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect();
    let decoded: ByteString = serde_json::from_value(body.into()).ok()?;
    (!decoded.0.is_empty()).then_some(decoded.0)
}

/// Subject and attributes, which the target `csr_signed` combines with a key of its own.
fn subject_and_attributes(der: &[u8]) -> Option<Vec<u8>> {
    let content = *children(der)?.first()?;
    let parts = children(content)?;
    let subject = parts.get(1)?;
    let attributes = parts.get(3)?;
    let length = u16::try_from(subject.len()).ok()?.to_be_bytes();
    Some([&length, *subject, *attributes].concat())
}

/// The inputs of the target `identity`: a user template, a group template, cluster, addon, agent and a common name.
fn identities(cases: &[Case]) -> Vec<String> {
    let templates =
        [DEFAULT_USER, "{agent}@{addon}@{cluster}", "{addon}:{cluster}.clusters.example", "{cluster}-{addon}"];
    let user = "system:open-cluster-management:cluster:spoke1:addon:telemetry:agent:telemetry";
    let names = cases.iter().map(|case| case.username.as_str()).chain([user, "a@b@c", "b:c.clusters.example"]);
    let mut texts: Vec<String> = names
        .flat_map(|name| {
            templates.map(|user| format!("{user}\n{}\nspoke1\ntelemetry\ntelemetry\n{name}", DEFAULT_GROUPS[0]))
        })
        .collect();
    texts.sort();
    texts.dedup();
    texts
}

/// Kubeconfigs with the users of kubectl, and one in UTF-16.
fn kubeconfigs() -> Vec<(String, Vec<u8>)> {
    let users = [
        "token: abc",
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: 'true', interactiveMode: Never}",
        "as: ann, as-groups: [a, b], as-uid: '7', as-user-extra: {x: [y]}",
        "username: ann, password: secret",
        "auth-provider: {name: oidc, config: {id-token: a.b.c}}",
    ];
    let text = |user: &str| {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: one\n\
             contexts: [{{name: one, context: {{cluster: hub, user: ann, namespace: x}}}}]\n\
             clusters: [{{name: hub, cluster: {{server: 'https://[::1]:6443', tls-server-name: hub, \
             insecure-skip-tls-verify: true, proxy-url: 'http://ann:b@[::1]:3128'}}}}]\n\
             users: [{{name: ann, user: {{{user}}}}}]\n"
        )
    };
    let wide = format!("\u{feff}{}", text(users[0])).encode_utf16().flat_map(u16::to_le_bytes).collect();
    let files = users.iter().map(|user| text(user).into_bytes()).chain([wide]);
    files.enumerate().map(|(index, bytes)| (index.to_string(), bytes)).collect()
}

/// The inputs of the target `request_head`: a path, and lines of headers.
fn request_heads() -> Vec<(String, Vec<u8>)> {
    let paths = [
        "/addons/telemetry/api/v1/x",
        "/addons/telemetry/push",
        "/addons/telemetry/%61pi/caf%C3%A9/",
        "/addons/telemetry/api/../push",
        "/addons/telemetry/api/%2e%2e/push",
        "/addons/telemetry/api/%252e%252e/push",
        "/addons/telemetry/api/a%2fb",
        "/addons/telemetry/api;v=1/v1/x",
        "/addons/telemetry/api/v1;v=1/x",
        "/addons/telemetry/api/%2576%31/x",
        "/addons/telemetry/api/v1/x;v=1",
        "/addons/telemetry/api/%252f%25zz",
        "/addons/other/api",
        "//addons",
        "/v1/whoami",
    ];
    let heads = [
        "x-remote-user: a\nX_Remote_Group: b\nclient-cert: :AA==:",
        "x-http-method-override: DELETE\nX_Original_URL: /push\nx-forwarded-prefix: /push",
        "connection: keep-alive, x-secret\nx-secret: 1\ntransfer-encoding: chunked\nx-request-id: 7",
    ];
    let pairs = paths.iter().flat_map(|path| heads.iter().map(move |head| format!("{path}\n{head}")));
    pairs.enumerate().map(|(index, text)| (index.to_string(), text.into_bytes())).collect()
}
