//! `componentstatuses`: made when they are asked for.

use std::sync::Arc;

use api::view::Edit;
use api::{Status, Struct};

use crate::answer::Outcome;
use crate::inner::Inner;
use crate::pipe::method_not_allowed;
use crate::registry::Resource;
use crate::request::Request;

/// Answers get and list.
pub(crate) fn dispatch(
    inner: &Arc<Inner>,
    req: &Request,
    resource: &Arc<Resource>,
) -> Result<Outcome, Status> {
    match req.info.verb {
        "list" => Ok(Outcome::Computed {
            resource: Arc::clone(resource),
            items: COMPONENTS.iter().map(|c| component(inner, resource, c)).collect(),
        }),
        "get" => {
            let name = req.info.name.as_str();
            let known = COMPONENTS.iter().find(|c| **c == name);
            let known = known.ok_or_else(|| Status::not_found("", "componentstatus", name))?;
            Ok(Outcome::Tree {
                status: 200,
                kind: resource.kind.clone(),
                tree: component(inner, resource, known),
                resource: Some(Arc::clone(resource)),
            })
        }
        _ => Err(method_not_allowed()),
    }
}

/// The components whose health `componentstatuses` tells; they run in this process or not at all.
const COMPONENTS: [&str; 3] = ["controller-manager", "scheduler", "etcd-0"];

fn component(inner: &Inner, resource: &Resource, name: &str) -> Struct {
    let schema = inner.schema;
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
