//! The checks of the baseline: nothing by which a pod is known to get more than a pod usually has.

use std::collections::BTreeSet;

use api::go::quote;
use api::view::View;

use super::pod::{Pod, Violation, containers, has_own_users, plural, quoted, setters};

/// The containers, by name, of which something is true.
fn bad<'a>(pod: &Pod<'a>, mut is_bad: impl FnMut(View<'a>) -> bool) -> Vec<&'a str> {
    pod.containers().filter(|c| is_bad(*c)).map(|c| c.str("name")).collect()
}

pub(super) fn app_armor_profile(pod: &Pod<'_>) -> Option<Violation> {
    const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
    let mut types = BTreeSet::new();
    let mut forbidden = |context: View<'_>| {
        let Some(profile) = context.opt("appArmorProfile") else { return false };
        let bad = !matches!(profile.str("type"), "RuntimeDefault" | "Localhost");
        if bad {
            types.insert(profile.str("type").to_owned());
        }
        bad
    };
    let by_pod = forbidden(pod.spec.st("securityContext"));
    let names = bad(pod, |c| forbidden(c.st("securityContext")));
    let annotations = pod.metadata.texts("annotations").filter(|(key, value)| {
        let allowed = value.is_empty() || *value == "runtime/default" || value.starts_with("localhost/");
        key.starts_with(PREFIX) && !allowed
    });
    let annotations: BTreeSet<String> = annotations.map(|(k, v)| format!("{k}={}", quote(v))).collect();
    let by_annotations = plural(annotations.len(), "annotation", "annotations");
    let setters = match (setters(by_pod, &names), annotations.is_empty()) {
        (None, true) => return None,
        (Some(setters), true) => setters,
        (None, false) => by_annotations.to_owned(),
        (Some(setters), false) => format!("{setters} and {by_annotations}"),
    };
    let count = types.len() + annotations.len();
    let values = quoted(types.iter().chain(&annotations).map(String::as_str));
    Some(Violation {
        reason: plural(count, "forbidden AppArmor profile", "forbidden AppArmor profiles"),
        detail: format!("{setters} must not set AppArmor profile type to {values}"),
    })
}

/// The capabilities that containers may add, as they have them by default.
const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The containers that add capabilities which are not allowed, and those capabilities.
pub(super) fn added_capabilities<'a>(pod: &Pod<'a>, allowed: &[&str]) -> (Vec<&'a str>, BTreeSet<&'a str>) {
    let mut added = BTreeSet::new();
    let names = bad(pod, |c| {
        let all = c.st("securityContext").st("capabilities").strs("add");
        let before = all.filter(|a| !allowed.contains(a)).map(|a| added.insert(a)).count();
        before > 0
    });
    (names, added)
}

pub(super) fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let (names, added) = added_capabilities(pod, &DEFAULT_CAPABILITIES);
    (!names.is_empty()).then(|| Violation {
        reason: "non-default capabilities",
        detail: format!(
            "{} must not include {} in securityContext.capabilities.add",
            containers(&names),
            quoted(added)
        ),
    })
}

pub(super) fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| pod.spec.bool(field));
    let shared: Vec<String> = shared.map(|field| format!("{field}=true")).collect();
    (!shared.is_empty()).then(|| Violation { reason: "host namespaces", detail: shared.join(", ") })
}

pub(super) fn host_path_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = pod.spec.items("volumes").filter(|v| v.has("hostPath"));
    let volumes: Vec<&str> = volumes.map(|v| v.str("name")).collect();
    (!volumes.is_empty()).then(|| Violation {
        reason: "hostPath volumes",
        detail: format!("{} {}", plural(volumes.len(), "volume", "volumes"), quoted(volumes.iter().copied())),
    })
}

pub(super) fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let mut ports = BTreeSet::new();
    let names = bad(pod, |c| {
        let host = c.items("ports").map(|p| p.int("hostPort")).filter(|port| *port != 0);
        host.map(|port| ports.insert(port.to_string())).count() > 0
    });
    (!names.is_empty()).then(|| Violation {
        reason: "hostPort",
        detail: format!(
            "{} {} {} {}",
            containers(&names),
            plural(names.len(), "uses", "use"),
            plural(ports.len(), "hostPort", "hostPorts"),
            ports.into_iter().collect::<Vec<_>>().join(", ")
        ),
    })
}

pub(super) fn host_probes_and_lifecycle(pod: &Pod<'_>) -> Option<Violation> {
    let (mut names, mut hosts) = (BTreeSet::new(), BTreeSet::new());
    for container in pod.containers() {
        let lifecycle = container.st("lifecycle");
        let handlers = [
            container.st("livenessProbe"),
            container.st("readinessProbe"),
            container.st("startupProbe"),
            lifecycle.st("postStart"),
            lifecycle.st("preStop"),
        ];
        let used = handlers.into_iter().flat_map(|h| [h.st("httpGet"), h.st("tcpSocket")]);
        for host in used.map(|action| action.str("host")).filter(|host| !host.is_empty()) {
            names.insert(container.str("name"));
            hosts.insert(host);
        }
    }
    let names: Vec<&str> = names.into_iter().collect();
    (!names.is_empty()).then(|| Violation {
        reason: "probe or lifecycle host",
        detail: format!(
            "{} {} {} {}",
            containers(&names),
            plural(names.len(), "uses", "use"),
            plural(hosts.len(), "probe or lifecycle host", "probe or lifecycle hosts"),
            quoted(hosts)
        ),
    })
}

pub(super) fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let names = bad(pod, |c| c.st("securityContext").bool("privileged"));
    (!names.is_empty()).then(|| Violation {
        reason: "privileged",
        detail: format!("{} must not set securityContext.privileged=true", containers(&names)),
    })
}

pub(super) fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let names = bad(pod, |c| {
        let other = c.st("securityContext").opt_str("procMount").filter(|t| *t != "Default");
        other.map(|t| types.insert(t)).is_some()
    });
    (!names.is_empty()).then(|| Violation {
        reason: "procMount",
        detail: format!("{} must not set securityContext.procMount to {}", containers(&names), quoted(types)),
    })
}

pub(super) fn proc_mount_1_35(pod: &Pod<'_>) -> Option<Violation> {
    if has_own_users(pod) { None } else { proc_mount(pod) }
}

/// The types that may be set; the last came with v1.31.
const SE_LINUX_TYPES: [&str; 5] =
    ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

fn se_linux(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let (mut types, mut user, mut role) = (BTreeSet::new(), false, false);
    let mut forbidden = |context: View<'_>| {
        let options = context.st("seLinuxOptions");
        let bad_type = !allowed.contains(&options.str("type"));
        if bad_type {
            types.insert(options.str("type").to_owned());
        }
        let (sets_user, sets_role) = (!options.str("user").is_empty(), !options.str("role").is_empty());
        user |= sets_user;
        role |= sets_role;
        bad_type || sets_user || sets_role
    };
    let by_pod = forbidden(pod.spec.st("securityContext"));
    let names = bad(pod, |c| forbidden(c.st("securityContext")));
    let setters = setters(by_pod, &names)?;
    let mut what = Vec::new();
    if !types.is_empty() {
        let list = quoted(types.iter().map(String::as_str));
        what.push(format!("{} {list}", plural(types.len(), "type", "types")));
    }
    if user {
        what.push("user may not be set".to_owned());
    }
    if role {
        what.push("role may not be set".to_owned());
    }
    Some(Violation {
        reason: "seLinuxOptions",
        detail: format!("{setters} set forbidden securityContext.seLinuxOptions: {}", what.join("; ")),
    })
}

pub(super) fn se_linux_options(pod: &Pod<'_>) -> Option<Violation> {
    se_linux(pod, &SE_LINUX_TYPES[..4])
}

pub(super) fn se_linux_options_1_31(pod: &Pod<'_>) -> Option<Violation> {
    se_linux(pod, &SE_LINUX_TYPES)
}

/// Before there were fields for it, annotations named the profiles.
pub(super) fn seccomp_profile(pod: &Pod<'_>) -> Option<Violation> {
    const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    let mut forbidden = BTreeSet::new();
    let keys = pod.containers().map(|c| format!("{CONTAINER}{}", c.str("name")));
    for key in keys.chain([POD.to_owned()]) {
        let value = pod.metadata.map("annotations").and_then(|all| all.get(&key));
        let Some(value) = value.map(api::Node::as_str) else { continue };
        if !matches!(value, "runtime/default" | "docker/default") && !value.starts_with("localhost/") {
            forbidden.insert(format!("{key}={}", quote(value)));
        }
    }
    (!forbidden.is_empty()).then(|| Violation {
        reason: "seccompProfile",
        detail: format!(
            "forbidden {} {}",
            plural(forbidden.len(), "annotation", "annotations"),
            forbidden.into_iter().collect::<Vec<_>>().join(", ")
        ),
    })
}

/// Whether a security context names a profile, and one that may be named; notes one that may not.
pub(super) fn seccomp(context: View<'_>, bad: &mut BTreeSet<String>) -> Option<bool> {
    let kind = context.opt("seccompProfile")?.str("type");
    let good = matches!(kind, "RuntimeDefault" | "Localhost");
    if !good {
        bad.insert(kind.to_owned());
    }
    Some(good)
}

/// The violation of those who name profiles that may not be named.
pub(super) fn bad_seccomp(by_pod: bool, names: &[&str], types: &BTreeSet<String>) -> Option<Violation> {
    let setters = setters(by_pod, names)?;
    let types = quoted(types.iter().map(String::as_str));
    let detail = format!("{setters} must not set securityContext.seccompProfile.type to {types}");
    Some(Violation { reason: "seccompProfile", detail })
}

pub(super) fn seccomp_profile_1_19(pod: &Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let by_pod = seccomp(pod.spec.st("securityContext"), &mut types) == Some(false);
    let names = bad(pod, |c| seccomp(c.st("securityContext"), &mut types) == Some(false));
    bad_seccomp(by_pod, &names, &types)
}

/// Sysctls that concern nobody but the pod: 5 in v1.0, one more in v1.27, 4 more in v1.29, the last in v1.32.
const SAFE_SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

fn sysctls_but(pod: &Pod<'_>, safe: &[&str]) -> Option<Violation> {
    let set = pod.spec.st("securityContext").items("sysctls").map(|s| s.str("name"));
    let forbidden: Vec<&str> = set.filter(|name| !safe.contains(name)).collect();
    (!forbidden.is_empty()).then(|| Violation { reason: "forbidden sysctls", detail: forbidden.join(", ") })
}

pub(super) fn sysctls(pod: &Pod<'_>) -> Option<Violation> {
    sysctls_but(pod, &SAFE_SYSCTLS[..5])
}

pub(super) fn sysctls_1_27(pod: &Pod<'_>) -> Option<Violation> {
    sysctls_but(pod, &SAFE_SYSCTLS[..6])
}

pub(super) fn sysctls_1_29(pod: &Pod<'_>) -> Option<Violation> {
    sysctls_but(pod, &SAFE_SYSCTLS[..10])
}

pub(super) fn sysctls_1_32(pod: &Pod<'_>) -> Option<Violation> {
    sysctls_but(pod, &SAFE_SYSCTLS)
}

pub(super) fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    let is_host = |of: View<'_>| of.st("securityContext").st("windowsOptions").bool("hostProcess");
    let names = bad(pod, is_host);
    let setters = setters(is_host(pod.spec), &names)?;
    let detail = format!("{setters} must not set securityContext.windowsOptions.hostProcess=true");
    Some(Violation { reason: "hostProcess", detail })
}
