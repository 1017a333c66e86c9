//! Writes the SQL of a query so that its first page takes milliseconds, whatever the other certificates are.
//!
//! A store that guesses how rare a name is may scan a million certificates in vain. So the reader first asks the store
//! how rare the names are. Then the query leaves the store only one index: every other indexed column is put in an
//! expression that has no index.

use super::connection::Value;
use super::view::COLUMNS;
use addon_signer_core::journal::CertificateState;
use addon_signer_core::query::{Filter, Query, SortOrder, StateFilter};
use addon_signer_core::timestamp::Timestamp;

/// A name with fewer certificates than this is rare: an index finds and a sort orders them in a few milliseconds.
const FEW: u64 = 5_000;

/// The one index that the store can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The index of the result's order.
    Order,
    /// The index of a name, newest first.
    Name(&'static str),
    /// The index of a name that few certificates have; its rows are then sorted.
    Rare(&'static str),
    /// The index of the expiry times, because few certificates are valid.
    Valid,
}

/// A query at one time.
pub(crate) struct Search<'q> {
    pub(crate) query: &'q Query,
    pub(crate) now: Timestamp,
}

impl Search<'_> {
    /// SQL for one row that has the number of certificates of each of [`Self::candidates`], up to [`FEW`]. `None` if
    /// there is no choice.
    pub(crate) fn counts(&self) -> Option<(String, Vec<Value>)> {
        let mut sql = Terms::default();
        let counts: Vec<_> = self.candidates().into_iter().map(|way| sql.count(self, way)).collect();
        (!counts.is_empty()).then(|| (format!("SELECT {}", counts.join(", ")), sql.values))
    }

    /// Chooses an index by the result of [`Self::counts`].
    pub(crate) fn way(&self, counts: &[u64]) -> Way {
        let candidates = self.candidates();
        let rarest = candidates.iter().zip(counts).filter(|(_, count)| **count < FEW).min_by_key(|(_, count)| **count);
        // The index of each name is sorted newest first, except that of the cluster.
        let in_order = |way: &&Way| matches!(way, Way::Name(name) if *name != CLUSTER);
        match rarest {
            Some((Way::Name(name), _)) => Way::Rare(name),
            Some((way, _)) => *way,
            None if self.query.filter.order() == SortOrder::Newest => {
                candidates.iter().find(in_order).copied().unwrap_or(Way::Order)
            }
            None => Way::Order,
        }
    }

    /// SQL for the page.
    pub(crate) fn select(&self, way: Way) -> (String, Vec<Value>) {
        let order = self.query.filter.order();
        let mut sql = Terms { way: Some(way), order: Some(order), ..Terms::default() };
        sql.cursor(self.query);
        sql.filter(&self.query.filter, self.now);
        let condition = if sql.terms.is_empty() { "TRUE".to_owned() } else { sql.terms.join(" AND ") };
        let direction = if descends(order) { "DESC" } else { "ASC" };
        let by = match order {
            SortOrder::Newest => format!("{} DESC", sql.number(SEQ)),
            other => format!("{} {direction}, seq {direction}", sql.number(sorted_by(other))),
        };
        let limit = self.query.limit;
        (format!("SELECT {COLUMNS} FROM certificates WHERE {condition} ORDER BY {by} LIMIT {limit}"), sql.values)
    }

    fn candidates(&self) -> Vec<Way> {
        let filter = &self.query.filter;
        if matches!(filter.state, Some(StateFilter::Recorded(state)) if state != CertificateState::Published) {
            return Vec::new(); // these states have a short index of their own
        }
        let mut ways: Vec<_> = names(filter).map(|(name, _)| Way::Name(name)).collect();
        if filter.state == Some(StateFilter::Valid) && filter.order() == SortOrder::Newest {
            ways.push(Way::Valid);
        }
        ways
    }
}

const SEQ: &str = "seq";
const CLUSTER: &str = "cluster";
const NOT_AFTER: &str = "not_after";
const SEEN: &str = "COALESCE(last_seen, 0)";
const SIGNED: &str = "state IN ('signed', 'published', 'unpublished')";
const IN_USE: &str = "state IN ('signed', 'published')";

fn sorted_by(order: SortOrder) -> &'static str {
    match order {
        SortOrder::Newest => SEQ,
        SortOrder::LatestEnd | SortOrder::SoonestEnd => NOT_AFTER,
        SortOrder::LongestUnseen => SEEN,
    }
}

fn descends(order: SortOrder) -> bool {
    matches!(order, SortOrder::Newest | SortOrder::LatestEnd)
}

/// The names in the filter, the most selective first.
fn names(filter: &Filter) -> impl Iterator<Item = (&'static str, &str)> {
    let Filter { signer, cluster, addon, agent, issuer, .. } = filter;
    let names = [("issuer", issuer), ("agent", agent), ("addon", addon), ("signer", signer), (CLUSTER, cluster)];
    names.into_iter().filter_map(|(column, name)| Some((column, name.as_deref()?)))
}

/// A condition for a state that lets the store use a short table, or a short partial index, whose condition it repeats.
fn recorded(state: CertificateState) -> String {
    let index = match state {
        CertificateState::Intent | CertificateState::Signed => "seq IN (SELECT seq FROM unfinished) AND ",
        CertificateState::Unpublished | CertificateState::Abandoned => "ended_seq IS NOT NULL AND ",
        CertificateState::Published => "",
    };
    format!("{index}state = '{}'", state.name())
}

/// Terms that all must hold, and their values.
#[derive(Default)]
struct Terms {
    way: Option<Way>,
    order: Option<SortOrder>,
    terms: Vec<String>,
    values: Vec<Value>,
}

impl Terms {
    /// A column of numbers, in an expression that has no index unless this index should be used.
    fn number(&self, column: &str) -> String {
        let in_order = self.order.is_some_and(|order| sorted_by(order) == column);
        let leads = match self.way {
            Some(Way::Order) => in_order,
            // An index of a name orders the certificates by their numbers.
            Some(Way::Name(_)) => column == SEQ,
            Some(Way::Rare(_)) => false,
            Some(Way::Valid) => column == NOT_AFTER,
            None => true,
        };
        if leads { column.to_owned() } else { format!("({column} + 0)") }
    }

    /// A column of names, in the same way.
    fn name(&self, column: &'static str) -> String {
        let leads = self.way.is_none_or(|way| [Way::Name(column), Way::Rare(column)].contains(&way));
        if leads { column.to_owned() } else { format!("({column} || '')") }
    }

    /// Adds a value, and returns its place in the SQL.
    fn bind(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("${}", self.values.len())
    }

    fn and(&mut self, left: &str, value: impl Into<Value>) {
        let place = self.bind(value);
        self.terms.push(format!("{left} {place}"));
    }

    fn count(&mut self, search: &Search<'_>, way: Way) -> String {
        let term = match way {
            Way::Name(column) | Way::Rare(column) => {
                let name = names(&search.query.filter).find(|(name, _)| *name == column).map_or("", |(_, name)| name);
                format!("{column} = {}", self.bind(name))
            }
            Way::Valid | Way::Order => format!("{NOT_AFTER} >= {}", self.bind(search.now.unix())),
        };
        format!("(SELECT COUNT(*) FROM (SELECT 1 FROM certificates WHERE {term} LIMIT {FEW}) AS few)")
    }

    /// Adds the condition that a certificate comes after the last one of the previous page.
    fn cursor(&mut self, query: &Query) {
        let Some(after) = query.after else { return };
        let order = query.filter.order();
        let (is, at_most) = if descends(order) { ("<", "<=") } else { (">", ">=") };
        let Some(time) = after.time else {
            let seq = self.number(SEQ);
            return self.and(&format!("{seq} {is}"), after.seq);
        };
        let column = self.number(sorted_by(order));
        let time = self.bind(time);
        let seq = self.bind(after.seq);
        // PostgreSQL finds the place of time and number by the second term; SQLite finds the place of the time by the
        // first.
        self.terms.push(format!("{column} {at_most} {time}"));
        self.terms.push(format!("({column}, seq) {is} ({time}, {seq})"));
    }

    fn filter(&mut self, filter: &Filter, now: Timestamp) {
        for (column, name) in names(filter) {
            let column = self.name(column);
            self.and(&format!("{column} ="), name);
        }
        let end = self.number(NOT_AFTER);
        let seen = self.number(SEEN);
        match filter.state {
            Some(StateFilter::Recorded(state)) => self.terms.push(recorded(state)),
            Some(StateFilter::Valid) => {
                self.terms.push(IN_USE.to_owned());
                self.and("not_before <=", now.unix());
                self.and(&format!("{end} >="), now.unix());
            }
            Some(StateFilter::Expired) => {
                self.terms.push(SIGNED.to_owned());
                self.and(&format!("{end} <"), now.unix());
            }
            None => {}
        }
        if let Some(within) = filter.expiring_within {
            self.terms.push(IN_USE.to_owned());
            self.and(&format!("{end} >="), now.unix());
            self.and(&format!("{end} <="), now.plus(within).unix());
        }
        if let Some(since) = filter.not_seen_since {
            self.terms.push(SIGNED.to_owned());
            self.and(&format!("{seen} <"), since.unix());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use addon_signer_core::query::Cursor;

    const NOW: Timestamp = Timestamp::from_unix(5);

    fn query(filter: Filter) -> Query {
        Query { filter, ..Query::default() }
    }

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn way(filter: Filter, counts: &[u64]) -> Way {
        Search { query: &query(filter), now: NOW }.way(counts)
    }

    fn select(filter: Filter, after: Option<Cursor>, way: Way) -> (String, Vec<Value>) {
        let query = Query { after, ..query(filter) };
        let (sql, values) = Search { query: &query, now: NOW }.select(way);
        (sql.split_once("WHERE ").unwrap().1.to_owned(), values)
    }

    #[test]
    fn what_is_rare_leads() {
        let filter = || Filter { signer: text("s"), agent: text("a"), ..Filter::default() };
        assert_eq!(way(filter(), &[FEW, 3]), Way::Rare("signer"));
        assert_eq!(way(filter(), &[0, 3]), Way::Rare("agent"));
        assert_eq!(way(filter(), &[FEW, FEW]), Way::Name("agent"));
        let ending = Filter { state: Some(StateFilter::Expired), ..filter() };
        assert_eq!(way(ending.clone(), &[FEW, FEW]), Way::Order);
        assert_eq!(way(ending, &[FEW, 1]), Way::Rare("signer"));
        let valid = Filter { state: Some(StateFilter::Valid), ..Filter::default() };
        assert_eq!(way(valid.clone(), &[FEW]), Way::Order);
        assert_eq!(way(valid, &[7]), Way::Valid);
        assert_eq!(way(Filter { cluster: text("c"), ..Filter::default() }, &[FEW]), Way::Order);
        assert_eq!(way(Filter::default(), &[]), Way::Order);
    }

    #[test]
    fn one_index_is_left() {
        let filter =
            || Filter { signer: text("s"), agent: text("a"), state: Some(StateFilter::Expired), ..Filter::default() };
        let after = Some(Cursor { time: Some(4), seq: 9 });
        let (sql, values) = select(filter(), after, Way::Order);
        assert_eq!(
            sql,
            "not_after <= $1 AND (not_after, seq) < ($1, $2) AND (agent || '') = $3 AND (signer || '') = $4 AND \
             state IN ('signed', 'published', 'unpublished') AND not_after < $5 ORDER BY not_after DESC, seq DESC \
             LIMIT 100"
        );
        assert_eq!(values, [4_i64.into(), 9_u64.into(), "a".into(), "s".into(), 5_i64.into()]);
        let (sql, _) = select(filter(), None, Way::Rare("agent"));
        assert!(sql.starts_with("agent = $1 AND (signer || '') = $2"), "{sql}");
        assert!(sql.ends_with("(not_after + 0) < $3 ORDER BY (not_after + 0) DESC, seq DESC LIMIT 100"), "{sql}");
        let after = Some(Cursor { time: None, seq: 9 });
        let (sql, _) = select(Filter::default(), after, Way::Order);
        assert_eq!(sql, "seq < $1 ORDER BY seq DESC LIMIT 100");
        let agent = || Filter { agent: text("a"), ..Filter::default() };
        let (sql, _) = select(agent(), after, Way::Name("agent"));
        assert_eq!(sql, "seq < $1 AND agent = $2 ORDER BY seq DESC LIMIT 100");
        let (sql, _) = select(agent(), after, Way::Rare("agent"));
        assert_eq!(sql, "(seq + 0) < $1 AND agent = $2 ORDER BY (seq + 0) DESC LIMIT 100");
        let valid = Filter { state: Some(StateFilter::Valid), ..Filter::default() };
        let (sql, _) = select(valid, after, Way::Valid);
        assert!(sql.starts_with("(seq + 0) < $1"), "{sql}");
        assert!(sql.contains("AND not_after >= $3 ORDER BY (seq + 0)"), "{sql}");
    }

    #[test]
    fn values_are_bound_and_never_part_of_the_text() {
        let name = || text("' OR 1 = 1 --");
        let filter = Filter {
            signer: name(),
            cluster: name(),
            addon: name(),
            agent: name(),
            issuer: name(),
            ..Filter::default()
        };
        let query = query(filter.clone());
        let (counts, values) = Search { query: &query, now: NOW }.counts().unwrap();
        assert!(!counts.contains("OR 1"), "{counts}");
        assert!(values.len() == 5, "{counts}");
        let (sql, values) = select(filter, None, Way::Order);
        assert!(!sql.contains("OR 1"), "{sql}");
        assert!(values.len() == 5, "{sql}");
    }
}
