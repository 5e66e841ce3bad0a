//! Storage version migrator: writes the objects of a resource again, so that all are stored in its present version
//! (upstream: `pkg/controller/storageversionmigrator`).
//!
//! DIFFERENCE: upstream takes the objects from the garbage collector's cache, which must first have caught up; they are
//! listed here, page by page.

mod plan;

use std::fmt;
use std::sync::Arc;

use api::{Gate, Status};
use client::{Client, Informer, ListParams, PartialObject, Patch, Resource};
use component::Clock;
use futures::stream::{self, StreamExt};
use jiff::SignedDuration;
use k8s_openapi::api::storagemigration::v1beta1::StorageVersionMigration;
use serde_json::{Value, json};

use crate::common::{retry, within};
use crate::discovery::{Served, discover};
use crate::host::{Controller, Host, Next, Shared, Wiring};
use plan::{FAILED, RUNNING, SUCCEEDED, Step, Verdict};

/// The time in which a new definition may not be discovered yet.
const PATIENCE: SignedDuration = SignedDuration::from_mins(1);
/// The number of objects that are listed at a time.
const PAGE: u32 = 500;
/// The number of objects that are written at a time.
const AT_ONCE: usize = 8;

/// A resource, whatever its version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct GroupResource {
    group: String,
    resource: String,
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.resource, self.group)
    }
}

fn resource_of(migration: &StorageVersionMigration) -> GroupResource {
    let of = migration.spec.as_ref().map(|s| s.resource.clone()).unwrap_or_default();
    GroupResource { group: of.group, resource: of.resource }
}

/// The migrator.
pub(crate) struct StorageMigration {
    client: Client,
    clock: Clock,
    migrations: Informer<StorageVersionMigration>,
}

impl Controller for StorageMigration {
    const NAME: &'static str = "storage-version-migrator-controller";
    const ALIASES: &'static [&'static str] = &["svm"];
    const ACCOUNT: &'static str = "storage-version-migrator-controller";
    const QUEUE: &'static str = "storage-version-migrator-controller";
    const WORKERS: usize = 5;
    type Key = GroupResource;

    fn wanted(shared: &Shared) -> bool {
        shared.config.gates.enabled(Gate::StorageVersionMigrator)
    }

    fn new(host: &Host<GroupResource>) -> Self {
        Self { client: host.client(), clock: host.clock(), migrations: host.informer() }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<GroupResource>) {
        let queue = wiring.queue();
        self.migrations.handle(move |change| queue.add(resource_of(change.object())));
    }

    async fn sync(&self, of: GroupResource) -> Result<Next, Status> {
        let mut all = self.migrations.list();
        all.retain(|m| resource_of(m) == of);
        for step in plan::steps(&all) {
            match step {
                Step::Finish(m) => self.finish(&of, &m).await?,
                Step::Begin(m) => self.begin(&of, &m).await?,
                Step::Observe(m) => self.observe(&of, &m).await?,
                Step::Migrate(m) => self.migrate(&of, &m).await?,
            }
        }
        Ok(Next::Done)
    }
}

impl StorageMigration {
    async fn write(&self, migration: &StorageVersionMigration) -> Result<(), Status> {
        match self.client.api::<StorageVersionMigration>("").update_status(migration).await {
            Err(e) if e.is_not_found() => Ok(()),
            other => other.map(drop),
        }
    }

    async fn fail(&self, migration: &StorageVersionMigration, why: &str) -> Result<(), Status> {
        let condition = (FAILED, "StorageVersionMigrationFailed", why);
        self.write(&plan::with(migration, condition, self.clock.now())).await
    }

    async fn begin(&self, of: &GroupResource, migration: &StorageVersionMigration) -> Result<(), Status> {
        let name = migration.metadata.name.as_deref().unwrap_or_default();
        self.tell_definition(of, |definition| plan::definition_begins(definition, name, self.clock.now()))
            .await?;
        let condition = (RUNNING, "MigrationRunning", "The migration is running");
        self.write(&plan::with(migration, condition, self.clock.now())).await
    }

    async fn finish(&self, of: &GroupResource, migration: &StorageVersionMigration) -> Result<(), Status> {
        let all = migration.status.iter().flat_map(|s| s.conditions.iter().flatten());
        let succeeded = crate::common::conditions::find(all, SUCCEEDED).is_some_and(|c| c.status == "True");
        self.tell_definition(of, |definition| plan::definition_ends(definition, succeeded, self.clock.now()))
            .await?;
        self.write(&plan::finished(migration, self.clock.now())).await
    }

    /// Writes the status of the resource's definition, if it has one.
    async fn tell_definition(
        &self,
        of: &GroupResource,
        patch: impl Fn(&Value) -> Value,
    ) -> Result<(), Status> {
        const TRIES: usize = 5;
        let resource = Resource {
            group: "apiextensions.k8s.io".into(),
            version: "v1".into(),
            plural: "customresourcedefinitions".into(),
        };
        let (api, name) = (self.client.resource::<Value>(resource, ""), of.to_string());
        let mut last = Ok(());
        for _ in 0..TRIES {
            let definition = match api.get(&name).await {
                Err(e) if e.is_not_found() => return Ok(()),
                other => other?,
            };
            let patch = Patch::Apply { object: patch(&definition), force: true };
            match api.patch_status(&name, &patch).await {
                Err(e) if e.is_not_found() => return Ok(()),
                Err(e) if e.is_conflict() => last = Err(e),
                other => return other.map(drop),
            }
        }
        last
    }

    /// Finds a resource as the server has it. `None` if the migration has failed over it.
    async fn served(
        &self,
        of: &GroupResource,
        migration: &StorageVersionMigration,
    ) -> Result<Option<Served>, Status> {
        let found = discover(&self.client).await?;
        let fits = |s: &Served| s.resource.group == *of.group && s.resource.plural == *of.resource;
        let Some(served) = found.resources.into_iter().find(fits) else {
            if let Some((_, error)) =
                found.failed.into_iter().find(|(v, _)| v.split('/').next() == Some(&*of.group))
            {
                return Err(error);
            }
            let made = migration.metadata.creation_timestamp.as_ref().map(|t| t.0);
            if made.is_some_and(|made| self.clock.now().duration_since(made) < PATIENCE) {
                return Err(retry("resource does not exist in our rest mapper, requeuing to attempt again"));
            }
            self.fail(migration, "resource does not exist in discovery").await?;
            return Ok(None);
        };
        if plan::is_migratable(&served) {
            return Ok(Some(served));
        }
        let why = format!(
            "resource \"{}, Resource={}\" does not support discovery operations: [{}]",
            served.api_version(),
            of.resource,
            plan::VERBS.join(" ")
        );
        self.fail(migration, &why).await?;
        Ok(None)
    }

    /// Notes the present revision of a resource.
    async fn observe(&self, of: &GroupResource, migration: &StorageVersionMigration) -> Result<(), Status> {
        let Some(served) = self.served(of, migration).await? else { return Ok(()) };
        let api = self.client.resource::<PartialObject>(served.resource, "");
        let revision =
            within(api.list(&ListParams { limit: 1, ..ListParams::default() })).await?.resource_version;
        if plan::is_up_to(&revision, &revision).is_none() {
            let why = format!("latest resourceVersion for {of} is not valid: {revision:?}");
            return self.fail(migration, &why).await;
        }
        let mut noted = migration.clone();
        noted.status.get_or_insert_default().resource_version = Some(revision);
        self.write(&noted).await
    }

    /// Writes every object again that was written up to the revision.
    async fn migrate(&self, of: &GroupResource, migration: &StorageVersionMigration) -> Result<(), Status> {
        let Some(served) = self.served(of, migration).await? else { return Ok(()) };
        let limit = plan::revision(migration).to_owned();
        let api = self.client.resource::<PartialObject>(served.resource.clone(), "");
        let mut page = ListParams { limit: PAGE, ..ListParams::default() };
        loop {
            // A list that took too long begins anew with the next attempt, which passes over what is written already.
            let list = within(api.list(&page)).await?;
            let mut old = Vec::new();
            for object in list.items {
                let revision = object.metadata.resource_version.as_deref().unwrap_or_default();
                match plan::is_up_to(revision, &limit) {
                    None => {
                        let why =
                            format!("unable to compare the resource versions {revision:?} and {limit:?}");
                        return self.fail(migration, &failed(&why)).await;
                    }
                    Some(true) => old.push(object),
                    Some(false) => {}
                }
            }
            let served = &served;
            let writes = stream::iter(old).map(|object| async move { self.rewrite(served, &object).await });
            let answers: Vec<_> = writes.buffer_unordered(AT_ONCE).collect().await;
            for answer in answers {
                match (plan::judge(&answer), answer) {
                    (Verdict::Again, Err(error)) => return Err(error),
                    (Verdict::Fail, Err(error)) => {
                        return self.fail(migration, &failed(&error.message)).await;
                    }
                    _ => {}
                }
            }
            page.continue_token = list.continue_token;
            if page.continue_token.is_empty() {
                let condition = (SUCCEEDED, "StorageVersionMigrationSucceeded", "");
                return self.write(&plan::with(migration, condition, self.clock.now())).await;
            }
        }
    }

    /// Writes an object as it is.
    async fn rewrite(&self, served: &Served, object: &PartialObject) -> Result<(), Status> {
        let meta = &object.metadata;
        // With both, an object that somebody else wrote, removed or made anew is a conflict, and is left alone.
        let same = json!({
            "apiVersion": served.api_version(), "kind": served.kind,
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        });
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let api = self.client.resource::<PartialObject>(served.resource.clone(), namespace);
        let patch = Patch::Apply { object: same, force: false };
        within(api.patch(meta.name.as_deref().unwrap_or_default(), &patch)).await.map(drop)
    }
}

fn failed(why: &str) -> String {
    format!("migration encountered unhandled error: {why}")
}
