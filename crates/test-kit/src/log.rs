//! Captures what the code under test logs on this test's thread.

use std::io::{self, Write};
use std::sync::{Arc, LazyLock};

use addon_signer_telemetry::access::{AccessWriter, access_lines};
use addon_signer_telemetry::audit::{self, Sink};
use parking_lot::Mutex;
use tracing::Dispatch;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, Layer};

/// If there is only one subscriber in the process, the first thread that reaches a log line decides whether tracing
/// writes it, and that may be another test's thread. With a second subscriber, tracing asks all of them.
static SECOND: LazyLock<Dispatch> =
    LazyLock::new(|| Dispatch::new(tracing_subscriber::fmt().with_max_level(LevelFilter::OFF).finish()));

/// The lines that were logged.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

/// Captures the decisions, as lines of JSON, and the log for people, at `info`, until the guard is dropped. The
/// condition of [`capture`] holds here too.
pub fn capture_audit() -> (Log, Log, DefaultGuard) {
    LazyLock::force(&SECOND);
    let decisions = Log::default();
    let people = Log::default();
    let readable = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(people.clone());
    let subscriber = tracing_subscriber::registry()
        .with(audit::lines(Sink::new("the audit log", decisions.clone())))
        .with(readable.with_filter(EnvFilter::new("info,audit=off,access=off")));
    (decisions, people, tracing::subscriber::set_default(subscriber))
}

/// Captures the requests, as lines of JSON, until the guard is dropped. They are written by another thread.
pub fn capture_access() -> (Log, AccessWriter, DefaultGuard) {
    LazyLock::force(&SECOND);
    let calls = Log::default();
    let (lines, writer) = access_lines(Sink::new("the access log", calls.clone())).unwrap();
    let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(lines));
    (calls, writer, guard)
}

/// Captures the log until the guard is dropped. Only for tests on a single-threaded runtime, where all tasks run on the
/// test's thread.
pub fn capture(filter: &str) -> (Log, DefaultGuard) {
    LazyLock::force(&SECOND);
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_ansi(false)
        .with_writer(log.clone())
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);
    (log, guard)
}

impl Log {
    /// Each line as JSON.
    pub fn json(&self) -> Vec<serde_json::Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.text().lines().map(parse).collect()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
