//! A machine that goes down with Pods on it: a kubelet beside a login manager that a test made.

use std::process::Child;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::{Cluster, Logind, binary, eventually};

use crate::kubelet_alone::{IMAGE, NODE, control_plane, end, flags, kill, node_is_ready};

/// A Pod on the node that takes no notice of being asked to end.
fn pod(name: &str, class: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeName: {NODE}
  {class}
  terminationGracePeriodSeconds: 1
  containers:
  - {{name: main, image: {IMAGE}, command: [sh, -c, \"exec sleep 1000000\"]}}
"
    )
}

/// Gives the host a configuration of its own, with the login manager's in a directory that the test sees.
fn own_configuration(cluster: &Cluster) -> Result<()> {
    let host = cluster.host();
    let (copy, shared) = (host.path("etc"), host.path("logind.conf.d"));
    std::fs::create_dir_all(&shared)?;
    std::fs::create_dir_all(&copy)?;
    let script = "mount -t tmpfs etc $1 && cp -a /etc/. $1 && mount --bind $1 /etc \
        && mkdir -p /etc/systemd/logind.conf.d && mount --bind $2 /etc/systemd/logind.conf.d";
    let (copy, shared) = (copy.display().to_string(), shared.display().to_string());
    host.run("sh", &["-c", script, "sh", &copy, &shared]).map(drop)
}

/// Starts a kubelet that knows this login manager.
fn start(cluster: &Cluster, logind: &Logind) -> Result<Child> {
    let flags = flags(cluster)?;
    let host = cluster.host();
    let path = host.path("kubelet.yaml");
    let text = std::fs::read_to_string(&path)?;
    std::fs::write(&path, text + "shutdownGracePeriod: 60s\nshutdownGracePeriodCriticalPods: 20s\n")?;
    let mut command = host.command(binary());
    command.arg("kubelet").args(flags).env("DBUS_SYSTEM_BUS_ADDRESS", logind.address());
    host.spawn("kubelet", &mut command)
}

fn ready(cluster: &Cluster) -> Result<Value> {
    let node = cluster.get("node", NODE)?;
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|c| c["type"] == "Ready").context("the node has no condition Ready")
}

fn runs(cluster: &Cluster, name: &str) -> Result<Option<()>> {
    let status = cluster.get("pod", name)?["status"].clone();
    Ok((status["phase"] == "Running").then_some(()))
}

/// The status of a Pod that ended for the shutdown.
fn ended(cluster: &Cluster, name: &str) -> Result<Value> {
    let status = eventually(&format!("{name} has failed"), || {
        let status = cluster.get("pod", name)?["status"].clone();
        Ok((status["phase"] == "Failed").then_some(status))
    })?;
    let message = "Pod was terminated in response to imminent node shutdown.";
    ensure!(status["reason"] == "Terminated" && status["message"] == message, "{status}");
    let conditions = status["conditions"].as_array().context("no conditions")?;
    let disrupted = conditions.iter().find(|c| c["type"] == "DisruptionTarget").context("no condition")?;
    ensure!(disrupted["status"] == "True" && disrupted["reason"] == "TerminationByKubelet", "{disrupted}");
    ensure!(disrupted["message"] == message, "{disrupted}");
    Ok(status)
}

fn goes_down(cluster: &Cluster, logind: &Logind) -> Result<()> {
    let kubelet = start(cluster, logind)?;
    eventually("the node is Ready", || node_is_ready(cluster))?;
    eventually("the machine would wait", || Ok((logind.locks() == 1).then_some(())))?;
    let asked = "Inhibit shutdown kubelet Kubelet needs time to handle node shutdown delay";
    ensure!(logind.calls().iter().any(|call| call == asked), "{:?}", logind.calls());
    let file = cluster.host().path("logind.conf.d/99-kubelet.conf");
    let text = std::fs::read_to_string(file)?;
    ensure!(text.ends_with("[Login]\nInhibitDelayMaxSec=60\n"), "{text}");

    cluster.apply(&pod("normal", ""))?;
    cluster.apply(&pod("critical", "priorityClassName: system-node-critical"))?;
    eventually("the normal one runs", || runs(cluster, "normal"))?;
    eventually("the critical one runs", || runs(cluster, "critical"))?;
    // Somebody else on the machine says the same.
    logind.forge(true)?;
    let looked = |calls: &[String]| calls.iter().any(|call| call.starts_with("GetNameOwner"));
    eventually("the kubelet asks who said so", || Ok(looked(&logind.calls()).then_some(())))?;
    ensure!(logind.locks() == 1 && ready(cluster)?["status"] == "True", "it believed a stranger");

    logind.announce(true)?;
    let (normal, critical) = (ended(cluster, "normal")?, ended(cluster, "critical")?);
    let end = |status: &Value| {
        let state = &status["containerStatuses"][0]["state"]["terminated"];
        state["finishedAt"].as_str().map(str::to_owned).context("no end")
    };
    ensure!(end(&normal)? <= end(&critical)?, "{normal} {critical}");
    eventually("the machine may go", || Ok((logind.locks() == 0).then_some(())))?;
    let ready_now = eventually("the node is not Ready", || {
        Ok(Some(ready(cluster)?).filter(|condition| condition["status"] == "False"))
    })?;
    ensure!(
        ready_now["reason"] == "KubeletNotReady" && ready_now["message"] == "node is shutting down",
        "{ready_now}"
    );
    cluster.apply(&pod("late", ""))?;
    let late = eventually("the late one is refused", || {
        let status = cluster.get("pod", "late")?["status"].clone();
        Ok((status["phase"] == "Failed").then_some(status))
    })?;
    let refused = "Pod was rejected: Pod was rejected as the node is shutting down.";
    ensure!(late["reason"] == "NodeShutdown" && late["message"] == refused, "{late}");
    let metrics = cluster.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy/metrics")])?;
    for name in ["start", "end"] {
        let name = format!("kubelet_graceful_shutdown_{name}_time_seconds ");
        let value = metrics.lines().find_map(|line| line.strip_prefix(&name)).context("no metric")?;
        ensure!(value.parse::<f64>()? > 1e9, "{name}{value}");
    }

    logind.announce(false)?;
    eventually("the node is Ready again", || node_is_ready(cluster))?;
    eventually("the machine would wait again", || Ok((logind.locks() == 1).then_some(())))?;
    cluster.apply(&pod("later", ""))?;
    eventually("the next one runs", || runs(cluster, "later"))?;
    let events = cluster.kubectl(&["get", "events", "-A", "-o", "jsonpath={.items[*].message}"])?;
    for text in ["detected shutdown event", "detected shutdown cancellation"] {
        ensure!(events.contains(&format!("Shutdown manager {text}")), "{events}");
    }
    // A bus that starts anew is found again.
    logind.hang_up();
    let asked = |calls: &[String]| calls.iter().filter(|call| call.starts_with("Inhibit")).count();
    eventually("the kubelet asks again", || Ok((asked(&logind.calls()) == 3).then_some(())))?;
    ensure!(runs(cluster, "later")?.is_some(), "a lost bus costs nobody anything");
    kill(kubelet)
}

#[test]
fn pods_end_in_order_before_their_machine_goes_down() -> Result<()> {
    let cluster = control_plane()?;
    own_configuration(&cluster)?;
    let drop_in = cluster.host().path("logind.conf.d/99-kubelet.conf");
    let logind = Logind::start(&cluster.host().path("bus"), 5, drop_in)?;
    let result = goes_down(&cluster, &logind);
    let calls = logind.calls().join("\n");
    let result =
        result.with_context(|| format!("{}\n{}\n{calls}", cluster.host().log("kubelet"), cluster.report()));
    result.and(end(cluster))
}
