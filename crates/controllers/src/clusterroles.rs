//! ClusterRole aggregation: gathers the rules of the roles that an aggregated role selects.

use api::Status;
use client::{Client, Factory, Key, Patch, Queue};
use component::Shutdown;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use serde_json::json;
use std::sync::Arc;

use crate::common::selector::Selector;

/// Starts it.
pub(crate) fn start(client: Client, factory: &Factory, shutdown: &Shutdown) {
    let roles = factory.informer::<ClusterRole>();
    let queue = Queue::<Key>::default();
    // A role of any name may be part of any aggregated one.
    let (enqueue, known) = (queue.clone(), roles.clone());
    roles.handle(move |_| {
        for role in known.list().iter().filter(|r| r.aggregation_rule.is_some()) {
            enqueue.add(client::Cached::key(&**role));
        }
    });
    crate::when_synced(factory, shutdown, move |shutdown| {
        queue.work("clusterrole-aggregation", 1, shutdown, move |key| {
            let wanted = roles.get_key(&key).and_then(|role| plan(&role, &roles.list()));
            let client = client.clone();
            async move { execute(&client, &key.name, wanted).await }
        });
    });
}

/// The rules that an aggregated role should have, if it has others. `all` is ordered by name.
fn plan(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Option<Vec<PolicyRule>> {
    let aggregation = role.aggregation_rule.as_ref()?;
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in aggregation.cluster_role_selectors.iter().flatten() {
        let selector = Selector::of(selector);
        for part in all {
            if part.metadata.name == role.metadata.name || !selector.matches(part.metadata.labels.as_ref()) {
                continue;
            }
            for rule in part.rules.iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    (role.rules.as_deref().unwrap_or_default() != rules).then_some(rules)
}

async fn execute(client: &Client, name: &str, rules: Option<Vec<PolicyRule>>) -> Result<(), Status> {
    let Some(rules) = rules else { return Ok(()) };
    let object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": rules,
    });
    client.api::<ClusterRole>("").patch(name, &Patch::Apply { object, force: true }).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, more: serde_json::Value) -> Arc<ClusterRole> {
        let mut value = more;
        value["metadata"]["name"] = json!(name);
        Arc::new(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn rules_are_gathered_once_in_order_of_name() {
        let rule = |verb: &str| json!({"apiGroups": [""], "resources": ["pods"], "verbs": [verb]});
        let labels = json!({"labels": {"to": "admin"}});
        let all = [
            role("a", json!({"metadata": labels, "rules": [rule("get"), rule("list")]})),
            role("b", json!({"metadata": labels, "rules": [rule("get"), rule("watch")]})),
            role("c", json!({"rules": [rule("delete")], "metadata": {}})),
        ];
        let aggregated = |rules: serde_json::Value| {
            role(
                "admin",
                json!({"metadata": labels, "rules": rules,
                    "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "admin"}}]}}),
            )
        };
        let verbs: Vec<String> =
            plan(&aggregated(json!([])), &all).unwrap().into_iter().flat_map(|r| r.verbs).collect();
        assert_eq!(verbs, ["get", "list", "watch"]);
        assert_eq!(plan(&aggregated(json!([rule("get"), rule("list"), rule("watch")])), &all), None);
        assert_eq!(plan(&all[0], &all), None);
    }
}
