//! The settings of the cluster that a node needs: kubeadm's ConfigMap `kubeadm-config`, which FerroKube's control plane
//! has, too. Flags count more. Pods ask the Service `kube-dns` if the cluster has one.

use std::net::IpAddr;

use anyhow::{Result, anyhow, bail};
use client::Client;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use serde_json::Value;

use crate::cli;
use crate::cluster_dns;
use crate::joining::{FEATURES_KEY, PARTS_KEY, SETTINGS, SETTINGS_KEY};
use crate::seat::{NodeFeatures, NodeParts};

/// The settings of the cluster.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) cluster_cidr: String,
    pub(super) service_cidrs: Vec<String>,
    /// The parts of a node that run here. On a control plane of another kind they are somebody else's unless asked for.
    pub(super) parts: NodeParts,
    /// The features that are on; none on a control plane of another kind.
    pub(super) features: NodeFeatures,
    /// The address of the cluster's DNS, by flag or by its Service; none: the tenth of the Services' addresses.
    pub(super) cluster_dns: Option<IpAddr>,
}

/// Asks the API server.
pub(super) async fn read(client: &Client, flags: &cli::Agent) -> Result<Settings> {
    let (namespace, name) = SETTINGS;
    let map = match client.api::<ConfigMap>(namespace).get(name).await {
        Ok(map) => map,
        Err(e) if e.is_not_found() || e.code == 403 => ConfigMap::default(),
        Err(e) => return Err(anyhow!("the settings of the cluster cannot be read: {}", e.message)),
    };
    let service = match client.api::<Service>(cluster_dns::NAMESPACE).get(cluster_dns::SERVICE).await {
        Ok(service) => service.spec.and_then(|spec| spec.cluster_ip).and_then(|ip| ip.parse().ok()),
        Err(e) if e.is_not_found() || e.code == 403 => None,
        Err(e) => return Err(anyhow!("the Service of the cluster's DNS cannot be read: {}", e.message)),
    };
    of(&map, service, flags)
}

fn of(map: &ConfigMap, dns: Option<IpAddr>, flags: &cli::Agent) -> Result<Settings> {
    let get = |key: &str| map.data.as_ref().and_then(|d| d.get(key)).map_or("", String::as_str);
    let networking = networking(get(SETTINGS_KEY));
    let told = |key: &str| networking.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let cluster_cidr = flags.cluster_cidr.clone().unwrap_or_else(|| told("podSubnet"));
    let services =
        if flags.service_cidr.is_empty() { told("serviceSubnet") } else { flags.service_cidr.join(",") };
    let services = services.split(',').map(|range| range.trim().to_owned()).filter(|range| !range.is_empty());
    let parts = NodeParts::parse(flags.parts.as_deref().unwrap_or_else(|| get(PARTS_KEY)))
        .map_err(|e| anyhow!("--parts: {e}"))?;
    let cluster_dns = flags.node.cluster_dns.or(dns);
    let features = NodeFeatures::named(get(FEATURES_KEY));
    let settings = Settings { cluster_cidr, service_cidrs: services.collect(), parts, features, cluster_dns };
    if parts.network && settings.cluster_cidr.is_empty() {
        bail!("the cluster does not tell the addresses of its Pods; name them with --cluster-cidr");
    }
    if settings.service_cidrs.is_empty() && parts.dns {
        bail!("the cluster does not tell the addresses of its Services; name them with --service-cidr");
    }
    if settings.service_cidrs.is_empty() && settings.cluster_dns.is_none() {
        bail!(
            "the cluster has no Service kube-dns in kube-system and does not tell the addresses of its Services; name \
             its DNS server with --cluster-dns"
        );
    }
    Ok(settings)
}

/// The field `networking` of a ClusterConfiguration.
fn networking(text: &str) -> Value {
    let Ok(tree) = api::yaml::parse(text.as_bytes()) else { return Value::Null };
    let mut json = Vec::new();
    api::codec::json::encode_any(&tree, &mut json);
    let all: Value = serde_json::from_slice(&json).unwrap_or_default();
    all.get("networking").cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn flags_count_more_than_the_cluster() {
        let asked = |data: &[(&str, &str)], dns: Option<IpAddr>, arguments: &str| {
            let data: BTreeMap<String, String> =
                data.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let map = ConfigMap { data: Some(data), ..ConfigMap::default() };
            let line = format!("ferrokube agent {arguments}");
            let command = Cli::parse_from(line.split(' ').filter(|a| !a.is_empty())).command;
            let Command::Agent(flags) = command else { panic!("another command") };
            of(&map, dns, &flags)
        };
        let check =
            |data: &[(&str, &str)], arguments: &str, expected: Result<(&str, &str, &str), &str>| match (
                asked(data, None, arguments),
                expected,
            ) {
                (Ok(got), Ok(expected)) => {
                    let got = (got.cluster_cidr, got.service_cidrs.join(","), got.parts.names());
                    assert_eq!((got.0.as_str(), got.1.as_str(), got.2.as_str()), expected, "{arguments}");
                }
                (Err(got), Err(expected)) => assert!(got.to_string().contains(expected), "{got}"),
                (got, _) => panic!("{arguments}: {got:?}"),
            };
        let yaml = "networking:\n  podSubnet: 10.1.0.0/16\n  serviceSubnet: 10.2.0.0/16,fd00::/108\n";
        let kubeadm = &[(SETTINGS_KEY, yaml)][..];
        let own = &[(SETTINGS_KEY, yaml), (PARTS_KEY, "network,proxy,dns")][..];
        check(own, "", Ok(("10.1.0.0/16", "10.2.0.0/16,fd00::/108", "network,proxy,dns")));
        check(own, "--parts=", Ok(("10.1.0.0/16", "10.2.0.0/16,fd00::/108", "")));
        check(kubeadm, "", Ok(("10.1.0.0/16", "10.2.0.0/16,fd00::/108", "")));
        check(kubeadm, "--parts network", Ok(("10.1.0.0/16", "10.2.0.0/16,fd00::/108", "network")));
        check(kubeadm, "--cluster-cidr 10.9.0.0/16", Ok(("10.9.0.0/16", "10.2.0.0/16,fd00::/108", "")));
        check(&[], "--cluster-dns 10.2.0.10", Ok(("", "", "")));
        check(&[], "", Err("--cluster-dns"));
        check(&[], "--parts dns --cluster-dns 10.2.0.10", Err("--service-cidr"));
        check(&[], "--cluster-dns 10.2.0.10 --parts network", Err("--cluster-cidr"));
        check(own, "--parts mesh", Err("is no part of a node"));
        check(&[(SETTINGS_KEY, "{")], "", Err("--cluster-dns"));
        let dns = |arguments: &str| asked(&[], "10.3.0.10".parse().ok(), arguments).unwrap().cluster_dns;
        assert_eq!(dns(""), "10.3.0.10".parse().ok());
        assert_eq!(dns("--cluster-dns 10.2.0.10"), "10.2.0.10".parse().ok());
    }
}
