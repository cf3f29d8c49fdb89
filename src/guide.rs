//! Pages of the book for programmers. The whole book, with the pages for operators, is in `docs/` of the project.
//!
//! | to know | read |
//! |---|---|
//! | whether you need a lock, which kind, and on which nodes | [`which_lock`] |
//! | what a fencing token guarantees, and what a resource does with it | [`fencing`] |
//! | how to check a fencing token in SQL, Redis, a service or a bucket | [`fencing_checks`] |
//! | which TTL, drift, `max_ttl` | [`choosing`] |
//! | how to test your own code | [`testing`] |
//! | what is promised, why it holds, what it rests on, and how it is checked | [`trust`] |
//! | what the words mean | [`glossary`] |
//!
//! This module exists in the documentation only.

// A page links to others by file name, for readers of the file and of the book. The definitions included before
// it say where these names lead from the documentation, because the first definition of a link counts.

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/which-lock.md")]
pub mod which_lock {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/fencing.md")]
pub mod fencing {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/fencing-checks.md")]
pub mod fencing_checks {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/choosing.md")]
pub mod choosing {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/testing.md")]
pub mod testing {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/trust.md")]
pub mod trust {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/glossary.md")]
pub mod glossary {}
