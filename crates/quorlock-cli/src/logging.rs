//! Writes the library's tracing events to stderr.

use std::fmt::{self, Write as _};
use std::io::{self, Write};

use quorlock::{protocol::printable, runtime::Mutex};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::report::{is_json, warning};
use crate::stderr::say;

/// What is logged.
pub(crate) struct Wanted {
    /// How often `-v` was given.
    pub(crate) verbose: u8,
    /// Warnings are: the verb's own output does not include what the library would warn of.
    pub(crate) warnings: bool,
    /// The end of a lease is: the verb does not tell of it.
    pub(crate) ends: bool,
}

/// Installs the subscriber.
pub(crate) fn start(wanted: &Wanted) {
    let log = tracing_subscriber::fmt()
        .compact()
        .without_time()
        .with_target(false)
        .with_ansi(false)
        .with_writer(|| Log)
        .with_max_level(level(wanted))
        // They would be printed with a macro that panics if stderr has no reader.
        .log_internal_errors(false);
    let sentences = Sentences { prints_ends: wanted.ends };
    // An error means that one is installed already.
    drop(if wanted.verbose == 0 {
        log.event_format(sentences).finish().with(targets(level(wanted))).try_init()
    } else {
        log.finish().with(targets(level(wanted))).try_init()
    });
}

/// Of other crates, only warnings: one of them has an event for each frame of a connection to etcd.
fn targets(level: LevelFilter) -> Targets {
    Targets::new().with_target("quorlock", level).with_default(level.min(LevelFilter::WARN))
}

fn level(wanted: &Wanted) -> LevelFilter {
    match wanted.verbose {
        0 if !wanted.warnings => LevelFilter::ERROR,
        0 => LevelFilter::WARN,
        // Once per lease or connection.
        1 => LevelFilter::DEBUG,
        // Every round.
        _ => LevelFilter::TRACE,
    }
}

/// The events since [`HeldBack::begin`], while they are held back.
static HELD_BACK: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// Holds events back until [`tell`](Self::tell); dropping it discards them. If an attempt fails soon, its
/// error already says the same of each node.
pub(crate) struct HeldBack;

impl HeldBack {
    /// Starts holding back, unless verbose output was asked for.
    pub(crate) fn begin() -> HeldBack {
        if LevelFilter::current() <= LevelFilter::WARN {
            *HELD_BACK.lock() = Some(Vec::new());
        }
        HeldBack
    }

    /// Prints the events held back; later ones are printed immediately.
    pub(crate) fn print() {
        let reports = HELD_BACK.lock().take();
        reports.into_iter().flatten().for_each(say);
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        drop(HELD_BACK.lock().take());
    }
}

/// A writer that gets one event per write.
struct Log;

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let event = String::from_utf8_lossy(text);
        if event.is_empty() {
            return Ok(0);
        }
        let line = format!("{}\n", printable(event.trim_end_matches('\n')));
        match &mut *HELD_BACK.lock() {
            Some(reports) => reports.push(line),
            None => say(line),
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Formats an event like the program's other messages: `quorlock: warning: what happened: node redis://a, …`, or as JSON.
struct Sentences {
    /// The output says how a lease ended: events of the library about it would repeat that.
    prints_ends: bool,
}

impl<S, N> FormatEvent<S, N> for Sentences
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let is_error = *event.metadata().level() == Level::ERROR;
        if self.prints_ends && !is_error && event.metadata().target().starts_with(OF_ENDS) {
            return Ok(());
        }
        let mut words = Words::default();
        event.record(&mut words);
        let mut mark = ": ";
        let mut sentence = words.message;
        for (name, value) in words.fields {
            write!(sentence, "{mark}{name} {value}")?;
            mark = ", ";
        }
        if is_json() {
            return to.write_str(&warning(&sentence));
        }
        writeln!(to, "quorlock: {}: {sentence}", if is_error { "error" } else { "warning" })
    }
}

/// The target of the library's events about the end of a lease.
const OF_ENDS: &str = "quorlock::engine::keeper::ending";

#[derive(Default)]
struct Words {
    message: String,
    fields: Vec<(&'static str, String)>,
}

impl Visit for Words {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let value = format!("{value:?}");
        if field.name() == "message" {
            self.message = value;
        } else {
            self.fields.push((field.name(), value));
        }
    }
}
