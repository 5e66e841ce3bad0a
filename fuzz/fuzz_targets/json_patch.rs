#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ferrokube_fuzz::codecs::json_patches(data));
