//! An API server that a test kit for operators starts, with the flags of upstream's.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::{Authority, Etcd, binary, eventually, free_port, tool};

/// A process that ends with the test.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// kubectl with files for everything that it needs to know.
struct Kubectl<'d> {
    dir: &'d Path,
    server: String,
}

impl Kubectl<'_> {
    fn run(&self, credentials: &[&str], args: &[&str]) -> Result<String> {
        let authority = self.dir.join("serving-ca.crt");
        let mut command = Command::new(tool("kubectl"));
        command.env("HOME", self.dir).env("KUBECONFIG", self.dir.join("none"));
        command.args(["--server", &self.server, "--certificate-authority"]).arg(authority);
        let out = command.args(credentials).args(args).output().context("running kubectl")?;
        ensure!(out.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&out.stderr).trim());
        Ok(String::from_utf8(out.stdout)?)
    }
}

/// The flags that controller-runtime's envtest passes, with the files that it writes.
fn envtest(dir: &Path, port: u16, etcd: &Etcd) -> Result<Vec<String>> {
    let (serving, clients, signer) =
        (Authority::new("serving")?, Authority::new("clients")?, Authority::new("signer")?);
    std::fs::write(dir.join("serving-ca.crt"), serving.pem())?;
    std::fs::write(dir.join("client-cert-auth-ca.crt"), clients.pem())?;
    serving.issue(("localhost", ""), &["127.0.0.1", "localhost"], (dir, "apiserver"))?;
    clients.issue(("admin", "system:masters"), &[], (dir, "admin"))?;
    clients.issue(("nobody", ""), &[], (dir, "nobody"))?;
    signer.issue(("sa-signer", ""), &[], (dir, "sa-signer"))?;
    let at = |name: &str| dir.join(name).display().to_string();
    Ok(vec![
        "--advertise-address=127.0.0.1".into(),
        "--allow-privileged=true".into(),
        "--authorization-mode=RBAC".into(),
        "--bind-address=127.0.0.1".into(),
        format!("--cert-dir={}", dir.display()),
        format!("--client-ca-file={}", at("client-cert-auth-ca.crt")),
        "--disable-admission-plugins=ServiceAccount".into(),
        format!("--etcd-servers={}", etcd.urls().join(",")),
        format!("--secure-port={port}"),
        format!("--service-account-issuer=https://127.0.0.1:{port}/"),
        format!("--service-account-key-file={}", at("sa-signer.crt")),
        format!("--service-account-signing-key-file={}", at("sa-signer.key")),
        "--service-cluster-ip-range=10.0.0.0/24".into(),
    ])
}

fn start(flags: &[String]) -> Result<Started> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(binary()).arg("kube-apiserver").args(flags);
    Ok(Started(command.stdout(Stdio::null()).spawn().context("starting the API server")?))
}

#[test]
fn envtest_starts_it_on_a_real_etcd() -> Result<()> {
    let etcd = Etcd::start(1)?;
    let dir = tempfile::Builder::new().prefix("ferrokube-").tempdir()?;
    let dir = dir.path();
    let port = free_port()?;
    let mut server = start(&envtest(dir, port, &etcd)?)?;
    let kubectl = Kubectl { dir, server: format!("https://127.0.0.1:{port}") };
    let (crt, key) =
        (dir.join("admin.crt").display().to_string(), dir.join("admin.key").display().to_string());
    let admin = ["--client-certificate", &crt, "--client-key", &key];
    eventually("the API server", || {
        ensure!(server.0.try_wait()?.is_none(), "it ended");
        Ok(kubectl.run(&admin, &["get", "--raw", "/healthz"]).ok())
    })?;
    // Without the plugin, a Pod needs no account; and privileged ones are taken.
    let pod = r#"{"spec":{"containers":[{"name":"c","image":"i","securityContext":{"privileged":true}}]}}"#;
    kubectl.run(&admin, &["run", "p", "--image=i", "--restart=Never", "--overrides", pod])?;
    kubectl.run(&admin, &["create", "service", "clusterip", "s", "--tcp=80"])?;
    let address = kubectl.run(&admin, &["get", "service", "s", "-o", "jsonpath={.spec.clusterIP}"])?;
    ensure!(address.starts_with("10.0.0."), "{address}");
    // A token is signed by the key that was given, and known by the certificate of it.
    kubectl.run(&admin, &["create", "serviceaccount", "robot"])?;
    let token = kubectl.run(&admin, &["create", "token", "robot"])?;
    let robot = ["--token", token.trim()];
    let who: Value = serde_json::from_str(&kubectl.run(&robot, &["auth", "whoami", "-o", "json"])?)?;
    let name = &who["status"]["userInfo"]["username"];
    ensure!(name == "system:serviceaccount:default:robot", "{who}");
    let known: Value =
        serde_json::from_str(&kubectl.run(&admin, &["get", "--raw", "/.well-known/openid-configuration"])?)?;
    ensure!(known["issuer"] == format!("https://127.0.0.1:{port}/"), "{known}");
    // RBAC decides about everybody else.
    let (crt, key) =
        (dir.join("nobody.crt").display().to_string(), dir.join("nobody.key").display().to_string());
    let nobody = ["--client-certificate", crt.as_str(), "--client-key", &key];
    let refused = kubectl.run(&nobody, &["get", "pods"]).unwrap_err().to_string();
    ensure!(refused.contains("User \"nobody\" cannot list resource \"pods\""), "{refused}");
    // It is the server's own authority that is not believed here.
    let (crt, key) = (dir.join("ferrokube/pki/admin.crt"), dir.join("ferrokube/pki/admin.key"));
    let (crt, key) = (crt.display().to_string(), key.display().to_string());
    let own = ["--client-certificate", crt.as_str(), "--client-key", &key];
    ensure!(kubectl.run(&own, &["get", "pods"]).is_err());
    let keys = etcd.etcdctl(&["get", "/registry/pods/default/p", "--keys-only"])?;
    ensure!(keys.contains("/registry/pods/default/p"), "{keys}");
    Ok(())
}

#[test]
fn tokens_of_a_file_and_front_proxies_are_known() -> Result<()> {
    let etcd = Etcd::start(1)?;
    let dir = tempfile::Builder::new().prefix("ferrokube-").tempdir()?;
    let dir = dir.path();
    let port = free_port()?;
    let mut flags = envtest(dir, port, &etcd)?;
    let proxies = Authority::new("proxies")?;
    std::fs::write(dir.join("proxies.crt"), proxies.pem())?;
    proxies.issue(("proxy", ""), &[], (dir, "proxy"))?;
    proxies.issue(("stranger", ""), &[], (dir, "stranger"))?;
    std::fs::write(dir.join("tokens.csv"), "secret,ann,7,\"system:masters,others\"\n")?;
    let plugins = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: []\n";
    std::fs::write(dir.join("admission.yaml"), plugins)?;
    let at = |name: &str| dir.join(name).display().to_string();
    flags.extend([
        format!("--token-auth-file={}", at("tokens.csv")),
        format!("--requestheader-client-ca-file={}", at("proxies.crt")),
        "--requestheader-allowed-names=proxy".into(),
        "--requestheader-username-headers=X-My-User,X-Remote-User".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        format!("--proxy-client-cert-file={}", at("proxy.crt")),
        format!("--proxy-client-key-file={}", at("proxy.key")),
        format!("--admission-control-config-file={}", at("admission.yaml")),
        "--enable-aggregator-routing=true".into(),
        "--profiling=false".into(),
        "-v=2".into(),
    ]);
    let mut server = start(&flags)?;
    let kubectl = Kubectl { dir, server: format!("https://127.0.0.1:{port}") };
    let ann = ["--token", "secret"];
    eventually("the API server", || {
        ensure!(server.0.try_wait()?.is_none(), "it ended");
        Ok(kubectl.run(&ann, &["get", "--raw", "/readyz"]).ok())
    })?;
    ensure!(kubectl.run(&["--token", "other"], &["get", "pods"]).is_err());
    let map = ["get", "configmap", "-n", "kube-system", "extension-apiserver-authentication", "-o", "json"];
    let map: Value = serde_json::from_str(&kubectl.run(&ann, &map)?)?;
    let data = &map["data"];
    ensure!(data["requestheader-allowed-names"] == "[\"proxy\"]", "{data}");
    ensure!(data["requestheader-username-headers"] == "[\"X-My-User\",\"X-Remote-User\"]", "{data}");
    ensure!(data["requestheader-client-ca-file"] == proxies.pem(), "{data}");
    ensure!(data["requestheader-uid-headers"].is_null(), "{data}");
    let curl = |stem: &str| -> Result<String> {
        let url = format!("https://127.0.0.1:{port}/apis/authentication.k8s.io/v1/selfsubjectreviews");
        let out = Command::new("curl")
            .args(["-q", "-s", "--cacert", &at("serving-ca.crt"), "--cert", &at(&format!("{stem}.crt"))])
            .args(["--key", &at(&format!("{stem}.key")), "-H", "X-My-User: bob", "-H", "X-Remote-Group: a"])
            .args(["-H", "Content-Type: application/json", "-d", "{}", &url])
            .output()?;
        Ok(String::from_utf8(out.stdout)?)
    };
    let bob: Value = serde_json::from_str(&curl("proxy")?)?;
    let info = &bob["status"]["userInfo"];
    ensure!(info["username"] == "bob" && info["groups"][0] == "a", "{bob}");
    ensure!(curl("stranger")?.contains("Unauthorized"), "its name is not allowed");
    let admin: Value = serde_json::from_str(&curl("admin")?)?;
    ensure!(admin["status"]["userInfo"]["username"] == "admin", "{admin}");
    Ok(())
}

/// Certificates and authorities are read again while the server runs, and several issuers are believed.
#[test]
fn certificates_are_read_again() -> Result<()> {
    let etcd = Etcd::start(1)?;
    let dir = tempfile::Builder::new().prefix("ferrokube-").tempdir()?;
    let dir = dir.path();
    let port = free_port()?;
    let mut flags = envtest(dir, port, &etcd)?;
    let at = |name: &str| dir.join(name).display().to_string();
    let proxies = Authority::new("proxies")?;
    std::fs::write(dir.join("proxies.crt"), proxies.pem())?;
    std::fs::write(dir.join("tokens.csv"), "secret,ann,7,system:masters\n")?;
    flags.extend([
        format!("--token-auth-file={}", at("tokens.csv")),
        format!("--requestheader-client-ca-file={}", at("proxies.crt")),
        "--requestheader-username-headers=X-Remote-User".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--service-account-issuer=https://older.example".into(),
        "--service-account-jwks-uri=https://keys.example/jwks".into(),
    ]);
    let mut server = start(&flags)?;
    let kubectl = Kubectl { dir, server: format!("https://127.0.0.1:{port}") };
    let ann = ["--token", "secret"];
    eventually("the API server", || {
        ensure!(server.0.try_wait()?.is_none(), "it ended");
        Ok(kubectl.run(&ann, &["get", "--raw", "/readyz"]).ok())
    })?;

    // The first issuer issues, and tells where its keys are; the audiences are those of both.
    let known: Value =
        serde_json::from_str(&kubectl.run(&ann, &["get", "--raw", "/.well-known/openid-configuration"])?)?;
    ensure!(known["issuer"] == format!("https://127.0.0.1:{port}/"), "{known}");
    ensure!(known["jwks_uri"] == "https://keys.example/jwks", "{known}");
    kubectl.run(&ann, &["create", "serviceaccount", "robot"])?;
    let token = kubectl.run(&ann, &["create", "token", "robot", "--audience=https://older.example"])?;
    kubectl.run(&["--token", token.trim()], &["auth", "whoami"])?;

    // Another authority of clients.
    let as_admin = || {
        let (crt, key) = (at("admin.crt"), at("admin.key"));
        kubectl.run(&["--client-certificate", &crt, "--client-key", &key], &["get", "pods"])
    };
    as_admin()?;
    let clients = Authority::new("other clients")?;
    std::fs::write(dir.join("client-cert-auth-ca.crt"), "junk")?;
    clients.issue(("admin", "system:masters"), &[], (dir, "other-admin"))?;
    std::fs::write(dir.join("new"), clients.pem())?;
    std::fs::rename(dir.join("new"), dir.join("client-cert-auth-ca.crt"))?;
    eventually("the other authority", || {
        let (crt, key) = (at("other-admin.crt"), at("other-admin.key"));
        let admin = ["--client-certificate", crt.as_str(), "--client-key", &key];
        Ok(kubectl.run(&admin, &["get", "pods"]).ok())
    })?;
    ensure!(as_admin().is_err(), "the authority before is believed no more");
    let map = || {
        kubectl.run(
            &ann,
            &["get", "cm", "-n", "kube-system", "extension-apiserver-authentication", "-o", "json"],
        )
    };
    eventually("what aggregated servers are told", || {
        let map: Value = serde_json::from_str(&map()?)?;
        let told = map["data"]["client-ca-file"].as_str().unwrap_or_default();
        Ok(told.contains(clients.pem().trim()).then_some(()))
    })?;

    // Another authority of front proxies.
    let other = Authority::new("other proxies")?;
    other.issue(("proxy", ""), &[], (dir, "other-proxy"))?;
    std::fs::write(dir.join("proxies.crt"), other.pem())?;
    eventually("the other proxies", || {
        let url = format!("https://127.0.0.1:{port}/apis/authentication.k8s.io/v1/selfsubjectreviews");
        let out = Command::new("curl")
            .args(["-q", "-s", "--cacert", &at("serving-ca.crt"), "--cert", &at("other-proxy.crt")])
            .args(["--key", &at("other-proxy.key"), "-H", "X-Remote-User: bob"])
            .args(["-H", "Content-Type: application/json", "-d", "{}", &url])
            .output()?;
        let review: Value = serde_json::from_slice(&out.stdout)?;
        Ok((review["status"]["userInfo"]["username"] == "bob").then_some(()))
    })?;

    // Another certificate to serve with, of another authority. It comes in two steps, and connections before go on.
    let serving = Authority::new("other serving")?;
    serving.issue(("localhost", ""), &["127.0.0.1"], (dir, "new-apiserver"))?;
    let before = std::fs::read(dir.join("serving-ca.crt"))?;
    for file in ["apiserver.crt", "apiserver.key"] {
        std::fs::copy(dir.join(format!("new-{file}")), dir.join(file))?;
    }
    std::fs::write(dir.join("serving-ca.crt"), serving.pem())?;
    eventually("the other certificate", || Ok(kubectl.run(&ann, &["get", "--raw", "/readyz"]).ok()))?;
    std::fs::write(dir.join("serving-ca.crt"), before)?;
    ensure!(
        kubectl.run(&ann, &["get", "--raw", "/readyz"]).is_err(),
        "it serves with the certificate before"
    );
    ensure!(server.0.try_wait()?.is_none(), "it ended");
    Ok(())
}

/// As `test-cmd`, upstream's own test of kubectl, starts it: the certificate is left to the server, and everybody may do
/// everything.
#[test]
fn the_flags_of_upstreams_test_of_kubectl() -> Result<()> {
    let etcd = Etcd::start(1)?;
    let dir = tempfile::Builder::new().prefix("ferrokube-").tempdir()?;
    let dir = dir.path();
    let port = free_port()?;
    std::fs::write(dir.join("tokens.csv"), "admin-token,admin,admin\n")?;
    let (clients, signer) = (Authority::new("clients")?, Authority::new("signer")?);
    std::fs::write(dir.join("clients.crt"), clients.pem())?;
    signer.issue(("sa", ""), &[], (dir, "sa"))?;
    let at = |name: &str| dir.join(name).display().to_string();
    let flags = [
        "--version=v1.36.2-custom".into(),
        "--bind-address=127.0.0.1".into(),
        "--authorization-mode=RBAC,AlwaysAllow".into(),
        format!("--secure-port={port}"),
        "--feature-gates=".into(),
        "--disable-admission-plugins=ServiceAccount,DefaultStorageClass".into(),
        format!("--etcd-servers={}", etcd.urls().join(",")),
        format!("--service-account-key-file={}", at("sa.key")),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-signing-key-file={}", at("sa.key")),
        "--storage-media-type=".into(),
        format!("--cert-dir={}", dir.display()),
        "--service-cluster-ip-range=10.0.0.0/24".into(),
        format!("--client-ca-file={}", at("clients.crt")),
        format!("--token-auth-file={}", at("tokens.csv")),
    ];
    let mut server = start(&flags)?;
    let kubectl = Kubectl { dir, server: format!("https://127.0.0.1:{port}") };
    let admin = ["--token", "admin-token"];
    eventually("the API server", || {
        ensure!(server.0.try_wait()?.is_none(), "it ended");
        // Its certificate is the authority that clients are to believe.
        if dir.join("apiserver.crt").exists() {
            std::fs::copy(dir.join("apiserver.crt"), dir.join("serving-ca.crt"))?;
        }
        Ok(kubectl.run(&admin, &["get", "--raw", "/healthz"]).ok())
    })?;
    let version = kubectl.run(&admin, &["get", "--raw", "/version"])?;
    ensure!(version.starts_with("{\n  \"major\": \"1\",\n  \"minor\": \"36\",\n"), "{version}");
    ensure!(version.contains("\"gitVersion\": \"v1.36.2-custom\""), "{version}");
    // A caller without credentials, or with those that nobody reads, is nobody here.
    for stranger in [["--token", "other"], ["--username=bad", "--password=wrong"]] {
        let refused = kubectl.run(&stranger, &["get", "--raw", "/api/v1/pods"]).unwrap_err().to_string();
        ensure!(
            refused.contains("Unauthorized") || refused.contains("must be logged in"),
            "{stranger:?}: {refused}"
        );
    }
    // Scripts look for the fields in the order of Go's types.
    let core = kubectl.run(&admin, &["get", "--raw", "/api/v1"])?;
    let maps = r#"{"name":"configmaps","singularName":"configmap","namespaced":true,"kind":"ConfigMap","verbs":["create","delete","deletecollection","get","list","patch","update","watch"],"shortNames":["cm"],"storageVersionHash":"#;
    ensure!(core.contains(maps), "{core}");
    // One server waits for no other before a definition is established.
    let definition = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"foos.bar.com"},"spec":{"group":"bar.com","scope":"Namespaced","names":{"plural":"foos","singular":"foo","kind":"Foo"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;
    std::fs::write(dir.join("definition.json"), definition)?;
    kubectl.run(&admin, &["create", "-f", &at("definition.json")])?;
    kubectl.run(&admin, &["wait", "--for=condition=Established", "crd/foos.bar.com", "--timeout=4s"])?;
    Ok(())
}
