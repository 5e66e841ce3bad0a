//! ClaimStatusAuthorization: who may change which part of a claim's status (upstream's
//! `pkg/registry/resource/utils.go`, gate DRAResourceClaimGranularStatusAuthorization).
//!
//! Devices and users of a claim are the scheduler's and the controllers': they need `resourceclaims/binding`. The state of
//! a device is its driver's: `resourceclaims/driver` with the driver's name, by a verb for all nodes, or by one for the
//! node on which a service account runs.

use std::collections::{BTreeMap, BTreeSet};

use api::status::{FieldError, FieldErrorKind};
use api::view::{View, same};
use api::{Gate, Node, Status, Struct, names};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::AdmissionRequest;
use super::plugin::{Env, Plugin};
use crate::UserInfo;
use crate::auth::Access;

const GROUP: &str = "resource.k8s.io";
const CLAIMS: &str = "resourceclaims";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// Refuses changes of a claim's status to callers that may not make them. Upstream does this in the validation of claims;
/// it cannot be turned off but by its gate.
#[derive(Default)]
pub(super) struct ClaimStatusAuthorization;

impl Plugin for ClaimStatusAuthorization {
    fn validate_waiting<'a>(
        &'a self,
        env: &'a Env,
        request: &'a AdmissionRequest<'a>,
        object: Option<&'a Struct>,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        if !env.gates.enabled(Gate::DRAResourceClaimGranularStatusAuthorization)
            || !request.is_with(GROUP, CLAIMS, "status")
        {
            return None;
        }
        let (old, new) = (env.view(request.old?).st("status"), env.view(object?).st("status"));
        let binds = ["allocation", "reservedFor"].iter().any(|f| !same(old.get(f), new.get(f)));
        // A claim that loses its devices loses their states with them.
        let told = env.gates.enabled(Gate::DRAResourceClaimDeviceStatus) && new.has("allocation");
        let drivers = if told { changed_drivers(new, old) } else { BTreeSet::new() };
        if !binds && drivers.is_empty() {
            return None;
        }
        let associated = is_on_node(request.user, node_of(new.st("allocation")));
        Some(check(env, request, binds, drivers, associated).boxed())
    }
}

/// Refuses with a 422 that names everything that the caller may not change.
async fn check(
    env: &Env,
    request: &AdmissionRequest<'_>,
    binds: bool,
    drivers: BTreeSet<&str>,
    associated: bool,
) -> Result<(), Status> {
    let verb = request.info.verb;
    let access = Access { is_resource: true, group: GROUP, resource: CLAIMS, ..Access::default() };
    let mut errors = Vec::new();
    let mut refuse = |field: &str, detail: String| {
        let kind = FieldErrorKind::Forbidden;
        errors.push(FieldError { kind, field: field.to_owned(), value: None, detail });
    };
    if binds {
        // It is asked for the whole cluster and all names.
        let access = Access { verb, subresource: "binding", ..access };
        if let Err(why) = env.authorizer.require(request.user, &access).await {
            let detail = format!(
                "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"{verb}\" permission: {}",
                why.message
            );
            refuse("status.allocation", detail);
        }
    }
    let [on_node, anywhere] = ["associated-node:", "arbitrary-node:"].map(|prefix| format!("{prefix}{verb}"));
    let verbs = if associated { vec![on_node, anywhere] } else { vec![anywhere] };
    for driver in drivers {
        let access = Access { subresource: "driver", namespace: request.namespace, name: driver, ..access };
        let mut first = None;
        let mut allowed = false;
        for verb in &verbs {
            match env.authorizer.require(request.user, &Access { verb, ..access }).await {
                Ok(()) => {
                    allowed = true;
                    break;
                }
                Err(why) => drop(first.get_or_insert(why)),
            }
        }
        if let Some(why) = first.filter(|_| !allowed) {
            let detail = format!(
                "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission: {}",
                verbs.join(" "),
                why.message
            );
            refuse("status.devices", detail);
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(GROUP, &request.kind.kind, request.name, &errors))
}

/// The drivers of the devices whose states are new, changed or gone.
fn changed_drivers<'a>(new: View<'a>, old: View<'a>) -> BTreeSet<&'a str> {
    let key = |device: View<'a>| ["driver", "pool", "device", "shareID"].map(|f| device.str(f));
    let states = |status: View<'a>| -> Vec<([&'a str; 4], &'a Node)> {
        status.list("devices").iter().map(|node| (key(status.of(node)), node)).collect()
    };
    let mut before: BTreeMap<[&str; 4], &Node> = states(old).into_iter().collect();
    let mut drivers = BTreeSet::new();
    for (key, state) in states(new) {
        if before.remove(&key).is_none_or(|old| old != state) {
            drivers.insert(key[0]);
        }
    }
    drivers.extend(before.keys().map(|key| key[0]));
    drivers
}

/// The one node for which devices are allocated, "" if there is no such one.
fn node_of(allocation: View<'_>) -> &str {
    fn only<T>(mut all: impl Iterator<Item = T>) -> Option<T> {
        all.next().filter(|_| all.next().is_none())
    }
    let find = || {
        let term = only(allocation.st("nodeSelector").items("nodeSelectorTerms"))?;
        let field = only(term.items("matchFields")).filter(|_| term.list("matchExpressions").is_empty())?;
        let names_it = field.str("key") == "metadata.name" && field.str("operator") == "In";
        only(field.strs("values")).filter(|_| names_it)
    };
    find().unwrap_or_default()
}

/// Whether a user is a service account that runs on this node.
fn is_on_node(user: &UserInfo, node: &str) -> bool {
    let account = user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    let is_account = account.is_some_and(|(namespace, name)| {
        names::name_label(namespace, false).is_empty() && names::name_subdomain(name, false).is_empty()
    });
    let its = user.extra.get(NODE_NAME).map(Vec::as_slice);
    is_account
        && !node.is_empty()
        && names::name_subdomain(node, false).is_empty()
        && matches!(its, Some([one]) if one == node)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::Gvk;
    use serde_json::{Value, json};

    use super::super::tests::parse;
    use super::super::{Operation, OperationOptions};
    use super::*;
    use crate::auth::node::NodeAuthorizer;
    use crate::auth::rbac::{Binding, Change, RbacIndex, Role, RoleRef, Rule, Subject};
    use crate::auth::{AuthorizationMode, UnionAuthorizer};
    use crate::testing::{Alone, Fake};
    use crate::{Notes, RequestInfo};

    const ACCOUNT: &str = "system:serviceaccount:kube-system:dra-driver";

    fn kind() -> Gvk {
        Gvk::new(GROUP, "v1", "ResourceClaim")
    }

    fn claim(status: &Value) -> Struct {
        let meta = json!({"name": "test-claim", "namespace": "default"});
        parse(&kind(), &json!({"metadata": meta, "spec": {}, "status": status}))
    }

    fn selecting(terms: &Value) -> Value {
        json!({"nodeSelector": {"nodeSelectorTerms": terms}})
    }

    fn field(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"key": key, "operator": operator, "values": values})
    }

    fn on(node: &str) -> Value {
        selecting(&json!([{"matchFields": [field("metadata.name", "In", &[node])]}]))
    }

    fn user(name: &str, nodes: &[&str]) -> UserInfo {
        let mut user = UserInfo { name: name.into(), ..UserInfo::default() };
        if !nodes.is_empty() {
            user.extra.insert(NODE_NAME.into(), nodes.iter().map(|n| (*n).into()).collect());
        }
        user
    }

    /// The rules of everybody who is named in these tests: verb, subresource and name, "" for all names.
    fn allowing(rules: &[(&str, &str, &str)]) -> UnionAuthorizer {
        let rule = |(verb, subresource, name): &(&str, &str, &str)| Rule {
            resource_names: Some(*name).filter(|n| !n.is_empty()).map(Into::into).into_iter().collect(),
            ..Rule::resources(&[verb], GROUP, &[&format!("{CLAIMS}/{subresource}")])
        };
        let rbac = RbacIndex::default();
        let subject = Subject { kind: "User".into(), name: ACCOUNT.into(), ..Subject::default() };
        rbac.apply([
            Change::Role("".into(), "r".into(), Some(Role { rules: rules.iter().map(rule).collect() })),
            Change::Binding(
                "".into(),
                "b".into(),
                Some(Binding {
                    name: "b".into(),
                    namespace: "".into(),
                    subjects: vec![subject],
                    role_ref: RoleRef { kind: "ClusterRole".into(), name: "r".into(), api_group: "".into() },
                }),
            ),
        ]);
        UnionAuthorizer::new(&[AuthorizationMode::Rbac], Arc::new(NodeAuthorizer::default()), Arc::new(rbac))
    }

    async fn ask(
        user: UserInfo,
        verb: &'static str,
        [old, new]: [&Value; 2],
        rules: &[(&str, &str, &str)],
    ) -> Result<(), Status> {
        let mut env = Env::of(Fake::default());
        env.authorizer = Arc::new(allowing(rules));
        let (kind, old, new) = (kind(), claim(old), claim(new));
        let (info, notes, user) = (
            RequestInfo { group: GROUP.into(), verb, ..RequestInfo::default() },
            Notes::default(),
            Arc::new(user),
        );
        let request = AdmissionRequest {
            user: &user,
            info: &info,
            operation: Operation::Update,
            kind: &kind,
            request_kind: &kind,
            versions: &Alone,
            resource: CLAIMS,
            subresource: "status",
            namespace: "default",
            name: "test-claim",
            old: Some(&old),
            dry_run: false,
            options: OperationOptions::default(),
            notes: &notes,
        };
        match ClaimStatusAuthorization.validate_waiting(&env, &request, Some(&new)) {
            Some(answer) => answer.await,
            None => Ok(()),
        }
    }

    fn state(driver: &str, device: &str, ips: &[&str]) -> Value {
        let network = json!({"interfaceName": "eth0", "ips": ips});
        json!({"driver": driver, "pool": "pool-1", "device": device, "networkData": network})
    }

    /// The cases of upstream's `TestGetModifiedDrivers`.
    #[test]
    fn drivers_whose_states_change() {
        let check = |new: Value, old: Value, expected: &[&str]| {
            let [new, old] = [new, old].map(|devices| claim(&json!({"devices": devices})));
            let [n, o] = [&new, &old].map(|c| View::new(api::Schema::builtin(), c).st("status"));
            assert!(changed_drivers(n, o).into_iter().eq(expected.iter().copied()), "{expected:?}");
        };
        let (a, b) = (state("a", "dev-1", &[]), state("b", "dev-2", &[]));
        let a_ip = state("a", "dev-1", &["192.168.7.1/24"]);
        let a2 = state("a", "dev-2", &[]);
        check(json!([a, b]), json!([a, b]), &[]);
        check(json!([a, b]), json!([a]), &["b"]);
        check(json!([a, a2]), json!([a]), &["a"]);
        check(json!([a]), json!([a, b]), &["b"]);
        check(json!([a]), json!([a, a2]), &["a"]);
        check(json!([a_ip]), json!([a]), &["a"]);
        check(json!([a_ip, b]), json!([a, b]), &["a"]);
        check(
            json!([a_ip, b, state("c", "dev-3", &[])]),
            json!([a, b, state("d", "dev-4", &[])]),
            &["a", "c", "d"],
        );
        check(json!([]), json!([]), &[]);
        check(json!([a]), json!([]), &["a"]);
        check(json!([]), json!([a]), &["a"]);
        check(json!([state("a", "dev-NEW", &[])]), json!([state("a", "dev-OLD", &[])]), &["a"]);
    }

    /// The cases of upstream's `TestNodeNameFromAllocation`.
    #[test]
    fn nodes_of_allocations() {
        let check = |allocation: &Value, expected: &str| {
            let claim = claim(&json!({"allocation": allocation}));
            let status = View::new(api::Schema::builtin(), &claim).st("status");
            assert_eq!(node_of(status.st("allocation")), expected, "{allocation}");
        };
        let fields = |fields: Value| selecting(&json!([{"matchFields": fields}]));
        let one = field("metadata.name", "In", &["node-1"]);
        check(&json!(null), "");
        check(&json!({}), "");
        check(&on("worker-1"), "worker-1");
        check(&fields(json!([field("metadata.name", "In", &["a", "b"])])), "");
        let expression = field("kubernetes.io/hostname", "In", &["node-1"]);
        check(&selecting(&json!([{"matchExpressions": [expression]}])), "");
        check(&selecting(&json!([{"matchFields": [one]}, {"matchFields": [one]}])), "");
        check(&selecting(&json!([{"matchFields": [one], "matchExpressions": [expression]}])), "");
        check(&fields(json!([field("metadata.namespace", "In", &["node-1"])])), "");
        check(&fields(json!([field("metadata.name", "NotIn", &["node-1"])])), "");
        check(&fields(json!([one, one])), "");
    }

    /// The cases of upstream's `TestSAAssociatedWithAllocatedNode`.
    #[test]
    fn accounts_on_nodes() {
        let check = |name: &str, nodes: &[&str], node: &str, expected: bool| {
            assert_eq!(is_on_node(&user(name, nodes), node), expected, "{name} {nodes:?} {node}");
        };
        let account = "system:serviceaccount:default:dra-driver-sa";
        check(account, &["worker-node-1"], "worker-node-1", true);
        check(account, &["worker-node-1"], "worker-node-2", false);
        check(account, &["worker-node-1"], "", false);
        check("system:node:worker-node-1", &["worker-node-1"], "worker-node-1", false);
        check("jane-doe", &["worker-node-1"], "worker-node-1", false);
        check(account, &[], "worker-node-1", false);
        check(account, &["worker-node-1", "worker-node-2"], "worker-node-1", false);
        check(account, &["invalid_node_name!"], "invalid_node_name!", false);
    }

    /// The cases of upstream's `TestAuthorizedForBinding`.
    #[tokio::test]
    async fn bindings() {
        const NODE: &str = "status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"update\" permission: resourceclaims.resource.k8s.io is forbidden: User \"system:serviceaccount:kube-system:dra-driver\" cannot update resource \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope";
        let allowed = [("update", "binding", "")];
        let reserved = json!({"reservedFor": [{"resource": "pods", "name": "pod-1", "uid": "uid-1"}]});
        let allocated = json!({"allocation": on("node-1")});
        let state = json!({"devices": [{"driver": "d", "pool": "p", "device": "dev"}]});
        for (new, rules, refused) in [
            (&state, &[][..], false),
            (&allocated, &allowed, false),
            (&allocated, &[], true),
            (&reserved, &allowed, false),
            (&reserved, &[], true),
            // A right to one claim is none to all.
            (&reserved, &[("update", "binding", "test-claim")], true),
            (&reserved, &[("patch", "binding", "")], true),
        ] {
            for [old, new] in [[&json!({}), new], [new, &json!({})]] {
                let answer = ask(user(ACCOUNT, &[]), "update", [old, new], rules).await;
                assert_eq!(answer.is_err(), refused, "{new} {rules:?}");
                if let Err(why) = answer {
                    assert_eq!(why.code, 422);
                    assert!(why.message.contains(NODE), "{}", why.message);
                }
            }
        }
    }

    /// The cases of upstream's `TestAuthorizedForDeviceStatus`.
    #[tokio::test]
    async fn states_of_devices() {
        const DRIVER: &str = "test-driver";
        let check = async |nodes: &[&str], allocation: Value, verb, by: &str, name: &str, allowed: bool| {
            let device = |device: &str| json!([{"driver": DRIVER, "pool": "pool", "device": device}]);
            let [old, new] =
                ["dev-old", "dev-new"].map(|name| json!({"allocation": allocation, "devices": device(name)}));
            let answer = ask(user(ACCOUNT, nodes), verb, [&old, &new], &[(by, "driver", name)]).await;
            assert_eq!(answer.is_ok(), allowed, "{nodes:?} {allocation} {verb} {by} {answer:?}");
            assert_eq!(ask(user(ACCOUNT, nodes), verb, [&old, &old], &[]).await.err(), None);
            answer.err().map(|e| e.message).unwrap_or_default()
        };
        let here = || on("test-node");
        let (near, far) = ("associated-node:update", "arbitrary-node:update");
        check(&["test-node"], here(), "update", near, DRIVER, true).await;
        check(&["test-node"], here(), "update", far, DRIVER, true).await;
        check(&["test-node"], here(), "update", far, "", true).await;
        check(&["test-node"], here(), "update", near, "other", false).await;
        let said = check(&["test-node"], here(), "update", "update", DRIVER, false).await;
        let text = "status.devices: Forbidden: changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[associated-node:update arbitrary-node:update]\" permission: resourceclaims.resource.k8s.io \"test-driver\" is forbidden: User \"system:serviceaccount:kube-system:dra-driver\" cannot associated-node:update resource \"resourceclaims/driver\" in API group \"resource.k8s.io\" in the namespace \"default\"";
        assert!(said.contains(text), "{said}");
        check(&["test-node"], on("other-node"), "update", far, DRIVER, true).await;
        check(&["test-node"], on("other-node"), "update", near, DRIVER, false).await;
        check(&[], here(), "update", far, DRIVER, true).await;
        check(&[], here(), "update", near, DRIVER, false).await;
        let two = field("metadata.name", "In", &["node-a", "node-b"]);
        let several = selecting(&json!([{"matchFields": [two]}]));
        check(&["node-a"], several.clone(), "update", far, DRIVER, true).await;
        check(&["node-a"], several, "update", near, DRIVER, false).await;
        check(&["test-node"], here(), "patch", "associated-node:patch", DRIVER, true).await;
        check(&["test-node"], here(), "patch", near, DRIVER, false).await;
        // A claim that loses its devices loses their states without a question.
        let full = json!({"allocation": here(), "devices": [state(DRIVER, "d", &[])]});
        let binder = [("update", "binding", "")];
        assert_eq!(ask(user(ACCOUNT, &[]), "update", [&full, &json!({})], &binder).await.err(), None);
    }
}
