//! Upstream's tests of the requests about which webhooks are asked (`predicates/rules/rules_test.go`, and
//! `TestShouldCallHook` of `generic/webhook_test.go`).

use std::sync::Arc;

use api::{Gvk, Node, Schema, Struct};
use serde_json::{Value, json};

use super::Env;
use crate::admission::matching::{Criteria, Rule, Subject};
use crate::admission::{AdmissionRequest, Equivalent, Operation, OperationOptions, Versions};
use crate::auth::Eventual;
use crate::testing::Fake;
use crate::{Notes, RequestInfo, UserInfo};

/// The versions of Deployments in upstream's test.
struct Deployments;

impl Versions for Deployments {
    fn schema(&self) -> &Schema {
        Schema::builtin()
    }
    fn equivalents(&self) -> Vec<Equivalent> {
        let of = |(group, version): &(&str, &str)| Equivalent {
            group: (*group).into(),
            version: (*version).into(),
            resource: "deployments".into(),
            kind: Gvk::new(group, version, "Deployment"),
        };
        [("extensions", "v1beta1"), ("apps", "v1"), ("apps", "v1beta1"), ("apps", "v1alpha1")]
            .iter()
            .map(of)
            .collect()
    }
    fn convert<'a>(&'a self, tree: Struct, _: &'a Gvk, _: &'a Gvk) -> Eventual<'a, Result<Struct, String>> {
        Eventual::Now(Ok(tree))
    }
    fn tree(&self, _: &Gvk, _: Node, _: bool) -> Result<Struct, String> {
        Err("nobody asks".into())
    }
}

fn env() -> Env {
    Env::of(Fake::default())
}

/// The group and version by which a request is matched; `request` is `group/version/resource[/subresource]`.
fn matched(
    rules: &Value,
    policy: Option<&str>,
    request: &str,
    namespace: &str,
    op: Operation,
) -> Option<String> {
    let parts: Vec<&str> = request.split('/').collect();
    let [group, version, resource] = parts[..3] else { panic!("{request}") };
    let rules: Vec<Rule> = serde_json::from_value(rules.clone()).unwrap();
    let criteria = Criteria::of_webhook(None, None, rules, policy);
    let (env, user, notes) = (env(), Arc::new(UserInfo::default()), Notes::default());
    let info = RequestInfo { group: group.into(), version: version.into(), ..RequestInfo::default() };
    let kind = Gvk::new(group, version, "Deployment");
    let request = AdmissionRequest {
        user: &user,
        info: &info,
        operation: op,
        kind: &kind,
        request_kind: &kind,
        versions: &Deployments,
        resource,
        subresource: parts.get(3).copied().unwrap_or_default(),
        namespace,
        name: "name",
        old: None,
        dry_run: false,
        options: OperationOptions::default(),
        notes: &notes,
    };
    let found = Subject::new(&env, &request, None).matched(&criteria).unwrap()?;
    Some(format!("{}/{}", found.resource.group, found.resource.version))
}

fn rule(change: Value) -> Value {
    let mut rule =
        json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]});
    rule.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    json!([rule])
}

fn check(change: Value, requests: &[&str], expected: bool) {
    for request in requests {
        let got = matched(&rule(change.clone()), None, request, "ns", Operation::Create);
        assert_eq!(got.is_some(), expected, "{change} {request}");
    }
}

#[test]
fn rules() {
    check(json!({"apiGroups": ["*"]}), &["g/v/r"], true);
    check(json!({"apiGroups": ["g1", "g2"]}), &["g1/v/r", "g2/v2/r3"], true);
    check(json!({"apiGroups": ["g1", "g2"]}), &["g3/v/r", "g4/v/r"], false);
    check(json!({"apiVersions": ["*"]}), &["g/v/r"], true);
    check(json!({"apiVersions": ["v1", "v2"]}), &["g1/v1/r", "g2/v2/r"], true);
    check(json!({"apiVersions": ["v1", "v2"]}), &["g1/v3/r", "g2/v4/r"], false);
    check(json!({"resources": ["*"]}), &["g/v/r", "2/v/r2"], true);
    check(json!({"resources": ["*"]}), &["g/v/r/exec", "2/v/r2/proxy"], false);
    check(json!({"resources": ["r/*"]}), &["g/v/r", "g/v/r/exec"], true);
    check(json!({"resources": ["r/*"]}), &["2/v/r2", "2/v/r2/proxy"], false);
    check(json!({"resources": ["r/*", "r2"]}), &["g/v/r", "g/v/r/exec", "2/v/r2"], true);
    check(json!({"resources": ["r/*", "r2"]}), &["2/v/r2/proxy"], false);
    check(json!({"resources": ["*/proxy", "*/exec"]}), &["g/v/r/exec", "2/v/r2/proxy", "2/v/r3/proxy"], true);
    check(json!({"resources": ["*/proxy", "*/exec"]}), &["g/v/r", "2/v/r2", "2/v/r4/scale"], false);
}

#[test]
fn operations() {
    const ALL: [Operation; 4] = [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];
    let check = |wanted: &[&str], expected: [bool; 4]| {
        for (op, expected) in ALL.into_iter().zip(expected) {
            let got = matched(&rule(json!({"operations": wanted})), None, "g/v/r", "ns", op);
            assert_eq!(got.is_some(), expected, "{wanted:?} {op:?}");
        }
    };
    check(&["*"], [true; 4]);
    check(&["CREATE"], [true, false, false, false]);
    check(&["UPDATE"], [false, true, false, false]);
    check(&["DELETE"], [false, false, true, false]);
    check(&["CONNECT"], [false, false, false, true]);
    check(&["UPDATE", "DELETE"], [false, true, true, false]);
}

#[test]
fn scopes() {
    let check = |scope: &str, namespace: &str, requests: &[&str], expected: bool| {
        for request in requests {
            let got = matched(&rule(json!({"scope": scope})), None, request, namespace, Operation::Create);
            assert_eq!(got.is_some(), expected, "{scope} {namespace} {request}");
        }
    };
    let (namespaces, others) = (["/v1/namespaces", "/v1/namespaces/finalize"], ["g/v/r", "g/v/r/exec"]);
    for namespace in ["", "ns"] {
        check("Cluster", namespace, &namespaces, true);
        check("Namespaced", namespace, &namespaces, false);
        check("*", namespace, &namespaces, true);
        check("*", namespace, &others, true);
    }
    check("Cluster", "", &others, true);
    check("Cluster", "ns", &others, false);
    check("Namespaced", "ns", &others, true);
    check("Namespaced", "", &others, false);
}

#[test]
fn equivalents() {
    let of = |versions: &[(&str, &str)], resources: &[&str]| -> Value {
        let rule = |(group, version): &(&str, &str)| json!({"operations": ["*"], "apiGroups": [group], "apiVersions": [version], "resources": resources});
        versions.iter().map(rule).collect()
    };
    let (old, apps, exact) = (("extensions", "v1beta1"), ("apps", "v1beta1"), ("apps", "v1"));
    for (resources, request) in [
        (vec!["deployments"], "apps/v1/deployments"),
        (vec!["deployments", "deployments/scale"], "apps/v1/deployments/scale"),
    ] {
        let check = |versions: &[(&str, &str)], policy: Option<&str>, expected: Option<&str>| {
            let rules = of(versions, &resources);
            let got = matched(&rules, policy, request, "ns", Operation::Create);
            assert_eq!(got.as_deref(), expected, "{rules} {request}");
        };
        check(&[], None, None);
        check(&[old, apps, exact], None, Some("apps/v1"));
        check(&[old, apps], None, None);
        check(&[old, apps], Some("Exact"), None);
        check(&[old, apps], Some("Equivalent"), Some("extensions/v1beta1"));
        check(&[apps, old], Some("Equivalent"), Some("apps/v1beta1"));
        check(&[old, exact], Some("Equivalent"), Some("apps/v1"));
    }
}
