//! The answers of a server to watches and lists, byte for byte, for tests of what reads them. It keeps no objects:
//! what needs a server that does is tested with a real one, by the crate `simulation`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use api::Status;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use serde_json::json;

use crate::transport::{Call, EventKind, ListAnswer, Transport, Verb, WatchEvent};

/// How the next watch is answered.
pub(crate) enum Answer {
    /// Refused.
    Refuse(Status),
    /// Events; then it ends, or stays open.
    Events { events: Vec<Result<WatchEvent, Status>>, open: bool },
}

#[derive(Default)]
pub(crate) struct Script {
    pub(crate) watches: Mutex<VecDeque<Answer>>,
    pub(crate) lists: Mutex<VecDeque<Result<ListAnswer, Status>>>,
    /// Every request, as verb and query.
    pub(crate) seen: Mutex<Vec<(Verb, HashMap<String, String>)>>,
}

impl Script {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }
    fn note(&self, call: &Call) {
        let query = call.query.iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
        self.seen.lock().push((call.verb, query));
    }
}

impl Transport for Script {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Bytes, Status>> {
        panic!("{call:?} is not part of a script")
    }
    fn list(&self, call: Call) -> BoxFuture<'_, Result<ListAnswer, Status>> {
        self.note(&call);
        let answer = self.lists.lock().pop_front().expect("a scripted list");
        async move { answer }.boxed()
    }
    fn raw(&self, path: &str) -> BoxFuture<'_, Result<Bytes, Status>> {
        panic!("{path} is not part of a script")
    }
    fn watch(
        &self,
        call: Call,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchEvent, Status>>, Status>> {
        self.note(&call);
        let answer = self.watches.lock().pop_front();
        async move {
            match answer {
                None => Ok(futures::stream::pending().boxed()),
                Some(Answer::Refuse(status)) => Err(status),
                Some(Answer::Events { events, open: false }) => Ok(futures::stream::iter(events).boxed()),
                Some(Answer::Events { events, open: true }) => {
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
