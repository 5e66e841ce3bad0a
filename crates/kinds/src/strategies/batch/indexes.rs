//! The indexes of a Job's Pods as text: `1,3-5`.

/// The number of indexes that a text such as `0,2-4` names; all must be below `completions` and rise.
pub(super) fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let (mut total, mut last) = (0, None);
    for part in text.split(',') {
        let (first, end) = interval(part, completions)?;
        if let Some(last) = last.filter(|l| *l >= first) {
            return Err(not_increasing(last, first));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// The ends of one index or of an interval such as `2-4`.
pub(super) fn interval(part: &str, completions: i64) -> Result<(i64, i64), String> {
    let index = |s: &str| -> Result<i64, String> {
        let quoted = api::go::quote(s);
        let i = s.parse().map_err(|_| format!("cannot convert string to integer for index: {quoted}"))?;
        if i >= completions { Err(format!("too large index: {quoted}")) } else { Ok(i) }
    };
    let limits: Vec<&str> = part.split('-').collect();
    match limits[..] {
        [one] => index(one).map(|i| (i, i)),
        [first, end] => {
            let (first, end) = (index(first)?, index(end)?);
            if first >= end { Err(not_increasing(first, end)) } else { Ok((first, end)) }
        }
        _ => Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
            api::go::quote(part)
        )),
    }
}

fn not_increasing(last: i64, next: i64) -> String {
    format!("non-increasing order, previous: {last}, current: {next}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes() {
        let check = |text: &str, expected: Result<i64, &str>| {
            assert_eq!(count_indexes(text, 10), expected.map_err(str::to_owned), "{text:?}");
        };
        check("", Ok(0));
        check("0,2-4,9", Ok(5));
        check("x", Err("cannot convert string to integer for index: \"x\""));
        check("10", Err("too large index: \"10\""));
        check("3-2", Err("non-increasing order, previous: 3, current: 2"));
        check("4,4", Err("non-increasing order, previous: 4, current: 4"));
        check(
            "1-2-3",
            Err(
                "the fragment \"1-2-3\" violates the requirement that an index interval can have at most two parts separated by '-'",
            ),
        );
    }
}
