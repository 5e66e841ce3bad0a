//! Bundles of certificates.

use api::pem;
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The certificates of several texts, PEM, each once, without those that end before a time.
pub fn bundle(texts: &[&str], after: Timestamp) -> String {
    let mut all: Vec<CertificateDer<'static>> = Vec::new();
    for text in texts {
        for certificate in CertificateDer::pem_slice_iter(text.as_bytes()).filter_map(Result::ok) {
            let end =
                X509Certificate::from_der(&certificate).map(|(_, c)| c.validity().not_after.timestamp());
            if end.is_ok_and(|end| end > after.as_second()) && !all.contains(&certificate) {
                all.push(certificate);
            }
        }
    }
    all.iter().map(|certificate| pem::encode_certificate(certificate)).collect()
}
