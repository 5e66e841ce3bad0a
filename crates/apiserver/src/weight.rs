//! Which work is long, told by what can be seen without doing any of it.

use std::sync::Arc;

use api::Object;
use memchr::memmem;
use storage::Store;

use crate::catalog::ResourceEntry;
use crate::negotiate::{Convert, Form, Format};
use crate::outcome::{List, Outcome};
use crate::request::Request;

/// How many bytes of JSON are read, checked or written where the request arrived: about a millisecond.
const SHORT: usize = 64 << 10;

/// YAML costs as much as JSON of this many times its length, and so does merging.
const YAML: usize = 4;

/// Whether to handle a request is long work.
pub(crate) fn of_request(store: &Store, request: &Request) -> bool {
    let factor = match request.info.verb {
        "get" | "list" | "watch" => return false,
        "deletecollection" => return true,
        _ if request.content_type.contains("yaml") => YAML,
        _ => 1,
    };
    let body = &request.body;
    if body.len() * factor > SHORT || request.content_type.starts_with(JSON_PATCH) && may_copy(body) {
        return true;
    }
    // The stored object is read and written, too.
    matches!(request.info.verb, "update" | "patch") && stored_size(store, request) * factor > SHORT
}

const JSON_PATCH: &str = "application/json-patch+json";

/// Whether a JSON patch may make much of little.
fn may_copy(patch: &[u8]) -> bool {
    memmem::find(patch, b"copy").is_some() || memchr::memchr(b'\\', patch).is_some()
}

/// The size of the object that a request changes.
fn stored_size(store: &Store, request: &Request) -> usize {
    let info = &request.info;
    let object = request.resource.as_ref().and_then(|resource| {
        let namespace = if resource.namespaced { info.namespace.as_str() } else { "" };
        store.get(resource.stored.as_ref()?.id, namespace, &info.name)
    });
    object.map_or(0, |object| object.data.body.len())
}

/// Whether to encode an answer is long work: whether much must be decoded for it, or laid out anew.
pub(crate) fn of_answer(outcome: &Outcome, form: Form) -> bool {
    match outcome {
        Outcome::List(List { resource, items, .. }) => !as_stored(form, resource) && much(items),
        Outcome::Stored { resource, object, .. } => {
            !as_stored(form, resource) && object.data.body.len() > SHORT
        }
        Outcome::Tree { .. } | Outcome::Computed { .. } | Outcome::Status(_) | Outcome::Watch(_) => false,
    }
}

/// Whether a form of a resource's objects is that in which they are stored.
fn as_stored(form: Form, resource: &ResourceEntry) -> bool {
    form.convert == Convert::None && form.format == Format::Json && !form.pretty && resource.same_version()
}

fn much(items: &[Arc<Object>]) -> bool {
    let mut left = SHORT;
    // However small it is, each is an object.
    items.iter().any(|item| match left.checked_sub(item.data.body.len() + 256) {
        Some(less) => {
            left = less;
            false
        }
        None => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_that_may_copy() {
        let check = |patch: &str, expected: bool| assert_eq!(may_copy(patch.as_bytes()), expected, "{patch}");
        check(r#"[{"op":"replace","path":"/a","value":1}]"#, false);
        check(r#"[{"op":"copy","from":"/a","path":"/b"}]"#, true);
        check(r#"[{"op":"\u0063opy","from":"/a","path":"/b"}]"#, true);
    }
}
