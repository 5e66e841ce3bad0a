//! A plugin, and the parts of the kubelet that use plugins.

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;

/// A plugin as it told of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plugin {
    /// Its name; of a CSI driver, the driver's.
    pub(crate) name: String,
    /// The socket at which it serves.
    pub(crate) endpoint: PathBuf,
    /// The versions of its protocol that it speaks.
    pub(crate) versions: Vec<String>,
}

/// The part of the kubelet that uses plugins of one kind.
pub(crate) trait PluginHandler: Send + Sync {
    /// The kind by which a plugin asks for this handler: `CSIPlugin`, `DRAPlugin`, `DevicePlugin`.
    fn kind(&self) -> &'static str;

    /// Whether a plugin may have this name. Names become those of files, unless a kind's do not.
    fn is_name(&self, name: &str) -> bool {
        !name.contains(['/', '\0'])
    }

    /// Says whether the plugin can be used at all.
    ///
    /// # Errors
    /// The reason why not, for the plugin.
    fn validate(&self, plugin: &Plugin) -> Result<(), String>;

    /// Takes the plugin into use.
    ///
    /// # Errors
    /// The reason why not, for the plugin. Nothing of it is left then.
    fn register<'a>(&'a self, plugin: &'a Plugin) -> BoxFuture<'a, Result<(), String>>;

    /// Ends its use: its socket is gone.
    fn deregister<'a>(&'a self, plugin: &'a Plugin) -> BoxFuture<'a, ()>;
}

/// Handlers, each for one kind.
pub(crate) type Handlers = Arc<[Arc<dyn PluginHandler>]>;
