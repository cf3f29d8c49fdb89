//! The links of a page, and the anchors of its headings.

use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd};

/// A link to a file of the project, or to a heading of the same page.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Link {
    /// The target: `rules.md#readers`.
    pub target: String,
    /// The position of the target in the text of the page.
    pub span: Range<usize>,
}

impl Link {
    /// Returns the target file, relative to the root of the project, and the heading, for a link of the page at
    /// `from`.
    #[must_use]
    pub fn resolve(&self, from: &Path) -> (PathBuf, Option<&str>) {
        let (file, heading) = match self.target.split_once('#') {
            Some((file, heading)) => (file, Some(heading)),
            None => (&*self.target, None),
        };
        if file.is_empty() {
            return (from.to_owned(), heading);
        }
        (normal(&from.parent().unwrap_or(Path::new("")).join(file)), heading)
    }
}

/// Returns the relative links of `page`.
#[must_use]
pub fn links(page: &str) -> Vec<Link> {
    let parser = Parser::new_ext(page, Options::ENABLE_TABLES);
    let mut found: Vec<Link> = Vec::new();
    for (_, definition) in parser.reference_definitions().iter() {
        found.extend(at(page, definition.span.clone(), &definition.dest));
    }
    for (event, span) in parser.into_offset_iter() {
        if let Event::Start(
            Tag::Link { link_type: LinkType::Inline, dest_url, .. }
            | Tag::Image { link_type: LinkType::Inline, dest_url, .. },
        ) = event
        {
            found.extend(at(page, span, &dest_url));
        }
    }
    found
}

/// Returns the link to `target` whose source is at `span`; the target is its last part. `None` for an absolute
/// URL.
fn at(page: &str, span: Range<usize>, target: &str) -> Option<Link> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let start = span.start + page.get(span)?.rfind(target)?;
    Some(Link { target: target.to_owned(), span: start..start + target.len() })
}

/// Returns the anchors of the headings of `page`, as GitHub and mdBook generate them.
#[must_use]
pub fn anchors(page: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(page, Options::ENABLE_TABLES) {
        if let Event::Start(Tag::Heading { .. }) = event {
            heading = Some(String::new());
        } else if let (Event::Text(text) | Event::Code(text), Some(heading)) = (&event, &mut heading) {
            heading.push_str(text);
        } else if let Event::End(TagEnd::Heading(_)) = event {
            let anchor = anchor(&heading.take().unwrap_or_default());
            let before = found.iter().filter(|other| **other == anchor).count();
            found.push(if before == 0 { anchor } else { format!("{anchor}-{before}") });
        }
    }
    found
}

fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ if letter.is_alphanumeric() => Some(letter),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// Removes `.` and `..` without accessing the file system.
#[must_use]
pub fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::Normal(name) => normal.push(name),
            Component::RootDir => normal.push(part),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    normal
}

/// Returns the relative path from the page at `from` to `to`, both relative to the same folder.
#[must_use]
pub fn way(from: &Path, to: &Path) -> String {
    let depth = from.components().count().saturating_sub(1);
    let parts = std::iter::repeat_n("..".to_owned(), depth)
        .chain(to.components().map(|part| part.as_os_str().to_string_lossy().into_owned()));
    parts.collect::<Vec<_>>().join("/")
}
