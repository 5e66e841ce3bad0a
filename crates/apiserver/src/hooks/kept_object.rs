//! An object that must be there, and that is made again or put right whenever somebody changes it.

use std::time::Duration;

use api::Status;
use bytes::Bytes;
use client::{Call, FromJson, Resource, Transport, Verb};
use futures::StreamExt;
use serde_json::Value;
use storage::{Batch, Scope, WatchOptions, WatchStart, Watcher};

use crate::objects::Objects;

/// How long to wait after a write failed.
const PAUSE: Duration = Duration::from_secs(2);
/// How often an object is read again that others changed meanwhile.
const TRIES: usize = 10;

/// An object by the name `kubernetes` that must be there, and how much of it is ours.
pub(super) struct KeptObject {
    pub(super) group: &'static str,
    pub(super) plural: &'static str,
    pub(super) namespace: &'static str,
    pub(super) object: Value,
    /// The parts that are put back when somebody changes them.
    pub(super) ours: &'static [&'static str],
}

impl KeptObject {
    pub(super) fn call(&self, verb: Verb, subresource: &str, body: Option<&Value>) -> Call {
        Call {
            verb,
            resource: Resource { group: self.group.into(), version: "v1".into(), plural: self.plural.into() },
            namespace: self.namespace.into(),
            name: if verb == Verb::Create { "".into() } else { "kubernetes".into() },
            subresource: subresource.into(),
            query: Vec::new(),
            body: body.map_or_else(Bytes::new, |b| b.to_string().into()),
        }
    }
    /// Makes the object, or puts back what is ours in it. Other servers do the same at the same time.
    pub(super) async fn ensure(&self, transport: &dyn Transport) -> Result<(), Status> {
        for _ in 1..TRIES {
            match self.ensure_once(transport).await {
                Err(e) if e.is_conflict() => {}
                other => return other,
            }
        }
        self.ensure_once(transport).await
    }

    async fn ensure_once(&self, transport: &dyn Transport) -> Result<(), Status> {
        let current = match transport.call(self.call(Verb::Get, "", None)).await {
            Ok(bytes) => Value::from_json(&bytes)?,
            Err(e) if e.is_not_found() => {
                return match transport.call(self.call(Verb::Create, "", Some(&self.object))).await {
                    Err(e) if !e.is_already_exists() => Err(e),
                    _ => Ok(()),
                };
            }
            Err(e) => return Err(e),
        };
        let mut next = current.clone();
        for part in self.ours {
            next[*part] = self.object[*part].clone();
        }
        if next == current {
            return Ok(());
        }
        transport.call(self.call(Verb::Update, "", Some(&next))).await.map(|_| ())
    }
}

/// Waits before something is tried again that failed for an object.
pub(super) async fn failed(kept: &KeptObject, error: &Status) {
    tracing::warn!(plural = kept.plural, %error, "cannot keep up an object of the cluster");
    tokio::time::sleep(PAUSE.mul_f64(1.0 + fastrand::f64())).await;
}

/// The changes of a kept object.
pub(super) struct Changes {
    scope: Scope,
    watcher: Option<Watcher>,
}

impl Changes {
    /// From now on.
    pub(super) fn of(objects: &Objects, kept: &KeptObject) -> Self {
        let scope = Scope { namespace: kept.namespace.into(), name: "kubernetes".into(), field: None };
        let mut changes = Self { scope, watcher: None };
        changes.watch(objects, kept);
        changes
    }

    fn watch(&mut self, objects: &Objects, kept: &KeptObject) {
        self.watcher = objects.id((kept.group, kept.plural)).and_then(|id| {
            let start = WatchStart::After(objects.store.current(id));
            objects.store.watch(id, self.scope.clone(), start, WatchOptions::default()).ok()
        });
    }

    /// Returns once the object may be another than when this was last asked. A caller that stops waiting loses nothing
    /// but the wait.
    pub(super) async fn next(&mut self, objects: &Objects, kept: &KeptObject) {
        while let Some(watcher) = &mut self.watcher {
            match watcher.next().await {
                Some(Ok(Batch::Events(_))) => return,
                Some(Ok(_)) => {}
                Some(Err(_)) | None => self.watcher = None,
            }
        }
        tokio::time::sleep(PAUSE).await;
        // The caller reads the object now, and so sees the changes of the meantime.
        self.watch(objects, kept);
    }
}
