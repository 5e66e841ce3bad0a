//! A certificate request (PKCS #10), as approvers and signers read it.

use std::net::IpAddr;

use client::subject::{Subject, subject};
use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

use super::der;

/// The attributes of a subject that certificates take over, by their object identifiers: country, organization, unit,
/// locality, province, street, postal code, common name, serial number; as Go's `pkix.Name` does. Others go: none of them
/// may name a user's uid.
const KEPT: [&[u8]; 9] = [
    &[0x55, 4, 6],
    &[0x55, 4, 10],
    &[0x55, 4, 11],
    &[0x55, 4, 7],
    &[0x55, 4, 8],
    &[0x55, 4, 9],
    &[0x55, 4, 17],
    &[0x55, 4, 3],
    &[0x55, 4, 5],
];

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// Its user and groups.
    pub(super) subject: Subject,
    /// The DER of the subject that the certificate gets.
    pub(super) kept_subject: Vec<u8>,
    /// The DER of the public key.
    pub(super) public_key: Vec<u8>,
    pub(super) names: Vec<String>,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) emails: Vec<String>,
    pub(super) uris: Vec<String>,
    /// Whether it asks for alternative names of other kinds, which no certificate gets.
    pub(super) has_others: bool,
    der: Vec<u8>,
}

/// The reason for which a request cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestError {
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Pem,
    #[error("the certificate request is malformed: {0}")]
    Malformed(String),
    /// Of several, each reader takes another.
    #[error("the certificate request has more than one {0}")]
    Several(&'static str),
    #[error("unable to verify certificate request signature")]
    Signature,
}

impl Request {
    /// Reads a request in PEM. It does not check the signature: [`Request::verify`] does.
    pub(super) fn parse(pem: &[u8]) -> Result<Self, RequestError> {
        let der = CertificateSigningRequestDer::from_pem_slice(pem).map_err(|_| RequestError::Pem)?;
        let malformed = |e: &dyn std::fmt::Display| RequestError::Malformed(e.to_string());
        let (rest, read) = X509CertificationRequest::from_der(&der).map_err(|e| malformed(&e))?;
        if !rest.is_empty() {
            return Err(malformed(&"trailing data"));
        }
        let info = &read.certification_request_info;
        let mut request = Self {
            subject: subject(info.subject.as_raw()).map_err(|e| malformed(&e))?,
            kept_subject: kept(&info.subject),
            public_key: info.subject_pki.raw.to_vec(),
            names: Vec::new(),
            addresses: Vec::new(),
            emails: Vec::new(),
            uris: Vec::new(),
            has_others: false,
            der: der.to_vec(),
        };
        let mut extensions = None;
        for attribute in info.iter_attributes() {
            if let ParsedCriAttribute::ExtensionRequest(asked) = attribute.parsed_attribute()
                && extensions.replace(&asked.extensions).is_some()
            {
                return Err(RequestError::Several("list of extensions"));
            }
        }
        let mut alternative = false;
        for extension in extensions.into_iter().flatten() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectAlternativeName(names) => {
                    if std::mem::replace(&mut alternative, true) {
                        return Err(RequestError::Several("list of alternative names"));
                    }
                    for name in &names.general_names {
                        request.add(name)?;
                    }
                }
                ParsedExtension::ParseError { error } => return Err(malformed(error)),
                _ => {}
            }
        }
        Ok(request)
    }

    fn add(&mut self, name: &GeneralName<'_>) -> Result<(), RequestError> {
        match name {
            GeneralName::DNSName(name) => self.names.push((*name).to_owned()),
            GeneralName::RFC822Name(email) => self.emails.push((*email).to_owned()),
            GeneralName::URI(uri) => self.uris.push((*uri).to_owned()),
            GeneralName::IPAddress(bytes) => {
                let address = <[u8; 4]>::try_from(*bytes)
                    .map(IpAddr::from)
                    .or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
                let bad = |_| RequestError::Malformed("an IP address has an invalid length".to_owned());
                self.addresses.push(address.map_err(bad)?);
            }
            _ => self.has_others = true,
        }
        Ok(())
    }

    /// Checks that whoever made the request has the key.
    pub(super) fn verify(&self) -> Result<(), RequestError> {
        let (_, read) = X509CertificationRequest::from_der(&self.der).map_err(|_| RequestError::Signature)?;
        read.verify_signature().map_err(|_| RequestError::Signature)
    }

    /// Whether it asks for alternative names of any kind.
    pub(super) fn has_alternative_names(&self) -> bool {
        self.has_others
            || !(self.names.is_empty()
                && self.addresses.is_empty()
                && self.emails.is_empty()
                && self.uris.is_empty())
    }
}

/// The subject without the attributes that certificates do not take over.
fn kept(name: &X509Name<'_>) -> Vec<u8> {
    let mut all = Vec::new();
    for attribute in name.iter_attributes() {
        let kind = attribute.attr_type().as_bytes();
        if KEPT.contains(&kind) {
            let value = attribute.attr_value();
            let tag = u8::try_from(value.header.tag().0).unwrap_or(0);
            let value = der::element(tag, &[value.data]);
            let pair = der::element(der::SEQUENCE, &[&der::element(der::OID, &[kind]), &value]);
            all.extend(der::element(der::SET, &[&pair]));
        }
    }
    der::element(der::SEQUENCE, &[&all])
}

#[cfg(test)]
mod tests {
    use super::super::testing::Asks;
    use super::*;

    #[test]
    fn reads_what_is_asked_for() {
        let asks = Asks {
            names: &["a.example"],
            addresses: &["192.0.2.1", "2001:db8::1"],
            emails: &["a@example"],
            uris: &["spiffe://a"],
            ..Asks::node("n")
        };
        let request = Request::parse(asks.pem().as_bytes()).unwrap();
        assert_eq!(request.subject.common_name, "system:node:n");
        assert_eq!(request.subject.organizations, ["system:nodes"]);
        assert_eq!(request.names, ["a.example"]);
        assert_eq!(request.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(), asks.addresses);
        assert_eq!((&request.emails[0][..], &request.uris[0][..]), ("a@example", "spiffe://a"));
        assert!(request.has_alternative_names() && !request.has_others);
        assert_eq!(subject(&request.kept_subject), Ok(request.subject.clone()));
        request.verify().unwrap();
        assert!(!Request::parse(Asks::node("n").pem().as_bytes()).unwrap().has_alternative_names());
    }

    #[test]
    fn refuses_what_is_none() {
        let check = |pem: &[u8], expected: RequestError| {
            assert_eq!(Request::parse(pem).unwrap_err(), expected);
        };
        check(b"", RequestError::Pem);
        check(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", RequestError::Pem);
        let pem = b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n";
        assert!(matches!(Request::parse(pem), Err(RequestError::Malformed(_))));
        // Somebody else's key: the name is another one than the signed one.
        let mut request = Request::parse(Asks::node("n").pem().as_bytes()).unwrap();
        let at = request.der.windows(6).position(|w| w == b"node:n").unwrap();
        request.der[at + 5] = b'm';
        assert_eq!(request.verify(), Err(RequestError::Signature));
    }

    #[test]
    fn a_uid_is_not_taken_over() {
        let asks = Asks { uid: Some("u-1"), ..Asks::node("n") };
        let request = Request::parse(asks.pem().as_bytes()).unwrap();
        assert_eq!(request.subject.uid.as_deref(), Some("u-1"));
        assert_eq!(subject(&request.kept_subject).unwrap().uid, None);
    }
}
