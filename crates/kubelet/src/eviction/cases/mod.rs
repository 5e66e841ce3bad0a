//! Upstream's cases of eviction, with upstream's answers.

mod order;
mod over_time;
mod thresholds;
mod why;

use std::sync::Arc;
use std::time::Duration;

use api::quantity::Quantity;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::observe::{Observation, Observations};
use super::rank::Candidate;
use super::signal::Signal;
use super::threshold::{Amount, Threshold};
use crate::stats::tree::Taken;
use crate::stats::usage::Usage;
use crate::stats::{Container, PodStats};

fn amount(text: &str) -> Amount {
    match text.strip_suffix('%') {
        Some(share) => Amount::Share(share.parse::<f32>().unwrap() / 100.0),
        None => Amount::Quantity(Quantity::parse(text).unwrap()),
    }
}

/// `signal value [grace in seconds [least to reclaim]]`.
fn threshold(text: &str) -> Threshold {
    let parts: Vec<&str> = text.split(' ').collect();
    Threshold {
        signal: parts[0].parse().unwrap(),
        value: amount(parts[1]),
        grace: Duration::from_secs(parts.get(2).map_or(0, |g| g.parse().unwrap())),
        min_reclaim: parts.get(3).map(|m| amount(m)),
    }
}

fn bytes(text: &str) -> u64 {
    u64::try_from(Quantity::parse(text).unwrap().value()).unwrap()
}

/// Signals with what is left of what.
fn seen(all: &[(&str, &str, &str)]) -> Observations {
    let number = |text: &str| i64::try_from(bytes(text)).unwrap();
    all.iter()
        .map(|(signal, available, capacity)| {
            let seen = Observation { available: number(available), capacity: number(capacity), at: None };
            (signal.parse::<Signal>().unwrap(), seen)
        })
        .collect()
}

/// A Pod of a name with a volume, whose container asks for memory and disk.
fn pod(name: &str, priority: i32, requests: &Value) -> Arc<Pod> {
    let value = json!({
        "metadata": {"name": name, "uid": name},
        "spec": {
            "priority": priority,
            "containers": [{"name": name, "resources": {"requests": requests}}],
            "volumes": [{"name": "local-volume", "emptyDir": {}}],
        },
    });
    Arc::new(serde_json::from_value(value).unwrap())
}

/// A Pod's use: memory, processes, and the layer, the logs and the volume in the disk's unit.
fn stats(name: &str, memory: &str, processes: u64, disk: Option<[&str; 3]>) -> PodStats {
    let taken = |text: &str| Taken { bytes: bytes(text), inodes: bytes(text) };
    let container = disk.map(|[layer, logs, _]| Container {
        name: name.to_owned(),
        layer: Some(taken(layer)),
        logs: Some(taken(logs)),
        ..Container::default()
    });
    let volume = disk.map(|[_, _, volume]| crate::stats::disks::VolumeUse {
        name: "local-volume".into(),
        ephemeral: true,
        taken: taken(volume),
        room: crate::node::machine::Filesystem::default(),
        claim: None,
        condition: None,
    });
    PodStats {
        uid: name.to_owned(),
        name: name.to_owned(),
        containers: container.into_iter().collect(),
        usage: Usage { working_set: Some(bytes(memory)), ..Usage::default() },
        processes: Some(processes),
        volumes: volume.into_iter().collect(),
        ..PodStats::default()
    }
}

fn names(candidates: &[Candidate]) -> Vec<String> {
    candidates.iter().map(|c| c.pod.metadata.name.clone().unwrap()).collect()
}
