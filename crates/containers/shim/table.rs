//! The shim's memory: its processes, and those who are attached to them. Places that were never used are never touched,
//! so they cost nothing.

use crate::output;
use crate::sys;

/// The most processes at a time.
pub(crate) const SLOTS: usize = 512;
/// The most who are attached at a time.
pub(crate) const ATTACHED: usize = 64;
/// The most ended children that nobody has taken and that are remembered.
pub(crate) const ORPHANS: usize = 64;
/// The most connections of runtimes.
pub(crate) const CONNECTIONS: usize = 4;

/// Bytes of a stream's buffer: a line with its end.
pub(crate) const BUFFER: usize = output::LINE + 4096;

/// One stream of a process's output.
#[derive(Clone, Copy)]
pub(crate) struct Stream {
    /// The reading end, or -1.
    pub(crate) fd: i32,
    /// The buffer, made with the first byte.
    pub(crate) buffer: *mut u8,
    /// Bytes in it.
    pub(crate) len: usize,
    /// Whether it waits for someone who is attached.
    pub(crate) paused: bool,
}

impl Stream {
    const fn none() -> Self {
        Self { fd: -1, buffer: core::ptr::null_mut(), len: 0, paused: false }
    }
    pub(crate) fn end(&mut self) {
        sys::close(self.fd);
        self.fd = -1;
        if !self.buffer.is_null() {
            sys::unmap(self.buffer, BUFFER);
            self.buffer = core::ptr::null_mut();
        }
        self.len = 0;
    }
}

/// A process.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) used: bool,
    pub(crate) id: u32,
    pub(crate) flags: u32,
    pub(crate) state: u32,
    pub(crate) pid: i32,
    /// The socket to a process that is not yet executed.
    pub(crate) go: i32,
    pub(crate) input: i32,
    pub(crate) streams: [Stream; 2],
    pub(crate) terminal: bool,
    pub(crate) log: i32,
    /// Whether the log ends in the middle of a line, because the disk was full.
    pub(crate) torn: bool,
    /// Lines that could not be written.
    pub(crate) lost: u32,
    pub(crate) status: i32,
    pub(crate) ended: (i64, i64),
    /// The last steps' failure: place, error.
    pub(crate) failure: (u32, u32),
    /// The one who waits for the start: connection (from 1) and tag.
    pub(crate) waiting: (u32, u32),
}

impl Slot {
    pub(crate) const fn new(id: u32, flags: u32) -> Self {
        Self {
            used: true,
            id,
            flags,
            state: 0,
            pid: 0,
            go: -1,
            input: -1,
            streams: [Stream::none(); 2],
            terminal: false,
            log: -1,
            torn: false,
            lost: 0,
            status: 0,
            ended: (0, 0),
            failure: (0, 0),
            waiting: (0, 0),
        }
    }
}

/// Someone who is attached: pipes without waiting.
#[derive(Clone, Copy)]
pub(crate) struct Attached {
    /// The place of the process, from 1; 0: nobody.
    pub(crate) slot: u32,
    pub(crate) pipes: [i32; 2],
    /// Whether standard input is theirs, too.
    pub(crate) input: bool,
    /// When they are let go if they do not read (milliseconds), or 0.
    pub(crate) deadline: i64,
}

/// A child that ended before anybody took it; its number is 0 for none.
#[derive(Clone, Copy)]
pub(crate) struct Orphan {
    pub(crate) pid: i32,
    pub(crate) status: i32,
    pub(crate) ended: (i64, i64),
}

/// Everything.
pub(crate) struct Table {
    pub(crate) slots: [Slot; SLOTS],
    /// Places of `slots` above this were never used.
    pub(crate) high: usize,
    pub(crate) attached: [Attached; ATTACHED],
    /// Places of `attached` above this were never used.
    pub(crate) attached_high: usize,
    pub(crate) orphans: [Orphan; ORPHANS],
    pub(crate) next_orphan: usize,
    pub(crate) connections: [i32; CONNECTIONS],
    pub(crate) epoll: i32,
    pub(crate) exits: i32,
    /// The shim's own process namespace, to come back to.
    pub(crate) own_pid: i32,
}

impl Table {
    /// The place of a process.
    pub(crate) fn find(&self, id: u32) -> Option<usize> {
        self.slots[..self.high].iter().position(|s| s.used && s.id == id)
    }
    /// A free place.
    pub(crate) fn free(&mut self) -> Option<usize> {
        if let Some(at) = self.slots[..self.high].iter().position(|s| !s.used) {
            return Some(at);
        }
        (self.high < SLOTS).then(|| {
            self.high += 1;
            self.high - 1
        })
    }
    /// A free place for someone who is attached.
    pub(crate) fn free_attached(&mut self) -> Option<usize> {
        if let Some(at) = self.attached[..self.attached_high].iter().position(|a| a.slot == 0) {
            return Some(at);
        }
        (self.attached_high < ATTACHED).then(|| {
            self.attached_high += 1;
            self.attached_high - 1
        })
    }
}
