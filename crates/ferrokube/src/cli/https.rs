//! The API server's way to speak HTTPS; named as upstream's.

use std::path::PathBuf;

use anyhow::{Context, Error, Result, bail};
use apiserver::config::{NamedPair, Pair, Serving};
use clap::Args;

use super::connections::Connections;
use super::security::read;
use super::values::list;

/// The API server's way to speak HTTPS.
#[derive(Debug, Args, Clone)]
pub(crate) struct Https {
    #[command(flatten)]
    connections: Connections,
    /// Certificate and key for clients that ask for certain names, as `CERT,KEY` or `CERT,KEY:NAME,*.DOMAIN`; may be given
    /// several times. Without names, those in the certificate
    #[arg(long, value_name = "CERT,KEY[:NAMES]", value_parser = named_files)]
    tls_sni_cert_key: Vec<NamedFiles>,
    /// Host name, and port if it is another one, in the URLs that others are told [default: the advertised address]
    #[arg(long, value_name = "HOST", default_value = "", hide_default_value = true)]
    external_hostname: String,
    /// Directives of HSTS that browsers are told: max-age=SECONDS, includeSubDomains, preload
    #[arg(long, value_name = "DIRECTIVES", value_delimiter = ',')]
    strict_transport_security_directives: Vec<String>,
    /// Origins whose scripts may ask in a browser, as regular expressions that name the begin and the end of the host:
    /// //example\.com$
    #[arg(long, value_name = "PATTERNS", value_delimiter = ',')]
    cors_allowed_origins: Vec<String>,
    /// Part of the requests after which a connection of HTTP/2 is made anew, so that load balancers share them out
    /// again: 0 to 0.02
    #[arg(long, value_name = "PART", default_value_t = 0.0, allow_negative_numbers = true)]
    goaway_chance: f64,
}

/// The files of a certificate and its key, and the names for which it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedFiles {
    pub(crate) files: [PathBuf; 2],
    names: Vec<String>,
}

/// Reads `CERT,KEY` or `CERT,KEY:NAME,NAME`.
fn named_files(text: &str) -> Result<NamedFiles, String> {
    let (files, names) = match text.split_once(':') {
        Some((_, names)) if names.trim().is_empty() => return Err("empty names list is not allowed".into()),
        Some((files, names)) => (files, names.split(',').map(|name| name.trim().to_owned()).collect()),
        None => (text, Vec::new()),
    };
    let files: Vec<PathBuf> = files.split(',').map(|file| file.trim().into()).collect();
    let files = files.try_into();
    let files = files.map_err(|_| "expected comma separated certificate and key file paths")?;
    Ok(NamedFiles { files, names })
}

/// Checks the directives of HSTS by upstream's rules.
fn check_directives(all: &[String]) -> Result<()> {
    for directive in all {
        if directive.trim().is_empty() {
            bail!("empty value in strict-transport-security-directives");
        }
        let age = directive.strip_prefix("max-age=").is_some_and(|age| !age.contains('='));
        if !age && !matches!(directive.as_str(), "includeSubDomains" | "preload") {
            bail!(
                "--strict-transport-security-directives invalid, allowed values: max-age=expireTime, includeSubDomains, \
                 preload. see https://tools.ietf.org/html/rfc6797#section-6.1 for more information"
            );
        }
    }
    Ok(())
}

/// Checks the expressions of origins by upstream's rules: one that could match a part of another host's name is none.
fn check_origins(all: &[String]) -> Result<()> {
    for pattern in all {
        if pattern.is_empty() {
            bail!(
                "empty value in --cors-allowed-origins; give an expression such as //example\\.com$, or leave it out"
            );
        }
        let invalid = |why: &str| {
            Error::msg(format!(
                "--cors-allowed-origins has an invalid regular expression: {why}; give one such as //example\\.com$"
            ))
        };
        api::re2::compile(pattern).map_err(|why| invalid(&why))?;
        let begins = ["^", "//"].iter().any(|mark| pattern.contains(mark));
        let ends = ["$", ":"].iter().any(|mark| pattern.contains(mark));
        if !begins || !ends {
            return Err(invalid("regular expression does not pin to start/end of host in the origin header"));
        }
    }
    Ok(())
}

impl Https {
    /// Puts the flags into the server's configuration; returns a sentence for each part that has no effect.
    pub(crate) fn configure(&self, serving: &mut Serving) -> Result<Vec<String>> {
        let directives = list(&self.strict_transport_security_directives);
        let origins = list(&self.cors_allowed_origins);
        let (offer, warnings) = self.connections.offer()?;
        if !(0.0..=0.02).contains(&self.goaway_chance) {
            bail!("--goaway-chance can not be less than 0 or greater than 0.02");
        }
        check_directives(directives)?;
        check_origins(origins)?;
        serving.offer = offer;
        serving.http2 = self.connections.http2();
        serving.http2_streams = self.connections.streams().unwrap_or(0);
        serving.share_port = self.connections.permit_port_sharing;
        serving.external_host = Some(self.external_hostname.clone()).filter(|host| !host.is_empty());
        serving.transport_security = directives.to_vec();
        serving.origins = origins.to_vec();
        serving.goaway_chance = self.goaway_chance;
        Ok(warnings)
    }

    /// The certificates for certain names.
    pub(crate) fn named(&self) -> Result<Vec<NamedPair>> {
        let of = |named: &NamedFiles| {
            let [certificate, key] = &named.files;
            let text = |file| read("--tls-sni-cert-key", file).context("failed to load SNI cert and key");
            let pair = Pair { certificate_pem: text(certificate)?, key_pem: text(key)? };
            Ok(NamedPair { pair, names: named.names.clone() })
        };
        self.tls_sni_cert_key.iter().map(of).collect()
    }

    /// The files of the certificates for certain names.
    pub(crate) fn named_files(&self) -> Vec<[PathBuf; 2]> {
        self.tls_sni_cert_key.iter().map(|named| named.files.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(all: &[&str]) -> Vec<String> {
        all.iter().map(|one| (*one).to_owned()).collect()
    }

    #[test]
    fn certificates_for_names() {
        let check = |text: &str, expected: Result<(&str, &str, &[&str]), &str>| {
            let expected = expected.map(|(certificate, key, names)| NamedFiles {
                files: [certificate.into(), key.into()],
                names: owned(names),
            });
            assert_eq!(named_files(text), expected.map_err(str::to_owned), "{text}");
        };
        check("foo.crt,foo.key", Ok(("foo.crt", "foo.key", &[])));
        check("foo.crt, foo.key : abc.com", Ok(("foo.crt", "foo.key", &["abc.com"])));
        check("foo.crt,foo.key:abc.com,*.abc.com", Ok(("foo.crt", "foo.key", &["abc.com", "*.abc.com"])));
        let files = Err("expected comma separated certificate and key file paths");
        check("", files);
        check("foo.crt", files);
        check("foo.crt,foo.key,more:abc.com", files);
        check("foo.crt,foo.key:", Err("empty names list is not allowed"));
    }

    #[test]
    fn directives_of_transport_security() {
        let check = |all: &[&str], expected: bool| {
            assert_eq!(check_directives(&owned(all)).is_ok(), expected, "{all:?}");
        };
        check(&[], true);
        check(&["max-age=31536000", "includeSubDomains", "preload"], true);
        check(&[""], false);
        check(&["test"], false);
        check(&["max-age"], false);
        check(&["max-age=1=2"], false);
        check(&["fakeDirective=1"], false);
    }

    #[test]
    fn origins() {
        let check = |pattern: &str, expected: Option<&str>| {
            let refused = check_origins(&owned(&[pattern])).err().map(|e| e.to_string());
            match (refused, expected) {
                (None, None) => {}
                (Some(why), Some(part)) => assert!(why.contains(part), "{pattern}: {why}"),
                other => panic!("{pattern}: {other:?}"),
            }
        };
        let pin = "does not pin to start/end of host";
        for good in [r"//example\.com$", r"^https://a\.b(:\d+)?$", "^http://abc.com$", r"//abc\.com(:|$)"] {
            check(good, None);
        }
        for loose in ["example.com", "//example.com", "example.com$", ".*"] {
            check(loose, Some(pin));
        }
        check("", Some("empty value in --cors-allowed-origins"));
        check("^http://([a$", Some("missing closing ]"));
    }
}
