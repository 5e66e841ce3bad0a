//! Types and values of what a definition says about objects (`k8s.io/apiserver/pkg/cel/common`).

mod escape;
mod listed;
mod types;
mod values;

pub use escape::{escape, unescape};
pub use types::{Declared, Definition, Kind, ListType, Registry, declare, max_cardinality};
pub use values::{Json, Tree, typed, untyped};
