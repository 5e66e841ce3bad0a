//! Requests that meet a stored object that cannot be read, and how such an object is deleted.

use std::sync::Arc;

use access::admission::Operation;
use access::auth::Access;
use api::Status;
use api::status::Details;
use storage::{Unreadable, WriteError};

use super::scope::Scope;
use crate::catalog::unreadable::{
    GATE, NAMED, corrupt, decoded, raw, read_error, storage_error, transforming,
};
use crate::options::{UNREADABLE_OPTION, unreadable_option_error};
use crate::outcome::Outcome;

/// The verb that a user must be allowed to delete an object that cannot be read.
const VERB: &str = "unsafe-delete-ignore-read-errors";

impl Scope<'_> {
    /// The value of the object of a name, if it cannot be read.
    fn unreadable(&self, name: &str) -> Option<Arc<Unreadable>> {
        let place = storage::Scope { namespace: self.namespace.into(), name: name.into(), field: None };
        self.handlers.objects.store.unreadable(self.stored.id, &place, 0)
    }

    /// As [`Scope::unreadable`], also for a store that finds out only when an object is decoded.
    fn corrupt(&self, name: &str) -> Result<Option<Arc<Unreadable>>, Status> {
        if self.handlers.objects.store.capabilities().finds_unreadable {
            return Ok(self.unreadable(name));
        }
        let Some(object) = self.handlers.objects.store.get(self.stored.id, self.namespace, name) else {
            return Ok(None);
        };
        Ok(decoded(self.catalog.schema(), self.resource, &object)?.err().map(Arc::new))
    }

    /// Refuses to read an object whose value cannot be read.
    pub(crate) fn readable(&self, name: &str) -> Result<(), Status> {
        let Some(bad) = self.unreadable(name) else { return Ok(()) };
        if self.enabled(GATE) {
            let key = self.resource.storage_key(self.namespace, name);
            return Err(Status::internal(storage_error(&key, &bad)));
        }
        Err(raw(&bad, bad.why.clone()))
    }

    /// Refuses to change an object whose value cannot be read.
    pub(crate) fn changeable(&self, name: &str) -> Result<(), Status> {
        self.unreadable(name).map_or(Ok(()), |bad| Err(self.cannot_change(&bad)))
    }

    /// Upstream's error for a change to a value that cannot be read.
    pub(crate) fn cannot_change(&self, bad: &Unreadable) -> Status {
        raw(bad, if self.enabled(GATE) { corrupt(bad) } else { bad.why.clone() })
    }

    /// Refuses to list a selection with values in it that cannot be read.
    pub(crate) fn all_readable(&self, selected: &storage::Scope) -> Result<(), Status> {
        let bad = self.handlers.objects.store.all_unreadable(self.stored.id, selected, NAMED + 1);
        let Some(first) = bad.first() else { return Ok(()) };
        if !self.enabled(GATE) {
            return Err(transforming(first));
        }
        Err(read_error(self.resource, &bad))
    }
}

/// Deletes an object whose value cannot be read, without admission, finalizers or anything else that would look at it.
/// Whatever can be read is refused.
pub(crate) async fn delete(scope: &Scope<'_>) -> Result<Outcome, Status> {
    let name = scope.name();
    // For the audit, however it ends.
    let request = scope.admission(Operation::Delete, &scope.stored.kind, name, None, false);
    request.annotate("apiserver.k8s.io/unsafe-delete-ignore-read-error", "");
    // Not those whose storage upstream wraps.
    if !scope.facts().deletion.unreadable {
        return Err(Status::internal(format!(
            "no unsafe deleter provided, can not honor {UNREADABLE_OPTION}"
        )));
    }
    authorize(scope).await?;
    scope.handlers.objects.fresh(&[scope.stored.id]).await?;
    let (group, plural) = (&scope.resource.group, &scope.resource.plural);
    loop {
        let Some(bad) = scope.corrupt(name)? else {
            let why = "is exclusively used to delete corrupt object(s), try again by removing this option";
            return Err(Status::invalid(group, plural, name, &[unreadable_option_error(why)]));
        };
        let (store, namespace) = (&scope.handlers.objects.store, scope.namespace);
        tracing::warn!(key = bad.key, "deleting an object that cannot be read");
        match store.delete_unreadable(scope.stored.id, namespace.into(), name.into(), bad.revision).await {
            // Gone is gone, whoever did it.
            Ok(()) | Err(WriteError::NotFound) => break,
            // Something else is there by now, and is shown.
            Err(WriteError::Changed(_) | WriteError::Unreadable(_)) => {}
            Err(e) => return Err(scope.write_error(&e, name)),
        }
    }
    Ok(Outcome::Status(Status {
        details: Some(Box::new(Details {
            name: name.into(),
            kind: scope.resource.kind.kind.to_string(),
            ..Details::default()
        })),
        ..Status::success()
    }))
}

/// Whether the caller may delete what cannot be read.
async fn authorize(scope: &Scope<'_>) -> Result<(), Status> {
    let access = Access { verb: VERB, ..Access::from(&*scope.req.info) };
    let decision = scope.handlers.auth.authorizer.authorize(&scope.req.user, &access).get().await;
    match decision.refusal() {
        None => Ok(()),
        Some(reason) => {
            let why = format!("not permitted to do {VERB:?}, reason: {reason}");
            Err(Status::forbidden(&scope.resource.group, &scope.resource.plural, scope.name(), why))
        }
    }
}
