//! Protection of PodGroups: the finalizer that admission gives each holds it as long as Pods are in it that have not
//! ended (upstream: `pkg/controller/scheduling/podgroupprotection`).

use std::sync::Arc;

use api::{Gate, Status};
use client::{Cached, Change, Client, Index, Informer, Key, Selection, resource_of};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;

use crate::common::{deleting, finalizers};
use crate::host::{Controller, Host, Next, Shared, Wiring};
use crate::views::PodView;

const FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";

/// The controller.
pub(crate) struct PodGroups {
    client: Client,
    groups: Informer<PodGroup>,
    pods: Informer<PodView>,
    /// The Pods that have not ended, by their group.
    active: Index<PodView>,
}

impl Controller for PodGroups {
    const NAME: &'static str = "podgroup-protection-controller";
    const ACCOUNT: &'static str = "podgroup-protection-controller";
    const QUEUE: &'static str = "podgroupprotection";
    type Key = Key;

    fn wanted(shared: &Shared) -> bool {
        shared.config.gates.enabled(Gate::GenericWorkload)
    }

    fn new(host: &Host<Key>) -> Self {
        let pods = host.select::<PodView>(resource_of::<Pod>(), Selection::default());
        let active = pods.index("active-group", |pod| {
            let group = group(pod).filter(|_| !pod.is_terminal());
            group.into_iter().map(|key| key.to_string().into()).collect()
        });
        Self { client: host.client(), groups: host.informer(), pods, active }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let queue = wiring.queue();
        self.groups.handle(move |change| {
            if !matches!(change, Change::Deleted(_)) && is_candidate(change.object()) {
                queue.add(change.object().key());
            }
        });
        let queue = wiring.queue();
        self.pods.handle(move |change| freed(change).into_iter().for_each(|key| queue.add(key)));
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let Some(podgroup) = self.groups.get_key(&key).filter(|g| is_candidate(g)) else {
            return Ok(Next::Done);
        };
        let used = !self.active.get(&key.to_string()).is_empty();
        let Some(left) = finalizers::without(&podgroup.metadata, FINALIZER).filter(|_| !used) else {
            return Ok(Next::Done);
        };
        let mut wanted = PodGroup::clone(&podgroup);
        wanted.metadata.finalizers = Some(left);
        match self.client.api::<PodGroup>(&key.namespace).update(&wanted).await {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(Next::Done),
        }
    }
}

/// The group of a Pod.
fn group(pod: &PodView) -> Option<Key> {
    let name = pod.group();
    (!name.is_empty()).then(|| Key::new(pod.namespace(), name))
}

/// Whether a group only waits for its finalizer to go.
fn is_candidate(podgroup: &PodGroup) -> bool {
    deleting(&podgroup.metadata) && finalizers::has(&podgroup.metadata, FINALIZER)
}

/// The groups that a Pod's change may have left without Pods.
fn freed(change: &Change<PodView>) -> Vec<Key> {
    let (gone, ended) = match change {
        Change::Deleted(pod) => (Some(pod), None),
        Change::Added(pod) => (None, Some(pod)),
        // A Pod may have been made anew under its name.
        Change::Updated { old, new } => ((old.uid() != new.uid()).then_some(old), Some(new)),
    };
    let ended = ended.filter(|pod| pod.is_terminal());
    let mut keys: Vec<Key> = gone.into_iter().chain(ended).filter_map(|pod| group(pod)).collect();
    keys.dedup();
    keys
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::views::tests::view;

    fn pod(uid: &str, group: Value, phase: &str) -> Arc<PodView> {
        Arc::new(view(&json!({
            "metadata": {"name": "pod-1", "namespace": "default", "uid": uid},
            "spec": {"nodeName": "node-1", "containers": [], "schedulingGroup": group},
            "status": {"phase": phase},
        })))
    }

    fn of(group: &str) -> Value {
        json!({ "podGroupName": group })
    }

    /// Upstream's 9 cases of `TestHandlePodChange`.
    #[test]
    fn changes_of_pods() {
        let check = |change: Change<PodView>, want: &[&str]| {
            let got: Vec<String> = freed(&change).iter().map(Key::to_string).collect();
            assert_eq!(got, want, "{change:?}");
        };
        let running = || pod("u", of("pg"), "Running");
        check(Change::Deleted(running()), &["default/pg"]);
        check(Change::Updated { old: running(), new: pod("u", of("pg"), "Succeeded") }, &["default/pg"]);
        check(Change::Added(pod("u", of("pg"), "Pending")), &[]);
        check(Change::Added(running()), &[]);
        check(Change::Deleted(pod("u", Value::Null, "Running")), &[]);
        check(Change::Deleted(pod("u", json!({}), "Running")), &[]);
        let other = |group: &str, phase: &str| pod("new-uid", of(group), phase);
        check(Change::Updated { old: running(), new: other("pg", "Succeeded") }, &["default/pg"]);
        check(
            Change::Updated { old: running(), new: other("other-pg", "Failed") },
            &["default/pg", "default/other-pg"],
        );
        check(Change::Updated { old: running(), new: other("pg", "Pending") }, &["default/pg"]);
    }

    /// Upstream's cases of `TestHandlePodGroupUpdate`.
    #[test]
    fn candidates() {
        let check = |finalizers: &[&str], deleted: bool, want: bool| {
            let at = deleted.then_some("2026-01-01T00:00:00Z");
            let meta = json!({"finalizers": finalizers, "deletionTimestamp": at});
            let podgroup: PodGroup = serde_json::from_value(json!({"metadata": meta, "spec": {
                "schedulingPolicy": {"basic": {}}}}))
            .unwrap();
            assert_eq!(is_candidate(&podgroup), want, "{finalizers:?} {deleted}");
        };
        check(&[FINALIZER], true, true);
        check(&[FINALIZER], false, false);
        check(&["other"], true, false);
        check(&[], false, false);
    }
}
