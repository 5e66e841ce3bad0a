//! An authority that signs certificates, by upstream's policy.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use api::pem;
use jiff::{SignedDuration, Timestamp};
use rustls::SignatureScheme;
use rustls::crypto::SecureRandom;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::sign::SigningKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{AlgorithmIdentifier, CertificateDer, PrivateKeyDer, alg_id};
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};

use super::der::{self, BIT_STRING, BOOLEAN, OCTET_STRING, OID, SEQUENCE, element};
use super::request::Request;

/// The time by which certificates are valid before their issue, for clocks that differ.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
/// A life below this is not shortened by the backdating.
const SHORT: SignedDuration = SignedDuration::from_hours(8);

/// An authority that signs certificates.
#[derive(Clone)]
pub struct Authority {
    key: Arc<dyn SigningKey>,
    scheme: SignatureScheme,
    /// The DER of the algorithm of its signatures.
    algorithm: Vec<u8>,
    /// The DER of its name.
    name: Vec<u8>,
    key_id: Option<Vec<u8>>,
    not_after: Timestamp,
    random: &'static dyn SecureRandom,
}

/// The reason for which an authority cannot be used, or does not sign.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// The certificate cannot be read.
    #[error("the certificate of the authority cannot be used: {0}")]
    Certificate(String),
    /// The key cannot be read, or belongs to another certificate.
    #[error("the key of the authority cannot be used: {0}")]
    Key(String),
    /// A request asks for uses that there are not.
    #[error("unrecognized usage values: {0:?}")]
    Usages(Vec<String>),
    /// The authority's time is over.
    #[error("the signer has expired: NotAfter={0}")]
    Expired(Timestamp),
    /// The authority's time is over, though not yet when the certificate would begin.
    #[error("refusing to sign a certificate that expired in the past: NotAfter={0}")]
    Past(Timestamp),
    /// The request is not signed by its key, or there are no random numbers.
    #[error("{0}")]
    Request(String),
}

impl fmt::Debug for Authority {
    /// Without its key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("scheme", &self.scheme)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

/// The signatures that authorities make, with the DER of their algorithms' names.
const SCHEMES: [(SignatureScheme, AlgorithmIdentifier); 5] = [
    (SignatureScheme::ECDSA_NISTP256_SHA256, alg_id::ECDSA_SHA256),
    (SignatureScheme::ECDSA_NISTP384_SHA384, alg_id::ECDSA_SHA384),
    (SignatureScheme::ECDSA_NISTP521_SHA512, alg_id::ECDSA_SHA512),
    (SignatureScheme::ED25519, alg_id::ED25519),
    (SignatureScheme::RSA_PKCS1_SHA256, alg_id::RSA_PKCS1_SHA256),
];

impl Authority {
    /// Reads an authority from the PEM of its certificate and its key.
    ///
    /// # Errors
    /// One of them cannot be used.
    pub fn parse(certificate: &[u8], key: &[u8]) -> Result<Self, AuthorityError> {
        let bad = |e: &dyn fmt::Display| AuthorityError::Certificate(e.to_string());
        let bad_key = |e: &dyn fmt::Display| AuthorityError::Key(e.to_string());
        let certificate = CertificateDer::from_pem_slice(certificate).map_err(|e| bad(&e))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| bad_key(&e))?;
        let provider = default_provider();
        let random = provider.secure_random;
        let key = provider.key_provider.load_private_key(key).map_err(|e| bad_key(&e))?;
        let (_, read) = X509Certificate::from_der(&certificate).map_err(|e| bad(&e))?;
        if key.public_key().is_some_and(|own| own.as_ref() != read.public_key().raw) {
            return Err(bad_key(&"it belongs to another certificate"));
        }
        // Certificates of version 1 cannot say whether they are an authority's.
        if read.version() == X509Version::V3 && !read.is_ca() {
            return Err(bad(&"it is not the certificate of an authority"));
        }
        let offered = SCHEMES.map(|(scheme, _)| scheme);
        let scheme = key.choose_scheme(&offered).map(|signer| signer.scheme());
        let known = SCHEMES.into_iter().find(|(known, _)| Some(*known) == scheme);
        let (scheme, algorithm) = known.ok_or_else(|| bad_key(&"nothing can be signed with it"))?;
        let key_id = read.extensions().iter().find_map(|e| match e.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        let not_after = Timestamp::from_second(read.validity().not_after.timestamp()).map_err(|e| bad(&e))?;
        Ok(Self {
            scheme,
            algorithm: element(SEQUENCE, &[algorithm.as_ref()]),
            name: read.subject().as_raw().to_vec(),
            key_id,
            not_after,
            random,
            key,
        })
    }

    /// Signs a request: a certificate in PEM with these usages, good for `life` at most.
    pub(super) fn sign(
        &self,
        request: &Request,
        usages: &[String],
        life: SignedDuration,
        now: Timestamp,
    ) -> Result<String, AuthorityError> {
        request.verify().map_err(|e| AuthorityError::Request(e.to_string()))?;
        let (key_usage, purposes) = read_usages(usages)?;
        let begin = now.saturating_sub(BACKDATE).unwrap_or(now);
        if begin >= self.not_after {
            return Err(AuthorityError::Expired(self.not_after));
        }
        if now >= self.not_after {
            return Err(AuthorityError::Past(self.not_after));
        }
        let life = if life < SHORT { life } else { life.saturating_sub(BACKDATE) };
        let end = now.saturating_add(life).unwrap_or(Timestamp::MAX).min(self.not_after);
        let mut serial = [0; 16];
        let no_random = |_| AuthorityError::Request("the system gives no random numbers".to_owned());
        self.random.fill(&mut serial).map_err(no_random)?;
        let validity = element(SEQUENCE, &[&der::time(begin), &der::time(end)]);
        let extensions = self.extensions(request, key_usage, &purposes);
        let version = element(0xa0, &[&[der::INTEGER, 1, 2]]);
        let content = element(
            SEQUENCE,
            &[
                &version,
                &der::unsigned(&serial),
                &self.algorithm,
                &self.name,
                &validity,
                &request.kept_subject,
                &request.public_key,
                &element(0xa3, &[&element(SEQUENCE, &[&extensions])]),
            ],
        );
        let signer = self.key.choose_scheme(&[self.scheme]);
        let signature = signer.map(|signer| signer.sign(&content)).transpose();
        let signature = signature.ok().flatten();
        let signature = signature.ok_or_else(|| AuthorityError::Key("it does not sign".to_owned()))?;
        let whole =
            element(SEQUENCE, &[&content, &self.algorithm, &element(BIT_STRING, &[&[0], &signature])]);
        Ok(pem::encode_certificate(&whole))
    }

    /// The extensions, in Go's order.
    fn extensions(&self, request: &Request, key_usage: [u8; 2], purposes: &[&[u8]]) -> Vec<u8> {
        let mut all = Vec::new();
        let mut add = |kind: u8, critical: bool, content: &[u8]| {
            let kind = element(OID, &[&[0x55, 0x1d, kind]]);
            let critical: &[u8] = if critical { &[BOOLEAN, 1, 0xff] } else { &[] };
            all.extend(element(SEQUENCE, &[&kind, critical, &element(OCTET_STRING, &[content])]));
        };
        if key_usage != [0, 0] {
            add(15, true, &der::named_bits(key_usage));
        }
        if !purposes.is_empty() {
            let purposes: Vec<u8> = purposes.iter().flat_map(|p| element(OID, &[p])).collect();
            add(37, false, &element(SEQUENCE, &[&purposes]));
        }
        add(19, true, &element(SEQUENCE, &[]));
        if let Some(id) = &self.key_id {
            add(35, false, &element(SEQUENCE, &[&element(0x80, &[id])]));
        }
        let mut names = Vec::new();
        let texts = [(0x82, &request.names), (0x81, &request.emails)];
        for (tag, text) in texts.into_iter().flat_map(|(tag, all)| all.iter().map(move |t| (tag, t))) {
            names.extend(element(tag, &[text.as_bytes()]));
        }
        for address in &request.addresses {
            names.extend(match address {
                IpAddr::V4(v4) => element(0x87, &[&v4.octets()]),
                IpAddr::V6(v6) => element(0x87, &[&v6.octets()]),
            });
        }
        for uri in &request.uris {
            names.extend(element(0x86, &[uri.as_bytes()]));
        }
        if !names.is_empty() {
            // RFC 5280: without a subject, the names are all that there is.
            add(17, request.kept_subject.len() == 2, &element(SEQUENCE, &[&names]));
        }
        all
    }
}

/// Upstream's names of key usages, with their bits.
const KEY_USAGES: [(&str, [u8; 2]); 10] = [
    ("signing", [0x80, 0]),
    ("digital signature", [0x80, 0]),
    ("content commitment", [0x40, 0]),
    ("key encipherment", [0x20, 0]),
    ("data encipherment", [0x10, 0]),
    ("key agreement", [0x08, 0]),
    ("cert sign", [0x04, 0]),
    ("crl sign", [0x02, 0]),
    ("encipher only", [0x01, 0]),
    ("decipher only", [0, 0x80]),
];

/// Upstream's names of purposes, with their object identifiers, in Go's order.
const PURPOSES: [(&str, &[u8]); 13] = [
    ("any", &[0x55, 0x1d, 0x25, 0]),
    ("server auth", &[0x2b, 6, 1, 5, 5, 7, 3, 1]),
    ("client auth", &[0x2b, 6, 1, 5, 5, 7, 3, 2]),
    ("code signing", &[0x2b, 6, 1, 5, 5, 7, 3, 3]),
    ("email protection", &[0x2b, 6, 1, 5, 5, 7, 3, 4]),
    ("s/mime", &[0x2b, 6, 1, 5, 5, 7, 3, 4]),
    ("ipsec end system", &[0x2b, 6, 1, 5, 5, 7, 3, 5]),
    ("ipsec tunnel", &[0x2b, 6, 1, 5, 5, 7, 3, 6]),
    ("ipsec user", &[0x2b, 6, 1, 5, 5, 7, 3, 7]),
    ("timestamping", &[0x2b, 6, 1, 5, 5, 7, 3, 8]),
    ("ocsp signing", &[0x2b, 6, 1, 5, 5, 7, 3, 9]),
    ("microsoft sgc", &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 10, 3, 3]),
    ("netscape sgc", &[0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 4, 1]),
];

/// The bits of key usages, and the purposes.
type Usages = ([u8; 2], Vec<&'static [u8]>);

fn read_usages(usages: &[String]) -> Result<Usages, AuthorityError> {
    let mut bits = [0, 0];
    let mut unknown = Vec::new();
    for usage in usages {
        if let Some((_, more)) = KEY_USAGES.iter().find(|(name, _)| name == usage) {
            bits = [bits[0] | more[0], bits[1] | more[1]];
        } else if !PURPOSES.iter().any(|(name, _)| name == usage) {
            unknown.push(usage.clone());
        }
    }
    if !unknown.is_empty() {
        return Err(AuthorityError::Usages(unknown));
    }
    let mut purposes: Vec<&[u8]> =
        PURPOSES.iter().filter(|(name, _)| usages.iter().any(|u| u == name)).map(|(_, id)| *id).collect();
    purposes.dedup();
    Ok((bits, purposes))
}

#[cfg(test)]
pub(super) mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::super::testing::Asks;
    use super::*;

    /// A new authority, good from 2020 to 2030.
    pub(in super::super) fn authority(key: &KeyPair) -> (Authority, Vec<u8>) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "kubernetes");
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let certificate = params.self_signed(key).unwrap();
        let authority =
            Authority::parse(certificate.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap();
        (authority, certificate.der().to_vec())
    }

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|t| (*t).to_owned()).collect()
    }

    #[test]
    fn certificates_are_of_the_policy() {
        for algorithm in
            [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519]
        {
            let (authority, ca) = authority(&KeyPair::generate_for(algorithm).unwrap());
            let (_, ca) = X509Certificate::from_der(&ca).unwrap();
            let asks = Asks {
                names: &["n"],
                addresses: &["192.0.2.1", "2001:db8::1"],
                uid: Some("u"),
                ..Asks::node("n")
            };
            let request = Request::parse(asks.pem().as_bytes()).unwrap();
            let usages = texts(&["digital signature", "key encipherment", "server auth", "client auth"]);
            let now = NOW.parse().unwrap();
            let signed = authority.sign(&request, &usages, SignedDuration::from_hours(24), now).unwrap();
            let der = CertificateDer::from_pem_slice(signed.as_bytes()).unwrap();
            let (rest, got) = X509Certificate::from_der(&der).unwrap();
            assert!(rest.is_empty());
            got.verify_signature(Some(ca.public_key())).unwrap();
            assert_eq!(got.issuer().as_raw(), ca.subject().as_raw());
            let subject = client::subject::subject(got.subject().as_raw()).unwrap();
            assert_eq!((subject.common_name.as_str(), subject.uid), ("system:node:n", None));
            assert_eq!(got.public_key().raw, request.public_key);
            assert!(!got.is_ca() && got.serial.bits() > 64);
            let usage = got.key_usage().unwrap().unwrap();
            assert!(usage.critical && usage.value.digital_signature() && usage.value.key_encipherment());
            assert!(!usage.value.key_cert_sign());
            let purposes = got.extended_key_usage().unwrap().unwrap().value;
            assert!(purposes.server_auth && purposes.client_auth && !purposes.any);
            let names = got.subject_alternative_name().unwrap().unwrap();
            assert_eq!((names.critical, names.value.general_names.len()), (false, 3));
        }
    }

    /// 9 of upstream's 12 cases of `TestCertificateAuthority`, with the signers' backdating and their short life, which the
    /// three others do without: lives in minutes, the begin and the end of a certificate.
    #[test]
    fn lives() {
        const URI: &str = "help://me@what:8080/where/when?why=true";
        let (authority, _) = authority(&KeyPair::generate().unwrap());
        let asks = Asks { uris: &[URI], ..Asks::node("n") };
        let request = Request::parse(asks.pem().as_bytes()).unwrap();
        let check = |now: &str, minutes: i64, expected: Result<(&str, &str), AuthorityError>| {
            let life = SignedDuration::from_mins(minutes);
            let usages = texts(&["signing", "client auth"]);
            let got = authority.sign(&request, &usages, life, now.parse().unwrap());
            let got = got.map(|pem| {
                let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
                let (_, got) = X509Certificate::from_der(&der).unwrap();
                let names = got.subject_alternative_name().unwrap().unwrap().value;
                assert_eq!(names.general_names, [x509_parser::extensions::GeneralName::URI(URI)]);
                assert_eq!(got.key_usage().unwrap().unwrap().value.to_string(), "Digital Signature");
                let purposes = got.extended_key_usage().unwrap().unwrap().value;
                assert!(purposes.client_auth && !purposes.server_auth);
                let time = |t: i64| Timestamp::from_second(t).unwrap().to_string();
                (time(got.validity().not_before.timestamp()), time(got.validity().not_after.timestamp()))
            });
            assert_eq!(got, expected.map(|(a, b)| (a.to_owned(), b.to_owned())), "{now} {minutes}");
        };
        check(NOW, 1, Ok(("2025-12-31T23:55:00Z", "2026-01-01T00:01:00Z")));
        check(NOW, 60, Ok(("2025-12-31T23:55:00Z", "2026-01-01T01:00:00Z")));
        check(NOW, 8 * 60, Ok(("2025-12-31T23:55:00Z", "2026-01-01T07:55:00Z")));
        check(NOW, 24 * 60, Ok(("2025-12-31T23:55:00Z", "2026-01-01T23:55:00Z")));
        check(NOW, 6_000_000, Ok(("2025-12-31T23:55:00Z", "2030-01-01T00:00:00Z")));
        let end = "2030-01-01T00:00:00Z".parse().unwrap();
        check("2030-01-01T00:00:00Z", 60, Err(AuthorityError::Past(end)));
        check("2030-01-01T00:05:00Z", 60, Err(AuthorityError::Expired(end)));
        check("2031-01-01T00:00:00Z", 60, Err(AuthorityError::Expired(end)));
    }

    /// Upstream's 6 cases of `TestKeyUsagesFromStrings`: the names of usages, the bits, and the names of purposes.
    #[test]
    fn usages() {
        let check = |usages: &[&str], want: Option<([u8; 2], &[&str])>| {
            let id = |name: &&str| PURPOSES.iter().find(|(known, _)| known == name).unwrap().1;
            let want = want.map(|(bits, purposes)| (bits, purposes.iter().map(id).collect::<Vec<_>>()));
            assert_eq!(read_usages(&texts(usages)).ok(), want, "{usages:?}");
        };
        check(&["signing"], Some(([0x80, 0], &[])));
        check(&["client auth"], Some(([0, 0], &["client auth"])));
        check(&["client auth", "client auth"], Some(([0, 0], &["client auth"])));
        check(&["cert sign", "encipher only"], Some(([0x05, 0], &[])));
        check(
            &["ocsp signing", "crl sign", "s/mime", "content commitment"],
            Some(([0x42, 0], &["email protection", "ocsp signing"])),
        );
        check(&["unsupported string"], None);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let unknown = read_usages(&texts(&["client auth", "x", "y"])).unwrap_err();
        assert_eq!(unknown, AuthorityError::Usages(texts(&["x", "y"])));
        assert_eq!(read_usages(&texts(&["s/mime", "email protection", "signing"])).unwrap().1.len(), 1);
        let (a, b) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let leaf = CertificateParams::default().self_signed(&a).unwrap().pem();
        let parse =
            |pem: &str, key: &KeyPair| Authority::parse(pem.as_bytes(), key.serialize_pem().as_bytes());
        assert!(matches!(parse(&leaf, &a), Err(AuthorityError::Certificate(_))));
        assert!(matches!(parse(&leaf, &b), Err(AuthorityError::Key(_))));
        assert!(matches!(parse("", &b), Err(AuthorityError::Certificate(_))));
        // The oldest certificates say nothing of what they are for.
        let (_, leaf) = x509_parser::pem::parse_x509_pem(leaf.as_bytes()).unwrap();
        let leaf = leaf.parse_x509().unwrap();
        let algorithm = element(SEQUENCE, &[alg_id::ECDSA_SHA256.as_ref()]);
        let end = "2030-01-01T00:00:00Z".parse().unwrap();
        let validity = element(SEQUENCE, &[&der::time(NOW.parse().unwrap()), &der::time(end)]);
        let (name, key) = (leaf.subject().as_raw(), leaf.public_key().raw);
        let content = element(SEQUENCE, &[&der::unsigned(&[1]), &algorithm, name, &validity, name, key]);
        let whole = element(SEQUENCE, &[&content, &algorithm, &element(BIT_STRING, &[&[0, 1]])]);
        let first_version = pem::encode_certificate(&whole);
        assert_eq!(parse(&first_version, &a).unwrap().not_after, end);
        assert!(matches!(parse(&first_version, &b), Err(AuthorityError::Key(_))));
    }
}
