//! Connections to an API server that cost the client little: bodies are not decoded.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use client::Config;
use flate2::read::MultiGzDecoder;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;

/// One request.
pub(crate) struct Op {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// The type of the body, if there is one.
    pub(crate) content_type: &'static str,
    pub(crate) accept: &'static str,
    /// Whether the answer may be packed, as all clients in Go let it be.
    pub(crate) gzip: bool,
    pub(crate) body: Bytes,
}

impl Op {
    /// A request without a body.
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::with(Method::GET, path, "", Bytes::new())
    }

    /// A request that creates an object.
    pub(crate) fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::with(Method::POST, path, "application/json", body)
    }

    /// A request of any method with a body.
    pub(crate) fn with(
        method: Method,
        path: impl Into<String>,
        content_type: &'static str,
        body: impl Into<Bytes>,
    ) -> Self {
        Self {
            method,
            path: path.into(),
            content_type,
            accept: "application/json",
            gzip: false,
            body: body.into(),
        }
    }

    /// Sets the `Accept` header.
    pub(crate) fn accepting(self, accept: &'static str) -> Self {
        Self { accept, ..self }
    }
}

/// HTTP/2 connections over TLS, used in turn.
pub(crate) struct Target {
    connections: Vec<SendRequest<Full<Bytes>>>,
    next: AtomicUsize,
    url: String,
}

impl Target {
    /// Connects; the configuration must name a client certificate.
    pub(crate) async fn connect(config: Config, connections: u32) -> Result<Self> {
        let url = config.server.clone();
        let uri: http::Uri = url.parse()?;
        let host = uri.host().context("the server's address has no host")?.to_owned();
        let port = uri.port_u16().unwrap_or(443);
        let name = ServerName::try_from(config.server_name.clone().unwrap_or_else(|| host.clone()))?;
        let mut roots = rustls::RootCertStore::empty();
        for authority in config.authorities {
            roots.add(authority)?;
        }
        let identity =
            config.caller.certificate().cloned().context("the kubeconfig has no client certificate")?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_cert_resolver(Arc::new(identity));
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let tls = tokio_rustls::TlsConnector::from(Arc::new(tls));

        let mut all = Vec::with_capacity(connections as usize);
        for _ in 0..connections {
            let tcp = TcpStream::connect((host.as_str(), port)).await?;
            tcp.set_nodelay(true)?;
            let stream = tls.connect(name.clone(), tcp).await?;
            let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                // The windows are as large as those of Go's client, so that the client is no limit.
                .initial_stream_window_size(4 << 20)
                .initial_connection_window_size(1 << 30)
                .handshake(TokioIo::new(stream))
                .await?;
            // The requests show its end.
            tokio::spawn(connection);
            all.push(sender);
        }
        Ok(Self { connections: all, next: AtomicUsize::new(0), url })
    }

    /// Sends a request; returns the answer's head with a body to read. An answer without success is an error.
    pub(crate) async fn send(&self, op: Op) -> Result<Response<Incoming>> {
        let what = format!("{} {}", op.method, op.path);
        let mut request = Request::builder()
            .method(op.method)
            .uri(format!("{}{}", self.url, op.path))
            .header(header::ACCEPT, op.accept);
        if op.gzip {
            request = request.header(header::ACCEPT_ENCODING, "gzip");
        }
        if !op.body.is_empty() {
            request = request.header(header::CONTENT_TYPE, op.content_type);
        }
        let request = request.body(Full::new(op.body))?;
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        let mut connection = self.connections[turn].clone();
        connection.ready().await?;
        let answer = connection.send_request(request).await.with_context(|| what.clone())?;
        let status = answer.status();
        if !status.is_success() {
            let body = answer.into_body().collect().await?.to_bytes();
            bail!("{what}: {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(answer)
    }

    /// Sends a request and drops its answer; returns the body's size in bytes.
    pub(crate) async fn call(&self, op: Op) -> Result<usize> {
        let mut body = self.send(op).await?.into_body();
        let mut size = 0;
        while let Some(frame) = body.frame().await {
            size += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok(size)
    }

    /// Asks for a text as clients in Go do, which take it packed.
    pub(crate) async fn text(&self, path: impl Into<String>) -> Result<String> {
        let answer = self.send(Op { gzip: true, ..Op::get(path) }).await?;
        let is_packed = answer.headers().get(header::CONTENT_ENCODING).is_some_and(|e| e == "gzip");
        let body = answer.into_body().collect().await?.to_bytes();
        if !is_packed {
            return Ok(String::from_utf8(body.into())?);
        }
        let mut text = String::new();
        MultiGzDecoder::new(&body[..]).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Sends a request and reads its answer as JSON.
    pub(crate) async fn json(&self, op: Op) -> Result<serde_json::Value> {
        let body = self.send(op).await?.into_body().collect().await?.to_bytes();
        Ok(serde_json::from_slice(&body)?)
    }
}
