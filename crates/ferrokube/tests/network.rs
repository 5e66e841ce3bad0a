//! The pod network of a real cluster, and its plugin as a runtime executes it.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::{Cluster, Image, Options, Signal, binary, eventually};

const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: serves}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: test.local/app:1
    command: [sh, -c, "mkdir /www && echo here > /www/index.html && exec busybox httpd -f -p 80 -h /www"]
    ports: [{containerPort: 80, hostPort: 8080}]
    readinessProbe: {httpGet: {port: 80}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: asks}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: test.local/app:1, command: [sleep, "1000"]}]
"#;

/// Starts the plugin as a runtime does.
fn plugin(command: &str, config: &Value) -> Result<Output> {
    let mut child = Command::new(binary())
        .env("CNI_COMMAND", command)
        .env("CNI_CONTAINERID", "c1")
        .env("CNI_NETNS", "/run/netns/none")
        .env("CNI_IFNAME", "eth0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child.stdin.take().context("no input")?.write_all(config.to_string().as_bytes())?;
    Ok(child.wait_with_output()?)
}

#[test]
fn the_plugin_tells_its_versions_and_that_nobody_answers() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let config = json!({"cniVersion": "1.0.0", "name": "n", "socket": dir.path().join("none")});
    let out = plugin("VERSION", &config)?;
    let told: Value = serde_json::from_slice(&out.stdout)?;
    ensure!(out.status.success() && told["cniVersion"] == "1.0.0", "{told}");
    let versions = json!(["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]);
    ensure!(told["supportedVersions"] == versions, "{told}");
    let out = plugin("DEL", &config)?;
    let told: Value = serde_json::from_slice(&out.stdout)?;
    ensure!(!out.status.success() && told["code"] == 11, "{told}");
    ensure!(out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    Ok(())
}

/// Whether the Pod that asks gets the page.
fn page(cluster: &Cluster, from: &str) -> Result<Option<()>> {
    // Debian's busybox crashes on wget's own limit of time.
    let get = ["exec", "asks", "--", "busybox", "timeout", "2", "busybox", "wget", "-qO-", from];
    let got = cluster.kubectl(&get)?;
    Ok((got == "here\n").then_some(()))
}

#[test]
fn pods_have_a_network_that_outlives_the_agent_and_goes_with_the_cluster() -> Result<()> {
    let options = Options { images: vec![Image::busybox("test.local/app:1")?], ..Options::default() };
    let mut cluster = Cluster::start("network", options)?;
    cluster.apply(PODS)?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s"])?;
    let address = cluster.get("pod", "serves")?["status"]["podIP"].as_str().unwrap_or_default().to_owned();
    let by_pod = format!("http://{address}/");
    eventually("Pods reach each other", || page(&cluster, &by_pod))?;
    eventually("a port of the node leads to the Pod", || page(&cluster, "http://192.0.2.10:8080/"))?;
    let local = ["-s", "--max-time", "5", "http://127.0.0.1:8080/"];
    ensure!(cluster.host().run("curl", &local)? == "here\n", "from the node itself");
    eventually("the Node tells of its network", || {
        let node = cluster.get("node", "network")?;
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let network = conditions.iter().find(|c| c["type"] == "NetworkUnavailable");
        Ok(network.is_some_and(|c| c["status"] == "False" && c["reason"] == "RouteCreated").then_some(()))
    })?;

    cluster.stop_ferrokube(Signal::KILL)?;
    ensure!(cluster.host().run("curl", &local)? == "here\n", "without the agent");
    cluster.start_ferrokube()?;
    cluster.wait_ready()?;
    eventually("Pods reach each other as before", || page(&cluster, &by_pod))?;
    cluster.kubectl(&["delete", "pod", "serves", "--wait=true"])?;
    let records = cluster.data_dir().join("network");
    eventually("the address is free", || Ok((std::fs::read_dir(&records)?.count() == 1).then_some(())))?;
    ensure!(cluster.host().run("curl", &local).is_err(), "the port is closed");

    cluster.stop_ferrokube(Signal::TERM)?;
    let data = cluster.data_dir();
    let data = data.to_str().unwrap_or_default();
    cluster.host().run(&binary().to_string_lossy(), &["down", "--data-dir", data])?;
    let links = cluster.host().run("ip", &["-br", "link"])?;
    ensure!(!links.contains("fk-"), "{links}");
    let tables = cluster.host().run("nft", &["list", "tables"])?;
    ensure!(!tables.contains("ferrokube"), "{tables}");
    // The built-in runtime reads no configuration of networks.
    for dir in ["cni", "cni-bin"].map(|dir| cluster.host().path(dir)).iter().filter(|dir| dir.exists()) {
        let left = std::fs::read_dir(dir)?.count();
        ensure!(left == 0, "{left} files in {}", dir.display());
    }
    Ok(())
}
