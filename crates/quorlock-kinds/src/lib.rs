//! The kinds of node of this workspace, in one list: what the command line, the Python package, `demo`, the chaos tester, the
//! reference and the tests of the pages read. `CONTRIBUTING.md` has the recipe for one more.
//!
//! # Examples
//!
//! ```no_run
//! # fn main() -> Result<(), quorlock::ConfigError> {
//! // Every kind that this program was built with.
//! let nodes = ["redis://10.0.0.1", "postgres://locks@10.0.0.2/locks", "sqlite:///var/lib/locks.db"];
//! let coordinator = quorlock::Coordinator::builder().kinds(quorlock_kinds::all()).nodes(nodes).build()?;
//! # Ok(())
//! # }
//! ```
#![cfg(unix)]

use std::io;

use futures::future::BoxFuture;
use quorlock::node::{AddressError, Kinds, NodeAddress, NodeKind};
use quorlock_servers::{Engine, EtcdPrograms, Fleet, Servers, ZooKeeperPrograms};

/// A kind of node, and what is to be known of it outside of its crate.
#[derive(Debug)]
#[non_exhaustive]
pub struct KindOfNode {
    /// What its stores are called.
    pub name: &'static str,
    /// Its package, `quorlock` for that of the library. The name of its feature is what follows `quorlock-`.
    pub package: &'static str,
    /// The schemes of its addresses. Empty for the library's own.
    pub schemes: &'static [&'static str],
    /// The forms of its addresses, as the help of `--nodes` shows them.
    pub addresses: &'static str,
    /// Its page, `docs/PAGE.md`.
    pub page: &'static str,
    build: Build,
}

type Start = fn(usize) -> BoxFuture<'static, io::Result<Box<dyn Fleet>>>;

/// Starts servers of a kind.
#[derive(Debug)]
#[non_exhaustive]
pub struct Launcher {
    package: &'static str,
    /// What `quorlock demo --servers` and the scenarios of the chaos tester call them.
    pub name: &'static str,
    /// What they are and what must be installed, for a help.
    pub about: &'static str,
    /// Starts this number of servers, and waits until they answer.
    pub start: Start,
}

#[derive(Debug)]
struct Build {
    /// Adds the kind, if this program was built with it.
    add: Option<fn(Kinds) -> Kinds>,
    /// What to do if it was not.
    cure: &'static str,
}

macro_rules! build {
    ($feature:literal, $kind:path) => {{
        #[cfg(feature = $feature)]
        let add: Option<fn(Kinds) -> Kinds> = Some(|kinds| kinds.with(<$kind>::new()));
        #[cfg(not(feature = $feature))]
        let add = None;
        Build { add, cure: concat!("build it with the feature `quorlock-kinds/", $feature, "`") }
    }};
}

macro_rules! launcher {
    ($package:literal, $name:literal, $about:literal, $count:ident => $start:expr) => {
        Launcher {
            package: $package,
            name: $name,
            about: $about,
            start: |$count| Box::pin(async move { Ok(Box::new($start) as Box<dyn Fleet>) }),
        }
    };
}

/// The list.
pub static KINDS: &[KindOfNode] = &[
    KindOfNode {
        name: "Redis and Valkey",
        package: "quorlock",
        schemes: &[],
        addresses: "redis:// or valkey://, rediss:// for TLS, redis+unix:///PATH, \
                    redis+sentinel://HOST,HOST/SERVICE, redis+cluster://HOST:PORT,HOST:PORT",
        page: "masters",
        build: Build { add: Some(|kinds| kinds), cure: "" },
    },
    KindOfNode {
        name: "PostgreSQL",
        package: "quorlock-postgres",
        schemes: &["postgres", "postgresql"],
        addresses: "postgres://USER@HOST/DATABASE",
        page: "postgres",
        build: build!("postgres", quorlock_postgres::PostgresKind),
    },
    KindOfNode {
        name: "MariaDB and MySQL",
        package: "quorlock-mysql",
        schemes: &["mysql", "mariadb"],
        addresses: "mysql:// or mariadb://USER@HOST/DATABASE",
        page: "mysql",
        build: build!("mysql", quorlock_mysql::MysqlKind),
    },
    KindOfNode {
        name: "SQLite",
        package: "quorlock-sqlite",
        schemes: &["sqlite"],
        addresses: "sqlite:///PATH, for one host",
        page: "sqlite",
        build: build!("sqlite", quorlock_sqlite::SqliteKind),
    },
    KindOfNode {
        name: "etcd",
        package: "quorlock-etcd",
        schemes: &["etcd", "etcds"],
        addresses: "etcd://HOST,HOST,HOST, etcds:// for TLS",
        page: "etcd",
        build: build!("etcd", quorlock_etcd::EtcdKind),
    },
    KindOfNode {
        name: "ZooKeeper",
        package: "quorlock-zookeeper",
        schemes: &["zookeeper", "zookeepers"],
        addresses: "zookeeper://HOST,HOST,HOST/PATH, zookeepers:// for TLS",
        page: "zookeeper",
        build: build!("zookeeper", quorlock_zookeeper::ZooKeeperKind),
    },
    KindOfNode {
        name: "A program",
        package: "quorlock-exec",
        schemes: &["exec"],
        addresses: "exec:PROGRAM?arg=ARGUMENT",
        page: "exec",
        build: build!("exec", quorlock_exec::ExecKind),
    },
];

/// Not in the list above: a program that asks for none is linked without them.
static LAUNCHERS: &[Launcher] = &[
    launcher!("quorlock", "redis", "Redis or Valkey, or built-in stand-ins", count => Servers::start(count).await?),
    launcher!("quorlock-postgres", "postgres", "PostgreSQL, which must be installed", count => Engine::postgres()?.start_several(count).await?),
    launcher!("quorlock-mysql", "mariadb", "MariaDB, which must be installed", count => Engine::mariadb()?.start_several(count).await?),
    launcher!("quorlock-etcd", "etcd", "A cluster of etcd, which must be installed", count => EtcdPrograms::find()?.start(count).await?),
    launcher!("quorlock-zookeeper", "zookeeper", "An ensemble of ZooKeeper, of which the jars must be there", count => ZooKeeperPrograms::find()?.start(count).await?),
];

/// All kinds that this program was built with. An address of another one is refused with the feature that has it.
#[must_use = "give them to a `Builder`"]
pub fn all() -> Kinds {
    KINDS.iter().fold(Kinds::default(), |kinds, kind| match kind.build.add {
        Some(add) => add(kinds),
        None => kinds.with(LeftOut(kind)),
    })
}

impl KindOfNode {
    /// How its servers are started on this machine, if there is a launcher.
    #[must_use]
    pub fn launcher(&self) -> Option<&'static Launcher> {
        LAUNCHERS.iter().find(|launcher| launcher.package == self.package)
    }

    /// Whether this program was built with it.
    #[must_use]
    pub fn is_built_in(&self) -> bool {
        self.build.add.is_some()
    }
}

/// Its addresses have an error of their own.
#[derive(Debug)]
struct LeftOut(&'static KindOfNode);

impl NodeKind for LeftOut {
    fn schemes(&self) -> &[&str] {
        self.0.schemes
    }

    fn parse(&self, url: &str) -> Result<Box<dyn NodeAddress>, AddressError> {
        let (scheme, _) = url.split_once(':').unwrap_or((url, ""));
        Err(AddressError::malformed(
            format!("{scheme}:"),
            "is of a kind that this program was built without",
            self.0.build.cure,
        ))
    }

    fn goes_on_after(&self, _url_so_far: &str) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_is_of_the_kind_that_has_it_in_the_list() {
        for kind in KINDS {
            for scheme in kind.schemes {
                let url = format!("{scheme}://a/b");
                let built = quorlock::Coordinator::builder().kinds(all()).nodes([&url]).build();
                let refused = built.err().map(|error| error.to_string()).unwrap_or_default();
                let is_left_out = refused.contains("built without");
                assert_eq!(is_left_out, !kind.is_built_in(), "{url} {refused}");
                assert!(!refused.contains("unknown scheme"), "{url} {refused}");
            }
        }
    }

    #[test]
    fn a_program_without_a_kind_is_referred_to_its_crate() {
        let build = |url: &str| quorlock::Coordinator::builder().nodes([url]).build();
        for kind in KINDS.iter().filter(|kind| kind.package != "quorlock") {
            for scheme in kind.schemes {
                for rest in ["//user:hunter2@host/x", "/x", ""] {
                    let error = build(&format!("{scheme}:{rest}")).unwrap_err().to_string();
                    assert!(error.contains(&format!(" of the crate {},", kind.package)), "{error}");
                    assert!(!error.contains("hunter2"), "{error}");
                }
                build(&format!("{scheme}:6379")).unwrap();
            }
        }
    }

    #[test]
    fn a_kind_that_was_left_out_is_refused_with_its_feature() {
        for kind in KINDS.iter().filter(|kind| kind.package != "quorlock") {
            for scheme in kind.schemes {
                let error =
                    LeftOut(kind).parse(&format!("{scheme}://user:hunter2@host")).unwrap_err().to_string();
                let feature = kind.package.replace("quorlock-", "quorlock-kinds/");
                assert!(error.contains("built without") && error.contains(&feature), "{error}");
                assert!(error.contains(scheme) && !error.contains("hunter2"), "{error}");
            }
        }
    }

    #[test]
    fn no_scheme_is_missing_in_the_list() {
        // The library refuses two kinds with one scheme, and names it.
        #[derive(Debug)]
        struct Twin(&'static str);

        impl NodeKind for Twin {
            fn schemes(&self) -> &[&str] {
                std::slice::from_ref(&self.0)
            }

            fn parse(&self, _url: &str) -> Result<Box<dyn NodeAddress>, AddressError> {
                unreachable!("the schemes are compared before")
            }
        }

        for scheme in KINDS.iter().flat_map(|kind| kind.schemes) {
            let kinds = all().with(Twin(scheme));
            let error =
                quorlock::Coordinator::builder().kinds(kinds).nodes(["redis://a"]).build().unwrap_err();
            assert!(error.to_string().contains(scheme), "{error}");
        }
    }
}
