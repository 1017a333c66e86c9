//! Lists of many certificates: whichever index the store uses, the answer is what the filter says.

use std::cmp::Reverse;
use std::time::Duration;

use addon_signer_core::journal::CertificateState;
use addon_signer_core::journal::record::Intent;
use addon_signer_core::query::{Filter, Query, SortOrder, StateFilter};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_ledger::view::Certificate;
use addon_signer_ledger::{CertificateUse, Location, Reader, answer};

use super::{Open, mk_identity, mk_intent, mk_serial, mk_signed, open, options};
use test_kit::store::on_store;

const NOW: Timestamp = Timestamp::from_unix(1_795_040_000);
/// More certificates than the reader would fetch and sort as few.
const MANY: u64 = 5_400;

fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3600)
}

/// The n-th certificate: most values of each column are the same, and some are rare.
fn mk(n: u64) -> Intent {
    let text = |common: bool| if common { "telemetry" } else { "rare" }.to_owned();
    let signer = text(n > 20);
    let agent = text(!n.is_multiple_of(300));
    let issuer = if n < 40 { "fedcba9876543210" } else { "0123456789abcdef" }.into();
    let addon = text(n != 7);
    let cluster = if n.is_multiple_of(100) { "cluster1" } else { "cluster2" }.to_owned();
    // The ends are not in the order of the numbers, and many ends are the same.
    let not_after = if n.is_multiple_of(3) { NOW.minus(hours(n % 50 + 1)) } else { NOW.plus(hours(n % 70)) };
    let identity = Some(mk_identity(&cluster, &addon, &agent));
    Intent { signer, issuer, identity, not_after, ..mk_intent(n) }
}

async fn fill(hub: &Open) {
    let work = (1..=MANY).map(|n| {
        let ledger = hub.ledger.clone();
        tokio::spawn(async move {
            ledger.intend(mk(n)).await.unwrap();
            if n % 50 != 1 {
                ledger.append(mk_signed(n), "").await.unwrap();
            }
        })
    });
    for done in work.collect::<Vec<_>>() {
        done.await.unwrap();
    }
    let seen = (1..=MANY).filter(|n| n % 50 != 1 && !n.is_multiple_of(4));
    let seen = seen.map(|n| CertificateUse { serial: mk_serial(n), at: NOW.minus(hours(n % 90)), from: String::new() });
    hub.ledger.seen(seen.collect()).await;
}

fn filters() -> Vec<Filter> {
    let all = Filter::default;
    let text = |text: &str| Some(text.to_owned());
    let names = [
        all(),
        Filter { signer: text("telemetry"), ..all() },
        Filter { signer: text("rare"), ..all() },
        Filter { signer: text("nobody"), ..all() },
        Filter { addon: text("rare"), ..all() },
        Filter { agent: text("telemetry"), ..all() },
        Filter { agent: text("rare"), ..all() },
        Filter { issuer: text("fedcba9876543210"), ..all() },
        Filter { cluster: text("cluster1"), ..all() },
        Filter { cluster: text("cluster2"), ..all() },
        Filter { signer: text("telemetry"), agent: text("rare"), ..all() },
        Filter { signer: text("rare"), issuer: text("0123456789abcdef"), ..all() },
    ];
    let of_time = |filter: &Filter| {
        let state = |eligibility| Filter { state: Some(eligibility), ..filter.clone() };
        [
            filter.clone(),
            state(StateFilter::Valid),
            state(StateFilter::Expired),
            state(StateFilter::Recorded(CertificateState::Signed)),
            state(StateFilter::Recorded(CertificateState::Intent)),
            Filter { expiring_within: Some(hours(12)), ..filter.clone() },
            Filter { not_seen_since: Some(NOW.minus(hours(30))), ..filter.clone() },
            Filter { not_seen_since: Some(NOW.minus(hours(30))), ..state(StateFilter::Valid) },
        ]
    };
    names.iter().flat_map(of_time).collect()
}

fn lets_through(filter: &Filter, it: &Certificate) -> bool {
    let Filter { signer, cluster, addon, agent, issuer, state, expiring_within, not_seen_since } = filter;
    let is = |wanted: &Option<String>, name: &String| wanted.as_ref().is_none_or(|wanted| wanted == name);
    let names = is(signer, &it.signer) && is(cluster, &it.cluster) && is(addon, &it.addon);
    let eligibility = match state {
        None => true,
        Some(StateFilter::Recorded(state)) => it.state == *state,
        Some(StateFilter::Valid) => it.state.is_signed() && it.not_after >= NOW,
        Some(StateFilter::Expired) => it.state.is_signed() && it.not_after < NOW,
    };
    let ends = |within| it.state.is_signed() && it.not_after >= NOW && it.not_after <= NOW.plus(within);
    let unseen = |since| it.state.is_signed() && it.last_seen.is_none_or(|seen| seen < since);
    names
        && (is(agent, &it.agent) && is(issuer, &it.issuer) && eligibility)
        && (expiring_within.is_none_or(ends) && not_seen_since.is_none_or(unseen))
}

/// The list that a filter must give, computed from all certificates.
fn expected(filter: &Filter, all: &[Certificate]) -> Vec<u64> {
    let mut found: Vec<_> = all.iter().filter(|it| lets_through(filter, it)).collect();
    let end = |it: &&Certificate| (it.not_after.unix(), it.seq);
    match filter.order() {
        SortOrder::Newest => found.sort_by_key(|it| Reverse(it.seq)),
        SortOrder::LatestEnd => found.sort_by_key(|it| Reverse(end(it))),
        SortOrder::SoonestEnd => found.sort_by_key(end),
        SortOrder::LongestUnseen => found.sort_by_key(|it| (it.last_seen.map_or(0, Timestamp::unix), it.seq)),
    }
    found.into_iter().map(|it| it.seq).collect()
}

/// Asks for page after page, as a client of HTTP does.
async fn listed(reader: &Reader, query: &Query) -> Vec<Certificate> {
    let mut query = query.clone();
    let mut items = Vec::new();
    loop {
        let parameters: Vec<_> = query
            .to_parameters()
            .split('&')
            .map(|pair| pair.split_once('=').unwrap())
            .map(|(name, value)| (name.to_owned(), value.replace("%3A", ":")))
            .collect();
        let page = answer::certificates(reader, &parameters, NOW).await.unwrap();
        items.extend(page.items);
        match page.metadata.next {
            Some(next) => query.after = Some(next.parse().unwrap()),
            None => return items,
        }
    }
}

#[tokio::test]
async fn list_of_many_is_that_of_its_filter_whichever_index_leads() {
    on_store(async |store| lists(&store.url().parse().unwrap()).await).await;
}

async fn lists(location: &Location) {
    let hub = open(options(location, "hub-a"), 1).await;
    fill(&hub).await;
    hub.close().await;
    let reader = Reader::open(location.clone()).await.unwrap();
    let all = listed(&reader, &Query { limit: 1000, ..Query::default() }).await;
    assert_eq!(all.len() as u64, MANY);
    for filter in filters() {
        let expected = expected(&filter, &all);
        let query = Query { filter, limit: 700, ..Query::default() };
        let found: Vec<_> = listed(&reader, &query).await.iter().map(|it| it.seq).collect();
        assert!(found == expected, "{:?}: {} found, {} expected", query.filter, found.len(), expected.len());
    }
}
