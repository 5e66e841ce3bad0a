//! Names of fields as expressions write them.

use crate::parse::RESERVED;

/// The name by which an expression names a field; `None` for one that it cannot name.
pub fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::new();
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(tail) = rest.strip_prefix("__") {
            out.push_str("__underscores__");
            rest = tail;
            continue;
        }
        match c {
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            c if c.is_ascii_alphanumeric() || c == '_' => out.push(c),
            _ => return None,
        }
        rest = &rest[c.len_utf8()..];
    }
    Some(out)
}

/// The name of a field that an expression names; `None` for what no name is escaped to.
pub fn unescape(escaped: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = escaped;
    while let Some(at) = rest.find("__") {
        let inner = &rest[at + 2..];
        let length = inner.bytes().take_while(|b| *b != b'_').count();
        if length == 0 || !inner[length..].starts_with("__") {
            // Underscores that enclose nothing are themselves.
            out.push_str(&rest[..=at]);
            rest = &rest[at + 1..];
            continue;
        }
        out.push_str(&rest[..at]);
        match &inner[..length] {
            "underscores" => out.push_str("__"),
            "dot" => out.push('.'),
            "dash" => out.push('-'),
            "slash" => out.push('/'),
            word if RESERVED.contains(&word) && length + 4 == escaped.len() => out.push_str(word),
            _ => return None,
        }
        rest = &inner[length + 2..];
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (name, escaped) in [
            ("a", Some("a")),
            ("", None),
            ("4a", None),
            ("a4", Some("a4")),
            ("namespace", Some("__namespace__")),
            ("if", Some("__if__")),
            ("a_a", Some("a_a")),
            ("a__a", Some("a__underscores__a")),
            ("a___a", Some("a__underscores___a")),
            ("a.a", Some("a__dot__a")),
            ("a-a", Some("a__dash__a")),
            ("a/a", Some("a__slash__a")),
            ("a.a-a/a__a", Some("a__dot__a__dash__a__slash__a__underscores__a")),
            ("a$b", None),
            ("ä", None),
        ] {
            assert_eq!(escape(name).as_deref(), escaped, "{name}");
            if let Some(escaped) = escaped {
                assert_eq!(unescape(escaped).as_deref(), Some(name), "{escaped}");
            }
        }
        for (escaped, name) in
            [("__illegal__", None), ("__if__x", None), ("_a", Some("_a")), ("a__", Some("a__"))]
        {
            assert_eq!(unescape(escaped).as_deref(), name, "{escaped}");
        }
    }
}
