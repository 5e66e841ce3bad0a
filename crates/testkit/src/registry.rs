//! A registry of images on loopback, with authentication, ranges, redirects, and faults on request.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use supplies::Image;

/// How a registry wants to be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// By anybody.
    Open,
    /// With a user and a password.
    Basic(String, String),
    /// With a token, which everybody gets.
    Token,
    /// With a token, which a user with a password gets.
    TokenFor(String, String),
}

/// A thing that a registry does wrong, or in another way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It answers with a code and further lines of the head.
    Code(u16, Vec<String>),
    /// It ends the connection after so many bytes of the body.
    Break(usize),
    /// The last byte is another one.
    Corrupt,
    /// It sends more and more, and does not tell how much.
    Endless,
    /// It stops after so many bytes, until [`Registry::go_on`].
    Stall(usize),
    /// It sends everything, whatever range is asked for.
    NoRanges,
    /// It sends to another server, e.g. `http://127.0.0.1:1234`.
    Redirect(String),
}

struct Rule {
    part: String,
    /// How often it still applies; `None`: always.
    times: Option<usize>,
    fault: Fault,
}

/// A request that came.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The method.
    pub method: String,
    /// The path with the query.
    pub path: String,
    head: Vec<String>,
}

impl Asked {
    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.iter().filter_map(|line| line.split_once(':'));
        lines.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }
}

#[derive(Clone)]
struct Manifest {
    media_type: String,
    digest: String,
    bytes: Arc<Vec<u8>>,
}

struct State {
    access: Access,
    blobs: HashMap<String, Arc<Vec<u8>>>,
    /// Manifests by repository and tag or digest.
    manifests: HashMap<(String, String), Manifest>,
    rules: Vec<Rule>,
    asked: Vec<Asked>,
    tokens: usize,
    /// Tokens below this number are no longer good.
    oldest: usize,
    go_on: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    address: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
}

/// A registry. It serves until the test's process ends.
pub struct Registry(Arc<Shared>);

/// A layer of an image.
#[derive(Debug, Clone)]
pub struct Layer {
    /// The media type.
    pub media_type: String,
    /// The archive as it is sent.
    pub bytes: Vec<u8>,
    /// The digest of the archive without compression.
    pub diff_id: String,
}

impl Layer {
    /// A layer that is a plain tar.
    pub fn plain(tar: Vec<u8>) -> Self {
        let media_type = "application/vnd.oci.image.layer.v1.tar".to_owned();
        Self { media_type, diff_id: digest(&tar), bytes: tar }
    }

    /// A layer that is compressed with gzip.
    pub fn gzip(tar: &[u8]) -> Result<Self> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(tar)?;
        let media_type = "application/vnd.oci.image.layer.v1.tar+gzip".to_owned();
        Ok(Self { media_type, diff_id: digest(tar), bytes: encoder.finish()? })
    }
}

/// The digests of an image that was pushed.
#[derive(Debug, Clone)]
pub struct Pushed {
    /// The manifest's.
    pub manifest: String,
    /// The configuration's: the image's id.
    pub id: String,
}

/// The SHA-256 digest of bytes, as a registry names it.
pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

impl Registry {
    /// Starts a registry that speaks plain HTTP.
    pub fn start() -> Result<Self> {
        Self::serving(None)
    }

    /// Starts a registry that speaks TLS, with a certificate and its key in files, PEM.
    pub fn start_tls(certificate: &Path, key: &Path) -> Result<Self> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
        Self::serving(Some(Arc::new(config)))
    }

    fn serving(tls: Option<Arc<ServerConfig>>) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("a port for a registry")?;
        let state = State {
            access: Access::Open,
            blobs: HashMap::new(),
            manifests: HashMap::new(),
            rules: Vec::new(),
            asked: Vec::new(),
            tokens: 0,
            oldest: 0,
            go_on: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            address: listener.local_addr()?,
            tls,
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                // A connection that breaks is the other side's affair.
                thread::spawn(move || serve(&shared, tcp).ok());
            }
        });
        Ok(Self(shared))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Host and port, as a reference has them.
    pub fn host(&self) -> String {
        self.0.address.to_string()
    }

    /// The URL, without a path.
    pub fn url(&self) -> String {
        let scheme = if self.0.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.0.address)
    }

    /// Says how the registry wants to be asked.
    pub fn access(&self, access: Access) {
        self.state().access = access;
    }

    /// Adds a fault to answers whose path has a part; `times`: to so many of them.
    pub fn fault(&self, part: &str, times: Option<usize>, fault: Fault) {
        self.state().rules.push(Rule { part: part.to_owned(), times, fault });
    }

    /// Takes all faults away.
    pub fn heal(&self) {
        self.state().rules.clear();
        self.go_on();
    }

    /// Lets answers go on that have stalled.
    pub fn go_on(&self) {
        self.state().go_on = true;
        self.0.changed.notify_all();
    }

    /// The tokens that were given are no longer good.
    pub fn expire(&self) {
        let mut state = self.state();
        state.oldest = state.tokens;
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.state().asked.clone()
    }

    /// Keeps content; its digest.
    pub fn put_blob(&self, bytes: Vec<u8>) -> String {
        let name = digest(&bytes);
        self.state().blobs.insert(name.clone(), Arc::new(bytes));
        name
    }

    /// Keeps content under a digest of another algorithm, or a wrong one.
    pub fn put_blob_as(&self, name: &str, bytes: Vec<u8>) {
        self.state().blobs.insert(name.to_owned(), Arc::new(bytes));
    }

    /// Keeps a manifest under its digest and a tag; its digest.
    pub fn put_manifest(&self, repository: &str, tag: &str, media_type: &str, bytes: Vec<u8>) -> String {
        let name = digest(&bytes);
        let manifest =
            Manifest { media_type: media_type.to_owned(), digest: name.clone(), bytes: Arc::new(bytes) };
        let mut state = self.state();
        for version in [tag, &name] {
            state.manifests.insert((repository.to_owned(), version.to_owned()), manifest.clone());
        }
        name
    }

    /// Keeps an image with these layers. `config` is the configuration's `config`.
    pub fn push(&self, repository: &str, tag: &str, config: &Value, layers: &[Layer]) -> Pushed {
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        self.push_for(architecture, repository, tag, config, layers)
    }

    /// Keeps an image that was made on the spot, compressed.
    pub fn push_image(&self, image: &Image, repository: &str, tag: &str) -> Result<Pushed> {
        Ok(self.push(repository, tag, &image.config, &[Layer::gzip(&image.layer()?)?]))
    }

    /// Keeps an image for an architecture.
    pub fn push_for(
        &self,
        architecture: &str,
        repository: &str,
        tag: &str,
        config: &Value,
        layers: &[Layer],
    ) -> Pushed {
        let configuration = json!({
            "architecture": architecture, "os": "linux", "config": config,
            "rootfs": {"type": "layers", "diff_ids": layers.iter().map(|l| &*l.diff_id).collect::<Vec<_>>()},
        });
        let configuration = configuration.to_string().into_bytes();
        let size = configuration.len();
        let id = self.put_blob(configuration);
        let entries: Vec<Value> = layers
            .iter()
            .map(|l| {
                let name = self.put_blob(l.bytes.clone());
                json!({"mediaType": l.media_type, "digest": name, "size": l.bytes.len()})
            })
            .collect();
        let media_type = "application/vnd.oci.image.manifest.v1+json";
        let manifest = json!({
            "schemaVersion": 2, "mediaType": media_type, "layers": entries,
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": id, "size": size},
        });
        let manifest = self.put_manifest(repository, tag, media_type, manifest.to_string().into_bytes());
        Pushed { manifest, id }
    }
}

type Stream = BufReader<Box<dyn ReadWrite>>;

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

fn serve(shared: &Shared, tcp: TcpStream) -> Result<()> {
    tcp.set_nodelay(true)?;
    let stream: Box<dyn ReadWrite> = match &shared.tls {
        None => Box::new(tcp),
        Some(config) => Box::new(StreamOwned::new(ServerConnection::new(Arc::clone(config))?, tcp)),
    };
    let mut stream = BufReader::new(stream);
    while let Some((asked, body)) = read(&mut stream)? {
        if !answer(shared, &mut stream, &asked, &body)? {
            return Ok(());
        }
    }
    Ok(())
}

/// The next request and its body; `None` at the end of the connection.
fn read(stream: &mut Stream) -> Result<Option<(Asked, String)>> {
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
    let mut first = head.first().map(String::as_str).unwrap_or_default().split(' ');
    let (method, path) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let asked = Asked { method: method.to_owned(), path: path.to_owned(), head: head.clone() };
    let length = asked.header("content-length").and_then(|l| l.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Some((asked, String::from_utf8_lossy(&body).into_owned())))
}

fn write(stream: &mut Stream, code: u16, head: &[String], body: &[u8]) -> Result<bool> {
    let mut answer = format!("HTTP/1.1 {code} Code\r\nContent-Length: {}\r\n", body.len()).into_bytes();
    for line in head {
        answer.extend_from_slice(format!("{line}\r\n").as_bytes());
    }
    answer.extend_from_slice(b"\r\n");
    answer.extend_from_slice(body);
    stream.get_mut().write_all(&answer)?;
    stream.get_mut().flush()?;
    Ok(true)
}

/// Answers a request; false: the connection ends.
fn answer(shared: &Shared, stream: &mut Stream, asked: &Asked, body: &str) -> Result<bool> {
    let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    state.asked.push(asked.clone());
    let scheme = if shared.tls.is_some() { "https" } else { "http" };
    let path = asked.path.split('?').next().unwrap_or_default();
    if path == "/token" {
        let given = asked.header("authorization").unwrap_or_default().to_owned();
        let good = match &state.access {
            Access::TokenFor(user, password) => {
                let form = format!("username={user}&password={password}");
                given == basic(user, password)
                    || body.contains(&form)
                    || body.contains("refresh_token=refresh")
            }
            _ => true,
        };
        if !good {
            drop(state);
            return write(stream, 401, &[], b"{}");
        }
        state.tokens += 1;
        let token = json!({"token": format!("t{}", state.tokens), "expires_in": 300}).to_string();
        drop(state);
        return write(stream, 200, &[], token.as_bytes());
    }
    let given = asked.header("authorization").unwrap_or_default();
    let challenge = match &state.access {
        Access::Open => None,
        Access::Basic(user, password) if given == basic(user, password) => None,
        Access::Basic(..) => Some("WWW-Authenticate: Basic realm=\"registry\"".to_owned()),
        Access::Token | Access::TokenFor(..) => {
            let number = given.strip_prefix("Bearer t").and_then(|n| n.parse::<usize>().ok());
            let good = number.is_some_and(|n| n > state.oldest && n <= state.tokens);
            let realm = format!("{scheme}://{}/token", shared.address);
            (!good).then(|| format!("WWW-Authenticate: Bearer realm=\"{realm}\",service=\"test\""))
        }
    };
    if let Some(challenge) = challenge {
        drop(state);
        return write(stream, 401, &[challenge], b"{}");
    }
    let at = state.rules.iter().position(|r| asked.path.contains(&r.part) && r.times != Some(0));
    let fault = at.map(|at| {
        let rule = &mut state.rules[at];
        rule.times = rule.times.map(|t| t - 1);
        rule.fault.clone()
    });
    let found = find(&state, path);
    drop(state);
    let missing = json!({"errors": [{"code": "UNKNOWN", "message": "not here"}]}).to_string();
    match fault {
        Some(Fault::Code(code, head)) => write(stream, code, &head, missing.as_bytes()),
        Some(Fault::Redirect(to)) => write(stream, 307, &[format!("Location: {to}{}", asked.path)], b""),
        fault => match found {
            None => write(stream, 404, &[], missing.as_bytes()),
            Some((head, bytes)) => content(shared, stream, asked, head, &bytes, fault),
        },
    }
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

/// The head's lines and the body of what a path names.
fn find(state: &State, path: &str) -> Option<(Vec<String>, Arc<Vec<u8>>)> {
    let rest = path.strip_prefix("/v2/")?;
    if let Some((repository, version)) = rest.split_once("/manifests/") {
        let Manifest { media_type, digest, bytes } =
            state.manifests.get(&(repository.to_owned(), version.to_owned()))?;
        let head = vec![format!("Content-Type: {media_type}"), format!("Docker-Content-Digest: {digest}")];
        return Some((head, Arc::clone(bytes)));
    }
    let (_, name) = rest.split_once("/blobs/")?;
    Some((Vec::new(), Arc::clone(state.blobs.get(name)?)))
}

/// Sends content, or the part that is asked for.
fn content(
    shared: &Shared,
    stream: &mut Stream,
    asked: &Asked,
    mut head: Vec<String>,
    bytes: &[u8],
    fault: Option<Fault>,
) -> Result<bool> {
    let mut bytes = bytes.to_vec();
    if fault == Some(Fault::Corrupt)
        && let Some(last) = bytes.last_mut()
    {
        *last ^= 1;
    }
    let whole = bytes.len();
    let start = asked
        .header("range")
        .and_then(|r| r.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    let mut code = 200;
    if let Some(start) = start.filter(|_| fault != Some(Fault::NoRanges)) {
        if start >= whole {
            return write(stream, 416, &[], b"");
        }
        code = 206;
        head.push(format!("Content-Range: bytes {start}-{}/{whole}", whole - 1));
        bytes.drain(..start);
    }
    if asked.method == "HEAD" {
        let lines = head.iter().fold(String::new(), |all, line| all + line + "\r\n");
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {whole}\r\n{lines}\r\n");
        stream.get_mut().write_all(answer.as_bytes())?;
        stream.get_mut().flush()?;
        return Ok(true);
    }
    match fault {
        Some(Fault::Endless) => {
            let out = stream.get_mut();
            out.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            let zeros = [0_u8; 4096];
            for part in [&*bytes].into_iter().chain(std::iter::repeat(&zeros[..])) {
                out.write_all(format!("{:x}\r\n", part.len()).as_bytes())?;
                out.write_all(part)?;
                out.write_all(b"\r\n")?;
            }
            Ok(false)
        }
        Some(Fault::Break(after) | Fault::Stall(after)) if after < bytes.len() => {
            let lines = head.iter().fold(String::new(), |all, line| all + line + "\r\n");
            let answer = format!("HTTP/1.1 {code} OK\r\nContent-Length: {}\r\n{lines}\r\n", bytes.len());
            stream.get_mut().write_all(answer.as_bytes())?;
            stream.get_mut().write_all(&bytes[..after])?;
            stream.get_mut().flush()?;
            if matches!(fault, Some(Fault::Break(_))) {
                return Ok(false);
            }
            let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            while !state.go_on {
                state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            stream.get_mut().write_all(&bytes[after..])?;
            stream.get_mut().flush()?;
            Ok(true)
        }
        _ => write(stream, code, &head, &bytes),
    }
}
