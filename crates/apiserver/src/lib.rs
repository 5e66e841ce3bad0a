//! The API server: one request is one straight pipe.
//!
//! TLS → authentication → impersonation → authorization → flow control → decode → mutating
//! admission → defaulting and validation → validating admission → quota → store → encode. Each
//! stage is one module with one function to read; what differs between kinds stands in `kinds`.

#[cfg(test)]
mod admission_tests;
mod allocate;
mod answer;
mod authorization_feed;
mod codec;
mod conditions;
pub mod config;
mod discovery;
pub mod etcd;
mod flow;
mod forms;
mod front;
mod handlers;
pub mod health;
mod hooks;
pub mod in_process;
mod inner;
mod lanes;
#[cfg(test)]
mod list_tests;
mod meta;
pub mod metrics;
#[cfg(test)]
mod named_kinds_tests;
mod negotiate;
pub mod openapi;
mod options;
mod pipe;
#[cfg(test)]
mod pipe_tests;
mod process_metrics;
pub mod proxy;
mod reader;
mod registry;
pub mod request;
mod routes;
mod select;
pub mod served;
mod server;
pub mod snapshot;
pub mod standalone;
mod store_metrics;
#[cfg(test)]
mod strategy_tests;
mod table;
#[cfg(test)]
mod testing;
mod transport;
mod weight;

pub use config::Config;
pub use reader::Reader;
pub use server::{Server, ServerError};
