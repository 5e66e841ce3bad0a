#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ferrokube_fuzz::codecs::field_selectors(data));
