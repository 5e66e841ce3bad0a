//! Attaches volumes of drivers to the nodes whose Pods want them, and detaches them (upstream:
//! `pkg/controller/volume/attachdetach`).
//!
//! The VolumeAttachments are the actual state, so a controller that starts again knows it all. A driver's own attacher does
//! the work and says so there. A node is told of what is attached in its status, and tells there what it uses: a volume
//! leaves the first list before the second is looked at a last time, and only then its attachment is deleted. Volumes of
//! some older kinds have no such object (`in_tree`).

mod attached;
mod carry;
mod figures;
mod in_tree;
mod names;
mod node;
mod plan;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use api::Status;
use client::{Change, Client, EventType, Index, Informer, Queue, Recorder};
use compact_str::CompactString as Text;
use component::{Clock, Registry};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use objects::attachable::Attachable;
use objects::volumes::{is_made_for, volume_name};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::attached::InTree;
use self::names::{Handle, is_inline, volume_of};
use self::node::{is_managed, is_same};
use self::plan::{Forced, PodName};
use crate::common::pods::{self, Pods};
use crate::flex_drivers::FlexDrivers;
use crate::host::{Controller, Host, Next, Wiring};
use crate::views::{NodeView, PodView, nodes};

/// The number of locks that the nodes share.
const TURNS: usize = 64;

/// A look.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Look {
    /// At a PersistentVolume, or one that Pods name themselves.
    Volume(Text),
    /// At the volumes that a Node is told of.
    Node(Text),
    /// At a volume without an attachment, by the name by which nodes tell of it.
    InTree(Text),
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(name) => write!(f, "volume {name}"),
            Self::Node(name) => write!(f, "node {name}"),
            Self::InTree(name) => write!(f, "volume {name}"),
        }
    }
}

/// See the module.
pub(crate) struct AttachDetach {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    volumes: Informer<PersistentVolume>,
    claims: Informer<PersistentVolumeClaim>,
    pods: Pods,
    by_claim: Index<PodView>,
    nodes: Informer<NodeView>,
    drivers: Informer<CSIDriver>,
    attachments: Informer<VolumeAttachment>,
    by_volume: Index<VolumeAttachment>,
    by_node: Index<VolumeAttachment>,
    by_unique: Index<PersistentVolume>,
    by_attachable: Index<PodView>,
    by_inline: Index<PodView>,
    /// The volumes without attachments that nodes have.
    in_tree: Mutex<InTree>,
    /// The drivers of FlexVolumes; without, nobody attaches their volumes.
    flex: Option<Arc<dyn FlexDrivers>>,
    queue: Queue<Look>,
    /// Whether a node that is not Ready loses volumes that it uses in the end.
    force: bool,
    memory: Mutex<Memory>,
    /// Held while a Node is told of its volumes, so that no older list follows a newer one.
    turns: Vec<tokio::sync::Mutex<()>>,
    forced: Mutex<BTreeMap<Forced, u64>>,
    registry: Registry,
}

/// The things that no object says, by the names of attachments or volumes.
#[derive(Default)]
struct Memory {
    /// Since when nobody wants an attachment.
    unwanted: HashMap<String, Instant>,
    /// Attachments of which the Node is not told any more, before they are deleted.
    leaving: HashSet<String>,
    /// The uids of attachments whose deletion is not seen yet.
    deleted: HashMap<String, String>,
    /// By volumes: attachments that were made and are not seen yet, with their nodes.
    pending: HashMap<String, BTreeMap<String, String>>,
    /// By volumes: Pods that were told that their volume is elsewhere, with their nodes.
    refused: HashMap<String, BTreeSet<(String, PodName)>>,
}

fn name_of(attachment: &VolumeAttachment) -> &str {
    attachment.metadata.name.as_deref().unwrap_or_default()
}

fn is_attached(attachment: &VolumeAttachment) -> bool {
    attachment.status.as_ref().is_some_and(|s| s.attached)
}

fn attach_error(attachment: &VolumeAttachment) -> Option<&str> {
    let error = attachment.status.as_ref()?.attach_error.as_ref()?;
    Some(error.message.as_deref().unwrap_or_default())
}

/// The volumes of plugins, from which drivers took over, that a Pod names itself, by the names by which nodes tell of them.
fn inline_names(pod: &PodView) -> impl Iterator<Item = String> + '_ {
    pod.migrated().iter().filter_map(|volume| Handle::of(volume)).map(|of| of.unique_name())
}

/// The namespace, name and uid of the claim that a volume is bound to.
fn claim_of(volume: &PersistentVolume) -> Option<(&str, &str, &str)> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some((claim.namespace.as_deref()?, claim.name.as_deref()?, claim.uid.as_deref()?))
}

impl Controller for AttachDetach {
    const NAME: &'static str = "persistentvolume-attach-detach-controller";
    const ALIASES: &'static [&'static str] = &["attachdetach"];
    const ACCOUNT: &'static str = "attachdetach-controller";
    const QUEUE: &'static str = "attachdetach";
    const WORKERS: usize = 10;
    type Key = Look;

    fn new(host: &Host<Look>) -> Self {
        let pods = Pods::of(host.factory());
        let attachments = host.informer::<VolumeAttachment>();
        let volumes = host.informer::<PersistentVolume>();
        Self {
            client: host.client(),
            clock: host.clock(),
            recorder: host.recorder("attachdetach-controller"),
            by_unique: volumes.index("attachable", |v| {
                Attachable::persistent(v).into_iter().map(|a| a.unique.into()).collect()
            }),
            volumes,
            claims: host.informer(),
            by_attachable: pods.index("attachable", |pod| {
                pod.attachables().iter().map(|a| a.unique.as_str().into()).collect()
            }),
            by_inline: pods.index("inline", |pod| inline_names(pod).map(Text::from).collect()),
            in_tree: Mutex::default(),
            flex: host.config().flex_drivers.clone(),
            by_claim: pods::by_claim(&pods),
            pods,
            nodes: nodes(host.factory()),
            drivers: host.informer(),
            by_volume: attachments
                .index("volume", |a| volume_of(a).map(|v| Text::from(&*v)).into_iter().collect()),
            by_node: attachments.index("node", |a| vec![Text::from(a.spec.node_name.as_str())]),
            attachments,
            queue: host.main_queue(),
            force: host.config().force_detach,
            memory: Mutex::default(),
            turns: std::iter::repeat_with(tokio::sync::Mutex::default).take(TURNS).collect(),
            forced: Mutex::default(),
            registry: host.metrics().clone(),
        }
    }

    fn watch(self: &Arc<Self>, _wiring: &Wiring<Look>) {
        // The registry must not keep the caches of a controller that has ended.
        let c = Arc::downgrade(self);
        self.registry.register(Self::NAME, move |page| {
            if let Some(c) = c.upgrade() {
                c.report(page);
            }
        });
        let c = self.clone();
        self.pods.handle(move |change| {
            let (Change::Added(pod) | Change::Updated { new: pod, .. } | Change::Deleted(pod)) = &change;
            if let Change::Updated { old, new } = &change
                && old.node == new.node
                && old.is_terminal() == new.is_terminal()
            {
                return;
            }
            c.look_at_claims(pod);
        });
        let c = self.clone();
        self.claims.handle(move |change| {
            let (Change::Added(claim) | Change::Updated { new: claim, .. } | Change::Deleted(claim)) = change;
            c.look_at(volume_name(claim));
        });
        let c = self.clone();
        self.volumes.handle(move |change| {
            let (Change::Added(v) | Change::Updated { new: v, .. } | Change::Deleted(v)) = change;
            c.look_at(v.metadata.name.as_deref().unwrap_or_default());
            if let Some(of) = Attachable::persistent(v) {
                c.queue.add(Look::InTree(of.unique.into()));
            }
        });
        let c = self.clone();
        self.attachments.handle(move |change| c.attachment_changed(change));
        let c = self.clone();
        self.nodes.handle(move |change| c.node_changed(change));
        let c = self.clone();
        self.drivers.handle(move |change| {
            let (Change::Added(d) | Change::Updated { new: d, .. } | Change::Deleted(d)) = change;
            let name = d.metadata.name.as_deref().unwrap_or_default();
            for volume in c.volumes.list() {
                if Handle::of(&volume).is_some_and(|of| of.driver == name) {
                    c.look_at(volume.metadata.name.as_deref().unwrap_or_default());
                }
            }
            for pod in c.pods.list().iter().filter(|pod| !pod.migrated().is_empty()) {
                inline_names(pod).for_each(|volume| c.look_at(&volume));
            }
        });
    }

    async fn sync(&self, look: Look) -> Result<Next, Status> {
        match look {
            Look::Volume(name) => self.sync_volume(&name).await,
            Look::Node(name) => self.sync_node(&name).await.map(|()| Next::Done),
            Look::InTree(name) => self.sync_in_tree(&name).await,
        }
    }
}

impl AttachDetach {
    fn look_at(&self, volume: &str) {
        if !volume.is_empty() {
            self.queue.add(Look::Volume(volume.into()));
        }
    }

    fn look_at_claims(&self, pod: &PodView) {
        if pod.node.is_empty() {
            return;
        }
        for of in pod.attachables() {
            self.queue.add(Look::InTree(of.unique.as_str().into()));
        }
        inline_names(pod).for_each(|volume| self.look_at(&volume));
        for name in pod.claims().chain(pod.ephemeral_claims()) {
            if let Some(claim) = self.claims.get(pod.namespace(), name) {
                self.look_at(volume_name(&claim));
            }
        }
    }

    fn node_changed(&self, change: &Change<NodeView>) {
        let (Change::Added(node) | Change::Updated { new: node, .. } | Change::Deleted(node)) = change;
        let old = match change {
            Change::Updated { old, new } if is_same(old, new) => return,
            Change::Updated { old, .. } => Some(old),
            Change::Added(_) | Change::Deleted(_) => None,
        };
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let in_tree = {
            let mut in_tree = self.in_tree.lock();
            if !matches!(change, Change::Deleted(_)) {
                in_tree.read(name, node);
            }
            in_tree.of(name)
        };
        for unique in in_tree {
            self.queue.add(Look::InTree(unique.into()));
        }
        self.queue.add(Look::Node(name.into()));
        for attachment in self.by_node.get(name) {
            self.look_at(&volume_of(&attachment).unwrap_or_default());
        }
        // The Pods of a node may be there before it.
        if is_managed(node) && !old.is_some_and(|old| is_managed(old)) {
            self.pods.on_node(name).iter().for_each(|pod| self.look_at_claims(pod));
        }
    }

    fn attachment_changed(&self, change: &Change<VolumeAttachment>) {
        let (Change::Added(new) | Change::Updated { new, .. } | Change::Deleted(new)) = change;
        let volume = volume_of(new).unwrap_or_default();
        self.queue.add(Look::Node(new.spec.node_name.as_str().into()));
        self.look_at(&volume);
        match change {
            Change::Updated { old, new } => self.say(Some(old), new),
            Change::Added(new) => {
                let made =
                    self.memory.lock().pending.get(&*volume).is_some_and(|p| p.contains_key(name_of(new)));
                if made {
                    self.say(None, new);
                }
            }
            Change::Deleted(old) => {
                let mut memory = self.memory.lock();
                memory.unwanted.remove(name_of(old));
                memory.leaving.remove(name_of(old));
                memory.deleted.remove(name_of(old));
            }
        }
    }

    /// Tells the Pods that wait for a volume what became of its attachment.
    fn say(&self, old: Option<&VolumeAttachment>, new: &VolumeAttachment) {
        let key = volume_of(new).unwrap_or_default();
        let Some(volume) = self.volume(&key) else { return };
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let (kind, reason, message) = match attach_error(new) {
            _ if is_attached(new) && !old.is_some_and(is_attached) => (
                EventType::Normal,
                "SuccessfulAttachVolume",
                format!("AttachVolume.Attach succeeded for volume {name:?} "),
            ),
            Some(error) if !is_attached(new) && old.and_then(attach_error) != Some(error) => (
                EventType::Warning,
                "FailedAttachVolume",
                format!("AttachVolume.Attach failed for volume {name:?} : {error}"),
            ),
            _ => return,
        };
        for pod in self.users_of(&key, &volume).into_iter().filter(|pod| pod.node == new.spec.node_name) {
            self.recorder.event_about(pod.reference(), kind, reason, message.clone());
        }
    }

    /// A PersistentVolume, or one that Pods name themselves in the form that its driver is given.
    fn volume(&self, key: &str) -> Option<Arc<PersistentVolume>> {
        if !is_inline(key) {
            return self.volumes.get("", key);
        }
        let of = Handle::told(key)?;
        self.by_inline.get(key).iter().find_map(|pod| pod.migrated_as(&of.driver, &of.volume).cloned())
    }

    /// The Pods on nodes that use a volume, which may be one that they name themselves.
    fn users_of(&self, key: &str, volume: &PersistentVolume) -> Vec<Arc<PodView>> {
        if !is_inline(key) {
            return self.users(volume);
        }
        let mut pods = self.by_inline.get(key);
        pods.retain(|pod| !pod.node.is_empty() && !pod.is_terminal());
        pods
    }

    /// The Pods on nodes that use a PersistentVolume. One that is being deleted does until it is gone.
    ///
    /// DIFFERENCE: upstream looks at the containers of a Pod that is being deleted. A kubelet keeps the object until the
    /// volumes are given back, so that the end is seen as early.
    fn users(&self, volume: &PersistentVolume) -> Vec<Arc<PodView>> {
        let Some((namespace, name, uid)) = claim_of(volume) else { return Vec::new() };
        let Some(claim) = self.claims.get(namespace, name) else { return Vec::new() };
        let bound = claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
        let of_volume = Some(volume_name(&claim)) == volume.metadata.name.as_deref();
        if !bound || !of_volume || claim.metadata.uid.as_deref() != Some(uid) {
            return Vec::new();
        }
        let mut pods = self.by_claim.get(&pods::claim_key(namespace, name));
        pods.retain(|pod| {
            // The claim of an ephemeral volume may be somebody else's.
            let is_its = pod.claims().any(|c| c == name) || is_made_for(&claim, pod.uid());
            !pod.node.is_empty() && !pod.is_terminal() && is_its
        });
        pods
    }
}
