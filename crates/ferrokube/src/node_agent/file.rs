//! The kubelet's configuration file: upstream's KubeletConfiguration, by the rule for settings.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use component::Table;
use serde_json::{Map, Value};

use super::settings::Settings;

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
    "memorySwap",
    "userNamespaces",
];

/// Reads the file of `--config`, the parts of `--config-dir`, and the fields that flags were given for, which count most;
/// the settings, and a sentence for each that has no effect here.
pub(super) fn read(
    file: Option<&Path>,
    parts: Option<&Path>,
    flags: &Map<String, Value>,
) -> Result<(Settings, Vec<String>)> {
    let mut all = Map::new();
    if let Some(path) = file {
        all = object(path).context("--config cannot be used")?;
    }
    if let Some(dir) = parts {
        for path in parts_of(dir).with_context(|| format!("--config-dir {} cannot be used", dir.display()))? {
            let part = object(&path).context("--config-dir cannot be used")?;
            merge(&mut all, part);
        }
    }
    let (mut honoured, warnings) = honoured(all)?;
    honoured.extend(flags.clone());
    Ok((serde_json::from_value(Value::Object(honoured))?, warnings))
}

/// The files of a directory and of those in it that end in `.conf`, in the order of their names.
fn parts_of(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            all.extend(parts_of(&path)?);
        } else if path.extension().is_some_and(|e| e == "conf") {
            all.push(path);
        }
    }
    all.sort();
    Ok(all)
}

/// Puts what a part says into the place of what was said before: objects are merged, everything else is replaced.
fn merge(all: &mut Map<String, Value>, part: Map<String, Value>) {
    for (key, value) in part {
        match (all.get_mut(&key), value) {
            (_, Value::Null) => drop(all.remove(&key)),
            (Some(Value::Object(before)), Value::Object(after)) => merge(before, after),
            (_, value) => drop(all.insert(key, value)),
        }
    }
}

/// The fields of a file.
fn object(path: &Path) -> Result<Map<String, Value>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> Result<Map<String, Value>> {
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
    Ok(all)
}

/// The fields that are honoured, by their paths, and a sentence for each that has no effect here.
fn honoured(all: Map<String, Value>) -> Result<(Map<String, Value>, Vec<String>)> {
    let table = Table::parse(TABLE).map_err(|line| anyhow!("line {line} of the table is none"))?;
    let (mut honoured, mut warnings) = (Map::new(), Vec::new());
    sift(&table, "", all, &mut honoured, &mut warnings)?;
    Ok((honoured, warnings))
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
                    // Some of these have no effect, but not just any value.
                    if is_known(&path, &value)? {
                        honoured.insert(path, value);
                    }
                } else if is_known(&path, &value)? {
                    honoured.insert(path, value);
                } else {
                    bail!("strict decoding error: unknown field {path:?}");
                }
            }
        }
    }
    Ok(())
}

/// Whether there is a field that is read.
///
/// # Errors
/// It does not take the value.
fn is_known(path: &str, value: &Value) -> Result<bool> {
    let alone = Map::from_iter([(path.to_owned(), value.clone())]);
    match serde_json::from_value::<Settings>(Value::Object(alone)) {
        Ok(_) => Ok(true),
        // Not one below it.
        Err(e) if e.to_string().starts_with(&format!("unknown field `{path}`")) => Ok(false),
        Err(e) => Err(e).with_context(|| path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::super::settings::ReservedMemory;
    use super::*;

    fn read_text(text: &str) -> Result<(Settings, Vec<String>)> {
        let (honoured, warnings) = honoured(parse(text)?)?;
        Ok((serde_json::from_value(Value::Object(honoured))?, warnings))
    }

    #[test]
    fn parts_and_flags_count_more_than_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, fields: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}")).unwrap();
            path
        };
        let file = write(
            "kubelet.yaml",
            "maxPods: 1\nport: 1\nclusterDNS: [1.1.1.1, 2.2.2.2]\nevictionHard: {pid.available: \"5\"}\n",
        );
        write("parts/20.conf", "maxPods: 3\nport: 3\nevictionHard: {memory.available: 1Gi}\n");
        write("parts/10.conf", "maxPods: 2\nclusterDNS: [3.3.3.3]\n");
        write("parts/30/below.conf", "cgroupRoot: /x\n");
        write("parts/99.yaml", "maxPods: 9\n");
        let flags = Map::from_iter([("port".to_owned(), json!(4))]);
        let parts = dir.path().join("parts");
        let (got, _) = read(Some(&file), Some(&parts), &flags).unwrap();
        assert_eq!((got.max_pods, got.port, got.cgroup_root.as_deref()), (Some(3), Some(4), Some("/x")));
        assert_eq!(got.cluster_dns, ["3.3.3.3".parse::<std::net::IpAddr>().unwrap()]);
        let hard = got.eviction_hard.unwrap();
        assert_eq!((hard["pid.available"].as_str(), hard["memory.available"].as_str()), ("5", "1Gi"));
        std::fs::write(parts.join("40.conf"), "maxPods: 5\n").unwrap();
        let error = read(Some(&file), Some(&parts), &flags).unwrap_err();
        assert!(format!("{error:#}").contains("40.conf"), "{error:#}");
        assert!(read(None, Some(&dir.path().join("missing")), &flags).is_err());
        assert_eq!(read(None, None, &flags).unwrap().0.port, Some(4));
    }

    fn check(fields: &str, expected: Result<&Settings, &str>, warned: &[&str]) {
        let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}");
        match (read_text(&text), expected) {
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
            token_webhook: Some(true),
            cluster_dns: vec!["10.96.0.10".parse().unwrap()],
            eviction_hard: Some(BTreeMap::from([("memory.available".to_owned(), "1Gi".to_owned())])),
            ..Settings::default()
        };
        check(
            "maxPods: 7\nclusterDNS: [10.96.0.10]\nevictionHard: {memory.available: 1Gi}\n\
             authentication: {x509: {clientCAFile: /ca}, anonymous: {enabled: false}, webhook: {enabled: true}}\n",
            Ok(&set),
            &[],
        );
        let qps = "kubeAPIQPS has no effect here: the API server says when it is busy";
        let (told, read) = ("kubeAPIQPS: 9\n", Settings { kube_api_qps: Some(9), ..Settings::default() });
        check(&format!("{told}tracing: null\nstaticPodPath: null\n"), Ok(&read), &[qps]);
        let open = Settings {
            anonymous: true,
            token_webhook: Some(false),
            authorization_mode: Some("AlwaysAllow".into()),
            ..Settings::default()
        };
        check(
            "authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n",
            Ok(&open),
            &[],
        );
        let traces = "tracing={\"endpoint\":\"a\"} cannot be had: traces are not there yet; leave it out";
        check("tracing: {endpoint: a}\n", Err(traces), &[]);
        let reserved = Settings {
            reserved_memory: vec![ReservedMemory {
                numa_node: 1,
                limits: BTreeMap::from([("memory".to_owned(), json!("1Gi"))]),
            }],
            ..Settings::default()
        };
        check("reservedMemory: [{numaNode: 1, limits: {memory: 1Gi}}]\n", Ok(&reserved), &[]);
        check("maxPod: 7\n", Err("strict decoding error: unknown field \"maxPod\""), &[]);
        let x509 = "strict decoding error: unknown field \"authentication.x509.x\"";
        check("authentication: {x509: {x: 1}}\n", Err(x509), &[]);
        check("maxPods: many\n", Err("maxPods: invalid type: string \"many\", expected i32"), &[]);
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
        let honoured = 19 + 15 + 5 + 22 + 28 + 14 + 9;
        assert_eq!(all.len() + honoured, 125);
    }
}
