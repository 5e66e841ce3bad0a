//! The properties over the seeds of the fuzz targets, and over small changes of each.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where it can't go on")]

#[allow(unreachable_pub, reason = "the fuzz targets use it from outside")]
mod properties;

#[test]
fn every_seed_and_what_is_near_it() {
    testkit::try_seeds(&properties::ALL).unwrap();
}
