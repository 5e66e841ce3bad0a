//! The names and places of a cluster's pod network on a machine, and what a runtime finds there: the plugin and its
//! configuration.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use thiserror::Error;

use crate::loopback;

/// The configuration's file.
const FILE: &str = "10-ferrokube.conflist";

/// A file of the pod network that cannot be written or removed.
#[derive(Debug, Error)]
#[error("{path}: {source}")]
pub struct PlaceError {
    path: PathBuf,
    source: io::Error,
}

impl PlaceError {
    fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { path: path.to_owned(), source }
    }
}

/// The state of the configuration after it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Installed {
    /// The runtime uses this network.
    Ours,
    /// The directory has another configuration, which wins.
    Foreign(PathBuf),
}

/// The pod network of one node of one cluster.
#[derive(Debug, Clone)]
pub struct Place {
    conf_dir: PathBuf,
    bin_dir: PathBuf,
    data_dir: PathBuf,
    run_dir: PathBuf,
    id: String,
}

impl Place {
    /// `conf_dir` and `bin_dir` are the directories in which the runtime looks for configurations and plugins;
    /// `data_dir` is the cluster's own directory on this node, which tells clusters on one machine apart; `run_dir` is
    /// emptied when the machine starts.
    pub fn new(
        conf_dir: impl Into<PathBuf>,
        bin_dir: impl Into<PathBuf>,
        data_dir: impl Into<PathBuf>,
        run_dir: impl Into<PathBuf>,
    ) -> Self {
        let data_dir = data_dir.into();
        let id = format!("{:08x}", fnv1a(data_dir.as_os_str().as_encoded_bytes()) as u32);
        Self { conf_dir: conf_dir.into(), bin_dir: bin_dir.into(), data_dir, run_dir: run_dir.into(), id }
    }
    /// The name of the CNI network, of its plugin, and of the table of the packet filter.
    pub fn name(&self) -> String {
        format!("ferrokube-{}", self.id)
    }
    /// The beginning of the names of the node's links to its Pods.
    pub fn links(&self) -> String {
        format!("fk-{}", self.id)
    }
    /// The name of the node's link to the Pod with this number; interfaces have at most 15 characters.
    pub(crate) fn link(&self, number: u16) -> String {
        format!("{}{number:04x}", self.links())
    }
    /// The directory of the attachments' records.
    pub(crate) fn records(&self) -> PathBuf {
        self.data_dir.join("network")
    }
    /// The file with the routes to other nodes' Pods that are there, or are about to be.
    fn routes_file(&self) -> PathBuf {
        self.data_dir.join("network-routes")
    }
    /// The networks of the routes to other nodes' Pods that this cluster may have made.
    pub(crate) fn routes(&self) -> BTreeSet<String> {
        let text = std::fs::read_to_string(self.routes_file()).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }
    /// Writes them down.
    pub(crate) fn write_routes(&self, networks: &BTreeSet<String>) -> io::Result<()> {
        if self.routes() == *networks {
            return Ok(());
        }
        let text: String = networks.iter().flat_map(|network| [network.as_str(), "\n"]).collect();
        let new = self.data_dir.join("network-routes.new");
        std::fs::write(&new, text)?;
        std::fs::rename(new, self.routes_file())
    }
    /// The directory of the leases of addresses that a bridged network of an older version has.
    pub(crate) fn leases(&self) -> PathBuf {
        self.data_dir.join("cni")
    }
    /// The agent's socket. It is not below the data directory: the path of a socket has at most 107 bytes.
    pub(crate) fn socket(&self) -> PathBuf {
        self.run_dir.join(format!("network-{}.sock", self.id))
    }
    fn config_file(&self) -> PathBuf {
        self.conf_dir.join(FILE)
    }
    fn plugin_file(&self) -> PathBuf {
        self.bin_dir.join(self.name())
    }

    /// Writes the plugin and the configuration unless they are there, or another configuration is. A reader sees the
    /// old one or the new one, never a part.
    pub fn install(&self) -> Result<Installed, PlaceError> {
        if let Some(other) = self.foreign() {
            remove_file(&self.config_file())?;
            return Ok(Installed::Foreign(other));
        }
        let program = std::env::current_exe().map_err(PlaceError::at(Path::new("/proc/self/exe")))?;
        std::fs::create_dir_all(&self.bin_dir).map_err(PlaceError::at(&self.bin_dir))?;
        self.link_program(&self.plugin_file(), &program)?;
        let loopback = self.bin_dir.join(loopback::NAME);
        // One that works is left as it is.
        if !loopback.exists() {
            self.link_program(&loopback, &program)?;
        }
        let path = self.config_file();
        let text = format!("{:#}\n", self.config());
        if !std::fs::read(&path).is_ok_and(|old| old == text.as_bytes()) {
            std::fs::create_dir_all(&self.conf_dir).map_err(PlaceError::at(&self.conf_dir))?;
            let new = self.conf_dir.join(".ferrokube.tmp");
            let written = std::fs::write(&new, text);
            written.and_then(|()| std::fs::rename(&new, &path)).map_err(PlaceError::at(&path))?;
        }
        Ok(Installed::Ours)
    }

    /// Whether the directory has another configuration, for a runtime that needs no plugin of this network.
    pub fn without_plugin(&self) -> Installed {
        self.foreign().map_or(Installed::Ours, Installed::Foreign)
    }

    /// Removes the configuration and the plugin; missing ones are no error.
    pub fn remove(&self) -> Result<(), PlaceError> {
        // The configuration first: a runtime must not look for a plugin that is gone.
        remove_file(&self.config_file())?;
        let program = std::fs::read_link(self.plugin_file()).ok();
        remove_file(&self.plugin_file())?;
        let loopback = self.bin_dir.join(loopback::NAME);
        let ours = program.is_some() && std::fs::read_link(&loopback).ok() == program;
        if ours && !self.is_shared() {
            remove_file(&loopback)?;
        }
        remove_file(&self.routes_file())?;
        remove_file(&self.socket())
    }

    /// Makes a file of the plugins' directory this program, in one step.
    fn link_program(&self, file: &Path, program: &Path) -> Result<(), PlaceError> {
        if std::fs::read_link(file).is_ok_and(|old| old == program) {
            return Ok(());
        }
        let new = self.bin_dir.join(format!(".{}.new", self.name()));
        remove_file(&new)?;
        let link = std::os::unix::fs::symlink(program, &new);
        link.and_then(|()| std::fs::rename(&new, file)).map_err(PlaceError::at(file))
    }

    /// Whether another cluster has its plugin in the same directory.
    fn is_shared(&self) -> bool {
        let entries = std::fs::read_dir(&self.bin_dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name()).any(|name| name.as_encoded_bytes().starts_with(b"ferrokube-"))
    }

    /// The first configuration of somebody else, in the order in which runtimes take them.
    fn foreign(&self) -> Option<PathBuf> {
        let entries = std::fs::read_dir(&self.conf_dir).ok()?;
        let is_config = |path: &PathBuf| {
            let kind = path.extension().and_then(|e| e.to_str());
            matches!(kind, Some("conf" | "conflist" | "json")) && !path.ends_with(FILE)
        };
        entries.flatten().map(|entry| entry.path()).filter(is_config).min()
    }

    /// Makes the configuration; pure.
    fn config(&self) -> Value {
        json!({
            "cniVersion": "1.0.0",
            "cniVersions": ["0.4.0", "1.0.0", "1.1.0"],
            "name": self.name(),
            "plugins": [{
                "type": self.name(),
                "socket": self.socket(),
                "capabilities": { "portMappings": true, "bandwidth": true },
            }],
        })
    }
}

/// Removes a file; none is no error.
fn remove_file(path: &Path) -> Result<(), PlaceError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(PlaceError::at(path)(error)),
        _ => Ok(()),
    }
}

/// Hashes bytes by FNV-1a: short, and the same in every build, since names on the machine depend on it.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(dir: &Path) -> Place {
        Place::new(dir.join("net.d"), dir.join("bin"), dir, dir.join("run"))
    }

    #[test]
    fn names() {
        let of = |dir: &str| Place::new("/etc/cni/net.d", "/opt/cni/bin", dir, "/run/ferrokube");
        let (one, two) = (of("/var/lib/a"), of("/var/lib/b"));
        assert_eq!(one.link(u16::MAX).len(), 15);
        assert_ne!(one.links(), two.links());
        assert_eq!(one.config()["plugins"][0]["type"], one.name());
        assert!(one.socket().as_os_str().len() < 107);
    }

    #[test]
    fn written_once_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let place = place(dir.path());
        assert_eq!(place.install().unwrap(), Installed::Ours);
        let plugin = place.plugin_file();
        assert_eq!(std::fs::read_link(&plugin).unwrap(), std::env::current_exe().unwrap());
        let first = std::fs::metadata(place.config_file()).unwrap().modified().unwrap();
        std::fs::remove_file(&plugin).unwrap();
        std::os::unix::fs::symlink("/gone", &plugin).unwrap();
        assert_eq!(place.install().unwrap(), Installed::Ours);
        assert_eq!(std::fs::read_link(&plugin).unwrap(), std::env::current_exe().unwrap());
        assert_eq!(std::fs::metadata(place.config_file()).unwrap().modified().unwrap(), first);
        std::fs::write(place.config_file(), "{").unwrap();
        place.install().unwrap();
        assert!(std::fs::read_to_string(place.config_file()).unwrap().contains("portMappings"));
        let other = Place::new(dir.path().join("other.d"), dir.path().join("bin"), "/other", dir.path());
        other.install().unwrap();
        other.remove().unwrap();
        assert!(dir.path().join("bin/loopback").exists(), "the first one needs it");
        place.remove().unwrap();
        place.remove().unwrap();
        for name in ["net.d", "bin"] {
            assert_eq!(std::fs::read_dir(dir.path().join(name)).unwrap().count(), 0, "{name}");
        }
    }

    #[test]
    fn another_configuration_wins() {
        let dir = tempfile::tempdir().unwrap();
        let place = place(dir.path());
        place.install().unwrap();
        for name in ["20-b.conf", "10-calico.conflist", "00-notes.txt"] {
            std::fs::write(dir.path().join("net.d").join(name), "{}").unwrap();
        }
        let first = dir.path().join("net.d/10-calico.conflist");
        assert_eq!(place.install().unwrap(), Installed::Foreign(first));
        assert!(!place.config_file().exists());
    }
}
