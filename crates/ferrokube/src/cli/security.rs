//! The flags of an API server about its callers, its keys and its certificates, by upstream's names.

use std::path::{Path, PathBuf};
use std::time::Duration;

use access::auth::{AuthorizationMode, RequestHeaders, TokenFile};
use access::security::SecurityConfig;
use anyhow::{Context, Result, bail};
use apiserver::config::{Given, Pair};
use clap::{ArgAction, Args};

use super::values::duration;
use crate::cert_dir;
use crate::certificate_files::Files;
use crate::say::warn;

/// The flags about callers, keys and certificates.
#[derive(Debug, Args, Clone)]
pub(crate) struct Security {
    /// Whether requests without credentials are those of system:anonymous
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    anonymous_auth: bool,
    /// Authorizers in the order in which they are asked: Node, RBAC, AlwaysAllow, AlwaysDeny
    #[arg(long, value_name = "MODES", default_value = "Node,RBAC", value_delimiter = ',', value_parser = mode)]
    authorization_mode: Vec<AuthorizationMode>,
    /// Authorities of client certificates [default: the server's own]
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// File of bearer tokens, a line each: token, user, uid, "groups"
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// Authorities of the certificates of front proxies, which name their callers in headers [default: the server's own,
    /// unless --client-ca-file is given]
    #[arg(long, value_name = "FILE")]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Names of the front proxies that are believed; empty for all with a certificate
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    requestheader_allowed_names: Vec<String>,
    /// Headers in which the user's name stands, as X-Remote-User
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    requestheader_username_headers: Vec<String>,
    /// Headers in which the user's uid stands, as X-Remote-Uid
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    requestheader_uid_headers: Vec<String>,
    /// Headers in which the user's groups stand, as X-Remote-Group
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    requestheader_group_headers: Vec<String>,
    /// Beginnings of the headers in which the user's further attributes stand, as X-Remote-Extra-
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',')]
    requestheader_extra_headers_prefix: Vec<String>,
    /// Certificate that is shown to aggregated API servers [default: the server's own]
    #[arg(long, value_name = "FILE", requires = "proxy_client_key_file")]
    proxy_client_cert_file: Option<PathBuf>,
    /// Key of the certificate that is shown to aggregated API servers
    #[arg(long, value_name = "FILE", requires = "proxy_client_cert_file")]
    proxy_client_key_file: Option<PathBuf>,
    /// Authorities of the certificates with which kubelets serve [default: the server's own]
    #[arg(long, value_name = "FILE")]
    kubelet_certificate_authority: Option<PathBuf>,
    /// Certificate that is shown to kubelets [default: the server's own]
    #[arg(long, value_name = "FILE", requires = "kubelet_client_key")]
    kubelet_client_certificate: Option<PathBuf>,
    /// Key of the certificate that is shown to kubelets
    #[arg(long, value_name = "FILE", requires = "kubelet_client_certificate")]
    kubelet_client_key: Option<PathBuf>,
    /// Certificate with which to serve, with those that signed it [default: the server's own]
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Key of the certificate with which to serve
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Directory of apiserver.crt and apiserver.key, with which to serve if no other certificate is given; they are made
    /// if they are not there. Without --data-dir everything else is kept there, too
    #[arg(long, value_name = "DIR")]
    cert_dir: Option<PathBuf>,
    /// Audiences of the API server, of which a token must have one [default: the issuers]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    api_audiences: Vec<String>,
    /// Issuer of service account tokens; may be given several times: the first issues, and tokens of all are taken
    #[arg(long, value_name = "URL", default_value = "https://kubernetes.default.svc.cluster.local")]
    service_account_issuer: Vec<String>,
    /// Address of the keys that verify service account tokens, as the issuer's document tells it [default: the
    /// server's own]
    #[arg(long, value_name = "URL")]
    service_account_jwks_uri: Option<String>,
    /// Keys by which service account tokens are verified besides the one that signs them; may be given several times
    #[arg(long, value_name = "FILE")]
    service_account_key_file: Vec<PathBuf>,
    /// Key that signs service account tokens [default: the server's own]
    #[arg(long, value_name = "FILE")]
    service_account_signing_key_file: Option<PathBuf>,
    /// Longest life of a service account token; 0 for any
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    service_account_max_token_expiration: Duration,
    /// Whether tokens of Pods live on for a year after the hour that was asked for, so that clients that never read the
    /// file again are told before they fail
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    service_account_extend_token_expiration: bool,
    /// Whether a token of a Secret is taken only while the Secret and its account are there
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    service_account_lookup: bool,
}

fn mode(name: &str) -> Result<AuthorizationMode, String> {
    AuthorizationMode::named(name)
        .ok_or_else(|| "the authorizers are Node, RBAC, AlwaysAllow and AlwaysDeny".into())
}

/// The text of a file that a flag names.
pub(super) fn read(flag: &str, file: &Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {flag} {}", file.display()))
}

fn read_some(flag: &str, file: Option<&PathBuf>) -> Result<Option<String>> {
    file.map(|file| read(flag, file)).transpose()
}

/// A certificate with its key; clap sees to it that there are both or none.
fn pair(flags: (&str, &str), files: (Option<&PathBuf>, Option<&PathBuf>)) -> Result<Option<Pair>> {
    let (Some(certificate), Some(key)) = files else { return Ok(None) };
    Ok(Some(Pair { certificate_pem: read(flags.0, certificate)?, key_pem: read(flags.1, key)? }))
}

/// Whether a text with a colon is a URL: of HTTP, or of any other scheme.
fn is_url(text: &str) -> bool {
    let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
    match scheme {
        "http" | "https" => text.parse::<http::Uri>().is_ok(),
        _ => scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && !text.contains(char::is_control),
    }
}

/// Checks the issuers by upstream's rules.
fn check_issuers(all: &[String]) -> Result<()> {
    for (at, issuer) in all.iter().enumerate() {
        if issuer.is_empty() {
            bail!("--service-account-issuer should not be an empty string");
        }
        if issuer.contains(':') && !is_url(issuer) {
            bail!("--service-account-issuer {issuer:?} contained a ':' but was not a valid URL");
        }
        if all.iter().take(at).any(|other| other == issuer) {
            bail!("--service-account-issuer {issuer:?} is already specified");
        }
    }
    Ok(())
}

/// The address of the keys, if it is one.
fn jwks_uri(given: Option<&str>) -> Result<Option<String>> {
    let Some(uri) = given.filter(|uri| !uri.is_empty()) else { return Ok(None) };
    if !is_url(uri) {
        bail!("--service-account-jwks-uri must be a valid URL");
    }
    if uri.split_once("://").is_none_or(|(scheme, _)| !scheme.eq_ignore_ascii_case("https")) {
        bail!("--service-account-jwks-uri requires https scheme, parsed as: {uri}");
    }
    Ok(Some(uri.to_owned()))
}

/// The certificate and the key in the directory of `--cert-dir`, if they are there.
fn of_cert_dir(dir: &Path) -> Option<[PathBuf; 2]> {
    let files = [dir.join("apiserver.crt"), dir.join("apiserver.key")];
    files.iter().all(|file| file.exists()).then_some(files)
}

impl Security {
    /// The directory in which everything is kept where `--data-dir` names none.
    pub(crate) fn data_dir(&self) -> Option<PathBuf> {
        self.cert_dir.as_ref().map(|dir| dir.join("ferrokube"))
    }
    /// Makes a certificate for these names in the directory of `--cert-dir`, unless there is one, or flags name one.
    ///
    /// # Errors
    /// It cannot be made or written, or only one of its files is there.
    pub(crate) fn keep_certificate(&self, names: impl FnOnce() -> Vec<String>) -> Result<()> {
        let Some(dir) = self.cert_dir.as_deref().filter(|_| self.tls_cert_file.is_none()) else {
            return Ok(());
        };
        // A directory from before has certificates of an authority of its own, which clients know.
        if self.data_dir().is_some_and(|data| data.join("pki").exists()) && of_cert_dir(dir).is_none() {
            return Ok(());
        }
        let own = || serving::tls::self_signed(names()).context("cannot make a serving certificate");
        cert_dir::kept("apiserver", dir, own).map(drop)
    }
    /// Fills in a server's security.
    pub(crate) fn configure(&self, security: &mut SecurityConfig) -> Result<()> {
        security.anonymous = self.anonymous_auth;
        // As upstream: otherwise everybody could do everything without a word of who they are.
        if security.anonymous && self.authorization_mode.contains(&AuthorizationMode::AlwaysAllow) {
            warn(
                "AnonymousAuth is not allowed with the AlwaysAllow authorizer. Resetting AnonymousAuth to false. You \
                 should use a different authorizer",
            );
            security.anonymous = false;
        }
        security.modes.clone_from(&self.authorization_mode);
        security.client_authorities = read_some("--client-ca-file", self.client_ca_file.as_ref())?;
        if let Some(file) = &self.token_auth_file {
            let text = read("--token-auth-file", file)?;
            security.token_file = TokenFile::parse(&text).context("invalid --token-auth-file")?;
        }
        security.request_headers = self.request_headers()?;
        check_issuers(&self.service_account_issuer)?;
        security.issuers.clone_from(&self.service_account_issuer);
        security.jwks_uri = jwks_uri(self.service_account_jwks_uri.as_deref())?;
        security.audiences.clone_from(&self.api_audiences);
        security.extend_token_expiration = self.service_account_extend_token_expiration;
        security.account_lookup = self.service_account_lookup;
        let life = self.service_account_max_token_expiration.as_secs();
        if life != 0 && !(3600..=1 << 32).contains(&life) {
            bail!("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds");
        }
        security.max_token_expiration = i64::try_from(life).unwrap_or(i64::MAX);
        let keys = self.service_account_key_file.iter();
        security.other_keys_pem =
            keys.map(|file| read("--service-account-key-file", file)).collect::<Result<_>>()?;
        Ok(())
    }
    fn request_headers(&self) -> Result<Option<RequestHeaders>> {
        let flag = "--requestheader-client-ca-file";
        let Some(authorities_pem) = read_some(flag, self.requestheader_client_ca_file.as_ref())? else {
            let lists = [
                &self.requestheader_allowed_names,
                &self.requestheader_username_headers,
                &self.requestheader_uid_headers,
                &self.requestheader_group_headers,
                &self.requestheader_extra_headers_prefix,
            ];
            if lists.iter().any(|list| !list.is_empty()) {
                bail!("front proxies need {flag}; give it, or leave out the other --requestheader flags");
            }
            return Ok(None);
        };
        let trimmed = |flag: &str, list: &[String]| -> Result<Vec<String>> {
            let list: Vec<String> = list.iter().map(|name| name.trim().to_owned()).collect();
            if list.iter().any(String::is_empty) && list.len() > 1 {
                bail!("{flag} has an empty name in it; leave it out");
            }
            Ok(list.into_iter().filter(|name| !name.is_empty()).collect())
        };
        let username = trimmed("--requestheader-username-headers", &self.requestheader_username_headers)?;
        if username.is_empty() {
            bail!("front proxies need --requestheader-username-headers; give it, for example X-Remote-User");
        }
        Ok(Some(RequestHeaders {
            authorities_pem,
            allowed_names: trimmed("--requestheader-allowed-names", &self.requestheader_allowed_names)?,
            username,
            uid: trimmed("--requestheader-uid-headers", &self.requestheader_uid_headers)?,
            group: trimmed("--requestheader-group-headers", &self.requestheader_group_headers)?,
            extra_prefixes: trimmed(
                "--requestheader-extra-headers-prefix",
                &self.requestheader_extra_headers_prefix,
            )?,
        }))
    }
    /// The files that are read again while the server runs.
    pub(crate) fn files(&self) -> Files {
        let both = |a: &Option<PathBuf>, b: &Option<PathBuf>| Some([a.clone()?, b.clone()?]);
        let of_dir = || self.cert_dir.as_deref().and_then(of_cert_dir);
        Files {
            serving: both(&self.tls_cert_file, &self.tls_private_key_file).or_else(of_dir),
            named: Vec::new(),
            front_proxy: both(&self.proxy_client_cert_file, &self.proxy_client_key_file),
            client_authorities: self.client_ca_file.clone(),
            front_proxy_authorities: self.requestheader_client_ca_file.clone(),
        }
    }
    /// The keys and certificates that were given.
    pub(crate) fn given(&self) -> Result<Given> {
        let mut serving = pair(
            ("--tls-cert-file", "--tls-private-key-file"),
            (self.tls_cert_file.as_ref(), self.tls_private_key_file.as_ref()),
        )?;
        if let Some(dir) = self.cert_dir.as_ref().filter(|_| serving.is_none())
            && let Some([certificate, key]) = of_cert_dir(dir)
        {
            serving = pair(("--cert-dir", "--cert-dir"), (Some(&certificate), Some(&key)))?;
        }
        let signing = self.service_account_signing_key_file.as_ref();
        Ok(Given {
            serving,
            named: Vec::new(),
            front_proxy: pair(
                ("--proxy-client-cert-file", "--proxy-client-key-file"),
                (self.proxy_client_cert_file.as_ref(), self.proxy_client_key_file.as_ref()),
            )?,
            kubelet_client: pair(
                ("--kubelet-client-certificate", "--kubelet-client-key"),
                (self.kubelet_client_certificate.as_ref(), self.kubelet_client_key.as_ref()),
            )?,
            kubelet_authorities: read_some(
                "--kubelet-certificate-authority",
                self.kubelet_certificate_authority.as_ref(),
            )?,
            signing_key: read_some("--service-account-signing-key-file", signing)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuers_and_the_address_of_keys() {
        let check = |all: &[&str], expected: Option<&str>| {
            let all: Vec<String> = all.iter().map(|issuer| (*issuer).to_owned()).collect();
            let refused = check_issuers(&all).err().map(|e| e.to_string());
            assert_eq!(refused.as_deref(), expected, "{all:?}");
        };
        check(&["https://a", "https://b", "api", "urn:x"], None);
        check(&[""], Some("--service-account-issuer should not be an empty string"));
        check(&["a", "a"], Some("--service-account-issuer \"a\" is already specified"));
        let no_url = "--service-account-issuer \":x\" contained a ':' but was not a valid URL";
        check(&[":x"], Some(no_url));
        let uri = |text: &str| jwks_uri(Some(text)).map_err(|e| e.to_string());
        assert_eq!(uri(""), Ok(None));
        assert_eq!(uri("https://a/jwks"), Ok(Some("https://a/jwks".to_owned())));
        assert_eq!(
            uri("http://a"),
            Err("--service-account-jwks-uri requires https scheme, parsed as: http://a".into())
        );
        assert_eq!(uri("https://a b"), Err("--service-account-jwks-uri must be a valid URL".into()));
    }
}
