//! Services whose endpoints the benchmark writes.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use client::Config;
use http::Method;
use netlink::namespace;
use serde_json::{Value, json};
use testkit::{Cluster, Network};

use super::load::{self, ECHO, Load};
use crate::target::{Op, Target};

/// The longest time for anything to take effect.
const LIMIT: Duration = Duration::from_mins(3);
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// The Services of a cluster, by its API.
pub(super) struct Services {
    network: Network,
    kubeconfig: PathBuf,
}

impl Services {
    pub(super) fn new(cluster: &Cluster) -> Result<Self> {
        Ok(Self { network: Network::of(cluster.pid()?)?, kubeconfig: cluster.kubeconfig() })
    }

    /// Makes a Service with one endpoint; its address.
    pub(super) fn to(&self, name: &'static str, endpoint: Ipv4Addr) -> Result<Ipv4Addr> {
        let kubeconfig = self.kubeconfig.clone();
        self.network.run(move || async move {
            let target = Target::connect(Config::from_kubeconfig(&kubeconfig, None)?, 1).await?;
            make(&target, name, endpoint).await
        })
    }

    /// Makes many; the address of the last.
    pub(super) fn many(&self, count: u32, endpoint: Ipv4Addr) -> Result<Ipv4Addr> {
        let kubeconfig = self.kubeconfig.clone();
        self.network.run(move || async move {
            let target = Target::connect(Config::from_kubeconfig(&kubeconfig, None)?, 1).await?;
            let mut last = Ipv4Addr::UNSPECIFIED;
            for number in 0..count {
                last = make(&target, &format!("many-{number}"), endpoint).await?;
            }
            Ok(last)
        })
    }

    /// Moves a Service's only endpoint between two Pods, whose servers have the marks 1 and 2; the seconds from each
    /// write to the first connection that the new endpoint answers, sorted.
    pub(super) fn moves(&self, from: &File, pods: [Ipv4Addr; 2], count: u32) -> Result<Vec<f64>> {
        let service = self.to("moves", pods[0])?;
        reach(from, service, 1)?;
        let mut times = Vec::new();
        for turn in 1..=count {
            let (pod, mark) = if turn % 2 == 0 { (pods[0], 1) } else { (pods[1], 2) };
            let kubeconfig = self.kubeconfig.clone();
            let written = self.network.run(move || async move {
                let target = Target::connect(Config::from_kubeconfig(&kubeconfig, None)?, 1).await?;
                let body = slice("moves", pod).to_string();
                let op = Op::with(Method::PUT, format!("{SLICES}/moves"), "application/json", body);
                let began = Instant::now();
                target.call(op).await?;
                Ok(began)
            })?;
            times.push((reach(from, service, mark)? - written).as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    }
}

/// Waits until the server with a mark answers a new connection to a Service; the instant.
pub(super) fn reach(from: &File, service: Ipv4Addr, mark: u8) -> Result<Instant> {
    namespace::within(from.as_fd(), || {
        let began = Instant::now();
        loop {
            if load::mark(service).is_ok_and(|answered| answered == mark) {
                return Ok(Instant::now());
            }
            ensure!(began.elapsed() < LIMIT, "{service} does not lead to its endpoint");
        }
    })?
}

async fn make(target: &Target, name: &str, endpoint: Ipv4Addr) -> Result<Ipv4Addr> {
    let port = |port: u16| json!({"name": format!("p{port}"), "port": port, "protocol": "TCP"});
    let service = json!({
        "metadata": {"name": name},
        "spec": {"ports": [port(Load::Bytes.port()), port(ECHO)]},
    });
    let made = target.json(Op::post(SERVICES, service.to_string())).await?;
    target.call(Op::post(SLICES, slice(name, endpoint).to_string())).await?;
    Ok(made["spec"]["clusterIP"].as_str().context("a Service without an address")?.parse()?)
}

fn slice(service: &str, endpoint: Ipv4Addr) -> Value {
    let port = |port: u16| json!({"name": format!("p{port}"), "port": port, "protocol": "TCP"});
    json!({
        "metadata": {"name": service, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [endpoint]}],
        "ports": [port(Load::Bytes.port()), port(ECHO)],
    })
}
