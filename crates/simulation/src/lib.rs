//! A cluster in one process and on a simulated clock: the API server's whole pipe over a store in memory, controllers,
//! scheduler, and hollow nodes that say that their Pods run.
//!
//! It is for tests of what controllers and the scheduler do with a real API server, in less time and with less around
//! them than a cluster needs. Only tests use it: no crate depends on it. Its users run it on tokio's paused clock
//! (`#[tokio::test(start_paused = true)]`), on one thread. The clock goes on when everybody waits, so nothing here may
//! work on a thread of its own.

mod cluster;
mod documents;
pub mod faults;
pub mod hollow;
mod loads;

pub use cluster::{Cluster, Running};
pub use faults::{Fault, Faults, Gate, Rule};
pub use hollow::{Fleet, Shape};
pub use loads::Loads;
