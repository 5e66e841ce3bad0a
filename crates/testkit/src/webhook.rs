//! A webhook or an aggregated API server made by a test: an HTTPS server whose answers the test chooses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};

/// An answer of a webhook.
pub enum Reply {
    /// A document, with code 200.
    Json(Value),
    /// A code, further lines of the head, and a body.
    Raw(u16, Vec<String>, Vec<u8>),
    /// JSON documents, a line each, after which the answer goes on without any until the other side ends it.
    Lines(Vec<Value>),
    /// Another protocol (101), in which every byte comes back.
    Echo,
    /// Nothing, for as long as the other side waits.
    Hang,
    /// The end of the connection.
    Close,
}

/// A question that came.
#[derive(Debug, Clone)]
pub struct Question {
    /// The path, with the query.
    pub path: String,
    /// The head's lines.
    pub head: Vec<String>,
    /// The body.
    pub body: Value,
    /// Whether the other side showed a certificate that was verified.
    pub certified: bool,
}

impl Question {
    /// The method.
    pub fn method(&self) -> &str {
        self.head.first().and_then(|line| line.split(' ').next()).unwrap_or_default()
    }
    /// The values of a header.
    pub fn header<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        let lines = self.head.iter().skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

type Answer = dyn Fn(&Question) -> Reply + Send + Sync;

struct Shared {
    answer: Box<Answer>,
    asked: Mutex<Vec<Question>>,
    connections: AtomicUsize,
}

/// An HTTPS server. It serves until the test's process ends.
pub struct Webhook {
    shared: Arc<Shared>,
    address: SocketAddr,
    bundle: String,
}

/// The address by which this machine reaches others: a Service may lead there. It is an error if there is none.
pub fn own_address() -> Result<IpAddr> {
    // Nothing is sent: the routing table is asked.
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    socket.connect(("198.51.100.1", 9)).context("this machine reaches nobody")?;
    Ok(socket.local_addr()?.ip())
}

impl Webhook {
    /// Starts a server on loopback whose answers a function gives.
    pub fn start(answer: impl Fn(&Question) -> Reply + Send + Sync + 'static) -> Result<Self> {
        let names = ["127.0.0.1", "localhost"];
        Self::serving(IpAddr::from([127, 0, 0, 1]), &names, None, answer)
    }

    /// Starts an aggregated API server at this machine's own address, with a certificate of the name of its Service. It
    /// asks for a certificate of the authority whose PEM is given.
    pub fn aggregated(
        service: &str,
        client_authority: &str,
        answer: impl Fn(&Question) -> Reply + Send + Sync + 'static,
    ) -> Result<Self> {
        Self::serving(own_address()?, &[service], Some(client_authority), answer)
    }

    fn serving(
        address: IpAddr,
        names: &[&str],
        client_authority: Option<&str>,
        answer: impl Fn(&Question) -> Reply + Send + Sync + 'static,
    ) -> Result<Self> {
        let own =
            rcgen::generate_simple_self_signed(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>())?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match client_authority {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for authority in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                    roots.add(authority?)?;
                }
                let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(clients.allow_unauthenticated().build()?)
            }
        };
        let config = Arc::new(builder.with_single_cert(vec![own.cert.der().clone()], key)?);
        let listener = TcpListener::bind((address, 0)).context("a port for a server")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            asked: Mutex::default(),
            connections: AtomicUsize::default(),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                let (shared, config) = (Arc::clone(&serving), Arc::clone(&config));
                // A connection that breaks is the other side's affair.
                thread::spawn(move || serve(&shared, config, tcp).ok());
            }
        });
        Ok(Self { shared, address, bundle: BASE64_STANDARD.encode(own.cert.pem()) })
    }

    /// The `clientConfig` that leads here.
    pub fn client_config(&self, path: &str) -> Value {
        json!({"url": format!("https://{}{path}", self.address), "caBundle": self.bundle})
    }

    /// The certificate of the server, PEM in base64, as a `caBundle` has it.
    pub fn bundle(&self) -> &str {
        &self.bundle
    }

    /// The address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port of the server.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The questions so far.
    pub fn asked(&self) -> Vec<Question> {
        self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many connections there were.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

fn serve(shared: &Shared, config: Arc<ServerConfig>, tcp: TcpStream) -> Result<()> {
    shared.connections.fetch_add(1, Ordering::Relaxed);
    tcp.set_nodelay(true)?;
    let mut stream = BufReader::new(StreamOwned::new(ServerConnection::new(config)?, tcp));
    while let Some(mut question) = read(&mut stream)? {
        question.certified = stream.get_ref().conn.peer_certificates().is_some();
        let reply = (shared.answer)(&question);
        shared.asked.lock().unwrap_or_else(PoisonError::into_inner).push(question);
        let (code, head, body) = match reply {
            Reply::Json(value) => {
                (200, vec!["Content-Type: application/json".to_owned()], value.to_string().into_bytes())
            }
            Reply::Raw(code, head, body) => (code, head, body),
            Reply::Lines(lines) => {
                let out = stream.get_mut();
                out.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                for line in lines {
                    let line = format!("{line}\n");
                    out.write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes())?;
                }
                out.flush()?;
                stream.read_to_end(&mut Vec::new())?;
                return Ok(());
            }
            Reply::Echo => {
                let out = stream.get_mut();
                out.write_all(
                    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n",
                )?;
                out.flush()?;
                loop {
                    let bytes = stream.fill_buf()?.to_vec();
                    if bytes.is_empty() {
                        return Ok(());
                    }
                    stream.consume(bytes.len());
                    stream.get_mut().write_all(&bytes)?;
                    stream.get_mut().flush()?;
                }
            }
            Reply::Hang => {
                // Until the other side goes.
                stream.read_to_end(&mut Vec::new())?;
                return Ok(());
            }
            Reply::Close => return Ok(()),
        };
        let mut answer = format!("HTTP/1.1 {code} Code\r\nContent-Length: {}\r\n", body.len()).into_bytes();
        for line in head {
            answer.extend_from_slice(line.as_bytes());
            answer.extend_from_slice(b"\r\n");
        }
        answer.extend_from_slice(b"\r\n");
        answer.extend_from_slice(&body);
        stream.get_mut().write_all(&answer)?;
        stream.get_mut().flush()?;
    }
    Ok(())
}

/// The next request; `None` at the end of the connection.
fn read(stream: &mut impl BufRead) -> Result<Option<Question>> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let path = head.first().and_then(|l| l.split(' ').nth(1)).unwrap_or_default().to_owned();
    let length = head.iter().find_map(|l| {
        let (name, value) = l.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body)?;
    let body = serde_json::from_slice(&body).unwrap_or_default();
    Ok(Some(Question { path, head, body, certified: false }))
}
