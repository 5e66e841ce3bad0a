//! The flags of a component's own endpoint, by upstream's names: its certificate, and its callers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use access::auth::RequestHeaders;
use anyhow::{Context, Error, Result, bail};
use clap::{ArgAction, Args};
use client::Offer;
use serving::auth::Trust;
use serving::{Manners, Open};

use super::values::duration;

/// The flags of an endpoint.
#[derive(Debug, Args, Clone)]
pub(crate) struct Serving {
    /// Kubeconfig with which the API server is asked whose a token is, and who signs the certificates of callers
    /// [default: that of the component]
    #[arg(long, value_name = "FILE")]
    pub(crate) authentication_kubeconfig: Option<PathBuf>,
    /// Kubeconfig with which the API server is asked who may do what [default: that of the component]
    #[arg(long, value_name = "FILE")]
    pub(crate) authorization_kubeconfig: Option<PathBuf>,
    /// Whether the cluster is not asked for the authorities that no flag names
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) authentication_skip_lookup: bool,
    /// Whether to go on where the cluster does not tell those authorities; it always does without
    /// --authentication-kubeconfig [default: true for kube-scheduler, false for kube-controller-manager]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) authentication_tolerate_lookup_failure: Option<bool>,
    /// How long the API server's word on a token is remembered
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    authentication_token_webhook_cache_ttl: Duration,
    /// How long its word is remembered that somebody may do something
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    authorization_webhook_cache_authorized_ttl: Duration,
    /// How long its word is remembered that somebody may not
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    authorization_webhook_cache_unauthorized_ttl: Duration,
    /// Paths that everybody may ask for; one that ends with `*` is the beginning of others
    #[arg(long, value_name = "PATHS", value_delimiter = ',', default_value = "/healthz,/readyz,/livez")]
    authorization_always_allow_paths: Vec<String>,
    /// The authorities of the client certificates that this endpoint accepts [default: those that the cluster tells]
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,
    /// Authorities of the certificates of front proxies, which name their callers in headers [default: those that the
    /// cluster tells]
    #[arg(long, value_name = "FILE")]
    pub(crate) requestheader_client_ca_file: Option<PathBuf>,
    /// Names of the front proxies that are believed; empty for all with a certificate
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    requestheader_allowed_names: Vec<String>,
    /// Headers in which the user's name stands
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "x-remote-user")]
    requestheader_username_headers: Vec<String>,
    /// Headers in which the user's uid stands, as X-Remote-Uid
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    requestheader_uid_headers: Vec<String>,
    /// Headers in which the user's groups stand
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "x-remote-group")]
    requestheader_group_headers: Vec<String>,
    /// Beginnings of the headers in which the user's further attributes stand
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',', default_value = "x-remote-extra-")]
    requestheader_extra_headers_prefix: Vec<String>,
    /// Directory of the certificate with which to serve, and its key, by the component's name: COMPONENT.crt and .key;
    /// they are made if they are not there, and no certificate is given
    #[arg(long, value_name = "DIR")]
    pub(crate) cert_dir: Option<PathBuf>,
    /// Certificate with which to serve, with those that signed it [default: one that signs itself]
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Key of the certificate with which to serve
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Ciphers of TLS 1.2 that are offered, by their IANA names [default: all without known weakness]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tls_cipher_suites: Vec<String>,
    /// The oldest version of TLS that is offered, as VersionTLS13 [default: VersionTLS12]
    #[arg(long, value_name = "VERSION", default_value = "", hide_default_value = true)]
    tls_min_version: String,
    /// Key exchanges that are offered, by their numbers in TLS [default: all without known weakness]
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    tls_curve_preferences: Vec<i32>,
    /// Whether several processes may serve on the same port
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) permit_port_sharing: bool,
    /// Whether a port may be bound that connections of a process that has ended still use: on Linux it always may
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    permit_address_sharing: bool,
    /// Whether HTTP/2 is not spoken
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    disable_http2_serving: bool,
    /// How many requests a connection of HTTP/2 has at a time; 0 for 250
    #[arg(long, value_name = "N", default_value_t = 0)]
    http2_max_streams_per_connection: u32,
}

/// The values of a list: an empty text is none, as for upstream.
fn list(values: &[String]) -> &[String] {
    if values == [""] { &[] } else { values }
}

impl Serving {
    /// How long the API server's word is believed.
    pub(crate) fn trust(&self) -> Trust {
        Trust {
            tokens: self.authentication_token_webhook_cache_ttl,
            allowed: self.authorization_webhook_cache_authorized_ttl,
            denied: self.authorization_webhook_cache_unauthorized_ttl,
        }
    }

    /// The paths that everybody may ask for.
    ///
    /// # Errors
    /// There is a `*` within a path.
    pub(crate) fn open(&self) -> Result<Open> {
        let paths = list(&self.authorization_always_allow_paths).iter().map(String::as_str);
        Open::parse(paths).map_err(Error::msg).context("invalid --authorization-always-allow-paths")
    }

    /// The offer of TLS, and a sentence for each part of the choice that has no effect.
    ///
    /// # Errors
    /// There is no such version, cipher or key exchange, or none of those that are chosen can be offered.
    pub(crate) fn offer(&self) -> Result<(Offer, Vec<String>)> {
        Offer::choose(client::offer::Choice {
            version: ("--tls-min-version", &self.tls_min_version),
            ciphers: ("--tls-cipher-suites", list(&self.tls_cipher_suites)),
            curves: ("--tls-curve-preferences", &self.tls_curve_preferences),
        })
        .map_err(Error::msg)
    }

    /// The way in which connections are served.
    pub(crate) fn manners(&self) -> Manners {
        let usual = Manners::default();
        let streams = match self.http2_max_streams_per_connection {
            0 => usual.streams,
            streams => streams,
        };
        Manners { http2: !self.disable_http2_serving, streams }
    }

    /// The files of the certificate with which to serve, and of its key, if they are given.
    pub(crate) fn pair(&self) -> Option<[&Path; 2]> {
        Some([self.tls_cert_file.as_deref()?, self.tls_private_key_file.as_deref()?])
    }

    /// The front proxies that are believed whose certificates these authorities signed, PEM. Errors are upstream's; with
    /// `uid` the feature RemoteRequestHeaderUID is on.
    ///
    /// # Errors
    /// A list has an empty name in it, or the headers of uids cannot be read.
    pub(crate) fn proxies(&self, authorities_pem: &str, uid: bool) -> Result<RequestHeaders> {
        let trimmed = |flag: &str, names: &[String]| -> Result<Vec<String>> {
            let names = list(names);
            if names.iter().any(|name| name.trim().is_empty()) {
                bail!("empty value in {flag:?}");
            }
            Ok(names.iter().map(|name| name.trim().to_owned()).collect())
        };
        let uids = trimmed("requestheader-uid-headers", &self.requestheader_uid_headers)?;
        if !uids.is_empty() && !uid {
            bail!(
                "--requestheader-uid-headers requires the \"RemoteRequestHeaderUID\" feature to be enabled"
            );
        }
        if !uids.is_empty() && !uids.iter().any(|name| name.eq_ignore_ascii_case("X-Remote-Uid")) {
            bail!(
                "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API aggregation will not work"
            );
        }
        Ok(RequestHeaders {
            authorities_pem: authorities_pem.to_owned(),
            allowed_names: trimmed("requestheader-allowed-names", &self.requestheader_allowed_names)?,
            username: trimmed("requestheader-username-headers", &self.requestheader_username_headers)?,
            uid: uids,
            group: trimmed("requestheader-group-headers", &self.requestheader_group_headers)?,
            extra_prefixes: trimmed(
                "requestheader-extra-headers-prefix",
                &self.requestheader_extra_headers_prefix,
            )?,
        })
    }
}
