//! The group apps: the kinds that keep Pods running.

mod controller_revision;
mod daemon_set;
mod deployment;
mod replica_set;
mod stateful_set;

pub(super) use controller_revision::CONTROLLER_REVISION;
pub(super) use daemon_set::DAEMON_SET;
pub(super) use deployment::DEPLOYMENT;
pub(super) use replica_set::REPLICA_SET;
pub(super) use stateful_set::STATEFUL_SET;
