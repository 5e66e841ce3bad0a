//! Certificates of authorities in fields of bytes.

use api::pem::{self, Block};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

/// Why a text in base64, as fields of bytes hold it, names no authorities, if it names none. The rules of client-go's
/// `transport.TLSConfigFor`: one certificate is enough; other blocks and those with headers are passed over.
pub(crate) fn no_authorities(base64: &str) -> Option<String> {
    let bytes = STANDARD.decode(base64).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let blocks = pem::blocks(&text);
    if bytes.is_empty() {
        return None;
    }
    if blocks.is_empty() {
        return Some("unable to parse bytes as PEM block".into());
    }
    let mut certificates = blocks.iter().filter(|b| b.kind == pem::CERTIFICATE && !b.headers).peekable();
    if certificates.peek().is_none() {
        return Some("no valid certificate authority data seen".into());
    }
    let is_good = |b: &Block| matches!(X509Certificate::from_der(&b.bytes), Ok(([], _)));
    (!certificates.any(is_good)).then(|| "failed to parse certificate: x509: malformed certificate".into())
}
