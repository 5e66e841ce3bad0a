//! Security contexts.

use std::collections::HashSet;

use api::Gate;
use api::field::{BadValue, Errors, Lazy, Path, Typed};
use api::names;
use api::view::View;

use super::options::Options;
use super::parts::each_container;
use super::paths::local_descending;
use crate::validation::print;

fn whole(v: View<'_>) -> impl BadValue {
    Lazy(move || v.raw().map(|s| print::internal(v.schema, s)).unwrap_or_default())
}

fn ids(errs: &mut Errors, at: &Path<'_>, sc: View<'_>, fields: &[&str]) {
    for f in fields {
        if let Some(id) = sc.opt_int(f) {
            for msg in names::user_id(id) {
                errs.invalid(&at.field(f), id, msg);
            }
        }
    }
}

/// Checks the security context of a container, which may be privileged or not.
pub(super) fn of_container(
    errs: &mut Errors,
    at: &Path<'_>,
    sc: View<'_>,
    host_users: bool,
    privileged: bool,
) {
    if sc.bool("privileged") && !privileged {
        errs.forbidden(&at.field("privileged"), "disallowed by cluster policy");
    }
    ids(errs, at, sc, &["runAsUser", "runAsGroup"]);
    if let Some(p) = sc.opt_str("procMount") {
        let at = at.field("procMount");
        errs.one_of(&at, p, &["Default", "Unmasked"]);
        if host_users && p == "Unmasked" {
            errs.invalid(&at, p, "`hostUsers` must be false to use `Unmasked`");
        }
    }
    seccomp(errs, &at.field("seccompProfile"), sc.opt("seccompProfile"));
    if sc.opt_bool("allowPrivilegeEscalation") == Some(false) {
        if sc.bool("privileged") {
            errs.invalid(
                at,
                whole(sc),
                "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            );
        }
        for c in sc.st("capabilities").strs("add") {
            if c == "CAP_SYS_ADMIN" {
                errs.invalid(
                    at,
                    whole(sc),
                    "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
                );
            }
        }
    }
    windows(errs, &at.field("windowsOptions"), sc.opt("windowsOptions"));
    app_armor(errs, &at.field("appArmorProfile"), sc.opt("appArmorProfile"));
}

/// Checks the security context of the pod.
pub(super) fn of_pod(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, o: &Options<'_>) {
    let Some(sc) = spec.opt("securityContext") else { return };
    ids(errs, at, sc, &["fsGroup", "runAsUser", "runAsGroup"]);
    let groups = at.field("supplementalGroups");
    for (i, g) in sc.list("supplementalGroups").iter().enumerate() {
        let g = g.as_int().unwrap_or(0);
        for msg in names::group_id(g) {
            errs.invalid(&groups.index(i), g, msg);
        }
    }
    if spec.bool("shareProcessNamespace") && spec.bool("hostPID") {
        errs.invalid(
            &at.field("shareProcessNamespace"),
            true,
            "ShareProcessNamespace and HostPID cannot both be enabled",
        );
    }
    sysctls(errs, &at.field("sysctls"), spec, sc, o);
    if let Some(p) = sc.opt_str("fsGroupChangePolicy") {
        errs.one_of(&at.field("fsGroupChangePolicy"), p, &["Always", "OnRootMismatch"]);
    }
    seccomp(errs, &at.field("seccompProfile"), sc.opt("seccompProfile"));
    windows(errs, &at.field("windowsOptions"), sc.opt("windowsOptions"));
    app_armor(errs, &at.field("appArmorProfile"), sc.opt("appArmorProfile"));
    if let Some(p) = sc.opt_str("supplementalGroupsPolicy") {
        errs.one_of(&at.field("supplementalGroupsPolicy"), p, &["Merge", "Strict"]);
    }
    if let Some(p) = sc.opt_str("seLinuxChangePolicy") {
        let valid: &[&str] =
            if o.any_selinux_policy { &["MountOption", "Recursive"] } else { &["Recursive"] };
        errs.one_of(&at.field("seLinuxChangePolicy"), p, valid);
    }
}

fn is_sysctl(name: &str) -> bool {
    let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    name.len() <= 253
        && name.split(['.', '/']).all(|s| {
            let b = s.as_bytes();
            !b.is_empty()
                && edge(b[0])
                && edge(b[b.len() - 1])
                && b.iter().all(|b| edge(*b) || matches!(b, b'-' | b'_'))
        })
}

fn sysctls(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, sc: View<'_>, o: &Options<'_>) {
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, s) in sc.items("sysctls").enumerate() {
        let at = at.index(i);
        let at = at.field("name");
        let name = s.str("name");
        if name.is_empty() {
            errs.required(&at, "");
        } else if !is_sysctl(name) {
            errs.invalid(
                &at,
                name,
                r"must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
            );
        } else if seen.contains(&name) {
            errs.duplicate(&at, name);
        }
        if !o.host_sysctls
            && let Some(why) = host_sysctl(spec, name)
        {
            errs.invalid(&at, name, why);
        }
        seen.insert(name);
    }
}

/// The reason for which a sysctl may not be set: it is of a namespace that the pod shares with the host.
pub(super) fn host_sysctl(spec: View<'_>, name: &str) -> Option<&'static str> {
    let name = name.replace('/', ".");
    let net = name.starts_with("net.");
    let ipc = name == "kernel.sem"
        || ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|p| name.starts_with(p));
    if net && spec.bool("hostNetwork") {
        Some("may not be specified when 'hostNetwork' is true")
    } else if ipc && spec.bool("hostIPC") {
        Some("may not be specified when 'hostIPC' is true")
    } else {
        None
    }
}

fn seccomp(errs: &mut Errors, at: &Path<'_>, p: Option<View<'_>>) {
    let Some(p) = p else { return };
    let ty = p.str("type");
    if ty.is_empty() {
        errs.required(&at.field("type"), "type is required when seccompProfile is set");
    } else {
        errs.one_of(&at.field("type"), ty, &["Localhost", "RuntimeDefault", "Unconfined"]);
    }
    let at = at.field("localhostProfile");
    match p.opt_str("localhostProfile") {
        None if ty == "Localhost" => errs.required(&at, "must be set when seccomp type is Localhost"),
        Some(path) if ty == "Localhost" => local_descending(errs, &at, path),
        Some(_) => errs.invalid(&at, whole(p), "can only be set when seccomp type is Localhost"),
        None => {}
    }
}

/// Checks an AppArmor profile.
pub(super) fn app_armor(errs: &mut Errors, at: &Path<'_>, p: Option<View<'_>>) {
    let Some(p) = p else { return };
    let profile_at = at.field("localhostProfile");
    match p.str("type") {
        "Localhost" => match p.opt_str("localhostProfile") {
            None => errs.required(&profile_at, "must be set when AppArmor type is Localhost"),
            Some(profile) => {
                let trimmed = profile.trim();
                if trimmed != profile {
                    errs.invalid(&profile_at, profile, "must not be padded with whitespace");
                } else if trimmed.is_empty() {
                    errs.required(&profile_at, "must be set when AppArmor type is Localhost");
                }
                if profile.len() > 4095 {
                    errs.too_long(&profile_at, 4095);
                }
            }
        },
        "RuntimeDefault" | "Unconfined" => {
            if let Some(profile) = p.opt_str("localhostProfile") {
                errs.invalid(&profile_at, Typed(profile), "can only be set when AppArmor type is Localhost");
            }
        }
        "" => errs.required(&at.field("type"), "type is required when appArmorProfile is set"),
        other => errs.not_supported(&at.field("type"), other, &["Localhost", "RuntimeDefault", "Unconfined"]),
    }
}

/// Whether a text is a NetBIOS name.
fn is_net_bios(s: &str) -> bool {
    (1..=15).contains(&s.chars().count())
        && !s.starts_with('.')
        && !s.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|'])
}

/// Whether a text is a DNS name, in letters of either case.
fn is_domain(s: &str) -> bool {
    s.split('.').all(|l| l.len() <= 63 && names::dns1123_label(&l.to_ascii_lowercase()).is_empty())
}

fn windows(errs: &mut Errors, at: &Path<'_>, w: Option<View<'_>>) {
    let Some(w) = w else { return };
    if let Some(name) = w.opt_str("gmsaCredentialSpecName") {
        errs.each_typed(&at.field("gmsaCredentialSpecName"), name, names::dns1123_subdomain(name));
    }
    if let Some(spec) = w.opt_str("gmsaCredentialSpec") {
        let at = at.field("gmsaCredentialSpec");
        if spec.is_empty() {
            errs.invalid(&at, spec, "gmsaCredentialSpec cannot be an empty string");
        } else if spec.len() > 64 * 1024 {
            errs.invalid(&at, spec, "gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    let Some(name) = w.opt_str("runAsUserName") else { return };
    let at = at.field("runAsUserName");
    let parts: Vec<&str> = name.split('\\').collect();
    if name.is_empty() {
        errs.invalid(&at, Typed(name), "runAsUserName cannot be an empty string");
        return;
    }
    if name.chars().any(|c| c.is_ascii_control()) {
        errs.invalid(&at, Typed(name), "runAsUserName cannot contain control characters");
        return;
    }
    let (domain, user) = match parts.as_slice() {
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => {
            errs.invalid(&at, Typed(name), "runAsUserName cannot contain more than one backslash");
            return;
        }
    };
    if let Some(d) = domain {
        if d.len() >= 256 {
            errs.invalid(&at, Typed(name), "runAsUserName's Domain length must be under 256 characters");
        }
        if !is_net_bios(d) && !is_domain(d) {
            errs.invalid(
                &at,
                Typed(name),
                "runAsUserName's Domain doesn't match the NetBios nor the DNS format",
            );
        }
    }
    if user.is_empty() {
        errs.invalid(&at, Typed(name), "runAsUserName's User cannot be empty");
    } else if user.len() > 104 {
        errs.invalid(&at, Typed(name), "runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.chars().all(|c| c == '.' || c == ' ') {
        errs.invalid(&at, Typed(name), "runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        errs.invalid(
            &at,
            name,
            r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#,
        );
    }
}

/// Checks that all containers are host processes, or none is; all may be if containers may be privileged.
pub(super) fn host_process(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, privileged: bool) {
    let of = |v: View<'_>| v.st("securityContext").st("windowsOptions").opt_bool("hostProcess");
    let pod = of(spec);
    let (mut all, mut host) = (0, 0);
    each_container(spec, at, |at, c| {
        all += 1;
        let own = of(c);
        if let (Some(p), Some(o)) = (pod, own)
            && p != o
        {
            errs.invalid(
                &at.field("securityContext.windowsOptions.hostProcess"),
                o,
                format!("pod hostProcess value must be identical if both are specified, was {p}"),
            );
        }
        if own.or(pod) == Some(true) {
            host += 1;
        }
    });
    if host == 0 {
        return;
    }
    if host != all {
        errs.invalid(
            at,
            "",
            "If pod contains any hostProcess containers then all containers must be HostProcess containers",
        );
    }
    if !spec.bool("hostNetwork") {
        errs.invalid(
            &at.field("hostNetwork"),
            false,
            "hostNetwork must be true if pod contains any hostProcess containers",
        );
    }
    if !privileged {
        errs.forbidden(at, "hostProcess containers are disallowed by cluster policy");
    }
}

/// Reports fields that may not be set for the pod's operating system.
pub(super) fn os(errs: &mut Errors, at: &Path<'_>, spec: View<'_>) {
    let Some(os) = spec.opt("os") else { return };
    match os.str("name") {
        "" => errs.required(&at.field("os.name"), ""),
        "linux" => {
            const NOT: &str = "windows options cannot be set for a linux pod";
            if spec.st("securityContext").has("windowsOptions") {
                errs.forbidden(&at.field("securityContext.windowsOptions"), NOT);
            }
            each_container(spec, at, |at, c| {
                if c.st("securityContext").has("windowsOptions") {
                    errs.forbidden(&at.field("securityContext.windowsOptions"), NOT);
                }
            });
        }
        "windows" => windows_pod(errs, at, spec),
        other => errs.not_supported(&at.field("os"), other, &["linux", "windows"]),
    }
}

fn windows_pod(errs: &mut Errors, at: &Path<'_>, spec: View<'_>) {
    const NOT: &str = "cannot be set for a windows pod";
    if let Some(sc) = spec.opt("securityContext") {
        let sc_at = at.field("securityContext");
        let own = |errs: &mut Errors, f: &str| {
            if sc.get(f).is_some_and(|n| !matches!(n, api::Node::List(l) if l.is_empty())) {
                errs.forbidden(&sc_at.field(f), NOT);
            }
        };
        own(errs, "appArmorProfile");
        own(errs, "seLinuxOptions");
        if spec.has("hostUsers") {
            errs.forbidden(&at.field("hostUsers"), NOT);
        }
        for f in ["hostPID", "hostIPC"] {
            if spec.bool(f) {
                errs.forbidden(&at.field(f), NOT);
            }
        }
        for f in ["seccompProfile", "fsGroup", "fsGroupChangePolicy", "sysctls"] {
            own(errs, f);
        }
        if spec.has("shareProcessNamespace") {
            errs.forbidden(&at.field("shareProcessNamespace"), NOT);
        }
        for f in [
            "runAsUser",
            "runAsGroup",
            "supplementalGroups",
            "supplementalGroupsPolicy",
            "seLinuxChangePolicy",
        ] {
            own(errs, f);
        }
    }
    each_container(spec, at, |at, c| {
        let Some(sc) = c.opt("securityContext") else { return };
        let at = at.field("securityContext");
        for f in [
            "appArmorProfile",
            "seLinuxOptions",
            "seccompProfile",
            "capabilities",
            "readOnlyRootFilesystem",
            "privileged",
            "allowPrivilegeEscalation",
            "procMount",
            "runAsUser",
            "runAsGroup",
        ] {
            if sc.has(f) {
                errs.forbidden(&at.field(f), NOT);
            }
        }
    });
}

/// Reports namespaces of the host that a pod with its own user namespace may not share.
pub(super) fn host_users(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, o: &Options<'_>) {
    const NOT: &str = "when `hostUsers` is false";
    if spec.opt_bool("hostUsers") != Some(false) {
        return;
    }
    if !o.gate(Gate::UserNamespacesHostNetworkSupport) && spec.bool("hostNetwork") {
        errs.forbidden(&at.field("hostNetwork"), NOT);
    }
    if spec.bool("hostPID") {
        errs.forbidden(&at.field("HostPID"), NOT);
    }
    if spec.bool("hostIPC") {
        errs.forbidden(&at.field("HostIPC"), NOT);
    }
    if !o.devices_in_user_namespace {
        each_container(spec, at, |at, c| {
            if c.len("volumeDevices") > 0 {
                errs.forbidden(&at.field("volumeDevices"), NOT);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_domains() {
        assert!(is_net_bios("DOMAIN") && !is_net_bios("a:b") && !is_net_bios(".a") && !is_net_bios(""));
        assert!(is_domain("a.Example") && !is_domain("a..b") && !is_domain("-a"));
    }

    #[test]
    fn sysctl_names() {
        for good in ["a.b.c.d", "kernel/sem", "net/ipv4/conf/enp3s0_200/forwarding", "a"] {
            assert!(is_sysctl(good), "{good}");
        }
        for bad in ["", "i..j", "A.b", "_x", ".a", "a-", &"a".repeat(254)] {
            assert!(!is_sysctl(bad), "{bad}");
        }
    }
}
