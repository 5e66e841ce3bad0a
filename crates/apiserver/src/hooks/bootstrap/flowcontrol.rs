//! The flow schemas and priority levels that every cluster starts with.

use serde_json::{Value, json};

/// The group of flow control.
pub(crate) const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io";
/// The resource of flow schemas.
pub(crate) const FLOW_SCHEMAS: &str = "flowschemas";
/// The resource of priority levels.
pub(crate) const PRIORITY_LEVELS: &str = "prioritylevelconfigurations";

const AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// Name, shares, lendable percent, and queues, hand size and queue length.
type Level = (&'static str, i32, i32, Option<(i32, i32, i32)>);

const LEVELS: [Level; 7] = [
    ("catch-all", 5, 0, None),
    ("global-default", 20, 50, Some((128, 6, 50))),
    ("leader-election", 10, 0, Some((16, 4, 50))),
    ("node-high", 40, 25, Some((64, 6, 50))),
    ("system", 30, 33, Some((64, 6, 50))),
    ("workload-high", 40, 50, Some((128, 6, 50))),
    ("workload-low", 100, 90, Some((128, 6, 50))),
];

fn meta(name: &str) -> Value {
    json!({ "name": name, "annotations": { AUTOUPDATE: "true" } })
}

/// Every priority level.
pub(crate) fn priority_levels() -> Vec<Value> {
    let exempt = json!({
        "metadata": meta("exempt"),
        "spec": { "type": "Exempt", "exempt": { "nominalConcurrencyShares": 0, "lendablePercent": 0 } },
    });
    let limited = LEVELS.iter().map(|(name, shares, lendable, queues)| {
        let response = match queues {
            None => json!({ "type": "Reject" }),
            Some((queues, hand, length)) => json!({
                "type": "Queue",
                "queuing": { "queues": queues, "handSize": hand, "queueLengthLimit": length },
            }),
        };
        json!({
            "metadata": meta(name),
            "spec": { "type": "Limited", "limited": {
                "nominalConcurrencyShares": shares,
                "lendablePercent": lendable,
                "limitResponse": response,
            }},
        })
    });
    std::iter::once(exempt).chain(limited).collect()
}

fn groups(names: &[&str]) -> Value {
    names.iter().map(|n| json!({ "kind": "Group", "group": { "name": n } })).collect()
}

fn users(names: &[&str]) -> Vec<Value> {
    names.iter().map(|n| json!({ "kind": "User", "user": { "name": n } })).collect()
}

fn system_accounts() -> Value {
    json!({ "kind": "ServiceAccount", "serviceAccount": { "namespace": "kube-system", "name": "*" } })
}

fn resources(verbs: &[&str], group: &str, resources: &[&str], cluster: bool) -> Value {
    let mut rule =
        json!({ "verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"] });
    if cluster {
        rule["clusterScope"] = true.into();
    }
    rule
}

fn schema(name: &str, level: &str, precedence: i32, by: &str, rule: Value) -> Value {
    let mut schema = json!({
        "metadata": meta(name),
        "spec": {
            "matchingPrecedence": precedence,
            "priorityLevelConfiguration": { "name": level },
            "rules": [rule],
        },
    });
    if !by.is_empty() {
        schema["spec"]["distinguisherMethod"] = json!({ "type": by });
    }
    schema
}

/// Every flow schema.
pub(crate) fn flow_schemas() -> Vec<Value> {
    let everything = |subjects: Value| {
        json!({
            "subjects": subjects,
            "resourceRules": [resources(&["*"], "*", &["*"], true)],
            "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
        })
    };
    let everybody = || groups(&["system:unauthenticated", "system:authenticated"]);
    let mut leaders = users(&["system:kube-controller-manager", "system:kube-scheduler"]);
    leaders.push(system_accounts());
    let election = json!({
        "subjects": leaders,
        "resourceRules": [resources(&["get", "create", "update"], "coordination.k8s.io", &["leases"], false)],
    });
    let node_high = json!({
        "subjects": groups(&["system:nodes"]),
        "resourceRules": [
            resources(&["*"], "", &["nodes", "nodes/status"], true),
            resources(&["*"], "coordination.k8s.io", &["leases"], false),
        ],
    });
    let probes = json!({
        "subjects": everybody(),
        "nonResourceRules": [{ "verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"] }],
    });
    let user = |name: &str| everything(users(&[name]).into());
    vec![
        schema("exempt", "exempt", 1, "", everything(groups(&["system:masters"]))),
        schema("probes", "exempt", 2, "", probes),
        schema("system-leader-election", "leader-election", 100, "ByUser", election),
        schema("system-node-high", "node-high", 400, "ByUser", node_high),
        schema("system-nodes", "system", 500, "ByUser", everything(groups(&["system:nodes"]))),
        schema(
            "kube-controller-manager",
            "workload-high",
            800,
            "ByNamespace",
            user("system:kube-controller-manager"),
        ),
        schema("kube-scheduler", "workload-high", 800, "ByNamespace", user("system:kube-scheduler")),
        schema(
            "kube-system-service-accounts",
            "workload-high",
            900,
            "ByNamespace",
            everything(json!([system_accounts()])),
        ),
        schema(
            "service-accounts",
            "workload-low",
            9000,
            "ByUser",
            everything(groups(&["system:serviceaccounts"])),
        ),
        schema("global-default", "global-default", 9900, "ByUser", everything(everybody())),
        schema("catch-all", "catch-all", 10_000, "ByUser", everything(everybody())),
    ]
}

/// The stored object with the wanted `spec`, if it is to follow it and differs.
pub(super) fn reconcile(wanted: &Value, stored: &Value) -> Option<Value> {
    let follows = stored["metadata"]["annotations"][AUTOUPDATE] == "true";
    // The exempt level's defaults are the server's; what the policy names must be there.
    let holds = covers(&stored["spec"], &wanted["spec"]);
    (follows && !holds).then(|| {
        let mut new = stored.clone();
        new["spec"] = wanted["spec"].clone();
        new
    })
}

/// Whether `have` holds everything that `want` names.
fn covers(have: &Value, want: &Value) -> bool {
    match (have, want) {
        (Value::Object(have), Value::Object(want)) => {
            want.iter().all(|(k, w)| covers(have.get(k).unwrap_or(&Value::Null), w))
        }
        (Value::Array(have), Value::Array(want)) => {
            have.len() == want.len() && have.iter().zip(want).all(|(h, w)| covers(h, w))
        }
        (have, want) => have == want,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_has_its_level() {
        let levels = priority_levels();
        assert_eq!((levels.len(), flow_schemas().len()), (8, 11));
        for schema in flow_schemas() {
            let level = &schema["spec"]["priorityLevelConfiguration"]["name"];
            assert!(levels.iter().any(|l| l["metadata"]["name"] == *level), "{level}");
        }
    }

    #[test]
    fn only_what_follows_is_changed() {
        let wanted = &priority_levels()[1];
        let mut stored = wanted.clone();
        stored["spec"]["limited"]["borrowingLimitPercent"] = 3.into();
        assert_eq!(reconcile(wanted, &stored), None);
        stored["spec"]["limited"]["nominalConcurrencyShares"] = 7.into();
        assert!(reconcile(wanted, &stored).is_some());
        stored["metadata"]["annotations"][AUTOUPDATE] = "false".into();
        assert_eq!(reconcile(wanted, &stored), None);
    }
}
