//! Names say what the types say: words of a story in the place of the field's words, which identifiers had, do not
//! come back. `docs/glossary.md` has the words to use.

use std::fs;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};

use crate::layers::files;

/// Words that are part of no identifier, and what to write.
const AVOIDED: &[(&str, &str)] = &[
    ("told", "`notified`, or what the value is: `output`, `result`, `hint`"),
    ("said", "`reply`, `output`, `message`"),
    ("tell", "`notify`, `send`, `print`, `report`, `describe`"),
    ("tells", "`notifies`, `warns`"),
    ("trouble", "`error`, `failure`, `fault`"),
    ("reign", "`master_since`, `term`"),
    ("standings", "`key_states`"),
    ("settled_standings", "`settled_key_states`"),
    ("carry_out", "`execute`"),
    ("met", "`seen`, `reached`, `connected`"),
    ("mended", "`fixed`, `repaired`"),
    ("desk", "`router`"),
    ("ears", "`subscription`"),
    ("chorus", "`fan_in`"),
    ("passage", "`proxy`"),
    ("whoever", "the role: `holder`, `waiter`"),
];
/// Words that mean something else in these folders.
const AVOIDED_IN: &[(&str, &str, &str)] =
    &[("src/engine", "plan", "`acquisition`"), ("src/lock", "plan", "`acquisition`")];
/// A name of more parts is a sentence, as those of tests are.
const SENTENCE: usize = 5;

/// The parts of a name: `key_states` and `KeyStates` have the same.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut after_small = false;
    for letter in name.chars() {
        if letter == '_' || (letter.is_uppercase() && after_small) {
            parts.push(String::new());
        }
        after_small = letter.is_lowercase() || letter.is_ascii_digit();
        if letter != '_' {
            parts.last_mut().unwrap().extend(letter.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn collect(tokens: TokenStream, found: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) => found.push(name.to_string()),
            TokenTree::Group(group) => collect(group.stream(), found),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Returns each avoided identifier with what to write instead.
fn avoided(file: &str, source: &str) -> Vec<String> {
    let mut names = Vec::new();
    collect(source.parse().unwrap(), &mut names);
    names.sort();
    names.dedup();
    let mut found = Vec::new();
    for name in names {
        let parts = parts(&name);
        let everywhere = AVOIDED.iter().filter(|(word, _)| {
            name == *word || (parts.len() < SENTENCE && parts.iter().any(|part| part == word))
        });
        let there = AVOIDED_IN.iter().filter(|(folder, word, _)| file.starts_with(folder) && name == *word);
        let cures = everywhere.map(|(_, cure)| cure).chain(there.map(|(_, _, cure)| cure));
        found.extend(cures.map(|cure| format!("{file}: {name}: write {cure}")));
    }
    found
}

#[test]
fn identifiers_have_the_words_of_the_glossary() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    for folder in ["src", "tests", "crates", "python/src", "examples"] {
        files(&root.join(folder), &mut all);
    }
    assert!(all.len() > 500, "only {} files are read", all.len());
    let found = all.iter().flat_map(|path| {
        let file = path.strip_prefix(root).unwrap().display().to_string();
        avoided(&file, &fs::read_to_string(path).unwrap())
    });
    let found: Vec<_> = found.filter(|line| !line.starts_with("tests/memory/names.rs")).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn an_avoided_name_is_found_wherever_it_is() {
    let source = "fn a() { vec![Told::now(|said_twice| 1)] } // told\nconst TELL: &str = \"trouble\";";
    let found = avoided("src/a.rs", source);
    assert!(found.len() == 3 && found.iter().all(|line| line.contains(": write ")), "{found:#?}");
    assert_eq!(avoided("src/engine/a.rs", "struct A { plan: u8 }").len(), 1);
    let sound = "fn what_was_told_late_counts_not() { let (planned, metrics, restart) = (1, 2, 3); }";
    assert_eq!(avoided("src/engine/a.rs", sound), Vec::<String>::new());
}
