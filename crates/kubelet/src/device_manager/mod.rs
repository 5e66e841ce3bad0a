//! Devices of device plugins (upstream: `pkg/kubelet/cm/devicemanager`).
//!
//! A plugin registers at the kubelet's socket, or by one of its own (`server`), and tells of its devices as long as it is
//! there (`manager`). The Node tells how many there are (`state`). A Pod gets its devices when the node takes it
//! (`give`, `choose`), near to its other resources if that is wanted (`hints`); they are held while their plugin is asked, and what the plugin answers goes into its containers
//! (`options`). A record on the disk says who has which devices (`record`); they are free again once the Pod uses the node
//! no more.

mod allocated;
mod choose;
mod endpoint;
mod error;
mod give;
mod hints;
mod manager;
mod metrics;
mod options;
mod record;
mod server;
mod state;
mod tell;
#[cfg(test)]
mod tests;

pub(crate) use self::error::{DeviceError, refusal};
pub(crate) use self::manager::DeviceManager;
pub(crate) use self::server::{Registrar, serve};
pub use self::state::Offer;
