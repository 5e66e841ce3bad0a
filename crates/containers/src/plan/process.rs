//! The last part of a container's plan, which is a process's alone: streams, limits, user, capabilities, filter, program.

use oci_spec::runtime::{
    Capabilities, Capability, Hook, LinuxCapabilities, LinuxSchedulerPolicy, LinuxSeccomp, PosixRlimitType,
    Process,
};

use super::host::lists;
use super::{Label, Plan, Source, fields};
use crate::error::{Error, Result};
use crate::seccomp;
use crate::shim::wire::{flag, step};

/// Things that a process gets besides its description.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tail<'a> {
    pub(crate) seccomp: Option<&'a LinuxSeccomp>,
    pub(crate) terminal: bool,
    /// Whether it is a further process of a container.
    pub(crate) exec: bool,
    /// The hooks that run in the container before its program, and the state that they read, around the process's number.
    pub(crate) hooks: &'a [Hook],
    pub(crate) state: (&'a str, &'a str),
}

/// Refuses a process that cannot be one.
pub(crate) fn validate(process: &Process) -> Result<()> {
    let args = process.args().as_deref().unwrap_or_default();
    if args.first().is_none_or(String::is_empty) {
        return Err(Error::Invalid("args must not be empty".to_owned()));
    }
    let env = process.env().as_deref().unwrap_or_default();
    if let Some(odd) = args.iter().chain(env).find(|t| t.contains('\0')) {
        return Err(Error::Invalid(format!("the argument or variable {odd:?} has a NUL byte")));
    }
    let user = process.user();
    let groups = user.additional_gids().iter().flatten().copied();
    // The kernel takes this number for "as it is", which is root.
    if groups.chain([user.uid(), user.gid()]).any(|id| id == u32::MAX) {
        return Err(Error::Invalid(format!("{} is no id of a user or group", u32::MAX)));
    }
    if !process.cwd().is_absolute() {
        return Err(Error::Invalid(format!("Cwd must be an absolute path: {}", process.cwd().display())));
    }
    Ok(())
}

/// Steps in the host's namespaces, before the process is a container's: later it may not do them, or not safely.
pub(super) fn early(plan: &mut Plan, process: &Process, user: bool) -> Result<()> {
    plan.push(step::HIDE, 0, fields(), "hide");
    if let Some(score) = process.oom_score_adj() {
        let text = fields().text("/proc/self/oom_score_adj").text(score.to_string());
        plan.push(step::WRITE, flag::OPTIONAL, text, "write /proc/self/oom_score_adj");
    }
    if let Some(profile) = process.apparmor_profile().as_deref().filter(|p| !p.is_empty()) {
        let text = fields().text("/proc/self/attr/apparmor/exec").text(format!("exec {profile}"));
        plan.push(step::WRITE, 0, text, format!("apply apparmor profile {profile:?}"));
    }
    if let Some(label) = process.selinux_label().as_deref().filter(|l| !l.is_empty()) {
        let text = fields().text("/proc/self/attr/exec").text(label);
        plan.push(step::WRITE, 0, text, format!("set the SELinux label {label:?}"));
    }
    if user {
        // Raising a hard limit is the host's right alone; the soft ones follow.
        limits(plan, process, true);
    }
    if let Some(priority) = process.io_priority() {
        use oci_spec::runtime::IOPriorityClass as Class;
        let class = match priority.class() {
            Class::IoprioClassRt => 1,
            Class::IoprioClassBe => 2,
            Class::IoprioClassIdle => 3,
        };
        let value = class << 13 | (priority.priority() as u32 & 0x1fff);
        plan.push(step::IO_PRIORITY, 0, fields().u32(value), "set the priority of input and output");
    }
    if let Some(scheduler) = process.scheduler() {
        let policy = match scheduler.policy() {
            LinuxSchedulerPolicy::SchedOther => 0,
            LinuxSchedulerPolicy::SchedFifo => 1,
            LinuxSchedulerPolicy::SchedRr => 2,
            LinuxSchedulerPolicy::SchedBatch => 3,
            LinuxSchedulerPolicy::SchedIdle => 5,
            other => {
                return Err(Error::Invalid(format!("the scheduler's policy {other:?} is not supported")));
            }
        };
        let (priority, nice) = (scheduler.priority().unwrap_or(0), scheduler.nice().unwrap_or(0));
        let values = fields().u32(policy).u32(priority as u32).u32(nice as u32);
        plan.push(step::SCHEDULER, 0, values, "set the scheduler");
    }
    Ok(())
}

fn limits(plan: &mut Plan, process: &Process, hard_alone: bool) {
    for limit in process.rlimits().iter().flatten() {
        let number = match limit.typ() {
            PosixRlimitType::RlimitCpu => 0,
            PosixRlimitType::RlimitFsize => 1,
            PosixRlimitType::RlimitData => 2,
            PosixRlimitType::RlimitStack => 3,
            PosixRlimitType::RlimitCore => 4,
            PosixRlimitType::RlimitRss => 5,
            PosixRlimitType::RlimitNproc => 6,
            PosixRlimitType::RlimitNofile => 7,
            PosixRlimitType::RlimitMemlock => 8,
            PosixRlimitType::RlimitAs => 9,
            PosixRlimitType::RlimitLocks => 10,
            PosixRlimitType::RlimitSigpending => 11,
            PosixRlimitType::RlimitMsgqueue => 12,
            PosixRlimitType::RlimitNice => 13,
            PosixRlimitType::RlimitRtprio => 14,
            PosixRlimitType::RlimitRttime => 15,
        };
        let soft = if hard_alone { limit.hard() } else { limit.soft() };
        let values = fields().u32(number).u64(soft).u64(limit.hard());
        plan.push(step::RLIMIT, 0, values, format!("error setting rlimit type {number}"));
    }
}

/// The streams: a terminal of the container, or those that the runtime made.
pub(super) fn streams(plan: &mut Plan, process: &Process, tail: Tail<'_>) {
    if tail.terminal {
        let size = process.console_size();
        let (height, width) = size.map_or((0, 0), |s| (s.height() as u32, s.width() as u32));
        let flags = if tail.exec { flag::TO_RUNTIME } else { flag::CONSOLE };
        let values = fields().u32(height).u32(width).u32(process.user().uid());
        plan.push(step::PTY, flags, values, "make a terminal");
        return;
    }
    let mut values = fields();
    for stream in 0..3 {
        let fd = plan.source(Source::Stream(stream));
        values = values.u32(fd);
    }
    plan.push(step::STDIO, 0, values, "set the standard streams");
    plan.push(step::SESSION, 0, fields(), "make a session");
}

/// The rest: limits, rights, program. The container's process waits in between; a further one goes on at once.
pub(super) fn finish(plan: &mut Plan, process: &Process, tail: Tail<'_>) -> Result<()> {
    limits(plan, process, false);
    let no_new_privs = process.no_new_privileges().unwrap_or(false);
    if no_new_privs {
        plan.push(step::NO_NEW_PRIVS, 0, fields(), "set no_new_privs");
    }
    let filter = tail.seccomp.map(seccomp::compile).transpose()?.flatten();
    let load = |plan: &mut Plan| {
        if let Some(filter) = &filter {
            plan.push(
                step::SECCOMP,
                0,
                fields().u32(filter.flags).text(filter.bytes()),
                "error loading seccomp filter",
            );
        }
    };
    // Without no_new_privs only a privileged process may load a filter, so it comes before the rights go.
    if !no_new_privs {
        load(plan);
    }
    let none = no_capabilities();
    let caps = process.capabilities().as_ref().unwrap_or(&none);
    plan.push(step::BOUNDING, 0, fields().u64(bits(caps.bounding().as_ref())), "drop capabilities");
    let cwd = process.cwd().to_string_lossy();
    let deed = format!("chdir to cwd ({cwd:?}) set in config.json failed");
    plan.push(step::CWD, 0, fields().text(cwd.as_bytes()), deed.clone());
    let user = process.user();
    let groups = user.additional_gids().as_deref().unwrap_or_default();
    let mut who = fields().u32(user.uid()).u32(user.gid()).u32(groups.len() as u32);
    for group in groups {
        who = who.u32(*group);
    }
    plan.push(step::USER, flag::KEEP, who, format!("become user {} and group {}", user.uid(), user.gid()));
    plan.push(step::CWD, flag::AGAIN, fields().text(cwd.as_bytes()), deed);
    let sets = fields()
        .u64(bits(caps.effective().as_ref()))
        .u64(bits(caps.permitted().as_ref()))
        .u64(bits(caps.inheritable().as_ref()))
        .u64(bits(caps.ambient().as_ref()));
    plan.push(step::CAPS, 0, sets, "set capabilities");
    plan.push(step::UMASK, 0, fields().u32(user.umask().unwrap_or(0o22)), "set the umask");
    program(plan, process)?;
    if !tail.exec {
        plan.push(step::WAIT, 0, fields(), "wait for the start");
    }
    for (place, one) in tail.hooks.iter().enumerate() {
        let path = one.path().to_string_lossy().into_owned();
        let limit = u32::try_from(crate::hooks::limit(one).as_millis()).unwrap_or(u32::MAX);
        let args = one.args().clone().filter(|args| !args.is_empty()).unwrap_or_else(|| vec![path.clone()]);
        let env = one.env().as_deref().unwrap_or_default();
        let values = fields().u32(place as u32).u32(limit).text(&path).text(tail.state.0).text(tail.state.1);
        plan.push(step::HOOK, 0, lists(values, &args, env), format!("run startContainer hook #{place}"));
    }
    if no_new_privs {
        load(plan);
    }
    let args = process.args().as_deref().unwrap_or_default();
    let env = process.env().as_deref().unwrap_or_default();
    plan.push(
        step::EXEC,
        0,
        lists(fields(), args, env),
        format!("exec {}", args.first().map_or("", String::as_str)),
    );
    Ok(())
}

/// The search for the program, as execvp(3) has it, but by the container's own `PATH`.
fn program(plan: &mut Plan, process: &Process) -> Result<()> {
    const DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let name = process.args().iter().flatten().next().map_or("", String::as_str);
    let path = process.env().iter().flatten().rev().find_map(|v| v.strip_prefix("PATH=")).unwrap_or(DEFAULT);
    let candidates: Vec<String> = if name.contains('/') {
        vec![name.to_owned()]
    } else {
        let places = path.split(':').map(|dir| if dir.is_empty() { "." } else { dir });
        places.map(|dir| format!("{dir}/{name}")).collect()
    };
    let mut list = fields().u32(candidates.len() as u32);
    for candidate in &candidates {
        list = list.text(candidate);
    }
    plan.step(step::LOOK, 0, list, Label::Look(name.to_owned()));
    Ok(())
}

/// No capabilities: the type's own default has some.
fn no_capabilities() -> LinuxCapabilities {
    let mut caps = LinuxCapabilities::default();
    caps.set_bounding(None).set_effective(None).set_inheritable(None).set_permitted(None).set_ambient(None);
    caps
}

/// Capabilities as the kernel numbers them.
fn bits(set: Option<&Capabilities>) -> u64 {
    set.into_iter().flatten().fold(0, |bits, c| bits | 1 << number(*c))
}

fn number(capability: Capability) -> u32 {
    use Capability as C;
    match capability {
        C::Chown => 0,
        C::DacOverride => 1,
        C::DacReadSearch => 2,
        C::Fowner => 3,
        C::Fsetid => 4,
        C::Kill => 5,
        C::Setgid => 6,
        C::Setuid => 7,
        C::Setpcap => 8,
        C::LinuxImmutable => 9,
        C::NetBindService => 10,
        C::NetBroadcast => 11,
        C::NetAdmin => 12,
        C::NetRaw => 13,
        C::IpcLock => 14,
        C::IpcOwner => 15,
        C::SysModule => 16,
        C::SysRawio => 17,
        C::SysChroot => 18,
        C::SysPtrace => 19,
        C::SysPacct => 20,
        C::SysAdmin => 21,
        C::SysBoot => 22,
        C::SysNice => 23,
        C::SysResource => 24,
        C::SysTime => 25,
        C::SysTtyConfig => 26,
        C::Mknod => 27,
        C::Lease => 28,
        C::AuditWrite => 29,
        C::AuditControl => 30,
        C::Setfcap => 31,
        C::MacOverride => 32,
        C::MacAdmin => 33,
        C::Syslog => 34,
        C::WakeAlarm => 35,
        C::BlockSuspend => 36,
        C::AuditRead => 37,
        C::Perfmon => 38,
        C::Bpf => 39,
        C::CheckpointRestore => 40,
    }
}
