//! The server's own part for built-in resources: this is the one place where handlers know resources by name.

use std::sync::Arc;

use api::Status;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::certificate_request::CertificateRequests;
use super::definition::Definitions;
use super::namespace::Namespaces;
use super::scope::{Handlers, Lifecycle, Scope};
use super::service::Services;
use super::{binding, component_status, eviction, review, token, used};
use crate::catalog::{ResourceEntry, SubresourceEntry};
use crate::outcome::Outcome;
use crate::proxy::Target;
use crate::request::Request;

/// Answers a request to a subresource.
pub(crate) type Handler =
    for<'a> fn(&'a Scope<'a>, &'a SubresourceEntry) -> BoxFuture<'a, Result<Outcome, Status>>;

/// Answers a request to a resource of which nothing is kept.
pub(crate) type VirtualHandler =
    for<'a> fn(&'a Handlers, &'a Request, &'a Arc<ResourceEntry>) -> BoxFuture<'a, Result<Outcome, Status>>;

/// The lifecycle of a resource's objects, if the server itself has a part in it.
pub(crate) fn lifecycle(group: &str, plural: &str) -> Option<&'static dyn Lifecycle> {
    match (group, plural) {
        ("", "namespaces") => Some(&Namespaces),
        ("", "services") => Some(&Services),
        ("apiextensions.k8s.io", "customresourcedefinitions") => Some(&Definitions),
        ("certificates.k8s.io", "certificatesigningrequests") => Some(&CertificateRequests),
        _ => None,
    }
}

/// The handler of a subresource that is neither a part of the object nor its Scale.
pub(crate) fn handler(group: &str, plural: &str, name: &str) -> Option<Handler> {
    match (group, plural, name) {
        ("", "pods", "binding") => Some(|scope, sub| binding::bind(scope, sub).boxed()),
        ("", "pods", "eviction") => Some(|scope, sub| eviction::evict(scope, sub).boxed()),
        ("", "serviceaccounts", "token") => Some(|scope, sub| token::create(scope, sub).boxed()),
        _ => None,
    }
}

/// The handler of a resource of which nothing is stored.
pub(crate) fn computed(group: &str, plural: &str) -> VirtualHandler {
    match (group, plural) {
        ("", "componentstatuses") => {
            |_, req, of| std::future::ready(component_status::dispatch(req, of)).boxed()
        }
        ("metrics.k8s.io", "nodes") => |handlers, req, of| used::nodes(handlers, req, of).boxed(),
        ("metrics.k8s.io", "pods") => |handlers, req, of| used::pods(handlers, req, of).boxed(),
        ("", "bindings") => |handlers, req, of| binding::create(handlers, req, of).boxed(),
        _ => |handlers, req, of| review::create(handlers, req, of).boxed(),
    }
}

/// The target that a request to a subresource is to be connected with, if it is to be connected with anything.
pub(crate) fn connected(group: &str, plural: &str, name: &str) -> Option<Target> {
    match (group, plural, name) {
        ("", "pods", "exec" | "attach" | "portforward" | "log" | "proxy") => Some(Target::Pod),
        ("", "services", "proxy") => Some(Target::Service),
        ("", "nodes", "proxy") => Some(Target::Node),
        _ => None,
    }
}
