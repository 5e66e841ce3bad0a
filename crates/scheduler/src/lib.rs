//! The scheduler: decides on which node a Pod runs and binds it there.
//!
//! # Layers
//! - [`cache`]: the cluster as data. Nodes stand in a dense array with their sums; an *epoch* says whether they are the
//!   same nodes still, a *journal* which Pods came and went, and *columns* in which place of a topology each node is.
//! - [`storage`]: claims and volumes, as the API shows them and as they are assumed to be.
//! - [`groups`]: PodGroups and their Pods, which are scheduled together where the gate GenericWorkload is on.
//! - [`inventory`]: the same of claims on devices; [`devices`] chooses devices for them, purely.
//! - [`framework`]: upstream's extension points as traits, plugins, profiles made of a [`config`]uration, and a registry
//!   to which a third party adds its own.
//! - [`plugins`]: those of v1.36. They answer for all nodes at once where the scheduler asks, and for one node where
//!   preemption and nominated Pods are simulated.
//! - [`kept`]: Pods come in hundreds that are alike. Verdicts, scores and counts of one are kept for the next, which costs
//!   a look at what the journal tells; that is the scheduler's speed, and why it looks at all nodes instead of a sample.
//! - [`cycle`]: one Pod's turn over all of these, a pure function to a [`cycle::Decision`]. Text is made only of refusals
//!   that are reported.
//! - [`extender`]: HTTP servers that have a say in decisions.
//! - [`queue`], [`nominated`]: who waits for a turn, and who for room.
//! - [`run`]: one task owns all this, so that no decision needs a lock; binding and writing happen in tasks of their own.
//!
//! Extension points, plugins, weights and messages are upstream's (`pkg/scheduler`). The crate depends on `api`,
//! `cel`, `component`, `client` and `objects`; it knows the server only through the API.

pub mod affinity;
pub mod cache;
pub mod config;
pub mod cycle;
pub mod devices;
pub mod events;
pub mod extender;
pub mod framework;
pub mod groups;
pub mod inventory;
pub mod kept;
pub mod nominated;
pub mod owners;
pub mod plugins;
pub mod pod;
pub mod queue;
pub mod resources;
pub mod run;
pub mod storage;
pub mod volumes;
