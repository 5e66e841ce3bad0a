//! Services and network policies in the kernel's packet filter: full start, start of the next process, one change.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use netlink::namespace;
use netlink::nft::Filter;
use proxy::{Event, Place, Proxier, Settings};
use serde_json::json;
use testkit::Host;

use crate::policies;

/// The load of Services.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Services with one port
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    services: u32,
    /// Endpoints of each
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    endpoints: u32,
    /// Changes that are measured, one after the other
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    changes: u32,
    /// Network policies, in ten namespaces
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    policies: u32,
    /// Pods of the node for which they hold
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pods: u32,
}

/// Measures in a network namespace of its own.
pub(crate) fn run(args: &Args) -> Result<()> {
    let host = Host::new("bench")?;
    let network = namespace::open(&host.network()).context("cannot open the network namespace")?;
    namespace::within(network.as_fd(), || {
        measure(args)?;
        policies::measure(args.pods, args.policies)
    })?
}

fn proxier() -> Proxier {
    Proxier::new("bench", Settings::default(), Place { node: "n0".into(), zone: "".into() })
}

fn measure(args: &Args) -> Result<()> {
    let mut filter = Filter::open()?;
    let mut events = Vec::new();
    for i in 0..args.services {
        events.push(service(i)?);
        events.push(slice(i, args.endpoints, 0)?);
    }
    let mut start = || -> Result<_> {
        let began = Instant::now();
        let mut proxier = proxier();
        for event in &events {
            proxier.apply(event.clone());
        }
        let changes = proxier.sync(&mut filter)?;
        Ok((proxier, changes, began.elapsed()))
    };
    let (_, changes, first) = start()?;
    let (mut proxier, nothing, next) = start()?;
    println!("{} Services of {} endpoints", args.services, args.endpoints);
    println!("  full start            {first:>10.1?}  {} elements", changes.added);
    println!("  start of the next     {next:>10.1?}  {} elements", nothing.added);
    let mut times = Vec::new();
    for i in 0..args.changes {
        let event = slice(i % args.services, args.endpoints, 1 + i / args.services)?;
        let began = Instant::now();
        proxier.apply(event);
        proxier.sync(&mut filter)?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or(Duration::ZERO);
    println!("  one endpoint changes  {:>10.1?}  median, {:.1?} p99", at(50), at(99));
    let began = Instant::now();
    proxier.apply(service(args.services)?);
    proxier.apply(slice(args.services, args.endpoints, 0)?);
    proxier.sync(&mut filter)?;
    println!("  one Service more      {:>10.1?}", began.elapsed());
    Ok(())
}

fn service(i: u32) -> Result<Event> {
    let cluster = format!("172.{}.{}.{}", 16 + i / 62_500, i / 250 % 250, i % 250 + 1);
    let object = json!({
        "metadata": {"namespace": "bench", "name": format!("s{i}")},
        "spec": {
            "type": "ClusterIP", "clusterIP": cluster, "clusterIPs": [cluster],
            "ports": [{"port": 80, "protocol": "TCP"}],
        },
    });
    Ok(Event::Service(Arc::new(serde_json::from_value(object)?)))
}

/// The slice of a Service; each `turn` has another last endpoint.
fn slice(i: u32, endpoints: u32, turn: u32) -> Result<Event> {
    let endpoint = |n: u32| {
        let turn = if n + 1 == endpoints { turn } else { 0 };
        let (a, b) = (i / 250 % 250, i % 250 + 1);
        json!({"addresses": [format!("10.{}.{a}.{b}", (n + 100 * turn) % 250)], "nodeName": format!("n{n}")})
    };
    let object = json!({
        "metadata": {
            "namespace": "bench", "name": format!("s{i}-1"),
            "labels": {"kubernetes.io/service-name": format!("s{i}")},
        },
        "addressType": "IPv4",
        "endpoints": (0..endpoints).map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
    });
    Ok(Event::Slice(Arc::new(serde_json::from_value(object)?)))
}
