//! `addon-signer certs`: lists certificates, from the ledger itself or through the hub's Kubernetes API, revokes them,
//! and checks and archives the ledger.

mod archive;
mod list;
mod revocations;
mod revoke;
mod show;
mod verify;

use anyhow::Context;
use clap::{Args, Subcommand};
use kube::Client;

use super::inventory_args;
use addon_signer_core::query::Query;
use addon_signer_core::timestamp::Timestamp;
use addon_signer_core::units::parse_duration;
use addon_signer_ledger::view::{Certificate, Details, Page};
use addon_signer_ledger::{LedgerError, Location, Reader, answer};
use addon_signer_platform::arguments::Opaque;
use addon_signer_platform::clock::Clock;
use addon_signer_platform::kubeconfig::Access;
use addon_signer_platform::kubernetes;

/// List and revoke certificates, check the ledger, archive its oldest entries.
#[derive(Debug, Clone, Subcommand)]
pub enum CertsCommand {
    /// List the certificates that match all filters, newest first unless a filter by time sorts them by that time.
    List(list::ListArgs),
    /// Show everything about one certificate: its requester, the rules, its issuer, and when it was last used.
    Show(show::ShowArgs),
    /// Revoke all certificates of an addon on one cluster; connections end within 2 seconds.
    Revoke(revoke::RevokeArgs),
    /// Check that the ledger was not altered: the chain of its entries, the published checkpoint, the index of
    /// certificates, the schema, and what lists return. If it was, the exit code is 1, and one sentence says where.
    Verify(verify::VerifyArgs),
    /// Move the oldest entries, whose certificates have all expired, into a file.
    Archive(archive::ArchiveArgs),
}

/// Runs one of the commands.
///
/// # Errors
/// One sentence saying what cannot be read, or which row is wrong.
pub async fn run(command: CertsCommand) -> anyhow::Result<()> {
    match command {
        CertsCommand::List(args) => list::run(args).await,
        CertsCommand::Show(args) => show::run(args).await,
        CertsCommand::Revoke(args) => revoke::run(args).await,
        CertsCommand::Verify(args) => verify::run(args).await,
        CertsCommand::Archive(args) => archive::run(args).await,
    }
}

/// Where to read.
#[derive(Debug, Clone, Args)]
pub(super) struct SourceArgs {
    /// The ledger's URL [default: ask the hub, through its Kubernetes API].
    #[arg(long, env = "ADDON_SIGNER_LEDGER", value_name = "URL", hide_env_values = true)]
    ledger: Option<Opaque>,
    #[command(flatten)]
    pub(super) access: Access,
}

impl SourceArgs {
    /// The ledger, if one is named.
    pub(super) fn location(&self) -> Result<Option<Location>, LedgerError> {
        self.ledger.as_ref().map(Location::read).transpose()
    }
}

/// The source of certificates: the ledger itself, or the hub.
pub(super) enum LedgerSource {
    Ledger(Reader),
    Hub(Client),
}

impl LedgerSource {
    pub(super) async fn open(args: SourceArgs) -> anyhow::Result<Self> {
        match args.location()? {
            Some(location) => Ok(Self::Ledger(Reader::open(location).await?)),
            None => {
                let client = kubernetes::client(&args.access).await;
                Ok(Self::Hub(client.context("the hub cannot be reached; without --ledger the command asks the hub")?))
            }
        }
    }

    pub(super) async fn page(&self, query: &Query) -> anyhow::Result<Page<Certificate>> {
        match self {
            Self::Ledger(reader) => Ok(answer::page(reader, query, Clock::default().now()).await?),
            Self::Hub(client) => {
                Ok(inventory_args::ask(client, &format!("certificates?{}", query.to_parameters())).await?)
            }
        }
    }

    async fn details(&self, name: &str) -> anyhow::Result<Details> {
        match self {
            Self::Ledger(reader) => Ok(answer::certificate(reader, name).await?),
            Self::Hub(client) => {
                Ok(inventory_args::ask(client, &format!("certificates/{}", addon_signer_core::query::percent(name)))
                    .await?)
            }
        }
    }
}

/// Reads a time, a day (its beginning in UTC), or a duration (that long ago).
fn past(text: &str) -> Result<Timestamp, String> {
    if let Ok(ago) = parse_duration(text) {
        return Ok(Clock::default().now().minus(ago));
    }
    let day = || Timestamp::from_rfc3339(&format!("{text}T00:00:00Z"));
    Timestamp::from_rfc3339(text).or_else(day).ok_or_else(|| {
        "write a day such as 2026-11-20, a time such as 2026-11-20T12:00:00Z, or how long ago, such as 72h".to_owned()
    })
}

/// Shows the progress on one line of a terminal; shows nothing if standard error is not a terminal.
struct ProgressLine {
    started: tokio::time::Instant,
    shown: std::cell::Cell<Option<tokio::time::Instant>>,
    is_terminal: bool,
}

impl ProgressLine {
    fn new() -> Self {
        let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
        Self { started: tokio::time::Instant::now(), shown: std::cell::Cell::new(None), is_terminal }
    }

    fn show(&self, done: u64, total: u64) {
        const OFTEN: std::time::Duration = std::time::Duration::from_millis(100);
        if !self.is_terminal || self.shown.get().is_some_and(|shown| shown.elapsed() < OFTEN) {
            return;
        }
        self.shown.set(Some(tokio::time::Instant::now()));
        replace_line(&progress_line(done, total, self.started.elapsed()));
    }

    fn end(&self) {
        if self.shown.get().is_some() {
            replace_line("");
        }
    }
}

#[expect(clippy::print_stderr, reason = "it moves the cursor, and the text is ours")]
fn replace_line(text: &str) {
    eprint!("\r{text}\x1b[K");
}

fn progress_line(done: u64, total: u64, elapsed: std::time::Duration) -> String {
    let milliseconds = elapsed.as_millis().max(1);
    let rate = u128::from(done) * 1000 / milliseconds;
    let left = u128::from(total.saturating_sub(done)) / rate.max(1);
    let percent = done * 100 / total.max(1);
    format!("{percent:3} %  {done} of {total} rows, {rate}/s, {left} s left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_three_forms() {
        assert_eq!(past("2026-11-18"), past("2026-11-18T00:00:00Z"));
        assert_eq!(past("2026-11-18T11:06:40Z"), Ok(Timestamp::from_unix(1_795_000_000)));
        assert!(past("1h").unwrap() < past("0s").unwrap());
        assert!(past("yesterday").unwrap_err().contains("72h"));
    }

    #[test]
    fn progress_says_how_long_it_takes() {
        let line = progress_line(500, 2000, std::time::Duration::from_secs(5));
        assert_eq!(line, " 25 %  500 of 2000 rows, 100/s, 15 s left");
        assert_eq!(progress_line(0, 0, std::time::Duration::ZERO), "  0 %  0 of 0 rows, 0/s, 0 s left");
    }
}
