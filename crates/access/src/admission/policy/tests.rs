//! Policies, with upstream's cases.

use std::sync::Arc;

use api::{Gvk, Status, Struct};
use serde_json::{Value, json};

use super::*;
use crate::admission::plugin::{Env, Plugin};
use crate::admission::reinvocation::Reinvocation;
use crate::admission::tests::{parse, print};
use crate::admission::{AdmissionRequest, Operation, OperationOptions};
use crate::testing::{Alone, Fake};
use crate::{Notes, RequestInfo, UserInfo};

const GROUP: &str = "admissionregistration.k8s.io";

/// The end of a request: the object or the refusal, warnings, and annotations.
struct Came {
    object: Result<Value, Status>,
    warnings: Vec<String>,
    annotations: Vec<(String, String)>,
}

/// Policies with their bindings, and objects, for requests about Deployments.
struct World {
    env: Env,
    fake: Arc<Fake>,
    validating: ValidatingAdmissionPolicy,
    mutating: MutatingAdmissionPolicy,
}

impl World {
    fn new() -> Self {
        let fake = Arc::new(Fake::default());
        fake.put(("", "namespaces"), json!({"metadata": {"name": "default", "labels": {"a": "b"}}}));
        fake.serve(Gvk::new("", "v1", "ConfigMap"), ("", "configmaps"), true);
        let env = Env::of(Arc::clone(&fake));
        let (validating, mutating) =
            (ValidatingAdmissionPolicy::default(), MutatingAdmissionPolicy::default());
        Self { env, fake, validating, mutating }
    }
    /// Puts a policy and a binding in place.
    fn bind(&self, plural: [&'static str; 2], name: &str, mut spec: Value, mut binding: Value) {
        let rules = json!({"resourceRules": [{
            "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"],
        }]});
        if spec["matchConstraints"].is_null() {
            spec["matchConstraints"] = rules;
        }
        binding["policyName"] = name.into();
        self.fake.put((GROUP, plural[0]), json!({"metadata": {"name": name}, "spec": spec}));
        self.fake
            .put((GROUP, plural[1]), json!({"metadata": {"name": format!("{name}-b")}, "spec": binding}));
    }
    fn validating(&self, name: &str, spec: Value, binding: Value) {
        self.bind(["validatingadmissionpolicies", "validatingadmissionpolicybindings"], name, spec, binding);
    }
    fn mutating(&self, name: &str, spec: Value) {
        self.bind(["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"], name, spec, json!({}));
    }
    /// Creates a Deployment, or updates an old one.
    async fn ask(&self, object: Value, old: Option<Value>) -> Came {
        let kind = Gvk::new("apps", "v1", "Deployment");
        let notes = Notes::default();
        let (mut tree, old) = (parse(&kind, &object), old.map(|old| parse(&kind, &old)));
        let info = RequestInfo { group: "apps".into(), version: "v1".into(), ..RequestInfo::default() };
        let request = AdmissionRequest {
            user: &Arc::new(UserInfo { name: "alice".into(), ..UserInfo::default() }),
            info: &info,
            operation: if old.is_some() { Operation::Update } else { Operation::Create },
            kind: &kind,
            request_kind: &kind,
            versions: &Alone,
            resource: "deployments",
            subresource: "",
            namespace: "default",
            name: "d",
            old: old.as_ref(),
            dry_run: false,
            options: OperationOptions::default(),
            notes: &notes,
        };
        let done = self.admit(&request, &mut tree).await;
        Came {
            object: done.map(|()| print(&tree)),
            warnings: notes.take_warnings(),
            annotations: notes.annotations(),
        }
    }
    async fn admit(&self, request: &AdmissionRequest<'_>, tree: &mut Struct) -> Result<(), Status> {
        let mut again = Reinvocation::default();
        loop {
            if let Some(asked) = self.mutating.mutate_waiting(&self.env, request, tree, &mut again) {
                asked.await?;
            }
            if !again.begin() {
                break;
            }
        }
        match self.validating.validate_waiting(&self.env, request, Some(tree)) {
            Some(asked) => asked.await,
            None => Ok(()),
        }
    }
}

fn denied(came: &Came) -> String {
    let status = came.object.as_ref().unwrap_err();
    let text = status.message.split("denied request: ").nth(1).unwrap_or(&status.message);
    format!("{} {}: {text}", status.code, status.reason)
}

/// Validates by one policy. Expected is the refusal, or "" for none.
async fn check(spec: Value, object: Value, expected: &str) {
    let world = World::new();
    world.validating("p", spec.clone(), json!({"validationActions": ["Deny"]}));
    let came = world.ask(object, None).await;
    match expected {
        "" => assert!(came.object.is_ok(), "{spec}: {}", denied(&came)),
        text => assert_eq!(denied(&came), text, "{spec}"),
    }
}

fn one(validation: Value) -> Value {
    json!({"validations": [validation]})
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one table")]
async fn validations_decide_as_upstreams() {
    // The cases of validator_test.go, with expressions for their results.
    let d = || json!({"metadata": {"name": "d"}, "spec": {"replicas": 3}});
    for (spec, expected) in [
        (one(json!({"expression": "true"})), ""),
        (json!({"validations": [{"expression": "true"}, {"expression": "true"}]}), ""),
        (json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.spec.missing"}]}), ""),
        (
            one(json!({"expression": "object.spec.missing == 1"})),
            "422 Invalid: expression 'object.spec.missing == 1' resulted in error: no such key: missing",
        ),
        (one(json!({"expression": "1 == 2"})), "422 Invalid: failed expression: 1 == 2"),
        (
            one(json!({"expression": "1 == 2", "reason": "Forbidden"})),
            "403 Forbidden: failed expression: 1 == 2",
        ),
        (
            one(json!({"expression": "1 == 2", "reason": "Unauthorized"})),
            "401 Unauthorized: failed expression: 1 == 2",
        ),
        (
            one(json!({"expression": "1 == 2", "reason": "RequestEntityTooLarge", "message": " test "})),
            "413 RequestEntityTooLarge: test",
        ),
        (
            one(
                json!({"expression": "1 == 2", "messageExpression": "'evaluated ' + 'message'", "message": "m"}),
            ),
            "422 Invalid: evaluated message",
        ),
        (
            one(json!({"expression": "1 == 2", "messageExpression": "object.spec.missing", "message": "m"})),
            "422 Invalid: m",
        ),
        (
            one(json!({"expression": "1 == 2", "messageExpression": "'a\\nb'", "message": "m"})),
            "422 Invalid: m",
        ),
        (
            one(json!({"expression": "1 == 2", "messageExpression": "'  '"})),
            "422 Invalid: failed expression: 1 == 2",
        ),
        (
            one(
                json!({"expression": "1 == 2", "messageExpression": format!("'{}'", "x".repeat(5121)), "message": "m"}),
            ),
            "422 Invalid: m",
        ),
        (
            json!({"validations": [{"expression": "true"}], "auditAnnotations": [{"key": "k", "valueExpression": "string(object.spec.missing)"}]}),
            "422 Invalid: expression 'string(object.spec.missing)' resulted in error: no such key: missing",
        ),
        (
            json!({"failurePolicy": "Ignore", "auditAnnotations": [{"key": "k", "valueExpression": "string(object.spec.missing)"}]}),
            "",
        ),
        (
            json!({"matchConditions": [{"name": "n", "expression": "object.spec.replicas > 5"}], "validations": [{"expression": "false"}]}),
            "",
        ),
        (
            json!({"matchConditions": [{"name": "n", "expression": "object.spec.missing > 5"}], "validations": [{"expression": "true"}]}),
            "422 Invalid: expression 'object.spec.missing > 5' resulted in error: no such key: missing",
        ),
        (
            json!({"failurePolicy": "Ignore", "matchConditions": [{"name": "n", "expression": "object.spec.missing > 5"}], "validations": [{"expression": "false"}]}),
            "",
        ),
        (
            // One that does not hold decides, whatever became of another.
            json!({"matchConditions": [{"name": "n", "expression": "object.spec.missing > 5"}, {"name": "m", "expression": "false"}], "validations": [{"expression": "false"}]}),
            "",
        ),
        (
            json!({"variables": [{"name": "v", "expression": "object.spec.missing"}], "validations": [{"expression": "variables.v == 1"}]}),
            "422 Invalid: expression 'variables.v == 1' resulted in error: composited variable \"v\" fails to evaluate: no such key: missing",
        ),
        (
            json!({"variables": [{"name": "a", "expression": "object.spec.replicas"}, {"name": "b", "expression": "variables.a + 1"}], "validations": [{"expression": "variables.b == 4 && variables.b + variables.a == 7"}]}),
            "",
        ),
        (one(json!({"expression": "namespaceObject.metadata.labels['a'] == 'b'"})), ""),
        (
            one(json!({"expression": "1"})),
            "422 Invalid: compilation error: must evaluate to bool but got int",
        ),
        (
            one(
                json!({"expression": "request.userInfo.username == 'alice' && request.resource.resource == 'deployments' && request.operation == 'CREATE' && request.name == 'd' && !request.dryRun"}),
            ),
            "",
        ),
        (
            one(
                json!({"expression": "oldObject == null && object.kind == 'Deployment' && object.apiVersion == 'apps/v1'"}),
            ),
            "",
        ),
        (
            one(
                json!({"expression": "authorizer.group('apps').resource('deployments').check('get').allowed()"}),
            ),
            "422 Invalid: failed expression: authorizer.group('apps').resource('deployments').check('get').allowed()",
        ),
        (
            one(json!({"expression": "authorizer.requestResource.check('create').reason() == 'x'"})),
            "422 Invalid: failed expression: authorizer.requestResource.check('create').reason() == 'x'",
        ),
        (
            json!({"validations": [{"expression": "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, a+b+c+d+e+f > 0))))))"}]}),
            "422 Invalid: expression '[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, a+b+c+d+e+f > 0))))))' resulted in error: operation cancelled: actual cost limit exceeded",
        ),
    ] {
        check(spec, d(), expected).await;
    }
}

#[tokio::test]
async fn bindings_warn_and_annotate_and_choose_parameters() {
    let world = World::new();
    for (name, size) in [("small", "1"), ("large", "5")] {
        let labels = json!({"sized": "yes"});
        let map = json!({"metadata": {"name": name, "namespace": "default", "labels": labels}, "data": {"size": size}});
        world.fake.put(("", "configmaps"), map);
    }
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "object.spec.replicas <= int(params.data.size)", "message": "<too many>"}],
        "auditAnnotations": [{"key": "limit", "valueExpression": "string(params.data.size)"}],
    });
    let selected = json!({"selector": {"matchLabels": {"sized": "yes"}}, "parameterNotFoundAction": "Allow"});
    world.validating("p", spec, json!({"validationActions": ["Warn", "Audit"], "paramRef": selected}));
    let came = world.ask(json!({"spec": {"replicas": 3}}), None).await;
    assert!(came.object.is_ok());
    let warning = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-b': <too many>";
    assert_eq!(came.warnings, [warning]);
    let failure = r#"[{"message":"\u003ctoo many\u003e","policy":"p","binding":"p-b","expressionIndex":0,"validationActions":["Warn","Audit"]}]"#;
    let expected = [
        ("validation.policy.admission.k8s.io/validation_failure".to_owned(), failure.to_owned()),
        ("p/limit".to_owned(), "5, 1".to_owned()),
    ];
    assert_eq!(came.annotations, expected);
    // Parameters that are gone are none to ask about.
    world.fake.remove(("", "configmaps"), "default", "small");
    world.fake.remove(("", "configmaps"), "default", "large");
    let came = world.ask(json!({"spec": {"replicas": 3}}), None).await;
    assert!(came.object.is_ok() && came.warnings.is_empty() && came.annotations.is_empty());
}

#[tokio::test]
async fn parameters_that_cannot_be_had_refuse_in_upstreams_words() {
    let nothing = "no params found for policy binding with `Deny` parameterNotFoundAction";
    for (kind, params, expected) in [
        (
            "ConfigMap",
            json!({"name": "x", "parameterNotFoundAction": "Deny"}),
            format!("failed to configure binding: {nothing}"),
        ),
        ("ConfigMap", json!({"name": "x", "parameterNotFoundAction": "Allow"}), String::new()),
        (
            "ConfigMap",
            json!({"parameterNotFoundAction": "Deny"}),
            "failed to configure binding: one of name or selector must be provided".into(),
        ),
        (
            "Gone",
            json!({"name": "x"}),
            "failed to configure policy: failed to find resource referenced by paramKind: '/v1, Kind=Gone'"
                .into(),
        ),
    ] {
        let world = World::new();
        let spec = json!({"paramKind": {"apiVersion": "v1", "kind": kind}, "validations": [{"expression": "params.data.a == 'b'"}]});
        world.validating("p", spec, json!({"validationActions": ["Deny"], "paramRef": params}));
        let came = world.ask(json!({"spec": {}}), None).await;
        match &*expected {
            "" => assert!(came.object.is_ok()),
            text => assert_eq!(denied(&came), format!("422 Invalid: {text}")),
        }
    }
}

/// Mutates by one policy. Expected is the object's spec and labels, or a part of the refusal.
async fn mutate(
    kind: &str,
    expression: &str,
    object: Value,
    old: Option<Value>,
    expected: Result<Value, &str>,
) {
    let world = World::new();
    let mutation = match kind {
        "JSONPatch" => json!({"patchType": kind, "jsonPatch": {"expression": expression}}),
        _ => json!({"patchType": kind, "applyConfiguration": {"expression": expression}}),
    };
    world.mutating("p", json!({"mutations": [mutation], "reinvocationPolicy": "Never"}));
    let came = world.ask(object, old).await;
    match (came.object, expected) {
        (Ok(object), Ok(expected)) => {
            let expected = print(&parse(&Gvk::new("apps", "v1", "Deployment"), &expected));
            assert_eq!(object, expected, "{expression}");
        }
        (Err(status), Err(part)) => {
            assert!(status.message.contains(part), "{expression}: {}", status.message);
        }
        (other, _) => panic!("{expression}: {other:?}"),
    }
}

fn with_spec(spec: Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

#[tokio::test]
async fn configurations_are_applied_as_upstreams() {
    // The 13 cases of smd_test.go.
    let volumes = |more: &str| {
        format!(
            "Object{{spec: Object.spec{{template: Object.spec.template{{spec: Object.spec.template.spec{{volumes: [Object.spec.template.spec.volumes{{name: 'y'{more}}}]}}}}}}}}"
        )
    };
    let replicas = |n: i64| json!({"spec": {"replicas": n}});
    let env = |env: Value, replicas: i64| {
        let mut d = with_spec(json!({"containers": [{"name": "nginx", "env": env}]}));
        d["spec"]["replicas"] = replicas.into();
        d
    };
    let twice = json!([{"name": "test", "value": "a"}, {"name": "test", "value": "b"}]);
    let odd = |of: &str| {
        format!(
            "Object{{spec: Object.spec{{replicas: {of}.spec.replicas % 2 == 0 ? {of}.spec.replicas + 1 : {of}.spec.replicas}}}}"
        )
    };
    let apply = |e: String, o: Value, old: Option<Value>, x: Result<Value, &'static str>| async move {
        mutate("ApplyConfiguration", &e, o, old, x).await;
    };
    apply(
        volumes(""),
        with_spec(json!({"volumes": [{"name": "x"}]})),
        None,
        Ok(with_spec(json!({"volumes": [{"name": "x"}, {"name": "y"}]}))),
    )
    .await;
    apply(
        volumes(", hostPath: Object.spec.template.spec.volumes.hostPath{path: 'a'}"),
        with_spec(json!({"volumes": [{"name": "x"}, {"name": "y"}]})),
        None,
        Ok(with_spec(json!({"volumes": [{"name": "x"}, {"name": "y", "hostPath": {"path": "a"}}]}))),
    )
    .await;
    apply(odd("object"), replicas(2), None, Ok(replicas(3))).await;
    apply(odd("oldObject"), replicas(1), Some(replicas(2)), Ok(replicas(3))).await;
    let whole = "Object{spec: Object.spec{replicas: 1, template: Object.spec.template{metadata: Object.spec.template.metadata{labels: {'app': 'nginx'}}, spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: 'nginx', image: 'nginx:1.14.2', ports: [Object.spec.template.spec.containers.ports{containerPort: 80}], resources: Object.spec.template.spec.containers.resources{limits: {'cpu': '128M'}}}]}}}}";
    apply(whole.into(), json!({"spec": {}}), None, Ok(json!({"spec": {"replicas": 1, "template": {
        "metadata": {"labels": {"app": "nginx"}},
        "spec": {"containers": [{"name": "nginx", "image": "nginx:1.14.2", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "128M"}}}]},
    }}}))).await;
    for (expression, text) in [
        (
            "Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'l': 'v'}}}}",
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.selector",
        ),
        (
            "Object{spec: Object.specx{replicas: 1}}",
            "type mismatch: unexpected type name \"Object.specx\", expected \"Object.spec\", which matches field name path from root Object type",
        ),
        (
            "Object{spec: Object.spec{replicasx: 1}}",
            "error applying patch: failed to convert patch object to typed object: .spec.replicasx: field not declared in schema",
        ),
        ("\"I'm a teapot!\"", "must evaluate to Object but got string"),
        ("Object.spec.metadata{}", "must evaluate to Object but got Object.spec.metadata"),
    ] {
        apply(expression.into(), replicas(1), None, Err(text)).await;
    }
    apply("Object{spec: Object.spec{replicas: 3}}".into(), env(twice.clone(), 1), None, Ok(env(twice, 3)))
        .await;
    let changed = "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: 'nginx', env: [Object.spec.template.spec.containers.env{name: 'test', value: 'c'}]}]}}}}";
    let three = json!([{"name": "test", "value": "a"}, {"name": "test", "value": "b"}, {"name": "foo", "value": "bar"}]);
    let two = json!([{"name": "test", "value": "c"}, {"name": "foo", "value": "bar"}]);
    apply(changed.into(), env(three, 1), None, Ok(env(two, 1))).await;
}

#[tokio::test]
async fn patches_are_made_as_upstreams() {
    // The cases of json_patch_test.go.
    let labels = |of: Value| json!({"metadata": {"labels": of}, "spec": {}});
    let containers = |names: &[&str]| {
        with_spec(json!({"containers": names.iter().map(|n| json!({"name": n})).collect::<Vec<_>>()}))
    };
    let replicas = |n: i64| json!({"spec": {"replicas": n}});
    let empty = || json!({"spec": {}});
    let at = "/spec/template/spec/containers";
    let cases: Vec<(String, Value, Result<Value, &str>)> = vec![
        ("[JSONPatch{op: 'test', path: '/spec/replicas', value: 100}, JSONPatch{op: 'replace', path: '/spec/replicas', value: 3}]".into(), replicas(1), Ok(replicas(1))),
        ("[JSONPatch{op: 'test', path: '/spec/replicas', value: 1}, JSONPatch{op: 'replace', path: '/spec/replicas', value: 3}]".into(), replicas(1), Ok(replicas(3))),
        ("[JSONPatch{op: 'remove', path: '/spec/replicas'}]".into(), replicas(1), Ok(empty())),
        ("[JSONPatch{op: 'remove', path: '/metadata/labels/y'}]".into(), labels(json!({"x": "1", "y": "1"})), Ok(labels(json!({"x": "1"})))),
        (format!("[JSONPatch{{op: 'remove', path: '{at}/1'}}]"), containers(&["a", "b", "c"]), Ok(containers(&["a", "c"]))),
        ("[JSONPatch{op: 'copy', from: '/metadata/labels/x', path: '/metadata/labels/y'}]".into(), labels(json!({"x": "1"})), Ok(labels(json!({"x": "1", "y": "1"})))),
        (format!("[JSONPatch{{op: 'copy', from: '{at}/0', path: '{at}/-'}}]"), containers(&["a", "b", "c"]), Ok(containers(&["a", "b", "c", "a"]))),
        ("[JSONPatch{op: 'move', from: '/metadata/labels/x', path: '/metadata/labels/y'}]".into(), labels(json!({"x": "1"})), Ok(labels(json!({"y": "1"})))),
        (format!("[JSONPatch{{op: 'move', from: '{at}/0', path: '{at}/-'}}]"), containers(&["a", "b", "c"]), Ok(containers(&["b", "c", "a"]))),
        ("[JSONPatch{op: 'add', path: '/metadata/labels/x', value: '2'}]".into(), labels(json!({"y": "1"})), Ok(labels(json!({"y": "1", "x": "2"})))),
        ("[JSONPatch{op: 'add', path: '/metadata/labels', value: {'y': '2'}}]".into(), empty(), Ok(labels(json!({"y": "2"})))),
        ("[JSONPatch{op: 'add', path: '/metadata/labels', value: {'y': '2'}}]".into(), labels(json!({"x": "1"})), Ok(labels(json!({"y": "2"})))),
        (format!("[JSONPatch{{op: 'add', path: '{at}/0', value: {{'name': 'x'}}}}]"), containers(&["a"]), Ok(containers(&["x", "a"]))),
        (format!("[JSONPatch{{op: 'add', path: '{at}/-', value: {{'name': 'x'}}}}]"), containers(&["a"]), Ok(containers(&["a", "x"]))),
        (format!("[JSONPatch{{op: 'replace', path: '{at}/0', value: {{'name': 'x'}}}}]"), containers(&["a"]), Ok(containers(&["x"]))),
        ("[JSONPatch{op: 'replace', path: '/metadata/labels', value: {'y': '2'}}]".into(), labels(json!({"x": "1"})), Ok(labels(json!({"y": "2"})))),
        ("[JSONPatch{op: 'add', path: '/spec', value: Object.spec{selector: Object.spec.selector{}, replicas: 10}}]".into(), empty(), Ok(json!({"spec": {"selector": {}, "replicas": 10}}))),
        (
            "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'op': JSONPatch{op: 'opValue'}.op, 'path': JSONPatch{path: 'pathValue'}.path, 'from': JSONPatch{from: 'fromValue'}.from, 'value': string(JSONPatch{value: 'valueValue'}.value)}}]".into(),
            empty(),
            Ok(labels(json!({"op": "opValue", "path": "pathValue", "from": "fromValue", "value": "valueValue"}))),
        ),
        (
            "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'op': string(has(JSONPatch{op: 'opValue'}.op)), 'value-unset': string(has(JSONPatch{}.value))}}]".into(),
            empty(),
            Ok(labels(json!({"op": "true", "value-unset": "false"}))),
        ),
        (
            "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'empty': string(JSONPatch{} == JSONPatch{}), 'different-op': string(JSONPatch{op: 'add'} == JSONPatch{op: 'remove'})}}]".into(),
            empty(),
            Ok(labels(json!({"empty": "true", "different-op": "false"}))),
        ),
        (
            "[JSONPatch{op: 'add', path: '/metadata/labels', value: {}}, JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('k8s.io/x~y'), value: 'true'}]".into(),
            empty(),
            Ok(labels(json!({"k8s.io/x~y": "true"}))),
        ),
        (
            format!("[JSONPatch{{op: 'add', path: '{at}/-', value: Object.spec.template.spec.containers{{name: 'x', ports: [Object.spec.template.spec.containers.ports{{containerPort: 8080}}]}}}}]"),
            containers(&["a"]),
            Ok(with_spec(json!({"containers": [{"name": "a"}, {"name": "x", "ports": [{"containerPort": 8080}]}]}))),
        ),
        (
            format!("[JSONPatch{{op: 'add', path: '{at}/-', value: Object.spec.template.spec.containers{{name: 'x', ports: [Object.spec.template.spec.containers.ports{{containerPortZ: 8080}}]}}}}]"),
            containers(&["a"]),
            Err("strict decoding error: unknown field \"spec.template.spec.containers[1].ports[0].containerPortZ\""),
        ),
        (
            format!("[JSONPatch{{op: 'add', path: '{at}/-', value: Object.spec.template.spec.containers{{name: 'x', ports: [Object.spec.template.spec.containers.portsZ{{containerPort: 8080}}]}}}}]"),
            containers(&["a"]),
            Err("type mismatch: unexpected type name \"Object.spec.template.spec.containers.portsZ\", expected \"Object.spec.template.spec.containers.ports\", which matches field name path from root Object type"),
        ),
    ];
    assert_eq!(cases.len(), 24);
    for (expression, object, expected) in cases {
        mutate("JSONPatch", &expression, object, None, expected).await;
    }
}

#[tokio::test]
async fn a_policy_sees_what_later_ones_changed_if_it_may_be_asked_again() {
    for (policy, expected) in [("Never", "1"), ("IfNeeded", "2")] {
        let world = World::new();
        let set = |key: &str, value: &str| {
            let expression =
                format!("Object{{metadata: Object.metadata{{annotations: {{'{key}': {value}}}}}}}");
            json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
        };
        let count = "string(has(object.metadata.annotations) ? object.metadata.annotations.size() : 0)";
        world.mutating("a", json!({"mutations": [set("seen", count)], "reinvocationPolicy": policy}));
        world.mutating("b", json!({"mutations": [set("other", "'x'")], "reinvocationPolicy": "Never"}));
        let object = json!({"metadata": {"annotations": {"first": ""}}, "spec": {}});
        let object = world.ask(object, None).await.object.unwrap();
        let seen = if expected == "2" { "3" } else { "1" };
        assert_eq!(
            object["metadata"]["annotations"],
            json!({"first": "", "seen": seen, "other": "x"}),
            "{policy}"
        );
    }
}

#[tokio::test]
async fn variables_nest_so_deeply_and_share_a_budget() {
    let chain = |n: usize| {
        let mut variables = vec![json!({"name": "v0", "expression": "1"})];
        variables.extend(
            (1..n).map(|i| json!({"name": format!("v{i}"), "expression": format!("variables.v{}", i - 1)})),
        );
        json!({"variables": variables, "validations": [{"expression": format!("variables.v{} == 1", n - 1)}]})
    };
    check(chain(30), json!({"spec": {}}), "").await;
    let world = World::new();
    world.validating("p", chain(10_000), json!({"validationActions": ["Deny"]}));
    let came = world.ask(json!({"spec": {}}), None).await;
    assert!(denied(&came).contains("is built of more than 32 variables"), "{}", denied(&came));
    // A variable that names all variables.
    let own = json!({
        "variables": [{"name": "v", "expression": "variables"}],
        "validations": [{"expression": "has(variables.v)"}],
    });
    check(own, json!({"spec": {}}), "").await;
    // Each expression may cost so much, all together may cost only so much.
    let costly = "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, a+b+c+d+e > 0)))))";
    let many: Vec<Value> = (0..30).map(|_| json!({"expression": costly})).collect();
    let text = "422 Invalid: validation failed due to running out of cost budget, no further validation rules will be run";
    check(json!({"validations": many}), json!({"spec": {}}), text).await;
}

#[tokio::test]
async fn changes_are_seen_at_once_and_only_they_are_compiled() {
    let world = World::new();
    let refuse = |text: &str| one(json!({"expression": "false", "message": text}));
    let deny = || json!({"validationActions": ["Deny"]});
    assert!(world.ask(json!({"spec": {}}), None).await.object.is_ok());
    world.validating("a", refuse("first"), deny());
    assert_eq!(denied(&world.ask(json!({"spec": {}}), None).await), "422 Invalid: first");
    world.validating("b", refuse("other"), deny());
    let before = world.validating.source_for_tests(&world.env).await;
    world.validating("a", refuse("second"), deny());
    assert_eq!(denied(&world.ask(json!({"spec": {}}), None).await), "422 Invalid: second");
    let after = world.validating.source_for_tests(&world.env).await;
    let same = |i: usize| Arc::ptr_eq(&before.all[i].policy, &after.all[i].policy);
    assert!(!same(0) && same(1));
    for name in ["a", "b"] {
        world.fake.remove((GROUP, "validatingadmissionpolicies"), "", name);
    }
    assert!(world.ask(json!({"spec": {}}), None).await.object.is_ok());
}
