//! The whole store as one file, for backups.
//!
//! It is taken through the API server rather than by copying the store's files: the state comes from the
//! index, where there is nothing that is not durable, it needs no access to the server's disk, and it is
//! authorized like every other request. As a path that is no resource it takes the verb `get` on the
//! nonResourceURL [`PATH`]; of the roles that every cluster has, only `cluster-admin` gives that. A user
//! that has it reads every Secret.

use api::Status;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use storage::Store;

use crate::front::{Body, PieceBody, status_response};
use crate::negotiate::Form;

/// Where it is.
pub const PATH: &str = "/ferrokube/snapshot";

/// Answers with the state of now, made while it is sent.
pub(crate) async fn serve(store: &Store) -> Response<Body> {
    match store.backup().await {
        Ok(backup) => {
            let mut response = Response::new(Body::stream(PieceBody::new(Box::new(backup))));
            let media_type = HeaderValue::from_static("application/octet-stream");
            response.headers_mut().insert(CONTENT_TYPE, media_type);
            response
        }
        Err(e) => {
            let status = Status::failure(503, "ServiceUnavailable", e.to_string());
            status_response(&status, Form::JSON)
        }
    }
}
