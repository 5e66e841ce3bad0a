//! Network policies of a real cluster: before the first packet, through a Service, and without the agent.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::{Cluster, Image, Options, Signal, eventually};

fn pod(name: &str, labels: &Value, command: &str) -> Value {
    let container = json!({"name": "c", "image": "test.local/app:1", "command": ["sh", "-c", command]});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    })
}

fn policy(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name}, "spec": spec})
}

fn apply(cluster: &Cluster, objects: &[Value]) -> Result<String> {
    cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())
}

/// Two tries to get a page, of a second each, from the first moment.
fn tries(address: &str) -> String {
    let get = format!("busybox timeout 1 busybox wget -qO- http://{address}/");
    format!("for i in 1 2; do {get} || true; done; echo over; exec sleep 1000")
}

/// Checks how many pages a Pod of [`tries`] got, once it is over.
fn check(cluster: &Cluster, pod: &str, pages: usize) -> Result<()> {
    let text = eventually("the tries are over", || {
        let text = cluster.kubectl(&["logs", pod])?;
        Ok(text.contains("over\n").then_some(text))
    })?;
    ensure!(text.matches("here\n").count() == pages, "{pod}: {text}");
    Ok(())
}

fn page(cluster: &Cluster, from: &str, address: &str) -> Result<bool> {
    let url = format!("http://{address}/");
    let get = ["exec", from, "--", "busybox", "timeout", "1", "busybox", "wget", "-qO-", &url];
    Ok(cluster.kubectl_output(&get)?.stdout == b"here\n")
}

fn serves() -> Value {
    let command = "mkdir /www && echo here > /www/index.html && exec busybox httpd -f -p 80 -h /www";
    let mut pod = pod("serves", &json!({"app": "serves"}), command);
    // The node itself asks, whatever policies say.
    pod["spec"]["containers"][0]["readinessProbe"] = json!({"httpGet": {"port": 80}, "periodSeconds": 1});
    pod
}

#[test]
fn a_policy_holds_from_the_first_packet_and_without_the_agent() -> Result<()> {
    let options = Options { images: vec![Image::busybox("test.local/app:1")?], ..Options::default() };
    let mut cluster = Cluster::start("policies", options)?;
    let locked = json!({"matchLabels": {"locked": "yes"}});
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "serves"},
        "spec": {"clusterIP": "10.96.0.77", "selector": {"app": "serves"}, "ports": [{"port": 8000, "targetPort": 80}]},
    });
    apply(
        &cluster,
        &[serves(), service, policy("deny", &json!({"podSelector": locked, "policyTypes": ["Egress"]}))],
    )?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod", "serves", "--timeout=60s"])?;
    let address = cluster.get("pod", "serves")?["status"]["podIP"].as_str().context("no address")?.to_owned();

    let yes = json!({"locked": "yes"});
    apply(&cluster, &[pod("free", &json!({}), &tries(&address)), pod("locked", &yes, &tries(&address))])?;
    check(&cluster, "free", 2)?;
    check(&cluster, "locked", 0)?;

    // A policy sees the endpoint of a Service, not the Service's address.
    let to_serves = json!({"podSelector": locked, "egress": [
        {"to": [{"podSelector": {"matchLabels": {"app": "serves"}}}], "ports": [{"port": 80}]},
    ], "policyTypes": ["Egress"]});
    apply(&cluster, &[policy("to-serves", &to_serves)])?;
    eventually("the Service is allowed", || Ok(page(&cluster, "locked", "10.96.0.77:8000")?.then_some(())))?;
    ensure!(page(&cluster, "locked", &address)?, "the Pod itself, too");

    apply(&cluster, &[policy("closed", &json!({"podSelector": {"matchLabels": {"app": "serves"}}}))])?;
    eventually("nobody reaches the Pod", || Ok((!page(&cluster, "free", &address)?).then_some(())))?;
    let url = format!("http://{address}/");
    let from_node = ["-s", "--max-time", "5", url.as_str()];
    ensure!(cluster.host().run("curl", &from_node)? == "here\n", "but the node");

    let rules = |cluster: &Cluster| cluster.host().run("nft", &["list", "ruleset"]);
    let table = |text: &str| {
        let (_, from) = text.split_once("-policies {").context("no table of policies")?;
        // Counters count on.
        let lines = from.lines().take_while(|line| *line != "}").filter(|line| !line.contains("counter"));
        anyhow::Ok(lines.map(str::to_owned).collect::<Vec<_>>())
    };
    let before = table(&rules(&cluster)?)?;
    cluster.stop_ferrokube(Signal::KILL)?;
    ensure!(table(&rules(&cluster)?)? == before, "the rules stay without the agent");
    cluster.start_ferrokube()?;
    cluster.wait_ready()?;
    apply(&cluster, &[pod("later", &json!({}), &tries(&address))])?;
    check(&cluster, "later", 0)?;
    let metrics = cluster.host().run("curl", &["-s", "http://127.0.0.1:10249/metrics"])?;
    ensure!(metrics.contains("\nferrokube_network_policy_policies 3\n"), "{metrics}");
    cluster.kubectl(&["delete", "networkpolicy", "closed"])?;
    eventually("all reach it again", || Ok(page(&cluster, "later", &address)?.then_some(())))?;

    // Without a Service proxy of ours, the metrics have a page of their own.
    cluster.stop_ferrokube(Signal::TERM)?;
    cluster.set_flags(&["--disable-kube-proxy"]);
    cluster.start_ferrokube()?;
    cluster.wait_ready()?;
    eventually("the page of metrics", || {
        let metrics = cluster.host().run("curl", &["-s", "http://127.0.0.1:9080/metrics"])?;
        Ok(metrics.contains("\nferrokube_network_policy_policies 2\n").then_some(()))
    })
}
