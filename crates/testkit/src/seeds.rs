//! Properties over the seeds of the fuzz targets.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::root;

/// A seed, with variants in which one byte is gone, changed or added, and cut off.
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

/// The name of a fuzz target, and its check of an input.
pub type Property = (&'static str, fn(&[u8]));

/// Tries each property on every seed of the target of its name, and on small changes of each.
pub fn try_seeds(properties: &[Property]) -> Result<()> {
    for (name, property) in properties {
        let seeds = root().join("fuzz/seeds").join(name);
        let mut count = 0;
        for file in fs::read_dir(&seeds).with_context(|| seeds.display().to_string())? {
            near(&fs::read(file?.path())?).for_each(|input| property(&input));
            count += 1;
        }
        ensure!(count > 0, "{name} has no seeds");
    }
    Ok(())
}

/// Numbers that a seed gives, the same each time.
#[derive(Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// Those of a seed.
    pub fn new(seed: u64) -> Self {
        // Nought would give nothing else.
        Self(seed.max(1))
    }

    /// The next one, below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end.max(1)
    }
}
