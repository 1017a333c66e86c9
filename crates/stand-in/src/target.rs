//! Finds resource, namespace, name and subresource of a URL path. Pure functions.

use std::collections::HashMap;

use axum::extract::Query as UrlQuery;
use hyper::Uri;

use super::resources::Resource;
use super::status::ApiError;
use super::store::Key;

/// The resource, namespace, name and subresource of a request.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) resource: &'static Resource,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
}

impl Target {
    /// Reads `/api/v1/…` and `/apis/<group>/<version>/…`.
    pub(super) fn parse(path: &str) -> Result<Self, ApiError> {
        let parts: Vec<String> = path
            .trim_matches('/')
            .split('/')
            .map(decode)
            .collect::<Option<_>>()
            .ok_or_else(|| ApiError::BadRequest("the path is not percent-encoded UTF-8".into()))?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match parts.as_slice() {
            ["api", version, rest @ ..] => Self::of_group("", version, rest),
            ["apis", group, version, rest @ ..] => Self::of_group(group, version, rest),
            _ => Err(ApiError::NoSuchPath),
        }
    }

    fn of_group(group: &str, version: &str, rest: &[&str]) -> Result<Self, ApiError> {
        let (namespace, rest) = match rest {
            ["namespaces", _, "status"] => (None, rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            _ => (None, rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (plural, None, None),
            [plural, name] => (plural, Some(*name), None),
            [plural, name, subresource] => (plural, Some(*name), Some(*subresource)),
            _ => return Err(ApiError::NoSuchPath),
        };
        let resource = Resource::find(group, version, plural).ok_or(ApiError::NoSuchPath)?;
        let scoped = match (resource.namespaced, namespace, name) {
            (true, None, Some(_)) | (false, Some(_), _) => false,
            (true, _, _) | (false, None, _) => true,
        };
        let served = subresource.is_none_or(|sub| resource.subresources.contains(&sub));
        if !scoped || !served {
            return Err(ApiError::NoSuchPath);
        }
        Ok(Self {
            resource,
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            subresource: subresource.map(str::to_owned),
        })
    }

    /// The key of the object with this name.
    pub(super) fn key(&self, name: &str) -> Key {
        Key {
            plural: self.resource.plural,
            namespace: self.namespace.clone().unwrap_or_default(),
            name: name.to_owned(),
        }
    }
}

/// Percent-decoding (RFC 3986, section 2.1).
fn decode(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        bytes.push(u8::from_str_radix(after.get(..2)?, 16).ok()?);
        rest = after.get(2..)?;
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).ok()
}

/// Decoded query parameters. If a name occurs several times, the last value counts.
#[derive(Debug, Default)]
pub(super) struct Query(HashMap<String, String>);

impl Query {
    pub(super) fn parse(uri: &Uri) -> Result<Self, ApiError> {
        UrlQuery::try_from_uri(uri)
            .map(|UrlQuery(parameters)| Self(parameters))
            .map_err(|error| ApiError::BadRequest(error.to_string()))
    }

    /// The value of a parameter; empty if absent.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Whether a parameter is `true` or `1`.
    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), "true" | "1")
    }

    /// The value of a parameter as a number; `None` if absent.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        match self.get(name) {
            "" => Ok(None),
            text => {
                text.parse().map(Some).map_err(|_| ApiError::BadRequest(format!("{name}: {text:?} is not a number")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_mean_resources() {
        let t = Target::parse("/api/v1/namespaces/ns/secrets/a%3Ab").unwrap();
        assert_eq!((t.resource.kind, t.namespace.as_deref(), t.name.as_deref()), ("Secret", Some("ns"), Some("a:b")));
        let t = Target::parse("/api/v1/namespaces/ns").unwrap();
        assert_eq!((t.resource.kind, t.name.as_deref()), ("Namespace", Some("ns")));
        let t = Target::parse("/apis/certificates.k8s.io/v1/certificatesigningrequests/c/approval").unwrap();
        assert_eq!(t.subresource.as_deref(), Some("approval"));
    }

    #[test]
    fn other_paths_are_not_found() {
        for path in [
            "/",
            "/apis/nobody.example/v1/things",
            "/api/v1/secrets/a",
            "/apis/certificates.k8s.io/v1/namespaces/ns/certificatesigningrequests",
            "/api/v1/namespaces/ns/secrets/a/status",
        ] {
            assert!(matches!(Target::parse(path), Err(ApiError::NoSuchPath)), "{path}");
        }
    }
}
