//! The tested libraries and their differences.

/// Another lock library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library {
    /// Its name in its registry.
    pub(crate) name: &'static str,
    /// The version pinned for its driver.
    pub(crate) version: &'static str,
    pub(crate) language: Language,
    /// The file of its driver, without the extension.
    pub(crate) driver: &'static str,
    /// The prefix before the resource name in its keys.
    pub(crate) prefix: &'static str,
    pub(crate) quirks: &'static [Quirk],
}

/// Properties that not every library has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Quirk {
    /// Cannot extend a lock that it holds.
    CannotExtend,
    /// Extends an expired lock by acquiring it again, even if another client held it in between.
    Revives,
    /// Does not lock while any node refuses connections.
    NeedsAllNodes,
    /// No longer maintained, so it may not run on current versions of its language.
    Abandoned,
}

impl Library {
    pub(crate) fn has(&self, quirk: Quirk) -> bool {
        self.quirks.contains(&quirk)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Language {
    Go,
    Java,
    Node,
    Python,
    Rust,
}

const fn library(
    name: &'static str,
    version: &'static str,
    language: Language,
    driver: &'static str,
) -> Library {
    Library { name, version, language, driver, prefix: "", quirks: &[] }
}

/// All of them.
pub(crate) fn libraries() -> [Library; 9] {
    [
        redlock_py(),
        pottery(),
        aioredlock(),
        node_redlock(),
        sesamecare_redlock(),
        redsync(),
        redisson(),
        rslock(),
        redlock_rs(),
    ]
}

/// Raises the dead node's error although a quorum has granted.
pub(crate) const fn redlock_py() -> Library {
    const QUIRKS: &[Quirk] = &[Quirk::CannotExtend, Quirk::NeedsAllNodes];
    Library { quirks: QUIRKS, ..library("redlock-py", "1.0.8", Language::Python, "redlock_py") }
}

pub(crate) const fn pottery() -> Library {
    Library { prefix: "redlock:", ..library("pottery", "3.0.1", Language::Python, "pottery_redlock") }
}

pub(crate) const fn aioredlock() -> Library {
    Library {
        quirks: &[Quirk::Revives, Quirk::Abandoned],
        ..library("aioredlock", "0.7.3", Language::Python, "aioredlock_lock")
    }
}

pub(crate) const fn node_redlock() -> Library {
    library("redlock (npm)", "5.0.0-beta.2", Language::Node, "redlock")
}

pub(crate) const fn sesamecare_redlock() -> Library {
    library("@sesamecare-oss/redlock", "1.4.0", Language::Node, "sesamecare_redlock")
}

pub(crate) const fn redsync() -> Library {
    library("redsync", "4.18.1", Language::Go, "redsync")
}

/// Stores a lock as a hash, which only its own clients respect.
pub(crate) const fn redisson() -> Library {
    library("Redisson", "4.7.0", Language::Java, "Driver")
}

pub(crate) const fn rslock() -> Library {
    library("rslock", "0.10.0", Language::Rust, "rslock")
}

/// Gives up at the first unreachable node.
pub(crate) const fn redlock_rs() -> Library {
    const QUIRKS: &[Quirk] = &[Quirk::CannotExtend, Quirk::NeedsAllNodes];
    Library { quirks: QUIRKS, ..library("redlock (crates.io)", "2.0.0", Language::Rust, "redlock") }
}
