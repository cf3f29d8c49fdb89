//! Processes that this process adopted because their parents have ended.

use nix::unistd::Pid;

/// Makes this process the subreaper of what the command leaves behind, in place of process 1: so it is reaped
/// also where process 1 does not reap, as in many containers, and we can see whether any process is left.
#[cfg(target_os = "linux")]
pub(super) fn adopt() {
    if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
        tracing::debug!(%error, "orphaned processes are not adopted");
    }
}

/// Elsewhere process 1 adopts them.
#[cfg(not(target_os = "linux"))]
pub(super) fn adopt() {}

/// Returns all children of this process; none where there is no `/proc`.
pub(super) fn children() -> Vec<Pid> {
    let folders = std::fs::read_dir("/proc").into_iter().flatten();
    let numbers = folders.filter_map(|folder| folder.ok()?.file_name().into_string().ok()?.parse().ok());
    numbers.filter(|number| parent_of(*number) == Some(Pid::this())).map(Pid::from_raw).collect()
}

fn parent_of(number: i32) -> Option<Pid> {
    let stat = std::fs::read(format!("/proc/{number}/stat")).ok()?;
    // `number (name) state parent …`, where the name may be of any bytes.
    let end_of_name = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end_of_name + 1..)?).ok()?;
    rest.split_whitespace().nth(1)?.parse().ok().map(Pid::from_raw)
}
