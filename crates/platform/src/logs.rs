//! Logs for people, on standard error. Decisions (target `audit`) and requests (target `access`) go to logs of their
//! own.

use std::fmt::{self, Debug};
use std::io::{self, IsTerminal, Write};

use addon_signer_core::names::{ACCESS_TARGET, AUDIT_TARGET};
use tracing::Subscriber;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::Filter;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer};

use crate::terminal;

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

/// What is in logs of its own; and what the client of Kubernetes warns of, whoever sets `RUST_LOG`: it quotes whole
/// responses that it cannot read, with the keys of Secrets in them. Its callers get the same as an error.
const NOT_FOR_PEOPLE: [&str; 3] = [AUDIT_TARGET, ACCESS_TARGET, "kube_client::client"];

/// The log for people. `usual` is the filter if `RUST_LOG` is not set.
pub fn layer<S>(format: LogFormat, usual: &str) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    let filter = filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(usual)));
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.fmt_fields(fields()).with_filter(filter).boxed(),
        LogFormat::Json => {
            lines.with_writer(|| JsonLines(io::stderr())).json().flatten_event(true).with_filter(filter).boxed()
        }
    }
}

fn filter<S: 'static>(wanted: EnvFilter) -> impl Filter<S> + Send + Sync {
    let of_people = filter_fn(|metadata| !NOT_FOR_PEOPLE.contains(&metadata.target()));
    wanted.and(of_people.with_max_level_hint(LevelFilter::TRACE))
}

/// The fields of a line for people.
fn fields() -> impl for<'w> FormatFields<'w> + 'static {
    debug_fn(write_field).delimited(" ")
}

/// Errors quote text of others, which may contain control characters.
fn write_field(to: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    let value = format!("{value:?}");
    match field.name() {
        "message" => write!(to, "{}", terminal::line(&value)),
        name => write!(to, "{name}={}", terminal::line(&value)),
    }
}

/// Lines of JSON, whose texts have no character that a terminal obeys: JSON itself demands that of some only.
struct JsonLines<W>(W);

impl<W: Write> Write for JsonLines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.0.write_all(terminal::lines(text).as_bytes())?,
            Err(_) => self.0.write_all(bytes)?, // the formatter writes whole lines of UTF-8
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::layer::SubscriberExt;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_others_wrote_is_one_line_without_control_characters() {
        let written = Written::default();
        let writer = written.clone();
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).without_time().fmt_fields(fields());
        let subscriber = tracing_subscriber::registry().with(lines.with_writer(move || writer.clone()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(error = %"no\n WARN forged\x1b[2K", name = "a\nb", "Cannot read {}", "\u{9b}1A");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let line = r#"Cannot read \u009b1A error=no\u000a WARN forged\u001b[2K name="a\nb""#;
        assert_eq!(text, format!(" WARN addon_signer_platform::logs::tests: {line}\n"));
    }

    #[test]
    fn json_of_what_others_wrote_moves_no_cursor() {
        let written = Written::default();
        let writer = written.clone();
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).json().flatten_event(true);
        let subscriber = tracing_subscriber::registry().with(lines.with_writer(move || JsonLines(writer.clone())));
        let error = "no\u{9b}1A\u{202e}\u{2028}\n";
        tracing::subscriber::with_default(subscriber, || tracing::warn!(%error, "Cannot read"));
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert!(text.is_ascii() && text.ends_with("}\n") && text.lines().count() == 1, "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap()["error"], error);
    }

    #[test]
    fn what_an_api_server_answered_is_never_quoted() {
        let written = Written::default();
        let writer = written.clone();
        let lines = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
        let all = tracing_subscriber::registry().with(lines.with_filter(filter(EnvFilter::new("trace"))));
        tracing::subscriber::with_default(all, || {
            tracing::warn!(target: "kube_client::client", "the key of an authority");
            tracing::debug!(target: "kube_client::client::builder", "requesting");
        });
        let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert!(written.contains("requesting") && !written.contains("the key"), "{written}");
    }
}
