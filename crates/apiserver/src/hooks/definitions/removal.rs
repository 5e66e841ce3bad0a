//! The removal of a definition: first its objects go, then its finalizer.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::{Status, Text};
use client::{Call, FromJson, Resource, Transport, Verb};
use component::Shutdown;
use futures::StreamExt;
use kinds::custom::Definition;
use parking_lot::Mutex;
use serde_json::Value;
use storage::{Batch, Scope, WatchOptions, WatchStart};

use super::calls::{call, update_status};
use super::plan::set_condition;
use super::state::{Condition, FINALIZER, Known};
use crate::objects::Objects;

/// The time to wait after something failed.
const PAUSE: Duration = Duration::from_secs(2);
/// The time that the objects of a definition get to go before the deletion is said to have failed; upstream's.
const LIMIT: Duration = Duration::from_mins(1);

/// The surroundings of a removal.
pub(super) struct Env {
    pub(super) objects: Arc<Objects>,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) shutdown: Shutdown,
}

/// The removals under way, by the definitions' names.
#[derive(Default)]
pub(super) struct Removals(Arc<Mutex<HashSet<Text>>>);

impl Removals {
    /// Begins a removal, unless it is under way.
    pub(super) fn begin(&self, env: Env, known: &Known) {
        let name = known.name.clone();
        if !self.0.lock().insert(name.clone()) {
            return;
        }
        let (under_way, definition) = (Arc::clone(&self.0), Arc::clone(&known.definition));
        let is_established = known.is_established();
        let (stop, tasks) = (env.shutdown.clone(), env.shutdown.clone());
        tasks.spawn_one(async move {
            let remove = async {
                while let Err(error) = remove(&env, &name, &definition, is_established).await {
                    tracing::warn!(%name, %error, "cannot remove the objects of a CustomResourceDefinition");
                    tokio::time::sleep(PAUSE.mul_f64(1.0 + fastrand::f64())).await;
                }
            };
            stop.run(remove).await;
            under_way.lock().remove(&name);
        });
    }
}

fn terminating(status: &str, reason: &str, message: &str) -> Condition {
    Condition {
        kind: "Terminating".into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
    }
}

async fn say(env: &Env, name: &str, condition: &Condition) -> Result<(), Status> {
    let now = env.objects.now();
    update_status(&*env.transport, name, |object| set_condition(object, condition, &now)).await
}

async fn remove(env: &Env, name: &str, definition: &Definition, is_established: bool) -> Result<(), Status> {
    let progress =
        terminating("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress");
    say(env, name, &progress).await?;
    let end = if is_built_in(env, definition) {
        terminating(
            "False",
            "OverlappingBuiltInResource",
            "instances overlap with built-in resources in storage",
        )
    } else if is_established {
        match remove_objects(env, definition).await {
            Ok(()) => terminating("False", "InstanceDeletionCompleted", "removed all instances"),
            Err((condition, error)) => {
                say(env, name, &condition).await?;
                return Err(error);
            }
        }
    } else {
        terminating("False", "NeverEstablished", "resource was never established")
    };
    say(env, name, &end).await?;
    remove_finalizer(env, name).await
}

/// Whether objects of this name are those of a built-in resource.
fn is_built_in(env: &Env, definition: &Definition) -> bool {
    let resource = env.objects.resource(&definition.group, &definition.names.plural);
    resource.is_some_and(|r| r.custom.is_none())
}

async fn remove_finalizer(env: &Env, name: &str) -> Result<(), Status> {
    loop {
        let mut object = match env.transport.call(call(Verb::Get, name, "", None)).await {
            Err(e) if e.is_not_found() => return Ok(()),
            answer => Value::from_json(&answer?)?,
        };
        let Some(all) = object["metadata"]["finalizers"].as_array_mut() else { return Ok(()) };
        all.retain(|f| f != FINALIZER);
        match env.transport.call(call(Verb::Update, name, "", Some(&object))).await {
            Err(e) if e.is_conflict() => {}
            Err(e) if e.is_not_found() => return Ok(()),
            other => return other.map(drop),
        }
    }
}

async fn remove_objects(env: &Env, definition: &Definition) -> Result<(), (Condition, Status)> {
    let (group, plural) = (definition.group.as_str(), definition.names.plural.as_str());
    let failed = |reason: &str, what: &str, error: Status| {
        (terminating("True", reason, &format!("{what}: {error}")), error)
    };
    let Some(id) = env.objects.id((group, plural)) else { return Ok(()) };
    let store = env.objects.store();
    let watched = store.watch(id, Scope::default(), WatchStart::Now, WatchOptions::default());
    let mut watcher = watched.map_err(|_| {
        failed("InstanceDeletionFailed", "could not list instances", Status::internal("no watch"))
    })?;
    let all = store.snapshot(id);
    let namespaces: BTreeSet<Text> =
        all.scan(&Scope::default(), None).map(|o| o.data.namespace.clone()).collect();
    // In the stored version nobody need be asked to convert them.
    let served = definition.versions.iter().filter(|v| v.served).max_by_key(|v| v.storage);
    for namespace in namespaces {
        let Some(version) = served else { break };
        let delete = Call {
            verb: Verb::DeleteCollection,
            resource: Resource { group: group.into(), version: version.name.clone(), plural: plural.into() },
            namespace,
            name: Text::default(),
            subresource: Text::default(),
            query: Vec::new(),
            body: bytes::Bytes::new(),
        };
        if let Err(error) = env.transport.call(delete).await {
            return Err(failed("InstanceDeletionFailed", "could not issue all deletes", error));
        }
    }
    let gone = async {
        while store.snapshot(id).scan(&Scope::default(), None).next().is_some() {
            match watcher.next().await {
                Some(Ok(Batch::Events(_) | Batch::Synced(_) | Batch::Progress(_))) => {}
                Some(Err(_)) | None => return Err(Status::internal("the watch of instances ended")),
            }
        }
        Ok(())
    };
    let outcome = match tokio::time::timeout(LIMIT, gone).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Status::internal("timed out waiting for the condition")),
    };
    outcome.map_err(|error| {
        failed("InstanceDeletionCheck", "could not confirm zero CustomResources remaining", error)
    })
}
