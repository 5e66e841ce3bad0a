//! The errors about stored objects that cannot be read.
//!
//! The texts are upstream's, which are others while `AllowUnsafeMalformedObjectDeletion` is on; what is wrong with the
//! value is said in our words.

use std::sync::Arc;

use api::codec::json;
use api::status::{Cause, Details};
use api::{Gate, Object, Schema, Status, Struct};
use storage::Unreadable;

use super::resource::ResourceEntry;

/// The feature gate.
pub(crate) const GATE: Gate = Gate::AllowUnsafeMalformedObjectDeletion;

/// How many objects a list names that cannot be read, as upstream's does.
pub(crate) const NAMED: usize = 100;

/// The fault of a value, where the gate is on. Upstream does not know the revision of a value that cannot be
/// decrypted.
pub(crate) fn corrupt(bad: &Unreadable) -> String {
    if bad.sealed {
        format!("data from the storage is not transformable revision=0: {}", bad.why)
    } else {
        format!("object not decodable revision={}: {}", bad.revision, bad.why)
    }
}

/// Upstream's error of the store, for the object of a key.
pub(crate) fn storage_error(key: &str, bad: &Unreadable) -> String {
    let why = corrupt(bad);
    format!(
        "StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
    )
}

/// The tree of a stored object, in the version in which it is stored, or why it cannot be read.
pub(crate) fn decoded(
    schema: &Schema,
    resource: &ResourceEntry,
    object: &Object,
) -> Result<Result<Struct, Unreadable>, Status> {
    let decoded = json::decode(schema, resource.stored()?.root, &object.data.body);
    Ok(decoded.map(|d| d.tree).map_err(|why| Unreadable {
        key: resource.storage_key(&object.data.namespace, &object.data.name),
        why: why.to_string(),
        sealed: false,
        revision: object.revision,
    }))
}

/// The error of an object of the store's own engine that cannot be read. Such an engine keeps JSON, so that the
/// object's own JSON is still shown, and no list of JSON fails for it.
pub(crate) fn corrupted(bad: &Unreadable, unsafe_deletion: bool) -> Status {
    if unsafe_deletion { Status::internal(storage_error(&bad.key, bad)) } else { transforming(bad) }
}

/// The error of a list in a form for which its objects are read: upstream's list of those that cannot be.
pub(crate) fn in_list(
    schema: &Schema,
    resource: &ResourceEntry,
    items: &[Arc<Object>],
    first: Status,
) -> Status {
    let bad = items.iter().filter_map(|o| decoded(schema, resource, o).ok()?.err()).map(Arc::new);
    let bad: Vec<_> = bad.take(NAMED + 1).collect();
    if bad.is_empty() { first } else { read_error(resource, &bad) }
}

/// Upstream's error of a list with objects that cannot be read.
pub(crate) fn read_error(resource: &ResourceEntry, bad: &[Arc<Unreadable>]) -> Status {
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
pub(crate) fn raw(bad: &Unreadable, why: String) -> Status {
    if bad.sealed { Status::internal(why) } else { Status::failure(500, "", why) }
}

/// Upstream's error for a value that cannot be decrypted, and ours for any that cannot be read, since it names the key:
/// in lists, and as the end of a watch. A watch through
/// upstream's cache ends without a word, for every watcher of the resource, and the list that follows fails with this;
/// one that goes to etcd itself has it as its last event. That is done here: it tells why, and only those for whom the
/// list would fail.
pub(crate) fn transforming(bad: &Unreadable) -> Status {
    Status::internal(format!("unable to transform key {:?}: {}", bad.key, bad.why))
}
