//! Sessions: the identity of a connection's peer under the trust in effect, and whether it is still eligible.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use futures::future::BoxFuture;
use hyper::Request;
use hyper::header::HeaderValue;
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backend::{Backends, continues};
use super::download::RateMeter;
use super::ending::{EndCause, Ending};
use super::permits::{Permit, RoutePermit, RoutePermits, SharedPermits};
use super::record::{BrokenAnswers, RequestRecord};
use super::stats::GatewayStats;
use super::tls::InEffect;
use super::traffic::OpenSession;
use super::unread::Unread;
use super::upload::BodyError;
use super::{Clock, Limits, SharedRegistry};
use addon_signer_core::gateway::access::{self, NotEligible};
use addon_signer_core::gateway::authz::{self, Peer};
use addon_signer_core::gateway::headers;
use addon_signer_core::gateway::host::Host;
use addon_signer_core::gateway::permits::NoPermit;
use addon_signer_core::gateway::route::{Route, RouteTable};
use addon_signer_core::trust::Trust;
use addon_signer_core::usage::{LastUse, UsageTracker, Visit};
use addon_signer_telemetry::audit::{Audit, Caller};

/// How many more requests of a connection its client may cancel than it completes.
const ABANDONED: u64 = 100;

/// What all connections share.
pub(super) struct GatewayShared {
    pub(super) in_effect: watch::Receiver<Option<Arc<InEffect>>>,
    pub(super) routes: watch::Receiver<Arc<RouteTable>>,
    pub(super) registry: SharedRegistry,
    pub(super) clock: Clock,
    pub(super) audit: Audit,
    pub(super) usage: Arc<UsageTracker>,
    pub(super) permits: SharedPermits,
    pub(super) route_permits: RoutePermits,
    pub(super) limits: Limits,
    pub(super) names: Vec<Host>,
    pub(super) access_log: bool,
    pub(super) stats: Arc<GatewayStats>,
    pub(super) backends: Backends,
    pub(super) broken_answers: BrokenAnswers,
}

/// A peer, with the trust snapshot by which it was identified.
struct KnownPeer {
    trust: Arc<Trust>,
    peer: Arc<Peer>,
}

/// The peer of a connection that was let in, the record that its certificate is in use, its permit, and the gauge that
/// counts it.
struct Admitted {
    peer: Arc<Peer>,
    visit: Visit,
    permit: Permit,
    _open: OpenSession,
}

struct Activity {
    /// Whether there was a request.
    has_asked: bool,
    in_flight: usize,
    answered: u64,
    abandoned: u64,
    since: Instant,
    forwarded: Vec<Weak<InFlight>>,
}

/// A connection whose handshake is done.
pub(super) struct Session {
    pub(super) shared: Arc<GatewayShared>,
    pub(super) remote: SocketAddr,
    pub(super) forwarded_for: HeaderValue,
    /// Cancelled when the connection must end after its current response.
    pub(super) close: CancellationToken,
    /// Notified by each request.
    pub(super) called: Notify,
    leaf: CertificateDer<'static>,
    known: Mutex<Option<KnownPeer>>,
    admitted: OnceLock<Admitted>,
    /// Why the connection was refused or must end, as in the audit log. It is final: a connection that was refused has
    /// no session's permit.
    refused: OnceLock<NotEligible>,
    activity: Mutex<Activity>,
    pub(super) unread: Arc<Unread>,
    /// Whether the gateway has cut the connection.
    is_cut: Arc<AtomicBool>,
    /// What the connection carries after HTTP has ended.
    pub(super) tunnel: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl Session {
    pub(super) fn new(shared: Arc<GatewayShared>, remote: SocketAddr, leaf: CertificateDer<'static>) -> Self {
        let activity = Activity {
            has_asked: false,
            in_flight: 0,
            answered: 0,
            abandoned: 0,
            since: Instant::now(),
            forwarded: Vec::new(),
        };
        Self {
            shared,
            remote,
            forwarded_for: headers::forwarded_for(remote.ip()),
            close: CancellationToken::new(),
            called: Notify::new(),
            leaf,
            known: Mutex::default(),
            admitted: OnceLock::new(),
            refused: OnceLock::new(),
            activity: Mutex::new(activity),
            unread: Arc::default(),
            is_cut: Arc::default(),
            tunnel: Mutex::default(),
        }
    }

    /// Notes that the gateway cuts the connection, and requests with it.
    pub(super) fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }

    /// The record of a request that begins now.
    pub(super) fn record<B>(&self, request: &Request<B>) -> Arc<RequestRecord> {
        let record = RequestRecord::new(&self.shared.stats, &self.is_cut);
        Arc::new(if self.shared.access_log { record.telling(request, self.shared.clock.now()) } else { record })
    }

    /// Checks the peer when the connection begins. `check` logs the verdict, and every request gets the same one.
    ///
    /// # Errors
    /// The connection is refused.
    pub(super) fn begin(&self) -> Result<(), NotEligible> {
        match self.check() {
            Err(cause) if !cause.is_not_ready() => Err(cause),
            _ => Ok(()),
        }
    }

    /// Identifies the peer under the trust in effect and the clock, and asks the registry for its eligibility. The
    /// audit log gets the first admission and the first refusal of a connection.
    pub(super) fn check(&self) -> Result<Arc<Peer>, NotEligible> {
        if let Some(cause) = self.refused.get() {
            return Err(cause.clone());
        }
        let checked = self.decide().and_then(|peer| self.enter(&peer).map(|()| peer));
        if let Err(cause) = &checked
            && !cause.is_not_ready()
            && self.refused.set(cause.clone()).is_ok()
        {
            self.tell(cause);
        }
        checked
    }

    fn decide(&self) -> Result<Arc<Peer>, NotEligible> {
        let peer = self.identify()?;
        self.shared.registry.read(|registry| access::eligibility(&peer, registry))?;
        Ok(peer)
    }

    /// Identifies the peer again if the trust snapshot has changed or the certificate has expired; otherwise returns
    /// the known peer.
    fn identify(&self) -> Result<Arc<Peer>, NotEligible> {
        let in_effect = self.shared.in_effect.borrow().clone().ok_or(NotEligible::NothingInEffect)?;
        let now = self.shared.clock.now();
        let mut known = self.known.lock();
        if let Some(KnownPeer { trust, peer }) = known.as_ref()
            && Arc::ptr_eq(trust, &in_effect.trust)
            && now <= peer.not_after
        {
            return Ok(Arc::clone(peer));
        }
        *known = None;
        let peer = Arc::new(authz::identify(&in_effect.trust, &self.leaf, now)?);
        *known = Some(KnownPeer { trust: Arc::clone(&in_effect.trust), peer: Arc::clone(&peer) });
        Ok(peer)
    }

    /// Takes the connection's permit, once.
    fn enter(&self, peer: &Arc<Peer>) -> Result<(), NotEligible> {
        if self.admitted.get().is_none() {
            let over = |whose| NotEligible::TooManyConnections { peer: Arc::clone(peer), whose };
            let permit = self.shared.permits.connect(&peer.identity).map_err(over)?;
            self.admitted.get_or_init(|| self.admit(peer, permit));
        }
        Ok(())
    }

    /// Whether it has been let in.
    pub(super) fn was_admitted(&self) -> bool {
        self.admitted.get().is_some()
    }

    fn admit(&self, peer: &Arc<Peer>, permit: Permit) -> Admitted {
        self.shared.audit.admitted(&self.caller(Some(peer)), &peer.identity);
        let opening = LastUse {
            serial: peer.serial,
            issuer: peer.issuer.clone(),
            identity: peer.identity.clone(),
            at: self.shared.clock.now(),
            from: self.remote.ip(),
        };
        let open = self.shared.stats.traffic.session(peer.identity.addon.as_str());
        Admitted { peer: Arc::clone(peer), visit: self.shared.usage.open(opening), permit, _open: open }
    }

    fn tell(&self, cause: &NotEligible) {
        if let NotEligible::TooManyConnections { whose, .. } = cause {
            let stats = &self.shared.stats;
            let counter = match whose {
                NoPermit::AddOn(_) => &stats.identity_over_capacity,
                NoPermit::Cluster(_) => &stats.cluster_over_capacity,
            };
            counter.inc();
        }
        match self.admitted.get() {
            Some(admitted) => {
                let caller = self.caller(Some(&admitted.peer));
                self.shared.audit.ended_connection(&caller, cause.reason(), cause);
            }
            None => self.shared.audit.refused_connection(&self.caller(cause.peer()), cause.reason(), cause),
        }
    }

    /// Describes the client for the audit log.
    pub(super) fn caller<'p>(&self, peer: Option<&'p Peer>) -> Caller<'p> {
        let Some(peer) = peer else { return Caller::stranger(self.remote, authz::unverified(&self.leaf)) };
        Caller {
            remote: self.remote,
            identity: Some(&peer.identity),
            signer: &peer.signer.name,
            issuer: peer.issuer.as_str(),
            serial: Some(peer.serial),
            unverified: String::new(),
        }
    }

    /// Notes that the certificate is in use now.
    pub(super) fn used(&self) {
        if let Some(admitted) = self.admitted.get() {
            admitted.visit.touch(self.shared.clock.now());
        }
    }

    /// Whether a request is in flight.
    pub(super) fn is_busy(&self) -> bool {
        self.activity.lock().in_flight > 0
    }

    /// Begins a request, which ends when the guard is dropped.
    pub(super) fn begin_request(self: &Arc<Self>, record: &Arc<RequestRecord>) -> InFlight {
        let mut activity = self.activity.lock();
        activity.in_flight += 1;
        activity.has_asked = true;
        self.called.notify_waiters();
        InFlight {
            session: Arc::clone(self),
            record: Arc::clone(record),
            ending: Ending::default(),
            pace: OnceLock::new(),
            route: None,
            _permit: None,
            _route_permit: None,
        }
    }

    /// Notes that a request has been answered.
    pub(super) fn answered(&self) {
        self.activity.lock().answered += 1;
    }

    /// Notes that the client cancelled a request before the response. If that happens far more often than responses do,
    /// the connection ends: resetting streams costs a client less than the gateway (CVE-2023-44487).
    pub(super) fn abandoned(&self) {
        let mut activity = self.activity.lock();
        activity.abandoned += 1;
        if activity.abandoned > activity.answered + ABANDONED {
            self.close.cancel();
        }
    }

    /// Watches a request that is forwarded: it may have to end, and its client may read too slowly.
    pub(super) fn watch_request(&self, in_flight: &Arc<InFlight>) {
        let mut activity = self.activity.lock();
        activity.forwarded.retain(|in_flight| in_flight.strong_count() > 0);
        activity.forwarded.push(Arc::downgrade(in_flight));
    }

    /// The requests in flight. Dropping one locks its session, so none is dropped under the lock.
    fn forwarded(&self) -> Vec<Arc<InFlight>> {
        self.activity.lock().forwarded.iter().filter_map(Weak::upgrade).collect()
    }

    /// Ends requests that are being forwarded: all of them, or those that no route lets in any more. A host name or a
    /// method that a route has lost counts for new requests only.
    pub(super) fn end_requests(&self, cause: &EndCause, peer: Option<&Peer>) {
        let all = self.forwarded();
        if all.is_empty() {
            return;
        }
        let table = Arc::clone(&self.shared.routes.borrow());
        for in_flight in all {
            if peer.is_none_or(|peer| !self.lets_in(&table, peer, &in_flight)) {
                in_flight.ending.end(cause.clone());
            }
        }
    }

    /// Whether the route of a request still lets its caller in.
    fn lets_in(&self, table: &RouteTable, peer: &Peer, in_flight: &InFlight) -> bool {
        let Some(route) = &in_flight.route else { return true };
        let cluster = &peer.identity.cluster;
        let known = table.of(&peer.signer.name, &peer.identity.addon);
        // A route whose backend is not found now may still have connections to it.
        let goes_on = |known: &&Arc<Route>| match (&known.backend, &route.backend) {
            (Ok(one), Ok(other)) => known.name == route.name && known.path == route.path && continues(one, other),
            _ => known.name == route.name && known.path == route.path,
        };
        let Some(known) = known.iter().find(goes_on) else { return false };
        self.shared.registry.read(|registry| known.clusters.admit(cluster, registry.cluster_set(cluster)))
    }

    /// Whether the client has been silent for longer than it may, or reads a response too slowly.
    pub(super) fn is_idle(&self) -> bool {
        self.is_silent()
            || self.forwarded().iter().any(|in_flight| in_flight.pace.get().is_some_and(|pace| pace.is_slow()))
    }

    fn is_silent(&self) -> bool {
        let limits = &self.shared.limits;
        let activity = self.activity.lock();
        let allowed = if activity.has_asked { limits.idle_timeout } else { limits.header_timeout };
        activity.in_flight == 0 && activity.since.elapsed() >= allowed
    }
}

/// A request, until all of its response is sent.
pub(super) struct InFlight {
    session: Arc<Session>,
    pub(super) record: Arc<RequestRecord>,
    pub(super) ending: Ending,
    /// How the client reads the response, once that has begun.
    pub(super) pace: OnceLock<Arc<RateMeter>>,
    route: Option<Arc<Route>>,
    _permit: Option<Permit>,
    _route_permit: Option<RoutePermit>,
}

impl InFlight {
    /// Takes a permit for the request. The session has let its peer in.
    pub(super) fn take_permit(&mut self) -> Result<(), NoPermit> {
        self._permit = self.session.admitted.get().map(|admitted| admitted.permit.request()).transpose()?;
        Ok(())
    }

    /// Takes a permit of the route.
    ///
    /// # Errors
    /// The caller has this many requests on it, and may have no more.
    pub(super) fn enter(&mut self, route: &Arc<Route>, peer: &Peer) -> Result<(), usize> {
        self._route_permit = self.session.shared.route_permits.take(route, &peer.identity)?;
        self.route = Some(Arc::clone(route));
        Ok(())
    }

    /// Logs why its response was cut short.
    pub(super) fn broke(&self, error: &BodyError) {
        if let (Some(peer), Some(route)) = (self.record.peer(), &self.route) {
            self.session.shared.broken_answers.say(peer, &route.name, error);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut activity = self.session.activity.lock();
        activity.in_flight -= 1;
        activity.since = Instant::now();
    }
}
