//! Blocks of code in a page, and code within its lines.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// What a page shows as code.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Block {
    /// The line of the page that it begins in, from 1.
    pub line: usize,
    /// The word behind the fence: `rust`, `sh`, `console`, `toml`, `text`. Empty without one.
    pub language: String,
    /// The code.
    pub text: String,
}

/// The fenced and indented blocks of `page`, in order.
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

/// The code within the lines of `page`, in order, as blocks without a language.
#[must_use]
pub fn spans(page: &str) -> Vec<Block> {
    let events = Parser::new_ext(page, Options::ENABLE_TABLES).into_offset_iter();
    let codes = events.filter_map(|(event, span)| {
        let Event::Code(text) = event else { return None };
        // A bar in a table stands behind a backslash.
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
