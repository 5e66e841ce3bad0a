//! A Service of type LoadBalancer of a real cluster, as others on the link reach it.

use std::os::fd::AsFd;

use anyhow::{Context, Result, ensure};
use netlink::{LinkChange, Routing, namespace};
use testkit::{Cluster, Host, Image, Options, eventually};

const WEB: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  selector: {app: web}
  ports: [{port: 8000, targetPort: 80}]
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: test.local/app:1
    command: [sh, -c, "mkdir /www && echo here > /www/index.html && exec busybox httpd -f -p 80 -h /www"]
    readinessProbe: {httpGet: {port: 80}, periodSeconds: 1}
"#;

/// Makes the other end of the node's link another host's, which has an address on it.
fn outside(cluster: &Cluster) -> Result<Host> {
    let host = Host::new("outside")?;
    let to = namespace::open(&host.network())?;
    let node = namespace::open(&cluster.host().network())?;
    namespace::within(node.as_fd(), || -> Result<()> {
        let mut routing = Routing::open()?;
        let link = routing.link("uplink")?.context("no link")?;
        routing
            .change_link(link.index, &LinkChange { namespace: Some(to.as_fd()), ..LinkChange::default() })?;
        Ok(())
    })??;
    host.run("ip", &["link", "set", "uplink", "up"])?;
    host.run("ip", &["address", "add", "192.0.2.99/24", "dev", "uplink"])?;
    Ok(host)
}

#[test]
fn an_address_of_the_pool_is_announced_and_leads_to_the_pod() -> Result<()> {
    let flags = vec!["--load-balancer-pool=192.0.2.200-192.0.2.203".to_owned()];
    let options = Options { images: vec![Image::busybox("test.local/app:1")?], flags, ..Options::default() };
    let cluster = Cluster::start("balanced", options)?;
    let outside = outside(&cluster)?;
    cluster.apply(WEB)?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod", "web", "--timeout=60s"])?;
    let service = eventually("an address", || {
        let service = cluster.get("service", "web")?;
        Ok(service["status"]["loadBalancer"]["ingress"].is_array().then_some(service))
    })?;
    let ingress = &service["status"]["loadBalancer"]["ingress"];
    ensure!(ingress[0]["ip"] == "192.0.2.200" && ingress[0]["ipMode"] == "VIP", "{ingress}");
    let finalizers = &service["metadata"]["finalizers"];
    ensure!(finalizers[0] == "service.kubernetes.io/load-balancer-cleanup", "{finalizers}");
    let url = "http://192.0.2.200:8000/";
    eventually("the Pod by the address", || {
        let got = outside.run("curl", &["-s", "--max-time", "2", url]);
        Ok(got.ok().filter(|page| page == "here\n"))
    })?;
    let addresses = cluster.host().run("ip", &["address"])?;
    ensure!(!addresses.contains("192.0.2.200"), "no link has the address: {addresses}");
    for reason in ["EnsuredLoadBalancer", "nodeAssigned"] {
        eventually(reason, || {
            let events = cluster.kubectl(&[
                "get",
                "events",
                "-o",
                "name",
                "--field-selector",
                &format!("reason={reason}"),
            ])?;
            Ok((!events.is_empty()).then_some(()))
        })?;
    }
    cluster.kubectl(&["delete", "service", "web", "--wait=true"])?;
    outside.run("ip", &["neigh", "flush", "dev", "uplink"])?;
    eventually("nobody has the address", || {
        Ok(outside.run("curl", &["-s", "--max-time", "2", url]).is_err().then_some(()))
    })
}
