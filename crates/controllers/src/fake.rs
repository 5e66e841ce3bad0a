//! An API server in memory for tests: objects with revisions, watches, and faults on demand.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Status;
use bytes::Bytes;
use client::{Call, Client, EventKind, Factory, KubeObject, ListAnswer, Transport, Verb, WatchEvent};
use component::{Clock, Health, Registry, Shutdown};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::Config;
use crate::host::{Controller, Host, Shared};
use crate::nodes::ipam::Ranges;

/// A fault of a request.
pub(crate) enum Fault {
    /// The request is refused, and nothing is written.
    Refuse(Status),
    /// The request is carried out, and its answer is lost.
    Lose(Status),
    /// The request is never answered.
    Hang,
}

type Hook = Box<dyn Fn(&Call) -> Option<Fault> + Send + Sync>;
/// The place of an object: resource, namespace and name.
type At = (String, String, String);

struct Watcher {
    resource: String,
    namespace: String,
    labels: String,
    events: UnboundedSender<Result<WatchEvent, Status>>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<At, Value>,
    revision: u64,
    watchers: Vec<Watcher>,
    calls: Vec<Call>,
    raw: BTreeMap<String, Value>,
    unheard: Vec<&'static str>,
    refused: Vec<&'static str>,
}

#[derive(Default)]
pub(crate) struct Fake {
    state: Mutex<State>,
    hook: Mutex<Option<Hook>>,
}

/// A fake API server with the parts that controllers need to start. Time is paused if the test pauses it.
pub(crate) struct Cluster {
    pub(crate) fake: Arc<Fake>,
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) factory: Factory,
    pub(crate) shutdown: Shutdown,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let fake = Arc::new(Fake::default());
        let client = Client::new(fake.clone(), "test");
        Self {
            clock: Clock::from(Timestamp::from_second(1_700_000_000).unwrap()),
            factory: Factory::new(client.clone()),
            shutdown: Shutdown::new(),
            client,
            fake,
        }
    }
    /// Returns the parts that controllers share, as configured by default.
    pub(crate) fn shared(&self) -> Shared {
        Shared {
            config: Config::new(self.clock, String::new()),
            ranges: Ranges::parse("", 24, 64, &[]).unwrap(),
            factory: self.factory.clone(),
            metrics: Registry::default(),
            health: Health::default(),
            shutdown: self.shutdown.clone(),
        }
    }
    /// Starts a controller.
    pub(crate) fn run<C: Controller>(&self) -> Arc<C> {
        self.run_with(&self.shared())
    }
    /// Starts a controller with another configuration.
    pub(crate) fn run_with<C: Controller>(&self, shared: &Shared) -> Arc<C> {
        Host::of::<C>(self.client.clone(), shared).run()
    }
    /// Makes a controller that hears of changes, and whose workers do nothing by themselves.
    pub(crate) fn wire<C: Controller>(&self) -> Arc<C> {
        Host::of::<C>(self.client.clone(), &self.shared()).wire().0
    }
    /// Starts the informers, and waits for them.
    pub(crate) async fn follow(&self) {
        self.factory.start(&self.shutdown);
        self.factory.synced().await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shutdown.stop();
    }
}

fn text<'v>(value: &'v Value, at: &str) -> &'v str {
    value.pointer(at).and_then(Value::as_str).unwrap_or_default()
}

fn bytes(value: &Value) -> Bytes {
    Bytes::from(value.to_string())
}

fn selected(object: &Value, labels: &str) -> bool {
    labels.split(',').filter(|t| !t.is_empty()).all(|term| {
        let (key, value) = term.split_once('=').unwrap();
        object["metadata"]["labels"][key] == *value
    })
}

/// Applies a patch by RFC 7386; a strategic patch also merges conditions by their type.
fn merge(target: &mut Value, patch: &Value, strategic: bool) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in fields {
        match value {
            Value::Null => drop(target.as_object_mut().unwrap().remove(name)),
            Value::Array(items) if strategic && name == "conditions" => {
                let all = target[name].take();
                let mut all = all.as_array().cloned().unwrap_or_default();
                for item in items {
                    match all.iter_mut().find(|c| c["type"] == item["type"]) {
                        Some(known) => merge(known, item, strategic),
                        None => all.push(item.clone()),
                    }
                }
                target[name] = Value::Array(all);
            }
            _ => merge(&mut target[name], value, strategic),
        }
    }
}

impl State {
    fn tell(&mut self, kind: EventKind, at: &At, object: &Value) {
        if self.unheard.contains(&at.0.as_str()) {
            return;
        }
        self.watchers.retain(|w| {
            let wanted = w.resource == at.0 && (w.namespace.is_empty() || w.namespace == at.1);
            let event = WatchEvent { kind, object: bytes(object) };
            !wanted || !selected(object, &w.labels) || w.events.send(Ok(event)).is_ok()
        });
    }

    fn put(&mut self, at: At, mut object: Value) -> Value {
        let old = self.objects.get(&at);
        if let Some(old) = old {
            object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
            if *old == object {
                return object;
            }
        }
        let (kind, generation) = match old {
            None => (EventKind::Added, 1),
            Some(old) => {
                let before = old["metadata"]["generation"].as_i64().unwrap_or(1);
                (EventKind::Modified, before + i64::from(old["spec"] != object["spec"]))
            }
        };
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        object["metadata"]["generation"] = json!(generation);
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", self.revision));
        }
        self.objects.insert(at.clone(), object.clone());
        self.tell(kind, &at, &object);
        object
    }

    fn remove(&mut self, at: &At) -> Option<Value> {
        let mut object = self.objects.remove(at)?;
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.tell(EventKind::Deleted, at, &object);
        Some(object)
    }

    fn answer(&mut self, call: &Call) -> Result<Value, Status> {
        let plural = call.resource.plural.as_str();
        let missing = || Status::not_found(&call.resource.group, plural, &call.name);
        let mut body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        let mut at = (plural.to_owned(), call.namespace.to_string(), call.name.to_string());
        if call.verb == Verb::Create {
            let generated = format!("{}{}", text(&body, "/metadata/generateName"), self.revision + 1);
            if text(&body, "/metadata/name").is_empty() {
                body["metadata"]["name"] = json!(generated);
            }
            at.2 = text(&body, "/metadata/name").to_owned();
            if self.objects.contains_key(&at) {
                return Err(Status::already_exists(&call.resource.group, plural, &at.2));
            }
            return Ok(self.put(at, body));
        }
        if call.subresource == "scale" {
            at.0.push_str("/scale");
        }
        let mut old = self.objects.get(&at).cloned().ok_or_else(missing)?;
        for field in ["uid", "resourceVersion"] {
            let (wanted, has) = (&body["metadata"][field], &old["metadata"][field]);
            if !wanted.is_null() && wanted != has {
                return Err(Status::conflict(&call.resource.group, plural, &call.name, "it was modified"));
            }
        }
        match call.verb {
            Verb::Get => Ok(old),
            Verb::Delete => self.remove(&at).ok_or_else(missing),
            Verb::Update if call.subresource == "status" => {
                old["status"] = body["status"].take();
                Ok(self.put(at, old))
            }
            Verb::Update => Ok(self.put(at, body)),
            Verb::MergePatch | Verb::StrategicPatch => {
                merge(&mut old, &body, call.verb == Verb::StrategicPatch);
                Ok(self.put(at, old))
            }
            other => panic!("{other:?} is not part of the fake"),
        }
    }
}

impl Fake {
    /// Decides on the faults of requests from now on.
    pub(crate) fn fail(&self, hook: impl Fn(&Call) -> Option<Fault> + Send + Sync + 'static) {
        *self.hook.lock() = Some(Box::new(hook));
    }
    /// Puts an object.
    pub(crate) fn put<T: KubeObject>(&self, object: &T) -> T {
        let value = self.put_value(T::URL_PATH_SEGMENT, &json_of(object));
        typed(&value)
    }
    /// Puts an object of any resource.
    pub(crate) fn put_value(&self, plural: &str, object: &Value) -> Value {
        let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        let at = (plural.to_owned(), namespace.to_owned(), name.to_owned());
        self.state.lock().put(at, object.clone())
    }
    /// Removes an object.
    pub(crate) fn take<T: KubeObject>(&self, namespace: &str, name: &str) {
        let at = (T::URL_PATH_SEGMENT.to_owned(), namespace.to_owned(), name.to_owned());
        self.state.lock().remove(&at);
    }
    /// Returns an object as it is stored.
    pub(crate) fn get<T: KubeObject>(&self, namespace: &str, name: &str) -> Option<T> {
        let at = (T::URL_PATH_SEGMENT.to_owned(), namespace.to_owned(), name.to_owned());
        let value = self.state.lock().objects.get(&at).cloned()?;
        Some(typed(&value))
    }
    /// Returns all objects of a type.
    pub(crate) fn list<T: KubeObject>(&self) -> Vec<T> {
        let state = self.state.lock();
        let all = state.objects.iter().filter(|(at, _)| at.0 == T::URL_PATH_SEGMENT);
        all.map(|(_, value)| typed(value)).collect()
    }
    /// Keeps changes of a resource from all watchers from now on.
    pub(crate) fn deafen(&self, plural: &'static str) {
        self.state.lock().unheard.push(plural);
    }
    /// Refuses watches and lists of a resource.
    pub(crate) fn refuse_watches(&self, plural: &'static str) {
        self.state.lock().refused.push(plural);
    }
    /// Serves watches and lists of a resource again.
    pub(crate) fn serve_watches(&self, plural: &str) {
        self.state.lock().refused.retain(|r| *r != plural);
    }
    /// Sets the answer of a path that is no resource.
    pub(crate) fn serve(&self, path: &str, answer: Value) {
        self.state.lock().raw.insert(path.to_owned(), answer);
    }
    /// Returns the writes so far, but those of Events, as verb, resource, subresource and name.
    pub(crate) fn writes(&self) -> Vec<(Verb, String)> {
        let state = self.state.lock();
        let writes = state.calls.iter().filter(|c| c.verb != Verb::Get && c.resource.plural != "events");
        writes.map(|c| (c.verb, format!("{}/{}/{}", c.resource.plural, c.name, c.subresource))).collect()
    }
    /// Returns the number of requests about a resource.
    pub(crate) fn requests(&self, plural: &str) -> usize {
        self.state.lock().calls.iter().filter(|c| c.resource.plural == plural).count()
    }
    /// Returns the reasons of the Events so far.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let state = self.state.lock();
        let events = state.objects.iter().filter(|(at, _)| at.0 == "events");
        events.map(|(_, event)| text(event, "/reason").to_owned()).collect()
    }
}

fn json_of<T: KubeObject>(object: &T) -> Value {
    serde_json::from_slice(&object.to_json().unwrap()).unwrap()
}

fn typed<T: KubeObject>(value: &Value) -> T {
    T::from_json(value.to_string().as_bytes()).unwrap()
}

impl Transport for Fake {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Bytes, Status>> {
        let fault = self.hook.lock().as_ref().and_then(|hook| hook(&call));
        let mut state = self.state.lock();
        state.calls.push(call.clone());
        let answer = match fault {
            Some(Fault::Hang) => return std::future::pending().boxed(),
            Some(Fault::Refuse(status)) => Err(status),
            Some(Fault::Lose(status)) => state.answer(&call).and(Err(status)),
            None => state.answer(&call),
        };
        async move { answer.map(|value| bytes(&value)) }.boxed()
    }

    fn list(&self, call: Call) -> BoxFuture<'_, Result<ListAnswer, Status>> {
        let state = self.state.lock();
        if state.refused.contains(&call.resource.plural.as_str()) {
            return async { Err(Status::no_such_resource()) }.boxed();
        }
        let of = state.objects.iter().filter(|(at, _)| {
            at.0 == call.resource.plural && (call.namespace.is_empty() || at.1 == call.namespace)
        });
        let answer = ListAnswer {
            resource_version: state.revision.to_string(),
            continue_token: String::new(),
            items: of.map(|(_, value)| bytes(value)).collect(),
        };
        async move { Ok(answer) }.boxed()
    }

    fn raw(&self, path: &str) -> BoxFuture<'_, Result<Bytes, Status>> {
        let answer = self.state.lock().raw.get(path).map(bytes).ok_or_else(Status::no_such_resource);
        async move { answer }.boxed()
    }

    fn watch(
        &self,
        call: Call,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchEvent, Status>>, Status>> {
        let query = |name: &str| {
            call.query.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()).unwrap_or_default()
        };
        assert_eq!(query("sendInitialEvents"), "true", "a watch never ends here, so none is taken up again");
        let (events, stream) = unbounded_channel();
        let watcher = Watcher {
            resource: call.resource.plural.to_string(),
            namespace: call.namespace.to_string(),
            labels: query("labelSelector"),
            events,
        };
        let mut state = self.state.lock();
        if state.refused.contains(&watcher.resource.as_str()) {
            return async { Err(Status::no_such_resource()) }.boxed();
        }
        for (at, object) in &state.objects {
            if at.0 == watcher.resource
                && (watcher.namespace.is_empty() || watcher.namespace == at.1)
                && selected(object, &watcher.labels)
            {
                let event = WatchEvent { kind: EventKind::Added, object: bytes(object) };
                let _ = watcher.events.send(Ok(event));
            }
        }
        let end = json!({"metadata": {
            "resourceVersion": state.revision.to_string(), "annotations": {"k8s.io/initial-events-end": "true"},
        }});
        let _ = watcher.events.send(Ok(WatchEvent { kind: EventKind::Bookmark, object: bytes(&end) }));
        state.watchers.push(watcher);
        let stream = futures::stream::unfold(stream, |mut s| async move { s.recv().await.map(|e| (e, s)) });
        async move { Ok(stream.boxed()) }.boxed()
    }
}

/// Waits until something holds; on paused time until nothing more happens for an hour.
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..3600 {
        if holds() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("{what}");
}
