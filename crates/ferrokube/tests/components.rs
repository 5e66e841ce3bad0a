//! Components that run alone: an API server, and the controllers and the scheduler beside it in processes of their own,
//! which reach it by a kubeconfig.

use std::os::unix::fs::symlink;
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testkit::{Server, binary, eventually, free_port};

/// A component, which ends when it is dropped.
struct Component {
    process: Child,
    port: u16,
}

impl Drop for Component {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Component {
    /// Starts a component by a link of its name, whose callers are known by the file of their authority.
    fn start(server: &Server, name: &str, flags: &[&str]) -> Result<Self> {
        let authority = format!("--client-ca-file={}", server.path("ca.pem").display());
        Self::bare(server, name, &[&[authority.as_str()], flags].concat())
    }

    /// Starts a component that learns of its callers from the cluster.
    fn bare(server: &Server, name: &str, flags: &[&str]) -> Result<Self> {
        Self::at(server, name, free_port()?, flags)
    }

    /// Starts a component on a port.
    fn at(server: &Server, name: &str, port: u16, flags: &[&str]) -> Result<Self> {
        let link = server.path(name);
        symlink(binary(), &link).or_else(|e| if link.exists() { Ok(()) } else { Err(e) })?;
        let process = Command::new(&link)
            .arg("--kubeconfig")
            .arg(server.path("kubeconfig"))
            .args(["--bind-address=127.0.0.1", &format!("--secure-port={port}")])
            .args(flags)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        Ok(Self { process, port })
    }

    /// Status and body of a GET.
    fn get(&self, path: &str, curl: &[&str]) -> Result<(String, String)> {
        let url = format!("https://127.0.0.1:{}{path}", self.port);
        let out = Command::new("curl").args(["-qsk", "-w", "\n%{http_code}"]).args(curl).arg(url).output()?;
        let text = String::from_utf8(out.stdout)?;
        let (body, code) = text.rsplit_once('\n').context("no answer")?;
        Ok((code.to_owned(), body.to_owned()))
    }
}

#[test]
fn controllers_and_scheduler_run_in_processes_of_their_own() -> Result<()> {
    let server = Server::start(&[])?;
    let flags = ["--controllers=*,-root-ca-cert-publisher", "--use-service-account-credentials"];
    let controllers = Component::start(&server, "kube-controller-manager", &flags)?;
    let scheduler = Component::start(&server, "kube-scheduler", &["--leader-elect=false"])?;
    server.create("/api/v1/namespaces", &json!({"metadata": {"name": "n"}}))?;
    eventually("the namespace's account", || {
        Ok(server.get("/api/v1/namespaces/n/serviceaccounts/default").send()?.expect(200).ok())
    })?;
    // Each controller has an account of its own, and a controller that is off does nothing.
    let account = "/api/v1/namespaces/kube-system/serviceaccounts/service-account-controller";
    server.get(account).send()?.expect(200)?;
    ensure!(server.get("/api/v1/namespaces/n/configmaps/kube-root-ca.crt").send()?.expect(404).is_ok());
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";
    server.get(lease).send()?.expect(200)?;

    let (cert, key) = (server.path("cert.pem"), server.path("key.pem"));
    let (cert, key) = (cert.to_string_lossy(), key.to_string_lossy());
    let admin = ["--cert", &cert, "--key", &key];
    let token = server.kubectl(&["-n", "n", "create", "token", "default"])?;
    let nobody = ["-H", &format!("Authorization: Bearer {}", token.trim())];
    for component in [&controllers, &scheduler] {
        // Before anybody has asked for the check.
        let outcome = "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"readyz\"} 0\n";
        eventually("the outcomes of checks", || {
            Ok(component.get("/metrics/slis", &admin)?.1.contains(outcome).then_some(()))
        })?;
        for path in ["/healthz", "/livez", "/readyz"] {
            ensure!(component.get(path, &[])? == ("200".into(), "ok".into()), "{path}");
        }
        for path in ["/metrics", "/configz", "/statusz", "/flagz", "/healthz/ping"] {
            ensure!(component.get(path, &[])?.0 == "403", "{path} to nobody");
            ensure!(component.get(path, &nobody)?.0 == "403", "{path} to an account");
            ensure!(component.get(path, &["-H", "Authorization: Bearer x"])?.0 == "401", "{path}");
            ensure!(component.get(path, &admin)?.0 == "200", "{path} to the administrator");
        }
        // The alert KubeClientErrors reads the first one.
        let metrics = component.get("/metrics", &admin)?.1;
        let root = server.url("");
        let server = root.trim_start_matches("https://");
        for line in [
            format!("rest_client_requests_total{{code=\"200\",host=\"{server}\",method=\"GET\"}} "),
            format!("rest_client_request_duration_seconds_count{{host=\"{server}\",verb=\"POST\"}} "),
            "rest_client_exec_plugin_ttl_seconds +Inf\n".to_owned(),
        ] {
            ensure!(metrics.contains(&line), "{line} is not in\n{metrics}");
        }
    }
    let verbose = controllers.get("/healthz?verbose", &[])?.1;
    ensure!(verbose.contains("[+]deployment-controller ok\n") && !verbose.contains("root-ca"), "{verbose}");
    let metrics = controllers.get("/metrics", &admin)?.1;
    for line in [
        "# TYPE workqueue_depth gauge",
        "workqueue_adds_total{name=\"namespace\"} ",
        "workqueue_queue_duration_seconds_bucket{name=\"serviceaccount\",le=\"+Inf\"} ",
        "running_managed_controllers{manager=\"kube-controller-manager\",name=\"namespace-controller\"} 1",
    ] {
        ensure!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    ensure!(!metrics.contains("root-ca"), "{metrics}");
    let status = controllers.get("/statusz", &admin)?.1;
    ensure!(status.contains("kube-controller-manager statusz"), "{status}");
    let object = "Accept: application/json;v=v1beta1;g=config.k8s.io;as=Statusz";
    let status = controllers.get("/statusz", &[&admin[..], &["-H", object]].concat())?.1;
    // Curl is one of the programs with which people look.
    ensure!(status.contains("\n    \"name\": \"kube-controller-manager\"\n"), "{status}");
    let flags = controllers.get("/flagz", &admin)?.1;
    for flag in
        ["controllers=*,-root-ca-cert-publisher", "node-monitor-grace-period=50s", "leader-elect=true"]
    {
        ensure!(flags.contains(&format!("\n{flag}\n")), "{flag} is not in {flags}");
    }
    let settings = scheduler.get("/configz", &admin)?.1;
    ensure!(settings.contains("\"leaderElect\":false") && settings.contains("\"name\":\"NodeResourcesFit\""));
    Ok(())
}

/// Writes a certificate that signs itself, and its key.
fn certificate(server: &Server, name: &str) -> Result<[String; 2]> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    let files = ["crt", "key"].map(|end| server.path(&format!("{name}.{end}")));
    std::fs::write(&files[1], made.signing_key.serialize_pem())?;
    std::fs::write(&files[0], made.cert.pem())?;
    Ok(files.map(|file| file.display().to_string()))
}

/// Waits until a component answers.
fn answers(component: &Component) -> Result<()> {
    eventually("the endpoint answers", || Ok(component.get("/healthz", &[])?.0.eq("200").then_some(())))
}

/// The endpoint has the certificate of its flags, also after the files were exchanged, and offers what flags say.
#[test]
fn an_endpoint_serves_as_its_flags_say() -> Result<()> {
    let server = Server::start(&[])?;
    let [first, key] = certificate(&server, "serving")?;
    let flags = [
        &format!("--tls-cert-file={first}"),
        &format!("--tls-private-key-file={key}"),
        "--tls-min-version=VersionTLS13",
        "--tls-curve-preferences=23",
        "--disable-http2-serving",
        "--permit-port-sharing",
        "--authorization-always-allow-paths=/healthz,/metrics*",
        "--disabled-metrics=workqueue_depth",
        "--allow-metric-labels=workqueue_adds_total,name=namespace",
        "--leader-elect=false",
    ];
    let manager = Component::start(&server, "kube-controller-manager", &flags)?;
    answers(&manager)?;
    let port = manager.port;
    let trusts = |file: &str, more: &[&str]| -> Result<bool> {
        let url = format!("https://127.0.0.1:{port}/healthz");
        let out = Command::new("curl").args(["-qs", "--cacert", file]).args(more).arg(url).output()?;
        Ok(out.status.success())
    };
    ensure!(trusts(&first, &[])?, "the certificate is the flag's");
    ensure!(!trusts(&first, &["--tls-max", "1.2"])?, "TLS 1.2 is not offered");
    ensure!(trusts(&first, &["--curves", "P-256"])? && !trusts(&first, &["--curves", "X25519"])?);
    let url = format!("https://127.0.0.1:{port}/healthz");
    let version = Command::new("curl")
        .args(["-qsk", "--http2", "-o", "/dev/null", "-w", "%{http_version}", &url])
        .output()?;
    ensure!(version.stdout == b"1.1", "HTTP/2 is not spoken");
    // Everybody may ask for what the flag names, and for nothing else.
    let (code, page) = manager.get("/metrics", &[])?;
    ensure!(code == "200" && !page.contains("workqueue_depth"), "{page}");
    ensure!(page.contains("workqueue_adds_total{name=\"namespace\"}"), "{page}");
    ensure!(page.contains("workqueue_adds_total{name=\"unexpected\"}"), "{page}");
    ensure!(page.contains("\ndisabled_metrics_total 1\n"), "{page}");
    ensure!(manager.get("/metrics/slis", &[])?.0 == "200");
    ensure!(manager.get("/configz", &[])?.0 == "403");
    // Another process may have the same port, if both say so.
    let other =
        Component::at(&server, "kube-scheduler", port, &["--permit-port-sharing", "--leader-elect=false"])?;
    eventually("either of them answers", || {
        let page = manager.get("/metrics", &["-o", "/dev/null"])?.0;
        Ok((page != "200").then_some(()))
    })?;
    drop(other);
    let copy = server.path("first.crt");
    std::fs::copy(&first, &copy)?;
    certificate(&server, "serving")?;
    eventually("the new certificate is served", || Ok(trusts(&first, &[])?.then_some(())))?;
    ensure!(!trusts(&copy.display().to_string(), &[])?);
    Ok(())
}

/// Callers are known by the authorities that the cluster tells of, unless a flag says that it is not asked; those of a
/// front proxy have the names that it tells.
#[test]
fn an_endpoint_knows_its_callers_from_the_cluster() -> Result<()> {
    let server = Server::start(&[])?;
    let kubeconfig = server.path("kubeconfig").display().to_string();
    let asked = [
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--leader-elect=false".to_owned(),
    ];
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    let manager = Component::bare(&server, "kube-controller-manager", &asked)?;
    let alone = ["--authentication-skip-lookup", "--leader-elect=false"];
    let scheduler = Component::bare(&server, "kube-scheduler", &alone)?;
    let pair =
        |certificate: &str, key: &str| [certificate, key].map(|name| server.path(name).display().to_string());
    let [cert, key] = pair("cert.pem", "key.pem");
    let admin = ["--cert", &cert, "--key", &key];
    let [cert, key] = pair("data/pki/front-proxy-client.crt", "data/pki/front-proxy-client.key");
    let proxy = ["--cert", &cert, "--key", &key, "-H", "X-Remote-User: ann"];
    let masters = [&proxy[..], &["-H", "X-Remote-Group: system:masters"]].concat();
    for component in [&manager, &scheduler] {
        answers(component)?;
    }
    ensure!(manager.get("/metrics", &admin)?.0 == "200", "the administrator");
    ensure!(manager.get("/metrics", &masters)?.0 == "200", "somebody whom the front proxy names");
    let (code, text) = manager.get("/metrics", &proxy)?;
    ensure!(code == "403" && text.contains("\"ann\""), "{code} {text}");
    for caller in [&admin[..], &proxy, &masters] {
        ensure!(scheduler.get("/metrics", caller)?.0 == "401", "nobody signs certificates for it");
    }
    // Headers of somebody who is no proxy name nobody.
    let liar = ["-H", "X-Remote-User: ann", "-H", "X-Remote-Group: system:masters"];
    ensure!(manager.get("/metrics", &liar)?.0 == "403");
    drop(scheduler);
    let file =
        format!("--requestheader-client-ca-file={}", server.path("data/pki/front-proxy-ca.crt").display());
    let flags = [
        &file,
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Who",
        "--authentication-skip-lookup",
        "--leader-elect=false",
    ];
    let scheduler = Component::bare(&server, "kube-scheduler", &flags)?;
    answers(&scheduler)?;
    ensure!(scheduler.get("/metrics", &masters)?.0 == "401", "the name stands in another header");
    let named = [&masters[..], &["-H", "X-Who: bob"]].concat();
    ensure!(scheduler.get("/metrics", &named)?.0 == "200");
    Ok(())
}

/// The Lease has the name and the times of flags, and is given up at the end; the address is the flag's.
#[test]
fn leading_ends_with_the_process() -> Result<()> {
    let server = Server::start(&[])?;
    let text = std::fs::read_to_string(server.path("kubeconfig"))?;
    let (right, wrong) = (format!(":{}", server.port()), ":1".to_owned());
    ensure!(text.contains(&right));
    let elsewhere = server.path("elsewhere");
    std::fs::write(&elsewhere, text.replace(&right, &wrong))?;
    let flags = [
        &format!("--kubeconfig={}", elsewhere.display()),
        &format!("--master=https://127.0.0.1:{}", server.port()),
        "--leader-elect-resource-name=mine",
        "--leader-elect-resource-namespace=default",
        "--leader-elect-lease-duration=30s",
        "--leader-elect-renew-deadline=20s",
        "--leader-elect-retry-period=1s",
        "--secure-port=0",
        "--controllers=ttl",
    ];
    let mut process = Command::new(binary()).arg("kube-controller-manager").args(flags).spawn()?;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/mine";
    let spec = || -> Result<Option<serde_json::Value>> {
        let lease = server.get(lease).send()?;
        Ok(if lease.status == 200 { Some(lease.json()?["spec"].clone()) } else { None })
    };
    eventually("it leads", || Ok(spec()?.filter(|spec| spec["leaseDurationSeconds"] == 30)))?;
    let pid = rustix::process::Pid::from_child(&process);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    ensure!(process.wait()?.success());
    let left = spec()?.context("the Lease is gone")?;
    ensure!(left["holderIdentity"] == "", "{left}");
    Ok(())
}

/// The scheduler writes its whole configuration and ends; what it wrote configures it.
#[test]
fn the_scheduler_writes_its_configuration() -> Result<()> {
    let server = Server::start(&[])?;
    let kubeconfig = format!("--kubeconfig={}", server.path("kubeconfig").display());
    let file = server.path("written.yaml");
    let to = format!("--write-config-to={}", file.display());
    let written = |more: &str| -> Result<String> {
        let out = Command::new(binary()).args(["kube-scheduler", &kubeconfig, &to, more]).output()?;
        ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        Ok(std::fs::read_to_string(&file)?)
    };
    let first = written("--leader-elect-lease-duration=1m")?;
    ensure!(first.contains("leaseDuration: 1m0s") && first.contains("kind: NodeResourcesFitArgs"), "{first}");
    let copy = server.path("again.yaml");
    std::fs::write(&copy, &first)?;
    ensure!(written(&format!("--config={}", copy.display()))? == first);
    Ok(())
}

/// The scheduler alone binds Pods.
#[test]
fn the_scheduler_alone_binds() -> Result<()> {
    let server = Server::start(&[])?;
    let _scheduler = Component::start(&server, "kube-scheduler", &[])?;
    let node = json!({"metadata": {"name": "node"}});
    server.create("/api/v1/nodes", &node)?;
    let status = json!({"status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True"}]}});
    server.patch("/api/v1/nodes/node/status", "merge", &status).send()?.expect(200)?;
    let untainted = json!({"spec": {"taints": null}});
    server.patch("/api/v1/nodes/node", "merge", &untainted).send()?.expect(200)?;
    server.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}))?;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    server.create("/api/v1/namespaces/default/pods", &pod)?;
    eventually("the Pod is bound", || {
        let pod = server.get("/api/v1/namespaces/default/pods/p").send()?.expect(200)?.json()?;
        Ok((pod["spec"]["nodeName"] == "node").then_some(()))
    })
}

#[test]
fn what_cannot_be_chosen_is_refused() -> Result<()> {
    let refuse = |flags: &[&str], why: &str| {
        let out = Command::new(binary()).args(flags).output()?;
        let text = String::from_utf8(out.stderr)?;
        ensure!(!out.status.success() && text.contains(why), "{flags:?}: {text}");
        Ok(())
    };
    let unknown = "\"nosuch\" is not in the list of known controllers";
    refuse(&["kube-controller-manager", "--kubeconfig=/nowhere", "--controllers=*,-nosuch"], unknown)?;
    refuse(&["server", "--controllers", "*,-nosuch"], unknown)?;
    refuse(&["kube-scheduler", "--kubeconfig=/nowhere"], "--kubeconfig /nowhere cannot be used")
}
