//! What is counted of one request, and the line about it in the access log. The record lasts as long as anything of the
//! request does: its response, its upload, or what it was upgraded to.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::header::HOST;
use hyper::{Request, StatusCode, Version};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::stats::GatewayStats;
use crate::traffic::{Code, NO_ROUTE, RouteTraffic};
use addon_signer_core::gateway::authz::Peer;
use addon_signer_core::gateway::headers::rules::trace_id;
use addon_signer_core::gateway::route::RouteName;
use addon_signer_core::identity::PeerIdentity;
use addon_signer_core::throttle::{Quota, Suppressed, Throttle};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_platform::clock::Clock;
use addon_signer_telemetry::access::{Ended, RequestSummary};

/// How a request ended: all of its response was handed to its connection, or both sides of an upgraded one have ended.
pub(super) const COMPLETE: &str = "complete";
/// The client left, or its own body was cut short.
pub(super) const CLIENT_GONE: &str = "client gone";
/// The backend left, or sent or took nothing for too long.
pub(super) const BACKEND_GONE: &str = "backend gone";
/// The gateway ended the connection, or the caller lost its eligibility.
pub(super) const SESSION_ENDED: &str = "session ended";
/// No route lets the caller in any more.
pub(super) const ROUTE_GONE: &str = "route gone";
/// Nothing passed in either direction for too long.
pub(super) const SILENT: &str = "silent";

/// One request.
pub(super) struct RequestRecord {
    stats: Arc<GatewayStats>,
    pub(super) began: Instant,
    peer: OnceLock<Arc<Peer>>,
    traffic: OnceLock<Arc<RouteTraffic>>,
    is_answered: AtomicBool,
    /// What only the access log needs; `None` while that is off.
    entry: Option<Box<AccessEntry>>,
    /// Whether the gateway has cut the connection.
    is_cut: Arc<AtomicBool>,
}

/// What the access log reports about a request.
struct AccessEntry {
    began: Timestamp,
    asked: RequestSummary,
    is_upgraded: AtomicBool,
    received: AtomicU64,
    sent: AtomicU64,
    head: OnceLock<Head>,
    times: OnceLock<Times>,
    ended: OnceLock<&'static str>,
}

/// The response's head.
struct Head {
    status: u16,
    problem: &'static str,
    after: Duration,
}

/// How long a forwarded request took until its response began.
struct Times {
    own: Duration,
    backend: Duration,
}

impl RequestRecord {
    /// Starts the record of a request. `is_cut` reports later whether the gateway has cut its connection.
    pub(super) fn new(stats: &Arc<GatewayStats>, is_cut: &Arc<AtomicBool>) -> Self {
        stats.requests.inc();
        Self {
            stats: Arc::clone(stats),
            began: Instant::now(),
            peer: OnceLock::new(),
            traffic: OnceLock::new(),
            is_answered: AtomicBool::new(false),
            entry: None,
            is_cut: Arc::clone(is_cut),
        }
    }

    /// Has the access log report it.
    pub(super) fn telling<B>(mut self, request: &Request<B>, began: Timestamp) -> Self {
        let protocol = if request.version() == Version::HTTP_2 { "HTTP/2" } else { "HTTP/1.1" };
        let host = request.uri().authority().map(|authority| authority.as_str().into());
        let field = || request.headers().get(HOST).map(|host| String::from_utf8_lossy(host.as_bytes()));
        let host = host.or_else(field).unwrap_or_default();
        let trace = trace_id(request.headers());
        let entry = AccessEntry {
            began,
            asked: RequestSummary::new(protocol, request.method().as_str(), request.uri().path(), &host, trace),
            is_upgraded: AtomicBool::new(false),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            head: OnceLock::new(),
            times: OnceLock::new(),
            ended: OnceLock::new(),
        };
        self.entry = Some(Box::new(entry));
        self
    }

    /// Whether the access log reports it.
    pub(super) fn is_logged(&self) -> bool {
        self.entry.is_some()
    }

    /// Notes the client. The first one counts, as with everything below.
    pub(super) fn by(&self, peer: &Arc<Peer>) {
        self.peer.get_or_init(|| Arc::clone(peer));
    }

    pub(super) fn peer(&self) -> Option<&Peer> {
        self.peer.get().map(|peer| &**peer)
    }

    /// Notes which route decides: an AddOnRoute, or a path of the gateway's own. Returns its counters.
    pub(super) fn on(&self, route: &str) -> &Arc<RouteTraffic> {
        let addon = self.peer.get().map_or("", |peer| peer.identity.addon.as_str());
        self.traffic.get_or_init(|| self.stats.traffic.of(addon, route))
    }

    /// Counts content from the client.
    pub(super) fn received(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.on(NO_ROUTE).received.inc_by(bytes);
        if let Some(entry) = &self.entry {
            entry.received.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts content to the client.
    pub(super) fn sent(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.on(NO_ROUTE).sent.inc_by(bytes);
        if let Some(entry) = &self.entry {
            entry.sent.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Notes how long a forwarded request took until its response began or failed, and how much of that was the
    /// backend's.
    pub(super) fn forwarded(&self, backend: Duration) {
        let own = self.began.elapsed().saturating_sub(backend);
        self.stats.forwarded(own, backend);
        if let Some(entry) = &self.entry {
            entry.times.get_or_init(|| Times { own, backend });
        }
    }

    /// Counts the request when the head of its response is handed to HTTP. `problem` is empty unless the response is
    /// one.
    pub(super) fn answered(&self, status: StatusCode, problem: &'static str) {
        self.count(Code::of(status));
        if let Some(entry) = &self.entry {
            entry.head.get_or_init(|| Head { status: status.as_u16(), problem, after: self.began.elapsed() });
        }
    }

    /// Counts the request: its stream is reset, so it has no response.
    pub(super) fn reset(&self, problem: &'static str) {
        self.count(Code::Reset);
        if let Some(entry) = &self.entry {
            entry.head.get_or_init(|| Head { status: 0, problem, after: self.began.elapsed() });
        }
        self.ended(BACKEND_GONE);
    }

    fn count(&self, code: Code) {
        self.is_answered.store(true, Ordering::Relaxed);
        self.on(NO_ROUTE).count(code);
    }

    /// Notes that the end of the response is not the end of the request.
    pub(super) fn upgraded(&self) {
        if let Some(entry) = &self.entry {
            entry.is_upgraded.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that all of the response was handed to the connection.
    pub(super) fn complete(&self) {
        if let Some(entry) = self.entry.as_ref().filter(|entry| !entry.is_upgraded.load(Ordering::Relaxed)) {
            entry.ended.get_or_init(|| COMPLETE);
        }
    }

    /// Notes how it ended.
    pub(super) fn ended(&self, how: &'static str) {
        if let Some(entry) = &self.entry {
            entry.ended.get_or_init(|| how);
        }
    }

    fn tell(&self, entry: &AccessEntry) {
        let whole = self.began.elapsed();
        let otherwise = if self.is_cut.load(Ordering::Relaxed) { SESSION_ENDED } else { CLIENT_GONE };
        let head = entry.head.get();
        let own = head.map_or(whole, |head| head.after);
        let (own, backend) = entry.times.get().map_or((own, Duration::ZERO), |times| (times.own, times.backend));
        let peer = self.peer();
        Ended {
            began: entry.began,
            identity: peer.map(|peer| &peer.identity),
            serial: peer.map(|peer| peer.serial),
            asked: &entry.asked,
            route: self.on(NO_ROUTE).route(),
            status: head.map_or(0, |head| head.status),
            received: entry.received.load(Ordering::Relaxed),
            sent: entry.sent.load(Ordering::Relaxed),
            own,
            backend,
            whole,
            problem: head.map_or("", |head| head.problem),
            ended: entry.ended.get().unwrap_or(&otherwise),
        }
        .write();
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        if !self.is_answered.load(Ordering::Relaxed) {
            self.count(Code::Unanswered);
        }
        self.stats.requests.dec();
        if let Some(entry) = &self.entry {
            self.tell(entry);
        }
    }
}

/// How many broken responses of one addon on one cluster are logged; the others are counted.
const LOGGED: Quota = Quota { first: 5, window: Duration::from_secs(60) };

/// Logs which responses were cut short.
pub(super) struct BrokenAnswers {
    clock: Clock,
    throttle: Mutex<Throttle<String>>,
}

impl BrokenAnswers {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, throttle: Mutex::new(Throttle::new(LOGGED)) }
    }

    pub(super) fn say(&self, peer: &Peer, route: &RouteName, error: &dyn Display) {
        let PeerIdentity { cluster, addon, agent } = &peer.identity;
        let now = self.clock.now();
        let taken = self.throttle.lock().take(&format!("{cluster}/{addon}"), now);
        taken.before.iter().for_each(more);
        if taken.write {
            tracing::warn!(
                %cluster, %addon, %agent, %route, %error,
                "The gateway could not pass on the backend's response completely"
            );
        }
    }

    /// Runs forever: logs how many responses were suppressed in each window that has ended.
    pub(super) async fn keep(&self) -> Infallible {
        loop {
            tokio::time::sleep(LOGGED.window).await;
            let now = self.clock.now();
            self.throttle.lock().ended(now).iter().for_each(more);
        }
    }
}

fn more(sum: &Suppressed<String>) {
    tracing::warn!(addon = sum.cause, count = sum.count, "Further broken backend responses were not logged");
}

#[cfg(test)]
mod tests {
    use tracing::Dispatch;
    use tracing::level_filters::LevelFilter;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn unlogged_answers_are_counted_once_when_their_window_ends() {
        // Without a second subscriber, another test's thread could decide whether lines of this one are written.
        let _second = Dispatch::new(tracing_subscriber::fmt().with_max_level(LevelFilter::OFF).finish());
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines = file.reopen().unwrap();
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || lines.try_clone().unwrap()).finish();
        let _guard = tracing::subscriber::set_default(log);
        let clock = Clock::default();
        let broken = BrokenAnswers::new(clock.clone());
        for _ in 0..LOGGED.first + 3 {
            broken.throttle.lock().take(&"spoke1/telemetry".to_owned(), clock.now());
        }
        let written = || std::fs::read_to_string(file.path()).unwrap();
        assert!(tokio::time::timeout(LOGGED.window * 2, broken.keep()).await.is_err(), "it runs forever");
        assert_eq!(written(), "", "their time is not over by the clock");
        clock.advance(LOGGED.window + Duration::from_secs(1));
        assert!(tokio::time::timeout(LOGGED.window * 3, broken.keep()).await.is_err());
        let written = written();
        let line = "Further broken backend responses were not logged addon=\"spoke1/telemetry\" count=3\n";
        assert!(written.ends_with(line), "{written}");
        assert!(written.lines().count() == 1, "{written}");
    }
}
