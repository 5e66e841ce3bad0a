//! A version of a definition's kind.

use std::sync::Arc;

use api::schema::Gvk;
use component::Shutdown;
use kinds::Strategy;

use super::converter::Converter;

/// A version of a definition's kind, as it is served.
pub(crate) struct CustomVersion {
    /// The stamp of objects that need nothing to be answered in this version.
    pub(super) stamp: u32,
    /// The version in which objects are stored.
    pub(super) storage: Gvk,
    /// Whether that version is served.
    pub(super) storage_served: bool,
    /// The rules of that version.
    pub(super) storage_strategy: Arc<dyn Strategy>,
    /// The stamp of objects that are stored.
    pub(super) storage_stamp: u32,
    /// The one who converts objects; `None` where only their API version changes.
    pub(super) converter: Option<Arc<dyn Converter>>,
    /// Whether the definition goes, so that no object may be made.
    pub(crate) terminating: bool,
    /// Ends when the definition changes or goes: its watches end with it.
    pub(crate) ended: Shutdown,
}
