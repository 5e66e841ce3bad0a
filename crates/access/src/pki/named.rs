//! Several certificates of one server, of which the name that a client asks for chooses one; upstream's
//! `--tls-sni-cert-key`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use client::Certificate;
use parking_lot::Mutex;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A certificate for clients that ask for certain names.
#[derive(Debug, Clone)]
pub struct Named {
    /// Its place.
    pub place: Certificate,
    /// The names for which it is shown: domains, also as `*.example.com`, and addresses; none for those in the
    /// certificate.
    pub names: Vec<String>,
}

/// The certificates of a server: a usual one, and those for certain names.
#[derive(Debug)]
pub struct ByName {
    usual: Certificate,
    named: Vec<Named>,
    /// The address that the client connected to.
    address: Option<IpAddr>,
    /// By the versions of their places.
    known: Mutex<(Vec<u64>, Arc<Known>)>,
}

/// The names for which the present certificates are shown.
#[derive(Debug, Default)]
struct Known {
    /// The place in the list, by name; later ones and those that only the certificate names give way.
    by_name: HashMap<String, usize>,
    /// The names in the certificates: of the usual one, and of each of the others.
    own: (Vec<String>, Vec<Vec<String>>),
}

impl ByName {
    /// For clients that connect to an address.
    pub fn new(usual: Certificate, named: Vec<Named>, address: Option<IpAddr>) -> Self {
        Self { usual, named, address, known: Mutex::default() }
    }

    fn known(&self) -> Arc<Known> {
        let places = || std::iter::once(&self.usual).chain(self.named.iter().map(|named| &named.place));
        let versions: Vec<u64> = places().map(Certificate::version).collect();
        let mut known = self.known.lock();
        if known.0 != versions {
            *known = (versions, Arc::new(Known::of(&self.usual, &self.named)));
        }
        Arc::clone(&known.1)
    }

    /// The certificate for a name; for a client that asks for none, by the address.
    fn of(&self, name: Option<&str>) -> &Certificate {
        if self.named.is_empty() {
            return &self.usual;
        }
        let place = |at: usize| self.named.get(at).map_or(&self.usual, |named| &named.place);
        let known = self.known();
        let Some(name) = name else {
            let address = self.address.map(|address| address.to_canonical().to_string());
            return address.and_then(|a| known.by_name.get(&a)).map_or(&self.usual, |at| place(*at));
        };
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if let Some(at) = known.by_name.get(&name).or_else(|| known.by_name.get(&wildcard(&name))) {
            return place(*at);
        }
        // As Go: of those that were not named for it, the first one whose own names have it.
        if covers(&known.own.0, &name) {
            return &self.usual;
        }
        known.own.1.iter().position(|own| covers(own, &name)).map_or(&self.usual, place)
    }
}

/// The name with `*` for its first part.
fn wildcard(name: &str) -> String {
    name.split_once('.').map_or_else(|| "*".to_owned(), |(_, rest)| format!("*.{rest}"))
}

fn covers(own: &[String], name: &str) -> bool {
    let wildcard = wildcard(name);
    own.iter().any(|own| own.eq_ignore_ascii_case(name) || own.eq_ignore_ascii_case(&wildcard))
}

impl Known {
    fn of(usual: &Certificate, named: &[Named]) -> Self {
        let mut by_name = HashMap::new();
        for (at, named) in named.iter().enumerate() {
            for name in &named.names {
                by_name.entry(name.clone()).or_insert(at);
            }
        }
        for (at, named) in named.iter().enumerate().filter(|(_, named)| named.names.is_empty()) {
            for name in names(&named.place, true) {
                by_name.entry(name).or_insert(at);
            }
        }
        let own = (names(usual, false), named.iter().map(|named| names(&named.place, false)).collect());
        Self { by_name, own }
    }
}

/// The names in a certificate: its domains, and with `common` also the common name, unless that is an address or
/// nothing that a client could ask for.
fn names(place: &Certificate, common: bool) -> Vec<String> {
    let Some(held) = place.held() else { return Vec::new() };
    let Some(leaf) = held.cert.first() else { return Vec::new() };
    let Ok((_, leaf)) = X509Certificate::from_der(leaf) else { return Vec::new() };
    let mut names = Vec::new();
    if common && let Some(name) = leaf.subject().iter_common_name().next().and_then(|cn| cn.as_str().ok()) {
        let domain = name.strip_prefix("*.").unwrap_or(name);
        let is_domain = name == "*" || api::names::dns1123_subdomain(domain).is_empty();
        if is_domain && name.parse::<IpAddr>().is_err() {
            names.push(name.to_owned());
        }
    }
    let alternatives = leaf.subject_alternative_name().ok().flatten();
    names.extend(alternatives.iter().flat_map(|all| &all.value.general_names).filter_map(
        |name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        },
    ));
    names
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.of(hello.server_name()).held()
    }
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::PrivatePkcs8KeyDer;

    use super::*;

    fn place(common: &str, domains: &[&str]) -> Certificate {
        let domains: Vec<String> = domains.iter().map(|d| (*d).to_owned()).collect();
        let mut params = rcgen::CertificateParams::new(domains).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, common);
        let key = rcgen::KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        Certificate::new(vec![made.der().clone()], key.into()).unwrap()
    }

    #[test]
    fn the_name_chooses_the_certificate() {
        let usual = place("kube-apiserver", &["kubernetes", "usual.example.com"]);
        let explicit = |place: &Certificate, names: &[&str]| Named {
            place: place.clone(),
            names: names.iter().map(|n| (*n).to_owned()).collect(),
        };
        let (a, b) = (place("a", &["a.example.com", "both.example.com"]), place("*.b.com", &[]));
        let (c, d) =
            (place("c", &["both.example.com", "own.example.com"]), place("d", &["usual.example.com"]));
        let named = vec![
            explicit(&a, &[]),
            explicit(&b, &[]),
            explicit(&c, &["both.example.com", "*.c.com", "192.0.2.1"]),
            explicit(&d, &["*.com", "*.c.com", "x.c.com"]),
        ];
        let by_name = |address: [u8; 4]| ByName::new(usual.clone(), named.clone(), Some(address.into()));
        let all = [(&usual, "usual"), (&a, "a"), (&b, "b"), (&c, "c"), (&d, "d")];
        let check = |address, name: Option<&str>, expected: &str| {
            let held = by_name(address).of(name).held().unwrap();
            let found = all.iter().find(|(place, _)| Arc::ptr_eq(&place.held().unwrap(), &held)).unwrap();
            assert_eq!(found.1, expected, "{name:?}");
        };
        let local = [127, 0, 0, 1];
        check(local, None, "usual");
        check([192, 0, 2, 1], None, "c");
        check([192, 0, 2, 1], Some("a.example.com"), "a");
        check(local, Some("A.Example.com."), "a");
        // Given names come before those in certificates, whole ones before wildcards, earlier before later.
        check(local, Some("both.example.com"), "c");
        check(local, Some("x.b.com"), "b");
        check(local, Some("b.com"), "d");
        check(local, Some("y.c.com"), "c");
        check(local, Some("x.c.com"), "d");
        // Nobody was named for these.
        check(local, Some("own.example.com"), "c");
        check(local, Some("usual.example.com"), "usual");
        check(local, Some("nothing.example.org"), "usual");
        let none = ByName::new(usual.clone(), Vec::new(), None);
        assert!(Arc::ptr_eq(&none.of(Some("a")).held().unwrap(), &usual.held().unwrap()));
    }

    #[test]
    fn an_exchanged_certificate_has_other_names() {
        let (usual, one) = (place("usual", &[]), place("one", &["one.example.com"]));
        let all = ByName::new(usual.clone(), vec![Named { place: one.clone(), names: Vec::new() }], None);
        let is_one = |name: &str| Arc::ptr_eq(&all.of(Some(name)).held().unwrap(), &one.held().unwrap());
        assert!(is_one("one.example.com") && !is_one("two.example.com"));
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["two.example.com".to_owned()]).unwrap();
        let made = params.self_signed(&key).unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        one.exchange(vec![made.der().clone()], key.into()).unwrap();
        assert!(is_one("two.example.com") && !is_one("one.example.com"));
    }
}
