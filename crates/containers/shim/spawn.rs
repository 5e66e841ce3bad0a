//! Makes processes.

use crate::nr;
use crate::plan::{self, Setup};
use crate::serve::Request;
use crate::sys::{self, CloneArgs, Result};
use crate::table::{Slot, Table};
use crate::wire::{spawn as with, state};

/// Descriptors of a request.
struct Given {
    setup: i32,
    pid: i32,
    user: i32,
    cgroup: i32,
}

/// Makes a process that carries out a plan: its place, and a descriptor of it.
pub(crate) fn spawn(table: &mut Table, r: &mut Request) -> Result<(usize, i32)> {
    if r.flags & with::SETUP == 0 || table.find(r.slot).is_some() {
        return Err(sys::EEXIST);
    }
    let mut slot = Slot::new(r.slot, r.flags);
    let mut given = Given { setup: -1, pid: -1, user: -1, cgroup: -1 };
    let taken = take(r, &mut given, &mut slot);
    let made = taken.and_then(|()| {
        let place = table.free().ok_or(sys::ENOBUFS)?;
        let (ours, theirs) = sys::socketpair()?;
        let made = fork(table, r.flags, &given, theirs);
        sys::close(theirs);
        if made.is_err() {
            sys::close(ours);
        }
        slot.go = ours;
        made.map(|(pid, pidfd)| (place, pid, pidfd))
    });
    for d in [given.setup, given.pid, given.user, given.cgroup] {
        sys::close(d);
    }
    match made {
        Ok((place, pid, pidfd)) => {
            slot.pid = pid;
            slot.state = state::SPAWNED;
            if r.flags & (with::EXEC | with::HOLDER) != 0 {
                slot.state = state::STARTED;
            }
            table.slots[place] = slot;
            Ok((place, pidfd))
        }
        Err(e) => {
            for d in [slot.input, slot.log, slot.streams[0].fd, slot.streams[1].fd] {
                sys::close(d);
            }
            Err(e)
        }
    }
}

/// Takes the descriptors, in the order of the flags.
fn take(r: &mut Request, given: &mut Given, slot: &mut Slot) -> Result<()> {
    let places = [
        (with::SETUP, &mut given.setup),
        (with::IN_PID, &mut given.pid),
        (with::IN_USER, &mut given.user),
        (with::IN_CGROUP, &mut given.cgroup),
    ];
    for (flag, place) in places {
        if r.flags & flag != 0 {
            *place = r.take()?;
        }
    }
    take_streams(r, slot)
}

/// Takes the descriptors of a process's streams and its log, in the order of the flags.
pub(crate) fn take_streams(r: &mut Request, slot: &mut Slot) -> Result<()> {
    let [out, err] = &mut slot.streams;
    let mut master = -1;
    let places = [
        (with::STDIN, &mut slot.input, sys::O_WRONLY),
        (with::STDOUT, &mut out.fd, sys::O_RDONLY),
        (with::STDERR, &mut err.fd, sys::O_RDONLY),
        (with::LOG, &mut slot.log, 0),
        (with::TERMINAL, &mut master, sys::O_RDWR),
    ];
    for (flag, place, how) in places {
        if r.flags & flag != 0 {
            *place = r.take()?;
            if flag != with::LOG {
                sys::call(nr::FCNTL, &[sys::fd(*place), 4, (how | sys::O_NONBLOCK) as usize])?;
            }
        }
    }
    if master >= 0 {
        sys::close(out.fd);
        out.fd = master;
    }
    Ok(())
}

fn fork(table: &Table, flags: u32, given: &Given, go: i32) -> Result<(i32, i32)> {
    if flags & with::IN_PID != 0 {
        sys::setns(given.pid, sys::CLONE_NEWPID)?;
    }
    let r =
        if flags & with::IN_USER != 0 { through_user(flags, given, go) } else { direct(flags, given, go) };
    if flags & with::IN_PID != 0 && sys::setns(table.own_pid, sys::CLONE_NEWPID).is_err() {
        // Every later process would be born in a container's namespace.
        sys::exit(126);
    }
    r
}

fn args(flags: u32, given: &Given) -> CloneArgs {
    let mut args = CloneArgs { exit_signal: sys::SIGCHLD, ..CloneArgs::default() };
    if flags & with::IN_CGROUP != 0 {
        args.flags |= sys::CLONE_INTO_CGROUP;
        args.cgroup = given.cgroup as u64;
    }
    args
}

fn direct(flags: u32, given: &Given, go: i32) -> Result<(i32, i32)> {
    let mut pidfd = -1i32;
    let mut args = args(flags, given);
    args.flags |= sys::CLONE_PIDFD | if flags & with::NEW_PID != 0 { sys::CLONE_NEWPID } else { 0 };
    args.pidfd = &raw mut pidfd as u64;
    match sys::clone3(&args)? {
        0 => child(given.setup, go),
        pid => Ok((pid, pidfd)),
    }
}

/// A process namespace belongs to the user namespace of the process that makes it: a child enters that first, and has
/// the shim's child made.
fn through_user(flags: u32, given: &Given, go: i32) -> Result<(i32, i32)> {
    let (ours, theirs) = sys::socketpair()?;
    let between = sys::clone3(&args(flags, given));
    if between == Ok(0) {
        let made = sys::setns(given.user, sys::CLONE_NEWUSER).and_then(|()| {
            let new_pid = if flags & with::NEW_PID != 0 { sys::CLONE_NEWPID } else { 0 };
            sys::clone3(&CloneArgs { flags: sys::CLONE_PARENT | new_pid, ..CloneArgs::default() })
        });
        let word = match made {
            Ok(0) => child(given.setup, go),
            Ok(pid) => pid,
            Err(e) => -e,
        };
        let _ = sys::send(theirs, &word.to_le_bytes(), None);
        sys::exit(0);
    }
    sys::close(theirs);
    let mut word = [0u8; 4];
    let got = between.and_then(|pid| {
        let got = sys::receive(ours, &mut word, &mut [], true);
        let _ = sys::wait(pid, true);
        got
    });
    sys::close(ours);
    match got? {
        (4, _) if i32::from_le_bytes(word) > 0 => {
            let pid = i32::from_le_bytes(word);
            Ok((pid, sys::pidfd_open(pid)?))
        }
        (4, _) => Err(-i32::from_le_bytes(word)),
        _ => Err(sys::ECONNRESET),
    }
}

/// The child: it keeps its two sockets alone.
fn child(setup: i32, go: i32) -> ! {
    const HIGH: usize = 5;
    let up = |d: i32| sys::call(nr::FCNTL, &[sys::fd(d), 1030, HIGH]).map_or(-1, |d| d as i32);
    let (setup, go) = (up(setup), up(go));
    for (from, to) in [(setup, 3), (go, 4)] {
        if from < 0 || sys::call(nr::DUP3, &[sys::fd(from), to, 0o2_000_000]).is_err() {
            sys::exit(126);
        }
    }
    let _ = sys::call(nr::CLOSE_RANGE, &[5, u32::MAX as usize, 0]);
    plan::run(Setup { socket: 3, go: 4 })
}
