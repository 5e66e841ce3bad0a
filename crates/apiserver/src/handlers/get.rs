//! Reads one object.

use api::Status;

use super::scope::Scope;
use crate::options;
use crate::outcome::Outcome;

pub(crate) async fn get(scope: &Scope<'_>) -> Result<Outcome, Status> {
    let revision = options::revision(scope.req.query.str("resourceVersion"))?;
    let (objects, id) = (&scope.handlers.objects, scope.stored.id);
    if scope.req.query.str("resourceVersion").is_empty() {
        objects.fresh(&[id]).await?;
    }
    objects.reached(id, revision).await?;
    Ok(scope.stored_answer(200, scope.find(scope.name())?))
}
