//! Those who join, and those who only say so: bootstrap tokens, and certificates that a node may not have.

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::{Value, json};
use testkit::{Answer, Server, eventually};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";

/// The Secret of a token for nodes.
fn secret(id: &str) -> Value {
    json!({
        "metadata": {"name": format!("bootstrap-token-{id}")}, "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true", "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
        },
    })
}

/// A request with a bearer token.
fn with_token(
    server: &Server,
    token: &str,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Answer> {
    let request = server.anonymous(method, path).header("Authorization", &format!("Bearer {token}"));
    match body {
        Some(body) => request.json(body).send(),
        None => request.send(),
    }
}

/// A certificate request.
struct Asks<'a> {
    user: &'a str,
    group: Option<&'a str>,
    names: &'a [&'a str],
    addresses: &'a [&'a str],
    signer: &'a str,
    purpose: &'a str,
    seconds: Option<u32>,
}

impl Asks<'_> {
    fn object(&self) -> Result<(Value, KeyPair)> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        if let Some(group) = self.group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.distinguished_name.push(DnType::CommonName, self.user);
        for name in self.names {
            params.subject_alt_names.push(SanType::DnsName((*name).try_into()?));
        }
        for address in self.addresses {
            params.subject_alt_names.push(SanType::IpAddress(address.parse()?));
        }
        let key = KeyPair::generate()?;
        let pem = params.serialize_request(&key)?.pem()?;
        let mut object = json!({
            "metadata": {"generateName": "csr-"},
            "spec": {
                "request": BASE64_STANDARD.encode(pem), "signerName": self.signer,
                "usages": ["digital signature", self.purpose],
            },
        });
        if let Some(seconds) = self.seconds {
            object["spec"]["expirationSeconds"] = seconds.into();
        }
        Ok((object, key))
    }
}

fn node_client(user: &str) -> Asks<'_> {
    Asks {
        user,
        group: Some("system:nodes"),
        names: &[],
        addresses: &[],
        signer: KUBELET_CLIENT,
        purpose: "client auth",
        seconds: None,
    }
}

/// The certificate of a request, once it is signed.
fn signed(server: &Server, name: &str) -> Result<String> {
    let pem = eventually("a signed certificate", || {
        let csr = server.get(&format!("{REQUESTS}/{name}")).send()?.expect(200)?.json()?;
        Ok(csr["status"]["certificate"].as_str().map(ToOwned::to_owned))
    })?;
    Ok(String::from_utf8(BASE64_STANDARD.decode(pem)?)?)
}

/// The name of a request that was made.
fn made(answer: Answer) -> Result<String> {
    let object = answer.expect(201)?.json()?;
    object["metadata"]["name"].as_str().map(ToOwned::to_owned).context("no name")
}

/// Joins a node with a token, and leaves its credentials in the files `NODE.pem` and `NODE.key`.
fn join(server: &Server, token: &str, node: &str) -> Result<()> {
    let user = format!("system:node:{node}");
    let (object, key) = node_client(&user).object()?;
    let name = made(with_token(server, token, "POST", REQUESTS, Some(&object))?)?;
    std::fs::write(server.path(&format!("{node}.pem")), signed(server, &name)?)?;
    Ok(std::fs::write(server.path(&format!("{node}.key")), key.serialize_pem())?)
}

#[test]
fn a_token_is_good_for_joining_alone_and_only_while_it_is_there() -> Result<()> {
    let server = Server::start_as("server", &[])?;
    // The rights of those who join come a moment after the server.
    eventually("the last of the objects", || Ok((server.get(INFO).send()?.status == 200).then_some(())))?;
    let good = "abcdef.0123456789abcdef";
    let code = |token: &str, path: &str| {
        Ok::<_, anyhow::Error>(with_token(&server, token, "GET", path, None)?.status)
    };
    ensure!(code(good, REQUESTS)? == 401, "a token of nobody");
    server.create(SECRETS, &secret("abcdef"))?;
    ensure!(code(good, REQUESTS)? == 200);
    for foreign in ["abcdef.0123456789abcdee", "abcdeg.0123456789abcdef", "abcdef.0123456789abcde", "abcdef"]
    {
        ensure!(code(foreign, REQUESTS)? == 401, "{foreign}");
    }
    for path in [
        SECRETS,
        "/api/v1/pods",
        "/api/v1/namespaces/kube-system/configmaps",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ] {
        ensure!(code(good, path)? == 403, "{path}");
    }
    // Tokens that say something else than they are: expired, of another use, of another type, with a group of superusers.
    let change = |id: &str, key: &str, value: &str| -> Result<u16> {
        let mut object = secret(id);
        object["stringData"][key] = value.into();
        server.create(SECRETS, &object)?;
        code(&format!("{id}.0123456789abcdef"), REQUESTS)
    };
    ensure!(change("expire", "expiration", "2020-01-01T00:00:00Z")? == 401, "an expired token");
    ensure!(change("usages", "usage-bootstrap-authentication", "false")? == 401, "a token to sign with");
    let mut opaque = secret("opaque");
    opaque["type"] = "Opaque".into();
    server.create(SECRETS, &opaque)?;
    ensure!(code("opaque.0123456789abcdef", REQUESTS)? == 401, "a Secret of another type");
    // A node joins; the token makes nothing else.
    join(&server, good, "n")?;
    for (user, group, signer) in [
        ("admin", Some("system:masters"), CLIENT),
        ("system:kube-proxy", None, CLIENT),
        ("system:node:m", Some("system:masters"), KUBELET_CLIENT),
    ] {
        let asks = Asks { group, signer, seconds: Some(600), ..node_client(user) };
        let answer = with_token(&server, good, "POST", REQUESTS, Some(&asks.object()?.0))?;
        if answer.status == 201 {
            let name = made(answer)?;
            // A later request is signed meanwhile: this is not only slow.
            join(&server, good, "later")?;
            let csr = server.get(&format!("{REQUESTS}/{name}")).send()?.json()?;
            ensure!(csr["status"].get("conditions").is_none(), "{user}: {csr}");
        } else {
            ensure!(answer.status == 403, "{user}: {}", answer.text());
        }
    }
    // A revoked token is refused by the next request; what it brought stays.
    server.request("DELETE", &format!("{SECRETS}/bootstrap-token-abcdef")).send()?.expect(200)?;
    ensure!(code(good, REQUESTS)? == 401, "a revoked token");
    let (pem, key) = (server.path("n.pem"), server.path("n.key"));
    server.with_certificate("GET", REQUESTS, &pem, &key).send()?.expect(200)?;
    // The cleaner removes what has expired.
    eventually("the expired token is removed", || {
        Ok((server.get(&format!("{SECRETS}/bootstrap-token-expire")).send()?.status == 404).then_some(()))
    })
}

#[test]
fn strangers_see_where_the_cluster_is_and_nothing_else() -> Result<()> {
    let server = Server::start_as("server", &[])?;
    let data = |key: &str| -> Result<Option<String>> {
        let map = server.anonymous("GET", INFO).send()?.expect(200)?.json()?;
        Ok(map["data"][key].as_str().map(ToOwned::to_owned))
    };
    let kubeconfig = eventually("cluster-info", || data("kubeconfig"))?;
    ensure!(
        kubeconfig.contains("certificate-authority-data") && !kubeconfig.contains("key-data"),
        "{kubeconfig}"
    );
    server.create(SECRETS, &secret("abcdef"))?;
    eventually("the token's signature", || data("jws-kubeconfig-abcdef"))?;
    for path in [
        "/api/v1/namespaces/kube-public/configmaps",
        "/api/v1/namespaces/kube-system/configmaps/kubeadm-config",
        SECRETS,
        REQUESTS,
    ] {
        let answer = server.anonymous("GET", path).send()?;
        ensure!(answer.status == 403, "{path}: {}", answer.status);
    }
    let answer = server
        .anonymous("PATCH", INFO)
        .body("application/merge-patch+json", r#"{"data":{"kubeconfig":"mine"}}"#);
    ensure!(answer.send()?.status == 403);
    server.request("DELETE", &format!("{SECRETS}/bootstrap-token-abcdef")).send()?.expect(200)?;
    eventually("the signature goes", || Ok(data("jws-kubeconfig-abcdef")?.is_none().then_some(())))
}

/// A thief of a node's certificate gets nothing that reaches further than the node.
#[test]
fn a_stolen_node_certificate_does_not_climb() -> Result<()> {
    let server = Server::start_as("server", &[])?;
    server.create(SECRETS, &secret("abcdef"))?;
    eventually("a node joins", || join(&server, "abcdef.0123456789abcdef", "n").map(Some))?;
    let (pem, key) = (server.path("n.pem"), server.path("n.key"));
    let ask = |method: &str, path: &str, body: &Value| {
        server.with_certificate(method, path, &pem, &key).json(body).send()
    };
    ask("POST", "/api/v1/nodes", &json!({"metadata": {"name": "n"}}))?.expect(201)?;
    // It says that it has the addresses of others.
    let reports = ["192.0.2.77", "10.96.0.1", "127.0.0.1", "10.244.3.4"];
    let mut addresses: Vec<Value> =
        reports.iter().map(|a| json!({"type": "InternalIP", "address": a})).collect();
    for name in ["n", "kubernetes", "kubernetes.default.svc", "localhost"] {
        addresses.push(json!({"type": "InternalDNS", "address": name}));
    }
    let patch = json!({"status": {"addresses": addresses}}).to_string();
    let request = server.with_certificate("PATCH", "/api/v1/nodes/n/status", &pem, &key);
    request.body("application/merge-patch+json", patch).send()?.expect(200)?;
    let serving = |names: &'static [&'static str], addresses: &'static [&'static str]| Asks {
        names,
        addresses,
        signer: SERVING,
        purpose: "server auth",
        ..node_client("system:node:n")
    };
    let account =
        |user: &'static str| Asks { group: None, signer: CLIENT, seconds: Some(600), ..node_client(user) };
    let attacks = [
        serving(&["kubernetes"], &[]),
        serving(&["kubernetes.default.svc"], &["192.0.2.77"]),
        serving(&["localhost"], &[]),
        serving(&["n"], &["10.96.0.1"]),
        serving(&[], &["127.0.0.1"]),
        serving(&[], &["10.244.3.4"]),
        serving(&["n"], &["192.0.2.78"]),
        account("kubernetes-admin"),
        account("system:kube-controller-manager"),
        account("system:node:m"),
        Asks { seconds: None, ..account("system:kube-proxy") },
        Asks { group: Some("system:nodes"), ..account("system:kube-proxy") },
        node_client("system:node:m"),
    ];
    let mut names = Vec::new();
    for asks in &attacks {
        let answer = ask("POST", REQUESTS, &asks.object()?.0)?;
        // Some are refused at once.
        names.push(if answer.status == 403 { None } else { Some(made(answer)?) });
    }
    // The node's own are signed, and by then the others were looked at.
    for asks in [serving(&["n"], &["192.0.2.77"]), account("system:kube-proxy"), node_client("system:node:n")]
    {
        let name = made(ask("POST", REQUESTS, &asks.object()?.0)?)?;
        signed(&server, &name)?;
    }
    for (name, asks) in names.iter().zip(&attacks) {
        let Some(name) = name else { continue };
        let csr = server.get(&format!("{REQUESTS}/{name}")).send()?.expect(200)?.json()?;
        let open = csr["status"].get("conditions").is_none() && csr["status"].get("certificate").is_none();
        ensure!(open, "{} {:?} {:?}: {csr}", asks.user, asks.names, asks.addresses);
    }
    // It approves nothing itself.
    let name = names[0].clone().context("the first attack was refused")?;
    let mut csr = server.get(&format!("{REQUESTS}/{name}")).send()?.json()?;
    csr["status"]["conditions"] =
        json!([{"type": "Approved", "status": "True", "reason": "Mine", "message": "m"}]);
    ensure!(ask("PUT", &format!("{REQUESTS}/{name}/approval"), &csr)?.status == 403);
    Ok(())
}
