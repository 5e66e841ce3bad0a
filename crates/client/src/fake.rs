//! A server for tests: watches and lists answered from a script, single objects kept in memory.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use api::Status;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::transport::{Call, EventKind, ListAnswer, Transport, Verb, WatchEvent};

/// How the next watch is answered.
pub(crate) enum Script {
    /// Refused.
    Refuse(Status),
    /// Events; then it ends, or stays open.
    Events { events: Vec<Result<WatchEvent, Status>>, open: bool },
}

#[derive(Default)]
pub(crate) struct Fake {
    pub(crate) watches: Mutex<VecDeque<Script>>,
    pub(crate) lists: Mutex<VecDeque<Result<ListAnswer, Status>>>,
    /// Every request, as verb and query.
    pub(crate) seen: Mutex<Vec<(Verb, HashMap<String, String>)>>,
    objects: Mutex<HashMap<String, Value>>,
    revision: Mutex<u64>,
    /// Whether single-object requests fail.
    pub(crate) broken: Mutex<bool>,
    /// Whether they are not answered at all.
    pub(crate) silent: Mutex<bool>,
}

impl Fake {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }
    fn note(&self, call: &Call) {
        let query = call.query.iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
        self.seen.lock().push((call.verb, query));
    }
    pub(crate) fn object(&self, name: &str) -> Option<Value> {
        self.objects.lock().get(name).cloned()
    }
    fn answer(&self, call: &Call) -> Result<Bytes, Status> {
        if *self.broken.lock() {
            return Err(Status::failure(503, "ServiceUnavailable", "down"));
        }
        let missing = || Status::not_found(&call.resource.group, &call.resource.plural, &call.name);
        let mut objects = self.objects.lock();
        let mut body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        let stored = match call.verb {
            Verb::Get => objects.get(call.name.as_str()).cloned().ok_or_else(missing)?,
            Verb::Create | Verb::Update => {
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                let old = objects.get(&name);
                if call.verb == Verb::Create && old.is_some() {
                    return Err(Status::already_exists("", &call.resource.plural, &name));
                }
                if call.verb == Verb::Update
                    && old.ok_or_else(missing)?["metadata"]["resourceVersion"]
                        != body["metadata"]["resourceVersion"]
                {
                    return Err(Status::conflict("", &call.resource.plural, &name, "it was modified"));
                }
                let mut revision = self.revision.lock();
                *revision += 1;
                body["metadata"]["resourceVersion"] = json!(revision.to_string());
                objects.insert(name, body.clone());
                body
            }
            other => panic!("{other:?} is not part of the fake"),
        };
        Ok(Bytes::from(serde_json::to_vec(&stored).unwrap()))
    }
}

impl Transport for Fake {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Bytes, Status>> {
        self.note(&call);
        if *self.silent.lock() {
            return std::future::pending().boxed();
        }
        let answer = self.answer(&call);
        async move { answer }.boxed()
    }
    fn list(&self, call: Call) -> BoxFuture<'_, Result<ListAnswer, Status>> {
        self.note(&call);
        let answer = self.lists.lock().pop_front().expect("a scripted list");
        async move { answer }.boxed()
    }
    fn raw(&self, path: &str) -> BoxFuture<'_, Result<Bytes, Status>> {
        panic!("{path} is not part of the fake")
    }
    fn watch(
        &self,
        call: Call,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchEvent, Status>>, Status>> {
        self.note(&call);
        let script = self.watches.lock().pop_front();
        async move {
            match script {
                None => Ok(futures::stream::pending().boxed()),
                Some(Script::Refuse(status)) => Err(status),
                Some(Script::Events { events, open: false }) => Ok(futures::stream::iter(events).boxed()),
                Some(Script::Events { events, open: true }) => {
                    Ok(futures::stream::iter(events).chain(futures::stream::pending()).boxed())
                }
            }
        }
        .boxed()
    }
}

/// An event about a ConfigMap of namespace `ns`.
pub(crate) fn event(kind: EventKind, name: &str, revision: u64) -> Result<WatchEvent, Status> {
    Ok(WatchEvent { kind, object: config_map(name, revision) })
}

/// A ConfigMap of namespace `ns` as JSON.
pub(crate) fn config_map(name: &str, revision: u64) -> Bytes {
    let object = json!({"metadata": {
        "namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": revision.to_string(),
        "labels": {"app": name}, "managedFields": [{"manager": "m"}],
    }});
    Bytes::from(object.to_string())
}

/// A bookmark.
pub(crate) fn bookmark(revision: u64, end: bool) -> Result<WatchEvent, Status> {
    let mut object = json!({"kind": "ConfigMap", "metadata": {"resourceVersion": revision.to_string()}});
    if end {
        object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    Ok(WatchEvent { kind: EventKind::Bookmark, object: Bytes::from(object.to_string()) })
}
