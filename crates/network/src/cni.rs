//! The CNI configuration.

use std::io::Write;
use std::path::{Path, PathBuf};

use objects::Cidr;
use serde_json::{Value, json};
use thiserror::Error;

/// The configuration's file, whose name comes first among those of other tools.
const FILE: &str = "10-ferrokube.conflist";

/// The reason for which the configuration cannot be written.
#[derive(Debug, Error)]
pub enum CniError {
    /// A pod CIDR is malformed.
    #[error("invalid pod CIDR {0:?}")]
    Cidr(String),
    /// A file cannot be written or removed.
    #[error("{path}")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
}

/// The pod network of one node of one cluster.
#[derive(Debug, Clone)]
pub struct Cni {
    conf_dir: PathBuf,
    data_dir: PathBuf,
    id: String,
}

impl Cni {
    /// `conf_dir` is the directory in which the runtime looks for configurations; `data_dir` is the cluster's own
    /// directory on this node: it tells clusters on one machine apart and keeps the leases.
    pub fn new(conf_dir: impl Into<PathBuf>, data_dir: impl Into<PathBuf>) -> Self {
        let data_dir = data_dir.into();
        let id = format!("{:08x}", fnv1a(data_dir.as_os_str().as_encoded_bytes()) as u32);
        Self { conf_dir: conf_dir.into(), data_dir, id }
    }
    /// The name of the CNI network.
    pub fn network(&self) -> String {
        format!("ferrokube-{}", self.id)
    }
    /// The name of the bridge; interfaces have at most 15 characters.
    pub fn bridge(&self) -> String {
        format!("fk-{}", self.id)
    }
    /// The directory of the leases of addresses.
    pub(crate) fn lease_dir(&self) -> PathBuf {
        self.data_dir.join("cni")
    }

    /// Writes the configuration for these pod CIDRs, one of each IP family at most, unless it is there already. A
    /// reader sees the old one or the new one, never a part.
    pub fn ensure(&self, pod_cidrs: &[String]) -> Result<(), CniError> {
        let config = self.config(pod_cidrs, default_mtu())?;
        let path = self.conf_dir.join(FILE);
        let text = format!("{config:#}\n");
        if std::fs::read(&path).is_ok_and(|old| old == text.as_bytes()) {
            return Ok(());
        }
        let file = |path: &Path, source| CniError::File { path: path.to_owned(), source };
        std::fs::create_dir_all(&self.conf_dir).map_err(|e| file(&self.conf_dir, e))?;
        let temporary = self.conf_dir.join(".ferrokube.tmp");
        let write = || -> std::io::Result<()> {
            let mut out = std::fs::File::create(&temporary)?;
            out.write_all(text.as_bytes())?;
            out.sync_all()?;
            std::fs::rename(&temporary, &path)
        };
        write().map_err(|e| file(&path, e))
    }

    /// Removes the configuration; a missing one is no error.
    pub fn remove(&self) -> Result<(), CniError> {
        let path = self.conf_dir.join(FILE);
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(CniError::File { path, source })
            }
            _ => Ok(()),
        }
    }

    /// Makes the configuration; pure.
    fn config(&self, pod_cidrs: &[String], mtu: Option<u32>) -> Result<Value, CniError> {
        let mut ranges = Vec::new();
        let mut routes = Vec::new();
        for cidr in pod_cidrs {
            let block = cidr.parse::<Cidr>().ok().filter(|block| has_room(*block));
            let block = block.ok_or_else(|| CniError::Cidr(cidr.clone()))?;
            ranges.push(json!([{ "subnet": cidr }]));
            routes.push(json!({ "dst": if block.is_v6() { "::/0" } else { "0.0.0.0/0" } }));
        }
        let mut bridge = json!({
            "type": "bridge",
            "bridge": self.bridge(),
            "isGateway": true,
            "ipMasq": true,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "dataDir": self.lease_dir(),
                "ranges": ranges,
                "routes": routes,
            },
        });
        if let Some(mtu) = mtu {
            bridge["mtu"] = mtu.into();
        }
        Ok(json!({
            "cniVersion": "1.0.0",
            "name": self.network(),
            "plugins": [bridge, { "type": "portmap", "capabilities": { "portMappings": true } }],
        }))
    }
}

/// Whether a subnet has room for a gateway and one Pod.
fn has_room(subnet: Cidr) -> bool {
    subnet.width() - subnet.prefix() >= 2
}

/// Hashes bytes by FNV-1a: short, and the same in every build, since names on the machine depend on it.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// The MTU of the interface of the default route, by which Pods' packets leave.
fn default_mtu() -> Option<u32> {
    let routes = std::fs::read_to_string("/proc/net/route").ok()?;
    let interface = default_interface(&routes)?;
    std::fs::read_to_string(format!("/sys/class/net/{interface}/mtu")).ok()?.trim().parse().ok()
}

fn default_interface(routes: &str) -> Option<&str> {
    routes.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let interface = fields.next()?;
        (fields.next()? == "00000000").then_some(interface)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration() {
        let cni = Cni::new("/etc/cni/net.d", "/var/lib/a");
        let config = cni.config(&["10.244.1.0/24".into(), "fd00::/64".into()], Some(1400)).unwrap();
        assert_eq!(config["plugins"][0]["ipam"]["ranges"][1][0]["subnet"], "fd00::/64");
        assert_eq!(config["plugins"][0]["ipam"]["routes"][1]["dst"], "::/0");
        assert_eq!(config["plugins"][0]["mtu"], 1400);
        assert!(cni.bridge().len() <= 15);
        assert_ne!(cni.bridge(), Cni::new("/etc/cni/net.d", "/var/lib/b").bridge());
        for bad in ["", "10.0.0.0", "10.0.0.0/31", "10.0.0/24", "x/24", "fd00::/127"] {
            assert!(cni.config(&[bad.into()], None).is_err(), "{bad}");
        }
    }

    #[test]
    fn written_once_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let cni = Cni::new(dir.path().join("net.d"), dir.path());
        cni.ensure(&["10.1.0.0/24".into()]).unwrap();
        let path = dir.path().join("net.d").join(FILE);
        let first = std::fs::metadata(&path).unwrap().modified().unwrap();
        cni.ensure(&["10.1.0.0/24".into()]).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), first);
        cni.ensure(&["10.2.0.0/24".into()]).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().contains("10.2.0.0/24"));
        cni.remove().unwrap();
        cni.remove().unwrap();
        assert_eq!(std::fs::read_dir(dir.path().join("net.d")).unwrap().count(), 0);
    }

    #[test]
    fn route_table() {
        let table = "Iface\tDestination\tGateway\n\
                     eth1\t0000A8C0\t00000000\n\
                     eth0\t00000000\t0100000A\n";
        assert_eq!(default_interface(table), Some("eth0"));
        assert_eq!(default_interface("Iface\n"), None);
    }
}
