//! The tokens of an expression.

use crate::issue::Issues;

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    /// An identifier, or a word that the language reserves.
    Word,
    /// An identifier between backquotes, which no environment of Kubernetes' allows.
    Escaped,
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
pub(crate) struct Lexeme {
    pub(crate) token: Token,
    pub(crate) text: String,
    pub(crate) at: usize,
}

const SIGNS: &[&str] = &[
    "==", "!=", "<=", ">=", "&&", "||", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "+", "*",
    "/", "%", "<", ">",
];

/// The greatest number of complaints about characters; there is no use in more.
const MOST_ERRORS: usize = 100;

/// The tokens of a source, the last of which is its end.
pub(crate) fn tokens(source: &str, issues: &mut Issues) -> Vec<Lexeme> {
    let chars: Vec<char> = source.chars().collect();
    let mut out = Vec::new();
    let mut at = 0;
    while at < chars.len() && issues.total() < MOST_ERRORS {
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
        match one(rest) {
            Ok((token, len)) => {
                out.push(Lexeme { token, text: rest[..len].iter().collect(), at });
                at += len;
            }
            Err(len) => {
                let text: String = rest[..len].iter().collect();
                issues.push(Some(at), format!("Syntax error: token recognition error at: '{text}'"));
                at += len;
            }
        }
    }
    out.push(Lexeme { token: Token::End, text: "<EOF>".into(), at: at.min(chars.len()) });
    out
}

/// The token at the beginning and its length, or the number of characters up to the one that no token allows.
fn one(rest: &[char]) -> Result<(Token, usize), usize> {
    let c = rest[0];
    if let Some(quoted) = quoted(rest) {
        return quoted;
    }
    if c.is_ascii_alphabetic() || c == '_' {
        return Ok((Token::Word, word(rest)));
    }
    if c.is_ascii_digit() || c == '.' && rest.get(1).is_some_and(char::is_ascii_digit) {
        return Ok(number(rest));
    }
    if c == '`' {
        let inner = rest[1..].iter().take_while(|c| escaped_char(**c)).count();
        return match rest.get(1 + inner) {
            Some('`') if inner > 0 => Ok((Token::Escaped, inner + 2)),
            _ => Err((inner + 2).min(rest.len())),
        };
    }
    if let Some(sign) = SIGNS.iter().find(|s| s.chars().eq(rest.iter().copied().take(s.len()))) {
        return Ok((Token::Sign, sign.len()));
    }
    // The first half of a sign of two characters takes the next character along.
    Err(if matches!(c, '&' | '|' | '=') { rest.len().min(2) } else { 1 })
}

fn escaped_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ' ')
}

fn word(rest: &[char]) -> usize {
    rest.iter().take_while(|c| c.is_ascii_alphanumeric() || **c == '_').count()
}

fn number(rest: &[char]) -> (Token, usize) {
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
    if float { (Token::Float, len) } else { unsigned(rest, len) }
}

fn unsigned(rest: &[char], len: usize) -> (Token, usize) {
    if matches!(rest.get(len), Some('u' | 'U')) { (Token::Uint, len + 1) } else { (Token::Int, len) }
}

/// A string or bytes with its quotes, three of a kind or one, raw with `r`; `None` where there is no quote.
fn quoted(rest: &[char]) -> Option<Result<(Token, usize), usize>> {
    let (bytes, raw) = match rest {
        ['b' | 'B', 'r' | 'R', '"' | '\'', ..] => (true, true),
        ['b' | 'B', '"' | '\'', ..] => (true, false),
        ['r' | 'R', '"' | '\'', ..] => (false, true),
        ['"' | '\'', ..] => (false, false),
        _ => return None,
    };
    let prefix = usize::from(bytes) + usize::from(raw);
    let token = if bytes { Token::Bytes } else { Token::Text };
    let quote = rest[prefix];
    let three = rest.get(prefix..prefix + 3).is_some_and(|q| q.iter().all(|c| *c == quote));
    if three {
        // Three quotes that nothing closes are an empty string and another quote.
        let len = closed(rest, prefix + 3, quote, raw, true).unwrap_or(prefix + 2);
        return Some(Ok((token, len)));
    }
    let result = match closed(rest, prefix + 1, quote, raw, false) {
        Ok(len) => Ok((token, len)),
        // A letter before a quote that nothing closes is a word.
        Err(_) if prefix > 0 => Ok((Token::Word, prefix)),
        Err(len) => Err(len),
    };
    Some(result)
}

/// The length up to the closing quotes, or up to the character that may not be there.
fn closed(rest: &[char], from: usize, quote: char, raw: bool, three: bool) -> Result<usize, usize> {
    let mut at = from;
    loop {
        match rest.get(at) {
            None => return Err(rest.len()),
            Some('\\') if !raw => at = escape(rest, at)?,
            Some(c) if *c == quote && !three => return Ok(at + 1),
            Some(c) if *c == quote && rest.get(at..at + 3).is_some_and(|q| q.iter().all(|c| *c == quote)) => {
                return Ok(at + 3);
            }
            Some('\n' | '\r') if !three => return Err(at + 1),
            _ => at += 1,
        }
    }
}

/// The place after an escape sequence.
fn escape(rest: &[char], at: usize) -> Result<usize, usize> {
    let hex = |n: usize| (n, char::is_ascii_hexdigit as fn(&char) -> bool);
    let octal: fn(&char) -> bool = |c| ('0'..='7').contains(c);
    let (digits, is_digit) = match rest.get(at + 1) {
        None => return Err(rest.len()),
        Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`') => return Ok(at + 2),
        Some('x' | 'X') => hex(2),
        Some('u') => hex(4),
        Some('U') => hex(8),
        Some('0'..='3') => (2, octal),
        Some(_) => return Err(at + 2),
    };
    for i in at + 2..at + 2 + digits {
        if !rest.get(i).is_some_and(is_digit) {
            return Err((i + 1).min(rest.len()));
        }
    }
    Ok(at + 2 + digits)
}
