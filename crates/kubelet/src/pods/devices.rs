//! Devices of Pods: claims on them are prepared and given back, plugins give them when the node takes a Pod, and a
//! container gets what comes with its own.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodStatus as ApiStatus, ResourceStatus};

use super::spec;
use crate::device_manager::{self, DeviceError, DeviceManager};
use crate::dra::{ClaimError, Dra, DraError};
use crate::given::Given;
use crate::plugin_manager::PluginHandler;

/// The reason of the Event about a Pod whose claims cannot be prepared.
pub(crate) const REASON: &str = "FailedPrepareDynamicResources";

/// Why a container does not get what it was given.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GivenError {
    /// A claim of it is not prepared.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// A plugin fails.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Looks after the devices of Pods.
#[derive(Clone)]
pub(crate) struct Devices {
    /// Those of claims.
    pub(crate) dra: Arc<Dra>,
    /// Those of device plugins.
    pub(crate) plugins: Arc<DeviceManager>,
}

impl Devices {
    /// The parts that take plugins into use.
    pub(crate) fn handlers(&self) -> [Arc<dyn PluginHandler>; 2] {
        [Arc::new(self.dra.registrar()), Arc::new(device_manager::Registrar(self.plugins.clone()))]
    }

    /// Has a Pod's claims prepared, before it gets a sandbox.
    ///
    /// # Errors
    /// They are not all prepared.
    pub(crate) async fn prepare(&self, pod: &Pod) -> Result<(), DraError> {
        self.dra.prepare(pod).await
    }

    /// Gives back what a Pod had, whose containers have ended.
    ///
    /// # Errors
    /// Not everything was given back; it is to be tried again.
    pub(crate) async fn give_back(&self, pod: &Pod) -> Result<(), DraError> {
        self.dra.unprepare(spec::uid(pod)).await
    }

    /// The parts of a container that come with its devices.
    ///
    /// # Errors
    /// It has no devices of a claim that it names, or a plugin fails.
    pub(crate) async fn of_container(&self, pod: &Pod, container: &Container) -> Result<Given, GivenError> {
        let mut cdi_devices = self.dra.cdi_devices(pod, container)?;
        let mut given = self.plugins.of_container(pod, container).await?;
        for name in std::mem::take(&mut given.cdi_devices) {
            if !cdi_devices.contains(&name) {
                cdi_devices.push(name);
            }
        }
        Ok(Given { cdi_devices, ..given })
    }

    /// Tells in a status how healthy the devices of the containers are.
    pub(crate) fn tell(&self, pod: &Pod, status: &mut ApiStatus) {
        for one in status.container_statuses.iter_mut().flatten() {
            let mut all = self.plugins.health(spec::uid(pod), &one.name);
            if let Some(container) = spec::containers(pod).iter().find(|c| c.name == one.name) {
                all.extend(self.dra.health(pod, container));
            }
            all.retain(|r: &ResourceStatus| r.resources.as_ref().is_some_and(|all| !all.is_empty()));
            one.allocated_resources_status = Some(all).filter(|all| !all.is_empty());
        }
    }
}
