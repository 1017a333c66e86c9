//! Queries for lists of certificates, from the command line and over HTTP.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::time::Duration;

use crate::journal::CertificateState;
use crate::timestamp::Timestamp;

/// Certificates on a page, unless the query says otherwise.
pub const PAGE: u32 = 100;
/// Largest number of certificates on a page.
pub const PAGE_MAX: u32 = 1000;

/// A state in the ledger, or one that depends on the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateFilter {
    /// The recorded state.
    Recorded(CertificateState),
    /// Signed, not unpublished, and within its time.
    Valid,
    /// Signed, and expired.
    Expired,
}

impl fmt::Display for StateFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recorded(state) => state.fmt(f),
            Self::Valid => f.write_str("valid"),
            Self::Expired => f.write_str("expired"),
        }
    }
}

impl FromStr for StateFilter {
    type Err = QueryError;

    fn from_str(name: &str) -> Result<Self, QueryError> {
        match name {
            "valid" => Ok(Self::Valid),
            "expired" => Ok(Self::Expired),
            other => match other.parse() {
                Ok(state) => Ok(Self::Recorded(state)),
                Err(()) => Err(QueryError::State(other.to_owned())),
            },
        }
    }
}

/// Which certificates to list; all given conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this AddOnSigner, or `gateway-serving` or `gateway-client`.
    pub signer: Option<String>,
    /// Of this cluster.
    pub cluster: Option<String>,
    /// Of this addon.
    pub addon: Option<String>,
    /// Of this agent.
    pub agent: Option<String>,
    /// Of the authority with this id.
    pub issuer: Option<String>,
    /// In this state.
    pub state: Option<StateFilter>,
    /// Valid now, and expires within this time.
    pub expiring_within: Option<Duration>,
    /// Signed, and not used at the gateway since.
    pub not_seen_since: Option<Timestamp>,
}

/// In which order certificates are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortOrder {
    /// The newest first.
    Newest,
    /// The most recently expired first.
    LatestEnd,
    /// The soonest to expire first.
    SoonestEnd,
    /// The longest unused first.
    LongestUnseen,
}

impl Filter {
    /// The order of the list. A filter by a time sorts by that time, and the most urgent certificate comes first.
    pub fn order(&self) -> SortOrder {
        match self {
            Self { expiring_within: Some(_), .. } => SortOrder::SoonestEnd,
            Self { not_seen_since: Some(_), .. } => SortOrder::LongestUnseen,
            Self { state: Some(StateFilter::Expired), .. } => SortOrder::LatestEnd,
            _ => SortOrder::Newest,
        }
    }
}

/// The last certificate of a page, after which the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// The time by which the list is sorted, in seconds since 1970; `None` if the newest come first.
    pub time: Option<i64>,
    /// The number of the certificate.
    pub seq: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.time {
            Some(time) => write!(f, "{time}.{}", self.seq),
            None => self.seq.fmt(f),
        }
    }
}

impl FromStr for Cursor {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        match text.split_once('.') {
            Some((time, seq)) => Ok(Self { time: Some(time.parse()?), seq: seq.parse()? }),
            None => Ok(Self { time: None, seq: text.parse()? }),
        }
    }
}

/// One page of the certificates that match a filter, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Which certificates.
    pub filter: Filter,
    /// Where the previous page ended.
    pub after: Option<Cursor>,
    /// How many certificates; 1 to [`PAGE_MAX`].
    pub limit: u32,
}

impl Default for Query {
    fn default() -> Self {
        Self { filter: Filter::default(), after: None, limit: PAGE }
    }
}

/// Why a query is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// Not a state.
    #[error("there is no state {0:?}; use intent, signed, published, unpublished, abandoned, valid or expired")]
    State(String),
    /// A value that cannot be read.
    #[error("{name} cannot be {value:?}; it must be {wanted}")]
    Value {
        /// The parameter.
        name: &'static str,
        /// What was given.
        value: String,
        /// What it must be.
        wanted: &'static str,
    },
    /// A parameter that does not exist. Ignoring it would answer a different query.
    #[error("there is no parameter {0:?}")]
    Unknown(String),
    /// A filter of certificates on a list of entries.
    #[error("entries cannot be filtered; use limit and continue alone")]
    NoFilter,
}

/// Parameters that Kubernetes' clients add to every list, and that do not change the answer.
const IGNORED: [&str; 7] =
    ["pretty", "watch", "resourceVersion", "resourceVersionMatch", "timeoutSeconds", "timeout", "allowWatchBookmarks"];

impl Query {
    /// Reads the parameters of an HTTP query, percent-decoded.
    ///
    /// # Errors
    /// [`QueryError`]: nothing is guessed, and nothing is ignored.
    pub fn from_parameters(parameters: &[(String, String)]) -> Result<Self, QueryError> {
        let mut query = Self::default();
        for (name, value) in parameters.iter().filter(|(_, value)| !value.is_empty()) {
            query.set(name, value)?;
        }
        match query.after {
            Some(after) if after.time.is_some() != (query.filter.order() != SortOrder::Newest) => {
                Err(QueryError::Value {
                    name: "continue",
                    value: after.to_string(),
                    wanted: "the value that the previous page of the same query gave",
                })
            }
            _ => Ok(query),
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), QueryError> {
        let refused = |name, wanted| QueryError::Value { name, value: value.to_owned(), wanted };
        let text = || Some(value.to_owned());
        let filter = &mut self.filter;
        match name {
            "signer" => filter.signer = text(),
            "cluster" => filter.cluster = text(),
            "addon" => filter.addon = text(),
            "agent" => filter.agent = text(),
            "issuer" => filter.issuer = text(),
            "state" => filter.state = Some(value.parse()?),
            "expiringWithinSeconds" => {
                let seconds = value.parse().map_err(|_| refused("expiringWithinSeconds", "a number of seconds"))?;
                filter.expiring_within = Some(Duration::from_secs(seconds));
            }
            "notSeenSince" => {
                let time = Timestamp::from_rfc3339(value).ok_or_else(|| refused("notSeenSince", "a time of RFC 3339"));
                filter.not_seen_since = Some(time?);
            }
            "limit" => {
                let limit: u32 = value.parse().map_err(|_| refused("limit", "a number of certificates"))?;
                self.limit = if limit == 0 { PAGE } else { limit.min(PAGE_MAX) }; // 0 is Kubernetes' "no limit"
            }
            "continue" => {
                let after = value.parse().map_err(|_| refused("continue", "the value that the previous page gave"))?;
                self.after = Some(after);
            }
            ignored if IGNORED.contains(&ignored) => {}
            other => return Err(QueryError::Unknown(other.to_owned())),
        }
        Ok(())
    }

    /// The query of an HTTP request, percent-encoded: what [`Self::from_parameters`] reads.
    pub fn to_parameters(&self) -> String {
        let Self { filter, after, limit } = self;
        let Filter { signer, cluster, addon, agent, issuer, state, expiring_within, not_seen_since } = filter;
        let parameters = [
            ("signer", signer.clone()),
            ("cluster", cluster.clone()),
            ("addon", addon.clone()),
            ("agent", agent.clone()),
            ("issuer", issuer.clone()),
            ("state", state.map(|state| state.to_string())),
            ("expiringWithinSeconds", expiring_within.map(|within| within.as_secs().to_string())),
            ("notSeenSince", not_seen_since.map(|since| since.to_string())),
            ("limit", Some(limit.to_string())),
            ("continue", after.map(|after| after.to_string())),
        ];
        let given = parameters.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", percent(&value?))));
        given.collect::<Vec<_>>().join("&")
    }
}

/// Percent-encoding of everything but unreserved characters (RFC 3986 section 2.3).
pub fn percent(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Query {
        let text = |text: &str| Some(text.to_owned());
        let filter = Filter {
            signer: text("telemetry"),
            cluster: text("c&1 ü"),
            addon: text("a"),
            agent: text("b"),
            issuer: text("0123"),
            state: Some(StateFilter::Recorded(CertificateState::Unpublished)),
            expiring_within: Some(Duration::from_secs(3600)),
            not_seen_since: Some(Timestamp::from_unix(1_795_000_000)),
        };
        Query { filter, after: Some(Cursor { time: Some(1_795_000_000), seq: 17 }), limit: 7 }
    }

    fn parameters(query: &str) -> Vec<(String, String)> {
        serde_urlencoded::from_str(query).unwrap()
    }

    #[test]
    fn a_question_is_read_as_it_was_written() {
        for query in [full(), Query::default()] {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~%=&".contains(c);
            assert!(query.to_parameters().chars().all(is_plain), "{}", query.to_parameters());
            assert_eq!(Query::from_parameters(&parameters(&query.to_parameters())), Ok(query));
        }
        let state = |name: &str| name.parse::<StateFilter>().unwrap().to_string();
        for name in ["intent", "signed", "published", "unpublished", "abandoned", "valid", "expired"] {
            assert_eq!(state(name), name);
        }
    }

    #[test]
    fn what_kubernetes_clients_add_changes_nothing() {
        let query = "limit=500&resourceVersion=0&timeoutSeconds=30&watch=false&continue=";
        assert_eq!(Query::from_parameters(&parameters(query)), Ok(Query { limit: 500, ..Query::default() }));
        let limit = |limit: &str| Query::from_parameters(&parameters(limit)).unwrap().limit;
        assert_eq!((limit("limit=0"), limit("limit=100000")), (PAGE, PAGE_MAX));
    }

    #[test]
    fn what_cannot_be_asked_is_refused() {
        for (query, word) in [
            ("clutser=a", "no parameter \"clutser\""),
            ("state=gone", "no state \"gone\""),
            ("limit=all", "limit cannot be"),
            ("continue=x", "continue cannot be"),
            ("continue=1795000000.17", "continue cannot be"),
            ("continue=17&state=expired", "continue cannot be"),
            ("notSeenSince=yesterday", "notSeenSince cannot be"),
            ("expiringWithinSeconds=1h", "expiringWithinSeconds cannot be"),
        ] {
            let error = Query::from_parameters(&parameters(query)).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
