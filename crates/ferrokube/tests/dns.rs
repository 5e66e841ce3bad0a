//! The cluster's DNS, as containers and the machine see it.

use anyhow::{Result, ensure};
use testkit::{Cluster, Image, Options, Signal, eventually};

const IMAGE: &str = "test.local/app:1";

const OBJECTS: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: None, selector: {app: web}, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  hostname: one
  subdomain: web
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: test.local/app:1, command: [sleep, '1000']}]
---
apiVersion: v1
kind: Pod
metadata: {name: machine}
spec:
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: test.local/app:1, command: [sleep, '1000']}]
";

fn cluster(name: &str, flags: &[&str]) -> Result<Cluster> {
    let flags = flags.iter().map(ToString::to_string).collect();
    Cluster::start(name, Options { images: vec![Image::busybox(IMAGE)?], flags, ..Options::default() })
}

/// The answer of `nslookup` in a Pod, once it is not an error.
fn look_up(cluster: &Cluster, pod: &str, name: &str) -> Result<String> {
    eventually(name, || cluster.kubectl(&["exec", pod, "--", "nslookup", name]).map(Some))
}

fn has_address(cluster: &Cluster, address: &str) -> Result<bool> {
    Ok(cluster.host().run("ip", &["-o", "addr", "show", "lo"])?.contains(&format!(" {address}/32 ")))
}

#[test]
fn containers_find_each_other_by_name_also_after_a_kill_until_down() -> Result<()> {
    let mut cluster = cluster("dns", &[])?;
    cluster.apply(OBJECTS)?;
    let address = eventually("the Pod has an address", || {
        let is = cluster.kubectl(&["get", "pod", "web", "-o", "jsonpath={.status.podIP}"])?;
        Ok((!is.is_empty()).then_some(is))
    })?;
    let own = cluster.kubectl(&[
        "get",
        "service",
        "-n",
        "kube-system",
        "kube-dns",
        "-o",
        "jsonpath={.spec.clusterIP}",
    ])?;
    for _ in 0..2 {
        for (name, expected) in [
            ("one.web.default.svc.cluster.local", address.as_str()),
            ("web.default.svc.cluster.local", &address),
            ("kube-dns.kube-system.svc.cluster.local", &own),
        ] {
            for pod in ["web", "machine"] {
                let said = look_up(&cluster, pod, name)?;
                ensure!(said.contains(expected), "{pod}: {name}: {said}");
            }
        }
        let files = cluster.kubectl(&["exec", "web", "--", "cat", "/etc/resolv.conf"])?;
        ensure!(files.contains(&format!("nameserver {own}\n")), "{files}");
        cluster.stop_ferrokube(Signal::KILL)?;
        cluster.start_ferrokube()?;
        cluster.wait_ready()?;
    }
    cluster.stop_ferrokube(Signal::TERM)?;
    ensure!(has_address(&cluster, &own)?);
    let data = cluster.data_dir();
    let binary = testkit::binary();
    let binary = binary.to_str().unwrap_or_default();
    cluster.host().run(binary, &["down", "--data-dir", data.to_str().unwrap_or_default()])?;
    ensure!(!has_address(&cluster, &own)?);
    Ok(())
}

#[test]
fn another_server_has_the_name_and_the_address() -> Result<()> {
    let mut cluster = cluster("no-dns", &["--disable-dns"])?;
    let service = |cluster: &Cluster| cluster.kubectl(&["get", "service", "-n", "kube-system", "-o", "name"]);
    ensure!(service(&cluster)?.is_empty());
    let address = "10.96.0.10";
    cluster.apply(&format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: kube-dns, namespace: kube-system}}, \
         spec: {{clusterIP: {address}, selector: {{k8s-app: kube-dns}}, ports: [{{port: 53, protocol: UDP}}]}}}}"
    ))?;
    ensure!(!has_address(&cluster, address)?);
    cluster.stop_ferrokube(Signal::TERM)?;
    cluster.start_ferrokube()?;
    cluster.wait_ready()?;
    ensure!(service(&cluster)?.contains("kube-dns") && !has_address(&cluster, address)?);
    // It wins also where DNS is not off.
    cluster.stop_ferrokube(Signal::TERM)?;
    cluster.set_flags(&[]);
    cluster.start_ferrokube()?;
    cluster.wait_ready()?;
    eventually("the reason is told", || {
        let told = cluster
            .host()
            .log("ferrokube")
            .contains("Service kube-system/kube-dns belongs to another server");
        Ok(told.then_some(()))
    })?;
    ensure!(!has_address(&cluster, address)?);
    Ok(())
}
