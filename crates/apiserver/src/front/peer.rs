//! The other end of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use access::UserInfo;
use rustls_pki_types::CertificateDer;

use super::lifetime::Lifetime;
use super::strangers::Stranger;

/// The other end of a connection.
pub(crate) struct Peer {
    /// Where it is.
    pub(crate) address: SocketAddr,
    /// The certificates that it showed in the handshake, leaf first.
    pub(crate) certificates: Option<Vec<CertificateDer<'static>>>,
    /// The lifetime of the connection.
    pub(crate) lifetime: Arc<Lifetime>,
    /// Its place among those whom nobody knows.
    pub(crate) stranger: Stranger,
    /// HTTP/2 ends for who stays unknown: it costs much, and invites abuse (CVE-2023-44487). Upstream's
    /// `UnauthenticatedHTTP2DOSMitigation`.
    pub(crate) strangers_leave: bool,
}

impl Peer {
    /// A request has come, by somebody, or by nobody that could be known.
    pub(crate) fn is(&self, user: Option<&UserInfo>) {
        let known = user.is_some_and(|user| {
            user.name != "system:anonymous" && !user.groups.iter().any(|g| g == "system:unauthenticated")
        });
        if known {
            self.stranger.known();
        } else if self.strangers_leave {
            self.lifetime.farewell();
        }
    }
}
