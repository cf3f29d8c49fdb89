//! Leaves nothing behind.

use futures::future::join_all;

use crate::config::Settings;

/// Deletes the counters of fencing tokens of the locks with these names, which nobody but this
/// program has used. Anybody else's must never go: the next number would be too small.
///
/// They would end by themselves five minutes later. At nodes that do not answer now, they do.
pub(super) async fn remove_counters<'a>(settings: &Settings, names: impl Iterator<Item = &'a str>) {
    let Ok(coordinator) = settings.builder().and_then(|builder| Ok(builder.build()?)) else { return };
    let forgotten = names.map(async |name| drop(coordinator.lock(name).delete_fencing_counter().await));
    join_all(forgotten).await;
    coordinator.close(Settings::patience(&coordinator)).await;
}
