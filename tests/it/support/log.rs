//! What the code under test logs on this test's thread.

use std::io::{self, Write};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tracing::Dispatch;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, Layer};

/// While there is only one subscriber in the process, tracing asks the first thread that comes to a log line whether
/// anybody wants it, and that may be another test's thread. With a second one it asks all subscribers.
static SECOND: LazyLock<Dispatch> =
    LazyLock::new(|| Dispatch::new(tracing_subscriber::fmt().with_max_level(LevelFilter::OFF).finish()));

/// Lines that were logged.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

/// What is decided, as lines of JSON; and what people would read, at `info`. Until the guard is dropped, and under the
/// same condition as [`capture`].
pub(crate) fn capture_audit() -> (Log, Log, DefaultGuard) {
    LazyLock::force(&SECOND);
    let (decisions, people) = (Log::default(), Log::default());
    let readable = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(people.clone());
    let subscriber = tracing_subscriber::registry()
        .with(addon_signer::audit::lines(decisions.clone()))
        .with(readable.with_filter(EnvFilter::new("info,audit=off")));
    (decisions, people, tracing::subscriber::set_default(subscriber))
}

/// Captures until the guard is dropped. Only for tests on a single-threaded runtime, whose tasks all run on their
/// thread.
pub(crate) fn capture(filter: &str) -> (Log, DefaultGuard) {
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
    pub(crate) fn json(&self) -> Vec<serde_json::Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.text().lines().map(parse).collect()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
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
