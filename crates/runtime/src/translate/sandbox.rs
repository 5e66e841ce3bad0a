//! A Pod's sandbox: its sysctls and its files.

use std::collections::BTreeMap;

use cri::runtime as pb;

use super::error::TranslateError;

/// The kernel's settings of a Pod. Unless the Pod says otherwise, its own network has no privileged ports, and anybody
/// may ping, as containerd has it.
pub fn sysctls(
    asked: impl IntoIterator<Item = (String, String)>,
    own_network: bool,
    own_ipc: bool,
    user_namespace: bool,
) -> Result<BTreeMap<String, String>, TranslateError> {
    const IPC: [&str; 9] = [
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
        "kernel.msg_next_id",
    ];
    let mut all = BTreeMap::new();
    for (name, value) in asked {
        let name = name.replace('/', ".");
        let refuse = |why| Err(TranslateError::Sysctl(name.clone(), why));
        let is_name = |part: &str| !part.is_empty() && part != ".." && !part.contains('\0');
        if !name.split('.').all(is_name) {
            return refuse("it is no name of a setting");
        }
        if name.starts_with("net.") {
            if !own_network {
                return refuse("the Pod has the machine's network");
            }
        } else if IPC.contains(&name.as_str()) || name.starts_with("fs.mqueue.") {
            if !own_ipc {
                return refuse("the Pod has the machine's IPC namespace");
            }
        } else {
            return refuse("the setting is the whole machine's");
        }
        all.insert(name, value);
    }
    if own_network {
        all.entry("net.ipv4.ip_unprivileged_port_start".to_owned()).or_insert_with(|| "0".to_owned());
        if !user_namespace {
            all.entry("net.ipv4.ping_group_range".to_owned()).or_insert_with(|| "0 2147483647".to_owned());
        }
    }
    Ok(all)
}

/// A Pod's `resolv.conf`; none if the Pod has the machine's.
pub fn resolv_conf(dns: &pb::DnsConfig) -> Option<String> {
    if dns.servers.is_empty() && dns.searches.is_empty() && dns.options.is_empty() {
        return None;
    }
    let mut text = String::new();
    if !dns.searches.is_empty() {
        text += &["search ", &dns.searches.join(" "), "\n"].concat();
    }
    for server in &dns.servers {
        text += &["nameserver ", server, "\n"].concat();
    }
    if !dns.options.is_empty() {
        text += &["options ", &dns.options.join(" "), "\n"].concat();
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings() {
        let check = |asked: &[(&str, &str)], network: bool, ipc: bool, expected: Result<&str, &str>| {
            let asked = asked.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let got = sysctls(asked, network, ipc, false).map_err(|e| e.to_string());
            let got =
                got.map(|all| all.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" "));
            assert_eq!(got.as_deref().map_err(String::as_str), expected);
        };
        let own = "net.ipv4.ip_unprivileged_port_start=0 net.ipv4.ping_group_range=0 2147483647";
        check(&[], true, true, Ok(own));
        check(&[], false, true, Ok(""));
        check(&[("kernel/shmmax", "1")], false, true, Ok("kernel.shmmax=1"));
        check(
            &[("net.ipv4.ip_unprivileged_port_start", "80"), ("net.ipv4.ping_group_range", "1 0")],
            true,
            true,
            Ok("net.ipv4.ip_unprivileged_port_start=80 net.ipv4.ping_group_range=1 0"),
        );
        let refused = |name: &str, why: &str| format!("sysctl {name:?} is not allowed: {why}");
        check(&[("net.a", "1")], false, true, Err(&refused("net.a", "the Pod has the machine's network")));
        check(
            &[("kernel.sem", "1")],
            true,
            false,
            Err(&refused("kernel.sem", "the Pod has the machine's IPC namespace")),
        );
        check(
            &[("kernel.panic", "1")],
            true,
            true,
            Err(&refused("kernel.panic", "the setting is the whole machine's")),
        );
        check(
            &[("net/../kernel", "1")],
            true,
            true,
            Err(&refused("net....kernel", "it is no name of a setting")),
        );
    }

    #[test]
    fn name_servers() {
        assert_eq!(resolv_conf(&pb::DnsConfig::default()), None);
        let dns = pb::DnsConfig {
            servers: vec!["10.0.0.10".into(), "10.0.0.11".into()],
            searches: vec!["a.local".into(), "b.local".into()],
            options: vec!["ndots:5".into()],
        };
        let expected =
            "search a.local b.local\nnameserver 10.0.0.10\nnameserver 10.0.0.11\noptions ndots:5\n";
        assert_eq!(resolv_conf(&dns).unwrap(), expected);
    }
}
