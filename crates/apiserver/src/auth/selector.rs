//! The little that authorization must know of field selectors.

/// Whether a field selector as sent demands that a field equals a value.
pub(super) fn requires(selector: &str, field: &str, value: &str) -> bool {
    terms(selector).any(|(f, v)| f == field && unescape(v) == value)
}

/// The terms `field=value` or `field==value`.
fn terms(selector: &str) -> impl Iterator<Item = (&str, &str)> {
    split_unescaped(selector).filter_map(|term| {
        let (field, value) = term.split_once('=')?;
        (!field.ends_with('!')).then(|| (field, value.strip_prefix('=').unwrap_or(value)))
    })
}

fn split_unescaped(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let all = rest?;
        let mut escaped = false;
        let comma = all.char_indices().find_map(|(i, c)| {
            let here = c == ',' && !escaped;
            escaped = c == '\\' && !escaped;
            here.then_some(i)
        });
        rest = comma.map(|i| &all[i + 1..]);
        Some(comma.map_or(all, |i| &all[..i]))
    })
}

fn unescape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        out.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements() {
        let cases = [
            ("spec.nodeName=a", true),
            ("spec.nodeName==a", true),
            ("metadata.name=x,spec.nodeName=a", true),
            ("spec.nodeName!=a", false),
            ("spec.nodeName=ab", false),
            ("spec.nodeName=a\\,b", false),
            ("metadata.name=x\\,spec.nodeName=a", false),
            ("", false),
        ];
        for (selector, want) in cases {
            assert_eq!(requires(selector, "spec.nodeName", "a"), want, "{selector}");
        }
    }
}
