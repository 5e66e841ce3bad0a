//! The object client: remote and in process behind one trait, informers, the work queue, the event
//! recorder, leader election.
//!
//! Depends on `api` and `component`. It must never know how a server answers: a component cannot
//! tell whether its [`Transport`] crosses a network.

pub mod client;
pub mod transport;

pub use client::{Api, Client, Event, KubeObject, List, ListParams, Patch, WatchParams};
pub use transport::{Call, EventKind, ListAnswer, Resource, Transport, Verb, WatchEvent};
