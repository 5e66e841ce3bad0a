//! The stage between a handler and the encoder: where somebody must be asked to convert objects, they come into the
//! version of the request here, all at once. Objects that the strategy converts pass by.

use std::sync::Arc;

use api::Status;

use crate::catalog::unreadable;
use crate::outcome::{List, Outcome};
use crate::request::Request;

/// Converts what a handler answered; the events of a watch are converted as they come.
pub(super) async fn convert(ctx: &Request, outcome: Outcome) -> Result<Outcome, Status> {
    let catalog = &ctx.catalog;
    match outcome {
        Outcome::Stored { status, resource, object } => {
            let Some(converted) = &resource.converted else {
                let object = catalog.current_object(&resource, &object, ctx.deadline).await?;
                return Ok(Outcome::Stored { status, resource, object });
            };
            let kind = &resource.stored()?.kind.kind;
            let objects =
                catalog.converted_objects(&resource, std::slice::from_ref(&object), kind, ctx.deadline);
            let object = objects.await?.pop().unwrap_or(object);
            Ok(Outcome::Stored { status, resource: Arc::clone(converted), object })
        }
        Outcome::List(list) => {
            let Some(converted) = list.resource.converted.clone() else {
                if list.items.iter().all(|object| list.resource.is_current(object)) {
                    return Ok(Outcome::List(list));
                }
                let kind = &list.resource.list_kind;
                let items = catalog.current_objects(&list.resource, &list.items, kind, ctx.deadline).await?;
                return Ok(Outcome::List(List { items, ..list }));
            };
            let kind = format!("{}List", list.resource.stored()?.kind.kind);
            let objects = catalog.converted_objects(&list.resource, &list.items, &kind, ctx.deadline).await;
            let items = objects.map_err(|first| {
                if !catalog.unsafe_deletion {
                    return first;
                }
                unreadable::in_list(catalog.schema(), &list.resource, &list.items, first)
            })?;
            Ok(Outcome::List(List { items, resource: converted, ..list }))
        }
        Outcome::Watch(source) => match source.resource.converted.clone() {
            Some(converted) => Ok(Outcome::Watch(Box::new(source.converting(catalog, converted)))),
            None if source.resource.custom.is_some() => {
                Ok(Outcome::Watch(Box::new(source.bringing(catalog))))
            }
            None => Ok(Outcome::Watch(source)),
        },
        other => Ok(other),
    }
}
