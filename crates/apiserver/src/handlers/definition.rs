//! CustomResourceDefinitions: they are deleted in two steps.

use access::admission::DeleteOptions;
use api::Status;
use futures::FutureExt;
use futures::future::BoxFuture;
use storage::{Write, WriteError};

use super::scope::{Lifecycle, MODIFIED, Scope};
use super::update::precondition;
use crate::conditions::{self, Condition};
use crate::outcome::Outcome;

/// The finalizer that keeps a definition until its objects are gone.
const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The lifecycle of CustomResourceDefinitions.
pub(crate) struct Definitions;

impl Lifecycle for Definitions {
    fn delete<'a>(
        &'a self,
        scope: &'a Scope<'a>,
        name: &'a str,
        options: &'a DeleteOptions,
    ) -> BoxFuture<'a, Result<Option<Outcome>, Status>> {
        delete(scope, name, options).boxed()
    }
}

const PENDING: Condition<'_> = Condition {
    kind: "Terminating",
    status: "True",
    reason: "InstanceDeletionPending",
    message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
};

/// The first deletion marks the definition, so that its objects go; `None` for any other.
async fn delete(scope: &Scope<'_>, name: &str, options: &DeleteOptions) -> Result<Option<Outcome>, Status> {
    loop {
        let object = scope.find(name)?;
        let mut tree = scope.tree(&object).await?;
        if scope.meta(&tree).deleting() {
            return Ok(None);
        }
        let failed = |what: &str, wanted: &str, has: &str| {
            let why = format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {has}"
            );
            precondition(scope, name, &why)
        };
        if let Some(uid) = options.uid.as_ref().filter(|uid| **uid != object.data.uid) {
            return Err(failed("UID", uid, &object.data.uid));
        }
        let revision = object.revision.to_string();
        if let Some(wanted) = options.resource_version.as_ref().filter(|wanted| **wanted != revision) {
            return Err(failed("ResourceVersion", wanted, &revision));
        }
        scope.admit_delete(name, &tree, options).await?;
        {
            let mut meta = scope.meta_mut(&mut tree)?;
            let mut all: Vec<String> = meta.read().finalizers().iter().map(|f| (*f).to_owned()).collect();
            if !all.iter().any(|f| f == FINALIZER) {
                all.push(FINALIZER.into());
            }
            meta.set_deleted(&scope.now);
            meta.set_finalizers(&all.iter().map(String::as_str).collect::<Vec<_>>());
        }
        conditions::set(scope.catalog.schema(), &mut tree, &PENDING, &scope.now);
        if options.dry_run {
            return scope.dry_answer(200, tree).await.map(Some);
        }
        let write = Write::Update {
            resource: scope.stored.id,
            object: scope.new_object(tree).await?,
            expect: object.revision,
            ttl: None,
        };
        match scope.commit(write).await {
            Ok(object) => return Ok(Some(scope.stored_answer(200, object))),
            Err(WriteError::Changed(_)) if options.resource_version.is_none() => {}
            Err(WriteError::Changed(_)) => return Err(scope.conflict(name, MODIFIED)),
            Err(e) => return Err(scope.write_error(&e, name)),
        }
    }
}
