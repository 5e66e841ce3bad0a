//! The kubelet's configuration file: upstream's KubeletConfiguration, by the rule for settings.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use component::Table;
use k8s_openapi::api::core::v1::Taint;
use serde::Deserialize;
use serde_json::{Map, Value};

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";

/// The fields that are not honoured.
const TABLE: &str = include_str!("kubelet_configuration.tsv");

/// The objects whose fields are settings of their own.
const GROUPS: [&str; 9] = [
    "authentication",
    "authentication.anonymous",
    "authentication.webhook",
    "authentication.x509",
    "authorization",
    "authorization.webhook",
    "crashLoopBackOff",
    "logging",
    "memorySwap",
];

/// The fields that are honoured, by their paths.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct Settings {
    pub(super) address: Option<IpAddr>,
    pub(super) port: Option<u16>,
    pub(super) tls_cert_file: PathBuf,
    pub(super) tls_private_key_file: PathBuf,
    #[serde(rename = "authentication.x509.clientCAFile")]
    pub(super) client_ca_file: PathBuf,
    pub(super) pod_logs_dir: Option<PathBuf>,
    pub(super) container_runtime_endpoint: Option<String>,
    #[serde(rename = "serverTLSBootstrap")]
    pub(super) server_tls_bootstrap: bool,
    #[serde(rename = "clusterDNS")]
    pub(super) cluster_dns: Vec<IpAddr>,
    pub(super) cluster_domain: Option<String>,
    pub(super) resolv_conf: Option<PathBuf>,
    pub(super) cgroup_root: Option<String>,
    pub(super) max_pods: Option<u32>,
    pub(super) max_parallel_image_pulls: Option<usize>,
    pub(super) image_pull_credentials_verification_policy: Option<String>,
    pub(super) preloaded_images_verification_allowlist: Vec<String>,
    pub(super) container_log_max_size: Option<String>,
    pub(super) container_log_max_files: Option<u32>,
    pub(super) eviction_hard: BTreeMap<String, String>,
    pub(super) register_with_taints: Vec<Taint>,
}

/// Reads a file; the settings, and a sentence for each that has no effect here.
pub(super) fn read(path: &Path) -> Result<(Settings, Vec<String>)> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> Result<(Settings, Vec<String>)> {
    let tree = api::yaml::parse(text.as_bytes()).map_err(|e| anyhow!("{e}"))?;
    let mut json = Vec::new();
    api::codec::json::encode_any(&tree, &mut json);
    let Value::Object(mut all) = serde_json::from_slice(&json)? else { bail!("it is no object") };
    let (version, kind) = (all.remove("apiVersion"), all.remove("kind"));
    let text = |value: &Option<Value>| value.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
    if text(&version) != API_VERSION || text(&kind) != KIND {
        let (version, kind) = (text(&version), text(&kind));
        bail!("no kind {kind:?} is registered for version {version:?}; a {KIND} of {API_VERSION} is wanted");
    }
    let table = Table::parse(TABLE).map_err(|line| anyhow!("line {line} of the table is none"))?;
    let (mut honoured, mut warnings) = (Map::new(), Vec::new());
    sift(&table, "", all, &mut honoured, &mut warnings)?;
    let settings = serde_json::from_value(Value::Object(honoured))?;
    Ok((settings, warnings))
}

/// Judges each field of an object at a path; what is honoured is left in `honoured` by its path.
fn sift(
    table: &Table,
    at: &str,
    fields: Map<String, Value>,
    honoured: &mut Map<String, Value>,
    warnings: &mut Vec<String>,
) -> Result<()> {
    for (name, value) in fields {
        let path = if at.is_empty() { name } else { format!("{at}.{name}") };
        let text = match &value {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        match value {
            Value::Object(below) if GROUPS.contains(&path.as_str()) => {
                sift(table, &path, below, honoured, warnings)?;
            }
            value => {
                if let Some(verdict) = table.judge(&path, &path, &text) {
                    warnings.extend(verdict?);
                } else {
                    known(&path, &value)?;
                    honoured.insert(path, value);
                }
            }
        }
    }
    Ok(())
}

/// Refuses a field that there is not, and a value that the field does not take.
fn known(path: &str, value: &Value) -> Result<()> {
    let alone = Map::from_iter([(path.to_owned(), value.clone())]);
    match serde_json::from_value::<Settings>(Value::Object(alone)) {
        Ok(_) => Ok(()),
        Err(e) if e.to_string().starts_with("unknown field") => {
            bail!("strict decoding error: unknown field {path:?}")
        }
        Err(e) => Err(e).with_context(|| path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fields: &str, expected: Result<&Settings, &str>, warned: &[&str]) {
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}");
        match (parse(&text), expected) {
            (Ok((settings, warnings)), Ok(expected)) => {
                assert_eq!(
                    (&settings, warnings),
                    (expected, warned.iter().map(|w| (*w).to_owned()).collect())
                );
            }
            (Err(e), Err(expected)) => assert_eq!(format!("{e:#}"), expected, "{fields}"),
            (got, _) => panic!("{fields}: {got:?}"),
        }
    }

    #[test]
    fn fields_are_honoured_told_of_or_refused() {
        let none = Settings::default();
        check("", Ok(&none), &[]);
        let set = Settings {
            max_pods: Some(7),
            client_ca_file: "/ca".into(),
            cluster_dns: vec!["10.96.0.10".parse().unwrap()],
            eviction_hard: BTreeMap::from([("memory.available".to_owned(), "1Gi".to_owned())]),
            ..Settings::default()
        };
        check(
            "maxPods: 7\nclusterDNS: [10.96.0.10]\nevictionHard: {memory.available: 1Gi}\n\
             authentication: {x509: {clientCAFile: /ca}, anonymous: {enabled: false}, webhook: {enabled: true}}\n",
            Ok(&set),
            &[],
        );
        let qps = "kubeAPIQPS has no effect here: the API server says when it is busy";
        check("kubeAPIQPS: 9\nhealthzPort: 0\nproviderID: \"\"\nstaticPodPath: null\n", Ok(&none), &[qps]);
        let refused = "authentication.anonymous.enabled=true cannot be had: nobody is served without a name; leave it out";
        check("authentication: {anonymous: {enabled: true}}\n", Err(refused), &[]);
        let always = "authorization.mode=AlwaysAllow cannot be had: the API server is always asked who may do what; leave it out";
        check("authorization: {mode: AlwaysAllow}\n", Err(always), &[]);
        let pods = "staticPodPath=/m cannot be had: static Pods are not there yet; leave it out";
        check("staticPodPath: /m\n", Err(pods), &[]);
        check("maxPod: 7\n", Err("strict decoding error: unknown field \"maxPod\""), &[]);
        let x509 = "strict decoding error: unknown field \"authentication.x509.x\"";
        check("authentication: {x509: {x: 1}}\n", Err(x509), &[]);
        check("maxPods: many\n", Err("maxPods: invalid type: string \"many\", expected u32"), &[]);
    }

    #[test]
    fn other_kinds_are_refused() {
        let error = parse("apiVersion: v1\nkind: Pod\n").unwrap_err().to_string();
        assert!(error.starts_with("no kind \"Pod\" is registered for version \"v1\""), "{error}");
        assert!(parse("- 1\n").is_err() && parse(": {").is_err() && parse("").is_err());
    }

    /// Each field of v1.36 has its rule: 125 of them, some of which are groups.
    #[test]
    fn every_field_has_its_rule() {
        let table = Table::parse(TABLE).unwrap();
        let all: std::collections::BTreeSet<&str> =
            table.names().map(|n| n.split('.').next().unwrap_or(n)).collect();
        let honoured = 19;
        assert_eq!(all.len() + honoured, 125);
    }
}
