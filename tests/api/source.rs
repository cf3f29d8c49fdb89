//! Reads the modules of a library from its files.

use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, Item, Meta, Token, punctuated::Punctuated};

/// A library's modules; the first is its root.
pub(crate) struct Library {
    /// The crate's name in `use`.
    pub(crate) name: &'static str,
    pub(crate) modules: Vec<Module>,
}

pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) parent: Option<usize>,
    pub(crate) items: Vec<Item>,
}

impl Library {
    /// Reads `src/` of `folder`, without tests and code for systems other than Linux.
    pub(crate) fn read(name: &'static str, folder: &Path) -> Library {
        let mut library = Library { name, modules: Vec::new() };
        let source = folder.join("src");
        library.add(name.to_owned(), None, parsed(&source.join("lib.rs")), &source);
        library
    }

    /// The submodule `name` of `parent`.
    pub(crate) fn child(&self, parent: usize, name: &str) -> Option<usize> {
        self.modules.iter().position(|module| module.parent == Some(parent) && module.name == name)
    }

    /// `folder` contains the files of the submodules.
    fn add(&mut self, name: String, parent: Option<usize>, items: Vec<Item>, folder: &Path) {
        let index = self.modules.len();
        let items: Vec<Item> = items.into_iter().filter(|item| is_there(attributes(item))).collect();
        let inner: Vec<_> = items
            .iter()
            .filter_map(|item| if let Item::Mod(inner) = item { Some(inner.clone()) } else { None })
            .collect();
        self.modules.push(Module { name, parent, items });
        for module in inner {
            let name = module.ident.to_string();
            let within = folder.join(&name);
            let items = match module.content {
                Some((_, items)) => items,
                None => parsed(&file(folder, &name)),
            };
            self.add(name, Some(index), items, &within);
        }
    }
}

fn file(folder: &Path, name: &str) -> PathBuf {
    let flat = folder.join(format!("{name}.rs"));
    if flat.exists() { flat } else { folder.join(name).join("mod.rs") }
}

fn parsed(file: &Path) -> Vec<Item> {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display())).items
}

pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an item with these attributes is compiled on Linux, with all features and without tests.
pub(crate) fn is_there(attributes: &[Attribute]) -> bool {
    let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.into_iter().all(|condition| holds(&condition.parse_args().unwrap()))
}

fn holds(condition: &Meta) -> bool {
    let name = condition.path().get_ident().unwrap().to_string();
    match condition {
        Meta::Path(_) => name == "unix",
        Meta::NameValue(is) => {
            let value = quote::ToTokens::to_token_stream(&is.value).to_string();
            name == "feature" || (name == "target_os" && value == "\"linux\"")
        }
        Meta::List(list) => {
            let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap();
            match name.as_str() {
                "not" => !parts.iter().all(holds),
                "any" => parts.iter().any(holds),
                "all" => parts.iter().all(holds),
                other => panic!("what is cfg({other}(…))?"),
            }
        }
    }
}
