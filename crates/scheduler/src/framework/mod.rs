//! The framework: extension points, the plugins that extend them, and the profiles that say which do.
//!
//! A third party writes a plugin as those of this crate are written: a type that implements some traits of [`points`],
//! a function that makes a [`plugin::Plugin`] of it, and an entry in the [`registry::Registry`] that the scheduler is
//! started with. `crates/simulation/tests/third_party.rs` has whole ones, `placements.rs` beside it one for groups.

pub mod hint;
pub mod place;
pub mod placement;
pub mod plugin;
pub mod points;
pub mod profile;
pub mod registry;
pub mod state;
pub mod times;
pub mod verdict;
pub mod waiting;
