//! `/addons/<addon>/<route…>`: forwards an addon's requests to its backend over HTTP/1.1, and streams both ways.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, HOST, HeaderValue, UPGRADE};
use hyper::http::uri::{Parts, PathAndQuery};
use hyper::{Request, Response, Uri, Version};
use hyper_util::client::legacy::ResponseFuture;
use hyper_util::client::legacy::connect::capture_connection;
use tokio::time::Instant;

use super::body::{BodyError, EndsUpload, OutBody, Turn, Upload, UploadProgress, has_content};
use super::download::Download;
use super::problem::Refusal;
use super::session::{InFlight, Session};
use addon_signer_core::gateway::access::{self, CallConnection};
use addon_signer_core::gateway::authz::Peer;
use addon_signer_core::gateway::backend::RefusedAddress;
use addon_signer_core::gateway::headers;
use addon_signer_core::gateway::pace::MinRate;
use addon_signer_core::gateway::path::SafePath;
use addon_signer_core::trust::Route;

/// A request below `/addons/` that is being forwarded.
pub(super) struct Forward<'f> {
    pub(super) session: &'f Session,
    pub(super) peer: Arc<Peer>,
    pub(super) path: &'f SafePath<'f>,
    /// Lasts until both bodies have ended.
    pub(super) in_flight: Arc<InFlight>,
}

impl Forward<'_> {
    /// Checks the request against the addon's routes and passes it on.
    pub(super) async fn send(self, request: Request<Incoming>) -> Result<Response<OutBody>, Refusal> {
        let (route, rest) = access::route(&self.peer, request.method(), self.path)?;
        if request.headers().contains_key(UPGRADE) {
            return Err(Refusal::Upgrade);
        }
        let has_content = has_content(request.body());
        let connection = access::content(request.method(), has_content, route.delete_with_content)?;
        if request.body().size_hint().lower() > route.max_body {
            return Err(Refusal::TooLarge(route.max_body));
        }
        let timeout = route.timeout;
        let progress = UploadProgress::new();
        let mut request = self.backend_request(request, route, &rest, &progress)?;
        if connection == CallConnection::Own {
            // A backend that ignores the content must not read it as a request (RFC 9112 section 9.6).
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let captured = capture_connection(&mut request);
        // From here on, hyper notices that nobody waits for the answer, but closes the connection only after the
        // backend has taken what is left.
        let ends = EndsUpload { progress: Arc::clone(&progress), connection: captured };
        let refused = |address: RefusedAddress| Refusal::Backend(address.to_string());
        let response = self.session.shared.backends.request(request, connection).map_err(refused)?;
        let sent = Instant::now();
        let response = response_in_time(response, &progress, timeout).await;
        if matches!(response, Ok(_) | Err(Refusal::Backend(_) | Refusal::BackendSlow(_))) {
            self.session.shared.stats.forwarded(self.in_flight.began.elapsed(), sent.elapsed());
        }
        let response = response?;
        if response.status().is_informational() {
            // No one asked to switch protocols, and no other 1xx ends an exchange (RFC 9110 section 15.2).
            return Err(Refusal::Backend(format!("it unexpectedly answered {}", response.status())));
        }
        Ok(self.download(response, timeout, ends))
    }

    fn backend_request(
        &self,
        request: Request<Incoming>,
        route: &Route,
        rest: &str,
        progress: &Arc<UploadProgress>,
    ) -> Result<Request<Upload>, Refusal> {
        let unusable = |error: &dyn std::fmt::Display| Refusal::Backend(error.to_string());
        let (mut parts, body) = request.into_parts();
        let host = match parts.uri.authority() {
            Some(authority) => HeaderValue::from_str(authority.as_str()).ok(), // HTTP/2 has :authority instead
            None => parts.headers.get(HOST).cloned(),
        };
        let host = host.filter(|host| headers::is_one_of(host, &self.session.shared.names));
        parts.uri = backend_uri(&route.backend, rest, parts.uri.query()).map_err(|error| unusable(&error))?;
        parts.version = Version::HTTP_11;
        parts.extensions.clear();
        headers::strip_request(&mut parts.headers);
        headers::set_identity(&mut parts.headers, &self.peer).map_err(|error| unusable(&error))?;
        let client = self.session.remote.ip();
        headers::set_forwarded(&mut parts.headers, client, host).map_err(|error| unusable(&error))?;
        let MinRate { bytes_per_second, patience } = self.session.shared.limits.min_rate;
        let rate = MinRate { bytes_per_second, patience: patience.max(route.timeout) };
        let call = Arc::clone(&self.in_flight);
        let upload = Upload::new(body, route.max_body, rate, Arc::clone(progress), call);
        Ok(Request::from_parts(parts, upload))
    }

    fn download(self, response: Response<Incoming>, timeout: Duration, ends: EndsUpload) -> Response<OutBody> {
        let (mut parts, body) = response.into_parts();
        headers::strip_hop_by_hop(&mut parts.headers);
        parts.version = Version::default();
        parts.extensions.clear();
        let (shared, peer) = (Arc::clone(&self.session.shared), self.peer);
        let mut body = Download::new(body, timeout, shared.limits.min_rate, self.in_flight);
        body.ends(ends);
        self.session.watch_response(body.pace());
        body.hold_fields(&mut parts.headers);
        let body = body.map_err(move |error| {
            shared.broken_answers.say(&peer, &error);
            error
        });
        Response::from_parts(parts, body.boxed_unsync())
    }
}

/// Appends the path below the addon to the backend's own path.
fn backend_uri(backend: &str, rest: &str, query: Option<&str>) -> Result<Uri, hyper::http::Error> {
    let base = backend.parse::<Uri>()?.into_parts();
    let own = base.path_and_query.as_ref().map_or("", PathAndQuery::path);
    let mut path = own.trim_end_matches('/').to_owned() + rest;
    if path.is_empty() {
        path.push('/');
    }
    if let Some(query) = query {
        path = path + "?" + query;
    }
    let mut parts = Parts::default();
    // If one of these is missing, the backend is not `http://host…`, and `from_parts` returns an error.
    parts.scheme = base.scheme;
    parts.authority = base.authority;
    parts.path_and_query = Some(path.parse()?);
    Ok(Uri::from_parts(parts)?)
}

/// Waits for the head of the response. The timeout restarts with each piece of the request that is sent, so that a long
/// upload does not count as a slow backend.
async fn response_in_time(
    response: ResponseFuture,
    progress: &UploadProgress,
    timeout: Duration,
) -> Result<Response<Incoming>, Refusal> {
    tokio::pin!(response);
    loop {
        let (_, since) = progress.turn();
        tokio::select! {
            biased;
            result = &mut response => return result.map_err(|error| blame(&error, progress)),
            () = tokio::time::sleep_until(since + timeout) => {}
        }
        let (turn, since) = progress.turn();
        if since + timeout <= Instant::now() {
            return Err(match turn {
                Turn::Client => Refusal::ClientSlow(timeout),
                Turn::Backend => Refusal::BackendSlow(timeout),
            });
        }
    }
}

/// Finds the cause of a failed exchange: an upload that fails makes the exchange with the backend fail too.
fn blame(error: &hyper_util::client::legacy::Error, progress: &UploadProgress) -> Refusal {
    match progress.failure() {
        Some(BodyError::TooLarge(max)) => Refusal::TooLarge(max),
        Some(BodyError::Slow(rate)) => Refusal::ClientTrickles(rate),
        Some(error) => Refusal::ClientBroke(error.to_string()),
        None => {
            let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
            Refusal::Backend(causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_below_the_addon_is_appended_to_the_backend() {
        let uri = |backend, rest, query| backend_uri(backend, rest, query).map(|uri| uri.to_string()).ok();
        assert_eq!(uri("http://h:1", "", None).as_deref(), Some("http://h:1/"));
        assert_eq!(uri("http://h:1/", "/x", Some("q=1")).as_deref(), Some("http://h:1/x?q=1"));
        assert_eq!(uri("http://h/base/", "/x%20y", None).as_deref(), Some("http://h/base/x%20y"));
        assert_eq!(uri("http://h/base", "", None).as_deref(), Some("http://h/base"));
        for bad in ["", "h", "http://"] {
            assert_eq!(uri(bad, "", None), None, "{bad:?}");
        }
    }
}
