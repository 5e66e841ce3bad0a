//! The API server: one request is one straight pipe.
//!
//! TLS → authentication → impersonation → authorization → flow control → decode → mutating
//! admission → defaulting and validation → validating admission → quota → store → encode. Each
//! stage is one module with one function to read; what differs between kinds stands in `kinds`.

#[cfg(test)]
mod admission_tests;
mod aggregated;
mod allocate;
mod authorization_feed;
pub mod catalog;
mod codec;
mod conditions;
pub mod config;
#[cfg(test)]
mod conversion_tests;
mod discovery;
mod encoder;
mod ending;
pub mod etcd;
mod flow;
mod front;
mod handlers;
pub mod health;
mod hooks;
mod identities;
pub mod in_process;
mod lanes;
#[cfg(test)]
mod list_tests;
pub mod metrics;
mod negotiate;
mod objects;
mod openapi;
mod options;
mod outcome;
mod pipe;
#[cfg(test)]
mod pipe_tests;
mod process_metrics;
pub mod proxy;
mod relay;
pub mod request;
mod rooms;
mod routes;
mod select;
pub mod served;
mod server;
pub mod snapshot;
pub mod standalone;
mod store_metrics;
mod store_probe;
#[cfg(test)]
mod strategy_tests;
#[cfg(test)]
mod testing;
mod transport;
mod usage;
mod version;
mod versions;
mod watch;
mod weight;
mod zpages;

pub use config::Config;
pub use objects::{CatalogError, Objects};
pub use server::{Server, ServerError};
pub use usage::Pages;
pub use version::version_text;
