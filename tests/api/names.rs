//! Resolves names in a module, and finds their public paths.

use std::collections::BTreeMap;

use syn::{Item, UseTree, Visibility};

use crate::source::{Library, attributes};

/// The target of a path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Target {
    Module(usize),
    Item(Thing),
    /// An item of another library, by its full path.
    Foreign(Vec<String>),
}

/// An item of this library: the module that defines it, and its name there.
pub(crate) type Thing = (usize, String);

/// The longest chain of `use`; a longer one is a cycle.
const DEPTH: usize = 16;

impl Library {
    /// Resolves `path` in a module, and returns how many of its segments that takes. None for names
    /// that are not items of a module: generic parameters, `Self`, the prelude.
    pub(crate) fn resolve(&self, module: usize, path: &[String]) -> Option<(Target, usize)> {
        self.follow(module, path, 0)
    }

    fn follow(&self, module: usize, path: &[String], depth: usize) -> Option<(Target, usize)> {
        assert!(depth < DEPTH, "{path:?} is a cycle");
        let first = path.first()?;
        let mut target = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(module),
            "super" => Target::Module(self.modules[module].parent?),
            name => match self.look_up(module, name, depth) {
                Some(target) => target,
                None if path.len() > 1 && is_a_library(name) => Target::Foreign(vec![name.to_owned()]),
                None => return None,
            },
        };
        for (index, part) in path.iter().enumerate().skip(1) {
            target = match target {
                Target::Module(at) if part == "super" => Target::Module(self.modules[at].parent?),
                Target::Module(at) => self.look_up(at, part, depth)?,
                Target::Foreign(mut path) => {
                    path.push(part.clone());
                    Target::Foreign(path)
                }
                Target::Item(_) => return Some((target, index)),
            };
        }
        Some((target, path.len()))
    }

    fn look_up(&self, module: usize, name: &str, depth: usize) -> Option<Target> {
        if let Some(child) = self.child(module, name) {
            return Some(Target::Module(child));
        }
        let items = &self.modules[module].items;
        if items.iter().any(|item| item_name(item).is_some_and(|found| found == name)) {
            return Some(Target::Item((module, name.to_owned())));
        }
        for item in items {
            let Item::Use(item) = item else { continue };
            for (alias, path) in flat(&item.tree) {
                if alias == name && !(path.len() == 1 && path[0] == name) {
                    // A name not found in this library belongs to another one.
                    let found = self.follow(module, &path, depth + 1).map(|(target, _)| target);
                    return Some(found.unwrap_or(Target::Foreign(path)));
                }
            }
        }
        items.iter().any(|item| makes(item, name)).then(|| Target::Item((module, name.to_owned())))
    }

    /// All publicly nameable items, each with its paths, the shortest first.
    pub(crate) fn exports(&self) -> BTreeMap<Target, Vec<Vec<String>>> {
        let mut found = BTreeMap::new();
        self.export(0, &[], &mut found);
        for names in found.values_mut() {
            names.sort_by_key(|name: &Vec<String>| (name.len(), name.clone()));
        }
        found
    }

    fn export(&self, module: usize, prefix: &[String], found: &mut BTreeMap<Target, Vec<Vec<String>>>) {
        found.entry(Target::Module(module)).or_default().push(prefix.to_vec());
        let mut add = |target: Target, name: String| {
            let name = [prefix, &[name]].concat();
            match target {
                Target::Module(inner) => self.export(inner, &name, found),
                Target::Item(_) | Target::Foreign(_) => found.entry(target).or_default().push(name),
            }
        };
        for item in &self.modules[module].items {
            if !is_public(item) || is_hidden(item) {
                continue;
            }
            if let Item::Use(item) = item {
                let tree = quote::ToTokens::to_token_stream(&item.tree).to_string();
                assert!(!tree.contains('*'), "`pub use {tree}` exports names that are not written out");
                for (alias, path) in flat(&item.tree) {
                    let target = self.resolve(module, &path).map(|(target, _)| target);
                    add(target.unwrap_or(Target::Foreign(path)), alias);
                }
            } else if let Some(name) = item_name(item) {
                let target =
                    self.child(module, &name).map_or(Target::Item((module, name.clone())), Target::Module);
                add(target, name);
            }
        }
    }
}

/// Whether a macro generates an item of this name.
fn makes(item: &Item, name: &str) -> bool {
    let Item::Macro(rules) = item else { return false };
    let tokens = rules.mac.tokens.to_string();
    ["enum", "struct", "const"].iter().any(|kind| tokens.contains(&format!("pub {kind} {name} ")))
}

/// Whether `name` can be an extern crate at the beginning of a path: our modules are looked up first.
fn is_a_library(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
}

/// Each name that a `use` imports, with its path.
fn flat(tree: &UseTree) -> Vec<(String, Vec<String>)> {
    match tree {
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            vec![(name.clone(), vec![name])]
        }
        UseTree::Rename(name) => vec![(name.rename.to_string(), vec![name.ident.to_string()])],
        UseTree::Path(path) => {
            let first = path.ident.to_string();
            let inner = flat(&path.tree).into_iter().map(|(alias, rest)| {
                // `use a::{self}` imports `a`.
                if rest == ["self"] {
                    return (if alias == "self" { first.clone() } else { alias }, vec![first.clone()]);
                }
                (alias, [vec![first.clone()], rest].concat())
            });
            inner.collect()
        }
        UseTree::Group(group) => group.items.iter().flat_map(flat).collect(),
        UseTree::Glob(_) => Vec::new(),
    }
}

pub(crate) fn item_name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Mod(item) => &item.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

fn is_public(item: &Item) -> bool {
    let visibility = match item {
        Item::Const(item) => &item.vis,
        Item::Enum(item) => &item.vis,
        Item::Fn(item) => &item.vis,
        Item::Mod(item) => &item.vis,
        Item::Static(item) => &item.vis,
        Item::Struct(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::Type(item) => &item.vis,
        Item::Use(item) => &item.vis,
        _ => return false,
    };
    matches!(visibility, Visibility::Public(_))
}

/// Items hidden from the documentation are not public interface.
fn is_hidden(item: &Item) -> bool {
    attributes(item).iter().any(|attribute| {
        attribute.path().is_ident("doc")
            && quote::ToTokens::to_token_stream(attribute).to_string().contains("hidden")
    })
}
