//! Reads one object.

use api::Status;

use super::Scope;
use crate::answer::Outcome;
use crate::options;

pub(crate) async fn get(scope: &Scope<'_>) -> Result<Outcome, Status> {
    let revision = options::revision(scope.req.query.str("resourceVersion"))?;
    let (store, id) = (&scope.inner.store, scope.stored.id);
    if scope.req.query.str("resourceVersion").is_empty() {
        super::fresh(store, &[id]).await?;
    }
    super::watch::reached(store, id, revision).await?;
    Ok(scope.stored_answer(200, scope.find(scope.name())?))
}
