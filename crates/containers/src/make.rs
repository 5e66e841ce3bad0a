//! Makes processes of containers: opens what their plans need, has the shim make them, and sees them through.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use oci_spec::runtime::{Process, Spec};

use crate::cgroups::Group;
use crate::core::Core;
use crate::error::{Doing, Error, Result};
use crate::hooks::{Moment, Of};
use crate::inside;
use crate::plan::{self, CgroupView, Context, Hooked};
use crate::shim::setup::{self, Note};
use crate::shim::wire::spawn;
use crate::sources::{self, Given};
use crate::spec::{IdMappings, Io, Root};
use crate::stream;
use crate::under_way::{Made, begin, run};
use crate::users;

/// A container that is to be made.
pub(crate) struct New<'a> {
    pub(crate) slot: u32,
    pub(crate) spec: &'a Spec,
    pub(crate) root: Root,
    pub(crate) mounts: Vec<(PathBuf, OwnedFd)>,
    pub(crate) io: &'a Io,
    pub(crate) group: Option<&'a Group>,
    /// The process whose process namespace it joins.
    pub(crate) pid: PidPlace,
    /// The container to its hooks, if it has any, and the place where its root is mounted on the host.
    pub(crate) hooks: Option<(Of<'a>, PathBuf)>,
}

/// The process namespace of a new process.
pub(crate) enum PidPlace {
    /// One of its own.
    Own,
    /// The host's.
    Host,
    /// That of a process.
    Of(OwnedFd),
}

/// The facts that a plan needs.
fn context(spec: &Spec, io_terminal: bool, user: bool, group: Option<&Group>) -> Context {
    let namespace = plan::cgroup_namespace(spec);
    let hierarchies = group.map_or_else(Vec::new, Group::view);
    Context {
        user,
        terminal: io_terminal,
        cgroups: CgroupView { namespace: namespace && group.is_some(), hierarchies },
        ..Context::default()
    }
}

/// How a process comes into its cgroup: born there (v2), or by its own hand.
fn cgroup(group: Option<&Group>) -> Result<(Option<OwnedFd>, Vec<OwnedFd>)> {
    let Some(group) = group else { return Ok((None, Vec::new())) };
    match group.born_in()? {
        Some(directory) => Ok((Some(directory), Vec::new())),
        None => Ok((None, group.join_files()?)),
    }
}

/// Makes a container's process, which then waits for its start: the process, and a descriptor of it.
pub(crate) async fn container(core: &Arc<Core>, new: New<'_>) -> Result<(i32, OwnedFd)> {
    let maps = core.record.spec.user.clone();
    let mut context = context(new.spec, new.io.terminal, maps.is_some(), new.group);
    let own_pid = matches!(new.pid, PidPlace::Own);
    context.born_in_user = own_pid && maps.is_some();
    let scope = new.group.filter(|group| group.is_scope());
    let (born, join) = if scope.is_some() { (None, Vec::new()) } else { cgroup(new.group)? };
    context.join = scope.map_or(join.len(), Group::joins_of_first);
    context.given = new.mounts.iter().map(|(at, _)| at.clone()).collect();
    context.hooked = match &new.hooks {
        Some((of, rootfs)) => Some(Hooked { rootfs: rootfs.clone(), state: of.state_at_start()? }),
        None => None,
    };
    let plan = plan::container(new.spec, &context)?;
    let user = core.open_user()?;
    let mut given = Given {
        root: Some(new.root),
        mounts: new.mounts.into_iter().map(|(_, mount)| mount).collect(),
        user: user.zip(maps.clone()),
        maps: users::foreign(&core.machine, &plan, maps.as_ref()).await?,
        cgroup: join,
        scope: scope.cloned().map(|group| {
            let resources = new.spec.linux().as_ref().and_then(|linux| linux.resources().clone());
            Box::new((group, resources))
        }),
        ..Given::default()
    };
    // The shim's descriptors, in the order of the flags.
    let mut flags = 0;
    let mut fds: Vec<OwnedFd> = Vec::new();
    match new.pid {
        PidPlace::Own => flags |= spawn::NEW_PID,
        PidPlace::Host => {}
        PidPlace::Of(process) => {
            flags |= spawn::IN_PID;
            fds.push(process);
        }
    }
    if context.born_in_user
        && let Some((user, _)) = &given.user
    {
        flags |= spawn::IN_USER;
        fds.push(user.try_clone().doing(|| "duplicate a descriptor")?);
    }
    if let Some(born) = born {
        flags |= spawn::IN_CGROUP;
        fds.push(born);
    }
    if !new.io.terminal {
        let owner = owner_of(new.spec.process().as_ref(), maps.as_ref());
        flags |= pipes(&mut given, &mut fds, [new.io.stdin, true, true], owner)?;
    }
    if new.io.stdin_once {
        flags |= spawn::STDIN_ONCE;
    }
    if let Some(path) = &new.io.log_path {
        flags |= spawn::LOG;
        fds.push(open_log(path)?);
    }
    let mut under_way = begin(core, new.slot, flags, fds, &plan, given).await?;
    let hooks = new.hooks.as_ref().map(|(of, _)| of);
    let made = loop {
        match (setup::next(&under_way.socket, &plan).await?, hooks) {
            (Note::Sync(code), Some(of)) => {
                let pid = under_way.pid;
                match code {
                    plan::sync::RUNTIME_HOOKS => {
                        Box::pin(of.run(Moment::Prestart, Some(pid))).await?;
                        Box::pin(of.run(Moment::CreateRuntime, Some(pid))).await?;
                    }
                    plan::sync::CONTAINER_HOOKS => {
                        Box::pin(inside::run(core, of, pid, &under_way.pidfd)).await?;
                    }
                    _ => {}
                }
                setup::go_on(&under_way.socket, code).await?;
            }
            (note, _) => {
                if let Some(end) = under_way.hear(note).await? {
                    break under_way.made(end);
                }
            }
        }
    };
    match (made.end, made.pidfd) {
        (Note::Ready, Some(pidfd)) => Ok((made.pid, pidfd)),
        // In runc's words.
        _ if new.group.is_some_and(|group| group.oom_kills() > 0) => {
            Err(Error::Invalid("container init was OOM-killed (memory limit too low?)".to_owned()))
        }
        _ => Err(Error::Invalid("the container's process ended before it was there".to_owned())),
    }
}

/// Makes a further process of a container, which runs when this returns.
pub(crate) async fn exec(
    core: &Arc<Core>,
    slot: u32,
    spec: &Spec,
    process: &Process,
    (terminal, wanted): (bool, [bool; 3]),
    (of, group): (OwnedFd, Option<&Group>),
) -> Result<Made> {
    let maps = core.record.spec.user.clone();
    let mut context = context(spec, terminal, maps.is_some(), group);
    let (born, join) = cgroup(group)?;
    context.join = join.len();
    let plan = plan::exec(spec, process, &context)?;
    let process_of = of.try_clone().doing(|| "duplicate a descriptor")?;
    let mut given = Given { process: Some(process_of), cgroup: join, ..Given::default() };
    let mut flags = spawn::EXEC | spawn::IN_PID;
    let mut fds = vec![of];
    if let Some(born) = born {
        flags |= spawn::IN_CGROUP;
        fds.push(born);
    }
    let mut ours = Vec::new();
    let mut which = 0;
    if !terminal {
        let owner = owner_of(Some(process), maps.as_ref());
        which = pipes(&mut given, &mut ours, wanted, owner)?;
    }
    let mut made = run(core, slot, flags, fds, &plan, given).await?;
    let mut ours = ours.into_iter();
    for (place, flag) in [spawn::STDIN, spawn::STDOUT, spawn::STDERR].into_iter().enumerate() {
        if which & flag != 0 {
            made.streams[place] = ours.next();
        }
    }
    Ok(made)
}

/// The user and group of the host that own a process's pipes, so that it may open them by `/dev/stdout`.
pub(crate) fn owner_of(process: Option<&Process>, maps: Option<&IdMappings>) -> (u32, u32) {
    let user = process.map(Process::user);
    let (uid, gid) = user.map_or((0, 0), |u| (u.uid(), u.gid()));
    match maps {
        None => (uid, gid),
        Some(maps) => {
            (sources::outside(&maps.uids, uid).unwrap_or(0), sources::outside(&maps.gids, gid).unwrap_or(0))
        }
    }
}

/// Makes the pipes that are wanted: theirs go into `given`, ours into `fds`.
pub(crate) fn pipes(
    given: &mut Given,
    fds: &mut Vec<OwnedFd>,
    wanted: [bool; 3],
    (uid, gid): (u32, u32),
) -> Result<u32> {
    let mut flags = 0;
    for (place, flag) in [spawn::STDIN, spawn::STDOUT, spawn::STDERR].into_iter().enumerate() {
        if !wanted[place] {
            continue;
        }
        let (read, write) = stream::pipe().doing(|| "make a pipe")?;
        let (theirs, ours) = if place == 0 { (read, write) } else { (write, read) };
        let owner = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
        rustix::fs::fchown(&theirs, Some(owner.0), Some(owner.1)).doing(|| "give a pipe to a user")?;
        given.streams[place] = Some(theirs);
        fds.push(ours);
        flags |= flag;
    }
    Ok(flags)
}

/// Opens a log, at its end.
pub(crate) fn open_log(path: &std::path::Path) -> Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::open(path, flags, Mode::from_raw_mode(0o640))
        .doing(|| format!("open the log {}", path.display()))
}
