//! A component's own HTTPS endpoint: connections within limits, callers who are authenticated and authorized by the API
//! server's word, and the answers of every component: health, metrics, settings.
//!
//! The crate depends on `api`, `component` and `client`. It must never know which component it serves.

pub mod answer;
pub mod auth;
pub mod connection;
pub mod endpoint;
pub mod plain;
#[cfg(test)]
mod testing;
pub mod tls;
mod tokens;

pub use answer::{Body, BoxError, Failure};
pub use auth::{Access, Auth, Peers, User};
pub use connection::{Life, Manners, Service, accept};
pub use endpoint::{Endpoint, Open, ServeError, listen, serve, serve_on};
