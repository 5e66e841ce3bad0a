//! Quantities of resources: exact decimal numbers with a suffix, and upstream's canonical text
//! (`k8s.io/apimachinery/pkg/api/resource`).

use std::cmp::Ordering;
use std::fmt;

/// How a quantity prefers to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    DecimalExponent,
    BinarySi,
    DecimalSi,
}

/// Why a text is no quantity; the texts are upstream's.
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
/// Beyond this many units a decimal quantity is cut off; binary ones already at `i64::MAX`.
const CAP: i128 = i128::MAX / 4;

/// An exact amount, in billionths.
#[derive(Debug, Clone)]
pub struct Quantity {
    nanos: i128,
    format: Format,
    /// The text as it came, where upstream keeps it instead of the canonical one.
    text: Option<Box<str>>,
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
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
        self.nanos.cmp(&other.nanos)
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Self { nanos: 0, format: Format::DecimalSi, text: None }
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

/// `value * 10^exponent`, rounded away from zero, cut off at [`CAP`].
fn scale(value: i128, exponent: i32) -> i128 {
    if exponent >= 0 {
        let factor = 10i128.checked_pow(exponent.unsigned_abs());
        return factor
            .and_then(|f| value.checked_mul(f))
            .map_or(if value == 0 { 0 } else { CAP }, |v| v.min(CAP));
    }
    match 10i128.checked_pow(exponent.unsigned_abs()) {
        Some(f) => value / f + i128::from(value % f != 0),
        None => i128::from(value != 0),
    }
}

/// The canonical text of `value * 10^exponent` beyond what billionths can hold.
fn far_text(mut value: i128, mut exponent: i32) -> String {
    while value % 10 == 0 && value != 0 {
        value /= 10;
        exponent = exponent.saturating_add(1);
    }
    while exponent % 3 != 0 {
        value *= 10;
        exponent -= 1;
    }
    if exponent == 18 { format!("{value}E") } else { format!("{value}e{exponent}") }
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
        let (nanos, format) = if base == 10 {
            (scale(mantissa, shift.saturating_add(exponent).saturating_add(9)), format)
        } else {
            let units = mantissa.checked_mul(1i128 << exponent).unwrap_or(CAP);
            let nanos = scale(units, shift + 9).min(i128::from(i64::MAX) * NANO);
            (nanos, if nanos > 0 && nanos < NANO { Format::DecimalSi } else { format })
        };
        let zeros = format!("{}{}", p.whole, p.fraction);
        let keep = match format {
            // upstream's fast path keeps the text of what it takes for canonical
            Format::BinarySi => {
                p.fraction.is_empty()
                    && 14 - digits as i32 - (exponent as f32 * 3.0 / 10.0) as i32 >= 0
                    && mantissa & 7 != 0
            }
            _ if base == 10 => {
                let at = exponent - p.fraction.len() as i32;
                digits <= 18 && at >= -9 && at % 3 == 0 && !zeros.ends_with("000") && !p.whole.is_empty()
            }
            _ => false,
        };
        let text = (keep && mantissa != 0).then(|| text.into());
        // Few digits with a great exponent are exact in upstream, however great.
        let far = base == 10 && digits <= 18 && nanos >= CAP;
        let text = if far { Some(far_text(mantissa, shift.saturating_add(exponent)).into()) } else { text };
        Ok(Self { nanos: if p.negative { -nanos } else { nanos }, format, text })
    }

    /// A whole amount in decimal form.
    pub fn from_value(value: i64) -> Self {
        Self { nanos: i128::from(value) * NANO, format: Format::DecimalSi, text: None }
    }
    /// A whole amount that is written with binary suffixes.
    pub fn from_bytes(value: i64) -> Self {
        Self { nanos: i128::from(value) * NANO, format: Format::BinarySi, text: None }
    }
    /// Thousandths.
    pub fn from_milli(value: i64) -> Self {
        Self { nanos: i128::from(value) * (NANO / 1000), format: Format::DecimalSi, text: None }
    }
    fn scaled(&self, unit: i128) -> i64 {
        let up = self.nanos / unit + i128::from(self.nanos % unit != 0) * self.nanos.signum();
        i64::try_from(up).unwrap_or(if up > 0 { i64::MAX } else { i64::MIN })
    }
    /// Whole units, rounded away from zero, cut off at what an `i64` holds.
    pub fn value(&self) -> i64 {
        self.scaled(NANO)
    }
    /// Thousandths, rounded away from zero, cut off at what an `i64` holds.
    pub fn milli_value(&self) -> i64 {
        self.scaled(NANO / 1000)
    }
    /// As a float; may lose precision.
    pub fn as_f64(&self) -> f64 {
        self.nanos as f64 / NANO as f64
    }
    /// -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        self.nanos.signum() as i32
    }
    /// Whether it is zero.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }
    /// Adds another; a zero takes over the other's format.
    pub fn add(&mut self, other: &Self) {
        if self.is_zero() {
            self.format = other.format;
        }
        self.nanos = self.nanos.saturating_add(other.nanos).clamp(-CAP, CAP);
        self.text = None;
    }
    /// Subtracts another.
    pub fn sub(&mut self, other: &Self) {
        if self.is_zero() {
            self.format = other.format;
        }
        self.nanos = self.nanos.saturating_sub(other.nanos).clamp(-CAP, CAP);
        self.text = None;
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
        let (mut number, mut exponent) = (self.nanos, -9);
        let highest = if self.format == Format::DecimalExponent { i32::MAX } else { 18 };
        while number % 1000 == 0 && exponent < highest {
            number /= 1000;
            exponent += 3;
        }
        if self.format == Format::DecimalExponent {
            return if exponent == 0 { write!(f, "{number}") } else { write!(f, "{number}e{exponent}") };
        }
        let suffix = match exponent {
            -9 => "n",
            -6 => "u",
            -3 => "m",
            3 => "k",
            6 => "M",
            9 => "G",
            12 => "T",
            15 => "P",
            18 => "E",
            _ => "",
        };
        write!(f, "{number}{suffix}")
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
