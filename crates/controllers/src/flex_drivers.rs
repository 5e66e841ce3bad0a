//! The programs of FlexVolumes' drivers, as the controllers call them.

use std::fmt;

use futures::future::BoxFuture;
use objects::attachable::Flex;

/// Calls the programs of drivers of FlexVolumes.
pub trait FlexDrivers: fmt::Debug + Send + Sync + 'static {
    /// Attaches a volume to a node. Answers the path of its device; none if the driver is not there, or attaches nothing.
    ///
    /// # Errors
    /// The driver fails, in a sentence.
    fn attach(
        &self,
        volume: String,
        of: Flex,
        node: String,
    ) -> BoxFuture<'static, Result<Option<String>, String>>;

    /// Detaches a driver's volume from a node.
    ///
    /// # Errors
    /// The driver fails, in a sentence.
    fn detach(&self, driver: String, volume: String, node: String) -> BoxFuture<'static, Result<(), String>>;

    /// Makes a volume larger; `sizes`: the new one and the old one, in bytes. Answers whether its file system must grow after
    /// that, on a node, as it must if the driver is not there.
    ///
    /// # Errors
    /// The driver fails, in a sentence.
    fn expand(&self, volume: String, of: Flex, sizes: (i64, i64))
    -> BoxFuture<'static, Result<bool, String>>;
}
