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
    /// Starts a component by a link of its name.
    fn start(server: &Server, name: &str, flags: &[&str]) -> Result<Self> {
        let link = server.path(name);
        symlink(binary(), &link).or_else(|e| if link.exists() { Ok(()) } else { Err(e) })?;
        let port = free_port()?;
        let process = Command::new(&link)
            .arg("--kubeconfig")
            .arg(server.path("kubeconfig"))
            .args(["--bind-address=127.0.0.1", &format!("--secure-port={port}")])
            .arg("--client-ca-file")
            .arg(server.path("ca.pem"))
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
        for path in ["/healthz", "/livez", "/readyz", "/healthz/ping"] {
            ensure!(component.get(path, &[])? == ("200".into(), "ok".into()), "{path}");
        }
        for path in ["/metrics", "/configz", "/statusz", "/flagz"] {
            ensure!(component.get(path, &[])?.0 == "403", "{path} to nobody");
            ensure!(component.get(path, &nobody)?.0 == "403", "{path} to an account");
            ensure!(component.get(path, &["-H", "Authorization: Bearer x"])?.0 == "401", "{path}");
            ensure!(component.get(path, &admin)?.0 == "200", "{path} to the administrator");
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
    let flags = controllers.get("/flagz", &admin)?.1;
    ensure!(flags.contains("\ncontrollers=*,-root-ca-cert-publisher\n"), "{flags}");
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
    let missing =
        "\"selinux-warning-controller\" is a controller of Kubernetes that FerroKube does not have yet";
    refuse(
        &["kube-controller-manager", "--kubeconfig=/nowhere", "--controllers=selinux-warning-controller"],
        missing,
    )?;
    refuse(&["kube-scheduler", "--kubeconfig=/nowhere"], "--kubeconfig /nowhere cannot be used")
}
