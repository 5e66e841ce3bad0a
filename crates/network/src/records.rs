//! The attachments of a node, each in a small file: a file is there before anything is changed for its container, and
//! as long as anything is left of it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::attachment::Attachment;

/// A container and its interface.
pub(crate) type Key = (String, String);

/// The end of a file's name that is not whole yet.
const UNFINISHED: &str = ".new";

/// The attachments, as the files have them.
#[derive(Debug)]
pub(crate) struct Records {
    dir: PathBuf,
    all: BTreeMap<Key, Attachment>,
    /// The number that was given last.
    last: u16,
}

impl Records {
    /// Reads the files. One that cannot be read is removed: only a crash of the machine leaves such, and no container
    /// outlives that.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let mut all = BTreeMap::new();
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            let unfinished = path.to_string_lossy().ends_with(UNFINISHED);
            let read = || serde_json::from_slice::<Attachment>(&std::fs::read(&path).ok()?).ok();
            if let Some(one) = (!unfinished).then(read).flatten() {
                all.insert((one.container.clone(), one.interface.clone()), one);
                continue;
            }
            if !unfinished {
                tracing::warn!(path = %path.display(), "a record of the pod network is malformed; it is removed");
            }
            std::fs::remove_file(&path)?;
        }
        let last = all.values().map(|one| one.number).max().unwrap_or_default();
        Ok(Self { dir: dir.to_owned(), all, last })
    }

    /// All attachments.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Attachment> {
        self.all.values()
    }

    /// One attachment.
    pub(crate) fn get(&self, key: &Key) -> Option<&Attachment> {
        self.all.get(key)
    }

    /// The least number behind the one that was given last, up to `greatest`, that nobody has; so a number rests
    /// before it is given again.
    pub(crate) fn free_number(&self, greatest: u16, mut taken: impl FnMut(u16) -> bool) -> Option<u16> {
        /// 0 is the network's, 1 the node's.
        const FIRST: u16 = 2;
        let used: std::collections::BTreeSet<u16> = self.all.values().map(|one| one.number).collect();
        let next = self.last.saturating_add(1).max(FIRST);
        (next..=greatest).chain(FIRST..=greatest.min(next)).find(|n| !used.contains(n) && !taken(*n))
    }

    /// Writes one; a reader sees it whole or not at all. The disk is not waited for: no container outlives a crash of
    /// the machine.
    pub(crate) fn put(&mut self, one: Attachment) -> io::Result<()> {
        let key = (one.container.clone(), one.interface.clone());
        let path = self.path(&key);
        let new = path.with_added_extension(&UNFINISHED[1..]);
        std::fs::write(&new, serde_json::to_vec(&one)?)?;
        std::fs::rename(&new, &path)?;
        self.last = one.number;
        self.all.insert(key, one);
        Ok(())
    }

    /// Removes one.
    pub(crate) fn remove(&mut self, key: &Key) -> io::Result<()> {
        match std::fs::remove_file(self.path(key)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.all.remove(key);
        Ok(())
    }

    fn path(&self, (container, interface): &Key) -> PathBuf {
        self.dir.join(format!("{container}@{interface}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::tests::example;

    fn numbered(number: u16) -> Attachment {
        Attachment { container: format!("c{number}"), number, ..example() }
    }

    #[test]
    fn a_number_rests_before_it_is_given_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut records = Records::open(dir.path()).unwrap();
        let mut given = Vec::new();
        for _ in 0..3 {
            let number = records.free_number(4, |_| false).unwrap();
            records.put(numbered(number)).unwrap();
            given.push(number);
        }
        assert_eq!(given, [2, 3, 4]);
        assert_eq!(records.free_number(4, |_| false), None);
        records.remove(&("c3".into(), "eth0".into())).unwrap();
        assert_eq!(records.free_number(4, |_| false), Some(3));
        assert_eq!(records.free_number(9, |_| false), Some(5));
        assert_eq!(records.free_number(9, |n| n < 7), Some(7));
        assert_eq!(records.free_number(0, |_| false), None);
    }

    #[test]
    fn files_outlive_the_process_and_halves_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut records = Records::open(dir.path()).unwrap();
        records.put(example()).unwrap();
        std::fs::write(dir.path().join("b@eth0.new"), "{").unwrap();
        std::fs::write(dir.path().join("c@eth0"), "{").unwrap();
        let again = Records::open(dir.path()).unwrap();
        assert_eq!(again.all().collect::<Vec<_>>(), [&example()]);
        let key = ("a1".to_owned(), "eth0".to_owned());
        assert_eq!(again.get(&key), Some(&example()));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        records.remove(&key).unwrap();
        records.remove(&key).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
