//! The cluster as the scheduler sees it: nodes in a dense array, with what runs there already summed up.
//!
//! Work on the cluster can go on from where it was left: the *epoch* says whether the nodes are still
//! the same ones with the same properties, and the [*journal*](Cache::changes) tells which Pods came and went since, and
//! which nodes offer more or less. A node's index is the same throughout an epoch, and so are the
//! [*columns*](Cache::column), which say for each node in which place of a topology it is.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use compact_str::CompactString as Text;
use k8s_openapi::api::core::v1::{Namespace, Node};
use objects::ports::HostPort;
use objects::{Amount, Resources, quantity};

use crate::affinity::Namespaces;
use crate::events::{self, Events};
use crate::groups::Groups;
use crate::inventory::Devices;
use crate::owners::Owners;
use crate::pod::PodInfo;
use crate::storage::Storage;

/// How many changes the journal tells. Those who are further behind begin anew.
const JOURNAL: usize = 4096;
/// How many columns there are at most; beyond it they are made anew.
const COLUMNS: usize = 64;

/// A node and what is on it.
#[derive(Debug, Clone)]
pub struct NodeInfo {
    /// Its place among the nodes, within an epoch.
    pub index: usize,
    /// The node.
    pub node: Arc<Node>,
    /// The resources that it offers.
    pub allocatable: Resources,
    /// How many Pods it takes.
    pub max_pods: i64,
    /// The Pods on it, by uid.
    pub pods: HashMap<Arc<str>, PodInfo>,
    /// The sum of their requests.
    pub requested: Resources,
    /// The same with scoring's assumptions: milli-CPU and bytes.
    pub nonzero: (Amount, Amount),
    /// Those of its Pods that have terms of affinity or anti-affinity, by uid.
    with_terms: HashSet<Arc<str>>,
    /// The claims and migrated disks of its Pods, each as often as it is used.
    volumes: usize,
    /// How many of its Pods have a claim that is made for them.
    with_made: usize,
    /// Images on the node by name, with their size in bytes.
    pub images: Arc<HashMap<String, i64>>,
}

impl NodeInfo {
    /// A node without Pods.
    pub fn new(node: Arc<Node>) -> Self {
        let mut info = Self {
            index: 0,
            node: Arc::default(),
            allocatable: Resources::default(),
            max_pods: 0,
            pods: HashMap::new(),
            requested: Resources::default(),
            nonzero: (0, 0),
            with_terms: HashSet::new(),
            volumes: 0,
            with_made: 0,
            images: Arc::default(),
        };
        info.set_node(node);
        info
    }
    /// Takes in the node's new state.
    pub fn set_node(&mut self, node: Arc<Node>) {
        let status = node.status.as_ref();
        let allocatable = status.and_then(|s| s.allocatable.as_ref());
        self.allocatable = Resources::from_list(allocatable);
        self.max_pods = quantity::value(allocatable.and_then(|a| a.get("pods")));
        let images = status.and_then(|s| s.images.as_ref()).into_iter().flatten();
        let sizes =
            images.flat_map(|i| i.names.iter().flatten().map(|n| (n.clone(), i.size_bytes.unwrap_or(0))));
        self.images = Arc::new(sizes.collect());
        self.node = node;
    }
    /// The node's name.
    pub fn name(&self) -> &str {
        self.node.metadata.name.as_deref().unwrap_or_default()
    }
    /// The value of one of the node's labels.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.node.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }
    /// The Pods on it that have terms of affinity or anti-affinity.
    pub fn with_terms(&self) -> impl Iterator<Item = &PodInfo> {
        self.with_terms.iter().filter_map(|uid| self.pods.get(uid))
    }
    /// Counts a Pod.
    pub fn add(&mut self, pod: PodInfo) {
        self.remove(pod.uid());
        self.count(&pod, 1);
        if pod.has_terms() {
            self.with_terms.insert(pod.shared_uid());
        }
        self.pods.insert(pod.shared_uid(), pod);
    }
    /// Counts a Pod no more.
    pub fn remove(&mut self, uid: &str) -> Option<PodInfo> {
        let pod = self.pods.remove(uid)?;
        self.with_terms.remove(uid);
        self.count(&pod, -1);
        Some(pod)
    }
    fn count(&mut self, pod: &PodInfo, sign: Amount) {
        self.requested.add(&pod.requests.fit, sign);
        self.nonzero.0 += sign * pod.requests.nonzero_milli_cpu;
        self.nonzero.1 += sign * pod.requests.nonzero_memory;
        if let Some(used) = pod.used() {
            let (volumes, made) = (used.claims.len() + used.migrated.len(), usize::from(used.has_made()));
            let by = |n: usize, count: usize| if sign < 0 { n.saturating_sub(count) } else { n + count };
            (self.volumes, self.with_made) = (by(self.volumes, volumes), by(self.with_made, made));
        }
    }
    /// No fewer than the volumes that its Pods use; `None` if a claim may be one that is not its Pod's.
    pub fn volumes(&self) -> Option<usize> {
        (self.with_made == 0).then_some(self.volumes)
    }
    /// Whether one of these host ports is taken.
    pub fn ports_taken(&self, wanted: &[HostPort]) -> bool {
        let mut taken = self.pods.values().flat_map(|p| p.ports.iter());
        taken.any(|have| wanted.iter().any(|want| want.conflicts(have)))
    }
}

/// All nodes, and where each known Pod counts.
#[derive(Debug, Default)]
pub struct Cache {
    nodes: Vec<NodeInfo>,
    by_name: HashMap<String, usize>,
    /// Pod uid to node name, also for Pods of nodes that are not known (yet).
    placed: HashMap<Arc<str>, Text>,
    /// Pods placed on nodes that are not known.
    orphans: HashMap<String, BTreeSet<Arc<str>>>,
    orphan_pods: HashMap<Arc<str>, PodInfo>,
    /// Pods whose binding was decided here and is not confirmed by the API yet.
    assumed: BTreeSet<Arc<str>>,
    /// Nodes that hold an image, for scoring.
    image_nodes: HashMap<String, i64>,
    namespaces: Namespaces,
    storage: Storage,
    devices: Devices,
    groups: Groups,
    owners: Owners,
    /// How many placed Pods use a claim, by its namespace and name.
    claim_users: HashMap<(Text, Text), usize>,
    epoch: u64,
    journal: VecDeque<Change>,
    /// The number of all changes so far.
    told: u64,
    columns: Mutex<HashMap<String, Arc<Column>>>,
}

/// A Pod that was taken off its node for a simulation.
#[derive(Debug)]
pub struct Lifted {
    pod: PodInfo,
    node: usize,
}

/// A change of one node.
#[derive(Debug, Clone)]
pub struct Change {
    /// The node's index.
    pub node: usize,
    /// The Pod that came (1) or went (-1); `None`: what the node offers has changed.
    pub pod: Option<(PodInfo, i64)>,
}

/// The places in which nodes are, by one label.
#[derive(Debug, Default)]
pub struct Column {
    /// For each node the index of its place, [`Column::NOWHERE`] without the label.
    of: Vec<u32>,
    /// The label's values.
    pub values: Vec<String>,
}

impl Column {
    const NOWHERE: u32 = u32::MAX;

    /// The place of a node; `None` without the label.
    pub fn of(&self, node: usize) -> Option<usize> {
        self.of.get(node).copied().filter(|v| *v != Self::NOWHERE).map(|v| v as usize)
    }
    fn new(nodes: &[NodeInfo], key: &str) -> Self {
        let mut known: HashMap<&str, u32> = HashMap::new();
        let mut column = Self::default();
        for node in nodes {
            let place = node.label(key).map_or(Self::NOWHERE, |value| {
                *known.entry(value).or_insert_with(|| {
                    column.values.push(value.to_owned());
                    u32::try_from(column.values.len() - 1).unwrap_or(Self::NOWHERE)
                })
            });
            column.of.push(place);
        }
        column
    }
}

impl Cache {
    /// The number of the present epoch. It ends when a node comes, goes, or changes in anything but what it offers, and
    /// when a namespace changes.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }
    fn end_epoch(&mut self) {
        self.epoch += 1;
        self.columns.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
    }
    /// The number of changes so far.
    pub fn told(&self) -> u64 {
        self.told
    }
    /// The changes since so many had been told; `None` if they are not known any more.
    pub fn changes(&self, since: u64) -> Option<impl Iterator<Item = &Change>> {
        let new = usize::try_from(self.told.checked_sub(since)?).ok()?;
        let known = self.journal.len().checked_sub(new)?;
        Some(self.journal.range(known..))
    }
    fn tell(&mut self, node: usize, pod: Option<(PodInfo, i64)>) {
        if self.journal.len() == JOURNAL {
            self.journal.pop_front();
        }
        self.journal.push_back(Change { node, pod });
        self.told += 1;
    }
    /// The places of the nodes by a label.
    pub fn column(&self, key: &str) -> Arc<Column> {
        let mut columns = self.columns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(column) = columns.get(key) {
            return column.clone();
        }
        if columns.len() == COLUMNS {
            columns.clear();
        }
        let column = Arc::new(Column::new(&self.nodes, key));
        columns.insert(key.to_owned(), column.clone());
        column
    }
    /// The groups of Pods.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }
    /// The nodes.
    pub fn nodes(&self) -> &[NodeInfo] {
        &self.nodes
    }
    /// The labels of each namespace.
    pub fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }
    /// Takes in a new or changed namespace.
    pub fn set_namespace(&mut self, namespace: &Namespace) {
        let meta = &namespace.metadata;
        let labels = meta.labels.clone().unwrap_or_default();
        let name = meta.name.clone().unwrap_or_default();
        if self.namespaces.get(&name) != Some(&labels) {
            self.namespaces.insert(name, labels);
            self.end_epoch();
        }
    }
    /// Forgets a namespace.
    pub fn remove_namespace(&mut self, name: &str) {
        if self.namespaces.remove(name).is_some() {
            self.end_epoch();
        }
    }
    /// The claims, the volumes, and what is known of them.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }
    /// The devices, and the claims on them.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }
    /// A class of devices came, changed or went: other resources may be devices now.
    pub fn classes_changed(&mut self) {
        self.end_epoch();
    }
    /// The Services and controllers, as far as they select Pods.
    pub fn owners(&self) -> &Owners {
        &self.owners
    }
    /// The same, to be changed.
    pub fn owners_mut(&mut self) -> &mut Owners {
        &mut self.owners
    }
    /// Whether a Pod that has a node uses a claim.
    pub fn is_claim_used(&self, namespace: &str, name: &str) -> bool {
        !self.claim_users.is_empty() && self.claim_users.contains_key(&(namespace.into(), name.into()))
    }
    /// Counts the users of a Pod's claims: one more, or one less.
    fn count_claims(&mut self, pod: &PodInfo, more: bool) {
        let Some(used) = pod.used() else { return };
        for claim in used.claims.iter().filter(|c| !c.ephemeral) {
            let key = (Text::from(pod.namespace()), claim.name.clone());
            let users = self.claim_users.entry(key.clone()).or_default();
            *users = if more { *users + 1 } else { users.saturating_sub(1) };
            if *users == 0 {
                self.claim_users.remove(&key);
            }
        }
    }
    /// A node by name.
    pub fn node(&self, name: &str) -> Option<&NodeInfo> {
        self.by_name.get(name).map(|i| &self.nodes[*i])
    }
    /// The node of a Pod, if both are known.
    pub fn node_of(&self, uid: &str) -> Option<&NodeInfo> {
        self.node(self.placed.get(uid)?)
    }
    /// The name of a Pod that has a node, and that of the node, whether or not it is known.
    pub fn names_of_placed(&self, uid: &str) -> Option<(&str, &str)> {
        let there = self.node_of(uid).and_then(|node| node.pods.get(uid));
        let pod = there.or_else(|| self.orphan_pods.get(uid))?;
        Some((pod.name(), self.placed.get(uid)?))
    }
    /// Whether a Pod has a node and does not leave it, as far as is known.
    pub fn stays(&self, uid: &str) -> bool {
        let there = self.node_of(uid).and_then(|node| node.pods.get(uid));
        there.or_else(|| self.orphan_pods.get(uid)).is_some_and(|pod| !pod.leaving)
    }
    /// On how many nodes an image is.
    pub fn nodes_with_image(&self, image: &str) -> i64 {
        self.image_nodes.get(image).copied().unwrap_or(0)
    }
    /// Takes in a new or changed node.
    pub fn set_node(&mut self, node: Arc<Node>) {
        let name = node.metadata.name.clone().unwrap_or_default();
        self.storage.set_node(&node);
        if let Some(i) = self.by_name.get(&name).copied() {
            let images = self.nodes[i].images.clone();
            let what = events::of_node(&self.nodes[i].node, &node);
            Self::count_images(&mut self.image_nodes, &self.nodes[i], -1);
            self.nodes[i].set_node(node);
            Self::count_images(&mut self.image_nodes, &self.nodes[i], 1);
            if what == Events::NODE_ALLOCATABLE && images == self.nodes[i].images {
                self.tell(i, None);
            } else if !what.is_empty() || images != self.nodes[i].images {
                self.end_epoch();
            }
            return;
        }
        let mut info = NodeInfo::new(node);
        info.index = self.nodes.len();
        for uid in self.orphans.remove(&name).into_iter().flatten() {
            if let Some(pod) = self.orphan_pods.remove(&uid) {
                info.add(pod);
            }
        }
        Self::count_images(&mut self.image_nodes, &info, 1);
        self.by_name.insert(name, self.nodes.len());
        self.nodes.push(info);
        self.end_epoch();
    }
    /// Forgets a node; its Pods stay known until they are deleted.
    pub fn remove_node(&mut self, name: &str) {
        let Some(i) = self.by_name.remove(name) else { return };
        self.storage.remove_node(name);
        let info = self.nodes.swap_remove(i);
        if let Some(moved) = self.nodes.get_mut(i) {
            moved.index = i;
            self.by_name.insert(moved.name().to_owned(), i);
        }
        self.end_epoch();
        Self::count_images(&mut self.image_nodes, &info, -1);
        for (uid, pod) in info.pods {
            self.orphans.entry(name.to_owned()).or_default().insert(uid.clone());
            self.orphan_pods.insert(uid, pod);
        }
    }
    fn count_images(counts: &mut HashMap<String, i64>, node: &NodeInfo, by: i64) {
        for image in node.images.keys() {
            let n = counts.entry(image.clone()).or_default();
            *n += by;
            if *n <= 0 {
                counts.remove(image);
            }
        }
    }
    /// Counts a Pod on the node it is bound to.
    pub fn set_pod(&mut self, pod: PodInfo, node: &str) {
        let uid = pod.shared_uid();
        if let Some(i) = self.by_name.get(node).copied()
            && let Some(known) = self.nodes[i].pods.get_mut(&uid)
            && known.is_to_others_as(&pod)
        {
            *known = pod;
            self.assumed.remove(&uid);
            return;
        }
        self.remove_pod(&uid);
        self.placed.insert(uid.clone(), node.into());
        self.groups.placed(&pod);
        self.count_claims(&pod, true);
        if let Some(i) = self.by_name.get(node).copied() {
            self.nodes[i].add(pod.clone());
            self.tell(i, Some((pod, 1)));
        } else {
            self.orphans.entry(node.to_owned()).or_default().insert(uid.clone());
            self.orphan_pods.insert(uid, pod);
        }
    }
    /// Counts a Pod on a node although the API does not know of it yet.
    pub fn assume(&mut self, pod: PodInfo, node: &str) {
        let uid = pod.shared_uid();
        self.set_pod(pod, node);
        self.assumed.insert(uid);
    }
    /// Takes an assumption back; `false` if the API has confirmed it meanwhile.
    pub fn forget(&mut self, uid: &str) -> bool {
        if !self.assumed.contains(uid) {
            return false;
        }
        self.remove_pod(uid);
        true
    }
    /// Takes a Pod off its node for a simulation. It is still one that has a node, and assumed if it was; until it is
    /// [put back](Self::put_back) no node may come or go.
    pub fn lift(&mut self, uid: &str) -> Option<Lifted> {
        let node = *self.by_name.get(self.placed.get(uid)?.as_str())?;
        let pod = self.nodes[node].remove(uid)?;
        self.count_claims(&pod, false);
        self.tell(node, Some((pod.clone(), -1)));
        Some(Lifted { pod, node })
    }
    /// Ends that simulation.
    pub fn put_back(&mut self, Lifted { pod, node }: Lifted) {
        if let Some(info) = self.nodes.get_mut(node) {
            info.add(pod.clone());
            self.count_claims(&pod, true);
            self.tell(node, Some((pod, 1)));
        }
    }
    /// How many nodes, Pods and assumed Pods there are.
    pub fn sizes(&self) -> [usize; 3] {
        [self.nodes.len(), self.placed.len(), self.assumed.len()]
    }
    /// Whether the Pod is assumed and not confirmed.
    pub fn is_assumed(&self, uid: &str) -> bool {
        self.assumed.contains(uid)
    }
    /// Counts a Pod no more.
    pub fn remove_pod(&mut self, uid: &str) {
        self.assumed.remove(uid);
        let Some(node) = self.placed.remove(uid) else { return };
        if let Some(i) = self.by_name.get(node.as_str()).copied()
            && let Some(pod) = self.nodes[i].remove(uid)
        {
            self.count_claims(&pod, false);
            self.groups.left(&pod);
            self.tell(i, Some((pod, -1)));
        }
        if let Some(set) = self.orphans.get_mut(node.as_str()) {
            set.remove(uid);
            if set.is_empty() {
                self.orphans.remove(node.as_str());
            }
        }
        if let Some(pod) = self.orphan_pods.remove(uid) {
            self.groups.left(&pod);
            self.count_claims(&pod, false);
        }
    }
}

#[cfg(test)]
mod tests;
