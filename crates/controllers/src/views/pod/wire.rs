//! A Pod's JSON, as far as the controllers read it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::Status;
use client::FromJson;
use client::json::or_default;
use compact_str::CompactString as Text;
use k8s_openapi::api::core::v1::{
    AWSElasticBlockStoreVolumeSource, AzureDiskVolumeSource, AzureFileVolumeSource, CinderVolumeSource,
    FCVolumeSource, FlexVolumeSource, GCEPersistentDiskVolumeSource, ISCSIVolumeSource,
    NodeSelectorRequirement, PersistentVolume, PortworxVolumeSource, Toleration, Volume,
    VsphereVirtualDiskVolumeSource,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use objects::attachable::{Attachable, LONGEST};
use objects::migration;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{ClaimPlace, ClaimVolume, Condition, DeviceClaims, Made, NamedPort, PodView, Rare, Truth};
use crate::common::addresses;
use crate::views::meta::{Meta, Wire as WireMeta};
use crate::views::task::{Container as TaskContainer, State, TRACKING, Task, Times};

impl FromJson for PodView {
    fn from_json(json: &[u8]) -> Result<Self, Status> {
        Wire::from_json(json).map(Self::from)
    }
}

client::from_json!(Wire);

#[derive(Deserialize, Default)]
#[serde(default)]
struct Wire {
    #[serde(deserialize_with = "or_default")]
    metadata: WireMetadata,
    #[serde(deserialize_with = "or_default")]
    spec: WireSpec,
    #[serde(deserialize_with = "or_default")]
    status: WireStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireMetadata {
    #[serde(deserialize_with = "or_default")]
    namespace: Text,
    #[serde(deserialize_with = "or_default")]
    name: Text,
    #[serde(deserialize_with = "or_default")]
    uid: Text,
    #[serde(deserialize_with = "or_default")]
    resource_version: Text,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<Text>>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<Text, Text>>,
    annotations: Option<WireAnnotations>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireAnnotations {
    #[serde(rename = "controller.kubernetes.io/pod-deletion-cost")]
    cost: Option<Text>,
    #[serde(rename = "batch.kubernetes.io/job-completion-index")]
    index: Option<Text>,
    #[serde(rename = "batch.kubernetes.io/job-index-failure-count")]
    failures: Option<Text>,
    #[serde(rename = "batch.kubernetes.io/job-index-ignored-failure-count")]
    ignored: Option<Text>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    #[serde(deserialize_with = "or_default")]
    node_name: Text,
    #[serde(deserialize_with = "or_default")]
    hostname: Text,
    #[serde(deserialize_with = "or_default")]
    subdomain: Text,
    tolerations: Option<Vec<Toleration>>,
    containers: Option<Vec<WireContainer>>,
    init_containers: Option<Vec<WireContainer>>,
    volumes: Option<Vec<WireVolume>>,
    resource_claims: Option<Vec<WirePlace>>,
    affinity: Option<WireAffinity>,
    scheduling_group: Option<WireGroup>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireGroup {
    #[serde(deserialize_with = "or_default")]
    pod_group_name: Text,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireAffinity {
    node_affinity: Option<WireNodeAffinity>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireNodeAffinity {
    required_during_scheduling_ignored_during_execution: Option<WireNodeSelector>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireNodeSelector {
    node_selector_terms: Option<Vec<WireTerm>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireTerm {
    match_fields: Option<Vec<NodeSelectorRequirement>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireContainer {
    #[serde(deserialize_with = "or_default")]
    name: Text,
    #[serde(deserialize_with = "or_default")]
    restart_policy: Text,
    ports: Option<Vec<WirePort>>,
}

impl WireContainer {
    fn is_sidecar(&self) -> bool {
        self.restart_policy == "Always"
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WirePort {
    #[serde(deserialize_with = "or_default")]
    name: Text,
    #[serde(deserialize_with = "or_default")]
    protocol: Text,
    #[serde(deserialize_with = "or_default")]
    container_port: i32,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireVolume {
    #[serde(deserialize_with = "or_default")]
    name: Text,
    persistent_volume_claim: Option<WireClaim>,
    ephemeral: Option<IgnoredAny>,
    iscsi: Option<Box<ISCSIVolumeSource>>,
    fc: Option<Box<FCVolumeSource>>,
    flex_volume: Option<Box<FlexVolumeSource>>,
    aws_elastic_block_store: Option<Box<AWSElasticBlockStoreVolumeSource>>,
    azure_disk: Option<Box<AzureDiskVolumeSource>>,
    azure_file: Option<Box<AzureFileVolumeSource>>,
    cinder: Option<Box<CinderVolumeSource>>,
    gce_persistent_disk: Option<Box<GCEPersistentDiskVolumeSource>>,
    portworx_volume: Option<Box<PortworxVolumeSource>>,
    vsphere_volume: Option<Box<VsphereVirtualDiskVolumeSource>>,
}

impl WireVolume {
    /// It as its driver is given it, if one took over from its plugin and can have it.
    fn migrated(&self, namespace: &str) -> Option<Arc<PersistentVolume>> {
        let volume = Volume {
            name: self.name.to_string(),
            aws_elastic_block_store: self.aws_elastic_block_store.as_deref().cloned(),
            azure_disk: self.azure_disk.as_deref().cloned(),
            azure_file: self.azure_file.as_deref().cloned(),
            cinder: self.cinder.as_deref().cloned(),
            gce_persistent_disk: self.gce_persistent_disk.as_deref().cloned(),
            portworx_volume: self.portworx_volume.as_deref().cloned(),
            vsphere_volume: self.vsphere_volume.as_deref().cloned(),
            ..Volume::default()
        };
        let made = migration::inline_as_csi(&volume, namespace).ok()??;
        let handle = &made.spec.as_ref()?.csi.as_ref()?.volume_handle;
        // No node is told of a volume with a longer name.
        (handle.len() <= LONGEST).then(|| Arc::new(made))
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireClaim {
    #[serde(deserialize_with = "or_default")]
    claim_name: Text,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WirePlace {
    #[serde(deserialize_with = "or_default")]
    name: Text,
    resource_claim_name: Option<Text>,
    resource_claim_template_name: Option<Text>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireMade {
    #[serde(deserialize_with = "or_default")]
    name: Text,
    resource_claim_name: Option<Text>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireExtended {
    #[serde(deserialize_with = "or_default")]
    resource_claim_name: Text,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    #[serde(deserialize_with = "or_default")]
    phase: Text,
    #[serde(deserialize_with = "or_default")]
    reason: Text,
    conditions: Option<Vec<WireCondition>>,
    #[serde(rename = "podIP")]
    #[serde(deserialize_with = "or_default")]
    pod_ip: Text,
    #[serde(rename = "podIPs")]
    pod_ips: Option<Vec<WireIp>>,
    resource_claim_statuses: Option<Vec<WireMade>>,
    extended_resource_claim_status: Option<WireExtended>,
    container_statuses: Option<Vec<WireState>>,
    init_container_statuses: Option<Vec<WireState>>,
    ephemeral_container_statuses: Option<Vec<WireState>>,
}

impl WireStatus {
    /// Whether a container runs, or may do so.
    fn runs(&self) -> bool {
        let all =
            [&self.init_container_statuses, &self.container_statuses, &self.ephemeral_container_statuses];
        all.into_iter().flatten().flatten().any(|c| c.state.runs())
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireCondition {
    #[serde(rename = "type")]
    #[serde(deserialize_with = "or_default")]
    kind: Text,
    #[serde(deserialize_with = "or_default")]
    status: Text,
    reason: Option<Text>,
    last_transition_time: Option<Time>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WireIp {
    #[serde(deserialize_with = "or_default")]
    ip: Text,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireState {
    #[serde(deserialize_with = "or_default")]
    name: Text,
    #[serde(deserialize_with = "or_default")]
    restart_count: i32,
    #[serde(deserialize_with = "or_default")]
    state: State,
}

impl From<Wire> for PodView {
    fn from(wire: Wire) -> Self {
        let Wire { metadata: m, spec, status } = wire;
        let times = Times {
            unready: condition(&status, "Ready").filter(|c| c.status == Truth::False).and_then(|c| c.since),
            deleted: m.deletion_timestamp.as_ref().map(|t| t.0),
            grace: m.deletion_grace_period_seconds.unwrap_or(0),
            created: m.creation_timestamp.as_ref().map(|t| t.0),
        };
        let tracked = m.finalizers.iter().flatten().any(|f| f == TRACKING);
        let meta = Meta::from(WireMeta {
            namespace: m.namespace,
            name: m.name,
            uid: m.uid,
            resource_version: m.resource_version,
            owner_references: m.owner_references,
            deletion_timestamp: m.deletion_timestamp.map(|_| IgnoredAny),
            finalizers: m.finalizers,
        });
        let mut rare = rare((&meta.namespace, &meta.name), &spec, &status);
        if tracked || meta.controller().is_none_or(|r| r.kind == "Job") {
            let said = m.annotations.as_ref();
            rare.task = Some(Box::new(task(tracked, said, &spec, &status, &times)));
        }
        Self {
            generation: m.generation,
            created: m.creation_timestamp.map(|t| t.0),
            expired: meta.deleting && m.deletion_grace_period_seconds == Some(0),
            stopped: meta.deleting && !status.runs(),
            labels: m.labels.into_iter().flatten().collect(),
            cost: m.annotations.and_then(|a| a.cost?.parse().ok()).unwrap_or(0),
            node: spec.node_name.clone(),
            evicted: status.reason == "Evicted",
            ready: condition(&status, "Ready"),
            addresses: addresses(&status),
            restarts: restarts(&spec, &status),
            phase: status.phase,
            tolerations: spec.tolerations.unwrap_or_default().into(),
            rare: (rare != Rare::default()).then(|| Box::new(rare)),
            meta: Arc::new(meta),
        }
    }
}

fn rare((namespace, name): (&str, &str), spec: &WireSpec, status: &WireStatus) -> Rare {
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.is_sidecar());
    let ports = spec.containers.iter().flatten().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
    let named = ports.filter(|p| !p.name.is_empty()).map(|p| NamedPort {
        name: p.name.clone(),
        protocol: if p.protocol.is_empty() { "TCP".into() } else { p.protocol.clone() },
        port: p.container_port,
    });
    let volumes = spec.volumes.iter().flatten();
    let claim = |v: &WireVolume| {
        let claim = v.persistent_volume_claim.as_ref()?.claim_name.clone();
        Some(ClaimVolume { volume: v.name.clone(), claim })
    };
    let made = |v: &WireVolume| Text::from(format!("{name}-{}", v.name));
    let attachable = |v: &WireVolume| {
        Attachable::inline(&v.name, v.iscsi.as_deref(), v.fc.as_deref(), v.flex_volume.as_deref())
    };
    Rare {
        hostname: spec.hostname.clone(),
        subdomain: spec.subdomain.clone(),
        disruption: condition(status, "DisruptionTarget"),
        ports: named.collect(),
        claims: volumes.clone().filter_map(claim).collect(),
        attachables: volumes.clone().filter_map(attachable).collect(),
        migrated: {
            let mut all: Vec<_> = volumes.clone().filter_map(|v| v.migrated(namespace)).collect();
            all.sort_unstable_by(|a, b| super::csi_names(a).cmp(&super::csi_names(b)));
            all.into()
        },
        ephemeral: volumes.filter(|v| v.ephemeral.is_some()).map(made).collect(),
        target: spec
            .affinity
            .as_ref()
            .filter(|_| spec.node_name.is_empty())
            .and_then(target)
            .unwrap_or_default(),
        devices: devices(spec, status),
        group: spec.scheduling_group.as_ref().map(|g| g.pod_group_name.clone()).unwrap_or_default(),
        task: None,
    }
}

fn devices(spec: &WireSpec, status: &WireStatus) -> Option<Box<DeviceClaims>> {
    let made = |place: &WirePlace| {
        let mut statuses = status.resource_claim_statuses.iter().flatten();
        match statuses.find(|s| s.name == place.name) {
            None => Made::NotYet,
            Some(made) => made.resource_claim_name.clone().map_or(Made::NotNeeded, Made::Claim),
        }
    };
    let places = spec.resource_claims.iter().flatten().map(|place| ClaimPlace {
        name: place.name.clone(),
        claim: place.resource_claim_name.clone(),
        template: place.resource_claim_template_name.clone(),
        made: made(place),
    });
    let extended = status.extended_resource_claim_status.as_ref();
    let devices = DeviceClaims {
        places: places.collect(),
        extended: extended.map(|e| e.resource_claim_name.clone()).unwrap_or_default(),
    };
    (devices != DeviceClaims::default()).then(|| Box::new(devices))
}

/// The one node that an affinity names (upstream's `GetTargetNodeName`).
fn target(affinity: &WireAffinity) -> Option<Text> {
    let required = &affinity.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution;
    let terms = required.as_ref()?.node_selector_terms.iter().flatten();
    let mut fields = terms.flat_map(|t| t.match_fields.iter().flatten());
    let named = fields.find(|f| f.key == "metadata.name" && f.operator == "In")?;
    match named.values.as_deref()? {
        [only] => Some(only.into()),
        _ => None,
    }
}

fn task(
    tracked: bool,
    annotations: Option<&WireAnnotations>,
    spec: &WireSpec,
    status: &WireStatus,
    times: &Times,
) -> Task {
    let sidecars = || spec.init_containers.iter().flatten().filter(|c| c.is_sidecar());
    let containers: Vec<TaskContainer<'_>> = status
        .container_statuses
        .iter()
        .flatten()
        .map(|c| (&c.name, false, &c.state, c.restart_count))
        .collect();
    let inits: Vec<TaskContainer<'_>> = status
        .init_container_statuses
        .iter()
        .flatten()
        .map(|c| (&c.name, sidecars().any(|s| s.name == c.name), &c.state, c.restart_count))
        .collect();
    let conditions = status.conditions.iter().flatten().map(|c| (c.kind.clone(), c.status.clone()));
    let said = |of: fn(&WireAnnotations) -> &Option<Text>| annotations.and_then(|a| of(a).as_ref());
    let annotations = [said(|a| &a.index), said(|a| &a.failures), said(|a| &a.ignored)];
    Task::of(tracked, annotations, &containers, &inits, conditions.collect(), times)
}

fn condition(status: &WireStatus, kind: &str) -> Option<Condition> {
    let found = status.conditions.iter().flatten().find(|c| c.kind == kind)?;
    Some(Condition {
        status: match found.status.as_str() {
            "True" => Truth::True,
            "False" => Truth::False,
            _ => Truth::Unknown,
        },
        reason: found.reason.clone().unwrap_or_default(),
        since: found.last_transition_time.as_ref().map(|t| t.0),
    })
}

/// Returns the addresses of a Pod; the one that stands alone counts only without the others.
fn addresses(status: &WireStatus) -> Box<[IpAddr]> {
    let all: Box<[IpAddr]> =
        status.pod_ips.iter().flatten().filter_map(|ip| addresses::read(&ip.ip)).collect();
    if all.is_empty() { addresses::read(&status.pod_ip).into_iter().collect() } else { all }
}

fn restarts(spec: &WireSpec, status: &WireStatus) -> (i32, i32) {
    let is_sidecar =
        |name: &Text| spec.init_containers.iter().flatten().any(|c| c.name == *name && c.is_sidecar());
    let containers = status.container_statuses.iter().flatten().map(|c| c.restart_count).max();
    let sidecars = status.init_container_statuses.iter().flatten().filter(|c| is_sidecar(&c.name));
    (containers.unwrap_or(0), sidecars.map(|c| c.restart_count).max().unwrap_or(0))
}
