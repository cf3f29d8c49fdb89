//! Whether a process group has a member that still runs, asked by a process that may neither allocate nor wait for it.
//!
//! `killpg` counts zombies: processes that have ended, and with them their open files, and that their parent has not
//! reaped yet. Where process 1 does not reap, as in many containers, they stay for ever.

use nix::errno::Errno;
use nix::sys::signal::killpg;
use nix::unistd::Pid;

/// Whether it is certain that no member of the group runs. Allocates nothing.
pub(super) fn are_gone(group: Pid) -> bool {
    // A process that was being forked during one look is seen by the next.
    killpg(group, None) == Err(Errno::ESRCH) || (are_zombies(group) && are_zombies(group))
}

/// Whether all members of the group that there are have ended.
#[cfg(target_os = "linux")]
fn are_zombies(group: Pid) -> bool {
    use std::mem::MaybeUninit;

    use rustix::fs::{CWD, Mode, OFlags, RawDir, openat};

    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(processes) = openat(CWD, c"/proc", flags, Mode::empty()) else { return false };
    // Processes may be hidden from us (`hidepid`), first of all this one.
    if has_ended(&processes, c"1").is_none() {
        return false;
    }
    let mut room = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&processes, &mut room);
    let mut found = false;
    while let Some(entry) = entries.next() {
        let Ok(entry) = entry else { return false };
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
        let Some(number) = number.map(Pid::from_raw) else { continue };
        if nix::unistd::getpgid(Some(number)) != Ok(group) {
            continue;
        }
        found = true;
        // One that is gone by now may have had time to fork.
        if has_ended(&processes, entry.file_name()) != Some(true) {
            return false;
        }
    }
    found
}

#[cfg(not(target_os = "linux"))]
fn are_zombies(_group: Pid) -> bool {
    false
}

/// Whether all threads of a process have ended; `None` if that cannot be read.
#[cfg(target_os = "linux")]
fn has_ended(processes: &std::os::fd::OwnedFd, number: &std::ffi::CStr) -> Option<bool> {
    use rustix::fs::{Mode, OFlags, openat};

    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let folder = openat(processes, number, flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let file = openat(folder, c"stat", flags, Mode::empty()).ok()?;
    let mut text = [0; 1024];
    let length = nix::unistd::read(&file, &mut text).ok()?;
    parse(text.get(..length)?)
}

/// Parses `number (name) state …`, where the name may be of any bytes.
#[cfg(target_os = "linux")]
fn parse(text: &[u8]) -> Option<bool> {
    const THREADS: usize = 17;
    let end_of_name = text.iter().rposition(|byte| *byte == b')')?;
    let rest = str::from_utf8(text.get(end_of_name + 1..)?).ok()?;
    let mut words = rest.split_ascii_whitespace();
    let is_zombie = matches!(words.next()?, "Z" | "X");
    // The first thread may have ended before others.
    let threads: u32 = words.nth(THREADS - 1)?.parse().ok()?;
    Some(is_zombie && threads <= 1)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_ended_with_its_last_thread() {
        let stat = |state: char, threads: u32| {
            parse(format!("7 (a) b) {state} 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0 5\n").as_bytes())
        };
        assert_eq!(stat('S', 1), Some(false));
        assert_eq!(stat('Z', 1), Some(true));
        assert_eq!(stat('Z', 2), Some(false));
        assert_eq!(parse(b"7 (a"), None);
    }
}
