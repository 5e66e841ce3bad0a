//! Which objects a node needs: those its pods name, and those behind them.

use std::collections::{HashMap, HashSet};

use api::{Object, Text};
use parking_lot::RwLock;
use serde::Deserialize;

use crate::reader::read;

/// An object that a node may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Pod
    Pod,
    /// Secret
    Secret,
    /// ConfigMap
    ConfigMap,
    /// ServiceAccount
    ServiceAccount,
    /// PersistentVolumeClaim
    Claim,
    /// PersistentVolume
    Volume,
    /// ResourceClaim
    ResourceClaim,
    /// VolumeAttachment
    VolumeAttachment,
    /// ResourceSlice
    ResourceSlice,
    /// PodCertificateRequest
    PodCertificateRequest,
}

type Key = (Kind, Text, Text);

/// The objects that a pod names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodRefs {
    /// The node; "" while it has none.
    pub node: Text,
    /// Whether a kubelet made it from a file: it opens no door.
    pub mirror: bool,
    /// Names in the pod's namespace.
    pub names: Vec<(Kind, Text)>,
}

/// The objects that a volume names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PvRefs {
    /// Namespace and name of its claim.
    pub claim: Option<(Text, Text)>,
    /// Namespaces and names of secrets that a kubelet needs for it.
    pub secrets: Vec<(Text, Text)>,
}

/// A change to what belongs to nodes.
#[derive(Debug, Clone)]
pub enum GraphChange {
    /// A pod (namespace, name) is now so; `None` if it is gone.
    Pod(Text, Text, Option<PodRefs>),
    /// A volume is now so; `None` if it is gone.
    Volume(Text, Option<PvRefs>),
    /// An object that belongs to one node, by its kind, namespace and name; `None` if it belongs to none or is gone.
    Owned(Kind, Text, Text, Option<Text>),
}

#[derive(Default)]
struct State {
    /// From an object to what leads to it; an edge counts as often as it was made.
    from: HashMap<Key, HashMap<Key, u32>>,
    /// From an object to the node it belongs to itself.
    node_of: HashMap<Key, Text>,
    /// The edges that an object's own content made, to be undone when it changes.
    made_by: HashMap<Key, Vec<(Key, Key)>>,
}

/// Everything that nodes need. Only nodes' requests take its lock.
#[derive(Default)]
pub struct Graph {
    state: RwLock<State>,
}

impl Graph {
    /// Takes changes in.
    pub fn apply(&self, changes: impl IntoIterator<Item = GraphChange>) {
        let mut state = self.state.write();
        for change in changes {
            state.apply(change);
        }
    }
    /// Replaces everything.
    pub fn reset(&self, all: impl IntoIterator<Item = GraphChange>) {
        let mut fresh = State::default();
        for change in all {
            fresh.apply(change);
        }
        *self.state.write() = fresh;
    }
    /// The objects of a kind whose own content is known: namespace and name.
    pub fn known(&self, kind: Kind) -> Vec<(Text, Text)> {
        let state = self.state.read();
        let keys: HashSet<&Key> = state.node_of.keys().chain(state.made_by.keys()).collect();
        keys.into_iter().filter(|k| k.0 == kind).map(|k| (k.1.clone(), k.2.clone())).collect()
    }
    /// Whether an object belongs to a node, or something that does leads to it.
    pub fn reaches(&self, node: &str, kind: Kind, namespace: &str, name: &str) -> bool {
        let state = self.state.read();
        let mut seen = HashSet::new();
        let start: Key = (kind, namespace.into(), name.into());
        let mut stack = vec![&start];
        while let Some(key) = stack.pop() {
            if state.node_of.get(key).is_some_and(|n| n == node) {
                return true;
            }
            if let Some(from) = state.from.get(key) {
                stack.extend(from.keys().filter(|k| seen.insert(*k)));
            }
        }
        false
    }
}

impl State {
    fn apply(&mut self, change: GraphChange) {
        match change {
            GraphChange::Pod(namespace, name, refs) => {
                let pod: Key = (Kind::Pod, namespace.clone(), name);
                self.forget(&pod);
                let Some(refs) = refs.filter(|r| !r.node.is_empty()) else { return };
                self.node_of.insert(pod.clone(), refs.node);
                if !refs.mirror {
                    for (kind, name) in refs.names {
                        self.link(&pod, (kind, namespace.clone(), name), pod.clone());
                    }
                }
            }
            GraphChange::Volume(name, refs) => {
                let volume: Key = (Kind::Volume, Text::default(), name);
                self.forget(&volume);
                let Some(refs) = refs else { return };
                let Some((namespace, claim)) = refs.claim else { return };
                self.link(&volume, volume.clone(), (Kind::Claim, namespace, claim));
                for (namespace, secret) in refs.secrets {
                    self.link(&volume, (Kind::Secret, namespace, secret), volume.clone());
                }
            }
            GraphChange::Owned(kind, namespace, name, node) => {
                let key: Key = (kind, namespace, name);
                self.forget(&key);
                if let Some(node) = node {
                    self.node_of.insert(key, node);
                }
            }
        }
    }

    /// A node that may have `to` may have `object`; the content of `maker` made this so.
    fn link(&mut self, maker: &Key, object: Key, to: Key) {
        *self.from.entry(object.clone()).or_default().entry(to.clone()).or_default() += 1;
        self.made_by.entry(maker.clone()).or_default().push((object, to));
    }

    fn forget(&mut self, maker: &Key) {
        self.node_of.remove(maker);
        for (object, to) in self.made_by.remove(maker).unwrap_or_default() {
            let Some(from) = self.from.get_mut(&object) else { continue };
            if let Some(count) = from.get_mut(&to) {
                *count -= 1;
                if *count == 0 {
                    from.remove(&to);
                }
            }
            if from.is_empty() {
                self.from.remove(&object);
            }
        }
    }
}

mod wire {
    //! The parts of stored objects that matter here.
    use api::Text;
    use serde::Deserialize;
    use std::collections::HashMap;

    #[derive(Deserialize, Default)]
    #[serde(default)]
    pub(super) struct Named {
        pub name: Text,
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    pub(super) struct Pod {
        pub metadata: Meta,
        pub spec: PodSpec,
        pub status: PodStatus,
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    pub(super) struct Meta {
        pub annotations: HashMap<Text, Text>,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct PodStatus {
        pub resource_claim_statuses: Vec<ClaimStatus>,
        pub extended_resource_claim_status: Option<ExtendedClaim>,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct ClaimStatus {
        pub name: Text,
        pub resource_claim_name: Option<Text>,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct ExtendedClaim {
        pub resource_claim_name: Text,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct PodSpec {
        pub node_name: Text,
        pub service_account_name: Text,
        pub image_pull_secrets: Vec<Named>,
        pub containers: Vec<Container>,
        pub init_containers: Vec<Container>,
        pub ephemeral_containers: Vec<Container>,
        pub volumes: Vec<Volume>,
        pub resource_claims: Vec<PodClaim>,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct PodClaim {
        pub name: Text,
        pub resource_claim_name: Option<Text>,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct Container {
        pub env: Vec<Env>,
        pub env_from: Vec<EnvFrom>,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct Env {
        pub value_from: Option<ValueFrom>,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct ValueFrom {
        pub secret_key_ref: Option<Named>,
        pub config_map_key_ref: Option<Named>,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct EnvFrom {
        pub secret_ref: Option<Named>,
        pub config_map_ref: Option<Named>,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct SecretVolume {
        pub secret_name: Text,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct ClaimVolume {
        pub claim_name: Text,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct Projected {
        pub sources: Vec<ProjectedSource>,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct ProjectedSource {
        pub secret: Option<Named>,
        pub config_map: Option<Named>,
    }

    /// Volume sources that name a secret by `secretRef`.
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct WithSecretRef {
        pub secret_ref: Option<Named>,
        pub node_publish_secret_ref: Option<Named>,
    }

    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct Volume {
        pub name: Text,
        pub secret: Option<SecretVolume>,
        pub config_map: Option<Named>,
        pub projected: Option<Projected>,
        pub persistent_volume_claim: Option<ClaimVolume>,
        pub ephemeral: Option<serde::de::IgnoredAny>,
        pub azure_file: Option<SecretVolume>,
        pub cephfs: Option<WithSecretRef>,
        pub cinder: Option<WithSecretRef>,
        pub flex_volume: Option<WithSecretRef>,
        pub rbd: Option<WithSecretRef>,
        #[serde(rename = "scaleIO")]
        pub scale_io: Option<WithSecretRef>,
        pub iscsi: Option<WithSecretRef>,
        pub storageos: Option<WithSecretRef>,
        pub csi: Option<WithSecretRef>,
    }
}

impl PodRefs {
    /// Reads a stored pod; nothing if it cannot be read.
    pub fn read(object: &Object) -> Option<Self> {
        let pod: wire::Pod = read(object)?;
        let name = &object.data.name;
        let spec = pod.spec;
        let mut names: Vec<(Kind, Text)> = Vec::new();
        let mut seen: HashSet<(Kind, Text)> = HashSet::new();
        let mut add = |kind: Kind, name: Text| {
            if !name.is_empty() && seen.insert((kind, name.clone())) {
                names.push((kind, name));
            }
        };
        add(Kind::ServiceAccount, spec.service_account_name);
        for secret in spec.image_pull_secrets {
            add(Kind::Secret, secret.name);
        }
        for container in
            spec.containers.into_iter().chain(spec.init_containers).chain(spec.ephemeral_containers)
        {
            for from in container.env.into_iter().filter_map(|e| e.value_from) {
                add(Kind::Secret, from.secret_key_ref.unwrap_or_default().name);
                add(Kind::ConfigMap, from.config_map_key_ref.unwrap_or_default().name);
            }
            for from in container.env_from {
                add(Kind::Secret, from.secret_ref.unwrap_or_default().name);
                add(Kind::ConfigMap, from.config_map_ref.unwrap_or_default().name);
            }
        }
        for volume in spec.volumes {
            add(Kind::Secret, volume.secret.unwrap_or_default().secret_name);
            add(Kind::Secret, volume.azure_file.unwrap_or_default().secret_name);
            add(Kind::ConfigMap, volume.config_map.unwrap_or_default().name);
            for source in volume.projected.unwrap_or_default().sources {
                add(Kind::Secret, source.secret.unwrap_or_default().name);
                add(Kind::ConfigMap, source.config_map.unwrap_or_default().name);
            }
            let others = [
                volume.cephfs,
                volume.cinder,
                volume.flex_volume,
                volume.rbd,
                volume.scale_io,
                volume.iscsi,
                volume.storageos,
                volume.csi,
            ];
            for other in others.into_iter().flatten() {
                add(Kind::Secret, other.secret_ref.unwrap_or_default().name);
                add(Kind::Secret, other.node_publish_secret_ref.unwrap_or_default().name);
            }
            if let Some(claim) = volume.persistent_volume_claim {
                add(Kind::Claim, claim.claim_name);
            } else if volume.ephemeral.is_some() {
                add(Kind::Claim, compact_str::format_compact!("{name}-{}", volume.name));
            }
        }
        for claim in spec.resource_claims {
            let made = || {
                let statuses = &pod.status.resource_claim_statuses;
                statuses.iter().find(|s| s.name == claim.name)?.resource_claim_name.clone()
            };
            add(Kind::ResourceClaim, claim.resource_claim_name.clone().or_else(made).unwrap_or_default());
        }
        if let Some(extended) = pod.status.extended_resource_claim_status {
            add(Kind::ResourceClaim, extended.resource_claim_name);
        }
        let mirror = pod.metadata.annotations.contains_key("kubernetes.io/config.mirror");
        Some(Self { node: spec.node_name, mirror, names })
    }
}

impl PvRefs {
    /// Reads a stored volume; nothing if it cannot be read.
    pub fn read(object: &Object) -> Option<Self> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Volume {
            spec: Spec,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Reference {
            namespace: Text,
            name: Text,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Source {
            secret_ref: Option<Reference>,
            secret_name: Text,
            secret_namespace: Option<Text>,
            node_publish_secret_ref: Option<Reference>,
            node_stage_secret_ref: Option<Reference>,
            node_expand_secret_ref: Option<Reference>,
        }
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            claim_ref: Option<Reference>,
            azure_file: Option<Source>,
            cephfs: Option<Source>,
            cinder: Option<Source>,
            flex_volume: Option<Source>,
            rbd: Option<Source>,
            #[serde(rename = "scaleIO")]
            scale_io: Option<Source>,
            iscsi: Option<Source>,
            storageos: Option<Source>,
            csi: Option<Source>,
        }
        let spec = read::<Volume>(object)?.spec;
        let Some(claim) = spec.claim_ref else { return Some(Self::default()) };
        let mut secrets = Vec::new();
        let sources = [
            spec.azure_file,
            spec.cephfs,
            spec.cinder,
            spec.flex_volume,
            spec.rbd,
            spec.scale_io,
            spec.iscsi,
            spec.storageos,
            spec.csi,
        ];
        for source in sources.into_iter().flatten() {
            if !source.secret_name.is_empty() {
                let namespace = source.secret_namespace.filter(|n| !n.is_empty());
                secrets.push((namespace.unwrap_or_else(|| claim.namespace.clone()), source.secret_name));
            }
            let references = [
                source.secret_ref,
                source.node_publish_secret_ref,
                source.node_stage_secret_ref,
                source.node_expand_secret_ref,
            ];
            for reference in references.into_iter().flatten().filter(|r| !r.name.is_empty()) {
                let namespace = if reference.namespace.is_empty() {
                    claim.namespace.clone()
                } else {
                    reference.namespace
                };
                secrets.push((namespace, reference.name));
            }
        }
        Some(Self { claim: Some((claim.namespace, claim.name)), secrets })
    }
}
