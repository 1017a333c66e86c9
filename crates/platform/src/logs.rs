//! Logs for people, on standard error. Decisions (target `audit`) go to a separate log.

use std::io::IsTerminal;

use addon_signer_core::names::AUDIT_TARGET;
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
    let no_decisions = filter_fn(|metadata| metadata.target() != AUDIT_TARGET);
    let filter = wanted.and(no_decisions.with_max_level_hint(LevelFilter::TRACE));
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.with_filter(filter).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_filter(filter).boxed(),
    }
}
