//! Makes processes by another runtime: the shim makes the runtime's process, and takes what that leaves.

use std::fs;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oci_spec::runtime::{Process, Spec};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use super::bundle::{Namespaces, Pid};
use super::{LIMIT, Outer, told};
use crate::core::{Core, HOLDER, blocking};
use crate::error::{Doing, Error, Result};
use crate::make::{self, New, PidPlace};
use crate::plan;
use crate::shim::link::Ask;
use crate::shim::socket::address;
use crate::shim::wire::{request, spawn};
use crate::sources::{self, Given};
use crate::spec::{Network, Private, Root};
use crate::under_way::{self, Made};

/// The longest file of a runtime that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// The files of one command.
struct Files {
    directory: PathBuf,
    name: String,
}

impl Files {
    fn path(&self, kind: &str) -> PathBuf {
        self.directory.join(format!("{}.{kind}", self.name))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for kind in ["pid", "log", "json", "sock"] {
            let _ = fs::remove_file(self.path(kind));
        }
    }
}

/// Makes a container, which then waits for its start: its process, and a descriptor of it.
pub(crate) async fn create(
    core: &Arc<Core>,
    outer: &Outer,
    new: New<'_>,
    target: Option<i32>,
    cgroup: Option<&str>,
) -> Result<(i32, Option<OwnedFd>)> {
    let user = core.open_user()?;
    let of = namespaces(core, &new.pid, target, user.as_ref()).await?;
    let given: Vec<PathBuf> = new.mounts.iter().map(|(at, _)| at.clone()).collect();
    let made = outer.bundle.specification(new.spec, &of, cgroup, (new.io.terminal, &given));
    {
        let (bundle, root) = (outer.bundle.clone(), new.root);
        let mounts: Vec<OwnedFd> = new.mounts.into_iter().map(|(_, mount)| mount).collect();
        let state = outer.root.clone();
        blocking(move || {
            fs::create_dir_all(&state).doing(|| format!("make {}", state.display()))?;
            let root = match root {
                Root::Mount(mount) => mount,
                Root::Path(path) => sources::whole_tree(&path)?,
            };
            bundle.create(&made, root, &mounts)
        })
        .await?;
    }
    let files = Files { directory: outer.bundle.0.clone(), name: "create".to_owned() };
    let directory = outer.bundle.0.display().to_string();
    let verb = ["create", "--bundle", &directory];
    let wanted = (new.io.terminal, [new.io.stdin, true, true]);
    let owner = make::owner_of(new.spec.process().as_ref(), core.record.spec.user.as_ref());
    let left = command(core, outer, &files, &verb, wanted, owner).await?;
    let mut flags = if new.io.stdin_once { spawn::STDIN_ONCE } else { 0 };
    let mut fds = left.fds;
    flags |= left.flags;
    if let Some(path) = &new.io.log_path {
        let log = make::open_log(path)?;
        // The terminal's master comes after the log.
        let at = if left.flags & spawn::TERMINAL != 0 { fds.len() - 1 } else { fds.len() };
        fds.insert(at, log);
        flags |= spawn::LOG;
    }
    let pidfd = take(core, new.slot, flags, left.pid, &fds).await?;
    drop(user);
    Ok((left.pid, pidfd))
}

/// The namespaces of a container as files.
async fn namespaces(
    core: &Core,
    pid: &PidPlace,
    target: Option<i32>,
    user: Option<&OwnedFd>,
) -> Result<Namespaces> {
    use std::os::fd::AsRawFd;
    let spec = &core.record.spec;
    let of = |process: i32, name: &str| PathBuf::from(format!("/proc/{process}/ns/{name}"));
    let own = |private: Private, name: &str| (private == Private::New).then(|| of(core.shim.pid, name));
    let pid = match (pid, target) {
        (PidPlace::Own, _) => Pid::Own,
        (PidPlace::Host, _) => Pid::Host,
        (PidPlace::Of(_), Some(target)) => Pid::At(of(target, "pid")),
        (PidPlace::Of(_), None) => {
            let ask = Ask { op: request::PIDFD, slot: HOLDER, ..Ask::default() };
            let answer = core.ask(ask, || "find the sandbox's first process".to_owned()).await?;
            Pid::At(of(answer.pid, "pid"))
        }
    };
    Ok(Namespaces {
        network: (spec.network != Network::Host).then(|| of(core.shim.pid, "net")),
        ipc: own(spec.ipc, "ipc"),
        uts: own(spec.uts, "uts"),
        // No process is in the sandbox's user namespace alone; this one holds it while the runtime needs its file.
        user: user.map(|d| format!("/proc/{}/fd/{}", std::process::id(), d.as_raw_fd()).into()),
        pid,
    })
}

/// Makes a further process of a container, which runs when this returns.
pub(crate) async fn exec(
    core: &Arc<Core>,
    outer: &Outer,
    slot: u32,
    process: &Process,
    (terminal, wanted): (bool, [bool; 3]),
) -> Result<Made> {
    plan::check_process(process)?;
    let files = Files { directory: outer.bundle.0.clone(), name: format!("exec-{slot}") };
    let mut process = process.clone();
    process.set_terminal(Some(terminal));
    let described = files.path("json");
    let text = serde_json::to_vec(&process).doing(|| "write the description of a process")?;
    fs::write(&described, text).doing(|| format!("write {}", described.display()))?;
    let described = described.display().to_string();
    let verb = ["exec", "--detach", "--process", &described];
    let owner = make::owner_of(Some(&process), core.record.spec.user.as_ref());
    let mut left = command(core, outer, &files, &verb, (terminal, wanted), owner).await?;
    let pidfd = take(core, slot, spawn::EXEC, left.pid, &[]).await?;
    let mut streams = [None, None, None];
    let mut master = None;
    if left.flags & spawn::TERMINAL != 0 {
        master = left.fds.pop();
    }
    let mut ours = left.fds.into_iter();
    for (place, flag) in [spawn::STDIN, spawn::STDOUT, spawn::STDERR].into_iter().enumerate() {
        if left.flags & flag != 0 {
            streams[place] = ours.next();
        }
    }
    Ok(Made::taken(left.pid, pidfd, streams, master))
}

/// The things that a runtime's command left.
struct Left {
    pid: i32,
    /// Our ends of the streams, in the order of the flags.
    fds: Vec<OwnedFd>,
    flags: u32,
}

/// Has the shim run a command that makes a process and ends.
async fn command(
    core: &Arc<Core>,
    outer: &Outer,
    files: &Files,
    verb: &[&str],
    (terminal, wanted): (bool, [bool; 3]),
    owner: (u32, u32),
) -> Result<Left> {
    let (pid, log) = (files.path("pid"), files.path("log"));
    let mut rest: Vec<String> = verb.iter().map(ToString::to_string).collect();
    rest.extend(["--pid-file".to_owned(), pid.display().to_string()]);
    let mut given = Given::default();
    let (mut fds, mut flags) = (Vec::new(), 0);
    let mut console = None;
    if terminal {
        // The path is relative, because the address of a socket has 108 bytes: the runtime is in the directory.
        rest.extend(["--console-socket".to_owned(), format!("{}.sock", files.name)]);
        console = Some(listen(&files.path("sock"))?);
    } else {
        flags = make::pipes(&mut given, &mut fds, wanted, owner)?;
    }
    rest.push(outer.id.clone());
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    let arguments = outer.arguments(Some(&log), &rest);
    let plan = plan::program(&arguments, &files.directory);
    let slot = core.slot();
    let mut ended = core.follow(slot, None);
    let made = under_way::run(core, slot, spawn::EXEC, Vec::new(), &plan, given).await;
    let done = match made {
        Err(e) => Err(e),
        Ok(_) => match tokio::time::timeout(LIMIT, ended.wait_for(Option::is_some)).await {
            Err(_) => Err(Error::Step {
                text: format!("{} did not end in {} s", outer.runtime.program.display(), LIMIT.as_secs()),
                errno: 0,
            }),
            Ok(ended) => Ok(ended.ok().and_then(|e| *e).map_or(255, |e| e.code().0)),
        },
    };
    // One that runs still is killed.
    core.discard(slot).await;
    let text = |path: &Path| read(path).unwrap_or_default();
    match done? {
        0 => {}
        code => {
            let said = told(&text(&log));
            let name = outer.runtime.program.display();
            return Err(Error::Step {
                text: said.unwrap_or_else(|| format!("{name} ended with code {code}")),
                errno: 0,
            });
        }
    }
    let number = text(&pid).trim().parse().ok().filter(|pid| *pid > 0);
    let number = number.ok_or_else(|| Error::Step {
        text: format!("{} told no process", outer.runtime.program.display()),
        errno: 0,
    })?;
    if let Some(console) = console {
        fds.push(accept(&console).doing(|| "receive the container's terminal from its runtime")?);
        flags |= spawn::TERMINAL;
    }
    Ok(Left { pid: number, fds, flags })
}

/// Has the shim take a process; a descriptor of it, if it has not ended.
async fn take(core: &Core, slot: u32, flags: u32, pid: i32, fds: &[OwnedFd]) -> Result<Option<OwnedFd>> {
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    let ask = Ask { op: request::TAKE, slot, flags, figures: [pid as u32, 0], fds: &fds };
    let answer = core.ask(ask, || format!("take the process {pid} of another runtime")).await?;
    Ok(answer.fd)
}

fn read(path: &Path) -> io::Result<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A socket at which a runtime gives a terminal.
fn listen(path: &Path) -> Result<OwnedFd> {
    let made = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let (_directory, address) = address(path)?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, 1)?;
        io::Result::Ok(socket)
    };
    made().doing(|| format!("listen at {}", path.display()))
}

/// The terminal that a runtime gave before it ended.
fn accept(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let connection = rustix::net::accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    let mut bytes = [0u8; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut bytes)];
    rustix::net::recvmsg(&connection, parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut master = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(got) = message {
            for d in got {
                master.get_or_insert(d);
            }
        }
    }
    master.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// A specification that no process of which can be made is refused before a runtime sees it.
pub(crate) fn check(spec: &Spec) -> Result<()> {
    let process = spec.process().as_ref();
    process
        .map_or_else(|| Err(Error::Invalid("the container has no process".to_owned())), plan::check_process)
}
