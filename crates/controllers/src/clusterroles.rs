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
    // DIFFERENCE: upstream leaves an empty list out, so that rules which another writer owns stay for ever, and are written
    // again with each change of any role.
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

    /// Upstream's 6 cases of `TestSyncClusterRole`: the roles with their labels and verbs, in order of name, the labels
    /// that `combined` selects and the verbs that it has, and those that it gets.
    #[test]
    fn upstreams_roles() {
        type Part<'a> = (&'a str, &'a str, &'a [&'a str]);
        let rules = |verbs: &[&str]| -> serde_json::Value {
            let of = |verb: &str| match verb {
                "hammer" => json!([{"verbs": ["hammer"], "resources": ["nails"]},
                    {"verbs": ["hammer"], "resources": ["wedges"]}]),
                "chisel" => json!([{"verbs": ["chisel"], "resources": ["mortises"]}]),
                other => json!([{"verbs": [other], "resources": ["boards"]}]),
            };
            verbs.iter().flat_map(|verb| of(verb).as_array().cloned().unwrap()).collect()
        };
        let check = |parts: &[Part<'_>], selects: &[&str], has: &[&str], want: Option<&[&str]>| {
            let select = selects.iter().map(|value| json!({"matchLabels": {"foo": value}}));
            let select: serde_json::Value = select.collect();
            let aggregation = json!({"clusterRoleSelectors": select});
            let combined = role(
                "combined",
                json!({"metadata": {}, "rules": rules(has), "aggregationRule": aggregation}),
            );
            let part = |(name, label, verbs): &Part<'_>| {
                role(name, json!({"metadata": {"labels": {"foo": label}}, "rules": rules(verbs)}))
            };
            let mut all: Vec<_> = parts.iter().map(part).chain([combined.clone()]).collect();
            all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
            let got = plan(&combined, &all).map(|rules| json!(rules));
            assert_eq!(got, want.map(rules), "{parts:?} {selects:?} {has:?}");
            assert_eq!(plan(&part(&parts[0]), &all), None, "it aggregates nothing");
        };
        let (hammer, chisel): (&[&str], &[&str]) = (&["hammer"], &["chisel"]);
        let saw: &[&str] = &["saw"];
        let of = |label| [("hammer", "bar", hammer), ("chisel", "bar", chisel), ("saw", label, saw)];
        check(&[("hammer", "bar", hammer)], &["bar"], saw, Some(hammer));
        check(&[("hammer", "not-bar", hammer)], &["bar"], hammer, Some(&[]));
        check(&of("not-bar"), &["bar"], &[], Some(&["chisel", "hammer"]));
        let all: &[&str] = &["chisel", "hammer", "saw"];
        check(&of("not-bar"), &["bar", "not-bar"], &[], Some(all));
        let twice = [&of("bar")[..], &[("other-saw", "not-bar", saw)]].concat();
        check(&twice, &["bar", "not-bar"], &[], Some(all));
        check(&[("hammer", "bar", hammer)], &["bar"], hammer, None);
    }
}
