//! A client of `ShedLock` from Maven and our clients on one table of PostgreSQL.

use quorlock_postgres::PostgresKind;

use crate::support::server;

#[path = "../../../../tests/interop/shedlock.rs"]
mod shedlock;

async fn run(theirs: &'static str) -> Option<shedlock::Outcome> {
    let (jars, server) = (shedlock::jars()?, server()?);
    let table = "CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, \
                 locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL)";
    server.client().await.batch_execute(table).await.unwrap();
    let (address, password) = (server.address(), server.engine().password());
    let jdbc =
        format!("jdbc:postgresql://{address}/postgres?user=postgres&password={password}&sslmode=disable");
    Some(shedlock::run(jars, PostgresKind::new(), &server.url("&layout=shedlock"), &jdbc, theirs).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_increment_of_2000_is_lost_beside_a_shedlock_client() {
    let Some(outcome) = run("locked").await else { return };
    shedlock::none_lost(&outcome);
}

#[tokio::test(flavor = "multi_thread")]
async fn increments_are_lost_if_their_side_does_not_lock() {
    let Some(outcome) = run("unlocked").await else { return };
    shedlock::is_wrong(&outcome);
}
