//! Building the book.
//!
//! Its pages are those of `docs/`. Pages outside of `docs/` that they link to become chapters at the end, and
//! linked source files are copied next to the book, so that all links except URLs stay within the book.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use mdbook_driver::MDBook;
use mdbook_driver::book::{Book, BookItem, Chapter};
use mdbook_driver::errors::{Error, Result};
use mdbook_preprocessor::{Preprocessor, PreprocessorContext};
use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd};

use crate::link::{links, way};
use crate::page::{Page, page, root};

/// The folder of the pages.
const DOCS: &str = "docs";
/// The folder within the book for pages from outside of `docs/`.
const PROJECT: &str = "project";
/// The folder within the book for source files.
const FILES: &str = "files";

/// Builds the book into `folder`, or into `target/book`.
///
/// # Errors
///
/// If a page cannot be read, or the target of a link does not exist.
pub fn build(folder: Option<PathBuf>) -> Result<PathBuf> {
    let mut book = MDBook::load(root())?;
    if let Some(folder) = folder {
        book.config.build.build_dir = folder;
    }
    let sources = Arc::new(Mutex::default());
    book.with_preprocessor(Outside { sources: Arc::clone(&sources) });
    book.build()?;
    let folder = book.build_dir_for("html");
    for source in &*sources.lock().unwrap_or_else(PoisonError::into_inner) {
        let copy = folder.join(FILES).join(source);
        fs::create_dir_all(copy.parent().unwrap_or(&folder))?;
        fs::copy(root().join(source), copy)?;
    }
    Ok(folder)
}

/// Adds linked files to the book.
struct Outside {
    /// Source files to copy.
    sources: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl Preprocessor for Outside {
    fn name(&self) -> &'static str {
        "outside"
    }

    fn run(&self, _context: &PreprocessorContext, mut book: Book) -> Result<Book> {
        let mut wanted = BTreeSet::new();
        let mut failed = None;
        book.for_each_chapter_mut(|chapter| {
            let Some(path) = chapter.source_path.clone() else { return };
            let page = Page { path: Path::new(DOCS).join(path), text: chapter.content.clone() };
            match self.led_within(&page, &mut wanted) {
                Ok(content) => chapter.content = content,
                Err(error) => failed = Some(error),
            }
        });
        let mut chapters = BTreeMap::new();
        while let Some(path) = wanted.pop_first() {
            if let Entry::Vacant(chapter) = chapters.entry(path) {
                let content = self.led_within(&page(chapter.key())?, &mut wanted)?;
                chapter.insert(content);
            }
        }
        book.push_item(BookItem::PartTitle("The project".to_owned()));
        for (path, content) in chapters {
            let title = content.lines().next().unwrap_or_default().trim_start_matches("# ").to_owned();
            book.push_item(Chapter::new(&title, content, Path::new(PROJECT).join(path), Vec::new()));
        }
        book.for_each_chapter_mut(|chapter| chapter.content = with_breaks(&chapter.content));
        failed.map_or(Ok(book), Err)
    }
}

/// Marks where `docs/book.css` may break the code in running text and in tables into lines: not at the hyphens of an
/// option, and in a name that is longer than a column only between its words.
#[expect(clippy::wildcard_enum_match_arm, reason = "most of Markdown is left as it is")]
fn with_breaks(content: &str) -> String {
    let (mut text, mut is_in_table, mut is_in_heading, mut is_label) =
        (content.to_owned(), false, false, false);
    let mut found = Vec::new();
    for (event, span) in Parser::new_ext(content, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Table(_)) => is_in_table = true,
            Event::End(TagEnd::Table) => is_in_table = false,
            Event::Start(Tag::Heading { .. }) => is_in_heading = true,
            Event::End(TagEnd::Heading(_)) => is_in_heading = false,
            // The text of other links may be the name of their target.
            Event::Start(Tag::Link { link_type, .. }) => is_label = link_type != LinkType::Inline,
            Event::End(TagEnd::Link) => is_label = false,
            Event::Code(code) if !is_in_heading && !is_label => {
                found.extend(broken(&code.replace("\\|", "|"), is_in_table).map(|html| (span, html)));
            }
            _ => {}
        }
    }
    // From the end, so that the positions of earlier ones stay valid.
    for (span, html) in found.into_iter().rev() {
        text.replace_range(span, &html);
    }
    text
}

/// Returns `code` with the marks it needs, if it needs any.
fn broken(code: &str, is_in_table: bool) -> Option<String> {
    const LONG: usize = 24;
    let is_long = |text: &str| text.chars().count() > LONG;
    // The style sheet keeps short code in a table whole.
    if (is_in_table && !is_long(code)) || !(is_in_table || code.contains('-') || code.split(' ').any(is_long))
    {
        return None;
    }
    let words = code.split(' ').map(|word| {
        if is_long(word) {
            escaped(word, "<wbr>")
        } else {
            format!("<span class=\"word\">{}</span>", escaped(word, ""))
        }
    });
    Some(format!("<code class=\"long\">{}</code>", words.collect::<Vec<_>>().join(" ")))
}

/// Returns `word` so that nothing in it is Markdown or HTML, with `gap` between its parts.
fn escaped(word: &str, gap: &str) -> String {
    let mut letters = word.chars().peekable();
    let mut text = String::new();
    while let Some(letter) = letters.next() {
        match letter {
            'a'..='z' | 'A'..='Z' | '0'..='9' => text.push(letter),
            _ => {
                let _ = write!(text, "&#{};", u32::from(letter));
                if letters.peek().is_some_and(char::is_ascii_alphanumeric) {
                    text += gap;
                }
            }
        }
    }
    text
}

impl Outside {
    /// Returns the text of `page` with its links changed to the place of their target in the book. Adds linked
    /// pages from outside of `docs/` to `wanted`.
    fn led_within(&self, page: &Page, wanted: &mut BTreeSet<PathBuf>) -> Result<String> {
        let here = place(&page.path);
        let mut text = page.text.clone();
        let mut links = links(&page.text);
        // From the end, so that the positions of earlier links stay valid.
        links.sort_by_key(|link| std::cmp::Reverse(link.span.start));
        for link in links {
            let (mut target, heading) = link.resolve(&page.path);
            if root().join(&target).is_dir() {
                // As GitHub shows a folder.
                target.push("README.md");
            }
            if !root().join(&target).is_file() {
                return Err(Error::msg(format!("{}: {} does not exist", page.path.display(), link.target)));
            }
            let renamed = target.ends_with("README.md");
            if target == page.path || (page.path.starts_with(DOCS) && target.starts_with(DOCS) && !renamed) {
                continue;
            }
            if !target.starts_with(DOCS) {
                if is_page(&target) {
                    wanted.insert(target.clone());
                } else {
                    self.sources.lock().unwrap_or_else(PoisonError::into_inner).insert(target.clone());
                }
            }
            let heading = heading.map(|heading| format!("#{heading}")).unwrap_or_default();
            text.replace_range(link.span, &format!("{}{heading}", way(&here, &place(&target))));
        }
        Ok(text)
    }
}

/// Returns the place of a project file within the book.
fn place(path: &Path) -> PathBuf {
    match path.strip_prefix(DOCS) {
        // mdBook renames it.
        Ok(within) if within.ends_with("README.md") => within.with_file_name("index.md"),
        Ok(within) => within.to_owned(),
        Err(_) if is_page(path) => Path::new(PROJECT).join(path),
        Err(_) => Path::new(FILES).join(path),
    }
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_code_in_tables_breaks_between_its_words_and_says_the_same() {
        let long = "a_name::of_a_test_that_is_much_longer_than_that_of_an_option_\\|_x";
        let page = format!("| a | b |\n|---|---|\n| `--key-prefix` | `{long}` |\n");
        let marked = with_breaks(&page);
        assert!(marked.contains("| `--key-prefix` |"), "{marked}");
        assert!(marked.contains("a&#95;<wbr>name&#58;&#58;<wbr>of"), "{marked}");
        let code = marked.split("\"long\">").nth(1).and_then(|code| code.split("</code>").next());
        let code = code.unwrap_or_default().replace("<wbr>", "");
        assert_eq!(
            code.replace("&#95;", "_").replace("&#58;", ":").replace("&#124;", "|"),
            long.replace("\\|", "|")
        );
    }

    #[test]
    fn the_words_of_a_command_stay_whole() {
        let marked = with_breaks(
            "Run `cargo run -- --example` in `src`; see [`a-b`] and [`c-d`](e.md).\n\n## `f-g`\n\n[`a-b`]: h.md\n",
        );
        let word = |word| format!("<span class=\"word\">{word}</span>");
        let words = ["cargo", "run", "&#45;&#45;", "&#45;&#45;example"].map(word).join(" ");
        assert_eq!(
            marked,
            format!(
                "Run <code class=\"long\">{words}</code> in `src`; see [`a-b`] and \
                 [<code class=\"long\">{}</code>](e.md).\n\n## `f-g`\n\n[`a-b`]: h.md\n",
                word("c&#45;d")
            )
        );
    }
}
