//! A whole kubelet, with an API server in memory.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where it can't go on")]

mod faults;
mod pod_certificates;
mod support;
mod upstream;
