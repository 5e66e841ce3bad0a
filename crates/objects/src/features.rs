//! Features that Pods need of their node and that nodes declare in `status.declaredFeatures` (upstream's
//! `component-helpers/nodedeclaredfeatures`). A node does not do what it does not declare, so that a Pod that needs it
//! waits or is refused, instead of running without it.
//!
//! A feature has the name of its gate; one of them, about the protocols of commands and ports, is about no Pod.

use api::{FeatureGates, Gate};
use k8s_openapi::api::core::v1::{Container, Node, Pod};

/// The feature by which a restart rule may restart all containers of a Pod.
const RESTART_ALL_CONTAINERS: &str = "RestartAllContainersOnContainerExits";

/// The feature by which a Pod in its node's network may have users of its own.
const HOST_NETWORK_USERS: &str = "UserNamespacesHostNetworkSupport";

/// The features that nodes of this project have where their gates are on, sorted by name.
const OFFERED: [Gate; 5] = [
    Gate::ExtendWebSocketsToKubelet,
    Gate::InPlacePodLevelResourcesVerticalScaling,
    Gate::InPlacePodVerticalScalingInitContainers,
    Gate::RestartAllContainersOnContainerExits,
    Gate::UserNamespacesHostNetworkSupport,
];

/// The features that a node with these gates declares, sorted by name; none if it declares nothing at all.
/// `host_network_users`: whether its container runtime gives users of their own to Pods in the node's network.
pub fn offered(gates: FeatureGates, host_network_users: bool) -> Option<Vec<&'static str>> {
    let by_runtime = |gate: &Gate| *gate != Gate::UserNamespacesHostNetworkSupport || host_network_users;
    let on = OFFERED.into_iter().filter(|gate| gates.enabled(*gate)).filter(by_runtime).map(Gate::name);
    gates.enabled(Gate::NodeDeclaredFeatures).then(|| on.collect())
}

/// The features that a Pod needs, sorted by name.
pub fn needed(pod: &Pod) -> impl Iterator<Item = &'static str> {
    let all = [
        restarts_all_containers(pod).then_some(RESTART_ALL_CONTAINERS),
        has_users_in_host_network(pod).then_some(HOST_NETWORK_USERS),
    ];
    all.into_iter().flatten()
}

/// The features that a Pod needs and that are not `declared`, sorted by name.
pub fn missing(pod: &Pod, declared: &[impl AsRef<str>]) -> Vec<&'static str> {
    needed(pod).filter(|f| !declared.iter().any(|d| d.as_ref() == *f)).collect()
}

/// The features that a node declares.
pub fn declared(node: &Node) -> &[String] {
    node.status.as_ref().and_then(|s| s.declared_features.as_deref()).unwrap_or_default()
}

fn restarts_all_containers(pod: &Pod) -> bool {
    let has_rule = |c: &Container| {
        c.restart_policy_rules.iter().flatten().any(|rule| rule.action == "RestartAllContainers")
    };
    pod.spec
        .as_ref()
        .is_some_and(|s| s.containers.iter().chain(s.init_containers.iter().flatten()).any(has_rule))
}

fn has_users_in_host_network(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|s| s.host_network == Some(true) && s.host_users == Some(false))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn nodes_declare_what_they_do() {
        let check = |off: &[Gate], expected: Option<&[&str]>| {
            let gates = off.iter().fold(FeatureGates::default(), |gates, gate| gates.with(*gate, false));
            assert_eq!(offered(gates, true).as_deref(), expected, "{off:?}");
        };
        let sockets = "ExtendWebSocketsToKubelet";
        let whole = "InPlacePodLevelResourcesVerticalScaling";
        let init = "InPlacePodVerticalScalingInitContainers";
        check(&[], Some(&[sockets, whole, init, RESTART_ALL_CONTAINERS]));
        check(&[Gate::ExtendWebSocketsToKubelet], Some(&[whole, init, RESTART_ALL_CONTAINERS]));
        check(&[Gate::RestartAllContainersOnContainerExits], Some(&[sockets, whole, init]));
        let but_init = [sockets, whole, RESTART_ALL_CONTAINERS];
        check(&[Gate::InPlacePodVerticalScalingInitContainers], Some(&but_init));
        check(&OFFERED, Some(&[]));
        check(&[Gate::NodeDeclaredFeatures], None);
        assert!(OFFERED.is_sorted_by_key(|gate| gate.name()));
    }

    /// Upstream's 5 cases of `TestDiscoverFeature`, of which 3 differ.
    #[test]
    fn users_in_the_host_network_need_the_gate_and_the_runtime() {
        for (gate, runtime, expected) in [(false, true, false), (true, false, false), (true, true, true)] {
            let gates = FeatureGates::default().with(Gate::UserNamespacesHostNetworkSupport, gate);
            let offered = offered(gates, runtime).unwrap();
            assert_eq!(offered.contains(&HOST_NETWORK_USERS), expected, "{gate} {runtime}");
        }
    }

    #[test]
    fn what_is_missing() {
        let check = |spec: Value, declared: Value, expected: &[&str]| {
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
            let node: Node =
                serde_json::from_value(json!({"status": {"declaredFeatures": declared}})).unwrap();
            assert_eq!(missing(&pod, super::declared(&node)), expected, "{spec}");
        };
        let rule = |action: &str| {
            json!({"name": "c", "restartPolicy": "Never", "restartPolicyRules": [
                {"action": action, "exitCodes": {"operator": "In", "values": [7]}},
            ]})
        };
        let all = rule("RestartAllContainers");
        check(json!({"containers": [{"name": "c"}]}), json!(null), &[]);
        check(json!({"containers": [rule("Restart")]}), json!(null), &[]);
        check(json!({"containers": [all]}), json!(null), &[RESTART_ALL_CONTAINERS]);
        check(json!({"containers": [all]}), json!(["Other", RESTART_ALL_CONTAINERS]), &[]);
        check(
            json!({"containers": [{"name": "c"}], "initContainers": [all]}),
            json!(["Other"]),
            &[RESTART_ALL_CONTAINERS],
        );
        let users = |network: Value, users: Value| json!({"containers": [all], "hostNetwork": network, "hostUsers": users});
        let both = users(json!(true), json!(false));
        check(both.clone(), json!(null), &[RESTART_ALL_CONTAINERS, HOST_NETWORK_USERS]);
        check(both, json!([HOST_NETWORK_USERS]), &[RESTART_ALL_CONTAINERS]);
        for other in [
            users(json!(true), json!(true)),
            users(json!(true), json!(null)),
            users(json!(false), json!(false)),
            users(json!(null), json!(false)),
        ] {
            check(other, json!([RESTART_ALL_CONTAINERS]), &[]);
        }
    }
}
