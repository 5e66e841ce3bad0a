//! Points in time and spans between them.

use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, Zoned};

use crate::error::EvalError;

/// The first second that a timestamp may have: the beginning of the year 1.
pub(crate) const MIN_UNIX: i64 = -62_135_596_800;
/// The last second that a timestamp may have: the end of the year 9999.
pub(crate) const MAX_UNIX: i64 = 253_402_300_799;

/// A point in time, and the distance from UTC in which it was written.
#[derive(Debug, Clone, Copy)]
pub struct Time {
    /// Nanoseconds since 1970.
    pub nanos: i128,
    /// The distance from UTC in seconds.
    pub offset: i32,
}

const BILLION: i128 = 1_000_000_000;
/// 400 years, which are whole weeks, in nanoseconds.
const FOUR_CENTURIES: i128 = 146_097 * 86_400 * BILLION;

/// Parts of a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields {
    pub(crate) year: i64,
    pub(crate) month: i64,
    pub(crate) day: i64,
    pub(crate) day_of_year: i64,
    pub(crate) weekday: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
    pub(crate) milli: i64,
}

fn overflow() -> EvalError {
    EvalError::new("timestamp overflow")
}

impl Time {
    /// Makes a time; it may not be outside of the years 1 to 9999.
    pub fn new(nanos: i128, offset: i32) -> Result<Self, EvalError> {
        let seconds = nanos.div_euclid(BILLION);
        let range = i128::from(MIN_UNIX)..=i128::from(MAX_UNIX);
        if range.contains(&seconds) { Ok(Self { nanos, offset }) } else { Err(overflow()) }
    }
    /// Makes a time of seconds since 1970.
    pub fn from_unix(seconds: i64) -> Result<Self, EvalError> {
        Self::new(i128::from(seconds) * BILLION, 0)
    }
    /// The seconds since 1970.
    pub fn unix(&self) -> i64 {
        self.nanos.div_euclid(BILLION) as i64
    }
    /// The time in a zone, and the years that are to be added: the last hours before the year 10000 are none of the
    /// library's, but 400 years before them all is the same.
    fn zoned(&self, zone: TimeZone) -> Option<(Zoned, i64)> {
        let (nanos, years) = match Timestamp::from_nanosecond(self.nanos) {
            Ok(_) => (self.nanos, 0),
            Err(_) => (self.nanos - FOUR_CENTURIES, 400),
        };
        Timestamp::from_nanosecond(nanos).ok().map(|t| (t.to_zoned(zone), years))
    }

    /// Reads RFC 3339 as Go does.
    pub fn parse(text: &str) -> Option<Result<Self, EvalError>> {
        let bare = text.as_bytes();
        let zulu = bare.last() == Some(&b'Z');
        let (local, offset) = if zulu {
            (text.strip_suffix('Z')?, 0)
        } else {
            let (local, zone) = text.split_at_checked(text.len().checked_sub(6)?)?;
            (local, offset(zone)?)
        };
        let (date, clock) = local.split_once('T')?;
        let number = |s: &str| s.bytes().all(|b| b.is_ascii_digit()).then(|| s.parse::<i64>().ok())?;
        let [y, m, d] = date.split('-').collect::<Vec<_>>()[..] else { return None };
        let (clock, fraction) = match clock.split_once(['.', ',']) {
            Some((c, f)) if !f.is_empty() && f.bytes().all(|b| b.is_ascii_digit()) => (c, f),
            Some(_) => return None,
            None => (clock, ""),
        };
        let [h, min, s] = clock.split(':').collect::<Vec<_>>()[..] else { return None };
        if (y.len(), m.len(), d.len(), min.len(), s.len()) != (4, 2, 2, 2, 2) || !(1..=2).contains(&h.len()) {
            return None;
        }
        let small = |s: &str| number(s).and_then(|n| i8::try_from(n).ok());
        let date = jiff::civil::Date::new(i16::try_from(number(y)?).ok()?, small(m)?, small(d)?).ok()?;
        let time = jiff::civil::Time::new(small(h)?, small(min)?, small(s)?, 0).ok()?;
        // A leap second is no time in Go.
        if small(s)? > 59 {
            return None;
        }
        let kept: String = fraction.chars().chain("000000000".chars()).take(9).collect();
        let days = jiff::civil::date(1970, 1, 1).until(date).ok()?.get_days();
        let clock = i64::from(time.hour()) * 3600 + i64::from(time.minute()) * 60 + i64::from(time.second());
        let seconds = i64::from(days) * 86_400 + clock - i64::from(offset);
        let nanos = i128::from(seconds) * BILLION + i128::from(number(&kept)?);
        Some(Self::new(nanos, offset))
    }

    /// RFC 3339, with as many digits of a second as there are.
    pub(crate) fn format(&self) -> String {
        let zone = Offset::from_seconds(self.offset).map_or(TimeZone::UTC, TimeZone::fixed);
        let Some((t, years)) = self.zoned(zone) else { return String::new() };
        let mut out = format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            i64::from(t.year()) + years,
            t.month(),
            t.day(),
            t.hour(),
            t.minute(),
            t.second()
        );
        let nanos = t.subsec_nanosecond();
        if nanos != 0 {
            let digits = format!("{nanos:09}");
            out.push('.');
            out.push_str(digits.trim_end_matches('0'));
        }
        if self.offset == 0 {
            out.push('Z');
        } else {
            let sign = if self.offset < 0 { '-' } else { '+' };
            let minutes = self.offset.abs() / 60;
            out.push_str(&format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60));
        }
        out
    }

    /// The parts of the time in a zone: a name, or a distance such as `-05:00`.
    pub(crate) fn fields(&self, zone: Option<&str>) -> Result<Fields, EvalError> {
        let zone = zone.map_or(Ok(TimeZone::UTC), time_zone)?;
        let (t, years) = self.zoned(zone).ok_or_else(overflow)?;
        Ok(Fields {
            year: i64::from(t.year()) + years,
            month: i64::from(t.month()) - 1,
            day: t.day().into(),
            day_of_year: i64::from(t.day_of_year()) - 1,
            weekday: t.weekday().to_sunday_zero_offset().into(),
            hour: t.hour().into(),
            minute: t.minute().into(),
            second: t.second().into(),
            milli: i64::from(t.subsec_nanosecond() / 1_000_000),
        })
    }
}

/// Reads `+hh:mm`.
fn offset(zone: &str) -> Option<i32> {
    let bytes = zone.as_bytes();
    let sign = match bytes.first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (h, m) = (zone.get(1..3)?, zone.get(4..6)?);
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit()).then(|| s.parse::<i32>().ok())?;
    let (h, m) = (digits(h)?, digits(m)?);
    (bytes[3] == b':' && h <= 24 && m <= 60).then_some(sign * (h * 3600 + m * 60))
}

fn time_zone(name: &str) -> Result<TimeZone, EvalError> {
    let Some((hours, minutes)) = name.split_once(':') else {
        return match name {
            "" | "UTC" => Ok(TimeZone::UTC),
            _ => TimeZone::get(name).map_err(|_| EvalError::new(format!("unknown time zone {name}"))),
        };
    };
    let number = |s: &str| {
        s.parse::<i32>().map_err(|_| {
            EvalError::new(format!("strconv.Atoi: parsing {}: invalid syntax", api::go::quote(s)))
        })
    };
    let (h, m) = (number(hours)?, number(minutes)?);
    let minutes = i64::from(h) * 60 + if name.starts_with('-') { -i64::from(m) } else { i64::from(m) };
    i32::try_from(minutes * 60)
        .ok()
        .and_then(|s| Offset::from_seconds(s).ok())
        .map(TimeZone::fixed)
        .ok_or_else(overflow)
}

/// A span of time in seconds, as Go prints the float.
pub(crate) fn duration_text(nanos: i64) -> String {
    let seconds = (nanos / 1_000_000_000) as f64 + (nanos % 1_000_000_000) as f64 / 1e9;
    format!("{}s", super::number::plain(seconds))
}

/// Reads Go's duration text.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    i64::try_from(api::time::parse_duration(text)?.as_nanos()).ok()
}
