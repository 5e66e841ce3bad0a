//! Devices that Pods claim, on the node (upstream: `pkg/kubelet/cm/dra`).
//!
//! A driver registers by its socket (`plugins`), and is asked to prepare a claim before a Pod of it starts, and to undo
//! that after the last one has ended (`manager`). Which claims are in use, by which Pods and with which devices, is a
//! cache (`claims`) that lies on the disk before any driver is called (`record`), so that any later process can undo what
//! this one did. One thing at a time is done to a claim (`component::Turns`), and a call to a driver runs to its end, whoever waits.

mod answers;
mod calls;
mod claims;
mod error;
mod health;
mod manager;
mod metrics;
mod plugins;
mod record;
mod slices;
#[cfg(test)]
mod tests;
mod wanted;

pub(crate) use self::error::{DraError, Why as ClaimError};
pub(crate) use self::manager::Dra;
