//! Volumes of CSI drivers on the node (upstream: `pkg/volume/csi`).
//!
//! A driver registers by its socket (`handler`), and the API is told of it (`node_info`). A volume goes through four calls:
//! staged for the node, published for a Pod, unpublished, unstaged (`mounter`, and `device` for devices). Before a call,
//! a record lies on the disk (`record`): the records are the actual state, so that any later process can undo what this
//! one did. The desired state is the Pods' workers, which enter a volume before they stage it (`room`). One thing at a
//! time is done to a volume, and a call runs to its end, whoever waits.

mod attached;
mod calls;
mod device;
mod drivers;
mod error;
mod expand;
mod handler;
mod mounter;
mod node_info;
mod record;
mod room;
#[cfg(test)]
mod tests;
mod volume;
mod volumes;

pub(crate) use self::attached::InUse;
pub(crate) use self::drivers::Drivers;
pub(crate) use self::error::CsiError;
pub(crate) use self::handler::Registrar;
pub(crate) use self::node_info::NodeInfo;
pub(crate) use self::room::{Given, Room};
pub(crate) use self::volume::Wanted;
pub(crate) use self::volumes::{Condition, CsiVolumes, Published, Usage};
