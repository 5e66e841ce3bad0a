//! Values as Go prints them: upstream's messages quote with `%q`.

use std::fmt::Write;
use std::num::{IntErrorKind, ParseIntError};

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
            c if c.is_control() || c.is_whitespace() && c != ' ' => _ = write!(out, "\\u{:04x}", c as u32),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Why a text is no integer, as `strconv.ParseInt` and its siblings (`function`) say it.
pub fn no_integer(function: &str, text: &str, why: &ParseIntError) -> String {
    let why = match why.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("strconv.{function}: parsing {}: {why}", quote(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_as_go_does() {
        assert_eq!(quote("a\"b\\\n\u{1}\u{85}é"), "\"a\\\"b\\\\\\n\\x01\\u0085é\"");
    }
}
