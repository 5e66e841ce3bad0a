//! The API server: one request is one straight pipe.
//!
//! TLS → authentication → impersonation → authorization → flow control → decode → mutating
//! admission → defaulting and validation → validating admission → quota → store → encode. Each
//! stage is one module with one function to read; what differs between kinds stands in `kinds`.

pub mod admission;
pub mod auth;
pub mod bootstrap;
pub mod pki;
pub mod proxy;
pub mod query;
pub mod request;
pub mod security;
