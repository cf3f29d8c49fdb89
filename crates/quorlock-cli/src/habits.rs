//! What users of `flock`, `timeout`, `consul lock`, `etcdctl lock` and the shell type first: a command line that is refused
//! is answered by the line to type.
//!
//! Nothing here is an option of quorlock. `-s` is a signal to users of `timeout` and a read lock to those of `flock`, so no
//! meaning is guessed: the answer says which line has which.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser as _};
use quorlock::protocol::printable;

use crate::args::{Args, Verb};
use crate::program::quoted;
use table::{HABITS, Habit, NAMES, VERBS};

mod table;

/// Parses the words, the first of which is the program. `lock -n 3 job make` of consul, which would lock `3`, becomes
/// `lock -n=3 job make`, which is refused.
pub(crate) fn parse(words: &mut Vec<OsString>) -> Result<Args, clap::Error> {
    let args = Args::of_run(words).map_or_else(|| Args::try_parse_from(&*words), Ok)?;
    let Verb::Run(run) = &args.verb else { return Ok(args) };
    let at = words.iter().position(|word| word == "-n").unwrap_or(words.len());
    let is_permits = words.iter().take(at).any(|word| word == "lock")
        && words.get(at + 1).is_some_and(|number| *number == *run.resource && is_number(&run.resource))
        // One word alone would be the command.
        && run.job.command.len() > 1;
    if !is_permits {
        return Ok(args);
    }
    words.splice(at..=at + 1, [format!("-n={}", run.resource).into()]);
    Args::try_parse_from(&*words)
}

/// Whether these words, which are refused, ask for JSON. The parser stops at the first that is wrong.
pub(crate) fn asks_for_json(words: &[String]) -> bool {
    words.iter().take_while(|word| *word != "--").any(|word| word == "--json")
}

/// Returns what is wrong with these words, the first of which is the program, if they got the help by the option of another
/// tool, such as `-h HOST` of `redis-cli` or `-http-addr=URL` of `consul`: help ends with 0, as if the command had run.
pub(crate) fn mistaken_for_help(words: &[String]) -> Option<String> {
    let before_command = || words.iter().take_while(|word| *word != "--");
    let at = before_command().position(|word| word.starts_with("-h") && word != "-help")?;
    let (word, after) = words.get(at..)?.split_first()?;
    if word == "-h" && after.iter().filter(|word| !word.starts_with('-')).count() < 2 {
        // Alone, or with the name of a verb or a lock, it is a question.
        return None;
    }
    let mut line = Line { words: words.get(1..)?.to_vec(), reasons: Vec::new() };
    let tips = line.change(at - 1).and_then(|()| line.understood()).map_or_else(
        || vec!["write the nodes as --nodes redis://HOST:PORT,… or in QUORLOCK_NODES".to_owned()],
        |line| line.tips(),
    );
    let option = word.split('=').next().unwrap_or_default();
    let is_help = if option == "-h" { "is" } else { "begins with -h, which is" };
    Some(format!("{option} {is_help} the help, so nothing was run: {}", tips.join("; ")))
}

/// Names the line to type in the `error` of these words, the first of which is the program.
pub(crate) fn advise(error: &mut clap::Error, words: &[String]) {
    // It would be the name of a lock: `-- -s` locks `-s`.
    error.remove(ContextKind::Suggested);
    if let Some(tip) = of_no_command(error, words) {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
        return;
    }
    let Some(line) = words.get(1..).and_then(|words| Line::corrected(words.to_vec())) else { return };
    error.remove(ContextKind::SuggestedArg);
    let tips = line.tips().iter().map(|tip| StyledStr::from(printable(tip).to_string())).collect();
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
}

/// Returns what to type where `--` has no name before it, or no command after it.
fn of_no_command(error: &clap::Error, words: &[String]) -> Option<&'static str> {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else { return None };
    let is_missing = |what: &str| missing.iter().any(|argument| argument.starts_with(what));
    if error.kind() != ErrorKind::MissingRequiredArgument || !is_missing("<COMMAND>") {
        return None;
    }
    let after = words.len() - words.iter().position(|word| word == "--")?;
    Some(match (is_missing("<RESOURCE>"), after) {
        (true, _) => "write the name of the lock before `--`, and the command after it",
        (false, 1) => "write the command after `--`; a variable that was meant to be one may be empty",
        (false, _) => {
            "write the name of the lock before `--`: the first word after it was taken for the name"
        }
    })
}

/// A command line on its way to one that is understood.
struct Line {
    words: Vec<String>,
    /// What to know of the changes.
    reasons: Vec<&'static str>,
}

/// The most words that are changed.
const MOST: usize = 12;

impl Line {
    /// Changes one word at a time, that which the parser names, until the line is understood.
    fn corrected(words: Vec<String>) -> Option<Line> {
        Line { words, reasons: Vec::new() }.understood()
    }

    fn understood(mut self) -> Option<Line> {
        for _ in 0..MOST {
            match self.parsed() {
                Ok(()) => return Some(self),
                Err(error) => self.correct(&error)?,
            }
        }
        None
    }

    fn parsed(&self) -> Result<(), clap::Error> {
        let words = ["quorlock"].into_iter().chain(self.words.iter().map(String::as_str));
        match Args::command().try_get_matches_from(words) {
            Err(error) if error.use_stderr() => Err(error),
            // A line that asks for the help is understood too.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Changes what the error is about; `None` if it is no habit.
    fn correct(&mut self, error: &clap::Error) -> Option<()> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the others are about no single word")]
        match error.kind() {
            ErrorKind::InvalidSubcommand => self.begin_with_verb(error),
            ErrorKind::UnknownArgument => {
                let refused = text(error, ContextKind::InvalidArg)?;
                let at = self.before_command().iter().position(|word| is_in(&refused, word))?;
                // Options that every verb has may also come before it.
                let is_before_verb = self.verb_before(self.words.len()).is_some() && self.has_habit(at);
                if self.verb_before(at).is_some() || is_before_verb {
                    self.change(at)
                } else {
                    self.insert_run(0)
                }
            }
            ErrorKind::ValueValidation | ErrorKind::InvalidValue => {
                let value = text(error, ContextKind::InvalidValue)?;
                // As `-try=2s`, of which `-t` takes the rest.
                let at =
                    self.before_command().iter().position(|word| is_single(word) && word.ends_with(&*value));
                self.change(at.or_else(|| self.write_out(&value))?)
            }
            // As `-child-exit-code`, of which `-c` takes the rest.
            ErrorKind::ArgumentConflict => {
                let at =
                    self.before_command().iter().position(|word| is_single(word) && habit(word).is_some());
                if let Some(at) = at { self.change(at) } else { self.join_number() }
            }
            ErrorKind::MissingRequiredArgument => self.hold_instead(),
            _ => None,
        }
    }

    /// The words before the first `--`.
    fn before_command(&self) -> &[String] {
        self.words.split(|word| word == "--").next().unwrap_or_default()
    }

    /// Returns the place of the verb before this word.
    fn verb_before(&self, at: usize) -> Option<usize> {
        let verbs = Args::command();
        let is_verb = |word: &String| verbs.find_subcommand(word).is_some();
        self.words.iter().take(at).position(is_verb)
    }

    fn has_habit(&self, at: usize) -> bool {
        self.words.get(at).is_some_and(|word| habit(word).is_some())
    }

    /// Puts a verb where there is none, in the place of one of another program.
    fn begin_with_verb(&mut self, error: &clap::Error) -> Option<()> {
        let word = text(error, ContextKind::InvalidSubcommand)?;
        let at = self.words.iter().position(|other| *other == word)?;
        if let Some((_, ours)) = VERBS.iter().find(|(theirs, _)| *theirs == word) {
            self.words.splice(at..=at, ours.iter().map(|&word| word.to_owned()));
            return Some(());
        }
        // It was a misspelt verb, or a name without a command.
        let is_misspelt = error.get(ContextKind::SuggestedSubcommand).is_some();
        if is_misspelt || at + 1 == self.words.len() { None } else { self.insert_run(at) }
    }

    fn insert_run(&mut self, at: usize) -> Option<()> {
        if self.words.iter().any(|word| word == "run") {
            return None;
        }
        self.words.insert(at, "run".to_owned());
        self.because("the verb comes first, and `run` is the one that runs a command under a lock");
        Some(())
    }

    /// A lock without a command is held until a signal.
    fn hold_instead(&mut self) -> Option<()> {
        // Before a `--` the name is missing, and not the command.
        if self.words.iter().any(|word| word == "--") {
            return None;
        }
        let at = self.verb_before(self.words.len())?;
        let verb = self.words.get_mut(at).filter(|verb| matches!(&***verb, "run" | "lock"))?;
        "hold".clone_into(verb);
        self.because("`hold` holds a lock until a signal; `run` and `lock` need a command after its name");
        Some(())
    }

    /// Joins `-n 3` of consul, which contradicts the `--wait` that was its `-try`.
    fn join_number(&mut self) -> Option<()> {
        let at = self.before_command().iter().position(|word| word == "-n")?;
        let number = self.words.get(at + 1).filter(|number| is_number(number))?;
        let joined = format!("-n={number}");
        self.words.splice(at..=at + 1, [joined]);
        Some(())
    }

    /// Returns the place of `-w json` of `etcdctl`.
    fn write_out(&self, value: &str) -> Option<usize> {
        let at = self.words.windows(2).position(|pair| pair == ["-w", value])?;
        (value == "json").then_some(at)
    }

    /// Changes the word at this place as its habit says.
    fn change(&mut self, at: usize) -> Option<()> {
        let word = self.words.get(at)?.clone();
        let next = self.words.get(at + 1).map(String::as_str);
        let Some(&Habit { names, cure, why, .. }) = HABITS.iter().find(|habit| habit.is(&word, next)) else {
            return self.split(at, &word);
        };
        let value = word.split_once('=').map(|(_, value)| value.to_owned());
        // A value that is a word of its own goes with the option.
        let takes_next = usize::from(value.is_none() && cure.takes_value());
        let value = value.or_else(|| next.map(str::to_owned)).unwrap_or_default();
        self.words.splice(at..=at + takes_next, cure.words(&value));
        if names.iter().any(|name| NAMES.contains(name)) && self.is_nameless() {
            self.words.remove(at);
            self.because("the name of the lock comes first, without an option");
        } else {
            self.because(why);
        }
        Some(())
    }

    /// Whether no word names the lock, unless one after `--` does, which is of the command.
    fn is_nameless(&self) -> bool {
        let mut words = self.before_command().to_vec();
        if words.len() < self.words.len() {
            words.extend(["--", "command"].map(str::to_owned));
        }
        let parsed = Line { words, reasons: Vec::new() }.parsed();
        parsed.is_err_and(|error| error.kind() == ErrorKind::MissingRequiredArgument)
    }

    /// Splits `-en` into `-e` and `-n`.
    fn split(&mut self, at: usize, word: &str) -> Option<()> {
        let letters = word.strip_prefix('-').filter(|letters| letters.len() > 1)?;
        let has_habit = letters.chars().any(|letter| habit(&format!("-{letter}")).is_some());
        if !has_habit || !letters.bytes().all(|letter| letter.is_ascii_alphabetic()) {
            return None;
        }
        self.words.splice(at..=at, letters.chars().map(|letter| format!("-{letter}")));
        Some(())
    }

    /// Returns the line to type, and what to know of it.
    fn tips(&self) -> Vec<String> {
        let reasons = self.reasons.iter().map(|&why| why.to_owned());
        [format!("type `{}`", self.shown())].into_iter().chain(reasons).collect()
    }

    fn because(&mut self, why: &'static str) {
        if !why.is_empty() && !self.reasons.contains(&why) {
            self.reasons.push(why);
        }
    }

    /// Returns the line as one would type it in a shell, without passwords.
    fn shown(&self) -> String {
        let words = self.words.iter().map(|word| quoted(&without_password(word)));
        ["quorlock".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
    }
}

/// Returns a piece of the error as text.
fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    if let ContextValue::String(text) = error.get(kind)? { Some(text.clone()) } else { None }
}

/// Whether the parser means this word by `refused`, which is one letter of several that follow one dash.
fn is_in(refused: &str, word: &str) -> bool {
    let letter = refused.strip_prefix('-').filter(|letter| letter.chars().count() == 1);
    word.split('=').next() == Some(refused)
        || letter.is_some_and(|letter| is_single(word) && word.contains(letter))
}

/// Whether several letters follow one dash.
fn is_single(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|rest| rest.len() > 1 && !rest.starts_with('-'))
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn habit(word: &str) -> Option<&'static Habit> {
    HABITS.iter().find(|habit| habit.is(word, None))
}

fn without_password(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    match rest.rsplit_once('@') {
        Some((login, host)) if login.contains(':') => {
            let user = login.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}:PASSWORD@{host}")
        }
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corrected(line: &str) -> Option<String> {
        Line::corrected(line.split(' ').map(str::to_owned).collect()).map(|line| line.shown())
    }

    #[test]
    fn no_word_of_the_command_is_changed() {
        assert_eq!(corrected("run --bogus job find . -name x"), None, "that is of the command");
        let line = corrected("run -s job find . -name x -- -try").unwrap();
        assert_eq!(line, "quorlock run --shared job find . -name x -- -try");
        assert_eq!(corrected("statsu job"), None, "the parser has a better answer");
        assert_eq!(corrected("nothing"), None);
    }

    #[test]
    fn a_number_after_the_short_option_of_no_wait_is_a_name_only_where_it_can_be_no_number_of_permits() {
        let parsed = |line: &str| {
            let mut words = line.split(' ').map(OsString::from).collect();
            parse(&mut words).map(|_| ()).map_err(|_| words.join(" ".as_ref()).into_string().unwrap())
        };
        assert_eq!(parsed("quorlock lock -n 3 job make"), Err("quorlock lock -n=3 job make".to_owned()));
        for line in
            ["lock -n 3 make", "lock --no-wait 3 job make", "run -n 3 job make", "lock 3 head -n 3 file"]
        {
            assert_eq!(parsed(&format!("quorlock {line}")), Ok(()), "{line}");
        }
    }

    #[test]
    fn a_line_shows_no_password_and_is_quoted_for_a_shell() {
        let words = ["--nodes", "redis://ann:s3cret@h", "my job", "echo", "it's"].map(str::to_owned);
        let line = Line::corrected(words.to_vec()).unwrap().shown();
        assert_eq!(line, r"quorlock --nodes redis://ann:PASSWORD@h run 'my job' echo 'it'\''s'");
    }

    #[test]
    fn every_habit_is_one_that_the_parser_refuses() {
        let mut command = Args::command();
        command.build();
        let run = command.find_subcommand("run").unwrap();
        for habit in HABITS {
            for name in habit.names {
                let taken = run.get_arguments().any(|argument| {
                    let short = argument.get_short().is_some_and(|short| short.to_string() == **name);
                    argument.get_long() == Some(name) || short
                });
                // With one dash, as `-shell=false`, or with a value, as `-n=3`, they are something else.
                assert!(
                    !taken || ["n", "w", "shell", "verbose", "tls-server-name"].contains(name),
                    "{name} is an option"
                );
            }
        }
        assert!(VERBS.iter().all(|(theirs, _)| command.find_subcommand(theirs).is_none()), "a verb is taken");
    }
}
