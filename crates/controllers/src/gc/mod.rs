//! Garbage collector: deletes objects that have lost their owners, and the dependents of deleted objects in the
//! background or in the foreground, or frees these dependents (upstream: `pkg/controller/garbagecollector`).
//!
//! It follows the metadata of every resource that can be deleted, and discovers the resources again when a
//! CustomResourceDefinition or an APIService changes. A resource that another controller reads has one watch for both.

mod graph;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{
    Api, Backoff, Change, Client, EventType, Factory, Informer, PartialObject, Patch, Queue, Recorder,
    Resource, Selection, resource_of,
};
use compact_str::CompactString as Text;
use component::Shutdown;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, OwnerReference, Preconditions};
use parking_lot::{Mutex, RwLock};
use serde_json::json;
use tokio::sync::{Notify, watch};

use crate::common::counters::{Counters, Metric};
use crate::common::{batch, finalizers, pods, retry};
use crate::config::Config;
use crate::discovery::{Served, discover};
use crate::host::{Controller, Host, Next, Shared, Wiring};
use crate::views::{FOREGROUND, Meta, ORPHAN};
use graph::{Effect, Graph, Known, Node};

const COMPONENT: &str = "garbage-collector-controller";
const ERRORS: &str = "garbagecollector_controller_resources_sync_error_total";
const COUNTERS: &[Metric] = &[(ERRORS, &[], "[ALPHA] Number of garbage collector resources sync errors")];
/// The time for which changes of the served resources are collected before discovery.
const SETTLE: Duration = Duration::from_secs(1);
/// The time for which the workers wait until all resources are seen. Earlier decisions are checked all the same.
const SYNC_LIMIT: Duration = Duration::from_secs(30);

/// The garbage collector's controller.
pub(crate) struct Collector {
    client: Client,
    /// The informers that the other controllers read too.
    shared: Factory,
    recorder: Recorder,
    errors: Arc<Counters>,
    graph: Mutex<Graph>,
    deletions: Queue<Text>,
    orphanings: Queue<Text>,
    /// The served resources, by group and kind.
    kinds: RwLock<HashMap<(String, String), Arc<Served>>>,
    served_changed: Notify,
    /// The number of objects that are worked on at a time, for each kind of work.
    workers: usize,
    /// Whether the informers have seen enough to begin with.
    seen: watch::Sender<bool>,
}

impl Controller for Collector {
    const NAME: &'static str = "garbage-collector-controller";
    const ALIASES: &'static [&'static str] = &["garbagecollector"];
    const ACCOUNT: &'static str = "generic-garbage-collector";
    const QUEUE: &'static str = "garbage_collector_attempt_to_delete";
    type Key = Text;

    fn wanted(shared: &Shared) -> bool {
        shared.config.garbage_collector
    }

    fn workers(config: &Config) -> usize {
        config.workers.garbage
    }

    fn new(host: &Host<Self::Key>) -> Self {
        let errors = Arc::new(Counters::new(COUNTERS, &[]));
        let told = errors.clone();
        host.metrics().register("garbage-collector-controller/figures", move |page| told.report(page));
        Self {
            recorder: host.recorder(COMPONENT),
            client: host.client(),
            errors,
            shared: host.factory().view(),
            graph: Mutex::default(),
            deletions: host.main_queue(),
            orphanings: host.queue("garbage_collector_attempt_to_orphan"),
            kinds: RwLock::default(),
            served_changed: Notify::new(),
            workers: Self::workers(host.config()),
            seen: watch::Sender::new(false),
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Text>) {
        let c = self.clone();
        wiring.work(&self.orphanings, COMPONENT, self.workers, move |uid: Text| {
            let c = c.clone();
            async move { c.orphan(&uid).await.map(|()| Next::Done) }
        });
        let c = self.clone();
        wiring.spawn_at_once(|shutdown| async move { c.follow(&shutdown).await });
    }

    async fn ready(&self) {
        // The sender lives as long as `self`.
        let _ = self.seen.subscribe().wait_for(|seen| *seen).await;
    }

    async fn sync(&self, uid: Text) -> Result<Next, Status> {
        self.attempt_to_delete(&uid).await.map(|()| Next::Done)
    }
}

struct Monitor {
    served: Arc<Served>,
    source: Source,
}

/// The source of a resource's metadata.
enum Source {
    /// The informers of all controllers. These read the resource as long as the process runs.
    Shared,
    /// A watch that the garbage collector alone wants, and its end.
    Own(Informer<Meta>, Shutdown),
}

/// Whether an object of the resource can be owned: Events are too many, and end by themselves.
fn is_collected(served: &Served) -> bool {
    served.resource.plural != "events" && ["list", "watch", "delete"].iter().all(|v| served.can(v))
}

/// Whether objects of the resource change the set of served resources.
fn changes_what_is_served(resource: &Resource) -> bool {
    matches!(
        (resource.group.as_str(), resource.plural.as_str()),
        ("apiextensions.k8s.io", "customresourcedefinitions") | ("apiregistration.k8s.io", "apiservices")
    )
}

impl Collector {
    async fn follow(self: Arc<Self>, shutdown: &Shutdown) {
        // By then the other controllers have told what they read.
        self.shared.started().await;
        let mut monitors: HashMap<Resource, Monitor> = HashMap::new();
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
        loop {
            let found = discover(&self.client).await;
            let complete = match found {
                Ok(found) => {
                    let complete = found.failed.is_empty();
                    self.monitor(found.resources, complete, &mut monitors, shutdown);
                    complete
                }
                Err(error) => {
                    tracing::debug!(%error, "unable to discover what is served");
                    self.errors.add(ERRORS, &[], 1);
                    false
                }
            };
            if !*self.seen.borrow() && !monitors.is_empty() {
                let own = monitors.values().filter_map(|m| match &m.source {
                    Source::Own(informer, _) => Some(informer.synced()),
                    Source::Shared => None,
                });
                let all = futures::future::join(join_all(own), self.shared.synced());
                if tokio::time::timeout(SYNC_LIMIT, all).await.is_err() {
                    self.errors.add(ERRORS, &[], 1);
                    tracing::warn!(
                        "some resources are not seen yet; the garbage collector works without them"
                    );
                }
                self.seen.send_replace(true);
            }
            let changed = self.served_changed.notified();
            if complete {
                backoff.reset();
                changed.await;
                tokio::time::sleep(SETTLE).await;
            } else {
                let _ = tokio::time::timeout(backoff.delay(), changed).await;
            }
        }
    }

    fn monitor(
        self: &Arc<Self>,
        resources: Vec<Served>,
        complete: bool,
        monitors: &mut HashMap<Resource, Monitor>,
        shutdown: &Shutdown,
    ) {
        let mut kinds = HashMap::new();
        let mut wanted = HashMap::new();
        for served in resources {
            let served = Arc::new(served);
            let group = served.resource.group.to_string();
            kinds.entry((group, served.kind.clone())).or_insert_with(|| served.clone());
            if is_collected(&served) {
                wanted.insert(served.resource.clone(), served);
            }
        }
        if complete {
            *self.kinds.write() = kinds;
            monitors.retain(|resource, monitor| {
                let Source::Own(informer, end) = &monitor.source else { return true };
                let stays = wanted.get(resource).is_some_and(|s| **s == *monitor.served);
                if !stays {
                    end.stop();
                    let mut graph = self.graph.lock();
                    for object in informer.list() {
                        graph.forget(&object.uid);
                    }
                }
                stays
            });
        } else {
            self.kinds.write().extend(kinds);
        }
        for (resource, served) in wanted {
            monitors.entry(resource).or_insert_with(|| self.watch(served, shutdown));
        }
    }

    fn watch(self: &Arc<Self>, served: Arc<Served>, shutdown: &Shutdown) -> Monitor {
        let (resource, everything) = (served.resource.clone(), Selection::default());
        let (this, about) = (self.clone(), served.clone());
        if !self.shared.reads(&resource, &everything) {
            let informer: Informer<Meta> = Informer::of(&self.client, resource, everything);
            informer.handle(move |change| this.changed(&about, change));
            let end = shutdown.child();
            informer.start(&end);
            return Monitor { served, source: Source::Own(informer, end) };
        }
        if resource == resource_of::<Pod>() {
            // Their views have the metadata: nothing is decoded or kept twice.
            pods::informer(&self.shared)
                .handle(move |change| this.changed(&about, &change.map(|pod| pod.meta.clone())));
        } else {
            let informer = self.shared.select::<Meta>(resource, everything);
            informer.handle(move |change| this.changed(&about, change));
        }
        Monitor { served, source: Source::Shared }
    }

    fn changed(&self, served: &Arc<Served>, change: &Change<Meta>) {
        if changes_what_is_served(&served.resource) {
            self.served_changed.notify_one();
        }
        let effects = {
            let mut graph = self.graph.lock();
            match change {
                Change::Added(meta) => graph.observe(served, meta),
                Change::Updated { old, new } if old.uid != new.uid => {
                    let mut effects = graph.forget(&old.uid);
                    effects.extend(graph.observe(served, new));
                    effects
                }
                Change::Updated { new, .. } => graph.observe(served, new),
                Change::Deleted(meta) => graph.forget(&meta.uid),
            }
        };
        for effect in effects {
            match effect {
                Effect::Delete(uid) => self.deletions.add(uid),
                Effect::Orphan(uid) => self.orphanings.add(uid),
                Effect::InvalidNamespace(uid, owner) => self.report_namespace(&uid, &owner),
            }
        }
    }

    fn report_namespace(&self, uid: &str, owner: &str) {
        let Some(node) = self.graph.lock().get(uid) else { return };
        let Some(r) = node.meta.owners.iter().find(|r| r.uid == owner) else { return };
        let namespace = &node.meta.namespace;
        let text = format!(
            "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}] does not exist in namespace \"{namespace}\"",
            r.api_version, r.kind, r.name, r.uid
        );
        let about = ObjectReference {
            api_version: Some(node.served.api_version()),
            kind: Some(node.served.kind.clone()),
            namespace: Some(namespace.to_string()),
            name: Some(node.meta.name.to_string()),
            uid: Some(node.meta.uid.to_string()),
            ..ObjectReference::default()
        };
        self.recorder.event_about(about, EventType::Warning, "OwnerRefInvalidNamespace", text);
    }

    fn api(&self, served: &Served, namespace: &str) -> Api<PartialObject> {
        self.client.resource(served.resource.clone(), if served.namespaced { namespace } else { "" })
    }

    /// Returns the newest state of a node's object; `None` if there is no such object any more.
    async fn fresh(&self, node: &Node) -> Result<Option<PartialObject>, Status> {
        match self.api(&node.served, &node.meta.namespace).get(&node.meta.name).await {
            Ok(object) if object.metadata.uid.as_deref() == Some(node.meta.uid.as_str()) => Ok(Some(object)),
            Ok(_) => Ok(None),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    async fn attempt_to_delete(&self, uid: &str) -> Result<(), Status> {
        let Some(node) = self.graph.lock().get(uid) else { return Ok(()) };
        if node.meta.waits_for_dependents() {
            return self.go_on_in_foreground(&node).await;
        }
        if node.meta.deleting || node.meta.owners.is_empty() {
            return Ok(());
        }
        let Some(latest) = self.fresh(&node).await? else { return Ok(()) };
        let references = latest.metadata.owner_references.clone().unwrap_or_default();
        let Some(found) = self.classify(&node, &references).await? else { return Ok(()) };
        if references.is_empty() {
            return Ok(());
        }
        if found.solid {
            if !found.lost.is_empty() || !found.waiting.is_empty() {
                // Owners whose deletion waits are dropped too: they would wait for this object for ever.
                let gone = |uid: &str| found.lost.contains(uid) || found.waiting.contains(uid);
                self.write_owners(&node, &latest, json!(without(&references, gone))).await?;
            }
            if found.unseen {
                return Err(retry("an owner is not seen yet"));
            }
            return Ok(());
        }
        let dependents = self.graph.lock().dependents(uid);
        if !found.waiting.is_empty() && !dependents.is_empty() {
            if dependents.iter().any(|d| d.meta.waits_for_dependents()) {
                // There may be a circle: no owner may wait for this object.
                self.write_owners(&node, &latest, json!(unblocked(&references))).await?;
                return self.delete(&node, None, "Foreground").await;
            }
            return self.delete(&node, Some(&latest), "Foreground").await;
        }
        let has = |finalizer: &str| finalizers::has(&latest.metadata, finalizer);
        let policy = if has(ORPHAN) {
            "Orphan"
        } else if has(FOREGROUND) {
            "Foreground"
        } else {
            "Background"
        };
        self.delete(&node, Some(&latest), policy).await
    }

    /// Sorts an object's owners by their state; `None` if one of them can never be found.
    async fn classify(&self, node: &Node, owners: &[OwnerReference]) -> Result<Option<Found>, Status> {
        let mut found = Found::default();
        for reference in owners {
            let known = self.graph.lock().known(reference, &node.meta.namespace);
            let known = match known {
                Known::Unknown => {
                    let Some(asked) = self.ask(node, reference).await? else { return Ok(None) };
                    found.unseen |= asked != Known::Absent && !self.graph.lock().sees(&reference.uid);
                    asked
                }
                known => known,
            };
            match known {
                Known::Solid | Known::Unknown => found.solid = true,
                Known::Waiting => drop(found.waiting.insert(reference.uid.clone())),
                Known::Absent => drop(found.lost.insert(reference.uid.clone())),
            }
        }
        Ok(Some(found))
    }

    /// Asks the server about an owner.
    async fn ask(&self, node: &Node, reference: &OwnerReference) -> Result<Option<Known>, Status> {
        let group = reference.api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
        let served = self.kinds.read().get(&(group, reference.kind.clone())).cloned();
        let Some(served) = served else {
            let (kind, version) = (&reference.kind, &reference.api_version);
            return Err(retry(format_args!("unable to get REST mapping for {version}/{kind}.")));
        };
        let namespace = &node.meta.namespace;
        if served.namespaced && namespace.is_empty() {
            // An object of the cluster cannot have an owner in a namespace, now or later.
            return Ok(None);
        }
        let owner = match self.api(&served, namespace).get(&reference.name).await {
            Ok(owner) if owner.metadata.uid.as_deref() == Some(reference.uid.as_str()) => owner.metadata,
            Err(e) if !e.is_not_found() => return Err(e),
            _ => {
                let at = if served.namespaced { namespace.as_str() } else { "" };
                self.graph.lock().note_absent(reference, at);
                return Ok(Some(Known::Absent));
            }
        };
        let waits = owner.deletion_timestamp.is_some() && finalizers::has(&owner, FOREGROUND);
        Ok(Some(if waits { Known::Waiting } else { Known::Solid }))
    }

    async fn go_on_in_foreground(&self, node: &Node) -> Result<(), Status> {
        let blocking = self.graph.lock().blocking_dependents(&node.meta.uid);
        if blocking.is_empty() {
            return self.remove_finalizer(node, FOREGROUND).await;
        }
        for dependent in blocking.iter().filter(|d| !d.meta.waits_for_dependents()) {
            self.deletions.add(dependent.meta.uid.clone());
        }
        Ok(())
    }

    async fn orphan(&self, uid: &str) -> Result<(), Status> {
        let (node, dependents) = {
            let graph = self.graph.lock();
            (graph.get(uid), graph.dependents(uid))
        };
        let Some(node) = node else { return Ok(()) };
        let freed = batch::all(dependents.iter().map(|dependent| async move {
            let Some(latest) = self.fresh(dependent).await? else { return Ok(()) };
            let owners = latest.metadata.owner_references.clone().unwrap_or_default();
            let kept = without(&owners, |owner| owner == uid);
            if kept.len() == owners.len() {
                return Ok(());
            }
            self.write_owners(dependent, &latest, json!(kept)).await
        }));
        freed.await.into_iter().collect::<Result<(), Status>>()?;
        self.remove_finalizer(&node, ORPHAN).await
    }

    /// Replaces an object's owner references, unless it was written meanwhile.
    async fn write_owners(
        &self,
        node: &Node,
        latest: &PartialObject,
        owners: serde_json::Value,
    ) -> Result<(), Status> {
        let patch = json!({"metadata": {
            "uid": node.meta.uid.as_str(),
            "resourceVersion": latest.metadata.resource_version,
            "ownerReferences": owners,
        }});
        let api = self.api(&node.served, &node.meta.namespace);
        match api.patch(&node.meta.name, &Patch::Merge(patch)).await {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(()),
        }
    }

    async fn remove_finalizer(&self, node: &Node, finalizer: &str) -> Result<(), Status> {
        let Some(latest) = self.fresh(node).await? else { return Ok(()) };
        let Some(kept) = finalizers::without(&latest.metadata, finalizer) else { return Ok(()) };
        let patch = json!({"metadata": {
            "resourceVersion": latest.metadata.resource_version, "finalizers": kept,
        }});
        let api = self.api(&node.served, &node.meta.namespace);
        match api.patch(&node.meta.name, &Patch::Merge(patch)).await {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(()),
        }
    }

    /// Deletes an object of this uid; if `at` is given, only if its owners are still those of `at`.
    async fn delete(&self, node: &Node, at: Option<&PartialObject>, policy: &str) -> Result<(), Status> {
        let api = self.api(&node.served, &node.meta.namespace);
        let options = |version: Option<String>| DeleteOptions {
            propagation_policy: Some(policy.to_owned()),
            preconditions: Some(Preconditions {
                uid: Some(node.meta.uid.to_string()),
                resource_version: version,
            }),
            ..DeleteOptions::default()
        };
        let version = at.and_then(|o| o.metadata.resource_version.clone());
        let gone = |r: Result<(), Status>| match r {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(()),
        };
        match (api.delete(&node.meta.name, Some(&options(version))).await, at) {
            (Err(e), Some(at)) if e.is_conflict() => {
                let Some(latest) = self.fresh(node).await? else { return Ok(()) };
                if latest.metadata.owner_references != at.metadata.owner_references {
                    return Err(e);
                }
                // Other writes, however fast they come, do not keep the object from being collected.
                gone(api.delete(&node.meta.name, Some(&options(None))).await)
            }
            (result, _) => gone(result),
        }
    }
}

/// The references to owners without those of some uids.
fn without(references: &[OwnerReference], gone: impl Fn(&str) -> bool) -> Vec<&OwnerReference> {
    references.iter().filter(|r| !gone(&r.uid)).collect()
}

/// The references to owners, none of which waits for the object.
fn unblocked(references: &[OwnerReference]) -> Vec<OwnerReference> {
    let mut all = references.to_vec();
    for blocking in all.iter_mut().filter(|r| r.block_owner_deletion == Some(true)) {
        blocking.block_owner_deletion = Some(false);
    }
    all
}

/// An object's owners, sorted by their state.
#[derive(Default)]
struct Found {
    /// Whether an owner exists and stays.
    solid: bool,
    /// The owners whose deletion waits for their dependents.
    waiting: HashSet<String>,
    /// The owners that are gone.
    lost: HashSet<String>,
    /// Whether an owner exists that the informers have not shown.
    unseen: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references(owners: &[(&str, Option<bool>)]) -> Vec<OwnerReference> {
        let reference = |(uid, block): &(&str, Option<bool>)| OwnerReference {
            uid: (*uid).to_owned(),
            block_owner_deletion: *block,
            ..OwnerReference::default()
        };
        owners.iter().map(reference).collect()
    }

    /// Upstream's case of `TestDeleteOwnerRefPatch`, and references of which none goes.
    #[test]
    fn owners_that_are_dropped() {
        let check = |gone: &[&str], want: &[&str]| {
            let all = references(&[("1", None), ("2", None), ("3", None)]);
            let left: Vec<&str> =
                without(&all, |uid| gone.contains(&uid)).iter().map(|r| r.uid.as_str()).collect();
            assert_eq!(left, want, "{gone:?}");
        };
        check(&["2", "3"], &["1"]);
        check(&["4"], &["1", "2", "3"]);
        check(&["1", "2", "3"], &[]);
    }

    /// Upstream's case of `TestUnblockOwnerReference`: a reference that says nothing stays as it is.
    #[test]
    fn owners_that_wait_no_more() {
        let before = references(&[("1", Some(true)), ("2", Some(false)), ("3", None)]);
        let after = references(&[("1", Some(false)), ("2", Some(false)), ("3", None)]);
        assert_eq!(unblocked(&before), after);
    }

    /// The 3 resources of upstream's `TestGetDeletableResources` in versions that can be read. Its faults of discovery are
    /// in the simulation.
    #[test]
    fn resources_that_are_collected() {
        let check = |group: &str, plural: &str, verbs: &[&str], want: bool| {
            let resource = Resource { group: group.into(), version: "v1".into(), plural: plural.into() };
            let served = Served::new(resource, "Kind", true).with_verbs(verbs);
            assert_eq!(is_collected(&served), want, "{group} {plural}");
        };
        check("apps", "pods", &["delete", "list", "watch"], true);
        check("apps", "services", &[], false);
        check("acme", "widgets", &["delete"], false);
        // Upstream names these in its list of ignored resources.
        check("", "events", &["delete", "list", "watch"], false);
        check("events.k8s.io", "events", &["delete", "list", "watch"], false);
    }
}
