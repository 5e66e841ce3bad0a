//! The shim's loop: requests of the runtime, output of containers, ends of processes.

use core::ptr::addr_of_mut;

use crate::exits::record;
use crate::logs;
use crate::nr;
use crate::spawn;
use crate::take;
use crate::sys::{self, Result};
use crate::table::{CONNECTIONS, Table};
use crate::wire::{answer, note, request, spawn as with, state};

const LISTEN: u64 = 1;
const CONNECTION: u64 = 2;
const SIGNAL: u64 = 3;
const GO: u64 = 4;
pub(crate) const OUTPUT: u64 = 5;
pub(crate) const ATTACHED: u64 = 6;

pub(crate) const IN: u32 = 1;
pub(crate) const OUT: u32 = 4;
const ERR: u32 = 8;
const HUP: u32 = 16;

/// Zero for places never used: the memory is the kernel's until it is touched.
static mut TABLE: core::mem::MaybeUninit<Table> = core::mem::MaybeUninit::zeroed();

#[cfg_attr(target_arch = "x86_64", repr(C, packed))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C))]
#[derive(Clone, Copy)]
struct EpollEvent {
    events: u32,
    data: u64,
}

/// A mark of what an event is about: its kind, a place, and which of two.
pub(crate) fn mark(kind: u64, place: usize, which: usize) -> u64 {
    kind << 56 | (which as u64) << 48 | place as u64
}

pub(crate) fn watch(table: &Table, d: i32, events: u32, data: u64) {
    let event = EpollEvent { events, data };
    let at = &raw const event as usize;
    const ADD: usize = 1;
    const CHANGE: usize = 3;
    if sys::call(nr::EPOLL_CTL, &[sys::fd(table.epoll), ADD, sys::fd(d), at]) == Err(sys::EEXIST) {
        let _ = sys::call(nr::EPOLL_CTL, &[sys::fd(table.epoll), CHANGE, sys::fd(d), at]);
    }
}

pub(crate) fn unwatch(table: &Table, d: i32) {
    let _ = sys::call(nr::EPOLL_CTL, &[sys::fd(table.epoll), 2, sys::fd(d), 0]);
}

/// Serves for ever.
pub(crate) fn serve(listen: i32, exits: i32) -> Result<()> {
    // SAFETY: there is one thread, and this function is called once. All zeros are a Table: numbers, false, null.
    let table = unsafe { (*addr_of_mut!(TABLE)).assume_init_mut() };
    // The descriptors that are kept move above the streams; everything else of the set-up is closed.
    let keep = |d: i32| sys::call(nr::FCNTL, &[sys::fd(d), 1030, 64]).map(|d| d as i32);
    let (listen, exits) = (keep(listen)?, keep(exits)?);
    let null = keep(sys::openat2(sys::AT_FDCWD, b"/dev/null\0".as_ptr(), sys::O_RDWR, 0, 0)?)?;
    let _ = sys::call(nr::CLOSE_RANGE, &[0, 63, 0]);
    for stream in 0..3 {
        sys::call(nr::DUP3, &[sys::fd(null), stream, 0])?;
    }
    sys::close(null);
    table.exits = exits;
    table.connections = [-1; CONNECTIONS];
    table.own_pid = sys::openat2(sys::AT_FDCWD, b"/proc/self/ns/pid\0".as_ptr(), sys::O_RDONLY, 0, 0)?;
    table.epoll = sys::call(nr::EPOLL_CREATE1, &[0o2_000_000])? as i32;
    let _ = sys::call(nr::CHDIR, &[b"/\0".as_ptr() as usize]);
    // Orphans of containers in the host's process namespace come here.
    sys::prctl(36, 1, 0)?;
    let child = 1u64 << (sys::SIGCHLD - 1);
    let signals = sys::call(nr::SIGNALFD4, &[usize::MAX, &raw const child as usize, 8, 0o2_004_000])? as i32;
    watch(table, signals, IN, mark(SIGNAL, 0, 0));
    watch(table, listen, IN, mark(LISTEN, 0, 0));
    let mut events = [EpollEvent { events: 0, data: 0 }; 16];
    loop {
        let timeout = logs::next_deadline(table);
        let at = events.as_mut_ptr() as usize;
        let r = sys::call(nr::EPOLL_PWAIT, &[sys::fd(table.epoll), at, events.len(), sys::fd(timeout), 0, 8]);
        let count = r.unwrap_or(0).min(events.len());
        for event in &events[..count] {
            let (bits, data) = (event.events, event.data);
            let (place, which) = ((data & 0xffff_ffff) as usize, (data >> 48 & 1) as usize);
            match data >> 56 {
                LISTEN => accept(table, listen),
                CONNECTION => receive(table, place),
                SIGNAL => {
                    let mut drop = [0u8; 128];
                    let _ = sys::read(signals, &mut drop);
                    reap(table);
                }
                GO => told(table, place),
                OUTPUT => logs::readable(table, place, which),
                ATTACHED => logs::attached_event(table, place, which, bits & (ERR | HUP) != 0),
                _ => {}
            }
        }
        logs::deadlines(table);
    }
}

fn accept(table: &mut Table, listen: i32) {
    const FLAGS: usize = 0o2_004_000;
    let Ok(new) = sys::call(nr::ACCEPT4, &[sys::fd(listen), 0, 0, FLAGS]) else { return };
    let new = new as i32;
    match table.connections.iter().position(|c| *c < 0) {
        Some(at) => {
            table.connections[at] = new;
            watch(table, new, IN, mark(CONNECTION, at, 0));
        }
        None => sys::close(new),
    }
}

fn hang_up(table: &mut Table, at: usize) {
    sys::close(table.connections[at]);
    table.connections[at] = -1;
    for slot in &mut table.slots[..table.high] {
        if slot.waiting.0 == at as u32 + 1 {
            slot.waiting = (0, 0);
        }
    }
}

/// An answer or event, with all its figures.
#[derive(Clone, Copy, Default)]
pub(crate) struct Answer {
    pub(crate) kind: u32,
    pub(crate) tag: u32,
    pub(crate) slot: u32,
    pub(crate) error: i32,
    pub(crate) pid: i32,
    pub(crate) state: u32,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) seconds: i64,
    pub(crate) nanos: i64,
}

/// Sends an answer. Someone who does not take it loses the connection, and asks anew.
fn send(table: &mut Table, at: usize, a: &Answer, with: Option<i32>) {
    let mut bytes = [0u8; answer::LEN];
    let words = [a.kind, a.tag, a.slot, a.error as u32, a.pid as u32, a.state, a.a, a.b];
    for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes[32..40].copy_from_slice(&a.seconds.to_le_bytes());
    bytes[40..48].copy_from_slice(&a.nanos.to_le_bytes());
    let socket = table.connections[at];
    if socket >= 0 && sys::send(socket, &bytes, with).is_err() {
        hang_up(table, at);
    }
}

/// A request and its descriptors.
pub(crate) struct Request {
    pub(crate) op: u32,
    pub(crate) tag: u32,
    pub(crate) slot: u32,
    pub(crate) flags: u32,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) fds: [i32; 16],
    pub(crate) count: usize,
    pub(crate) taken: usize,
}

impl Request {
    /// The next descriptor, which is the taker's from now on.
    pub(crate) fn take(&mut self) -> Result<i32> {
        if self.taken == self.count {
            return Err(sys::EBADMSG);
        }
        self.taken += 1;
        Ok(self.fds[self.taken - 1])
    }
}

fn receive(table: &mut Table, at: usize) {
    let socket = table.connections[at];
    if socket < 0 {
        return;
    }
    let mut bytes = [0u8; request::LEN];
    let mut fds = [-1i32; 16];
    let (n, count) = match sys::receive(socket, &mut bytes, &mut fds, false) {
        Err(sys::EAGAIN) => return,
        Ok(got) if got.0 == request::LEN => got,
        Ok((_, count)) => {
            fds[..count].iter().for_each(|d| sys::close(*d));
            return hang_up(table, at);
        }
        Err(_) => return hang_up(table, at),
    };
    let _ = n;
    let word =
        |i: usize| u32::from_le_bytes([bytes[i * 4], bytes[i * 4 + 1], bytes[i * 4 + 2], bytes[i * 4 + 3]]);
    let mut r = Request {
        op: word(0),
        tag: word(1),
        slot: word(2),
        flags: word(3),
        a: word(4),
        b: word(5),
        fds,
        count,
        taken: 0,
    };
    let answered = act(table, at, &mut r);
    for d in &r.fds[r.taken..r.count] {
        sys::close(*d);
    }
    if let Some((mut a, with)) = answered {
        a.kind = answer::ANSWER;
        a.tag = r.tag;
        a.slot = r.slot;
        send(table, at, &a, with);
        if let Some(d) = with {
            sys::close(d);
        }
    }
}

type Answered = Option<(Answer, Option<i32>)>;

fn error(e: i32) -> Answered {
    Some((Answer { error: e, ..Answer::default() }, None))
}

fn result(r: Result<()>) -> Answered {
    error(r.err().unwrap_or(0))
}

fn act(table: &mut Table, at: usize, r: &mut Request) -> Answered {
    match r.op {
        request::HELLO => {
            let pid = sys::call(nr::GETPID, &[]).unwrap_or(0) as i32;
            return Some((Answer { pid, ..Answer::default() }, None));
        }
        request::QUIT => sys::exit(0),
        request::LIST => {
            for i in 0..table.high {
                if table.slots[i].used {
                    let item = Answer { kind: answer::ITEM, tag: r.tag, ..describe(table, i) };
                    send(table, at, &item, None);
                }
            }
            return result(Ok(()));
        }
        request::SPAWN => {
            return match spawn::spawn(table, r) {
                Ok((place, pidfd)) => {
                    if table.slots[place].go >= 0 {
                        watch(table, table.slots[place].go, IN, mark(GO, place, 0));
                    }
                    watch_output(table, place);
                    Some((describe(table, place), Some(pidfd)))
                }
                Err(e) => error(e),
            };
        }
        request::TAKE => {
            return match take::take(table, r) {
                Ok((place, ended)) => {
                    watch_output(table, place);
                    if let Some((status, at)) = ended {
                        end(table, place, status, at);
                    }
                    let answer = Answer { error: 0, ..describe(table, place) };
                    Some((answer, sys::pidfd_open(answer.pid).ok().filter(|_| ended.is_none())))
                }
                Err(e) => error(e),
            };
        }
        _ => {}
    }
    let Some(place) = table.find(r.slot) else { return error(sys::ENOENT) };
    let slot = &mut table.slots[place];
    match r.op {
        request::START => start(table, at, place, r.tag),
        request::SIGNAL => {
            if slot.state & 15 == state::EXITED {
                return error(sys::ESRCH);
            }
            result(sys::kill(slot.pid, r.a as i32))
        }
        request::LOG => match r.take() {
            Ok(d) => {
                sys::close(slot.log);
                slot.log = d;
                slot.torn = false;
                result(Ok(()))
            }
            Err(e) => error(e),
        },
        request::ATTACH => logs::attach(table, place, r),
        request::CLOSE_STDIN => {
            sys::close(slot.input);
            slot.input = -1;
            result(Ok(()))
        }
        request::RESIZE => {
            let size = [r.b as u16, r.a as u16, 0, 0];
            if !slot.terminal || slot.streams[0].fd < 0 {
                return error(sys::ENOTTY);
            }
            let d = sys::fd(slot.streams[0].fd);
            result(sys::call(nr::IOCTL, &[d, 0x5414, size.as_ptr() as usize]).map(|_| ()))
        }
        request::FORGET => {
            if slot.state & 15 != state::EXITED {
                return error(sys::EPERM);
            }
            forget(table, place);
            result(Ok(()))
        }
        request::PIDFD => {
            if slot.state & 15 == state::EXITED {
                return error(sys::ESRCH);
            }
            match sys::pidfd_open(slot.pid) {
                Ok(d) => Some((describe(table, place), Some(d))),
                Err(e) => error(e),
            }
        }
        _ => error(sys::ENOSYS),
    }
}

fn watch_output(table: &Table, place: usize) {
    for which in 0..2 {
        let d = table.slots[place].streams[which].fd;
        if d >= 0 {
            watch(table, d, IN, mark(OUTPUT, place, which));
        }
    }
}

fn describe(table: &Table, place: usize) -> Answer {
    let s = &table.slots[place];
    Answer {
        slot: s.id,
        pid: s.pid,
        state: s.state | s.flags & (with::EXEC | with::HOLDER),
        error: s.status,
        a: s.failure.0,
        b: s.failure.1,
        seconds: s.ended.0,
        nanos: s.ended.1,
        ..Answer::default()
    }
}

/// Lets a process go on. The answer comes once it has executed its program, or failed to.
fn start(table: &mut Table, at: usize, place: usize, tag: u32) -> Answered {
    let slot = &mut table.slots[place];
    if slot.state & 15 == state::SPAWNED && slot.flags & with::TAKEN != 0 {
        // The program that made it has started it.
        slot.state = slot.state & !15 | state::STARTED | state::EXECUTED;
        return result(Ok(()));
    }
    if slot.state & 15 != state::SPAWNED || slot.go < 0 {
        return error(sys::EPERM);
    }
    if let Err(e) = sys::send(slot.go, b"go\0\0", None) {
        return error(e);
    }
    slot.state = slot.state & !15 | state::STARTED;
    slot.waiting = (at as u32 + 1, tag);
    None
}

/// A process tells something, or let go of its socket: then it has executed its program, or ended.
fn told(table: &mut Table, place: usize) {
    loop {
        let slot = &mut table.slots[place];
        if !slot.used || slot.go < 0 {
            return;
        }
        let mut bytes = [0u8; note::LEN];
        let mut master = [-1i32; 1];
        let (n, got) = match sys::receive(slot.go, &mut bytes, &mut master, false) {
            Err(sys::EAGAIN) => return,
            Ok(got) => got,
            Err(_) => (0, 0),
        };
        let word = |i: usize| {
            u32::from_le_bytes([bytes[i * 4], bytes[i * 4 + 1], bytes[i * 4 + 2], bytes[i * 4 + 3]])
        };
        match word(0) {
            _ if n != note::LEN => {
                if slot.state & 15 == state::STARTED && slot.state & state::FAILED == 0 {
                    slot.state |= state::EXECUTED;
                }
                sys::close(slot.go);
                slot.go = -1;
                return started(table, place);
            }
            note::READY => slot.state |= state::READY,
            note::FAILED => {
                slot.state |= state::FAILED;
                slot.failure = (word(1), word(2));
            }
            note::CONSOLE if got == 1 => {
                slot.terminal = true;
                slot.streams[0].fd = master[0];
                let _ =
                    sys::call(nr::FCNTL, &[sys::fd(master[0]), 4, (sys::O_RDWR | sys::O_NONBLOCK) as usize]);
                watch(table, master[0], IN, mark(OUTPUT, place, 0));
            }
            _ => {}
        }
    }
}

/// Answers the one who waits for a start.
fn started(table: &mut Table, place: usize) {
    let slot = &mut table.slots[place];
    let (connection, tag) = core::mem::take(&mut slot.waiting);
    if connection > 0 {
        let mut a = describe(table, place);
        a.kind = answer::ANSWER;
        a.tag = tag;
        a.error = if a.state & state::FAILED != 0 { a.b as i32 } else { 0 };
        send(table, connection as usize - 1, &a, None);
    }
}

/// Takes note of processes that ended. The record is written before anybody is told.
fn reap(table: &mut Table) {
    while let Ok(Some((pid, status))) = sys::wait(-1, false) {
        let found = table.slots[..table.high]
            .iter()
            .position(|s| s.used && s.pid == pid && s.state & 15 != state::EXITED);
        match found {
            Some(place) => end(table, place, status, sys::now()),
            None => take::remember(table, pid, status),
        }
    }
}

/// Takes note of a process's end.
fn end(table: &mut Table, place: usize, status: i32, at: (i64, i64)) {
    // Its last words lie in its socket.
    told(table, place);
    logs::last(table, place);
    let exits = table.exits;
    let slot = &mut table.slots[place];
    slot.status = status;
    slot.ended = at;
    slot.state = slot.state & !15 | state::EXITED;
    sys::close(slot.input);
    slot.input = -1;
    if slot.flags & with::EXEC == 0 {
        record(exits, slot.id, status, slot.ended, slot.failure);
    }
    started(table, place);
    let mut event = describe(table, place);
    event.kind = answer::EXITED;
    for at in 0..CONNECTIONS {
        send(table, at, &event, None);
    }
}

fn forget(table: &mut Table, place: usize) {
    logs::detach_all(table, place);
    let slot = &mut table.slots[place];
    slot.streams.iter_mut().for_each(crate::table::Stream::end);
    sys::close(slot.go);
    sys::close(slot.input);
    sys::close(slot.log);
    slot.used = false;
}
