//! The path and the headers of a request at the gateway: what reaches the backend stays below the addon's route, and
//! claims no identity.
//!
//! The input is text: the path in the first line, then `name: value` lines.
#![no_main]

use std::sync::LazyLock;

use addon_signer_core::gateway::path::SafePath;
use addon_signer_core::gateway::{access, headers};
use addon_signer_fuzz::gateway::mk_peer;
use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;

static PEER: LazyLock<addon_signer_core::gateway::authz::Peer> = LazyLock::new(mk_peer);

fuzz_target!(|text: &str| {
    let mut lines = text.split('\n');
    follow(lines.next().unwrap_or_default());
    cross(lines.filter_map(|line| line.split_once(':')));
});

fn follow(path: &str) {
    let Ok(safe) = SafePath::parse(path) else { return };
    let Ok((route, rest)) = access::route(&PEER, &Method::GET, &safe) else { return };
    assert!(path.ends_with(&rest), "what is passed on is the end of what came");
    let segments: Vec<&str> = rest.split('/').skip(1).collect();
    let own = route.path.split('/').filter(|segment| !segment.is_empty()).count();
    assert!(segments.len() >= own);
    for segment in &segments {
        for spelling in [decoded(segment), decoded(&decoded(segment))] {
            let name = spelling.split([';', '?', '#']).next().unwrap_or_default();
            assert!(!matches!(name, "." | ".."), "{path:?} leaves its route");
            assert!(!spelling.contains(['/', '\\', '\0', '\r', '\n']), "{path:?} has a separator");
        }
    }
    let once: Vec<String> = segments.iter().map(|segment| decoded(segment)).collect();
    let twice: Vec<String> = once.iter().map(|segment| decoded(segment)).collect();
    for reading in [without_parameters(&once), without_parameters(&twice), twice, once] {
        assert_eq!(backends_route(&reading).as_ref(), Some(&route.path), "{path:?} is read as {reading:?}");
    }
}

fn without_parameters(segments: &[String]) -> Vec<String> {
    segments.iter().map(|segment| segment.split([';', '?', '#']).next().unwrap_or_default().to_owned()).collect()
}

/// The route whose path a backend sees when it has read these segments.
fn backends_route(segments: &[String]) -> Option<String> {
    let path = format!("/{}/", segments.join("/"));
    let below = PEER.signer.routes.iter().filter(|route| path.starts_with(&format!("{}/", route.path)));
    below.max_by_key(|route| route.path.len()).map(|route| route.path.clone())
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
    headers::set_identity(&mut sent, &PEER).expect("a peer's names fit in headers");
    assert_eq!(sent.get_all("x-remote-user").iter().count(), 1);
    assert_eq!(sent.get_all("client-cert").iter().count(), 1);
}
