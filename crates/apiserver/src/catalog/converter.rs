//! The converter of a definition's objects, where more than their API version changes.

use api::Node;
use futures::future::BoxFuture;

/// Why there are no converted objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotConverted(pub(crate) String);

/// Somebody who is asked to convert objects, and may take time for it. The answer is not believed: it is checked by
/// [`super::conversion`].
pub(crate) trait Converter: Send + Sync {
    /// Converts objects, which have their kind and version, to an API version: as many, in their order.
    fn convert(&self, objects: &[Node], to: &str) -> BoxFuture<'static, Result<Vec<Node>, NotConverted>>;
}
