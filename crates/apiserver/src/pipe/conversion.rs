//! The stage between a handler and the encoder: objects of definitions that are not stored in the version of the request
//! come into it here, all at once. Others pass by: their form is made where it is encoded.

use api::Status;

use crate::outcome::{List, Outcome};
use crate::request::Request;

/// Converts what a handler answered; the events of a watch are converted as they come.
pub(super) async fn convert(ctx: &Request, outcome: Outcome) -> Result<Outcome, Status> {
    let catalog = &ctx.catalog;
    match outcome {
        Outcome::Stored { status, resource, object } => {
            let object = catalog.current_object(&resource, &object, ctx.deadline).await?;
            Ok(Outcome::Stored { status, resource, object })
        }
        Outcome::List(list) => {
            if list.items.iter().all(|object| list.resource.is_current(object)) {
                return Ok(Outcome::List(list));
            }
            let kind = &list.resource.list_kind;
            let items = catalog.current_objects(&list.resource, &list.items, kind, ctx.deadline).await?;
            Ok(Outcome::List(List { items, ..list }))
        }
        Outcome::Watch(source) if source.resource.custom.is_some() => {
            Ok(Outcome::Watch(Box::new(source.bringing(catalog))))
        }
        other => Ok(other),
    }
}
