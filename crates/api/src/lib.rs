//! The schema of the Kubernetes API and what runs on it: decoding, pruning, defaulting, structural validation, patches,
//! server-side apply, codecs; and the vocabulary that every component shares (metadata, selectors, quantities,
//! `Status`).
//!
//! The crate is pure: no I/O, no clock, no async. It depends on no other crate of the workspace and must never know a
//! kind by name: the rules of single kinds stand in the `kinds` crate.

pub mod accept;
pub mod base64_text;
pub mod builtin;
mod by_value;
pub mod codec;
pub mod cron;
pub mod depth;
pub mod field;
pub mod gate;
pub mod go;
pub mod managed;
pub mod names;
pub mod object;
pub mod openapi;
pub mod page;
pub mod patch;
pub mod pem;
pub mod quantity;
pub mod re2;
pub mod resources;
pub mod schema;
pub mod selector;
pub mod status;
pub mod structural;
pub mod time;
pub mod tree;
pub mod version_order;
pub mod view;
pub mod yaml;
pub mod zpages;

pub use by_value::ByValue;
pub use gate::{FeatureGates, Gate};
pub use object::{NewObject, Object, OwnerRef};
pub use schema::{Field, FieldNo, Gvk, Schema, StructId, Type, TypeId};
pub use status::Status;
pub use tree::{Map, Node, Struct, Text};
