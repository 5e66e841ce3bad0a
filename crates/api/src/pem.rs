//! PEM blocks (RFC 7468), found as Go's decoder finds them and written as its encoder writes them.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The type of blocks with certificates.
pub const CERTIFICATE: &str = "CERTIFICATE";

const BEGIN: &str = "-----BEGIN ";
const DASHES: &str = "-----";
/// How many characters of base64 a line has.
const LINE: usize = 64;

/// A block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The type: the text after `BEGIN`.
    pub kind: String,
    /// Whether there are headers (`Key: value`) before the data.
    pub headers: bool,
    /// The data.
    pub bytes: Vec<u8>,
}

/// The blocks of a text in their order. Text around them is passed over; malformed ones are no blocks.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let kind = line.trim_end().strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(DASHES));
        let Some(kind) = kind else { continue };
        let end = format!("-----END {kind}-----");
        let (mut data, mut headers, mut closed) = (String::new(), false, false);
        let mut ahead = lines.clone();
        for line in ahead.by_ref() {
            let line = line.trim();
            if line == end {
                closed = true;
                break;
            }
            if line.starts_with(BEGIN) {
                break;
            }
            if line.contains(':') && data.is_empty() {
                headers = true;
            } else {
                data.push_str(line);
            }
        }
        if closed && let Ok(bytes) = STANDARD.decode(&data) {
            lines = ahead;
            found.push(Block { kind: kind.into(), headers, bytes });
        }
    }
    found
}

/// The certificates of a text in their order, in DER. Blocks of another type are passed over, headers are not looked at.
pub fn certificates(text: &str) -> Vec<Vec<u8>> {
    blocks(text).into_iter().filter(|block| block.kind == CERTIFICATE).map(|block| block.bytes).collect()
}

/// A block of a type.
pub fn encode(kind: &str, data: &[u8]) -> String {
    let text = STANDARD.encode(data);
    let mut out = format!("{BEGIN}{kind}{DASHES}\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        // Base64 is ASCII.
        let (line, after) = rest.split_at(rest.len().min(LINE));
        out.push_str(line);
        out.push('\n');
        rest = after;
    }
    let _ = writeln!(out, "-----END {kind}-----");
    out
}

/// The block of a certificate in DER.
pub fn encode_certificate(der: &[u8]) -> String {
    encode(CERTIFICATE, der)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found() {
        let check = |text: &str, expected: &[(&str, bool, &[u8])]| {
            let got = blocks(text);
            let got: Vec<_> = got.iter().map(|b| (b.kind.as_str(), b.headers, b.bytes.as_slice())).collect();
            assert_eq!(got, expected, "{text}");
        };
        let one = "-----BEGIN A-----\nAAAA\nAAAA\n-----END A-----\n";
        check(one, &[("A", false, &[0; 6])]);
        check(&format!("x\n{one}y\n{one}"), &[("A", false, &[0; 6]), ("A", false, &[0; 6])]);
        check("-----BEGIN A-----\nK: v\n\nAAAA\n-----END A-----", &[("A", true, &[0; 3])]);
        check("-----BEGIN A-----\r\nAAAA\r\n-----END A-----\r\n", &[("A", false, &[0; 3])]);
        check("-----BEGIN A-----\n-----END A-----", &[("A", false, &[])]);
        check("-----BEGIN A-----\nAAAA\n-----END B-----\n", &[]);
        check(&format!("-----BEGIN A-----\nAAAA\n{one}"), &[("A", false, &[0; 6])]);
        check("-----BEGIN A-----\nA!\n-----END A-----", &[]);
        check("-----BEGIN A-----\nAAAA\n", &[]);
        check("", &[]);
    }

    #[test]
    fn certificates_are_found() {
        let check = |text: &str, expected: &[&[u8]]| assert_eq!(certificates(text), expected, "{text}");
        let one = "-----BEGIN CERTIFICATE-----\nAAAA\nAAAA\n-----END CERTIFICATE-----\n";
        check(&format!("x\n{one}y\n{one}"), &[&[0; 6], &[0; 6]]);
        check(&format!("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n{one}"), &[&[0; 6]]);
    }

    #[test]
    fn blocks_are_as_gos() {
        let check = |length: usize, lines: &[usize]| {
            let text = encode("X", &vec![0; length]);
            let inner: Vec<usize> = text.lines().map(str::len).collect();
            assert_eq!(inner[1..inner.len() - 1], *lines, "{length}");
            assert!(text.starts_with("-----BEGIN X-----\n") && text.ends_with("\n-----END X-----\n"));
            assert_eq!(blocks(&text)[0].bytes, vec![0; length]);
        };
        check(0, &[]);
        check(3, &[4]);
        check(48, &[64]);
        check(49, &[64, 4]);
        let all: [&[u8]; 2] = [&[1, 2, 3], &[4; 200]];
        let text: String = all.iter().map(|der| encode_certificate(der)).collect();
        assert_eq!(certificates(&text), all);
    }
}
