//! A disk that loses its power: unsynced changes are lost, torn or reordered, and calls fail on request.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::sync::Arc;

use parking_lot::Mutex;

use super::files::{Appender, Files};

/// The unit in which unsynced bytes arrive on the disk or do not.
const SECTOR: usize = 512;

/// A call that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Create,
    Append,
    Sync,
    Truncate,
    Rename,
    Remove,
    SyncDir,
}

/// The system's "no space left on device" and "input/output error".
pub(crate) const ENOSPC: i32 = 28;
pub(crate) const EIO: i32 = 5;

#[derive(Debug, Clone, Default)]
struct Inode {
    durable: Vec<u8>,
    current: Vec<u8>,
    /// Whether a sync failed: the kernel took the pages for clean, and later syncs write nothing.
    given_up: bool,
}

#[derive(Debug, Clone)]
enum DirChange {
    Link(String, usize),
    Unlink(String),
}

#[derive(Debug, Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    unsynced_names: Vec<DirChange>,
    /// The number of calls that write after which the power goes.
    power: Option<usize>,
    /// One call in so many fails; 0 for none.
    faults: usize,
    /// The calls that all fail, and their error.
    broken: Option<(Call, i32)>,
    random: fastrand::Rng,
}

/// The disk. Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sim(Arc<Mutex<State>>);

impl Sim {
    /// A new disk whose random choices come from a seed.
    pub(crate) fn new(seed: u64) -> Self {
        let sim = Self::default();
        sim.0.lock().random = fastrand::Rng::with_seed(seed);
        sim
    }

    /// Cuts the power after so many more calls that write.
    pub(crate) fn cut_power_after(&self, calls: usize) {
        self.0.lock().power = Some(calls);
    }

    /// Lets one call that writes in so many fail.
    pub(crate) fn fail_one_in(&self, calls: usize) {
        self.0.lock().faults = calls;
    }

    /// Lets every such call fail with an error of the system; `None` lets them work again.
    pub(crate) fn fail_all(&self, broken: Option<(Call, i32)>) {
        self.0.lock().broken = broken;
    }

    /// The disk after the power is back; the old one stays off.
    pub(crate) fn power_cycle(&self) -> Self {
        let mut guard = self.0.lock();
        let old = &mut *guard;
        old.power = Some(0);
        let mut new = State { random: old.random.fork(), ..State::default() };
        let mut names = old.durable_names.clone();
        // Changes of names are journaled: a prefix of them has happened.
        let happened = old.random.usize(..=old.unsynced_names.len());
        for change in &old.unsynced_names[..happened] {
            apply(&mut names, change);
        }
        for (name, at) in names {
            let Inode { mut durable, mut current, .. } = old.inodes[at].clone();
            let synced = durable.len();
            let len = old.random.usize(synced..=current.len().max(synced));
            if current.len() < len {
                current.extend_from_slice(&durable[current.len()..]);
            }
            let all = old.random.bool();
            durable.resize(len, 0);
            for start in (0..len).step_by(SECTOR) {
                let end = len.min(start + SECTOR);
                if durable[start..end] == current[start..end] {
                    continue;
                }
                match (all, old.random.u8(..8)) {
                    (true, _) | (_, 0..4) => {
                        durable[start..end].copy_from_slice(&current[start..end]);
                    }
                    // The sector is torn: its first bytes are there.
                    (_, 4) => {
                        let torn = old.random.usize(start..end);
                        durable[start..torn].copy_from_slice(&current[start..torn]);
                    }
                    // The sector holds old bytes from before the file.
                    (_, 5) if start >= synced => old.random.fill(&mut durable[start..end]),
                    _ => {}
                }
            }
            new.names.insert(name.clone(), new.inodes.len());
            new.durable_names.insert(name, new.inodes.len());
            new.inodes.push(Inode { current: durable.clone(), durable, given_up: false });
        }
        Self(Arc::new(Mutex::new(new)))
    }

    /// The total size of all files.
    pub(crate) fn size(&self) -> usize {
        let state = self.0.lock();
        state.names.values().map(|&at| state.inodes[at].current.len()).sum()
    }

    /// Changes a byte of a file, as a failing disk does.
    pub(crate) fn flip(&self, name: &str, at: usize) {
        let mut state = self.0.lock();
        let inode = state.names[name];
        state.inodes[inode].current[at] ^= 0x55;
        state.inodes[inode].durable = state.inodes[inode].current.clone();
    }
}

fn apply(names: &mut BTreeMap<String, usize>, change: &DirChange) {
    match change {
        DirChange::Link(name, inode) => {
            names.insert(name.clone(), *inode);
        }
        DirChange::Unlink(name) => {
            names.remove(name);
        }
    }
}

impl State {
    /// Changes names, if the call goes well. The last change before the power goes may be in the journal.
    fn link(&mut self, call: Call, changes: Vec<DirChange>) -> io::Result<()> {
        let was_on = self.power != Some(0);
        let outcome = self.call(call);
        if outcome.is_ok() {
            for change in &changes {
                apply(&mut self.names, change);
            }
        }
        if outcome.is_ok() || was_on && self.power == Some(0) && self.random.bool() {
            self.unsynced_names.extend(changes);
        }
        outcome
    }

    /// Counts a call that writes. `Err` if the power is off or the call fails.
    fn call(&mut self, call: Call) -> io::Result<()> {
        match &mut self.power {
            Some(0) => return Err(io::Error::other("the power is off")),
            Some(left) => *left -= 1,
            None => {}
        }
        if self.power == Some(0) {
            return Err(io::Error::other("the power went"));
        }
        if let Some((broken, error)) = self.broken
            && broken == call
        {
            return Err(io::Error::from_raw_os_error(error));
        }
        if self.faults > 0 && self.random.usize(..self.faults) == 0 {
            let errors = [ENOSPC, EIO];
            return Err(io::Error::from_raw_os_error(errors[self.random.usize(..2)]));
        }
        Ok(())
    }

    fn inode(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Files for Sim {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().names.keys().cloned().collect())
    }
    fn read(&self, name: &str) -> io::Result<Box<dyn Read>> {
        let state = self.0.lock();
        Ok(Box::new(Cursor::new(state.inodes[state.inode(name)?].current.clone())))
    }
    fn create(&self, name: &str) -> io::Result<Box<dyn Appender>> {
        let mut state = self.0.lock();
        let inode = state.inodes.len();
        state.inodes.push(Inode::default());
        state.link(Call::Create, vec![DirChange::Link(name.to_owned(), inode)])?;
        Ok(Box::new(SimFile { sim: self.clone(), inode, at: 0 }))
    }
    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let was_on = state.power != Some(0);
        let outcome = state.call(Call::Truncate);
        let at = state.inode(name)?;
        let inode = &mut state.inodes[at];
        // The cut may have worked although to make it durable did not.
        if outcome.is_ok() || was_on && state.random.bool() {
            inode.current.truncate(len as usize);
        }
        if outcome.is_ok() && !inode.given_up {
            inode.durable = inode.current.clone();
        }
        outcome
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        let inode = state.inode(from)?;
        let changes = vec![DirChange::Link(to.to_owned(), inode), DirChange::Unlink(from.to_owned())];
        state.link(Call::Rename, changes)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.inode(name)?;
        state.link(Call::Remove, vec![DirChange::Unlink(name.to_owned())])
    }
    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.call(Call::SyncDir)?;
        state.durable_names = state.names.clone();
        state.unsynced_names.clear();
        Ok(())
    }
}

struct SimFile {
    sim: Sim,
    inode: usize,
    at: usize,
}

impl SimFile {
    /// Writes over the bytes at the file's place; a failing call writes a random part.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.sim.0.lock();
        let was_on = state.power != Some(0);
        let outcome = state.call(Call::Append);
        let len = if outcome.is_ok() { bytes.len() } else { state.random.usize(..=bytes.len()) };
        if was_on {
            let current = &mut state.inodes[self.inode].current;
            let end = self.at + len;
            current.resize(current.len().max(end), 0);
            current[self.at..end].copy_from_slice(&bytes[..len]);
        }
        outcome
    }
}

impl Appender for SimFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes)?;
        self.at += bytes.len();
        Ok(())
    }
    fn reserve(&mut self, bytes: usize) -> io::Result<()> {
        self.write(&vec![0; bytes])
    }
    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.sim.0.lock();
        let outcome = state.call(Call::Sync);
        let inode = &mut state.inodes[self.inode];
        if outcome.is_err() {
            inode.given_up = true;
        } else if !inode.given_up {
            inode.durable.clone_from(&inode.current);
        }
        outcome
    }
}
