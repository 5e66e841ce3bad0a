//! The DNS server on real sockets, and the properties that hold for any packet.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails where it can't go on"
)]

mod cases;
#[allow(unreachable_pub, reason = "the fuzz targets use it from outside")]
mod properties;

#[test]
fn every_seed_and_what_is_near_it() {
    testkit::try_seeds(&properties::ALL).unwrap();
}
