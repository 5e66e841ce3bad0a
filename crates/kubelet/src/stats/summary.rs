//! Upstream's summary API, as it is written.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::network::Interface;
use super::tree::Taken;
use super::usage::{Usage, some};
use super::{PodStats, Stats};
use crate::node::machine::Filesystem;

fn time(at: Timestamp) -> Value {
    json!(objects::time::text(at))
}

/// A file system's state; `taken` is what the thing in question has of it, all that is used without.
fn filesystem(fs: &Filesystem, taken: Option<Taken>, at: Timestamp) -> Value {
    json!({
        "time": time(at),
        "availableBytes": fs.available,
        "capacityBytes": fs.capacity,
        "usedBytes": taken.map_or(fs.capacity.saturating_sub(fs.available), |t| t.bytes),
        "inodesFree": fs.inodes_free,
        "inodes": fs.inodes,
        "inodesUsed": taken.map_or(fs.inodes.saturating_sub(fs.inodes_free), |t| t.inodes),
    })
}

fn network(interfaces: &[Interface], at: Timestamp) -> Value {
    let one = |i: &Interface| {
        json!({
            "name": i.name, "rxBytes": i.rx, "rxErrors": i.rx_errors, "txBytes": i.tx, "txErrors": i.tx_errors,
        })
    };
    let Some(first) = interfaces.first() else { return Value::Null };
    let mut network = one(first);
    network["time"] = time(at);
    network["interfaces"] = interfaces.iter().map(one).collect();
    network
}

/// Upstream's `Summary`.
pub(crate) fn summary(stats: &Stats, node: &str, only_cpu_and_memory: bool) -> Value {
    let now = stats.node.time;
    let full = |value: Value| if only_cpu_and_memory { Value::Null } else { value };
    let of = |fs: Option<(Filesystem, Taken)>| {
        fs.map_or(Value::Null, |(fs, taken)| filesystem(&fs, Some(taken), now))
    };
    let runtime = some(vec![("imageFs", of(stats.imagefs)), ("containerFs", of(stats.containerfs))]);
    let pods: Vec<Value> =
        stats.pods.iter().map(|pod| pod_summary(stats, pod, only_cpu_and_memory)).collect();
    let started = stats.started.map_or(Value::Null, time);
    json!({
        "node": some(vec![
            ("nodeName", json!(node)),
            ("systemContainers", json!([some(vec![
                ("name", json!("pods")),
                ("startTime", started.clone()),
                ("cpu", total(stats).cpu_json()),
                ("memory", total(stats).memory_json(stats.pods_available)),
            ])])),
            ("startTime", started),
            ("cpu", stats.node.cpu_json()),
            ("memory", stats.node.memory_json(stats.available)),
            ("network", full(network(stats.interface.as_slice(), now))),
            ("fs", full(stats.nodefs.map_or(Value::Null, |fs| filesystem(&fs, None, now)))),
            ("runtime", full(runtime)),
            ("rlimit", full(stats.pids.map_or(Value::Null, |p| {
                json!({ "time": time(now), "maxpid": p.max, "curproc": p.used })
            }))),
            ("swap", full(stats.node.swap_json())),
        ]),
        "pods": pods,
    })
}

/// The use of all Pods together.
fn total(stats: &Stats) -> Usage {
    let mut total = Usage { time: stats.node.time, ..Usage::default() };
    for pod in &stats.pods {
        total.add(&pod.usage);
    }
    total
}

fn pod_summary(stats: &Stats, pod: &PodStats, only_cpu_and_memory: bool) -> Value {
    let now = stats.node.time;
    let full = |value: Value| if only_cpu_and_memory { Value::Null } else { value };
    let then = pod.measured.unwrap_or(now);
    let of = |fs: Option<Filesystem>, taken: Option<Taken>, at| match (fs, taken) {
        (Some(fs), Some(taken)) => filesystem(&fs, Some(taken), at),
        _ => Value::Null,
    };
    let containers: Vec<Value> = pod
        .containers
        .iter()
        .map(|c| {
            some(vec![
                ("name", json!(c.name)),
                ("startTime", c.started.map_or(Value::Null, time)),
                ("cpu", c.usage.cpu_json()),
                ("memory", c.usage.memory_json(None)),
                ("rootfs", full(of(stats.containerfs.map(|(fs, _)| fs), c.layer, now))),
                ("logs", full(of(stats.nodefs, c.logs, then))),
                ("swap", full(c.usage.swap_json())),
            ])
        })
        .collect();
    let volumes = pod.volumes.iter().map(|v| {
        let mut value = filesystem(&v.room, Some(v.taken), then);
        value["name"] = json!(v.name);
        if let Some((namespace, name)) = &v.claim {
            value["pvcRef"] = json!({ "name": name, "namespace": namespace });
        }
        value
    });
    let volumes: Vec<Value> = volumes.collect();
    some(vec![
        ("podRef", json!({ "name": pod.name, "namespace": pod.namespace, "uid": pod.uid })),
        ("startTime", pod.started.map_or(Value::Null, time)),
        ("containers", json!(containers)),
        ("cpu", pod.usage.cpu_json()),
        ("memory", pod.usage.memory_json(None)),
        ("network", full(network(&pod.interfaces, now))),
        ("volume", full(if volumes.is_empty() { Value::Null } else { json!(volumes) })),
        ("ephemeral-storage", full(of(stats.nodefs, Some(pod.ephemeral_storage()), then))),
        ("process_stats", full(pod.processes.map_or(Value::Null, |n| json!({ "process_count": n })))),
        ("swap", full(pod.usage.swap_json())),
    ])
}
