//! The registration of drivers.

use std::sync::Arc;
use std::time::Duration;

use client::Informer;
use futures::future::BoxFuture;
use k8s_openapi::api::storage::v1::CSIDriver;
use plugins::socket::channel;

use super::calls::NodeService;
use super::drivers::{Driver, Drivers, Version};
use super::node_info::{NodeInfo, Told};
use crate::plugin_manager::{Plugin, PluginHandler};

/// How often a driver is looked for that has a period of its own; the least period that the API allows.
const UPDATE: Duration = Duration::from_secs(10);

/// Takes drivers into use.
pub(crate) struct Registrar {
    pub(crate) drivers: Drivers,
    pub(crate) nodes: Arc<NodeInfo>,
    /// Rules of drivers.
    pub(crate) rules: Informer<CSIDriver>,
}

impl Registrar {
    fn version(&self, plugin: &Plugin) -> Result<Version, String> {
        let about = |what: &str| format!("kubernetes.io/csi: CSI driver {:?} failed. {what}", plugin.name);
        if plugin.versions.is_empty() {
            return Err(about("Plugin returned an empty list for supported versions"));
        }
        let version = Version::highest(&plugin.versions).map_err(|error| {
            about(&format!("None of the versions specified {:?} are supported. err={error}", plugin.versions))
        })?;
        match self.drivers.get(&plugin.name) {
            Ok(other) if other.version >= version && other.endpoint != plugin.endpoint => {
                Err(about(&format!(
                    "Another driver with the same name is already registered with a higher supported version: \"{}\"",
                    other.version
                )))
            }
            _ => Ok(version),
        }
    }

    async fn take(&self, plugin: &Plugin) -> Result<(), String> {
        let version = self.version(plugin)?;
        let driver =
            Driver { endpoint: plugin.endpoint.clone(), version, channel: channel(&plugin.endpoint) };
        let service = NodeService::at(&plugin.name, &driver, &self.drivers);
        let info = service.info().await.map_err(|error| error.to_string())?;
        let told = Told::from(info);
        self.nodes.install(&plugin.name, &told).await.map_err(|error| error.to_string())?;
        self.drivers.put(&plugin.name, driver);
        Ok(())
    }

    /// Asks drivers anew how many volumes the node takes, as often as their CSIDriver says.
    pub(crate) async fn keep_up(&self) {
        let mut last = std::collections::HashMap::new();
        loop {
            tokio::time::sleep(UPDATE).await;
            let rules = self.rules.list();
            let periods = rules.iter().filter_map(|r| {
                let period = u64::try_from(r.spec.node_allocatable_update_period_seconds?).ok()?;
                Some((r.metadata.name.clone()?, Duration::from_secs(period.max(UPDATE.as_secs()))))
            });
            let now = tokio::time::Instant::now();
            for (name, period) in periods {
                let Ok(driver) = self.drivers.get(&name) else { continue };
                let due =
                    last.get(&name).is_none_or(|at: &tokio::time::Instant| now.duration_since(*at) >= period);
                if !due {
                    continue;
                }
                last.insert(name.clone(), now);
                match NodeService::at(&name, &driver, &self.drivers).info().await {
                    Ok(info) => {
                        if let Err(error) = self.nodes.update(&name, &Told::from(info)).await {
                            tracing::warn!(driver = name, %error, "the limits of a CSI driver are not told");
                        }
                    }
                    Err(error) => {
                        tracing::warn!(driver = name, %error, "a CSI driver does not tell its limits");
                    }
                }
            }
            last.retain(|name, _| self.drivers.get(name).is_ok());
        }
    }
}

impl PluginHandler for Registrar {
    fn kind(&self) -> &'static str {
        "CSIPlugin"
    }
    fn validate(&self, plugin: &Plugin) -> Result<(), String> {
        let checked = self.version(plugin).map(drop);
        checked.map_err(|error| {
            let (name, endpoint) = (&plugin.name, plugin.endpoint.display());
            format!("validation failed for CSI Driver {name} at endpoint {endpoint}: {error}")
        })
    }
    fn register<'a>(&'a self, plugin: &'a Plugin) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(self.take(plugin))
    }
    fn deregister<'a>(&'a self, plugin: &'a Plugin) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.drivers.remove(&plugin.name, &plugin.endpoint);
            // Another driver of the name may have come meanwhile.
            if self.drivers.get(&plugin.name).is_ok() {
                return;
            }
            if let Err(error) = self.nodes.uninstall(&plugin.name).await {
                tracing::warn!(driver = plugin.name, %error, "the CSINode still names a CSI driver that is gone");
            }
        })
    }
}
