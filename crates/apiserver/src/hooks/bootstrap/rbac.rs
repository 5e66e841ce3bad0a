//! The bootstrap policy: read from its compact form, and brought into line with what is stored.

use access::auth::rbac::{GROUP, Rule, missing};
use api::{FeatureGates, Gate};
use serde_json::{Value, json};

/// The policy's text; its head says how to read it.
const POLICY: &str = include_str!("rbac.txt");
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// An object of the policy: its plural name and its JSON.
pub(super) type Wanted = (&'static str, Value);

/// Every role and binding of the policy with these features, roles first.
pub(super) fn policy(gates: &FeatureGates) -> Vec<Wanted> {
    let mut all = read(POLICY, gates);
    // A binding is of no use before its role.
    all.sort_by_key(|(plural, _)| plural.ends_with("bindings"));
    all
}

fn list(text: &str) -> Vec<&str> {
    text.split(',').collect()
}

fn groups(text: &str) -> Vec<&str> {
    text.split(',').map(|g| if g == "core" { "" } else { g }).collect()
}

fn metadata(namespace: &str, name: &str, aggregate_to: &[&str]) -> Value {
    let mut meta = json!({
        "name": name,
        "annotations": { AUTOUPDATE: "true" },
        "labels": { "kubernetes.io/bootstrapping": "rbac-defaults" },
    });
    for role in aggregate_to {
        meta["labels"][format!("rbac.authorization.k8s.io/{role}")] = "true".into();
    }
    if !namespace.is_empty() {
        meta["namespace"] = namespace.into();
    }
    meta
}

fn binding(namespace: &str, name: &str, kind: &str, role: &str) -> Value {
    json!({
        "metadata": metadata(namespace, name, &[]),
        "roleRef": { "apiGroup": GROUP, "kind": kind, "name": role },
        "subjects": [],
    })
}

/// Whether all of these features are on.
fn enabled(names: &str, gates: &FeatureGates) -> bool {
    names.split(',').all(|name| {
        let known = Gate::named(name);
        if known.is_none() {
            tracing::error!(name, "the bootstrap policy names a feature that is not known");
        }
        known.is_some_and(|gate| gates.enabled(gate))
    })
}

fn read(text: &'static str, gates: &FeatureGates) -> Vec<Wanted> {
    let mut all: Vec<Wanted> = Vec::new();
    // The object to which indented lines belong, and whether this part of the text counts.
    let (mut at, mut counts) = (0, true);
    for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["when", names] = words.as_slice() {
            counts = enabled(names, gates);
            continue;
        }
        if !counts {
            continue;
        }
        if line.starts_with(' ') {
            if let Some((plural, object)) = all.get_mut(at) {
                let (field, item) = if plural.ends_with("bindings") {
                    ("subjects", subject(&words))
                } else {
                    ("rules", rule(&words))
                };
                if let (Some(list), Some(item)) = (object[field].as_array_mut(), item) {
                    list.push(item);
                }
            }
            continue;
        }
        if let ["clusterrole", name] = words.as_slice()
            && let Some(known) =
                all.iter().position(|(p, o)| *p == "clusterroles" && o["metadata"]["name"] == **name)
        {
            at = known;
            continue;
        }
        at = all.len();
        match words.as_slice() {
            ["clusterrole", name, rest @ ..] => {
                let from = rest.iter().position(|w| *w == "from").unwrap_or(rest.len());
                let mut role = json!({ "metadata": metadata("", name, &rest[..from]), "rules": [] });
                let selectors: Vec<Value> = rest[from..]
                    .iter()
                    .filter(|w| **w != "from")
                    .map(|w| json!({ "matchLabels": { format!("rbac.authorization.k8s.io/{w}"): "true" } }))
                    .collect();
                if !selectors.is_empty() {
                    role["aggregationRule"] = json!({ "clusterRoleSelectors": selectors });
                }
                all.push(("clusterroles", role));
            }
            ["role", namespace, name] => {
                all.push(("roles", json!({ "metadata": metadata(namespace, name, &[]), "rules": [] })));
            }
            ["clusterrolebinding", name, role] => {
                all.push(("clusterrolebindings", binding("", name, "ClusterRole", role)));
            }
            ["rolebinding", namespace, name, kind, role] => {
                all.push(("rolebindings", binding(namespace, name, kind, role)));
            }
            _ => tracing::error!(line, "the bootstrap policy has a line of no known form"),
        }
    }
    all
}

fn rule(words: &[&str]) -> Option<Value> {
    Some(match words {
        [verbs, "url", paths] => json!({ "verbs": list(verbs), "nonResourceURLs": list(paths) }),
        [verbs, of, resources] => {
            json!({ "verbs": list(verbs), "apiGroups": groups(of), "resources": list(resources) })
        }
        [verbs, of, resources, names] => json!({
            "verbs": list(verbs),
            "apiGroups": groups(of),
            "resources": list(resources),
            "resourceNames": list(names),
        }),
        _ => return None,
    })
}

fn subject(words: &[&str]) -> Option<Value> {
    Some(match words {
        ["ServiceAccount", namespace, name] => {
            json!({ "kind": "ServiceAccount", "namespace": namespace, "name": name })
        }
        [kind, name] => json!({ "apiGroup": GROUP, "kind": kind, "name": name }),
        _ => return None,
    })
}

/// The next step for a stored object of the policy.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// It has all it needs, or its owner said that it is to be left alone.
    Nothing,
    /// Replace it by this.
    Update(Value),
    /// It is bound to another role, which cannot be changed: make it anew.
    Recreate(Value),
}

/// Adds to a stored object what the policy wants and it lacks. All else that it has stays.
pub(super) fn reconcile(wanted: &Value, stored: &Value) -> Step {
    if stored["metadata"]["annotations"][AUTOUPDATE] == "false" {
        return Step::Nothing;
    }
    let mut new = stored.clone();
    let mut changed = false;
    for field in ["annotations", "labels"] {
        for (key, value) in wanted["metadata"][field].as_object().into_iter().flatten() {
            if new["metadata"][field].get(key).is_none() {
                new["metadata"][field][key] = value.clone();
                changed = true;
            }
        }
    }
    if wanted.get("roleRef").is_some() {
        changed |= add_missing(&mut new["subjects"], &wanted["subjects"]);
        if stored["roleRef"] != wanted["roleRef"] {
            new["roleRef"] = wanted["roleRef"].clone();
            if let Some(meta) = new["metadata"].as_object_mut() {
                for field in ["resourceVersion", "uid", "creationTimestamp", "managedFields"] {
                    meta.remove(field);
                }
            }
            return Step::Recreate(new);
        }
    } else if wanted.get("aggregationRule").is_some() {
        // A controller fills the rules of these.
        let wanted = &wanted["aggregationRule"]["clusterRoleSelectors"];
        changed |= add_missing(&mut new["aggregationRule"]["clusterRoleSelectors"], wanted);
    } else {
        let rules = |v: &Value| serde_json::from_value::<Vec<Rule>>(v["rules"].clone()).unwrap_or_default();
        let lacking = missing(&rules(stored), &rules(wanted)).unwrap_or_default();
        if !lacking.is_empty() {
            // Whole rules are added, as far as they hold something that is missing.
            let whole = wanted["rules"].as_array().into_iter().flatten().filter(|rule| {
                serde_json::from_value::<Rule>((*rule).clone())
                    .is_ok_and(|r| missing(&rules(stored), &[r]).is_ok_and(|lacking| !lacking.is_empty()))
            });
            let whole: Vec<Value> = whole.cloned().collect();
            push_all(&mut new["rules"], whole);
            changed = true;
        }
    }
    if changed { Step::Update(new) } else { Step::Nothing }
}

fn push_all(list: &mut Value, items: Vec<Value>) {
    match list.as_array_mut() {
        Some(list) => list.extend(items),
        None => *list = items.into(),
    }
}

/// Adds to a list the elements of another that it lacks; whether there were any.
fn add_missing(list: &mut Value, wanted: &Value) -> bool {
    let has = |item: &Value| list.as_array().is_some_and(|l| l.contains(item));
    let lacking: Vec<Value> = wanted.as_array().into_iter().flatten().filter(|w| !has(w)).cloned().collect();
    let any = !lacking.is_empty();
    if any {
        push_all(list, lacking);
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standard() -> Vec<Wanted> {
        policy(&FeatureGates::default())
    }

    fn named(name: &str) -> Value {
        standard().into_iter().find(|(_, o)| o["metadata"]["name"] == name).unwrap().1
    }

    #[test]
    fn the_policy_is_whole() {
        let count = |plural: &str| standard().iter().filter(|(p, _)| *p == plural).count();
        let counts = ["clusterroles", "roles", "clusterrolebindings", "rolebindings"].map(count);
        assert_eq!(counts, [71, 7, 52, 7]);
        let all = text_lines();
        let items: usize = standard()
            .iter()
            .map(|(_, o)| o["rules"].as_array().or(o["subjects"].as_array()).map_or(0, Vec::len))
            .sum();
        assert_eq!(items, all, "every indented line is a rule or a subject");
    }

    fn text_lines() -> usize {
        POLICY.lines().take_while(|l| !l.starts_with("when ")).filter(|l| l.starts_with("  ")).count()
    }

    /// The objects and rules that features add.
    #[test]
    fn features_have_rules_of_their_own() {
        let check = |gates: &[&str], objects: usize, role: &str, rules: usize| {
            let gates = FeatureGates::parse(gates.iter().copied()).unwrap();
            let all = policy(&gates);
            assert_eq!(all.len(), standard().len() + objects, "{gates:?}");
            let found = all.iter().find(|(_, o)| o["metadata"]["name"] == role).unwrap();
            let before = standard().into_iter().find(|(_, o)| o["metadata"]["name"] == role);
            let before = before.map_or(0, |(_, o)| o["rules"].as_array().unwrap().len());
            assert_eq!(found.1["rules"].as_array().unwrap().len(), before + rules, "{role}");
        };
        check(&["GenericWorkload=true"], 2, "system:kube-scheduler", 2);
        check(&["GenericWorkload=true"], 2, "system:controller:podgroup-protection-controller", 2);
        check(&["ClusterTrustBundle=true"], 4, "system:node", 1);
        check(&["DRADeviceTaintRules=true"], 0, "system:kube-scheduler", 1);
        check(&["DRADeviceTaintRules=true"], 0, "system:controller:device-taint-eviction-controller", 2);
        check(&["PodCertificateRequest=true"], 2, "system:controller:podcertificaterequestcleaner", 1);
        check(
            &["StorageVersionMigrator=true"],
            2,
            "system:controller:storage-version-migrator-controller",
            4,
        );
        check(&["StorageVersionAPI=true"], 2, "system:controller:storage-version-garbage-collector", 3);
        check(
            &["DRAResourcePoolStatus=true"],
            2,
            "system:controller:resourcepoolstatusrequest-controller",
            5,
        );
    }

    #[test]
    fn objects_of_the_standard() {
        assert_eq!(
            named("admin")["aggregationRule"],
            json!({
                "clusterRoleSelectors": [{ "matchLabels": { "rbac.authorization.k8s.io/aggregate-to-admin": "true" } }]
            })
        );
        assert_eq!(
            named("cluster-admin")["rules"],
            json!([
                { "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] },
                { "verbs": ["*"], "nonResourceURLs": ["*"] },
            ])
        );
        assert_eq!(
            named("system:basic-user")["metadata"]["labels"],
            json!({ "kubernetes.io/bootstrapping": "rbac-defaults" })
        );
        let (_, binding) = standard().into_iter().find(|(p, _)| *p == "clusterrolebindings").unwrap();
        assert_eq!(
            binding["subjects"],
            json!([{ "apiGroup": GROUP, "kind": "Group", "name": "system:masters" }])
        );
    }

    #[test]
    fn stored_objects_are_brought_into_line() {
        let (_, wanted) = standard().into_iter().find(|(p, _)| *p == "roles").unwrap();
        assert_eq!(reconcile(&wanted, &wanted), Step::Nothing);
        let mut poor = wanted.clone();
        let all = poor["rules"].as_array_mut().unwrap();
        let lost = all.remove(0);
        all.push(json!({ "verbs": ["get"], "apiGroups": [""], "resources": ["nodes"] }));
        let Step::Update(new) = reconcile(&wanted, &poor) else { panic!("nothing to do") };
        let rules = new["rules"].as_array().unwrap();
        assert_eq!(rules.last(), Some(&lost));
        assert_eq!(
            rules.len(),
            wanted["rules"].as_array().unwrap().len() + 1,
            "what was added by others stays"
        );
        poor["metadata"]["annotations"][AUTOUPDATE] = "false".into();
        assert_eq!(reconcile(&wanted, &poor), Step::Nothing);
        let (_, binding) = standard().into_iter().find(|(p, _)| *p == "clusterrolebindings").unwrap();
        let mut other = binding.clone();
        other["roleRef"]["name"] = "view".into();
        assert_eq!(reconcile(&binding, &other), Step::Recreate(binding.clone()));
        let mut empty = binding.clone();
        empty["subjects"] = Value::Null;
        assert_eq!(reconcile(&binding, &empty), Step::Update(binding.clone()));
    }
}
