//! Images from a registry to a mounted root, over real connections and on a real kernel.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails where it can't go on"
)]

mod it;
#[allow(unreachable_pub, reason = "the fuzz targets use it from outside")]
mod properties;

#[test]
fn every_seed_and_what_is_near_it() {
    testkit::try_seeds(&properties::ALL).unwrap();
}
