//! Plugins of the node: each tells of itself by a socket below `plugins_registry`, is asked who it is, and is handed to
//! the part of the kubelet that uses plugins of its kind (upstream: `pkg/kubelet/pluginmanager`).
//!
//! A socket is attended by one future, from its appearance to its end, so that a plugin that hangs holds up no other.
//! The directory is the whole state: a kubelet that starts again registers what it finds there.

mod manager;
mod plugin;
mod registration;
mod sockets;
#[cfg(test)]
mod tests;

pub(crate) use self::manager::{PluginManager, make_dirs};
pub(crate) use self::plugin::{Plugin, PluginHandler};
