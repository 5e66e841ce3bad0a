//! The values of numbers, strings and bytes in a source.

use crate::ast::Literal;

use super::lex::Token;

/// The value of a token; `negative` is a sign before a number.
pub(super) fn value(token: Token, text: &str, negative: bool) -> Result<Literal, &'static str> {
    let sign = if negative { "-" } else { "" };
    match token {
        Token::Int => match text.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16),
            None => format!("{sign}{text}").parse(),
        }
        .map(Literal::Int)
        .map_err(|_| "invalid int literal"),
        Token::Uint => {
            let text = &text[..text.len() - 1];
            match text.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16),
                None => text.parse(),
            }
            .map(Literal::Uint)
            .map_err(|_| "invalid uint literal")
        }
        Token::Float => match format!("{sign}{text}").parse::<f64>() {
            Ok(f) if f.is_finite() => Ok(Literal::Double(f)),
            _ => Err("invalid double literal"),
        },
        Token::Bytes => unescape(&text[1..], true).map(|b| Literal::Bytes(b.into())),
        _ => {
            let bytes = unescape(text, false)?;
            let text = String::from_utf8(bytes).map_err(|_| UNABLE)?;
            Ok(Literal::String(text.into()))
        }
    }
}

const UNABLE: &str = "unable to unescape string";

/// The content of a quoted text.
fn unescape(text: &str, bytes: bool) -> Result<Vec<u8>, &'static str> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (raw, text) = match text.strip_prefix(['r', 'R']) {
        Some(rest) => (true, rest),
        None => (false, &*text),
    };
    let quotes =
        if text.len() >= 6 && (text.starts_with("'''") || text.starts_with("\"\"\"")) { 3 } else { 1 };
    let inner = text.get(quotes..text.len() - quotes).ok_or(UNABLE)?;
    if raw || !inner.contains('\\') {
        return Ok(inner.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c == '\\' {
            rest = escape(rest, bytes, &mut out)?;
        } else {
            push(&mut out, c);
        }
    }
    Ok(out)
}

fn push(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// Writes the character of an escape sequence, and returns what follows it.
fn escape<'a>(rest: &'a str, bytes: bool, out: &mut Vec<u8>) -> Result<&'a str, &'static str> {
    let c = rest.bytes().next().ok_or(UNABLE)?;
    let tail = rest.get(1..).ok_or(UNABLE)?;
    let (digits, radix, skip) = match c {
        b'a' => return simple(out, 7, tail),
        b'b' => return simple(out, 8, tail),
        b'f' => return simple(out, 12, tail),
        b'n' => return simple(out, b'\n', tail),
        b'r' => return simple(out, b'\r', tail),
        b't' => return simple(out, b'\t', tail),
        b'v' => return simple(out, 11, tail),
        b'\\' | b'\'' | b'"' | b'`' | b'?' => return simple(out, c, tail),
        b'x' | b'X' => (2, 16, 1),
        b'u' | b'U' if bytes => return Err(UNABLE),
        b'u' => (4, 16, 1),
        b'U' => (8, 16, 1),
        _ => (3, 8, 0),
    };
    let text = rest.get(skip..skip + digits).ok_or(UNABLE)?;
    let code = u32::from_str_radix(text, radix).map_err(|_| UNABLE)?;
    if bytes {
        out.push(u8::try_from(code).map_err(|_| UNABLE)?);
    } else {
        push(out, char::from_u32(code).ok_or("invalid unicode code point")?);
    }
    rest.get(skip + digits..).ok_or(UNABLE)
}

fn simple<'a>(out: &mut Vec<u8>, byte: u8, tail: &'a str) -> Result<&'a str, &'static str> {
    out.push(byte);
    Ok(tail)
}
