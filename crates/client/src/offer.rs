//! The versions, ciphers and key exchanges of TLS that a server offers.

use rustls::crypto::CryptoProvider;
use rustls::{CipherSuite, SupportedProtocolVersion};

/// The ciphers that upstream knows, too, and that nobody should use.
const OLD_CIPHERS: [&str; 16] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// The versions, ciphers and key exchanges that are offered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offer {
    /// Whether TLS 1.3 alone is.
    pub only_1_3: bool,
    /// The ciphers of TLS 1.2 that are, all without known weakness if it is empty.
    pub ciphers: Vec<CipherSuite>,
    /// The key exchanges that are, all without known weakness if it is empty.
    pub curves: Vec<u16>,
}

/// A choice of what is offered, in upstream's words, and the names of the settings in what is said about it.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'c> {
    /// The oldest version: `VersionTLS12`; "" for the oldest that is offered.
    pub version: (&'c str, &'c str),
    /// The ciphers by their IANA names; none for all.
    pub ciphers: (&'c str, &'c [String]),
    /// The key exchanges by their numbers in TLS; none for all.
    pub curves: (&'c str, &'c [i32]),
}

/// The cipher of an IANA name, if it can be offered.
pub fn cipher(name: &str) -> Option<CipherSuite> {
    let name =
        name.strip_suffix("_POLY1305").map_or_else(|| name.to_owned(), |n| format!("{n}_POLY1305_SHA256"));
    let all = rustls::crypto::aws_lc_rs::default_provider().cipher_suites;
    let named = |suite: &CipherSuite| {
        let own = suite.as_str().unwrap_or_default();
        own == name || own.replacen("TLS13_", "TLS_", 1) == name
    };
    all.iter().map(|suite| suite.suite()).find(named)
}

/// Whether a key exchange can be offered, by its number in TLS.
pub fn has_curve(number: u16) -> bool {
    let all = rustls::crypto::aws_lc_rs::default_provider().kx_groups;
    all.iter().any(|group| u16::from(group.name()) == number)
}

static ONLY_1_3: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

impl Offer {
    /// The offer of a choice, and a sentence for each part of it that has no effect.
    ///
    /// # Errors
    /// There is no such version, cipher or key exchange, or none of those that are chosen can be offered.
    pub fn choose(choice: Choice<'_>) -> Result<(Self, Vec<String>), String> {
        let mut warnings = Vec::new();
        let (setting, version) = choice.version;
        let only_1_3 = match version {
            "" | "VersionTLS12" => false,
            "VersionTLS13" => true,
            "VersionTLS10" | "VersionTLS11" => {
                warnings.push(format!("{setting}={version}: nothing older than TLS 1.2 is offered"));
                false
            }
            other => return Err(format!("unknown tls version {other:?}")),
        };
        let (setting, names) = choice.ciphers;
        let mut ciphers = Vec::new();
        for name in names {
            match cipher(name) {
                Some(cipher) => ciphers.push(cipher),
                None if OLD_CIPHERS.contains(&name.as_str()) => {
                    warnings.push(format!("{setting}: {name} has known weaknesses and is not offered"));
                }
                None => return Err(format!("Cipher suite {name} not supported or doesn't exist")),
            }
        }
        if ciphers.is_empty() && !names.is_empty() {
            return Err(format!("none of {setting} can be offered: all have known weaknesses"));
        }
        let (setting, numbers) = choice.curves;
        let curves = numbers.iter().filter_map(|number| u16::try_from(*number).ok());
        let curves: Vec<u16> = curves.filter(|number| has_curve(*number)).collect();
        if curves.len() < numbers.len() {
            if curves.is_empty() {
                return Err(format!("none of {setting} {numbers:?} can be offered"));
            }
            warnings.push(format!("{setting}: of {numbers:?} only {curves:?} are offered"));
        }
        Ok((Self { only_1_3, ciphers, curves }, warnings))
    }

    /// The ciphers and key exchanges.
    pub fn provider(&self) -> CryptoProvider {
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        if !self.ciphers.is_empty() {
            // As in Go, those of TLS 1.3 cannot be chosen.
            provider
                .cipher_suites
                .retain(|suite| suite.tls13().is_some() || self.ciphers.contains(&suite.suite()));
        }
        if !self.curves.is_empty() {
            provider.kx_groups.retain(|group| self.curves.contains(&u16::from(group.name())));
        }
        provider
    }

    /// The versions.
    pub fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        let no_1_2 = self.provider().cipher_suites.iter().all(|suite| suite.tls13().is_some());
        if self.only_1_3 || no_1_2 { ONLY_1_3 } else { rustls::DEFAULT_VERSIONS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offer_is_what_was_chosen() {
        let check = |offer: Offer, suites: usize, groups: usize, versions: usize| {
            let provider = offer.provider();
            let (have, exchanges) = (provider.cipher_suites.len(), provider.kx_groups.len());
            assert_eq!((have, exchanges, offer.versions().len()), (suites, groups, versions), "{offer:?}");
        };
        let all = Offer::default().provider();
        let (suites, groups) = (all.cipher_suites.len(), all.kx_groups.len());
        check(Offer::default(), suites, groups, 2);
        check(Offer { only_1_3: true, ..Offer::default() }, suites, groups, 1);
        let of_1_3 = all.cipher_suites.iter().filter(|s| s.tls13().is_some()).count();
        let one = cipher("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256").unwrap();
        check(Offer { ciphers: vec![one], ..Offer::default() }, of_1_3 + 1, groups, 2);
        let of_new = cipher("TLS_AES_128_GCM_SHA256").unwrap();
        check(Offer { ciphers: vec![of_new], ..Offer::default() }, of_1_3, groups, 1);
        check(Offer { curves: vec![29, 23], ..Offer::default() }, suites, 2, 2);
    }

    #[test]
    fn ciphers_and_curves_by_their_names() {
        for name in [
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            "TLS_CHACHA20_POLY1305_SHA256",
        ] {
            assert!(cipher(name).is_some(), "{name}");
        }
        assert!(cipher("TLS_RSA_WITH_AES_128_CBC_SHA").is_none() && cipher("").is_none());
        assert!(has_curve(29) && has_curve(23) && !has_curve(0));
    }

    #[test]
    fn choices() {
        let check = |version: &str, ciphers: &[&str], curves: &[i32], expected: Result<usize, &str>| {
            let ciphers: Vec<String> = ciphers.iter().map(|name| (*name).to_owned()).collect();
            let choice = Choice { version: ("v", version), ciphers: ("s", &ciphers), curves: ("c", curves) };
            let warnings = Offer::choose(choice).map(|(_, warnings)| warnings.len());
            assert_eq!(warnings, expected.map_err(str::to_owned), "{version} {ciphers:?} {curves:?}");
        };
        let good = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
        check("", &[], &[], Ok(0));
        check("VersionTLS10", &[], &[], Ok(1));
        check("VersionTLS13", &[good], &[29], Ok(0));
        check("VersionTLS12", &[good, "TLS_RSA_WITH_RC4_128_SHA"], &[29, 31], Ok(2));
        check("VersionTLS14", &[], &[], Err("unknown tls version \"VersionTLS14\""));
        check("", &["TLS_X"], &[], Err("Cipher suite TLS_X not supported or doesn't exist"));
        let old = Err("none of s can be offered: all have known weaknesses");
        check("", &["TLS_RSA_WITH_AES_128_CBC_SHA"], &[], old);
        check("", &[], &[31], Err("none of c [31] can be offered"));
    }
}
