//! Lists the public interface of a library as text.

use std::collections::{BTreeMap, BTreeSet};

use quote::{ToTokens, format_ident};
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, GenericArgument, Item, ItemImpl, PatIdent, Path, PathArguments, Receiver, Type};

use crate::names::{Target, Thing, item_name};
use crate::shorten::{inner_name, is_kept, is_shown, rename, shorten, shorten_method};
use crate::source::Library;

/// Placeholder for private fields, until printed.
const PRIVATE: &str = "_private: (),";
/// Method names that come from a trait.
const PROVIDED: &str = " {\n        provided\n    }";

pub(crate) struct Listing {
    pub(crate) text: String,
    /// Items of other libraries than std, by their full path.
    pub(crate) foreign: BTreeSet<String>,
}

impl Listing {
    pub(crate) fn of(library: &Library) -> Listing {
        let mut writer = Writer {
            library,
            exports: library.exports(),
            impls: BTreeMap::new(),
            foreign: BTreeSet::new(),
            module: 0,
        };
        writer.collect_impls();
        let modules: BTreeMap<String, usize> = writer
            .exports
            .iter()
            .filter_map(|(target, names)| {
                if let Target::Module(index) = target { Some((names[0].join("::"), *index)) } else { None }
            })
            .collect();
        let text = modules.into_iter().map(|(name, index)| writer.module(&name, index)).collect();
        Listing { text, foreign: writer.foreign }
    }
}

struct Writer<'a> {
    library: &'a Library,
    exports: BTreeMap<Target, Vec<Vec<String>>>,
    /// The items, grouped by owner.
    impls: BTreeMap<Thing, BTreeMap<String, ItemImpl>>,
    foreign: BTreeSet<String>,
    /// The module being read, which is the scope of names.
    module: usize,
}

impl Writer<'_> {
    /// Lists one public module: its own items, and its re-exports.
    fn module(&mut self, name: &str, index: usize) -> String {
        let path = if name.is_empty() {
            self.library.name.to_owned()
        } else {
            format!("{}::{name}", self.library.name)
        };
        let mut text = format!("\n// ---- {path} ----\n");
        let mut shown: BTreeMap<String, Target> = BTreeMap::new();
        for (target, names) in &self.exports {
            let within = |found: &&Vec<String>| found[..found.len() - 1].join("::") == name;
            for found in names.iter().filter(|found| !found.is_empty()).filter(within) {
                shown.insert(found[found.len() - 1].clone(), target.clone());
            }
        }
        for (alias, target) in shown {
            text.push('\n');
            text.push_str(&self.shown(name, &alias, &target));
        }
        for call in self.macro_calls(index) {
            text.push('\n');
            text.push_str(&call);
        }
        text
    }

    fn shown(&mut self, module: &str, alias: &str, target: &Target) -> String {
        let first = self.exports[target][0].clone();
        match target {
            Target::Module(_) => format!("pub mod {alias};\n"),
            Target::Foreign(path) => {
                self.foreign.insert(path.join("::"));
                let rename = if path.last().is_some_and(|last| last == alias) {
                    String::new()
                } else {
                    format!(" as {alias}")
                };
                format!("pub use {}{rename};\n", path.join("::"))
            }
            Target::Item(_) if first[..first.len() - 1].join("::") != module => {
                format!("pub use {}::{};\n", self.library.name, first.join("::"))
            }
            Target::Item(thing) => self.item(thing, alias),
        }
    }

    fn item(&mut self, thing: &Thing, alias: &str) -> String {
        self.module = thing.0;
        let items = &self.library.modules[thing.0].items;
        let found = items.iter().find(|item| item_name(item).is_some_and(|name| name == thing.1)).cloned();
        let mut text = match found {
            Some(mut item) => {
                shorten(&mut item);
                rename(&mut item, alias);
                self.visit_item_mut(&mut item);
                print(item)
            }
            None => {
                format!("// {alias} is what a macro makes of this:\n") + &self.macro_calls(thing.0).concat()
            }
        };
        for item in self.impls.remove(thing).unwrap_or_default().into_values() {
            text.push_str(&print(Item::Impl(item)));
        }
        text
    }

    /// The macro input of a module, without doc comments.
    fn macro_calls(&self, module: usize) -> Vec<String> {
        let items = self.library.modules[module].items.iter();
        let calls = items.filter_map(|item| {
            if let Item::Macro(call) = item { call.ident.is_none().then_some(&call.mac) } else { None }
        });
        let text = |call: &syn::Macro| {
            let words = call.tokens.clone().into_iter().map(|token| token.to_string());
            let words: Vec<String> =
                words.filter(|word| !(word.starts_with('"') && word.contains(' '))).collect();
            let text = words.join(" ");
            // One line per declared item.
            let lines =
                if text.contains(" ; ") { text.replace(" ; ", "\n") } else { text.replace("\" ", "\"\n") };
            let lines = lines.trim_end_matches([' ', ';']).replace('\n', "\n    ");
            format!("{}! {{\n    {lines}\n}}\n", call.path.to_token_stream())
        };
        calls.map(text).collect()
    }

    fn collect_impls(&mut self) {
        for module in 0..self.library.modules.len() {
            self.module = module;
            for item in &self.library.modules[module].items {
                let Item::Impl(item) = item else { continue };
                let Some(owner) = self.owner(item) else { continue };
                let mut item = item.clone();
                item.attrs.retain(is_kept);
                item.items.retain(|inner| is_shown(inner, item.trait_.is_some()));
                item.items.iter_mut().for_each(shorten_method);
                if item.trait_.is_none() && item.items.is_empty() {
                    continue;
                }
                self.visit_item_impl_mut(&mut item);
                let head = ItemImpl { items: Vec::new(), ..item.clone() };
                let kind = if item.trait_.is_some() { "1" } else { "0" };
                let head = format!("{kind}{}", head.to_token_stream());
                let impls = self.impls.entry(owner).or_default();
                let merged =
                    impls.entry(head).or_insert_with(|| ItemImpl { items: Vec::new(), ..item.clone() });
                merged.items.extend(item.items);
                merged.items.sort_by_key(inner_name);
            }
        }
    }

    /// The public item that an `impl` belongs to: its type, otherwise its trait.
    fn owner(&self, item: &ItemImpl) -> Option<Thing> {
        let of_type = match &*item.self_ty {
            Type::Path(path) => match self.library.resolve(self.module, &parts(&path.path)) {
                Some((Target::Item(thing), _)) if !self.is_public(&thing) => return None,
                Some((Target::Item(thing), _)) => Some(thing),
                _ => None,
            },
            _ => None,
        };
        let Some((of_trait, _)) = &item.trait_ else { return of_type };
        // A trait that cannot be named from outside is not listed.
        if let Some((Target::Item(thing), _)) = self.library.resolve(self.module, &parts(of_trait)) {
            return self.is_public(&thing).then(|| of_type.unwrap_or(thing));
        }
        let arguments = of_trait.segments.last().map(|last| &last.arguments);
        let argument = || match arguments {
            Some(PathArguments::AngleBracketed(list)) => {
                list.args.iter().find_map(|argument| match argument {
                    GenericArgument::Type(Type::Path(path)) => self.public_thing(&path.path),
                    _ => None,
                })
            }
            _ => None,
        };
        of_type.or_else(argument)
    }

    fn public_thing(&self, path: &Path) -> Option<Thing> {
        match self.library.resolve(self.module, &parts(path))? {
            (Target::Item(thing), _) => self.is_public(&thing).then_some(thing),
            _ => None,
        }
    }

    fn is_public(&self, thing: &Thing) -> bool {
        self.exports.contains_key(&Target::Item(thing.clone()))
    }
}

impl VisitMut for Writer<'_> {
    /// Replaces our names with their public paths, and foreign names with their full paths.
    fn visit_path_mut(&mut self, path: &mut Path) {
        visit_mut::visit_path_mut(self, path);
        let Some((target, taken)) = self.library.resolve(self.module, &parts(path)) else { return };
        let names = match &target {
            Target::Foreign(names) if ["std", "core", "alloc"].contains(&names[0].as_str()) => return,
            Target::Foreign(names) => {
                self.foreign.insert(names.join("::"));
                names.clone()
            }
            Target::Item(_) | Target::Module(_) => match self.exports.get(&target) {
                Some(names) => names[0].clone(),
                None => return,
            },
        };
        let rest: Vec<_> = path.segments.iter().skip(taken - 1).cloned().collect();
        let mut segments: Vec<syn::PathSegment> =
            names.iter().map(|name| format_ident!("{name}").into()).collect();
        if let (Some(last), Some(first)) = (segments.last_mut(), rest.first()) {
            last.arguments = first.arguments.clone();
        }
        segments.extend(rest.into_iter().skip(1));
        path.segments = segments.into_iter().collect();
    }

    /// Whether an argument is `mut` is not part of the signature.
    fn visit_receiver_mut(&mut self, receiver: &mut Receiver) {
        receiver.mutability = None;
        visit_mut::visit_receiver_mut(self, receiver);
    }

    fn visit_pat_ident_mut(&mut self, argument: &mut PatIdent) {
        argument.mutability = None;
    }

    /// Paths in attributes are not part of a signature.
    fn visit_attribute_mut(&mut self, _: &mut Attribute) {}
}

fn parts(path: &Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

fn print(item: Item) -> String {
    let text = prettyplease::unparse(&syn::File {
        shebang: None,
        attrs: Vec::new(),
        items: vec![item],
        frontmatter: None,
    });
    text.replace(PRIVATE, "// and what is private")
        .replace(PROVIDED, " { … }")
        .replace(",\n    {}\n", ";\n")
        .replace(",\n{}\n", ";\n")
        .replace(" {}\n", ";\n")
}
