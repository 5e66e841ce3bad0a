//! Quantities of resources: exact decimal numbers with a suffix, and upstream's canonical text
//! (`k8s.io/apimachinery/pkg/api/resource`).

mod numbers;

use std::cmp::Ordering;
use std::fmt;

pub use numbers::{decimal, exact_milli, milli, nano, value};

/// The form in which a quantity prefers to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    DecimalExponent,
    BinarySi,
    DecimalSi,
}

/// The reason for which a text is no quantity; the texts are upstream's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The shape is wrong.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number can't be read.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// Billionths: the smallest part a quantity can hold.
const NANO: i128 = 1_000_000_000;
/// Beyond this many billionths an amount is [`Huge`]; binary ones are cut off at `i64::MAX` units.
const CAP: i128 = i128::MAX / 4;

/// An exact amount, in billionths.
#[derive(Debug, Clone)]
pub struct Quantity {
    /// [`CAP`] or its negative for an amount that is [`Huge`].
    nanos: i128,
    huge: Option<Box<Huge>>,
    /// The power of ten of the last digit as it was written, where upstream keeps that digit's place.
    place: Option<i32>,
    format: Format,
    /// The text as it came, where upstream keeps it instead of the canonical one.
    text: Option<Box<str>>,
}

/// An amount beyond [`CAP`], without its sign: `digits * 10^exponent`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Huge {
    /// Decimal digits, of which neither the first nor the last is 0.
    digits: String,
    exponent: i32,
}

impl Huge {
    /// Makes the amount of these digits and exponent, in whole billionths.
    fn new(digits: &str, exponent: i32) -> Self {
        let mut digits = digits.trim_start_matches('0').as_bytes().to_vec();
        let mut exponent = exponent;
        let below = usize::try_from(-9i64 - i64::from(exponent)).unwrap_or(0).min(digits.len());
        if below > 0 {
            exponent = -9;
            let cut = digits.split_off(digits.len() - below);
            if cut.iter().any(|d| *d != b'0') {
                // The amount is rounded up: nines become the next ten.
                let nines = digits.iter().rev().take_while(|d| **d == b'9').count();
                digits.truncate(digits.len() - nines);
                exponent += nines as i32;
                match digits.last_mut() {
                    Some(last) => *last += 1,
                    None => digits.push(b'1'),
                }
            }
        }
        let kept = digits.iter().rposition(|d| *d != b'0').map_or(0, |at| at + 1);
        exponent = exponent.saturating_add((digits.len() - kept) as i32);
        digits.truncate(kept);
        Self { digits: digits.iter().map(|d| char::from(*d)).collect(), exponent }
    }
    /// The low 64 bits of the amount in units of `10^scale`.
    fn low_bits(&self, scale: i32) -> i64 {
        let digits =
            self.digits.bytes().fold(0u64, |n, d| n.wrapping_mul(10).wrapping_add(u64::from(d - b'0')));
        // 64 factors of ten leave nothing of 64 bits.
        let factors = self.exponent.saturating_sub(scale).clamp(0, 64);
        (0..factors).fold(digits, |n, _| n.wrapping_mul(10)) as i64
    }
    fn cmp(&self, other: &Self) -> Ordering {
        let order = |h: &Self| h.digits.len() as i64 + i64::from(h.exponent);
        order(self).cmp(&order(other)).then_with(|| self.digits.cmp(&other.digits))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Quantity {}
impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.huge, &other.huge) {
            (None, None) => self.nanos.cmp(&other.nanos),
            (Some(a), Some(b)) if self.sign() == other.sign() => {
                if self.sign() < 0 {
                    b.cmp(a)
                } else {
                    a.cmp(b)
                }
            }
            (Some(_), _) => self.sign().cmp(&0),
            (None, Some(_)) => 0.cmp(&other.sign()),
        }
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Self { nanos: 0, huge: None, place: Some(0), format: Format::DecimalSi, text: None }
    }
}

/// A text in its parts: sign, digits before and after the point, suffix.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

fn digits(s: &str) -> usize {
    s.bytes().take_while(u8::is_ascii_digit).count()
}

fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let rest = rest.trim_start_matches('0');
    let (whole, rest) = rest.split_at(digits(rest));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(r) => r.split_at(digits(r)),
        None => ("", rest),
    };
    let letters = suffix.bytes().take_while(|b| b"eEinumkKMGTP".contains(b)).count();
    let after = &suffix[letters..];
    let after = after.strip_prefix(['+', '-']).unwrap_or(after);
    if digits(after) != after.len() {
        return Err(QuantityError::Format);
    }
    Ok(Parts { negative, whole, fraction, suffix })
}

/// Base, exponent and format of a suffix.
fn interpret(suffix: &str) -> Option<(u32, i32, Format)> {
    let decimal = |e| Some((10, e, Format::DecimalSi));
    let binary = |e| Some((2, e, Format::BinarySi));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let exponent: i64 = exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?;
            Some((10, exponent as i32, Format::DecimalExponent))
        }
    }
}

/// `value * 10^exponent`, rounded away from zero; `None` beyond [`CAP`].
fn scale(value: i128, exponent: i32) -> Option<i128> {
    if value == 0 {
        return Some(0);
    }
    if exponent >= 0 {
        let scaled = 10i128.checked_pow(exponent.unsigned_abs()).and_then(|f| value.checked_mul(f));
        return scaled.filter(|v| *v < CAP);
    }
    Some(match 10i128.checked_pow(exponent.unsigned_abs()) {
        Some(f) => value / f + i128::from(value % f != 0),
        None => 1,
    })
}

impl Quantity {
    /// Reads a quantity; amounts below a billionth are rounded up to one.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let p = split(text)?;
        let (base, exponent, format) = interpret(p.suffix).ok_or(QuantityError::Suffix)?;
        if p.whole.is_empty() && p.fraction.is_empty() && !text.bytes().any(|b| b.is_ascii_digit()) {
            return Err(QuantityError::Numeric);
        }
        let digits = p.whole.len() + p.fraction.len();
        let mut mantissa: i128 = 0;
        let mut dropped = 0i32; // digits beyond what an i128 holds
        let mut lost = false;
        for b in p.whole.bytes().chain(p.fraction.bytes()) {
            if mantissa > CAP / 100 {
                dropped += 1;
                lost |= b != b'0';
            } else {
                mantissa = mantissa * 10 + i128::from(b - b'0');
            }
        }
        mantissa += i128::from(lost);
        let shift = dropped - p.fraction.len() as i32;
        let zeros = format!("{}{}", p.whole, p.fraction);
        let mut huge = None;
        let place = exponent.saturating_sub(p.fraction.len() as i32);
        let (nanos, format) = if base == 10 {
            let nanos = scale(mantissa, shift.saturating_add(exponent).saturating_add(9));
            if nanos.is_none() {
                huge = Some(Box::new(Huge::new(&zeros, place)));
            }
            (nanos.unwrap_or(CAP), format)
        } else {
            let units = mantissa.checked_mul(1i128 << exponent).unwrap_or(CAP);
            let nanos = scale(units, shift + 9).unwrap_or(CAP).min(i128::from(i64::MAX) * NANO);
            (nanos, if nanos > 0 && nanos < NANO { Format::DecimalSi } else { format })
        };
        let keep = match format {
            // upstream's fast path keeps the text of what it takes for canonical
            Format::BinarySi => {
                p.fraction.is_empty()
                    && 14 - digits as i32 - (exponent as f32 * 3.0 / 10.0) as i32 >= 0
                    && mantissa & 7 != 0
            }
            _ if base == 10 => {
                digits <= 18
                    && place >= -9
                    && place % 3 == 0
                    && !zeros.ends_with("000")
                    && !p.whole.is_empty()
            }
            _ => false,
        };
        let text = (keep && mantissa != 0).then(|| text.into());
        let place = (base == 10 && digits <= 18 && place >= -9).then_some(place);
        Ok(Self { nanos: if p.negative { -nanos } else { nanos }, huge, place, format, text })
    }

    /// A whole amount in decimal form.
    pub fn from_value(value: i64) -> Self {
        Self { nanos: i128::from(value) * NANO, ..Self::default() }
    }
    /// A whole amount that is written with binary suffixes.
    pub fn from_bytes(value: i64) -> Self {
        Self { nanos: i128::from(value) * NANO, format: Format::BinarySi, ..Self::default() }
    }
    /// An amount in thousandths.
    pub fn from_milli(value: i64) -> Self {
        Self { nanos: i128::from(value) * (NANO / 1000), ..Self::default() }
    }
    fn units(&self, unit: i128) -> i128 {
        self.nanos / unit + i128::from(self.nanos % unit != 0) * self.nanos.signum()
    }
    fn scaled(&self, unit: i128) -> i64 {
        let up = self.units(unit);
        i64::try_from(up).unwrap_or(if up > 0 { i64::MAX } else { i64::MIN })
    }
    /// The amount in whole units, rounded away from zero, cut off at the limits of an `i64`.
    pub fn value(&self) -> i64 {
        self.scaled(NANO)
    }
    /// The amount in thousandths, rounded away from zero, cut off at the limits of an `i64`.
    pub fn milli_value(&self) -> i64 {
        self.scaled(NANO / 1000)
    }
    /// The amount in units of `10^scale` (0 or -3) as upstream's `Value` and `MilliValue` count them: an amount that an
    /// `i64` cannot hold is cut to its low 64 bits, or is 0 if the last of at most 18 digits stands far away.
    fn wrapped(&self, unit: i128, scale: i32) -> i64 {
        let up = self.units(unit);
        if let (Ok(fits), None) = (i64::try_from(up), &self.huge) {
            return fits;
        }
        match &self.huge {
            _ if self
                .place
                .is_some_and(|place| !matches!(place.saturating_sub(scale), 1 | 2 | 3 | 6 | 9)) =>
            {
                0
            }
            None => up as i64,
            Some(huge) if self.nanos < 0 => huge.low_bits(scale).wrapping_neg(),
            Some(huge) => huge.low_bits(scale),
        }
    }
    /// The whole units as upstream's `Value` gives them, also where they overflow.
    pub fn wrapped_value(&self) -> i64 {
        self.wrapped(NANO, 0)
    }
    /// The thousandths as upstream's `MilliValue` gives them, also where they overflow.
    pub fn wrapped_milli_value(&self) -> i64 {
        self.wrapped(NANO / 1000, -3)
    }
    /// The amount as a float; may lose precision.
    pub fn as_f64(&self) -> f64 {
        self.nanos as f64 / NANO as f64
    }
    /// The sign of the amount: -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        self.nanos.signum() as i32
    }
    /// Whether the amount is zero.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }
    /// Adds another; a zero takes over the other's format.
    pub fn add(&mut self, other: &Self) {
        if self.is_zero() {
            self.format = other.format;
        }
        self.nanos = self.nanos.saturating_add(other.nanos).clamp(-CAP, CAP);
        (self.huge, self.place, self.text) = (None, None, None);
    }
    /// Subtracts another.
    pub fn sub(&mut self, other: &Self) {
        if self.is_zero() {
            self.format = other.format;
        }
        self.nanos = self.nanos.saturating_sub(other.nanos).clamp(-CAP, CAP);
        (self.huge, self.place, self.text) = (None, None, None);
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let binary = self.format == Format::BinarySi
            && self.nanos.unsigned_abs() >= 1024 * NANO.unsigned_abs()
            && self.nanos % NANO == 0;
        if binary {
            let mut units = self.nanos / NANO;
            let mut power = 0;
            while units % 1024 == 0 && power < 6 {
                units /= 1024;
                power += 1;
            }
            return write!(f, "{units}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]);
        }
        let highest = if self.format == Format::DecimalExponent { i32::MAX } else { 18 };
        if let Some(huge) = &self.huge {
            let exponent = huge.exponent.min(highest);
            let exponent = exponent - exponent.rem_euclid(3);
            let zeros = "0".repeat((huge.exponent - exponent).unsigned_abs() as usize);
            let sign = if self.nanos < 0 { "-" } else { "" };
            return write!(f, "{sign}{}{zeros}{}", huge.digits, Suffix(self.format, exponent));
        }
        let (mut number, mut exponent) = (self.nanos, -9);
        while number % 1000 == 0 && exponent < highest {
            number /= 1000;
            exponent += 3;
        }
        write!(f, "{number}{}", Suffix(self.format, exponent))
    }
}

/// The suffix for a power of ten behind a number.
struct Suffix(Format, i32);

impl fmt::Display for Suffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(format, exponent) = *self;
        if exponent == 0 {
            return Ok(());
        }
        if format == Format::DecimalExponent {
            return write!(f, "e{exponent}");
        }
        f.write_str(match exponent {
            -9 => "n",
            -6 => "u",
            -3 => "m",
            3 => "k",
            6 => "M",
            9 => "G",
            12 => "T",
            15 => "P",
            _ => "E",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, canonical: &str, milli: i64) {
        let q = Quantity::parse(text).unwrap();
        assert_eq!(q.to_string(), canonical, "{text}");
        assert_eq!(q.milli_value(), milli, "{text}");
    }

    /// Cases of upstream's quantity_test.go, canonical form and value.
    #[test]
    fn parses_and_writes_as_upstream() {
        check("0", "0", 0);
        check("0Ki", "0", 0);
        check("1", "1", 1000);
        check("100m", "100m", 100);
        check("0.5", "500m", 500);
        check("1.5", "1500m", 1500);
        check("0.0005k", "500m", 500);
        check("1Ki", "1Ki", 1_024_000);
        check("1024Mi", "1Gi", 1_073_741_824_000);
        check("1536Mi", "1536Mi", 1_610_612_736_000);
        check("0.5Mi", "512Ki", 524_288_000);
        check("1000M", "1G", 1_000_000_000_000);
        check("1e3", "1e3", 1_000_000);
        check("12e6", "12e6", 12_000_000_000);
        check(".001Ki", "1024m", 1024);
        check(".000001Ki", "1024u", 2);
        check(".000000000001Ki", "2n", 1);
        check("0.9n", "1n", 1);
        check("1.G", "1.G", 1_000_000_000_000);
        check("-1.5Gi", "-1536Mi", -1_610_612_736_000);
        check("1E", "1E", i64::MAX);
        check("100.035k", "100.035k", 100_035_000);
        check("5000m", "5", 5000);
        check("1.1E-9", "2e-9", 1);
    }

    #[test]
    fn refuses_with_upstreams_words() {
        for (text, error) in [
            ("", QuantityError::Format),
            ("1Kx", QuantityError::Format),
            ("aBCDE", QuantityError::Format),
            ("1.1.M", QuantityError::Format),
            ("1+1.0M", QuantityError::Format),
            ("0.1mi", QuantityError::Suffix),
            ("10iM", QuantityError::Suffix),
            ("9e", QuantityError::Suffix),
            (".", QuantityError::Numeric),
            ("-", QuantityError::Numeric),
        ] {
            assert_eq!(Quantity::parse(text).unwrap_err(), error, "{text:?}");
        }
    }

    /// Values recorded from upstream's server: canonical text, and the results of `Value` and `MilliValue` on overflow.
    #[test]
    fn amounts_beyond_64_bits() {
        for (text, canonical, value, milli) in [
            ("9E", "9E", 9_000_000_000_000_000_000, 0),
            ("100P", "100P", 100_000_000_000_000_000, 0),
            ("66703680116484957k", "66703680116484957k", -7_083_296_178_353_249_464, 253_545_951_218_356_544),
            ("969876881473654605", "969876881473654605", 969_876_881_473_654_605, -7_800_554_432_951_630_648),
            ("10E", "10E", 0, 0),
            ("1.5e30", "1500e27", 0, 0),
            ("1e38", "100e36", 0, 0),
            ("1e400", "10e399", 0, 0),
            ("-1e400", "-10e399", 0, 0),
            ("123456789012345678e30", "123456789012345678e30", 0, 0),
            ("9223372036854775808", "9223372036854775808", i64::MIN, 0),
            (
                "9223372036854775807E",
                "9223372036854775807E",
                -1_000_000_000_000_000_000,
                -3_875_820_019_684_212_736,
            ),
            (
                "1234567890123456789e30",
                "1234567890123456789e30",
                -6_994_426_159_689_629_696,
                -3_110_155_753_709_633_536,
            ),
            (
                "123456789012345678901234567890",
                "123456789012345678901234567890",
                -4_362_896_299_872_285_998,
                8_982_045_596_877_734_992,
            ),
            (
                "99999999999999999999999999999999999999999.9999999999",
                "100000000000000000000000E",
                4_870_020_673_419_870_208,
                80_237_960_548_581_376,
            ),
        ] {
            let q = Quantity::parse(text).unwrap();
            assert_eq!(q.to_string(), canonical, "{text}");
            assert_eq!(q.wrapped_value(), value, "{text}");
            assert_eq!(q.wrapped_milli_value(), milli, "{text}");
        }
        for text in ["1.5e-2147483648", "1.5e2147483647", "17e2147483647", "-17e2147483647"] {
            let q = Quantity::parse(text).unwrap();
            assert_eq!(Quantity::parse(&q.to_string()).unwrap(), q, "{text}");
        }
        let sorted = ["-1e400", "-1e39", "-5", "7", "1e38", "1.5e38", "2e39", "1e400"];
        let read: Vec<_> = sorted.iter().map(|t| Quantity::parse(t).unwrap()).collect();
        assert!(read.is_sorted_by(|a, b| a < b));
        assert_eq!(Quantity::parse("10e399").unwrap(), Quantity::parse("1e400").unwrap());
    }

    #[test]
    fn adds() {
        let mut sum = Quantity::default();
        for part in ["1Gi", "512Mi"] {
            sum.add(&Quantity::parse(part).unwrap());
        }
        assert_eq!(sum.to_string(), "1536Mi");
        sum.sub(&Quantity::parse("1536Mi").unwrap());
        assert!(sum.is_zero());
    }
}
