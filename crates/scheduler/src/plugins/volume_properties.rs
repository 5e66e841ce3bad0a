//! The plugins of volumes beside a plain reading of their rules: of the API's fields as they are written, for one node
//! at a time, without anything worked out before.

use std::sync::Arc;

use client::Change;
use proptest::collection::vec;
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::tests::{decided, decided_by, profile};
use crate::cache::Cache;
use crate::cycle::Decision;
use crate::framework::points::{Cycle, Prefiltered};
use crate::framework::state::State;
use crate::kept::Keeper;
use crate::pod::PodInfo;
use crate::storage::News;

const ZONE: &str = "topology.kubernetes.io/zone";

/// The cluster as objects.
#[derive(Debug)]
struct World {
    nodes: Vec<Value>,
    volumes: Vec<Value>,
    claims: Vec<Value>,
    /// How many volumes of the driver `d` each node takes.
    limits: Vec<Option<usize>>,
    /// Pods that have a node: their claims, by number.
    placed: Vec<(usize, Vec<usize>)>,
}

fn added<T: DeserializeOwned>(value: &Value) -> Change<T> {
    Change::Added(Arc::new(serde_json::from_value(value.clone()).unwrap()))
}

fn pod(uid: &str, claims: &[usize]) -> PodInfo {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|c| json!({"name": format!("v{c}"), "persistentVolumeClaim": {"claimName": format!("c{c}")}}))
        .collect();
    let pod = json!({
        "metadata": {"name": uid, "namespace": "d", "uid": uid}, "spec": {"containers": [], "volumes": volumes},
    });
    PodInfo::new(serde_json::from_value(pod).unwrap())
}

/// The classes: `later` provisions, `never` does not, `now` does not wait.
fn classes() -> [Value; 3] {
    [
        ("later", "p", "WaitForFirstConsumer"),
        ("never", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
        ("now", "p", "Immediate"),
    ]
    .map(|(name, by, mode)| json!({"metadata": {"name": name}, "provisioner": by, "volumeBindingMode": mode}))
}

impl World {
    fn cache(&self) -> Cache {
        let mut cache = Cache::default();
        for node in &self.nodes {
            cache.set_node(Arc::new(serde_json::from_value(node.clone()).unwrap()));
        }
        let storage = cache.storage();
        for class in classes() {
            storage.take(&News::Class(added(&class)));
        }
        for volume in &self.volumes {
            storage.take(&News::Volume(added(volume)));
        }
        for claim in &self.claims {
            storage.take(&News::Claim(added(claim)));
        }
        for (node, limit) in self.nodes.iter().zip(&self.limits) {
            let driver = json!({"name": "d", "nodeID": "n", "allocatable": {"count": limit}});
            let csi = json!({"metadata": {"name": node["metadata"]["name"]}, "spec": {"drivers": [driver]}});
            storage.take(&News::CsiNode(added(&csi)));
        }
        for (i, (node, claims)) in self.placed.iter().enumerate() {
            let name = self.nodes[*node]["metadata"]["name"].as_str().unwrap();
            cache.set_pod(pod(&format!("there-{i}"), claims), name);
        }
        cache
    }

    fn volume(&self, name: &Value) -> Option<&Value> {
        self.volumes.iter().find(|v| &v["metadata"]["name"] == name)
    }

    /// The volume of the driver that a claim counts as on a node.
    fn counted(&self, claim: usize) -> Option<String> {
        let claim = self.claims.get(claim)?;
        match self.volume(&claim["spec"]["volumeName"]) {
            Some(volume) => volume["spec"]["csi"]["volumeHandle"].as_str().map(str::to_owned),
            // The provisioners of the classes are no drivers with a limit.
            None => None,
        }
    }
}

fn on_node(volume: &Value, node: &Value) -> bool {
    let terms = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
    let Some(wanted) = terms[0]["matchExpressions"][0]["values"][0].as_str() else { return true };
    node["metadata"]["labels"]["host"] == wanted
}

fn in_zone(volume: &Value, node: &Value) -> bool {
    let (has, wants) = (&node["metadata"]["labels"][ZONE], &volume["metadata"]["labels"][ZONE]);
    has.is_null() || wants.is_null() || has == wants
}

fn size(object: &Value, path: &str) -> u64 {
    object.pointer(path).and_then(Value::as_str).unwrap().parse().unwrap()
}

/// Whether a Pod with these claims may run on a node.
fn may_run(world: &World, used: &[usize], node: usize) -> bool {
    let (number, node) = (node, &world.nodes[node]);
    let mut open = Vec::new();
    for c in used {
        let Some(claim) = world.claims.get(*c) else { return false };
        let alone = claim["spec"]["accessModes"][0] == "ReadWriteOncePod";
        if alone && world.placed.iter().any(|(_, claims)| claims.contains(c)) {
            return false;
        }
        let bound = !claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"].is_null();
        let named = &claim["spec"]["volumeName"];
        if bound && !named.is_null() {
            let Some(volume) = world.volume(named) else { return false };
            if !on_node(volume, node) || !in_zone(volume, node) {
                return false;
            }
        } else if !named.is_null() || claim["spec"]["storageClassName"] == "now" {
            return false;
        } else {
            open.push((size(claim, "/spec/resources/requests/storage"), *c));
        }
    }
    // The smallest claim takes the smallest volume first; equals in the order of the Pod and of names.
    open.sort_by_key(|(size, _)| *size);
    let mut taken: Vec<&Value> = Vec::new();
    for (wanted, c) in open {
        let claim = &world.claims[c];
        let mut fitting: Vec<&Value> = world
            .volumes
            .iter()
            .filter(|v| v["spec"]["storageClassName"] == claim["spec"]["storageClassName"])
            .filter(|v| size(v, "/spec/capacity/storage") >= wanted && v["spec"]["claimRef"].is_null())
            .filter(|v| {
                v["status"]["phase"] == "Available"
                    && v["spec"]["accessModes"] == claim["spec"]["accessModes"]
            })
            .filter(|v| on_node(v, node) && !taken.contains(v))
            .collect();
        fitting.sort_by_key(|v| (size(v, "/spec/capacity/storage"), v["metadata"]["name"].to_string()));
        match fitting.first() {
            Some(volume) => taken.push(volume),
            None if claim["spec"]["storageClassName"] == "later" => {}
            None => return false,
        }
    }
    let Some(limit) = world.limits[number] else { return true };
    let handles = |claims: &[usize]| claims.iter().filter_map(|c| world.counted(*c)).collect::<Vec<_>>();
    let mut there: Vec<String> =
        world.placed.iter().filter(|(n, _)| *n == number).flat_map(|(_, claims)| handles(claims)).collect();
    let before = there.clone();
    there.extend(handles(used));
    there.sort();
    there.dedup();
    // A Pod that brings nothing new is let in, however many there are.
    handles(used).iter().all(|h| before.contains(h)) || there.len() <= limit
}

fn a_volume() -> impl Strategy<Value = Value> {
    (1..4u8, 0..2usize, 0..5u8, 0..6u8, any::<bool>(), 0..3u8).prop_map(|(size, class, host, odd, csi, mode)| {
        let mut volume = json!({
            "metadata": {"labels": {}},
            "spec": {
                "capacity": {"storage": size.to_string()}, "storageClassName": (["later", "never"][class]),
                "accessModes": [if mode == 0 { "ReadWriteOncePod" } else { "ReadWriteOnce" }],
            },
            "status": {"phase": "Available"},
        });
        if host < 3 {
            let term = json!({"matchExpressions": [{"key": "host", "operator": "In", "values": [format!("n{host}")]}]});
            volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [term]}});
        }
        match odd {
            0 => volume["status"]["phase"] = json!("Released"),
            1 => volume["spec"]["claimRef"] = json!({"name": "other", "namespace": "d"}),
            2 => volume["metadata"]["labels"] = json!({ZONE: "a"}),
            _ => {}
        }
        if csi {
            volume["spec"]["csi"] = json!({"driver": "d", "volumeHandle": ""});
        }
        volume
    })
}

fn a_claim() -> impl Strategy<Value = Value> {
    (1..4u8, 0..12usize, 0..4u8, 0..6usize, 0..10u8).prop_map(|(size, class, mode, bound, complete)| {
        let mut claim = json!({
            "metadata": {"namespace": "d", "annotations": {}},
            "spec": {
                "resources": {"requests": {"storage": size.to_string()}},
                "storageClassName": (["later", "never", "now"][if class < 11 { class % 2 } else { 2 }]),
                "accessModes": [if mode == 0 { "ReadWriteOncePod" } else { "ReadWriteOnce" }],
            },
        });
        if bound < 4 {
            claim["spec"]["volumeName"] = json!(format!("v{bound}"));
            if complete > 0 {
                claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
            }
        }
        claim
    })
}

fn a_world() -> impl Strategy<Value = World> {
    let node = 0..3usize;
    let nodes = vec((node, prop_oneof![Just(None), (0..6usize).prop_map(Some)]), 3);
    let placed = vec((0..3usize, vec(0..5usize, 0..3)), 0..5);
    (nodes, vec(a_volume(), 0..7), vec(a_claim(), 0..6), placed).prop_map(|(nodes, volumes, claims, placed)| {
        let named = |all: Vec<Value>, prefix: &str| -> Vec<Value> {
            let all = all.into_iter().enumerate().map(|(i, mut object)| {
                object["metadata"]["name"] = json!(format!("{prefix}{i}"));
                if !object["spec"]["csi"].is_null() {
                    object["spec"]["csi"]["volumeHandle"] = json!(format!("handle-{i}"));
                }
                object
            });
            all.collect()
        };
        let limits = nodes.iter().map(|(_, limit)| *limit).collect();
        let nodes = nodes.iter().enumerate().map(|(i, (zone, _))| {
            let mut labels = json!({"host": format!("n{i}")});
            if *zone < 2 {
                labels[ZONE] = json!(["a", "b"][*zone]);
            }
            json!({
                "metadata": {"name": format!("n{i}"), "labels": labels}, "status": {"allocatable": {"pods": "99"}},
            })
        });
        let (volumes, claims) = (named(volumes, "v"), named(claims, "c"));
        World { nodes: nodes.collect(), volumes, claims, limits, placed }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn volumes_are_judged_by_the_rules(
        world in a_world(), used in vec(0..6usize, 1..4), others in vec(vec(0..6usize, 1..4), 0..3),
    ) {
        let mut used = used;
        used.sort_unstable();
        used.dedup();
        let (cache, info, profile) = (world.cache(), pod("incoming", &used), profile());
        let mut cycle = Cycle { pod: &info, cluster: &cache, state: State::default() };
        let mut skipped = Vec::new();
        let mut stopped = false;
        for at in &profile.pre_filter {
            match at.plugin.pre_filter(&mut cycle) {
                Ok(Prefiltered::Skip) => skipped.push(at.name),
                Ok(_) => {}
                Err(_) => stopped = true,
            }
        }
        let mut fits = Vec::new();
        for (i, node) in world.nodes.iter().enumerate() {
            let name = node["metadata"]["name"].as_str().unwrap();
            let here = cache.node(name).unwrap();
            let mut asked = profile.filter.iter().filter(|at| !skipped.contains(&at.name));
            let got = !stopped && asked.all(|at| at.plugin.filter(&cycle, here).is_ok());
            prop_assert_eq!(got, may_run(&world, &used, i), "{} for {:?}", name, used);
            if got {
                fits.push(name);
            }
        }
        // It makes no difference that something was kept of Pods with other volumes.
        let mut keeper = Keeper::default();
        for (i, others) in others.iter().enumerate() {
            decided_by(&pod(&format!("other-{i}"), others), &cache, &mut keeper);
        }
        for decision in [decided(&info, &cache), decided_by(&info, &cache, &mut keeper)] {
            match decision {
                Decision::Node(node) => prop_assert!(fits.contains(&node.as_str()), "{node}, not one of {fits:?}"),
                other => prop_assert!(fits.is_empty(), "{other:?}, but {fits:?}"),
            }
        }
    }
}
