//! The statements and scripts that readers copy from `docs/fencing-checks.md`.

use std::sync::LazyLock;

use quorlock::FencingToken;
use quorlock::fence::Stale;

const PAGE: &str = include_str!("../../../docs/fencing-checks.md");

/// Returns the only block of the page that begins like this, after its language.
fn block(beginning: &str) -> &'static str {
    let mut blocks = PAGE.split("```").skip(1).step_by(2).filter(|block| block.starts_with(beginning));
    assert_eq!(blocks.clone().count(), 1, "blocks of the page that begin with {beginning}");
    blocks.next().unwrap().split_once('\n').unwrap().1.trim_end()
}

macro_rules! blocks {
    ($($name:ident: $beginning:literal)*) => {
        $(#[allow(dead_code, reason = "each of the tests that include this uses some")]
        pub(super) static $name: LazyLock<&str> = LazyLock::new(|| block($beginning));)*
    };
}

blocks! {
    UPDATE: "sql\nUPDATE account SET fencing_token = $1, balance"
    UPSERT: "sql\nINSERT INTO account"
    SHOW_AND_READ: "sql\nUPDATE account SET fencing_token = $1 WHERE"
    CREATE_GUARD_TABLE: "sql\nCREATE TABLE IF NOT EXISTS quorlock_fence ("
    GUARD: "sql\nINSERT INTO quorlock_fence ("
    MYSQL_GUARD: "sql\nUPDATE quorlock_fence SET"
    CREATE_SHARED_TABLE: "sql\nCREATE TABLE IF NOT EXISTS quorlock_fence_shared ("
    WRITE_GUARD: "sql\nINSERT INTO quorlock_fence_shared (resource, shown, written) VALUES ($1, $2, $2)"
    READ_GUARD: "sql\nINSERT INTO quorlock_fence_shared (resource, shown, written) VALUES ($1, $2, 0)"
    READ_CHECK: "sql\nSELECT 1 FROM quorlock_fence_shared"
    SCRIPT: "lua\n-- Numbers are exact"
    SHARED_SCRIPT: "lua\nlocal token = string.match(ARGV[2]"
}

/// What the page says of a statement that has written no row.
pub(super) fn written(rows: u64, token: FencingToken) -> Result<(), Stale> {
    if rows == 0 { Err(Stale::refused(token)) } else { Ok(()) }
}
