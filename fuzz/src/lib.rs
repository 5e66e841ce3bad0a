//! The properties that the fuzz targets run; they are also tests of their crates, over `seeds`.

use std::path::PathBuf;

// The name under which the project's other crates have it.
extern crate ferrokube_api as api;

#[cfg(fuzzing)]
pub use libfuzzer_sys;

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

/// Makes a program that runs a property of this crate: by the fuzzer, or over files where it is built without that.
#[macro_export]
macro_rules! target {
    ($($property:tt)+) => {
        #[cfg(fuzzing)]
        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| $crate::$($property)+(data));

        #[cfg(not(fuzzing))]
        fn main() -> Result<(), String> {
            $crate::over_files($crate::$($property)+)
        }
    };
}

/// Runs a property over the files that the arguments of the program name, such as a finding.
///
/// # Errors
/// A file cannot be read; with its name.
pub fn over_files(property: fn(&[u8])) -> Result<(), String> {
    for file in std::env::args_os().skip(1).map(PathBuf::from) {
        property(&std::fs::read(&file).map_err(|e| format!("cannot read {}: {e}", file.display()))?);
    }
    Ok(())
}
