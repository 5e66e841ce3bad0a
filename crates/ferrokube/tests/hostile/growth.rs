//! Requests of the greatest size, made to cost more than their size: each is answered in the time of a request, and
//! others are answered meanwhile. The tests of `kinds` check how the cost of each step grows.

use std::thread;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::{Answer, Request, Server};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// The time that a request may take, in seconds.
const LIMIT: &str = "60";
/// The time in which others get their answers, in seconds, also from a debug build on a busy machine.
const PATIENCE: &str = "30";

fn within(request: Request, seconds: &str) -> Request {
    request.flag("--max-time").flag(seconds)
}

/// Sends an attack and returns its answer. Other clients are answered meanwhile.
fn attack(server: &Server, name: &str, request: Request) -> Result<Answer> {
    thread::scope(|scope| {
        let attack = scope.spawn(move || within(request, LIMIT).send());
        let mut asked = 0;
        while asked < 3 || !attack.is_finished() {
            within(server.get("/readyz"), PATIENCE).send()?.expect(200)?;
            within(server.get(&format!("{MAPS}/other")), PATIENCE).send()?.expect(200)?;
            asked += 1;
        }
        let answer = attack.join().unwrap().map_err(|e| e.context(name.to_owned()))?;
        ensure!(answer.body.len() < 8 << 20, "{name}: {} bytes", answer.body.len());
        Ok(answer)
    })
}

fn server() -> Result<Server> {
    let server = Server::start(&[])?;
    server.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}))?;
    server.create(MAPS, &map("other", json!({})))?;
    Ok(server)
}

fn map(name: &str, metadata: Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    object["metadata"]["name"] = json!(name);
    object
}

fn pod(name: &str, container: Value) -> Value {
    let mut container = container;
    container["name"] = json!("c");
    container["image"] = json!("i");
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [container], "automountServiceAccountToken": false},
    })
}

fn many(n: usize, f: impl Fn(usize) -> Value) -> Value {
    (0..n).map(f).collect()
}

#[test]
fn objects_with_very_many_parts() -> Result<()> {
    let server = server()?;
    let owner = |controller: bool| move |i: usize| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("p{i}"), "uid": format!("u{i}"), "controller": controller});
    let post = |path: &str, object: &Value| server.request("POST", path).json(object);
    for (name, path, object, expected) in [
        (
            "22,000 owners",
            MAPS,
            map("owners", json!({"ownerReferences": many(22_000, owner(false))})),
            &[201][..],
        ),
        (
            "22,000 controllers",
            MAPS,
            map("controllers", json!({"ownerReferences": many(22_000, owner(true))})),
            &[422],
        ),
        (
            "40,000 ports",
            PODS,
            pod("ports", json!({"ports": many(40_000, |_| json!({"containerPort": 80}))})),
            &[201],
        ),
        (
            "100,000 wrong labels",
            MAPS,
            map(
                "labels",
                json!({"labels": (0..100_000).map(|i| (format!("-{i}"), json!("!"))).collect::<serde_json::Map<_, _>>()}),
            ),
            &[422],
        ),
    ] {
        let answer = attack(&server, name, post(path, &object))?;
        ensure!(expected.contains(&answer.status), "{name}: {}", answer.status);
        if answer.status == 422 {
            let message = answer.json()?["message"].as_str().unwrap_or_default().to_owned();
            ensure!(
                message.ends_with(" more errors]"),
                "{name}: {}",
                message.chars().rev().take(80).collect::<String>()
            );
        }
    }
    // Once stored, an object with many owners is changed like any other.
    let change = json!({"data": {"k": "v"}});
    attack(&server, "a change", server.patch(&format!("{MAPS}/owners"), "merge", &change))?.expect(200)?;
    Ok(())
}

#[test]
fn patches_with_very_many_parts() -> Result<()> {
    let server = server()?;
    let finalizers = many(60_000, |i| json!(format!("x.io/f{i}")));
    server.create(MAPS, &map("list", json!({"finalizers": finalizers})))?;
    let list = format!("{MAPS}/list");
    let front_to_end =
        json!({"op": "move", "from": "/metadata/finalizers/0", "path": "/metadata/finalizers/-"});
    let moves = many(10_000, |_| front_to_end.clone());
    attack(&server, "10,000 moves", server.patch(&list, "json", &moves))?.expect(200)?;
    let taken = many(10_000, |_| json!({"op": "remove", "path": "/metadata/finalizers/0"}));
    let answer =
        attack(&server, "10,000 removals", server.patch(&list, "json", &taken))?.expect(200)?.json()?;
    ensure!(answer["metadata"]["finalizers"].as_array().map(Vec::len) == Some(50_000));
    let turned = many(20_000, |i| json!(format!("x.io/f{}", 59_999 - i)));
    let merge = json!({"metadata": {"finalizers": turned, "$setElementOrder/finalizers": turned}});
    attack(&server, "a strategic merge of 20,000", server.patch(&list, "strategic-merge", &merge))?;
    server.create(PODS, &pod("env", json!({})))?;
    let env = many(20_000, |i| json!({"name": format!("E{i}"), "value": "x"}));
    let merge = json!({"spec": {"containers": [{"name": "c", "env": env}]}});
    attack(&server, "20,000 variables", server.patch(&format!("{PODS}/env"), "strategic-merge", &merge))?;
    Ok(())
}

#[test]
fn appliers_and_managers_without_number() -> Result<()> {
    let server = server()?;
    let manager = |i: usize| {
        json!({
            "manager": format!("m{i}"), "operation": "Update", "apiVersion": format!("v{i}"), "fieldsType": "FieldsV1",
            "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:data": {format!("f:k{i}"): {}}},
        })
    };
    let post =
        server.request("POST", MAPS).json(&map("managers", json!({"managedFields": many(12_000, manager)})));
    attack(&server, "12,000 managers", post)?.expect(201)?;
    let data: serde_json::Map<String, Value> = (0..20_000).map(|i| (format!("k{i}"), json!("x"))).collect();
    let path = format!("{MAPS}/applied?fieldManager=one");
    let mut object = map("applied", json!({}));
    object["data"] = json!(data);
    attack(&server, "20,000 fields", server.patch(&path, "apply", &object))?.expect(201)?;
    for value in object["data"].as_object_mut().unwrap().values_mut() {
        *value = json!("y");
    }
    let path = format!("{MAPS}/applied?fieldManager=two");
    let refused =
        attack(&server, "20,000 conflicts", server.patch(&path, "apply", &object))?.expect(409)?.json()?;
    ensure!(
        refused["message"].as_str().is_some_and(|m| m.ends_with("and 19000 more")),
        "{}",
        refused["code"]
    );
    Ok(())
}
