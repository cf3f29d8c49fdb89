//! Code blocks and inline code of a page.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A code block or inline code.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Block {
    /// The line of the page on which it begins, from 1.
    pub line: usize,
    /// The language after the fence: `rust`, `sh`, `console`, `toml`, `text`. Empty without one.
    pub language: String,
    /// The code.
    pub text: String,
}

/// Returns the fenced and indented blocks of `page`, in order.
#[must_use]
pub fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for (event, span) in Parser::new_ext(page, Options::ENABLE_TABLES).into_offset_iter() {
        if let Event::Start(Tag::CodeBlock(kind)) = event {
            let language = match kind {
                CodeBlockKind::Fenced(word) => word.to_string(),
                CodeBlockKind::Indented => String::new(),
            };
            open = Some(Block { line: line_of(page, span.start), language, text: String::new() });
        } else if let (Event::Text(text), Some(block)) = (&event, &mut open) {
            block.text.push_str(text);
        } else if event == Event::End(TagEnd::CodeBlock) {
            found.extend(open.take());
        }
    }
    found
}

/// Returns the inline code of `page`, in order, as blocks without a language.
#[must_use]
pub fn spans(page: &str) -> Vec<Block> {
    let events = Parser::new_ext(page, Options::ENABLE_TABLES).into_offset_iter();
    let codes = events.filter_map(|(event, span)| {
        let Event::Code(text) = event else { return None };
        // In a table, `|` is escaped.
        Some(Block {
            line: line_of(page, span.start),
            language: String::new(),
            text: text.replace("\\|", "|"),
        })
    });
    codes.collect()
}

fn line_of(page: &str, offset: usize) -> usize {
    1 + page.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}
