//! Values as Go reads and prints them: upstream's messages quote with `%q`, or hold JSON.

use std::fmt::Write;
use std::num::{IntErrorKind, ParseIntError};
use std::sync::OnceLock;

use regex::Regex;

use crate::tree::{Map, Node};

/// A boolean as `strconv.ParseBool` reads it.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Whether a character is a letter, a mark, a number, a symbol, a punctuation mark or the space of ASCII: Go's
/// `unicode.IsPrint`.
pub fn is_print(c: char) -> bool {
    static PRINTED: OnceLock<Option<Regex>> = OnceLock::new();
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    // Most are; the expression is for the rest.
    if c.is_alphanumeric() {
        return true;
    }
    let printed = PRINTED.get_or_init(|| Regex::new(r"^[\p{L}\p{M}\p{N}\p{P}\p{S}]$").ok());
    printed.as_ref().is_some_and(|printed| printed.is_match(c.encode_utf8(&mut [0; 4])))
}

/// A string as `strconv.Quote` and `%q` write it.
pub fn quote(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            // Writing to a String does not fail.
            c if c < ' ' || c == '\x7f' => _ = write!(out, "\\x{:02x}", c as u32),
            c if is_print(c) => out.push(c),
            c if (c as u32) < 0x10000 => _ = write!(out, "\\u{:04x}", c as u32),
            c => _ = write!(out, "\\U{:08x}", c as u32),
        }
    }
    out.push('"');
    out
}

/// A key as part of a header's name, as client-go's `headerKeyEscape` writes it: what may not stand there, and `%`, as
/// percent and two digits.
pub fn header_key(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// The reason for which a text is no integer, in the words of `strconv.ParseInt` and its siblings (`function`).
pub fn no_integer(function: &str, text: &str, why: &ParseIntError) -> String {
    let why = match why.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("strconv.{function}: parsing {}: {why}", quote(text))
}

/// A string as Go's `encoding/json` writes it.
pub fn json_string(s: &str, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// The JSON of a value that holds no struct.
pub fn scalar_json(n: &Node) -> String {
    let mut out = String::new();
    write_json(n, &mut out);
    out
}

/// Writes the JSON of a value that holds no struct.
pub fn write_json(n: &Node, out: &mut String) {
    match n {
        Node::Null => out.push_str("null"),
        Node::Bool(b) => {
            let _ = write!(out, "{b}");
        }
        Node::Int(i) => {
            let _ = write!(out, "{i}");
        }
        Node::Float(f) => {
            let _ = write!(out, "{f}");
        }
        Node::Str(s) => json_string(s, out),
        Node::Raw(text) => out.push_str(&crate::codec::json::compact(text)),
        Node::List(l) => json_list(l, out, write_json),
        Node::Map(m) => json_map(m, out, write_json),
        Node::Struct(_) => out.push_str("{}"),
    }
}

/// A value that holds no struct as Go's `%v` prints it: `[a b]`, `map[a:1 b:2]`.
pub fn plain(n: &Node) -> String {
    match n {
        Node::Null => "<nil>".into(),
        Node::Str(s) => s.to_string(),
        Node::List(l) => format!("[{}]", l.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Node::Map(m) => {
            let mut all: Vec<_> = m.iter().collect();
            all.sort_by(|a, b| a.0.cmp(b.0));
            let all: Vec<String> = all.into_iter().map(|(k, v)| format!("{k}:{}", plain(v))).collect();
            format!("map[{}]", all.join(" "))
        }
        other => scalar_json(other),
    }
}

/// The word for the form of a value in the errors of Go's JSON.
pub fn json_word(node: &Node) -> &'static str {
    match node {
        Node::Null => "null",
        Node::Bool(_) => "bool",
        Node::Int(_) | Node::Float(_) => "number",
        Node::Str(_) => "string",
        Node::List(_) => "array",
        Node::Map(_) | Node::Struct(_) | Node::Raw(_) => "object",
    }
}

/// A list as Go's JSON.
pub fn json_list(l: &[Node], out: &mut String, each: impl Fn(&Node, &mut String)) {
    out.push('[');
    for (i, n) in l.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        each(n, out);
    }
    out.push(']');
}

/// A map as Go's JSON, sorted by key.
pub fn json_map(m: &Map, out: &mut String, each: impl Fn(&Node, &mut String)) {
    let mut all: Vec<_> = m.iter().collect();
    all.sort_by(|a, b| a.0.cmp(b.0));
    out.push('{');
    for (i, (k, n)) in all.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        json_string(k, out);
        out.push(':');
        each(n, out);
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_go_does() {
        let node = |text: &[u8]| crate::codec::json::decode_any(text).unwrap();
        assert_eq!(plain(&node(br#"{"b":[1,"x y",true,null],"a":{}}"#)), "map[a:map[] b:[1 x y true <nil>]]");
        assert_eq!(plain(&node(b"1.5")), "1.5");
    }

    #[test]
    fn quotes_as_go_does() {
        assert_eq!(quote("a\"b\\\n\u{1}\u{85}é"), "\"a\\\"b\\\\\\n\\x01\\u0085é\"");
        assert_eq!(quote("\u{a0}\u{200b}\u{e0001}\u{301}日 ©"), "\"\\u00a0\\u200b\\U000e0001\u{301}日 ©\"");
    }
}
