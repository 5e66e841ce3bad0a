//! Layers: an archive's meaning, and a directory made of it.

pub mod action;
pub(crate) mod adapt;
pub mod apply;
pub mod decompress;
pub(crate) mod error;
pub(crate) mod space;
pub mod tar;
pub(crate) mod tree;

pub use apply::Apply;
pub use error::LayerError;
pub use space::Space;
