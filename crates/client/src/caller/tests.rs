//! The credentials in a kubeconfig, as a real server sees them.

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use api::Status;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::tls::AnyCertificate;
use crate::{Config, Remote};

/// A certificate for `localhost` and its key, PEM.
fn pair() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

/// A request as a server saw it.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    path: String,
    /// The headers that say who asks, `name: value`.
    headers: Vec<String>,
    /// The certificate that was shown.
    certificate: Option<Vec<u8>>,
}

impl Seen {
    fn of(request: &Request<Incoming>, certificate: Option<Vec<u8>>) -> Self {
        let named = |name: &str| name == "authorization" || name.starts_with("impersonate-");
        let headers = request.headers().iter().filter(|(name, _)| named(name.as_str()));
        let mut headers: Vec<String> =
            headers.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        headers.sort_unstable();
        Self { path: request.uri().path().to_owned(), headers, certificate }
    }
}

struct Server {
    port: u16,
    authority: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// A server that answers 401 to the bearer token `old`, and 200 else.
    async fn start() -> Self {
        let (chain, key) = pair();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(Arc::new(AnyCertificate::new(provider)))
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let tls = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let all = Arc::clone(&seen);
        tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let (tls, seen) = (tls.clone(), Arc::clone(&all));
                tokio::spawn(async move {
                    let Ok(tls) = tls.accept(tcp).await else { return };
                    let shown = tls.get_ref().1.peer_certificates().map(|c| c[0].to_vec());
                    let answer = service_fn(move |request: Request<Incoming>| {
                        let one = Seen::of(&request, shown.clone());
                        let old = one.headers.iter().any(|h| h == "authorization: Bearer old");
                        seen.lock().push(one);
                        let mut answer = Response::new(Full::new(Bytes::from_static(b"{}")));
                        if old {
                            *answer.status_mut() = http::StatusCode::UNAUTHORIZED;
                        }
                        async { Ok::<_, Infallible>(answer) }
                    });
                    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(tls), answer)
                        .await;
                });
            }
        });
        Self { port, authority: chain, seen }
    }
}

/// A client by a kubeconfig with these fields of the cluster and of the user.
fn client(dir: &Path, server: &Server, cluster: &str, user: &str) -> Remote {
    let authority = STANDARD.encode(&server.authority);
    let text = format!(
        "clusters: [{{name: c, cluster: {{server: 'https://localhost:{}/prefix/', {} {cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n",
        server.port,
        if cluster.contains("insecure") {
            String::new()
        } else {
            format!("certificate-authority-data: {authority},")
        },
    );
    let file = dir.join("config");
    fs::write(&file, text).unwrap();
    Remote::new(Config::from_kubeconfig(&file, None).unwrap()).unwrap()
}

/// Asks; what the server saw of it.
async fn ask(remote: &Remote, server: &Server) -> (u16, Seen) {
    let answer = remote.send(Method::GET, "/version", None, Bytes::new()).await;
    let code = answer.unwrap().status().as_u16();
    (code, server.seen.lock().last().cloned().unwrap())
}

fn put(file: &Path, text: &str, mode: u32) {
    fs::write(file, text).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn users() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start().await;
    let check = async |cluster: &str, user: &str, expected: &[&str]| {
        let (code, seen) = ask(&client(dir.path(), &server, cluster, user), &server).await;
        assert_eq!((code, seen.path.as_str()), (200, "/prefix/version"));
        assert_eq!(seen.headers, expected, "{user}");
        assert_eq!(seen.certificate, None);
    };
    check("", "", &[]).await;
    check("", "token: t", &["authorization: Bearer t"]).await;
    check("insecure-skip-tls-verify: true", "token: t", &["authorization: Bearer t"]).await;
    check("tls-server-name: localhost", "username: u, password: p", &["authorization: Basic dTpw"]).await;
    put(&dir.path().join("token"), " f\n", 0o600);
    check("", "tokenFile: token", &["authorization: Bearer f"]).await;
    check("", "token: t, tokenFile: token", &["authorization: Bearer f"]).await;
    let as_other = "token: t, as: jane, as-uid: '7', as-groups: [a, b], as-user-extra: {example.com/Key: [v, w], none: null}";
    check(
        "",
        as_other,
        &[
            "authorization: Bearer t",
            "impersonate-extra-example.com%2fkey: v",
            "impersonate-extra-example.com%2fkey: w",
            "impersonate-group: a",
            "impersonate-group: b",
            "impersonate-uid: 7",
            "impersonate-user: jane",
        ],
    )
    .await;
}

#[tokio::test]
async fn programs() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start().await;
    let (chain, key) = pair();
    let status =
        serde_json::json!({"token": "$(cat token)", "clientCertificateData": chain, "clientKeyData": key});
    let text = serde_json::json!({
        "kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1beta1", "status": status,
    });
    let at = dir.path().display();
    let plugin = format!("#!/bin/sh\ncd {at}\ntoken=$(cat token)\nsed \"s/@/$token/\" answer\n");
    put(&dir.path().join("plugin"), &plugin, 0o755);
    put(&dir.path().join("answer"), &text.to_string().replace("$(cat token)", "@"), 0o600);
    put(&dir.path().join("token"), "old", 0o600);
    let user = "exec: {command: ./plugin, apiVersion: client.authentication.k8s.io/v1beta1}";
    let remote = client(dir.path(), &server, "", user);
    put(&dir.path().join("token"), "new", 0o600);
    let (code, seen) = ask(&remote, &server).await;
    assert_eq!((code, &seen.headers[..]), (200, &["authorization: Bearer new".to_owned()][..]));
    assert!(seen.certificate.is_some());

    // A server that refuses gets what the program says next.
    put(&dir.path().join("token"), "old", 0o600);
    let remote = client(dir.path(), &server, "", user);
    // The program says something else by the time at which it is asked again.
    put(&dir.path().join("plugin"), &format!("{plugin}printf next > token\n"), 0o755);
    assert_eq!(ask(&remote, &server).await.0, 401);
    let (code, seen) = ask(&remote, &server).await;
    assert_eq!((code, &seen.headers[..]), (200, &["authorization: Bearer next".to_owned()][..]));

    // Credentials of its own go before a program, which is not run.
    put(&dir.path().join("plugin"), "#!/bin/sh\nexit 3\n", 0o755);
    let own = client(dir.path(), &server, "", &format!("token: t, {user}"));
    assert_eq!(ask(&own, &server).await.1.headers, ["authorization: Bearer t"]);
    let failing = client(dir.path(), &server, "", user);
    let Status { message, .. } = failing.send(Method::GET, "/", None, Bytes::new()).await.unwrap_err();
    let wanted = format!("getting credentials: exec: executable {at}/plugin failed with exit code 3");
    assert!(message.contains(&wanted), "{message}");
}

#[tokio::test]
async fn files_of_certificates_are_looked_at_again() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start().await;
    let put_pair = |(chain, key): (String, String)| {
        put(&dir.path().join("c"), &chain, 0o600);
        put(&dir.path().join("k"), &key, 0o600);
    };
    put_pair(pair());
    let remote = client(dir.path(), &server, "", "client-certificate: c, client-key: k");
    let first = ask(&remote, &server).await.1.certificate.unwrap();
    put_pair(pair());
    assert_eq!(ask(&remote, &server).await.1.certificate.as_ref(), Some(&first));
    tokio::time::pause();
    tokio::time::advance(FILES_AGE).await;
    tokio::time::resume();
    let next = ask(&remote, &server).await.1.certificate.unwrap();
    assert_ne!(next, first);
}

#[tokio::test]
async fn through_a_proxy() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let port = server.port;
    let proxy = tokio::spawn(async move {
        let mut heads = Vec::new();
        for answer in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 403 Forbidden\r\n\r\n"] {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(near.read_u8().await.unwrap());
            }
            heads.push(String::from_utf8(head).unwrap());
            near.write_all(answer.as_bytes()).await.unwrap();
            if answer.contains("200") {
                let mut far = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                tokio::spawn(async move { copy_bidirectional(&mut near, &mut far).await });
            }
        }
        heads
    });
    let by = |dir: &Path| client(dir, &server, &format!("proxy-url: 'http://u:p@{address}'"), "token: t");
    assert_eq!(ask(&by(dir.path()), &server).await.0, 200);
    let refused = by(dir.path()).send(Method::GET, "/", None, Bytes::new()).await.unwrap_err();
    assert!(refused.message.ends_with(": Forbidden"), "{}", refused.message);
    let head = format!(
        "CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost:{port}\r\nProxy-Authorization: Basic dTpw\r\n\r\n"
    );
    assert_eq!(proxy.await.unwrap(), [head.clone(), head]);
}

#[tokio::test]
async fn token_files() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    tokio::time::pause();
    let user = User { token_file: file.clone(), ..User::default() };
    let missing = Caller::of(&user, || Ok(None)).unwrap_err();
    assert!(missing.to_string().starts_with("unable to read "), "{missing}");
    fs::write(&file, "one").unwrap();
    let caller = Caller::of(&user, || Ok(None)).unwrap();
    let shown = async || {
        let shown = caller.prepare().await.unwrap();
        shown.authorization.unwrap().to_str().unwrap().to_owned()
    };
    assert_eq!(shown().await, "Bearer one");
    fs::write(&file, "two").unwrap();
    assert_eq!(shown().await, "Bearer one");
    tokio::time::advance(TOKEN_AGE).await;
    assert_eq!(shown().await, "Bearer two");
    // An older one may be good still.
    for broken in ["", "\n"] {
        fs::write(&file, broken).unwrap();
        tokio::time::advance(TOKEN_AGE).await;
        assert_eq!(shown().await, "Bearer two");
    }
    fs::write(&file, "three").unwrap();
    assert_eq!(shown().await, "Bearer three");
}

#[test]
fn users_that_cannot_be() {
    let check = |user: User, expected: &str| {
        assert_eq!(Caller::of(&user, || Ok(None)).unwrap_err().to_string(), expected);
    };
    let user = User { auth_provider: Some(serde_json::json!({"name": "oidc"})), ..User::default() };
    check(user, "auth provider not supported");
    let user = User { token: "t".into(), username: "u".into(), ..User::default() };
    check(user, "username/password or bearer token may be set, but not both");
    let user = User { impersonate: "a\nb".into(), ..User::default() };
    check(user, "net/http: invalid header field value for \"Impersonate-User\"");
}
