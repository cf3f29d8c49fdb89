//! Checks whether all connections to an address lead to the same server, without a proxy in between.

use std::sync::Arc;

use futures::future::join_all;
use redis::{Pipeline, Value};

use super::InspectSession;
use crate::address::Address;
use crate::node::NodeError;
use crate::node::facts::Facts;
use crate::redis::connection::{Connection, text};
use crate::redis::handshake::Connector;
use crate::redis::info::{Info, facts_in};
use crate::redis::settings::Settings;
use crate::runtime::within;

/// The number of additional connections, all open at the same time: a load balancer, by round robin or by the
/// number of connections, distributes them over several servers.
const CONNECTIONS: usize = 3;

/// Opens additional connections and reads the server process of each. Ends one of them by its ID over the
/// session.
pub(super) async fn ask(
    session: &mut InspectSession,
    address: &Address,
    settings: &Settings,
    facts: &mut Facts,
) -> Result<(), NodeError> {
    let all = join_all((0..CONNECTIONS).map(|_| meet(address, settings)));
    let limit = settings.connect_timeout.step().min(session.end.since(settings.clock.now()));
    // A server without room for more connections proves nothing.
    let Some(neighbours) = within(&*settings.clock, limit, all).await else { return Ok(()) };
    let neighbours: Vec<_> = neighbours.into_iter().flatten().collect();
    for neighbour in &neighbours {
        let known = facts.others.iter().chain(&facts.identity).any(|known| *known == neighbour.process);
        if !known {
            facts.others.push(neighbour.process.clone());
        }
    }
    // They stay open until one of them was ended.
    let number = neighbours.iter().find_map(|neighbour| neighbour.connection.client);
    if let Some(number) = number
        && let Value::Int(ended) = session.ask(&["CLIENT", "KILL", "ID", &number.to_string()]).await?
    {
        facts.finds_connections = Some(ended > 0);
    }
    drop(neighbours);
    Ok(())
}

struct Neighbour {
    connection: Connection,
    process: Arc<str>,
}

async fn meet(address: &Address, settings: &Settings) -> Option<Neighbour> {
    let mut connector = Connector::new(address.clone(), settings.clone(), Arc::default());
    let (mut connection, _) = connector.greet().await.ok()?;
    let mut request = Pipeline::with_capacity(1);
    request.cmd("INFO");
    let info = connection.exchange(&request).await.ok()?.pop().and_then(text)?;
    Some(Neighbour { connection, process: facts_in(&Info::of(&info)).identity? })
}
