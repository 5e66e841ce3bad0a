//! The endpoints of controllers and scheduler: health, metrics, settings.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use client::Client;
use component::{Clock, Health, Registry, Shutdown};
use rustls::RootCertStore;
use serde_json::{Value, json};
use serving::{Auth, Endpoint};

/// The metrics and health that a component reports; clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Telling {
    pub(crate) metrics: Registry,
    pub(crate) health: Health,
}

/// The component and its settings at the start.
pub(crate) struct About {
    pub(crate) name: &'static str,
    /// The name of its settings in `/configz`.
    pub(crate) settings: &'static str,
    pub(crate) flags: BTreeMap<String, String>,
}

/// Serves a component's endpoint until `shutdown`; returns the address on which it listens. Its certificate is signed
/// by itself, as upstream's are that were given none; `roots` signed those of clients.
pub(crate) async fn serve(
    about: About,
    telling: &Telling,
    client: Client,
    address: SocketAddr,
    roots: RootCertStore,
    clock: Clock,
    shutdown: &Shutdown,
) -> Result<SocketAddr> {
    let identity = serving::tls::self_signed(vec!["localhost".to_owned(), address.ip().to_string()])
        .context("cannot make a serving certificate")?;
    let tls = serving::tls::config(identity, roots).context("cannot serve TLS")?;
    let endpoint = Endpoint {
        name: about.name,
        version: component::KUBERNETES,
        auth: Auth::new(client),
        clock,
        started: clock.now(),
        metrics: telling.metrics.clone(),
        health: telling.health.clone(),
        settings: settings(about.settings, &about.flags),
        flags: about.flags,
    };
    serving::serve(endpoint, address, Arc::new(tls), shutdown).await.map_err(|e| {
        let port = address.port();
        anyhow::Error::from(e).context(format!(
            "the endpoint of {} cannot be served; is port {port} in use? choose another with --secure-port",
            about.name
        ))
    })
}

/// The settings by the names of the flags.
fn settings(name: &str, flags: &BTreeMap<String, String>) -> Value {
    json!({ name: flags })
}
