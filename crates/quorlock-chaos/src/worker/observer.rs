//! Observes an election and records its leaders.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use quorlock::{
    election::Observed,
    runtime::{Clock as _, SystemClock},
};
use quorlock_history::What;

use super::Worker;
use crate::record::stamp;

/// How often it checks whether the worker is stopping.
const LOOKS_EVERY: Duration = Duration::from_millis(50);

/// Observes an election until the worker stops.
pub(super) async fn observe(worker: Arc<Worker>, election: String) -> io::Result<()> {
    let clock = SystemClock::default();
    let mut observer = worker.coordinator.election(&election).observe().map_err(io::Error::other)?;
    // A round in flight when its caller gives up continues, and its result goes to the next call.
    let mut asked = stamp();
    while !worker.is_stopping() {
        tokio::select! {
            biased;
            news = observer.changed() => {
                if let Observed::Leader(leader) = news {
                    worker.recorder.record(What::Observed {
                        client: worker.orders.name.as_str().into(),
                        resource: election.as_str().into(),
                        leader: leader.value.as_str().into(),
                        fencing_token: leader.fencing_token.map(u64::from),
                        asked,
                    });
                }
                asked = stamp();
            }
            () = clock.sleep_until(clock.now() + LOOKS_EVERY) => {}
        }
    }
    Ok(())
}
