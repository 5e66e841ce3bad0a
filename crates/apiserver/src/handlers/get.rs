//! Reads one object.

use api::Status;

use super::Scope;
use super::watch::{FRESH_TIMEOUT, too_large};
use crate::answer::Outcome;
use crate::options;

pub(crate) async fn get(scope: &Scope<'_>) -> Result<Outcome, Status> {
    let revision = options::revision(scope.req.query.str("resourceVersion"))?;
    let store = &scope.inner.store;
    if scope.req.query.str("resourceVersion").is_empty() {
        super::fresh(store).await?;
    }
    if revision > store.current() && !store.wait_for(revision, FRESH_TIMEOUT).await {
        return Err(too_large(revision, store.current()));
    }
    let place = storage::Scope { namespace: scope.namespace.into(), name: scope.name().into(), field: None };
    if let Some((_, why)) = store.unreadable(scope.stored.id, &place) {
        return Err(Status::internal(why));
    }
    Ok(scope.stored_answer(200, scope.find(scope.name())?))
}
