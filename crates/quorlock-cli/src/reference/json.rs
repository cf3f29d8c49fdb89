//! The fields of JSON output. A test compares their names with those in the code.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use regex::Regex;

/// An object that the program prints.
struct Object {
    /// The options that print it.
    of: &'static str,
    /// The file that builds it.
    file: &'static str,
    /// The values of its field `event`, if it has one.
    events: &'static [&'static str],
    /// Name, type and meaning. `a.b` is in the object `a`, `a[].b` in each element of the array `a`.
    fields: &'static [Field],
}

type Field = (&'static str, &'static str, &'static str);

const RESOURCE: Field =
    ("resource", "string", "name of the lock; of several, their names joined by ` + `, in order");
const SHORT_TOKEN: Field =
    ("token", "string", "first eight digits of the token, which do not release the lock");
const HELD_MS: Field = ("held_ms", "integer", "how long the lock was held");
const MESSAGE: Field = ("message", "string", "sentence for people");
const FENCE: &str = "integer or null";

const OBJECTS: &[Object] = &[
    Object {
        of: "`--json` of every command, on stderr",
        file: "report.rs",
        events: &["held", "no_quorum", "interrupted", "error"],
        fields: &[
            MESSAGE,
            ("exit_code", "integer", "code that the program exits with"),
            ("holder", "string", "of `held`: the holder, as host, process id and label"),
            (
                "retained",
                "boolean",
                "of `held`: whether the lock stays taken after a run with `--at-least` or `--once-per`",
            ),
            (
                "remaining_ms",
                "integer or null",
                "of `held`: time until the lock expires, unless it is renewed; null if it never does",
            ),
            ("key", "string", "of `held`, with `--also`: the lock that is held"),
        ],
    },
    Object {
        of: "`--json` of every command, on stderr",
        file: "report.rs",
        events: &["warning", "notice"],
        fields: &[MESSAGE],
    },
    Object {
        of: "`--json` of every command, on stderr",
        file: "panic.rs",
        events: &["error"],
        fields: &[MESSAGE, ("exit_code", "integer", "125")],
    },
    Object {
        of: "`run --json` and `elect --json`, on stderr",
        file: "report.rs",
        events: &["acquired"],
        fields: &[
            RESOURCE,
            SHORT_TOKEN,
            ("fencing_token", FENCE, "fencing token; null with `--fencing off`"),
            ("waited_ms", "integer", "how long the acquisition took"),
            ("remaining_ms", "integer", "validity left"),
        ],
    },
    Object {
        of: "`run --json` and `elect --json`, on stderr",
        file: "report.rs",
        events: &["lost"],
        fields: &[
            RESOURCE,
            SHORT_TOKEN,
            ("reason", "string", "`not_renewed`, `max_hold`, `forgotten_by_nodes` or `ended`"),
            ("signal", "string", "signal that the command gets: `SIGTERM` or `SIGKILL`"),
            ("remaining_ms", "integer", "validity left"),
        ],
    },
    Object {
        of: "`run --json` and `elect --json`, on stderr",
        file: "report.rs",
        events: &["released"],
        fields: &[RESOURCE, SHORT_TOKEN, HELD_MS],
    },
    Object {
        of: "`run --json` and `elect --json`, on stderr",
        file: "report.rs",
        events: &["retained"],
        fields: &[
            RESOURCE,
            SHORT_TOKEN,
            HELD_MS,
            (
                "confirmed",
                "boolean",
                "whether a quorum confirmed it; if not, other hosts may run the job again",
            ),
            (
                "remaining_ms",
                "integer or null",
                "how much longer the lock stays taken; null if not confirmed",
            ),
        ],
    },
    Object {
        of: "`run --json` and `elect --json`, on stderr; `hold --json`, on stdout",
        file: "report.rs",
        events: &["unconfirmed"],
        fields: &[RESOURCE, SHORT_TOKEN, HELD_MS, MESSAGE],
    },
    Object {
        of: "`hold --json`, on stdout",
        file: "hold.rs",
        events: &["acquired"],
        fields: &[
            RESOURCE,
            ("fencing_token", FENCE, "fencing token; null with `--fencing off`"),
            ("token", "string", "whole token, which releases the lock"),
            ("waited_ms", "integer", "how long the acquisition took"),
            ("remaining_ms", "integer", "validity left"),
            ("until", "string", "end of validity by the wall clock, RFC 3339"),
            ("renewed_every_ms", "integer", "interval of renewals"),
        ],
    },
    Object {
        of: "`hold --json`, on stdout",
        file: "hold.rs",
        events: &["lost"],
        fields: &[
            SHORT_TOKEN,
            ("reason", "string", "`not_renewed`, `max_hold`, `forgotten_by_nodes` or `ended`"),
        ],
    },
    Object {
        of: "`hold --json`, on stdout",
        file: "hold.rs",
        events: &["released"],
        fields: &[SHORT_TOKEN, HELD_MS],
    },
    Object {
        of: "`hold --json`, on stdout, for `check` on stdin",
        file: "hold.rs",
        events: &["checked"],
        fields: &[
            ("held", "boolean", "whether it is still held; if not, `lost` follows"),
            ("remaining_ms", "integer", "validity left"),
        ],
    },
    Object {
        of: "`hold --json`, on stdout, for `renew` on stdin",
        file: "hold.rs",
        events: &["renewed", "unrenewed"],
        fields: &[
            ("remaining_ms", "integer", "validity left"),
            ("error", "string", "of `unrenewed`: why no quorum confirmed"),
        ],
    },
    Object {
        of: "`hold --json`, on stdout, for any other line on stdin",
        file: "hold.rs",
        events: &["unknown"],
        fields: &[("line", "string", "the line"), ("known", "array of strings", "the lines that are known")],
    },
    Object {
        of: "`status --json`, one object per lock",
        file: "status/show.rs",
        events: &[],
        fields: &[
            RESOURCE,
            ("state", "string", "`held`, `retained`, `free` or `unknown`"),
            ("quorum", "integer", "votes that a lock needs"),
            ("holder", "object or null", "holder on the most nodes"),
            ("holder.context", "string", "host, process id and label"),
            ("holder.readers", "array of strings", "for a shared lock, its holders"),
            ("holder.token", "string", "first eight digits of its token"),
            ("holder.fencing_token", FENCE, "its fencing token, if a quorum of nodes reports one"),
            ("holder.nodes", "integer", "number of nodes that store its token"),
            ("holder.depth", "integer", "with Redisson's layout: how often its owner holds it"),
            (
                "holder.remaining_ms",
                "integer or null",
                "longest remaining TTL on these nodes; null if it never expires",
            ),
            (
                "locked_no_sooner_than_ms",
                "integer",
                "if unknown: how long restarted nodes keep it from being acquired, else 0",
            ),
            ("waiters", "array", "waiting processes, in the order of the queue"),
            ("waiters[].id", "string", "id of the waiter"),
            ("waiters[].context", "string", "host, process id and label"),
            ("waiters[].waited_ms", "integer", "how long it has waited"),
            ("more_waiters", "boolean", "whether there are more than are listed"),
            ("nodes", "array", "answers of the nodes"),
            ("nodes[].node", "string", "address"),
            ("nodes[].state", "string", "`held`, `retained`, `free` or `unknown`"),
            ("nodes[].holder", "string", "if held or retained: host, process id and label"),
            ("nodes[].token", "string", "if held or retained: first eight digits of the token"),
            (
                "nodes[].remaining_ms",
                "integer or null",
                "if held or retained: remaining TTL; null for data without an expiry",
            ),
            ("nodes[].error", "string", "if unknown: why the node did not answer"),
            ("nodes[].fencing_token", "integer", "fencing counter of the node, if it has one"),
            ("nodes[].no_vote_for_ms", "integer", "if restarted recently: how much longer it does not vote"),
            ("nodes[].round_trip_us", "integer", "if it answered: round trip"),
        ],
    },
    Object {
        of: "`list --json`, one object per lock; `top --json`, in `locks`",
        file: "list/entry.rs",
        events: &[],
        fields: &[
            RESOURCE,
            (
                "state",
                "string",
                "`held`; `retained` for the rest of a slot; or `unknown`, without the fields below: too few nodes answered",
            ),
            ("holder", "string", "host, process id and label; of a shared lock, its readers"),
            ("token", "string", "first eight digits of its token"),
            ("fencing_token", FENCE, "its fencing token, if a quorum of nodes reports one"),
            (
                "since",
                "string or null",
                "when it asked for its fencing token, RFC 3339, by the clock of the client; null without one, as if retained",
            ),
            (
                "remaining_ms",
                "integer or null",
                "longest remaining TTL on the nodes that store it; null if it never expires",
            ),
            ("nodes", "integer", "number of nodes that store its token"),
            ("waiters", "integer", "number of processes that wait for it"),
            ("more_waiters", "boolean", "whether there are more than are counted"),
            ("longest_wait_ms", "integer", "how long the first of them has waited; 0 if there is none"),
        ],
    },
    Object {
        of: "`log --json`, one object per hold",
        file: "log.rs",
        events: &[],
        fields: &[
            RESOURCE,
            ("holder", "string", "host, process id and label"),
            ("token", "string", "first eight digits of its token"),
            ("fencing_token", FENCE, "its fencing token, if it had one"),
            ("shared", "boolean", "whether others could share the lock"),
            ("acquired", "string", "when it acquired the lock, RFC 3339, by the clock of its host"),
            HELD_MS,
            (
                "ended",
                "string",
                "`released`, `passed_on` (within its process), `retained`, `expired`, `quorum_lost`, `max_hold` or `closed`",
            ),
            ("nodes", "integer", "number of nodes that have the entry"),
        ],
    },
    Object {
        of: "`top --json`, one object per picture",
        file: "top.rs",
        events: &[],
        fields: &[
            ("at", "string", "time of the picture, RFC 3339"),
            ("listed", "integer", "number of names that the nodes store"),
            ("current", "boolean", "whether enough nodes could be listed the last time"),
            ("unknown", "integer", "number of locks of which too few nodes say whether they are held"),
            ("locks", "array", "locks, the longest waits first"),
        ],
    },
    Object {
        of: "`wait --json`, on stdout",
        file: "wait.rs",
        events: &["free"],
        fields: &[RESOURCE, ("waited_ms", "integer", "how long it waited")],
    },
    Object {
        of: "`init --json`, on stdout",
        file: "init.rs",
        events: &["checked", "unchecked"],
        fields: &[
            ("written", "boolean", "whether the file was written"),
            ("exit_code", "integer", "code that the program exits with"),
            ("file", "string", "if written: its path"),
        ],
    },
    Object {
        of: "`doctor --json`",
        file: "doctor.rs",
        events: &[],
        fields: &[
            ("summary", "string", "`sound`, `unsafe`, `no_quorum` or `unknown`"),
            ("exit_code", "integer", "code that the program exits with"),
            ("quorum", "integer", "votes that a lock needs"),
            ("nodes", "array", "nodes"),
            ("nodes[].node", "string", "address"),
            ("nodes[].server", "string or null", "name of the server software"),
            ("nodes[].version", "string or null", "its version"),
            ("nodes[].uptime_ms", "integer or null", "time since the server started"),
            ("nodes[].round_trip_p50_us", "integer or null", "median round trip"),
            ("nodes[].round_trip_p99_us", "integer or null", "99th percentile of the round trips"),
            (
                "nodes[].clock_ahead_us",
                "integer or null",
                "how far its clock is ahead of ours; negative if behind",
            ),
            ("nodes[].clock_uncertainty_us", "integer or null", "uncertainty of that figure"),
            ("nodes[].vote", "string", "`yes`, `later`, `no` or `unknown`"),
            ("nodes[].reason", "string or null", "why it does not vote, or when it will"),
            ("findings", "array", "findings, the worst first"),
            ("findings[].severity", "string", "`unsafe`, `warning`, `unknown` or `note`"),
            (
                "findings[].finding",
                "string",
                "code of the finding, as listed in [quorlock doctor](doctor.md)",
            ),
            ("findings[].node", "string or null", "address of the node; null if it concerns the deployment"),
            ("findings[].evidence", "string", "what was found"),
            ("findings[].cure", "string", "how to fix it"),
        ],
    },
    Object {
        of: "`release --json`",
        file: "release/outcome.rs",
        events: &[],
        fields: &[
            RESOURCE,
            ("state", "string", "`released`, `free`, `not_held` (with this token) or `unknown`"),
            ("quorum", "integer", "nodes that must have answered"),
            ("nodes", "array", "nodes"),
            ("nodes[].node", "string", "address"),
            ("nodes[].state", "string", "`deleted`, `nothing`, `data` (no lock, kept) or `unknown`"),
            ("nodes[].from", "array of strings", "if deleted: the holders that lost the lock"),
            ("nodes[].error", "string", "if unknown: why the node did not answer"),
        ],
    },
    Object {
        of: "`bench --json`",
        file: "bench/figures.rs",
        events: &[],
        fields: &[
            ("nodes", "array", "nodes"),
            ("nodes[].node", "string", "address"),
            ("nodes[].round_trip_us", "object", "round trips, in microseconds: `count`, `p50`, `p99`, `max`"),
            ("nodes[].round_trip_us.count", "integer", "number of measurements"),
            ("nodes[].round_trip_us.p50", "integer", "median"),
            ("nodes[].round_trip_us.p99", "integer", "99th percentile"),
            ("nodes[].round_trip_us.max", "integer", "maximum"),
            ("nodes[].unanswered", "integer", "requests without an answer"),
            ("nodes[].error", "string or null", "the last error of those"),
            ("fencing", "boolean", "whether the locks had fencing tokens"),
            ("loads", "array", "the load of one task, then that of all tasks"),
            ("loads[].tasks", "integer", "concurrent tasks"),
            ("loads[].seconds", "number", "duration"),
            ("loads[].locks_per_second", "number", "locks acquired and released per second"),
            ("loads[].failed", "integer", "failed attempts"),
            ("loads[].error", "string or null", "the last error of those"),
            ("loads[].acquire_us", "object", "durations of acquiring, with fields as in `round_trip_us`"),
            ("loads[].release_us", "object", "durations of releasing, with fields as in `round_trip_us`"),
        ],
    },
    Object {
        of: "`demo --json`",
        file: "demo.rs",
        events: &["chapter"],
        fields: &[("at_ms", "integer", "time since the start"), ("text", "string", "sentence for people")],
    },
    Object {
        of: "`demo --json`",
        file: "demo.rs",
        events: &["note"],
        fields: &[("text", "string", "sentence for people")],
    },
    Object {
        of: "`demo --json`",
        file: "demo.rs",
        events: &["node"],
        fields: &[
            ("node", "string", "address"),
            ("holds", "boolean", "whether it stores the lock"),
            ("text", "string", "its answer, for people"),
        ],
    },
];

pub(super) fn section() -> String {
    let mut section = "
## JSON output

One object per line. Durations are whole milliseconds (`_ms`) or microseconds (`_us`). Decide by codes and words, not by \
`message`, `text`, `evidence` or `cure`, which are sentences for people.
"
    .to_owned();
    let mut last = "";
    for object in OBJECTS.iter().filter(|object| object.file != "panic.rs") {
        let is_event = !object.events.is_empty();
        if object.of != last {
            let (head, line) = if is_event { ("| event ", "|---") } else { ("", "") };
            let _ = write!(
                section,
                "\n### {}\n\n{head}| field | type | meaning |\n{line}|---|---|---|\n",
                object.of
            );
            last = object.of;
        }
        let mut event = object.events.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        for (name, kind, meaning) in object.fields {
            let meaning = super::text(Some((*meaning).to_owned()));
            let first = if is_event { format!("| {event} ") } else { String::new() };
            let _ = writeln!(section, "{first}| `{name}` | {kind} | {meaning} |");
            event.clear();
        }
    }
    section
}

#[test]
fn the_reference_lists_the_json_fields_of_the_code() {
    let key = Regex::new(r#""([a-z0-9_]+)"(?::\s|\.to_owned\(\),\s*json!)"#).unwrap();
    let event = Regex::new(r#""event": "([a-z_]+)""#).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut printing: BTreeSet<String> = OBJECTS.iter().map(|object| object.file.to_owned()).collect();
    let mut folders = vec![source.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if fs::read_to_string(&path).is_ok_and(|code| code.contains("json!(")) {
                let file = path.strip_prefix(&source).unwrap().to_str().unwrap();
                printing.extend((file != "reference/json.rs").then(|| file.to_owned()));
            }
        }
    }
    for file in printing {
        let code = fs::read_to_string(source.join(&file)).unwrap();
        let code = code.split("#[cfg(test)]").next().unwrap();
        let of_code = |pattern: &Regex| -> BTreeSet<String> {
            pattern.captures_iter(code).map(|found| found[1].to_owned()).collect()
        };
        let objects = || OBJECTS.iter().filter(|object| object.file == file);
        let mut fields: BTreeSet<String> = objects()
            .flat_map(|object| object.fields)
            .flat_map(|(name, ..)| name.split('.'))
            .map(|name| name.trim_end_matches("[]").to_owned())
            .collect();
        let events: BTreeSet<String> =
            objects().flat_map(|object| object.events).map(ToString::to_string).collect();
        if !events.is_empty() {
            fields.insert("event".to_owned());
        }
        assert_eq!(fields, of_code(&key), "the fields listed for src/{file}, and those in it");
        let missing: Vec<String> = of_code(&event).difference(&events).cloned().collect();
        assert!(missing.is_empty(), "events of src/{file} that are not listed: {missing:?}");
    }
}
