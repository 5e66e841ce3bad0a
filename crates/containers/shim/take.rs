//! Takes processes that another program made: it made them children of its own and ended, so they are the shim's now.

use crate::spawn;
use crate::serve::Request;
use crate::sys::{self, Result};
use crate::table::{ORPHANS, Orphan, Slot, Table};
use crate::wire::{spawn as with, state};

/// Remembers the end of a child that nobody has taken: it may be taken yet.
pub(crate) fn remember(table: &mut Table, pid: i32, status: i32) {
    table.orphans[table.next_orphan] = Orphan { pid, status, ended: sys::now() };
    table.next_orphan = (table.next_orphan + 1) % ORPHANS;
}

/// The end of a process: its status and time.
type End = (i32, (i64, i64));

/// Takes a child: its place, and its end if it has ended already.
pub(crate) fn take(table: &mut Table, r: &mut Request) -> Result<(usize, Option<End>)> {
    const DESCRIPTORS: u32 = with::STDIN | with::STDOUT | with::STDERR | with::LOG | with::TERMINAL;
    let pid = r.a as i32;
    if table.find(r.slot).is_some() {
        return Err(sys::EEXIST);
    }
    if pid <= 0 || r.flags & !(DESCRIPTORS | with::STDIN_ONCE | with::EXEC | with::TAKEN) != 0 {
        return Err(sys::EINVAL);
    }
    let mut slot = Slot::new(r.slot, r.flags | with::TAKEN);
    let taken = spawn::take_streams(r, &mut slot).and_then(|()| {
        let end = end_of(table, pid)?;
        table.free().ok_or(sys::ENOBUFS).map(|place| (place, end))
    });
    match taken {
        Ok((place, end)) => {
            slot.pid = pid;
            slot.terminal = r.flags & with::TERMINAL != 0;
            slot.state = state::READY
                | if r.flags & with::EXEC == 0 { state::SPAWNED } else { state::STARTED | state::EXECUTED };
            table.slots[place] = slot;
            Ok((place, end))
        }
        Err(e) => {
            for d in [slot.input, slot.log, slot.streams[0].fd, slot.streams[1].fd] {
                sys::close(d);
            }
            Err(e)
        }
    }
}

/// The end of a child, if it has ended; an error if there is no such child.
fn end_of(table: &mut Table, pid: i32) -> Result<Option<End>> {
    if table.slots[..table.high].iter().any(|s| s.used && s.pid == pid && s.state & 15 != state::EXITED) {
        return Err(sys::EEXIST);
    }
    match sys::wait(pid, false) {
        Ok(None) => Ok(None),
        Ok(Some((_, status))) => Ok(Some((status, sys::now()))),
        Err(_) => {
            // The latest one with this number counts.
            for back in 1..=ORPHANS {
                let orphan = &mut table.orphans[(table.next_orphan + ORPHANS - back) % ORPHANS];
                if orphan.pid == pid {
                    orphan.pid = 0;
                    return Ok(Some((orphan.status, orphan.ended)));
                }
            }
            Err(sys::ESRCH)
        }
    }
}
