//! Namespaces: they are deleted in two steps.

use access::admission::{DeleteOptions, Propagation};
use api::Status;
use api::view::Edit;
use futures::FutureExt;
use futures::future::BoxFuture;
use storage::{Write, WriteError};

use super::scope::{Lifecycle, MODIFIED, Scope};
use crate::outcome::Outcome;

/// The lifecycle of Namespaces.
pub(crate) struct Namespaces;

impl Lifecycle for Namespaces {
    fn delete<'a>(
        &'a self,
        scope: &'a Scope<'a>,
        name: &'a str,
        options: &'a DeleteOptions,
    ) -> BoxFuture<'a, Result<Option<Outcome>, Status>> {
        delete(scope, name, options).boxed()
    }
}

/// The first deletion marks the namespace as terminating; `None` if it is to be removed now.
async fn delete(scope: &Scope<'_>, name: &str, options: &DeleteOptions) -> Result<Option<Outcome>, Status> {
    let schema = scope.catalog.schema();
    loop {
        let object = scope.find(name)?;
        let mut tree = scope.tree(&object).await?;
        let failed = |what: &str, wanted: &str, has: &str| {
            scope.conflict(
                name,
                &format!(
                    "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {has}"
                ),
            )
        };
        if let Some(uid) = &options.uid
            && *uid != object.data.uid
        {
            return Err(failed("UID", uid, &object.data.uid));
        }
        if let Some(revision) = &options.resource_version
            && *revision != object.revision.to_string()
        {
            return Err(failed("ResourceVersion", revision, &object.revision.to_string()));
        }
        if scope.meta(&tree).deleting() {
            if !scope.strategy().is_held(schema, &tree) {
                return Ok(None);
            }
            return Ok(Some(scope.stored_answer(200, object)));
        }
        scope.admit_delete(name, &tree, options).await?;
        let finalizers: Vec<String> =
            scope.meta(&tree).finalizers().iter().map(|s| (*s).to_owned()).collect();
        let wanted = dependents_finalizers(&finalizers, options);
        {
            let mut meta = scope.meta_mut(&mut tree)?;
            meta.set_deleted(&scope.now);
            meta.set_finalizers(&wanted.iter().map(String::as_str).collect::<Vec<_>>());
        }
        if let Some(mut status) = Edit::new(schema, &mut tree).make("status") {
            status.set("phase", "Terminating");
        }
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

fn dependents_finalizers(has: &[String], options: &DeleteOptions) -> Vec<String> {
    let keep = |finalizer: &str, by_orphan: bool, policy: Propagation| match (
        options.orphan_dependents,
        options.propagation,
    ) {
        (Some(orphan), _) => orphan == by_orphan,
        (None, Some(p)) => p == policy,
        (None, None) => has.iter().any(|f| f == finalizer),
    };
    let mut wanted: Vec<String> =
        has.iter().filter(|f| !matches!(f.as_str(), "orphan" | "foregroundDeletion")).cloned().collect();
    if keep("orphan", true, Propagation::Orphan) {
        wanted.push("orphan".into());
    }
    if keep("foregroundDeletion", false, Propagation::Foreground) {
        wanted.push("foregroundDeletion".into());
    }
    wanted
}
