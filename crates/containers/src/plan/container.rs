//! The plans of a container's first process, and of a further one.

use std::path::{Path, PathBuf};

use oci_spec::runtime::{Linux, LinuxNamespaceType, Process, Spec};

pub(crate) use super::mounts::{CgroupView, Hierarchy};
use super::process::{self, Tail};
use super::sandbox::{NEWCGROUP, NEWNS, NEWUSER, sysctls};
use super::{Plan, Source, devices, fields, mounts, refused, sync};
use crate::error::{Error, Result};
use crate::hooks::{self, Moment};
use crate::raw::{attr, propagation};
use crate::shim::wire::step;

/// Facts about a container that its description does not say.
#[derive(Debug, Clone, Default)]
pub(crate) struct Context {
    /// Whether the sandbox has a user namespace.
    pub(crate) user: bool,
    /// Whether the process is born in it.
    pub(crate) born_in_user: bool,
    /// The number of files by which the process joins its cgroup; none if it is born there.
    pub(crate) join: usize,
    pub(crate) cgroups: CgroupView,
    pub(crate) terminal: bool,
    /// The destinations of mounts that the caller gave.
    pub(crate) given: Vec<PathBuf>,
    /// The facts about a container with hooks.
    pub(crate) hooked: Option<Hooked>,
}

/// The facts about a container with hooks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hooked {
    /// The place on the host where its root is mounted.
    pub(crate) rootfs: PathBuf,
    /// Its state when it is started, around the number of its process.
    pub(crate) state: (String, String),
}

/// Whether a container has a cgroup namespace.
pub(crate) fn cgroup_namespace(spec: &Spec) -> bool {
    let namespaces = spec.linux().as_ref().and_then(|l| l.namespaces().as_ref());
    namespaces
        .is_some_and(|all| all.iter().any(|n| n.typ() == LinuxNamespaceType::Cgroup && n.path().is_none()))
}

fn process_of(spec: &Spec) -> Result<&Process> {
    spec.process().as_ref().ok_or_else(|| Error::Invalid("the container has no process".to_owned()))
}

/// The plan of a container's first process.
pub(crate) fn container(spec: &Spec, context: &Context) -> Result<Plan> {
    let process = process_of(spec)?;
    refused::check(spec)?;
    process::validate(process)?;
    let linux = spec.linux().clone().unwrap_or_default();
    let mut plan = Plan::default();
    let tail = Tail {
        seccomp: linux.seccomp().as_ref(),
        terminal: context.terminal,
        exec: false,
        hooks: hooks::of(spec, Moment::StartContainer),
        state: context.hooked.as_ref().map_or(("", ""), |h| (&h.state.0, &h.state.1)),
    };
    plan.push(
        step::KEYRING,
        crate::shim::wire::flag::OPTIONAL,
        fields().text("_ses"),
        "make a session keyring",
    );
    process::early(&mut plan, process, context.user)?;
    plan.join(context.join);
    if context.user {
        if !context.born_in_user {
            let fd = plan.source(Source::User);
            plan.push(step::SETNS, 0, fields().u32(fd).u32(NEWUSER), "join the sandbox's user namespace");
        }
        become_root(&mut plan);
    }
    if let Some(parameters) = spec.linux().as_ref().and_then(|l| l.sysctl().as_ref()) {
        let mut sorted: Vec<_> = parameters.iter().collect();
        sorted.sort();
        sysctls(&mut plan, sorted.into_iter());
    }
    plan.push(step::UNSHARE, 0, fields().u32(NEWNS), "make a mount namespace");
    let private = propagation::PRIVATE | propagation::REC;
    plan.push(step::PROPAGATION, 0, fields().u32(private), "make mounts private");
    let all = spec.mounts().as_deref().unwrap_or_default();
    mounts::make_early(&mut plan, all, |m| {
        context.given.iter().any(|g| mounts::clean(g) == mounts::clean(m.destination()))
    })?;
    let has = |moment| !hooks::of(spec, moment).is_empty();
    if has(Moment::Prestart) || has(Moment::CreateRuntime) {
        plan.sync(sync::RUNTIME_HOOKS);
    }
    // Hooks of the container see its file systems below the host's: until they have run the host is there.
    let inside = context.hooked.as_ref().filter(|_| has(Moment::CreateContainer));
    let rootfs = inside.map(|hooked| hooked.rootfs.to_string_lossy().into_owned());
    if let Some(path) = &rootfs {
        let deed = format!("enter the root file system at {path}");
        plan.push(step::ENTER_ROOT, 0, fields().text(path), deed);
    } else {
        let root = plan.source(Source::Root);
        plan.push(step::ATTACH_ROOT, 0, fields().u32(root), "enter the root file system");
    }
    if context.cgroups.namespace {
        plan.push(step::UNSHARE, 0, fields().u32(NEWCGROUP), "make a cgroup namespace");
    }
    file_systems(&mut plan, spec, &linux, context)?;
    let cwd = mounts::clean(process.cwd());
    if cwd != Path::new("/") {
        let text = cwd.to_string_lossy().into_owned();
        let values = fields().text(&text).u32(0o755);
        // A root that cannot be written says so by the step that enters it.
        plan.push(step::MKDIR, crate::shim::wire::flag::OPTIONAL, values, format!("make cwd {text:?}"));
    }
    if let Some(path) = &rootfs {
        plan.sync(sync::CONTAINER_HOOKS);
        plan.push(step::LEAVE_HOST, 0, fields().text(path), "leave the host's file systems");
    }
    process::streams(&mut plan, process, tail);
    protect(&mut plan, spec, &linux);
    process::finish(&mut plan, process, tail)?;
    Ok(plan)
}

/// In a user namespace, files are made by its root: the host's has no number there.
fn become_root(plan: &mut Plan) {
    plan.push(step::USER, 0, fields().u32(0).u32(0).u32(0), "become root of the user namespace");
    plan.push(step::HIDE, 0, fields(), "hide");
}

/// Mounts, devices and links.
fn file_systems(plan: &mut Plan, spec: &Spec, linux: &Linux, context: &Context) -> Result<()> {
    let label = linux.mount_label().as_deref();
    let mut made = 0;
    let mut used = vec![false; context.given.len()];
    let all = spec.mounts().as_deref().unwrap_or_default();
    for mount in all {
        let at = mounts::clean(mount.destination());
        let given = context.given.iter().position(|g| mounts::clean(g) == at);
        if let Some(place) = given {
            used[place] = true;
        }
        mounts::mount(plan, mount, given, &context.cgroups, label, &mut made)?;
    }
    // Where /dev is the host's, its devices are, too.
    let bound = |m: &oci_spec::runtime::Mount| {
        let options = m.options().iter().flatten();
        m.typ().as_deref() == Some("bind") || options.into_iter().any(|o| o == "bind" || o == "rbind")
    };
    if !all.iter().any(|m| mounts::clean(m.destination()) == Path::new("/dev") && bound(m)) {
        devices::devices(plan, linux.devices().as_deref().unwrap_or_default(), context.user)?;
    }
    for (place, destination) in context.given.iter().enumerate().filter(|(place, _)| !used[*place]) {
        let mut last = oci_spec::runtime::Mount::default();
        last.set_destination(destination.clone()).set_typ(None).set_source(None).set_options(None);
        mounts::mount(plan, &last, Some(place), &context.cgroups, label, &mut made)?;
    }
    Ok(())
}

/// Hidden and read-only paths, the root itself.
fn protect(plan: &mut Plan, spec: &Spec, linux: &Linux) {
    for path in linux.readonly_paths().iter().flatten() {
        plan.push(step::READONLY, 0, fields().text(path), format!("make {path:?} read-only"));
    }
    for path in linux.masked_paths().iter().flatten() {
        let null = plan.source(Source::Null);
        plan.push(step::MASK, 0, fields().u32(null).text(path), format!("mask path {path:?}"));
    }
    let read_only = spec.root().as_ref().and_then(|r| r.readonly()).unwrap_or(false);
    let spread = match linux.rootfs_propagation().as_deref().map(|p| p.strip_prefix('r').unwrap_or(p)) {
        Some("shared") => propagation::SHARED,
        Some("slave") => propagation::SLAVE,
        Some("unbindable") => propagation::UNBINDABLE,
        _ => propagation::PRIVATE,
    };
    let attributes = if read_only { attr::RDONLY } else { 0 };
    plan.push(step::ATTR, 0, fields().text("/").u32(attributes).u32(spread), "change the root's mount");
}

/// The plan of a further process of a container.
pub(crate) fn exec(spec: &Spec, process: &Process, context: &Context) -> Result<Plan> {
    refused::process(process)?;
    process::validate(process)?;
    let linux = spec.linux().clone().unwrap_or_default();
    let seccomp = linux.seccomp().as_ref();
    let tail = Tail { seccomp, terminal: context.terminal, exec: true, hooks: &[], state: ("", "") };
    let mut plan = Plan::default();
    process::early(&mut plan, process, context.user)?;
    plan.join(context.join);
    let user = if context.user { NEWUSER } else { 0 };
    let cgroup = if context.cgroups.namespace { NEWCGROUP } else { 0 };
    let fd = plan.source(Source::Process);
    plan.push(step::SETNS, 0, fields().u32(fd).u32(NEWNS | user | cgroup), "join the container's namespaces");
    if context.user {
        become_root(&mut plan);
    }
    process::streams(&mut plan, process, tail);
    process::finish(&mut plan, process, tail)?;
    Ok(plan)
}
