//! The configuration of admission plugins: upstream's `AdmissionConfiguration` (`--admission-control-config-file`),
//! with the configuration of each plugin in place or in a file beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use api::Node;
use api::codec::json;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The fields of a file whose names are not known.
pub(super) type Unknown = BTreeMap<String, Value>;

/// The reason for which the configuration of admission plugins cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionConfigError {
    /// The file cannot be read.
    #[error("unable to read admission control configuration from {file:?} [{why}]")]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        why: String,
    },
    /// The file holds no `AdmissionConfiguration`.
    #[error("--admission-control-config-file {}: {why}", file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// The reason.
        why: String,
    },
    /// The file of a plugin cannot be read.
    #[error("Couldn't open admission plugin configuration {}: {why}", file.display())]
    Plugin {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        why: String,
    },
}

/// The configuration of each plugin; empty by default.
#[derive(Debug)]
pub struct AdmissionConfig {
    plugins: Vec<Plugin>,
    /// How many seconds a Pod stays on a node that is not ready, and on one that is unreachable, if it does not say
    /// (`--default-not-ready-toleration-seconds`, `--default-unreachable-toleration-seconds`).
    pub toleration_seconds: [i64; 2],
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self { plugins: Vec::new(), toleration_seconds: [300; 2] }
    }
}

#[derive(Debug)]
struct Plugin {
    name: String,
    /// The plugin's configuration, JSON or YAML; `None` if the entry gives none.
    document: Option<Vec<u8>>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    plugins: Option<Vec<Entry>>,
    #[serde(flatten)]
    unknown: Unknown,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    configuration: Option<Value>,
    #[serde(flatten)]
    unknown: Unknown,
}

impl AdmissionConfig {
    /// Reads a configuration and the files that it names; their paths are relative to its directory.
    pub fn from_file(file: &Path) -> Result<Self, AdmissionConfigError> {
        let read = |path: &Path| std::fs::read(path).map_err(|e| e.to_string());
        let text =
            read(file).map_err(|why| AdmissionConfigError::Unreadable { file: file.to_owned(), why })?;
        let invalid = |why| AdmissionConfigError::Invalid { file: file.to_owned(), why };
        let entries = parse(&text).map_err(invalid)?;
        let beside = file.parent().unwrap_or(Path::new(""));
        let mut plugins = Vec::new();
        for entry in entries {
            let path = entry.path.filter(|path| !path.is_empty()).map(|path| beside.join(path));
            let document = match (entry.configuration, path) {
                (Some(configuration), _) => Some(configuration.to_string().into_bytes()),
                (None, Some(path)) => match read(&path) {
                    Ok(text) => Some(text),
                    Err(why) => return Err(AdmissionConfigError::Plugin { file: path, why }),
                },
                (None, None) => None,
            };
            plugins.push(Plugin { name: entry.name.unwrap_or_default(), document });
        }
        Ok(Self { plugins, ..Self::default() })
    }

    /// Returns the configuration of a plugin: of several entries the first counts.
    pub(super) fn of(&self, plugin: &str) -> Option<&[u8]> {
        self.plugins.iter().find(|entry| entry.name == plugin)?.document.as_deref()
    }
}

fn parse(text: &[u8]) -> Result<Vec<Entry>, String> {
    const VERSIONS: [&str; 2] = ["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"];
    let document: Document = document(text, "AdmissionConfiguration", &VERSIONS)?;
    let entries = document.plugins.unwrap_or_default();
    let mut unknown: Vec<String> = document.unknown.into_keys().collect();
    for (i, entry) in entries.iter().enumerate() {
        unknown.extend(entry.unknown.keys().map(|key| format!("plugins[{i}].{key}")));
    }
    strict(&unknown)?;
    Ok(entries)
}

/// Refuses unknown fields.
pub(super) fn strict(unknown: &[String]) -> Result<(), String> {
    if unknown.is_empty() {
        return Ok(());
    }
    let all: Vec<String> =
        unknown.iter().map(|path| format!("unknown field {}", api::go::quote(path))).collect();
    Err(format!("strict decoding error: {}", all.join(", ")))
}

/// Reads a JSON or YAML document of a kind in one of some versions; `T` has neither of the two fields.
pub(super) fn document<T: DeserializeOwned>(text: &[u8], kind: &str, versions: &[&str]) -> Result<T, String> {
    let mut tree = api::yaml::parse(text).map_err(|e| e.to_string())?;
    let written = || {
        let mut out = Vec::new();
        json::encode_any(&tree, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    };
    let text = |name: &str| tree.as_map().and_then(|m| m.get(name)).map_or("", Node::as_str);
    if text("kind").is_empty() {
        return Err(format!("Object 'Kind' is missing in '{}'", written()));
    }
    if text("apiVersion").is_empty() {
        return Err(format!("Object 'apiVersion' is missing in '{}'", written()));
    }
    if text("kind") != kind || !versions.contains(&text("apiVersion")) {
        return Err(format!(
            "no kind {} is registered for version {}",
            api::go::quote(text("kind")),
            api::go::quote(text("apiVersion"))
        ));
    }
    if let Some(map) = tree.as_map_mut() {
        map.remove("kind");
        map.remove("apiVersion");
    }
    let mut out = Vec::new();
    json::encode_any(&tree, &mut out);
    serde_json::from_slice(&out).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, beside: Option<&str>) -> Result<AdmissionConfig, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("admission.yaml");
        std::fs::write(&file, text).unwrap();
        if let Some(text) = beside {
            std::fs::write(dir.path().join("own.yaml"), text).unwrap();
        }
        let dir = format!("{}/", dir.path().display());
        AdmissionConfig::from_file(&file).map_err(|e| e.to_string().replace(&dir, ""))
    }

    #[test]
    fn in_place_or_beside() {
        let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n\
                    - {name: A, configuration: {kind: C}, path: own.yaml}\n- {name: B, path: own.yaml}\n- name: D\n";
        let config = read(text, Some("kind: Own")).unwrap();
        assert_eq!(config.of("A"), Some(br#"{"kind":"C"}"#.as_slice()));
        assert_eq!(config.of("B"), Some(b"kind: Own".as_slice()));
        assert_eq!((config.of("D"), config.of("E")), (None, None));
        assert!(
            read(r#"{"apiVersion":"apiserver.k8s.io/v1alpha1","kind":"AdmissionConfiguration"}"#, None)
                .is_ok()
        );
    }

    #[test]
    fn what_is_refused() {
        let check = |text: &str, want: &str| {
            let why = read(text, None).unwrap_err();
            assert!(why.contains(want), "{text}: {why}");
        };
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n";
        check("kind: AdmissionConfiguration", "Object 'apiVersion' is missing in");
        check("apiVersion: apiserver.config.k8s.io/v1", "Object 'Kind' is missing in");
        check(
            "apiVersion: apiserver.config.k8s.io/v2\nkind: AdmissionConfiguration",
            r#"no kind "AdmissionConfiguration" is registered for version "apiserver.config.k8s.io/v2""#,
        );
        check(&format!("{head}plugin: []"), r#"strict decoding error: unknown field "plugin""#);
        check(&format!("{head}plugins: [{{nam: A}}]"), r#"unknown field "plugins[0].nam""#);
        check(&format!("{head}plugins: [{{name: A, name: B}}]"), "already set in map");
        check(
            &format!("{head}plugins: [{{name: A, path: gone}}]"),
            "Couldn't open admission plugin configuration gone: ",
        );
        check("[", "error converting YAML to JSON");
    }
}
