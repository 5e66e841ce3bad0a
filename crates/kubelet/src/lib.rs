//! The node agent: runs the Pods that are bound to its Node in a container runtime, and reports them.
//!
//! Depends on `api`, `component`, `client`, `objects`, `cri`, `streaming` and `systemd`. It speaks to the container runtime
//! over CRI only, and must never know which runtime answers. Containers outlive it: a restart adopts
//! what it finds by labels.

mod backoff;
mod cadvisor;
mod cgroups;
mod checkpoint;
pub mod config;
pub mod cpu_manager;
pub mod credential_providers;
mod csi;
mod device_manager;
mod dra;
mod enforcement;
mod events;
pub mod eviction;
mod exit_status;
mod files;
mod garbage;
mod given;
mod grpc;
mod health;
mod housekeeping;
mod images;
mod kubelet;
mod listing;
mod log_dirs;
mod log_links;
mod logs;
pub mod memory_manager;
mod metrics;
pub mod node;
mod node_allocatable;
mod node_shutdown;
mod object_reads;
mod objects;
mod plugin_manager;
mod pod_certificates;
mod pod_cidr;
mod pod_resources;
pub mod pods;
mod probes;
mod recorder;
pub mod resource_managers;
pub mod runtime;
pub mod server;
mod set_up;
mod slices;
pub mod sources;
mod stats;
mod status;
mod system_cgroups;
pub mod teardown;
#[cfg(test)]
mod testing;
pub mod topology_manager;
mod trust_bundles;
mod user_namespaces;
mod users;
mod volumes;
mod watchdog;
mod work;

pub use config::Config;
pub use kubelet::{Kubelet, StartError};
pub use pods::sysctls;
pub use runtime::Runtime;
pub use set_up::SetUpError;
