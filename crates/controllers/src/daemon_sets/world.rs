//! A DaemonSet with nodes and Pods, of which the plan is carried out in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use client::Cached;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use objects::taints::Tolerance;
use serde_json::{Value, json};

use super::plan::{Plan, Snapshot, manage, place, plan, status, update};
use super::rule::Rule;
use super::template;
use super::testing::{daemon_set, merged, node};
use crate::common::revisions::{POD_REVISION, data_of, hash};
use crate::views::tests::view;
use crate::views::{NodeView, PodView};

pub(super) struct World {
    pub(super) set: DaemonSet,
    pub(super) nodes: BTreeMap<String, Arc<NodeView>>,
    /// The Pods by name, in the order in which they were made.
    pub(super) pods: BTreeMap<String, Value>,
    pub(super) held: HashMap<String, Duration>,
    pub(super) now: i64,
    made: i64,
}

impl World {
    pub(super) fn new(more: Value, nodes: usize) -> Self {
        let nodes = (0..nodes).map(|n| format!("node-{n:03}"));
        Self {
            set: daemon_set(more),
            nodes: nodes.map(|n| (n.clone(), Arc::new(node(&n, json!({}))))).collect(),
            pods: BTreeMap::new(),
            held: HashMap::new(),
            now: 1000,
            made: 0,
        }
    }

    /// Changes the set's spec, and its generation.
    pub(super) fn change(&mut self, spec: Value) {
        let more = json!({"spec": spec});
        let set = merged(serde_json::to_value(&self.set).unwrap(), &more);
        self.set = serde_json::from_value(set).unwrap();
    }

    pub(super) fn set_image(&mut self, image: &str) {
        self.change(json!({"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}));
    }

    pub(super) fn set_node(&mut self, n: usize, more: Value) {
        let name = format!("node-{n:03}");
        self.nodes.insert(name.clone(), Arc::new(node(&name, more)));
    }

    pub(super) fn hash(&self) -> String {
        hash(&data_of(&self.set.spec.as_ref().unwrap().template).unwrap(), None)
    }

    /// Adds a Pod of the set on a node: `more` changes it.
    pub(super) fn add(&mut self, name: &str, n: usize, more: Value) {
        self.made += 1;
        let created = Timestamp::from_second(self.made).unwrap().to_string();
        let labels = json!({POD_REVISION: self.hash()});
        let pod = json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": created, "labels": labels},
            "spec": {"nodeName": format!("node-{n:03}"), "containers": []},
        });
        self.pods.insert(name.to_owned(), merged(pod, &more));
    }

    /// Returns what a Pod says that is ready, or not, since now.
    pub(super) fn readiness(&self, ready: bool) -> Value {
        let since = Timestamp::from_second(self.now).unwrap().to_string();
        let status = if ready { "True" } else { "False" };
        json!({"status": {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": since}]}})
    }

    /// Lets so many of the chosen Pods be ready, or not.
    pub(super) fn set_ready(&mut self, ready: bool, count: usize, chosen: impl Fn(&PodView) -> bool) {
        let readiness = self.readiness(ready);
        let wanted = self.pods.values_mut().filter(|p| {
            let pod = view(p);
            pod.is_ready() != ready && chosen(&pod)
        });
        let mut left = count;
        for pod in wanted.take(count) {
            *pod = merged(pod.clone(), &readiness);
            left -= 1;
        }
        assert!(left == 0 || count == usize::MAX, "{left} Pods too few");
    }

    pub(super) fn all_ready(&mut self) {
        self.set_ready(true, usize::MAX, |_| true);
    }

    pub(super) fn with<T>(&self, ask: impl FnOnce(&Snapshot<'_>) -> T) -> T {
        let rule = Rule::of(&self.set, Tolerance::default());
        let nodes: Vec<_> = self.nodes.values().map(|n| (n.clone(), rule.judge(n))).collect();
        assert!(nodes.is_sorted_by(|(a, _), (b, _)| a.name() < b.name()));
        ask(&Snapshot {
            set: &self.set,
            hash: &self.hash(),
            nodes: &nodes,
            pods: place(self.pods.values().map(|p| Arc::new(view(p)))),
            held: &self.held,
            now: Timestamp::from_second(self.now).unwrap(),
        })
    }

    pub(super) fn plan(&self) -> Plan {
        self.with(|s| plan(s).unwrap())
    }

    pub(super) fn status(&self) -> DaemonSetStatus {
        self.with(status)
    }

    /// Carries a plan out: Pods are made for their nodes, and are gone at once when they are deleted.
    fn apply(&mut self, plan: &Plan) {
        for pod in &plan.delete {
            assert!(self.pods.remove(pod.name()).is_some(), "{} is deleted twice", pod.name());
        }
        let template = template::template(&self.set, &self.hash());
        for node in &plan.create {
            self.made += 1;
            let mut spec = template.spec.clone().unwrap();
            template::aim(&mut spec, node);
            let name = format!("made-{:05}", self.made);
            let created = Timestamp::from_second(self.made).unwrap().to_string();
            let pod = json!({
                "metadata": {"name": name, "uid": name, "creationTimestamp": created,
                    "labels": template.metadata.as_ref().unwrap().labels},
                "spec": spec,
            });
            self.pods.insert(name, pod);
        }
    }

    /// One sync; the numbers of Pods that it makes and deletes are these. Upstream's tests see writes at once, so that
    /// an update follows in the same sync.
    pub(super) fn expect(&mut self, created: usize, deleted: usize) {
        let first = self.with(manage);
        self.apply(&first);
        let second = self.with(update).unwrap();
        self.apply(&second);
        let sum = |count: fn(&Plan) -> usize| count(&first) + count(&second);
        let got = (sum(|p| p.create.len()), sum(|p| p.delete.len()));
        assert_eq!(got, (created, deleted), "made and deleted");
    }
}
