//! Quantities in text as plain numbers, for comparisons.

use super::Quantity;

/// The value in billionths of a canonical quantity. A value beyond the range becomes the greatest.
pub fn nano(text: &str) -> i128 {
    let t = text.trim_start_matches('+');
    let split = t.find(|c: char| !matches!(c, '0'..='9' | '.' | '-')).unwrap_or(t.len());
    let (number, suffix) = t.split_at(split);
    let (negative, number) = number.strip_prefix('-').map_or((false, number), |n| (true, n));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let (binary, exponent): (u32, i32) = match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        e => (0, e.trim_start_matches(['e', 'E']).parse().unwrap_or(0)),
    };
    let mut digits: i128 = 0;
    for b in whole.bytes().chain(fraction.bytes()) {
        digits = digits.saturating_mul(10).saturating_add(i128::from(b.wrapping_sub(b'0')));
    }
    let scale = exponent + 9 - i32::try_from(fraction.len()).unwrap_or(i32::MAX / 2);
    let digits = digits.saturating_mul(1 << binary);
    let value = if scale >= 0 {
        10i128.checked_pow(scale.unsigned_abs()).map_or(i128::MAX, |p| digits.saturating_mul(p))
    } else {
        10i128.checked_pow(scale.unsigned_abs()).map_or(0, |p| digits / p)
    };
    if digits == 0 {
        0
    } else if negative {
        -value
    } else {
        value
    }
}

/// The whole value as upstream's `Value()` gives it, also where it overflows.
pub fn value(text: &str) -> i64 {
    Quantity::parse(text).map_or(0, |q| q.wrapped_value())
}

/// The value in thousandths as upstream's `MilliValue()` gives it, also where it overflows.
pub fn milli(text: &str) -> i64 {
    Quantity::parse(text).map_or(0, |q| q.wrapped_milli_value())
}

/// The value in thousandths, rounded up.
pub fn exact_milli(text: &str) -> i128 {
    let n = nano(text);
    n.div_euclid(1_000_000) + i128::from(n.rem_euclid(1_000_000) != 0)
}

/// A sum of values in billionths as canonical decimal text, for messages about sums.
pub fn decimal(nano: i128) -> String {
    for (unit, suffix) in [(1_000_000_000i128, ""), (1_000_000, "m"), (1_000, "u"), (1, "n")] {
        if nano % unit == 0 {
            let mut n = nano / unit;
            if suffix.is_empty() && n != 0 {
                for up in ["k", "M", "G", "T", "P", "E"] {
                    if n % 1000 != 0 {
                        break;
                    }
                    n /= 1000;
                    if n % 1000 != 0 || up == "E" {
                        return format!("{n}{up}");
                    }
                }
            }
            return format!("{n}{suffix}");
        }
    }
    nano.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_as_numbers() {
        for (text, want) in [
            ("1", 1_000_000_000),
            ("100m", 100_000_000),
            ("1.5", 1_500_000_000),
            ("1Ki", 1_024_000_000_000),
            ("-2", -2_000_000_000),
            ("2e3", 2_000_000_000_000),
            ("0", 0),
        ] {
            assert_eq!(nano(text), want, "{text}");
        }
        assert_eq!(value("1500m"), 2);
        assert_eq!(milli("9223372036854775807"), -1000);
        assert_eq!(decimal(200_000_000), "200m");
        assert_eq!(decimal(7_000_000_000), "7");
    }
}
