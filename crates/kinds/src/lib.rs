//! The rules of the built-in kinds that a schema cannot express: defaults that depend on other fields, validation, the
//! fields that a create or an update resets, conversions between versions, selectable fields, columns. Facts and texts
//! are upstream's; the code is ours.
//!
//! The crate is pure: trees in, trees and field errors out. Only the API server depends on it, so that a change to a
//! rule rebuilds nothing else.

pub mod columns;
pub mod convert;
pub mod custom;
pub mod defaults;
pub mod gated;
pub mod resources;
pub mod scale;
pub mod strategies;
pub mod strategy;
pub mod validation;

pub use strategies::strategy;
pub use strategy::{Ctx, Strategy, Subresource};
