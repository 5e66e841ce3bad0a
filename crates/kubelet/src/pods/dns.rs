//! Names: resolver configuration, hostnames and the hosts file of Pods.

use std::fmt::Write;

use cri::runtime as pb;
use k8s_openapi::api::core::v1::{HostAlias, Pod};

use super::spec;
use crate::Config;

/// The longest search list that containers' resolvers take; upstream's limits.
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;
const MAX_SERVERS: usize = 3;
/// The longest hostname of the kernel.
const MAX_HOSTNAME: usize = 63;

/// Reads a resolver configuration: servers add up, the last `search` and `options` count.
pub(crate) fn parse_resolv_conf(text: &str) -> pb::DnsConfig {
    let mut config = pb::DnsConfig::default();
    for line in text.lines().map(str::trim).filter(|l| !l.starts_with('#') && !l.starts_with(';')) {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => config.servers.extend(words.next().map(str::to_owned)),
            Some("search") => {
                config.searches = words
                    .filter(|w| *w != ".")
                    .map(|w| w.strip_suffix('.').unwrap_or(w).to_owned())
                    .collect();
            }
            Some("options") => words.for_each(|option| set_option(&mut config.options, option)),
            _ => {}
        }
    }
    config
}

/// Sets a resolver option in the place of one of the same name.
fn set_option(options: &mut Vec<String>, option: &str) {
    fn name(option: &str) -> &str {
        option.split(':').next().unwrap_or_default()
    }
    match options.iter_mut().find(|o| name(o) == name(option)) {
        Some(old) => option.clone_into(old),
        None => options.push(option.to_owned()),
    }
}

fn unique(list: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for item in list {
        if !out.contains(&item) {
            out.push(item);
        }
    }
    out
}

/// A Pod's resolver configuration; `host` is the node's. The second answer says what was cut off
/// or replaced, as an Event's reason and message.
pub(crate) fn pod_dns(
    pod: &Pod,
    config: &Config,
    host: pb::DnsConfig,
) -> (pb::DnsConfig, Option<(&'static str, String)>) {
    let s = spec::spec(pod);
    let policy = s.dns_policy.as_deref().unwrap_or("ClusterFirst");
    let cluster =
        policy == "ClusterFirstWithHostNet" || (policy == "ClusterFirst" && !spec::host_network(pod));
    let mut note = None;
    let mut dns = if policy == "None" {
        pb::DnsConfig::default()
    } else if cluster && !config.cluster_dns.is_empty() {
        let mut searches = Vec::new();
        if !config.cluster_domain.is_empty() {
            let domain = &config.cluster_domain;
            searches.push(format!("{}.svc.{domain}", spec::namespace(pod)));
            searches.push(format!("svc.{domain}"));
            searches.push(domain.clone());
        }
        searches.extend(host.searches);
        pb::DnsConfig {
            servers: config.cluster_dns.iter().map(ToString::to_string).collect(),
            searches: unique(searches),
            options: vec!["ndots:5".into()],
        }
    } else {
        if cluster {
            note = Some((
                "MissingClusterDNS",
                format!(
                    "pod: {:?}. kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy.",
                    spec::full_name(pod)
                ),
            ));
        }
        host
    };
    if let Some(own) = &s.dns_config {
        dns.servers = unique(dns.servers.into_iter().chain(own.nameservers.clone().unwrap_or_default()));
        dns.searches = unique(dns.searches.into_iter().chain(own.searches.clone().unwrap_or_default()));
        for option in own.options.iter().flatten() {
            let Some(name) = option.name.as_deref().filter(|n| !n.is_empty()) else { continue };
            let text = match option.value.as_deref().filter(|v| !v.is_empty()) {
                Some(value) => format!("{name}:{value}"),
                None => name.to_owned(),
            };
            set_option(&mut dns.options, &text);
        }
    }
    if dns.servers.len() > MAX_SERVERS {
        dns.servers.truncate(MAX_SERVERS);
        let line = dns.servers.join(" ");
        note = Some((
            "DNSConfigForming",
            format!(
                "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {line}"
            ),
        ));
    }
    let fits =
        |searches: &[String]| searches.len() <= MAX_SEARCHES && searches.join(" ").len() <= MAX_SEARCH_CHARS;
    if !fits(&dns.searches) {
        while !fits(&dns.searches) {
            dns.searches.pop();
        }
        let line = dns.searches.join(" ");
        note = Some((
            "DNSConfigForming",
            format!(
                "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {line}"
            ),
        ));
    }
    (dns, note)
}

/// Hostname and domain of a Pod; the domain is "" without a subdomain.
pub(crate) fn hostname(pod: &Pod, cluster_domain: &str) -> (String, String) {
    let s = spec::spec(pod);
    if let Some(own) = &s.hostname_override {
        return (short(own), String::new());
    }
    let name = s.hostname.as_deref().filter(|h| !h.is_empty()).unwrap_or(spec::name(pod));
    let domain = match s.subdomain.as_deref().filter(|d| !d.is_empty()) {
        Some(sub) => format!("{sub}.{}.svc.{cluster_domain}", spec::namespace(pod)),
        None => String::new(),
    };
    (short(name), domain)
}

fn short(name: &str) -> String {
    let cut: String = name.chars().take(MAX_HOSTNAME).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
}

/// A hostname that is longer than a kernel takes; upstream's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long ({MAX_HOSTNAME} characters is the max, {} characters requested)",
    fqdn.len()
)]
pub(crate) struct HostnameError {
    fqdn: String,
}

/// The hostname that the Pod's kernel gets.
///
/// # Errors
/// With `setHostnameAsFQDN`, a name longer than the kernel takes.
pub(crate) fn kernel_hostname(pod: &Pod, cluster_domain: &str) -> Result<String, HostnameError> {
    let (name, domain) = hostname(pod, cluster_domain);
    if domain.is_empty() || spec::spec(pod).set_hostname_as_fqdn != Some(true) {
        return Ok(name);
    }
    let full = format!("{name}.{domain}");
    if full.len() > MAX_HOSTNAME {
        return Err(HostnameError { fqdn: full });
    }
    Ok(full)
}

/// The hosts file of a Pod with a network of its own.
pub(crate) fn hosts_file(ips: &[String], name: &str, domain: &str, aliases: &[HostAlias]) -> String {
    let mut out = String::from(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
    );
    for ip in ips {
        let _ = if domain.is_empty() {
            writeln!(out, "{ip}\t{name}")
        } else {
            writeln!(out, "{ip}\t{name}.{domain}\t{name}")
        };
    }
    out + &alias_lines(aliases)
}

/// The hosts file of a Pod on the node's network: the node's, with aliases.
pub(crate) fn node_hosts_file(of_node: &str, aliases: &[HostAlias]) -> String {
    format!("# Kubernetes-managed hosts file (host network).\n{of_node}{}", alias_lines(aliases))
}

fn alias_lines(aliases: &[HostAlias]) -> String {
    if aliases.is_empty() {
        return String::new();
    }
    let mut out = String::from("\n# Entries added by HostAliases.\n");
    for alias in aliases {
        let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
        let _ = writeln!(out, "{}\t{names}", alias.ip);
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(
            json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec}),
        )
        .unwrap()
    }

    #[test]
    fn resolver_configuration_follows_the_policy() {
        let mut config = Config::new("node");
        config.cluster_dns = vec!["10.0.0.10".parse().unwrap()];
        let host = || parse_resolv_conf("nameserver 1.1.1.1\nsearch a.example. b\noptions ndots:1 edns0\n");
        let check = |s: serde_json::Value, servers: &[&str], searches: &[&str], options: &[&str]| {
            let (dns, _) = pod_dns(&pod(s), &config, host());
            assert_eq!(
                (dns.servers, dns.searches, dns.options),
                (
                    servers.iter().map(|s| (*s).to_owned()).collect(),
                    searches.iter().map(|s| (*s).to_owned()).collect(),
                    options.iter().map(|s| (*s).to_owned()).collect(),
                )
            );
        };
        let cluster = ["ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "a.example", "b"];
        check(json!({"containers": []}), &["10.0.0.10"], &cluster, &["ndots:5"]);
        check(
            json!({"containers": [], "dnsPolicy": "Default"}),
            &["1.1.1.1"],
            &["a.example", "b"],
            &["ndots:1", "edns0"],
        );
        check(
            json!({"containers": [], "hostNetwork": true}),
            &["1.1.1.1"],
            &["a.example", "b"],
            &["ndots:1", "edns0"],
        );
        check(
            json!({"containers": [], "hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}),
            &["10.0.0.10"],
            &cluster,
            &["ndots:5"],
        );
        check(
            json!({"containers": [], "dnsPolicy": "None", "dnsConfig": {"nameservers": ["2.2.2.2"], "searches": ["x"],
                "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]}}),
            &["2.2.2.2"],
            &["x"],
            &["ndots:2", "edns0"],
        );
    }

    #[test]
    fn hostnames() {
        let check = |s: serde_json::Value, want: Result<&str, ()>| {
            assert_eq!(kernel_hostname(&pod(s), "cluster.local").map_err(|_| ()).as_deref(), want.as_deref());
        };
        check(json!({"containers": []}), Ok("p"));
        check(json!({"containers": [], "hostname": "h", "subdomain": "s"}), Ok("h"));
        check(
            json!({"containers": [], "hostname": "h", "subdomain": "s", "setHostnameAsFQDN": true}),
            Ok("h.s.ns.svc.cluster.local"),
        );
        check(
            json!({"containers": [], "hostname": "h".repeat(50), "subdomain": "s", "setHostnameAsFQDN": true}),
            Err(()),
        );
    }
}
