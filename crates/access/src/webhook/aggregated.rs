//! Connections to aggregated API servers, which are reached and verified as webhooks behind a Service are.

use client::Certificate;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::address::{Address, ClientConfig};
use super::defect::Failure;
use super::network::Network;
use super::{connection, service, tls};

/// The way in which a server proves that it is the right one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Trust {
    /// By a certificate that one of these authorities signed, PEM; one of the system's, if there are none.
    Authorities(Vec<u8>),
    /// It needs none (`insecureSkipTLSVerify`).
    Anybody,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The namespace of the Service.
    pub namespace: String,
    /// The name of the Service.
    pub name: String,
    /// The port of the Service.
    pub port: u16,
}

impl Endpoint {
    /// The name that the server's certificate must have.
    pub fn host(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

/// Opens connections to a server behind a Service.
pub struct Connector {
    to: ClientConfig,
    endpoint: Endpoint,
    tls: TlsConnector,
}

impl Connector {
    /// Makes it; each connection shows the server the certificate that is in this place by then.
    ///
    /// # Errors
    /// Where the authorities are none, with upstream's text.
    pub fn new(endpoint: Endpoint, trust: &Trust, shown: Option<Certificate>) -> Result<Self, String> {
        let (bundle, anybody) = match trust {
            Trust::Authorities(bundle) => (bundle.as_slice(), false),
            Trust::Anybody => (&[][..], true),
        };
        let tls = tls::to_server(bundle, anybody, shown)?;
        let Endpoint { namespace, name, port } = endpoint.clone();
        let address = Address::Service { namespace, name, port, path: String::new() };
        Ok(Self { to: ClientConfig { address, ca_bundle: bundle.to_vec() }, endpoint, tls })
    }
    /// The port of the Service.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
    /// The host and the port of the Service's own address.
    ///
    /// # Errors
    /// It has none, or not this port.
    pub fn authority(&self, network: &Network) -> Result<String, String> {
        let Endpoint { namespace, name, port } = &self.endpoint;
        service::authority(&*network.reader, namespace, name, *port)
    }
    /// Tells why the Service leads nowhere; nothing if it leads to a backend.
    ///
    /// # Errors
    /// The reason.
    pub fn resolves(&self, network: &Network) -> Result<(), String> {
        let Endpoint { namespace, name, port } = &self.endpoint;
        service::resolve(&*network.reader, namespace, name, *port).map(|_| ())
    }
    /// Opens a connection to a ready backend, one that the network's guard allows.
    ///
    /// # Errors
    /// The reason, as Go prints it.
    pub async fn open(&self, network: &Network) -> Result<TlsStream<TcpStream>, Failure> {
        let opened = connection::secure(network, &self.to.target()?, &self.tls).await;
        opened.inspect_err(|failure| network.servers.count(failure))
    }
    /// An error of HTTP on such a connection, as Go prints it.
    pub fn error_text(error: &hyper::Error) -> String {
        connection::text_of(error)
    }
}
