//! A webhook made by a test: an HTTPS server whose answers the test chooses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};

/// An answer of a webhook.
pub enum Reply {
    /// A document, with code 200.
    Json(Value),
    /// A code, further lines of the head, and a body.
    Raw(u16, Vec<String>, Vec<u8>),
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
}

type Answer = dyn Fn(&Question) -> Reply + Send + Sync;

struct Shared {
    answer: Box<Answer>,
    asked: Mutex<Vec<Question>>,
    connections: AtomicUsize,
}

/// An HTTPS server on loopback. It serves until the test's process ends.
pub struct Webhook {
    shared: Arc<Shared>,
    port: u16,
    bundle: String,
}

impl Webhook {
    /// Starts a server whose answers a function gives.
    pub fn start(answer: impl Fn(&Question) -> Reply + Send + Sync + 'static) -> Result<Self> {
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)?;
        let config = Arc::new(config);
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("a port for a webhook")?;
        let port = listener.local_addr()?.port();
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
        Ok(Self { shared, port, bundle: BASE64_STANDARD.encode(own.cert.pem()) })
    }

    /// The `clientConfig` that leads here.
    pub fn client_config(&self, path: &str) -> Value {
        json!({"url": format!("https://127.0.0.1:{}{path}", self.port), "caBundle": self.bundle})
    }

    /// The port, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
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
    while let Some(question) = read(&mut stream)? {
        let reply = (shared.answer)(&question);
        shared.asked.lock().unwrap_or_else(PoisonError::into_inner).push(question);
        let (code, head, body) = match reply {
            Reply::Json(value) => {
                (200, vec!["Content-Type: application/json".to_owned()], value.to_string().into_bytes())
            }
            Reply::Raw(code, head, body) => (code, head, body),
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
    Ok(Some(Question { path, head, body: serde_json::from_slice(&body).unwrap_or_default() }))
}
