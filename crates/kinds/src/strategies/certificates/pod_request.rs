//! PodCertificateRequests.

use api::Struct;
use api::field::{BadValue, Errors, Path, Raw};
use api::names::{self, name_subdomain};
use api::pem::blocks;
use api::view::{Edit, View, same};
use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_parser::certificate::X509Certificate;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::signer_name;
use crate::columns;
use crate::strategies::generic::{self, NAMESPACED, check, check_update, status_reset_meta};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::strategy::Ctx;
use crate::validation::immutable;
use crate::validation::meta;

const MAX_KEY: usize = 10 * 1024;
const MAX_CHAIN: usize = 100 * 1024;
const MAX_UID: usize = 128;
const HOUR: i64 = 3600;
/// The longest lifetime, in seconds, for which Kubernetes' own signers may issue.
const MAX_OF_KUBERNETES: i64 = 24 * HOUR;
/// The longest lifetime for which other signers may issue.
const MAX_OF_OTHERS: i64 = 91 * 24 * HOUR;
const MAX_ANNOTATIONS: usize = 256 * 1024;

pub(crate) const POD_REQUEST: Rules = Rules {
    group: "certificates.k8s.io",
    resource: "podcertificaterequests",
    columns: columns::cluster::POD_CERTIFICATE_REQUEST,
    takes: Takes::BUT_STATUS,
    unconditional_update: false,
    prepare_create: generic::drop_status,
    prepare_update: generic::keep_status,
    validate: |c, s| check(c, s, create),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            // An absent stub equals an empty one.
            let spec = |v: View<'_>| {
                let mut spec = v.st("spec").raw()?.clone();
                let mut fields = Edit::new(v.schema, &mut spec);
                if fields.view().str("stubPKCS10Request").is_empty() {
                    fields.remove("stubPKCS10Request");
                }
                Some(spec)
            };
            if spec(n) != spec(o) {
                immutable(e, &Path::root(""), n, o, "spec");
            }
        })
    },
    fields: &["spec.signerName", "spec.podName", "spec.nodeName"],
    indexed: &["spec.nodeName"],
    field_values: |schema, s, out| {
        let spec = View::new(schema, s).st("spec");
        out.extend(["signerName", "podName", "nodeName"].map(|f| spec.str(f).into()));
    },
    subresources: &[SubresourceRules {
        name: "status",
        takes: Takes::BUT_SPEC,
        prepare_update: status_reset_meta,
        validate_update: |c: &Ctx<'_>, n: &Struct, o: &Struct| {
            check_update(c, n, o, |e, n, o| status(e, c.now, n, o))
        },
    }],
    ..NAMESPACED
};

fn bytes(v: View<'_>, field: &str) -> Vec<u8> {
    STANDARD.decode(v.str(field)).unwrap_or_default()
}

/// Whether a signer is one of Kubernetes' own.
fn is_kubernetes(signer: &str) -> bool {
    let host = signer.split('/').next().unwrap_or_default();
    host == "kubernetes.io" || host.ends_with(".kubernetes.io")
}

fn create(errs: &mut Errors, v: View<'_>) {
    core_meta(errs, v.st("metadata"), true, name_subdomain);
    let at = Path::root("spec");
    let spec = v.st("spec");
    let signer = spec.str("signerName");
    signer_name(errs, &at.field("signerName"), signer);
    annotations(errs, &at.field("unverifiedUserAnnotations"), spec, "unverifiedUserAnnotations");
    for (name_field, uid_field) in
        [("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")]
    {
        let (name, uid, uid_at) = (spec.str(name_field), spec.str(uid_field), at.field(uid_field));
        for why in name_subdomain(name, false) {
            // Upstream has a type of its own for names of nodes.
            let shown = if name_field == "nodeName" { name.print_typed() } else { name.print() };
            errs.invalid(&at.field(name_field), Raw(shown), why);
        }
        if uid.is_empty() {
            errs.invalid(&uid_at, "", "must not be empty");
        }
        if uid.len() > MAX_UID {
            errs.too_long(&uid_at, MAX_UID);
        }
    }
    let lifetime_at = at.field("maxExpirationSeconds");
    let Some(lifetime) = spec.opt_int("maxExpirationSeconds") else {
        errs.required(&lifetime_at, "must be set");
        return;
    };
    let max = if is_kubernetes(signer) { MAX_OF_KUBERNETES } else { MAX_OF_OTHERS };
    if !(HOUR..=max).contains(&lifetime) {
        errs.invalid(&lifetime_at, lifetime, format!("must be in the range [{HOUR}, {max}]"));
    }
    let has = |f: &str| !spec.str(f).is_empty();
    match (has("stubPKCS10Request"), has("pkixPublicKey"), has("proofOfPossession")) {
        (true, false, false) => stub(errs, &at.field("stubPKCS10Request"), spec),
        (false, true, true) => key_and_proof(errs, &at, spec),
        _ => errs.invalid_here(
            &at,
            "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set",
        ),
    }
}

/// Checks annotations, whose keys are paths below a domain.
fn annotations(errs: &mut Errors, at: &Path<'_>, of: View<'_>, name: &str) {
    let mut size = 0;
    for (key, value) in of.texts(name) {
        names::domain_prefixed_key(errs, at, &key.to_lowercase());
        size += key.len() + value.len();
    }
    if size > MAX_ANNOTATIONS {
        errs.too_long(at, MAX_ANNOTATIONS);
    }
}

/// Checks a certificate that a pod asks for in a projected volume; the paths are checked where volumes are.
pub(crate) fn projected(errs: &mut Errors, at: &Path<'_>, p: View<'_>) {
    let signer = p.str("signerName");
    signer_name(errs, &at.field("signerName"), signer);
    annotations(errs, &at.field("userAnnotations"), p, "userAnnotations");
    let keys = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
    errs.one_of(&at.field("keyType"), p.str("keyType"), &keys);
    if let Some(n) = p.opt_int("maxExpirationSeconds") {
        let at = at.field("maxExpirationSeconds");
        let max = if is_kubernetes(signer) { MAX_OF_KUBERNETES } else { MAX_OF_OTHERS };
        if n < HOUR {
            errs.invalid(&at, n, format!("if provided, maxExpirationSeconds must be >= {HOUR}"));
        }
        if n > max {
            errs.invalid(&at, n, format!("if provided, maxExpirationSeconds must be <= {max}"));
        }
    }
}

const BAD_RSA: &str = "RSA keys must have modulus size 3072 or 4096";
const UNKNOWN_KEY: &str = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";

/// A public key of a kind that may be used.
enum Key<'a> {
    Ed25519(&'a [u8]),
    /// The curve's bits and the point.
    Ecdsa(u32, &'a [u8]),
    /// The key as PKCS#1 holds it.
    Rsa(&'a [u8]),
}

/// A fault of a key: its curve or its size by name, or its kind.
enum BadKey {
    Curve(&'static str),
    Modulus(usize),
    Kind,
    Malformed,
}

fn key<'a>(info: &'a SubjectPublicKeyInfo<'_>) -> Result<Key<'a>, BadKey> {
    let raw: &[u8] = &info.subject_public_key.data;
    match info.algorithm.algorithm.to_id_string().as_str() {
        "1.3.101.112" => Ok(Key::Ed25519(raw)),
        "1.2.840.10045.2.1" => {
            let curve = info.algorithm.parameters.as_ref().and_then(|p| p.as_oid().ok());
            match curve.map(|c| c.to_id_string()).as_deref() {
                Some("1.2.840.10045.3.1.7") => Ok(Key::Ecdsa(256, raw)),
                Some("1.3.132.0.34") => Ok(Key::Ecdsa(384, raw)),
                Some("1.3.132.0.35") => Ok(Key::Ecdsa(521, raw)),
                Some("1.3.132.0.33") => Err(BadKey::Curve("P-224")),
                _ => Err(BadKey::Malformed),
            }
        }
        "1.2.840.113549.1.1.1" => match info.parsed() {
            Ok(PublicKey::RSA(rsa)) if matches!(rsa.key_size(), 3072 | 4096) => Ok(Key::Rsa(raw)),
            Ok(PublicKey::RSA(rsa)) => Err(BadKey::Modulus(rsa.key_size())),
            _ => Err(BadKey::Malformed),
        },
        // DSA and X25519 are read, but refused.
        "1.2.840.10040.4.1" | "1.3.101.110" => Err(BadKey::Kind),
        _ => Err(BadKey::Malformed),
    }
}

fn verify(algorithm: &'static dyn VerificationAlgorithm, key: &[u8], text: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(algorithm, key).verify(text, signature).is_ok()
}

fn key_and_proof(errs: &mut Errors, at: &Path<'_>, spec: View<'_>) {
    let (key_at, proof_at) = (at.field("pkixPublicKey"), at.field("proofOfPossession"));
    let (der, proof) = (bytes(spec, "pkixPublicKey"), bytes(spec, "proofOfPossession"));
    for (bytes, at) in [(&der, &key_at), (&proof, &proof_at)] {
        if bytes.len() > MAX_KEY {
            errs.too_long(at, MAX_KEY);
            return;
        }
    }
    let shown = || Raw(format!("{:?}", spec.str("pkixPublicKey")));
    let Ok(([], info)) = SubjectPublicKeyInfo::from_der(&der) else {
        return errs.invalid(&key_at, shown(), "must be a valid PKIX-serialized public key");
    };
    let uid = spec.str("podUID").as_bytes();
    let proven = match key(&info) {
        Ok(Key::Ed25519(k)) => verify(&signature::ED25519, k, uid, &proof),
        Ok(Key::Ecdsa(256, k)) => verify(&signature::ECDSA_P256_SHA256_ASN1, k, uid, &proof),
        Ok(Key::Ecdsa(384, k)) => verify(&signature::ECDSA_P384_SHA256_ASN1, k, uid, &proof),
        Ok(Key::Ecdsa(_, k)) => verify(&signature::ECDSA_P521_SHA256_ASN1, k, uid, &proof),
        Ok(Key::Rsa(k)) => verify(&signature::RSA_PSS_2048_8192_SHA256, k, uid, &proof),
        Err(BadKey::Curve(name)) => {
            let why = "elliptic public keys must use curve P256 or P384";
            return errs.invalid(&key_at, format!("curve {name}"), why);
        }
        Err(BadKey::Modulus(n)) => return errs.invalid(&key_at, format!("{n}-bit modulus"), BAD_RSA),
        Err(BadKey::Kind) => return errs.invalid(&key_at, shown(), UNKNOWN_KEY),
        Err(BadKey::Malformed) => {
            return errs.invalid(&key_at, shown(), "must be a valid PKIX-serialized public key");
        }
    };
    if !proven {
        errs.invalid_here(&proof_at, "could not verify proof-of-possession signature");
    }
}

fn stub(errs: &mut Errors, at: &Path<'_>, spec: View<'_>) {
    const MALFORMED: &str = "must be a valid PKCS#10 CSR";
    let der = bytes(spec, "stubPKCS10Request");
    if der.len() > MAX_KEY {
        errs.too_long(at, MAX_KEY);
        return;
    }
    let Ok(([], request)) = X509CertificationRequest::from_der(&der) else {
        return errs.invalid_here(at, MALFORMED);
    };
    let key = match key(&request.certification_request_info.subject_pki) {
        Ok(key) => key,
        Err(BadKey::Curve(name)) => {
            let why = "elliptic public keys must use curve P256, P384, or P521";
            return errs.invalid(at, format!("curve {name}"), why);
        }
        Err(BadKey::Modulus(n)) => return errs.invalid(at, format!("{n}-bit modulus"), BAD_RSA),
        Err(BadKey::Kind) => return errs.invalid_here(at, UNKNOWN_KEY),
        Err(BadKey::Malformed) => return errs.invalid_here(at, MALFORMED),
    };
    let oid = request.signature_algorithm.algorithm.to_id_string();
    let algorithm: Option<(&'static dyn VerificationAlgorithm, &[u8])> = match (key, oid.as_str()) {
        (Key::Ed25519(k), "1.3.101.112") => Some((&signature::ED25519, k)),
        (Key::Ecdsa(256, k), "1.2.840.10045.4.3.2") => Some((&signature::ECDSA_P256_SHA256_ASN1, k)),
        (Key::Ecdsa(256, k), "1.2.840.10045.4.3.3") => Some((&signature::ECDSA_P256_SHA384_ASN1, k)),
        (Key::Ecdsa(384, k), "1.2.840.10045.4.3.2") => Some((&signature::ECDSA_P384_SHA256_ASN1, k)),
        (Key::Ecdsa(384, k), "1.2.840.10045.4.3.3") => Some((&signature::ECDSA_P384_SHA384_ASN1, k)),
        (Key::Ecdsa(521, k), "1.2.840.10045.4.3.2") => Some((&signature::ECDSA_P521_SHA256_ASN1, k)),
        (Key::Ecdsa(521, k), "1.2.840.10045.4.3.3") => Some((&signature::ECDSA_P521_SHA384_ASN1, k)),
        (Key::Ecdsa(521, k), "1.2.840.10045.4.3.4") => Some((&signature::ECDSA_P521_SHA512_ASN1, k)),
        (Key::Rsa(k), "1.2.840.113549.1.1.11") => Some((&signature::RSA_PKCS1_2048_8192_SHA256, k)),
        (Key::Rsa(k), "1.2.840.113549.1.1.12") => Some((&signature::RSA_PKCS1_2048_8192_SHA384, k)),
        (Key::Rsa(k), "1.2.840.113549.1.1.13") => Some((&signature::RSA_PKCS1_2048_8192_SHA512, k)),
        (Key::Rsa(k), "1.2.840.113549.1.1.10") => Some((&signature::RSA_PSS_2048_8192_SHA256, k)),
        _ => None,
    };
    let text = request.certification_request_info.raw;
    let good = algorithm.is_some_and(|(a, k)| verify(a, k, text, &request.signature_value.data));
    if !good {
        errs.invalid_here(at, "invalid signature");
    }
}

const FINAL: [&str; 3] = ["Denied", "Failed", "Issued"];

fn is(v: View<'_>, ty: &str) -> bool {
    v.st("status").items("conditions").any(|c| c.str("type") == ty && c.str("status") == "True")
}

fn status(errs: &mut Errors, now: &str, n: View<'_>, o: View<'_>) {
    core_meta_update(errs, n.st("metadata"), o.st("metadata"));
    if !errs.is_empty() {
        return;
    }
    let at = Path::root("status");
    let conditions = at.field("conditions");
    let mut known = 0;
    for (i, c) in n.st("status").items("conditions").enumerate() {
        // Upstream puts a point before the index here.
        let step = format!("[{i}]");
        let at = conditions.field(&step);
        let (ty, value) = (c.str("type"), c.str("status"));
        if !FINAL.contains(&ty) {
            errs.not_supported(&at.field("type"), ty, &["Issued", "Denied", "Failed"]);
            continue;
        }
        known += 1;
        if known > 1 {
            let why = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            errs.invalid(&at.field("type"), ty, why);
        }
        errs.one_of(&at.field("status"), value, &["True"]);
    }
    meta::conditions(errs, &conditions, n.st("status"), "conditions");
    if !errs.is_empty() {
        return;
    }
    let unchanged = same(n.get("status"), o.get("status"));
    if FINAL.iter().any(|t| is(o, t)) {
        if !unchanged {
            errs.invalid_here(&at, "immutable after PodCertificateRequest is issued, denied, or failed");
        }
    } else if is(n, "Denied") || is(n, "Failed") {
        let fields = ["certificateChain", "notBefore", "beginRefreshAt", "notAfter"];
        if fields.iter().any(|f| n.st("status").has(f)) {
            let why =
                "non-condition status fields must be empty when denying or failing the PodCertificateRequest";
            errs.invalid_here(&at, why);
        }
    } else if is(n, "Issued") {
        issued(errs, &at, now, n, o);
    } else if !unchanged {
        errs.invalid_here(
            &at,
            "status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"",
        );
    }
}

/// The key for which a certificate was requested, as its DER text.
fn wanted_key(spec: View<'_>) -> Result<Vec<u8>, (&'static str, &'static str)> {
    let stub = bytes(spec, "stubPKCS10Request");
    if stub.is_empty() {
        return Ok(bytes(spec, "pkixPublicKey"));
    }
    match X509CertificationRequest::from_der(&stub) {
        Ok((_, request)) => Ok(request.certification_request_info.subject_pki.raw.to_vec()),
        Err(_) => Err(("spec.stubPKCS10Request", "must be a valid PKCS#10 CSR")),
    }
}

fn issued(errs: &mut Errors, at: &Path<'_>, now: &str, n: View<'_>, o: View<'_>) {
    let status = n.st("status");
    let chain = status.str("certificateChain");
    let chain_at = at.field("certificateChain");
    if chain.len() > MAX_CHAIN {
        errs.too_long(&chain_at, MAX_CHAIN);
        return;
    }
    let blocks = blocks(chain);
    let Some(leaf) = blocks.first() else {
        return errs.invalid(
            &chain_at,
            chain,
            "issued certificate chain must contain at least one certificate",
        );
    };
    if leaf.kind != "CERTIFICATE" {
        let why = "issued certificate chain must consist entirely of CERTIFICATE PEM blocks";
        return errs.invalid(&chain_at, chain, why);
    }
    let Ok((_, certificate)) = X509Certificate::from_der(&leaf.bytes) else {
        return errs.invalid(&chain_at, chain, "leaf certificate does not parse as valid X.509");
    };
    alternative_names(errs, &chain_at, &certificate);
    match wanted_key(o.st("spec")) {
        Err((field, why)) => return errs.invalid_here(&Path::root(field), why),
        Ok(wanted) if wanted != certificate.public_key().raw => {
            let why = "leaf certificate was not issued to the requested public key";
            return errs.invalid(&chain_at, chain, why);
        }
        Ok(_) => {}
    }
    for field in ["notBefore", "notAfter", "beginRefreshAt"] {
        if !status.has(field) {
            errs.required(
                &at.field(field),
                match field {
                    "beginRefreshAt" => "must be present and in the range [notbefore+10min, notafter-10min]",
                    _ => "must be present and consistent with the issued certificate",
                },
            );
        }
    }
    if !errs.is_empty() {
        return;
    }
    times(errs, at, now, n, &certificate);
    if !errs.is_empty() {
        return;
    }
    for block in &blocks[1..] {
        if block.kind != "CERTIFICATE" {
            let why = "issued certificate chain must consist entirely of CERTFICATE PEM blocks";
            return errs.invalid(&chain_at, chain, why);
        }
        if X509Certificate::from_der(&block.bytes).is_err() {
            return errs.invalid(&chain_at, chain, "intermediate certificate does not parse as valid X.509");
        }
    }
}

fn alternative_names(errs: &mut Errors, at: &Path<'_>, certificate: &X509Certificate<'_>) {
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return };
    for name in &names.value.general_names {
        match name {
            GeneralName::DNSName(name) => {
                if name.is_empty() {
                    errs.invalid(at, "", "leaf certificate should not contain empty DNSName");
                }
                if name.contains("..") {
                    errs.invalid(at, *name, "leaf certificate's DNSName should not contain '..'");
                }
                if name.starts_with('.') || name.ends_with('.') {
                    errs.invalid(at, *name, "leaf certificate's DNSName should not start or end with '.'");
                }
            }
            GeneralName::RFC822Name(address) => {
                let parts = address.rsplit_once('@');
                if !parts.is_some_and(|(who, host)| !who.is_empty() && !host.is_empty()) {
                    errs.invalid(at, *address, "leaf certificate should not contain invalid EmailAddress");
                }
            }
            _ => {}
        }
    }
}

/// The seconds since 1970 of a `metav1.Time`.
fn seconds(time: &str) -> i64 {
    api::time::parse(time).map_or(0, jiff::Timestamp::as_second)
}

fn times(errs: &mut Errors, at: &Path<'_>, now: &str, n: View<'_>, certificate: &X509Certificate<'_>) {
    const TEN_MINUTES: i64 = 600;
    let status = n.st("status");
    let text = |field: &str| status.str(field);
    let (from, until) = (seconds(text("notBefore")), seconds(text("notAfter")));
    let refresh = seconds(text("beginRefreshAt"));
    let validity = certificate.validity();
    let (real_from, real_until) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let lifetime = real_until - real_from;
    let max = n.st("spec").int("maxExpirationSeconds");
    let (field, why) = if from != real_from {
        ("notBefore", "must be set to the NotBefore time encoded in the leaf certificate".to_owned())
    } else if (from - seconds(now)).abs() >= 300 {
        ("notBefore", "must be set to within 5 minutes of kube-apiserver's current time".to_owned())
    } else if until != real_until {
        ("notAfter", "must be set to the NotAfter time encoded in the leaf certificate".to_owned())
    } else if lifetime < HOUR || lifetime > max {
        let why = if lifetime < HOUR {
            "leaf certificate lifetime must be >= 1 hour".to_owned()
        } else {
            format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({max})")
        };
        // Go prints a duration in nanoseconds.
        return errs.invalid(&at.field("certificateChain"), lifetime.saturating_mul(1_000_000_000), why);
    } else if refresh < from + TEN_MINUTES {
        ("beginRefreshAt", "must be at least 10 minutes after status.notBefore".to_owned())
    } else if refresh > until - TEN_MINUTES {
        ("beginRefreshAt", "must be at least 10 minutes before status.notAfter".to_owned())
    } else {
        return;
    };
    errs.invalid(&at.field(field), text(field), why);
}
