//! Two candidates, one of which leads, and an observer.
//!
//! ```sh
//! cargo run --example leader_election
//! ```

use std::error::Error;
use std::time::Duration;

use quorlock::{Coordinator, Election, RestartGuard, election::Observed};
use quorlock_testkit::Servers;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    quorlock_testkit::serve_if_asked();
    let servers = Servers::start(5).await?;
    println!("Lock servers: {servers}");
    // In practice each is a separate program.
    let election = || {
        // Safe only for servers that have just started for the first time.
        let builder = Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off);
        Ok::<Election, Box<dyn Error>>(builder.build()?.election("scheduler").ttl(Duration::from_secs(3)))
    };

    let mut observer = election()?.observe()?;
    assert_eq!(observer.changed().await, Observed::NoLeader);
    println!("The observer sees that there is no leader.");

    // A leader announces the address at which others reach it.
    let ann = election()?.campaign("http://10.0.0.7:8080").await?;
    println!("Ann leads. The observer sees {}.", leader(&observer.changed().await)?);

    let ben = election()?;
    let campaign = tokio::spawn(async move { ben.campaign("http://10.1.0.7:8080").await });
    println!("Ben campaigns, and waits.");

    ann.check()?; // right before each side effect
    let anns = ann.fencing_token();
    ann.resign().await?;
    let ben = campaign.await??;
    println!("Ann resigns, and Ben leads immediately.");
    let mut seen = observer.changed().await;
    if seen == Observed::NoLeader {
        // The observer may or may not see the moment without a leader.
        seen = observer.changed().await;
    }
    println!("The observer sees {}.", leader(&seen)?);
    assert!(ben.fencing_token() > anns, "Ann's token must be smaller than Ben's");
    println!("Ben's fencing token is larger, so late writes of Ann can be rejected.");

    // The usual loop: leads, learns when leadership is lost, and campaigns again.
    ben.resign().await?;
    let planned = election()?.lead("http://10.2.0.7:8080", async |leadership| leadership.check()).await?;
    println!("Cid leads until his work ends, successfully: {}.", planned.is_ok());
    Ok(())
}

fn leader(seen: &Observed) -> Result<&str, Box<dyn Error>> {
    match seen {
        Observed::Leader(leader) => Ok(&leader.value),
        Observed::NoLeader => Err("nobody leads".into()),
        Observed::Unknown(report) => Err(format!("the leader is unknown: {report}").into()),
    }
}
