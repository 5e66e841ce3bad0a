//! Certificate authorities, and certificates issued by them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use client::subject::{Subject, subject};
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::PkiError;
use super::files::{self, Keep};

/// Validity of a certificate authority; kubeadm's.
const CA_VALIDITY: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
/// Validity of any other certificate; kubeadm's.
const LEAF_VALIDITY: SignedDuration = SignedDuration::from_hours(365 * 24);
/// A certificate is renewed on start when it expires within this time.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(90 * 24);
/// How far back certificates are valid, for clocks that differ.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

/// The use of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// Authenticates to a server.
    Client,
    /// Authenticates a server.
    Server,
}

/// The content of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Common name: the user of a client certificate.
    pub common_name: String,
    /// Organization: a group of the user.
    pub organization: Option<String>,
    /// Its use.
    pub usage: Usage,
    /// DNS names.
    pub names: BTreeSet<String>,
    /// IP addresses.
    pub addresses: BTreeSet<IpAddr>,
}

impl Profile {
    /// A client certificate.
    pub fn client(user: &str, group: Option<&str>) -> Self {
        Self {
            common_name: user.into(),
            organization: group.map(Into::into),
            usage: Usage::Client,
            names: BTreeSet::new(),
            addresses: BTreeSet::new(),
        }
    }
    /// A serving certificate; loopback addresses are always among its addresses.
    pub fn serving(
        name: &str,
        organization: Option<&str>,
        names: Vec<String>,
        addresses: Vec<IpAddr>,
    ) -> Self {
        let loopback = [IpAddr::from([127, 0, 0, 1]), IpAddr::from(std::net::Ipv6Addr::LOCALHOST)];
        Self {
            common_name: name.into(),
            organization: organization.map(Into::into),
            usage: Usage::Server,
            names: names.into_iter().map(|n| n.to_ascii_lowercase()).collect(),
            addresses: addresses.into_iter().chain(loopback).collect(),
        }
    }
    fn params(&self, now: Timestamp) -> Result<CertificateParams, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished(&self.common_name, self.organization.as_deref());
        for name in &self.names {
            params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
        }
        params.subject_alt_names.extend(self.addresses.iter().map(|a| SanType::IpAddress(*a)));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match self.usage {
            Usage::Client => ExtendedKeyUsagePurpose::ClientAuth,
            Usage::Server => ExtendedKeyUsagePurpose::ServerAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, LEAF_VALIDITY);
        Ok(params)
    }
}

fn distinguished(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut dn = DistinguishedName::new();
    if let Some(o) = organization {
        dn.push(DnType::OrganizationName, o);
    }
    dn.push(DnType::CommonName, common_name);
    dn
}

fn set_validity(params: &mut CertificateParams, now: Timestamp, validity: SignedDuration) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let seconds = |t: Timestamp| Duration::from_secs(u64::try_from(t.as_second()).unwrap_or(0));
    params.not_before = epoch + seconds(now.saturating_sub(BACKDATE).unwrap_or(now));
    params.not_after = epoch + seconds(now.saturating_add(validity).unwrap_or(Timestamp::MAX));
}

/// A certificate with its private key.
#[derive(Clone)]
pub struct Credential {
    /// The certificate, PEM.
    pub certificate_pem: String,
    /// The private key, PKCS#8 in PEM.
    pub key_pem: String,
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Credential {
    fn parse(certificate_pem: String, key_pem: String) -> Option<Self> {
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).ok()?;
        let key = PrivatePkcs8KeyDer::from_pem_slice(key_pem.as_bytes()).ok()?.secret_pkcs8_der().to_vec();
        Some(Self { certificate_pem, key_pem, certificate, key })
    }
    /// The certificate's DER.
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.clone()
    }
    /// The private key's DER.
    pub fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()))
    }
    /// Whether it still is what is wanted: of this profile, signed by the authority with this key
    /// id, holding its own key, and valid for long enough.
    fn serves(&self, profile: &Profile, authority_key_id: &[u8], now: Timestamp) -> bool {
        let Ok((_, certificate)) = X509Certificate::from_der(&self.certificate) else { return false };
        let Ok(key) = KeyPair::try_from(self.key.as_slice()) else { return false };
        let found = read_profile(&certificate);
        found.as_ref() == Some(profile)
            && authority_key_identifier(&certificate) == Some(authority_key_id)
            && certificate.public_key().raw == key.subject_public_key_info()
            && certificate.validity().not_before.timestamp() <= now.as_second()
            && now
                .saturating_add(RENEW_BEFORE)
                .is_ok_and(|t| certificate.validity().not_after.timestamp() > t.as_second())
    }
}

fn authority_key_identifier<'a>(certificate: &X509Certificate<'a>) -> Option<&'a [u8]> {
    certificate.extensions().iter().find_map(|e| match e.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(a) => a.key_identifier.as_ref().map(|k| k.0),
        _ => None,
    })
}

fn subject_key_identifier<'a>(certificate: &X509Certificate<'a>) -> Option<&'a [u8]> {
    certificate.extensions().iter().find_map(|e| match e.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(k) => Some(k.0),
        _ => None,
    })
}

fn read_profile(certificate: &X509Certificate<'_>) -> Option<Profile> {
    let Subject { common_name, mut organizations, .. } = subject(certificate.subject().as_raw()).ok()?;
    let organization = organizations.pop();
    if !organizations.is_empty() {
        return None;
    }
    let usages = certificate.extended_key_usage().ok()??.value;
    let mut names = BTreeSet::new();
    let mut addresses = BTreeSet::new();
    if let Some(san) = certificate.subject_alternative_name().ok()? {
        for name in &san.value.general_names {
            match name {
                GeneralName::DNSName(n) => {
                    names.insert((*n).to_owned());
                }
                GeneralName::IPAddress(raw) => {
                    addresses.insert(ip(raw)?);
                }
                _ => return None,
            }
        }
    }
    Some(Profile {
        common_name,
        organization,
        usage: if usages.server_auth { Usage::Server } else { Usage::Client },
        names,
        addresses,
    })
}

fn ip(raw: &[u8]) -> Option<IpAddr> {
    match raw.len() {
        4 => <[u8; 4]>::try_from(raw).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(raw).ok().map(IpAddr::from),
        _ => None,
    }
}

/// A certificate authority.
pub struct Authority {
    /// Its certificate, PEM.
    pub certificate_pem: String,
    /// Its private key, PKCS#8 in PEM.
    pub key_pem: String,
    certificate: CertificateDer<'static>,
    key_id: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Reads `dir/STEM.crt` and `dir/STEM.key`, or makes them if neither exists.
    pub(super) fn ensure(
        dir: &Path,
        stem: &str,
        common_name: &str,
        now: Timestamp,
    ) -> Result<Self, PkiError> {
        let (crt, key) = (dir.join(format!("{stem}.crt")), dir.join(format!("{stem}.key")));
        match (files::read(&crt)?, files::read(&key)?) {
            (Some(certificate_pem), Some(key_pem)) => {
                let authority = Self::parse(certificate_pem, key_pem)
                    .map_err(|why| PkiError::Unusable { path: crt.clone(), why })?;
                if authority.expires() <= now {
                    return Err(PkiError::Unusable { path: crt, why: "it has expired".into() });
                }
                Ok(authority)
            }
            // The key is written first: alone, it is what a crash left of a first start.
            (None, _) => {
                let authority = Self::generate(common_name, now)
                    .map_err(|source| PkiError::Issue { what: stem.into(), source })?;
                files::write(&key, &authority.key_pem, Keep::Durably)?;
                files::write(&crt, &authority.certificate_pem, Keep::Durably)?;
                Ok(authority)
            }
            (Some(_), None) => {
                Err(PkiError::Unusable { path: crt, why: format!("its key {} is missing", key.display()) })
            }
        }
    }

    /// A new authority that is nowhere stored.
    pub fn generate(common_name: &str, now: Timestamp) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished(common_name, None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
        set_validity(&mut params, now, CA_VALIDITY);
        let certificate = params.self_signed(&key)?;
        Ok(Self {
            key_id: params.key_identifier(&key),
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            certificate: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        })
    }

    fn parse(certificate_pem: String, key_pem: String) -> Result<Self, String> {
        let certificate =
            CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(|e| e.to_string())?;
        let key = KeyPair::from_pem(&key_pem).map_err(|e| format!("its key: {e}"))?;
        let key_id = {
            let (_, parsed) = X509Certificate::from_der(&certificate).map_err(|e| e.to_string())?;
            if parsed.public_key().raw != key.subject_public_key_info() {
                return Err("its key belongs to another certificate".into());
            }
            subject_key_identifier(&parsed).ok_or("it has no subject key identifier")?.to_vec()
        };
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(|e| e.to_string())?;
        Ok(Self { certificate_pem, key_pem, certificate, key_id, issuer })
    }

    /// Its certificate's DER.
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.clone()
    }

    fn expires(&self) -> Timestamp {
        X509Certificate::from_der(&self.certificate)
            .ok()
            .and_then(|(_, c)| Timestamp::from_second(c.validity().not_after.timestamp()).ok())
            .unwrap_or(Timestamp::MIN)
    }

    /// A certificate of this profile from this authority, with a new key.
    pub fn issue(&self, profile: &Profile, now: Timestamp) -> Result<Credential, rcgen::Error> {
        let key = KeyPair::generate()?;
        let certificate = profile.params(now)?.signed_by(&key, &self.issuer)?;
        Ok(Credential {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            certificate: certificate.der().clone(),
            key: key.serialize_der(),
        })
    }

    /// Reads `dir/STEM.crt` and `dir/STEM.key`, and makes them anew unless they serve.
    pub(super) fn ensure_leaf(
        &self,
        dir: &Path,
        stem: &str,
        profile: &Profile,
        now: Timestamp,
    ) -> Result<Credential, PkiError> {
        let (crt, key) = (dir.join(format!("{stem}.crt")), dir.join(format!("{stem}.key")));
        if let (Some(certificate_pem), Some(key_pem)) = (files::read(&crt)?, files::read(&key)?)
            && let Some(found) = Credential::parse(certificate_pem, key_pem)
            && found.serves(profile, &self.key_id, now)
        {
            return Ok(found);
        }
        let made =
            self.issue(profile, now).map_err(|source| PkiError::Issue { what: stem.into(), source })?;
        files::write(&key, &made.key_pem, Keep::Loosely)?;
        files::write(&crt, &made.certificate_pem, Keep::Loosely)?;
        Ok(made)
    }
}

/// The private key of a file, made (ECDSA P-256) if there is none.
pub(super) fn ensure_key(path: &Path) -> Result<String, PkiError> {
    if let Some(pem) = files::read(path)? {
        return Ok(pem);
    }
    let key = KeyPair::generate()
        .map_err(|source| PkiError::Issue { what: path.display().to_string(), source })?
        .serialize_pem();
    files::write(path, &key, Keep::Durably)?;
    Ok(key)
}
