//! Ports for the servers of tests.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail};

/// The first port. All lie below those that the system gives to connections, so that none is taken between the look and
/// the use.
const FIRST: u16 = 10_300;
/// The number of ports of each test that runs at the same time.
const EACH: u16 = 300;
/// The number of tests that may run at the same time.
const TESTS: u16 = 64;

/// A port of loopback on which nobody listens, and that no other test is given as long as this one runs.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // The runner gives each running test a number of its own; without it, tests are the threads of one process.
    let slot = std::env::var("NEXTEST_TEST_GLOBAL_SLOT").ok().and_then(|slot| slot.parse().ok());
    // Another run, of another checkout, may give the same numbers: its process id shifts the start.
    let id = std::process::id();
    let slot = slot.unwrap_or(id) % u32::from(TESTS);
    let first = FIRST + u16::try_from(slot)? * EACH;
    for _ in 0..EACH {
        let at = u32::from(NEXT.fetch_add(1, Ordering::Relaxed)).wrapping_add(id) % u32::from(EACH);
        let port = first + u16::try_from(at)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("all ports from {first} to {} are in use", first + EACH - 1)
}
