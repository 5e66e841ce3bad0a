//! PEM (RFC 7468) of certificates and keys, read as Go's decoder reads it and written as its encoder does.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const BEGIN: &str = "-----BEGIN ";
const DASHES: &str = "-----";
/// The type of blocks with certificates.
const CERTIFICATE: &str = "CERTIFICATE";
/// How many characters of base64 a line has.
const LINE: usize = 64;

/// The certificates of a text, in their order. Text between blocks, headers of blocks, blocks of another type and
/// malformed ones are passed over.
pub(crate) fn certificates(text: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let kind = line.trim_end().strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(DASHES));
        let Some(kind) = kind else { continue };
        let end = format!("-----END {kind}-----");
        let (mut data, mut closed) = (String::new(), false);
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
            if !line.contains(':') || !data.is_empty() {
                data.push_str(line);
            }
        }
        if closed && let Ok(bytes) = STANDARD.decode(&data) {
            lines = ahead;
            if kind == CERTIFICATE {
                found.push(bytes);
            }
        }
    }
    found
}

/// A block.
pub(crate) fn encode(kind: &str, data: &[u8]) -> String {
    let text = STANDARD.encode(data);
    let mut out = format!("-----BEGIN {kind}-----\n");
    // Base64 is ASCII.
    for line in text.as_bytes().chunks(LINE) {
        out.push_str(std::str::from_utf8(line).unwrap_or_default());
        out.push('\n');
    }
    out + &format!("-----END {kind}-----\n")
}

/// Blocks of certificates.
pub(crate) fn encode_certificates<'c>(all: impl IntoIterator<Item = &'c [u8]>) -> String {
    all.into_iter().map(|certificate| encode(CERTIFICATE, certificate)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_found() {
        let check = |text: &str, expected: &[&[u8]]| assert_eq!(certificates(text), expected, "{text}");
        let one = "-----BEGIN CERTIFICATE-----\nAAAA\nAAAA\n-----END CERTIFICATE-----\n";
        check(one, &[&[0; 6]]);
        check(&format!("x\n{one}y\n{one}"), &[&[0; 6], &[0; 6]]);
        check("-----BEGIN CERTIFICATE-----\nK: v\n\nAAAA\n-----END CERTIFICATE-----", &[&[0; 3]]);
        check(&format!("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n{one}"), &[&[0; 6]]);
        check("-----BEGIN CERTIFICATE-----\nAAAA\n-----END B-----\n", &[]);
        check(&format!("-----BEGIN CERTIFICATE-----\nAAAA\n{one}"), &[&[0; 6]]);
        check("-----BEGIN CERTIFICATE-----\nA!\n-----END CERTIFICATE-----", &[]);
        check("", &[]);
    }

    #[test]
    fn blocks_are_as_gos() {
        let check = |length: usize, lines: &[usize]| {
            let text = encode("X", &vec![0; length]);
            let inner: Vec<usize> = text.lines().map(str::len).collect();
            assert_eq!(inner[1..inner.len() - 1], *lines, "{length}");
            assert!(text.starts_with("-----BEGIN X-----\n") && text.ends_with("\n-----END X-----\n"));
        };
        check(3, &[4]);
        check(48, &[64]);
        check(49, &[64, 4]);
        let all: [&[u8]; 2] = [&[1, 2, 3], &[4; 200]];
        assert_eq!(certificates(&encode_certificates(all)), all);
    }
}
