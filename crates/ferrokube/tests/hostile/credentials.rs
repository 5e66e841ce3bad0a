//! Credentials of a caller stay with the API server, wherever it forwards the request.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::json;
use testkit::{Cluster, Options};

/// The address of a test's host.
const HOST: &str = "192.0.2.10";
const PORT: u16 = 8080;

/// A server on a cluster's host that returns the heads of the requests that it got.
fn backend(cluster: &Cluster) -> Result<Receiver<Vec<String>>> {
    let (told, heads) = channel();
    let listener = cluster.host().inside()?.within(|| Ok(TcpListener::bind((HOST, PORT))?))?;
    std::thread::spawn(move || -> Result<()> {
        for stream in listener.incoming() {
            let mut stream = stream?;
            let lines = BufReader::new(stream.try_clone()?).lines();
            let head: Vec<String> = lines
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .map(|l| l.to_lowercase())
                .collect();
            let upgrade = head.iter().any(|line| line == "upgrade: websocket");
            told.send(head)?;
            let (status, header) = if upgrade {
                ("101 Switching Protocols", "Connection: Upgrade\r\nUpgrade: websocket\r\n")
            } else {
                ("200 OK", "Connection: close\r\nContent-Length: 0\r\n")
            };
            write!(stream, "HTTP/1.1 {status}\r\n{header}\r\n")?;
        }
        Ok(())
    });
    Ok(heads)
}

/// Makes a caller that may do everything, and a Node, a Pod and a Service whose proxies lead to the backend.
fn targets(cluster: &Cluster) -> Result<()> {
    let apply = |object: serde_json::Value| {
        let file = cluster.host().path("object.json");
        std::fs::write(&file, object.to_string())?;
        cluster.kubectl(&["create", "-f", file.to_str().context("the path")?])
    };
    let meta = json!({"name": "target", "namespace": "default", "labels": {"a": "b"}});
    apply(
        json!({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "caller", "namespace": "default"}}),
    )?;
    let binding = ["create", "clusterrolebinding", "caller", "--clusterrole=cluster-admin"];
    cluster.kubectl(&[&binding[..], &["--serviceaccount=default:caller"]].concat())?;
    apply(json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "target"}}))?;
    let containers = json!([{"name": "c", "image": "i"}]);
    apply(json!({"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": {
        "containers": containers, "nodeName": "target", "automountServiceAccountToken": false}}))?;
    let port = json!([{"name": "p", "port": 80, "targetPort": PORT}]);
    apply(json!({"kind": "Service", "apiVersion": "v1", "metadata": meta, "spec": {"ports": port}}))?;
    apply(json!({"kind": "Endpoints", "apiVersion": "v1", "metadata": meta, "subsets": [{
        "addresses": [{"ip": HOST, "targetRef": {"kind": "Pod", "namespace": "default", "name": "target"}}],
        "ports": [{"name": "p", "port": PORT}]}]}))?;
    let status = |of: &str, status: serde_json::Value| {
        let patch = json!({ "status": status }).to_string();
        cluster.kubectl(&["patch", of, "target", "--subresource=status", "--type=merge", "-p", &patch])
    };
    status("node", json!({"addresses": [{"type": "InternalIP", "address": HOST}]}))?;
    status("pod", json!({"podIP": HOST, "podIPs": [{"ip": HOST}], "phase": "Running"}))?;
    Ok(())
}

#[test]
fn they_never_reach_what_is_behind() -> Result<()> {
    let options = Options { control_plane_only: true, ..Options::default() };
    let cluster = Cluster::start("credentials", options)?;
    let heads = backend(&cluster)?;
    targets(&cluster)?;
    let token = cluster.kubectl(&["create", "token", "caller"])?.trim().to_owned();
    let protocol = format!("base64url.bearer.authorization.k8s.io.{}", BASE64_URL_SAFE_NO_PAD.encode(&token));
    let authorization = format!("Authorization: Bearer {token}");
    let protocols = format!("Sec-WebSocket-Protocol: mine, {protocol}");
    let by_header = ["-H", &authorization, "-H", &protocols];
    let upgrade = ["-H", "Connection: Upgrade, X-Hop", "-H", "Upgrade: websocket", "-H", "X-Hop: 1"];
    let by_protocol = ["-H", &protocols];
    let others = [
        "-H",
        "X-Remote-User: root",
        "-H",
        "X-Remote-Group: system:masters",
        "-H",
        "X-Remote-Uid: 1",
        "-H",
        "X-Remote-Extra-Scopes: all",
        "-H",
        "Proxy-Authorization: Basic x",
        "-H",
        "Impersonate-User: caller2",
        "-H",
        "Impersonate-Group: system:masters",
        "-H",
        "X-Forwarded-For: 198.51.100.1",
        "-H",
        "X-Mine: 1",
    ];
    let path = "https://127.0.0.1:6443/api/v1";
    for target in [
        format!("{path}/namespaces/default/pods/target:{PORT}/proxy/x"),
        format!("{path}/namespaces/default/services/target:p/proxy/x"),
        format!("{path}/nodes/target:{PORT}/proxy/x"),
    ] {
        for (version, how, upgraded) in [
            ("--http1.1", &by_header[..], false),
            ("--http2", &by_header[..], false),
            ("--http1.1", &[&by_header[..], &upgrade[..]].concat(), true),
            ("--http1.1", &[&by_protocol[..], &upgrade[..]].concat(), true),
        ] {
            let mut curl = cluster.host().command("curl");
            curl.args([
                "-q",
                "-k",
                "-s",
                "-o",
                "/dev/null",
                "--max-time",
                "20",
                "-w",
                "%{http_code}",
                version,
                &target,
            ]);
            let out = curl.args(how).args(others).output()?;
            let code = String::from_utf8_lossy(&out.stdout).into_owned();
            ensure!(code == if upgraded { "101" } else { "200" }, "{target}: {code}");
            let head = heads.recv_timeout(Duration::from_secs(20)).with_context(|| target.clone())?;
            let has = |line: &str| head.iter().any(|l| l == line);
            for secret in [
                token.to_lowercase().as_str(),
                "bearer",
                "authorization",
                "impersonate-",
                "x-remote-",
                "caller",
                "system:masters",
            ] {
                ensure!(
                    !head.iter().any(|line| line.contains(secret)),
                    "{secret} reaches {target}: {head:?}"
                );
            }
            ensure!(has("sec-websocket-protocol: mine") && has("x-mine: 1"), "{head:?}");
            ensure!(has("x-forwarded-for: 198.51.100.1, 127.0.0.1"), "{head:?}");
        }
    }
    Ok(())
}
