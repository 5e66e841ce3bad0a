//! Rust's tokens, as far as rules need them.

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An identifier or keyword.
    Word,
    /// A string of any form; its text is the part between the quotes, as written.
    String,
    /// A number, a character or a lifetime.
    Other,
    /// One character, or `::`.
    Punctuation,
}

/// A token and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The token's kind.
    pub kind: Kind,
    /// The token's text.
    pub text: String,
    /// The token's line, from 1.
    pub line: usize,
}

/// One line of a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// The mark of the comment: `//`, `///`, `//!` or `/*`.
    pub mark: &'static str,
    /// The text of the line, without marks and the spaces around it.
    pub text: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in which the comment begins, in bytes from 0.
    pub column: usize,
}

/// The tokens and the comments of a file. A file that does not compile gives some, too.
pub(crate) fn read(text: &str) -> (Vec<Token>, Vec<Comment>) {
    let mut reader = Reader { rest: text, line: 1, column: 0, out: Vec::new(), comments: Vec::new() };
    while reader.step() {}
    (reader.out, reader.comments)
}

/// The marks of comments, the longer ones first.
const MARKS: [&str; 4] = ["///", "//!", "//", "/*"];

struct Reader<'a> {
    rest: &'a str,
    line: usize,
    column: usize,
    out: Vec<Token>,
    comments: Vec<Comment>,
}

impl<'a> Reader<'a> {
    /// Takes the next token or comment; returns false at the end.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else { return false };
        if first.is_whitespace() {
            self.take(first.len_utf8());
        } else if self.rest.starts_with("//") {
            self.comment(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.comment(block_comment(self.rest));
        } else if let Some((before, after, length)) = string(self.rest) {
            let text = self.rest.get(before..length - after).unwrap_or_default();
            self.push(Kind::String, text, length);
        } else if first == '\'' {
            let length = quote(self.rest);
            self.push(Kind::Other, self.rest.get(..length).unwrap_or_default(), length);
        } else if first.is_alphanumeric() || first == '_' {
            let length =
                self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
            let kind = if first.is_ascii_digit() { Kind::Other } else { Kind::Word };
            self.push(kind, self.rest.get(..length).unwrap_or_default(), length);
        } else {
            let length = if self.rest.starts_with("::") { 2 } else { first.len_utf8() };
            self.push(Kind::Punctuation, self.rest.get(..length).unwrap_or_default(), length);
        }
        true
    }

    fn push(&mut self, kind: Kind, text: &'a str, length: usize) {
        self.out.push(Token { kind, text: text.to_owned(), line: self.line });
        self.take(length);
    }

    /// Takes a comment of this length, line by line.
    fn comment(&mut self, length: usize) {
        let whole = self.rest.get(..length).unwrap_or_default();
        let mark = MARKS.into_iter().find(|m| whole.starts_with(m)).unwrap_or_default();
        let inner = whole.strip_prefix(mark).unwrap_or(whole);
        for (i, text) in inner.strip_suffix("*/").unwrap_or(inner).split('\n').enumerate() {
            let text = text.trim();
            let text = if mark == "/*" { text.trim_start_matches('*').trim_start() } else { text };
            self.comments.push(Comment {
                mark,
                text: text.to_owned(),
                line: self.line + i,
                column: self.column,
            });
        }
        self.take(length);
    }

    fn take(&mut self, length: usize) {
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.line += taken.matches('\n').count();
        self.column = match taken.rfind('\n') {
            Some(at) => taken.len() - at - 1,
            None => self.column + taken.len(),
        };
        self.rest = rest;
    }
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let rest = text.as_bytes().get(at..at + 2).unwrap_or_default();
        match rest {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// A string that begins here: the lengths of its opening, of its end and of the whole.
fn string(text: &str) -> Option<(usize, usize, usize)> {
    let prefix = text.find(|c| !matches!(c, 'b' | 'c' | 'r'))?;
    if prefix > 2 {
        return None;
    }
    let (letters, rest) = text.split_at(prefix);
    if letters.ends_with('r') {
        let hashes = rest.find(|c| c != '#')?;
        let open = prefix + hashes + 1;
        let inner = text.get(open..).filter(|_| rest.get(hashes..).is_some_and(|r| r.starts_with('"')))?;
        let end = format!("\"{}", "#".repeat(hashes));
        let length = inner.find(&end).map_or(text.len(), |at| open + at + end.len());
        return Some((open, end.len(), length));
    }
    rest.strip_prefix('"')?;
    let mut escaped = false;
    for (i, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some((prefix + 1, 1, prefix + i + 1)),
            _ => {}
        }
    }
    Some((prefix + 1, 0, text.len()))
}

/// The length of a character or lifetime.
fn quote(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            chars.next();
            chars.find(|(_, c)| *c == '\'').map_or(text.len(), |(i, _)| i + 1)
        }
        Some((_, c)) => match chars.next() {
            Some((i, '\'')) => i + 1,
            _ if c.is_alphabetic() || c == '_' => text
                .char_indices()
                .skip(1)
                .find(|(_, c)| !c.is_alphanumeric() && *c != '_')
                .map_or(text.len(), |(i, _)| i),
            _ => 1,
        },
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let check = |text: &str, expected: &[(Kind, &str)]| {
            let (found, _) = read(text);
            let found: Vec<(Kind, &str)> = found.iter().map(|t| (t.kind, t.text.as_str())).collect();
            assert_eq!(found, expected, "{text}");
        };
        use Kind::{Other, Punctuation, String, Word};
        check("a::b // c", &[(Word, "a"), (Punctuation, "::"), (Word, "b")]);
        check("/* a /* b */ \" */ c", &[(Word, "c")]);
        check(r#""a\"b" c"#, &[(String, r#"a\"b"#), (Word, "c")]);
        check(r##"r#"a"b"# c"##, &[(String, "a\"b"), (Word, "c")]);
        check(r#"b"a" br"\" r"b""#, &[(String, "a"), (String, "\\"), (String, "b")]);
        check(
            "'a' '\\'' '\"' 'a b",
            &[(Other, "'a'"), (Other, "'\\''"), (Other, "'\"'"), (Other, "'a"), (Word, "b")],
        );
        check("r b1 1.5", &[(Word, "r"), (Word, "b1"), (Other, "1"), (Punctuation, "."), (Other, "5")]);
        check("\"a", &[(String, "a")]);
        check("'\\", &[(Other, "'\\")]);
        check("/*", &[]);
    }

    #[test]
    fn lines() {
        let found: Vec<usize> = read("a\n\"b\nc\"\n/* \n */ d").0.iter().map(|t| t.line).collect();
        assert_eq!(found, [1, 2, 5]);
    }

    #[test]
    fn comments() {
        let check = |text: &str, expected: &[(&str, &str, usize, usize)]| {
            let (_, found) = read(text);
            let found: Vec<_> = found.iter().map(|c| (c.mark, c.text.as_str(), c.line, c.column)).collect();
            assert_eq!(found, expected, "{text}");
        };
        check(
            "a // b\n  /// c\n  ///\n//! d",
            &[("//", "b", 1, 2), ("///", "c", 2, 2), ("///", "", 3, 2), ("//!", "d", 4, 0)],
        );
        check("/* a\n * b */ c", &[("/*", "a", 1, 0), ("/*", "b", 2, 0)]);
        check("\"// a\" '\"' // b", &[("//", "b", 1, 11)]);
        check("/*", &[("/*", "", 1, 0)]);
        check("//", &[("//", "", 1, 0)]);
    }
}
