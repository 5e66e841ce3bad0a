//! A disk that loses its power: what was not synced is lost, torn or reordered, and calls fail on request.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::sync::Arc;

use parking_lot::Mutex;

use super::files::{Appender, Files};

/// The unit in which unsynced bytes arrive on the disk or do not.
const SECTOR: usize = 512;

#[derive(Debug, Clone, Default)]
struct Inode {
    durable: Vec<u8>,
    current: Vec<u8>,
    /// A sync failed: the kernel took the pages for clean, and later syncs write nothing.
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
    /// After so many calls that write, the power goes.
    power: Option<usize>,
    /// One call in so many fails; 0 for none.
    faults: usize,
    random: fastrand::Rng,
}

/// The disk. Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sim(Arc<Mutex<State>>);

impl Sim {
    /// A new disk whose chances come from a seed.
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

    /// The disk as it is found when the power is back; the old one stays off.
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
            let Inode { mut durable, current, .. } = old.inodes[at].clone();
            let len = old.random.usize(durable.len()..=current.len().max(durable.len()));
            let synced = durable.len();
            let all = old.random.bool();
            durable.resize(len, 0);
            for start in (synced..len).step_by(SECTOR) {
                if all || old.random.bool() {
                    let end = len.min(start + SECTOR);
                    durable[start..end].copy_from_slice(&current[start..end]);
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
    fn link(&mut self, change: DirChange) {
        apply(&mut self.names, &change);
        self.unsynced_names.push(change);
    }

    /// Counts a call that writes. `Err` if the power is off or the call fails.
    fn call(&mut self) -> io::Result<()> {
        if let Some(left) = &mut self.power {
            *left = left.checked_sub(1).ok_or_else(|| io::Error::other("the power is off"))?;
        }
        if self.faults > 0 && self.random.usize(..self.faults) == 0 {
            let kinds = [io::ErrorKind::StorageFull, io::ErrorKind::Other];
            return Err(io::Error::from(kinds[self.random.usize(..2)]));
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
        state.call()?;
        let inode = state.inodes.len();
        state.inodes.push(Inode::default());
        state.link(DirChange::Link(name.to_owned(), inode));
        Ok(Box::new(SimFile { sim: self.clone(), inode }))
    }
    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        let mut state = self.0.lock();
        state.call()?;
        let at = state.inode(name)?;
        let inode = &mut state.inodes[at];
        inode.current.truncate(len as usize);
        if !inode.given_up {
            inode.durable = inode.current.clone();
        }
        Ok(())
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.call()?;
        let inode = state.inode(from)?;
        state.link(DirChange::Link(to.to_owned(), inode));
        state.link(DirChange::Unlink(from.to_owned()));
        Ok(())
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.call()?;
        state.inode(name)?;
        state.link(DirChange::Unlink(name.to_owned()));
        Ok(())
    }
    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.call()?;
        state.durable_names = state.names.clone();
        state.unsynced_names.clear();
        Ok(())
    }
}

struct SimFile {
    sim: Sim,
    inode: usize,
}

impl Appender for SimFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.sim.0.lock();
        let outcome = state.call();
        let len = if outcome.is_ok() { bytes.len() } else { state.random.usize(..=bytes.len()) };
        if state.power != Some(0) || outcome.is_ok() {
            state.inodes[self.inode].current.extend_from_slice(&bytes[..len]);
        }
        outcome
    }
    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.sim.0.lock();
        let outcome = state.call();
        let inode = &mut state.inodes[self.inode];
        if outcome.is_err() {
            inode.given_up = true;
        } else if !inode.given_up {
            inode.durable = inode.current.clone();
        }
        outcome
    }
}
