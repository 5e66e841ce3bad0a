//! `serviceaccounts/x/token`: tokens for ServiceAccounts.

use access::admission::Operation;
use api::Status;
use api::view::{Edit, View};

use super::body::{read_object, same_namespace};
use super::managed;
use super::review::{dedup_owners, wipe_system_fields};
use super::scope::Scope;
use crate::catalog::SubresourceEntry;
use crate::options::{WriteKind, write_options};
use crate::outcome::Outcome;

/// `POST serviceaccounts/x/token`
pub(crate) async fn create(scope: &Scope<'_>, sub: &SubresourceEntry) -> Result<Outcome, Status> {
    let options = write_options(&scope.req.query, WriteKind::Create)?;
    let (catalog, handlers) = (scope.catalog, scope.handlers);
    let mut tree = read_object(scope.req, &sub.kind, None, options.field_validation)?;
    wipe_system_fields(catalog, &mut tree);
    let name = scope.name();
    let request = scope.admission(Operation::Create, &sub.kind, name, None, options.dry_run);
    handlers.admission.mutate(&request, &mut tree).await?;
    let view = View::new(catalog.schema(), &tree).st("metadata");
    let (has_name, has_namespace) = (view.str("name").to_owned(), view.str("namespace").to_owned());
    if !has_name.is_empty() && has_name != name {
        return Err(Status::bad_request(format!(
            "metadata.name in request body ({has_name:?}) does not match service account name in URL ({name:?})"
        )));
    }
    same_namespace(&has_namespace, scope.namespace)?;
    let account = scope.tree(&scope.find(name)?).await?;
    if let Some(mut meta) = Edit::new(catalog.schema(), &mut tree).make("metadata") {
        meta.set("name", name);
        meta.set("namespace", scope.namespace);
        meta.set("creationTimestamp", scope.now.as_str());
    }
    let tree_kind = sub.kind.clone();
    catalog.resources.defaults.apply(catalog.schema(), &mut tree);
    dedup_owners(scope.req, &mut tree);
    managed::track_answered(&scope.now, scope.req, &tree_kind, &mut tree, &options);
    handlers.admission.validate(&request, Some(&tree)).await?;
    handlers.auth.reviewer.issue_token(&scope.req.user, &account, &mut tree)?;
    Ok(Outcome::Tree { status: 201, kind: tree_kind, tree, resource: None })
}
