//! Conversion of custom resources by a webhook, as clients see it.

use serde_json::{Value, json};
use testkit::{Question, Reply, Server, Webhook, eventually};

use crate::api::server;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const NAME: &str = "things.conversion.example.com";

fn version(name: &str, field: &str, stored: bool) -> Value {
    json!({
        "name": name, "served": true, "storage": stored,
        "selectableFields": [{"jsonPath": format!(".spec.{field}")}],
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
            "type": "object",
            "properties": {field: {"type": "string"}, "color": {"type": "string", "default": "red"}},
        }}}},
    })
}

/// A definition whose field `host` is `address` in `v2`; `v1` is stored.
fn definition(hook: &Webhook, review: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": "conversion.example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [version("v1", "host", true), version("v2", "address", false)],
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": hook.client_config("/convert"), "conversionReviewVersions": [review],
            }},
        },
    })
}

/// The answer of a webhook that is as it should be.
fn converted(question: &Question) -> Value {
    let (review, request) = (&question.body, &question.body["request"]);
    let to = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let (old, new) = if to.ends_with("v2") { ("host", "address") } else { ("address", "host") };
    let objects = request["objects"].as_array().into_iter().flatten().map(|object| {
        let mut object = object.clone();
        object["apiVersion"] = to.into();
        if let Some(spec) = object["spec"].as_object_mut()
            && let Some(value) = spec.remove(old)
        {
            spec.insert(new.to_owned(), value);
        }
        object["metadata"]["annotations"] = json!({"converted": "yes"});
        object["metadata"]["generation"] = json!(77);
        object
    });
    json!({
        "apiVersion": review["apiVersion"], "kind": "ConversionReview",
        "response": {
            "uid": request["uid"], "result": {"status": "Success"},
            "convertedObjects": objects.collect::<Vec<_>>(),
        },
    })
}

fn wait_for(s: &Server, check: impl Fn(&Value) -> bool) {
    eventually("the definition is as it should be", || {
        let found = s.get(&format!("{DEFINITIONS}/{NAME}")).send()?.json()?;
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let established = conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True");
        Ok((established && check(&found)).then_some(()))
    })
    .unwrap();
}

fn path(version: &str, rest: &str) -> String {
    format!("/apis/conversion.example.com/{version}/namespaces/default/things{rest}")
}

fn thing(version: &str, name: &str, field: &str) -> Value {
    json!({
        "apiVersion": format!("conversion.example.com/{version}"), "kind": "Thing",
        "metadata": {"name": name}, "spec": {field: name},
    })
}

#[test]
fn objects_are_read_and_written_in_every_version() {
    for review in ["v1", "v1beta1"] {
        let s = &server();
        let hook = Webhook::start(|question| Reply::Json(converted(question))).unwrap();
        s.create(DEFINITIONS, &definition(&hook, review)).unwrap();
        wait_for(s, |_| true);
        let made = s.create(&path("v2", ""), &thing("v2", "a", "address")).unwrap();
        assert_eq!(made["spec"], json!({"address": "a", "color": "red"}));
        assert_eq!(made["metadata"]["generation"], 1, "a webhook changes labels and annotations alone");
        let stored = s.get(&path("v1", "/a")).send().unwrap().expect(200).unwrap().json().unwrap();
        assert_eq!(stored["spec"], json!({"host": "a", "color": "red"}));
        assert_eq!(stored["metadata"]["annotations"]["converted"], "yes");
        let asked = hook.asked();
        assert!(asked.iter().all(|q| q.path == "/convert?timeout=30s"));
        assert!(asked.iter().all(|q| q.body["apiVersion"] == format!("apiextensions.k8s.io/{review}")));
        for name in ["b", "c"] {
            s.create(&path("v1", ""), &thing("v1", name, "host")).unwrap();
        }
        let before = hook.asked().len();
        let list = s.get(&path("v2", "")).send().unwrap().expect(200).unwrap().json().unwrap();
        let items = list["items"].as_array().unwrap();
        assert!(items.iter().all(|i| i["spec"]["address"] == i["metadata"]["name"]), "{list}");
        assert_eq!((items.len(), hook.asked().len() - before), (3, 1), "one question for a list");
        let selected = s.get(&path("v2", "?fieldSelector=spec.address%3Db")).send().unwrap();
        let selected = selected.expect(200).unwrap().json().unwrap();
        assert_eq!(selected["items"].as_array().unwrap().len(), 1);
        let patch = json!({"spec": {"address": "z"}});
        let patched = s.patch(&path("v2", "/b"), "merge", &patch).send().unwrap().expect(200).unwrap();
        assert_eq!(patched.json().unwrap()["spec"]["address"], "z");
        let applied =
            s.patch(&path("v2", "/c?fieldManager=me&force=true"), "apply", &thing("v2", "c", "address"));
        assert_eq!(applied.send().unwrap().expect(200).unwrap().json().unwrap()["spec"]["address"], "c");
        assert!(hook.connections() < hook.asked().len() / 2, "connections are kept");
    }
}

#[test]
fn watches_are_converted_and_the_stored_version_may_change() {
    let s = &server();
    let hook = Webhook::start(|question| Reply::Json(converted(question))).unwrap();
    let mut definition = definition(&hook, "v1");
    s.create(DEFINITIONS, &definition).unwrap();
    wait_for(s, |_| true);
    s.create(&path("v1", ""), &thing("v1", "a", "host")).unwrap();
    let mut watch = s.get(&path("v2", "?watch=true&resourceVersion=0")).stream().unwrap();
    let first = watch.json().unwrap();
    assert_eq!((&first["type"], &first["object"]["spec"]["address"]), (&json!("ADDED"), &json!("a")));
    s.create(&path("v1", ""), &thing("v1", "b", "host")).unwrap();
    assert_eq!(watch.json().unwrap()["object"]["spec"]["address"], "b");
    s.request("DELETE", &path("v1", "/b")).send().unwrap().expect(200).unwrap();
    let gone = watch.json().unwrap();
    assert_eq!((&gone["type"], &gone["object"]["spec"]["address"]), (&json!("DELETED"), &json!("b")));

    definition["spec"]["versions"] = json!([version("v1", "host", false), version("v2", "address", true)]);
    let patch = json!({"spec": {"versions": definition["spec"]["versions"]}});
    s.patch(&format!("{DEFINITIONS}/{NAME}"), "merge", &patch).send().unwrap().expect(200).unwrap();
    wait_for(s, |d| d["status"]["storedVersions"] == json!(["v1", "v2"]));
    s.create(&path("v2", ""), &thing("v2", "n", "address")).unwrap();
    for (of, field) in [("v1", "host"), ("v2", "address")] {
        let list = s.get(&path(of, "")).send().unwrap().expect(200).unwrap().json().unwrap();
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), 2, "{list}");
        assert!(items.iter().all(|i| i["spec"][field] == i["metadata"]["name"]), "{list}");
        assert!(items.iter().all(|i| i["apiVersion"] == format!("conversion.example.com/{of}")), "{list}");
    }
    s.request("DELETE", &format!("{DEFINITIONS}/{NAME}")).send().unwrap().expect(200).unwrap();
    eventually("the definition is gone", || {
        Ok((s.get(&format!("{DEFINITIONS}/{NAME}")).send()?.status == 404).then_some(()))
    })
    .unwrap();
}

#[test]
fn watchers_share_what_was_converted() {
    let s = &server();
    let hook = Webhook::start(|question| Reply::Json(converted(question))).unwrap();
    s.create(DEFINITIONS, &definition(&hook, "v1")).unwrap();
    wait_for(s, |_| true);
    let watch = |_| s.get(&path("v2", "?watch=true")).stream().unwrap();
    let mut watches: Vec<_> = (0..8).map(watch).collect();
    let before = hook.asked().len();
    for name in ["a", "b", "c"] {
        s.create(&path("v1", ""), &thing("v1", name, "host")).unwrap();
        for watch in &mut watches {
            assert_eq!(watch.json().unwrap()["object"]["spec"]["address"], name);
        }
    }
    assert_eq!(hook.asked().len() - before, 3, "one question for each object, whoever watches");
}
