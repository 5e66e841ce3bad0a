//! Archives in the format `newc`, which the kernel unpacks into its first root.

use std::fmt::Write as _;

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

/// An archive in the making.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds a directory; those above it come first.
    pub(super) fn directory(&mut self, name: &str) {
        self.entry(name, DIRECTORY | 0o755, 2, &[]);
    }

    /// Adds a file.
    pub(super) fn file(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entry(name, FILE | mode, 1, content);
    }

    /// The whole archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entries = 0;
        self.entry("TRAILER!!!", 0, 1, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, links: u32, content: &[u8]) {
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let length = name.len() as u32 + 1;
        let mut head = String::from("070701");
        // Inode, mode, owner, group, links, time, size, numbers of the device and of the node, length of the name, sum.
        for field in [self.entries, mode, 0, 0, links, 0, size, 0, 0, 0, 0, length, 0] {
            let _ = write!(head, "{field:08x}");
        }
        self.entries += 1;
        self.bytes.extend(head.bytes().chain(name.bytes()).chain([0]));
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_the_formats() {
        let mut archive = Archive::default();
        archive.directory("bin");
        archive.file("bin/a", 0o755, b"hello");
        let bytes = archive.finish();
        let text = String::from_utf8(bytes).unwrap();
        let zero = "00000000";
        let first = format!(
            "070701{zero}000041ed{zero}{zero}00000002{zero}{zero}{zero}{zero}{zero}{zero}00000004{zero}bin\0\0\0"
        );
        assert!(text.starts_with(&first), "{text}");
        let second = format!(
            "07070100000001000081ed{zero}{zero}00000001{zero}00000005{zero}{zero}{zero}{zero}00000006{zero}bin/a\0hello\0\0\0"
        );
        assert_eq!(text[first.len()..first.len() + second.len()], second);
        assert!(text[first.len() + second.len()..].contains("TRAILER!!!\0"));
        assert_eq!(text.len() % 4, 0);
    }
}
