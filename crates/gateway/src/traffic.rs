//! Requests, bytes and sessions of each addon, by route.
//!
//! The labels are bounded by what administrators configure. An addon is that of an identity that was let in, so an
//! AddOnSigner lists it; a route is an AddOnRoute that lets the addon in, or one of the gateway's own paths. Addons and
//! routes that are removed lose their series. A code is one of IANA's registry, some sixty; any other number that a
//! backend sends counts as its class.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::{self, Write};
use std::sync::Arc;

use hyper::StatusCode;
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use addon_signer_core::gateway::route::RouteTable;
use addon_signer_core::trust::Trust;
use addon_signer_telemetry::labels;
use addon_signer_telemetry::metrics::{Registry, add};

/// The label of requests that match no route. No AddOnRoute has this name, because theirs have a slash.
pub(super) const NO_ROUTE: &str = "none";

/// How a request ended for its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Code {
    /// A status of IANA's registry.
    Status(StatusCode),
    /// Another status, by its first digit.
    Class(u16),
    /// The stream was reset, so the request has no response.
    Reset,
    /// The client left before its response began.
    Unanswered,
}

impl Code {
    /// The code of a response with this status.
    pub(super) fn of(status: StatusCode) -> Self {
        // The http crate knows the reason phrase of each registered status, and of no other but 418.
        status.canonical_reason().map_or(Self::Class(status.as_u16() / 100), |_| Self::Status(status))
    }
}

impl EncodeLabelValue for Code {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => encoder.write_str(status.as_str()),
            Self::Class(first) => write!(encoder, "{first}xx"),
            Self::Reset => encoder.write_str("reset"),
            Self::Unanswered => encoder.write_str("none"),
        }
    }
}

labels! {
    /// Label: an addon; empty for callers that were not let in.
    struct AddOnLabel {
        addon: String,
    }
}

labels! {
    /// Labels: an addon and a route.
    struct RouteLabels {
        addon: String,
        route: String,
    }
}

labels! {
    /// Labels: these and a code.
    struct RequestLabels {
        addon: String,
        route: String,
        code: Code,
    }
}

const REQUESTS: &str = "Requests, counted when the head of their answer is sent. code is the HTTP status that the \
                        client got (101 for a WebSocket; 200 for most requests of gRPC); 2xx and \
                        the like for one that IANA has not registered; reset if the stream was reset instead; none if \
                        the client left before";

/// What is counted of all addons.
#[derive(Debug, Clone)]
pub(super) struct TrafficStats {
    requests: Family<RequestLabels, Counter>,
    received: Family<RouteLabels, Counter>,
    sent: Family<RouteLabels, Counter>,
    sessions: Family<AddOnLabel, Gauge>,
    known: Arc<Mutex<BTreeMap<String, OfAddOn>>>,
}

/// What is counted of one addon.
#[derive(Debug, Default)]
struct OfAddOn {
    sessions: Option<Gauge>,
    routes: HashMap<String, Arc<RouteTraffic>>,
}

/// What is counted of one addon's requests on one route.
#[derive(Debug)]
pub(super) struct RouteTraffic {
    labels: RouteLabels,
    requests: Family<RequestLabels, Counter>,
    codes: Mutex<Codes>,
    /// Bytes of content from clients.
    pub(super) received: Counter,
    /// Bytes of content to clients.
    pub(super) sent: Counter,
}

/// A connection that counts as open until this is dropped.
pub(super) struct OpenSession(Gauge);

impl Drop for OpenSession {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[derive(Debug, Default)]
struct Codes {
    /// Whether the labels have been dropped: requests under way must not bring them back.
    is_gone: bool,
    known: Vec<(Code, Counter)>,
}

impl TrafficStats {
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            requests: add(registry, "gateway_requests", REQUESTS),
            received: add(
                registry,
                "gateway_received_bytes",
                "Bytes of bodies and of WebSockets that the gateway took from clients, counted while they pass",
            ),
            sent: add(
                registry,
                "gateway_sent_bytes",
                "Bytes of bodies and of WebSockets that it passed to clients, counted while they pass",
            ),
            sessions: add(registry, "gateway_sessions", "Open connections of clients that were let in"),
            known: Arc::default(),
        }
    }

    /// Counts a connection of an addon as open.
    pub(super) fn session(&self, addon: &str) -> OpenSession {
        let label = || AddOnLabel { addon: addon.to_owned() };
        let mut known = self.known.lock();
        let of_addon = known.entry(addon.to_owned()).or_default();
        let gauge = of_addon.sessions.get_or_insert_with(|| self.sessions.get_or_create_owned(&label()));
        gauge.inc(); // under the lock, so that no sweep drops the label of an open connection
        OpenSession(gauge.clone())
    }

    /// The counters of an addon's requests on a route.
    pub(super) fn of(&self, addon: &str, route: &str) -> Arc<RouteTraffic> {
        let mut known = self.known.lock();
        if let Some(traffic) = known.get(addon).and_then(|of_addon| of_addon.routes.get(route)) {
            return Arc::clone(traffic);
        }
        let labels = RouteLabels { addon: addon.to_owned(), route: route.to_owned() };
        let traffic = Arc::new(RouteTraffic {
            requests: self.requests.clone(),
            codes: Mutex::default(),
            received: self.received.get_or_create_owned(&labels),
            sent: self.sent.get_or_create_owned(&labels),
            labels,
        });
        let of_addon = known.entry(addon.to_owned()).or_default();
        of_addon.routes.insert(route.to_owned(), Arc::clone(&traffic));
        traffic
    }

    /// Drops the labels of addons that no AddOnSigner has and of AddOnRoutes that no longer let the addon in.
    pub(super) fn sweep(&self, trust: &Trust, table: &RouteTable) {
        let addons: HashSet<&str> =
            trust.signers.iter().flat_map(|signer| &signer.addons).map(|addon| addon.as_str()).collect();
        let mut routes: HashMap<&str, HashSet<String>> = HashMap::new();
        for (addon, route) in table.of_addons() {
            routes.entry(addon.as_str()).or_default().insert(route.to_string());
        }
        let mut known = self.known.lock();
        known.retain(|addon, of_addon| {
            let is_known = addon.is_empty() || addons.contains(addon.as_str());
            let present = routes.get(addon.as_str());
            of_addon.routes.retain(|route, traffic| {
                let is_there = |routes: &HashSet<String>| routes.contains(route);
                let stays = if route.contains('/') { present.is_some_and(is_there) } else { is_known };
                if !stays {
                    self.forget(traffic);
                }
                stays
            });
            if !is_known && of_addon.sessions.as_ref().is_some_and(|sessions| sessions.get() == 0) {
                self.sessions.remove(&AddOnLabel { addon: addon.clone() });
                of_addon.sessions = None;
            }
            is_known || !of_addon.routes.is_empty() || of_addon.sessions.is_some()
        });
    }

    fn forget(&self, traffic: &RouteTraffic) {
        let mut codes = traffic.codes.lock();
        codes.is_gone = true;
        for (code, _) in codes.known.drain(..) {
            self.requests.remove(&traffic.labels(code));
        }
        self.received.remove(&traffic.labels);
        self.sent.remove(&traffic.labels);
    }
}

impl RouteTraffic {
    /// The label of the route.
    pub(super) fn route(&self) -> &str {
        &self.labels.route
    }

    /// Counts a request.
    pub(super) fn count(&self, code: Code) {
        let mut codes = self.codes.lock();
        if let Some((_, counter)) = codes.known.iter().find(|(known, _)| *known == code) {
            counter.inc();
        } else if !codes.is_gone {
            let counter = self.requests.get_or_create_owned(&self.labels(code));
            counter.inc();
            codes.known.push((code, counter));
        }
    }

    fn labels(&self, code: Code) -> RequestLabels {
        let RouteLabels { addon, route } = self.labels.clone();
        RequestLabels { addon, route, code }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(registry: &Registry) -> Vec<String> {
        registry.render().unwrap().lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn any_status_that_iana_does_not_know_counts_as_its_class() {
        let mut registry = Registry::default();
        let stats = TrafficStats::register(&mut registry);
        let traffic = stats.of("a", "n/r");
        for status in 100..=999 {
            traffic.count(Code::of(StatusCode::from_u16(status).unwrap()));
        }
        traffic.count(Code::Reset);
        traffic.count(Code::Unanswered);
        let codes: Vec<_> = lines(&registry).into_iter().filter(|line| line.contains("code=")).collect();
        assert!(codes.len() < 80, "{}", codes.len());
        for expected in ["\"200\"} 1", "\"2xx\"} 90", "\"9xx\"} 100", "\"reset\"} 1", "\"none\"} 1"] {
            assert!(codes.iter().any(|line| line.ends_with(expected)), "{expected}: {codes:#?}");
        }
    }

    #[test]
    fn what_is_gone_loses_its_labels_also_if_requests_go_on() {
        let mut registry = Registry::default();
        let stats = TrafficStats::register(&mut registry);
        let ok = Code::of(StatusCode::OK);
        let [forwarded, own] = ["n/r", "whoami"].map(|route| stats.of("a", route));
        [&forwarded, &own, &stats.of("", NO_ROUTE)].iter().for_each(|traffic| traffic.count(ok));
        let session = stats.session("a");
        let series = lines(&registry).len();
        assert_eq!(series, 10);
        let (trust, table) = (Trust::default(), RouteTable::default());
        stats.sweep(&trust, &table);
        let left = ["addon=\"\",route=\"none\",code=\"200\"} 1", "sessions{addon=\"a\"} 1"];
        assert!(left.iter().all(|end| lines(&registry).iter().any(|line| line.ends_with(end))));
        assert_eq!(lines(&registry).len(), 4, "the open connection is told until it ends");
        [forwarded, own].iter().for_each(|traffic| [ok, Code::Reset].iter().for_each(|code| traffic.count(*code)));
        drop(session);
        stats.sweep(&trust, &table);
        assert_eq!(lines(&registry).len(), 3);
        stats.of("a", "n/r").count(ok);
        assert_eq!(lines(&registry).len(), 6, "it is back, from zero");
    }
}
