//! The flags of the connections of an endpoint of HTTPS, by upstream's names.

use anyhow::{Error, Result};
use clap::{ArgAction, Args};
use client::Offer;
use client::offer::Choice;
use serving::Manners;

use super::values::list;

/// The connections of an endpoint.
#[derive(Debug, Args, Clone)]
pub(crate) struct Connections {
    /// Oldest version of TLS that is spoken: VersionTLS12 or VersionTLS13 [default: VersionTLS12]
    #[arg(long, value_name = "VERSION", default_value = "", hide_default_value = true)]
    tls_min_version: String,
    /// Ciphers of TLS 1.2 that are offered, by their IANA names [default: all without known weakness]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tls_cipher_suites: Vec<String>,
    /// Key exchanges that are offered, by their numbers in TLS [default: all without known weakness]
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', allow_negative_numbers = true)]
    tls_curve_preferences: Vec<i32>,
    /// Whether HTTP/1.1 alone is spoken
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    disable_http2_serving: bool,
    /// Requests that a client may have under way on a connection of HTTP/2; 0 for the server's own number
    #[arg(long, value_name = "N", default_value_t = 0)]
    http2_max_streams_per_connection: u32,
    /// Whether other processes may listen on the same address and port (SO_REUSEPORT)
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) permit_port_sharing: bool,
}

impl Connections {
    /// The offer of TLS, and a sentence for each part of the choice that has no effect.
    ///
    /// # Errors
    /// There is no such version, cipher or key exchange, or none of those that are chosen can be offered.
    pub(crate) fn offer(&self) -> Result<(Offer, Vec<String>)> {
        let choice = Choice {
            version: ("--tls-min-version", &self.tls_min_version),
            ciphers: ("--tls-cipher-suites", list(&self.tls_cipher_suites)),
            curves: ("--tls-curve-preferences", &self.tls_curve_preferences),
        };
        Offer::choose(choice).map_err(Error::msg)
    }

    /// Whether HTTP/2 is spoken.
    pub(crate) fn http2(&self) -> bool {
        !self.disable_http2_serving
    }

    /// How many requests a connection of HTTP/2 may have under way, if that was said.
    pub(crate) fn streams(&self) -> Option<u32> {
        Some(self.http2_max_streams_per_connection).filter(|streams| *streams > 0)
    }

    /// The way in which a component's endpoint serves its connections.
    pub(crate) fn manners(&self) -> Manners {
        let streams = self.streams().unwrap_or(Manners::default().streams);
        Manners { http2: self.http2(), streams }
    }
}
