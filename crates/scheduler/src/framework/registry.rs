//! The plugins that a configuration may name.

use std::collections::BTreeMap;

use crate::config::args::PluginArgs;
use crate::framework::plugin::Plugin;

/// Makes a plugin of its arguments.
pub type Factory = Box<dyn Fn(&PluginArgs) -> Result<Plugin, String> + Send + Sync>;

/// Factories by the name of their plugin.
#[derive(Default)]
pub struct Registry(BTreeMap<&'static str, Factory>);

impl Registry {
    /// Adds a plugin.
    ///
    /// # Errors
    /// If there is one of this name.
    pub fn add(
        &mut self,
        name: &'static str,
        factory: impl Fn(&PluginArgs) -> Result<Plugin, String> + Send + Sync + 'static,
    ) -> Result<(), String> {
        if self.0.contains_key(name) {
            return Err(format!("a plugin named {name} already exists"));
        }
        self.0.insert(name, Box::new(factory));
        Ok(())
    }
    /// The factory of a plugin.
    pub fn get(&self, name: &str) -> Option<&Factory> {
        self.0.get(name)
    }
    /// The names of all plugins.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }
}
