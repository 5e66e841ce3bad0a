//! The SELinux labels with which file systems are mounted (upstream: `pkg/volume/util/selinux.go`); pure but for [`read`].

mod labels;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Pod, SELinuxOptions, VolumeMount};

pub(crate) use self::labels::{Labels, Traits, Wearers};
use super::mounts::unescape;
use crate::pods::spec;

/// The kernel's file that is there where SELinux is on.
const ENFORCE: &str = "sys/fs/selinux/enforce";

/// SELinux as this node has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Whether it is on.
    enabled: bool,
    /// The label that files of containers have by its policy; none where it is off.
    files: Option<String>,
}

/// Reads it below a machine's root directory.
pub(crate) fn read(root: &Path) -> Policy {
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    if !root.join(ENFORCE).exists() {
        return Policy::default();
    }
    let policy = setting(&text("etc/selinux/config"), "SELINUXTYPE").unwrap_or_else(|| "targeted".to_owned());
    // A policy's name is that of a directory.
    let sane = !policy.contains('/') && !policy.starts_with('.');
    let contexts = text(&format!("etc/selinux/{policy}/contexts/lxc_contexts"));
    Policy { enabled: true, files: setting(&contexts, "file").filter(|_| sane) }
}

/// The value of a setting, without quotes.
fn setting(text: &str, name: &str) -> Option<String> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let mut own = pairs.filter(|(key, _)| key.trim() == name);
    own.next().map(|(_, value)| value.trim().trim_matches('"').to_owned())
}

impl Policy {
    /// The label of the files of a process with these options. Only its user and level are the files', too.
    ///
    /// DIFFERENCE: without a level upstream takes one by chance, which no process has; here there is no label then.
    fn of(&self, options: &SELinuxOptions) -> Option<String> {
        let parts: Vec<&str> = self.files.as_deref()?.splitn(4, ':').collect();
        let [user, role, kind, _] = parts[..] else { return None };
        let given = |part: &'_ Option<String>| part.clone().filter(|part| !part.is_empty());
        let level = given(&options.level)?;
        let user = given(&options.user).unwrap_or_else(|| user.to_owned());
        Some(format!("{user}:{role}:{kind}:{level}"))
    }
}

/// The options of the containers that mount a Pod's volume.
fn options<'a>(pod: &'a Pod, volume: &'a str) -> impl Iterator<Item = &'a SELinuxOptions> {
    let of_pod = spec::spec(pod).security_context.as_ref().and_then(|c| c.se_linux_options.as_ref());
    let containers = spec::containers(pod).iter().chain(spec::init_containers(pod));
    let containers = containers.map(|c| (c.volume_mounts.as_ref(), c.security_context.as_ref()));
    let guests = spec::spec(pod).ephemeral_containers.iter().flatten();
    let guests = guests.map(|c| (c.volume_mounts.as_ref(), c.security_context.as_ref()));
    let mounts = move |(mounts, _): &(Option<&Vec<VolumeMount>>, _)| {
        mounts.iter().copied().flatten().any(|mount| mount.name == volume)
    };
    containers.chain(guests).filter(mounts).filter_map(move |(_, context)| {
        let own = context.and_then(|c| c.se_linux_options.as_ref());
        own.or(of_pod)
    })
}

/// Why a Pod's volume has no label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum LabelError {
    /// It is none.
    #[error("invalid SELinux label {}", api::go::quote(.0))]
    Invalid(String),
    /// Its containers ask for several; upstream's text.
    #[error("multiple SELinux labels found: {}", .0.join(","))]
    Several(Vec<String>),
}

/// The label that the containers which mount a Pod's volume ask for; none where they ask for none.
fn asked(pod: &Pod, volume: &str, policy: &Policy) -> Result<Option<String>, LabelError> {
    let labels: BTreeSet<String> = options(pod, volume).filter_map(|options| policy.of(options)).collect();
    // Users choose their levels, and the label becomes an option of a mount: a quote would end it and begin another.
    if let Some(odd) = labels.iter().find(|label| !label.bytes().all(is_of_label)) {
        return Err(LabelError::Invalid(odd.clone()));
    }
    if labels.len() > 1 {
        return Err(LabelError::Several(labels.into_iter().collect()));
    }
    Ok(labels.into_iter().next())
}

/// Whether a Pod wants the files of its volumes to be labelled one by one.
fn is_recursive(pod: &Pod) -> bool {
    let context = spec::spec(pod).security_context.as_ref();
    context.and_then(|c| c.se_linux_change_policy.as_deref()) == Some("Recursive")
}

/// Whether a byte can stand in a label: in names, and in levels such as `s0-s0:c0.c1023`.
fn is_of_label(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.:,".contains(&byte)
}

/// The option of a mount with a label; upstream's form.
pub(crate) fn option(label: &str) -> String {
    format!("context={label:?}")
}

/// Why a Pod waits for a volume that another one has; upstream's text.
pub(crate) fn waiting(unique_name: &str) -> String {
    format!(
        "waiting for unmount of volume {unique_name:?}, because it is already mounted to a different pod with a different SELinux label"
    )
}

/// The label among a mount's options, as the kernel tells them.
pub(crate) fn of_mount(options: &str) -> Option<String> {
    let mut rest = options;
    while !rest.is_empty() {
        // Levels have commas, so the kernel quotes labels as callers do.
        let mut quoted = false;
        let end = rest.find(|c| {
            quoted ^= c == '"';
            c == ',' && !quoted
        });
        let (option, after) = end.map_or((rest, ""), |end| (&rest[..end], &rest[end + 1..]));
        if let Some(label) = option.strip_prefix("context=") {
            return Some(label.trim_matches('"').to_owned());
        }
        rest = after;
    }
    None
}

/// Whether the files of the file system at a path can be labelled one by one, by the kernel's table of mounts
/// (`/proc/self/mountinfo`): the last mount above the path counts; upstream's rule.
pub(crate) fn takes_labels(mountinfo: &[u8], path: &Path) -> bool {
    let above = |line: &&[u8]| {
        let point = line.split(|b| *b == b' ').nth(4);
        point.is_some_and(|point| path.starts_with(PathBuf::from(OsString::from_vec(unescape(point)))))
    };
    let Some(line) = mountinfo.split(|b| *b == b'\n').rev().find(above) else { return false };
    let mut fields = line.split(|b| *b == b' ');
    let of_mount = fields.nth(5).unwrap_or_default();
    let of_system = fields.skip_while(|field| *field != b"-").nth(3).unwrap_or_default();
    [of_mount, of_system].iter().any(|all| all.split(|b| *b == b',').any(|one| one == b"seclabel"))
}
