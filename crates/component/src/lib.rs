//! The parts that every component has: a clock, shutdown, metrics, health checks, sockets to listen on, its log,
//! programs that are run for their answer.
//!
//! Each component has its own instances, and there are no globals but the log and the number of threads that block: several components run in one process, and
//! several clusters in one test. The crate depends on no other crate of the workspace; it must never know a component by name.

pub mod clock;
pub mod health;
pub mod listen;
pub mod logging;
pub mod metrics;
pub mod program;
pub mod settings;
pub mod shown;
pub mod shutdown;
pub mod slis;
pub mod threads;
pub mod turns;
pub mod version;
pub mod worker;

pub use clock::Clock;
pub use health::Health;
pub use listen::listen;
pub use metrics::Registry;
pub use settings::{SettingError, Table};
pub use shown::Shown;
pub use shutdown::{Shutdown, boxed, boxed_work};
pub use slis::Slis;
pub use threads::blocking;
pub use turns::Turns;
pub use worker::Worker;
