//! Connections on which a test sends exact bytes.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use testkit::Server;

/// The longest time of any step, unless it hangs.
const LONG: Duration = Duration::from_mins(1);

/// A TLS connection to a server.
pub(crate) struct Wire(pub(crate) StreamOwned<ClientConnection, TcpStream>);

/// The TLS settings of a server's clients; the administrator shows a certificate.
pub(crate) fn tls(server: &Server, admin: bool, protocol: &str) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(server.path("ca.pem"))?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = if admin {
        let chain = vec![CertificateDer::from_pem_file(server.path("cert.pem"))?];
        config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(server.path("key.pem"))?)?
    } else {
        config.with_no_client_auth()
    };
    config.alpn_protocols = vec![protocol.into()];
    Ok(Arc::new(config))
}

impl Wire {
    /// Connects, and ends the handshake.
    pub(crate) fn connect(server: &Server, tls: &Arc<ClientConfig>) -> Result<Self> {
        let tcp = TcpStream::connect(("127.0.0.1", server.port()))?;
        tcp.set_read_timeout(Some(LONG))?;
        tcp.set_write_timeout(Some(LONG))?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from("127.0.0.1")?;
        let mut stream = StreamOwned::new(ClientConnection::new(Arc::clone(tls), name)?, tcp);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(Self(stream))
    }

    /// Connects as the administrator, for HTTP/1.1.
    pub(crate) fn h1(server: &Server) -> Result<Self> {
        Self::connect(server, &tls(server, true, "http/1.1")?)
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.0.write_all(bytes.as_ref())?;
        Ok(self.0.flush()?)
    }

    /// The head of an answer of HTTP/1.1.
    pub(crate) fn head(&mut self) -> Result<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            ensure!(self.0.read(&mut byte)? == 1, "the connection ended: {}", String::from_utf8_lossy(&head));
            head.extend(byte);
        }
        Ok(String::from_utf8(head)?)
    }

    /// The status of an answer of HTTP/1.1.
    pub(crate) fn status(&mut self) -> Result<u16> {
        let head = self.head()?;
        head.split(' ').nth(1).and_then(|code| code.parse().ok()).with_context(|| head.clone())
    }

    /// The bytes that still come until the server ends the connection.
    pub(crate) fn rest(&mut self) -> Result<Vec<u8>> {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                anyhow::bail!("the server keeps the connection");
            }
            // The server may close the connection without TLS's farewell.
            _ => Ok(rest),
        }
    }
}

/// A connection of HTTP/2, frame by frame.
pub(crate) struct Http2(pub(crate) Wire);

/// A frame of HTTP/2.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

impl Http2 {
    /// Connects, and sends the first frames of every client.
    pub(crate) fn connect(server: &Server, admin: bool) -> Result<Self> {
        let mut wire = Wire::connect(server, &tls(server, admin, "h2")?)?;
        wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?;
        let mut this = Self(wire);
        this.frame(SETTINGS, 0, 0, &[])?;
        Ok(this)
    }

    /// The bytes of a frame.
    pub(crate) fn bytes(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        frame
    }

    /// Sends a frame.
    pub(crate) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<()> {
        self.0.send(Self::bytes(kind, flags, stream, payload))
    }

    /// A block of headers, none of them compressed.
    pub(crate) fn block(headers: &[(&str, &[u8])]) -> Vec<u8> {
        fn string(text: &[u8], block: &mut Vec<u8>) {
            match u8::try_from(text.len()) {
                Ok(length) if length < 0x7f => block.push(length),
                _ => {
                    block.push(0x7f);
                    let mut more = text.len() - 0x7f;
                    while more >= 0x80 {
                        block.push(0x80 | (more & 0x7f) as u8);
                        more >>= 7;
                    }
                    block.push(more as u8);
                }
            }
            block.extend(text);
        }
        let mut block = Vec::new();
        for (name, value) in headers {
            block.push(0);
            string(name.as_bytes(), &mut block);
            string(value, &mut block);
        }
        block
    }

    /// The headers of a request.
    pub(crate) fn request(method: &str, path: &str) -> Vec<u8> {
        let all: [(&str, &[u8]); 4] = [
            (":method", method.as_bytes()),
            (":scheme", b"https"),
            (":authority", b"127.0.0.1"),
            (":path", path.as_bytes()),
        ];
        Self::block(&all)
    }

    /// The next frame; `None` at the end, which may come within a frame.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>> {
        let mut head = [0; 9];
        if !self.fill(&mut head)? {
            return Ok(None);
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Ok(self.fill(&mut payload)?.then_some(Frame { kind: head[3], flags: head[4], stream, payload }))
    }

    /// Reads so many bytes; returns false if the connection ends before.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<bool> {
        let Err(e) = self.0.0.read_exact(bytes) else { return Ok(true) };
        let waits = matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        ensure!(!waits, "the server keeps the connection");
        Ok(false)
    }
}
