//! Random names.

use std::fmt::Write;

/// Fills a buffer with random bytes.
pub(crate) fn fill(buffer: &mut [u8]) {
    // The generator fails only if the kernel gives no random bytes, and then nothing can be secret.
    while aws_lc_rs::rand::fill(buffer).is_err() {
        std::thread::yield_now();
    }
}

/// A new id of a sandbox or container: 64 hexadecimal digits.
pub(crate) fn new() -> String {
    let mut bytes = [0; 32];
    fill(&mut bytes);
    bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn ids() {
        let (one, other) = (super::new(), super::new());
        assert_eq!(one.len(), 64);
        assert_ne!(one, other);
    }
}
