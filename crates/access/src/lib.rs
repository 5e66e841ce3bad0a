//! Authentication, authorization and admission of requests, and the keys and certificates on which they rest.
//!
//! This crate does not know how requests come in or where objects are stored: its decisions look at live objects
//! through [`reader::Reader`].

pub mod admission;
pub mod auth;
mod notes;
pub mod pki;
mod query;
pub mod reader;
pub mod request_info;
pub mod security;
#[cfg(test)]
mod testing;
mod user;
pub mod webhook;

pub use notes::Notes;
pub use query::{Query, unescape};
pub use request_info::RequestInfo;
pub use user::UserInfo;
