//! The properties over the seeds of the fuzz targets, and over small changes of each.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where it can't go on")]

#[allow(unreachable_pub, reason = "the fuzz targets use it from outside")]
mod properties;

use std::path::Path;

/// A seed, and what it is with one byte gone, changed or more, and cut off.
fn near(seed: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let at = move |i: usize| {
        let mut changed = Vec::new();
        changed.push(seed[..i].to_vec());
        changed.push([&seed[..i], &seed[i + 1..]].concat());
        for byte in [0, b'0', b'-', b'"', b'/', b'[', b'}', 0x7f, 0xff] {
            changed.push([&seed[..i], &[byte], &seed[i + 1..]].concat());
            changed.push([&seed[..i], &[byte], &seed[i..]].concat());
        }
        changed
    };
    std::iter::once(seed.to_vec()).chain((0..seed.len()).flat_map(at))
}

#[test]
fn every_seed_and_what_is_near_it() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    for (name, property) in properties::ALL {
        let mut count = 0;
        for file in std::fs::read_dir(seeds.join(name)).unwrap() {
            let seed = std::fs::read(file.unwrap().path()).unwrap();
            near(&seed).for_each(|input| property(&input));
            count += 1;
        }
        assert!(count > 0, "{name} has no seeds");
    }
}
