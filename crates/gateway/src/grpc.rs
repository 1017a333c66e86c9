//! Refusals in the form that gRPC clients understand: a response of trailers only, with a gRPC status in them.

use std::fmt::Write;

use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};

/// Whether it is a gRPC request: `application/grpc`, or that with a `+` or `;` and more.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    kind.split_at_checked(GRPC.len()).is_some_and(|(start, rest)| {
        start.eq_ignore_ascii_case(GRPC) && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
    })
}

/// The gRPC status for a refusal (<https://grpc.github.io/grpc/core/md_doc_statuscodes.html>).
///
/// | HTTP | gRPC | why |
/// |---|---|---|
/// | a credential that is refused | 16 UNAUTHENTICATED | the client needs another one |
/// | 400 | 3 INVALID_ARGUMENT | the request is malformed |
/// | 403 | 7 PERMISSION_DENIED | the caller may not do that |
/// | 404, 405, 421, 501 | 12 UNIMPLEMENTED | there is no such method here |
/// | 408 | 4 DEADLINE_EXCEEDED | the client was too slow |
/// | 413 | 8 RESOURCE_EXHAUSTED | clients do not try again by themselves, which would change nothing |
/// | 429, 502, 503, 504 | 14 UNAVAILABLE | clients try again after a pause |
/// | others | 2 UNKNOWN | there are none |
fn code(status: StatusCode, is_credential: bool) -> &'static str {
    match status {
        _ if is_credential => "16",
        StatusCode::BAD_REQUEST => "3",
        StatusCode::FORBIDDEN => "7",
        StatusCode::NOT_FOUND
        | StatusCode::METHOD_NOT_ALLOWED
        | StatusCode::MISDIRECTED_REQUEST
        | StatusCode::NOT_IMPLEMENTED => "12",
        StatusCode::REQUEST_TIMEOUT => "4",
        StatusCode::PAYLOAD_TOO_LARGE => "8",
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => "14",
        _ => "2",
    }
}

/// A response that has only trailers.
pub(super) fn refusal(status: StatusCode, is_credential: bool, message: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from_static(code(status, is_credential)));
    // The encoded text is printable ASCII.
    if let Ok(message) = HeaderValue::from_str(&encode(message)) {
        headers.insert("grpc-message", message);
    }
    response
}

/// Percent-encodes what is not printable ASCII, and the percent sign (gRPC over HTTP2, "Status-Message").
fn encode(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        match byte {
            b'%' => encoded.push_str("%25"),
            b' '..=b'~' => encoded.push(byte.into()),
            // Writing to a string does not fail.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_grpc_are_known_by_their_content_type() {
        let is_grpc = |kind| is_grpc(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]));
        assert!(["application/grpc", "application/grpc+proto", "Application/gRPC;a=b"].into_iter().all(is_grpc));
        assert!(!["application/grpc-web", "application/grpcs", "application/json", ""].into_iter().any(is_grpc));
        assert!(!super::is_grpc(&HeaderMap::new()));
    }

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(encode("100% of \u{e4}\n"), "100%25 of %C3%A4%0A");
    }
}
