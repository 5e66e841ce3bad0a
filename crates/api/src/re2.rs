//! Regular expressions: RE2's syntax as Go has it, run by `regex` with bounds on size.

use regex::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;

/// The greatest size of a compiled expression, and of what runs it, in bytes.
const SIZE_LIMIT: usize = 1 << 20;
/// The greatest count of a repetition in Go, also of nested ones together.
const MOST_REPEATS: u32 = 1000;
/// The greatest nesting of an expression in Go.
const DEEPEST: u32 = 250;

/// Checks an expression of Go's syntax. It costs as much as the expression is long; to compile a short one may cost
/// milliseconds.
///
/// # Errors
/// The text is Go's where the reason is a common one.
pub fn check(pattern: &str) -> Result<(), String> {
    let parsed = ParserBuilder::new().nest_limit(DEEPEST).build().parse(&translate(pattern)?);
    parsed.map(drop).map_err(|_| invalid(pattern))
}

fn invalid(pattern: &str) -> String {
    format!("error parsing regexp: invalid regexp: `{pattern}`")
}

fn translate(pattern: &str) -> Result<String, String> {
    Translator::default().run(pattern).map_err(|e| format!("error parsing regexp: {e}"))
}

/// Compiles an expression of Go's syntax.
///
/// # Errors
/// The text is Go's where the reason is a common one.
pub fn compile(pattern: &str) -> Result<Regex, String> {
    let translated = translate(pattern)?;
    RegexBuilder::new(&translated)
        .size_limit(SIZE_LIMIT)
        .dfa_size_limit(SIZE_LIMIT)
        .nest_limit(DEEPEST)
        .build()
        .map_err(|e| match e {
            regex::Error::CompiledTooBig(_) => "error parsing regexp: expression too large".into(),
            _ => invalid(pattern),
        })
}

/// Translates Go's syntax to that of `regex`: classes of Perl are ASCII's in Go, and `\Q` quotes.
#[derive(Default)]
struct Translator {
    out: String,
    /// The groups that are open, each with the greatest count of repetitions within it so far.
    open: Vec<u32>,
    /// The count of repetitions within what came last.
    last: u32,
    class: bool,
}

impl Translator {
    fn run(mut self, pattern: &str) -> Result<String, String> {
        let mut rest = pattern;
        let mut repeated = false;
        while let Some(c) = rest.chars().next() {
            let before = rest;
            rest = &rest[c.len_utf8()..];
            if self.class {
                rest = self.in_class(c, rest, pattern)?;
                continue;
            }
            let mut repeats = false;
            match c {
                '\\' => rest = self.escape(rest)?,
                '[' => rest = self.open_class(rest),
                '(' => {
                    self.open.push(1);
                    rest = self.group(rest, before)?;
                }
                ')' => {
                    let within = self.open.pop().ok_or_else(|| format!("unexpected ): `{pattern}`"))?;
                    self.noted(within);
                    self.out.push(')');
                    repeated = false;
                    continue;
                }
                '*' | '+' | '?' | '{' => {
                    let Some(length) = repetition(before)? else {
                        self.out.push_str("\\{");
                        repeated = false;
                        continue;
                    };
                    let operator = &before[..length];
                    if self.out.is_empty()
                        || self.out.ends_with(['(', '|'])
                            && !self.out.ends_with("\\(")
                            && !self.out.ends_with("\\|")
                    {
                        return Err(format!("missing argument to repetition operator: `{operator}`"));
                    }
                    if repeated {
                        return Err(format!("invalid nested repetition operator: `{operator}`"));
                    }
                    let within = self.last.saturating_mul(count(operator).max(1));
                    if within > MOST_REPEATS {
                        return Err(format!("invalid repeat count: `{operator}`"));
                    }
                    self.noted(within);
                    self.out.push_str(operator);
                    rest = &before[length..];
                    repeats = true;
                }
                c => self.literal(c),
            }
            if !repeats {
                self.last = 1;
            }
            repeated = repeats;
        }
        if self.class {
            let start = pattern.rfind('[').map_or(pattern, |i| &pattern[i..]);
            return Err(format!("missing closing ]: `{start}`"));
        }
        if !self.open.is_empty() {
            return Err(format!("missing closing ): `{pattern}`"));
        }
        Ok(self.out)
    }

    /// Notes the count of repetitions within what came last.
    fn noted(&mut self, within: u32) {
        self.last = within;
        if let Some(group) = self.open.last_mut() {
            *group = within.max(*group);
        }
    }

    fn literal(&mut self, c: char) {
        // These have no meaning in Go, or none there.
        if matches!(c, '}' | ']' | '#' | '&' | '~' | '-') && !self.class {
            self.out.push('\\');
        }
        self.out.push(c);
    }

    fn group<'p>(&mut self, rest: &'p str, before: &str) -> Result<&'p str, String> {
        self.out.push('(');
        let Some(inner) = rest.strip_prefix('?') else { return Ok(rest) };
        let named = inner.strip_prefix("P<").or_else(|| inner.strip_prefix('<'));
        if let Some(name) = named.filter(|n| !n.starts_with(['=', '!'])) {
            let end = name.find('>').ok_or_else(|| format!("invalid named capture: `{before}`"))?;
            let word = name[..end].bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            if end == 0 || !word {
                return Err(format!(
                    "invalid named capture: `{}`",
                    &before[..before.find('>').map_or(0, |i| i + 1)]
                ));
            }
            // The names have no use here, and Go allows more of them than `regex`.
            return Ok(&name[end + 1..]);
        }
        let flags = inner.bytes().take_while(|b| matches!(b, b'i' | b'm' | b's' | b'U' | b'-')).count();
        match inner.as_bytes().get(flags) {
            Some(b':') => {
                self.out.push_str(&rest[..flags + 2]);
                Ok(&rest[flags + 2..])
            }
            Some(b')') if flags > 0 => {
                self.out.push_str(&rest[..=flags]);
                Ok(&rest[flags + 1..])
            }
            _ => {
                let shown: String = before.chars().take(flags + 3).collect();
                Err(format!("invalid or unsupported Perl syntax: `{shown}`"))
            }
        }
    }

    fn open_class<'p>(&mut self, rest: &'p str) -> &'p str {
        self.class = true;
        self.out.push('[');
        let mut rest = rest;
        if let Some(tail) = rest.strip_prefix('^') {
            self.out.push('^');
            rest = tail;
        }
        // A bracket that stands first is itself.
        if let Some(tail) = rest.strip_prefix(']') {
            self.out.push_str("\\]");
            rest = tail;
        }
        rest
    }

    fn in_class<'p>(&mut self, c: char, rest: &'p str, pattern: &str) -> Result<&'p str, String> {
        match c {
            ']' => {
                self.class = false;
                self.out.push(']');
                Ok(rest)
            }
            '\\' => self.escape(rest),
            '[' if rest.starts_with(':') => {
                let end = rest.find(":]").ok_or_else(|| format!("missing closing ]: `{pattern}`"))?;
                self.out.push('[');
                self.out.push_str(&rest[..end + 2]);
                Ok(&rest[end + 2..])
            }
            c => {
                // These have a meaning in the classes of `regex` only.
                if matches!(c, '[' | '&' | '~')
                    || c == '-' && (rest.starts_with(']') || self.out.ends_with('['))
                {
                    self.out.push('\\');
                }
                self.out.push(c);
                Ok(rest)
            }
        }
    }

    fn escape<'p>(&mut self, rest: &'p str) -> Result<&'p str, String> {
        let Some(c) = rest.chars().next() else {
            return Err("trailing backslash at end of expression: ``".into());
        };
        let tail = &rest[c.len_utf8()..];
        let (inside, negated) = match c {
            'd' | 'D' => ("0-9", c == 'D'),
            'w' | 'W' => ("0-9A-Za-z_", c == 'W'),
            's' | 'S' => ("\\t\\n\\x0C\\r ", c == 'S'),
            'b' | 'B' if !self.class => {
                self.out.push_str(if c == 'b' { "(?-u:\\b)" } else { "(?-u:\\B)" });
                return Ok(tail);
            }
            'Q' if !self.class => {
                let end = tail.find("\\E").unwrap_or(tail.len());
                self.out.push_str(&regex::escape(&tail[..end]));
                return Ok(tail.get(end + 2..).unwrap_or_default());
            }
            'A' | 'z' if !self.class => {
                self.out.push('\\');
                self.out.push(c);
                return Ok(tail);
            }
            'p' | 'P' => return self.unicode(c, tail),
            'a' | 'f' | 't' | 'n' | 'r' | 'v' | 'x' => {
                self.out.push('\\');
                self.out.push(c);
                return Ok(tail);
            }
            '0'..='7' => return self.octal(rest),
            c if c.is_ascii_punctuation() => {
                self.out.push('\\');
                self.out.push(c);
                return Ok(tail);
            }
            c => return Err(format!("invalid escape sequence: `\\{c}`")),
        };
        let text = if negated { format!("[^{inside}]") } else { format!("[{inside}]") };
        self.out.push_str(&text);
        Ok(tail)
    }

    fn octal<'p>(&mut self, rest: &'p str) -> Result<&'p str, String> {
        let digits = rest.bytes().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
        // A single digit from 1 on refers to a group, which RE2 does not have.
        if digits < 2 && !rest.starts_with('0') {
            return Err(format!("invalid escape sequence: `\\{}`", &rest[..1]));
        }
        let code = u32::from_str_radix(&rest[..digits], 8).unwrap_or_default();
        let code = format!("\\x{{{code:x}}}");
        self.out.push_str(&code);
        Ok(&rest[digits..])
    }

    fn unicode<'p>(&mut self, c: char, tail: &'p str) -> Result<&'p str, String> {
        let length = match tail.strip_prefix('{') {
            Some(name) => name.find('}').map(|i| i + 2),
            None => tail.chars().next().map(char::len_utf8),
        };
        let length = length.ok_or_else(|| format!("invalid character class range: `\\{c}`"))?;
        self.out.push('\\');
        self.out.push(c);
        self.out.push_str(&tail[..length]);
        Ok(&tail[length..])
    }
}

/// How often an operator repeats: its greatest count, or its least if there is none; 1 for those without counts.
fn count(operator: &str) -> u32 {
    let Some(counts) = operator.strip_prefix('{') else { return 1 };
    let counts = counts.split('}').next().unwrap_or_default();
    let (least, most) = counts.split_once(',').unwrap_or((counts, counts));
    if most.is_empty() { least } else { most }.parse().unwrap_or(1)
}

/// The length of a repetition operator; `None` for a brace that is none.
fn repetition(rest: &str) -> Result<Option<usize>, String> {
    let length = if let Some(inner) = rest.strip_prefix('{') {
        let Some(end) = inner.find('}') else { return Ok(None) };
        let counts: Vec<&str> = inner[..end].split(',').collect();
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        let (least, most) = match counts[..] {
            [n] if digits(n) => (n, n),
            [n, ""] if digits(n) => (n, n),
            [n, m] if digits(n) && digits(m) => (n, m),
            _ => return Ok(None),
        };
        let number = |s: &str| s.parse::<u32>().ok().filter(|n| *n <= MOST_REPEATS);
        match (number(least), number(most)) {
            (Some(a), Some(b)) if a <= b => end + 2,
            _ => return Err(format!("invalid repeat count: `{}`", &rest[..end + 2])),
        }
    } else {
        1
    };
    Ok(Some(if rest[length..].starts_with('?') { length + 1 } else { length }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_syntax() {
        for (pattern, text, expected) in [
            (r"\d+", "١", Ok(false)),
            (r"^\w+$", "é", Ok(false)),
            (r"[\d_]+", "1_", Ok(true)),
            (r"[^\W]", "a", Ok(true)),
            (r"a{2}", "aa", Ok(true)),
            (r"a{,2}", "a{,2}", Ok(true)),
            (r"{", "{", Ok(true)),
            (r"\Qa.b\E+", "a.bb", Ok(true)),
            (r"[]a]", "]", Ok(true)),
            (r"[a-]", "-", Ok(true)),
            (r"[[:alpha:]]+", "abc", Ok(true)),
            (r"(?P<name>x)", "x", Ok(true)),
            (r"a&&b", "a&&b", Ok(true)),
            (r"[a&&b]", "&", Ok(true)),
            ("(", "", Err("error parsing regexp: missing closing ): `(`")),
            (")", "", Err("error parsing regexp: unexpected ): `)`")),
            ("[a", "", Err("error parsing regexp: missing closing ]: `[a`")),
            ("*", "", Err("error parsing regexp: missing argument to repetition operator: `*`")),
            ("a**", "", Err("error parsing regexp: invalid nested repetition operator: `*`")),
            ("a{1001}", "", Err("error parsing regexp: invalid repeat count: `{1001}`")),
            ("(a{10}){100}", &"a".repeat(1000), Ok(true)),
            ("((a{10})b){101,}?", "", Err("error parsing regexp: invalid repeat count: `{101,}?`")),
            ("((a{1000}){1000}){1000}", "", Err("error parsing regexp: invalid repeat count: `{1000}`")),
            ("(a{1000})*(b{0}){1000}c{1000}", "", Ok(false)),
            ("(?=a)", "", Err("error parsing regexp: invalid or unsupported Perl syntax: `(?=`")),
            (r"\1", "", Err(r"error parsing regexp: invalid escape sequence: `\1`")),
        ] {
            let got = compile(pattern).map(|p| p.is_match(text));
            assert_eq!(got, expected.map_err(str::to_owned), "{pattern}");
            assert_eq!(check(pattern), expected.map(drop).map_err(str::to_owned), "{pattern}");
        }
    }

    #[test]
    fn great_expressions_are_refused() {
        // As in Go it is none too great, but too great to be run here.
        check(r"\pL{1000}").unwrap();
        assert_eq!(compile(r"\pL{1000}").unwrap_err(), "error parsing regexp: expression too large");
        assert!(compile(&"(a{1000}){1000}".repeat(2)).is_err());
        assert!(compile(&"(".repeat(100_000)).is_err());
        assert!(compile(&format!("{}{}", "(".repeat(10_000), ")".repeat(10_000))).is_err());
    }
}
