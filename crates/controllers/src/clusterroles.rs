//! ClusterRole aggregation: an aggregated role gets the rules of the roles that it selects.

use std::sync::Arc;

use api::Status;
use client::{Cached, Client, Informer, Key, Patch};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use objects::Selector;
use serde_json::json;

use crate::host::{Controller, Host, Next, Wiring};

/// The controller of aggregated ClusterRoles.
pub(crate) struct ClusterRoles {
    client: Client,
    roles: Informer<ClusterRole>,
}

impl Controller for ClusterRoles {
    const NAME: &'static str = "clusterrole-aggregation-controller";
    const ALIASES: &'static [&'static str] = &["clusterrole-aggregation"];
    const ACCOUNT: &'static str = "clusterrole-aggregation-controller";
    const QUEUE: &'static str = "ClusterRoleAggregator";
    type Key = Key;

    fn new(host: &Host<Self::Key>) -> Self {
        Self { client: host.client(), roles: host.informer() }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        // Any role may be part of any aggregated role.
        let (queue, known) = (wiring.queue(), self.roles.clone());
        self.roles.handle(move |_| {
            for role in known.list().iter().filter(|r| r.aggregation_rule.is_some()) {
                queue.add(role.key());
            }
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let wanted = self.roles.get_key(&key).and_then(|role| plan(&role, &self.roles.list()));
        execute(&self.client, &key.name, wanted).await?;
        Ok(Next::Done)
    }
}

/// Returns the rules that an aggregated role should have, if it has other ones. `all` is ordered by name.
fn plan(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Option<Vec<PolicyRule>> {
    let aggregation = role.aggregation_rule.as_ref()?;
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in aggregation.cluster_role_selectors.iter().flatten() {
        let selector = Selector::or_nothing(selector);
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
