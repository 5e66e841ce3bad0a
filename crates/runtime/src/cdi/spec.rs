//! Descriptions of devices by the Container Device Interface.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The directories of descriptions; those of a later one count more.
const DIRECTORIES: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];
/// The longest description, in bytes.
const LONGEST: u64 = 16 << 20;

/// The changes that come with a device.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Edits {
    pub(super) env: Vec<String>,
    pub(super) device_nodes: Vec<Node>,
    pub(super) net_devices: Vec<serde_json::Value>,
    pub(super) hooks: Vec<Hook>,
    pub(super) mounts: Vec<Mount>,
    pub(super) intel_rdt: Option<serde_json::Value>,
    pub(super) additional_gids: Vec<u32>,
}

/// A device's file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Node {
    pub(super) path: String,
    pub(super) host_path: String,
    pub(super) r#type: String,
    pub(super) major: i64,
    pub(super) minor: i64,
    pub(super) file_mode: Option<u32>,
    pub(super) permissions: String,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
}

/// A program that is told of a container's life.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Hook {
    pub(super) hook_name: String,
    pub(super) path: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<String>,
    pub(super) timeout: Option<i64>,
}

/// A mount.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Mount {
    pub(super) host_path: String,
    pub(super) container_path: String,
    pub(super) options: Vec<String>,
    pub(super) r#type: String,
}

/// A device.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Device {
    name: String,
    container_edits: Edits,
}

/// A description: devices of a kind, and what comes with any of them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    cdi_version: String,
    kind: String,
    devices: Vec<Device>,
    container_edits: Edits,
}

/// A device that was found, or why it counts as none.
#[derive(Debug, Clone)]
enum Known {
    One {
        file: PathBuf,
        priority: usize,
        edits: Edits,
    },
    /// Two descriptions of one directory have it.
    Conflict {
        priority: usize,
    },
}

/// All devices that are described.
#[derive(Debug, Clone, Default)]
pub(super) struct Devices {
    known: BTreeMap<String, Known>,
    files: BTreeMap<PathBuf, Edits>,
    faults: Vec<String>,
}

impl Devices {
    /// Reads the descriptions of this machine.
    pub(super) fn load() -> Self {
        Self::from(&DIRECTORIES.map(PathBuf::from))
    }

    fn from(directories: &[PathBuf]) -> Self {
        let mut all = Self::default();
        for (priority, directory) in directories.iter().enumerate() {
            let mut files: Vec<PathBuf> =
                std::fs::read_dir(directory).into_iter().flatten().flatten().map(|e| e.path()).collect();
            files.sort();
            for file in files {
                let kind = file.extension().and_then(|e| e.to_str()).unwrap_or_default();
                if matches!(kind, "json" | "yaml" | "yml")
                    && let Err(why) = all.read(&file, priority)
                {
                    all.faults.push(format!("{}: {why}", file.display()));
                }
            }
        }
        all
    }

    fn read(&mut self, file: &Path, priority: usize) -> Result<(), String> {
        let length = std::fs::metadata(file).map_err(|e| e.to_string())?.len();
        if length > LONGEST {
            return Err("it is too long".to_owned());
        }
        let text = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
        let spec: Spec = if file.extension().is_some_and(|e| e == "json") {
            serde_json::from_str(&text).map_err(|e| e.to_string())?
        } else {
            serde_saphyr::from_str(&text).map_err(|e| e.to_string())?
        };
        if spec.cdi_version.is_empty() || spec.kind.split_once('/').is_none() {
            return Err("it has no version, or no kind VENDOR/CLASS".to_owned());
        }
        for device in spec.devices {
            let name = format!("{}={}", spec.kind, device.name);
            let new = Known::One { file: file.to_owned(), priority, edits: device.container_edits };
            let of = |known: &Known| match known {
                Known::One { priority, .. } | Known::Conflict { priority } => *priority,
            };
            match self.known.get(&name) {
                Some(old) if of(old) == priority => {
                    self.known.insert(name, Known::Conflict { priority });
                }
                _ => {
                    self.known.insert(name, new);
                }
            }
        }
        self.files.insert(file.to_owned(), spec.container_edits);
        Ok(())
    }

    /// The changes that come with these devices: those of each description once, before those of its devices.
    pub(super) fn edits(&self, names: &[String]) -> Result<Vec<Edits>, String> {
        let (mut all, mut seen, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        for name in names {
            match self.known.get(name) {
                Some(Known::One { file, edits, .. }) => {
                    if !seen.contains(file) {
                        seen.push(file.clone());
                        all.extend(self.files.get(file).cloned());
                    }
                    all.push(edits.clone());
                }
                Some(Known::Conflict { .. }) => missing.push(format!("{name} (described twice)")),
                None => missing.push(name.clone()),
            }
        }
        if missing.is_empty() {
            return Ok(all);
        }
        let faults =
            if self.faults.is_empty() { String::new() } else { format!(" ({})", self.faults.join("; ")) };
        Err(format!("unresolvable CDI devices {}{faults}", missing.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions() {
        let dir = tempfile::tempdir().unwrap();
        let (low, high) = (dir.path().join("low"), dir.path().join("high"));
        for at in [&low, &high] {
            std::fs::create_dir(at).unwrap();
        }
        let spec = |env: &str| {
            format!(
                r#"{{"cdiVersion":"0.6.0","kind":"v.com/gpu","containerEdits":{{"env":["ALL=1"]}},"devices":[
                {{"name":"0","containerEdits":{{"env":["{env}"]}}}},
                {{"name":"1","containerEdits":{{"deviceNodes":[{{"path":"/dev/x"}}]}}}}]}}"#
            )
        };
        std::fs::write(low.join("a.json"), spec("A=low")).unwrap();
        std::fs::write(low.join("broken.json"), "{").unwrap();
        std::fs::write(low.join("other.txt"), "x").unwrap();
        std::fs::write(
            high.join("b.yaml"),
            "cdiVersion: 0.6.0\nkind: v.com/gpu\ndevices:\n- name: \"0\"\n  containerEdits:\n    env: [A=high]\n",
        )
        .unwrap();
        let devices = Devices::from(&[low.clone(), high]);
        let names = |all: &[&str]| all.iter().map(|n| format!("v.com/gpu={n}")).collect::<Vec<_>>();
        let env = |all: &[&str]| {
            devices.edits(&names(all)).map(|all| all.iter().flat_map(|e| e.env.clone()).collect::<Vec<_>>())
        };
        assert_eq!(env(&["0"]).unwrap(), ["A=high"]);
        assert_eq!(env(&["1"]).unwrap(), ["ALL=1"]);
        assert_eq!(devices.edits(&names(&["1", "1"])).unwrap().len(), 3, "the description's own part once");
        let said = env(&["7"]).unwrap_err();
        assert!(said.starts_with("unresolvable CDI devices v.com/gpu=7 ("), "{said}");
        std::fs::write(low.join("c.json"), spec("A=again")).unwrap();
        let devices = Devices::from(&[low]);
        assert!(devices.edits(&names(&["0"])).unwrap_err().contains("described twice"));
    }
}
