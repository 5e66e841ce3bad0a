//! The seeds of the fuzz targets, and what is near them.

use crate::properties;

#[test]
fn properties_hold_near_the_seeds() {
    testkit::try_seeds(&properties::ALL).unwrap();
}
