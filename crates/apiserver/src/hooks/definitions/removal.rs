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

/// A definition that goes. A later one may have its name, but not its uid.
struct Leaving {
    name: Text,
    uid: Text,
    definition: Arc<Definition>,
}

/// The removals under way, by the definitions' uids.
#[derive(Default)]
pub(super) struct Removals(Arc<Mutex<HashSet<Text>>>);

impl Removals {
    /// Begins a removal, unless it is under way.
    pub(super) fn begin(&self, env: Env, known: &Known) {
        if !self.0.lock().insert(known.uid.clone()) {
            return;
        }
        let under_way = Arc::clone(&self.0);
        let leaving = Leaving {
            name: known.name.clone(),
            uid: known.uid.clone(),
            definition: Arc::clone(&known.definition),
        };
        let (stop, tasks) = (env.shutdown.clone(), env.shutdown.clone());
        tasks.spawn_one(async move {
            let remove = async {
                while let Err(error) = remove(&env, &leaving).await {
                    let name = &leaving.name;
                    tracing::warn!(%name, %error, "cannot remove the objects of a CustomResourceDefinition");
                    tokio::time::sleep(PAUSE.mul_f64(1.0 + fastrand::f64())).await;
                }
            };
            stop.run(remove).await;
            under_way.lock().remove(&leaving.uid);
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

impl Leaving {
    fn is(&self, object: &Value) -> bool {
        object["metadata"]["uid"] == self.uid.as_str()
    }
    /// The definition as it is stored; `None` once it is gone.
    async fn stored(&self, env: &Env) -> Result<Option<Value>, Status> {
        match env.transport.call(DEFINITIONS.call(Verb::Get, &self.name, "", None)).await {
            Err(e) if e.is_not_found() => Ok(None),
            answer => Ok(Some(Value::from_json(&answer?)?).filter(|object| self.is(object))),
        }
    }
    async fn say(&self, env: &Env, condition: &Condition) -> Result<(), Status> {
        let now = env.objects.now();
        let change = |object: &mut Value| {
            if self.is(object) {
                set_condition(object, condition, &now);
            }
        };
        DEFINITIONS.update_status(&*env.transport, &self.name, change).await
    }
    async fn remove_finalizer(&self, env: &Env) -> Result<(), Status> {
        loop {
            let Some(mut object) = self.stored(env).await? else { return Ok(()) };
            let Some(all) = object["metadata"]["finalizers"].as_array_mut() else { return Ok(()) };
            all.retain(|f| f != FINALIZER);
            match env.transport.call(DEFINITIONS.call(Verb::Update, &self.name, "", Some(&object))).await {
                Err(e) if e.is_conflict() => {}
                Err(e) if e.is_not_found() => return Ok(()),
                other => return other.map(drop),
            }
        }
    }
}

fn was_established(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Established" && c["status"] == "True"))
}

/// Removes a definition's objects and then the definition, unless it is gone: what is known of it may be old.
async fn remove(env: &Env, leaving: &Leaving) -> Result<(), Status> {
    let definition = &leaving.definition;
    let progress =
        terminating("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress");
    leaving.say(env, &progress).await?;
    let Some(object) = leaving.stored(env).await? else { return Ok(()) };
    let end = if env.objects.catalog().resources.is_built_in(&definition.group, &definition.names.plural) {
        terminating(
            "False",
            "OverlappingBuiltInResource",
            "instances overlap with built-in resources in storage",
        )
    } else if was_established(&object) {
        match remove_objects(env, leaving).await {
            Ok(()) => terminating("False", "InstanceDeletionCompleted", "removed all instances"),
            Err((condition, error)) => {
                leaving.say(env, &condition).await?;
                return Err(error);
            }
        }
    } else {
        terminating("False", "NeverEstablished", "resource was never established")
    };
    leaving.say(env, &end).await?;
    leaving.remove_finalizer(env).await
}

async fn remove_objects(env: &Env, leaving: &Leaving) -> Result<(), (Condition, Status)> {
    let (group, plural) = (&leaving.definition.group, &leaving.definition.names.plural);
    let failed = |reason: &str, what: &str, error: Status| {
        (terminating("True", reason, &format!("{what}: {error}")), error)
    };
    // The definition is read anew at each try: it may have changed since the last one.
    let catalog = env.objects.catalog();
    let Some(instances) = catalog.resources.instances(group, plural, &leaving.uid) else {
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

#[cfg(test)]
mod tests {
    use access::webhook::Network;
    use serde_json::json;

    use super::super::state;
    use super::*;
    use crate::catalog::custom::CustomResource;
    use crate::catalog::definitions::Change;
    use crate::catalog::webhook_converter::ConversionWebhooks;
    use crate::testing::Cluster;

    const DEFINITION: &str = "apiextensions.k8s.io/v1/customresourcedefinitions/-/widgets.example.com";

    fn environment(cluster: &Cluster) -> Env {
        Env {
            objects: Arc::clone(cluster.server.objects()),
            transport: Arc::clone(&cluster.transport),
            shutdown: Shutdown::new(),
        }
    }

    /// Makes a definition, which is established, and an object of it.
    async fn with_widget(cluster: &Cluster) -> Known {
        let version = json!({"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
        let names =
            json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
        let made = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}});
        let definitions = "apiextensions.k8s.io/v1/customresourcedefinitions";
        cluster.call(Verb::Create, definitions, made).await.unwrap();
        let established = json!({"type": "Established", "status": "True", "reason": "InitialNamesAccepted",
            "message": "the initial names have been accepted", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"status": {"conditions": [established], "acceptedNames": names, "storedVersions": ["v1"]}});
        let stored = cluster.call(Verb::MergePatch, &format!("{DEFINITION}/status"), status).await.unwrap();
        let known = state::of_json(&stored);
        serve(cluster, Some(&known));
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}});
        cluster.call(Verb::Create, "example.com/v1/widgets/ns", widget).await.unwrap();
        known
    }

    fn serve(cluster: &Cluster, known: Option<&Known>) {
        let objects = cluster.server.objects();
        let resource = |known: &Known| -> Arc<CustomResource> {
            let network = Network::new(Arc::clone(objects) as _, |_| true);
            let webhooks = Arc::new(ConversionWebhooks::new(Arc::new(network)));
            let accepted = known.accepted.clone();
            Arc::new(known.resources(&objects.store, accepted, &webhooks, &Shutdown::new()).unwrap())
        };
        let (group, plural) = ("example.com".into(), "widgets".into());
        objects.serve_definitions(&[Change { group, plural, resource: known.map(resource) }]);
    }

    fn leaving(known: &Known) -> Leaving {
        let definition = Arc::clone(&known.definition);
        Leaving { name: known.name.clone(), uid: known.uid.clone(), definition }
    }

    async fn count(cluster: &Cluster) -> usize {
        let list = cluster.call(Verb::List, "example.com/v1/widgets", Value::Null).await.unwrap();
        list["items"].as_array().unwrap().len()
    }

    #[tokio::test]
    async fn a_definition_goes_after_its_objects() {
        let cluster = Cluster::new();
        let known = with_widget(&cluster).await;
        cluster.call(Verb::Delete, DEFINITION, Value::Null).await.unwrap();
        remove(&environment(&cluster), &leaving(&known)).await.unwrap();
        assert_eq!(count(&cluster).await, 0);
        let gone = cluster.call(Verb::Get, DEFINITION, Value::Null).await.unwrap_err();
        assert_eq!(gone.code, 404);
    }

    #[tokio::test]
    async fn a_removal_ends_if_its_definition_is_gone() {
        let cluster = Cluster::new();
        let known = with_widget(&cluster).await;
        cluster.call(Verb::Delete, DEFINITION, Value::Null).await.unwrap();
        remove(&environment(&cluster), &leaving(&known)).await.unwrap();
        serve(&cluster, None);
        remove(&environment(&cluster), &leaving(&known)).await.unwrap();
    }

    #[tokio::test]
    async fn a_removal_leaves_a_later_definition_of_the_same_name_alone() {
        let cluster = Cluster::new();
        let first = with_widget(&cluster).await;
        cluster.call(Verb::Delete, DEFINITION, Value::Null).await.unwrap();
        remove(&environment(&cluster), &leaving(&first)).await.unwrap();
        let second = with_widget(&cluster).await;
        assert_ne!(first.uid, second.uid);
        let before = cluster.call(Verb::Get, DEFINITION, Value::Null).await.unwrap();

        remove(&environment(&cluster), &leaving(&first)).await.unwrap();
        assert_eq!(count(&cluster).await, 1, "the object is the later definition's");
        assert_eq!(cluster.call(Verb::Get, DEFINITION, Value::Null).await.unwrap(), before);
    }

    #[tokio::test]
    async fn the_removal_of_a_later_definition_of_the_same_name_begins_while_that_of_the_first_is_under_way()
    {
        let cluster = Cluster::new();
        let first = with_widget(&cluster).await;
        let removals = Removals::default();
        removals.0.lock().insert(first.uid.clone());
        cluster.call(Verb::Delete, DEFINITION, Value::Null).await.unwrap();
        remove(&environment(&cluster), &leaving(&first)).await.unwrap();
        let second = with_widget(&cluster).await;
        cluster.call(Verb::Delete, DEFINITION, Value::Null).await.unwrap();
        removals.begin(environment(&cluster), &second);
        assert!(removals.0.lock().contains(&second.uid));
    }
}
