//! The times at which a CronJob makes Jobs, as far as they were missed: pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::CronJob;

use super::schedule::Schedule;

/// The time that is added to the wait for the next time: clocks differ.
const PADDING: Duration = Duration::from_millis(100);
/// The number of missed times from which people are told that the schedule or a clock may be wrong.
const MANY: i64 = 100;

/// The times that were missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missed {
    None,
    Few,
    Many,
}

/// The state of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Recent {
    /// The time after which Jobs are due.
    pub(super) earliest: Timestamp,
    /// The last time until now at which a Job was due.
    pub(super) last: Option<Timestamp>,
    pub(super) missed: Missed,
}

/// Finds the last time at which a Job was due. Times that are too old for the deadline do not count, if `deadline` says
/// so.
///
/// # Errors
/// The schedule has no times, as that of 31 February.
pub(super) fn recent(
    cron: &CronJob,
    now: Timestamp,
    schedule: &Schedule,
    deadline: bool,
) -> Result<Recent, String> {
    let none = || "time difference between two schedules is less than 1 second".to_owned();
    let created = cron.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0);
    let mut earliest =
        cron.status.as_ref().and_then(|s| s.last_schedule_time.as_ref()).map_or(created, |t| t.0);
    let limit = cron.spec.starting_deadline_seconds.filter(|_| deadline);
    if let Some(limit) = limit {
        let oldest = now.checked_sub(SignedDuration::from_secs(limit)).unwrap_or(Timestamp::MIN);
        earliest = earliest.max(oldest);
    }
    let first = schedule.next(earliest).ok_or_else(none)?;
    if now < first {
        return Ok(Recent { earliest, last: None, missed: Missed::None });
    }
    let second = schedule.next(first).ok_or_else(none)?;
    if now < second {
        return Ok(Recent { earliest, last: Some(first), missed: Missed::None });
    }
    // The number is a rough one: it takes all times to be as far from each other as the first two.
    let between = second.duration_since(first).as_secs();
    if between < 1 {
        return Err(none());
    }
    let count = now.duration_since(first).as_secs() / between + 1;
    let near = SignedDuration::from_secs((count - 2).saturating_mul(between));
    let near = first.checked_add(near).map_err(|_| none())?;
    let mut last = None;
    let mut next = schedule.next(near);
    while let Some(time) = next.filter(|t| *t <= now) {
        last = Some(time);
        next = schedule.next(time);
    }
    let missed = if count > MANY { Missed::Many } else { Missed::Few };
    Ok(Recent { earliest, last, missed })
}

/// Returns the time until a Job is due next; `None` if that is never.
pub(super) fn until_next(cron: &CronJob, now: Timestamp, schedule: &Schedule) -> Option<Duration> {
    let from = match recent(cron, now, schedule, false) {
        Err(_) => now,
        Ok(Recent { last: Some(last), .. }) => last,
        Ok(Recent { earliest, missed: Missed::None, .. }) => earliest,
        Ok(_) => now,
    };
    let left = schedule.next(from)?.duration_since(now);
    Some(Duration::try_from(left).unwrap_or_default() + PADDING)
}
