//! Names: resolver configuration, hostnames and the hosts file of Pods.

use std::fmt::Write;

use api::names;
use cri::runtime as pb;
use k8s_openapi::api::core::v1::{HostAlias, Pod};

use super::spec;
use crate::Config;

/// The longest search list that containers' resolvers take; upstream's limits.
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;
/// The longest path of a search list: resolvers end a program at a longer one.
const MAX_SEARCH: usize = 253;
const MAX_SERVERS: usize = 3;
/// The longest hostname of the kernel.
const MAX_HOSTNAME: usize = 63;

/// Reads a resolver configuration: servers add up, the last `search` counts, and the last option of a name.
///
/// DIFFERENCE: a `nameserver` without an address is passed over, as resolvers do; upstream starts no Pod then.
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

/// An Event's reason and message.
type Note = (&'static str, String);

/// A Pod's resolver configuration; `host` is the node's. The second answer says what was cut off or replaced.
pub(crate) fn pod_dns(pod: &Pod, config: &Config, host: pb::DnsConfig) -> (pb::DnsConfig, Vec<Note>) {
    let s = spec::spec(pod);
    let mut notes = Vec::new();
    let cluster = match s.dns_policy.as_deref().unwrap_or("ClusterFirst") {
        "None" => None,
        "Default" => Some(false),
        "ClusterFirst" => Some(!spec::host_network(pod)),
        _ => Some(true),
    };
    let mut dns = match cluster {
        None => pb::DnsConfig::default(),
        Some(true) if !config.cluster_dns.is_empty() => of_cluster(pod, config, host),
        Some(wanted) => {
            if wanted {
                notes.push((
                    "MissingClusterDNS",
                    format!(
                        "pod: {:?}. kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy.",
                        spec::full_name(pod)
                    ),
                ));
            }
            of_node(config, host)
        }
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
    notes.extend(fit_servers(&mut dns.servers));
    notes.extend(fit_searches(&mut dns.searches));
    (dns, notes)
}

/// The configuration by which Pods ask the cluster's server.
fn of_cluster(pod: &Pod, config: &Config, host: pb::DnsConfig) -> pb::DnsConfig {
    let domain = &config.cluster_domain;
    let searches = if domain.is_empty() {
        host.searches
    } else {
        let own = [format!("{}.svc.{domain}", spec::namespace(pod)), format!("svc.{domain}"), domain.clone()];
        unique(own.into_iter().chain(host.searches))
    };
    pb::DnsConfig {
        servers: config.cluster_dns.iter().map(ToString::to_string).collect(),
        searches,
        options: vec!["ndots:5".into()],
    }
}

/// The node's own configuration. A kubelet that is told of no file asks the node itself, so that the runtime puts nothing of
/// its own in the place.
fn of_node(config: &Config, mut host: pb::DnsConfig) -> pb::DnsConfig {
    if config.resolv_conf.as_os_str().is_empty() {
        let local = |v6: bool| if v6 { "::1".to_owned() } else { "127.0.0.1".to_owned() };
        host.servers = config.node_ips.iter().map(|ip| local(ip.is_ipv6())).collect();
        if host.servers.is_empty() {
            host.servers.push(local(false));
        }
        host.searches = vec![".".into()];
    }
    host
}

/// Cuts servers off that resolvers do not ask.
fn fit_servers(servers: &mut Vec<String>) -> Option<Note> {
    if servers.len() <= MAX_SERVERS {
        return None;
    }
    servers.truncate(MAX_SERVERS);
    let line = servers.join(" ");
    Some((
        "DNSConfigForming",
        format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {line}"
        ),
    ))
}

/// Cuts off what resolvers do not take of a search list.
fn fit_searches(searches: &mut Vec<String>) -> Option<Note> {
    let before = searches.len();
    searches.truncate(MAX_SEARCHES);
    searches.retain(|path| path.len() <= MAX_SEARCH);
    while searches.join(" ").len() > MAX_SEARCH_CHARS {
        searches.pop();
    }
    (searches.len() < before).then(|| {
        let line = searches.join(" ");
        (
            "DNSConfigForming",
            format!(
                "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {line}"
            ),
        )
    })
}

/// Hostname and domain of a Pod; the domain is "" without a subdomain.
///
/// # Errors
/// A name that is none: Pods from files of the node may have such.
pub(crate) fn hostname(pod: &Pod, cluster_domain: &str) -> Result<(String, String), HostnameError> {
    let s = spec::spec(pod);
    let valid = |field: &'static str, kind: &'static str, value: &str, faults: Vec<String>| {
        if faults.is_empty() {
            return Ok(());
        }
        Err(HostnameError::Invalid { field, value: value.to_owned(), kind, faults: faults.join(";") })
    };
    if let Some(own) = &s.hostname_override {
        valid("HostnameOverride", "subdomain", own, names::dns1123_subdomain(own))?;
        return Ok((short(own), String::new()));
    }
    let name = match s.hostname.as_deref().filter(|h| !h.is_empty()) {
        Some(own) => {
            valid("Hostname", "label", own, names::dns1123_label(own))?;
            own
        }
        None => spec::name(pod),
    };
    let domain = match s.subdomain.as_deref().filter(|d| !d.is_empty()) {
        Some(sub) => {
            valid("Subdomain", "label", sub, names::dns1123_label(sub))?;
            format!("{sub}.{}.svc.{cluster_domain}", spec::namespace(pod))
        }
        None => String::new(),
    };
    Ok((short(name), domain))
}

/// A name that is longer than a kernel takes, cut off; names of any other length are left as they are.
fn short(name: &str) -> String {
    if name.len() <= MAX_HOSTNAME {
        return name.to_owned();
    }
    name[..name.floor_char_boundary(MAX_HOSTNAME)].trim_end_matches(['-', '.']).to_owned()
}

/// Why a Pod has no hostname; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HostnameError {
    #[error(
        "failed to construct FQDN from pod hostname and cluster domain, FQDN {0} is too long ({MAX_HOSTNAME} characters is the max, {requested} characters requested)",
        requested = .0.len()
    )]
    Long(String),
    #[error("pod {field} {value:?} is not a valid DNS {kind}: {faults}")]
    Invalid { field: &'static str, value: String, kind: &'static str, faults: String },
}

/// The hostname that the Pod's kernel gets.
///
/// # Errors
/// With `setHostnameAsFQDN`, a name longer than the kernel takes; a name that is none.
pub(crate) fn kernel_hostname(pod: &Pod, cluster_domain: &str) -> Result<String, HostnameError> {
    let (name, domain) = hostname(pod, cluster_domain)?;
    if domain.is_empty() || spec::spec(pod).set_hostname_as_fqdn != Some(true) {
        return Ok(name);
    }
    let full = format!("{name}.{domain}");
    if full.len() > MAX_HOSTNAME {
        return Err(HostnameError::Long(full));
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

    /// 35 of upstream's 37 cases of `TestParseResolvConf`; in the other two a server has no address. The order of options
    /// does not count there.
    #[test]
    fn resolver_configurations_are_read() {
        let check = |text: &str, servers: &[&str], searches: &[&str], options: &[&str]| {
            let mut got = parse_resolv_conf(text);
            got.options.sort();
            let mut options = options.to_vec();
            options.sort_unstable();
            assert_eq!(
                (got.servers.join(","), got.searches.join(",")),
                (servers.join(","), searches.join(",")),
                "{text}"
            );
            assert_eq!(got.options, options, "{text}");
        };
        for text in ["", " ", "\n", "\t\n\t", "#comment\n", " #comment\n", "#comment\n#comment"] {
            check(text, &[], &[], &[]);
        }
        check("#comment\nnameserver", &[], &[], &[]);
        check("#comment\nnameserver\nsearch", &[], &[], &[]);
        let one = ["1.2.3.4"];
        for text in [
            "#comment\nnameserver 1.2.3.4\nsearch",
            "nameserver 1.2.3.4",
            " nameserver 1.2.3.4",
            "\tnameserver 1.2.3.4",
            "nameserver\t1.2.3.4",
            "nameserver \t 1.2.3.4",
            "nameserver 1.2.3.4 #comment",
        ] {
            check(text, &one, &[], &[]);
        }
        let two = ["1.2.3.4", "5.6.7.8"];
        check("nameserver 1.2.3.4\nnameserver 5.6.7.8", &two, &[], &[]);
        for (text, searches) in [
            ("search ", &[][..]),
            ("search .", &[]),
            ("search . foo", &["foo"]),
            ("search foo .", &["foo"]),
            ("search foo .  bar", &["foo", "bar"]),
            ("search foo", &["foo"]),
            ("search foo bar", &["foo", "bar"]),
            ("search foo. bar", &["foo", "bar"]),
            ("search foo bar bat\n", &["foo", "bar", "bat"]),
            ("search foo\nsearch bar", &["bar"]),
        ] {
            check(text, &[], searches, &[]);
        }
        check("nameserver 1.2.3.4\nsearch foo bar", &one, &["foo", "bar"], &[]);
        check("nameserver 1.2.3.4\nsearch foo\nnameserver 5.6.7.8\nsearch bar", &two, &["bar"], &[]);
        check("#comment\nnameserver 1.2.3.4\n#comment\nsearch foo\ncomment", &one, &["foo"], &[]);
        for (text, options) in [
            ("options ", &[][..]),
            ("options ndots:5 attempts:2", &["ndots:5", "attempts:2"]),
            ("options ndots:1 ndots:5 attempts:2", &["ndots:5", "attempts:2"]),
            (
                "options ndots:1 edns0 attempts:2 single-request-reopen",
                &["edns0", "attempts:2", "single-request-reopen", "ndots:1"],
            ),
            ("options ndots:1\noptions ndots:5 attempts:3", &["ndots:5", "attempts:3"]),
            (
                "options ndots:1 timeout:3 timeout:1 attempts:3\noptions ndots:5",
                &["ndots:5", "timeout:1", "attempts:3"],
            ),
            ("options ndots:1 attempts:3\noptions ndots:1 attempts:3 ndots:5", &["ndots:5", "attempts:3"]),
        ] {
            check(text, &[], &[], options);
        }
        check(
            "nameserver 1.2.3.4\nsearch foo\nnameserver 5.6.7.8\nsearch bar\noptions ndots:5 attempts:4",
            &two,
            &["bar"],
            &["ndots:5", "attempts:4"],
        );
    }

    /// Upstream's 9 cases of `TestFormDNSSearchFitsLimits` and 3 of `TestFormDNSNameserversFitsLimits`.
    #[test]
    fn resolvers_take_no_more() {
        let searches = |list: &[String], expected: &[String]| {
            let mut got = list.to_vec();
            let note = fit_searches(&mut got);
            assert_eq!(got, expected);
            let text = "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: ";
            let text = format!("{text}{}", expected.join(" "));
            let expected = (list != expected).then_some(("DNSConfigForming", text));
            assert_eq!(note, expected);
        };
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let five = words("testNS.svc.TEST svc.TEST TEST AAA BBB");
        let mut long = five.clone();
        long.insert(4, "B".repeat(256));
        let most: Vec<String> = [128].into_iter().chain([127; 15]).map(|n| "A".repeat(n)).collect();
        let more: Vec<String> = most.iter().cloned().chain(["B".to_owned()]).collect();
        let count = |n: u32| (1..=n).map(|n| n.to_string()).collect::<Vec<_>>();
        searches(&five[..3], &five[..3]);
        searches(&five, &five);
        searches(&long, &five);
        searches(&most, &most);
        searches(&more, &most);
        searches(&long, &five);
        let seven = words("testNS.svc.TEST svc.TEST TEST AAA BBB CCC DDD");
        searches(&seven, &seven);
        searches(&count(32), &count(32));
        searches(&count(33), &count(32));

        let servers = |list: &str, expected: &str| {
            let mut got = words(list);
            let note = fit_servers(&mut got);
            assert_eq!((got.join(" "), note.is_some()), (expected.to_owned(), list != expected));
        };
        servers("127.0.0.1", "127.0.0.1");
        servers("127.0.0.1 10.0.0.10 8.8.8.8", "127.0.0.1 10.0.0.10 8.8.8.8");
        servers("127.0.0.1 10.0.0.10 8.8.8.8 1.2.3.4", "127.0.0.1 10.0.0.10 8.8.8.8");
    }

    /// Upstream's 5 cases of `TestGetPodDNSCustom`, the 8 of `TestGetPodDNSType`, the 3 of `TestMergeDNSOptions` and those of
    /// `TestGetPodDNS`. The order of options does not count there.
    #[test]
    fn pods_have_the_resolver_that_their_policy_says() {
        let mut config = Config::new("node");
        config.cluster_domain = "kubernetes.io".into();
        let cluster_dns = vec!["10.0.0.10".parse().unwrap()];
        config.cluster_dns.clone_from(&cluster_dns);
        let host = || parse_resolv_conf("nameserver 8.8.8.8\nsearch host.domain\n");
        let asked = |config: &Config, spec: serde_json::Value| {
            let (mut dns, notes) = pod_dns(&pod(spec), config, host());
            dns.options.sort();
            (
                format!("{} {} {}", dns.servers.join(","), dns.searches.join(","), dns.options.join(",")),
                notes.len(),
            )
        };
        let own = |server: &str, searches: serde_json::Value| {
            json!({"nameservers": [server], "searches": searches,
                "options": [{"name": "ndots", "value": "3"}, {"name": "debug"}]})
        };
        let check = |host_network: bool, policy: &str, own: serde_json::Value, expected: &str| {
            let spec =
                json!({"containers": [], "dnsPolicy": policy, "hostNetwork": host_network, "dnsConfig": own});
            assert_eq!(asked(&config, spec), (expected.to_owned(), 0), "{policy}");
        };
        let none = serde_json::Value::Null;
        let of_cluster = "ns.svc.kubernetes.io,svc.kubernetes.io,kubernetes.io,host.domain";
        check(false, "None", none.clone(), "  ");
        check(
            false,
            "None",
            own("203.0.113.1", json!(["my.domain", "second.domain"])),
            "203.0.113.1 my.domain,second.domain debug,ndots:3",
        );
        let more = || own("10.0.0.11", json!(["my.domain"]));
        let merged = format!("10.0.0.10,10.0.0.11 {of_cluster},my.domain debug,ndots:3");
        check(false, "ClusterFirst", more(), &merged);
        check(true, "ClusterFirstWithHostNet", more(), &merged);
        check(false, "Default", more(), "8.8.8.8,10.0.0.11 host.domain,my.domain debug,ndots:3");

        let plain = format!("10.0.0.10 {of_cluster} ndots:5");
        check(false, "ClusterFirst", none.clone(), &plain);
        check(true, "ClusterFirstWithHostNet", none.clone(), &plain);
        check(false, "ClusterFirstWithHostNet", none.clone(), &plain);
        for host_network in [false, true] {
            check(host_network, "Default", none.clone(), "8.8.8.8 host.domain ");
        }
        check(true, "ClusterFirst", none.clone(), "8.8.8.8 host.domain ");
        check(false, "None", none.clone(), "  ");
        check(false, "invalidPolicy", none.clone(), &plain);

        let options = |of_pod: serde_json::Value, expected: &[&str]| {
            let host =
                pb::DnsConfig { options: vec!["ndots:5".into(), "debug".into()], ..Default::default() };
            let spec = json!({"containers": [], "dnsPolicy": "Default", "dnsConfig": {"options": of_pod}});
            assert_eq!(pod_dns(&pod(spec), &config, host).0.options, expected);
        };
        options(json!([]), &["ndots:5", "debug"]);
        let attempts = json!({"name": "attempts", "value": "3"});
        let merged = ["debug", "single-request", "attempts:3"];
        options(json!([{"name": "single-request"}, attempts]), &[&["ndots:5"], &merged[..]].concat());
        options(
            json!([{"name": "ndots", "value": "3"}, {"name": "debug"}, {"name": "single-request"}, attempts]),
            &[&["ndots:3"], &merged[..]].concat(),
        );

        // Without a file, the node itself is asked; without a server of the cluster, the node's.
        let mut alone = Config::new("node");
        alone.resolv_conf = std::path::PathBuf::new();
        let default = || json!({"containers": [], "dnsPolicy": "Default"});
        assert_eq!(asked(&alone, default()).0, "127.0.0.1 . ");
        alone.node_ips = vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        assert_eq!(asked(&alone, default()).0, "127.0.0.1,::1 . ");
        assert_eq!(asked(&alone, json!({"containers": []})), ("127.0.0.1,::1 . ".into(), 1));
        alone.cluster_dns = cluster_dns;
        let at_first = asked(&alone, json!({"containers": []})).0;
        assert!(at_first.starts_with("10.0.0.10 ns.svc."), "{at_first}");
    }

    /// 11 of upstream's 12 cases of `TestGeneratePodHostNameAndDomain`, whose last is of a feature that is off, and the 4 of
    /// `TestTruncatePodHostname`.
    #[test]
    fn names_and_domains() {
        let check = |of_pod: &str, spec: serde_json::Value, expected: Result<(&str, &str), &str>| {
            let mut pod = pod(spec);
            pod.metadata.name = Some(of_pod.into());
            pod.metadata.namespace = Some("default".into());
            match (hostname(&pod, "cluster.local"), expected) {
                (Ok((name, domain)), Ok(expected)) => assert_eq!((name.as_str(), domain.as_str()), expected),
                (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{error}"),
                (got, expected) => panic!("{got:?} {expected:?}"),
            }
        };
        let domain = "my-subdomain.default.svc.cluster.local";
        let (own, sub) = ("custom-hostname", "my-subdomain");
        check("test-pod", json!({"containers": []}), Ok(("test-pod", "")));
        check("test-pod", json!({"containers": [], "hostname": own}), Ok((own, "")));
        check("test-pod", json!({"containers": [], "subdomain": sub}), Ok(("test-pod", domain)));
        check("test-pod", json!({"containers": [], "hostname": own, "subdomain": sub}), Ok((own, domain)));
        let over = |name: &str| json!({"containers": [], "hostname": own, "subdomain": sub, "hostnameOverride": name});
        check("test-pod", over("override-hostname"), Ok(("override-hostname", "")));
        let text = "pod HostnameOverride \"Invalid-Hostname-!\" is not a valid DNS subdomain";
        check("test-pod", over("Invalid-Hostname-!"), Err(text));
        check("test-pod", over("valid.hostname"), Ok(("valid.hostname", "")));
        check(&"a".repeat(65), json!({"containers": []}), Ok((&"a".repeat(63), "")));
        let text = "pod Hostname \"Invalid-Hostname-!\" is not a valid DNS label";
        check("test-pod", json!({"containers": [], "hostname": "Invalid-Hostname-!"}), Err(text));
        let text = "pod Subdomain \"invalid_subdomain\" is not a valid DNS label";
        check("test-pod", json!({"containers": [], "subdomain": "invalid_subdomain"}), Err(text));
        let text = "must be no more than 63 characters";
        check("test-pod", json!({"containers": [], "hostname": "a".repeat(64)}), Err(text));

        let seven = "1234567.".repeat(7);
        assert_eq!(short("test.pod.hostname"), "test.pod.hostname");
        assert_eq!(short(&"1234567.".repeat(9)), format!("{seven}1234567"));
        assert_eq!(short(&format!("{seven}123456.1234567.")), format!("{seven}123456"));
        assert_eq!(short(&format!("{seven}123456-1234567.")), format!("{seven}123456"));
    }

    /// Upstream's 4 cases of `TestNodeHostsFileContent` and 5 of `TestManagedHostsFileContent`.
    #[test]
    fn hosts_files() {
        let local = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n";
        let aliases: Vec<HostAlias> = serde_json::from_value(json!([
            {"ip": "123.45.67.89", "hostnames": ["foo", "bar", "baz"]},
            {"ip": "456.78.90.123", "hostnames": ["park", "doo", "boo"]}]))
        .unwrap();
        let added = [
            "",
            "\n# Entries added by HostAliases.\n123.45.67.89\tfoo\tbar\tbaz\n",
            "\n# Entries added by HostAliases.\n123.45.67.89\tfoo\tbar\tbaz\n456.78.90.123\tpark\tdoo\tboo\n",
        ];
        for (domain, count) in [("some", 0), ("another", 0), ("some", 1), ("another", 2)] {
            let of_node = format!("# hosts file for testing.\n{local}123.45.67.89\t{domain}.domain\n");
            let expected =
                format!("# Kubernetes-managed hosts file (host network).\n{of_node}{}", added[count]);
            assert_eq!(node_hosts_file(&of_node, &aliases[..count]), expected);
        }
        let check = |ips: &[&str], domain: &str, count: usize, lines: &str| {
            let ips: Vec<String> = ips.iter().map(|ip| (*ip).to_owned()).collect();
            let expected = format!("# Kubernetes-managed hosts file.\n{local}{lines}{}", added[count]);
            assert_eq!(hosts_file(&ips, "podFoo", domain, &aliases[..count]), expected);
        };
        check(&["123.45.67.89"], "", 0, "123.45.67.89\tpodFoo\n");
        let line = "203.0.113.1\tpodFoo.domainFoo\tpodFoo\n";
        for count in [0, 1, 2] {
            check(&["203.0.113.1"], "domainFoo", count, line);
        }
        let both = format!("{line}fd00::6\tpodFoo.domainFoo\tpodFoo\n");
        check(&["203.0.113.1", "fd00::6"], "domainFoo", 0, &both);
    }
}
