//! The seeds of the fuzz targets, and what is near them.

#![allow(clippy::unwrap_used, reason = "a test fails where it can't go on")]

use crate::properties;

#[test]
fn properties_hold_near_the_seeds() {
    testkit::try_seeds(&properties::ALL).unwrap();
}
