//! The questions of upstream's e2e tests about rules of definitions and their ratcheting (`test/e2e/apimachinery`:
//! `crd_validation_rules.go`, `crd_validation_ratcheting.go`, `apply.go`).

use serde_json::{Value, json};
use testkit::{Server, eventually};

use crate::api::server;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/group.example.com/v1/namespaces/default/things";

fn definition(schema: &Value) -> Value {
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    json!({
        "metadata": {"name": "things.group.example.com"},
        "spec": {
            "group": "group.example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [version],
        },
    })
}

fn of(name: &str, more: &Value) -> Value {
    let mut all = json!({"apiVersion": "group.example.com/v1", "kind": "Thing", "metadata": {"name": name}});
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    all
}

/// Waits until things are served.
fn wait(s: &Server) {
    eventually("things", || Ok((s.get(THINGS).send()?.status == 200).then_some(()))).unwrap();
}

#[test]
fn rules() {
    let s = server();
    let check_schema = |spec: Value, expected: &str| {
        let made = definition(&json!({"type": "object", "properties": {"spec": spec}}));
        let refused = s.request("POST", DEFINITIONS).json(&made).send().unwrap().expect(422).unwrap();
        assert!(refused.text().contains(expected), "{}", refused.text());
    };
    let rule = |rule: &str| json!([{ "rule": rule }]);
    let x = json!({"x": {"type": "integer"}});
    let missing =
        json!({"type": "object", "x-kubernetes-validations": rule("self.z == 100"), "properties": x});
    check_schema(missing, "undefined field 'z'");
    check_schema(json!({"type": "object", "x-kubernetes-validations": rule("self = 42")}), "Syntax error");
    let costly = json!({
        "type": "array", "items": {"type": "string"},
        "x-kubernetes-validations": rule("self.all(s, s == 'string constant')"),
    });
    let costly = json!({"type": "object", "properties": {"x": {"type": "array", "items": costly}}});
    check_schema(costly, "exceeds budget");

    let list = |most: u32| json!({"type": "array", "maxItems": most, "items": {"type": "integer"}});
    let spec = json!({
        "type": "object",
        "x-kubernetes-validations": [
            {"rule": "self.x + self.y > 0"},
            {"rule": "self.firstArray.isSorted() && self.secondArray.isSorted() && ((self.firstArray.sum() + self.secondArray.sum()) % 2 == 0)"},
            {"rule": "self.largeArray.all(x, self.largeArray.all(y, y == x))"},
        ],
        "properties": {
            "x": {"type": "integer"}, "y": {"type": "integer"},
            "firstArray": list(1000), "secondArray": list(1000), "largeArray": list(725),
        },
    });
    let status = json!({
        "type": "object", "properties": {"health": {"type": "string"}},
        "x-kubernetes-validations": rule("self.health == 'ok' || self.health == 'unhealthy'"),
    });
    let num = json!({"type": "integer", "x-kubernetes-validations": rule("self > oldSelf")});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": status, "num": num}});
    s.create(DEFINITIONS, &definition(&schema)).unwrap();
    wait(&s);
    let post = |name: &str, more: &Value| s.request("POST", THINGS).json(&of(name, more)).send().unwrap();
    let good =
        json!({"spec": {"x": 1, "y": 0, "firstArray": [3, 4], "secondArray": [5, 10], "largeArray": [2, 2]}});
    post("good", &good).expect(201).unwrap();
    let refused = post("bad", &json!({"spec": {"x": 0, "y": 0}})).expect(422).unwrap().text();
    assert!(refused.contains("failed rule"), "{refused}");
    let refused = post("large", &json!({"spec": {"largeArray": vec![20; 725]}})).expect(422).unwrap().text();
    assert!(refused.contains("call cost exceeds limit"), "{refused}");
    post("num", &json!({"num": 10})).expect(201).unwrap();
    let change = json!({"num": 9});
    let refused = s.patch(&format!("{THINGS}/num"), "merge", &change).send().unwrap().expect(422).unwrap();
    assert!(refused.text().contains("failed rule"), "{}", refused.text());
}

/// A schema in which a string stands at each place where upstream's cases have one.
fn everywhere(leaf: &Value, other: bool) -> Value {
    let with = |more: Value| {
        let mut properties = json!({"field": leaf});
        properties.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        if other {
            properties["otherField"] = json!({"type": "string"});
        }
        json!({"type": "object", "properties": properties})
    };
    let mut item = with(json!({"key": {"type": "string"}}));
    item["required"] = json!(["key"]);
    with(json!({
        "struct": with(json!({})),
        "list": {
            "type": "array", "maxItems": 5, "items": item,
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"],
        },
        "map": {"type": "object", "maxProperties": 5, "additionalProperties": with(json!({}))},
    }))
}

/// A string at each of these places.
fn filled(value: &str) -> Value {
    let field = json!({"field": value});
    json!({
        "field": value, "struct": field, "map": {"foo": field, "bar": field},
        "list": [{"key": "foo", "field": value}, {"key": "bar", "field": value}],
    })
}

/// Applies as upstream's `applyPatch`; the text of a refusal.
fn apply(s: &Server, name: &str, more: &Value) -> Result<(), String> {
    let at = format!("{THINGS}/{name}?fieldManager=manager");
    let ask = s.request("PATCH", &at).body("application/apply-patch+yaml", of(name, more).to_string());
    let answer = ask.send().unwrap();
    if answer.status < 300 { Ok(()) } else { Err(answer.text()) }
}

/// Gives the definition another schema, and waits until it counts: as upstream, by a field whose values are refused, of an
/// object whose metadata are refused, too.
fn change_schema(s: &Server, schema: &Value, turn: usize) {
    let mut schema = schema.clone();
    let sentinel = format!("sentinel-{turn}");
    schema["properties"]["sentinel"] = json!({"type": "string", "enum": [sentinel]});
    let versions = definition(&schema)["spec"]["versions"].clone();
    let at = format!("{DEFINITIONS}/things.group.example.com");
    s.patch(&at, "merge", &json!({"spec": {"versions": versions}})).send().unwrap().expect(200).unwrap();
    eventually("the schema counts", || {
        let mut object = of("sentinel", &json!({"sentinel": "other"}));
        object["metadata"]["finalizers"] = json!(["unqualified-finalizer"]);
        object["metadata"]["labels"] = json!({"#inv/($%)/alid=": ">htt$://"});
        let told = apply(s, "sentinel", &object).unwrap_err();
        Ok(told.contains(&sentinel).then_some(()))
    })
    .unwrap();
}

#[test]
fn ratcheting() {
    let s = server();
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    s.create(DEFINITIONS, &definition(&anything)).unwrap();
    wait(&s);
    let mut turn = 0;
    // The object before the schema changed, the schema, the object after it; the places of faults.
    let mut check = |before: &Value, schema: &Value, after: &Value, faults: &[&str]| {
        turn += 1;
        change_schema(&s, &anything, 2 * turn);
        let name = format!("test-{turn}");
        apply(&s, &name, before).unwrap();
        change_schema(&s, schema, 2 * turn + 1);
        let mut labelled = of(&name, after);
        labelled["metadata"]["labels"] = json!({"foo": "bar"});
        match apply(&s, &name, &labelled) {
            Ok(()) => assert!(faults.is_empty(), "{turn}"),
            Err(told) => {
                assert!(!faults.is_empty(), "{turn}: {told}");
                for fault in faults {
                    assert!(told.contains(fault), "{turn}: {fault} is not in {told}");
                }
            }
        }
    };
    let one_of = |value: &str| everywhere(&json!({"type": "string", "enum": [value]}), false);
    let by_rule = |rule: Value, other: bool| {
        everywhere(&json!({"type": "string", "maxLength": 10, "x-kubernetes-validations": [rule]}), other)
    };
    let places = ["field", "struct.field", "list[0].field", "list[1].field"];
    let with = |more: [&'static str; 2]| -> Vec<&'static str> { places.into_iter().chain(more).collect() };
    let of_schema = with(["map.foo.field", "map.bar.field"]);
    let of_rules = with(["map[foo].field", "map[bar].field"]);

    // Errors of the schema: unchanged, and changed.
    check(&filled("foo"), &one_of("notfoo"), &filled("foo"), &[]);
    check(&filled("foo"), &one_of("foo"), &filled("notfoo"), &of_schema);
    // Items of lists that cannot be correlated.
    let lists = |values: &[&str]| json!({"setArray": values, "atomicArray": values});
    let list_schema = |item: Value| {
        let list = json!({"type": "array", "items": item});
        let mut set = list.clone();
        set["x-kubernetes-list-type"] = "set".into();
        json!({"type": "object", "properties": {"atomicArray": list, "setArray": set}})
    };
    let [old, new] = [&["foo", "bar", "baz"][..], &["foo", "bar", "baz", "notfoo"]].map(lists);
    let item = json!({"type": "string", "enum": ["notfoo", "notbar", "notbaz"]});
    check(&old, &list_schema(item), &new, &["atomicArray", "setArray"]);
    let item = json!({"type": "string", "x-kubernetes-validations": [{"rule": "self != \"foo\""}]});
    check(&old, &list_schema(item), &new, &["atomicArray", "setArray"]);
    // Errors of rules: unchanged beside new values, and changed.
    let is_foo = json!({"rule": "self == \"foo\""});
    let mut more = filled("notfoo");
    for at in ["", "/struct", "/map/foo", "/map/bar", "/list/0", "/list/1"] {
        more.pointer_mut(at).unwrap()["otherField"] = "doesntmatter".into();
    }
    let list = more["list"].as_array_mut().unwrap();
    list.push(json!({"key": "baz", "field": "foo", "otherField": "doesntmatter"}));
    check(&filled("notfoo"), &by_rule(is_foo.clone(), true), &more, &[]);
    check(&filled("foo"), &by_rule(is_foo, false), &filled("notfoo"), &of_rules);
    // Rules about changes are never passed over.
    check(&filled("foo"), &by_rule(json!({"rule": "self != oldSelf"}), false), &filled("foo"), &of_rules);
    let optional = json!({"rule": "!oldSelf.hasValue() || self != oldSelf.value()", "optionalOldSelf": true});
    check(&filled("foo"), &by_rule(optional.clone(), false), &filled("foo"), &of_rules);
    check(&filled("foo"), &by_rule(optional, false), &filled("new"), &[]);
}

/// A kind of a definition that is named as a built-in one (`crd_publish_openapi.go`).
#[test]
fn explain_of_a_kind_with_a_built_in_name() {
    let s = server();
    let spec = json!({
        "type": "object", "description": "Specification of CustomService",
        "properties": {"dummy": {"type": "string", "description": "Dummy property"}},
    });
    let schema = json!({"type": "object", "description": "CustomService", "properties": {"spec": spec}});
    let mut made = definition(&schema);
    made["metadata"]["name"] = "services.group.example.com".into();
    made["spec"]["names"] = json!({"plural": "services", "kind": "Service", "shortNames": ["ksvc"]});
    s.create(DEFINITIONS, &made).unwrap();
    let explained = eventually("explain", || Ok(s.kubectl(&["explain", "ksvc.spec"]).ok())).unwrap();
    for part in
        ["DESCRIPTION:", "Specification of CustomService", "FIELDS:", "dummy\t<string>", "Dummy property"]
    {
        assert!(explained.contains(part), "{explained}");
    }
}

/// Upstream's body has tabs and a comma too many, which YAML allows.
#[test]
fn apply_of_a_subresource() {
    let s = server();
    s.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}))
        .unwrap();
    let pods = "/api/v1/namespaces/default/pods/test-pod";
    let head = "{\n\t\t\t\t\"apiVersion\": \"v1\",\n\t\t\t\t\"kind\": \"Pod\",\n\t\t\t\t\"metadata\": {\n\t\t\t\t\t\"name\": \"test-pod\"\n\t\t\t\t},\n\t\t\t\t";
    let spec = format!(
        "{head}\"spec\": {{\n\t\t\t\t\t\"containers\": [{{\n\t\t\t\t\t\t\"name\":  \"nginx\",\n\t\t\t\t\t\t\"image\": \"nginx\",\n\t\t\t\t\t}}]\n\t\t\t\t}}\n\t\t\t}}"
    );
    let status =
        format!("{head}\"status\": {{\"conditions\": [{{\"type\": \"MyStatus\", \"status\":\"True\"}}]}}}}");
    let apply = |path: &str, manager: &str, body: &str| {
        let ask = s.request("PATCH", &format!("{path}?fieldManager={manager}"));
        ask.body("application/apply-patch+yaml", body).send().unwrap().json().unwrap()
    };
    let made = apply(pods, "apply_test", &spec);
    assert_eq!(made["spec"]["containers"][0]["image"], "nginx", "{made}");
    let has = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c| c["type"] == "MyStatus")
    };
    assert!(!has(&apply(pods, "apply_test2", &status)));
    assert!(has(&apply(&format!("{pods}/status"), "apply_test2", &status)));
}
