//! The times of a CronJob's schedule.

use api::cron::{Field, Rule, parse};
use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp, Zoned};

/// Times that come again and again.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Schedule {
    rule: Rule,
    zone: TimeZone,
}

/// Finds a time zone in the database that is part of the program.
pub(super) fn zone(name: &str) -> Result<TimeZone, String> {
    if matches!(name, "" | "UTC") {
        return Ok(TimeZone::UTC);
    }
    TimeZone::get(name).map_err(|_| format!("unknown time zone {name}"))
}

impl Schedule {
    /// Reads a schedule; without a time zone in its text it is of `zone`.
    ///
    /// # Errors
    /// The parser's text.
    pub(super) fn parse(text: &str, zone: TimeZone) -> Result<Self, String> {
        let written = parse(text)?;
        let zone = match written.zone {
            Some(name) => self::zone(name).map_err(|why| format!("provided bad location {name}: {why}"))?,
            None => zone,
        };
        Ok(Self { rule: written.rule, zone })
    }

    /// Returns the first time after another one; `None` if there is none within five years.
    pub(super) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let whole = Timestamp::from_second(after.as_second()).ok()?;
        match &self.rule {
            Rule::Every(delay) => whole.checked_add(*delay).ok(),
            Rule::Fields([minute, hour, day, month, weekday]) => {
                let mut t = whole.checked_add(SignedDuration::from_secs(1)).ok()?.to_zoned(self.zone.clone());
                let last = t.year().checked_add(5)?;
                // Whole minutes alone are times of a schedule.
                if t.second() > 0 {
                    t = step(&t, SignedDuration::from_secs(60 - i64::from(t.second())))?;
                }
                while t.year() <= last {
                    if !month.has(t.month()) {
                        t = midnight(&t, Span::new().months(1), true)?;
                    } else if !day_fits(&t, *day, *weekday) {
                        t = midnight(&t, Span::new().days(1), false)?;
                    } else if !hour.has(t.hour()) {
                        // By the clock that runs on, so that no hour is left out or comes twice.
                        t = step(&t, SignedDuration::from_secs(60 * (60 - i64::from(t.minute()))))?;
                    } else if !minute.has(t.minute()) {
                        t = step(&t, SignedDuration::from_secs(60))?;
                    } else {
                        return Some(t.timestamp());
                    }
                }
                None
            }
        }
    }
}

fn step(t: &Zoned, by: SignedDuration) -> Option<Zoned> {
    t.checked_add(by).ok()
}

/// The beginning of a later day; where midnight does not exist, the first time after it.
fn midnight(t: &Zoned, after: Span, of_month: bool) -> Option<Zoned> {
    let date = if of_month { t.date().first_of_month() } else { t.date() };
    let date = date.checked_add(after).ok()?;
    date.to_datetime(Time::midnight()).to_zoned(t.time_zone().clone()).ok()
}

fn day_fits(t: &Zoned, day: Field, weekday: Field) -> bool {
    let (by_day, by_weekday) = (day.has(t.day()), weekday.has(t.weekday().to_sunday_zero_offset()));
    if day.any || weekday.any { by_day && by_weekday } else { by_day || by_weekday }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// robfig/cron's cases of `TestNext`, and those of its parser.
    #[test]
    fn next_times() {
        let check = |from: &str, text: &str, want: Option<&str>| {
            let schedule = Schedule::parse(text, TimeZone::UTC).unwrap();
            assert_eq!(schedule.next(at(from)), want.map(at), "{from} {text}");
        };
        check("2012-07-09T14:45:00Z", "0/15 * * * *", Some("2012-07-09T15:00:00Z"));
        check("2012-07-09T14:59:59Z", "0/15 * * * *", Some("2012-07-09T15:00:00Z"));
        check("2012-07-09T15:45:00Z", "20-35/15 * * * *", Some("2012-07-09T16:20:00Z"));
        check("2012-07-09T23:46:00Z", "*/15 * * * *", Some("2012-07-10T00:00:00Z"));
        check("2012-07-09T23:45:00Z", "20-35/15 * * * *", Some("2012-07-10T00:20:00Z"));
        check("2012-12-31T23:59:45Z", "* * * * *", Some("2013-01-01T00:00:00Z"));
        check("2012-07-09T23:35:00Z", "0 0 9 Apr-Oct ?", Some("2012-08-09T00:00:00Z"));
        check("2012-07-09T23:35:00Z", "0 0 */5 Apr,Aug,Oct Mon", Some("2012-08-01T00:00:00Z"));
        check("2012-07-09T23:35:00Z", "0 0 */5 Oct Mon", Some("2012-10-01T00:00:00Z"));
        check("2012-07-09T23:35:00Z", "0 0 * Feb Mon", Some("2013-02-04T00:00:00Z"));
        check("2012-07-09T23:35:00Z", "0 0 29 Feb ?", Some("2016-02-29T00:00:00Z"));
        check("2012-07-09T23:35:00Z", "0 0 30 Feb ?", None);
        check("2012-07-09T23:35:00Z", "0 0 31 Apr ?", None);
        check("2012-07-09T23:35:00Z", "0 0 13 * Fri", Some("2012-07-13T00:00:00Z"));
        check("2012-07-09T14:45:00.5Z", "@every 1h30m", Some("2012-07-09T16:15:00Z"));
        check("2012-07-09T14:45:00Z", "@every 0.1s", Some("2012-07-09T14:45:01Z"));
        check("2012-07-09T14:45:00Z", "@hourly", Some("2012-07-09T15:00:00Z"));
        check("2012-07-09T14:45:00Z", "@daily", Some("2012-07-10T00:00:00Z"));
        check("2012-07-09T14:45:00Z", "@weekly", Some("2012-07-15T00:00:00Z"));
        check("2012-07-09T14:45:00Z", "@monthly", Some("2012-08-01T00:00:00Z"));
        check("2012-07-09T14:45:00Z", "@yearly", Some("2013-01-01T00:00:00Z"));
        check("2012-07-09T14:45:00Z", "TZ=Asia/Tokyo 30 0 * * *", Some("2012-07-09T15:30:00Z"));
    }

    /// robfig/cron's cases of daylight saving time.
    #[test]
    fn clocks_that_are_set() {
        let check = |from: &str, name: &str, text: &str, want: &str| {
            let schedule = Schedule::parse(text, zone(name).unwrap()).unwrap();
            assert_eq!(schedule.next(at(from)), Some(at(want)), "{from} {text} {name}");
        };
        let york = "America/New_York";
        check("2012-03-11T00:00:00-05:00", york, "30 2 11 Mar ?", "2013-03-11T02:30:00-04:00");
        check("2012-03-11T00:00:00-05:00", york, "0 * * * ?", "2012-03-11T01:00:00-05:00");
        check("2012-03-11T01:00:00-05:00", york, "0 * * * ?", "2012-03-11T03:00:00-04:00");
        check("2012-03-11T00:00:00-05:00", york, "0 2 * * ?", "2012-03-12T02:00:00-04:00");
        check("2012-11-04T00:00:00-04:00", york, "0 * * * ?", "2012-11-04T01:00:00-04:00");
        check("2012-11-04T01:00:00-04:00", york, "0 * * * ?", "2012-11-04T01:00:00-05:00");
        check("2012-11-04T01:00:00-05:00", york, "0 * * * ?", "2012-11-04T02:00:00-05:00");
        check("2012-11-04T00:00:00-04:00", york, "30 2 04 Nov ?", "2012-11-04T02:30:00-05:00");
        check("2012-11-04T00:00:00-04:00", york, "0 2 * * ?", "2012-11-04T02:00:00-05:00");
        check("2018-11-03T05:00:00-03:00", "America/Sao_Paulo", "0 9 10 11 ?", "2018-11-10T09:00:00-02:00");
        check("2018-11-03T22:00:00-03:00", "America/Sao_Paulo", "0 0 * * ?", "2018-11-05T00:00:00-02:00");
    }

    #[test]
    fn what_is_refused() {
        let check = |text: &str, want: &str| {
            assert_eq!(Schedule::parse(text, TimeZone::UTC), Err(want.to_owned()), "{text}");
        };
        check("TZ=Nowhere/At 0 * * * *", "provided bad location Nowhere/At: unknown time zone Nowhere/At");
    }
}
