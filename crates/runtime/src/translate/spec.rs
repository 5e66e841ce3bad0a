//! A whole specification.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use cri::runtime as pb;
use oci_spec::image::Config as ImageConfig;
use oci_spec::runtime::{Capability, Linux, LinuxResources, Process, Root, Spec, User as ProcessUser};

use super::devices::{self, Device};
use super::error::TranslateError;
use super::machine::Machine;
use super::mounts::{self, Volume};
use super::namespaces::{self, Namespaces, Place, mappings, same_users};
use super::resources::resources;
use super::user::{self, Accounts, User};
use super::{capabilities, cgroups, process, security};

/// A container and its surroundings.
#[derive(Debug)]
pub struct Container<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its configuration.
    pub config: &'a pb::ContainerConfig,
    /// The Pod's configuration.
    pub pod: &'a pb::PodSandboxConfig,
    /// The Pod's id.
    pub pod_id: &'a str,
    /// The Pod's host name.
    pub hostname: &'a str,
    /// The image's configuration.
    pub image: &'a ImageConfig,
    /// The image's name.
    pub image_name: &'a str,
    /// The image's accounts.
    pub accounts: &'a Accounts,
    /// The Pod's files and the image's own volumes.
    pub own: &'a [Volume],
    /// The volumes of the configuration.
    pub volumes: &'a [Volume],
    /// The devices of the configuration; all of the machine's for a privileged container.
    pub devices: &'a [Device],
    /// The content of the seccomp profile's file; empty if there is none.
    pub seccomp_file: &'a [u8],
    /// The namespaces.
    pub namespaces: &'a Namespaces,
    /// SELinux's categories of the Pod.
    pub categories: &'a str,
}

/// A container as OCI has it.
#[derive(Debug)]
pub struct Translated {
    /// The specification.
    pub spec: Spec,
    /// The process's user.
    pub user: User,
}

/// Makes a container's specification.
pub fn spec(of: &Container<'_>, machine: &Machine) -> Result<Translated, TranslateError> {
    let no_linux = pb::LinuxContainerConfig::default();
    let linux = of.config.linux.as_ref().unwrap_or(&no_linux);
    let none = pb::LinuxContainerSecurityContext::default();
    let context = linux.security_context.as_ref().unwrap_or(&none);
    if context.privileged && !pod_context(of.pod).is_some_and(|pod| pod.privileged) {
        return Err(TranslateError::Privileged);
    }
    let options = context.namespace_options.clone().unwrap_or_default();
    let pod_options = pod_context(of.pod).and_then(|c| c.namespace_options.clone()).unwrap_or_default();
    same_users(&pod_options, &options)?;
    let users = mappings(&options)?;
    let user = user::user(context, of.image.user().as_deref().unwrap_or_default(), of.accounts)?;
    let labels = security::selinux(context.selinux_options.as_ref(), of.categories, machine);
    let (process, bounding) = process(of, context, &user, machine)?;
    let mut process = process;
    if let Some((label, _)) = labels.as_ref().filter(|_| !context.privileged) {
        process.set_selinux_label(Some(label.clone()));
    }
    let asked = linux.resources.clone().unwrap_or_default();
    let score = i32::try_from(asked.oom_score_adj.clamp(-1000, 1000)).unwrap_or_default();
    process.set_oom_score_adj(Some(machine.least_oom_score.map_or(score, |least| score.max(least))));

    let around = mounts::Around {
        privileged: context.privileged,
        sys_of_host: users.is_some() && of.namespaces.network == Place::Host,
        no_tty_group: users.as_ref().is_some_and(|all| {
            !all.gids.iter().any(|one| one.container_id() <= 5 && 5 < one.container_id() + one.size())
        }),
    };
    let (all_mounts, propagation) = mounts::mounts(of.own, of.volumes, around);
    let mut limits: LinuxResources = resources(&asked, machine)?;
    limits.set_devices(Some(devices::rules(of.devices, context.privileged)));
    let hidden = |paths: &[String]| Some(if context.privileged { Vec::new() } else { paths.to_vec() });
    let mut made = Linux::default();
    let profile = security::seccomp_of_container(context)?;
    made.set_namespaces(Some(namespaces::list(of.namespaces)))
        .set_uid_mappings(users.as_ref().map(|all| all.uids.clone()))
        .set_gid_mappings(users.as_ref().map(|all| all.gids.clone()))
        .set_resources(Some(limits))
        .set_cgroups_path(Some(cgroups::path(cgroup_parent(of.pod), of.id, machine.systemd)?))
        .set_devices(Some(devices::nodes(of.devices)))
        .set_masked_paths(hidden(&context.masked_paths))
        .set_readonly_paths(hidden(&context.readonly_paths))
        .set_rootfs_propagation(propagation.map(str::to_owned))
        .set_mount_label(labels.map(|(_, file)| file))
        .set_seccomp(security::filter(&profile, of.seccomp_file, &bounding, machine)?);
    let mut root = Root::default();
    root.set_path(PathBuf::from("rootfs")).set_readonly(Some(context.readonly_rootfs));
    let mut spec = Spec::default();
    spec.set_version("1.2.0".to_owned())
        .set_root(Some(root))
        .set_mounts(Some(all_mounts))
        .set_process(Some(process))
        // The Pod's namespace has the host name already.
        .set_hostname(None)
        .set_annotations(Some(annotations(of)))
        .set_linux(Some(made));
    Ok(Translated { spec, user })
}

fn pod_context(pod: &pb::PodSandboxConfig) -> Option<&pb::LinuxSandboxSecurityContext> {
    pod.linux.as_ref()?.security_context.as_ref()
}

fn cgroup_parent(pod: &pb::PodSandboxConfig) -> &str {
    pod.linux.as_ref().map(|linux| linux.cgroup_parent.as_str()).unwrap_or_default()
}

/// The process, and the capabilities that it may ever have.
fn process(
    of: &Container<'_>,
    context: &pb::LinuxContainerSecurityContext,
    user: &User,
    machine: &Machine,
) -> Result<(Process, HashSet<Capability>), TranslateError> {
    let capabilities = capabilities::capabilities(context, &machine.capabilities)?;
    let bounding = capabilities.bounding().clone().unwrap_or_default();
    let mut made = Process::default();
    let mut who = ProcessUser::default();
    who.set_uid(user.uid).set_gid(user.gid).set_additional_gids(Some(user.groups.clone()));
    made.set_terminal(Some(of.config.tty))
        .set_user(who)
        .set_args(Some(process::arguments(of.config, of.image)?))
        .set_env(Some(process::environment(of.config, of.image, of.hostname, &user.home)))
        .set_cwd(process::directory(of.config, of.image).into())
        .set_capabilities(Some(capabilities))
        .set_rlimits(None)
        .set_no_new_privileges(Some(context.no_new_privs))
        .set_apparmor_profile(if context.privileged { None } else { security::apparmor(context, machine)? });
    Ok((made, bounding))
}

/// The annotations by which an OCI runtime learns of the Pod, under containerd's names.
fn annotations(of: &Container<'_>) -> HashMap<String, String> {
    let metadata = of.pod.metadata.clone().unwrap_or_default();
    let name = of.config.metadata.as_ref().map(|one| one.name.clone()).unwrap_or_default();
    [
        ("container-type", "container".to_owned()),
        ("sandbox-id", of.pod_id.to_owned()),
        ("sandbox-namespace", metadata.namespace),
        ("sandbox-uid", metadata.uid),
        ("sandbox-name", metadata.name),
        ("container-name", name),
        ("image-name", of.image_name.to_owned()),
    ]
    .into_iter()
    .map(|(key, value)| (format!("io.kubernetes.cri.{key}"), value))
    .collect()
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
