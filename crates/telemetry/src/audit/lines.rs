//! Writes decisions as lines of JSON: the fields of the event in order, and nothing else.

use std::fmt::{self, Debug, Write as _};
use std::io::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use addon_signer_core::names::AUDIT_TARGET;

/// A layer that writes decisions and nothing else. The filter of the ordinary log does not apply to it.
pub fn lines<S>(sink: Sink) -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    // Without the hint, tracing would call the filter for every trace event of every library.
    let ours = FilterFn::new(|metadata| metadata.target() == AUDIT_TARGET).with_max_level_hint(LevelFilter::INFO);
    Lines { sink }.with_filter(ours)
}

/// The layer behind [`lines`].
pub struct Lines {
    sink: Sink,
}

/// The destination of lines. Clones share it, so that lines of two logs never mix.
#[derive(Clone)]
pub struct Sink(Arc<Mutex<SinkState>>);

struct SinkState {
    /// Its name in errors.
    name: &'static str,
    writer: Box<dyn Write + Send>,
    /// Whether only a part of the last line was written.
    torn: bool,
    lost: u64,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        self.sink.write_line(&line_of(event));
    }
}

/// An event as a line.
pub(crate) fn line_of(event: &Event<'_>) -> String {
    let mut object = Object(String::from("{"));
    event.record(&mut object);
    object.0.push_str("}\n");
    object.0
}

impl Sink {
    /// A sink into this writer. `name` is its name in errors.
    pub fn new(name: &'static str, writer: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(SinkState { name, writer: Box::new(writer), torn: false, lost: 0 })))
    }

    pub(crate) fn write_line(&self, line: &str) {
        self.0.lock().write_line(line);
    }
}

impl SinkState {
    /// Counts a line that cannot be written, and reports the first one on standard error. The process continues without
    /// the log.
    fn write_line(&mut self, line: &str) {
        match self.try_write(line) {
            Ok(()) if self.lost > 0 => {
                complain(&format!("{} is writable again; {} lines are missing", self.name, self.lost));
                self.lost = 0;
            }
            Ok(()) => {}
            Err(error) => {
                self.lost += 1;
                if self.lost == 1 {
                    let name = self.name;
                    complain(&format!("{name} cannot be written: {error}; lines are missing until it can"));
                }
            }
        }
    }

    fn try_write(&mut self, line: &str) -> io::Result<()> {
        if self.torn {
            self.writer.write_all(b"\n")?;
            self.torn = false;
        }
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match self.writer.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            self.torn = !rest.is_empty();
        }
        self.writer.flush()
    }
}

pub(crate) fn complain(text: &str) {
    // If standard error fails too, the error cannot be reported anywhere.
    let _ = writeln!(io::stderr(), "addon-signer: {text}");
}

/// An object that is being written.
struct Object(String);

impl Object {
    fn member(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        let separator = if self.0.len() > 1 { "," } else { "" };
        // Writing to a String does not fail.
        let _ = write!(self.0, "{separator}\"{}\":{value}", field.name());
    }
}

impl Visit for Object {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.member(field, format_args!("{}", serde_json::Value::from(value)));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.member(field, format_args!("{value}"));
    }

    /// Writes milliseconds to the microsecond; no decision has such a value.
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.member(field, format_args!("{value:.3}"));
    }

    /// Writes values of other types as texts; no decision has such a value.
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}
