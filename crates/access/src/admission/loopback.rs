//! Requests that admission makes of its own server, as the server itself.

use std::sync::{Arc, OnceLock};

use api::Status;
use client::Client;

/// Makes a client; `None` once the server is gone.
type Connect = Box<dyn Fn() -> Option<Client> + Send + Sync>;

/// The way to the own server, which is made after admission.
#[derive(Clone, Default)]
pub(super) struct Loopback(Arc<OnceLock<Connect>>);

impl Loopback {
    /// Shows the way; the first time counts.
    pub(super) fn connect(&self, connect: impl Fn() -> Option<Client> + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(connect));
    }

    /// Makes a client.
    ///
    /// # Errors
    /// An internal error if there is no server yet, or no more.
    pub(super) fn client(&self) -> Result<Client, Status> {
        let client = self.0.get().and_then(|connect| connect());
        client.ok_or_else(|| Status::internal("the API server is not running"))
    }
}
