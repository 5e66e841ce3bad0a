//! Watches: their start, their events, and their end.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Server, Stream};

use crate::api::{MAPS, map, pod, server, version};

fn watch(s: &Server, query: &str) -> Stream {
    let stream = s.get(&format!("{MAPS}?watch=true{query}")).stream().unwrap();
    assert_eq!(stream.head.status, 200);
    stream
}

/// The event's type and its object's name.
fn seen(event: &Value) -> (&str, &str) {
    (event["type"].as_str().unwrap(), event["object"]["metadata"]["name"].as_str().unwrap_or_default())
}

#[test]
fn from_a_revision() {
    let s = server();
    let a = s.create(MAPS, &map("a")).unwrap();
    s.patch(&format!("{MAPS}/a"), "merge", &json!({"data": {"k": "w"}})).send().unwrap().expect(200).unwrap();
    s.request("DELETE", &format!("{MAPS}/a")).send().unwrap().expect(200).unwrap();
    let mut watch = watch(&s, &format!("&resourceVersion={}", version(&a)));
    assert_eq!(watch.head.header("content-type"), "application/json");
    let (modified, deleted) = (watch.json().unwrap(), watch.json().unwrap());
    assert_eq!((seen(&modified), seen(&deleted)), (("MODIFIED", "a"), ("DELETED", "a")));
    assert_eq!(deleted["object"]["data"]["k"], "w", "the last state");
    let number = |e: &Value| version(&e["object"]).parse::<u64>().unwrap();
    assert!(number(&deleted) > number(&modified), "at the revision of its end");
    s.create(MAPS, &map("b")).unwrap();
    assert_eq!(seen(&watch.json().unwrap()), ("ADDED", "b"));
}

#[test]
fn from_what_there_is() {
    let s = server();
    s.create(MAPS, &map("a")).unwrap();
    let of_ours = "&fieldSelector=metadata.name!=kube-root-ca.crt";
    let mut old = watch(&s, &format!("&resourceVersion=0{of_ours}"));
    assert_eq!(seen(&old.json().unwrap()), ("ADDED", "a"));
    let begin = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut new = watch(&s, &format!("{begin}{of_ours}"));
    assert_eq!(seen(&new.json().unwrap()), ("ADDED", "a"));
    let end = new.json().unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!((&end["object"]["kind"], &end["object"]["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    let refused =
        |query: &str| s.get(&format!("{MAPS}?watch=true{query}")).send().unwrap().expect(422).unwrap();
    refused("&sendInitialEvents=true");
    refused("&resourceVersionMatch=NotOlderThan");
}

#[test]
fn of_one_object_and_of_those_with_a_label() {
    let s = server();
    s.create(MAPS, &map("a")).unwrap();
    s.create(MAPS, &map("b")).unwrap();
    let mut one = s.get("/api/v1/watch/namespaces/default/configmaps/b").stream().unwrap();
    assert_eq!(seen(&one.json().unwrap()), ("ADDED", "b"));
    let mut same = watch(&s, "&fieldSelector=metadata.name=b&resourceVersion=0");
    assert_eq!(seen(&same.json().unwrap()), ("ADDED", "b"));
    let mut red = watch(&s, "&labelSelector=color=red");
    let label = |name: &str, color: &str| {
        let patch = json!({"metadata": {"labels": {"color": color}}});
        s.patch(&format!("{MAPS}/{name}"), "merge", &patch)
            .send()
            .unwrap()
            .expect(200)
            .unwrap()
            .json()
            .unwrap()
    };
    label("a", "red");
    label("b", "blue");
    let left = label("a", "blue");
    assert_eq!(seen(&red.json().unwrap()), ("ADDED", "a"));
    let gone = red.json().unwrap();
    assert_eq!(seen(&gone), ("DELETED", "a"));
    assert_eq!(gone["object"]["metadata"]["labels"]["color"], "red", "as it was while it was in");
    assert_eq!(version(&gone["object"]), version(&left), "at the revision of the change");
    assert_eq!(seen(&one.json().unwrap()), ("MODIFIED", "b"));
}

#[test]
fn they_end_in_time() {
    let s = server();
    let start = Instant::now();
    let mut watch = watch(&s, "&timeoutSeconds=1");
    assert_eq!(watch.line().unwrap(), None);
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[test]
fn they_end_with_the_server_and_go_on_with_it() {
    let mut s = server();
    let a = s.create(MAPS, &map("a")).unwrap();
    let query = format!("&resourceVersion={}", version(&a));
    let mut before = watch(&s, &query);
    s.create(MAPS, &map("b")).unwrap();
    assert_eq!(seen(&before.json().unwrap()), ("ADDED", "b"));
    s.restart().unwrap();
    // The connection is cut off, or ends in order.
    assert_eq!(before.line().unwrap(), None);
    // DIFFERENCE: upstream's watch cache begins empty, and answers an older revision with 410.
    let mut after = watch(&s, &query);
    assert_eq!(seen(&after.json().unwrap()), ("ADDED", "b"));
}

#[test]
fn in_every_form() {
    let s = server();
    let a = s.create(MAPS, &map("a")).unwrap();
    s.create(MAPS, &map("b")).unwrap();
    let from = format!("{MAPS}?watch=true&resourceVersion={}", version(&a));
    let mut table = s.get(&from).accept("application/json;as=Table;v=v1;g=meta.k8s.io").stream().unwrap();
    let event = table.json().unwrap();
    assert_eq!(event["object"]["kind"], "Table");
    assert_eq!(event["object"]["columnDefinitions"][1]["name"], "Data");
    assert_eq!(event["object"]["rows"][0]["cells"][0], "b");
    s.create(MAPS, &map("c")).unwrap();
    let event = table.json().unwrap();
    assert!(event["object"]["columnDefinitions"].is_null(), "said once is enough");
    let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let event = s.get(&from).accept(partial).stream().unwrap().json().unwrap();
    assert_eq!(event["object"]["kind"], "PartialObjectMetadata");
    assert!(event["object"].get("data").is_none());
    let proto = "application/vnd.kubernetes.protobuf;stream=watch";
    let mut frames = s.get(&from).accept(proto).stream().unwrap();
    assert_eq!(frames.head.header("content-type"), proto);
    let length = u32::from_be_bytes(frames.bytes(4).unwrap().try_into().unwrap());
    let frame = frames.bytes(length as usize).unwrap();
    assert!(frame.starts_with(b"\x0a\x05ADDED\x12"), "{frame:?}");
    assert!(frame.windows(4).any(|w| w == b"k8s\0"), "the object is wrapped as one alone is");
    s.get(&from).accept("text/html").send().unwrap().expect(406).unwrap();
}

#[test]
fn kubectl_waits_for_what_comes() {
    let s = server();
    s.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}))
        .unwrap();
    let path = "/api/v1/namespaces/default/pods";
    s.create(path, &pod("p")).unwrap();
    let wait =
        s.kubectl_command(&["wait", "pod/p", "--for=jsonpath={.status.phase}=Running", "--timeout=60s"]);
    let mut wait = { wait }.spawn().unwrap();
    let status = json!({"status": {"phase": "Running"}});
    s.patch(&format!("{path}/p/status"), "merge", &status).send().unwrap().expect(200).unwrap();
    assert!(wait.wait().unwrap().success());
}
