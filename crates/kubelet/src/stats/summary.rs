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
            ("systemContainers", json!(system(stats, only_cpu_and_memory))),
            ("startTime", started),
            ("cpu", stats.node.cpu_json()),
            ("memory", stats.node.memory_json(stats.available)),
            ("io", full(stats.node.io_json())),
            ("network", full(network(&stats.interfaces, now))),
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

/// The cgroups of the system.
fn system(stats: &Stats, only_cpu_and_memory: bool) -> Vec<Value> {
    let full = |value: Value| if only_cpu_and_memory { Value::Null } else { value };
    let one = |(name, started, usage): &(&str, Option<Timestamp>, Usage)| {
        let available = stats.pods_available.filter(|_| *name == "pods");
        some(vec![
            ("name", json!(name)),
            ("startTime", started.map_or(Value::Null, time)),
            ("cpu", usage.cpu_json()),
            ("memory", usage.memory_json(available)),
            ("io", full(usage.io_json())),
            ("swap", full(usage.swap_json())),
        ])
    };
    stats.system.iter().map(one).collect()
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
                ("io", full(c.usage.io_json())),
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
        if let Some(condition) = &v.condition {
            value["volumeHealthStats"] = json!({ "abnormal": condition.abnormal });
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
        ("io", full(pod.usage.io_json())),
        ("network", full(network(&pod.interfaces, now))),
        ("volume", full(if volumes.is_empty() { Value::Null } else { json!(volumes) })),
        ("ephemeral-storage", full(of(stats.nodefs, Some(pod.ephemeral_storage()), then))),
        ("process_stats", full(pod.processes.map_or(Value::Null, |n| json!({ "process_count": n })))),
        ("swap", full(pod.usage.swap_json())),
    ])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cadvisor::Pressure;
    use crate::csi::Condition;
    use crate::node::machine::Pids;
    use crate::stats::Container;
    use crate::stats::disks::VolumeUse;

    /// The fields of upstream's `k8s.io/kubelet/pkg/apis/stats/v1alpha1`, by the type that has them. `#` is a list, and a
    /// type's name stands for its fields.
    const TYPES: &[(&str, &[&str])] = &[
        ("Summary", &["node:Node", "pods:#Pod"]),
        (
            "Node",
            &[
                "nodeName",
                "systemContainers:#Container",
                "startTime",
                "cpu:Cpu",
                "memory:Memory",
                "io:Io",
                "network:Network",
                "fs:Fs",
                "runtime:Runtime",
                "rlimit:Rlimit",
                "swap:Swap",
            ],
        ),
        ("Rlimit", &["time", "maxpid", "curproc"]),
        ("Runtime", &["imageFs:Fs", "containerFs:Fs"]),
        (
            "Pod",
            &[
                "podRef:PodRef",
                "startTime",
                "containers:#Container",
                "cpu:Cpu",
                "memory:Memory",
                "io:Io",
                "network:Network",
                "volume:#Volume",
                "ephemeral-storage:Fs",
                "process_stats:Process",
                "swap:Swap",
            ],
        ),
        ("Process", &["process_count"]),
        ("PodRef", &["name", "namespace", "uid"]),
        (
            "Container",
            &["name", "startTime", "cpu:Cpu", "memory:Memory", "io:Io", "rootfs:Fs", "logs:Fs", "swap:Swap"],
        ),
        ("Network", &["time", "name", "rxBytes", "rxErrors", "txBytes", "txErrors", "interfaces:#Interface"]),
        ("Interface", &["name", "rxBytes", "rxErrors", "txBytes", "txErrors"]),
        ("Cpu", &["time", "usageNanoCores", "usageCoreNanoSeconds", "psi:Psi"]),
        (
            "Memory",
            &[
                "time",
                "availableBytes",
                "usageBytes",
                "workingSetBytes",
                "rssBytes",
                "pageFaults",
                "majorPageFaults",
                "psi:Psi",
            ],
        ),
        ("Io", &["time", "psi:Psi"]),
        ("Psi", &["full:PsiData", "some:PsiData"]),
        ("PsiData", &["total", "avg10", "avg60", "avg300"]),
        ("Swap", &["time", "swapAvailableBytes", "swapUsageBytes"]),
        (
            "Volume",
            &[
                "time",
                "availableBytes",
                "capacityBytes",
                "usedBytes",
                "inodesFree",
                "inodes",
                "inodesUsed",
                "name",
                "pvcRef:Claim",
                "volumeHealthStats:Health",
            ],
        ),
        ("Health", &["abnormal"]),
        ("Claim", &["name", "namespace"]),
        (
            "Fs",
            &["time", "availableBytes", "capacityBytes", "usedBytes", "inodesFree", "inodes", "inodesUsed"],
        ),
    ];

    /// Compares a value with a type, both ways; notes the fields that were seen.
    fn compare(value: &Value, of: &str, seen: &mut BTreeSet<(String, String)>) {
        let (_, fields) = TYPES.iter().find(|(name, _)| *name == of).unwrap();
        for (key, value) in value.as_object().unwrap() {
            let field = fields.iter().find(|f| f.split(':').next() == Some(key));
            let field = field.unwrap_or_else(|| panic!("{of} has no field {key}"));
            seen.insert((of.to_owned(), key.clone()));
            let Some((_, inner)) = field.split_once(':') else { continue };
            match inner.strip_prefix('#') {
                Some(inner) => value.as_array().unwrap().iter().for_each(|v| compare(v, inner, seen)),
                None => compare(value, inner, seen),
            }
        }
    }

    fn everything() -> Stats {
        let usage = Usage {
            cpu_nanos: Some(1),
            cpu_rate: Some(1),
            memory: Some(1),
            working_set: Some(1),
            rss: Some(1),
            page_faults: Some(1),
            major_page_faults: Some(1),
            swap: Some(1),
            swap_available: Some(1),
            pressure: [Some(Pressure::default()); 3],
            ..Usage::default()
        };
        let fs = Filesystem::default();
        let interface = Interface { name: "eth0".into(), ..Interface::default() };
        let container = Container {
            name: "c".into(),
            usage,
            started: Some(Timestamp::UNIX_EPOCH),
            layer: Some(Taken::default()),
            logs: Some(Taken::default()),
        };
        let volume = VolumeUse {
            name: "v".into(),
            ephemeral: true,
            taken: Taken::default(),
            room: fs,
            claim: Some(("n".into(), "c".into())),
            condition: Some(Condition::default()),
        };
        let pod = PodStats {
            name: "p".into(),
            started: Some(Timestamp::UNIX_EPOCH),
            containers: vec![container],
            usage,
            interfaces: vec![interface.clone()],
            processes: Some(1),
            volumes: vec![volume],
            ..PodStats::default()
        };
        Stats {
            node: usage,
            available: Some(1),
            started: Some(Timestamp::UNIX_EPOCH),
            interfaces: vec![interface],
            system: vec![("pods", Some(Timestamp::UNIX_EPOCH), usage)],
            nodefs: Some(fs),
            imagefs: Some((fs, Taken::default())),
            containerfs: Some((fs, Taken::default())),
            pids: Some(Pids::default()),
            pods_available: Some(1),
            pods: vec![pod],
        }
    }

    #[test]
    fn the_fields_are_upstreams() {
        let mut seen = BTreeSet::new();
        compare(&summary(&everything(), "n", false), "Summary", &mut seen);
        let all = TYPES.iter().flat_map(|(of, fields)| {
            fields.iter().map(move |f| ((*of).to_owned(), f.split(':').next().unwrap_or_default().to_owned()))
        });
        let missing: Vec<_> = all.filter(|field| !seen.contains(field)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn only_what_is_asked_for() {
        let summary = summary(&everything(), "n", true);
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&summary["node"]), ["cpu", "memory", "nodeName", "startTime", "systemContainers"]);
        assert_eq!(keys(&summary["pods"][0]), ["containers", "cpu", "memory", "podRef", "startTime"]);
        assert_eq!(keys(&summary["pods"][0]["containers"][0]), ["cpu", "memory", "name", "startTime"]);
    }
}
