//! Reduces an item to the parts that matter to users.

use quote::{ToTokens, format_ident};
use syn::{Attribute, Block, Field, Fields, ImplItem, Item, TraitItem, Visibility, parse_quote};

use crate::source::is_there;

/// Gives an item its public name.
pub(crate) fn rename(item: &mut Item, name: &str) {
    let name = format_ident!("{name}");
    match item {
        Item::Const(item) => item.ident = name,
        Item::Enum(item) => item.ident = name,
        Item::Fn(item) => item.sig.ident = name,
        Item::Static(item) => item.ident = name,
        Item::Struct(item) => item.ident = name,
        Item::Trait(item) => item.ident = name,
        Item::Type(item) => item.ident = name,
        _ => {}
    }
}

/// Removes what users do not see: bodies, documentation, private fields.
pub(crate) fn shorten(item: &mut Item) {
    match item {
        Item::Const(item) => item.attrs.retain(is_kept),
        Item::Fn(item) => {
            item.attrs.retain(is_kept);
            *item.block = empty();
        }
        Item::Static(item) => item.attrs.retain(is_kept),
        Item::Type(item) => item.attrs.retain(is_kept),
        Item::Struct(item) => {
            item.attrs.retain(is_kept);
            shorten_fields(&mut item.fields, true);
        }
        Item::Enum(item) => {
            item.attrs.retain(is_kept);
            for variant in &mut item.variants {
                variant.attrs.retain(is_kept);
                shorten_fields(&mut variant.fields, false);
            }
        }
        Item::Trait(item) => {
            item.attrs.retain(is_kept);
            for inner in &mut item.items {
                match inner {
                    TraitItem::Fn(method) => {
                        method.attrs.retain(is_kept);
                        method.default = method.default.take().map(|_| parse_quote!({ provided }));
                    }
                    TraitItem::Const(item) => item.attrs.retain(is_kept),
                    TraitItem::Type(item) => item.attrs.retain(is_kept),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

fn shorten_fields(fields: &mut Fields, may_be_private: bool) {
    let is_public = |field: &Field| !may_be_private || matches!(field.vis, Visibility::Public(_));
    for field in fields.iter_mut() {
        field.attrs.retain(is_kept);
    }
    match fields {
        Fields::Named(named) => {
            let all = named.named.len();
            named.named = named.named.iter().filter(|field| is_public(field)).cloned().collect();
            if named.named.len() < all {
                named.named.push(parse_quote!(_private: ()));
            }
        }
        Fields::Unnamed(unnamed) => {
            for field in unnamed.unnamed.iter_mut().filter(|field| !is_public(field)) {
                field.ty = parse_quote!(_);
            }
        }
        Fields::Unit => {}
    }
}

pub(crate) fn is_shown(item: &ImplItem, is_of_a_trait: bool) -> bool {
    let (visibility, attributes) = match item {
        ImplItem::Const(item) => (&item.vis, &item.attrs),
        ImplItem::Fn(item) => (&item.vis, &item.attrs),
        ImplItem::Type(item) => return is_there(&item.attrs),
        _ => return false,
    };
    !is_of_a_trait && is_there(attributes) && matches!(visibility, Visibility::Public(_))
}

pub(crate) fn shorten_method(item: &mut ImplItem) {
    match item {
        ImplItem::Const(item) => item.attrs.retain(is_kept),
        ImplItem::Fn(item) => {
            item.attrs.retain(is_kept);
            item.block = empty();
        }
        ImplItem::Type(item) => item.attrs.retain(is_kept),
        _ => {}
    }
}

pub(crate) fn inner_name(item: &ImplItem) -> String {
    match item {
        ImplItem::Const(item) => format!("0{}", item.ident),
        ImplItem::Type(item) => format!("1{}", item.ident),
        ImplItem::Fn(item) => format!("2{}", item.sig.ident),
        _ => String::new(),
    }
}

fn empty() -> Block {
    parse_quote!({})
}

/// Whether an attribute matters to users. `from` generates a conversion.
pub(crate) fn is_kept(attribute: &Attribute) -> bool {
    const KEPT: &[&str] = &["must_use", "non_exhaustive", "derive", "deprecated", "repr", "from", "default"];
    let path = attribute.path();
    let is_of_a_feature = || attribute.to_token_stream().to_string().contains("feature");
    KEPT.iter().any(|name| path.is_ident(name)) || (path.is_ident("cfg") && is_of_a_feature())
}
