//! The bound on what a layer may take of the disk: a share of the file system stays free.

use std::os::fd::AsFd;

use rustix::io;

/// How many bytes are written, and names made, between two looks at the file system.
const BYTES: u64 = 8 << 20;
const INODES: u64 = 256;

/// A file system's free space, which is looked at now and then.
#[derive(Debug, Clone)]
pub struct Space {
    percent: u64,
    bytes: u64,
    inodes: u64,
}

impl Space {
    /// A bound: the given share of bytes and of inodes stays free.
    pub fn new(percent: u8) -> Self {
        Self { percent: u64::from(percent.min(99)), bytes: BYTES, inodes: INODES }
    }

    /// How many bytes may be written before the reserve is reached. An archive that unpacks to more cannot fit, even if
    /// it is all zeros, which become holes: so the work that a bomb makes is bounded, too.
    pub fn room(&self, file_system: impl AsFd) -> io::Result<u64> {
        let facts = rustix::fs::fstatvfs(file_system)?;
        let reserve = facts.f_blocks / 100 * self.percent;
        Ok(facts.f_bavail.saturating_sub(reserve).saturating_mul(facts.f_frsize))
    }

    /// Tells that so much was written. False: the reserve is reached.
    pub fn take(&mut self, file_system: impl AsFd, bytes: u64, inodes: u64) -> io::Result<bool> {
        self.bytes += bytes;
        self.inodes += inodes;
        if self.bytes < BYTES && self.inodes < INODES {
            return Ok(true);
        }
        (self.bytes, self.inodes) = (0, 0);
        let facts = rustix::fs::fstatvfs(file_system)?;
        let enough = |free: u64, all: u64| all == 0 || free > all / 100 * self.percent;
        Ok(enough(facts.f_bavail, facts.f_blocks) && enough(facts.f_favail, facts.f_files))
    }
}
