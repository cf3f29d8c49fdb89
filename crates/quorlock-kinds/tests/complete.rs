//! Each kind of the list is complete, and one that is added by the recipe of CONTRIBUTING.md is: in a scratch workspace, where
//! each step that is left out is noticed.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use quorlock_kinds::KINDS;
use toml::{Table, Value};

/// Pages that list all kinds.
const PAGES: [&str; 3] = ["docs/SUMMARY.md", "docs/README.md", "docs/which-lock.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Whether one of the files below `folder` contains the text.
fn contains(folder: &Path, wanted: &str) -> bool {
    fs::read_dir(folder).into_iter().flatten().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() { contains(&path, wanted) } else { text(&path).contains(wanted) }
    })
}

fn has(table: &Table, path: &[&str], wanted: &str) -> bool {
    let [first, rest @ ..] = path else { return table.contains_key(wanted) };
    match table.get(*first) {
        Some(Value::Table(inner)) => has(inner, rest, wanted),
        Some(Value::Array(items)) => items.iter().any(|item| item.as_str() == Some(wanted)),
        _ => false,
    }
}

/// Says what the workspace at `root` lacks of a kind.
fn missing(root: &Path, package: &str, scheme: &str, page: &str) -> Vec<String> {
    let mut missing = Vec::new();
    let mut expect = |is_there: bool, what: String| {
        if !is_there {
            missing.push(what);
        }
    };
    let folder = root.join("crates").join(package);
    let feature = package.trim_start_matches("quorlock-");
    for file in ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT"] {
        expect(folder.join(file).exists(), format!("crates/{package}/{file}"));
    }
    expect(
        contains(&folder.join("tests"), "check_contract"),
        format!("a test of {package} that calls `check_contract`"),
    );
    let manifest: Table = text(&root.join("Cargo.toml")).parse().unwrap();
    for list in ["members", "default-members"] {
        let is_listed = has(&manifest, &["workspace", list], &format!("crates/{package}"));
        expect(is_listed, format!("{package} in `{list}` of Cargo.toml"));
    }
    let is_listed = has(&manifest, &["workspace", "dependencies"], package);
    expect(is_listed, format!("{package} in `workspace.dependencies` of Cargo.toml"));
    let kinds: Table = text(&root.join("crates/quorlock-kinds/Cargo.toml")).parse().unwrap();
    expect(
        has(&kinds, &["dependencies"], package),
        format!("{package} among the dependencies of quorlock-kinds"),
    );
    let of_default = has(&kinds, &["features", "default"], feature);
    expect(
        of_default && has(&kinds, &["features"], feature),
        format!("the feature `{feature}` of quorlock-kinds"),
    );
    let own: Table = text(&folder.join("Cargo.toml")).parse().unwrap();
    let has_tls = has(&own, &["features"], "tls");
    let forwarded = has(&kinds, &["features", "tls"], &format!("{package}?/tls"));
    expect(
        has_tls == forwarded,
        format!("`{package}?/tls` in the feature `tls` of quorlock-kinds, if it has that"),
    );
    let list = text(&root.join("crates/quorlock-kinds/src/lib.rs"));
    expect(
        list.contains(&format!("package: \"{package}\"")),
        format!("{package} in the list of quorlock-kinds"),
    );
    for tests in ["crates/quorlock-cli/tests/cli", "python/tests"] {
        expect(
            contains(&root.join(tests), &format!("{scheme}:")),
            format!("a test with a `{scheme}:` address in {tests}"),
        );
    }
    expect(root.join(format!("docs/{page}.md")).exists(), format!("docs/{page}.md"));
    for list in PAGES {
        expect(
            text(&root.join(list)).contains(&format!("{page}.md")),
            format!("a link to {page}.md in {list}"),
        );
    }
    let row = format!("`crates/{package}`");
    expect(text(&root.join("ARCHITECTURE.md")).contains(&row), format!("a row {row} in ARCHITECTURE.md"));
    missing
}

#[test]
fn a_scheme_with_nothing_behind_is_an_error_of_its_kind() {
    for scheme in KINDS.iter().flat_map(|kind| kind.schemes) {
        let url = format!("{scheme}:");
        let built = quorlock::Coordinator::builder().kinds(quorlock_kinds::all()).nodes([&url]).build();
        assert!(built.is_err(), "{url}: {:?}", built.ok());
    }
}

#[test]
fn each_kind_is_complete() {
    for kind in KINDS.iter().filter(|kind| kind.package != "quorlock") {
        assert_eq!(missing(&root(), kind.package, kind.schemes[0], kind.page), [""; 0], "{}", kind.name);
    }
}

/// What the recipe changes.
const CHANGED: [&str; 6] = [
    "Cargo.toml",
    "Cargo.lock",
    "ARCHITECTURE.md",
    "crates/quorlock-kinds",
    "crates/quorlock-cli/tests/cli",
    "python/tests",
];

/// A workspace that has copies of what the recipe changes, and links to all else.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        // Not a temporary folder: what cargo has compiled for it is used again.
        let scratch = Scratch(root().join("target/scratch/workspace"));
        drop(fs::remove_dir_all(&scratch.0));
        scratch.link("");
        scratch
    }

    fn link(&self, path: &str) {
        let (from, to) = (root().join(path), self.0.join(path));
        let changed = || CHANGED.iter().chain(&PAGES);
        if changed().any(|changed| *changed == path) {
            self.copy(path, path, &[]);
        } else if changed().any(|changed| Path::new(changed).starts_with(path)) {
            fs::create_dir_all(to).unwrap();
            for entry in fs::read_dir(from).unwrap() {
                let path = Path::new(path).join(entry.unwrap().file_name());
                if !["target", ".git"].map(Path::new).contains(&&*path) {
                    self.link(path.to_str().unwrap());
                }
            }
        } else {
            symlink(from, to).unwrap();
        }
    }

    /// Copies a file or folder of the workspace, with words exchanged.
    fn copy(&self, from: &str, to: &str, exchanged: &[(&str, &str)]) {
        if root().join(from).is_dir() {
            fs::create_dir_all(self.0.join(to)).unwrap();
            for entry in fs::read_dir(root().join(from)).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                self.copy(&format!("{from}/{name}"), &format!("{to}/{name}"), exchanged);
            }
        } else {
            let text = text(&root().join(from));
            let text = exchanged.iter().fold(text, |text, (from, to)| text.replace(from, to));
            fs::write(self.0.join(to), text).unwrap();
        }
    }

    /// Puts text before the first place that has `before`, or at the end.
    fn insert(&self, file: &str, before: &str, added: &str) {
        let text = text(&self.0.join(file));
        let place = if before.is_empty() {
            text.len()
        } else {
            text.find(before).unwrap_or_else(|| panic!("{before}: not in {file}"))
        };
        let (begin, end) = text.split_at(place);
        fs::write(self.0.join(file), format!("{begin}{added}{end}")).unwrap();
    }

    fn missing(&self) -> Vec<String> {
        missing(&self.0, "quorlock-scratch", "scratch", "scratch")
    }
}

/// A step of the recipe, by the number that it has there.
type Step = (u32, fn(&Scratch));

const RECIPE: [Step; 5] = [
    (1, |scratch| {
        let words = [
            ("quorlock-exec", "quorlock-scratch"),
            ("quorlock_exec", "quorlock_scratch"),
            ("ExecKind", "ScratchKind"),
            ("\"exec\"", "\"scratch\""),
        ];
        scratch.copy("crates/quorlock-exec", "crates/quorlock-scratch", &words);
    }),
    (2, |scratch| {
        scratch.insert(
            "Cargo.toml",
            "\"crates/quorlock-kinds\", \"python\"]",
            "\"crates/quorlock-scratch\", ",
        );
        scratch.insert("Cargo.toml", "\"crates/quorlock-kinds\"]", "\"crates/quorlock-scratch\", ");
        let line = "quorlock-scratch = { path = \"crates/quorlock-scratch\", version = \"0.1.0\" }\n";
        scratch.insert("Cargo.toml", "quorlock-sqlite = {", line);
    }),
    (3, |scratch| {
        let manifest = "crates/quorlock-kinds/Cargo.toml";
        scratch.insert(manifest, "\"sqlite\", \"zookeeper\"]", "\"scratch\", ");
        scratch.insert(manifest, "sqlite = [\"dep", "scratch = [\"dep:quorlock-scratch\"]\n");
        scratch.insert(
            manifest,
            "quorlock-servers",
            "quorlock-scratch = { workspace = true, optional = true }\n",
        );
        let line = "KindOfNode { name: \"Scratch\", package: \"quorlock-scratch\", schemes: &[\"scratch\"], \
                    addresses: \"scratch:PROGRAM\", page: \"scratch\", \
                    build: build!(\"scratch\", quorlock_scratch::ScratchKind) },\n";
        scratch.insert("crates/quorlock-kinds/src/lib.rs", "];\n\n/// Not in the list above", line);
    }),
    (4, |scratch| {
        for tests in ["crates/quorlock-cli/tests/cli", "python/tests"] {
            fs::write(scratch.0.join(tests).join("scratch.rs"), "\"scratch:program\"").unwrap();
        }
    }),
    (5, |scratch| {
        fs::write(scratch.0.join("docs/scratch.md"), "# Scratch\n").unwrap();
        for page in PAGES {
            scratch.insert(page, "", "\n[Scratch](scratch.md)\n");
        }
        scratch.insert(
            "ARCHITECTURE.md",
            "| `crates/quorlock-exec` |",
            "| `crates/quorlock-scratch` | | |\n",
        );
    }),
];

#[test]
fn one_more_is_added_by_the_recipe_and_each_step_that_is_left_out_is_noticed() {
    for (left_out, _) in RECIPE {
        let scratch = Scratch::new();
        for (_, step) in RECIPE.iter().filter(|(step, _)| *step != left_out) {
            step(&scratch);
        }
        assert_ne!(scratch.missing(), [""; 0], "nothing fails without step {left_out}");
    }
    let scratch = Scratch::new();
    for (_, step) in RECIPE {
        step(&scratch);
    }
    assert_eq!(scratch.missing(), [""; 0]);
    let recipe = text(&root().join("CONTRIBUTING.md"));
    let (_, recipe) = recipe.split_once("## Add a kind of node").unwrap();
    let recipe = recipe.split("\n## ").next().unwrap();
    for (step, _) in RECIPE {
        assert!(recipe.contains(&format!("\n{step}. ")), "the recipe has no step {step}");
    }
    assert!(
        !recipe.contains(&format!("\n{}. ", RECIPE.len() + 1)),
        "the recipe has a step that is not tried here"
    );
    // That it is in the list is what makes it part of every program.
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args([
        "check",
        "--quiet",
        "--offline",
        "--package",
        "quorlock-kinds",
        "--no-default-features",
        "--features",
        "scratch",
    ]);
    cargo.current_dir(&scratch.0).env("CARGO_TARGET_DIR", root().join("target/scratch"));
    let checked = cargo.output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
