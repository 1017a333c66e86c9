//! Logs for people, on standard error. Decisions (target `audit`) and calls (target `access`) go to logs of their own.

use std::io::IsTerminal;

use addon_signer_core::names::{ACCESS_TARGET, AUDIT_TARGET};
use tracing::Subscriber;
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer};

/// The format of a log line.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object.
    Json,
}

/// What a long-running program logs if `RUST_LOG` is not set. The warnings of rustls are off, because any stranger can
/// cause them with TLS alerts, as often as they like.
pub const INFO: &str = "info,rustls=error";

/// The log for people. `usual` is the filter if `RUST_LOG` is not set.
pub fn layer<S>(format: LogFormat, usual: &str) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    let wanted = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(usual));
    let of_people = filter_fn(|metadata| ![AUDIT_TARGET, ACCESS_TARGET].contains(&metadata.target()));
    let filter = wanted.and(of_people.with_max_level_hint(LevelFilter::TRACE));
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.with_filter(filter).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_filter(filter).boxed(),
    }
}
