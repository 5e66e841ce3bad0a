//! Who asks, and whether they may: the seams of authentication and authorization, and what stands behind them.

mod authenticator;
mod authorizer;
mod cache;
pub(crate) mod credentials;
mod feed;
mod impersonation;
mod keys;
pub mod node;
pub mod rbac;
mod reader;
mod review;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod token;

use std::sync::Arc;

use api::{Status, Struct};
use http::HeaderMap;
use http::request::Parts;
use rustls_pki_types::CertificateDer;

#[cfg(test)]
pub(crate) use authenticator::certificate_user;
pub(crate) use authenticator::nobody;
pub use authenticator::{AuthenticationConfig, ClientCaError, UnionAuthenticator};
pub use authorizer::{Access, AuthorizationMode, UnionAuthorizer, Verdict, forbidden};
pub use feed::{Feeds, feed};
pub use impersonation::wanted as impersonated;
pub use keys::{KeyError, SigningKey, VerifyingKey};
pub(crate) use reader::read;
pub use reader::{Reader, ResourceName, StoreReader};
pub use review::Reviews;

use crate::request::{Attributes, UserInfo};

/// Tells who sent a request.
pub trait Authenticator: Send + Sync + 'static {
    /// The caller by its client certificate chain (leaf first; the TLS handshake proved possession
    /// of the key but did not check the chain) or by its headers; also says when nobody is somebody
    /// (`system:anonymous`). A 401 otherwise.
    fn authenticate(
        &self,
        request: &Parts,
        peer: Option<&[CertificateDer<'static>]>,
    ) -> Result<Arc<UserInfo>, Status>;
    /// The user as whom the caller wants to act, by the impersonation headers; `None` without them.
    /// An error if the caller may not.
    fn impersonate(
        &self,
        headers: &HeaderMap,
        attributes: &Attributes,
    ) -> Result<Option<Arc<UserInfo>>, Status> {
        let _ = (headers, attributes);
        Ok(None)
    }
}

/// What an authorizer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Yes.
    Allow,
    /// No, and nobody else is asked.
    Deny(String),
    /// Not known here; no if nobody else says yes.
    NoOpinion(String),
}

/// Tells whether a caller may do what it asks.
pub trait Authorizer: Send + Sync + 'static {
    /// The decision.
    fn authorize(&self, attributes: &Attributes) -> Decision;
}

/// What the handlers of virtual resources need of authentication.
pub trait Reviewer: Send + Sync + 'static {
    /// Fills the `status` of a review that was created (`tokenreviews`, `selfsubjectreviews`,
    /// `subjectaccessreviews`, `localsubjectaccessreviews`, `selfsubjectaccessreviews`,
    /// `selfsubjectrulesreviews`). `namespace` is the request's; the tree is of the review's kind.
    fn review(
        &self,
        resource: &str,
        caller: &Arc<UserInfo>,
        namespace: &str,
        review: &mut Struct,
    ) -> Result<(), Status>;
    /// Fills the `status` of a `TokenRequest` for a service account; `account` is its stored tree.
    fn issue_token(
        &self,
        caller: &Arc<UserInfo>,
        account: &Struct,
        request: &mut Struct,
    ) -> Result<(), Status>;
    /// The documents about the keys of tokens, by path: their media type and JSON. `server` is the
    /// URL of this server.
    fn issuer_document(&self, path: &str, server: &str) -> Option<(&'static str, Vec<u8>)> {
        let _ = (path, server);
        None
    }
}

/// Everything the pipe needs to know callers.
#[derive(Clone)]
pub struct Auth {
    /// Authentication.
    pub authenticator: Arc<dyn Authenticator>,
    /// Authorization.
    pub authorizer: Arc<dyn Authorizer>,
    /// Reviews and tokens.
    pub reviewer: Arc<dyn Reviewer>,
}
