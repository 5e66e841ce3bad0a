//! What the server itself has for built-in resources: the one place where handlers know them by name.

use futures::FutureExt;

use super::certificate_request::CertificateRequests;
use super::lifecycle::Lifecycle;
use super::namespace::Namespaces;
use super::service::Services;
use super::{binding, component_status, eviction, review, token};
use crate::registry::{Handler, VirtualHandler};

/// What the server does when objects of a resource come and go.
pub(crate) fn lifecycle(group: &str, plural: &str) -> Option<&'static dyn Lifecycle> {
    match (group, plural) {
        ("", "namespaces") => Some(&Namespaces),
        ("", "services") => Some(&Services),
        ("certificates.k8s.io", "certificatesigningrequests") => Some(&CertificateRequests),
        _ => None,
    }
}

/// What answers a subresource that is neither a part of the object nor its Scale.
pub(crate) fn handler(group: &str, plural: &str, name: &str) -> Option<Handler> {
    match (group, plural, name) {
        ("", "pods", "binding") => Some(|scope, sub| binding::bind(scope, sub).boxed()),
        ("", "pods", "eviction") => Some(|scope, sub| eviction::evict(scope, sub).boxed()),
        ("", "serviceaccounts", "token") => Some(|scope, sub| token::create(scope, sub).boxed()),
        _ => None,
    }
}

/// What answers for a resource if nothing of it is stored.
pub(crate) fn computed(group: &str, plural: &str) -> VirtualHandler {
    match (group, plural) {
        ("", "componentstatuses") => {
            |inner, req, of| std::future::ready(component_status::dispatch(inner, req, of)).boxed()
        }
        ("", "bindings") => |inner, req, of| binding::create(inner, req, of).boxed(),
        _ => |inner, req, of| review::create(inner, req, of).boxed(),
    }
}
