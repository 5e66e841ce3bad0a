//! The files under the log, behind a trait, so that tests can take the power away at any moment.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
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
    /// Writes so many zeros, which the next bytes overwrite. To sync bytes in place of others is faster than to sync a
    /// file that has grown, whose new length must be written as well.
    fn reserve(&mut self, bytes: usize) -> io::Result<()>;
    /// Makes the appended bytes durable.
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
        Ok(Box::new(DiskFile { file: options.open(self.dir.join(name))?, at: 0 }))
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

/// A file that is being written, and its length.
struct DiskFile {
    file: File,
    at: u64,
}

impl Appender for DiskFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
    fn reserve(&mut self, bytes: usize) -> io::Result<()> {
        self.file.write_all_at(&vec![0; bytes], self.at)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}
