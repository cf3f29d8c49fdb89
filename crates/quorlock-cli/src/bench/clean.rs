//! Cleans up after a measurement.

use futures::future::join_all;

use crate::config::Settings;

/// Deletes the fencing counters of the locks with these names, which only this run has used. Counters of other locks
/// must never be deleted: the next token would be too small.
///
/// On nodes that do not answer now they expire five minutes later.
pub(super) async fn remove_counters<'a>(settings: &Settings, names: impl Iterator<Item = &'a str>) {
    let Ok(coordinator) = settings.builder().and_then(|builder| Ok(builder.build()?)) else { return };
    let forgotten = names.map(async |name| drop(coordinator.lock(name).delete_fencing_counter().await));
    join_all(forgotten).await;
    coordinator.close(Settings::patience(&coordinator)).await;
}
