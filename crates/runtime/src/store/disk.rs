//! Records on the disk: a file each, replaced in one step.

use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use prost::Message;

/// The beginning of the names of files that are being written.
const NEW: &str = ".new-";
/// The end of the names of files that could not be read.
const ODD: &str = ".unreadable";
/// The longest record that is read, in bytes. CRI's messages are at most 16 MiB long.
const LONGEST: u64 = 32 << 20;

/// A record that has a name of its own.
pub(crate) trait Record: Message + Default {
    /// The name, which is the file's.
    fn id(&self) -> &str;
}

/// The records of one kind.
#[derive(Debug)]
pub(crate) struct Records<T> {
    dir: PathBuf,
    of: PhantomData<fn() -> T>,
}

impl<T: Record> Records<T> {
    /// Opens the records in a directory, and reads all. A file that a crash left half written is removed, and one that
    /// is no record is put aside and told of: what it stood for is taken down as something that nobody owns.
    pub(crate) fn open(dir: &Path) -> io::Result<(Self, Vec<T>)> {
        std::fs::create_dir_all(dir)?;
        let mut all = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if name.starts_with(NEW) {
                std::fs::remove_file(&path)?;
                continue;
            }
            if name.ends_with(ODD) {
                continue;
            }
            match read::<T>(&path) {
                Ok(record) if record.id() == name => all.push(record),
                Ok(_) => put_aside(&path, &io::Error::other("it names another thing"))?,
                Err(error) => put_aside(&path, &error)?,
            }
        }
        Ok((Self { dir: dir.to_owned(), of: PhantomData }, all))
    }

    /// Writes a record. A process that dies leaves the old one or the new one.
    pub(crate) fn put(&self, record: &T) -> io::Result<()> {
        let new = self.dir.join(format!("{NEW}{}", record.id()));
        std::fs::write(&new, record.encode_to_vec())?;
        std::fs::rename(new, self.dir.join(record.id()))
    }

    /// Removes a record; none is no error.
    pub(crate) fn remove(&self, id: &str) -> io::Result<()> {
        match std::fs::remove_file(self.dir.join(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn read<T: Record>(path: &Path) -> io::Result<T> {
    if std::fs::metadata(path)?.len() > LONGEST {
        return Err(io::Error::other("it is too long"));
    }
    Ok(T::decode(&std::fs::read(path)?[..])?)
}

fn put_aside(path: &Path, why: &io::Error) -> io::Result<()> {
    tracing::error!(path = %path.display(), error = %why, "a record cannot be read and is put aside");
    let mut aside = path.as_os_str().to_owned();
    aside.push(ODD);
    std::fs::rename(path, aside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::SandboxRecord;

    #[test]
    fn records_are_whole_or_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let (records, none) = Records::<SandboxRecord>::open(dir.path()).unwrap();
        assert!(none.is_empty());
        let record = |id: &str| SandboxRecord { id: id.into(), ..Default::default() };
        for id in ["a", "b", "c"] {
            records.put(&record(id)).unwrap();
        }
        records.remove("c").unwrap();
        records.remove("c").unwrap();
        std::fs::write(dir.path().join("b"), [0xff; 9]).unwrap();
        std::fs::write(dir.path().join("other"), record("x").encode_to_vec()).unwrap();
        std::fs::write(dir.path().join(".new-d"), "half").unwrap();
        for _ in 0..2 {
            let (_, all) = Records::<SandboxRecord>::open(dir.path()).unwrap();
            assert_eq!(all, [record("a")]);
        }
        assert!(dir.path().join("b.unreadable").exists() && !dir.path().join(".new-d").exists());
    }
}
