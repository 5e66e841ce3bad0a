//! A registry's client: OCI's distribution specification.

pub(crate) mod auth;
pub mod challenge;
pub(crate) mod client;
pub(crate) mod connect;
pub mod hosts;
pub(crate) mod tls;
