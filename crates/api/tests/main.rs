//! The codecs and patches against upstream's own cases, and the properties that hold for any bytes.

mod corpus;
mod golden;
#[allow(unreachable_pub, reason = "the fuzz targets use it from outside")]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where it can't go on")]
mod properties;
mod strategic;
mod structured;
