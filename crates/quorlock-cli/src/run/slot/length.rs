//! How long a slot lasts.

use std::env;
use std::path::Path;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, civil::DateTime};
use quorlock::protocol::printable;

use crate::failure::Failure;

/// The length of a slot.
#[derive(Debug)]
pub(crate) enum Length {
    /// This long from the start of the run.
    FromStart(Duration),
    /// To the next multiple of this since 1970, by the clock of this host. Less than a day.
    OfHours(Duration),
    /// The same from a day on, by the local time of this zone, as cron's jobs are: a day is 23 or 25 hours long when the
    /// clocks change.
    OfDays(Duration, TimeZone),
}

const DAY: Duration = Duration::from_secs(24 * 3600);

impl Length {
    /// Returns what was asked for: at most one of the two.
    pub(crate) fn of(
        at_least: Option<Duration>,
        once_per: Option<Duration>,
    ) -> Result<Option<Length>, Failure> {
        if once_per == Some(Duration::ZERO) {
            return Err(Failure::Usage(
                "a slot of no length has no run: give --once-per 1h or more".to_owned(),
            ));
        }
        if once_per.is_some_and(|length| length > DAY && length.as_nanos() % DAY.as_nanos() != 0) {
            return Err(Failure::Usage(
                "a slot of a day or more follows the calendar, and must be whole days, such as --once-per 28days: a month \
                 and a year have no fixed length, so for one run in each give --at-least 27days or 364days"
                    .to_owned(),
            ));
        }
        Ok(match once_per {
            Some(length) if length < DAY => Some(Length::OfHours(length)),
            Some(length) => Some(Length::OfDays(length, local_zone()?)),
            None => at_least.filter(|length| !length.is_zero()).map(Length::FromStart),
        })
    }

    /// Returns the longest that a lock stays taken for it.
    pub(crate) fn longest(&self) -> Duration {
        match self {
            Length::FromStart(length) | Length::OfHours(length) | Length::OfDays(length, _) => *length,
        }
    }

    /// Returns how long after its start a run that starts at `wall`, since 1970, still has the slot.
    pub(super) fn from(&self, wall: Duration) -> Duration {
        match self {
            Length::FromStart(length) => *length,
            Length::OfHours(length) => to_next(*length, wall),
            // A time that no calendar has is no time to start a job.
            Length::OfDays(length, zone) => {
                to_next_of_days(*length, wall, zone).unwrap_or_else(|| to_next(*length, wall))
            }
        }
    }
}

/// Returns the zone that TZ names, or that of the host. With neither it is UTC, as for cron; but a host that does not know
/// the zone of TZ would end its slots at other times than those that do, and run the job again.
fn local_zone() -> Result<TimeZone, Failure> {
    match (TimeZone::try_system(), env::var_os("TZ")) {
        (Ok(zone), _) => Ok(zone),
        (Err(_), None) => zone_without_file(Path::new("/etc/localtime")),
        (Err(_), Some(name)) => Err(Failure::Config(format!(
            "a slot of days ends by the local calendar, but the time zone `{}` of TZ is not known here: correct it, or \
             install the time zones (package tzdata)",
            printable(&name.to_string_lossy())
        ))),
    }
}

/// Returns the zone of a host whose file `localtime` cannot be read: UTC if it has none, or a link to the file of that.
fn zone_without_file(localtime: &Path) -> Result<TimeZone, Failure> {
    if localtime.symlink_metadata().is_err() {
        return Ok(TimeZone::UTC);
    }
    let zone = localtime.read_link().unwrap_or_else(|_| localtime.to_owned());
    if zone.ends_with("UTC") {
        return Ok(TimeZone::UTC);
    }
    Err(Failure::Config(format!(
        "a slot of days ends by the local calendar, but the time zone of {}, `{}`, is not known here: install the time \
         zones (package tzdata), or set TZ",
        localtime.display(),
        printable(&zone.to_string_lossy())
    )))
}

/// The time from `since`, after 1970, to the next multiple of `length`.
fn to_next(length: Duration, since: Duration) -> Duration {
    let past = since.as_nanos().checked_rem(length.as_nanos()).unwrap_or_default();
    let left = length.as_nanos().saturating_sub(past);
    left.try_into().map_or(length, Duration::from_nanos)
}

/// The same by the calendar of `zone`; `None` beyond the year 9999.
fn to_next_of_days(length: Duration, wall: Duration, zone: &TimeZone) -> Option<Duration> {
    let now = Timestamp::from_duration(SignedDuration::try_from(wall).ok()?).ok()?;
    let local = now.to_zoned(zone.clone()).datetime();
    let since = Duration::try_from(local.duration_since(DateTime::constant(1970, 1, 1, 0, 0, 0, 0))).ok()?;
    let end = local.checked_add(to_next(length, since)).ok()?;
    // Midnight is skipped in some zones, and comes twice in others: then the first time, unless that is over.
    let ends = zone.to_ambiguous_zoned(end);
    let first = ends.clone().compatible().ok()?.timestamp();
    let end = if first > now { first } else { ends.later().ok()?.timestamp() };
    Duration::try_from(end.duration_since(now)).ok()
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan as _;
    use jiff::civil::{Time, date, time};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_slot_of_the_calendar_ends_at_the_next_multiple() {
        // 2026-01-31 03:00:00 UTC.
        let three = Duration::from_secs(1_769_828_400);
        let hour = Length::OfHours(HOUR);
        assert_eq!(hour.from(three), HOUR, "the first moment of a slot has all of it");
        assert_eq!(hour.from(three + HOUR / 4), HOUR * 3 / 4);
        assert_eq!(hour.from(three + HOUR.mul_f64(0.5)), HOUR / 2);
        assert_eq!(Length::OfDays(DAY, TimeZone::UTC).from(three), HOUR * 21, "to midnight UTC");
        let tokyo = TimeZone::posix("JST-9").unwrap();
        assert_eq!(Length::OfDays(DAY, tokyo).from(three), HOUR * 12, "to midnight there");
    }

    #[test]
    fn a_daily_job_of_local_time_runs_each_day_of_the_year() {
        for zone in [
            "CET-1CEST,M3.5.0,M10.5.0/3",
            "EST5EDT,M3.2.0,M11.1.0",
            "GMT0BST,M3.5.0/1,M10.5.0",
            "AEST-10AEDT,M10.1.0,M4.1.0/3",
            // Havana, where midnight is skipped, and comes twice.
            "CST5CDT,M3.2.0/0,M11.1.0/1",
        ] {
            let zone = TimeZone::posix(zone).unwrap();
            for at in [
                time(0, 10, 0, 0),
                time(1, 30, 0, 0),
                time(2, 30, 0, 0),
                time(10, 0, 0, 0),
                time(23, 50, 0, 0),
            ] {
                assert_eq!(runs(&zone, at), 365, "at {at} in {zone:?}");
            }
        }
    }

    /// Counts the runs of a job that starts each day of a year at this time, and five minutes later on another host.
    fn runs(zone: &TimeZone, at: Time) -> usize {
        let (mut runs, mut taken_until) = (0, Timestamp::MIN);
        let length = Length::OfDays(DAY, zone.clone());
        for day in date(2026, 1, 1).series(1.day()).take(365) {
            let start = zone.to_zoned(day.to_datetime(at)).unwrap().timestamp();
            for start in [start, start + HOUR / 12] {
                if start >= taken_until {
                    let left = length.from(start.as_duration().unsigned_abs());
                    assert!(left > Duration::ZERO && left <= HOUR * 25, "{left:?} after {start}");
                    taken_until = start + left;
                    runs += 1;
                }
            }
        }
        runs
    }

    #[test]
    fn a_slot_from_the_start_has_its_whole_length() {
        assert_eq!(Length::FromStart(HOUR).from(Duration::from_secs(17)), HOUR);
    }

    #[test]
    fn a_host_whose_zone_is_not_there_is_not_in_utc() {
        let folder = tempfile::tempdir().unwrap();
        let localtime = folder.path().join("localtime");
        assert_eq!(zone_without_file(&localtime).unwrap(), TimeZone::UTC, "it has none");
        std::os::unix::fs::symlink("../usr/share/zoneinfo/Etc/UTC", &localtime).unwrap();
        assert_eq!(zone_without_file(&localtime).unwrap(), TimeZone::UTC);
        std::fs::remove_file(&localtime).unwrap();
        std::os::unix::fs::symlink("/usr/share/zoneinfo/Asia/Tokyo", &localtime).unwrap();
        let refused = zone_without_file(&localtime).unwrap_err();
        assert!(format!("{refused:?}").contains("Asia/Tokyo"), "{refused:?}");
        std::fs::remove_file(&localtime).unwrap();
        std::fs::write(&localtime, "no zone").unwrap();
        zone_without_file(&localtime).unwrap_err();
    }

    #[test]
    fn a_slot_of_no_length_is_refused() {
        assert!(Length::of(None, Some(Duration::ZERO)).is_err());
        assert!(Length::of(None, Some(DAY + HOUR)).is_err(), "nor of one that is no slot of the calendar");
        assert!(matches!(Length::of(None, Some(DAY * 7)), Ok(Some(Length::OfDays(..)))));
        assert!(matches!(Length::of(Some(HOUR), None), Ok(Some(Length::FromStart(_)))));
        assert!(matches!(Length::of(None, None), Ok(None)));
        assert!(matches!(Length::of(Some(Duration::ZERO), None), Ok(None)), "nothing stays taken");
        assert!(
            matches!(Length::of(None, Some(HOUR * 12)), Ok(Some(Length::OfHours(_)))),
            "hours are those of UTC"
        );
    }
}
