//! What the library reports, on stderr.

use tracing::level_filters::LevelFilter;

use crate::args::{Args, Verb};
use crate::stderr::Stderr;

/// Starts reporting as much as `args` ask for.
pub(crate) fn start(args: &Args) {
    let log = tracing_subscriber::fmt()
        .compact()
        .without_time()
        .with_target(false)
        .with_ansi(false)
        .with_writer(|| Stderr)
        .with_max_level(level(args))
        // It would report them with a macro that panics when nobody reads stderr.
        .log_internal_errors(false);
    // Nobody else sets one.
    drop(log.try_init());
}

fn level(args: &Args) -> LevelFilter {
    // JSON lines, a hold and the demonstration tell themselves what the library would warn of.
    let tells_itself = args.wants_json() || matches!(args.verb, Verb::Demo(_) | Verb::Hold(_));
    match args.verbose {
        0 if args.quiet || tells_itself => LevelFilter::ERROR,
        0 => LevelFilter::WARN,
        // What happens once in the life of a lease or of a connection.
        1 => LevelFilter::DEBUG,
        // And each round.
        _ => LevelFilter::TRACE,
    }
}
