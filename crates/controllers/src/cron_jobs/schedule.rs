//! The schedule of a CronJob, as robfig/cron's standard parser takes it.

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp, Zoned};

/// The least and greatest value of a field, and the names of its values from the least on.
struct Bounds {
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const MINUTES: Bounds = Bounds { min: 0, max: 59, names: &[] };
const HOURS: Bounds = Bounds { min: 0, max: 23, names: &[] };
const DAYS: Bounds = Bounds { min: 1, max: 31, names: &[] };
const MONTHS: Bounds = Bounds {
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAYS: Bounds = Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// The values of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field {
    /// A bit for each value.
    values: u64,
    /// Whether the field says `*` or `?`.
    any: bool,
}

impl Field {
    fn has(self, value: i8) -> bool {
        u32::try_from(value).is_ok_and(|v| self.values & (1 << v) != 0)
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Rule {
    /// Times whose parts are values of fields.
    Fields { minute: Field, hour: Field, day: Field, month: Field, weekday: Field },
    /// Times with a delay between.
    Every(SignedDuration),
}

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
        let (mut rest, mut zone) = (text, zone);
        if let Some(named) = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
            let (name, schedule) = named.split_once(' ').ok_or("invalid schedule format")?;
            zone = self::zone(name).map_err(|why| format!("provided bad location {name}: {why}"))?;
            rest = schedule.trim();
        }
        if rest.is_empty() {
            return Err("empty spec string".to_owned());
        }
        let rule = if rest.starts_with('@') { descriptor(rest)? } else { fields(rest)? };
        Ok(Self { rule, zone })
    }

    /// Returns the first time after another one; `None` if there is none within five years.
    pub(super) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let whole = Timestamp::from_second(after.as_second()).ok()?;
        match &self.rule {
            Rule::Every(delay) => whole.checked_add(*delay).ok(),
            Rule::Fields { minute, hour, day, month, weekday } => {
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

fn fields(text: &str) -> Result<Rule, String> {
    let all: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = all[..] else {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", all.len(), all.join(" ")));
    };
    Ok(Rule::Fields {
        minute: field(minute, &MINUTES)?,
        hour: field(hour, &HOURS)?,
        day: field(day, &DAYS)?,
        month: field(month, &MONTHS)?,
        weekday: field(weekday, &WEEKDAYS)?,
    })
}

fn descriptor(text: &str) -> Result<Rule, String> {
    let written = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let Some(delay) = text.strip_prefix("@every ") else {
                return Err(format!("unrecognized descriptor: {text}"));
            };
            let seconds = seconds(delay).ok_or_else(|| {
                format!("failed to parse duration {text}: time: invalid duration {}", api::go::quote(delay))
            })?;
            return Ok(Rule::Every(SignedDuration::from_secs(seconds.max(1))));
        }
    };
    fields(written)
}

/// Reads a duration as Go writes it, in whole seconds.
fn seconds(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.as_bytes().first()? {
        b'-' => (-1.0, text.get(1..)?),
        b'+' => (1.0, text.get(1..)?),
        _ => (1.0, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut sum = 0.0;
    while !rest.is_empty() {
        let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number: f64 = rest.get(..rest.len() - unit.len())?.parse().ok()?;
        const UNITS: [(&str, f64); 8] = [
            ("ns", 1e-9),
            ("us", 1e-6),
            ("µs", 1e-6),
            ("μs", 1e-6),
            ("ms", 1e-3),
            ("s", 1.0),
            ("m", 60.0),
            ("h", 3600.0),
        ];
        let (name, factor) = UNITS.iter().find(|(name, _)| unit.starts_with(name))?;
        sum += number * factor;
        rest = unit.get(name.len()..)?;
    }
    // Go's longest duration, about 292 years.
    (sum < 9.2e9).then_some((sign * sum + 1e-9) as i64)
}

fn field(text: &str, bounds: &Bounds) -> Result<Field, String> {
    let mut all = Field { values: 0, any: false };
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let Field { values, any } = range(part, bounds)?;
        all = Field { values: all.values | values, any: all.any || any };
    }
    Ok(all)
}

fn number(text: &str) -> Result<u32, String> {
    match text.parse::<i64>() {
        Ok(n) if n < 0 => Err(format!("negative number ({n}) not allowed: {text}")),
        // A greater number is beyond every range.
        Ok(n) => Ok(u32::try_from(n).unwrap_or(u32::MAX)),
        Err(e) => Err(format!("failed to parse int from {text}: {}", api::go::no_integer("Atoi", text, &e))),
    }
}

fn value(text: &str, bounds: &Bounds) -> Result<u32, String> {
    match bounds.names.iter().position(|n| n.eq_ignore_ascii_case(text)) {
        Some(i) => Ok(bounds.min + u32::try_from(i).unwrap_or(0)),
        None => number(text),
    }
}

fn range(part: &str, b: &Bounds) -> Result<Field, String> {
    let steps: Vec<&str> = part.split('/').collect();
    let ends: Vec<&str> = steps.first().copied().unwrap_or_default().split('-').collect();
    let mut any = false;
    let (start, mut end) = match ends[..] {
        ["*" | "?", ..] => {
            any = true;
            (b.min, b.max)
        }
        [one] => {
            let n = value(one, b)?;
            (n, n)
        }
        [low, high] => (value(low, b)?, value(high, b)?),
        _ => return Err(format!("too many hyphens: {part}")),
    };
    let step = match steps[..] {
        [_] => 1,
        [_, step] => {
            let step = number(step)?;
            if ends.len() == 1 {
                end = b.max;
            }
            // Only every value of a field counts as any.
            any &= step <= 1;
            step
        }
        _ => return Err(format!("too many slashes: {part}")),
    };
    if start < b.min {
        return Err(format!("beginning of range ({start}) below minimum ({}): {part}", b.min));
    }
    if end > b.max {
        return Err(format!("end of range ({end}) above maximum ({}): {part}", b.max));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {part}"));
    }
    let step = usize::try_from(step).ok().filter(|s| *s > 0);
    let step = step.ok_or_else(|| format!("step of range should be a positive number: {part}"))?;
    let values = (start..=end).step_by(step).fold(0, |all, v| all | 1 << v);
    Ok(Field { values, any })
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
        check("", "empty spec string");
        check("x", "expected exactly 5 fields, found 1: [x]");
        check("* * * * * *", "expected exactly 5 fields, found 6: [* * * * * *]");
        check("@x", "unrecognized descriptor: @x");
        check("@every x", "failed to parse duration @every x: time: invalid duration \"x\"");
        check("60 * * * *", "end of range (60) above maximum (59): 60");
        check("* * 0 * *", "beginning of range (0) below minimum (1): 0");
        check("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1");
        check("*/0 * * * *", "step of range should be a positive number: */0");
        check("-1 * * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax");
        check("1-2-3 * * * *", "too many hyphens: 1-2-3");
        check("1/2/3 * * * *", "too many slashes: 1/2/3");
        check("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax");
        check("TZ=Nowhere/At 0 * * * *", "provided bad location Nowhere/At: unknown time zone Nowhere/At");
    }
}
