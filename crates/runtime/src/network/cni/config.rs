//! Configurations of networks, and the input of each plugin; pure but for reading the directory.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// The longest configuration, in bytes.
const LONGEST: u64 = 4 << 20;
/// The version of a configuration that names none.
const OLDEST: &str = "0.1.0";

/// A directory without a usable configuration.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConfigError {
    /// There is none.
    #[error("no network config found in {0}")]
    None(PathBuf),
    /// A file cannot be read.
    #[error("{path} cannot be read: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: io::Error,
    },
    /// A file makes no sense.
    #[error("{path} is no configuration of CNI: {why}")]
    Bad {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
}

/// A network: plugins that are called one after the other.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Config {
    /// The network's name.
    pub(super) name: String,
    /// The version of the specification.
    pub(super) version: String,
    /// The plugins' own configurations.
    pub(super) plugins: Vec<Map<String, Value>>,
}

impl Config {
    /// The configuration of the first file that has one, by the order of the files' names.
    pub(super) fn load(dir: &Path) -> Result<Self, ConfigError> {
        let none = || ConfigError::None(dir.to_owned());
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ConfigError::Io { path, source }
        };
        let entries = match std::fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(none()),
            other => other.map_err(failed(dir))?,
        };
        let is_config = |path: &PathBuf| {
            matches!(path.extension().and_then(|e| e.to_str()), Some("conf" | "conflist" | "json"))
        };
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_config).collect();
        files.sort();
        let mut first = None;
        for path in files {
            let length = std::fs::metadata(&path).map_err(failed(&path))?.len();
            let read = if length > LONGEST { Ok(Vec::new()) } else { std::fs::read(&path) };
            match Self::parse(&read.map_err(failed(&path))?) {
                Ok(config) => return Ok(config),
                // A broken file leaves the place to the next one; if there is none, it is told.
                Err(why) => {
                    first.get_or_insert(ConfigError::Bad { path, why });
                }
            }
        }
        Err(first.unwrap_or_else(none))
    }

    /// Reads a list of plugins, or a single one.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        Self::of(value)
    }

    fn of(value: Value) -> Result<Self, String> {
        let Value::Object(mut object) = value else { return Err("it is no object".to_owned()) };
        let text = |object: &Map<String, Value>, key: &str| {
            object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let name = text(&object, "name");
        if name.is_empty() {
            return Err("it has no name".to_owned());
        }
        let mut version = text(&object, "cniVersion");
        // A list may name several versions: the newest that this runtime speaks counts.
        if let Some(all) = object.get("cniVersions").and_then(Value::as_array) {
            let known = all.iter().filter_map(Value::as_str).filter(|v| number(v) <= number("1.1.0"));
            if let Some(newest) = known.max_by_key(|v| number(v)) {
                newest.clone_into(&mut version);
            }
        }
        if version.is_empty() {
            OLDEST.clone_into(&mut version);
        }
        let plugins = match object.remove("plugins") {
            None => vec![Value::Object(object)],
            Some(Value::Array(all)) => all,
            Some(_) => return Err("its plugins are no list".to_owned()),
        };
        let read = |plugin: Value| match plugin {
            Value::Object(plugin) if is_program(plugin.get("type")) => Ok(plugin),
            _ => Err("a plugin has no type, or one that is no program's name".to_owned()),
        };
        let plugins: Vec<_> = plugins.into_iter().map(read).collect::<Result<_, String>>()?;
        if plugins.is_empty() {
            Err("it has no plugins".to_owned())
        } else {
            Ok(Self { name, version, plugins })
        }
    }

    /// The form that is kept with an attachment.
    pub(super) fn to_value(&self) -> Value {
        json!({ "name": self.name, "cniVersion": self.version, "plugins": self.plugins })
    }

    /// Reads that form.
    pub(super) fn of_value(value: &Value) -> Result<Self, String> {
        Self::of(value.clone())
    }

    /// Whether the version is at least this one.
    pub(super) fn is_at_least(&self, version: &str) -> bool {
        number(&self.version) >= number(version)
    }

    /// The input of a plugin: its configuration with the network's name and version, what it can do of what is asked
    /// (`capabilities`), the result of the plugin before it, and further entries.
    pub(super) fn input(
        &self,
        plugin: &Map<String, Value>,
        asked: &Map<String, Value>,
        previous: Option<&Value>,
        more: &[(&str, Value)],
    ) -> Value {
        let mut input = plugin.clone();
        input.insert("name".to_owned(), self.name.clone().into());
        input.insert("cniVersion".to_owned(), self.version.clone().into());
        let can = |name: &str| plugin.get("capabilities").and_then(|all| all[name].as_bool()) == Some(true);
        let given: Map<String, Value> =
            asked.iter().filter(|(name, _)| can(name)).map(|(k, v)| (k.clone(), v.clone())).collect();
        input.remove("capabilities");
        if !given.is_empty() {
            input.insert("runtimeConfig".to_owned(), given.into());
        }
        if let Some(previous) = previous {
            input.insert("prevResult".to_owned(), previous.clone());
        }
        for (name, value) in more {
            input.insert((*name).to_owned(), value.clone());
        }
        input.into()
    }
}

/// A type is the name of a program in a directory of plugins, never a path.
fn is_program(kind: Option<&Value>) -> bool {
    let name = kind.and_then(Value::as_str).unwrap_or_default();
    !name.is_empty() && !name.contains('/') && name != "." && name != ".."
}

fn number(version: &str) -> [u32; 3] {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    [parts.next().unwrap_or(0), parts.next().unwrap_or(0), parts.next().unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files() {
        let dir = tempfile::tempdir().unwrap();
        let load = || Config::load(dir.path()).map(|config| config.name).map_err(|e| e.to_string());
        assert!(load().unwrap_err().starts_with("no network config found in "));
        assert!(Config::load(&dir.path().join("none")).is_err());
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("90.conf", r#"{"name":"last","type":"bridge"}"#);
        write("README", "x");
        assert_eq!(load().unwrap(), "last");
        write("10.conflist", "{");
        assert_eq!(load().unwrap(), "last", "a broken file is passed over");
        write("10.conflist", r#"{"cniVersion":"1.0.0","name":"first","plugins":[{"type":"ptp"}]}"#);
        assert_eq!(load().unwrap(), "first");
    }

    #[test]
    fn nonsense() {
        for text in [
            "[]",
            r#"{"name":"a"}"#,
            r#"{"name":"","type":"x"}"#,
            r#"{"name":"a","type":"../x"}"#,
            r#"{"name":"a","plugins":[]}"#,
            r#"{"name":"a","plugins":3}"#,
            r#"{"name":"a","plugins":[{}]}"#,
        ] {
            assert!(Config::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn inputs() {
        let text = r#"{"cniVersion":"0.4.0","cniVersions":["0.4.0","1.1.0","9.0.0"],"name":"n","plugins":[
            {"type":"a","capabilities":{"portMappings":true,"dns":false},"own":1},{"type":"b"}]}"#;
        let config = Config::parse(text.as_bytes()).unwrap();
        assert!(config.is_at_least("1.1.0") && !config.is_at_least("1.2.0"));
        let asked = json!({"portMappings": [1], "dns": {}});
        let asked = asked.as_object().unwrap();
        let input = config.input(&config.plugins[0], asked, None, &[]);
        assert_eq!(
            input,
            json!({"type": "a", "own": 1, "name": "n", "cniVersion": "1.1.0", "runtimeConfig": {"portMappings": [1]}})
        );
        let previous = json!({"ips": []});
        let input = config.input(&config.plugins[1], asked, Some(&previous), &[("x", 1.into())]);
        assert_eq!(
            input,
            json!({"type": "b", "name": "n", "cniVersion": "1.1.0", "prevResult": {"ips": []}, "x": 1})
        );
        assert_eq!(Config::of_value(&config.to_value()).unwrap(), config);
    }
}
