//! The properties that the fuzz targets run; they are also tests of their crates, over `seeds`.

#[path = "../../crates/access/tests/properties/mod.rs"]
pub mod access;
#[path = "../../crates/api/tests/properties/mod.rs"]
pub mod api;
#[path = "../../crates/cel/tests/properties/mod.rs"]
pub mod cel;
#[path = "../../crates/client/tests/properties/mod.rs"]
pub mod clients;
#[path = "../../crates/dns/tests/properties/mod.rs"]
pub mod dns;
#[path = "../../crates/images/tests/properties/mod.rs"]
pub mod images;
#[path = "../../crates/kinds/tests/properties/mod.rs"]
pub mod kinds;
#[path = "../../crates/streaming/tests/properties/mod.rs"]
pub mod streaming;
