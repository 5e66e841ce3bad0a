//! Authentication and authorization: their interfaces, and the implementations behind them.

mod access;
mod access_review;
mod authenticator;
mod authorities;
mod authorizer;
mod bearer;
mod bootstrap;
mod cache;
pub mod credentials;
mod eventual;
mod front_proxy;
mod groups;
mod impersonation;
mod keys;
pub mod node;
mod peers;
pub mod rbac;
mod review;
#[cfg(test)]
mod tests;
pub mod token;
mod token_file;
mod union;

use std::sync::Arc;

use api::{Status, Struct};
use futures::future::BoxFuture;
use http::HeaderMap;
use http::request::Parts;
use rustls_pki_types::CertificateDer;

pub use access::{Access, forbidden};
#[cfg(test)]
pub(crate) use authenticator::certificate_user;
pub use authenticator::{AuthenticationConfig, UnionAuthenticator, nobody};
pub use authorities::{Authorities, Changes, ClientCaError};
pub use authorizer::{Authorizer, Decision};
pub use bearer::BearerTokens;
pub use eventual::Eventual;
pub use front_proxy::RequestHeaders;
pub use impersonation::wanted as impersonated;
pub use keys::{KeyError, SigningKey, VerifyingKey};
pub use peers::Peers;
pub use review::Reviews;
pub use token_file::{TokenFile, TokenFileError};
pub use union::{AuthorizationMode, UnionAuthorizer};

use crate::RequestInfo;
use crate::UserInfo;
use crate::notes::Notes;

/// Authenticates the callers of requests.
pub trait Authenticator: Send + Sync + 'static {
    /// Returns the caller by its client certificate chain (leaf first; the TLS handshake proved possession of the key
    /// but did not check the chain) or by its headers; also decides whether a caller without credentials is
    /// `system:anonymous`. A 401 otherwise. Notes tell of credentials that should be replaced.
    fn authenticate<'a>(
        &'a self,
        request: &'a Parts,
        peer: Option<&'a [CertificateDer<'static>]>,
        notes: &'a Notes,
    ) -> Eventual<'a, Result<Arc<UserInfo>, Status>>;
    /// Returns the user as whom the caller `user` wants to act, by the impersonation headers; `None` without them. An
    /// error if the caller may not.
    fn impersonate<'a>(
        &'a self,
        headers: &'a HeaderMap,
        user: &'a Arc<UserInfo>,
        info: &'a RequestInfo,
    ) -> Eventual<'a, Result<Option<Arc<UserInfo>>, Status>> {
        let _ = (headers, user, info);
        Eventual::Now(Ok(None))
    }
    /// Removes from a request the headers by which this server lets others name its caller, besides
    /// [`credentials`](credentials::remove).
    fn forget(&self, headers: &mut HeaderMap) {
        let _ = headers;
    }
}

/// The part of authentication that the handlers of virtual resources call.
pub trait Reviewer: Send + Sync + 'static {
    /// Fills the `status` of a review that was created (`tokenreviews`, `selfsubjectreviews`,
    /// `subjectaccessreviews`, `localsubjectaccessreviews`, `selfsubjectaccessreviews`,
    /// `selfsubjectrulesreviews`). `namespace` is the request's; the tree is of the review's kind.
    fn review<'a>(
        &'a self,
        resource: &'a str,
        caller: &'a Arc<UserInfo>,
        namespace: &'a str,
        review: &'a mut Struct,
        notes: &'a Notes,
    ) -> BoxFuture<'a, Result<(), Status>>;
    /// Fills the `status` of a `TokenRequest` for a service account; `account` is its stored tree.
    fn issue_token(
        &self,
        caller: &Arc<UserInfo>,
        account: &Struct,
        request: &mut Struct,
    ) -> Result<(), Status>;
    /// Returns a document about the keys of tokens, by its path: its media type and JSON. `server` is the URL of this
    /// server.
    fn issuer_document(&self, path: &str, server: &str) -> Option<(&'static str, Vec<u8>)> {
        let _ = (path, server);
        None
    }
}

/// The authentication and authorization of the request pipe.
#[derive(Clone)]
pub struct Auth {
    /// Authentication.
    pub authenticator: Arc<dyn Authenticator>,
    /// Authorization.
    pub authorizer: Arc<dyn Authorizer>,
    /// Reviews and tokens.
    pub reviewer: Arc<dyn Reviewer>,
}

impl Auth {
    /// A 403 unless a user may.
    pub async fn require(&self, user: &UserInfo, access: &Access<'_>) -> Result<(), Status> {
        match self.authorizer.authorize(user, access).get().await.refusal() {
            None => Ok(()),
            Some(reason) => Err(forbidden(user, access, &reason)),
        }
    }
}
