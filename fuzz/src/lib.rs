//! The properties that the fuzz targets run; they are also tests of their crates, over `seeds`.

#[path = "../../crates/api/tests/properties/mod.rs"]
pub mod api;
#[path = "../../crates/client/tests/properties/mod.rs"]
pub mod clients;
#[path = "../../crates/streaming/tests/properties/mod.rs"]
pub mod streaming;

// Of the client only what is fuzzed is built: its properties find it under the crate's name.
extern crate self as ferrokube_client;
#[path = "../../crates/client/src/subject.rs"]
pub mod subject;
