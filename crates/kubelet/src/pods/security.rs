//! Security contexts: the Pod's and the container's together, as the runtime wants them.

use std::collections::BTreeSet;
use std::path::Component;
use std::sync::LazyLock;

use cri::runtime as pb;
use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, Pod, PodSecurityContext, SELinuxOptions, SeccompProfile, SecurityContext,
};

use super::{app_armor, spec};

/// The container's security context over the Pod's.
pub(crate) fn effective(pod: &Pod, container: &Container) -> SecurityContext {
    let of_pod = spec::spec(pod).security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    SecurityContext {
        se_linux_options: own.se_linux_options.or(of_pod.se_linux_options),
        run_as_user: own.run_as_user.or(of_pod.run_as_user),
        run_as_group: own.run_as_group.or(of_pod.run_as_group),
        run_as_non_root: own.run_as_non_root.or(of_pod.run_as_non_root),
        seccomp_profile: own.seccomp_profile.or(of_pod.seccomp_profile),
        app_armor_profile: app_armor::profile(pod, &container.name, container.security_context.as_ref()),
        ..own
    }
}

/// The user of an image: a number, or a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ImageUser {
    /// Numeric user.
    pub(crate) uid: Option<i64>,
    /// User by name, "" for none.
    pub(crate) name: String,
}

impl ImageUser {
    /// The user of an image whose configuration says this: one that names nobody runs as root, and a number counts more than
    /// a name.
    pub(crate) fn of(uid: Option<i64>, name: String) -> Self {
        match uid {
            Some(_) => Self { uid, name: String::new() },
            None if name.is_empty() => Self { uid: Some(0), name },
            None => Self { uid: None, name },
        }
    }
}

/// A container that must not run as root would, or might; upstream's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why} (pod: \"{pod}\", container: {container})")]
pub(crate) struct NonRootError {
    pod: String,
    container: String,
    why: RootReason,
}

/// Why a container would run as root, or might.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum RootReason {
    #[error("container's runAsUser breaks non-root policy")]
    Own,
    #[error("container has runAsNonRoot and image will run as root")]
    Image,
    #[error(
        "container has runAsNonRoot and image has an invalid user id ({0}). (Must be 1-(2147483647)): must be between 0 and 2147483647, inclusive"
    )]
    ImageUid(i64),
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({0}), cannot verify user is non-root"
    )]
    ImageName(String),
}

/// Refuses a container that must not run as root and would, or might.
pub(crate) fn verify_non_root(
    pod: &Pod,
    container: &Container,
    image: &ImageUser,
) -> Result<(), NonRootError> {
    let context = effective(pod, container);
    if context.run_as_non_root != Some(true) {
        return Ok(());
    }
    let why = match (context.run_as_user, image.uid) {
        (Some(0), _) => RootReason::Own,
        (None, Some(0)) => RootReason::Image,
        (None, Some(uid)) if !(0..=i64::from(i32::MAX)).contains(&uid) => RootReason::ImageUid(uid),
        (None, None) if !image.name.is_empty() => RootReason::ImageName(image.name.clone()),
        _ => return Ok(()),
    };
    Err(NonRootError { pod: spec::full_name(pod), container: container.name.clone(), why })
}

/// Why a profile cannot be given to the runtime; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProfileError {
    #[error("localhostProfile must be set if seccompProfile type is Localhost.")]
    NoSeccompName,
    #[error("invalid localhostProfile {0:?}: must not contain '..'")]
    SeccompName(String),
    #[error("missing localhost apparmor profile name")]
    NoAppArmorName,
    #[error("unknown apparmor profile type: {0:?}")]
    AppArmorType(String),
}

/// The profiles of system calls that containers have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Profiles<'a> {
    /// Where those of the node are.
    pub(crate) dir: &'a std::path::Path,
    /// Whether a container that names none has the runtime's.
    pub(crate) by_default: bool,
}

fn seccomp(
    profile: Option<&SeccompProfile>,
    profiles: Profiles<'_>,
) -> Result<pb::SecurityProfile, ProfileError> {
    let kind = |t: pb::security_profile::ProfileType| pb::SecurityProfile {
        profile_type: t.into(),
        localhost_ref: String::new(),
    };
    match profile.map(|p| p.type_.as_str()) {
        Some("RuntimeDefault") => Ok(kind(pb::security_profile::ProfileType::RuntimeDefault)),
        Some("Localhost") => {
            let name = profile
                .and_then(|p| p.localhost_profile.as_deref())
                .filter(|n| !n.is_empty())
                .ok_or(ProfileError::NoSeccompName)?;
            // Below the profiles, whatever the name says.
            let below = std::path::Path::new(name.trim_start_matches('/'));
            if !below.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir)) {
                return Err(ProfileError::SeccompName(name.to_owned()));
            }
            Ok(pb::SecurityProfile {
                localhost_ref: profiles.dir.join(below).to_string_lossy().into_owned(),
                ..kind(pb::security_profile::ProfileType::Localhost)
            })
        }
        None if profiles.by_default => Ok(kind(pb::security_profile::ProfileType::RuntimeDefault)),
        _ => Ok(kind(pb::security_profile::ProfileType::Unconfined)),
    }
}

fn app_armor_profile(
    profile: Option<&AppArmorProfile>,
) -> Result<(Option<pb::SecurityProfile>, String), ProfileError> {
    let Some(profile) = profile else { return Ok((None, String::new())) };
    let made = |t: pb::security_profile::ProfileType, name: &str| {
        Some(pb::SecurityProfile { profile_type: t.into(), localhost_ref: name.to_owned() })
    };
    use pb::security_profile::ProfileType;
    Ok(match profile.type_.as_str() {
        "RuntimeDefault" => (made(ProfileType::RuntimeDefault, ""), "runtime/default".to_owned()),
        "Unconfined" => (made(ProfileType::Unconfined, ""), "unconfined".to_owned()),
        "Localhost" => {
            let name = profile.localhost_profile.as_deref().ok_or(ProfileError::NoAppArmorName)?;
            (made(ProfileType::Localhost, name), format!("localhost/{name}"))
        }
        other => return Err(ProfileError::AppArmorType(other.to_owned())),
    })
}

/// SELinux options as the runtime wants them.
pub(crate) fn selinux(options: Option<&SELinuxOptions>) -> Option<pb::SeLinuxOption> {
    let o = options?;
    let text = |s: &Option<String>| s.clone().unwrap_or_default();
    Some(pb::SeLinuxOption {
        user: text(&o.user),
        role: text(&o.role),
        r#type: text(&o.type_),
        level: text(&o.level),
    })
}

/// Namespaces that the Pod's containers share, with its users.
pub(crate) fn namespaces(pod: &Pod, users: pb::UserNamespace) -> pb::NamespaceOption {
    let s = spec::spec(pod);
    let node = |is: Option<bool>, other| if is == Some(true) { pb::NamespaceMode::Node } else { other };
    let pid = if s.share_process_namespace == Some(true) {
        pb::NamespaceMode::Pod
    } else {
        pb::NamespaceMode::Container
    };
    pb::NamespaceOption {
        network: node(s.host_network, pb::NamespaceMode::Pod).into(),
        ipc: node(s.host_ipc, pb::NamespaceMode::Pod).into(),
        pid: node(s.host_pid, pid).into(),
        userns_options: Some(users),
        ..pb::NamespaceOption::default()
    }
}

/// Groups that the Pod adds to its processes, and how they join those of the image. `of_volumes`: those that own its volumes.
pub(crate) fn groups(
    context: Option<&PodSecurityContext>,
    of_volumes: &BTreeSet<i64>,
) -> (Vec<i64>, pb::SupplementalGroupsPolicy) {
    let Some(context) = context else {
        return (of_volumes.iter().copied().collect(), pb::SupplementalGroupsPolicy::Merge);
    };
    let mut groups: Vec<i64> = context.fs_group.into_iter().collect();
    groups.extend(context.supplemental_groups.iter().flatten());
    groups.extend(of_volumes);
    let policy = match context.supplemental_groups_policy.as_deref() {
        Some("Strict") => pb::SupplementalGroupsPolicy::Strict,
        _ => pb::SupplementalGroupsPolicy::Merge,
    };
    (groups, policy)
}

/// The paths of /proc and /sys that upstream hides in a container.
fn masked_paths() -> Vec<String> {
    static PATHS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let mut paths: Vec<String> = [
            "/proc/asound",
            "/proc/acpi",
            "/proc/interrupts",
            "/proc/kcore",
            "/proc/keys",
            "/proc/latency_stats",
            "/proc/timer_list",
            "/proc/timer_stats",
            "/proc/sched_debug",
            "/proc/scsi",
            "/sys/firmware",
            "/sys/devices/virtual/powercap",
        ]
        .map(str::to_owned)
        .into();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        paths.extend(
            (0..cpus)
                .map(|cpu| format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle"))
                .filter(|p| std::path::Path::new(p).exists()),
        );
        paths
    });
    PATHS.clone()
}

const READONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The security context of a container.
pub(crate) fn container_context(
    (pod, users, groups_of_volumes): (&Pod, pb::UserNamespace, &BTreeSet<i64>),
    container: &Container,
    image: &ImageUser,
    target: Option<String>,
    profiles: Profiles<'_>,
) -> Result<pb::LinuxContainerSecurityContext, ProfileError> {
    let c = effective(pod, container);
    let (supplemental_groups, policy) = groups(spec::spec(pod).security_context.as_ref(), groups_of_volumes);
    let (apparmor, deprecated) = app_armor_profile(c.app_armor_profile.as_ref())?;
    let mut options = namespaces(pod, users);
    if let Some(id) = target.filter(|_| options.pid() == pb::NamespaceMode::Container) {
        options.set_pid(pb::NamespaceMode::Target);
        options.target_id = id;
    }
    let int = |value| pb::Int64Value { value };
    let unmasked = c.proc_mount.as_deref() == Some("Unmasked");
    #[allow(deprecated, reason = "older runtimes read only the profile's name")]
    let made = pb::LinuxContainerSecurityContext {
        capabilities: c.capabilities.map(|caps| pb::Capability {
            add_capabilities: caps.add.unwrap_or_default(),
            drop_capabilities: caps.drop.unwrap_or_default(),
            ..pb::Capability::default()
        }),
        privileged: c.privileged == Some(true),
        namespace_options: Some(options),
        selinux_options: selinux(c.se_linux_options.as_ref()),
        run_as_user: c.run_as_user.or(image.uid).map(int),
        run_as_username: if c.run_as_user.is_none() { image.name.clone() } else { String::new() },
        run_as_group: c.run_as_group.map(int),
        readonly_rootfs: c.read_only_root_filesystem == Some(true),
        supplemental_groups,
        supplemental_groups_policy: policy.into(),
        no_new_privs: c.allow_privilege_escalation == Some(false),
        masked_paths: if unmasked { Vec::new() } else { masked_paths() },
        readonly_paths: if unmasked {
            Vec::new()
        } else {
            READONLY_PATHS.iter().map(|p| (*p).to_owned()).collect()
        },
        seccomp: Some(seccomp(c.seccomp_profile.as_ref(), profiles)?),
        apparmor,
        apparmor_profile: deprecated,
        ..pb::LinuxContainerSecurityContext::default()
    };
    Ok(made)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn profiles_lie_below_their_directory() {
        let check = |name: &str, want: Option<&str>| {
            let profile = SeccompProfile { type_: "Localhost".into(), localhost_profile: Some(name.into()) };
            let profiles = Profiles { dir: std::path::Path::new("/k/seccomp"), by_default: false };
            let got = seccomp(Some(&profile), profiles);
            assert_eq!(got.ok().map(|p| p.localhost_ref).as_deref(), want, "{name}");
        };
        check("a/b.json", Some("/k/seccomp/a/b.json"));
        check("/etc/shadow", Some("/k/seccomp/etc/shadow"));
        check("../../etc/shadow", None);
        check("a/../../b", None);
        check("", None);
    }

    #[test]
    fn a_container_without_a_profile_has_the_nodes_default() {
        use pb::security_profile::ProfileType;
        let check = |by_default: bool, named: Option<&str>, want: ProfileType| {
            let profiles = Profiles { dir: std::path::Path::new("/k"), by_default };
            let profile = named.map(|type_| SeccompProfile { type_: type_.into(), localhost_profile: None });
            assert_eq!(seccomp(profile.as_ref(), profiles).unwrap().profile_type(), want, "{named:?}");
        };
        check(false, None, ProfileType::Unconfined);
        check(true, None, ProfileType::RuntimeDefault);
        check(true, Some("Unconfined"), ProfileType::Unconfined);
        check(false, Some("RuntimeDefault"), ProfileType::RuntimeDefault);
    }

    #[test]
    fn root_is_refused_where_it_must_not_run() {
        let check = |pod_context: serde_json::Value, own: serde_json::Value, uid: Option<i64>, name: &str| {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"name": "p", "namespace": "n", "uid": "u"},
                "spec": {"containers": [{"name": "c", "securityContext": own}], "securityContext": pod_context}
            }))
            .unwrap();
            let c = spec::containers(&pod)[0].clone();
            verify_non_root(&pod, &c, &ImageUser::of(uid, name.to_owned())).map_err(|e| e.to_string())
        };
        let at_pod = json!({"runAsNonRoot": true});
        assert_eq!(check(json!({}), json!({}), Some(0), ""), Ok(()));
        assert_eq!(check(at_pod.clone(), json!({"runAsUser": 1}), Some(0), ""), Ok(()));
        assert_eq!(check(at_pod.clone(), json!({"runAsNonRoot": false}), Some(0), ""), Ok(()));
        assert_eq!(check(at_pod.clone(), json!({}), Some(1000), ""), Ok(()));
        assert_eq!(
            check(at_pod.clone(), json!({"runAsUser": 0}), None, "").unwrap_err(),
            "container's runAsUser breaks non-root policy (pod: \"p_n(u)\", container: c)"
        );
        assert_eq!(
            check(at_pod.clone(), json!({}), Some(0), "").unwrap_err(),
            "container has runAsNonRoot and image will run as root (pod: \"p_n(u)\", container: c)"
        );
        assert_eq!(
            check(at_pod.clone(), json!({}), None, "").unwrap_err(),
            "container has runAsNonRoot and image will run as root (pod: \"p_n(u)\", container: c)"
        );
        assert_eq!(
            check(at_pod, json!({}), None, "web").unwrap_err(),
            "container has runAsNonRoot and image has non-numeric user (web), cannot verify user is non-root (pod: \"p_n(u)\", container: c)"
        );
    }

    /// 6 of upstream's 10 cases of `TestNamespacesForPod`: the others are about a feature that is always on, and about runtimes
    /// without users of their own (`config.rs`).
    #[test]
    fn namespaces_of_pods() {
        use pb::NamespaceMode::{Container, Node, Pod as OfPod};
        let check = |spec: Value, expected: [pb::NamespaceMode; 3]| {
            let pod: Pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
            let users = pb::UserNamespace { mode: OfPod.into(), ..pb::UserNamespace::default() };
            let got = namespaces(&pod, users.clone());
            assert_eq!([got.ipc(), got.network(), got.pid()], expected, "{spec}");
            assert_eq!(got.userns_options, Some(users));
        };
        let own = [OfPod, OfPod, Container];
        check(json!({"containers": []}), own);
        check(json!({"hostIPC": true, "hostNetwork": true, "hostPID": true, "containers": []}), [Node; 3]);
        check(json!({"shareProcessNamespace": true, "containers": []}), [OfPod; 3]);
        check(json!({"shareProcessNamespace": false, "containers": []}), own);
        check(json!({"hostUsers": false, "containers": []}), own);
    }

    /// 3 of upstream's 4 cases of `TestGenerateLinuxConfigSupplementalGroupsPolicy`, which its sandboxes share; the other one
    /// has a policy that the API refuses.
    #[test]
    fn policies_of_groups() {
        let check = |context: Value, expected: pb::SupplementalGroupsPolicy| {
            let context: PodSecurityContext = serde_json::from_value(context).unwrap();
            assert_eq!(groups(Some(&context), &BTreeSet::new()).1, expected);
        };
        check(json!({"supplementalGroupsPolicy": "Merge"}), pb::SupplementalGroupsPolicy::Merge);
        check(json!({"supplementalGroupsPolicy": "Strict"}), pb::SupplementalGroupsPolicy::Strict);
        check(json!({}), pb::SupplementalGroupsPolicy::Merge);
    }

    /// Upstream's 13 cases of `TestVerifyRunAsNonRoot`.
    #[test]
    fn users_that_may_not_be_root() {
        let check = |context: Value, uid: Option<i64>, name: &str, passes: bool| {
            let pod: Pod = serde_json::from_value(json!({
                "spec": {"containers": [{"name": "foo", "image": "busybox", "securityContext": context}]}
            }))
            .unwrap();
            let image = ImageUser { uid, name: name.to_owned() };
            let got = verify_non_root(&pod, &spec::containers(&pod)[0], &image);
            assert_eq!(got.is_ok(), passes, "{pod:?} {image:?}: {got:?}");
        };
        let must = || json!({"runAsNonRoot": true});
        check(Value::Null, Some(0), "", true);
        check(json!({"runAsNonRoot": true, "runAsUser": 1000}), None, "", true);
        check(json!({"runAsUser": 0}), Some(0), "", true);
        check(json!({"runAsNonRoot": false}), Some(0), "", true);
        check(json!({"runAsNonRoot": false, "runAsUser": 0}), Some(0), "", true);
        check(json!({"runAsNonRoot": true, "runAsUser": 0}), Some(0), "", false);
        check(must(), Some(0), "", false);
        check(must(), None, "test", false);
        check(must(), Some(1000), "", true);
        check(must(), None, "", true);
        check(must(), Some(2_147_483_648), "", false);
        check(must(), Some(-1000), "", false);
        check(must(), Some(i64::from(i32::MAX)), "", true);
    }

    /// Upstream's 3 cases of `TestGetImageUser`, and the user that a container of such an image has: a group of its own, which
    /// runtimes refuse without a user, does not keep the container of an image without one from starting.
    #[test]
    fn users_of_images() {
        let check = |uid: Option<i64>, name: &str, expected: (Option<i64>, &str)| {
            let image = ImageUser::of(uid, name.to_owned());
            assert_eq!((image.uid, image.name.as_str()), expected, "{uid:?} {name}");
            let pod: Pod = serde_json::from_value(json!({
                "spec": {"containers": [{"name": "c"}], "securityContext": {"runAsGroup": 3000}}
            }))
            .unwrap();
            let profiles = Profiles { dir: std::path::Path::new("/k"), by_default: false };
            let users = pb::UserNamespace::default();
            let made = container_context(
                (&pod, users, &[777].into()),
                &spec::containers(&pod)[0],
                &image,
                None,
                profiles,
            )
            .unwrap();
            assert_eq!((made.run_as_user.map(|u| u.value), made.run_as_username.as_str()), expected);
            assert_eq!(made.run_as_group.map(|g| g.value), Some(3000));
            assert_eq!(made.supplemental_groups, [777]);
        };
        check(None, "", (Some(0), ""));
        check(None, "testUser", (None, "testUser"));
        check(Some(2), "whatever", (Some(2), ""));
    }

    /// Upstream's 11 cases of `TestGetSeccompProfile`, and the same of `TestGetSeccompProfileDefaultSeccomp`: only the first
    /// one's outcome is the node's.
    #[test]
    fn seccomp_profiles() {
        let check = |pods: Option<Value>, own: Option<Value>, expected: [Result<&str, &str>; 2]| {
            let context = |profile: &Option<Value>| profile.as_ref().map(|p| json!({"seccompProfile": p}));
            let pod: Pod = serde_json::from_value(json!({"spec": {
                "securityContext": context(&pods),
                "containers": [{"name": "c", "securityContext": context(&own)}]}}))
            .unwrap();
            let profile = effective(&pod, &spec::containers(&pod)[0]).seccomp_profile;
            for (by_default, expected) in [false, true].into_iter().zip(expected) {
                let profiles = Profiles { dir: std::path::Path::new("/k"), by_default };
                let got = seccomp(profile.as_ref(), profiles).map_err(|e| e.to_string());
                let got = got.map(|p| format!("{:?} {}", p.profile_type(), p.localhost_ref));
                let got = got.as_ref().map(|text| text.trim_end()).map_err(String::as_str);
                assert_eq!(got, expected, "{pods:?} {own:?}");
            }
        };
        let of = |kind: &str| Some(json!({"type": kind}));
        let local = |name: &str| Some(json!({"type": "Localhost", "localhostProfile": name}));
        let nameless = Err("localhostProfile must be set if seccompProfile type is Localhost.");
        check(None, None, [Ok("Unconfined"), Ok("RuntimeDefault")]);
        check(of("Unconfined"), None, [Ok("Unconfined"); 2]);
        check(None, of("Unconfined"), [Ok("Unconfined"); 2]);
        check(of("RuntimeDefault"), None, [Ok("RuntimeDefault"); 2]);
        check(None, of("RuntimeDefault"), [Ok("RuntimeDefault"); 2]);
        check(local("filename"), None, [Ok("Localhost /k/filename"); 2]);
        check(of("Localhost"), None, [nameless; 2]);
        check(None, of("Localhost"), [nameless; 2]);
        check(None, local("filename2"), [Ok("Localhost /k/filename2"); 2]);
        check(of("Unconfined"), of("RuntimeDefault"), [Ok("RuntimeDefault"); 2]);
        check(
            local("field-pod-profile.json"),
            local("field-cont-profile.json"),
            [Ok("Localhost /k/field-cont-profile.json"); 2],
        );
    }

    /// Upstream's 6 cases of `TestGetAppArmorProfile`.
    #[test]
    fn app_armor_profiles() {
        let check = |profile: Option<(&str, Option<&str>)>, expected: Result<(Option<&str>, &str), &str>| {
            let profile = profile.map(|(kind, name)| AppArmorProfile {
                type_: kind.to_owned(),
                localhost_profile: name.map(str::to_owned),
            });
            let got = app_armor_profile(profile.as_ref()).map_err(|e| e.to_string());
            let got = got.map(|(made, old)| {
                (made.map(|p| format!("{:?} {}", p.profile_type(), p.localhost_ref)), old)
            });
            let got = got.as_ref().map(|(made, old)| (made.as_deref().map(str::trim_end), old.as_str()));
            assert_eq!(got.map_err(String::as_str), expected);
        };
        check(None, Ok((None, "")));
        check(Some(("RuntimeDefault", None)), Ok((Some("RuntimeDefault"), "runtime/default")));
        check(Some(("Unconfined", None)), Ok((Some("Unconfined"), "unconfined")));
        check(Some(("Localhost", Some("test"))), Ok((Some("Localhost test"), "localhost/test")));
        check(Some(("Localhost", None)), Err("missing localhost apparmor profile name"));
        check(Some(("foo", None)), Err("unknown apparmor profile type: \"foo\""));
    }
}
