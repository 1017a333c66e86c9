//! Reads request paths so that gateway and backend cannot understand them differently. Pure functions.
//!
//! Routes match decoded segments, but the backend gets the path as it came. So a path that a backend could decode
//! differently is refused: dot segments in any spelling, encoded separators, empty segments, control characters; and a
//! path that falls below another route once its `;parameters` are dropped or it is decoded twice.

use crate::trust::Route;

/// Why a path is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not start with `/`.
    #[error("the path does not start with /")]
    NotAbsolute,
    /// Two slashes with nothing between them.
    #[error("the path has an empty segment (//)")]
    EmptySegment,
    /// `.` or `..` in any spelling, encoded once or twice.
    #[error("the path has a . or .. segment")]
    DotSegment,
    /// `%` without two hexadecimal digits.
    #[error("the path has a percent sign without two hexadecimal digits")]
    Encoding,
    /// An encoded `/` or `\\`, a backslash, or a control character.
    #[error("the path has an encoded separator, a backslash or a control character")]
    Separator,
    /// With its parameters dropped, or decoded twice, the path belongs to another route.
    #[error("the path belongs to another route if its parameters (;) are dropped or if it is decoded twice")]
    Route,
}

/// A path whose segments mean the same to every reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SafePath<'p> {
    raw: Vec<&'p str>,
    decoded: Vec<Vec<u8>>,
}

impl<'p> SafePath<'p> {
    /// Reads an absolute path. A trailing slash makes an empty last segment; no other segment may be empty.
    pub fn parse(path: &'p str) -> Result<Self, PathError> {
        let raw: Vec<&str> = path.strip_prefix('/').ok_or(PathError::NotAbsolute)?.split('/').collect();
        if raw.iter().rev().skip(1).any(|segment| segment.is_empty()) {
            return Err(PathError::EmptySegment);
        }
        let decoded = raw.iter().map(|segment| decode_segment(segment)).collect::<Result<_, _>>()?;
        Ok(Self { raw, decoded })
    }

    /// The decoded segments. A segment that is not UTF-8 is empty.
    pub fn segments(&self) -> Vec<&str> {
        self.decoded.iter().map(|segment| std::str::from_utf8(segment).unwrap_or_default()).collect()
    }

    /// The route with the longest prefix of whole segments after the first `skip` segments, and the path after these,
    /// as it came. The route's own path is part of it, because the backend serves that path. `None` if there is none.
    ///
    /// # Errors
    /// [`PathError::Route`] if a backend could see the path below another route.
    pub fn route<'r>(&self, skip: usize, routes: &'r [Route]) -> Result<Option<(&'r Route, String)>, PathError> {
        let below = self.decoded.get(skip..).unwrap_or_default();
        let found = longest_match(below, routes);
        if readings(below).iter().any(|reading| longest_match(reading, routes) != found) {
            return Err(PathError::Route);
        }
        let rest = self.raw.get(skip..).unwrap_or_default();
        let rest = rest.iter().fold(String::new(), |path, segment| path + "/" + segment);
        Ok(found.map(|route| (route, rest)))
    }
}

fn longest_match<'r>(segments: &[Vec<u8>], routes: &'r [Route]) -> Option<&'r Route> {
    let matching = routes.iter().filter_map(|route| {
        let prefix: Vec<&[u8]> = route_segments(route).collect();
        let starts = segments.len() >= prefix.len() && segments.iter().zip(&prefix).all(|(a, b)| a == b);
        starts.then_some((prefix.len(), route))
    });
    matching.max_by_key(|(length, _)| *length).map(|(_, route)| route)
}

/// How others could read the decoded segments: without parameters, decoded once more, and both.
fn readings(segments: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
    if !segments.iter().flatten().any(|byte| b";?#%".contains(byte)) {
        return Vec::new();
    }
    let twice: Vec<Vec<u8>> = segments.iter().map(|segment| decode(segment, Some).unwrap_or_default()).collect();
    let bare = |segments: &[Vec<u8>]| segments.iter().map(|segment| without_parameters(segment).to_vec()).collect();
    vec![bare(segments), bare(&twice), twice]
}

/// The part of a segment before its parameters, or before a query or fragment that was encoded.
fn without_parameters(segment: &[u8]) -> &[u8] {
    segment.split(|byte| b";?#".contains(byte)).next().unwrap_or_default()
}

fn route_segments(route: &Route) -> impl Iterator<Item = &[u8]> {
    route.path.split('/').filter(|segment| !segment.is_empty()).map(str::as_bytes)
}

/// Decodes once, and refuses a segment that is ambiguous now or after another decoding.
fn decode_segment(segment: &str) -> Result<Vec<u8>, PathError> {
    let once = decode(segment.as_bytes(), |_| None).ok_or(PathError::Encoding)?;
    check(&once)?;
    // A second decoder may keep a percent sign without two digits.
    if let Some(twice) = decode(&once, Some) {
        check(&twice)?;
    }
    Ok(once)
}

fn check(segment: &[u8]) -> Result<(), PathError> {
    // Some servers drop ";parameters" before they look at dots (RFC 3986 section 3.3 allows them), or mistake an
    // encoded "?" for the beginning of the query.
    let name = without_parameters(segment);
    if name == b"." || name == b".." {
        return Err(PathError::DotSegment);
    }
    if name.is_empty() && !segment.is_empty() {
        return Err(PathError::EmptySegment);
    }
    let ambiguous = |byte: &u8| matches!(byte, b'/' | b'\\') || byte.is_ascii_control();
    if segment.iter().any(ambiguous) { Err(PathError::Separator) } else { Ok(()) }
}

/// Percent-decoding (RFC 3986 section 2.1). `alone` decodes a percent sign without two digits; `None` refuses it.
fn decode(text: &[u8], alone: fn(u8) -> Option<u8>) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let digit = |at: usize| tail.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        let encoded = digit(0).zip(digit(1)).and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        let (byte, length) = match (first, encoded) {
            (b'%', Some(byte)) => (byte, 2),
            (b'%', None) => (alone(*first)?, 0),
            (byte, _) => (*byte, 0),
        };
        decoded.push(byte);
        rest = tail.get(length..).unwrap_or_default();
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn mk_route(path: &str) -> Route {
        Route {
            path: path.to_owned(),
            backend: "http://u".to_owned(),
            methods: ["GET".to_owned()].into(),
            max_body: 1,
            timeout: Duration::from_secs(1),
            delete_with_content: false,
        }
    }

    fn routed(path: &str, routes: &[Route]) -> Option<(String, String)> {
        let path = SafePath::parse(path).unwrap();
        path.route(2, routes).unwrap().map(|(route, rest)| (route.path.clone(), rest))
    }

    #[test]
    fn the_longest_whole_segment_prefix_wins() {
        let routes = [mk_route("/api"), mk_route("/api/v1"), mk_route("/api/v1/receive")];
        let found = |path: &str| routed(path, &routes);
        let expect = |route: &str, rest: &str| Some((route.to_owned(), rest.to_owned()));
        assert_eq!(found("/addons/a/api/v1/receive"), expect("/api/v1/receive", "/api/v1/receive"));
        assert_eq!(found("/addons/a/api/v1/receive/"), expect("/api/v1/receive", "/api/v1/receive/"));
        assert_eq!(found("/addons/a/api/v1/received"), expect("/api/v1", "/api/v1/received"));
        assert_eq!(found("/addons/a/api/v10/x"), expect("/api", "/api/v10/x"));
        assert_eq!(found("/addons/a/%61pi/%76%31/caf%C3%A9"), expect("/api/v1", "/%61pi/%76%31/caf%C3%A9"));
        assert_eq!(found("/addons/a/apis"), None);
        assert_eq!(found("/addons/a"), None);
        assert_eq!(routed("/addons/a/x/y", &[mk_route("/")]), expect("/", "/x/y"));
        assert_eq!(routed("/addons/a", &[mk_route("/")]), expect("/", ""));
    }

    #[test]
    fn ambiguous_paths_are_refused() {
        for (path, error) in [
            ("", PathError::NotAbsolute),
            ("*", PathError::NotAbsolute),
            ("/a//b", PathError::EmptySegment),
            ("//a", PathError::EmptySegment),
            ("/a/../b", PathError::DotSegment),
            ("/a/..", PathError::DotSegment),
            ("/a/./b", PathError::DotSegment),
            ("/a/%2e%2E/b", PathError::DotSegment),
            ("/a/.%2e/b", PathError::DotSegment),
            ("/a/..;x=1/b", PathError::DotSegment),
            ("/a/..%3bx=1/b", PathError::DotSegment),
            ("/a/..%253bx=1/b", PathError::DotSegment),
            ("/a/..%3fx/b", PathError::DotSegment),
            ("/a/..%23", PathError::DotSegment),
            ("/a/..%253f", PathError::DotSegment),
            ("/a/;x=1/b", PathError::EmptySegment),
            ("/a/%3bx=1/b", PathError::EmptySegment),
            ("/a/%253bx=1/b", PathError::EmptySegment),
            ("/a/%252e%252e/b", PathError::DotSegment),
            ("/a/b%2fc", PathError::Separator),
            ("/a/..%2f..", PathError::Separator),
            ("/a/b%5Cc", PathError::Separator),
            ("/a/b\\c", PathError::Separator),
            ("/a/%252F", PathError::Separator),
            ("/a/%252F%25zz", PathError::Separator),
            ("/a/%00", PathError::Separator),
            ("/a/%0d%0a", PathError::Separator),
            ("/a/%", PathError::Encoding),
            ("/a/%g0", PathError::Encoding),
        ] {
            assert_eq!(SafePath::parse(path), Err(error), "{path:?}");
        }
        for path in ["/", "/a/", "/a/...", "/a/..b", "/a/100%25", "/a/x.tar.gz", "/a/b;v=1", "/a/%2Ehidden"] {
            assert!(SafePath::parse(path).is_ok(), "{path:?}");
        }
    }

    #[test]
    fn parameters_and_double_encodings_cannot_switch_routes() {
        let routes = [mk_route("/"), mk_route("/api"), mk_route("/api/admin")];
        let found = |path: &str| {
            let path = format!("/addons/a{path}");
            let safe = SafePath::parse(&path).unwrap();
            safe.route(2, &routes).map(|found| found.map(|(route, _)| route.path.clone()))
        };
        for path in [
            "/api;v=1",
            "/api;v=1/admin",
            "/api/admin;v=1",
            "/api/admin%3bv=1",
            "/api/admin%253Bv=1",
            "/%2561pi",
            "/api/%2561dmin/x",
            "/api/%2561dmin;v=1/x",
            "/api/admin%3fx",
            "/api/admin%23x",
            "/api/admin%253fx",
        ] {
            assert_eq!(found(path), Err(PathError::Route), "{path}");
        }
        let expect = |route: &str| Ok(Some(route.to_owned()));
        assert_eq!(found("/api/admin/x;v=1"), expect("/api/admin"));
        assert_eq!(found("/api/x;v=1/%2561dmin"), expect("/api"));
        assert_eq!(found("/api/100%2525"), expect("/api"));
        assert_eq!(found("/%61pi/adm%69n"), expect("/api/admin"));
        assert_eq!(found("/x;v=1/api"), expect("/"));
    }

    proptest! {
        #[test]
        fn what_is_passed_on_never_leaves_the_prefix(path in "/addons/a/api[/a-z.%2eEfF5cC;]{0,24}") {
            if let Ok(safe) = SafePath::parse(&path)
                && let Ok(Some((_, rest))) = safe.route(2, &[mk_route("/api")])
            {
                prop_assert!(path.ends_with(&rest));
                let decoded = String::from_utf8_lossy(&decode(rest.as_bytes(), |_| None).unwrap()).into_owned();
                prop_assert!(decoded.split(['/', '\\']).all(|segment| segment != ".." && segment != "."));
            }
        }
    }
}
