//! The path and the headers of a request at the gateway: what reaches the backend stays below the addon's route,
//! however a backend reads it, and claims no identity.
//!
//! The input is text: the path in the first line, then `name: value` lines.
#![no_main]

use std::sync::LazyLock;

use addon_signer_core::gateway::access::{Caller, RequestHead, RequestTarget};
use addon_signer_core::gateway::authz::Peer;
use addon_signer_core::gateway::host::Host;
use addon_signer_core::gateway::path::SafePath;
use addon_signer_core::gateway::route::RouteTable;
use addon_signer_core::gateway::{access, headers};
use addon_signer_fuzz::gateway::{mk_peer, mk_table};
use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;

static PEER: LazyLock<Peer> = LazyLock::new(mk_peer);
static TABLE: LazyLock<RouteTable> = LazyLock::new(mk_table);

fuzz_target!(|text: &str| {
    let mut lines = text.split('\n');
    follow(lines.next().unwrap_or_default());
    cross(lines.filter_map(|line| line.split_once(':')));
});

fn follow(path: &str) {
    let Ok(safe) = SafePath::parse(path) else { return };
    let Ok(RequestTarget::Backend(skip)) = access::target(&PEER.identity.addon, &safe) else { return };
    let below = safe.below(skip);
    let (addon, cluster) = (&PEER.identity.addon, &PEER.identity.cluster);
    let host = Host::Name("h".to_owned());
    let caller = Caller { signer: "golden", addon, cluster, cluster_set: None };
    let head = RequestHead { caller, host: &host, method: &Method::GET, path: below };
    let Ok(route) = access::route(&TABLE, &head) else { return };
    let sent = below.as_sent();
    assert!(path.ends_with(&sent), "what is passed on is the end of what came");
    let segments: Vec<&str> = sent.split('/').skip(1).collect();
    assert!(segments.len() >= route.path.length());
    for segment in &segments {
        for spelling in [decoded(segment), decoded(&decoded(segment))] {
            let name = spelling.split([';', '?', '#']).next().unwrap_or_default();
            assert!(!matches!(name, "." | ".."), "{path:?} leaves its route");
            assert!(!spelling.contains(['/', '\\', '\0', '\r', '\n']), "{path:?} has a separator");
        }
    }
    let once: Vec<String> = segments.iter().map(|segment| decoded(segment)).collect();
    let twice: Vec<String> = once.iter().map(|segment| decoded(segment)).collect();
    let read = |segments: &[String], how: fn(&str) -> String| segments.iter().map(|one| how(one)).collect::<Vec<_>>();
    for segments in [once, twice] {
        for how in [str::to_owned, without_parameters, str::to_lowercase, without_trailing, forgiving] {
            let reading = read(&segments, how);
            assert_eq!(backends_route(&reading), Some(route.name.name.as_str()), "{path:?} is read as {reading:?}");
        }
    }
    if route.path.names_cluster() {
        assert_eq!(segments[1], "spoke1", "{path:?} names another cluster");
    }
}

fn without_parameters(segment: &str) -> String {
    segment.split([';', '?', '#']).next().unwrap_or_default().to_owned()
}

fn without_trailing(segment: &str) -> String {
    segment.trim_end_matches(['.', ' ']).to_owned()
}

fn forgiving(segment: &str) -> String {
    without_trailing(&without_parameters(segment)).to_lowercase()
}

/// The route whose path a backend sees when it has read these segments. A segment with an extension is that of a route
/// without one. All routes are of one namespace; younger ones of another would not be heeded.
fn backends_route(segments: &[String]) -> Option<&'static str> {
    let is = |segment: &String, of_route: &str| {
        segment == of_route || segment.rsplit_once('.').is_some_and(|(stem, _)| stem == of_route)
    };
    let starts =
        |names: &[&str]| segments.len() >= names.len() && segments.iter().zip(names).all(|(one, other)| is(one, other));
    let has_cluster = segments.first().is_some_and(|first| is(first, "t")) && segments.len() > 1;
    [
        ("/api/v1", starts(&["api", "v1"])),
        ("/t/{cluster}", has_cluster),
        ("/api", starts(&["api"])),
        ("/push", starts(&["push"])),
    ]
    .into_iter()
    .find(|(_, is_it)| *is_it)
    .map(|(name, _)| name)
}

/// Decodes percent signs leniently, as a careless backend would.
fn decoded(segment: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = segment.as_bytes();
    while let [first, tail @ ..] = rest {
        let digit = |at: usize| tail.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        match digit(0).zip(digit(1)) {
            Some((high, low)) if *first == b'%' => {
                bytes.push((high * 16 + low) as u8);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn cross<'h>(lines: impl Iterator<Item = (&'h str, &'h str)>) {
    let mut sent = HeaderMap::new();
    for (name, value) in lines.take(64) {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value.trim())) {
            sent.append(name, value);
        }
    }
    let trace = headers::rules::trace_id(&sent);
    assert!(trace.is_none_or(|id| id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit())), "{trace:?}");
    headers::strip_request(&mut sent);
    for name in sent.keys() {
        let as_variable = name.as_str().replace('_', "-");
        let prefixes = ["x-remote-", "x-addon-signer-", "x-forwarded-"];
        assert!(!prefixes.iter().any(|claim| as_variable.starts_with(claim)), "{name} came through");
        let names = ["client-cert", "client-cert-chain", "forwarded", "x-real-ip"];
        assert!(!names.contains(&as_variable.as_str()), "{name} came through");
        let overrides =
            ["x-http-method-override", "x-http-method", "x-method-override", "x-original-url", "x-rewrite-url"];
        assert!(!overrides.contains(&as_variable.as_str()), "{name} came through");
        assert!(!["connection", "te", "upgrade", "transfer-encoding", "host"].contains(&name.as_str()));
    }
}
