//! Output of containers: into logs, and to those who are attached.
//!
//! Someone who is attached and does not read holds the stream up, as a terminal does, but for [`PATIENCE`] at most;
//! then they are let go. A log that cannot be written never holds anything up: its lines are lost and counted.

use crate::nr;
use crate::output::{self, LINES, Line};
use crate::serve::{self, Answer, IN, OUT, OUTPUT, Request, mark};
use crate::sys::{self, IoVec, Result};
use crate::table::{Attached, BUFFER, Slot, Table};
use crate::wire::{spawn as with, state};

/// How long a reader may hold a stream up, in milliseconds.
const PATIENCE: i64 = 10_000;
/// A pipe that has room at all takes this much at once.
const PIECE: usize = 4096;
/// Reads of one stream before others get their turn.
const TURN: usize = 16;
/// Reads of one stream at the end of its process.
const LAST: usize = 1024;

/// Reads a stream that has something.
pub(crate) fn readable(table: &mut Table, place: usize, which: usize) {
    for _ in 0..TURN {
        if !read_once(table, place, which, false) {
            return;
        }
    }
}

/// Reads what an ended process left in its pipes.
pub(crate) fn last(table: &mut Table, place: usize) {
    drain(table, place, false);
}

fn drain(table: &mut Table, place: usize, force: bool) {
    for which in 0..2 {
        for _ in 0..LAST {
            if !read_once(table, place, which, force) {
                break;
            }
        }
    }
}

/// Reads once. Says whether there may be more.
fn read_once(table: &mut Table, place: usize, which: usize, force: bool) -> bool {
    if table.slots[place].streams[which].fd < 0 {
        return false;
    }
    let followed = followers(table, place, which);
    if followed && !force && !ready(table, place, which) {
        pause(table, place, which);
        return false;
    }
    let stream = &mut table.slots[place].streams[which];
    if stream.buffer.is_null() {
        let Ok(buffer) = sys::map(BUFFER) else { return false };
        stream.buffer = buffer;
    }
    // SAFETY: the buffer is mapped, is BUFFER bytes long, and is this stream's alone.
    let buffer = unsafe { core::slice::from_raw_parts_mut(stream.buffer, BUFFER) };
    let room = &mut buffer[stream.len..];
    let most = if followed { room.len().min(PIECE) } else { room.len() };
    let n = match sys::read(stream.fd, &mut room[..most]) {
        Err(sys::EAGAIN) => return false,
        // A terminal that nobody has open any more says EIO.
        Ok(0) | Err(_) => {
            end(table, place, which);
            return false;
        }
        Ok(n) => n,
    };
    let from = stream.len;
    stream.len += n;
    if followed {
        pass_on(table, place, which, &buffer[from..from + n]);
    }
    flush(&mut table.slots[place], which, false);
    true
}

/// Writes whole lines into the log; at the end what is left, too.
fn flush(slot: &mut Slot, which: usize, last: bool) {
    let stream = &mut slot.streams[which];
    if stream.buffer.is_null() {
        return;
    }
    // SAFETY: as in `read_once`.
    let buffer = unsafe { core::slice::from_raw_parts_mut(stream.buffer, BUFFER) };
    if slot.log < 0 {
        stream.len = 0;
        return;
    }
    let mut lines = [Line::NONE; LINES];
    loop {
        let (count, used) = output::cut(&buffer[..stream.len], last, which == 1, sys::now(), &mut lines);
        if count == 0 {
            return;
        }
        if !append(slot.log, &mut slot.torn, &buffer[..used], &lines[..count]) {
            slot.lost = slot.lost.saturating_add(count as u32);
        }
        buffer.copy_within(used..stream.len, 0);
        stream.len -= used;
    }
}

/// Appends lines; says whether they are written. After half a line the next one begins anew.
fn append(log: i32, torn: &mut bool, buffer: &[u8], lines: &[Line]) -> bool {
    const NONE: IoVec = IoVec { base: core::ptr::null(), len: 0 };
    let end = b"\n";
    let mut parts = [NONE; LINES * 3 + 1];
    let (mut count, mut total) = (0, 0);
    let mut push = |bytes: &[u8]| {
        parts[count] = IoVec { base: bytes.as_ptr(), len: bytes.len() };
        count += 1;
        total += bytes.len();
    };
    if *torn {
        push(end);
    }
    for line in lines {
        push(&line.head[..line.head_len]);
        push(&buffer[line.start..line.end]);
        push(end);
    }
    let written = sys::writev(log, &parts[..count]).unwrap_or(0);
    *torn = if written == 0 { *torn } else { written < total };
    written == total
}

/// A stream is over.
fn end(table: &mut Table, place: usize, which: usize) {
    flush(&mut table.slots[place], which, true);
    table.slots[place].streams[which].end();
    for at in 0..table.attached_high {
        let a = &mut table.attached[at];
        if a.slot == place as u32 + 1 {
            sys::close(a.pipes[which]);
            a.pipes[which] = -1;
            if a.pipes == [-1, -1] {
                detach(table, at);
            }
        }
    }
}

fn each(table: &Table, place: usize) -> impl Iterator<Item = (usize, &Attached)> {
    let attached = table.attached[..table.attached_high].iter().enumerate();
    attached.filter(move |(_, a)| a.slot == place as u32 + 1)
}

fn followers(table: &Table, place: usize, which: usize) -> bool {
    each(table, place).any(|(_, a)| a.pipes[which] >= 0)
}

#[repr(C)]
struct Poll {
    fd: i32,
    events: i16,
    returned: i16,
}

/// Whether a pipe takes a piece now.
fn has_room(pipe: i32) -> bool {
    let mut poll = Poll { fd: pipe, events: OUT as i16, returned: 0 };
    let zero = [0u64; 2];
    let r = sys::call(nr::PPOLL, &[&raw mut poll as usize, 1, zero.as_ptr() as usize, 0, 8]);
    r.unwrap_or(0) > 0
}

fn ready(table: &Table, place: usize, which: usize) -> bool {
    each(table, place).all(|(_, a)| a.pipes[which] < 0 || has_room(a.pipes[which]))
}

/// Leaves a stream alone until all who follow it have room.
fn pause(table: &mut Table, place: usize, which: usize) {
    let deadline = sys::monotonic_ms() + PATIENCE;
    for at in 0..table.attached_high {
        let a = &mut table.attached[at];
        if a.slot == place as u32 + 1 && a.pipes[which] >= 0 && !has_room(a.pipes[which]) {
            if a.deadline == 0 {
                a.deadline = deadline;
            }
            let pipe = a.pipes[which];
            serve::watch(table, pipe, OUT, mark(serve::ATTACHED, at, which));
        }
    }
    let stream = &mut table.slots[place].streams[which];
    if !stream.paused {
        stream.paused = true;
        let d = stream.fd;
        serve::unwatch(table, d);
    }
}

fn resume(table: &mut Table, place: usize) {
    for which in 0..2 {
        let stream = &mut table.slots[place].streams[which];
        if stream.paused {
            stream.paused = false;
            let d = stream.fd;
            if d >= 0 {
                serve::watch(table, d, IN, mark(OUTPUT, place, which));
            }
        }
    }
}

fn pass_on(table: &mut Table, place: usize, which: usize, bytes: &[u8]) {
    for at in 0..table.attached_high {
        let a = table.attached[at];
        if a.slot == place as u32 + 1
            && a.pipes[which] >= 0
            && sys::write(a.pipes[which], bytes) != Ok(bytes.len())
        {
            detach(table, at);
        }
    }
}

/// Lets someone go who was attached.
fn detach(table: &mut Table, at: usize) {
    let a = core::mem::replace(
        &mut table.attached[at],
        Attached { slot: 0, pipes: [-1, -1], input: false, deadline: 0 },
    );
    if a.slot == 0 {
        return;
    }
    a.pipes.iter().for_each(|d| sys::close(*d));
    let place = a.slot as usize - 1;
    let slot = &mut table.slots[place];
    if a.input && slot.flags & with::STDIN_ONCE != 0 {
        sys::close(slot.input);
        slot.input = -1;
    }
    resume(table, place);
}

/// Ends a process's output: what is left goes into the log, and everybody is let go.
pub(crate) fn detach_all(table: &mut Table, place: usize) {
    drain(table, place, true);
    for which in 0..2 {
        flush(&mut table.slots[place], which, true);
    }
    for at in 0..table.attached_high {
        if table.attached[at].slot == place as u32 + 1 {
            detach(table, at);
        }
    }
}

/// A pipe of someone attached has room again, or its reader left.
pub(crate) fn attached_event(table: &mut Table, at: usize, which: usize, gone: bool) {
    let Some(a) = table.attached.get_mut(at).filter(|a| a.slot > 0) else { return };
    a.deadline = 0;
    if gone {
        sys::close(a.pipes[which]);
        a.pipes[which] = -1;
        if a.pipes == [-1, -1] {
            return detach(table, at);
        }
    }
    let (pipes, place) = (a.pipes, a.slot as usize - 1);
    for which in 0..2 {
        if pipes[which] >= 0 {
            serve::watch(table, pipes[which], 0, mark(serve::ATTACHED, at, which));
        }
    }
    resume(table, place);
}

/// Milliseconds to the next deadline, or -1.
pub(crate) fn next_deadline(table: &Table) -> i32 {
    let next = table.attached[..table.attached_high].iter().filter(|a| a.slot > 0 && a.deadline > 0);
    match next.map(|a| a.deadline).min() {
        Some(at) => (at - sys::monotonic_ms()).clamp(0, PATIENCE) as i32,
        None => -1,
    }
}

/// Lets those go whose deadline has come.
pub(crate) fn deadlines(table: &mut Table) {
    if next_deadline(table) != 0 {
        return;
    }
    let now = sys::monotonic_ms();
    for at in 0..table.attached_high {
        let a = table.attached[at];
        if a.slot > 0 && a.deadline > 0 && a.deadline <= now {
            detach(table, at);
        }
    }
}

/// Adds someone; the answer brings standard input, if it is wanted and open.
pub(crate) fn attach(table: &mut Table, place: usize, r: &mut Request) -> Option<(Answer, Option<i32>)> {
    match try_attach(table, place, r) {
        Ok(input) => Some((Answer { state: table.slots[place].terminal.into(), ..Answer::default() }, input)),
        Err(error) => Some((Answer { error, ..Answer::default() }, None)),
    }
}

fn try_attach(table: &mut Table, place: usize, r: &mut Request) -> Result<Option<i32>> {
    let slot = &table.slots[place];
    if slot.state & 15 == state::EXITED {
        return Err(sys::ESRCH);
    }
    let input = r.flags & with::STDIN != 0;
    let from = if slot.terminal { slot.streams[0].fd } else { slot.input };
    let ours = if input && from >= 0 {
        const DUPLICATE: usize = 1030;
        Some(sys::call(nr::FCNTL, &[sys::fd(from), DUPLICATE, 3])? as i32)
    } else {
        None
    };
    let Some(at) = table.free_attached() else {
        sys::close(ours.unwrap_or(-1));
        return Err(sys::ENOBUFS);
    };
    let mut pipes = [-1; 2];
    for (which, bit) in [with::STDOUT, with::STDERR].into_iter().enumerate() {
        if r.flags & bit != 0 {
            let pipe = r.take().unwrap_or(-1);
            // A stream that is over already says so to its reader.
            if table.slots[place].streams[which].fd < 0 {
                sys::close(pipe);
                continue;
            }
            let _ = sys::call(nr::FCNTL, &[sys::fd(pipe), 4, (sys::O_WRONLY | sys::O_NONBLOCK) as usize]);
            pipes[which] = pipe;
            serve::watch(table, pipe, 0, mark(serve::ATTACHED, at, which));
        }
    }
    table.attached[at] = Attached { slot: place as u32 + 1, pipes, input, deadline: 0 };
    Ok(ours)
}
