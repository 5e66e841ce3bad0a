//! The removal of a definition: first its objects go, then its finalizer.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use api::{NewObject, Object, Status, Text};
use client::{FromJson, Transport, Verb};
use component::Shutdown;
use futures::StreamExt;
use kinds::custom::Definition;
use parking_lot::Mutex;
use serde_json::Value;
use storage::{Batch, Scope, WatchOptions, WatchStart, Write, WriteError};

use super::plan::set_condition;
use super::state::{Condition, DEFINITIONS, FINALIZER, Known};
use crate::catalog::{Catalog, ResourceEntry};
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
    DEFINITIONS.update_status(&*env.transport, name, |object| set_condition(object, condition, &now)).await
}

async fn remove(env: &Env, name: &str, definition: &Definition, is_established: bool) -> Result<(), Status> {
    let progress =
        terminating("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress");
    say(env, name, &progress).await?;
    let end = if env.objects.catalog().resources.is_built_in(&definition.group, &definition.names.plural) {
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

async fn remove_finalizer(env: &Env, name: &str) -> Result<(), Status> {
    loop {
        let mut object = match env.transport.call(DEFINITIONS.call(Verb::Get, name, "", None)).await {
            Err(e) if e.is_not_found() => return Ok(()),
            answer => Value::from_json(&answer?)?,
        };
        let Some(all) = object["metadata"]["finalizers"].as_array_mut() else { return Ok(()) };
        all.retain(|f| f != FINALIZER);
        match env.transport.call(DEFINITIONS.call(Verb::Update, name, "", Some(&object))).await {
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
    // The definition is read anew at each try: it may have changed since the last one.
    let catalog = env.objects.catalog();
    let Some(instances) = catalog.resources.instances(group, plural) else {
        let why = Status::internal("the definition is not served");
        return Err(failed("InstanceDeletionFailed", "could not list instances", why));
    };
    let id = instances
        .stored()
        .map_err(|error| failed("InstanceDeletionFailed", "could not list instances", error))?
        .id;
    let store = env.objects.store();
    let watched = store.watch(id, Scope::default(), WatchStart::Now, WatchOptions::default());
    let mut watcher = watched.map_err(|_| {
        failed("InstanceDeletionFailed", "could not list instances", Status::internal("no watch"))
    })?;
    let all = store.snapshot(id);
    for object in all.scan(&Scope::default(), None) {
        delete(env, &catalog, instances, object)
            .await
            .map_err(|error| failed("InstanceDeletionFailed", "could not issue all deletes", error))?;
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

/// Deletes an object, or marks it where finalizers keep it. Nobody is asked: the definition's deletion was admitted, and
/// its objects go with it.
async fn delete(
    env: &Env,
    catalog: &Catalog,
    instances: &ResourceEntry,
    object: &Arc<Object>,
) -> Result<(), Status> {
    let id = instances.stored()?.id;
    let (namespace, name) = (&object.data.namespace, &object.data.name);
    let mut object = Arc::clone(object);
    loop {
        let write = if object.data.finalizers {
            if object.data.deleting {
                return Ok(());
            }
            let marked = marked(catalog, instances, &object, &env.objects.now()).await?;
            Write::Update { resource: id, object: marked, expect: object.revision, ttl: None }
        } else {
            let (namespace, name) = (namespace.clone(), name.clone());
            Write::Delete { resource: id, namespace, name, expect: object.revision }
        };
        match env.objects.store().commit(write).await {
            Ok(_) | Err(WriteError::NotFound) => return Ok(()),
            Err(WriteError::Changed(_)) => match env.objects.store().get(id, namespace, name) {
                Some(now) => object = now,
                None => return Ok(()),
            },
            Err(error) => return Err(Status::internal(error.to_string())),
        }
    }
}

/// An object that goes once its finalizers are gone.
async fn marked(
    catalog: &Catalog,
    instances: &ResourceEntry,
    object: &Arc<Object>,
    now: &str,
) -> Result<NewObject, Status> {
    let object = catalog.current_object(instances, object, None).await?;
    let mut tree = catalog.stored_tree(instances, &object)?;
    let mut meta =
        catalog.meta.of_mut(&mut tree, instances.stored()?.meta_at).ok_or_else(Status::no_such_resource)?;
    let generation = meta.read().generation();
    if generation > 0 {
        meta.set_generation(generation + 1);
    }
    meta.set_deleted(now);
    meta.set_grace(Some(0));
    catalog.custom_at_rest(instances, tree, None).await
}
