//! The endpoints of controllers and scheduler: health, metrics, settings.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use api::{FeatureGates, Gate};
use client::{Certificate, Client};
use component::{Clock, Health, Registry, Shutdown};
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use serving::tls::Identity;
use serving::{Auth, Endpoint, Manners, Open};

use crate::callers::Callers;
use crate::cert_dir;
use crate::certificate_files::{self, Part};
use crate::cli;
use crate::say::warn;

/// The metrics and health that a component reports; clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Telling {
    pub(crate) metrics: Registry,
    pub(crate) health: Health,
}

/// The component and its settings at the start.
pub(crate) struct About {
    pub(crate) name: &'static str,
    /// The settings as `/configz` has them.
    pub(crate) settings: Value,
    /// The flags with their values.
    pub(crate) flags: BTreeMap<String, String>,
    /// The features that are on.
    pub(crate) gates: FeatureGates,
    /// Whether the endpoint serves without the authorities that the cluster does not tell, if no flag says it.
    pub(crate) tolerant: bool,
}

/// The clients with which an endpoint asks the API server about its callers.
pub(crate) struct Reviewers {
    /// The one for questions whose a token is, and who signs certificates.
    pub(crate) authentication: Client,
    /// The one for questions who may do what.
    pub(crate) authorization: Client,
}

impl About {
    fn endpoint(self, telling: &Telling, auth: Auth, open: Open, clock: Clock) -> Endpoint {
        Endpoint {
            name: self.name,
            version: component::version::told(),
            auth,
            open,
            clock,
            started: clock.now(),
            metrics: telling.metrics.clone(),
            health: telling.health.clone(),
            settings: self.settings,
            flags: self.flags,
            gates: self.gates,
        }
    }
}

/// Serves the endpoint of a component that has no flags of its own, for this machine; `roots` signed the certificates of
/// clients. Its own certificate is signed by itself.
pub(crate) fn serve_here(
    about: About,
    telling: &Telling,
    client: Client,
    port: u16,
    roots: RootCertStore,
    clock: Clock,
    shutdown: &Shutdown,
) -> Result<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = serving::listen(address, false)?;
    let names = ["localhost", "127.0.0.1"].map(str::to_owned).into();
    let identity = serving::tls::self_signed(names).context("cannot make a serving certificate")?;
    let tls = serving::tls::config(identity, roots).context("cannot serve TLS")?;
    let endpoint = about.endpoint(telling, Auth::new(client), Open::default(), clock);
    serving::serve_on(endpoint, listener, Arc::new(tls), Manners::default(), shutdown);
    Ok(())
}

/// Serves a component's endpoint by its flags until `shutdown`; returns the address on which it listens.
pub(crate) async fn serve(
    about: About,
    telling: &Telling,
    reviewers: Reviewers,
    flags: &cli::Component,
    clock: Clock,
    shutdown: &Shutdown,
) -> Result<SocketAddr> {
    let address = SocketAddr::new(flags.bind_address, flags.secure_port);
    let serving = &flags.serving;
    let (offer, warnings) = serving.connections.offer()?;
    for warning in warnings {
        warn(&warning);
    }
    let listener = serving::listen(address, serving.connections.permit_port_sharing).map_err(|e| {
        let port = address.port();
        anyhow::Error::from(e).context(format!(
            "the endpoint of {} cannot be served; is port {port} in use? choose another with --secure-port",
            about.name
        ))
    })?;
    let listening = listener.local_addr().context("the address of the endpoint is not known")?;
    let certificate = certificate(about.name, serving, address.ip(), shutdown)?;
    let manners = serving.connections.manners();
    let tls = serving::tls::asking(certificate, &offer, manners.http2).context("cannot serve TLS")?;
    let asked = serving.authentication_kubeconfig.is_some();
    let tolerant = serving.authentication_tolerate_lookup_failure.unwrap_or(about.tolerant);
    // DIFFERENCE: without --authentication-kubeconfig upstream asks nobody; here the component itself asks, and does
    // without an answer.
    let tolerant = tolerant || !asked;
    let Reviewers { authentication, authorization } = reviewers;
    let callers = Callers::start(
        serving,
        about.gates.enabled(Gate::RemoteRequestHeaderUID),
        &authentication,
        tolerant,
        clock,
        shutdown,
    )
    .await?;
    let auth = Auth::with(authentication, serving.trust()).authorized_by(authorization).recognizing(callers);
    let endpoint = about.endpoint(telling, auth, serving.open()?, clock);
    serving::serve_on(endpoint, listener, Arc::new(tls), manners, shutdown);
    Ok(listening)
}

/// The place of the certificate with which to serve. Its files are followed.
fn certificate(
    name: &str,
    flags: &cli::Serving,
    address: IpAddr,
    shutdown: &Shutdown,
) -> Result<Certificate> {
    let own = || {
        let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        if !address.is_unspecified() && !names.contains(&address.to_string()) {
            names.push(address.to_string());
        }
        serving::tls::self_signed(names).context("cannot make a serving certificate")
    };
    let files: [PathBuf; 2] = match (flags.pair(), flags.cert_dir.as_deref()) {
        (Some(pair), _) => pair.map(Path::to_owned),
        (None, Some(dir)) if !dir.as_os_str().is_empty() => cert_dir::kept(name, dir, own)?,
        (None, _) => {
            let (chain, key) = own()?;
            return Ok(Certificate::new(chain, key)?);
        }
    };
    let unusable = || format!("cannot serve with {} and {}", files[0].display(), files[1].display());
    let read = |file: &PathBuf| fs::read_to_string(file).with_context(unusable);
    let (chain, key) = identity(&[read(&files[0])?, read(&files[1])?]).with_context(unusable)?;
    let place = Certificate::new(chain, key).with_context(unusable)?;
    let to = place.clone();
    let part = Part::new(files.into(), move |texts| {
        let (chain, key) = identity(texts)?;
        Ok(to.exchange(chain, key)?)
    });
    certificate_files::follow(vec![part], shutdown);
    Ok(place)
}

/// A certificate with those that signed it, and its key, of their texts.
fn identity(texts: &[String]) -> Result<Identity> {
    let text = |at: usize| texts.get(at).map_or("", String::as_str).as_bytes();
    let chain: Vec<_> = CertificateDer::pem_slice_iter(text(0)).collect::<Result<_, _>>()?;
    if chain.is_empty() {
        bail!("there is no certificate in it");
    }
    Ok((chain, PrivateKeyDer::from_pem_slice(text(1)).context("its key cannot be read")?))
}
