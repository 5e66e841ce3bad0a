//! Controllers and the scheduler with a real API server, on a simulated clock.

mod common;
mod disruption;
mod endpoints;
mod host;
mod jobs;
mod leader;
mod load_balancers;
mod nodes;
mod scale;
mod scheduling;
mod workloads;
