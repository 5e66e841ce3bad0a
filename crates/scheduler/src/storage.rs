//! Claims, volumes and what is known of them: the API's objects, and those that are assumed to be otherwise.
//!
//! The scheduler's loop writes what it hears ([`Storage::take`]); plugins read, and the tasks of Pods whose volumes are
//! being bound wait for changes. A choice of volumes is *assumed* until the API shows the object changed, whatever the
//! change is, so that the next Pod chooses among what is left (upstream's `passiveAssumeCache`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use api::quantity::Quantity;
use client::Change;
use component::metrics::Page;
use k8s_openapi::Metadata;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use objects::migration::{MIGRATED_PLUGINS, Plugin};
use objects::volumes;
use tokio::sync::watch;

use crate::events::{About, Events, Happening, Pair};

/// The labels of volumes and nodes that name a zone or region (upstream's `topologyLabels`).
pub const ZONE_LABELS: [&str; 4] = [
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

/// A change of an object of storage.
#[derive(Debug)]
#[allow(missing_docs, reason = "each has the name of its kind")]
pub enum News {
    Claim(Change<PersistentVolumeClaim>),
    Volume(Change<PersistentVolume>),
    Class(Change<StorageClass>),
    CsiNode(Change<CSINode>),
    Driver(Change<CSIDriver>),
    Capacity(Change<CSIStorageCapacity>),
    Attachment(Change<VolumeAttachment>),
}

/// An object as the API shows it, and as it is assumed to be.
#[derive(Debug)]
struct Known<T> {
    shown: Arc<T>,
    assumed: Option<Arc<T>>,
}

impl<T: Metadata<Ty = ObjectMeta>> Known<T> {
    fn new(shown: Arc<T>) -> Self {
        Self { shown, assumed: None }
    }
    fn now(&self) -> &Arc<T> {
        self.assumed.as_ref().unwrap_or(&self.shown)
    }
    /// Takes in a new state; an assumption about an older one ends.
    fn show(&mut self, shown: &Arc<T>) {
        if shown.metadata().resource_version != self.shown.metadata().resource_version {
            self.assumed = None;
        }
        self.shown = shown.clone();
    }
    /// Assumes something about the state that is known.
    fn assume(&mut self, object: T) {
        if object.metadata().resource_version == self.shown.metadata().resource_version {
            self.assumed = Some(Arc::new(object));
        }
    }
    /// Takes an assumption about the state of this version back.
    fn restore(&mut self, version: Option<&str>) {
        if self.shown.metadata().resource_version.as_deref() == version {
            self.assumed = None;
        }
    }
}

/// The objects of storage.
#[derive(Debug, Default)]
pub struct Objects {
    /// By namespace and name.
    claims: HashMap<String, HashMap<String, Known<PersistentVolumeClaim>>>,
    volumes: HashMap<String, Known<PersistentVolume>>,
    /// The names of volumes by class. Sorted, so that a choice among equals is always the same.
    by_class: HashMap<String, BTreeSet<String>>,
    classes: HashMap<String, Arc<StorageClass>>,
    csi_nodes: HashMap<String, Arc<CSINode>>,
    drivers: HashMap<String, Arc<CSIDriver>>,
    /// By namespace and name.
    capacities: BTreeMap<(String, String), Arc<CSIStorageCapacity>>,
    /// By node and name.
    attachments: HashMap<String, HashMap<String, Arc<VolumeAttachment>>>,
    nodes: HashMap<String, Arc<Node>>,
}

fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

fn key(meta: &ObjectMeta) -> (&str, &str) {
    (meta.namespace.as_deref().unwrap_or_default(), name(meta))
}

impl Objects {
    /// A claim, as it is assumed to be.
    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Arc<PersistentVolumeClaim>> {
        Some(self.claims.get(namespace)?.get(name)?.now())
    }
    /// A claim, as the API shows it.
    pub fn shown_claim(&self, namespace: &str, name: &str) -> Option<&Arc<PersistentVolumeClaim>> {
        Some(&self.claims.get(namespace)?.get(name)?.shown)
    }
    /// A volume, as it is assumed to be.
    pub fn volume(&self, name: &str) -> Option<&Arc<PersistentVolume>> {
        self.volumes.get(name).map(Known::now)
    }
    /// A volume, as the API shows it.
    pub fn shown_volume(&self, name: &str) -> Option<&Arc<PersistentVolume>> {
        self.volumes.get(name).map(|k| &k.shown)
    }
    /// The volumes of a class, by name.
    pub fn volumes_of(&self, class: &str) -> impl Iterator<Item = &Arc<PersistentVolume>> {
        self.by_class.get(class).into_iter().flatten().filter_map(|name| self.volume(name))
    }
    /// A class.
    pub fn class(&self, name: &str) -> Option<&Arc<StorageClass>> {
        self.classes.get(name)
    }
    /// The drivers on a node.
    pub fn csi_node(&self, name: &str) -> Option<&Arc<CSINode>> {
        self.csi_nodes.get(name)
    }
    /// A driver.
    pub fn driver(&self, name: &str) -> Option<&Arc<CSIDriver>> {
        self.drivers.get(name)
    }
    /// The free storage of drivers that tell it.
    pub fn capacities(&self) -> impl Iterator<Item = &Arc<CSIStorageCapacity>> {
        self.capacities.values()
    }
    /// The attachments of volumes to a node.
    pub fn attachments(&self, node: &str) -> impl Iterator<Item = &Arc<VolumeAttachment>> {
        self.attachments.get(node).into_iter().flat_map(HashMap::values)
    }
    /// A node.
    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.get(name)
    }

    /// Assumes that a claim is like this; nothing happens if the claim has changed meanwhile.
    pub fn assume_claim(&mut self, claim: PersistentVolumeClaim) {
        let (namespace, name) = key(&claim.metadata);
        if let Some(known) = self.claims.get_mut(namespace).and_then(|all| all.get_mut(name)) {
            known.assume(claim);
        }
    }
    /// Assumes that a volume is like this; nothing happens if the volume has changed meanwhile.
    pub fn assume_volume(&mut self, volume: PersistentVolume) {
        if let Some(known) = self.volumes.get_mut(name(&volume.metadata)) {
            known.assume(volume);
        }
    }
    /// Takes back what was assumed of a claim.
    pub fn restore_claim(&mut self, claim: &PersistentVolumeClaim) {
        let (namespace, name) = key(&claim.metadata);
        if let Some(known) = self.claims.get_mut(namespace).and_then(|all| all.get_mut(name)) {
            known.restore(claim.metadata.resource_version.as_deref());
        }
    }
    /// Takes back what was assumed of a volume.
    pub fn restore_volume(&mut self, volume: &PersistentVolume) {
        if let Some(known) = self.volumes.get_mut(name(&volume.metadata)) {
            known.restore(volume.metadata.resource_version.as_deref());
        }
    }

    fn take_claim(&mut self, change: &Change<PersistentVolumeClaim>) {
        let claim = change.object();
        let (namespace, name) = key(&claim.metadata);
        if let Change::Deleted(_) = change {
            if let Some(all) = self.claims.get_mut(namespace) {
                all.remove(name);
                if all.is_empty() {
                    self.claims.remove(namespace);
                }
            }
            return;
        }
        let all = self.claims.entry(namespace.to_owned()).or_default();
        match all.get_mut(name) {
            Some(known) => known.show(claim),
            None => drop(all.insert(name.to_owned(), Known::new(claim.clone()))),
        }
    }

    fn take_volume(&mut self, change: &Change<PersistentVolume>) {
        let volume = change.object();
        let name = name(&volume.metadata);
        let class = volumes::volume_class(volume);
        let gone = matches!(change, Change::Deleted(_));
        let before = self.volumes.get(name).map(|k| volumes::volume_class(&k.shown).to_owned());
        if let Some(before) = before.filter(|b| gone || b != class)
            && let Some(names) = self.by_class.get_mut(&before)
        {
            names.remove(name);
            if names.is_empty() {
                self.by_class.remove(&before);
            }
        }
        if gone {
            self.volumes.remove(name);
            return;
        }
        self.by_class.entry(class.to_owned()).or_default().insert(name.to_owned());
        match self.volumes.get_mut(name) {
            Some(known) => known.show(volume),
            None => drop(self.volumes.insert(name.to_owned(), Known::new(volume.clone()))),
        }
    }

    fn take_attachment(&mut self, change: &Change<VolumeAttachment>) {
        let attachment = change.object();
        // Its node never changes.
        let node = attachment.spec.node_name.as_str();
        if let Change::Deleted(_) = change {
            if let Some(all) = self.attachments.get_mut(node) {
                all.remove(name(&attachment.metadata));
                if all.is_empty() {
                    self.attachments.remove(node);
                }
            }
            return;
        }
        let all = self.attachments.entry(node.to_owned()).or_default();
        all.insert(name(&attachment.metadata).to_owned(), attachment.clone());
    }

    fn take(&mut self, news: &News) {
        match news {
            News::Claim(change) => self.take_claim(change),
            News::Volume(change) => self.take_volume(change),
            News::Class(change) => by_name(&mut self.classes, change),
            News::CsiNode(change) => by_name(&mut self.csi_nodes, change),
            News::Driver(change) => by_name(&mut self.drivers, change),
            News::Capacity(change) => {
                let (namespace, name) = key(&change.object().metadata);
                let key = (namespace.to_owned(), name.to_owned());
                match change {
                    Change::Deleted(_) => self.capacities.remove(&key),
                    _ => self.capacities.insert(key, change.object().clone()),
                };
            }
            News::Attachment(change) => self.take_attachment(change),
        }
    }
}

fn by_name<T: Metadata<Ty = ObjectMeta>>(all: &mut HashMap<String, Arc<T>>, change: &Change<T>) {
    let name = name(change.object().metadata()).to_owned();
    match change {
        Change::Deleted(_) => all.remove(&name),
        _ => all.insert(name, change.object().clone()),
    };
}

/// A stage at which no volumes may be had for a Pod, for errors that are no refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Volumes are looked for.
    Predicate,
    /// They are assumed.
    Assume,
    /// They are bound.
    Bind,
}

/// Upstream's names of [`Stage`].
const STAGES: [&str; 3] = ["predicate", "assume", "bind"];

/// The storage of a cluster. Clones share it.
#[derive(Debug, Clone)]
pub struct Storage(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    objects: RwLock<Objects>,
    failed: [AtomicU64; STAGES.len()],
    changed: watch::Sender<()>,
}

impl Default for Storage {
    fn default() -> Self {
        Self(Arc::new(Shared {
            objects: RwLock::default(),
            failed: Default::default(),
            changed: watch::channel(()).0,
        }))
    }
}

impl Storage {
    /// The objects, to be read.
    pub fn read(&self) -> RwLockReadGuard<'_, Objects> {
        self.0.objects.read().unwrap_or_else(PoisonError::into_inner)
    }
    /// The objects, for assumptions.
    pub fn write(&self) -> RwLockWriteGuard<'_, Objects> {
        self.0.objects.write().unwrap_or_else(PoisonError::into_inner)
    }
    /// Counts that a Pod's volumes could not be found, assumed or bound.
    pub fn failed(&self, stage: Stage) {
        self.0.failed[stage as usize].fetch_add(1, Ordering::Relaxed);
    }
    /// Writes the counts down, with upstream's names.
    pub fn report(&self, page: &mut Page) {
        let name = "scheduler_volume_scheduling_stage_error_total";
        page.metric(name, "counter", "Volume scheduling stage error count");
        for (stage, n) in STAGES.iter().zip(&self.0.failed) {
            page.value(name, &[("operation", stage)], n.load(Ordering::Relaxed) as f64);
        }
    }
    /// Hears of every later change of a claim or volume.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }
    /// Takes in a change; says what happened.
    pub fn take(&self, news: &News) -> Happening {
        self.write().take(news);
        if matches!(news, News::Claim(_) | News::Volume(_)) && self.0.changed.receiver_count() > 0 {
            self.0.changed.send_replace(());
        }
        meaning(news)
    }
    /// Takes in a new or changed node.
    pub fn set_node(&self, node: &Arc<Node>) {
        self.write().nodes.insert(name(&node.metadata).to_owned(), node.clone());
    }
    /// Forgets a node.
    pub fn remove_node(&self, name: &str) {
        self.write().nodes.remove(name);
    }
}

/// The event of a change.
fn meaning(news: &News) -> Happening {
    fn pick<T>(change: &Change<T>, [added, changed, deleted]: [Events; 3]) -> Events {
        match change {
            Change::Added(_) => added,
            Change::Updated { .. } => changed,
            Change::Deleted(_) => deleted,
        }
    }
    let none = Events::NONE;
    match news {
        // It was made anew while nobody looked.
        News::Claim(Change::Updated { old, new }) if old.metadata.uid != new.metadata.uid => {
            let pair = Pair { old: None, new: Some(new.clone()) };
            Happening::new(Events::CLAIM_ADDED, About::Claim(pair))
        }
        News::Claim(change) => {
            let kinds = pick(change, [Events::CLAIM_ADDED, Events::CLAIM_CHANGED, none]);
            Happening::new(kinds, About::Claim(change.into()))
        }
        News::Volume(change) => {
            let kinds = pick(change, [Events::VOLUME_ADDED, Events::VOLUME_CHANGED, none]);
            Happening::new(kinds, About::Volume(change.into()))
        }
        News::Class(change) => {
            let kinds = pick(change, [Events::CLASS_ADDED, Events::CLASS_CHANGED, none]);
            Happening::new(kinds, About::Class(change.into()))
        }
        News::CsiNode(change) => {
            let kinds = pick(change, [Events::CSI_NODE_ADDED, Events::CSI_NODE_CHANGED, none]);
            Happening::new(kinds, About::CsiNode(change.into()))
        }
        News::Driver(change) => {
            let kinds = pick(change, [none, Events::DRIVER_CHANGED, none]);
            Happening::new(kinds, About::Driver(change.into()))
        }
        News::Capacity(change) => {
            let kinds = pick(change, [Events::CAPACITY_ADDED, Events::CAPACITY_CHANGED, none]);
            Happening::new(kinds, About::Capacity(change.into()))
        }
        News::Attachment(change) => {
            let kinds = pick(change, [none, none, Events::ATTACHMENT_DELETED]);
            Happening::new(kinds, About::Attachment(change.into()))
        }
    }
}

/// The labels by which a volume names its zones.
fn zones(volume: &PersistentVolume) -> [Option<&String>; ZONE_LABELS.len()] {
    ZONE_LABELS.map(|key| volume.metadata.labels.as_ref().and_then(|l| l.get(key)))
}

/// Whether a volume's zones changed.
pub fn is_moved(old: &PersistentVolume, new: &PersistentVolume) -> bool {
    zones(old) != zones(new)
}

/// Whether the plugins changed whose volumes a node's drivers mount.
pub fn is_migrated(old: &CSINode, new: &CSINode) -> bool {
    migrated(old) != migrated(new)
}

fn migrated(node: &CSINode) -> &str {
    let said = node.metadata.annotations.as_ref().and_then(|a| a.get(MIGRATED_PLUGINS));
    said.map(String::as_str).unwrap_or_default()
}

/// Whether the drivers of a node have the volumes of a plugin.
pub fn has_migrated(node: &CSINode, plugin: Plugin) -> bool {
    migrated(node).split(',').any(|name| name == plugin.name())
}

/// Whether a driver on a node takes more volumes than before.
pub fn has_more_room(old: &CSINode, new: &CSINode) -> bool {
    let count = |node: &CSINode, driver: &str| {
        let found = node.spec.drivers.iter().find(|d| d.name == driver);
        found.and_then(|d| d.allocatable.as_ref()?.count).unwrap_or(0)
    };
    new.spec.drivers.iter().any(|d| count(new, &d.name) > count(old, &d.name))
}

/// The size, in bytes, of the largest volume that there is room for, as far as a driver tells it.
pub fn limit(capacity: &CSIStorageCapacity) -> Option<i64> {
    let said = capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref())?;
    Quantity::parse(&said.0).ok().map(|q| q.value())
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn object<T: DeserializeOwned>(value: Value) -> Arc<T> {
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn updated<T: DeserializeOwned>(old: Value, new: Value) -> Change<T> {
        Change::Updated { old: object(old), new: object(new) }
    }

    fn volume(version: &str, class: &str) -> Value {
        json!({"metadata": {"name": "v", "resourceVersion": version}, "spec": {"storageClassName": class}})
    }

    #[test]
    fn assumptions_last_until_the_api_shows_a_change() {
        let storage = Storage::default();
        let show = |v: Value| storage.take(&News::Volume(Change::Added(object(v))));
        let class = || storage.read().volume("v").unwrap().spec.as_ref().unwrap().volume_mode.clone();
        let assume = |version: &str| {
            let mut v: PersistentVolume = serde_json::from_value(volume(version, "a")).unwrap();
            v.spec.as_mut().unwrap().volume_mode = Some("Block".into());
            storage.write().assume_volume(v.clone());
            v
        };
        show(volume("1", "a"));
        assume("0");
        assert_eq!(class(), None, "it has changed meanwhile");
        let first = assume("1");
        assert_eq!(class().as_deref(), Some("Block"));
        show(volume("1", "a"));
        assert_eq!(class().as_deref(), Some("Block"), "nothing has changed");
        storage.write().restore_volume(&first);
        assert_eq!(class(), None);
        assume("1");
        show(volume("2", "b"));
        assert_eq!(class(), None);
        assert_eq!(storage.read().volumes_of("a").count(), 0);
        assert_eq!(storage.read().volumes_of("b").count(), 1);
        let second = assume("2");
        storage.write().restore_volume(&first);
        assert_eq!(class().as_deref(), Some("Block"), "that was another assumption");
        storage.take(&News::Volume(Change::Deleted(Arc::new(second))));
        assert!(storage.read().volume("v").is_none() && storage.read().volumes_of("b").count() == 0);
    }

    #[test]
    fn claims_and_attachments_come_and_go() {
        let storage = Storage::default();
        let claim = json!({"metadata": {"namespace": "d", "name": "c", "resourceVersion": "1"}});
        let mut changes = storage.changes();
        storage.take(&News::Claim(Change::Added(object(claim.clone()))));
        assert!(changes.has_changed().unwrap());
        changes.borrow_and_update();
        let mut assumed: PersistentVolumeClaim = serde_json::from_value(claim.clone()).unwrap();
        assumed.metadata.labels = Some(BTreeMap::from([("a".to_owned(), "b".to_owned())]));
        storage.write().assume_claim(assumed.clone());
        let labels = |o: Option<&Arc<PersistentVolumeClaim>>| o.unwrap().metadata.labels.is_some();
        assert!(labels(storage.read().claim("d", "c")) && !labels(storage.read().shown_claim("d", "c")));
        storage.write().restore_claim(&assumed);
        assert!(!labels(storage.read().claim("d", "c")));
        storage.take(&News::Claim(Change::Deleted(object(claim))));
        assert!(storage.read().claim("d", "c").is_none());
        let attached =
            json!({"metadata": {"name": "a"}, "spec": {"attacher": "x", "nodeName": "n", "source": {}}});
        storage.take(&News::Attachment(Change::Added(object(attached.clone()))));
        assert_eq!(storage.read().attachments("n").count(), 1);
        storage.take(&News::Attachment(Change::Deleted(object(attached))));
        assert_eq!(storage.read().attachments("n").count(), 0);
    }

    #[test]
    fn meanings() {
        let check = |news: News, expected: Events| assert_eq!(meaning(&news).kinds, expected, "{news:?}");
        let (a, b) = (volume("1", "a"), volume("2", "a"));
        check(News::Volume(Change::Added(object(a.clone()))), Events::VOLUME_ADDED);
        check(News::Volume(updated(a.clone(), b)), Events::VOLUME_CHANGED);
        check(News::Volume(Change::Deleted(object(a))), Events::NONE);
        let claim = |uid: &str| json!({"metadata": {"name": "c", "uid": uid}});
        check(News::Claim(updated(claim("1"), claim("1"))), Events::CLAIM_CHANGED);
        let anew = News::Claim(updated(claim("1"), claim("2")));
        assert!(matches!(
            meaning(&anew),
            Happening {
                kinds: Events::CLAIM_ADDED,
                about: About::Claim(Pair { old: None, new: Some(_) }),
                ..
            }
        ));
        let attached =
            json!({"metadata": {"name": "a"}, "spec": {"attacher": "x", "nodeName": "n", "source": {}}});
        check(News::Attachment(Change::Added(object(attached.clone()))), Events::NONE);
        check(News::Attachment(Change::Deleted(object(attached))), Events::ATTACHMENT_DELETED);
    }
}
