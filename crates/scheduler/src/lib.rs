//! The scheduler: decides on which node a Pod runs and binds it there.
//!
//! The decision is pure: [`cycle::schedule`] reads a [`cache::Cache`] and a Pod and returns a node or a
//! [`cycle::FitError`]; [`run`] feeds the cache from informers, keeps the queue and does
//! the binding off the scheduling path. Extension points, plugins, weights and messages are upstream's
//! (`pkg/scheduler`). Depends on `api`, `component`, `client` and `objects`; it knows the server only through
//! the API.

pub mod affinity;
pub mod cache;
pub mod cycle;
pub mod events;
pub mod nominated;
pub mod plugins;
pub mod pod;
pub mod preemption;
pub mod queue;
pub mod resources;
pub mod run;
