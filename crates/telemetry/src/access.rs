//! The access log: one line for each request at the gateway that has ended, on the tracing target `access`, with the
//! field names of `docs/access-log.md`.
//!
//! A thread of its own writes the lines, so that no request waits for their reader. A limited number of lines may wait
//! for that thread; further ones are lost, and their number is reported on standard error.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber, info};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::audit::{Sink, bounded, complain, line_of, names};
use addon_signer_core::ca::serial::Serial;
use addon_signer_core::identity::PeerIdentity;
use addon_signer_core::names::ACCESS_TARGET;
use addon_signer_core::timestamp::Timestamp;

/// How many lines may wait to be written: those of a busy gateway in a fifth of a second, about 3 MB.
const WAITING: usize = 4096;
/// How often lost lines are reported.
const LOG_AGAIN: Duration = Duration::from_secs(60);
/// How long the end of the process waits for the last lines.
const LAST: Duration = Duration::from_secs(1);
/// How often it then checks whether the queue has space.
const POLL: Duration = Duration::from_millis(10);

/// A client's request. Texts that the client chose are cut to 256 bytes, so that no request has a long line.
#[derive(Debug)]
pub struct RequestSummary {
    protocol: &'static str,
    method: String,
    path: String,
    host: String,
    trace_id: String,
}

impl RequestSummary {
    /// A request by this version of HTTP. The path is without the query, which may hold secrets.
    pub fn new(protocol: &'static str, method: &str, path: &str, host: &str, trace_id: Option<&str>) -> Self {
        let [method, path, host] = [method, path, host].map(bounded);
        Self { protocol, method, path, host, trace_id: trace_id.unwrap_or_default().to_owned() }
    }
}

/// A request that has ended.
#[derive(Debug)]
pub struct Ended<'c> {
    /// When it began.
    pub began: Timestamp,
    /// The client, if the gateway admitted it.
    pub identity: Option<&'c PeerIdentity>,
    /// The serial number of the client's certificate, likewise.
    pub serial: Option<Serial>,
    /// The client's request.
    pub asked: &'c RequestSummary,
    /// The AddOnRoute, the gateway's own path, or `none`.
    pub route: &'c str,
    /// The status of the response; 0 if there was none.
    pub status: u16,
    /// Bytes of content from the client.
    pub received: u64,
    /// Bytes of content to the client.
    pub sent: u64,
    /// The time until the response began, without the backend's.
    pub own: Duration,
    /// The backend's time until its response began.
    pub backend: Duration,
    /// The time until the request had ended.
    pub whole: Duration,
    /// The problem with which the gateway refused the request; empty if it did not.
    pub problem: &'static str,
    /// How it ended.
    pub ended: &'static str,
}

impl Ended<'_> {
    /// Writes the line.
    pub fn write(&self) {
        let Self { asked, route, status, received, sent, problem, ended, .. } = *self;
        let RequestSummary { protocol, method, path, host, trace_id } = asked;
        let [cluster, addon, agent] = names(self.identity);
        let time = self.began.to_string();
        let serial = self.serial.map(|serial| serial.to_string()).unwrap_or_default();
        let [own_ms, backend_ms, duration_ms] = [self.own, self.backend, self.whole].map(|it| it.as_secs_f64() * 1e3);
        info!(
            target: ACCESS_TARGET,
            time, event = "access", cluster, addon, agent, serial, protocol, method, path, host, route, status,
            received, sent, own_ms, backend_ms, duration_ms, trace_id, problem, ended
        );
    }
}

enum Message {
    Line(String),
    /// Dropped once all lines before it are written.
    Written(SyncSender<()>),
}

/// A layer that writes requests and nothing else, and its writer.
///
/// # Errors
/// The writer's thread cannot be started.
pub fn access_lines<S>(sink: Sink) -> io::Result<(impl Layer<S> + Send + Sync, AccessWriter)>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    let (queue, lines) = sync_channel(WAITING);
    let lost = Arc::<AtomicU64>::default();
    let telling = Arc::clone(&lost);
    thread::Builder::new().name("access-log".to_owned()).spawn(move || write(&lines, &sink, &telling))?;
    // Without the hint, tracing would call the filter for every trace event of every library.
    let ours = FilterFn::new(|metadata| metadata.target() == ACCESS_TARGET).with_max_level_hint(LevelFilter::INFO);
    let writer = AccessWriter(queue.clone());
    Ok((AccessLines { queue, lost }.with_filter(ours), writer))
}

/// The layer behind [`access_lines`].
struct AccessLines {
    queue: SyncSender<Message>,
    lost: Arc<AtomicU64>,
}

impl<S: Subscriber> Layer<S> for AccessLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if self.queue.try_send(Message::Line(line_of(event))).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write(lines: &Receiver<Message>, sink: &Sink, lost: &AtomicU64) {
    let mut logged: Option<Instant> = None;
    while let Ok(message) = lines.recv() {
        let is_last = matches!(message, Message::Written(_));
        match message {
            Message::Line(line) => sink.write_line(&line),
            Message::Written(waiting) => drop(waiting),
        }
        if is_last || logged.is_none_or(|at| at.elapsed() >= LOG_AGAIN) {
            let missing = lost.swap(0, Ordering::Relaxed);
            if missing > 0 {
                logged = Some(Instant::now());
                complain(&format!("whoever reads the access log is too slow; {missing} lines are missing"));
            }
        }
    }
}

/// Writes the lines of the access log.
#[derive(Debug, Clone)]
pub struct AccessWriter(SyncSender<Message>);

impl AccessWriter {
    /// Waits until the lines so far are written, for a second at most: at the end of the process.
    pub fn finish(&self) {
        let end = Instant::now() + LAST;
        let (waiting, written) = sync_channel(1);
        let mut message = Message::Written(waiting);
        while let Err(TrySendError::Full(unsent)) = self.0.try_send(message) {
            if Instant::now() >= end {
                return;
            }
            thread::sleep(POLL);
            message = unsent;
        }
        let left = end.saturating_duration_since(Instant::now());
        written.recv_timeout(left).ok(); // nothing is ever sent: it ends when the sender is dropped, or with the time
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Line(_) => "Line",
            Self::Written(_) => "Written",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use parking_lot::Mutex;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// A sink whose reader takes one line each time the test tells it to.
    struct Slow {
        taken: Mutex<Receiver<()>>,
        written: Sender<String>,
    }

    impl io::Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.taken.lock().recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.written.send(String::from_utf8(bytes.to_vec()).unwrap()).unwrap();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn mk_ended(asked: &RequestSummary) -> Ended<'_> {
        Ended {
            began: Timestamp::from_unix(1_800_000_000),
            identity: None,
            serial: None,
            asked,
            route: "none",
            status: 404,
            received: 1,
            sent: 2,
            own: Duration::from_micros(1_500),
            backend: Duration::ZERO,
            whole: Duration::from_millis(2),
            problem: "no-route",
            ended: "complete",
        }
    }

    #[test]
    fn a_reader_that_takes_no_line_holds_up_no_call() {
        let (take, taken) = channel();
        let (written, lines) = channel();
        let slow = Slow { taken: Mutex::new(taken), written };
        let (layer, writer) = access_lines(Sink::new("the access log", slow)).unwrap();
        let asked = RequestSummary::new("HTTP/1.1", "GET", "/x", "gateway.example", None);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            (0..2 * WAITING).for_each(|_| mk_ended(&asked).write()); // returns although nothing is written
            (0..=WAITING).for_each(|_| take.send(()).unwrap());
            (0..WAITING).for_each(|_| assert!(lines.recv().unwrap().contains("no-route")));
            drop(take);
            writer.finish();
        });
        assert!(lines.try_iter().count() <= 1, "but for one in the writer's hand, the others are lost");
    }

    #[test]
    fn a_line_has_what_the_document_lists_and_is_short() {
        let (take, taken) = channel();
        let (written, lines) = channel();
        take.send(()).unwrap();
        let (layer, writer) =
            access_lines(Sink::new("the access log", Slow { taken: Mutex::new(taken), written })).unwrap();
        let path = "/\u{e4}\"\n".repeat(2_000);
        let asked =
            RequestSummary::new("HTTP/2", "GET", &path, "gateway.example", Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || mk_ended(&asked).write());
        writer.finish();
        let line = lines.recv().unwrap();
        assert!(line.len() < 1_000, "{line}");
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(line["path"].as_str().is_some_and(|path| path.len() < 260 && path.ends_with('…')), "{line}");
        let numbers = ["status", "received", "sent", "own_ms", "backend_ms", "duration_ms"].map(|name| &line[name]);
        assert_eq!(serde_json::json!(numbers), serde_json::json!([404, 1, 2, 1.5, 0.0, 2.0]));
    }
}
