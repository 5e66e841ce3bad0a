//! The cluster as the scheduler sees it: nodes in a dense array, with what runs there already summed up.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use compact_str::CompactString as Text;
use k8s_openapi::api::core::v1::{Namespace, Node};
use objects::ports::HostPort;
use objects::{Amount, Resources, quantity};

use crate::affinity::Namespaces;
use crate::plugins::claims::Claims;
use crate::pod::PodInfo;

/// A node and what is on it.
#[derive(Debug, Clone)]
pub struct NodeInfo {
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
    /// Images on the node by name, with their size in bytes.
    pub images: HashMap<String, i64>,
}

impl NodeInfo {
    /// A node without Pods.
    pub fn new(node: Arc<Node>) -> Self {
        let mut info = Self {
            node: Arc::default(),
            allocatable: Resources::default(),
            max_pods: 0,
            pods: HashMap::new(),
            requested: Resources::default(),
            nonzero: (0, 0),
            with_terms: HashSet::new(),
            images: HashMap::new(),
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
        self.images = status
            .and_then(|s| s.images.as_ref())
            .into_iter()
            .flatten()
            .flat_map(|i| i.names.iter().flatten().map(|n| (n.clone(), i.size_bytes.unwrap_or(0))))
            .collect();
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
    claims: Claims,
}

impl Cache {
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
        self.namespaces.insert(meta.name.clone().unwrap_or_default(), labels);
    }
    /// Forgets a namespace.
    pub fn remove_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
    }
    /// The claims and storage classes.
    pub fn claims(&self) -> &Claims {
        &self.claims
    }
    /// The same, to be changed.
    pub fn claims_mut(&mut self) -> &mut Claims {
        &mut self.claims
    }
    /// A node by name.
    pub fn node(&self, name: &str) -> Option<&NodeInfo> {
        self.by_name.get(name).map(|i| &self.nodes[*i])
    }
    /// On how many nodes an image is.
    pub fn nodes_with_image(&self, image: &str) -> i64 {
        self.image_nodes.get(image).copied().unwrap_or(0)
    }
    /// Takes in a new or changed node.
    pub fn set_node(&mut self, node: Arc<Node>) {
        let name = node.metadata.name.clone().unwrap_or_default();
        if let Some(i) = self.by_name.get(&name).copied() {
            Self::count_images(&mut self.image_nodes, &self.nodes[i], -1);
            self.nodes[i].set_node(node);
            Self::count_images(&mut self.image_nodes, &self.nodes[i], 1);
            return;
        }
        let mut info = NodeInfo::new(node);
        for uid in self.orphans.remove(&name).into_iter().flatten() {
            if let Some(pod) = self.orphan_pods.remove(&uid) {
                info.add(pod);
            }
        }
        Self::count_images(&mut self.image_nodes, &info, 1);
        self.by_name.insert(name, self.nodes.len());
        self.nodes.push(info);
    }
    /// Forgets a node; its Pods stay known until they are deleted.
    pub fn remove_node(&mut self, name: &str) {
        let Some(i) = self.by_name.remove(name) else { return };
        let info = self.nodes.swap_remove(i);
        if let Some(moved) = self.nodes.get(i) {
            self.by_name.insert(moved.name().to_owned(), i);
        }
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
        self.remove_pod(&uid);
        self.placed.insert(uid.clone(), node.into());
        if let Some(i) = self.by_name.get(node) {
            self.nodes[*i].add(pod);
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
    /// Whether the Pod is assumed and not confirmed.
    pub fn is_assumed(&self, uid: &str) -> bool {
        self.assumed.contains(uid)
    }
    /// Counts a Pod no more.
    pub fn remove_pod(&mut self, uid: &str) {
        self.assumed.remove(uid);
        let Some(node) = self.placed.remove(uid) else { return };
        if let Some(i) = self.by_name.get(node.as_str()) {
            self.nodes[*i].remove(uid);
        }
        if let Some(set) = self.orphans.get_mut(node.as_str()) {
            set.remove(uid);
            if set.is_empty() {
                self.orphans.remove(node.as_str());
            }
        }
        self.orphan_pods.remove(uid);
    }
}
