//! Ports and addresses that several servers on one etcd must not give twice, and the list of the servers that run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::Status;
use client::{Api, Client, Config, ListParams, Remote};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use testkit::{Etcd, Server, Signal, eventually};
use tokio::task::JoinSet;

use crate::etcd::start_with;

/// The flag with the range of node ports, and the size of the range.
const RANGE: (&str, usize) = ("--service-node-port-range=30000-30399", 400);
/// The number of clients of each server.
const CLIENTS: usize = 8;

fn services(server: &Server, namespace: &str) -> Result<Api<Service>> {
    let remote = Remote::new(Config::from_kubeconfig(&server.path("kubeconfig"), None)?)?;
    Ok(Client::new(Arc::new(remote), "test").api(namespace))
}

/// A Service with node ports for these ports; 0 for any.
fn service(name: &str, node_ports: &[i32]) -> Service {
    let port = |(n, node_port): (usize, &i32)| ServicePort {
        name: Some(format!("p{n}")),
        port: 80 + n as i32,
        node_port: Some(*node_port),
        ..ServicePort::default()
    };
    Service {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: Some(ServiceSpec {
            type_: Some("NodePort".to_owned()),
            ports: Some(node_ports.iter().enumerate().map(port).collect()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// All node ports and addresses, each of which must be unique.
fn distinct(all: &[Service]) -> Result<BTreeSet<i32>> {
    let (mut ports, mut addresses) = (BTreeMap::new(), BTreeMap::new());
    for service in all {
        let name = service.metadata.name.clone().unwrap_or_default();
        let spec = service.spec.as_ref().context("a Service without spec")?;
        for ip in spec.cluster_ips.iter().flatten() {
            let other = addresses.insert(ip.clone(), name.clone());
            ensure!(other.is_none(), "{ip} is both {name}'s and {other:?}'s");
        }
        for port in spec.ports.iter().flatten().filter_map(|p| p.node_port) {
            let other = ports.insert(port, name.clone());
            ensure!(other.is_none(), "{port} is both {name}'s and {other:?}'s");
        }
    }
    Ok(ports.into_keys().collect())
}

/// Creates Services until the server is gone or there are enough; returns the names of the acknowledged ones.
async fn create(api: Api<Service>, prefix: String, enough: usize, count: Arc<AtomicUsize>) -> Vec<String> {
    let mut made = Vec::new();
    while count.load(Ordering::Relaxed) < enough {
        let name = format!("{prefix}-{}", made.len());
        match api.create(&service(&name, &[0, 0])).await {
            Ok(_) => {
                made.push(name);
                count.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => break,
        }
    }
    made
}

/// Two servers create Services at once, and one of them is killed: no address and no port is given twice, and those of
/// deleted or refused Services can be had again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_port_and_no_address_twice() -> Result<()> {
    let etcd = Etcd::start(1)?;
    let (mut a, b) = (start_with(&etcd, &[RANGE.0])?, start_with(&etcd, &[RANGE.0])?);
    let count = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for n in 0..CLIENTS {
        for (name, server) in [("a", &a), ("b", &b)] {
            let api = services(server, "default")?;
            clients.spawn(create(api, format!("{name}{n}"), 150, Arc::clone(&count)));
        }
    }
    while count.load(Ordering::Relaxed) < 75 {
        ensure!(!clients.is_empty(), "nobody creates");
        tokio::time::sleep(Duration::from_millis(5)).await; // the pace of looking
    }
    a.stop(Signal::KILL)?;
    let mut acknowledged = BTreeSet::new();
    while let Some(made) = clients.join_next().await {
        acknowledged.extend(made?);
    }
    ensure!(acknowledged.len() >= 150, "{} were created", acknowledged.len());
    let api = services(&b, "default")?;
    let all = api.list(&ListParams::default()).await?.items;
    let used = distinct(&all)?;
    let names: BTreeSet<_> = all.iter().filter_map(|s| s.metadata.name.clone()).collect();
    ensure!(acknowledged.is_subset(&names), "acknowledged Services are gone");

    // Ports that the killed server had taken and not used are lost for some rounds of the repair, and no others.
    let mut more = Vec::new();
    let full = loop {
        let name = format!("more-{}", more.len());
        match api.create(&service(&name, &[0])).await {
            Ok(_) => more.push(name),
            Err(error) => break error,
        }
    };
    ensure!(full.message.ends_with("failed to allocate a nodePort: range is full"), "{full}");
    let free = RANGE.1 - used.len();
    ensure!(more.len() <= free && more.len() + 2 * CLIENTS >= free, "{} of {free}", more.len());
    distinct(&api.list(&ListParams::default()).await?.items)?;

    // A later server knows all ports, and those of deleted Services are free for it.
    let late = start_with(&etcd, &[RANGE.0])?;
    let at_late = services(&late, "default")?;
    let refused = at_late.create(&service("late", &[0])).await;
    ensure!(refused.is_err(), "there was none left");
    for name in &more {
        api.delete(name, None).await?;
    }
    for name in &more {
        at_late.create(&service(name, &[0])).await?;
    }
    let all = at_late.list(&ListParams::default()).await?.items;
    let used = distinct(&all)?;

    // A create that fails keeps no port.
    let name = more.first().context("no port was left")?;
    at_late.delete(name, None).await?;
    let left = services(&b, "default")?.list(&ListParams::default()).await?.items;
    let port = *used.difference(&distinct(&left)?).next().context("a port is free")?;
    let check = |outcome: Result<Service, Status>, code: u16| match outcome {
        Err(status) if status.code == code => Ok(()),
        other => Err(anyhow::anyhow!("{other:?}")),
    };
    let taken = acknowledged.first().context("none")?;
    check(at_late.create(&service(taken, &[port])).await, 409)?;
    check(services(&late, "nowhere")?.create(&service("x", &[port])).await, 404)?;
    check(at_late.create(&service("x", &[port, 29_999])).await, 422)?;
    check(at_late.create(&service("x", &[port, *used.first().context("none")?])).await, 422)?;
    let addresses = late.kubectl(&["get", "ipaddresses", "-o", "name"])?;
    ensure!(addresses.lines().count() >= left.len(), "{addresses}");
    at_late.create(&service("x", &[port])).await?;
    distinct(&api.list(&ListParams::default()).await?.items)?;
    Ok(())
}

/// The addresses of the `kubernetes` Service, by its Endpoints and its EndpointSlice.
fn led_to(server: &Server) -> Result<BTreeSet<String>> {
    let read = |what: &str, path: &str| -> Result<BTreeSet<String>> {
        let path = format!("jsonpath={{range {path}}}{{@}}{{\"\\n\"}}{{end}}");
        let out = server.kubectl(&["get", what, "kubernetes", "-o", &path])?;
        Ok(out.lines().map(str::to_owned).collect())
    };
    let endpoints = read("endpoints", ".subsets[*].addresses[*].ip")?;
    let slice = read("endpointslice", ".endpoints[*].addresses[*]")?;
    ensure!(endpoints == slice, "{endpoints:?} {slice:?}");
    Ok(endpoints)
}

/// The `kubernetes` Service leads to every server that runs: not to one that was stopped, from that moment on, and not
/// to one that was killed, once its lease has ended.
#[test]
fn every_server_is_led_to_while_it_runs() -> Result<()> {
    let etcd = Etcd::start(1)?;
    let start = |ip: &str| start_with(&etcd, &[&format!("--advertise-address={ip}")]);
    let (a, mut b, c) = (start("10.9.8.1")?, start("10.9.8.2")?, start("10.9.8.3")?);
    let wait = |server: &Server, expected: &[&str]| {
        let expected: BTreeSet<String> = expected.iter().map(|ip| (*ip).to_owned()).collect();
        let asked = Instant::now();
        // The two may differ while they change.
        eventually("the addresses", || Ok(led_to(server).ok().filter(|found| *found == expected)))?;
        anyhow::Ok(asked.elapsed())
    };
    let all = ["10.9.8.1", "10.9.8.2", "10.9.8.3"];
    for server in [&a, &b, &c] {
        wait(server, &all)?;
    }
    b.stop(Signal::TERM)?;
    let stopped = wait(&a, &["10.9.8.1", "10.9.8.3"])?;
    ensure!(stopped < Duration::from_secs(5), "after {stopped:?}");
    drop(c);
    let killed = wait(&a, &["10.9.8.1"])?;
    ensure!((Duration::from_secs(3)..Duration::from_secs(30)).contains(&killed), "after {killed:?}");
    Ok(())
}
