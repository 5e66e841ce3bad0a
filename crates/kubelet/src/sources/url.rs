//! Static Pods from a URL.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::manifest::{MAX_MANIFEST, ManifestError, Manifests, Origin, pods};
use super::statics::Reader;

/// How long an answer may take; upstream's.
const LIMIT: Duration = Duration::from_secs(10);
/// The authorities that the system knows.
const AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Why no Pods came from a URL.
#[derive(Debug, thiserror::Error)]
enum UrlError {
    #[error("{0} is no URL such as http://host/path")]
    Url(String),
    #[error("{url} does not answer: {why}")]
    Answer { url: String, why: String },
    #[error("{url}: {status}")]
    Status { url: String, status: StatusCode },
    #[error("{url}: {error}")]
    Manifest { url: String, error: ManifestError },
}

/// Asks a URL.
pub(crate) struct Url {
    pub(crate) manifests: Arc<dyn Manifests>,
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) node: String,
    pub(crate) period: Duration,
    /// The last answer: the same one again is not read.
    pub(crate) last: Mutex<Vec<u8>>,
}

impl Reader for Url {
    fn read(&self) -> BoxFuture<'_, Option<Vec<Pod>>> {
        async {
            let asked = timeout(LIMIT, self.ask()).await;
            let late = |_| Err(UrlError::Answer { url: self.url.clone(), why: "its time is up".into() });
            match asked.unwrap_or_else(late) {
                Ok(pods) => pods,
                Err(error) => {
                    tracing::warn!(%error, "cannot read static Pods");
                    None
                }
            }
        }
        .boxed()
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        std::future::pending().boxed()
    }

    fn period(&self) -> Duration {
        self.period
    }
}

impl Url {
    /// None if the answer is the one of before.
    async fn ask(&self) -> Result<Option<Vec<Pod>>, UrlError> {
        let answer = self.get().await?;
        if answer.is_empty() {
            // There are none any more, as upstream takes it.
            self.last.lock().clear();
            return Ok(Some(Vec::new()));
        }
        if *self.last.lock() == answer {
            return Ok(None);
        }
        let wrong = |error| UrlError::Manifest { url: self.url.clone(), error };
        let found = pods(&*self.manifests, &answer, Origin::Url(&self.url), &self.node).map_err(wrong)?;
        *self.last.lock() = answer;
        Ok(Some(found))
    }

    async fn get(&self) -> Result<Vec<u8>, UrlError> {
        let wrong = || UrlError::Url(self.url.clone());
        let uri: Uri = self.url.parse().map_err(|_| wrong())?;
        let authority = uri.authority().ok_or_else(wrong)?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        let port = authority.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let host = authority.host().trim_matches(['[', ']']);
        let silent = |why: String| UrlError::Answer { url: self.url.clone(), why };
        let stream = TcpStream::connect((host, port)).await.map_err(|e| silent(e.to_string()))?;
        let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let mut request = Request::get(path).header("host", authority.as_str());
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Empty::<bytes::Bytes>::new()).map_err(|e| silent(e.to_string()))?;
        let answer = if secure {
            let name = ServerName::try_from(host.to_owned()).map_err(|e| silent(e.to_string()))?;
            let connector = TlsConnector::from(Arc::new(system_tls()));
            let stream = connector.connect(name, stream).await.map_err(|e| silent(e.to_string()))?;
            exchange(stream, request).await
        } else {
            exchange(stream, request).await
        };
        let (status, body) = answer.map_err(silent)?;
        if status != StatusCode::OK {
            return Err(UrlError::Status { url: self.url.clone(), status });
        }
        Ok(body)
    }
}

/// TLS that believes the authorities that the system knows.
fn system_tls() -> rustls::ClientConfig {
    let mut roots = RootCertStore::empty();
    for file in AUTHORITIES {
        let found = CertificateDer::pem_file_iter(file).into_iter().flatten().flatten();
        roots.add_parsable_certificates(found);
        if !roots.is_empty() {
            break;
        }
    }
    rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()
}

async fn exchange<S>(
    stream: S,
    request: Request<Empty<bytes::Bytes>>,
) -> Result<(StatusCode, Vec<u8>), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|e| e.to_string())?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(|e| e.to_string())?;
        let status = answer.status();
        let limit = usize::try_from(MAX_MANIFEST).unwrap_or(usize::MAX);
        let body = Limited::new(answer.into_body(), limit).collect().await.map_err(|e| e.to_string())?;
        Ok((status, body.to_bytes().to_vec()))
    };
    // The connection is worked on beside the request. If it ends first, the request knows.
    let work = async {
        let _ = connection.await;
        std::future::pending::<std::convert::Infallible>().await
    };
    tokio::select! {
        answer = answer => answer,
        never = work => match never {},
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    struct Plain;

    impl Manifests for Plain {
        fn read(&self, manifest: &[u8]) -> Result<Vec<Pod>, ManifestError> {
            serde_json::from_slice(manifest).map_err(|e| ManifestError::Unreadable(e.to_string()))
        }
        fn check(&self, _: &Pod) -> Result<(), ManifestError> {
            Ok(())
        }
    }

    /// Answers one request after the other, and says what it was asked.
    async fn serve(listener: TcpListener, answers: Vec<(&'static str, String)>) -> Vec<String> {
        let mut asked = Vec::new();
        for (status, body) in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            asked.push(String::from_utf8(request).unwrap());
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        asked
    }

    #[tokio::test]
    async fn pods_come_from_a_url() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url {
            manifests: Arc::new(Plain),
            url: format!("http://{}/pods?x=1", listener.local_addr().unwrap()),
            headers: vec![("X-Key".into(), "secret".into())],
            node: "n".into(),
            period: Duration::from_secs(20),
            last: Mutex::default(),
        };
        let two = r#"[{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]"#.to_owned();
        let answers = vec![
            ("200 OK", two.clone()),
            ("200 OK", two),
            ("404 Not Found", String::new()),
            ("200 OK", "nonsense".into()),
            ("200 OK", r#"[{"metadata": {"name": "c"}}]"#.into()),
            ("200 OK", String::new()),
        ];
        let server = tokio::spawn(serve(listener, answers));
        let mut read = Vec::new();
        for _ in 0..6 {
            let names =
                |pods: Vec<Pod>| pods.into_iter().map(|p| p.metadata.name.unwrap()).collect::<Vec<_>>();
            read.push(url.read().await.map(names));
        }
        let some = |names: &[&str]| Some(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert_eq!(read, [some(&["a-n", "b-n"]), None, None, None, some(&["c-n"]), some(&[])]);
        let asked = server.await.unwrap();
        assert!(asked[0].starts_with("GET /pods?x=1 HTTP/1.1\r\n"), "{}", asked[0]);
        assert!(asked[0].to_lowercase().contains("x-key: secret\r\n"));
        assert!(url.read().await.is_none(), "nobody answers any more");
    }

    #[tokio::test]
    async fn what_is_no_url_is_told() {
        for text in ["", "host/path", "ftp://h/", "http://"] {
            let url = Url {
                manifests: Arc::new(Plain),
                url: text.into(),
                headers: Vec::new(),
                node: "n".into(),
                period: Duration::from_secs(20),
                last: Mutex::default(),
            };
            assert!(matches!(url.get().await, Err(UrlError::Url(_))), "{text}");
        }
    }
}
