//! Writes YAML as the library that upstream uses does, byte for byte: block style, keys in natural
//! order, the simplest style for each string, lines folded after 80 columns.

use std::cmp::Ordering;

use super::plain::is_string;
use crate::tree::{Map, Node};

const WIDTH: usize = 80;
const INDENT: usize = 2;
/// The longest key, in bytes, that stands before its colon on one line.
const SIMPLE_KEY: usize = 128;

/// The document of a value.
pub fn emit(value: &Node) -> String {
    emit_within(value, usize::MAX).unwrap_or_default()
}

/// The document of a value; `None` if it would be longer than so many bytes. A value that is deep and wide has a
/// document that is many times as long as its JSON, since each line is indented.
pub fn emit_within(value: &Node, limit: usize) -> Option<String> {
    let mut e = Emitter { out: String::new(), column: 0, limit, full: false };
    e.block(value, 0);
    e.end_line();
    (!e.full).then_some(e.out)
}

struct Emitter {
    out: String,
    /// The column where the next character goes.
    column: usize,
    /// The number of bytes that may be written.
    limit: usize,
    /// Whether the document needs more bytes than it may have.
    full: bool,
}

impl Emitter {
    fn put(&mut self, c: char) {
        self.full |= self.out.len() >= self.limit;
        if !self.full {
            self.out.push(c);
        }
        self.column = if c == '\n' { 0 } else { self.column + 1 };
    }
    fn text(&mut self, s: &str) {
        s.chars().for_each(|c| self.put(c));
    }
    fn end_line(&mut self) {
        if self.column > 0 {
            self.put('\n');
        }
    }
    /// Starts a new line at a column.
    fn indent(&mut self, to: usize) {
        if self.column > to || self.column == to && to > 0 && !self.out.ends_with(' ') {
            self.put('\n');
        }
        while self.column < to {
            self.put(' ');
        }
    }

    /// Writes a value from here on; its entries or elements start at this column.
    fn block(&mut self, value: &Node, at: usize) {
        match value {
            Node::Map(m) if !m.is_empty() => self.map(m, at),
            Node::List(l) if !l.is_empty() => {
                for item in l {
                    self.indent(at);
                    self.text("- ");
                    self.block(item, at + INDENT);
                }
            }
            other => self.scalar(other, at, false),
        }
    }

    fn map(&mut self, map: &Map, at: usize) {
        let mut entries: Vec<_> = map.iter().collect();
        entries.sort_by(|a, b| natural(a.0, b.0));
        for (key, value) in entries {
            self.indent(at);
            let simple = key.len() <= SIMPLE_KEY && !key.contains(is_break);
            if simple {
                self.string(key, at + INDENT, true);
                self.text(":");
            } else {
                self.text("? ");
                self.string(key, at + INDENT, false);
                self.indent(at);
                self.text(":");
            }
            match value {
                Node::Map(m) if !m.is_empty() && simple => self.map(m, at + INDENT),
                Node::List(l) if !l.is_empty() && simple => self.block(value, at),
                other => {
                    self.text(" ");
                    match other {
                        Node::Map(_) | Node::List(_) => self.block(other, at + INDENT),
                        _ => self.scalar(other, at + INDENT, false),
                    }
                }
            }
        }
    }

    /// Writes a value without parts; its further lines start at `at`.
    fn scalar(&mut self, value: &Node, at: usize, key: bool) {
        match value {
            Node::Null => self.text("null"),
            Node::Bool(b) => self.text(if *b { "true" } else { "false" }),
            Node::Int(i) => self.text(itoa::Buffer::new().format(*i)),
            Node::Float(f) => self.text(&float(*f)),
            Node::Str(s) => self.string(s, at, key),
            Node::List(_) => self.text("[]"),
            Node::Raw(text) => self.text(text),
            Node::Map(_) | Node::Struct(_) => self.text("{}"),
        }
    }

    fn string(&mut self, s: &str, at: usize, key: bool) {
        let allowed = Allowed::of(s);
        if s.contains('\n') {
            if allowed.block && !key { self.literal(s, at) } else { self.double(s, at, key) }
        } else if !is_string(s) {
            self.double(s, at, key);
        } else if allowed.plain {
            self.folded(s, at, key, |e, c| e.put(c));
        } else if allowed.single {
            self.put('\'');
            self.folded(s, at, key, |e, c| {
                if c == '\'' {
                    e.put(c);
                }
                e.put(c);
            });
            self.put('\'');
        } else {
            self.double(s, at, key);
        }
    }

    /// Writes text of one line, folded at single spaces that are not at its ends.
    fn folded(&mut self, s: &str, at: usize, key: bool, put: impl Fn(&mut Self, char)) {
        let mut spaces = false;
        for (i, c) in s.char_indices() {
            let inner = || i > 0 && i + 1 < s.len() && !s[i + 1..].starts_with(' ');
            if c == ' ' && !key && !spaces && self.column > WIDTH && inner() {
                self.indent(at);
            } else {
                put(self, c);
            }
            spaces = c == ' ';
        }
    }

    fn double(&mut self, s: &str, at: usize, key: bool) {
        self.put('"');
        let mut spaces = false;
        for (i, c) in s.char_indices() {
            if !is_printable(c) || is_break(c) || matches!(c, '"' | '\\') {
                self.text(&escape(c));
                spaces = false;
                continue;
            }
            if c == ' ' && !key && !spaces && self.column > WIDTH && i > 0 && i + 1 < s.len() {
                self.indent(at);
                if s[i + 1..].starts_with(' ') {
                    self.put('\\');
                }
            } else {
                self.put(c);
            }
            spaces = c == ' ';
        }
        self.put('"');
    }

    fn literal(&mut self, s: &str, at: usize) {
        self.put('|');
        if s.starts_with(|c| c == ' ' || is_break(c)) {
            self.text("2");
        }
        let mut from_end = s.chars().rev().map(is_break);
        match (from_end.next(), from_end.next()) {
            (Some(true), Some(true) | None) => self.put('+'),
            (Some(true), Some(false)) => {}
            _ => self.put('-'),
        }
        self.put('\n');
        for c in s.chars() {
            if c == '\n' {
                self.put(c);
                continue;
            }
            if self.column == 0 {
                (0..at).for_each(|_| self.put(' '));
            }
            self.put(c);
        }
    }
}

/// The styles in which a string may stand.
struct Allowed {
    plain: bool,
    single: bool,
    block: bool,
}

impl Allowed {
    fn of(s: &str) -> Self {
        let mut out = Self { plain: true, single: true, block: true };
        if s.is_empty() {
            return Self { block: false, ..out };
        }
        let mut indicators = s.starts_with("---") || s.starts_with("...");
        let (mut blank_before, mut space_before, mut break_before) = (true, false, false);
        let mut chars = s.chars().peekable();
        let mut first = true;
        while let Some(c) = chars.next() {
            let blank_after = chars.peek().is_none_or(|n| matches!(n, ' ' | '\t'));
            indicators |= match c {
                '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@'
                | '`'
                    if first =>
                {
                    true
                }
                '?' | '-' if first => blank_after,
                ':' => blank_after,
                '#' => blank_before,
                _ => false,
            };
            if !is_printable(c) {
                out = Self { plain: false, single: false, block: false };
            }
            let last = chars.peek().is_none();
            if c == ' ' {
                out.plain &= !first && !last;
                out.block &= !last;
                if break_before {
                    out.plain = false;
                    out.single = false;
                }
                (space_before, break_before) = (true, false);
            } else if is_break(c) {
                out.plain = false;
                if space_before {
                    out = Self { plain: false, single: false, block: false };
                }
                (space_before, break_before) = (false, true);
            } else {
                (space_before, break_before) = (false, false);
            }
            blank_before = matches!(c, ' ' | '\t') || is_break(c);
            first = false;
        }
        out.plain &= !indicators;
        out
    }
}

fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Whether the library prints a character as it is. It knows no characters beyond the first plane.
fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}') && c != '\u{feff}'
}

fn escape(c: char) -> String {
    let short = match c {
        '\0' => "\\0",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\t' => "\\t",
        '\n' => "\\n",
        '\u{b}' => "\\v",
        '\u{c}' => "\\f",
        '\r' => "\\r",
        '\u{1b}' => "\\e",
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{85}' => "\\N",
        '\u{a0}' => "\\_",
        '\u{2028}' => "\\L",
        '\u{2029}' => "\\P",
        _ => "",
    };
    match u32::from(c) {
        _ if !short.is_empty() => short.into(),
        n @ ..=0xff => format!("\\x{n:02X}"),
        n @ ..=0xffff => format!("\\u{n:04X}"),
        n => format!("\\U{n:08X}"),
    }
}

/// A number as Go's `%g` writes it in its shortest form.
fn float(f: f64) -> String {
    let text = format!("{f:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let Ok(exponent) = exponent.parse::<i32>() else { return text };
    if (-4..6).contains(&exponent) {
        return format!("{f}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// The order of keys: numbers in them by their value, letters after everything else.
fn natural(a: &str, b: &str) -> Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(i) = a.iter().zip(&b).position(|(x, y)| x != y) else { return a.len().cmp(&b.len()) };
    match (a[i].is_alphabetic(), b[i].is_alphabetic()) {
        (true, true) => return a[i].cmp(&b[i]),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    let mut before: u64 = 0;
    if a[i] == '0' || b[i] == '0' {
        let digits = a[..i].iter().rev().take_while(|c| c.is_ascii_digit());
        before = u64::from(digits.clone().any(|c| *c != '0'));
    }
    let number = |s: &[char]| {
        let digits = s[i..].iter().map_while(|c| c.to_digit(10));
        let value = digits.clone().fold(before, |n, d| n.wrapping_mul(10).wrapping_add(d.into()));
        (value, digits.count())
    };
    number(&a).cmp(&number(&b)).then(a[i].cmp(&b[i]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::json;

    fn check(json: &str, expected: &str) {
        let node = json::decode_any(json.as_bytes()).unwrap();
        assert_eq!(emit(&node), expected, "{json}");
        let mut back = crate::yaml::parse(expected.as_bytes()).unwrap();
        if let Node::Map(m) = &mut back {
            m.sort();
        }
        assert_eq!(back, node, "{expected}");
    }

    #[test]
    fn styles_of_strings() {
        for (s, expected) in [
            ("plain text", "plain text"),
            ("grüße an alle: ja", "'grüße an alle: ja'"),
            ("größer", "größer"),
            ("", r#""""#),
            ("true", r#""true""#),
            ("1", r#""1""#),
            ("0x1F", r#""0x1F""#),
            ("1_000", r#""1_000""#),
            ("1e3", r#""1e3""#),
            ("1:20", r#""1:20""#),
            ("2024-01-02", r#""2024-01-02""#),
            ("2024-01-02T03:04:05Z", r#""2024-01-02T03:04:05Z""#),
            ("2024-13-02", "2024-13-02"),
            ("1.2.3", "1.2.3"),
            ("10.0.0.1", "10.0.0.1"),
            ("-x", "-x"),
            ("- x", "'- x'"),
            ("a: b", "'a: b'"),
            ("a:b", "a:b"),
            ("a #b", "'a #b'"),
            ("it's", "it's"),
            ("'q'", "'''q'''"),
            ("*", "'*'"),
            (" x", "' x'"),
            ("a\\tb", r#""a\tb""#),
            ("é", "é"),
            ("\u{1f600}", r#""\U0001F600""#),
            ("---", "'---'"),
            ("~", r#""~""#),
            ("y", r#""y""#),
            ("yy", "yy"),
        ] {
            check(&format!(r#"{{"k":"{s}"}}"#), &format!("k: {expected}\n"));
        }
    }

    #[test]
    fn lines() {
        check(r#"{"k":"a\nb"}"#, "k: |-\n  a\n  b\n");
        check(r#"{"k":"a\n\n b\n","l":1}"#, "k: |\n  a\n\n   b\nl: 1\n");
        check(r#"{"k":{"l":["a\n\n"]}}"#, "k:\n  l:\n  - |+\n    a\n\n");
        check(r#"{"k":" a\n"}"#, "k: |2\n   a\n");
        check(r#"{"k":"a \nb"}"#, "k: \"a \\nb\"\n");
        let long = ["word"; 30].join(" ");
        let folded = format!("k: {}\n  {}\n", ["word"; 16].join(" "), ["word"; 14].join(" "));
        check(&format!(r#"{{"k":"{long}"}}"#), &folded);
    }

    #[test]
    fn structure() {
        check(
            r#"{"b":[{"x":1,"y":[[1,2],[]]},{}],"a10":null,"a9":1.5,"A":true,"c":{"d":{}}}"#,
            "A: true\na9: 1.5\na10: null\nb:\n- x: 1\n  \"y\":\n  - - 1\n    - 2\n  - []\n- {}\nc:\n  d: {}\n",
        );
        let key = "k".repeat(129);
        check(&format!(r#"{{"{key}":{{"a":1}},"l":["x"]}}"#), &format!("? {key}\n: a: 1\nl:\n- x\n"));
        check("1e21", "1e+21\n");
        check("1234567.5", "1.2345675e+06\n");
        check("[]", "[]\n");
    }

    #[test]
    fn bounds() {
        let node = json::decode_any(br#"{"a":{"b":["x y",1]}}"#).unwrap();
        let whole = emit(&node);
        for limit in 0..whole.len() {
            assert_eq!(emit_within(&node, limit), None, "{limit}");
        }
        assert_eq!(emit_within(&node, whole.len()), Some(whole));
    }
}
