//! The request for a certificate: a PKCS#10 request that the key in it signed.

use aws_lc_rs::signature::{self as sig, UnparsedPublicKey, VerificationAlgorithm};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

const P256: &str = "1.2.840.10045.3.1.7";
const P384: &str = "1.3.132.0.34";
const P521: &str = "1.3.132.0.35";

/// The verification of a signature, by its algorithm and the curve of its key; `None` if they are unknown or too weak.
///
/// DIFFERENCE: Go verifies curve P-224 as well.
fn algorithm(name: &str, curve: &str) -> Option<&'static dyn VerificationAlgorithm> {
    Some(match (name, curve) {
        ("1.3.101.112", _) => &sig::ED25519,
        ("1.2.840.10045.4.3.2", P256) => &sig::ECDSA_P256_SHA256_ASN1,
        ("1.2.840.10045.4.3.3", P256) => &sig::ECDSA_P256_SHA384_ASN1,
        ("1.2.840.10045.4.3.4", P256) => &sig::ECDSA_P256_SHA512_ASN1,
        ("1.2.840.10045.4.3.2", P384) => &sig::ECDSA_P384_SHA256_ASN1,
        ("1.2.840.10045.4.3.3", P384) => &sig::ECDSA_P384_SHA384_ASN1,
        ("1.2.840.10045.4.3.4", P384) => &sig::ECDSA_P384_SHA512_ASN1,
        ("1.2.840.10045.4.3.2", P521) => &sig::ECDSA_P521_SHA256_ASN1,
        ("1.2.840.10045.4.3.3", P521) => &sig::ECDSA_P521_SHA384_ASN1,
        ("1.2.840.10045.4.3.4", P521) => &sig::ECDSA_P521_SHA512_ASN1,
        ("1.2.840.113549.1.1.11", _) => &sig::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
        ("1.2.840.113549.1.1.12", _) => &sig::RSA_PKCS1_2048_8192_SHA384,
        ("1.2.840.113549.1.1.13", _) => &sig::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
        ("1.2.840.113549.1.1.10", _) => &sig::RSA_PSS_2048_8192_SHA256,
        _ => return None,
    })
}

/// Checks the DER of a request; the error tells what is wrong.
pub(super) fn check(der: &[u8]) -> Result<(), &'static str> {
    let (rest, request) =
        X509CertificationRequest::from_der(der).map_err(|_| "x509: malformed certificate request")?;
    if !rest.is_empty() {
        return Err("asn1: syntax error: trailing data");
    }
    let key = &request.certification_request_info.subject_pki;
    let curve = key.algorithm.parameters.as_ref().and_then(|p| p.as_oid().ok());
    let curve = curve.map(|c| c.to_id_string()).unwrap_or_default();
    let algorithm = algorithm(&request.signature_algorithm.algorithm.to_id_string(), &curve)
        .ok_or("x509: cannot verify signature: algorithm unimplemented")?;
    UnparsedPublicKey::new(algorithm, &key.subject_public_key.data)
        .verify(request.certification_request_info.raw, &request.signature_value.data)
        .map_err(|_| "x509: verification failure")
}
