//! The files under the log, behind a trait, so that tests can take the power away at any moment.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A directory of files that are only ever appended to.
pub(crate) trait Files: Send + Sync {
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Opens a file for reading from its start.
    fn read(&self, name: &str) -> io::Result<Box<dyn Read>>;
    /// Makes a file, empty, also if there was one of that name.
    fn create(&self, name: &str) -> io::Result<Box<dyn Appender>>;
    /// Cuts a file, durably.
    fn truncate(&self, name: &str, len: u64) -> io::Result<()>;
    /// Renames a file; durable after [`Files::sync_dir`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes the names of the files durable.
    fn sync_dir(&self) -> io::Result<()>;
}

/// A file that is being written.
pub(crate) trait Appender: Send {
    /// Appends all of these bytes, or fails with some of them written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes what was appended durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// A real directory.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    dir: PathBuf,
}

impl Disk {
    /// Makes the directory (for its owner only) if it does not exist.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        Ok(Self { dir: dir.to_owned() })
    }
    /// Opens the lock file, without locking it.
    pub(crate) fn lock_file(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).mode(0o600).open(self.dir.join("lock"))
    }
}

impl Files for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        fs::read_dir(&self.dir)?.map(|e| Ok(e?.file_name().to_string_lossy().into_owned())).collect()
    }
    fn read(&self, name: &str) -> io::Result<Box<dyn Read>> {
        Ok(Box::new(File::open(self.dir.join(name))?))
    }
    fn create(&self, name: &str) -> io::Result<Box<dyn Appender>> {
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(true).mode(0o600);
        Ok(Box::new(options.open(self.dir.join(name))?))
    }
    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(self.dir.join(name))?;
        file.set_len(len)?;
        file.sync_all()
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.dir.join(from), self.dir.join(to))
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.dir.join(name))
    }
    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }
}

impl Appender for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}
