//! Matching, with upstream's cases.

use std::sync::Arc;

use api::{Gvk, Node, Schema, Struct};
use serde_json::{Value, json};

use super::matching::{Criteria, Matched, Subject, configures_admission};
use super::plugin::Env;
use super::tests::parse;
use super::{AdmissionRequest, Equivalent, Operation, OperationOptions, Versions};
use crate::auth::Eventual;
use crate::testing::{Alone, Fake};
use crate::{Notes, RequestInfo, UserInfo};

/// Deployments of upstream's tests, in four versions.
struct Deployments(&'static str);

impl Versions for Deployments {
    fn schema(&self) -> &Schema {
        Alone.schema()
    }
    fn equivalents(&self) -> Vec<Equivalent> {
        let versions = [("extensions", "v1beta1"), ("apps", "v1"), ("apps", "v1beta1"), ("apps", "v1alpha1")];
        let all = versions.into_iter().map(|(group, version)| {
            let kind = match (self.0, group, version) {
                ("scale", "apps", "v1") => Gvk::new("autoscaling", "v1", "Scale"),
                ("scale", ..) => Gvk::new(group, version, "Scale"),
                _ => Gvk::new(group, version, "Deployment"),
            };
            Equivalent { group: group.into(), version: version.into(), resource: "deployments".into(), kind }
        });
        all.collect()
    }
    fn convert<'a>(
        &'a self,
        tree: Struct,
        from: &'a Gvk,
        to: &'a Gvk,
    ) -> Eventual<'a, Result<Struct, String>> {
        Alone.convert(tree, from, to)
    }
    fn tree(&self, kind: &Gvk, value: Node, strict: bool) -> Result<Struct, String> {
        Alone.tree(kind, value, strict)
    }
}

/// A request: group, version, resource with its subresource, namespace, operation.
#[derive(Clone, Copy)]
struct Ask<'a>(&'a str, &'a str, &'a str, &'a str, Operation);

/// Whether a request is matched, and by which resource and kind.
fn matched(ask: Ask<'_>, criteria: &Criteria, objects: [Option<Value>; 2]) -> Result<Option<String>, String> {
    let Ask(group, version, resource, namespace, operation) = ask;
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let fake = Fake::default();
    fake.put(("", "namespaces"), json!({"metadata": {"name": "ns", "labels": {"env": "test"}}}));
    let env = Env::of(fake);
    let kind =
        if resource == "namespaces" { Gvk::new("", "v1", "Namespace") } else { Gvk::new("", "v1", "Pod") };
    let [object, old] = objects.map(|o| o.map(|o| parse(&kind, &o)));
    let request = AdmissionRequest {
        user: &Arc::new(UserInfo::default()),
        info: &RequestInfo { group: group.into(), version: version.into(), ..RequestInfo::default() },
        operation,
        kind: &kind,
        request_kind: &kind,
        versions: &Deployments(if subresource == "scale" { "scale" } else { "" }),
        resource,
        subresource,
        namespace,
        name: "name",
        old: old.as_ref(),
        dry_run: false,
        options: OperationOptions::default(),
        notes: &Notes::default(),
    };
    let found = Subject::new(&env, &request, object.as_ref()).matched(criteria).map_err(|e| e.message)?;
    Ok(found.map(|Matched { resource: e, own }| {
        if own {
            "own".to_owned()
        } else {
            format!("{}/{} {}/{}", e.group, e.version, e.kind.group, e.kind.kind)
        }
    }))
}

fn rule(group: &str, version: &str, resources: &[&str]) -> Value {
    json!({"operations": ["*"], "apiGroups": [group], "apiVersions": [version], "resources": resources, "scope": "*"})
}

fn policy(of: Value) -> Criteria {
    Criteria::of_policy(&serde_json::from_value(of).unwrap())
}

#[test]
fn resources_match_as_upstreams() {
    // The cases of matching_test.go.
    let check = |of: Value, ask: (&str, &str, &str), expected: Result<Option<&str>, &str>| {
        let ask = Ask(ask.0, ask.1, ask.2, "ns", Operation::Create);
        match (matched(ask, &policy(of.clone()), [None, None]), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found.as_deref(), expected, "{of}"),
            (Err(text), Err(part)) => assert!(text.contains(part), "{text}"),
            (found, _) => panic!("{of}: {found:?}"),
        }
    };
    let apps = ("apps", "v1", "deployments");
    let scale = ("apps", "v1", "deployments/scale");
    let old = ("extensions", "v1beta1", "deployments");
    let old_scale = ("extensions", "v1beta1", "deployments/scale");
    let rules = |all: &[Value]| json!({"resourceRules": all});
    let with = |of: Value, field: &str, value: Value| {
        let mut of = of;
        of[field] = value;
        of
    };
    let both = ["deployments", "deployments/scale"];
    let (ext, beta) =
        (rule("extensions", "v1beta1", &["deployments"]), rule("apps", "v1beta1", &["deployments"]));
    let v1 = rule("apps", "v1", &["deployments"]);
    let policy_of = |of: Value, which: &str| with(of, "matchPolicy", json!(which));
    check(rules(&[rule("*", "*", &["*"])]), apps, Ok(Some("own")));
    check(
        rules(&[rule("extensions", "v1", &["deployments"]), beta.clone(), v1.clone()]),
        apps,
        Ok(Some("own")),
    );
    check(rules(&[ext.clone(), beta.clone()]), apps, Ok(None));
    check(policy_of(rules(&[ext.clone(), beta.clone()]), "Exact"), apps, Ok(None));
    check(
        policy_of(rules(&[ext.clone(), beta.clone()]), "Equivalent"),
        apps,
        Ok(Some("extensions/v1beta1 extensions/Deployment")),
    );
    check(
        policy_of(rules(&[beta, ext.clone()]), "Equivalent"),
        apps,
        Ok(Some("apps/v1beta1 apps/Deployment")),
    );
    let (ext2, beta2) = (rule("extensions", "v1beta1", &both), rule("apps", "v1beta1", &both));
    let v12 = rule("apps", "v1", &both);
    check(rules(&[ext2.clone(), beta2.clone(), v12.clone()]), scale, Ok(Some("own")));
    check(rules(&[ext2.clone(), beta2.clone()]), scale, Ok(None));
    check(policy_of(rules(&[ext2.clone(), beta2.clone()]), "Exact"), scale, Ok(None));
    check(
        policy_of(rules(&[ext2.clone(), beta2.clone()]), "Equivalent"),
        scale,
        Ok(Some("extensions/v1beta1 extensions/Scale")),
    );
    check(policy_of(rules(&[beta2, ext2]), "Equivalent"), scale, Ok(Some("apps/v1beta1 apps/Scale")));
    let named = |rule: &Value, name: &str| with(rule.clone(), "resourceNames", json!([name]));
    check(rules(&[named(&v1, "name")]), apps, Ok(Some("own")));
    check(rules(&[named(&v1, "wrong-name")]), apps, Ok(None));
    check(
        policy_of(rules(&[named(&v12, "name")]), "Equivalent"),
        old_scale,
        Ok(Some("apps/v1 autoscaling/Scale")),
    );
    check(policy_of(rules(&[named(&v12, "wrong-name")]), "Equivalent"), old_scale, Ok(None));
    let excluded = |of: Value| with(of, "excludeResourceRules", json!([ext]));
    check(excluded(rules(&[rule("*", "*", &["*"])])), apps, Ok(Some("own")));
    check(excluded(rules(&[rule("*", "*", &["*"])])), old, Ok(None));
    check(excluded(json!({})), apps, Ok(Some("own")));
    check(rules(&[json!({})]), apps, Ok(None));
    let bad = json!({"matchExpressions": [{"key": "key", "operator": "In", "values": ["bad value"]}]});
    let pods = ("example.apiserver.k8s.io", "v1", "pods");
    for selector in ["namespaceSelector", "objectSelector"] {
        check(with(rules(&[rule("*", "*", &["deployments"])]), selector, bad.clone()), pods, Ok(None));
        check(with(rules(&[rule("*", "*", &["pods"])]), selector, bad.clone()), pods, Err("bad value"));
    }
}

#[test]
fn rules_match_as_upstreams() {
    // The cases of rules_test.go: what a rule has besides wildcards, what it matches, and what not.
    use Operation::{Connect, Create, Delete, Update};
    let check = |part: Value, matching: &[Ask<'_>], others: &[Ask<'_>]| {
        let mut rule =
            json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]});
        for (field, value) in part.as_object().unwrap() {
            rule[field] = value.clone();
        }
        let rules = vec![serde_json::from_value(rule).unwrap()];
        let criteria = Criteria::of_webhook(None, None, rules, None);
        for (asks, expected) in [(matching, true), (others, false)] {
            for ask in asks {
                let found = matched(*ask, &criteria, [Some(json!({})), None]).unwrap().is_some();
                assert_eq!(found, expected, "{part}: {}/{}/{} {}", ask.0, ask.1, ask.2, ask.3);
            }
        }
    };
    let r = |resource| Ask("g", "v", resource, "ns", Create);
    let by = |operation| Ask("g", "v", "r", "ns", operation);
    check(json!({"apiGroups": ["*"]}), &[r("r")], &[]);
    check(
        json!({"apiGroups": ["g1", "g2"]}),
        &[Ask("g1", "v", "r", "ns", Create), Ask("g2", "v2", "r3", "ns", Create)],
        &[Ask("g3", "v", "r", "ns", Create), Ask("g4", "v", "r", "ns", Create)],
    );
    check(
        json!({"apiVersions": ["v1", "v2"]}),
        &[Ask("g1", "v1", "r", "ns", Create), Ask("g2", "v2", "r", "ns", Create)],
        &[Ask("g1", "v3", "r", "ns", Create), Ask("g2", "v4", "r", "ns", Create)],
    );
    check(json!({"operations": ["*"]}), &[by(Create), by(Update), by(Delete), by(Connect)], &[]);
    check(json!({"operations": ["CREATE"]}), &[by(Create)], &[by(Update), by(Delete), by(Connect)]);
    check(json!({"operations": ["UPDATE"]}), &[by(Update)], &[by(Create), by(Delete), by(Connect)]);
    check(json!({"operations": ["DELETE"]}), &[by(Delete)], &[by(Create), by(Update), by(Connect)]);
    check(json!({"operations": ["CONNECT"]}), &[by(Connect)], &[by(Create), by(Update), by(Delete)]);
    check(json!({"operations": ["UPDATE", "DELETE"]}), &[by(Update), by(Delete)], &[by(Create), by(Connect)]);
    check(json!({"resources": ["*"]}), &[r("r"), r("r2")], &[r("r/exec"), r("r2/proxy")]);
    check(json!({"resources": ["r/*"]}), &[r("r"), r("r/exec")], &[r("r2"), r("r2/proxy")]);
    check(json!({"resources": ["r/*", "r2"]}), &[r("r"), r("r/exec"), r("r2")], &[r("r2/proxy")]);
    check(
        json!({"resources": ["*/proxy", "*/exec"]}),
        &[r("r/exec"), r("r2/proxy"), r("r3/proxy")],
        &[r("r"), r("r2"), r("r4/scale")],
    );
    let cluster = [
        Ask("g", "v", "r", "", Create),
        Ask("g", "v", "r/exec", "", Create),
        Ask("", "v1", "namespaces", "", Create),
        Ask("", "v1", "namespaces/finalize", "", Create),
        Ask("", "v1", "namespaces", "ns", Create),
        Ask("", "v1", "namespaces/finalize", "ns", Create),
    ];
    let namespaced = [r("r"), r("r/exec")];
    check(json!({"scope": "Cluster"}), &cluster, &namespaced);
    check(json!({"scope": "Namespaced"}), &namespaced, &cluster);
    check(json!({"scope": "*"}), &[&cluster[..], &namespaced[..]].concat(), &[]);
}

#[test]
fn selectors_select_as_upstreams() {
    // The cases of the matchers' tests: by the namespace's labels, a new namespace's own, and either object's.
    use Operation::{Create, Delete, Update};
    let check = |of: Value, ask: Ask<'_>, objects: [Option<Value>; 2], expected: Result<bool, &str>| {
        let mut criteria = rule("*", "*", &["*"]);
        criteria = json!({"resourceRules": [criteria]});
        for (field, value) in of.as_object().unwrap() {
            criteria[field] = value.clone();
        }
        let found = matched(ask, &policy(criteria), objects).map(|found| found.is_some());
        assert_eq!(found, expected.map_err(str::to_owned), "{of}");
    };
    let labels = |value: &str| json!({"matchLabels": {"env": value}});
    let by_namespace = |value: &str| json!({"namespaceSelector": labels(value)});
    let by_object = |value: &str| json!({"objectSelector": labels(value)});
    let object = |value: &str| Some(json!({"metadata": {"labels": {"env": value}}}));
    let pods = |namespace, operation| Ask("", "v1", "pods", namespace, operation);
    let namespaces = |operation| Ask("", "v1", "namespaces", "ns", operation);
    check(by_namespace("test"), pods("ns", Create), [None, None], Ok(true));
    check(by_namespace("other"), pods("ns", Create), [None, None], Ok(false));
    check(by_namespace("test"), pods("gone", Create), [None, None], Err("namespaces \"gone\" not found"));
    check(by_namespace("test"), Ask("", "v1", "nodes", "", Create), [None, None], Ok(true));
    check(by_namespace("new"), namespaces(Create), [object("new"), None], Ok(true));
    check(by_namespace("test"), namespaces(Update), [object("new"), object("test")], Ok(false));
    check(by_namespace("test"), namespaces(Delete), [None, object("old")], Ok(true));
    check(by_object("a"), pods("ns", Create), [object("a"), None], Ok(true));
    check(by_object("a"), pods("ns", Update), [object("b"), object("a")], Ok(true));
    check(by_object("a"), pods("ns", Update), [object("b"), object("c")], Ok(false));
    check(by_object("a"), pods("ns", Delete), [None, object("a")], Ok(true));
    check(by_object("a"), pods("ns", Create), [None, None], Ok(false));
}

#[test]
fn only_what_configures_admission_is_exempt_from_webhooks() {
    let kind = |group, kind| Gvk::new(group, "v1", kind);
    assert!(configures_admission(&kind("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding")));
    assert!(!configures_admission(&kind("admissionregistration.k8s.io", "Other")));
    assert!(!configures_admission(&kind("", "ValidatingAdmissionPolicy")));
}
