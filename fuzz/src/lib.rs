//! The properties that the fuzz targets run; they are also tests of their crates, over `seeds`.

// The name under which the project's other crates have it.
extern crate ferrokube_api as api;

#[path = "../../crates/access/tests/properties/mod.rs"]
pub mod access;
#[path = "../../crates/cel/tests/properties/mod.rs"]
pub mod cel;
#[path = "../../crates/client/tests/properties/mod.rs"]
pub mod clients;
#[path = "../../crates/api/tests/properties/mod.rs"]
pub mod codecs;
#[path = "../../crates/dns/tests/properties/mod.rs"]
pub mod dns;
#[path = "../../crates/images/tests/properties/mod.rs"]
pub mod images;
#[path = "../../crates/kinds/tests/properties/mod.rs"]
pub mod kinds;
#[path = "../../crates/streaming/tests/properties/mod.rs"]
pub mod streaming;
