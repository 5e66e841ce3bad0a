//! Custom resources, as clients see them.

use serde_json::{Value, json};
use testkit::{Server, eventually};

use crate::api::server;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The schema of a widget.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "x-kubernetes-validations": [
                    {"rule": "self.size <= self.most", "message": "size must not exceed most"},
                ],
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "default": 3},
                    "most": {"type": "integer", "default": 10},
                    "color": {"type": "string", "enum": ["red", "blue"]},
                    "replicas": {"type": "integer"},
                    "ports": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {"name": {"type": "string"}, "port": {"type": "integer"}},
                        },
                    },
                },
            },
            "status": {
                "type": "object",
                "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}},
            },
        },
    })
}

/// A definition of a group of its own; `change` makes it what a test needs.
fn definition(group: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Port", "type": "integer", "jsonPath": ".spec.ports[?(@.name==\"web\")].port"},
                ],
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "schema": {"openAPIV3Schema": schema()},
            }],
        },
    });
    change(&mut definition);
    definition
}

/// Makes a definition and waits until it is served; returns the path of its objects.
pub(super) fn defined(s: &Server, group: &str, change: impl FnOnce(&mut Value)) -> String {
    s.create(DEFINITIONS, &definition(group, change)).unwrap();
    let path = format!("{DEFINITIONS}/widgets.{group}");
    eventually("the definition is established", || {
        let found = s.get(&path).send()?.json()?;
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        Ok(conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True").then_some(()))
    })
    .unwrap();
    format!("/apis/{group}/v1/namespaces/default/widgets")
}

fn widget(group: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

#[test]
fn objects_are_pruned_defaulted_and_validated() {
    let (s, group) = (&server(), "pruned.example.com");
    let path = defined(s, group, |_| {});
    let made = s.create(&path, &widget(group, "a", &json!({"color": "red", "bogus": 1}))).unwrap();
    assert_eq!(made["spec"], json!({"color": "red", "size": 3, "most": 10}));
    assert_eq!(made["metadata"]["generation"], 1);
    let refused = |name: &str, spec: Value, query: &str, code: u16, texts: &[&str]| {
        let body = widget(group, name, &spec).to_string();
        let answer = s
            .request("POST", &format!("{path}{query}"))
            .body("application/json", body)
            .send()
            .unwrap()
            .expect(code)
            .unwrap()
            .text();
        for text in texts {
            assert!(answer.contains(text), "{text}: {answer}");
        }
    };
    refused(
        "b",
        json!({"color": "green", "size": "x"}),
        "",
        422,
        &[
            r#"spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\""#,
            r#"spec.size in body must be of type integer: \"string\""#,
            "some validation rules were not checked",
        ],
    );
    refused("b", json!({"size": 11}), "", 422, &["spec: Invalid value: size must not exceed most"]);
    refused("b", json!({"bogus": 1}), "?fieldValidation=Strict", 400, &[r#"unknown field \"spec.bogus\""#]);
    refused("b", json!({"ports": [{"name": "x"}, {"name": "x"}]}), "", 422, &["Duplicate value"]);
    // Protobuf and strategic patches have no meaning here.
    let one = format!("{path}/a");
    s.patch(&one, "strategic-merge", &json!({})).send().unwrap().expect(415).unwrap();
    s.get(&one).accept("application/vnd.kubernetes.protobuf").send().unwrap().expect(406).unwrap();
}

#[test]
fn status_scale_columns_and_selectors() {
    let (s, group) = (&server(), "parts.example.com");
    let path = defined(s, group, |_| {});
    let spec = json!({"color": "blue", "replicas": 2, "ports": [{"name": "dns", "port": 53}, {"name": "web", "port": 80}]});
    s.create(&path, &widget(group, "a", &spec)).unwrap();
    s.create(&path, &widget(group, "b", &json!({"color": "red"}))).unwrap();
    let merge = "merge";
    let status = json!({"status": {"replicas": 1, "selector": "a=b"}, "spec": {"replicas": 9}});
    let after = s.patch(&format!("{path}/a/status"), merge, &status).send().unwrap().expect(200).unwrap();
    let after = after.json().unwrap();
    assert_eq!((&after["spec"]["replicas"], &after["status"]["replicas"]), (&json!(2), &json!(1)));
    assert_eq!(after["metadata"]["generation"], 1, "a status is no change of the object");
    let scale = s.get(&format!("{path}/a/scale")).send().unwrap().json().unwrap();
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["selector"]), (&json!(2), &json!("a=b")));
    s.patch(&format!("{path}/a/scale"), merge, &json!({"spec": {"replicas": 5}}))
        .send()
        .unwrap()
        .expect(200)
        .unwrap();
    assert_eq!(s.get(&format!("{path}/a")).send().unwrap().json().unwrap()["metadata"]["generation"], 2);
    // An object without a number of replicas has no Scale until it gets one.
    let of_b = format!("{path}/b/scale");
    let status = |answer: testkit::Answer| answer.json().unwrap()["message"].clone();
    let none = s.get(&of_b).send().unwrap().expect(500).unwrap();
    let why = r#"Internal error occurred: the spec replicas field ".spec.replicas" does not exist"#;
    assert_eq!(status(none), why);
    let empty = r#"the spec replicas field ".spec.replicas" cannot be empty"#;
    let config = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "b"}});
    for (kind, query, patch) in [("merge", "", json!({})), ("apply", "?fieldManager=t", config)] {
        let answer = s.patch(&format!("{of_b}{query}"), kind, &patch).send().unwrap().expect(400).unwrap();
        assert_eq!(status(answer), empty);
    }
    let negative =
        s.patch(&of_b, merge, &json!({"spec": {"replicas": -1}})).send().unwrap().expect(422).unwrap();
    let negative = status(negative);
    assert!(
        negative
            .as_str()
            .unwrap()
            .ends_with(".spec.replicas: Invalid value: -1: should be a non-negative integer"),
        "{negative}"
    );
    let scaled =
        s.patch(&of_b, merge, &json!({"spec": {"replicas": 3}})).send().unwrap().expect(200).unwrap();
    assert_eq!(scaled.json().unwrap()["spec"]["replicas"], 3);
    let table = s.get(&path).accept("application/json;as=Table;v=v1;g=meta.k8s.io").send().unwrap();
    let table = table.json().unwrap();
    assert_eq!(table["rows"][0]["cells"], json!(["a", 3, 80]));
    let selected = s.get(&format!("{path}?fieldSelector=spec.color%3Dred")).send().unwrap().json().unwrap();
    let names: Vec<&Value> =
        selected["items"].as_array().unwrap().iter().map(|i| &i["metadata"]["name"]).collect();
    assert_eq!(names, ["b"]);
    // A configuration merges by the keys of the definition's lists.
    let config = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": "a"},
        "spec": {"ports": [{"name": "web", "port": 81}]},
    });
    s.patch(&format!("{path}/a?fieldManager=t&force=true"), "apply", &config)
        .send()
        .unwrap()
        .expect(200)
        .unwrap();
    let ports = s.get(&format!("{path}/a")).send().unwrap().json().unwrap()["spec"]["ports"].clone();
    assert_eq!(ports, json!([{"name": "dns", "port": 53}, {"name": "web", "port": 81}]));
}

#[test]
fn objects_follow_their_definition() {
    let (s, group) = (&server(), "changes.example.com");
    let path = defined(s, group, |_| {});
    s.create(&path, &widget(group, "a", &json!({"color": "red"}))).unwrap();
    // Another version is stored from now on, and the schema has one default more.
    let of = format!("{DEFINITIONS}/widgets.{group}");
    let mut definition = s.get(&of).send().unwrap().json().unwrap();
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    // Selectable fields that all versions share would have to come with one schema.
    second["selectableFields"] = json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}]);
    second["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["shape"] =
        json!({"type": "string", "default": "round"});
    definition["spec"]["versions"][0]["storage"] = false.into();
    definition["spec"]["versions"].as_array_mut().unwrap().push(second);
    s.request("PUT", &of)
        .body("application/json", definition.to_string())
        .send()
        .unwrap()
        .expect(200)
        .unwrap();
    let new = path.replace("/v1/", "/v2/");
    let read = eventually("v2 is served", || {
        let answer = s.get(&format!("{new}/a")).send()?;
        (answer.status == 200).then(|| answer.json()).transpose()
    })
    .unwrap();
    assert_eq!(read["apiVersion"], format!("{group}/v2"));
    let made = s
        .create(&new, &json!({"apiVersion": format!("{group}/v2"), "kind": "Widget", "metadata": {"name": "b"}, "spec": {}}))
        .unwrap();
    assert_eq!(made["spec"]["shape"], "round");
    let old = s.get(&format!("{path}/b")).send().unwrap().json().unwrap();
    assert_eq!((&old["apiVersion"], old["spec"].get("shape")), (&json!(format!("{group}/v1")), None));
    let stored = s.get(&of).send().unwrap().json().unwrap()["status"]["storedVersions"].clone();
    assert_eq!(stored, json!(["v1", "v2"]));
    let document = s.get(&format!("/openapi/v3/apis/{group}/v2")).send().unwrap().expect(200).unwrap();
    assert!(document.text().contains("\"shape\""));
    // With the definition go its objects, its documents and its paths.
    s.request("DELETE", &of).send().unwrap().expect(200).unwrap();
    eventually("the definition is gone", || Ok((s.get(&of).send()?.status == 404).then_some(()))).unwrap();
    s.get(&path).send().unwrap().expect(404).unwrap();
    s.get(&format!("/openapi/v3/apis/{group}/v2")).send().unwrap().expect(404).unwrap();
}

#[test]
fn names_that_are_taken_are_not_accepted() {
    let (s, group) = (&server(), "names.example.com");
    defined(s, group, |_| {});
    let other = definition(group, |d| {
        d["metadata"]["name"] = format!("gadgets.{group}").into();
        d["spec"]["names"] =
            json!({"plural": "gadgets", "singular": "gadget", "kind": "Widget", "listKind": "GadgetList"});
    });
    s.create(DEFINITIONS, &other).unwrap();
    let of = format!("{DEFINITIONS}/gadgets.{group}");
    let condition = eventually("the names are looked at", || {
        let found = s.get(&of).send()?.json()?;
        let all = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        Ok(all.into_iter().find(|c| c["type"] == "NamesAccepted"))
    })
    .unwrap();
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("KindConflict")));
    assert_eq!(condition["message"], "\"Widget\" is already in use");
    let gadgets = format!("/apis/{group}/v1/gadgets");
    s.get(&gadgets).send().unwrap().expect(404).unwrap();
    // The name is free once the other definition is gone.
    s.request("DELETE", &format!("{DEFINITIONS}/widgets.{group}")).send().unwrap().expect(200).unwrap();
    eventually("the names are given away", || Ok((s.get(&gadgets).send()?.status == 200).then_some(())))
        .unwrap();
    let accepted = s.get(&of).send().unwrap().json().unwrap()["status"]["acceptedNames"].clone();
    assert_eq!(accepted["kind"], "Widget");
    s.request("DELETE", &of).send().unwrap().expect(200).unwrap();
}

#[test]
fn clients_are_told_and_warned() {
    let (s, group) = (&server(), "told.example.com");
    let path = defined(s, group, |d| {
        let mut second = d["spec"]["versions"][0].clone();
        second["name"] = "v2".into();
        (second["storage"], second["deprecated"]) = (false.into(), false.into());
        d["spec"]["versions"][0]["deprecated"] = true.into();
        let spec = &mut d["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        spec["properties"]["either"] = json!({"x-kubernetes-int-or-string": true});
        second["selectableFields"] = json!([{"jsonPath": ".spec.size"}]);
        d["spec"]["versions"].as_array_mut().unwrap().push(second);
    });
    let deprecated = format!("299 - \"{group}/v1 Widget is deprecated; use {group}/v2 Widget\"");
    let answer = s.get(&path).send().unwrap().expect(200).unwrap();
    assert_eq!(answer.all("warning").collect::<Vec<_>>(), [deprecated.as_str()]);
    let current = s.get(&path.replace("/v1/", "/v2/")).send().unwrap().expect(200).unwrap();
    assert_eq!(current.all("warning").count(), 0);
    // Documents name the fields by which objects are selected, and say what is an integer or a string.
    let kind = "com.example.told.v1.Widget";
    let v3 = s.get(&format!("/openapi/v3/apis/{group}/v1")).send().unwrap().json().unwrap();
    let v3 = &v3["components"]["schemas"][kind];
    let v2 = eventually("the definition is in v2", || {
        let found = s.get("/openapi/v2").send()?.json()?["definitions"][kind].clone();
        Ok(found.is_object().then_some(found))
    })
    .unwrap();
    for document in [v3, &v2] {
        assert_eq!(document["x-kubernetes-selectable-fields"], json!([{"fieldPath": "spec.color"}]));
    }
    let spec = |of: &Value| of["properties"]["spec"]["properties"].clone();
    let either = json!({"x-kubernetes-int-or-string": true});
    assert_eq!(spec(&v2)["either"], either);
    assert_eq!(spec(v3)["either"]["anyOf"], json!([{"type": "integer"}, {"type": "string"}]));
    // Defaults are told in v3 alone.
    assert_eq!(spec(v3)["size"], json!({"type": "integer", "minimum": 1, "default": 3}));
    assert_eq!(spec(&v2)["size"], json!({"type": "integer", "minimum": 1}));
    // Where nothing has changed, a rule that came later only warns.
    s.create(&path, &widget(group, "a", &json!({"size": 3}))).unwrap();
    let of = format!("{DEFINITIONS}/widgets.{group}");
    let mut definition = s.get(&of).send().unwrap().json().unwrap();
    for version in definition["spec"]["versions"].as_array_mut().unwrap() {
        let spec = &mut version["schema"]["openAPIV3Schema"]["properties"]["spec"];
        spec["x-kubernetes-validations"] = json!([{"rule": "self.size > 5", "message": "too small"}]);
    }
    s.request("PUT", &of)
        .body("application/json", definition.to_string())
        .send()
        .unwrap()
        .expect(200)
        .unwrap();
    let one = format!("{}/a", path.replace("/v1/", "/v2/"));
    let label = |n: usize| json!({"metadata": {"labels": {"n": n.to_string()}}});
    let mut tries = 0;
    eventually("the new rule is asked", || {
        tries += 1;
        let answer = s.patch(&one, "merge", &label(tries)).send()?.expect(200)?;
        let warnings: Vec<&str> = answer.all("warning").collect();
        Ok((warnings == [r#"299 - "spec: Invalid value: too small""#]).then_some(()))
    })
    .unwrap();
    let changed = json!({"spec": {"size": 4}});
    s.patch(&one, "merge", &changed).send().unwrap().expect(422).unwrap();
    // The manager of a status does not get the object's metadata.
    let status = json!({
        "apiVersion": format!("{group}/v2"), "kind": "Widget",
        "metadata": {"name": "a", "labels": {"mine": "yes"}}, "status": {"replicas": 1},
    });
    let applied = s.patch(&format!("{one}/status?fieldManager=state&force=true"), "apply", &status);
    let applied = applied.send().unwrap().expect(200).unwrap().json().unwrap();
    assert_eq!(applied["metadata"]["labels"].get("mine"), None);
    let managers = applied["metadata"]["managedFields"].as_array().unwrap();
    let state = managers.iter().find(|m| m["manager"] == "state").unwrap();
    assert_eq!(state["fieldsV1"], json!({"f:status": {"f:replicas": {}}}));
}

#[test]
fn objects_go_with_a_definition_that_serves_none() {
    let s = &server();
    let group = "unserved.example.com";
    let path = defined(s, group, |_| {});
    let definition_path = format!("{DEFINITIONS}/widgets.{group}");
    s.create(&path, &widget(group, "plain", &json!({"size": 1}))).unwrap();
    let mut held = widget(group, "held", &json!({"size": 1}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    s.create(&path, &held).unwrap();
    let serve = |served: bool| {
        let patch = json!([{"op": "replace", "path": "/spec/versions/0/served", "value": served}]);
        s.patch(&definition_path, "json", &patch).send().unwrap().expect(200).unwrap();
        eventually("the objects are served or not", || {
            let status = s.get(&path).send()?.status;
            Ok((status == if served { 200 } else { 404 }).then_some(()))
        })
        .unwrap();
    };
    serve(false);
    s.request("DELETE", &definition_path).send().unwrap().expect(200).unwrap();
    serve(true);
    let left = eventually("only what is held is left", || {
        let list = s.get(&path).send()?.json()?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        Ok((items.len() == 1).then(|| items[0].clone()))
    })
    .unwrap();
    assert_eq!(left["metadata"]["name"], "held");
    assert!(left["metadata"]["deletionTimestamp"].is_string(), "{left}");
    let discovered = s.get(&format!("/apis/{group}/v1")).send().unwrap().json().unwrap();
    let widgets = discovered["resources"].as_array().unwrap().iter().find(|r| r["name"] == "widgets");
    assert_eq!(widgets.unwrap()["verbs"], json!(["delete", "deletecollection", "get", "list", "watch"]));
    let release = json!({"metadata": {"finalizers": null}});
    s.patch(&format!("{path}/held"), "merge", &release).send().unwrap().expect(200).unwrap();
    eventually(
        "the definition is gone",
        || Ok((s.get(&definition_path).send()?.status == 404).then_some(())),
    )
    .unwrap();
    let path = defined(s, group, |_| {});
    let list = s.get(&path).send().unwrap().json().unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 0, "{list}");
}

#[test]
fn definitions_that_are_wrong_are_refused() {
    let s = &server();
    let check = |group: &str, change: fn(&mut Value), expected: &[&str]| {
        let answer = s
            .request("POST", DEFINITIONS)
            .body("application/json", definition(group, change).to_string())
            .send()
            .unwrap();
        let status = answer.expect(422).unwrap().json().unwrap();
        let message = status["message"].as_str().unwrap();
        for text in expected {
            assert!(message.contains(text), "{message}");
        }
    };
    fn spec(d: &mut Value) -> &mut Value {
        &mut d["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    }
    check(
        "rules.example.com",
        |d| spec(d)["x-kubernetes-validations"][0]["rule"] = "self.sise <= self.most".into(),
        &["x-kubernetes-validations[0].rule", "undefined field 'sise'"],
    );
    check(
        "costs.example.com",
        |d| {
            let ports = &mut spec(d)["properties"]["ports"];
            let rule = "self.all(p, self.all(q, p.name != q.name || p.port == q.port))";
            ports["x-kubernetes-validations"] = json!([{"rule": rule}]);
        },
        &["estimated rule cost exceeds budget by factor of more than 100x"],
    );
    check(
        "defaults.example.com",
        |d| spec(d)["properties"]["size"]["default"] = 0.into(),
        &["properties[size].default: Invalid value: 0", "should be greater than or equal to 1"],
    );
    check(
        "selectable.example.com",
        |d| d["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.ports"}]),
        &["must point to a field of type string, boolean or integer"],
    );
    // A path of a column that is none is taken, as upstream does; nothing of it is shown.
    let path = defined(s, "columns.example.com", |d| {
        let column = json!({"name": "Odd", "type": "string", "jsonPath": ".a['\\"});
        d["spec"]["versions"][0]["additionalPrinterColumns"] = json!([column]);
    });
    s.create(&path, &widget("columns.example.com", "a", &json!({"size": 1}))).unwrap();
}

#[test]
fn a_definition_of_a_built_in_resource_is_not_served() {
    let s = &server();
    let mut wanted = definition("networking.k8s.io", |d| {
        d["metadata"]["name"] = "networkpolicies.networking.k8s.io".into();
        d["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, a test"});
        d["spec"]["names"] =
            json!({"plural": "networkpolicies", "singular": "x", "kind": "X", "listKind": "XList"});
        d["spec"]["versions"][0]["name"] = "v9".into();
    });
    s.create(DEFINITIONS, &wanted).unwrap();
    let path = format!("{DEFINITIONS}/networkpolicies.networking.k8s.io");
    eventually("its names are not accepted", || {
        let found = s.get(&path).send()?.json()?;
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let refused = |c: &Value| c["type"] == "NamesAccepted" && c["reason"] == "PluralConflict";
        Ok(conditions.iter().any(refused).then_some(()))
    })
    .unwrap();
    assert_eq!(s.get("/apis/networking.k8s.io/v9/networkpolicies").send().unwrap().status, 404);
    // Nobody approved this one.
    wanted["metadata"]["name"] = "others.networking.k8s.io".into();
    wanted["spec"]["names"]["plural"] = "others".into();
    wanted["metadata"]["annotations"] = Value::Null;
    let answer = s
        .request("POST", DEFINITIONS)
        .body("application/json", wanted.to_string())
        .send()
        .unwrap()
        .expect(422)
        .unwrap()
        .json()
        .unwrap();
    assert!(answer["message"].as_str().unwrap().contains("protected groups must have approval annotation"));
    s.request("DELETE", &path).send().unwrap().expect(200).unwrap();
}
