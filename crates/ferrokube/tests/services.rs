//! Services of a real cluster: what clients reach by their addresses, also while the cluster is away.

use std::fs;
use std::path::PathBuf;
use std::process::Child;

use anyhow::{Context, Result, ensure};
use rcgen::DnType;
use rustix::process::{Pid, kill_process};
use testkit::{Cluster, Host, Image, Options, Signal, binary, eventually};

use crate::certificates::kubeconfig;

const IMAGE: &str = "test.local/app:1";
/// An address of the default range.
const ADDRESS: &str = "10.96.0.77";
const NODE_PORT: u16 = 30_077;

const WEB: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  clusterIP: 10.96.0.77
  selector: {app: web}
  ports: [{port: 80, targetPort: http, nodePort: 30077}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: c
        image: test.local/app:1
        command: [sh, -c, "mkdir /www && hostname > /www/index.html && exec busybox httpd -f -p 80 -h /www"]
        ports: [{name: http, containerPort: 80}]
        readinessProbe: {httpGet: {port: http}, periodSeconds: 1}
        lifecycle: {preStop: {sleep: {seconds: 2}}}
"#;

fn cluster(name: &str, flags: &[&str]) -> Result<Cluster> {
    let flags = flags.iter().map(ToString::to_string).collect();
    let cluster =
        Cluster::start(name, Options { images: vec![Image::busybox(IMAGE)?], flags, ..Options::default() })?;
    cluster.apply(WEB)?;
    cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"])?;
    Ok(cluster)
}

/// The name of the Pod that answers.
fn get(host: &Host, url: &str) -> Result<String> {
    Ok(host.run("curl", &["-s", "--fail", "--max-time", "3", url])?.trim().to_owned())
}

/// The names of both Pods, by asking an address often enough.
fn both_answer(host: &Host, address: &str) -> Result<()> {
    let mut names = std::collections::BTreeSet::new();
    let url = format!("http://{address}/");
    eventually(&url, || {
        names.insert(get(host, &url)?);
        Ok((names.len() == 2).then_some(()))
    })
}

/// The cluster's table of Services with the numbers that the kernel gave its parts; none if there is no table.
fn table(host: &Host) -> Result<String> {
    let tables = host.run("nft", &["list", "tables"])?;
    let Some(name) =
        tables.lines().filter_map(|l| l.strip_prefix("table inet ")).find(|n| n.ends_with("-services"))
    else {
        return Ok(String::new());
    };
    host.run("nft", &["-a", "list", "table", "inet", name])
}

/// Clients that ask for the Service one after the other until they are told to stop.
struct Load {
    stop: PathBuf,
    log: PathBuf,
    asking: Child,
}

impl Load {
    fn start(host: &Host) -> Result<Self> {
        let (stop, log) = (host.path("stop-asking"), host.path("asking.log"));
        let script = format!(
            "while [ ! -e {stop} ]; do curl -s --fail --max-time 3 -o {page} http://{ADDRESS}/ && echo answered || echo failed; done",
            stop = stop.display(),
            page = host.path("page").display()
        );
        let asking = host.spawn("asking", host.command("sh").args(["-c", &script]))?;
        Ok(Self { stop, log, asking })
    }
    /// The answers so far.
    fn answers(&self) -> Result<usize> {
        let log = fs::read_to_string(&self.log)?;
        ensure!(!log.contains("failed"), "a request failed after {} answers", log.lines().count());
        Ok(log.matches("answered").count())
    }
    /// Waits until so many more were answered.
    fn wait_for(&self, more: usize) -> Result<()> {
        let before = self.answers()?;
        eventually("answers", || Ok((self.answers()? >= before + more).then_some(())))
    }
    fn stop(mut self) -> Result<usize> {
        fs::write(&self.stop, "")?;
        self.asking.wait()?;
        self.answers()
    }
}

#[test]
fn services_are_reached_by_every_address_and_go_with_the_cluster() -> Result<()> {
    let mut cluster = cluster("services", &[])?;
    for address in [ADDRESS.to_owned(), format!("127.0.0.1:{NODE_PORT}"), format!("192.0.2.10:{NODE_PORT}")] {
        both_answer(cluster.host(), &address)?;
    }
    let by_name =
        ["exec", "deploy/web", "--", "busybox", "timeout", "3", "busybox", "wget", "-qO-", "http://web/"];
    ensure!(cluster.kubectl(&by_name)?.contains("web-"));
    let outcomes = get(cluster.host(), "http://127.0.0.1:10249/metrics/slis")?;
    let outcome = "kubernetes_healthcheck{name=\"ping\",type=\"healthz\"} 1\n";
    ensure!(outcomes.contains(outcome), "{outcomes}");
    let modes = get(cluster.host(), "http://127.0.0.1:10249/proxyMode")?;
    ensure!(modes == "nftables", "{modes}");

    // A killed process leaves the rules, and the next one finds nothing to write.
    let before = table(cluster.host())?;
    cluster.stop_ferrokube(Signal::KILL)?;
    both_answer(cluster.host(), ADDRESS)?;
    cluster.start_ferrokube()?;
    cluster.wait_ready()?;
    let healthy = "http://192.0.2.10:10256/healthz";
    eventually("the proxy has its caches", || {
        get(cluster.host(), healthy)?;
        Ok(Some(()))
    })?;
    let after = table(cluster.host())?;
    ensure!(before == after, "before:\n{before}\nafter:\n{after}");

    cluster.kubectl(&["scale", "deployment/web", "--replicas=0"])?;
    eventually("nobody answers", || {
        Ok(get(cluster.host(), &format!("http://{ADDRESS}/")).is_err().then_some(()))
    })?;
    cluster.stop_ferrokube(Signal::TERM)?;
    ensure!(!table(cluster.host())?.is_empty());
    let (binary, data) = (binary(), cluster.data_dir());
    cluster.host().run(&binary.to_string_lossy(), &["down", "--data-dir", &data.to_string_lossy()])?;
    ensure!(table(cluster.host())?.is_empty());
    Ok(())
}

#[test]
fn a_rolling_update_fails_no_request_also_when_the_cluster_is_killed() -> Result<()> {
    let mut cluster = cluster("rolling", &[])?;
    let load = Load::start(cluster.host())?;
    load.wait_for(50)?;
    // `rollout restart` writes the second that it is, so that two in one second would be no update.
    cluster.kubectl(&["set", "env", "deployment/web", "ROUND=1"])?;
    cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"])?;
    cluster.kubectl(&["set", "env", "deployment/web", "ROUND=2"])?;
    load.wait_for(20)?;
    cluster.stop_ferrokube(Signal::KILL)?;
    load.wait_for(50)?;
    cluster.start_ferrokube()?;
    cluster.wait_ready()?;
    cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"])?;
    load.wait_for(50)?;
    let answers = load.stop()?;
    ensure!(answers > 170, "{answers}");
    Ok(())
}

#[test]
fn a_proxy_alone_does_the_same_until_it_cleans_up() -> Result<()> {
    let cluster = cluster("kube-proxy", &["--disable-kube-proxy"])?;
    let host = cluster.host();
    ensure!(get(host, &format!("http://{ADDRESS}/")).is_err());
    let config = kubeconfig(&cluster, "proxy", &[(DnType::CommonName, "system:kube-proxy")])?;
    let link = host.path("kube-proxy");
    std::os::unix::fs::symlink(binary(), &link)?;
    let flags = [
        &format!("--kubeconfig={}", config.display()),
        "--proxy-mode=iptables",
        "--cluster-cidr=10.244.0.0/16",
        "--nodeport-addresses=127.0.0.0/8",
        "--conntrack-max-per-core=0",
        "--ipvs-scheduler=rr",
        "-v=2",
    ];
    let mut proxy = host.spawn("kube-proxy", host.command(&link).args(flags))?;
    eventually("the Service", || get(host, &format!("http://{ADDRESS}/")).map(Some))?;
    both_answer(host, &format!("127.0.0.1:{NODE_PORT}"))?;
    ensure!(get(host, &format!("http://192.0.2.10:{NODE_PORT}/")).is_err());
    let told = host.log("kube-proxy");
    for sentence in
        ["--ipvs-scheduler has no effect here: there is no IPVS", "--proxy-mode=iptables is done by nftables"]
    {
        ensure!(told.contains(sentence), "{told}");
    }
    let metrics = get(host, "http://127.0.0.1:10249/metrics")?;
    ensure!(metrics.contains("kubeproxy_sync_proxy_rules_duration_seconds_count"), "{metrics}");
    ensure!(metrics.contains("rest_client_requests_total{code=\"200\","), "{metrics}");
    let pid = Pid::from_raw(Host::pid_of(&proxy)?.cast_signed()).context("no process id")?;
    kill_process(pid, Signal::TERM)?;
    ensure!(proxy.wait()?.success(), "{}", host.log("kube-proxy"));
    both_answer(host, ADDRESS)?;
    host.run(&link.to_string_lossy(), &["--cleanup"])?;
    ensure!(get(host, &format!("http://{ADDRESS}/")).is_err());
    Ok(())
}
