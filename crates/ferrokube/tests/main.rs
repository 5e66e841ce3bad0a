//! The binary, spawned: its API, whole clusters, and attacks on them.

mod agent;
mod api;
mod autoscaling;
mod certificates;
mod clients;
mod cluster;
mod components;
mod csi;
mod dns;
mod etcd;
mod hostile;
mod hosts;
mod kill;
mod kubelet_alone;
mod kubelet_pressure;
mod kubelet_sources;
mod load_balancers;
mod neighbours;
mod network;
mod network_policy;
mod pods;
mod quotas;
mod services;
mod test_kits;
mod volumes;
