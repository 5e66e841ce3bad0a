//! A Pod as the controllers read it.

mod wire;

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use api::Status;
use client::{Cached, FromJson, Identity};
use compact_str::CompactString as Text;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use objects::Selector;
use objects::attachable::Attachable;
use objects::claims::{Source, User};
use objects::labels::CompactLabels;

use super::meta::Meta;
use super::task::Task;

/// The part of a Pod that any of the controllers reads. The garbage collector shares its metadata.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodView {
    /// Its metadata.
    pub meta: Arc<Meta>,
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// The time at which it was made.
    pub created: Option<Timestamp>,
    /// Whether its deletion has no time left.
    pub expired: bool,
    /// Whether its deletion has begun and none of its containers runs.
    pub stopped: bool,
    /// Its labels.
    pub labels: CompactLabels,
    /// Its cost of deletion, beside that of others of its set.
    pub cost: i32,
    /// The node to which it is bound, "" for none.
    pub node: Text,
    /// Its tolerations.
    pub tolerations: Tolerations,
    /// Its phase, "" if it has none yet.
    pub phase: Text,
    /// Whether its node ended it to get back resources.
    pub evicted: bool,
    /// Its condition `Ready`.
    pub ready: Option<Condition>,
    /// Its addresses that can be read.
    pub addresses: Box<[IpAddr]>,
    /// The most restarts of a container, and of a sidecar.
    pub restarts: (i32, i32),
    /// The fields that few Pods have.
    rare: Option<Box<Rare>>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Rare {
    hostname: Text,
    subdomain: Text,
    disruption: Option<Condition>,
    ports: Box<[NamedPort]>,
    claims: Box<[ClaimVolume]>,
    ephemeral: Box<[Text]>,
    attachables: Box<[Attachable]>,
    migrated: Box<[Arc<PersistentVolume>]>,
    target: Text,
    devices: Option<Box<DeviceClaims>>,
    group: Text,
    task: Option<Box<Task>>,
}

/// A Pod's claims on devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceClaims {
    /// The places that name claims.
    pub places: Box<[ClaimPlace]>,
    /// The claim that stands for its extended resources, "" for none.
    pub extended: Text,
}

/// A place in a Pod that names a claim on devices, or a template of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimPlace {
    /// Its name.
    pub name: Text,
    /// The claim, if the Pod names it.
    pub claim: Option<Text>,
    /// The template of the claim.
    pub template: Option<Text>,
    /// The claim that was made of the template, as the Pod's status has it.
    pub made: Made,
}

/// The claim that was made of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Made {
    /// It is not made yet.
    NotYet,
    /// There needs to be none.
    NotNeeded,
    /// It has this name.
    Claim(Text),
}

impl ClaimPlace {
    /// The claim and the template that it names.
    pub fn source(&self) -> Source<'_> {
        (self.claim.as_deref(), self.template.as_deref())
    }
    /// The name of the claim, and whether it was made for the Pod.
    pub fn named(&self) -> Option<(&str, bool)> {
        match (&self.claim, &self.made) {
            (Some(name), _) => Some((name, false)),
            (None, Made::Claim(name)) if self.template.is_some() => Some((name, true)),
            _ => None,
        }
    }
}

/// A volume of a Pod that names a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimVolume {
    /// The volume's name.
    pub volume: Text,
    /// The claim's name.
    pub claim: Text,
}

/// A port of a Pod's containers and sidecars that has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPort {
    /// Its name.
    pub name: Text,
    /// Its protocol.
    pub protocol: Text,
    /// Its number.
    pub port: i32,
}

/// The state of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It is not known.
    Unknown,
}

/// A condition of a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Its state.
    pub status: Truth,
    /// Its reason, "" for none.
    pub reason: Text,
    /// The time of its last change.
    pub since: Option<Timestamp>,
}

/// The tolerations of a Pod. Those that admission gives every Pod take no room.
#[derive(Debug, Clone, PartialEq)]
pub struct Tolerations(Option<Box<[Toleration]>>);

/// The tolerations that the admission plugin DefaultTolerationSeconds adds.
static ADDED: LazyLock<[Toleration; 2]> = LazyLock::new(|| {
    ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].map(|key| Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some(objects::taints::NO_EXECUTE.to_owned()),
        toleration_seconds: Some(300),
        value: None,
    })
});

impl Default for Tolerations {
    fn default() -> Self {
        Self(Some(Box::default()))
    }
}

impl From<Vec<Toleration>> for Tolerations {
    fn from(all: Vec<Toleration>) -> Self {
        Self((all != *ADDED).then(|| all.into()))
    }
}

impl std::ops::Deref for Tolerations {
    type Target = [Toleration];
    fn deref(&self) -> &[Toleration] {
        self.0.as_deref().unwrap_or(&*ADDED)
    }
}

/// The driver of a volume, and its handle of it; nothing if it is no driver's.
fn csi_names(volume: &PersistentVolume) -> (&str, &str) {
    let source = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
    source.map_or(("", ""), |csi| (&csi.driver, &csi.volume_handle))
}

impl PodView {
    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.meta.namespace
    }
    /// Its name.
    pub fn name(&self) -> &str {
        &self.meta.name
    }
    /// Its uid.
    pub fn uid(&self) -> &str {
        &self.meta.uid
    }
    /// The reference to its managing controller.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.meta.controller()
    }
    /// Whether its deletion has begun.
    pub fn is_deleting(&self) -> bool {
        self.meta.deleting
    }
    /// Whether a selector selects it.
    pub fn is_selected_by(&self, selector: &Selector) -> bool {
        selector.matches_by(|key| self.labels.get(key))
    }
    /// Whether it has ended for good.
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }
    /// Whether it counts as a replica: it has not ended and is not being deleted.
    pub fn is_active(&self) -> bool {
        !self.is_terminal() && !self.is_deleting()
    }
    /// Whether it is being deleted and has not ended.
    pub fn is_terminating(&self) -> bool {
        !self.is_terminal() && self.is_deleting()
    }
    /// Whether its condition `Ready` holds.
    pub fn is_ready(&self) -> bool {
        self.ready.as_ref().is_some_and(|c| c.status == Truth::True)
    }
    /// The time since which it is ready; `None` also if it is ready and its condition has no time.
    pub fn ready_since(&self) -> Option<Timestamp> {
        self.ready.as_ref().filter(|c| c.status == Truth::True)?.since
    }
    /// Whether it has been ready for `min_ready` seconds.
    pub fn is_available(&self, min_ready: i32, now: Timestamp) -> bool {
        let term = SignedDuration::from_secs(i64::from(min_ready));
        self.is_ready()
            && (min_ready == 0 || self.ready_since().is_some_and(|since| now.duration_since(since) >= term))
    }
    /// The time until it becomes available; `None` if it is, or is not ready.
    pub fn available_in(&self, min_ready: i32, now: Timestamp) -> Option<Duration> {
        let left = SignedDuration::from_secs(i64::from(min_ready)) - now.duration_since(self.ready_since()?);
        Duration::try_from(left).ok().filter(|left| !left.is_zero())
    }
    /// Its condition `DisruptionTarget`.
    pub fn disruption(&self) -> Option<&Condition> {
        self.rare.as_ref()?.disruption.as_ref()
    }
    /// Its name in DNS below [`PodView::subdomain`], "" for none.
    pub fn hostname(&self) -> &str {
        self.rare.as_ref().map_or("", |r| &r.hostname)
    }
    /// The headless Service that gives it a name in DNS, "" for none.
    pub fn subdomain(&self) -> &str {
        self.rare.as_ref().map_or("", |r| &r.subdomain)
    }
    /// The ports of its containers and sidecars that have a name.
    pub fn named_ports(&self) -> &[NamedPort] {
        self.rare.as_ref().map_or(&[], |r| &r.ports)
    }
    /// Its volumes that name claims.
    pub fn claim_volumes(&self) -> &[ClaimVolume] {
        self.rare.as_ref().map_or(&[], |r| &r.claims)
    }
    /// The names of the claims that its volumes name.
    pub fn claims(&self) -> impl Iterator<Item = &Text> {
        self.claim_volumes().iter().map(|v| &v.claim)
    }
    /// The node to which it is bound, or else the one node that its affinity names; "" for none.
    pub fn target_node(&self) -> &str {
        let target = || self.rare.as_ref().map_or("", |r| &r.target);
        if self.node.is_empty() { target() } else { &self.node }
    }
    /// The PodGroup with which it is scheduled, "" for none.
    pub fn group(&self) -> &str {
        self.rare.as_ref().map_or("", |r| &r.group)
    }
    /// It as a user of claims on devices; `by_group`: whether claims of PodGroups are shared.
    pub fn user(&self, by_group: bool) -> User<'_> {
        let group = Some(self.group()).filter(|name| by_group && !name.is_empty());
        User { namespace: self.namespace(), name: self.name(), uid: self.uid(), group }
    }
    /// The names of the claims that are made for its ephemeral volumes.
    pub fn ephemeral_claims(&self) -> &[Text] {
        self.rare.as_ref().map_or(&[], |r| &r.ephemeral)
    }
    /// Its own volumes that the controller attaches.
    pub fn attachables(&self) -> &[Attachable] {
        self.rare.as_ref().map_or(&[], |r| &r.attachables)
    }
    /// Its own volumes of plugins from which drivers took over, as the drivers are given them, in the order of the drivers'
    /// names of them.
    pub fn migrated(&self) -> &[Arc<PersistentVolume>] {
        self.rare.as_ref().map_or(&[], |r| &r.migrated)
    }
    /// The one of them that a driver has under a handle.
    pub fn migrated_as(&self, driver: &str, handle: &str) -> Option<&Arc<PersistentVolume>> {
        let all = self.migrated();
        all.binary_search_by(|volume| csi_names(volume).cmp(&(driver, handle))).ok().map(|at| &all[at])
    }
    /// The places in it that name claims on devices.
    pub fn claim_places(&self) -> &[ClaimPlace] {
        self.rare.as_ref().and_then(|r| r.devices.as_ref()).map_or(&[], |d| &d.places)
    }
    /// The claim on devices that stands for its extended resources, "" for none.
    pub fn extended_claim(&self) -> &str {
        self.rare.as_ref().and_then(|r| r.devices.as_ref()).map_or("", |d| &d.extended)
    }
    /// The names of its claims on devices, as far as they are known.
    pub fn device_claims(&self) -> impl Iterator<Item = &str> {
        let named = self.claim_places().iter().filter_map(ClaimPlace::named).map(|(name, _)| name);
        named.chain(Some(self.extended_claim()).filter(|name| !name.is_empty()))
    }
    /// Its part that the controller of Jobs reads; the Pods of other controllers have none.
    pub fn task(&self) -> Option<&Task> {
        self.rare.as_ref()?.task.as_deref()
    }
    /// Returns it with the finalizer `TRACKING`, as a Job has it that has just adopted it.
    pub fn with_tracking(&self) -> Self {
        let mut pod = self.clone();
        pod.rare.get_or_insert_default().task.get_or_insert_default().tracked = true;
        pod
    }
    /// The reference by which Events name it.
    pub fn reference(&self) -> ObjectReference {
        let some = |t: &str| Some(t.to_owned());
        ObjectReference {
            api_version: some("v1"),
            kind: some("Pod"),
            namespace: some(self.namespace()),
            name: some(self.name()),
            uid: some(self.uid()),
            resource_version: some(&self.meta.resource_version),
            field_path: None,
        }
    }
}

impl Cached for PodView {
    fn decode(json: &[u8]) -> Result<Self, Status> {
        Self::from_json(json)
    }
    fn identity(&self) -> Identity<'_> {
        Identity {
            namespace: &self.meta.namespace,
            name: &self.meta.name,
            uid: &self.meta.uid,
            resource_version: &self.meta.resource_version,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::views::FOREGROUND;

    const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

    /// The view of a Pod of this JSON.
    pub(crate) fn view(pod: &Value) -> PodView {
        PodView::decode(pod.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn fields() {
        let time = "2026-01-01T00:00:00Z";
        let pod = view(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": "d", "name": "p", "uid": "u", "resourceVersion": "7", "generation": 3,
                "creationTimestamp": time, "deletionTimestamp": time, "deletionGracePeriodSeconds": 0,
                "labels": {"b": "2", "a": "1"}, "annotations": {COST: "-5", "other": "x"},
                "finalizers": ["x", FOREGROUND],
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "A", "name": "a", "uid": "ua"},
                    {"apiVersion": "v1", "kind": "B", "name": "b", "uid": "ub", "controller": true},
                ],
            },
            "spec": {
                "nodeName": "n", "hostname": "h", "subdomain": "s",
                "tolerations": [{"key": "k", "operator": "Exists"}],
                "containers": [{"name": "c", "ports": [{"containerPort": 80}, {"name": "web", "containerPort": 8080}]}],
                "initContainers": [
                    {"name": "i", "ports": [{"name": "no", "containerPort": 1}]},
                    {"name": "s", "restartPolicy": "Always", "ports": [{"name": "dns", "containerPort": 53, "protocol": "UDP"}]},
                ],
                "volumes": [
                    {"name": "v", "persistentVolumeClaim": {"claimName": "claim"}},
                    {"name": "e", "ephemeral": {}}, {"name": "o", "emptyDir": {}},
                    {"name": "x", "flexVolume": {"driver": "d"}},
                    {"name": "w", "awsElasticBlockStore": {"volumeID": "aws://z/vol-1", "fsType": "ext4"}},
                    {"name": "q", "awsElasticBlockStore": {"volumeID": "aws://z/none"}},
                    {"name": "s", "azureFile": {"secretName": "a", "shareName": "b"}},
                    {"name": "l", "cinder": {"volumeID": "c".repeat(2000)}},
                ],
            },
            "status": {
                "phase": "Failed", "reason": "Evicted", "podIP": "10.0.0.9",
                "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}, {"ip": "none"}],
                "conditions": [
                    {"type": "Ready", "status": "True", "lastTransitionTime": time},
                    {"type": "DisruptionTarget", "status": "True", "reason": "R", "lastTransitionTime": null},
                ],
                "containerStatuses": [{"name": "c", "restartCount": 2}, {"name": "d", "restartCount": 1}],
                "initContainerStatuses": [{"name": "i", "restartCount": 9}, {"name": "s", "restartCount": 4}],
            },
        }));
        let at: Timestamp = time.parse().unwrap();
        assert_eq!((pod.namespace(), pod.name(), pod.uid()), ("d", "p", "u"));
        assert_eq!(
            (pod.meta.resource_version.as_str(), pod.generation, pod.created),
            ("7", Some(3), Some(at))
        );
        assert_eq!(
            (pod.labels.get("a"), pod.labels.get("b"), pod.labels.get("c")),
            (Some("1"), Some("2"), None)
        );
        assert_eq!((pod.cost, pod.expired, pod.is_deleting()), (-5, true, true));
        assert!(pod.meta.foreground && !pod.meta.orphan && pod.meta.waits_for_dependents());
        assert_eq!(pod.controller().map(|r| &*r.uid), Some("ub"));
        assert_eq!((&*pod.node, pod.hostname(), pod.subdomain()), ("n", "h", "s"));
        assert_eq!(pod.tolerations.len(), 1);
        let ports: Vec<_> = pod.named_ports().iter().map(|p| (&*p.name, &*p.protocol, p.port)).collect();
        assert_eq!(ports, [("web", "TCP", 8080), ("dns", "UDP", 53)]);
        let volume = ClaimVolume { volume: "v".into(), claim: "claim".into() };
        assert_eq!((pod.claim_volumes(), pod.ephemeral_claims()), (&[volume][..], &["p-e".into()][..]));
        assert!(pod.claims().eq(["claim"]));
        assert!(pod.attachables().iter().map(|a| a.unique.as_str()).eq(["d/x"]));
        let handle = |v: &Arc<PersistentVolume>| v.spec.clone()?.csi.map(|csi| csi.volume_handle);
        assert!(pod.migrated().iter().filter_map(handle).eq(["vol-1", "#a#b#s#d"]));
        for (driver, of, there) in
            [("ebs.csi.aws.com", "vol-1", true), ("file.csi.azure.com", "#a#b#s#d", true)]
                .into_iter()
                .chain([("ebs.csi.aws.com", "#a#b#s#d", false), ("", "", false)])
        {
            assert_eq!(pod.migrated_as(driver, of).and_then(handle).is_some_and(|h| h == of), there, "{of}");
        }
        assert!(pod.is_terminal() && pod.evicted && pod.is_ready());
        assert_eq!(pod.ready_since(), Some(at));
        let said = Condition { status: Truth::True, reason: "R".into(), since: None };
        assert_eq!(pod.disruption(), Some(&said));
        let addresses: Vec<String> = pod.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.1", "fd00::1"]);
        assert_eq!(pod.restarts, (2, 4));
    }

    #[test]
    fn little_is_enough() {
        let owner = json!([{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "ua", "controller": true}]);
        let meta = json!({"name": "p", "creationTimestamp": null, "labels": null, "ownerReferences": owner});
        let pod = view(&json!({ "metadata": meta }));
        assert!(pod.is_active() && !pod.is_ready() && pod.tolerations.is_empty() && pod.rare.is_none());
        let nulls = view(&json!({
            "metadata": {"name": "p", "finalizers": null, "ownerReferences": null, "deletionTimestamp": null},
            "spec": {"nodeName": null, "containers": [{"name": "c", "ports": null}], "tolerations": null},
            "status": null,
        }));
        assert!(nulls.is_active() && nulls.node.is_empty());
        let alone = view(&json!({"metadata": {}, "status": {"podIP": "10.0.0.9"}}));
        assert_eq!(alone.addresses.len(), 1);
        assert!(PodView::decode(b"{\"metadata\": 7}").is_err());
        assert!(PodView::decode(b"{").is_err());
    }

    /// Upstream's cases of `TestGetTargetNodeName`.
    #[test]
    fn the_node_that_a_pod_is_for() {
        let check = |node: &str, terms: Value, want: &str| {
            let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": terms}}});
            let pod = view(&json!({"metadata": {}, "spec": {"nodeName": node, "affinity": affinity}}));
            assert_eq!(pod.target_node(), want, "{node} {terms}");
        };
        let field = |key: &str, operator: &str, values: &[&str]| json!({"matchFields": [{"key": key, "operator": operator, "values": values}]});
        check("node-1", json!([]), "node-1");
        check("", json!([field("metadata.name", "In", &["node-1"])]), "node-1");
        check("", json!([{"matchFields": null}, field("metadata.name", "In", &["node-1"])]), "node-1");
        check("bound", json!([field("metadata.name", "In", &["node-1"])]), "bound");
        check("", json!([field("metadata.name", "In", &["node-1", "node-2"])]), "");
        check("", json!([field("metadata.name", "NotIn", &["node-1"])]), "");
        check("", json!([field("metadata.uid", "In", &["node-1"])]), "");
        check("", json!(null), "");
        check("", json!([]), "");
    }

    #[test]
    fn common_tolerations_take_no_room() {
        let tolerates = |key: &str, seconds: i64| {
            json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": seconds})
        };
        let check = |all: Value, shared: bool| {
            let pod = view(&json!({"metadata": {}, "spec": {"tolerations": all}}));
            assert_eq!((pod.tolerations.0.is_none(), pod.tolerations.len()), (shared, 2), "{all}");
            assert_eq!(json!(&*pod.tolerations), all);
        };
        check(json!([tolerates("not-ready", 300), tolerates("unreachable", 300)]), true);
        check(json!([tolerates("not-ready", 300), tolerates("unreachable", 10)]), false);
    }

    #[test]
    fn pods_that_have_stopped() {
        let check = |deleting: bool, inits: Value, containers: Value, debuggers: Value, want: bool| {
            let at = deleting.then_some("2026-01-01T00:00:00Z");
            let pod = view(
                &json!({"metadata": {"deletionTimestamp": at}, "status": {"containerStatuses": containers,
                "initContainerStatuses": inits, "ephemeralContainerStatuses": debuggers}}),
            );
            assert_eq!(pod.stopped, want, "{deleting} {inits} {containers} {debuggers}");
        };
        let of = |state: Value| json!([{"name": "c", "state": state}]);
        let (none, ended) = (|| json!(null), || of(json!({"terminated": {"exitCode": 0}})));
        let (waits, runs) = (|| of(json!({"waiting": {}})), || of(json!({"running": {}})));
        check(true, none(), none(), none(), true);
        check(false, none(), none(), none(), false);
        check(true, ended(), waits(), ended(), true);
        check(false, ended(), waits(), ended(), false);
        check(true, runs(), ended(), ended(), false);
        check(true, ended(), runs(), ended(), false);
        check(true, ended(), ended(), runs(), false);
        check(true, ended(), of(json!({})), none(), false);
    }

    #[test]
    fn availability() {
        let now = Timestamp::from_second(100).unwrap();
        let check = |since: i64, min: i32, available: bool, left: Option<u64>| {
            let time = Timestamp::from_second(since).unwrap().to_string();
            let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": time}]);
            let pod = view(&json!({"metadata": {}, "status": {"conditions": ready}}));
            assert_eq!(pod.is_available(min, now), available, "{since} {min}");
            assert_eq!(pod.available_in(min, now), left.map(Duration::from_secs), "{since} {min}");
        };
        check(90, 0, true, None);
        check(90, 10, true, None);
        check(91, 10, false, Some(1));
        check(200, 10, false, Some(110));
    }

    /// The readiness of a Pod.
    #[derive(Debug, Clone, Copy)]
    enum Ready {
        No,
        /// Nobody knows since when.
        Yes,
        /// For so many seconds.
        For(i64),
    }

    /// Upstream's cases of `TestNextPodAvailabilityCheck`, `TestFindMinNextPodAvailabilitySimpleCheck` and
    /// `TestFindMinNextPodAvailability`: Pods, `minReadySeconds`, the seconds that passed since, and the time until the next
    /// one is available. A look that is late is not made at once here, since its status counts all that are available by
    /// then.
    #[test]
    fn the_next_available_pod() {
        let start = Timestamp::from_second(1000).unwrap();
        let pod = |ready: &Ready| {
            let (status, since) = match ready {
                Ready::No => ("False", None),
                Ready::Yes => ("True", None),
                Ready::For(seconds) => ("True", Some(start - SignedDuration::from_secs(*seconds))),
            };
            let since = since.map(|at| at.to_string());
            let ready = json!([{"type": "Ready", "status": status, "lastTransitionTime": since}]);
            view(&json!({"metadata": {}, "status": {"conditions": ready}}))
        };
        let check = |pods: &[Ready], min: i32, later: i64, left: Option<u64>| {
            let now = start + SignedDuration::from_secs(later);
            let next = pods.iter().map(pod).filter_map(|p| p.available_in(min, now)).min();
            assert_eq!(next, left.map(Duration::from_secs), "{pods:?} {min} {later}");
        };
        let (no, since) = (Ready::No, Ready::For);
        check(&[no], 0, 0, None);
        check(&[since(0)], 0, 0, None);
        check(&[Ready::Yes], 1, 0, None);
        check(&[since(0)], 1, 0, Some(1));
        check(&[since(20)], 30, 0, Some(10));
        check(&[since(51)], 50, 0, None);
        check(&[], 0, 0, None);
        check(&[no, no], 0, 0, None);
        check(&[since(0), since(0)], 0, 0, None);
        let mixed = [no, since(2), since(0), since(4), no];
        check(&mixed, 10, 0, Some(6));
        check(&[no, since(15), since(11), since(10), no], 10, 0, None);
        check(&mixed, 10, 2, Some(4));
        check(&mixed, 10, 7, Some(1));
    }
}
