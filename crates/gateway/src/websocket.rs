//! WebSockets of clients that speak HTTP/2 (RFC 8441), with backends that speak HTTP/1.1.

use data_encoding::BASE64;
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::header::{HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use hyper::http::response;
use hyper::{Method, Request, StatusCode};
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use ring::rand::{SecureRandom, SystemRandom};

use super::problem::Refusal;

/// What a server adds to the key (RFC 6455 section 1.3).
const SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The key of a request, which shows that the backend knows what a WebSocket is.
pub(super) struct Key(String);

impl Key {
    /// Makes an upgrade of HTTP/1.1 of an extended CONNECT for a WebSocket. `None` for all other requests.
    ///
    /// # Errors
    /// It is for another protocol.
    pub(super) fn translate(request: &mut Request<Incoming>) -> Result<Option<Self>, Refusal> {
        let Some(protocol) = request.extensions().get::<Protocol>() else { return Ok(None) };
        if protocol.as_str() != "websocket" {
            return Err(Refusal::Upgrade);
        }
        let mut random = [0; 16];
        SystemRandom::new().fill(&mut random).map_err(|_| Refusal::Backend("no random numbers".to_owned()))?;
        let key = BASE64.encode(&random);
        let value = HeaderValue::from_str(&key).map_err(|error| Refusal::Backend(error.to_string()))?;
        *request.method_mut() = Method::GET;
        request.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
        request.headers_mut().insert(SEC_WEBSOCKET_KEY, value);
        Ok(Some(Self(key)))
    }

    /// What the backend must answer.
    fn accept(&self) -> String {
        let mut digest = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        digest.update(self.0.as_bytes());
        digest.update(SUFFIX);
        BASE64.encode(digest.finish().as_ref())
    }

    /// Makes an answer of HTTP/2 of a head that switches protocols.
    pub(super) fn answer(&self, parts: &mut response::Parts) -> Result<(), Refusal> {
        let accepted = parts.headers.remove(SEC_WEBSOCKET_ACCEPT);
        if accepted.is_none_or(|accepted| accepted.as_bytes() != self.accept().as_bytes()) {
            return Err(Refusal::Backend("it has not accepted the key of the WebSocket".to_owned()));
        }
        parts.status = StatusCode::OK;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_answers_the_key_as_in_rfc_6455() {
        let key = Key("dGhlIHNhbXBsZSBub25jZQ==".to_owned());
        assert_eq!(key.accept(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
