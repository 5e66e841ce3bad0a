//! `componentstatuses`: made when they are asked for.

use std::sync::Arc;

use api::view::Edit;
use api::{Schema, Status, Struct};

use crate::catalog::ResourceEntry;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::routes::method_not_allowed;

/// Answers get and list.
pub(crate) fn dispatch(req: &Request, resource: &Arc<ResourceEntry>) -> Result<Outcome, Status> {
    let schema = req.catalog.schema();
    match req.info.verb {
        "list" => Ok(Outcome::Computed {
            resource: Arc::clone(resource),
            items: COMPONENTS.iter().map(|c| component(schema, resource, c)).collect(),
        }),
        "get" => {
            let name = req.info.name.as_str();
            let known = COMPONENTS.iter().find(|c| **c == name);
            let known = known.ok_or_else(|| Status::not_found("", "componentstatus", name))?;
            Ok(Outcome::Tree {
                status: 200,
                kind: resource.kind.clone(),
                tree: component(schema, resource, known),
                resource: Some(Arc::clone(resource)),
            })
        }
        _ => Err(method_not_allowed()),
    }
}

/// The components whose health `componentstatuses` tells; they run in this process or not at all.
const COMPONENTS: [&str; 3] = ["controller-manager", "scheduler", "etcd-0"];

fn component(schema: &Schema, resource: &ResourceEntry, name: &str) -> Struct {
    let mut tree = Struct::new(resource.root);
    let mut edit = Edit::new(schema, &mut tree);
    if let Some(mut meta) = edit.make("metadata") {
        meta.set("name", name);
    }
    if let Some(mut condition) = edit.fresh("conditions") {
        {
            let mut c = Edit::new(schema, &mut condition);
            c.set("type", "Healthy");
            c.set("status", "True");
            c.set("message", "ok");
        }
        edit.set("conditions", vec![api::Node::from(condition)]);
    }
    tree
}
