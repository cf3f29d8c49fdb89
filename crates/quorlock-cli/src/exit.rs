//! The exit codes: stable, for scripts.
//!
//! Those from `sysexits.h` keep their meaning there; those from 125 on are what `env`, `timeout`
//! and the shells use. None is 1 or 2, which commands use for themselves.

/// Success; for `run`, the command's own code.
pub(crate) const SUCCESS: u8 = 0;
/// Invalid arguments (`EX_USAGE`).
pub(crate) const USAGE: u8 = 64;
/// Too few nodes answered to tell whether the lock is free (`EX_UNAVAILABLE`).
pub(crate) const NO_QUORUM: u8 = 69;
/// Another client held the lock for the whole wait (`EX_TEMPFAIL`). `-E` changes it.
pub(crate) const HELD: u8 = 75;
/// The lock was lost while the command ran: it was stopped, or part of it may have run without the lock.
pub(crate) const LOST: u8 = 76;
/// Invalid configuration, or one that contradicts other clients' (`EX_CONFIG`).
pub(crate) const CONFIG: u8 = 78;
/// Something makes locks unsafe; for `doctor` only. The first code that `sysexits.h` leaves free.
pub(crate) const UNSAFE: u8 = 79;
/// Internal error.
pub(crate) const INTERNAL: u8 = 125;
/// The command exists but cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// Returns the code of a process killed by signal `number`, as shells report it: 128 + `number`.
pub(crate) fn by_signal(number: i32) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX - SIGNAL_BASE).saturating_add(SIGNAL_BASE)
}

const SIGNAL_BASE: u8 = 128;

/// The table in the help of `run`.
pub(crate) const TABLE: &str = "\
Exit codes:
  N      the command's own
  128+N  signal N ended the command, or quorlock while it waited
  75     another client held the lock for the whole wait (-E sets another code)
  69     no quorum: too few nodes answered
  76     the lock was lost while the command ran, or --max-hold was over, and the command was stopped
  64     invalid arguments
  78     invalid configuration, or the semaphore has another number of permits
  125    internal error of quorlock, or no process, thread or file was left for it
  126    the command is not executable
  127    the command was not found";

/// The table in the help of `doctor`.
pub(crate) const DOCTOR_TABLE: &str = "\
Exit codes:
  0      a quorum can be held, and nothing makes it unsafe
  69     no quorum: too few nodes vote
  79     something makes locks unsafe; with --strict also: there is a warning
  64     invalid arguments
  78     invalid configuration
  125    internal error of quorlock";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_every_exit_code() {
        for code in [USAGE, NO_QUORUM, HELD, LOST, CONFIG, INTERNAL, NOT_EXECUTABLE, NOT_FOUND] {
            assert!(TABLE.contains(&format!("\n  {code} ")), "{code} is missing");
        }
    }

    #[test]
    fn so_does_the_help_of_doctor() {
        for code in [SUCCESS, USAGE, NO_QUORUM, UNSAFE, CONFIG, INTERNAL] {
            assert!(DOCTOR_TABLE.contains(&format!("\n  {code} ")), "{code} is missing");
        }
    }

    #[test]
    fn a_signal_is_added_to_128() {
        assert_eq!(by_signal(15), 143);
        assert_eq!(by_signal(1000), 255, "an unheard-of signal still fails");
    }
}
