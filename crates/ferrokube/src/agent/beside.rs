//! The certificates of a node that works in the process of its control plane: `ferrokube up`.
//!
//! They are asked for, signed, kept and exchanged as those of every node. Only the approval of the serving certificate is
//! not the controllers': this node has the API server's address, which they give to no node. The process that asks is
//! the control plane itself, so it approves what it asked for, as an administrator would.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result};
use client::{Certificate, Client, Config};
use component::{Clock, Shutdown};
use rustls_pki_types::CertificateDer;

use super::join::{self, CLIENT, KUBECONFIG};
use super::kept::{Kept, Server};
use super::request::Wanted;
use super::serving::Serving;
use super::store::Store;
use crate::data_dir::DataDir;

/// The files in which earlier versions kept certificates of a year, which nobody exchanged.
const OLDER: [&str; 4] = ["kubelet-client.crt", "kubelet-client.key", "kubelet.crt", "kubelet.key"];

/// A node in the process of its control plane.
pub(crate) struct Beside<'a> {
    pub(crate) name: &'a str,
    pub(crate) addresses: &'a [IpAddr],
    pub(crate) dir: &'a DataDir,
    /// The URL of the API server.
    pub(crate) url: String,
    /// The authority of the API server's certificate.
    pub(crate) authority: CertificateDer<'static>,
    /// The node's own client.
    pub(crate) node: Client,
    /// The administrator's client.
    pub(crate) admin: Client,
    pub(crate) clock: Clock,
}

impl Beside<'_> {
    /// Takes the certificates of an earlier start, or asks for others, and keeps them good until the shutdown. The
    /// kubelet of this process asks without HTTP; the client certificate and its kubeconfig are for the node's tools.
    pub(crate) fn keep(self, shutdown: &Shutdown) -> Result<(Serving, Certificate)> {
        let pki = self.dir.path().join("pki");
        remove_older(&pki)?;
        let serving = Serving::new(self.name, self.addresses, &pki, self.clock).approved_by(self.admin);
        serving.keep(self.node.clone(), shutdown)?;

        let server = Config { server: self.url, authorities: vec![self.authority], ..Config::default() };
        let server = Server::of(&server);
        let kept = Kept::new(Wanted::node_client(self.name), Store::new(&pki, CLIENT), self.clock);
        let kept = kept.tried_at(server.clone());
        let next = kept.load()?;
        let (there, current, place) = (kept.there(), kept.store.current(), kept.place.clone());
        let kubeconfig = self.dir.path().join(KUBECONFIG);
        let stop = shutdown.clone();
        shutdown.spawn(async move { kept.keep(next, self.node, None, stop).await });
        let stop = shutdown.clone();
        shutdown.spawn(async move {
            if stop.run(there).await.is_some()
                && let Err(error) = join::write(&kubeconfig, &server.with(Certificate::default()), &current)
            {
                tracing::warn!("the node has no kubeconfig: {error:#}");
            }
        });
        Ok((serving, place))
    }
}

/// Removes the certificates of earlier versions.
fn remove_older(pki: &Path) -> Result<()> {
    for file in OLDER {
        let path = pki.join(file);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(e).with_context(|| format!("cannot remove {}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}
