//! No files of a crate import each other in a circle, except a parent and its children: the sentence on siblings in
//! ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::layers::files;

/// The circles that are left, each as the parts of it: classes of Python that make each other, and the threads of the
/// process with what they wait for.
const LEFT: [(&str, &[&str]); 2] =
    [("python/src", &["connection", "election", "lock"]), ("python/src", &["events", "process"])];

/// A module within its crate: `["engine", "keeper"]`; that of the crate is empty.
type Place = Vec<String>;

#[derive(Default)]
struct Module {
    /// The paths that it imports, by their names in it.
    imports: BTreeMap<String, Place>,
    /// All paths that it names.
    named: Vec<Place>,
}

struct Modules(BTreeMap<Place, Module>);

impl Modules {
    fn of(source: &Path) -> Modules {
        let (mut all, mut modules) = (Vec::new(), BTreeMap::<Place, Module>::new());
        files(source, &mut all);
        for file in all {
            let within = file.strip_prefix(source).unwrap().with_extension("");
            let mut place: Place = within.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            place.retain(|part| !matches!(part.as_str(), "lib" | "main" | "mod"));
            if !place.iter().any(|part| part == "tests") {
                modules.entry(place).or_default().read(&fs::read_to_string(&file).unwrap());
            }
        }
        Modules(modules)
    }

    /// Returns the module that defines what a path leads to; `None` if it is outside of the crate.
    fn home(&self, from: &[String], path: &[String], hops: u32) -> Option<Place> {
        let (mut at, mut inside) = (from.to_vec(), false);
        for (index, word) in path.iter().enumerate() {
            match word.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                _ => {
                    let below = [&at[..], std::slice::from_ref(word)].concat();
                    if !self.0.contains_key(&below) {
                        let here = inside.then(|| at.clone());
                        let import = self.0.get(&at)?.imports.get(word).filter(|_| hops > 0);
                        let Some(import) = import else { return here };
                        return self
                            .home(&at, &[&import[..], &path[index + 1..]].concat(), hops - 1)
                            .or(here);
                    }
                    at = below;
                }
            }
            inside = true;
        }
        inside.then_some(at)
    }

    /// The arrows between siblings, each with all below it, that are part of a circle.
    fn circles(&self) -> BTreeSet<(Place, Place)> {
        let mut arrows = BTreeMap::<Place, BTreeSet<Place>>::new();
        for (from, module) in &self.0 {
            for to in module.named.iter().filter_map(|path| self.home(from, path, 8)) {
                let common = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
                if common < from.len() && common < to.len() {
                    arrows.entry(from[..=common].to_vec()).or_default().insert(to[..=common].to_vec());
                }
            }
        }
        let leads = |start: &Place, goal: &Place| {
            let (mut reached, mut left) = (BTreeSet::new(), vec![start]);
            while let Some(place) = left.pop() {
                if reached.insert(place) {
                    left.extend(arrows.get(place).into_iter().flatten());
                }
            }
            reached.contains(goal)
        };
        let all = arrows.iter().flat_map(|(from, ends)| ends.iter().map(move |to| (from, to)));
        all.filter(|(from, to)| leads(to, from)).map(|(from, to)| (from.clone(), to.clone())).collect()
    }
}

impl Module {
    fn read(&mut self, text: &str) {
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
        let code = text.lines().map(|line| line.split("//").next().unwrap_or(line).trim());
        let mut imported = None::<String>;
        for line in code {
            let public = line
                .strip_prefix("pub")
                .map(|rest| rest.trim_start_matches(['(', 'c', 'r', 'a', 't', 'e', 's', 'u', 'p', ')']));
            let begun = public.unwrap_or(line).trim_start().strip_prefix("use ");
            if let Some(tree) = imported.take().map(|before| before + " " + line).or(begun.map(str::to_owned))
            {
                match tree.split_once(';') {
                    Some((tree, _)) => self.import(&[], tree),
                    None => imported = Some(tree),
                }
                continue;
            }
            let words = line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
            self.named.extend(words.filter(|word| word.contains("::")).map(path));
        }
    }

    fn import(&mut self, before: &[String], tree: &str) {
        let (head, group) =
            tree.split_once('{').map_or((tree, None), |(head, rest)| (head, rest.rsplit_once('}')));
        let (head, name) = head.split_once(" as ").map_or((head, None), |(head, name)| (head, Some(name)));
        let mut full = [before, &path(head)].concat();
        if !before.is_empty() {
            full.retain(|word| word != "self");
        }
        let Some((group, _)) = group else {
            let name = name.map(|name| name.trim().to_owned()).or(full.last().cloned()).unwrap_or_default();
            self.named.push(full.clone());
            self.imports.insert(name, full);
            return;
        };
        let mut depth = 0;
        let parts = group.split(|c: char| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == ',' && depth == 0
        });
        parts.filter(|part| !part.trim().is_empty()).for_each(|part| self.import(&full, part));
    }
}

fn path(text: &str) -> Place {
    text.split("::")
        .map(|word| word.trim().trim_matches(':').to_owned())
        .filter(|word| !word.is_empty())
        .collect()
}

#[test]
fn no_siblings_import_each_other_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let (mut modules, mut arrows, mut wrong) = (0, 0, Vec::new());
    for source in crates.chain([root.to_owned(), root.join("python")]).map(|place| place.join("src")) {
        let read = Modules::of(&source);
        modules += read.0.len();
        arrows += read.0.values().map(|module| module.named.len()).sum::<usize>();
        let name = source.strip_prefix(root).unwrap().to_str().unwrap();
        let is_left = |(from, to): &(Place, Place)| {
            let [from, to] = [from, to].map(|place| place.join("::"));
            LEFT.iter()
                .any(|(of, parts)| *of == name && [&from, &to].iter().all(|part| parts.contains(&&***part)))
        };
        let circles = read.circles().into_iter().filter(|arrow| !is_left(arrow));
        wrong.extend(
            circles.map(|(from, to)| format!("{name}: {} imports {}", from.join("::"), to.join("::"))),
        );
    }
    assert!(modules > 500 && arrows > 5000, "{modules} modules, {arrows} paths");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_circle_is_found_also_through_names_that_the_parent_hands_on() {
    let module = |text: &str| {
        let mut module = Module::default();
        module.read(text);
        module
    };
    let place =
        |path: &str| path.split('/').filter(|word| !word.is_empty()).map(str::to_owned).collect::<Place>();
    let of = |texts: &[(&str, &str)]| {
        Modules(texts.iter().map(|(at, text)| (place(at), module(text))).collect()).circles()
    };
    let parent = ("a", "mod b;\nmod c;\npub(crate) use b::{self, B as Named};\nfn a() { c::run() }");
    let (below, beside) =
        (("a/b/d", "use crate::a::{\n    c::{C, run},\n};"), ("a/c", "use super::Named;\n// super::b::B"));
    assert_eq!(
        of(&[parent, ("a/b", ""), below, beside]).len(),
        2,
        "c needs b, and below b there is d, which needs c"
    );
    assert!(of(&[parent, ("a/b", ""), below, ("a/c", "use super::super::x;\nuse std::io;")]).is_empty());
    assert!(of(&[parent, ("a/b", "use super::a;"), ("a/c", "")]).is_empty(), "a parent and its child may");
    assert_eq!(of(&[("x", "fn f() { crate::y::g(); }"), ("y", "fn g() { crate::x::f(); }")]).len(), 2);
}
