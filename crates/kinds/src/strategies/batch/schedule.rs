//! The form of a CronJob's schedule, with the texts of the parser that upstream uses.

/// The least and greatest value of a field, and the names of its values from the least on.
struct Bounds {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const FIELDS: [Bounds; 5] = [
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

/// Checks a schedule; the error tells what is wrong.
pub(crate) fn check(text: &str) -> Result<(), String> {
    let mut rest = text;
    if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
        let Some((_, schedule)) = text.split_once(' ') else {
            return Err(
                "invalid schedule format, panic recovered: runtime error: slice bounds out of range [:-1]"
                    .into(),
            );
        };
        rest = schedule.trim();
    }
    if rest.is_empty() && text.is_empty() {
        return Err("empty spec string".into());
    }
    if rest.starts_with('@') {
        return descriptor(rest);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    for (field, bounds) in fields.iter().zip(&FIELDS) {
        for part in field.split(',').filter(|p| !p.is_empty()) {
            range(part, bounds)?;
        }
    }
    Ok(())
}

fn descriptor(text: &str) -> Result<(), String> {
    match text {
        "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
        _ => match text.strip_prefix("@every ") {
            Some(d) if is_duration(d) => Ok(()),
            Some(d) => Err(format!("failed to parse duration {text}: time: invalid duration {d:?}")),
            None => Err(format!("unrecognized descriptor: {text}")),
        },
    }
}

/// Whether Go reads the text as a duration: numbers with units, or 0.
fn is_duration(text: &str) -> bool {
    let mut rest = text.trim_start_matches(['-', '+']);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() || text.len() - rest.len() > 1 {
        return false;
    }
    while !rest.is_empty() {
        let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = &rest[..rest.len() - unit.len()];
        if !number.bytes().any(|b| b.is_ascii_digit()) || number.matches('.').count() > 1 {
            return false;
        }
        let Some(end) = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"]
            .iter()
            .find(|u| unit.starts_with(**u))
            .map(|u| u.len())
        else {
            return false;
        };
        rest = &unit[end..];
    }
    true
}

fn number(text: &str) -> Result<u64, String> {
    match text.parse::<i64>() {
        Ok(n) => u64::try_from(n).map_err(|_| format!("negative number ({n}) not allowed: {text}")),
        Err(e) => Err(format!("failed to parse int from {text}: {}", api::go::no_integer("Atoi", text, &e))),
    }
}

fn value(text: &str, b: &Bounds) -> Result<u64, String> {
    match b.names.iter().position(|n| n.eq_ignore_ascii_case(text)) {
        Some(i) => Ok(b.min + i as u64),
        None => number(text),
    }
}

fn range(part: &str, b: &Bounds) -> Result<(), String> {
    let steps: Vec<&str> = part.split('/').collect();
    let ends: Vec<&str> = steps[0].split('-').collect();
    let (start, mut end) = match ends[..] {
        ["*" | "?", ..] => (b.min, b.max),
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
    if step == 0 {
        return Err(format!("step of range should be a positive number: {part}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn schedules() {
        let check = |text: &str, expected: Result<(), &str>| {
            assert_eq!(check(text), expected.map_err(str::to_owned), "{text:?}");
        };
        check("*/5 0-23/2 1,15 jan-Mar MON", Ok(()));
        check("@hourly", Ok(()));
        check("@every 1h30m", Ok(()));
        check("TZ=UTC 0 * * * *", Ok(()));
        check("x", Err("expected exactly 5 fields, found 1: [x]"));
        check("@x", Err("unrecognized descriptor: @x"));
        check("60 * * * *", Err("end of range (60) above maximum (59): 60"));
        check("* * 0 * *", Err("beginning of range (0) below minimum (1): 0"));
        check("5-1 * * * *", Err("beginning of range (5) beyond end of range (1): 5-1"));
        check("*/0 * * * *", Err("step of range should be a positive number: */0"));
        check("a * * * *", Err("failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"));
    }
}
