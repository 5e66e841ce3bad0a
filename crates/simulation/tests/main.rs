//! Controllers and the scheduler with a real API server, on a simulated clock.

mod attach_detach;
mod bounded;
mod common;
mod daemon_sets;
mod devices;
mod disruption;
mod endpoints;
mod extenders;
mod gangs;
mod gated;
mod host;
mod identity;
mod jobs;
mod leader;
mod load_balancers;
mod nodes;
mod pod_autoscalers;
mod quotas;
mod scale;
mod scheduling;
mod stateful_sets;
mod stories;
mod third_party;
mod volume_binding;
mod volumes;
mod workloads;
