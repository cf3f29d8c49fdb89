//! Two candidates, of whom one leads, and somebody who watches.
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
    // Each as a program of its own would.
    let election = || {
        // These servers were started just now, and for the first time: they have forgotten nothing.
        let builder = Coordinator::builder().nodes(servers.urls()).restart_guard(RestartGuard::Off);
        Ok::<Election, Box<dyn Error>>(builder.build()?.election("scheduler").ttl(Duration::from_secs(3)))
    };

    let mut observer = election()?.observe()?;
    assert_eq!(observer.changed().await, Observed::NoLeader);
    println!("The observer sees that nobody leads.");

    // What a leader announces is how the others reach it.
    let ann = election()?.campaign("http://10.0.0.7:8080").await?;
    println!("Ann leads. The observer sees {}.", leader(&observer.changed().await)?);

    let ben = election()?;
    let campaign = tokio::spawn(async move { ben.campaign("http://10.1.0.7:8080").await });
    println!("Ben campaigns, and waits.");

    ann.check()?; // right before each side effect
    let anns = ann.fencing_token();
    ann.resign().await?;
    let ben = campaign.await??;
    println!("Ann resigns, and Ben leads at once.");
    let mut seen = observer.changed().await;
    if seen == Observed::NoLeader {
        // Whether it sees the moment in between is a matter of luck.
        seen = observer.changed().await;
    }
    println!("The observer sees {}.", leader(&seen)?);
    assert!(ben.fencing_token() > anns, "what Ann still does must be older than what Ben does");
    println!("Ben's fencing token is larger, so nothing that Ann sent late is taken for newer.");

    // The loop that programs want: leads, is told when it is over, and campaigns again.
    ben.resign().await?;
    let planned = election()?.lead("http://10.2.0.7:8080", async |leadership| leadership.check()).await?;
    println!("Cid leads for as long as his work takes, which ended well: {}.", planned.is_ok());
    Ok(())
}

fn leader(seen: &Observed) -> Result<&str, Box<dyn Error>> {
    match seen {
        Observed::Leader(leader) => Ok(&leader.value),
        Observed::NoLeader => Err("nobody leads".into()),
        Observed::Unknown(report) => Err(format!("nobody knows who leads: {report}").into()),
    }
}
