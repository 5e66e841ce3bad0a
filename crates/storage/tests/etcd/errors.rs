//! Errors are one sentence each, with the remedy.

use std::path::Path;
use std::process::Command;

use super::*;
use crate::suite::{pods, try_create};

async fn refused(servers: EtcdServers) -> String {
    match open_at(servers, "/registry").await {
        Ok(_) => panic!("it opened"),
        Err(e) => e.to_string(),
    }
}

fn at(url: &str) -> EtcdServers {
    EtcdServers { endpoints: vec![url.to_owned()], ..EtcdServers::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_there() {
    let error = refused(at("http://127.0.0.1:1")).await;
    assert_eq!(
        error,
        "cannot reach etcd at http://127.0.0.1:1: Connection refused (os error 111): start it, or correct --etcd-servers"
    );
    let error = refused(at("127.0.0.1:1")).await;
    assert!(error.contains("is not a URL of etcd: want http://HOST:PORT"), "{error}");
    let error = refused(EtcdServers::default()).await;
    assert!(error.contains("names no server"), "{error}");
}

/// Something that is not etcd answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_else_is_there() {
    use tokio::io::AsyncWriteExt;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
        }
    });
    let error = refused(at(&url)).await;
    assert!(error.contains(&url), "{error}");
}

fn openssl(dir: &Path, args: &[&str]) {
    let out = Command::new("openssl").current_dir(dir).args(args).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

/// Makes `NAME.key` and `NAME.crt`, signed by `ca`, or by themselves.
fn certificate(dir: &Path, name: &str, ca: Option<&str>, subject: &str) {
    let (key, request, file) = (format!("{name}.key"), format!("{name}.csr"), format!("{name}.crt"));
    match ca {
        None => openssl(
            dir,
            &[
                "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", &key, "-out", &file, "-subj",
                subject,
            ],
        ),
        Some(ca) => {
            openssl(
                dir,
                &[
                    "req", "-newkey", "rsa:2048", "-nodes", "-keyout", &key, "-out", &request, "-subj",
                    subject,
                ],
            );
            std::fs::write(dir.join("names"), "subjectAltName=IP:127.0.0.1").unwrap();
            let (ca_crt, ca_key) = (format!("{ca}.crt"), format!("{ca}.key"));
            openssl(
                dir,
                &[
                    "x509",
                    "-req",
                    "-in",
                    &request,
                    "-CA",
                    &ca_crt,
                    "-CAkey",
                    &ca_key,
                    "-CAcreateserial",
                    "-extfile",
                    "names",
                    "-out",
                    &file,
                ],
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    certificate(dir.path(), "ca", None, "/CN=ca");
    certificate(dir.path(), "other", None, "/CN=other");
    certificate(dir.path(), "server", Some("ca"), "/CN=etcd");
    certificate(dir.path(), "client", Some("ca"), "/CN=root");
    certificate(dir.path(), "stranger", Some("other"), "/CN=root");
    let flag = |name: &str, file: &str| format!("--{name}={}", path(file).display());
    let flags = [
        flag("cert-file", "server.crt"),
        flag("key-file", "server.key"),
        flag("trusted-ca-file", "ca.crt"),
        "--client-cert-auth".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let etcd = Etcd::start_with(&flags, "https").unwrap();
    let with = |ca: &str, own: &str| EtcdServers {
        endpoints: etcd.urls(),
        ca_file: Some(path(ca)),
        cert_file: Some(path(&format!("{own}.crt"))),
        key_file: Some(path(&format!("{own}.key"))),
    };
    let s = open_at(with("ca.crt", "client"), "/registry").await.unwrap();
    try_create(&s, pods(&s), "ns", "a", "").await.unwrap();
    let error = refused(with("other.crt", "client")).await;
    assert!(
        error.ends_with("was not signed by the authority of --etcd-cafile: name the one that signed it"),
        "{error}"
    );
    let error = refused(with("ca.crt", "stranger")).await;
    assert!(
        error.contains("may not accept the certificate of --etcd-certfile")
            || error.contains("check --etcd-certfile"),
        "{error}"
    );
    let plain = at(&etcd.urls()[0].replace("https", "http"));
    let error = refused(plain).await;
    assert!(error.contains("https:// in --etcd-servers"), "{error}");
    let nameless = EtcdServers {
        endpoints: vec![etcd.urls()[0].replace("127.0.0.1", "localhost")],
        ..with("ca.crt", "client")
    };
    let error = refused(nameless).await;
    assert!(error.contains("is not for that name"), "{error}");
    let clear = Etcd::start(1).unwrap();
    let secure =
        EtcdServers { endpoints: vec![clear.urls()[0].replace("http", "https")], ..with("ca.crt", "client") };
    let error = refused(secure).await;
    assert!(error.contains("does not speak TLS, use http:// in --etcd-servers"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users() {
    let etcd = Etcd::start(1).unwrap();
    for args in [
        &["user", "add", "root", "--new-user-password=x"][..],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        etcd.etcdctl(args).unwrap();
    }
    let error = refused(at(&etcd.urls()[0])).await;
    assert!(
        error.starts_with(
            "etcd refused access (etcdserver: user name is empty): give the user that the certificate of"
        ),
        "{error}"
    );
}

/// A full etcd takes no writes and tells the remedy; reads go on, and writes too once there is room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_space() {
    let etcd = Etcd::start_with(&["--unsafe-no-fsync", "--quota-backend-bytes=2097152"], "http").unwrap();
    let s = open(&etcd, "/registry").await;
    let r = pods(&s);
    let big = "x".repeat(200_000);
    let mut error = String::new();
    for n in 0..100 {
        let object = suite::object("ns", &format!("o{n}"), "", &big);
        if let Err(e) = s.commit(ferrokube_storage::Write::Create { resource: r, object, ttl: None }).await {
            error = e.to_string();
            break;
        }
    }
    assert!(error.contains("its alarm NOSPACE is on: free space with `etcdctl compact`"), "{error}");
    s.fresh(&[r]).await.unwrap();
    let first = s.get(r, "ns", "o0").unwrap();
    assert!(suite::delete(&s, r, &first).await.is_ok(), "a write that frees space is allowed");
}

/// A value that is larger than etcd takes is refused, and others are not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_large() {
    let etcd = Etcd::start(1).unwrap();
    let s = open(&etcd, "/registry").await;
    let r = pods(&s);
    let object = suite::object("ns", "big", "", &"x".repeat(2_000_000));
    let refused = s.commit(ferrokube_storage::Write::Create { resource: r, object, ttl: None }).await;
    assert!(refused.unwrap_err().to_string().contains("request is too large"));
    try_create(&s, r, "ns", "small", "").await.unwrap();
}
