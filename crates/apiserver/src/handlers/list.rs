//! Lists and their pages.

use std::sync::Arc;

use api::page::Start;
use api::{Object, Status};
use storage::Snapshot;

use super::scope::Scope;
use super::watch;
use crate::objects::FRESH_TIMEOUT;
use crate::options::{ListOptions, Match};
use crate::outcome::{List, Outcome};
use crate::select::Selection;

/// How many objects are looked at before others have their turn.
const BREATH: usize = 4096;

/// Upstream's text for a token whose state is gone; it carries a token that goes on in the current one.
fn expired(from: &Start, namespaced_list: bool) -> Status {
    let mut s = Status::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    let current = Start { revision: -1, ..from.clone() };
    s.continue_token = Some(current.encode(namespaced_list));
    s
}

/// Answers a list; a watch, if the query asks for one.
pub(crate) async fn list(scope: &Scope<'_>, options: ListOptions) -> Result<Outcome, Status> {
    if options.watch {
        return watch::watch(scope, options).await;
    }
    Ok(Outcome::List(select(scope, &options).await?))
}

/// The objects that a list's options select.
pub(crate) async fn select(scope: &Scope<'_>, options: &ListOptions) -> Result<List, Status> {
    let selection = Selection::new(
        (scope.catalog, scope.resource),
        scope.namespace,
        scope.name(),
        &options.label_selector,
        &options.field_selector,
    )?;
    let objects = &scope.handlers.objects;
    let store = &objects.store;
    let id = scope.stored.id;
    let namespaced_list = !selection.scope.namespace.is_empty();
    let revision = options.revision()?;
    let from = if options.token.is_empty() {
        None
    } else {
        let from = Start::decode(&options.token, &selection.scope.namespace, scope.resource.namespaced)
            .map_err(|e| Status::bad_request(format!("invalid continue token: {e}")))?;
        if revision != 0 {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        Some(from)
    };
    match &from {
        // A revision that another server told may be new to this one.
        Some(from) if from.revision > 0 && store.capabilities().others_write => {
            store.wait_for(id, from.revision as u64, FRESH_TIMEOUT).await;
        }
        _ if options.resource_version.is_empty() => objects.fresh(&[id]).await?,
        _ => {}
    }
    // As upstream's first API: a page of a revision is of exactly that one, unless something else is said.
    let matching = match options.matching {
        None if options.limit > 0 && revision > 0 => Some(Match::Exact),
        matching => matching,
    };
    let snapshot = match (&from, matching) {
        (Some(from), _) if from.revision > 0 => {
            let at = from.revision as u64;
            match store.snapshot_at(id, at) {
                Some(s) => s,
                None => return Err(expired(from, namespaced_list)),
            }
        }
        (Some(_), _) => store.snapshot(id),
        (None, Some(Match::Exact)) => {
            objects.reached(id, revision).await?;
            store
                .snapshot_at(id, revision)
                .ok_or_else(|| Status::expired("The resourceVersion for the provided list is too old."))?
        }
        (None, _) => {
            objects.reached(id, revision).await?;
            store.snapshot(id)
        }
    };
    scope.all_readable(&selection.scope)?;
    let after = from.as_ref().map(|f| (f.namespace.as_str(), f.name.as_str()));
    // As upstream: a page of the state "0" is the whole of it.
    let limit = if options.resource_version == "0" && options.matching != Some(Match::Exact) {
        0
    } else {
        usize::try_from(options.limit).unwrap_or_default()
    };
    let mut items = Vec::new();
    let mut more = false;
    for (n, object) in snapshot.scan(&selection.scope, after).marked(selection.marks()).enumerate() {
        if n % BREATH == BREATH - 1 {
            scope.req.in_time()?;
            tokio::task::yield_now().await;
        }
        if selection.is_by_version() {
            break;
        }
        if !selection.everything && !selection.matches(object) {
            continue;
        }
        if limit > 0 && items.len() == limit {
            more = true;
            break;
        }
        items.push(Arc::clone(object));
    }
    if selection.is_by_version() {
        (items, more) = selected_by_version(scope, &selection, &snapshot, after, limit).await?;
    }
    let last = items.last().filter(|_| more);
    let (token, remaining) = last.map(|last| rest(&snapshot, &selection, last)).unwrap_or_default();
    Ok(List {
        resource: Arc::clone(scope.resource),
        revision: snapshot.revision(),
        token,
        remaining,
        items,
        deadline: scope.req.deadline,
    })
}

/// The number of objects that are brought into a version at once.
const CHUNK: usize = 500;

/// The objects of a page whose selection needs them in the version of the request, and whether more follow.
async fn selected_by_version(
    scope: &Scope<'_>,
    selection: &Selection,
    snapshot: &Snapshot,
    after: Option<(&str, &str)>,
    limit: usize,
) -> Result<(Vec<Arc<Object>>, bool), Status> {
    let mut items = Vec::new();
    let mut candidates = snapshot.scan(&selection.scope, after).marked(selection.marks());
    loop {
        let chunk: Vec<Arc<Object>> = candidates.by_ref().take(CHUNK).cloned().collect();
        if chunk.is_empty() {
            return Ok((items, false));
        }
        let (resource, deadline) = (scope.resource, scope.req.deadline);
        let chunk = scope.catalog.current_objects(resource, &chunk, &resource.list_kind, deadline).await?;
        for object in chunk.into_iter().filter(|object| selection.matches(object)) {
            if limit > 0 && items.len() == limit {
                return Ok((items, true));
            }
            items.push(object);
        }
    }
}

/// The continue token of a page that ends with this object, and how many objects follow it, if that is known.
fn rest(snapshot: &Snapshot, selection: &Selection, last: &Object) -> (String, Option<u64>) {
    let (namespace, name) = (last.data.namespace.clone(), last.data.name.clone());
    let following = || snapshot.count(&selection.scope, Some((namespace.as_str(), name.as_str()))) as u64;
    let remaining = selection.everything.then(following);
    let start = Start { revision: snapshot.revision() as i64, namespace, name };
    (start.encode(!selection.scope.namespace.is_empty()), remaining)
}
