//! The options of a request for a connection, as the object that admission sees: upstream's `PodExecOptions` and its
//! like.

use access::{Query, RequestInfo};
use api::view::{Edit, strings};
use api::{Gvk, Node, Schema, Status, Struct};

use super::query;

/// The options of a request for a connection, of the kind that its subresource has.
pub(crate) fn options(
    schema: &Schema,
    kind: &Gvk,
    info: &RequestInfo,
    query: &Query,
) -> Result<Struct, Status> {
    let root = schema.kind(kind).ok_or_else(|| Status::internal(format!("no schema of {}", kind.kind)))?;
    let mut tree = Struct::new(root);
    let mut edit = Edit::new(schema, &mut tree);
    match info.subresource.as_str() {
        "proxy" => {
            let path = proxy_path(info);
            if !path.is_empty() {
                edit.set("path", path);
            }
        }
        "portforward" => {
            let ports: Vec<Node> = query::ports(query)?.into_iter().map(|p| i64::from(p).into()).collect();
            if !ports.is_empty() {
                edit.set("ports", ports);
            }
        }
        _ => {
            let streams = query::stream_options(query);
            let streams = [
                ("stdin", streams.stdin),
                ("stdout", streams.stdout),
                ("stderr", streams.stderr),
                ("tty", streams.tty),
            ];
            for (field, _) in streams.into_iter().filter(|(_, on)| *on) {
                edit.set(field, true);
            }
            if !query.str("container").is_empty() {
                edit.set("container", query.str("container"));
            }
            if info.subresource == "exec" && query.get("command").is_some() {
                edit.set("command", strings(query.all("command")));
            }
        }
    }
    Ok(tree)
}

/// The path below the proxy, as upstream tells it: with a slash before it, and one behind it if the request has one.
fn proxy_path(info: &RequestInfo) -> String {
    let mut path = String::new();
    if !info.rest.is_empty() {
        path.push('/');
        path.push_str(&info.rest);
    }
    if info.path.ends_with('/') && !path.ends_with('/') {
        path.push('/');
    }
    path
}
