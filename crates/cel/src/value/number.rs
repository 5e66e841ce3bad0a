//! Floats as Go prints them.

/// The digits of a float without a point, and the power of ten of its first one.
fn digits(f: f64) -> (String, i32) {
    let text = format!("{:e}", f.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (mantissa.replace('.', ""), exponent.parse().unwrap_or_default())
}

fn special(f: f64) -> Option<&'static str> {
    if f.is_nan() {
        Some("NaN")
    } else if f.is_infinite() {
        Some(if f > 0.0 { "+Inf" } else { "-Inf" })
    } else {
        None
    }
}

/// The shortest text that reads as the same float, with an exponent from a million on (`%g`).
pub(crate) fn shortest(f: f64) -> String {
    if let Some(text) = special(f) {
        return text.into();
    }
    let (digits, exponent) = digits(f);
    if (-4..6).contains(&exponent) {
        return plain(f);
    }
    let sign = if f.is_sign_negative() { "-" } else { "" };
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let mark = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{first}{point}{rest}e{mark}{:02}", exponent.abs())
}

/// The shortest text that reads as the same float, without an exponent.
pub(crate) fn plain(f: f64) -> String {
    special(f).map_or_else(|| format!("{f}"), Into::into)
}

/// A float with this many digits after the point, and commas between thousands.
pub(crate) fn fixed(f: f64, precision: usize) -> String {
    if f.is_nan() {
        return "NaN".into();
    }
    if f.is_infinite() {
        return if f > 0.0 { "∞" } else { "-∞" }.into();
    }
    let text = format!("{:.precision$}", f.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut out = String::new();
    if f.is_sign_negative() {
        out.push('-');
    }
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(c);
    }
    if precision > 0 {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// A float with six digits after the point, and its power of ten in raised digits; at least `width` characters.
pub(crate) fn scientific(f: f64, width: usize) -> String {
    if f.is_nan() || f.is_infinite() {
        return format!("{:>width$}", fixed(f, 6));
    }
    let text = format!("{f:.6e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let number: i32 = exponent.parse().unwrap_or_default();
    let raised: String = format!("{:02}", number.abs())
        .chars()
        .map(|c| match c {
            '1' => '¹',
            '2' => '²',
            '3' => '³',
            other => char::from_u32(0x2070 + (other as u32 - '0' as u32)).unwrap_or(other),
        })
        .collect();
    let shown = format!("{mantissa}×10{}{raised}", if number < 0 { "⁻" } else { "" });
    format!("{shown:>width$}")
}
