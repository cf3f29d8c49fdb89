//! Those processes that became ours because their parents have ended.

use nix::unistd::Pid;

/// Has the kernel give us, and not the first process of the machine, what the command leaves behind.
/// So it is reaped also where that first process does not do so, as in many a container, and we can
/// see whether any is left.
#[cfg(target_os = "linux")]
pub(super) fn adopt() {
    if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
        tracing::debug!(%error, "what outlives its parent is not reaped here");
    }
}

/// Elsewhere the first process has them.
#[cfg(not(target_os = "linux"))]
pub(super) fn adopt() {}

/// All children of this process, as far as the system tells.
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
