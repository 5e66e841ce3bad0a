//! A ConfigMap of `kube-system` that the server looks after.

use std::sync::Arc;
use std::time::Duration;

use api::{Status, Text};
use bytes::Bytes;
use client::{Call, FromJson, Resource, Transport, Verb};
use futures::StreamExt;
use serde_json::{Value, json};
use storage::{Batch, Scope, WatchOptions, WatchStart, Watcher};

use super::env::Env;
use crate::objects::Objects;

const NAMESPACE: &str = "kube-system";
const MAPS: (&str, &str) = ("", "configmaps");
/// The time to wait before changes are followed anew.
const PAUSE: Duration = Duration::from_secs(2);

/// A ConfigMap of this name.
pub(super) struct SystemMap {
    name: &'static str,
    objects: Arc<Objects>,
    transport: Arc<dyn Transport>,
    changes: Option<Watcher>,
}

impl SystemMap {
    /// The one of this name; its changes are followed from now on.
    pub(super) fn new(env: &Env, name: &'static str) -> Self {
        let (objects, transport) = (Arc::clone(&env.objects), Arc::clone(&env.transport));
        let mut map = Self { name, objects, transport, changes: None };
        map.follow();
        map
    }

    fn follow(&mut self) {
        self.changes = self.watch();
    }

    fn watch(&self) -> Option<Watcher> {
        let id = self.objects.id(MAPS)?;
        let scope = Scope { namespace: NAMESPACE.into(), name: self.name.into(), field: None };
        let start = WatchStart::After(self.objects.store.current(id));
        self.objects.store.watch(id, scope, start, WatchOptions::default()).ok()
    }

    /// Returns once the object changed, or may have changed. A caller that stops waiting loses nothing but the wait.
    pub(super) async fn changed(&mut self) {
        while let Some(events) = &mut self.changes {
            match events.next().await {
                Some(Ok(Batch::Events(_))) => return,
                Some(Ok(_)) => {}
                Some(Err(_)) | None => self.changes = None,
            }
        }
        tokio::time::sleep(PAUSE).await;
        // The caller reads the object now, and so sees the changes of the meantime.
        self.follow();
    }

    fn call(&self, verb: Verb, body: Option<&Value>) -> Call {
        Call {
            verb,
            resource: Resource { group: Text::default(), version: "v1".into(), plural: MAPS.1.into() },
            namespace: NAMESPACE.into(),
            name: if verb == Verb::Create { Text::default() } else { self.name.into() },
            subresource: Text::default(),
            query: Vec::new(),
            body: body.map_or_else(Bytes::new, |b| b.to_string().into()),
        }
    }

    /// Reads the object; `None` if there is none.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn get(&self) -> Result<Option<Value>, Status> {
        match self.transport.call(self.call(Verb::Get, None)).await {
            Ok(bytes) => Value::from_json(&bytes).map(Some),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Writes the data of an object as it was read, or makes one. `false` if somebody else wrote it meanwhile.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn write(&self, known: Option<Value>, data: Value) -> Result<bool, Status> {
        let verb = if known.is_some() { Verb::Update } else { Verb::Create };
        let mut object = known.unwrap_or_else(|| {
            let metadata = json!({"name": self.name, "namespace": NAMESPACE});
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        });
        object["data"] = data;
        match self.transport.call(self.call(verb, Some(&object))).await {
            Err(e) if e.is_conflict() || e.is_already_exists() || e.is_not_found() => Ok(false),
            other => other.map(|_| true),
        }
    }
}
