//! Which kernel parameters a Pod may set: those that touch nothing beyond the Pod.

use std::borrow::Cow;
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::Pod;

use super::spec;

/// Upstream's list: the namespace a parameter belongs to, its name, and the kernel from which on it
/// belongs to it.
const SAFE: [(&str, &str, (u32, u32)); 12] = [
    ("ipc", "kernel.shm_rmid_forced", (0, 0)),
    ("net", "net.ipv4.ip_local_port_range", (0, 0)),
    ("net", "net.ipv4.tcp_syncookies", (0, 0)),
    ("net", "net.ipv4.ping_group_range", (0, 0)),
    ("net", "net.ipv4.ip_unprivileged_port_start", (0, 0)),
    ("net", "net.ipv4.ip_local_reserved_ports", (3, 16)),
    ("net", "net.ipv4.tcp_keepalive_time", (4, 5)),
    ("net", "net.ipv4.tcp_fin_timeout", (4, 6)),
    ("net", "net.ipv4.tcp_keepalive_intvl", (4, 5)),
    ("net", "net.ipv4.tcp_keepalive_probes", (4, 5)),
    ("net", "net.ipv4.tcp_rmem", (4, 15)),
    ("net", "net.ipv4.tcp_wmem", (4, 15)),
];

/// This machine's kernel.
static KERNEL: LazyLock<Option<(u32, u32)>> =
    LazyLock::new(|| version(&rustix::system::uname().release().to_string_lossy()));

/// Why a Pod's parameters are refused; none if they are not.
///
/// `allowed` are names, or beginnings of names with `*`, of further ones.
pub(crate) fn forbidden(pod: &Pod, allowed: &[String]) -> Option<String> {
    refused(pod, *KERNEL, allowed)
}

/// The namespace that a parameter belongs to, if there is one; upstream's.
fn namespace(name: &str) -> Option<&'static str> {
    let begins = |all: &[&str]| all.iter().any(|prefix| name.starts_with(prefix));
    if name == "kernel.sem" || begins(&["kernel.shm", "kernel.msg", "fs.mqueue."]) {
        Some("ipc")
    } else if begins(&["net."]) {
        Some("net")
    } else {
        None
    }
}

/// A pattern of upstream's `allowedUnsafeSysctls` that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no parameter of a namespace, or the beginning of one followed by *")]
pub struct PatternError(String);

/// Checks a pattern: it must be of a namespace that a Pod can have for its own.
///
/// # Errors
/// It is not.
pub fn check_pattern(pattern: &str) -> Result<(), PatternError> {
    let name = normalized(pattern.strip_suffix('*').unwrap_or(pattern));
    let known = pattern.len() <= MAX_NAME && namespace(&name).is_some();
    if known && is_pattern(pattern) { Ok(()) } else { Err(PatternError(pattern.to_owned())) }
}

/// The longest name of a parameter.
const MAX_NAME: usize = 253;

/// Whether words in lower case stand between dots and slashes; a `*` may end the last one, or be all of it.
fn is_pattern(pattern: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    let outer = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_word = |word: &[u8], last: bool| match word {
        [] => false,
        [one] => outer(*one) || (last && *one == b'*'),
        [first, middle @ .., end] => {
            outer(*first) && middle.iter().copied().all(inner) && (outer(*end) || (last && *end == b'*'))
        }
    };
    let words: Vec<&[u8]> = pattern.as_bytes().split(|b| matches!(b, b'.' | b'/')).collect();
    words.iter().enumerate().all(|(at, word)| is_word(word, at + 1 == words.len()))
}

fn is_allowed(name: &str, allowed: &[String]) -> bool {
    allowed.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(&*normalized(prefix)),
        None => normalized(pattern) == name,
    })
}

fn refused(pod: &Pod, kernel: Option<(u32, u32)>, allowed: &[String]) -> Option<String> {
    let s = spec::spec(pod);
    s.security_context.iter().flat_map(|c| c.sysctls.iter().flatten()).find_map(|sysctl| {
        let name = normalized(&sysctl.name);
        let known = SAFE.iter().find(|(_, safe, from)| {
            // Of an unknown kernel only what every kernel has.
            *safe == name && (*from == (0, 0) || kernel.is_some_and(|k| k >= *from))
        });
        let known =
            known.map(|(of, ..)| *of).or_else(|| namespace(&name).filter(|_| is_allowed(&name, allowed)));
        let why = match known {
            None => format!("{name:?} not allowlisted"),
            Some("ipc") if s.host_ipc == Some(true) => {
                format!("{name:?} not allowed with host ipc enabled")
            }
            Some("net") if spec::host_network(pod) => {
                format!("{name:?} not allowed with host net enabled")
            }
            Some(_) => return None,
        };
        Some(format!("forbidden sysctl: {why}"))
    })
}

/// The name with dots; a name whose first separator is a slash has them the other way round.
fn normalized(name: &str) -> Cow<'_, str> {
    match name.find(['.', '/']) {
        Some(at) if name[at..].starts_with('/') => {
            let swap = |c| match c {
                '.' => '/',
                '/' => '.',
                other => other,
            };
            Cow::Owned(name.chars().map(swap).collect())
        }
        _ => Cow::Borrowed(name),
    }
}

/// Major and minor version of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn safe_ones_only() {
        let check = |name: &str, spec: serde_json::Value, kernel: &str, want: Option<&str>| {
            let mut spec = spec;
            spec["containers"] = json!([]);
            spec["securityContext"] = json!({"sysctls": [{"name": name, "value": "1"}]});
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
            assert_eq!(refused(&pod, version(kernel), &[]).as_deref(), want, "{name} {kernel}");
        };
        let none = json!({});
        check("kernel.shm_rmid_forced", none.clone(), "6.1.0-13-amd64", None);
        check("kernel/shm_rmid_forced", none.clone(), "6.1.0", None);
        check("kernel.shm_rmid_forced", none.clone(), "odd", None);
        check("net.ipv4.tcp_rmem", none.clone(), "4.15.0-generic", None);
        let old = r#"forbidden sysctl: "net.ipv4.tcp_rmem" not allowlisted"#;
        check("net.ipv4.tcp_rmem", none.clone(), "4.14.1", Some(old));
        check("net.ipv4.tcp_rmem", none.clone(), "odd", Some(old));
        let unsafe_one = r#"forbidden sysctl: "net.ipv4.tcp_slow_start_after_idle" not allowlisted"#;
        check("net.ipv4.tcp_slow_start_after_idle", none.clone(), "6.1.0", Some(unsafe_one));
        check("kernel.msgmax", none, "6.1.0", Some(r#"forbidden sysctl: "kernel.msgmax" not allowlisted"#));
        check(
            "net.ipv4.tcp_syncookies",
            json!({"hostNetwork": true}),
            "6.1.0",
            Some(r#"forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host net enabled"#),
        );
        check(
            "kernel.shm_rmid_forced",
            json!({"hostIPC": true}),
            "6.1.0",
            Some(r#"forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host ipc enabled"#),
        );
    }

    #[test]
    fn others_as_the_node_allows() {
        let allowed = ["kernel.msg*".to_owned(), "net.core.somaxconn".to_owned()];
        let check = |name: &str, spec: serde_json::Value, allowed: &[String], want: Option<&str>| {
            let mut spec = spec;
            spec["containers"] = json!([]);
            spec["securityContext"] = json!({"sysctls": [{"name": name, "value": "1"}]});
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
            let want = want.map(|why| format!("forbidden sysctl: {name:?} {why}"));
            assert_eq!(refused(&pod, Some((6, 1)), allowed), want, "{name}");
        };
        let none = json!({});
        check("kernel.msgmax", none.clone(), &allowed, None);
        check("kernel.msgmax", none.clone(), &[], Some("not allowlisted"));
        check("kernel.msgmax", json!({"hostIPC": true}), &allowed, Some("not allowed with host ipc enabled"));
        check("net.core.somaxconn", none.clone(), &allowed, None);
        check("net.core.somaxconn2", none.clone(), &allowed, Some("not allowlisted"));
        let host = json!({"hostNetwork": true});
        check("net.core.somaxconn", host, &allowed, Some("not allowed with host net enabled"));
        check("vm.swappiness", none, &["vm.swappiness".to_owned()], Some("not allowlisted"));
        for (pattern, right) in [
            ("kernel.msg*", true),
            ("kernel/shm*", true),
            ("net.*", true),
            ("fs.mqueue.msg_max", true),
            ("kernel.*", false),
            ("vm.swappiness", false),
            ("net.**", false),
            ("", false),
        ] {
            assert_eq!(check_pattern(pattern).is_ok(), right, "{pattern}");
        }
    }

    /// Upstream's 9 cases of `TestNewAllowlist`.
    #[test]
    fn patterns() {
        for (pattern, right) in [
            ("kernel.msg*", true),
            ("kernel.sem", true),
            ("kernel/msg*", true),
            ("kernel/sem", true),
            (" kernel.msg*", false),
            ("kernel.msg* ", false),
            ("net.-", false),
            ("net.*.foo", false),
            ("net.*/foo", false),
            ("foo", false),
            ("foo*", false),
        ] {
            assert_eq!(check_pattern(pattern).is_ok(), right, "{pattern}");
        }
    }

    /// Upstream's 14 cases of `TestAllowlist`, the 3 of `Test_getSafeSysctlAllowlist` and the 4 of
    /// `TestConvertPodSysctlsVariableToDotsSeparator`.
    #[test]
    fn safe_and_allowed_ones() {
        let allowed = ["kernel.msg*", "kernel.sem", "net.b.*"].map(str::to_owned);
        let check = |name: &str, host: &str, right: bool| {
            let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [],
                "hostNetwork": host == "net", "hostIPC": host == "ipc",
                "securityContext": {"sysctls": [{"name": name, "value": "1"}]}}}))
            .unwrap();
            assert_eq!(refused(&pod, Some((6, 1)), &allowed).is_none(), right, "{name} {host}");
        };
        for name in [
            "kernel.shm_rmid_forced",
            "kernel/shm_rmid_forced",
            "net.ipv4.ip_local_port_range",
            "kernel.msgmax",
            "kernel.sem",
            "kernel/sem",
        ] {
            check(name, "", true);
        }
        for (name, host) in [
            ("kernel.shm_rmid_forced", "ipc"),
            ("net.ipv4.ip_local_port_range", "net"),
            ("foo", ""),
            ("net.a.b.c", ""),
            ("net.ipv4.ip_local_port_range.a.b.c", ""),
            ("kernel.msgmax", "ipc"),
            ("kernel.sem", "ipc"),
            ("net.b.c", "net"),
        ] {
            check(name, host, false);
        }
        for (kernel, count) in [("odd", 5), ("3.18.0-957.27.2.el7.x86_64", 6), ("5.15.0-75-generic", 12)] {
            let safe = SAFE.iter().filter(|(_, name, _)| {
                let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [],
                    "securityContext": {"sysctls": [{"name": name, "value": "1"}]}}}))
                .unwrap();
                refused(&pod, version(kernel), &[]).is_none()
            });
            assert_eq!(safe.count(), count, "{kernel}");
        }
        for (name, dots) in [
            ("kernel.msgmax", "kernel.msgmax"),
            ("kernel.shm_rmid_forced", "kernel.shm_rmid_forced"),
            ("net.ipv4.conf.eno2/100.rp_filter", "net.ipv4.conf.eno2/100.rp_filter"),
            ("net/ipv4/ip_local_port_range", "net.ipv4.ip_local_port_range"),
        ] {
            assert_eq!(normalized(name), dots);
        }
    }
}
