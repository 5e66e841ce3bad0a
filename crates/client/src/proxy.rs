//! Ways through a proxy: CONNECT over HTTP or HTTPS, and SOCKS5.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use api::go::quote;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The longest answer of a proxy to CONNECT.
const MAX_ANSWER: usize = 8 << 10;

/// A stream of bytes, whatever it runs over.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Http,
    Https,
    Socks5,
}

/// A proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    kind: Kind,
    host: String,
    port: u16,
    /// User and password.
    login: Option<(String, String)>,
    url: String,
}

impl std::fmt::Debug for Proxy {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy({:?} {}:{})", self.kind, self.host, self.port)
    }
}

impl Proxy {
    /// Reads a proxy's URL.
    ///
    /// # Errors
    /// The reason, in client-go's words.
    pub fn parse(url: &str) -> Result<Self, String> {
        let wrong = || format!("could not parse: {url}");
        let (scheme, rest) = url.split_once("://").unwrap_or_default();
        let (kind, port) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (Kind::Http, 80),
            "https" => (Kind::Https, 443),
            "socks5" => (Kind::Socks5, 1080),
            other => {
                return Err(format!("unsupported scheme {}, must be http, https, or socks5", quote(other)));
            }
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => {
                let (user, password) = login.split_once(':').unwrap_or((login, ""));
                (Some((plain(user).ok_or_else(wrong)?, plain(password).ok_or_else(wrong)?)), place)
            }
            None => (None, authority),
        };
        let place: Uri = place.parse().map_err(|_| wrong())?;
        let host = place.host().filter(|h| !h.is_empty()).ok_or_else(wrong)?;
        let host = host.trim_matches(['[', ']']).to_owned();
        Ok(Self { kind, host, port: place.port_u16().unwrap_or(port), login, url: url.to_owned() })
    }

    /// The proxy to a server that the environment names (`HTTPS_PROXY`, `NO_PROXY`), as Go's clients read it; never one to
    /// this machine.
    pub(crate) fn from_environment(server: &str) -> Option<Self> {
        let either = |names: [&str; 2]| {
            names.into_iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default()
        };
        let environment = Matcher::builder()
            .https(either(["HTTPS_PROXY", "https_proxy"]))
            .no(either(["NO_PROXY", "no_proxy"]))
            .build();
        Self::of_environment(&environment, server)
    }

    fn of_environment(environment: &Matcher, server: &str) -> Option<Self> {
        let server: Uri = server.parse().ok()?;
        let host = server.host()?.trim_matches(['[', ']']);
        let local = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let found = environment.intercept(&server).filter(|_| !local)?;
        let mut proxy = Self::parse(&found.uri().to_string()).ok()?;
        if let Some((user, password)) = found.raw_auth() {
            proxy.login = Some((user.to_owned(), password.to_owned()));
        } else if let Some(login) = found.basic_auth().and_then(decoded) {
            proxy.login = Some(login);
        }
        Some(proxy)
    }

    /// Its URL, as it was given.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Opens a way to a host's port through it.
    pub(crate) async fn connect(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
        // Not the server is out of reach: an environment's proxy may be forgotten, so its address is told.
        let unreached = |e: io::Error| {
            let place = format!("{}:{}", bracketed(&self.host), self.port);
            io::Error::new(e.kind(), format!("proxyconnect tcp: dial tcp {place}: {e}"))
        };
        let tcp = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(unreached)?;
        tcp.set_nodelay(true)?;
        match self.kind {
            Kind::Socks5 => {
                let mut tcp = tcp;
                socks(&mut tcp, host, port, self.login.as_ref()).await?;
                Ok(Box::new(tcp))
            }
            Kind::Http => {
                let mut tcp = tcp;
                tunnel(&mut tcp, host, port, self.login.as_ref()).await?;
                Ok(Box::new(tcp))
            }
            Kind::Https => {
                let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
                let mut tls = TlsConnector::from(Arc::new(settings()?)).connect(name, tcp).await?;
                tunnel(&mut tls, host, port, self.login.as_ref()).await?;
                Ok(Box::new(tls))
            }
        }
    }
}

/// The settings of TLS towards a proxy, which the system's authorities vouch for.
fn settings() -> io::Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(crate::tls::system_roots().iter().cloned());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// User and password of a header.
fn decoded(basic: &http::HeaderValue) -> Option<(String, String)> {
    let bytes = STANDARD.decode(basic.to_str().ok()?.strip_prefix("Basic ")?).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    text.split_once(':').map(|(user, password)| (user.to_owned(), password.to_owned()))
}

/// A part of a URL without its percents.
fn plain(text: &str) -> Option<String> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digit = |b: Option<u8>| char::from(b?).to_digit(16);
        let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
        out.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(out).ok()
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// Asks a proxy by CONNECT.
async fn tunnel(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    host: &str,
    port: u16,
    login: Option<&(String, String)>,
) -> io::Result<()> {
    let host = bracketed(host);
    let login = login.map_or_else(String::new, |(user, password)| {
        format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode(format!("{user}:{password}")))
    });
    let request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{login}\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= MAX_ANSWER {
            return Err(io::Error::other("the proxy's answer is too long"));
        }
        // One byte at a time: the bytes after it belong to the tunnel.
        answer.push(stream.read_u8().await?);
    }
    refusal(&answer).map_or(Ok(()), |why| Err(io::Error::other(why)))
}

/// The reason that an answer to CONNECT gives for a refusal, as Go tells it: the words after the code.
fn refusal(answer: &[u8]) -> Option<String> {
    let line = answer.split(|b| *b == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut parts = line.splitn(3, ' ');
    let (version, code) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if !version.starts_with("HTTP/1.") || code.len() != 3 {
        return Some(format!("malformed HTTP response {}", quote(&line)));
    }
    if code == "200" {
        return None;
    }
    Some(parts.next().filter(|words| !words.is_empty()).unwrap_or("unknown status code").to_owned())
}

/// Asks a proxy by SOCKS5 (RFC 1928, 1929).
async fn socks(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    host: &str,
    port: u16,
    login: Option<&(String, String)>,
) -> io::Result<()> {
    let failed = |why: &str| io::Error::other(format!("socks connect: {why}"));
    let short = |text: &str| u8::try_from(text.len()).map_err(|_| failed("a name is too long"));
    let greeting: &[u8] = if login.is_some() { &[5, 2, 0, 2] } else { &[5, 1, 0] };
    stream.write_all(greeting).await?;
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).await?;
    match (answer, login) {
        ([5, 0], _) => {}
        ([5, 2], Some((user, password))) => {
            let mut asked = vec![1, short(user)?];
            asked.extend_from_slice(user.as_bytes());
            asked.push(short(password)?);
            asked.extend_from_slice(password.as_bytes());
            stream.write_all(&asked).await?;
            stream.read_exact(&mut answer).await?;
            if answer[1] != 0 {
                return Err(failed("username/password authentication failed"));
            }
        }
        ([5, _], _) => return Err(failed("no acceptable authentication methods")),
        ([other, _], _) => return Err(failed(&format!("unexpected protocol version {other}"))),
    }
    let mut asked = vec![5, 1, 0];
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => {
            asked.push(1);
            asked.extend_from_slice(&ip.octets());
        }
        Ok(IpAddr::V6(ip)) => {
            asked.push(4);
            asked.extend_from_slice(&ip.octets());
        }
        Err(_) => {
            asked.extend_from_slice(&[3, short(host)?]);
            asked.extend_from_slice(host.as_bytes());
        }
    }
    asked.extend_from_slice(&port.to_be_bytes());
    stream.write_all(&asked).await?;
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    if head[1] != 0 {
        return Err(failed(refused(head[1])));
    }
    let address = match head[3] {
        1 => 4,
        4 => 16,
        3 => usize::from(stream.read_u8().await?),
        _ => return Err(failed("unknown address type")),
    };
    let mut rest = vec![0; address + 2];
    stream.read_exact(&mut rest).await?;
    Ok(())
}

/// The reason of a refusal, as Go's client words it.
fn refused(code: u8) -> &'static str {
    match code {
        1 => "general SOCKS server failure",
        2 => "connection not allowed by ruleset",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "TTL expired",
        7 => "command not supported",
        8 => "address type not supported",
        _ => "unknown code",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        type Parts<'p> = (Kind, &'p str, u16, Option<(&'p str, &'p str)>);
        let check = |url: &str, expected: Result<Parts<'_>, &str>| {
            let got = Proxy::parse(url);
            let login = |p: &Proxy| p.login.clone();
            match (got, expected) {
                (Ok(got), Ok((kind, host, port, wanted))) => {
                    assert_eq!((got.kind, got.host.as_str(), got.port), (kind, host, port), "{url}");
                    let wanted = wanted.map(|(a, b)| (a.to_owned(), b.to_owned()));
                    assert_eq!(login(&got), wanted, "{url}");
                }
                (got, expected) => assert_eq!(got.map(|_| ()), expected.map(|_| ()).map_err(str::to_owned)),
            }
        };
        check("http://a:8080", Ok((Kind::Http, "a", 8080, None)));
        check("https://a/", Ok((Kind::Https, "a", 443, None)));
        check("socks5://u:p%40@[fd00::1]:99", Ok((Kind::Socks5, "fd00::1", 99, Some(("u", "p@")))));
        check("http://u@a", Ok((Kind::Http, "a", 80, Some(("u", "")))));
        check("a:80", Err("unsupported scheme \"\", must be http, https, or socks5"));
        check("ftp://a", Err("unsupported scheme \"ftp\", must be http, https, or socks5"));
        check("http://", Err("could not parse: http://"));
        check("http://u%zz@a", Err("could not parse: http://u%zz@a"));
    }

    #[test]
    fn the_environments_proxies() {
        let environment = Matcher::builder().https("http://u:p@proxy:3128").no("10.0.0.0/8,.in").build();
        let check = |server: &str, expected: Option<&str>| {
            let found = Proxy::of_environment(&environment, server);
            let text = |p: Proxy| format!("{}:{} {:?}", p.host, p.port, p.login.map(|l| l.0 + ":" + &l.1));
            assert_eq!(found.map(text).as_deref(), expected, "{server}");
        };
        check("https://api.example:6443", Some("proxy:3128 Some(\"u:p\")"));
        check("https://10.1.2.3", None);
        check("https://a.in", None);
        check("https://127.0.0.1:6443", None);
        check("https://localhost", None);
        check("nonsense", None);
    }

    #[test]
    fn answers_to_connect() {
        let check = |answer: &str, expected: Option<&str>| {
            assert_eq!(refusal(answer.as_bytes()).as_deref(), expected, "{answer}");
        };
        check("HTTP/1.1 200 Connection established\r\n\r\n", None);
        check("HTTP/1.0 200\r\n\r\n", None);
        check("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", Some("Proxy Authentication Required"));
        check("HTTP/1.1 403\r\n\r\n", Some("unknown status code"));
        check("SSH-2.0\r\n\r\n", Some("malformed HTTP response \"SSH-2.0\""));
    }

    /// The proxy's side of a conversation: what it reads and what it writes.
    async fn talk(steps: &[(&[u8], &[u8])], login: Option<(&str, &str)>, host: &str) -> io::Result<()> {
        let (mut near, mut far) = tokio::io::duplex(1024);
        let login = login.map(|(a, b)| (a.to_owned(), b.to_owned()));
        let proxy = async {
            for (wanted, answer) in steps {
                let mut read = vec![0; wanted.len()];
                far.read_exact(&mut read).await.unwrap();
                assert_eq!(&read, wanted);
                far.write_all(answer).await.unwrap();
            }
        };
        tokio::join!(socks(&mut near, host, 443, login.as_ref()), proxy).0
    }

    #[tokio::test]
    async fn socks_conversations() {
        let ok = [5, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        let name = b"\x05\x01\x00\x03\x01a\x01\xbb";
        talk(&[(&[5, 1, 0], &[5, 0]), (name, &ok)], None, "a").await.unwrap();
        let ip = [5, 1, 0, 1, 10, 0, 0, 1, 1, 0xbb];
        talk(&[(&[5, 1, 0], &[5, 0]), (&ip, &ok)], None, "10.0.0.1").await.unwrap();
        let login = b"\x01\x01u\x02pw";
        talk(&[(&[5, 2, 0, 2], &[5, 2]), (login, &[1, 0]), (name, &ok)], Some(("u", "pw")), "a")
            .await
            .unwrap();
        let told = talk(&[(&[5, 1, 0], &[5, 0]), (name, &[5, 2, 0, 1])], None, "a").await.unwrap_err();
        assert_eq!(told.to_string(), "socks connect: connection not allowed by ruleset");
        let told = talk(&[(&[5, 1, 0], &[5, 255])], None, "a").await.unwrap_err();
        assert_eq!(told.to_string(), "socks connect: no acceptable authentication methods");
        let told = talk(&[(&[5, 1, 0], &[4, 0])], None, "a").await.unwrap_err();
        assert_eq!(told.to_string(), "socks connect: unexpected protocol version 4");
    }
}
