//! A user that writes the address of a Node or a Pod cannot thereby reach addresses that only the server's machine
//! reaches.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use serde_json::json;
use testkit::Server;

use crate::hostile::alive::serves_others;

/// Spellings of 127.0.0.1, and other addresses of this machine or its link.
const HERE: [&str; 18] = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "localhost",
    "0x7f000001",
    "0x7f.1",
    "2130706433",
    "0177.0.0.1",
    "0",
    "0.0.0.0",
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "::127.0.0.1",
    "169.254.169.254",
    "fe80::1",
    "224.0.0.1",
];

/// A listener that must not be reached; returns its port, and the number of connections that it got.
fn bait() -> Result<(u16, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind("0.0.0.0:0")?;
    let port = listener.local_addr()?.port();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
            if let Ok(mut stream) = stream {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret");
            }
        }
    });
    Ok((port, count))
}

/// Makes a Node with an address and a kubelet's port.
fn node(server: &Server, name: &str, address: &str, port: u16) -> Result<()> {
    server.create("/api/v1/nodes", &json!({"metadata": {"name": name}}))?;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }});
    server.patch(&format!("/api/v1/nodes/{name}/status"), "merge", &status).send()?.expect(200)?;
    Ok(())
}

#[test]
fn a_node_at_the_servers_own_machine_is_not_proxied_to() -> Result<()> {
    let server = Server::start(&[])?;
    let (bait, reached) = bait()?;
    let api = server.port();
    for (i, address) in HERE.iter().enumerate() {
        let name = format!("n{i}");
        // The Node's kubelet is the API server itself, which would accept the server's own certificate.
        node(&server, &name, address, api)?;
        for path in [
            format!("/api/v1/nodes/{name}/proxy/api/v1/secrets"),
            format!("/api/v1/nodes/{name}:{api}/proxy/api/v1/secrets"),
            format!("/api/v1/nodes/https:{name}:{api}/proxy/version"),
            format!("/api/v1/nodes/{name}:{bait}/proxy/"),
            format!("/api/v1/nodes/http:{name}:{bait}/proxy/"),
        ] {
            let answer = server.get(&path).send()?;
            // A name that the machine's resolver does not take leads nowhere, either.
            ensure!(answer.status == 400, "{address} {path}: {} {}", answer.status, answer.text());
            ensure!(!answer.text().contains("secret\""), "{address} {path}: {}", answer.text());
        }
    }
    ensure!(reached.load(Ordering::SeqCst) == 0, "something of this machine was reached");
    let said = server.get("/api/v1/nodes/n3/proxy/").send()?.json()?;
    ensure!(said["message"] == "address not allowed" && said["reason"] == "BadRequest", "{said}");
    serves_others(&server)
}

#[test]
fn logs_and_streams_lead_to_kubelets_only() -> Result<()> {
    let server = Server::start(&[])?;
    server.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}))?;
    let (bait, reached) = bait()?;
    for (i, port) in [server.port(), bait].into_iter().enumerate() {
        for (j, address) in ["127.0.0.1", "localhost", "::ffff:127.0.0.1", "0.0.0.0"].into_iter().enumerate()
        {
            let name = format!("n{i}-{j}");
            node(&server, &name, address, port)?;
            let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": name, "containers": [{"name": "c", "image": "i"}]}});
            server.create("/api/v1/namespaces/default/pods", &pod)?;
            let of = format!("/api/v1/namespaces/default/pods/{name}");
            for path in [format!("{of}/log"), format!("{of}/log?insecureSkipTLSVerifyBackend=true")] {
                let answer = server.get(&path).send()?;
                ensure!(answer.status == 400, "{address} {path}: {} {}", answer.status, answer.text());
            }
            for path in [
                format!("{of}/exec?command=x&stdout=1"),
                format!("{of}/attach?stdout=1"),
                format!("{of}/portforward"),
            ] {
                let upgrade = server
                    .request("POST", &path)
                    .header("Connection", "Upgrade")
                    .header("Upgrade", "SPDY/3.1");
                let answer = upgrade.flag("--http1.1").send()?;
                ensure!(answer.status == 400, "{address} {path}: {} {}", answer.status, answer.text());
            }
        }
    }
    ensure!(reached.load(Ordering::SeqCst) == 0, "something of this machine was reached");
    serves_others(&server)
}

#[test]
fn a_pod_with_an_address_of_the_servers_machine_is_not_proxied_to() -> Result<()> {
    let server = Server::start(&[])?;
    server.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}))?;
    let (bait, reached) = bait()?;
    for (i, ip) in ["127.0.0.1", "::1", "169.254.169.254", "::ffff:127.0.0.1"].into_iter().enumerate() {
        let name = format!("p{i}");
        let pod = json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
        server.create("/api/v1/namespaces/default/pods", &pod)?;
        let of = format!("/api/v1/namespaces/default/pods/{name}");
        let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}});
        let set = server.patch(&format!("{of}/status"), "merge", &status).send()?;
        if set.status != 200 {
            // A malformed address is not stored.
            ensure!(set.status == 422 && ip.starts_with("::ffff"), "{ip}: {} {}", set.status, set.text());
            continue;
        }
        let answer = server.get(&format!("/api/v1/namespaces/default/pods/{name}:{bait}/proxy/")).send()?;
        ensure!(answer.status == 400, "{ip}: {} {}", answer.status, answer.text());
        ensure!(answer.json()?["message"] == "address not allowed", "{ip}");
    }
    ensure!(reached.load(Ordering::SeqCst) == 0, "something of this machine was reached");
    serves_others(&server)
}

/// The certificate that the server shows to kubelets gives access to kubelets, and to nothing else.
#[test]
fn who_calls_kubelets_is_no_superuser() -> Result<()> {
    let server = Server::start(&[])?;
    let pki = server.path("data").join("pki");
    let ask = |verb: &str, resource: &str, subresource: &str| -> Result<bool> {
        let review = json!({"spec": {"resourceAttributes": {"verb": verb, "resource": resource, "subresource": subresource}}});
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let request = server.with_certificate(
            "POST",
            path,
            &pki.join("apiserver-kubelet-client.crt"),
            &pki.join("apiserver-kubelet-client.key"),
        );
        Ok(request.json(&review).send()?.expect(201)?.json()?["status"]["allowed"] == true)
    };
    for (verb, resource, subresource, allowed) in [
        ("create", "nodes", "proxy", true),
        ("get", "nodes", "proxy", true),
        ("get", "nodes", "stats", true),
        ("get", "nodes", "log", true),
        ("get", "nodes", "metrics", true),
        ("get", "secrets", "", false),
        ("create", "pods", "", false),
        ("impersonate", "users", "", false),
        ("update", "nodes", "status", false),
    ] {
        ensure!(ask(verb, resource, subresource)? == allowed, "{verb} {resource}/{subresource}");
    }
    Ok(())
}
