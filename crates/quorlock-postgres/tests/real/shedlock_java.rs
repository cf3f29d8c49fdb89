//! A client of `ShedLock` from Maven and our clients on one table of PostgreSQL.

use quorlock_postgres::PostgresKind;

use crate::support::{Server, server};

#[path = "../../../../tests/interop/shedlock.rs"]
mod shedlock;

/// Forwards connections from a port to the server's socket: their driver does not support Unix sockets.
async fn port(server: &Server) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let socket = server.folder().join(".s.PGSQL.5432");
    drop(tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            client.set_nodelay(true).unwrap();
            let socket = socket.clone();
            drop(tokio::spawn(async move {
                let mut server = tokio::net::UnixStream::connect(socket).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            }));
        }
    }));
    port
}

async fn run(theirs: &'static str) -> Option<shedlock::Outcome> {
    let (jars, server) = (shedlock::jars()?, server()?);
    let table = "CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, \
                 locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL)";
    server.client().await.batch_execute(table).await.unwrap();
    let jdbc =
        format!("jdbc:postgresql://127.0.0.1:{}/postgres?user=postgres&sslmode=disable", port(&server).await);
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
