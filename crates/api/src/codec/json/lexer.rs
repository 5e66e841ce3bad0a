//! JSON's tokens, in one pass over the bytes, with the error texts of Go's scanner.

use std::borrow::Cow;

use super::super::DecodeError;
use crate::depth::TOO_DEEP;

/// A result whose error is bad syntax.
pub(super) type Lexed<T> = Result<T, DecodeError>;

/// The tokens of a text.
pub(super) struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// The number of further levels that may open.
    left: usize,
}

/// Prints a byte that may not stand in its place, as Go does.
fn shown(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".into(),
        b'"' => "'\"'".into(),
        _ => {
            let quoted = crate::go::quote(&char::from(byte).to_string());
            format!("'{}'", &quoted[1..quoted.len() - 1])
        }
    }
}

impl<'a> Lexer<'a> {
    /// Makes a lexer of a text that may nest so deeply.
    pub(super) fn new(text: &'a str, depth: usize) -> Self {
        Self { text, bytes: text.as_bytes(), at: 0, left: depth }
    }

    #[cold]
    fn unexpected(&self, context: &str) -> DecodeError {
        match self.bytes.get(self.at) {
            None => DecodeError::Syntax("unexpected end of JSON input".into()),
            Some(b) => DecodeError::Syntax(format!("invalid character {} {context}", shown(*b))),
        }
    }

    /// The next byte that is no white space, not consumed; 0 at the end.
    #[inline]
    pub(super) fn peek(&mut self) -> u8 {
        while let Some(b) = self.bytes.get(self.at) {
            if !matches!(b, b' ' | b'\n' | b'\t' | b'\r') {
                return *b;
            }
            self.at += 1;
        }
        0
    }

    /// Checks that nothing but white space follows the root value.
    pub(super) fn end(&mut self) -> Lexed<()> {
        self.peek();
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.unexpected("after top-level value")) }
    }

    /// The error for a byte with which no value starts.
    pub(super) fn no_value(&self) -> DecodeError {
        self.unexpected("looking for beginning of value")
    }

    /// Consumes `{` or `[`.
    #[inline]
    pub(super) fn open(&mut self) -> Lexed<()> {
        self.at += 1;
        self.left = self.left.checked_sub(1).ok_or_else(|| DecodeError::Syntax(TOO_DEEP.into()))?;
        Ok(())
    }

    /// The next key of an object, with its colon, or `None` at its end.
    #[inline]
    pub(super) fn key(&mut self, first: bool) -> Lexed<Option<Cow<'a, str>>> {
        let mut b = self.peek();
        if b == b'}' {
            self.at += 1;
            self.left += 1;
            return Ok(None);
        }
        if !first {
            if b != b',' {
                return Err(self.unexpected("after object key:value pair"));
            }
            self.at += 1;
            b = self.peek();
        }
        if b != b'"' {
            return Err(self.unexpected("looking for beginning of object key string"));
        }
        let key = self.string()?;
        if self.peek() != b':' {
            return Err(self.unexpected("after object key"));
        }
        self.at += 1;
        Ok(Some(key))
    }

    /// Whether another element of an array follows.
    #[inline]
    pub(super) fn element(&mut self, first: bool) -> Lexed<bool> {
        match self.peek() {
            b']' => {
                self.at += 1;
                self.left += 1;
                Ok(false)
            }
            _ if first => Ok(true),
            b',' => {
                self.at += 1;
                Ok(true)
            }
            _ => Err(self.unexpected("after array element")),
        }
    }

    /// A string; the next byte is its opening quote.
    #[inline]
    pub(super) fn string(&mut self) -> Lexed<Cow<'a, str>> {
        let start = self.at + 1;
        let mut i = start;
        loop {
            match self.bytes.get(i) {
                Some(b'"') => {
                    self.at = i + 1;
                    return Ok(Cow::Borrowed(&self.text[start..i]));
                }
                Some(b) if *b != b'\\' && *b >= 0x20 => i += 1,
                Some(b'\\') => return self.escaped(start, i).map(Cow::Owned),
                _ => {
                    self.at = i;
                    return Err(self.unexpected("in string literal"));
                }
            }
        }
    }

    #[cold]
    fn escaped(&mut self, start: usize, first: usize) -> Lexed<String> {
        let mut out = String::with_capacity((first - start) * 2);
        out.push_str(&self.text[start..first]);
        self.at = first;
        loop {
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    let plain = match self.bytes.get(self.at) {
                        Some(b @ (b'"' | b'\\' | b'/')) => char::from(*b),
                        Some(b'b') => '\u{8}',
                        Some(b'f') => '\u{c}',
                        Some(b'n') => '\n',
                        Some(b'r') => '\r',
                        Some(b't') => '\t',
                        Some(b'u') => {
                            self.at += 1;
                            let c = self.unicode()?;
                            out.push(c);
                            continue;
                        }
                        _ => return Err(self.unexpected("in string escape code")),
                    };
                    self.at += 1;
                    out.push(plain);
                }
                Some(b) if *b >= 0x20 => {
                    let from = self.at;
                    while self.bytes.get(self.at).is_some_and(|b| *b >= 0x20 && *b != b'"' && *b != b'\\') {
                        self.at += 1;
                    }
                    out.push_str(&self.text[from..self.at]);
                }
                _ => return Err(self.unexpected("in string literal")),
            }
        }
    }

    fn hex(&mut self) -> Lexed<u32> {
        let mut n = 0;
        for _ in 0..4 {
            let digit = self.bytes.get(self.at).and_then(|b| char::from(*b).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.unexpected("in \\u hexadecimal character escape"));
            };
            n = n * 16 + digit;
            self.at += 1;
        }
        Ok(n)
    }

    /// The character of a `\u` escape; half a pair of surrogates becomes U+FFFD.
    fn unicode(&mut self) -> Lexed<char> {
        let first = self.hex()?;
        if (0xd800..0xdc00).contains(&first) && self.bytes[self.at..].starts_with(b"\\u") {
            let back = self.at;
            self.at += 2;
            let second = self.hex()?;
            if (0xdc00..0xe000).contains(&second) {
                let c = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = back;
        }
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// The text of a number, of which the next byte is the first.
    pub(super) fn number(&mut self) -> Lexed<&'a str> {
        let start = self.at;
        if self.bytes[self.at] == b'-' {
            self.at += 1;
        }
        match self.bytes.get(self.at) {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.unexpected("in numeric literal")),
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            if !self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
                return Err(self.unexpected("after decimal point in numeric literal"));
            }
            self.digits();
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.bytes.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
                return Err(self.unexpected("in exponent of numeric literal"));
            }
            self.digits();
        }
        Ok(&self.text[start..self.at])
    }

    #[inline]
    fn digits(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    /// Consumes `null`, `true` or `false`, of which the next byte is the first.
    pub(super) fn word(&mut self, word: &'static str) -> Lexed<()> {
        for expected in word.bytes() {
            if self.bytes.get(self.at) != Some(&expected) {
                let context = format!("in literal {word} (expecting {})", shown(expected));
                return Err(self.unexpected(&context));
            }
            self.at += 1;
        }
        Ok(())
    }

    /// The text of a value, which is passed over; the next byte is its first.
    pub(super) fn raw(&mut self) -> Lexed<&'a str> {
        let start = self.at;
        self.skip()?;
        Ok(&self.text[start..self.at])
    }

    /// Passes over a value.
    pub(super) fn skip(&mut self) -> Lexed<()> {
        match self.peek() {
            b'{' => {
                self.open()?;
                let mut first = true;
                while self.key(first)?.is_some() {
                    first = false;
                    self.skip()?;
                }
                Ok(())
            }
            b'[' => {
                self.open()?;
                let mut first = true;
                while self.element(first)? {
                    first = false;
                    self.skip()?;
                }
                Ok(())
            }
            b'"' => self.string().map(|_| ()),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            b'-' | b'0'..=b'9' => self.number().map(|_| ()),
            _ => Err(self.no_value()),
        }
    }
}
