//! The hash of names; upstream's.

/// A 32-bit FNV-1a.
pub(crate) struct Fnv(u32);

impl Default for Fnv {
    fn default() -> Self {
        Self(0x811c_9dc5)
    }
}

impl Fnv {
    /// Adds bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    }

    /// The hash of all bytes.
    pub(crate) fn sum(&self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_is_fnv() {
        let mut hash = Fnv::default();
        hash.write(b"foobar");
        assert_eq!(hash.sum(), 0xbf9c_f968);
    }
}
