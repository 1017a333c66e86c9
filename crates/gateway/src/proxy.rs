//! Forwards the requests of an addon to its backend, and streams both ways.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{HeaderValue, TE, TRAILER, UPGRADE};
use hyper::http::uri::PathAndQuery;
use hyper::http::{request, response};
use hyper::{Request, Response, StatusCode, Uri, Version};
use tokio::time::Instant;

use super::answered::{Content, Forwarded};
use super::backend::{BackendBody, BackendFailure, ConnectionNeed, Fault, Pool, Silence};
use super::download::Download;
use super::grpc;
use super::problem::Refusal;
use super::session::{InFlight, Session};
use super::upgrade::Upgrade;
use super::upload::{Turn, Upload, UploadError, UploadLimit, UploadProgress, has_content};
use addon_signer_core::gateway::access::{self, Caller, NoAccess, RequestConnection, RequestHead};
use addon_signer_core::gateway::authz::Peer;
use addon_signer_core::gateway::headers;
use addon_signer_core::gateway::host::Host;
use addon_signer_core::gateway::path::PathBelow;
use addon_signer_core::gateway::permits::MinRate;
use addon_signer_core::gateway::route::{Backend, Route};
use addon_signer_core::identity::{ClusterName, PeerIdentity};

/// How often a request is sent as long as its backend has processed none of it: its connection has just ended, or the
/// backend refused its stream.
const TRIES: usize = 3;

/// The host that a request is for.
pub(super) struct CalledHost {
    pub(super) host: Host,
    pub(super) as_sent: HeaderValue,
}

/// A request that is being forwarded.
pub(super) struct Forward<'f> {
    pub(super) session: &'f Session,
    pub(super) peer: Arc<Peer>,
    pub(super) host: CalledHost,
    pub(super) path: PathBelow<'f>,
    /// Lasts until both bodies have ended.
    pub(super) in_flight: InFlight,
}

impl Forward<'_> {
    /// Checks the request against the addon's routes and passes it on.
    pub(super) async fn send(mut self, mut request: Request<Incoming>) -> Result<Response<Content>, Refusal> {
        let route = self.route(&request)?;
        self.in_flight.record.on(&route.name.to_string());
        let backend = access::backend(&route)?;
        let upgrade = Upgrade::asked(&mut request, backend)?;
        let has_content = has_content(request.body());
        let wanted = match access::content(request.method(), has_content, route.delete_with_content)? {
            _ if upgrade.is_some() => ConnectionNeed::Upgrade,
            RequestConnection::Own => ConnectionNeed::Own,
            RequestConnection::Shared => ConnectionNeed::Shared,
        };
        if request.body().size_hint().lower() > route.limits.max_body {
            return Err(UploadError::TooLarge(route.limits.max_body).into());
        }
        self.in_flight.enter(&route, &self.peer).map_err(Refusal::TooManyRequestsOfRoute)?;
        let pool = self.session.shared.backends.pool(backend);
        let pool = pool.map_err(|cause| NoAccess::NoBackend { route: route.name.clone(), cause })?;
        // HTTP/1.1 has no streams in both directions, whatever content type the client sends.
        let is_stream = grpc::is_grpc(request.headers()) && !pool.speaks_http1();
        let progress = UploadProgress::new();
        let request = self.backend_request(request, &route, upgrade.as_ref(), (is_stream, &progress))?;
        let in_flight = Arc::new(self.in_flight);
        self.session.watch_request(&in_flight);
        let cluster = &self.peer.identity.cluster;
        let exchange =
            Exchange { cluster, backend, pool, route: &route, wanted, progress, is_stream, sent: Instant::now() };
        let response = tokio::select! {
            biased;
            response = exchange.run(request) => response,
            refusal = std::future::poll_fn(|cx| in_flight.ending.poll(cx).map(Refusal::from)) => Err(refusal),
        };
        if matches!(response, Ok(_) | Err(Refusal::Backend(_) | Refusal::BackendReset(_) | Refusal::BackendSlow(_))) {
            in_flight.record.forwarded(exchange.sent.elapsed());
        }
        let (response, silence) = response.map_err(|refusal| refusal.on(&route.name))?;
        let (parts, body) = response.into_parts();
        match upgrade {
            Some(upgrade) if parts.status == StatusCode::SWITCHING_PROTOCOLS => {
                let agreed = upgrade.agreed(self.session, (parts, body), &route.limits, in_flight)?;
                Ok(agreed.map(Content::from))
            }
            // No one asked to switch protocols, and no other 1xx ends an exchange (RFC 9110 section 15.2).
            _ if parts.status.is_informational() => {
                Err(Refusal::Backend(Fault::Protocol.because(format!("it unexpectedly answered {}", parts.status))))
            }
            _ => {
                let stream = is_stream.then_some(exchange.progress);
                Ok(answer(self.session, route.limits.idle, (parts, body, silence), (in_flight, stream)))
            }
        }
    }

    fn route(&self, request: &Request<Incoming>) -> Result<Arc<Route>, NoAccess> {
        let table = self.session.shared.routes.borrow();
        let PeerIdentity { cluster, addon, .. } = &self.peer.identity;
        self.session.shared.registry.read(|registry| {
            let cluster_set = registry.cluster_set(cluster);
            let caller = Caller { signer: &self.peer.signer.name, addon, cluster, cluster_set };
            let head = RequestHead { caller, host: &self.host.host, method: request.method(), path: self.path };
            access::route(&table, &head).cloned()
        })
    }

    fn backend_request(
        &self,
        request: Request<Incoming>,
        route: &Route,
        upgrade: Option<&Upgrade>,
        (is_stream, progress): (bool, &Arc<UploadProgress>),
    ) -> Result<Request<Upload>, Refusal> {
        let (mut parts, body) = request.into_parts();
        let limit = self.upload_limit(route, is_stream);
        parts.uri = backend_uri(self.path, parts.uri.query()).map_err(|error| Refusal::Backend(error.into()))?;
        parts.version = Version::default();
        parts.extensions.clear();
        self.replace_headers(&mut parts, route, upgrade).map_err(|error| Refusal::Backend(error.into()))?;
        let pieces = has_content(&body).then(|| self.session.unread.body());
        let upload = Upload::new((body, pieces), route.limits.max_body, limit, Arc::clone(progress));
        Ok(Request::from_parts(parts, upload.counted(&self.in_flight.record)))
    }

    fn upload_limit(&self, route: &Route, is_stream: bool) -> UploadLimit {
        let MinRate { bytes_per_second, grace } = self.session.shared.limits.min_rate;
        if is_stream {
            return UploadLimit::Idle(route.limits.idle);
        }
        UploadLimit::rate(MinRate { bytes_per_second, grace: grace.max(route.limits.first_byte) })
    }

    fn replace_headers(
        &self,
        parts: &mut request::Parts,
        route: &Route,
        upgrade: Option<&Upgrade>,
    ) -> Result<(), hyper::header::InvalidHeaderValue> {
        let headers = &mut parts.headers;
        let takes_trailers = headers.get_all(TE).iter().any(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"));
        let trailers = headers.remove(TRAILER);
        headers::strip_request(headers);
        self.peer.headers.set(&route.name, headers)?;
        headers::set_forwarded(headers, self.session.forwarded_for.clone(), self.host.as_sent.clone());
        if takes_trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
        if let Some(trailers) = trailers {
            headers.insert(TRAILER, trailers); // HTTP/1.1 sends only trailers that it has announced
        }
        if let Some(upgrade) = upgrade {
            headers.insert(UPGRADE, upgrade.protocol.clone());
        }
        Ok(())
    }
}

/// The path below the addon, as the client sent it.
fn backend_uri(path: PathBelow<'_>, query: Option<&str>) -> Result<Uri, hyper::http::Error> {
    let mut text = path.as_sent();
    if text.is_empty() {
        text.push('/');
    }
    if let Some(query) = query {
        text = text + "?" + query;
    }
    Ok(PathAndQuery::from_maybe_shared(Bytes::from(text))?.into())
}

/// A request on its way to a backend, until the response begins.
struct Exchange<'e> {
    /// The client's.
    cluster: &'e ClusterName,
    backend: &'e Backend,
    pool: Arc<Pool>,
    route: &'e Route,
    wanted: ConnectionNeed,
    progress: Arc<UploadProgress>,
    is_stream: bool,
    /// When it began. Connecting counts as the backend's time.
    sent: Instant,
}

impl Exchange<'_> {
    async fn run(&self, mut request: Request<Upload>) -> Result<(Response<BackendBody>, Silence), Refusal> {
        let mut tries = 1;
        loop {
            let (addresses, within) = (&self.backend.addresses, self.route.limits.connect);
            let connecting = self.pool.connection(self.cluster, addresses, self.wanted, within);
            let connection = connecting.await.map_err(Refusal::Backend)?;
            self.progress.begin();
            let silence = connection.silence();
            let sent = self.in_time(connection.send(request, &self.pool)).await;
            if let Err(Refusal::BackendSlow(_)) = sent {
                silence.note();
            }
            match sent? {
                Ok(mut response) => {
                    let normalised = headers::answer::normalise(response.status(), response.headers_mut());
                    let normalised =
                        normalised.map_err(|cause| Refusal::Backend(Fault::Protocol.because(cause.to_string())));
                    return normalised.map(|()| (response, silence));
                }
                Err(BackendFailure { unsent: Some(unsent), .. }) if tries < TRIES => {
                    tries += 1;
                    request = *unsent;
                }
                Err(failure) => return Err(self.blame(failure)),
            }
        }
    }

    /// Waits for the head of the response. The timeout restarts with each piece of the request that is sent, so that a
    /// long upload does not count as a slow backend.
    async fn in_time<T>(&self, response: impl Future<Output = T>) -> Result<T, Refusal> {
        let limits = &self.route.limits;
        let allowed = |turn| if turn == Turn::Client && self.is_stream { limits.idle } else { limits.first_byte };
        tokio::pin!(response);
        loop {
            let (turn, since) = self.progress.turn();
            tokio::select! {
                biased;
                response = &mut response => return Ok(response),
                () = tokio::time::sleep_until(since + allowed(turn)) => {}
            }
            // A piece of the request may have passed while the timer ran, which restarts the time.
            let (turn, since) = self.progress.turn();
            let allowed = allowed(turn);
            if since + allowed <= Instant::now() {
                return Err(match turn {
                    Turn::Client => Refusal::ClientSilent(allowed),
                    Turn::Backend => Refusal::BackendSlow(allowed),
                });
            }
        }
    }

    /// Finds the cause of a failed exchange: an upload that fails makes the exchange with the backend fail too.
    fn blame(&self, BackendFailure { failure, reset, .. }: BackendFailure) -> Refusal {
        let upload = self.progress.failure().map(Refusal::from);
        upload.unwrap_or_else(|| reset.map_or(Refusal::Backend(failure), Refusal::BackendReset))
    }
}

fn answer(
    session: &Session,
    idle: Duration,
    (mut parts, body, silence): (response::Parts, BackendBody, Silence),
    (in_flight, stream): (Arc<InFlight>, Option<Arc<UploadProgress>>),
) -> Response<Content> {
    headers::strip_answer(&mut parts.headers);
    parts.version = Version::default();
    parts.extensions.clear();
    if let Some(upload) = body.upload() {
        in_flight.ending.aborts(upload);
    }
    let rate = session.shared.limits.min_rate;
    let body = Download::new(body, idle, rate, in_flight).of_stream(stream);
    body.in_flight().pace.get_or_init(|| Arc::clone(body.pace()));
    body.hold_fields(&mut parts.headers);
    Response::from_parts(parts, Content::Forwarded(Box::new(Forwarded::new(body, silence))))
}

#[cfg(test)]
mod tests {
    use addon_signer_core::gateway::path::SafePath;

    use super::*;

    #[test]
    fn the_backend_gets_the_path_below_the_addon() {
        let uri = |path, skip, query| {
            backend_uri(SafePath::parse(path).unwrap().below(skip), query).map(|uri| uri.to_string()).unwrap()
        };
        assert_eq!(uri("/addons/a", 2, None), "/");
        assert_eq!(uri("/addons/a", 2, Some("q=1")), "/?q=1");
        assert_eq!(uri("/addons/a/x%20y/", 2, Some("q=1")), "/x%20y/?q=1");
        assert_eq!(uri("/a.b/C", 0, None), "/a.b/C");
    }
}
