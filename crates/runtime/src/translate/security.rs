//! Security profiles: seccomp, AppArmor, SELinux.

use std::collections::HashSet;

use cri::runtime as pb;
use oci_spec::runtime::{Capability, LinuxSeccomp};
use pb::security_profile::ProfileType;

use super::error::TranslateError;
use super::machine::Machine;
use super::seccomp;

/// A profile of seccomp, as a configuration asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seccomp {
    /// None.
    Unconfined,
    /// The runtime's own.
    Default,
    /// That of a file of the node.
    File(String),
}

/// The seccomp profile that a container asks for.
pub fn seccomp_of_container(context: &pb::LinuxContainerSecurityContext) -> Result<Seccomp, TranslateError> {
    #[allow(deprecated, reason = "older kubelets know no other way")]
    let path = &context.seccomp_profile_path;
    seccomp_of(context.seccomp.as_ref(), path, context.privileged)
}

/// The seccomp profile that a configuration asks for: by the profile, or by the older path.
fn seccomp_of(
    profile: Option<&pb::SecurityProfile>,
    path: &str,
    privileged: bool,
) -> Result<Seccomp, TranslateError> {
    if privileged {
        return Ok(Seccomp::Unconfined);
    }
    if let Some(profile) = profile {
        return match profile.profile_type() {
            ProfileType::Unconfined => Ok(Seccomp::Unconfined),
            ProfileType::RuntimeDefault => Ok(Seccomp::Default),
            ProfileType::Localhost if profile.localhost_ref.starts_with('/') => {
                Ok(Seccomp::File(profile.localhost_ref.clone()))
            }
            ProfileType::Localhost => {
                Err(TranslateError::Relative { what: "seccomp profile", path: profile.localhost_ref.clone() })
            }
        };
    }
    match path {
        "" | "unconfined" => Ok(Seccomp::Unconfined),
        "runtime/default" | "docker/default" => Ok(Seccomp::Default),
        other => match other.strip_prefix("localhost/") {
            Some(file) if file.starts_with('/') => Ok(Seccomp::File(file.to_owned())),
            _ => Err(TranslateError::Profile(format!("invalid seccomp profile {other:?}"))),
        },
    }
}

/// The filter of a profile; `file` is the content of the profile's file.
pub(super) fn filter(
    profile: &Seccomp,
    file: &[u8],
    capabilities: &HashSet<Capability>,
    machine: &Machine,
) -> Result<Option<LinuxSeccomp>, TranslateError> {
    match profile {
        Seccomp::Unconfined => Ok(None),
        Seccomp::Default => {
            seccomp::runtime_default(capabilities, machine.kernel, std::env::consts::ARCH).map(Some)
        }
        Seccomp::File(path) => match seccomp::read(file) {
            Ok(filter) => Ok(Some(filter)),
            Err(source) => Err(TranslateError::Seccomp { path: path.clone(), source: source.into() }),
        },
    }
}

/// The AppArmor profile that a container's process has; none if it is not confined.
///
/// A machine without AppArmor honours only what asks for nothing of its own; there, as elsewhere, the runtime's default
/// confines nothing. This runtime loads no profile, so its default confines nothing where there is AppArmor, either.
pub(super) fn apparmor(
    context: &pb::LinuxContainerSecurityContext,
    machine: &Machine,
) -> Result<Option<String>, TranslateError> {
    let name = match &context.apparmor {
        Some(profile) => match profile.profile_type() {
            ProfileType::RuntimeDefault | ProfileType::Unconfined => return Ok(None),
            ProfileType::Localhost => profile.localhost_ref.clone(),
        },
        #[allow(deprecated, reason = "older kubelets know no other way")]
        None => match context.apparmor_profile.as_str() {
            "" | "runtime/default" | "unconfined" => return Ok(None),
            other => other.to_owned(),
        },
    };
    let name = name.strip_prefix("localhost/").unwrap_or(&name).to_owned();
    let Some(loaded) = &machine.apparmor else {
        return Err(TranslateError::Profile("apparmor is not supported".to_owned()));
    };
    if loaded.contains(&name) {
        Ok(Some(name))
    } else {
        Err(TranslateError::Profile(format!("apparmor profile not found {name}")))
    }
}

/// The labels of a process and of its files; `pair` is a pair of categories that no other Pod has, as `c1,c2`.
pub(super) fn selinux(
    asked: Option<&pb::SeLinuxOption>,
    pair: &str,
    machine: &Machine,
) -> Option<(String, String)> {
    if !machine.selinux {
        return None;
    }
    let none = pb::SeLinuxOption::default();
    let asked = asked.unwrap_or(&none);
    let or = |text: &String, usual: &str| if text.is_empty() { usual.to_owned() } else { text.clone() };
    let (user, role) = (or(&asked.user, "system_u"), or(&asked.role, "system_r"));
    let (kind, level) = (or(&asked.r#type, "container_t"), or(&asked.level, &format!("s0:{pair}")));
    Some((format!("{user}:{role}:{kind}:{level}"), format!("{user}:object_r:container_file_t:{level}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(kind: ProfileType, file: &str) -> pb::SecurityProfile {
        pb::SecurityProfile { profile_type: kind.into(), localhost_ref: file.into() }
    }

    #[test]
    fn seccomp_profiles() {
        let check =
            |asked: Option<pb::SecurityProfile>, path: &str, privileged, expected: Option<Seccomp>| {
                assert_eq!(seccomp_of(asked.as_ref(), path, privileged).ok(), expected, "{asked:?} {path}");
            };
        check(None, "", false, Some(Seccomp::Unconfined));
        check(None, "runtime/default", false, Some(Seccomp::Default));
        check(None, "localhost//a/b", false, Some(Seccomp::File("/a/b".into())));
        check(None, "localhost/a", false, None);
        check(None, "other", false, None);
        check(Some(profile(ProfileType::RuntimeDefault, "")), "unconfined", false, Some(Seccomp::Default));
        check(Some(profile(ProfileType::RuntimeDefault, "")), "", true, Some(Seccomp::Unconfined));
        check(Some(profile(ProfileType::Localhost, "/a")), "", false, Some(Seccomp::File("/a".into())));
        check(Some(profile(ProfileType::Localhost, "a")), "", false, None);
        let broken = filter(&Seccomp::File("/a".into()), b"{", &HashSet::new(), &Machine::default());
        assert_eq!(broken.unwrap_err().to_string(), "seccomp profile \"/a\" cannot be used");
    }

    #[test]
    fn apparmor_profiles() {
        let with = Machine { apparmor: Some(["mine".to_owned()].into()), ..Machine::default() };
        let check =
            |asked: Option<pb::SecurityProfile>, machine: &Machine, expected: Result<Option<&str>, &str>| {
                let context = pb::LinuxContainerSecurityContext { apparmor: asked, ..Default::default() };
                let got = apparmor(&context, machine).map_err(|e| e.to_string());
                assert_eq!(got.as_ref().map(Option::as_deref).map_err(|e| &e[..]), expected);
            };
        let without = Machine::default();
        check(None, &without, Ok(None));
        check(Some(profile(ProfileType::RuntimeDefault, "")), &without, Ok(None));
        check(Some(profile(ProfileType::Localhost, "mine")), &without, Err("apparmor is not supported"));
        check(Some(profile(ProfileType::Localhost, "localhost/mine")), &with, Ok(Some("mine")));
        check(Some(profile(ProfileType::Localhost, "no")), &with, Err("apparmor profile not found no"));
    }

    #[test]
    fn labels() {
        assert_eq!(selinux(None, "c1,c2", &Machine::default()), None);
        let machine = Machine { selinux: true, ..Machine::default() };
        let (process, file) = selinux(None, "c1,c2", &machine).unwrap();
        assert_eq!(process, "system_u:system_r:container_t:s0:c1,c2");
        assert_eq!(file, "system_u:object_r:container_file_t:s0:c1,c2");
        let asked = pb::SeLinuxOption { r#type: "spc_t".into(), level: "s0".into(), ..Default::default() };
        assert_eq!(selinux(Some(&asked), "c1,c2", &machine).unwrap().0, "system_u:system_r:spc_t:s0");
    }
}
