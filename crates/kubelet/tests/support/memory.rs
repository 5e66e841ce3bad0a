//! An API server in memory, as far as a kubelet uses one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use bytes::Bytes;
use client::{Call, EventKind, ListAnswer, Transport, Verb, WatchEvent};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::broadcast;

/// Resource, namespace, name.
pub(crate) type Key = (String, String, String);

/// Objects in memory, with lists and watches as far as a kubelet uses them.
pub(crate) struct Memory {
    state: Mutex<(u64, BTreeMap<Key, Value>)>,
    events: broadcast::Sender<(Key, EventKind, Value)>,
}

fn selected(call: &Call, key: &Key) -> bool {
    let field = call.query.iter().find(|(k, _)| k == "fieldSelector").map(|(_, v)| v.as_str());
    let name = field.and_then(|f| f.strip_prefix("metadata.name="));
    key.0 == call.resource.plural
        && (call.namespace.is_empty() || key.1 == call.namespace)
        && name.is_none_or(|n| key.2 == n)
}

fn merge(into: &mut Value, patch: &Value) {
    let (Some(target), Some(fields)) = (into.as_object_mut(), patch.as_object()) else {
        *into = patch.clone();
        return;
    };
    for (key, value) in fields {
        let by = match key.as_str() {
            "conditions" | "addresses" => "type",
            "podIPs" | "hostIPs" => "ip",
            _ => "",
        };
        if value.is_null() {
            target.remove(key);
        } else if let (false, Some(elements)) = (by.is_empty(), value.as_array()) {
            let list = target.entry(key.clone()).or_insert_with(|| json!([]));
            let Some(list) = list.as_array_mut() else { continue };
            if elements.iter().any(|e| e["$patch"] == "replace") {
                list.clear();
            }
            for element in elements.iter().filter(|e| e["$patch"] != "replace") {
                let at = list.iter().position(|e| e[by] == element[by]);
                match (at, element["$patch"] == "delete") {
                    (Some(i), true) => drop(list.remove(i)),
                    (Some(i), false) => merge(&mut list[i], element),
                    (None, true) => {}
                    (None, false) => list.push(element.clone()),
                }
            }
        } else if value.is_object() {
            merge(target.entry(key.clone()).or_insert_with(|| json!({})), value);
        } else {
            target.insert(key.clone(), value.clone());
        }
    }
}

impl Memory {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), events: broadcast::channel(4096).0 })
    }
    pub(crate) fn put(&self, key: Key, mut object: Value) -> Value {
        let mut state = self.state.lock();
        state.0 += 1;
        object["metadata"]["resourceVersion"] = json!(state.0.to_string());
        let kind = if state.1.insert(key.clone(), object.clone()).is_some() {
            EventKind::Modified
        } else {
            EventKind::Added
        };
        let _ = self.events.send((key, kind, object.clone()));
        object
    }
    pub(crate) fn remove(&self, key: &Key) -> Option<Value> {
        let mut state = self.state.lock();
        let mut object = state.1.remove(key)?;
        state.0 += 1;
        object["metadata"]["resourceVersion"] = json!(state.0.to_string());
        let _ = self.events.send((key.clone(), EventKind::Deleted, object.clone()));
        Some(object)
    }
    pub(crate) fn get(&self, plural: &str, name: &str) -> Option<Value> {
        let key = (plural.to_owned(), "default".to_owned(), name.to_owned());
        self.state.lock().1.get(&key).cloned()
    }
    /// An object of any resource.
    pub(crate) fn object(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = (plural.to_owned(), namespace.to_owned(), name.to_owned());
        self.state.lock().1.get(&key).cloned()
    }
    /// The objects of a resource, the oldest first.
    pub(crate) fn list(&self, plural: &str) -> Vec<Value> {
        let state = self.state.lock();
        state.1.iter().filter(|(key, _)| key.0 == plural).map(|(_, object)| object.clone()).collect()
    }
    pub(crate) fn create(&self, plural: &str, namespace: &str, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        self.put((plural.to_owned(), namespace.to_owned(), name), object);
    }
    pub(crate) fn pod(&self, name: &str, mut spec: Value) {
        spec["nodeName"] = json!("node");
        self.create(
            "pods",
            "default",
            json!({"metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}-{}", fastrand::u32(..)), "generation": 1},
                "spec": spec, "status": {"phase": "Pending"}}),
        );
    }
    /// The answer of the API server to a DELETE: the kubelet has the last word.
    pub(crate) fn delete_pod(&self, name: &str, grace: i64) {
        let Some(mut pod) = self.get("pods", name) else { return };
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        self.put(("pods".into(), "default".into(), name.into()), pod);
    }
    pub(crate) fn reasons(&self) -> Vec<String> {
        let state = self.state.lock();
        let events = state.1.iter().filter(|(k, _)| k.0 == "events");
        events
            .map(|(_, e)| format!("{} {} {}", e["involvedObject"]["name"], e["reason"], e["message"]))
            .collect()
    }
    pub(crate) async fn until(&self, name: &str, what: &str, test: impl Fn(Option<&Value>) -> bool) -> Value {
        let mut events = self.events.subscribe();
        let wait = async {
            loop {
                let pod = self.get("pods", name);
                if test(pod.as_ref()) {
                    return pod.unwrap_or_default();
                }
                let _ = events.recv().await;
            }
        };
        match tokio::time::timeout(Duration::from_mins(1), wait).await {
            Ok(pod) => pod,
            Err(tokio::time::error::Elapsed { .. }) => panic!(
                "{name}: not {what}\n{:#}\n{}",
                self.get("pods", name).unwrap_or_default()["status"],
                self.reasons().join("\n")
            ),
        }
    }
    pub(crate) async fn phase(&self, name: &str, phase: &str) -> Value {
        self.until(name, phase, |p| p.is_some_and(|p| p["status"]["phase"] == phase)).await
    }
}

impl Transport for Memory {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Bytes, Status>> {
        async move {
            let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
            let mut key =
                (call.resource.plural.to_string(), call.namespace.to_string(), call.name.to_string());
            let missing = || Status::not_found("", &call.resource.plural, &call.name);
            let answer = match (call.verb, call.subresource.as_str()) {
                (Verb::Create, "token") => json!({"metadata": {}, "spec": {"audiences": []},
                    "status": {"token": "secret-token", "expirationTimestamp": "2099-01-01T00:00:00Z"}}),
                (Verb::Create, _) => {
                    let mut body = body;
                    if let Some(begin) = body["metadata"]["generateName"].as_str() {
                        let name = format!("{begin}{}", self.state.lock().0);
                        body["metadata"]["name"] = json!(name);
                    }
                    body["metadata"]["name"].as_str().unwrap_or_default().clone_into(&mut key.2);
                    if self.state.lock().1.contains_key(&key) {
                        return Err(Status::already_exists("", &call.resource.plural, &key.2));
                    }
                    self.put(key, body)
                }
                (Verb::Get, _) => self.state.lock().1.get(&key).cloned().ok_or_else(missing)?,
                (Verb::StrategicPatch | Verb::MergePatch, _) => {
                    let mut object = self.state.lock().1.get(&key).cloned().ok_or_else(missing)?;
                    if object["metadata"]["uid"].is_string()
                        && body["metadata"]["uid"].is_string()
                        && object["metadata"]["uid"] != body["metadata"]["uid"]
                    {
                        return Err(Status::conflict("", "pods", &call.name, "uid"));
                    }
                    merge(&mut object, &body);
                    self.put(key, object)
                }
                (Verb::Update, _) => {
                    if !self.state.lock().1.contains_key(&key) {
                        return Err(missing());
                    }
                    self.put(key, body)
                }
                (Verb::Delete, _) => self.remove(&key).ok_or_else(missing)?,
                _ => return Err(Status::bad_request("not in memory")),
            };
            Ok(Bytes::from(answer.to_string()))
        }
        .boxed()
    }
    fn list(&self, call: Call) -> BoxFuture<'_, Result<ListAnswer, Status>> {
        async move {
            let state = self.state.lock();
            let items = state.1.iter().filter(|(key, _)| selected(&call, key));
            Ok(ListAnswer {
                resource_version: state.0.to_string(),
                continue_token: String::new(),
                items: items.map(|(_, o)| Bytes::from(o.to_string())).collect(),
            })
        }
        .boxed()
    }
    fn watch(
        &self,
        call: Call,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchEvent, Status>>, Status>> {
        async move {
            if call.query.iter().any(|(k, _)| k == "sendInitialEvents") {
                return Err(Status::failure(422, "Invalid", "sendInitialEvents is forbidden"));
            }
            let state = self.state.lock();
            let from: u64 = call
                .query
                .iter()
                .find(|(k, _)| k == "resourceVersion")
                .and_then(|(_, v)| v.parse().ok())
                .unwrap_or(0);
            // The changes between the list and this watch; a removal in between is not made up here.
            let missed: Vec<_> = state
                .1
                .iter()
                .filter(|(key, o)| selected(&call, key) && version(o) > from)
                .map(|(_, o)| WatchEvent { kind: EventKind::Modified, object: Bytes::from(o.to_string()) })
                .collect();
            let live = self.events.subscribe();
            let rest = futures::stream::unfold((live, call), |(mut live, call)| async move {
                loop {
                    let (key, kind, object) = live.recv().await.ok()?;
                    if selected(&call, &key) {
                        let event = WatchEvent { kind, object: Bytes::from(object.to_string()) };
                        return Some((event, (live, call)));
                    }
                }
            });
            Ok(futures::stream::iter(missed).chain(rest).map(Ok).boxed())
        }
        .boxed()
    }
    fn raw(&self, _: &str) -> BoxFuture<'_, Result<Bytes, Status>> {
        async { Err(Status::no_such_resource()) }.boxed()
    }
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).unwrap_or(0)
}
