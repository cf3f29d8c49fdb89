//! Generates `docs/reference.md` from the program, and compares the two.
//!
//! `INSTA_UPDATE=always cargo test -p quorlock-cli reference` rewrites the page.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::{Arg, ArgAction, Command, CommandFactory as _};
use quorlock_config::KEYS;

use crate::args::{Args, SOURCES};
use crate::exit;
use crate::metrics::{OF_DOCTOR, OWN};

mod events;
mod json;

const PAGE: &str = "../../docs/reference.md";

#[test]
fn the_reference_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let current = fs::read_to_string(&path).unwrap();
    let page = page(&current);
    if std::env::var_os("INSTA_UPDATE").is_some_and(|word| word == "always") {
        fs::write(&path, &page).unwrap();
        return;
    }
    let differs = current.lines().zip(page.lines()).find(|(current, made)| current != made);
    assert!(
        current == page,
        "docs/reference.md is out of date, first at {differs:?}; INSTA_UPDATE=always rewrites it"
    );
}

/// The page, with the section on JSON output of the current one.
fn page(current: &str) -> String {
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    let verbs: Vec<&Command> = command.get_subcommands().filter(|verb| !verb.is_hide_set()).collect();
    let mut page = "\
<!-- Generated from the program by a test. Do not edit, but for the section JSON output: INSTA_UPDATE=always cargo test -p quorlock-cli reference -->

# Commands and settings

Every name of `quorlock`, generated from the program: commands, options, environment variables, configuration keys, \
exit codes, JSON fields, metrics and log events. `--help` of each command has the same text, and \
`quorlock man --out DIR` writes it as manual pages. The library is documented on [docs.rs](https://docs.rs/quorlock); \
for which values to choose, see [Choosing the settings](choosing.md).

[Settings](#settings) · [Exit codes](#exit-codes) · [Options of all commands](#for-all-verbs) · [Commands](#quorlock-run) · \
[JSON output](#json-output) · [Metrics](#metrics) · [Log events](#log-events)

| verb | what it does |
|---|---|
"
    .to_owned();
    for verb in &verbs {
        let name = verb.get_name();
        let _ = writeln!(
            page,
            "| [`{name}`](#quorlock-{name}) | {} |",
            text(verb.get_about().map(ToString::to_string))
        );
    }
    page.push_str(&settings(&verbs));
    page.push_str(&exit_codes());
    page.push_str("\n## For all verbs\n\n");
    let everywhere = |argument: &&Arg| argument.is_global_set() || argument.get_id() == "help";
    page.push_str(&options(command.get_arguments().filter(everywhere).collect()));
    for verb in verbs {
        page.push_str(&of(verb));
    }
    page.push_str(json::section(current));
    page.push_str(&metrics());
    page.push_str(&events::section());
    page
}

/// The settings with their names in the file, in the environment and on the command line.
fn settings(verbs: &[&Command]) -> String {
    let mut table = format!(
        "
## Settings

{} A path in the file is relative to the file. Keep the password out of the file and of the arguments: set the \
variable `QUORLOCK_PASSWORD`, or put it alone into the file that `password-file` names.

| in the file, the environment and on the command line | default | meaning |
|---|---|---|
",
        text(Some(SOURCES.replace('\n', " ")))
    );
    for key in KEYS {
        let of_key =
            |verb: &&Command| verb.get_arguments().find(|argument| argument.get_long() == Some(key)).cloned();
        let Some(argument) = verbs.iter().find_map(of_key) else {
            unreachable!("`{key}` is a key of the file, and no option");
        };
        let (default, meaning) = meaning(&argument);
        let variable = key.replace('-', "_").to_uppercase();
        let _ = writeln!(table, "| `{key}`<br>`QUORLOCK_{variable}`<br>`--{key}` | {default} | {meaning} |");
    }
    table
}

fn exit_codes() -> String {
    let mut table =
        "\n## Exit codes\n\nOf `quorlock run`; commands with other codes list them in their section.\n\n| code | meaning |\n|---|---|\n"
            .to_owned();
    for line in exit::TABLE.lines().skip(1) {
        let (code, meaning) = line.trim().split_once(' ').unwrap_or_default();
        let _ = writeln!(table, "| {code} | {} |", text(Some(meaning.trim().to_owned())));
    }
    table
}

/// The metrics of the library, and those of `quorlock run` and `hold`.
fn metrics() -> String {
    let mut table = "
## Metrics

Of the library, for every program that installs a recorder, and so of `quorlock run` and `quorlock hold` with \
`--metrics` or `--metrics-file`, which add the label `resource`. The label `class` is absent for locks without one. \
[Observability](observability.md) has the values of the labels.

| metric | type | unit | labels | meaning |
|---|---|---|---|---|
"
    .to_owned();
    for metric in quorlock::metrics::ALL {
        let kind = format!("{:?}", metric.kind).to_lowercase();
        let unit = match metric.unit {
            quorlock::metrics::Unit::Seconds => "s",
            quorlock::metrics::Unit::Ratio => "ratio, 0 to 1",
            quorlock::metrics::Unit::Count | _ => "",
        };
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let help = text(Some(metric.help.to_owned()));
        let _ = writeln!(table, "| `{}` | {kind} | {unit} | {} | {help} |", metric.name, labels.join(", "));
    }
    table.push_str(
        "
Of the run itself; `hold` has the same, but for those of a command:

| metric | type | unit | labels | meaning |
|---|---|---|---|---|
",
    );
    for (name, unit, help) in OWN {
        let _ =
            writeln!(table, "| `{name}` | gauge | {unit} | `resource` | {} |", text(Some(help.to_owned())));
    }
    table.push_str(
        "
Of `quorlock doctor --metrics-file FILE`:

| metric | type | unit | labels | meaning |
|---|---|---|---|---|
",
    );
    for (name, unit, labels, help) in OF_DOCTOR {
        let help = text(Some(help.to_owned()));
        let _ = writeln!(table, "| `{name}` | gauge | {unit} | {labels} | {help} |");
    }
    table
}

fn of(verb: &Command) -> String {
    let usage = verb.clone().render_usage().to_string();
    let about = verb.get_long_about().or_else(|| verb.get_about()).map(ToString::to_string);
    let about = about.unwrap_or_default();
    let paragraphs: Vec<String> =
        about.trim_end_matches('.').split("\n\n").map(|part| text(Some(part.to_owned()))).collect();
    let about = paragraphs.join("\n\n");
    let mut part = format!("\n## `quorlock {}`\n\n{about}.\n\n```text\n", verb.get_name());
    for line in usage.trim_start_matches("Usage: ").lines() {
        let _ = writeln!(part, "{}", line.trim());
    }
    part.push_str("```\n\n");
    let own = |argument: &&Arg| !argument.is_global_set() && argument.get_id() != "help";
    part.push_str(&options(verb.get_arguments().filter(own).collect()));
    let rest = verb
        .get_after_long_help()
        .or_else(|| verb.get_after_help())
        .map(ToString::to_string)
        .unwrap_or_default();
    let rest = rest.replace(SOURCES, "").replace(exit::TABLE, "");
    let rest =
        rest.split("\n\n").map(str::trim_end).filter(|part| !part.trim().is_empty()).collect::<Vec<_>>();
    if !rest.is_empty() {
        let _ = write!(part, "\n```text\n{}\n```\n", rest.join("\n\n").trim_start_matches('\n'));
    }
    part
}

fn options(arguments: Vec<&Arg>) -> String {
    if arguments.is_empty() {
        return "It has no options of its own.\n".to_owned();
    }
    let mut table = "| option | default | meaning |\n|---|---|---|\n".to_owned();
    for argument in arguments {
        let (default, meaning) = meaning(argument);
        let _ = writeln!(table, "| {} | {default} | {meaning} |", name(argument));
    }
    table
}

/// Returns the names of an option, such as `-t`, `--ttl DURATION`.
fn name(argument: &Arg) -> String {
    let value =
        argument.get_value_names().and_then(<[_]>::first).map(ToString::to_string).unwrap_or_default();
    if argument.is_positional() {
        return format!("`{}`", if value.is_empty() { argument.get_id().to_string() } else { value });
    }
    let takes = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    let long = argument.get_long().map(|long| match (takes, argument.is_require_equals_set()) {
        (true, true) => format!("`--{long}[={value}]`"),
        (true, false) => format!("`--{long} {value}`"),
        (false, _) => format!("`--{long}`"),
    });
    let short = argument.get_short().map(|short| format!("`-{short}`"));
    short.into_iter().chain(long).collect::<Vec<_>>().join(", ")
}

/// Returns the default and the meaning of an option.
fn meaning(argument: &Arg) -> (String, String) {
    let help = argument.get_long_help().or_else(|| argument.get_help());
    let help = help.map(|help| help.to_string().trim_end_matches('.').to_owned()).unwrap_or_default();
    // The paragraphs become one.
    if let Some((before, _)) = help.rsplit_once("\n\n") {
        assert!(
            before.split("\n\n").all(|part| part.ends_with(['.', ':'])),
            "a full stop is missing: {before}"
        );
    }
    let possible: Vec<_> =
        argument.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    let (help, default) = match help.split_once(" [default: ") {
        Some((help, rest)) => {
            let (default, more) = rest.split_once(']').unwrap_or((rest, ""));
            (format!("{help}{more}"), default.to_owned())
        }
        None => (help, String::new()),
    };
    let values = argument.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
    let is_flag = !matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    let default = if default.is_empty() { values.filter(|_| !is_flag).unwrap_or_default() } else { default };
    let one_of =
        if possible.is_empty() || is_flag { String::new() } else { format!(": {}", possible.join(" or ")) };
    (text(Some(default)), format!("{}{one_of}", text(Some(help))))
}

/// Returns `plain` as Markdown for a table, with options and variables as code.
fn text(plain: Option<String>) -> String {
    let plain = plain.unwrap_or_default().replace('|', "\\|").replace('<', "\\<").replace('*', "\\*");
    let words = plain.split_whitespace().map(|word| {
        let name = word.trim_end_matches([',', '.', ';', ':']);
        if name.starts_with("--") || name.starts_with("QUORLOCK_") {
            word.replacen(name, &format!("`{name}`"), 1)
        } else {
            word.to_owned()
        }
    });
    words.collect::<Vec<_>>().join(" ")
}
