//! Schedules of CronJobs as robfig/cron's standard parser reads them, with its texts.

use jiff::SignedDuration;

use crate::{go, time};

/// The least and greatest value of a field, and the names of its values from the least on.
struct Bounds {
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const BOUNDS: [Bounds; 5] = [
    Bounds { min: 0, max: 59, names: &[] },
    Bounds { min: 0, max: 23, names: &[] },
    Bounds { min: 1, max: 31, names: &[] },
    Bounds {
        min: 1,
        max: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

/// The values of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// A bit for each value.
    values: u64,
    /// Whether the field says `*` or `?`.
    pub any: bool,
}

impl Field {
    /// Whether a value is one of the field's.
    pub fn has(self, value: i8) -> bool {
        u32::try_from(value).is_ok_and(|v| self.values & (1 << v) != 0)
    }
}

/// The times of a schedule.
#[derive(Debug, Clone, PartialEq)]
pub enum Rule {
    /// Times whose parts are values of fields: minute, hour, day of the month, month, weekday from Sunday on.
    Fields([Field; 5]),
    /// Times with a delay between, of whole seconds and one at least.
    Every(SignedDuration),
}

/// A schedule as it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Written<'t> {
    /// The name of the time zone before it, if there is one.
    pub zone: Option<&'t str>,
    /// Its times.
    pub rule: Rule,
}

/// Reads a schedule.
///
/// # Errors
/// The parser's text.
pub fn parse(text: &str) -> Result<Written<'_>, String> {
    if text.is_empty() {
        return Err("empty spec string".to_owned());
    }
    let (mut zone, mut rest) = (None, text);
    if let Some(named) = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
        let (name, schedule) = named.split_once(' ').ok_or(
            "invalid schedule format, panic recovered: runtime error: slice bounds out of range [:-1]",
        )?;
        (zone, rest) = (Some(name), schedule.trim());
    }
    let rule = if rest.starts_with('@') { descriptor(rest)? } else { fields(rest)? };
    Ok(Written { zone, rule })
}

fn fields(text: &str) -> Result<Rule, String> {
    let all: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = all[..] else {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", all.len(), all.join(" ")));
    };
    let [minutes, hours, days, months, weekdays] = &BOUNDS;
    Ok(Rule::Fields([
        field(minute, minutes)?,
        field(hour, hours)?,
        field(day, days)?,
        field(month, months)?,
        field(weekday, weekdays)?,
    ]))
}

fn descriptor(text: &str) -> Result<Rule, String> {
    fields(match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let delay =
                text.strip_prefix("@every ").ok_or_else(|| format!("unrecognized descriptor: {text}"))?;
            let time = time::parse_duration(delay).ok_or_else(|| {
                format!("failed to parse duration {text}: time: invalid duration {}", go::quote(delay))
            })?;
            return Ok(Rule::Every(SignedDuration::from_secs(time.as_secs().max(1))));
        }
    })
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
        Err(e) => Err(format!("failed to parse int from {text}: {}", go::no_integer("Atoi", text, &e))),
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

    /// robfig/cron's cases of its parser.
    #[test]
    fn schedules() {
        let check = |text: &str, expected: Result<(), &str>| {
            assert_eq!(parse(text).map(drop), expected.map_err(str::to_owned), "{text:?}");
        };
        check("*/5 0-23/2 1,15 jan-Mar MON", Ok(()));
        check("@hourly", Ok(()));
        check("@every 1h30m", Ok(()));
        check("TZ=UTC 0 * * * *", Ok(()));
        check("", Err("empty spec string"));
        check("TZ=UTC ", Err("expected exactly 5 fields, found 0: []"));
        check("x", Err("expected exactly 5 fields, found 1: [x]"));
        check("* * * * * *", Err("expected exactly 5 fields, found 6: [* * * * * *]"));
        check("@x", Err("unrecognized descriptor: @x"));
        check("@every x", Err("failed to parse duration @every x: time: invalid duration \"x\""));
        check("60 * * * *", Err("end of range (60) above maximum (59): 60"));
        check("* * 0 * *", Err("beginning of range (0) below minimum (1): 0"));
        check("5-1 * * * *", Err("beginning of range (5) beyond end of range (1): 5-1"));
        check("*/0 * * * *", Err("step of range should be a positive number: */0"));
        check("-1 * * * *", Err("failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"));
        check("1-2-3 * * * *", Err("too many hyphens: 1-2-3"));
        check("1/2/3 * * * *", Err("too many slashes: 1/2/3"));
        check("a * * * *", Err("failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"));
        check(
            "TZ=UTC",
            Err("invalid schedule format, panic recovered: runtime error: slice bounds out of range [:-1]"),
        );
    }

    #[test]
    fn delays() {
        let check = |text: &str, seconds: i64| {
            let every = Rule::Every(SignedDuration::from_secs(seconds));
            assert_eq!(parse(text).unwrap(), Written { zone: None, rule: every }, "{text}");
        };
        check("@every 1h30m", 5400);
        check("@every 1.9s", 1);
        check("@every 0.1s", 1);
        check("@every -5s", 1);
    }
}
