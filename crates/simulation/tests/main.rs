//! Controllers and the scheduler with a real API server, on a simulated clock.

mod scale;
mod workloads;
