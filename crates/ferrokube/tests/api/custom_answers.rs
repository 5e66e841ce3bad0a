//! Answers of kube-apiserver 1.36.2 about custom objects, recorded: one object with one field changed to values of every
//! type, as dry runs. A line of `custom_answers.jsonl` has the object (`whole` with its kind and version) and the code, and then the `spec` (and `status`)
//! after pruning and defaulting, or the message of the refusal.
//!
//! DIFFERENCE: cases are left out in which upstream's message has the order of a Go map; so are an integer written as
//! `1e3` in the metadata, which is refused here, and the metadata of an embedded object that is of another type, which is
//! refused with the other errors here (422) and before them there (400).

use serde_json::{Value, json};
use testkit::eventually;

use crate::api::server;

#[test]
fn answers_about_custom_objects_are_upstreams() {
    let s = server();
    let definition: Value = serde_json::from_str(include_str!("custom_answers_definition.json")).unwrap();
    s.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).unwrap();
    let objects = "/apis/crt.example.com/v1/namespaces/default/widgets";
    eventually("the definition is served", || Ok((s.get(objects).send()?.status == 200).then_some(())))
        .unwrap();
    let (mut asked, mut wrong) = (0, Vec::new());
    for line in include_str!("custom_answers.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let mut object = case["whole"].clone();
        if object.is_null() {
            object = case["object"].clone();
            object["apiVersion"] = json!("crt.example.com/v1");
            object["kind"] = json!("Widget");
        }
        let answer = s.request("POST", &format!("{objects}?dryRun=All")).json(&object).send().unwrap();
        let body = answer.json().unwrap();
        let same = match answer.status {
            201 => body["spec"] == case["spec"] && body["status"] == case["status"],
            _ => body["message"] == case["message"],
        };
        asked += 1;
        if u64::from(answer.status) != case["code"].as_u64().unwrap() || !same {
            wrong.push(format!("{line}\n  got {} {}", answer.status, body));
        }
    }
    assert!(asked > 400, "{asked}");
    assert!(wrong.is_empty(), "{} of {asked}:\n{}", wrong.len(), wrong.join("\n"));
}
