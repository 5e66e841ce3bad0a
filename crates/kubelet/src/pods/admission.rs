//! Whether this node takes a Pod: the node may have changed since the scheduler chose it, or nobody
//! asked the scheduler.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Node, Pod};
use objects::claims::CLASS_PREFIX;
use objects::ports::host_ports;
use objects::taints::{self, Tolerance};
use objects::{features, node_affinity};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::device_manager::DeviceManager;
use crate::eviction::pressure::Pressure;
use crate::node::NodeView;
use crate::node::status::is_extended;
use crate::node_shutdown::{self, GoingDown};

use super::preemption::{self, Requirement};
use super::worker::Worker;
use super::workers::Workers;
use super::{app_armor, spec, sysctls};
use objects::quantity::{self, ResourceList};

/// Why a Pod is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// `OutOfcpu`, `NodeAffinity`, …
    pub(crate) reason: String,
    /// Upstream's text.
    pub(crate) message: String,
}

fn refuse(reason: &str, message: impl Into<String>) -> Option<Refusal> {
    Some(Refusal { reason: reason.to_owned(), message: message.into() })
}

/// A reason for which a Pod does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The node has not enough of a resource.
    Lacking {
        /// The resource.
        name: String,
        /// How much is asked for, how much the others have, and how much there is.
        amounts: [i64; 3],
    },
    /// Another one, which no other Pod's end would change.
    Other(Refusal),
}

impl Reason {
    fn refusal(&self) -> Refusal {
        match self {
            Self::Other(refusal) => refusal.clone(),
            Self::Lacking { name, amounts: [requested, used, capacity] } => Refusal {
                reason: format!("OutOf{name}"),
                message: lacking(name, *requested, *used, *capacity),
            },
        }
    }

    fn requirement(&self) -> Option<Requirement> {
        let Self::Lacking { name, amounts: [requested, used, capacity] } = self else { return None };
        let amount = requested.saturating_sub(capacity.saturating_sub(*used));
        Some(Requirement { name: name.clone(), amount })
    }
}

/// Nothing is decided yet about a Pod.
#[derive(Clone, thiserror::Error)]
pub(crate) enum Undecided {
    /// The Node is not known.
    #[error("the node is not known yet")]
    NodeUnknown,
    /// Others end that make room.
    #[error("other Pods end to make room")]
    MakingRoom,
    /// These are to end to make room, of this resource first.
    #[error("{} Pods are ended to make room", victims.len())]
    Preempting {
        /// The Pods.
        victims: Vec<Arc<Worker>>,
        /// The resource.
        resource: String,
    },
}

impl std::fmt::Debug for Undecided {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// The settings that decide about Pods.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// Kernel parameters that Pods may set beside the safe ones.
    pub(crate) sysctls: Vec<String>,
    /// The rule about the node's taints.
    pub(crate) tolerance: Tolerance,
    /// Whether the machine confines processes by AppArmor's profiles.
    pub(crate) app_armor: bool,
    /// The features that this node declares; none if it does not look whether Pods need any.
    pub(crate) features: Option<Vec<&'static str>>,
}

/// Which Pods the node has taken, and which it has refused.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// The decisions, by uid. The lock is held over decisions only, never over a call.
    decided: Mutex<HashMap<String, Option<Refusal>>>,
    /// The things that the node is short of.
    pub(crate) pressure: Arc<Pressure>,
    /// Whether the machine is going down.
    pub(crate) going_down: Arc<GoingDown>,
    rules: Rules,
    /// The resources of device plugins, which are given apart.
    plugins: Option<Arc<DeviceManager>>,
    /// Pods whose sandboxes or containers run on from before this kubelet did.
    going_on: Mutex<BTreeSet<String>>,
    /// Pods that ran here before this kubelet did; none until that is known.
    ran: watch::Sender<Option<BTreeSet<String>>>,
    /// Whether it is known which Pods there are.
    open: watch::Sender<bool>,
}

impl Admission {
    /// Decides by these rules. Resources of `plugins` are not looked at: who gets them is decided when they are given.
    pub(crate) fn new(rules: Rules, plugins: Arc<DeviceManager>) -> Self {
        Self { rules, plugins: Some(plugins), ..Self::default() }
    }

    /// Refuses a Pod that the node had taken, and that it cannot give what it asks for.
    pub(crate) fn refuse(&self, uid: &str, refusal: Refusal) {
        self.decided.lock().insert(uid.to_owned(), Some(refusal));
    }

    /// Whether a Pod runs on from before.
    pub(crate) fn goes_on(&self, uid: &str) -> bool {
        self.going_on.lock().contains(uid)
    }

    /// The node without what plugins give.
    fn without_devices<'n>(&self, node: &'n Node) -> Cow<'n, Node> {
        let Some(plugins) = &self.plugins else { return Cow::Borrowed(node) };
        let status = node.status.as_ref();
        let lists = status.into_iter().flat_map(|s| s.allocatable.iter().chain(&s.capacity));
        if !lists.flat_map(BTreeMap::keys).any(|name| plugins.is_plugins(name)) {
            return Cow::Borrowed(node);
        }
        let mut node = node.clone();
        let status = node.status.iter_mut();
        for list in status.flat_map(|s| s.allocatable.iter_mut().chain(&mut s.capacity)) {
            list.retain(|name, _| !plugins.is_plugins(name));
        }
        Cow::Owned(node)
    }

    /// Takes the Pods that ran here before, and those of them that run on: static ones may be admitted from now on.
    pub(crate) fn ran(&self, ran: BTreeSet<String>, going_on: BTreeSet<String>) {
        *self.going_on.lock() = going_on;
        self.ran.send_replace(Some(ran));
    }

    /// Lets all Pods be admitted: it is known which there are.
    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    /// Whether no Pod is decided about at this moment.
    pub(crate) fn is_free(&self) -> bool {
        self.decided.try_lock().is_some()
    }

    /// Forgets a Pod.
    pub(crate) fn forget(&self, uid: &str) {
        self.going_on.lock().remove(uid);
        self.decided.lock().remove(uid);
    }

    /// Decides about `worker` and those before it about whom nothing was decided, in the order of their
    /// creation: after a restart of the kubelet nobody gets the place of one that came earlier. A Pod that ran
    /// here before goes on.
    fn decide(
        &self,
        worker: &Worker,
        workers: &[Arc<Worker>],
        node: &Node,
    ) -> Result<Option<Refusal>, Undecided> {
        let mut decided = self.decided.lock();
        let ran = self.ran.borrow();
        let ran = |uid: &str| ran.as_ref().is_some_and(|ran| ran.contains(uid));
        let mut waiting: Vec<_> = workers
            .iter()
            .filter(|w| !decided.contains_key(&w.uid) && w.to_run())
            .map(|w| (w.pod(), w))
            .collect();
        // Those that the node depends on come first.
        waiting.sort_by(|(a, _), (b, _)| {
            (!spec::is_static(a)).cmp(&!spec::is_static(b)).then_with(|| created(a).cmp(&created(b)))
        });
        for (pod, next) in waiting {
            let refusal = if ran(&next.uid) {
                None
            } else {
                let others: Vec<Arc<Worker>> = workers
                    .iter()
                    .filter(|w| w.uid != next.uid && w.has_a_place())
                    .filter(|w| ran(&w.uid) || decided.get(&w.uid).is_some_and(Option::is_none))
                    .cloned()
                    .collect();
                self.judge(&pod, node, &others)?
            };
            decided.insert(next.uid.clone(), refusal);
            if next.uid == worker.uid {
                break;
            }
        }
        Ok(decided.get(&worker.uid).cloned().flatten())
    }

    /// Judges one Pod beside others that the node has taken.
    fn judge(&self, pod: &Pod, node: &Node, others: &[Arc<Worker>]) -> Result<Option<Refusal>, Undecided> {
        if let Some((reason, message)) = self.pressure.refuses(pod) {
            return Ok(refuse(reason, message));
        }
        if self.going_down.is() {
            let (reason, message) = node_shutdown::REFUSED;
            return Ok(refuse(reason, message));
        }
        let node = &*self.without_devices(node);
        let given = |workers: &mut dyn Iterator<Item = &Arc<Worker>>| -> Vec<Arc<Pod>> {
            workers.map(|w| w.given()).collect()
        };
        let reasons = reasons(pod, node, &given(&mut others.iter()), &self.rules);
        let Some(first) = reasons.first() else { return Ok(None) };
        let other = reasons.iter().find(|reason| reason.requirement().is_none());
        if !spec::is_critical(pod) || other.is_some() {
            return Ok(Some(other.filter(|_| spec::is_critical(pod)).unwrap_or(first).refusal()));
        }
        // Those that end already leave their room, too.
        let staying: Vec<&Arc<Worker>> = others.iter().filter(|w| w.to_run()).collect();
        let pods = given(&mut staying.iter().copied());
        let wanted: Vec<Requirement> =
            self::reasons(pod, node, &pods, &self.rules).iter().filter_map(Reason::requirement).collect();
        let Some(resource) = wanted.first().map(|r| r.name.clone()) else {
            return Err(Undecided::MakingRoom);
        };
        match preemption::victims(pod, &pods, &wanted) {
            Ok(victims) => {
                let of =
                    |pod: &Arc<Pod>| staying.iter().find(|w| w.uid == spec::uid(pod)).map(|w| (*w).clone());
                Err(Undecided::Preempting { victims: victims.iter().filter_map(of).collect(), resource })
            }
            Err(error) => Ok(refuse(
                "UnexpectedAdmissionError",
                format!("Unexpected error while attempting to recover from admission failure: {error}"),
            )),
        }
    }

    /// Decides once for each Pod, one Pod after the other, once it is known which ran before.
    pub(crate) async fn admit(
        &self,
        worker: &Worker,
        workers: &Workers,
        node: &NodeView,
    ) -> Result<Option<Refusal>, Undecided> {
        if let Some(decision) = self.decided.lock().get(&worker.uid) {
            return Ok(decision.clone());
        }
        // The senders live as long as the kubelet.
        let _ = self.ran.subscribe().wait_for(Option::is_some).await;
        let is_static = spec::is_static(&worker.pod());
        if !is_static {
            let _ = self.open.subscribe().wait_for(|open| *open).await;
        }
        if self.ran.borrow().as_ref().is_some_and(|ran| ran.contains(&worker.uid)) {
            self.decided.lock().insert(worker.uid.clone(), None);
            return Ok(None);
        }
        // A static Pod may be what the API server runs in: it does not wait for its Node.
        let node = if is_static { node.object() } else { node.registered() };
        self.decide(worker, &workers.all(), &*node.ok_or(Undecided::NodeUnknown)?)
    }
}

/// The order of Pods: by their creation, then by their names.
fn created(pod: &Pod) -> (Option<Timestamp>, &str, &str) {
    (pod.metadata.creation_timestamp.as_ref().map(|t| t.0), spec::namespace(pod), spec::name(pod))
}

/// The label by which a Pod may say which operating system it is for.
const OS_LABEL: &str = "kubernetes.io/os";

/// Whether a Pod's processes must have no groups but those that it names.
fn needs_groups_policy(pod: &Pod) -> bool {
    let context = spec::spec(pod).security_context.as_ref();
    context.and_then(|c| c.supplemental_groups_policy.as_deref()) == Some("Strict")
}

/// Whether the node's runtime can do that.
fn gives_groups_policy(node: &Node) -> bool {
    let features = node.status.as_ref().and_then(|s| s.features.as_ref());
    features.and_then(|f| f.supplemental_groups_policy) == Some(true)
}

/// The Pod without the requests that are none of this node's: those of extended resources that it does not have, which are
/// the cluster's, and those that drivers give by claims.
fn of_this_node<'p>(pod: &'p Pod, allocatable: &ResourceList) -> Cow<'p, Pod> {
    let claimed = spec::status(pod).extended_resource_claim_status.as_ref();
    let is_claimed = |container: &str, resource: &str| {
        claimed.is_some_and(|c| {
            c.request_mappings.iter().any(|m| m.container_name == container && m.resource_name == resource)
        })
    };
    let counts = |container: &str, resource: &String| {
        let extended = is_extended(resource);
        let by_driver = (extended || resource.starts_with(CLASS_PREFIX)) && is_claimed(container, resource);
        !by_driver && (!extended || allocatable.contains_key(resource))
    };
    let all = spec::containers(pod).iter().chain(spec::init_containers(pod));
    let mut requests =
        all.flat_map(|c| requests_of(c).into_iter().flat_map(|r| r.keys().map(|name| (&c.name, name))));
    if requests.all(|(container, name)| counts(container, name)) {
        return Cow::Borrowed(pod);
    }
    let mut own = pod.clone();
    let containers = own
        .spec
        .iter_mut()
        .flat_map(|s| s.containers.iter_mut().chain(s.init_containers.iter_mut().flatten()));
    for c in containers {
        if let Some(list) = c.resources.as_mut().and_then(|r| r.requests.as_mut()) {
            list.retain(|name, _| counts(&c.name, name));
        }
    }
    Cow::Owned(own)
}

fn requests_of(container: &Container) -> Option<&ResourceList> {
    container.resources.as_ref()?.requests.as_ref()
}

/// The reasons for which a Pod does not fit beside others that the node has taken, in upstream's order.
pub(crate) fn reasons(pod: &Pod, node: &Node, others: &[Arc<Pod>], rules: &Rules) -> Vec<Reason> {
    let other = |reason: &str, message: &str| {
        Reason::Other(Refusal { reason: reason.to_owned(), message: message.to_owned() })
    };
    let s = spec::spec(pod);
    if pod.metadata.labels.as_ref().and_then(|l| l.get(OS_LABEL)).is_some_and(|os| os != "linux") {
        let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return vec![other("PodOSSelectorNodeLabelDoesNotMatch", message)];
    }
    if s.os.as_ref().is_some_and(|os| os.name != "linux") {
        return vec![other("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")];
    }
    if needs_groups_policy(pod) && !gives_groups_policy(node) {
        let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
        return vec![other("SupplementalGroupsPolicyNotSupported", message)];
    }
    if let Some(message) = sysctls::forbidden(pod, &rules.sysctls) {
        return vec![other("SysctlForbidden", &message)];
    }
    if let Some(message) = app_armor::refusal(pod, rules.app_armor) {
        return vec![other("AppArmor", &message)];
    }
    let missing = rules.features.as_ref().map(|own| features::missing(pod, own)).unwrap_or_default();
    if !missing.is_empty() {
        let message = format!("Pod requires node features that are not available: {}", missing.join(", "));
        return vec![other("PodFeatureUnsupported", &message)];
    }
    let mut reasons = resources(pod, node, others);
    if !node_affinity::admits(pod, node) {
        reasons.push(other(
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        ));
    }
    if s.node_name.as_ref().is_some_and(|name| !name.is_empty() && node.metadata.name.as_ref() != Some(name))
    {
        let message = "Predicate NodeName failed: node(s) didn't match the requested node name";
        reasons.push(other("NodeName", message));
    }
    let ports = host_ports(pod);
    let mut taken = others.iter().flat_map(|p| host_ports(p));
    if taken.any(|have| ports.iter().any(|want| want.conflicts(&have))) {
        reasons.push(other(
            "NodePorts",
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
        ));
    }
    let evicting = taints::of_node(node).iter().filter(|t| t.effect == taints::NO_EXECUTE);
    if !spec::is_static(pod) && rules.tolerance.uncovered(evicting, taints::tolerations(pod)).is_some() {
        reasons.push(other(
            "TaintToleration",
            "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
        ));
    }
    reasons
}

/// The resources that the node has not enough of.
fn resources(pod: &Pod, node: &Node, others: &[Arc<Pod>]) -> Vec<Reason> {
    let status = node.status.clone().unwrap_or_default();
    let allocatable = status.allocatable.or(status.capacity).unwrap_or_default();
    let mut reasons = Vec::new();
    let mut lacks = |name: &str, amounts: [i64; 3]| {
        reasons.push(Reason::Lacking { name: name.to_owned(), amounts });
    };
    let most = quantity::value(allocatable.get("pods"));
    if allocatable.contains_key("pods") && others.len() as i64 + 1 > most {
        lacks("pods", [1, others.len() as i64, most]);
    }
    let pod = &*of_this_node(pod, &allocatable);
    let all = spec::containers(pod).iter().chain(spec::init_containers(pod));
    let others_by_name: BTreeSet<&str> = all
        .filter_map(requests_of)
        .flat_map(|r| r.keys().map(String::as_str))
        .filter(|name| !FIRST.contains(name))
        .collect();
    for name in FIRST.into_iter().chain(others_by_name) {
        let request = spec::pod_request(pod, name);
        if request == 0 {
            continue;
        }
        let used: i64 = others.iter().map(|p| spec::pod_request(p, name)).fold(0, i64::saturating_add);
        let capacity = spec::capacity(&allocatable, name);
        if request > capacity.saturating_sub(used) {
            lacks(name, [request, used, capacity]);
        }
    }
    reasons
}

/// The resources that are looked at first.
const FIRST: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Decides about a Pod that makes nobody go.
#[cfg(test)]
fn decide(pod: &Pod, node: &Node, others: &[Arc<Pod>]) -> Option<Refusal> {
    let rules = Rules { features: Some(Vec::new()), ..Rules::default() };
    reasons(pod, node, others, &rules).first().map(Reason::refusal)
}

fn lacking(name: &str, requested: i64, used: i64, capacity: i64) -> String {
    format!(
        "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
    )
}

#[cfg(test)]
mod tests {
    use api::{FeatureGates, Gate};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_takes_what_fits() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n1", "labels": {"zone": "a"}},
            "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "3"}}
        }))
        .unwrap();
        let pod = |s: serde_json::Value| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": s})).unwrap()
        };
        let cpu = |amount: &str| json!([{"name": "c", "resources": {"requests": {"cpu": amount}}}]);
        let other = vec![Arc::new(pod(json!({"containers": [
            {"name": "c", "resources": {"requests": {"cpu": "600m"}}, "ports": [{"containerPort": 80, "hostPort": 80}]}]})))];
        for (s, want) in [
            (json!({"containers": cpu("400m")}), None),
            (
                json!({"containers": cpu("500m")}),
                Some((
                    "OutOfcpu",
                    "Node didn't have enough resource: cpu, requested: 500, used: 600, capacity: 1000",
                )),
            ),
            (
                json!({"containers": [], "nodeSelector": {"zone": "b"}}),
                Some((
                    "NodeAffinity",
                    "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
                )),
            ),
            (json!({"containers": [], "nodeSelector": {"zone": "a"}}), None),
            (
                json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 80}]}]}),
                Some((
                    "NodePorts",
                    "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
                )),
            ),
            (
                json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 80, "protocol": "UDP"}]}]}),
                None,
            ),
            (
                json!({"containers": [], "securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}),
                Some(("SysctlForbidden", "forbidden sysctl: \"kernel.msgmax\" not allowlisted")),
            ),
            (
                json!({"containers": [], "securityContext": {"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]}}),
                None,
            ),
            (
                json!({"containers": [{"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers"}]}]}),
                Some((
                    "PodFeatureUnsupported",
                    "Pod requires node features that are not available: RestartAllContainersOnContainerExits",
                )),
            ),
            (
                json!({"containers": [], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}}}}),
                None,
            ),
        ] {
            let got = decide(&pod(s.clone()), &node, &other);
            let got = got.as_ref().map(|r| (r.reason.as_str(), r.message.as_str()));
            assert_eq!(got, want, "{s}");
        }
        let full: Vec<_> = (0..3).map(|_| Arc::new(pod(json!({"containers": []})))).collect();
        assert_eq!(decide(&pod(json!({"containers": []})), &node, &full).unwrap().reason, "OutOfpods");
    }

    fn pod(uid: &str, created: &str, cpu: &str) -> Arc<Worker> {
        let pod = json!({
            "metadata": {"name": uid, "namespace": "ns", "uid": uid, "creationTimestamp": created},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
        });
        Worker::new(Arc::new(serde_json::from_value(pod).unwrap()))
    }

    /// The Pods that are taken, when they ask in this order.
    fn taken(admission: &Admission, workers: &[Arc<Worker>], order: &[usize]) -> Vec<String> {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "1", "pods": "110"}}
        }))
        .unwrap();
        let mut taken: Vec<String> = order
            .iter()
            .filter(|i| matches!(admission.decide(&workers[**i], workers, &node), Ok(None)))
            .map(|i| workers[*i].uid.clone())
            .collect();
        taken.sort();
        taken
    }

    #[test]
    fn those_that_ran_and_those_that_came_first_have_their_place() {
        let all = || {
            vec![
                pod("new", "2026-01-01T00:00:03Z", "600m"),
                pod("older", "2026-01-01T00:00:02Z", "600m"),
                pod("ran", "2026-01-01T00:00:01Z", "300m"),
            ]
        };
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let fresh = Admission::default();
            fresh.ran(BTreeSet::new(), BTreeSet::new());
            assert_eq!(taken(&fresh, &all(), &order), ["older", "ran"], "{order:?}");
            // A Pod that runs stays, also beyond the resources of the node, and counts before it was asked about.
            let restarted = Admission::default();
            restarted.ran(["new".to_owned(), "ran".to_owned()].into(), BTreeSet::new());
            assert_eq!(taken(&restarted, &all(), &order), ["new", "ran"], "{order:?}");
        }
    }

    #[test]
    fn a_pod_whose_object_is_gone_has_no_place() {
        let workers =
            vec![pod("gone", "2026-01-01T00:00:01Z", "600m"), pod("new", "2026-01-01T00:00:02Z", "600m")];
        for (gone, expected) in [(false, &["gone"][..]), (true, &["gone", "new"])] {
            let admission = Admission::default();
            admission.ran(BTreeSet::new(), BTreeSet::new());
            assert_eq!(taken(&admission, &workers, &[0]), ["gone"]);
            workers[0].state.lock().gone = gone;
            assert_eq!(taken(&admission, &workers, &[0, 1]), expected, "{gone}");
        }
    }

    /// A toleration that compares numbers counts only where the gate is on.
    #[test]
    fn taints_with_numbers() {
        let check = |compares: bool, operator: &str, expected: Option<&str>| {
            let gates = FeatureGates::default().with(Gate::TaintTolerationComparisonOperators, compares);
            let rules = Rules { tolerance: Tolerance::of(gates), ..Rules::default() };
            let node = serde_json::from_value(json!({"spec": {"taints": [
                {"key": "sla", "value": "950", "effect": "NoExecute"},
                {"key": "sla", "value": "100", "effect": "NoSchedule"}]}}));
            let pod = serde_json::from_value(json!({"spec": {"containers": [], "tolerations": [
                {"key": "sla", "operator": operator, "value": "750", "effect": "NoExecute"}]}}));
            let found = reasons(&pod.unwrap(), &node.unwrap(), &[], &rules);
            let found: Vec<_> = found.iter().map(|r| r.refusal().message).collect();
            assert_eq!(found.first().map(String::as_str), expected, "{compares} {operator}");
        };
        let refused = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
        check(true, "Gt", None);
        check(true, "Lt", Some(refused));
        check(false, "Gt", Some(refused));
    }

    #[test]
    fn a_pod_that_ends_still_has_its_place_if_it_ran() {
        let workers =
            vec![pod("ends", "2026-01-01T00:00:01Z", "600m"), pod("new", "2026-01-01T00:00:02Z", "600m")];
        workers[0].stop(Some(30));
        let admission = Admission::default();
        admission.ran(BTreeSet::new(), BTreeSet::new());
        assert_eq!(taken(&admission, &workers, &[1]), ["new"]);
        let admission = Admission::default();
        admission.ran(["ends".to_owned()].into(), BTreeSet::new());
        assert!(taken(&admission, &workers, &[1]).is_empty());
    }

    #[test]
    fn room_is_made_for_a_pod_that_the_node_depends_on() {
        let workers = vec![
            pod("first", "2026-01-01T00:00:01Z", "600m"),
            pod("second", "2026-01-01T00:00:02Z", "300m"),
            pod("critical", "2026-01-01T00:00:03Z", "500m"),
            pod("greedy", "2026-01-01T00:00:04Z", "5"),
        ];
        for critical in &workers[2..] {
            let mut state = critical.state.lock();
            Arc::make_mut(&mut state.pod).spec.as_mut().unwrap().priority = Some(2_000_000_000);
        }
        let admission = Admission::default();
        admission.ran(BTreeSet::new(), BTreeSet::new());
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "1", "pods": "110"}}
        }))
        .unwrap();
        let decide = |of: usize| admission.decide(&workers[of], &workers, &node);
        assert!(matches!(decide(1), Ok(None)), "both of the others are taken");
        match decide(2) {
            Err(Undecided::Preempting { victims, resource }) => {
                let uids: Vec<_> = victims.iter().map(|w| w.uid.as_str()).collect();
                assert_eq!((uids, resource.as_str()), (vec!["first"], "cpu"));
            }
            other => panic!("{other:?}"),
        }
        workers[0].stop(Some(1));
        assert!(matches!(decide(2), Err(Undecided::MakingRoom)), "nobody else ends for it");
        workers[0].advance(super::super::worker::Phase::Terminated);
        assert!(matches!(decide(2), Ok(None)));
        let refused = decide(3).unwrap().unwrap();
        assert_eq!(refused.reason, "UnexpectedAdmissionError");
        assert!(
            refused.message.ends_with("reclaim resources: [(res: cpu, q: 4500), ]"),
            "{}",
            refused.message
        );
    }

    fn of(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    /// 13 of upstream's 16 cases of `TestGeneralPredicates`, and what makes its last 3: the Node is the one that the watch
    /// shows. Amounts of cpu are in thousandths.
    #[test]
    fn predicates() {
        let node = |labels: serde_json::Value, taints: serde_json::Value| -> Node {
            let amounts = json!({"cpu": "10m", "memory": "20", "pods": "32", "example.com/aaa": "0",
                "ephemeral-storage": "0", "hugepages-2Mi": "0"});
            let node = json!({"metadata": {"name": "machine1", "labels": labels}, "spec": {"taints": taints},
                "status": {"capacity": amounts, "allocatable": amounts}});
            serde_json::from_value(node).unwrap()
        };
        let bare = || node(json!({}), json!([]));
        let check =
            |pod: serde_json::Value, other: Option<serde_json::Value>, node: &Node, expected: &[&str]| {
                let others: Vec<_> = other.into_iter().map(|p| Arc::new(of(p))).collect();
                let got = reasons(&of(pod.clone()), node, &others, &Rules::default());
                let text = |reason: &Reason| match reason {
                    Reason::Lacking { name, amounts: [requested, used, capacity] } => {
                        format!("{name} {requested} {used} {capacity}")
                    }
                    Reason::Other(refusal) => refusal.reason.clone(),
                };
                assert_eq!(got.iter().map(text).collect::<Vec<_>>(), expected, "{pod}");
            };
        let asks = |cpu: &str, memory: &str| json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}});
        let port = || json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 123}]}]}});
        let none = || json!({"spec": {"containers": []}});
        check(none(), Some(asks("9m", "19")), &bare(), &[]);
        check(asks("8m", "10"), Some(asks("5m", "19")), &bare(), &["cpu 8 5 10", "memory 10 19 20"]);
        check(json!({"spec": {"containers": [], "nodeName": "machine2"}}), None, &bare(), &["NodeName"]);
        check(port(), Some(port()), &bare(), &["NodePorts"]);
        let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
        let both = node(json!({}), json!([taint("foo", "NoSchedule"), taint("bar", "NoExecute")]));
        let tolerates = json!({"spec": {"containers": [], "tolerations": [{"key": "foo"}, {"key": "bar"}]}});
        check(tolerates, None, &both, &[]);
        check(none(), None, &node(json!({}), json!([taint("foo", "NoSchedule")])), &[]);
        check(none(), None, &node(json!({}), json!([taint("bar", "NoExecute")])), &["TaintToleration"]);
        check(none(), None, &node(json!({}), json!([taint("baz", "PreferNoSchedule")])), &[]);
        let from_file = json!({"annotations": {"kubernetes.io/config.source": "file"}});
        check(json!({"metadata": from_file, "spec": {"containers": []}}), None, &both, &[]);
        let wants = |node_name: &str| {
            let term = json!({"matchExpressions": [{"key": "foo", "operator": "Exists"}]});
            let affinity =
                json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}});
            json!({"metadata": from_file, "spec": {"containers": [], "nodeName": node_name,
                "affinity": {"nodeAffinity": affinity}}})
        };
        check(wants(""), None, &bare(), &["NodeAffinity"]);
        check(wants("some-node-name"), None, &bare(), &["NodeAffinity", "NodeName"]);
        check(wants(""), None, &node(json!({"foo": "bar"}), json!([])), &[]);
        check(wants(""), None, &node(json!({"foo": "bar"}), json!([])), &[]);

        // The first reason is the one that is told.
        let asks_more = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {
            "ephemeral-storage": "1", "memory": "21", "hugepages-2Mi": "2Mi", "hugepages-1Gi": "1Gi"}}}]}});
        let expected = [
            "memory 21 0 20",
            "ephemeral-storage 1 0 0",
            "hugepages-1Gi 1073741824 0 0",
            "hugepages-2Mi 2097152 0 0",
        ];
        check(asks_more, None, &bare(), &expected);
    }

    /// Upstream's 8 cases of `TestRemoveMissingExtendedResources`: what is left of a request for one of a resource.
    #[test]
    fn resources_of_others_do_not_count() {
        let check = |asked: &str,
                     limit_only: bool,
                     claimed: bool,
                     allocatable: serde_json::Value,
                     left: bool| {
            let amount = json!({asked: "1"});
            let requests = if limit_only { json!({}) } else { amount.clone() };
            let container = json!({"name": "c", "resources": {"requests": requests, "limits": amount}});
            let mut pod = json!({"spec": {"containers": [container], "initContainers": [container]}});
            if claimed {
                pod["status"] = json!({"extendedResourceClaimStatus": {"resourceClaimName": "x", "requestMappings": [
                    {"containerName": "c", "resourceName": asked, "requestName": "r"}]}});
            }
            let pod = of(pod);
            let allocatable: ResourceList = serde_json::from_value(allocatable).unwrap();
            let made = of_this_node(&pod, &allocatable);
            let all = spec::containers(&made).iter().chain(spec::init_containers(&made));
            for c in all {
                assert_eq!(
                    requests_of(c).is_some_and(|r| r.contains_key(asked)),
                    left,
                    "{asked} {allocatable:?}"
                );
            }
        };
        let (extended, implicit) = ("foo.com/bar", "deviceclass.resource.kubernetes.io/bar");
        check(extended, true, false, json!({"foo.com/baz": "1"}), false);
        check(extended, false, false, json!({"foo.com/bar": "1"}), true);
        check(extended, false, false, json!({"foo.com/baz": "1"}), false);
        check(extended, false, false, json!({"foo.com/bar": "0"}), true);
        check(extended, false, false, json!({}), false);
        check(extended, false, true, json!({"foo.com/bar": "0"}), false);
        check(extended, false, true, json!({}), false);
        check(implicit, false, true, json!({}), false);
        let claimed = of(
            json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"foo.com/bar": "1"}}}]},
            "status": {"extendedResourceClaimStatus": {"resourceClaimName": "x", "requestMappings": [
                {"containerName": "c", "resourceName": "foo.com/bar", "requestName": "r"}]}}}),
        );
        let node = serde_json::from_value(json!({"status": {"allocatable": {"foo.com/bar": "0"}}})).unwrap();
        assert_eq!(decide(&claimed, &node, &[]), None);
    }

    /// Upstream's 6 cases of `TestRejectPodAdmissionBasedOnOSSelector`, where the label of the Node does not count, the 3 of
    /// `TestRejectPodAdmissionBasedOnOSField` and the 4 of `TestPodAdmissionBasedOnSupplementalGroupsPolicy` with the feature.
    #[test]
    fn a_node_refuses_what_it_cannot_do() {
        let check = |pod: serde_json::Value, features: serde_json::Value, expected: Option<&str>| {
            let node = json!({"metadata": {"labels": {"kubernetes.io/os": "dummyOS"}}, "status": {"features": features}});
            let got = decide(&of(pod.clone()), &serde_json::from_value(node).unwrap(), &[]);
            assert_eq!(got.map(|r| r.reason).as_deref(), expected, "{pod} {features}");
        };
        let label =
            |os: &str| json!({"metadata": {"labels": {"kubernetes.io/os": os}}, "spec": {"containers": []}});
        let none = || json!({});
        for _ in ["the node's label is right", "the node's label is wrong"] {
            check(label("linux"), none(), None);
        }
        for _ in 0..3 {
            check(label("dummyOS"), none(), Some("PodOSSelectorNodeLabelDoesNotMatch"));
        }
        check(json!({"spec": {"containers": []}}), none(), None);
        let field = |os: &str| json!({"spec": {"containers": [], "os": {"name": os}}});
        check(field("linux"), none(), None);
        check(field("dummyOS"), none(), Some("PodOSNotSupported"));
        check(json!({"spec": {"containers": []}}), none(), None);
        let policy = |policy: &str| json!({"spec": {"containers": [], "securityContext": {"supplementalGroupsPolicy": policy}}});
        let with = json!({"supplementalGroupsPolicy": true});
        check(policy("Strict"), none(), Some("SupplementalGroupsPolicyNotSupported"));
        check(policy("Strict"), with.clone(), None);
        check(policy("Merge"), none(), None);
        check(policy("Merge"), with, None);
    }
}
