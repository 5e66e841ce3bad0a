//! Questions to somebody else's HTTP server: JSON is posted, and JSON comes back.
//!
//! A connection is kept for the next question. Times and answers are bounded. Errors have the words of Go's client, which
//! people search for.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;

use crate::tls::{AnyCertificate, system_roots};

/// The largest answer: some thousand nodes, whole.
const LIMIT: usize = 256 << 20;

/// The settings of TLS towards a server; PEM throughout, empty for what is not set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PostTls {
    /// Takes any certificate of the server.
    pub insecure: bool,
    /// The name that the certificate is for, if it is not the host's.
    pub server_name: String,
    /// The authorities; the system's if there are none.
    pub authorities: Vec<u8>,
    /// The client's certificate.
    pub certificate: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
}

/// A server that is asked.
pub struct Poster {
    host: String,
    port: u16,
    authority: String,
    /// The path without the last part, which each question has for its own.
    path: String,
    url: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    timeout: Duration,
    /// A connection that nobody uses.
    idle: Mutex<Option<http1::SendRequest<Full<Bytes>>>>,
}

impl std::fmt::Debug for Poster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Poster({})", self.url)
    }
}

/// Why there is no answer, or it cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// The server's address or the settings of TLS are wrong.
    #[error("{0}")]
    Settings(String),
    /// The server cannot be reached.
    #[error("Post \"{url}\": {why}")]
    Unreachable {
        /// The address that was asked.
        url: String,
        /// The reason.
        why: String,
    },
    /// It refused.
    #[error("code {0}")]
    Refused(u16),
}

fn wrong(why: impl ToString) -> PostError {
    PostError::Settings(why.to_string())
}

impl Poster {
    /// Prepares questions to a server below a URL; it connects with the first.
    ///
    /// # Errors
    /// If the URL or the settings of TLS cannot be used.
    pub fn new(url: &str, tls: &PostTls, timeout: Duration) -> Result<Self, PostError> {
        let url = url.trim_end_matches('/');
        let uri: Uri = url.parse().map_err(|e| wrong(format!("parse {url:?}: {e}")))?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            other => {
                let scheme = api::go::quote(other.unwrap_or_default());
                return Err(wrong(format!("unsupported protocol scheme {scheme}")));
            }
        };
        let host = uri.host().ok_or_else(|| wrong("no Host in request URL"))?;
        let host = host.trim_matches(['[', ']']).to_owned();
        let name = if tls.server_name.is_empty() { host.clone() } else { tls.server_name.clone() };
        let tls =
            if secure { Some((connector(tls)?, ServerName::try_from(name).map_err(wrong)?)) } else { None };
        Ok(Self {
            host,
            port: uri.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            authority: uri.authority().map(ToString::to_string).unwrap_or_default(),
            path: uri.path().trim_end_matches('/').to_owned(),
            url: url.to_owned(),
            tls,
            timeout,
            idle: Mutex::default(),
        })
    }

    /// The URL of a question.
    pub fn url(&self, action: &str) -> String {
        format!("{}/{action}", self.url)
    }

    /// Posts JSON and gives the answer's body, if the answer's code is 200.
    ///
    /// # Errors
    /// If there is no such answer in time.
    pub async fn post(&self, action: &str, body: Bytes) -> Result<Bytes, PostError> {
        let unreachable = |why: String| PostError::Unreachable { url: self.url(action), why };
        let Ok(answer) = tokio::time::timeout(self.timeout, self.ask(action, body)).await else {
            let why = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
            return Err(unreachable(why.to_owned()));
        };
        let (status, body) = answer.map_err(unreachable)?;
        if status == StatusCode::OK { Ok(body) } else { Err(PostError::Refused(status.as_u16())) }
    }

    async fn ask(&self, action: &str, body: Bytes) -> Result<(StatusCode, Bytes), String> {
        let request = || {
            Request::post(format!("{}/{action}", self.path))
                .header(header::HOST, &self.authority)
                .header(header::CONTENT_TYPE, "application/json")
                .body(Full::new(body.clone()))
                .map_err(|e| e.to_string())
        };
        let kept = self.idle.lock().await.take();
        let mut sender = match kept {
            Some(kept) if !kept.is_closed() => kept,
            _ => self.connect().await?,
        };
        let answer = match sender.try_send_request(request()?).await {
            Ok(answer) => answer,
            Err(mut e) => {
                if e.take_message().is_none() {
                    return Err(e.into_error().to_string());
                }
                // The server ended the connection before it read anything.
                sender = self.connect().await?;
                sender.send_request(request()?).await.map_err(|e| e.to_string())?
            }
        };
        let status = answer.status();
        let body = Limited::new(answer.into_body(), LIMIT).collect().await.map_err(|e| e.to_string())?;
        *self.idle.lock().await = Some(sender);
        Ok((status, body.to_bytes()))
    }

    async fn connect(&self) -> Result<http1::SendRequest<Full<Bytes>>, String> {
        let address = format!("{}:{}", self.host, self.port);
        let tcp = TcpStream::connect((self.host.as_str(), self.port)).await;
        let tcp = tcp.map_err(|e| format!("dial tcp {address}: {e}"))?;
        let _ = tcp.set_nodelay(true);
        match &self.tls {
            None => handshake(tcp).await,
            Some((tls, name)) => {
                handshake(tls.connect(name.clone(), tcp).await.map_err(|e| format!("tls: {e}"))?).await
            }
        }
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<http1::SendRequest<Full<Bytes>>, String> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    // It ends with its sender.
    tokio::spawn(connection);
    Ok(sender)
}

fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect()
}

fn connector(settings: &PostTls) -> Result<TlsConnector, PostError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(wrong)?;
    let builder = if settings.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate::new(provider)))
    } else {
        let mut roots = RootCertStore::empty();
        if settings.authorities.is_empty() {
            roots.add_parsable_certificates(system_roots().iter().cloned());
        } else if roots.add_parsable_certificates(certificates(&settings.authorities)).0 == 0 {
            return Err(wrong("unable to load root certificates: unable to parse bytes as PEM block"));
        }
        builder.with_root_certificates(roots)
    };
    // As Go's clients have it, one without the other is neither.
    let tls = if settings.certificate.is_empty() || settings.key.is_empty() {
        builder.with_no_client_auth()
    } else {
        let key = PrivateKeyDer::from_pem_slice(&settings.key)
            .map_err(|e| wrong(format!("the client's key: {e}")))?;
        builder.with_client_auth_cert(certificates(&settings.certificate), key).map_err(wrong)?
    };
    Ok(TlsConnector::from(Arc::new(tls)))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that answers each of so many questions of a connection in this way, and then ends it.
    async fn server(answers: Vec<&'static str>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                for answer in &answers {
                    let mut read = Vec::new();
                    while !read.ends_with(b"{}") {
                        let mut some = [0; 256];
                        match stream.read(&mut some).await.unwrap() {
                            0 => break,
                            n => read.extend_from_slice(&some[..n]),
                        }
                    }
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            }
        });
        format!("http://{address}/base/")
    }

    fn poster(url: &str) -> Poster {
        Poster::new(url, &PostTls::default(), Duration::from_secs(5)).unwrap()
    }

    #[tokio::test]
    async fn answers() {
        let ok = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
        let one = poster(&server(vec![ok, ok]).await);
        assert!(one.url("filter").ends_with("/base/filter"));
        for _ in 0..5 {
            assert_eq!(one.post("filter", "{}".into()).await.unwrap(), "hi");
        }
        let no = poster(&server(vec!["HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n"]).await);
        assert_eq!(no.post("filter", "{}".into()).await.unwrap_err().to_string(), "code 500");
    }

    #[tokio::test]
    async fn what_is_not_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let slow = Poster::new(&url, &PostTls::default(), Duration::from_millis(1)).unwrap();
        let why = slow.post("x", "{}".into()).await.unwrap_err().to_string();
        assert!(why.contains("context deadline exceeded"), "{why}");
        drop(listener);
        let why = poster(&url).post("x", "{}".into()).await.unwrap_err().to_string();
        assert!(why.starts_with(&format!("Post \"{url}/x\": dial tcp")), "{why}");
        let wrong = |url: &str, tls: &PostTls| Poster::new(url, tls, Duration::ZERO).unwrap_err().to_string();
        assert_eq!(wrong("ftp://a", &PostTls::default()), "unsupported protocol scheme \"ftp\"");
        let bad = PostTls { authorities: b"nonsense".to_vec(), ..PostTls::default() };
        assert!(wrong("https://a", &bad).contains("unable to parse bytes as PEM block"));
        assert!(
            Poster::new("https://a", &PostTls { insecure: true, ..PostTls::default() }, Duration::ZERO)
                .is_ok()
        );
    }
}
