//! Numbers that may be given as percentages.

use api::go::quote;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Returns a number as it is, or a percentage of `of`, which is rounded up or down. The error has upstream's text.
pub(crate) fn scaled(value: &IntOrString, of: i64, up: bool) -> Result<i64, String> {
    let text = match value {
        IntOrString::Int(n) => return Ok(i64::from(*n)),
        IntOrString::String(text) => text,
    };
    let percent = text
        .strip_suffix('%')
        .ok_or("invalid value for IntOrString: invalid type: string is not a percentage")?;
    let percent: i64 = percent.parse().map_err(|e| {
        let why = api::go::no_integer("Atoi", percent, &e);
        format!("invalid value for IntOrString: invalid value {}: {why}", quote(text))
    })?;
    let hundredths = i128::from(percent) * i128::from(of);
    let rounded = if up { (hundredths + 99).div_euclid(100) } else { hundredths.div_euclid(100) };
    Ok(i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        let check = |value: &str, of: i64, want: Result<(i64, i64), &str>| {
            let value = IntOrString::String(value.to_owned());
            let got = scaled(&value, of, false).and_then(|down| Ok((down, scaled(&value, of, true)?)));
            assert_eq!(got, want.map_err(str::to_owned), "{value:?} of {of}");
        };
        check("30%", 7, Ok((2, 3)));
        check("100%", 7, Ok((7, 7)));
        check("1000000000%", i64::from(i32::MAX), Ok((21_474_836_470_000_000, 21_474_836_470_000_000)));
        check("9223372036854775807%", i64::MAX, Ok((i64::MAX, i64::MAX)));
        check("-9223372036854775808%", i64::MAX, Ok((i64::MIN, i64::MIN)));
        check("-1%", 10, Ok((-1, 0)));
        check("3", 7, Err("invalid value for IntOrString: invalid type: string is not a percentage"));
        check(
            "x%",
            7,
            Err(
                r#"invalid value for IntOrString: invalid value "x%": strconv.Atoi: parsing "x": invalid syntax"#,
            ),
        );
        assert_eq!(scaled(&IntOrString::Int(i32::MIN), 7, true), Ok(i64::from(i32::MIN)));
    }
}
