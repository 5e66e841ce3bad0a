//! Certificate requests for tests.

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use rcgen::string::Ia5String;
use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair, SanType};

/// The content of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asks {
    /// "" for none.
    pub(super) common_name: &'static str,
    pub(super) organization: Option<&'static str>,
    pub(super) uid: Option<&'static str>,
    pub(super) names: &'static [&'static str],
    pub(super) addresses: &'static [&'static str],
    pub(super) emails: &'static [&'static str],
    pub(super) uris: &'static [&'static str],
    pub(super) signer: &'static str,
    pub(super) requester: &'static str,
    pub(super) groups: &'static [&'static str],
    pub(super) usages: &'static [&'static str],
    pub(super) seconds: Option<i32>,
}

pub(super) const CLIENT: &[&str] = &["digital signature", "client auth"];
pub(super) const SERVER: &[&str] = &["digital signature", "server auth"];

impl Asks {
    /// A kubelet's request for a client certificate; `n` is in the names.
    pub(super) fn node(_: &str) -> Self {
        Self {
            common_name: "system:node:n",
            organization: Some("system:nodes"),
            uid: None,
            names: &[],
            addresses: &[],
            emails: &[],
            uris: &[],
            signer: super::KUBELET_CLIENT,
            requester: "system:node:n",
            groups: &["system:nodes", "system:authenticated"],
            usages: CLIENT,
            seconds: None,
        }
    }

    /// The request in PEM, with a new key.
    pub(super) fn pem(&self) -> String {
        let mut params = CertificateParams::default();
        let mut name = DistinguishedName::new();
        if let Some(o) = self.organization {
            name.push(DnType::OrganizationName, o);
        }
        if !self.common_name.is_empty() {
            name.push(DnType::CommonName, self.common_name);
        }
        if let Some(uid) = self.uid {
            let kind = DnType::CustomDnType(vec![1, 3, 6, 1, 4, 1, 57683, 2]);
            name.push(kind, DnValue::Utf8String(uid.to_owned()));
        }
        params.distinguished_name = name;
        let text = |t: &&str| Ia5String::try_from(*t).unwrap();
        params.subject_alt_names = self
            .names
            .iter()
            .map(|n| SanType::DnsName(text(n)))
            .chain(self.addresses.iter().map(|a| SanType::IpAddress(a.parse().unwrap())))
            .chain(self.emails.iter().map(|e| SanType::Rfc822Name(text(e))))
            .chain(self.uris.iter().map(|u| SanType::URI(text(u))))
            .collect();
        params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
    }

    /// The object with the request.
    pub(super) fn object(&self) -> CertificateSigningRequest {
        let all = |list: &[&str]| list.iter().map(|t| (*t).to_owned()).collect();
        CertificateSigningRequest {
            spec: CertificateSigningRequestSpec {
                request: ByteString(self.pem().into_bytes()),
                signer_name: self.signer.to_owned(),
                username: Some(self.requester.to_owned()),
                groups: Some(all(self.groups)),
                usages: Some(all(self.usages)),
                expiration_seconds: self.seconds,
                ..CertificateSigningRequestSpec::default()
            },
            ..CertificateSigningRequest::default()
        }
    }
}
