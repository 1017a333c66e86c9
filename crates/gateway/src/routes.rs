//! Answers the requests on a session, or refuses them: the gateway's own paths, and those that are forwarded.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, ETAG, HOST, HeaderValue, IF_NONE_MATCH};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use serde::Serialize;
use tokio::time::Instant;

use super::answered::{Answered, Content};
use super::grpc;
use super::problem::{Problem, Refusal};
use super::proxy::{CalledHost, Forward};
use super::record::RequestRecord;
use super::session::{InFlight, Session};
use super::upload::has_content;
use addon_signer_core::gateway::access::{self, NoAccess, RequestTarget};
use addon_signer_core::gateway::authz::Peer;
use addon_signer_core::gateway::headers::answer::MOST_HEADERS;
use addon_signer_core::gateway::path::SafePath;
use addon_signer_core::names::HEADER_RENEW_WITHIN;

/// A client that cancels a request sooner than this did not wait for the response.
const BARELY_WAITED: Duration = Duration::from_secs(1);

/// Answers one request. The peer is checked first, again for every request.
///
/// # Errors
/// The stream must be reset, with this error's code.
pub(super) async fn answer(session: Arc<Session>, request: Request<Incoming>) -> Result<Response<Answered>, h2::Error> {
    let record = session.record(&request);
    let mut in_flight = session.begin_request(&record);
    let waiting = Unanswered { session: Some(&session), since: record.began };
    let asked = RequestParts {
        version: request.version(),
        method: request.method().clone(),
        uri: request.uri().clone(),
        is_grpc: grpc::is_grpc(request.headers()),
    };
    let checked = session.check();
    let peer = checked.as_ref().ok().cloned();
    let answered = match checked {
        Ok(peer) => {
            session.used();
            record.by(&peer);
            match in_flight.take_permit() {
                Ok(()) => dispatch(&session, peer, request, in_flight).await,
                Err(whose) => Err(Refusal::TooManyRequests(whose)),
            }
        }
        Err(cause) => Err(cause.into()),
    };
    waiting.answered();
    let answer = match answered {
        Ok(answer) => {
            record.answered(answer.status(), "");
            answer
        }
        Err(refusal) => refuse(&session, peer.as_deref(), &asked, &refusal, &record)?.map(Content::from),
    };
    Ok(Answered::of(answer, asked.method == Method::HEAD, record))
}

/// A client that waits for the head of a response. Dropping this before the response means that the client cancelled.
struct Unanswered<'s> {
    session: Option<&'s Session>,
    since: Instant,
}

impl Unanswered<'_> {
    fn answered(mut self) {
        if let Some(session) = self.session.take() {
            session.answered();
        }
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        // Long polls that the client ends are not an attack.
        if let Some(session) = self.session.filter(|_| self.since.elapsed() < BARELY_WAITED) {
            session.abandoned();
        }
    }
}

/// The parts of a request needed to refuse it.
struct RequestParts {
    version: Version,
    method: Method,
    uri: Uri,
    is_grpc: bool,
}

/// Reads `:authority`, or `Host` where the URI has no authority (RFC 9112 section 3.2.2). If there are several, they
/// must be the same: the backend sees only one of them.
fn host(session: &Session, peer: &Peer, request: &Request<Incoming>) -> Result<CalledHost, NoAccess> {
    let fields = || request.headers().get_all(HOST).iter().map(HeaderValue::as_bytes);
    let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let as_sent = authority.or_else(|| fields().next()).unwrap_or_default();
    let text = String::from_utf8_lossy(as_sent);
    let is_clear = fields().count() <= 1 && fields().all(|field| field.eq_ignore_ascii_case(as_sent));
    let refused = || NoAccess::Host(text.clone().into_owned());
    if !is_clear {
        return Err(refused());
    }
    let table = session.shared.routes.borrow();
    let host = access::host(&text, &session.shared.names, &table, &peer.signer.name)?;
    Ok(CalledHost { host, as_sent: HeaderValue::from_bytes(as_sent).map_err(|_| refused())? })
}

/// Answers the gateway's own paths, which are in docs/reference.md, and forwards the others.
async fn dispatch(
    session: &Session,
    peer: Arc<Peer>,
    request: Request<Incoming>,
    in_flight: InFlight,
) -> Result<Response<Content>, Refusal> {
    if request.headers().len() > MOST_HEADERS {
        return Err(Refusal::TooManyHeaders(MOST_HEADERS));
    }
    let host = host(session, &peer, &request)?;
    let uri = request.uri().clone();
    let path = SafePath::parse(uri.path()).map_err(NoAccess::from)?;
    match access::target(&peer.identity.addon, &path)? {
        RequestTarget::WhoAmI => {
            in_flight.record.on("whoami");
            read_only(&request)?;
            Ok(who_am_i(&peer).map(Content::from))
        }
        RequestTarget::Bundle => {
            in_flight.record.on("bundle");
            read_only(&request)?;
            bundle(session, &peer, request.headers()).map(|answer| answer.map(Content::from))
        }
        RequestTarget::Backend(skip) => {
            Forward { session, peer, host, path: path.below(skip), in_flight }.send(request).await
        }
    }
}

fn read_only(request: &Request<Incoming>) -> Result<(), Refusal> {
    access::read_only(request.method())?;
    access::content(request.method(), has_content(request.body()), false)?;
    Ok(())
}

/// The response to `GET /v1/whoami`. Scripts depend on the names of its members.
#[derive(Serialize)]
struct WhoAmI<'p> {
    cluster: &'p str,
    addon: &'p str,
    agent: &'p str,
    user: &'p str,
    groups: &'p [String],
    signer: &'p str,
    issuer: &'p str,
    serial: String,
    #[serde(rename = "notAfter")]
    not_after: String,
}

fn who_am_i(peer: &Peer) -> Response<Bytes> {
    let answer = WhoAmI {
        cluster: peer.identity.cluster.as_str(),
        addon: peer.identity.addon.as_str(),
        agent: peer.identity.agent.as_str(),
        user: &peer.user,
        groups: &peer.groups,
        signer: &peer.signer.name,
        issuer: peer.issuer.as_str(),
        serial: peer.serial.to_string(),
        not_after: peer.not_after.to_string(),
    };
    // All members are texts, so serialising does not fail.
    let mut response = Response::new(Bytes::from(serde_json::to_vec(&answer).unwrap_or_default()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The serving anchors in PEM, with their digest as a strong ETag. A client with a certificate of a tainted authority
/// is told to renew it.
fn bundle(session: &Session, peer: &Peer, headers: &HeaderMap) -> Result<Response<Bytes>, Refusal> {
    let in_effect = session.shared.in_effect.borrow().clone();
    let anchors = in_effect.as_ref().and_then(|in_effect| in_effect.trust.serving_anchors.as_ref());
    let anchors = anchors.ok_or(Refusal::NoBundle)?;
    let digest = anchors.digest();
    let tag = format!("\"{digest}\"");
    let known = headers.get_all(IF_NONE_MATCH).iter().any(|value| names_tag(value, &tag));
    let mut response = Response::new(if known { Bytes::new() } else { anchors.pem().into() });
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-pem-file"));
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    let signer = in_effect.as_ref().and_then(|in_effect| in_effect.trust.signer(&peer.signer.name));
    if let Some(seconds) = signer.and_then(|signer| signer.renew_within.get(&peer.issuer)) {
        response.headers_mut().insert(HEADER_RENEW_WITHIN, HeaderValue::from(*seconds));
    }
    Ok(response)
}

/// If-None-Match compares weakly (RFC 9110 section 13.1.2).
fn names_tag(value: &HeaderValue, tag: &str) -> bool {
    let Ok(listed) = value.to_str() else { return false };
    listed.split(',').map(str::trim).any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
}

fn refuse(
    session: &Session,
    peer: Option<&Peer>,
    asked: &RequestParts,
    refusal: &Refusal,
    record: &RequestRecord,
) -> Result<Response<Bytes>, h2::Error> {
    let problem = Problem::from(refusal);
    session.shared.stats.problem(problem.name);
    // The audit log has one line per decision: a refusal that ends the connection was logged when the connection was
    // refused or ended. The query is never logged.
    if !refusal.ends_connection() {
        let method = asked.method.as_str();
        let path = asked.uri.path();
        session.shared.audit.refused_request(&session.caller(peer), method, path, problem.cause, refusal);
    }
    // gRPC has a status for each code. After CANCEL a client also checks whether its deadline has passed.
    if let Refusal::BackendReset(reason) = refusal
        && asked.is_grpc
        && asked.version == Version::HTTP_2
    {
        record.reset(problem.name);
        return Err((*reason).into());
    }
    let mut response = refusal.response(&problem, asked.is_grpc);
    record.answered(response.status(), problem.name);
    if refusal.ends_connection() {
        session.close.cancel();
        if asked.version < Version::HTTP_2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
    Ok(response)
}
