//! The tokens of an expression.

use super::issue::Issue;

/// The kind of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// An identifier, or a word that the language reserves.
    Word,
    Int,
    Uint,
    Float,
    Text,
    Bytes,
    /// An operator or a bracket.
    Sign,
    End,
}

/// A token and where it begins, in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) text: String,
    pub(super) at: usize,
}

const SIGNS: &[&str] = &[
    "==", "!=", "<=", ">=", "&&", "||", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "+", "*",
    "/", "%", "<", ">",
];

/// The tokens of a source, the last of which is its end.
pub(super) fn tokens(source: &str) -> (Vec<Token>, Vec<Issue>) {
    let chars: Vec<char> = source.chars().collect();
    let (mut out, mut issues) = (Vec::new(), Vec::new());
    let mut at = 0;
    // Errors beyond those that are shown are not looked for.
    while at < chars.len() && issues.len() < super::issue::MOST_SHOWN {
        let c = chars[at];
        let rest = &chars[at..];
        if matches!(c, ' ' | '\t' | '\r' | '\n' | '\u{c}') {
            at += 1;
            continue;
        }
        if rest.starts_with(&['/', '/']) {
            at += rest.iter().take_while(|c| **c != '\n').count();
            continue;
        }
        let (kind, len) = if let Some((kind, len)) = quoted(rest) {
            (kind, len)
        } else if c.is_ascii_alphabetic() || c == '_' {
            (Kind::Word, rest.iter().take_while(|c| c.is_ascii_alphanumeric() || **c == '_').count())
        } else if c.is_ascii_digit() || c == '.' && rest.get(1).is_some_and(char::is_ascii_digit) {
            number(rest)
        } else if let Some(sign) = SIGNS.iter().find(|s| s.chars().eq(rest.iter().copied().take(s.len()))) {
            (Kind::Sign, sign.len())
        } else {
            let text = format!("Syntax error: token recognition error at: '{c}'");
            issues.push(Issue { at, text });
            at += 1;
            continue;
        };
        out.push(Token { kind, text: rest[..len].iter().collect(), at });
        at += len;
    }
    out.push(Token { kind: Kind::End, text: "<EOF>".into(), at });
    (out, issues)
}

fn number(rest: &[char]) -> (Kind, usize) {
    let digits = |from: usize| rest[from..].iter().take_while(|c| c.is_ascii_digit()).count();
    if rest[0] == '0' && rest.get(1) == Some(&'x') && rest.get(2).is_some_and(char::is_ascii_hexdigit) {
        let len = 2 + rest[2..].iter().take_while(|c| c.is_ascii_hexdigit()).count();
        return unsigned(rest, len);
    }
    let mut len = digits(0);
    let mut float = false;
    if rest.get(len) == Some(&'.') && rest.get(len + 1).is_some_and(char::is_ascii_digit) {
        len += 1;
        len += digits(len);
        float = true;
    }
    if matches!(rest.get(len), Some('e' | 'E')) {
        let sign = usize::from(matches!(rest.get(len + 1), Some('+' | '-')));
        let exponent = rest.get(len + 1 + sign..).map_or(0, |_| digits(len + 1 + sign));
        if exponent > 0 {
            len += 1 + sign + exponent;
            float = true;
        }
    }
    if float { (Kind::Float, len) } else { unsigned(rest, len) }
}

fn unsigned(rest: &[char], len: usize) -> (Kind, usize) {
    if matches!(rest.get(len), Some('u' | 'U')) { (Kind::Uint, len + 1) } else { (Kind::Int, len) }
}

/// A string or bytes with its quotes: three of a kind or one, raw with `r`.
fn quoted(rest: &[char]) -> Option<(Kind, usize)> {
    let prefix = rest.iter().take(2).take_while(|c| matches!(c, 'r' | 'R' | 'b' | 'B')).count();
    let (raw, bytes) = rest[..prefix].iter().fold((0, 0), |(r, b), c| match c {
        'r' | 'R' => (r + 1, b),
        _ => (r, b + 1),
    });
    if raw > 1 || bytes > 1 {
        return None;
    }
    let quote = *rest.get(prefix).filter(|c| matches!(c, '"' | '\''))?;
    let kind = if bytes == 1 { Kind::Bytes } else { Kind::Text };
    let three = rest.get(prefix..prefix + 3).is_some_and(|q| q.iter().all(|c| *c == quote));
    let mut at = prefix + if three { 3 } else { 1 };
    loop {
        match rest.get(at)? {
            '\\' if raw == 0 => at += 2,
            c if *c == quote && !three => return Some((kind, at + 1)),
            c if *c == quote && rest.get(at..at + 3).is_some_and(|q| q.iter().all(|c| *c == quote)) => {
                return Some((kind, at + 3));
            }
            '\n' | '\r' if !three => return None,
            _ => at += 1,
        }
    }
}
