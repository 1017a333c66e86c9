//! An administrator's statement that a new authority of the gateway need not wait for some clusters, or for backends: a
//! text in an annotation of the lineage's ConfigMap, written by `ca advance`.

use std::collections::BTreeSet;
use std::fmt;

use crate::ca::authority::Authority;
use crate::identity::ClusterName;
use crate::timestamp::Timestamp;

/// The authority, the clusters that it does not wait for (none on the lineage for backends), and the administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exception {
    authority: String,
    clusters: BTreeSet<ClusterName>,
    by: String,
}

impl Exception {
    /// The text that makes the authority with this id wait for none of these clusters.
    #[must_use]
    pub fn text(authority: &str, clusters: &BTreeSet<ClusterName>, now: Timestamp, by: &str) -> String {
        format!("{authority} {} {now} {by}", joined(clusters, ",")).trim_end().to_owned()
    }

    /// Reads such a text; `None` for any other one.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ' ');
        let (authority, clusters) = (parts.next()?.to_owned(), parts.next()?);
        let names = clusters.split(',').filter(|name| !name.is_empty());
        let clusters = names.map(str::parse).collect::<Result<_, _>>().ok()?;
        Timestamp::from_rfc3339(parts.next()?)?;
        Some(Self { authority, clusters, by: parts.next().unwrap_or_default().to_owned() })
    }

    /// The clusters in this text, if it is about the authority with this id.
    #[must_use]
    pub fn named(text: &str, authority: &str) -> BTreeSet<ClusterName> {
        Self::read(text)
            .filter(|exception| exception.authority == authority)
            .map(|exception| exception.clusters)
            .unwrap_or_default()
    }

    /// Whether it is about this authority.
    #[must_use]
    pub fn is_for(&self, authority: &Authority) -> bool {
        self.authority == authority.id().as_str()
    }

    /// The clusters for which this authority does not wait.
    #[must_use]
    pub fn of(exception: Option<&Self>, authority: &Authority) -> BTreeSet<ClusterName> {
        let exception = exception.filter(|exception| exception.is_for(authority));
        exception.map(|exception| exception.clusters.clone()).unwrap_or_default()
    }
}

/// As the ledger records it.
impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.clusters.is_empty() {
            true => f.write_str(&self.by),
            false => write!(f, "{} (without {})", self.by, joined(&self.clusters, ", ")),
        }
    }
}

fn joined(clusters: &BTreeSet<ClusterName>, by: &str) -> String {
    clusters.iter().map(ClusterName::as_str).collect::<Vec<_>>().join(by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_command_writes_is_what_the_hub_reads() {
        let clusters = BTreeSet::from(["c1".parse().unwrap(), "c2".parse().unwrap()]);
        let text = Exception::text("0a1b", &clusters, Timestamp::from_unix(0), "alice smith");
        assert_eq!(text, "0a1b c1,c2 1970-01-01T00:00:00Z alice smith");
        let read = Exception::read(&text).unwrap();
        assert_eq!(read, Exception { authority: "0a1b".to_owned(), clusters, by: "alice smith".to_owned() });
        assert_eq!(read.to_string(), "alice smith (without c1, c2)");
        assert!(Exception::read("0a1b c1 1970-01-01T00:00:00Z").is_some_and(|read| read.by.is_empty()));
        let text = Exception::text("0a1b", &BTreeSet::new(), Timestamp::from_unix(0), "alice");
        assert_eq!(Exception::read(&text).unwrap().to_string(), "alice", "for backends");
        for text in ["", "0a1b", "0a1b c1", "0a1b C1 1970-01-01T00:00:00Z a", "0a1b c1 now a"] {
            assert_eq!(Exception::read(text), None, "{text}");
        }
    }
}
