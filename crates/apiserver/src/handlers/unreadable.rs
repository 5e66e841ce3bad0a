//! Stored objects that cannot be read: what is said of them, and how they are deleted.
//!
//! The texts are upstream's, which are others while `AllowUnsafeMalformedObjectDeletion` is on; what is wrong with the
//! value is said in our words.

use std::sync::Arc;

use access::admission::Operation;
use access::auth::Access;
use api::codec::json;
use api::status::{Cause, Details};
use api::{Object, Status, Struct};
use storage::{Unreadable, WriteError};

use super::Scope;
use crate::answer::{List, Outcome};
use crate::inner::Inner;
use crate::options::{UNREADABLE_OPTION, unreadable_option_error};
use crate::registry::Resource;

/// The feature gate.
pub(crate) const GATE: &str = "AllowUnsafeMalformedObjectDeletion";

/// Who deletes what cannot be read must be allowed this.
const VERB: &str = "unsafe-delete-ignore-read-errors";

/// How many objects a list names that cannot be read, as upstream's does.
const NAMED: usize = 100;

/// What is wrong with a value, where the gate is on. Of one that cannot be decrypted upstream does not know the
/// revision.
fn corrupt(bad: &Unreadable) -> String {
    if bad.sealed {
        format!("data from the storage is not transformable revision=0: {}", bad.why)
    } else {
        format!("object not decodable revision={}: {}", bad.revision, bad.why)
    }
}

/// Upstream's error of the store, for the object of a key.
fn storage_error(key: &str, bad: &Unreadable) -> String {
    let why = corrupt(bad);
    format!(
        "StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
    )
}

/// The tree of a stored object, in the version in which it is stored, or why it cannot be read.
pub(crate) fn decoded(
    inner: &Inner,
    resource: &Resource,
    object: &Object,
) -> Result<Result<Struct, Unreadable>, Status> {
    let decoded = json::decode(inner.schema, resource.stored()?.root, &object.data.body);
    Ok(decoded.map(|d| d.tree).map_err(|why| Unreadable {
        key: resource.storage_key(&object.data.namespace, &object.data.name),
        why: why.to_string(),
        sealed: false,
        revision: object.revision,
    }))
}

/// The error of an object of the store's own engine that cannot be read. Such an engine keeps JSON, so that the
/// object's own JSON is still shown, and no list of JSON fails for it.
pub(crate) fn corrupted(inner: &Inner, bad: &Unreadable) -> Status {
    if inner.config.gates.enabled(GATE) {
        Status::internal(storage_error(&bad.key, bad))
    } else {
        transforming(bad)
    }
}

/// The error of a list in a form for which its objects are read: upstream's list of those that cannot be, if the gate
/// is on.
pub(crate) fn in_list(inner: &Inner, list: &List, first: Status) -> Status {
    if !inner.config.gates.enabled(GATE) {
        return first;
    }
    let bad = list.items.iter().filter_map(|o| decoded(inner, &list.resource, o).ok()?.err()).map(Arc::new);
    let bad: Vec<_> = bad.take(NAMED + 1).collect();
    if bad.is_empty() { first } else { read_error(&list.resource, &bad) }
}

/// Upstream's error of a list with objects that cannot be read.
fn read_error(resource: &Resource, bad: &[Arc<Unreadable>]) -> Status {
    let named = bad.iter().take(NAMED).map(|bad| Cause {
        reason: "UnexpectedServerResponse".into(),
        message: storage_error(&bad.key, bad),
        field: bad.key.clone(),
    });
    let more = (bad.len() > NAMED).then(|| Cause {
        reason: "FieldValueTooMany".into(),
        message: "too many errors, the list is truncated".into(),
        field: String::new(),
    });
    let (group, plural) = (&resource.group, &resource.plural);
    let dot = if group.is_empty() { "" } else { "." };
    let message = format!("failed to read one or more {plural}{dot}{group} from the storage");
    let mut status = Status::failure(500, "StorageReadError", message);
    status.details = Some(Box::new(Details {
        name: "list".into(),
        group: group.to_string(),
        kind: plural.to_string(),
        causes: named.chain(more).collect(),
        ..Details::default()
    }));
    status
}

/// An error that upstream passes on as it is, where it is no error of decrypting.
fn raw(bad: &Unreadable, why: String) -> Status {
    if bad.sealed { Status::internal(why) } else { Status::failure(500, "", why) }
}

impl Scope<'_> {
    /// The value of the object of a name, if it cannot be read.
    fn unreadable(&self, name: &str) -> Option<Arc<Unreadable>> {
        let place = storage::Scope { namespace: self.namespace.into(), name: name.into(), field: None };
        self.inner.store.unreadable(self.stored.id, &place, 0)
    }

    /// As [`Scope::unreadable`], also for a store that finds out only when an object is decoded.
    fn corrupt(&self, name: &str) -> Result<Option<Arc<Unreadable>>, Status> {
        if self.inner.store.capabilities().finds_unreadable {
            return Ok(self.unreadable(name));
        }
        let Some(object) = self.inner.store.get(self.stored.id, self.namespace, name) else {
            return Ok(None);
        };
        Ok(decoded(self.inner, self.resource, &object)?.err().map(Arc::new))
    }

    /// Refuses to read an object whose value cannot be read.
    pub(crate) fn readable(&self, name: &str) -> Result<(), Status> {
        let Some(bad) = self.unreadable(name) else { return Ok(()) };
        if self.gate(GATE) {
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
        raw(bad, if self.gate(GATE) { corrupt(bad) } else { bad.why.clone() })
    }

    /// Refuses to list a selection with values in it that cannot be read.
    pub(crate) fn all_readable(&self, selected: &storage::Scope) -> Result<(), Status> {
        let bad = self.inner.store.all_unreadable(self.stored.id, selected, NAMED + 1);
        let Some(first) = bad.first() else { return Ok(()) };
        if !self.gate(GATE) {
            return Err(transforming(first));
        }
        Err(read_error(self.resource, &bad))
    }
}

/// Upstream's error for a value that cannot be decrypted, and ours for any that cannot be read, since it names the key:
/// in lists, and as the end of a watch. A watch through
/// upstream's cache ends without a word, for every watcher of the resource, and the list that follows fails with this;
/// one that goes to etcd itself has it as its last event. That is done here: it tells why, and only those for whom the
/// list would fail.
pub(crate) fn transforming(bad: &Unreadable) -> Status {
    Status::internal(format!("unable to transform key {:?}: {}", bad.key, bad.why))
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
    super::fresh(&scope.inner.store, &[scope.stored.id]).await?;
    let (group, plural) = (&scope.resource.group, &scope.resource.plural);
    loop {
        let Some(bad) = scope.corrupt(name)? else {
            let why = "is exclusively used to delete corrupt object(s), try again by removing this option";
            return Err(Status::invalid(group, plural, name, &[unreadable_option_error(why)]));
        };
        let (store, namespace) = (&scope.inner.store, scope.namespace);
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
    let decision = scope.inner.auth.authorizer.authorize(&scope.req.user, &access).get().await;
    match decision.refusal() {
        None => Ok(()),
        Some(reason) => {
            let why = format!("not permitted to do {VERB:?}, reason: {reason}");
            Err(Status::forbidden(&scope.resource.group, &scope.resource.plural, scope.name(), why))
        }
    }
}
