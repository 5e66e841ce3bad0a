//! The plans of a sandbox: its namespaces, its shim, and the first process of a shared process namespace.

use std::path::PathBuf;

use super::{Plan, Source, fields, sync};
use crate::raw::propagation;
use crate::shim::wire::{flag, step};
use crate::spec::{Network, Private, SandboxSpec};

pub(crate) const NEWNS: u32 = 0x0002_0000;
pub(crate) const NEWCGROUP: u32 = 0x0200_0000;
const NEWUTS: u32 = 0x0400_0000;
const NEWIPC: u32 = 0x0800_0000;
pub(crate) const NEWUSER: u32 = 0x1000_0000;
const NEWNET: u32 = 0x4000_0000;

/// The namespaces that a sandbox makes: their flags, and their names below `/proc/PID/ns`.
fn made(spec: &SandboxSpec) -> Vec<(u32, &'static str)> {
    let mut out = Vec::new();
    if spec.network == Network::New {
        out.push((NEWNET, "net"));
    }
    if spec.ipc == Private::New {
        out.push((NEWIPC, "ipc"));
    }
    if spec.uts == Private::New {
        out.push((NEWUTS, "uts"));
    }
    out
}

/// Prepares namespaces that this process is in: the loopback link, the host's name, kernel parameters.
fn prepare(plan: &mut Plan, spec: &SandboxSpec) {
    if spec.network == Network::New {
        plan.push(step::LOOPBACK, 0, fields(), "bring the loopback link up");
    }
    if spec.uts == Private::New && !spec.hostname.is_empty() {
        plan.push(
            step::HOSTNAME,
            0,
            fields().text(&spec.hostname),
            format!("set the host's name {:?}", spec.hostname),
        );
    }
    sysctls(plan, spec.sysctls.iter());
}

/// Writes kernel parameters, which belong to the namespaces that the process is in.
pub(super) fn sysctls<'a>(plan: &mut Plan, parameters: impl Iterator<Item = (&'a String, &'a String)>) {
    for (name, value) in parameters {
        let path = format!("/proc/sys/{}", sysctl_path(name));
        plan.push(step::WRITE, 0, fields().text(&path).text(value), format!("write sysctl key {name}"));
    }
}

/// A kernel parameter's file: dots are slashes; where slashes come first, dots are meant.
fn sysctl_path(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name.as_bytes()[at] == b'/' => name.to_owned(),
        _ => name
            .chars()
            .map(|c| {
                if c == '.' {
                    '/'
                } else if c == '/' {
                    '.'
                } else {
                    c
                }
            })
            .collect(),
    }
}

/// Makes the namespaces of a sandbox with a user namespace, which the runtime then takes hold of.
pub(crate) fn namespaces(spec: &SandboxSpec) -> Plan {
    let mut plan = Plan::default();
    plan.push(step::UNSHARE, 0, fields().u32(NEWUSER), "make a user namespace");
    plan.sync(sync::MAPPINGS);
    plan.push(step::USER, 0, fields().u32(0).u32(0).u32(0), "become root of the user namespace");
    let flags = made(spec).iter().fold(0, |all, (flag, _)| all | flag);
    plan.push(step::UNSHARE, 0, fields().u32(flags), "make namespaces");
    prepare(&mut plan, spec);
    plan.sync(sync::NAMESPACES);
    plan.push(step::END, 0, fields(), "end");
    plan
}

/// Makes a process the shim. It is in the sandbox's namespaces, whose files below `/proc` live as long as it does.
pub(crate) fn shim(spec: &SandboxSpec, join: usize) -> Plan {
    let mut plan = Plan::default();
    plan.join(join);
    // As containerd's: the shim is the last to go. Some machines do not allow it.
    plan.push(
        step::WRITE,
        flag::OPTIONAL,
        fields().text("/proc/self/oom_score_adj").text("-998"),
        "set the shim's OOM score",
    );
    plan.push(step::SESSION, 0, fields(), "make a session");
    if let Network::Path(path) = &spec.network {
        let fd = plan.source(Source::Namespace(PathBuf::from(path)));
        let deed = format!("join the network namespace {}", path.display());
        plan.push(step::SETNS, 0, fields().u32(fd).u32(NEWNET), deed);
    }
    let made = made(spec);
    if spec.user.is_some() {
        for (kind, name) in &made {
            let fd = plan.source(Source::Held(name));
            plan.push(
                step::SETNS,
                0,
                fields().u32(fd).u32(*kind),
                format!("join the sandbox's {name} namespace"),
            );
        }
    } else {
        let flags = made.iter().fold(0, |all, (flag, _)| all | flag);
        plan.push(step::UNSHARE, 0, fields().u32(flags), "make namespaces");
        prepare(&mut plan, spec);
    }
    let (listen, exits) = (plan.source(Source::Listen), plan.source(Source::Exits));
    plan.push(step::SERVE, 0, fields().u32(listen).u32(exits), "serve");
    plan
}

/// Makes a process the first one of a shared process namespace. Containers see it: it has no rights and sees nothing.
pub(crate) fn holder(spec: &SandboxSpec, join: usize) -> Plan {
    let mut plan = Plan::default();
    plan.join(join);
    if spec.user.is_some() {
        plan.push(step::USER, 0, fields().u32(0).u32(0).u32(0), "become root of the user namespace");
    }
    plan.push(step::HIDE, 0, fields(), "hide");
    plan.push(step::UNSHARE, 0, fields().u32(NEWNS), "make a mount namespace");
    let private = propagation::PRIVATE | propagation::REC;
    plan.push(step::PROPAGATION, 0, fields().u32(private), "make mounts private");
    let root = plan.source(Source::Empty);
    plan.push(step::ATTACH_ROOT, 0, fields().u32(root), "enter an empty root");
    plan.push(step::BOUNDING, 0, fields().u64(0), "drop capabilities");
    plan.push(step::CAPS, 0, fields().u64(0).u64(0).u64(0).u64(0), "drop capabilities");
    plan.push(step::NO_NEW_PRIVS, 0, fields(), "set no_new_privs");
    plan.push(step::REAP, 0, fields(), "reap");
    plan
}

/// The names of the namespaces that a sandbox makes.
pub(crate) fn made_names(spec: &SandboxSpec) -> impl Iterator<Item = &'static str> {
    made(spec).into_iter().map(|(_, name)| name)
}

/// Makes a user namespace alone, for the mapping of mounts.
pub(crate) fn mapping() -> Plan {
    let mut plan = Plan::default();
    plan.push(step::UNSHARE, 0, fields().u32(NEWUSER), "make a user namespace");
    plan.sync(sync::MAPPINGS);
    plan.sync(sync::NAMESPACES);
    plan.push(step::END, 0, fields(), "end");
    plan
}
