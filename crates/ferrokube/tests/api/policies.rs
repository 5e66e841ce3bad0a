//! Admission policies in the expression language, as clients see them.

use serde_json::{Value, json};
use testkit::{Answer, Server};

use crate::api::custom_resources::defined;
use crate::api::{MAPS, map, server};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// Makes a policy and its binding; `kind` is `Validating` or `Mutating`.
fn bind(s: &Server, kind: &str, name: &str, spec: Value, binding: Value) {
    let lower = kind.to_lowercase();
    let policy = json!({"metadata": {"name": name}, "spec": spec});
    s.create(&format!("{GROUP}/{lower}admissionpolicies"), &policy).unwrap();
    let mut spec = json!({"policyName": name});
    for (field, value) in binding.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let binding = json!({"metadata": {"name": format!("{name}-binding")}, "spec": spec});
    s.create(&format!("{GROUP}/{lower}admissionpolicybindings"), &binding).unwrap();
}

fn rule(groups: &[&str], versions: &[&str], resources: &[&str]) -> Value {
    json!({"resourceRules": [{
        "apiGroups": groups, "apiVersions": versions, "resources": resources, "operations": ["CREATE", "UPDATE"],
    }]})
}

fn try_create(s: &Server, path: &str, object: &Value) -> Answer {
    s.request("POST", path).json(object).send().unwrap()
}

fn deployment(name: &str, replicas: i64) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    })
}

#[test]
fn a_policy_with_parameters_refuses_warns_and_asks_the_authorizer() {
    let s = server();
    let limits = json!({"metadata": {"name": "limits"}, "data": {"most": "3"}});
    s.create(MAPS, &limits).unwrap();
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": rule(&["apps"], &["v1"], &["deployments"]),
        "variables": [
            {"name": "most", "expression": "int(params.data.most)"},
            {"name": "is_over", "expression": "object.spec.replicas > variables.most"},
        ],
        "matchConditions": [{"name": "not-exempt", "expression": "object.metadata.name != 'exempt'"}],
        "validations": [{
            "expression": "!variables.is_over",
            "messageExpression": "'at most ' + string(variables.most) + ' replicas in ' + namespaceObject.metadata.name",
            "reason": "Forbidden",
        }, {
            "expression": "authorizer.group('').resource('pods').namespace(request.namespace).check('create').allowed()",
        }],
    });
    let params = json!({"name": "limits", "parameterNotFoundAction": "Deny"});
    bind(&s, "Validating", "replicas", spec, json!({"paramRef": params, "validationActions": ["Deny"]}));

    // Every request that comes after the binding's answer sees it.
    let refused = try_create(&s, DEPLOYMENTS, &deployment("a", 5)).expect(403).unwrap().json().unwrap();
    let text = "ValidatingAdmissionPolicy 'replicas' with binding 'replicas-binding' denied request: at most 3 replicas in default";
    assert_eq!(refused["message"], format!("deployments.apps \"a\" is forbidden: {text}"));
    assert_eq!(refused["reason"], "Forbidden");
    assert_eq!(refused["details"]["causes"], json!([{"message": text}]));
    s.create(DEPLOYMENTS, &deployment("b", 3)).unwrap();
    s.create(DEPLOYMENTS, &deployment("exempt", 7)).unwrap();
    // Its parameters change at once, too.
    let more = json!({"data": {"most": "6"}});
    s.patch(&format!("{MAPS}/limits"), "merge", &more).send().unwrap().expect(200).unwrap();
    s.create(DEPLOYMENTS, &deployment("a", 5)).unwrap();
    // The scale is another subresource, which the rules do not name.
    s.request("DELETE", &format!("{MAPS}/limits")).send().unwrap().expect(200).unwrap();
    let refused = try_create(&s, DEPLOYMENTS, &deployment("c", 1)).expect(422).unwrap().json().unwrap();
    let text =
        "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    assert!(refused["message"].as_str().unwrap().ends_with(text), "{refused}");

    let warn = json!({"validationActions": ["Warn", "Audit"]});
    let path = format!("{GROUP}/validatingadmissionpolicybindings/replicas-binding");
    let change = json!({"spec": {"validationActions": warn["validationActions"], "paramRef": null}});
    s.patch(&path, "merge", &change).send().unwrap().expect(200).unwrap();
    // Without parameters they are null.
    let warned = try_create(&s, DEPLOYMENTS, &deployment("c", 1)).expect(201).unwrap();
    let warning = warned.header("warning");
    assert!(
        warning.contains(
            "Validation failed for ValidatingAdmissionPolicy 'replicas' with binding 'replicas-binding': expression '!variables.is_over' resulted in error: composited variable"
        ),
        "{warning}"
    );
    let metrics = s.get("/metrics").send().unwrap().text();
    let count = "apiserver_validating_admission_policy_check_total{enforcement_action=\"deny\",error_type=\"invalid_error\",policy=\"replicas\",policy_binding=\"replicas-binding\"} 1";
    assert!(metrics.contains(count), "{count}");
    // A policy that is gone says nothing.
    s.request("DELETE", &format!("{GROUP}/validatingadmissionpolicies/replicas"))
        .send()
        .unwrap()
        .expect(200)
        .unwrap();
    let made = try_create(&s, DEPLOYMENTS, &deployment("d", 9)).expect(201).unwrap();
    assert_eq!(made.header("warning"), "");
}

/// As recorded from upstream.
#[test]
fn a_policy_knows_variables_if_it_has_some() {
    let s = server();
    let check = |variables: Value, told: &str| {
        let spec = json!({
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"],
            }]},
            "variables": variables,
            "validations": [{"expression": "variables.n == 1"}],
        });
        let policy = json!({"metadata": {"name": "p"}, "spec": spec});
        let path = format!("{GROUP}/validatingadmissionpolicies?dryRun=All");
        let refused = try_create(&s, &path, &policy).expect(422).unwrap().json().unwrap();
        assert!(refused["message"].as_str().unwrap().contains(told), "{refused}");
    };
    check(json!([]), "ERROR: <input>:1:1: undeclared reference to 'variables' (in container '')");
    check(json!([{"name": "m", "expression": "1"}]), "ERROR: <input>:1:10: undefined field 'n'");
}

#[test]
fn policies_see_deletions_and_connections_and_other_versions() {
    let s = server();
    let spec = json!({
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps", "pods/exec"],
            "operations": ["DELETE", "CONNECT"],
        }]},
        "validations": [{
            "expression": "request.operation == 'CONNECT' ? object.container != 'secret' : oldObject.data.k != 'kept'",
            "message": "that stays as it is",
        }],
    });
    bind(&s, "Validating", "kept", spec, json!({"validationActions": ["Deny"]}));
    let mut kept = map("kept");
    kept["data"]["k"] = "kept".into();
    s.create(MAPS, &kept).unwrap();
    s.create(MAPS, &map("other")).unwrap();
    let refused = s.request("DELETE", &format!("{MAPS}/kept")).send().unwrap().expect(422).unwrap();
    assert!(refused.text().contains("denied request: that stays as it is"), "{}", refused.text());
    s.request("DELETE", &format!("{MAPS}/other")).send().unwrap().expect(200).unwrap();
    let exec = "/api/v1/namespaces/default/pods/p/exec?container=secret&command=x";
    let refused = s.request("POST", exec).send().unwrap();
    assert!(refused.text().contains("that stays as it is"), "{}", refused.text());

    // An autoscaler that is written in v1 is seen in v2, which the rule names.
    let spec = json!({
        "matchConstraints": rule(&["autoscaling"], &["v2"], &["horizontalpodautoscalers"]),
        "validations": [{
            "expression": "request.kind.version == 'v2' && request.requestKind.version == 'v1' && object.apiVersion == 'autoscaling/v2' && object.spec.metrics[0].resource.target.averageUtilization <= 50",
        }],
    });
    bind(&s, "Validating", "metrics", spec, json!({"validationActions": ["Deny"]}));
    let autoscaler = |target: i64| {
        json!({"metadata": {"name": "h"}, "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
            "maxReplicas": 3, "targetCPUUtilizationPercentage": target,
        }})
    };
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let refused = try_create(&s, path, &autoscaler(60)).expect(422).unwrap();
    assert!(refused.text().contains("failed expression: request.kind.version"), "{}", refused.text());
    s.create(path, &autoscaler(40)).unwrap();
    // Policies themselves are never subject to policies.
    let spec = json!({
        "matchConstraints": rule(&["*"], &["*"], &["*"]), "validations": [{"expression": "false"}],
    });
    bind(&s, "Validating", "everything", spec, json!({"validationActions": ["Deny"]}));
    try_create(&s, MAPS, &map("x")).expect(422).unwrap();
    let path = format!("{GROUP}/validatingadmissionpolicies/everything");
    s.patch(&path, "merge", &json!({"metadata": {"labels": {"a": "b"}}}))
        .send()
        .unwrap()
        .expect(200)
        .unwrap();
}

#[test]
fn mutations_are_merged_as_configurations_and_patched() {
    let s = server();
    let spec = json!({
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": rule(&["apps"], &["v1"], &["deployments"]),
        "mutations": [{
            "patchType": "ApplyConfiguration",
            "applyConfiguration": {"expression": "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: 'side', image: 'car'}]}}}}"},
        }, {
            "patchType": "JSONPatch",
            "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'a/b': string(object.spec.template.spec.containers.size())}}, JSONPatch{op: 'add', path: '/metadata/annotations/' + jsonpatch.escapeKey('c/d'), value: 'e'}]"},
        }],
    });
    bind(&s, "Mutating", "sidecar", spec, json!({}));
    let made = s.create(DEPLOYMENTS, &deployment("d", 1)).unwrap();
    let containers = made["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let images: Vec<&str> = containers.iter().map(|c| c["image"].as_str().unwrap()).collect();
    assert_eq!(images, ["i", "car"]);
    // Defaults are there.
    assert_eq!(containers[1]["terminationMessagePath"], "/dev/termination-log");
    assert_eq!(made["metadata"]["annotations"], json!({"a/b": "2", "c/d": "e"}));
}

#[test]
fn custom_resources_are_validated_and_mutated() {
    let s = server();
    let widgets = defined(&s, "policies.example.com", |_| {});
    let spec = |expression: &str| {
        json!({
            "reinvocationPolicy": "Never",
            "failurePolicy": "Fail",
            "matchConstraints": rule(&["policies.example.com"], &["v1"], &["widgets"]),
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
        })
    };
    let color = "Object{spec: Object.spec{color: 'blue', ports: [Object.spec.ports{name: 'web', port: object.spec.size}]}}";
    bind(&s, "Mutating", "color", spec(color), json!({}));
    let widget = |name: &str, size: i64| {
        json!({
            "apiVersion": "policies.example.com/v1", "kind": "Widget", "metadata": {"name": name},
            "spec": {"size": size, "ports": [{"name": "ssh", "port": 22}]},
        })
    };
    let made = s.create(&widgets, &widget("a", 4)).unwrap();
    let ports = json!([{"name": "ssh", "port": 22}, {"name": "web", "port": 4}]);
    assert_eq!(made["spec"], json!({"size": 4, "most": 10, "color": "blue", "ports": ports}));

    let validating = json!({
        "matchConstraints": rule(&["policies.example.com"], &["v1"], &["widgets"]),
        "validations": [{"expression": "object.spec.color == 'blue' && object.spec.size < 6", "message": "too large"}],
    });
    bind(&s, "Validating", "size", validating, json!({"validationActions": ["Deny"]}));
    let refused = try_create(&s, &widgets, &widget("b", 6)).expect(422).unwrap();
    assert!(refused.text().contains("denied request: too large"), "{}", refused.text());
    // A field that the definition lacks.
    bind(&s, "Mutating", "wrong", spec("Object{spec: Object.spec{nothing: 1}}"), json!({}));
    let refused = try_create(&s, &widgets, &widget("b", 1)).expect(403).unwrap().json().unwrap();
    let text = "policy 'wrong' with binding 'wrong-binding' denied request: error applying patch: failed to convert patch object to typed object: .spec.nothing: field not declared in schema";
    assert_eq!((&refused["message"], &refused["reason"]), (&json!(text), &json!("Invalid")));
}
