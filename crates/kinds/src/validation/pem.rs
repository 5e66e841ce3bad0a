//! PEM blocks (RFC 7468), as Go's decoder finds them: text around them is passed over.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

/// A block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// The text after `BEGIN`.
    pub(crate) kind: String,
    /// Whether there are headers (`Key: value`) before the data.
    pub(crate) headers: bool,
    /// The data.
    pub(crate) bytes: Vec<u8>,
}

/// The blocks of a text in order; malformed ones are no blocks.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    const BEGIN: &str = "-----BEGIN ";
    const DASHES: &str = "-----";
    let mut out = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let kind = line.trim_end().strip_prefix(BEGIN).and_then(|l| l.strip_suffix(DASHES));
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
            out.push(Block { kind: kind.into(), headers, bytes });
        }
    }
    out
}

/// Why a text in base64, as fields of bytes hold it, names no authorities, if it names none. The rules of client-go's
/// `transport.TLSConfigFor`: one certificate is enough; other blocks and those with headers are passed over.
pub(crate) fn no_authorities(base64: &str) -> Option<String> {
    let bytes = STANDARD.decode(base64).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let blocks = blocks(&text);
    if bytes.is_empty() {
        return None;
    }
    if blocks.is_empty() {
        return Some("unable to parse bytes as PEM block".into());
    }
    let mut certificates = blocks.iter().filter(|b| b.kind == "CERTIFICATE" && !b.headers).peekable();
    if certificates.peek().is_none() {
        return Some("no valid certificate authority data seen".into());
    }
    let is_good = |b: &Block| matches!(X509Certificate::from_der(&b.bytes), Ok(([], _)));
    (!certificates.any(is_good)).then(|| "failed to parse certificate: x509: malformed certificate".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found() {
        let check = |text: &str, expected: &[(&str, bool, &[u8])]| {
            let got = blocks(text);
            let got: Vec<_> = got.iter().map(|b| (b.kind.as_str(), b.headers, b.bytes.as_slice())).collect();
            assert_eq!(got, expected, "{text}");
        };
        let one = "-----BEGIN A-----\nAAAA\nAAAA\n-----END A-----\n";
        check(one, &[("A", false, &[0; 6])]);
        check(&format!("x\n{one}y\n{one}"), &[("A", false, &[0; 6]), ("A", false, &[0; 6])]);
        check("-----BEGIN A-----\nK: v\n\nAAAA\n-----END A-----", &[("A", true, &[0; 3])]);
        check("-----BEGIN A-----\nAAAA\n-----END B-----\n", &[]);
        check(&format!("-----BEGIN A-----\nAAAA\n{one}"), &[("A", false, &[0; 6])]);
        check("-----BEGIN A-----\nA!\n-----END A-----", &[]);
        check("", &[]);
    }
}
