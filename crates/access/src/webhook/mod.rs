//! The client of webhooks: HTTPS servers elsewhere that are asked while somebody waits for a request.
//!
//! A webhook is named by a URL or by a Service ([`ClientConfig`]). Its answers are bounded in time and size, its
//! connections are kept and bounded in number, and a call that ends early ends its connection. Errors have the texts of
//! upstream's client (`apiserver/pkg/util/webhook`), which people search for.

mod address;
mod aggregated;
mod answer;
mod client;
mod connection;
mod credentials;
mod defect;
mod error;
mod head;
mod network;
mod own;
mod pool;
mod service;
mod tls;

pub use address::{Address, ClientConfig};
pub use aggregated::{Connector, Endpoint, Trust};
pub use answer::Document;
pub use client::{TIMEOUT, Webhooks};
pub use credentials::Credentials;
pub use defect::{Defect, Failure};
pub use error::CallError;
pub use network::{Guard, Network};
