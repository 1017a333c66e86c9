//! `certs list`.

use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde::Serialize as _;

use super::revocations::Revocations;
use super::{LedgerSource, SourceArgs, past};
use crate::cli::signer_object;
use crate::output::{Rows, print, tell};
use addon_signer_core::identity::ClusterName;
use addon_signer_core::query::{Filter, PAGE_MAX, Query, StateFilter};
use addon_signer_core::timestamp::Timestamp;
use addon_signer_core::units::parse_duration;
use addon_signer_ledger::view::Certificate;
use addon_signer_platform::clock::Clock;

/// The widest column of names in a table; the serial number is never cut.
const NAME_WIDTH: usize = 16;

/// Arguments of `certs list`.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Only of the AddOnSigner with this name (not its signerName), or gateway-serving or gateway-client.
    #[arg(long, value_name = "NAME", value_parser = signer_object)]
    signer: Option<String>,
    /// Only of this cluster.
    #[arg(long, value_name = "NAME")]
    cluster: Option<ClusterName>,
    /// Only of this addon.
    #[arg(long, value_name = "NAME")]
    addon: Option<String>,
    /// Only of this agent.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Only of the authority with this id, as `ca status` shows it.
    #[arg(long, value_name = "ID")]
    issuer: Option<String>,
    /// Only in this state: intent, signed, published, unpublished, abandoned, valid or expired. See "Who holds a
    /// certificate" in ledger.md.
    #[arg(long)]
    state: Option<StateFilter>,
    /// Only valid ones that expire within this time, such as 24h; the soonest first.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    expiring_within: Option<Duration>,
    /// Only those that have not been used at the gateway since this day or time, or for this long (72h); the longest
    /// unused first. With gateways apart from the signer all of them.
    #[arg(long, value_name = "TIME", value_parser = past)]
    not_seen_since: Option<Timestamp>,
    /// How many to print, at least 1.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Print all of them; not together with --limit.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// The output format.
    #[arg(long, value_enum, default_value_t = ListFormat::Table)]
    output: ListFormat,
}

/// How lists are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ListFormat {
    /// An aligned table for people; long names are truncated.
    Table,
    /// One JSON document.
    Json,
    /// Comma-separated values (RFC 4180) with a header.
    Csv,
}

/// Prints page after page, so that a million certificates take no more memory than a thousand.
pub(super) async fn run(args: ListArgs) -> anyhow::Result<()> {
    let filter = Filter {
        signer: args.signer,
        cluster: args.cluster.as_ref().map(ToString::to_string),
        addon: args.addon,
        agent: args.agent,
        issuer: args.issuer,
        state: args.state,
        expiring_within: args.expiring_within,
        not_seen_since: args.not_seen_since,
    };
    let is_of_valid = filter.state == Some(StateFilter::Valid) || filter.expiring_within.is_some();
    let access = args.source.access.clone();
    let source = LedgerSource::open(args.source).await?;
    let revocations = match &source {
        _ if !is_of_valid && args.output != ListFormat::Table => Revocations::default(),
        LedgerSource::Hub(client) if is_of_valid => Revocations::read(client, args.cluster).await?,
        LedgerSource::Ledger(_) if is_of_valid => Revocations::connect(&access, args.cluster).await.context(
            "what is revoked is not known, so neither is what is valid; `--state published` alone needs no cluster",
        )?,
        // Whoever may read the inventory may have no other right.
        LedgerSource::Hub(client) => Revocations::or_none(Revocations::read(client, args.cluster)).await,
        LedgerSource::Ledger(_) => Revocations::or_none(Revocations::connect(&access, args.cluster)).await,
    };
    let mut query = Query { filter, after: None, limit: PAGE_MAX };
    let mut left = if args.all { u64::MAX } else { args.limit };
    let now = Clock::default().now();
    let mut printer = Printer { format: args.output, now, revocations, has_begun: false, printed: 0 };
    let more = loop {
        let limit = u32::try_from(left).unwrap_or(PAGE_MAX);
        query.limit = if is_of_valid { PAGE_MAX } else { limit.min(PAGE_MAX) }; // some may be revoked
        let mut page = source.page(&query).await?;
        query.after = page.items.last().map(|last| last.cursor(&query));
        page.items.retain(|certificate| !(is_of_valid && printer.revocations.revokes(certificate)));
        let is_cut = page.items.len() as u64 > left;
        page.items.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        printer.page(&page.items)?;
        left = left.saturating_sub(u64::try_from(page.items.len()).unwrap_or(u64::MAX));
        if page.metadata.next.is_none() || left == 0 {
            break is_cut || page.metadata.next.is_some();
        }
    };
    printer.end();
    if more {
        tell("There may be more: use --limit N or --all.");
    }
    Ok(())
}

struct Printer {
    format: ListFormat,
    now: Timestamp,
    revocations: Revocations,
    has_begun: bool,
    printed: usize,
}

impl Printer {
    fn page(&mut self, items: &[Certificate]) -> anyhow::Result<()> {
        let first = !std::mem::replace(&mut self.has_begun, true);
        let text = match self.format {
            ListFormat::Table => as_table(items, (self.now, &self.revocations), first),
            ListFormat::Json => as_json(items, self.printed == 0)?,
            ListFormat::Csv => as_csv(items, first)?,
        };
        self.printed += items.len();
        print(&text);
        Ok(())
    }

    fn end(&self) {
        if self.format == ListFormat::Json {
            print(if self.printed == 0 { "[]\n" } else { "\n]\n" });
        }
    }
}

fn as_table(items: &[Certificate], (now, revocations): (Timestamp, &Revocations), first: bool) -> String {
    let header = ["SERIAL", "STATE", "CLUSTER", "ADDON", "NOT AFTER", "LAST SEEN"];
    let mut rows = Rows::new(if first { &header } else { &[] });
    for item in items {
        let state = match item.state.name() {
            _ if item.is_expired(now) => "expired",
            _ if revocations.revokes(item) => "revoked",
            state => state,
        };
        let addon = match (item.addon.as_str(), item.agent.as_str()) {
            ("", _) => item.signer.clone(), // the gateway's own
            (addon, agent) if addon == agent => addon.to_owned(),
            (addon, agent) => format!("{addon}/{agent}"),
        };
        let seen = item.last_seen.map_or_else(|| "-".to_owned(), |seen| seen.to_string());
        let cluster = if item.cluster.is_empty() { "-" } else { &item.cluster };
        let columns = [item.serial.as_str(), state, &cut(cluster), &cut(&addon), &item.not_after.to_string(), &seen];
        rows.add(columns);
    }
    rows.render()
}

/// Omits the middle of a long name, because long names often differ at their end.
fn cut(name: &str) -> String {
    let characters: Vec<char> = name.chars().collect();
    match (characters.get(..NAME_WIDTH / 2), characters.len().checked_sub(NAME_WIDTH / 2 - 1)) {
        (Some(start), Some(end)) if characters.len() > NAME_WIDTH => {
            start.iter().chain(&['…']).chain(characters.iter().skip(end)).collect()
        }
        _ => name.to_owned(),
    }
}

/// A part of one JSON array; the first part begins it.
fn as_json(items: &[Certificate], first: bool) -> anyhow::Result<String> {
    let mut text = String::new();
    for (at, item) in items.iter().enumerate() {
        text.push_str(if first && at == 0 { "[\n" } else { ",\n" });
        let document = serde_json::to_string_pretty(item)?;
        let lines: Vec<_> = document.lines().map(|line| format!("  {line}")).collect();
        text.push_str(&lines.join("\n"));
    }
    Ok(text)
}

const CSV: [&str; 15] = [
    "seq",
    "serial",
    "state",
    "signer",
    "cluster",
    "addon",
    "agent",
    "issuer",
    "request",
    "uid",
    "notBefore",
    "notAfter",
    "publishedAt",
    "lastSeen",
    "lastSeenFrom",
];

/// Lines of CSV with the members of the JSON, in their order.
fn as_csv(items: &[Certificate], first: bool) -> anyhow::Result<String> {
    let mut text = String::new();
    if first {
        text.push_str(&format!("{}\r\n", CSV.join(",")));
    }
    for item in items {
        let item = item.serialize(serde_json::value::Serializer)?;
        let column = |name: &&str| match item.get(name) {
            Some(serde_json::Value::String(text)) => quoted(text),
            Some(other) => other.to_string(),
            None => String::new(),
        };
        text.push_str(&format!("{}\r\n", CSV.iter().map(column).collect::<Vec<_>>().join(",")));
    }
    Ok(text)
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use addon_signer_core::journal::CertificateState;

    fn mk_certificate() -> Certificate {
        Certificate {
            seq: 7,
            serial: "01234567".repeat(5),
            state: CertificateState::Published,
            signer: "telemetry".to_owned(),
            cluster: "production-europe-west-17".to_owned(),
            addon: "telemetry".to_owned(),
            agent: "telemetry".to_owned(),
            issuer: "i".to_owned(),
            request: "csr,\"1\"".to_owned(),
            uid: "u".to_owned(),
            not_before: Timestamp::from_unix(0),
            not_after: Timestamp::from_unix(86_400),
            published_at: Some(Timestamp::from_unix(5)),
            last_seen: None,
            last_seen_from: None,
        }
    }

    #[test]
    fn tables_fit_and_serial_numbers_are_whole() {
        let table = |second, is_revoked: bool, first| {
            let mut revocations = Revocations::default();
            let before = Timestamp::from_unix(i64::from(is_revoked));
            revocations.revoke("production-europe-west-17", "telemetry", before);
            as_table(&[mk_certificate()], (Timestamp::from_unix(second), &revocations), first)
        };
        let text = table(1, false, true);
        let expected = concat!(
            "SERIAL                                    STATE      CLUSTER           ADDON      NOT AFTER             ",
            "LAST SEEN\n0123456701234567012345670123456701234567  published  producti…west-17  telemetry  ",
            "1970-01-02T00:00:00Z  -\n",
        );
        assert_eq!(text, expected);
        assert!(table(86_401, true, false).contains("expired"));
        assert!(table(1, true, false).contains("revoked"));
        assert_eq!(cut("1234567890123456"), "1234567890123456");
    }

    #[test]
    fn what_no_agent_can_have_is_not_revoked() {
        let mut revocations = Revocations::default();
        revocations.revoke("production-europe-west-17", "telemetry", Timestamp::from_unix(1));
        let is_revoked =
            |state: &CertificateState| revocations.revokes(&Certificate { state: *state, ..mk_certificate() });
        let revoked: Vec<_> = CertificateState::ALL.into_iter().filter(is_revoked).collect();
        assert_eq!(revoked, [CertificateState::Signed, CertificateState::Published]);
    }

    #[test]
    fn csv_has_every_member_of_the_json() {
        let item = mk_certificate().serialize(serde_json::value::Serializer).unwrap();
        assert!(item.as_object().unwrap().keys().all(|name| CSV.contains(&name.as_str())));
        let text = as_csv(&[mk_certificate()], true).unwrap();
        let row = text.lines().nth(1).unwrap();
        assert!(
            row.contains(",\"csr,\"\"1\"\"\",u,1970-01-01T00:00:00Z,1970-01-02T00:00:00Z,1970-01-01T00:00:05Z,,"),
            "{row}"
        );
    }

    #[test]
    fn pages_make_one_json_document() {
        let item = mk_certificate();
        let text = as_json(&[item.clone(), item.clone()], true).unwrap()
            + &as_json(std::slice::from_ref(&item), false).unwrap()
            + "\n]\n";
        let read: Vec<Certificate> = serde_json::from_str(&text).unwrap();
        assert_eq!(read, vec![item.clone(), item.clone(), item]);
    }
}
