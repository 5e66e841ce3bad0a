//! The object client: remote and in process behind one trait, informers, the work queue, the event
//! recorder, leader election; kubeconfigs, and the credentials that they name.
//!
//! Depends on `api` and `component`. It must never know how a server answers: a component cannot
//! tell whether its [`Transport`] crosses a network.

pub mod backoff;
pub mod bootstrap;
pub mod caller;
pub mod certificate;
pub mod client;
pub mod clients;
pub mod config;
pub mod events;
pub mod exec;
pub mod factory;
pub mod informer;
pub mod json;
pub mod key;
pub mod kubeconfig;
pub mod leader;
mod material;
pub mod offer;
pub mod post;
pub mod proxy;
pub mod queue;
pub mod rate;
mod reflector;
pub mod remote;
pub mod requests;
#[cfg(test)]
mod script;
mod skim;
pub mod store;
pub mod subject;
pub mod tls;
pub mod transport;

pub use backoff::Backoff;
pub use caller::{Caller, Shown};
pub use certificate::Certificate;
pub use client::{Api, Client, Event, KubeObject, List, ListParams, Patch, WatchParams, resource_of};
pub use clients::Clients;
pub use config::{Config, ConfigError, Token, TokenSource};
pub use events::{EventType, Recorder, reference};
pub use exec::{Plugin, Plugins};
pub use factory::Factory;
pub use informer::{Index, Informer};
pub use json::{FromJson, ToJson};
pub use key::Key;
pub use kubeconfig::Kubeconfig;
pub use leader::{Election, ElectionError, Outcome};
pub use offer::Offer;
pub use post::{PostError, PostTls, Poster};
pub use proxy::Proxy;
pub use queue::{Queue, RateLimit};
pub use rate::Rate;
pub use reflector::Selection;
pub use remote::Remote;
pub use requests::Requests;
pub use store::{Cached, Change, Identity, PartialObject, Store};
pub use transport::{Call, EventKind, ListAnswer, Resource, Transport, Verb, WatchEvent};
