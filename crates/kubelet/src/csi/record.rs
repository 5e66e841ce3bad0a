//! The files in which a volume's names are kept beside it, so that another process can undo what this one did; upstream's
//! names and form.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The name of the file.
const FILE: &str = "vol_data.json";
/// The longest file that is read.
const MOST: u64 = 1 << 16;

/// The file's content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Record {
    /// The name of the VolumeAttachment.
    #[serde(rename = "attachmentID", skip_serializing_if = "String::is_empty")]
    pub(crate) attachment_id: String,
    /// The driver.
    pub(crate) driver_name: String,
    /// The node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) node_name: String,
    /// The SELinux label with which it is mounted.
    #[serde(rename = "seLinuxMountContext", skip_serializing_if = "String::is_empty")]
    pub(crate) label: String,
    /// The name of the PersistentVolume, or of the Pod's volume.
    #[serde(rename = "specVolID", skip_serializing_if = "String::is_empty")]
    pub(crate) spec_vol_id: String,
    /// The driver's name of the volume.
    pub(crate) volume_handle: String,
    /// `Persistent` or `Ephemeral`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) volume_lifecycle_mode: String,
}

impl Record {
    /// Writes it into a directory, in one step.
    pub(crate) fn save(&self, dir: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec(self).map_err(io::Error::other)?;
        text.push(b'\n');
        let new = dir.join(format!(".{FILE}.new"));
        fs::write(&new, text)?;
        fs::rename(&new, dir.join(FILE))
    }

    /// Reads that of a directory; none where there is none.
    ///
    /// # Errors
    /// It cannot be read or understood.
    pub(crate) fn load(dir: &Path) -> io::Result<Option<Self>> {
        use std::io::Read;
        let file = match fs::File::open(dir.join(FILE)) {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            file => file?,
        };
        let mut text = Vec::new();
        file.take(MOST).read_to_end(&mut text)?;
        let record = serde_json::from_slice(&text).map_err(|error| {
            io::Error::other(format!(
                "failed to parse volume data file [{}]: {error}",
                dir.join(FILE).display()
            ))
        })?;
        Ok(Some(record))
    }

    /// Removes that of a directory.
    pub(crate) fn remove(dir: &Path) -> io::Result<()> {
        unless_missing(fs::remove_file(dir.join(FILE)))
    }

    /// Whether it is of this volume.
    pub(crate) fn is_of(&self, driver: &str, handle: &str) -> bool {
        self.driver_name == driver && self.volume_handle == handle
    }
}

/// A missing thing is as good as a removed one.
pub(crate) fn unless_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Makes a directory for the kubelet alone and its group, with those above it.
pub(crate) fn make_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o750).create(dir)
}

fn sha256(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(64);
    for byte in Sha256::digest(text.as_bytes()) {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

/// The name of the VolumeAttachment of a volume and a node; upstream's.
pub(crate) fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    format!("csi-{}", sha256(&format!("{handle}{driver}{node}")))
}

/// The name that a driver is given of an inline volume; upstream's.
pub(crate) fn inline_handle(pod_uid: &str, volume: &str) -> String {
    format!("csi-{}", sha256(&format!("{pod_uid}{volume}")))
}

/// Where the volumes of drivers are on the node; upstream's places.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// The kubelet's root directory.
    pub(crate) root: PathBuf,
}

impl Places {
    fn plugin(&self) -> PathBuf {
        self.root.join("plugins/kubernetes.io/csi")
    }
    /// The directory that has the record of a staged volume.
    pub(crate) fn staged(&self, driver: &str, handle: &str) -> PathBuf {
        self.plugin().join(driver).join(sha256(handle))
    }
    /// The directories with records of staged volumes that there are.
    pub(crate) fn all_staged(&self) -> io::Result<Vec<PathBuf>> {
        let mut all = Vec::new();
        for driver in names(&self.plugin())?.into_iter().filter(|d| !d.ends_with("volumeDevices")) {
            all.extend(names(&driver)?);
        }
        Ok(all)
    }
    /// The directory of all block volumes.
    pub(crate) fn devices(&self) -> PathBuf {
        self.plugin().join("volumeDevices")
    }
    /// The directory of a block volume's data.
    pub(crate) fn device(&self, name: &str) -> PathBuf {
        self.devices().join(name)
    }
    /// The directory in which a driver stages a block volume.
    pub(crate) fn device_staged(&self, name: &str) -> PathBuf {
        self.devices().join("staging").join(name)
    }
    /// The directory in which a driver publishes a block volume to Pods.
    pub(crate) fn device_published(&self, name: &str) -> PathBuf {
        self.devices().join("publish").join(name)
    }
    /// The directory of all Pods.
    pub(crate) fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }
    /// The directory of a Pod's volumes of drivers.
    pub(crate) fn volumes(&self, uid: &str) -> PathBuf {
        self.pods().join(uid).join("volumes/kubernetes.io~csi")
    }
    /// The directory of a Pod's volume. A volume that a Pod names itself may have a name with slashes, which become tildes;
    /// upstream's rule (`EscapeQualifiedName`).
    pub(crate) fn volume(&self, uid: &str, name: &str) -> PathBuf {
        // No name leads out of the directory of the driver's volumes, whoever let it pass.
        match name {
            "" | "." | ".." => self.volumes(uid).join("~"),
            _ => self.volumes(uid).join(name.replace('/', "~")),
        }
    }
    /// The directory of a Pod's devices.
    pub(crate) fn pod_devices(&self, uid: &str) -> PathBuf {
        self.pods().join(uid).join("volumeDevices/kubernetes.io~csi")
    }

    /// The Pods that have a volume of a driver, by their records; a Pod with a record that cannot be read has it, too.
    pub(crate) fn users(&self, driver: &str, handle: &str) -> io::Result<Vec<String>> {
        Ok(self.records(driver, handle)?.into_iter().map(|(uid, _)| uid).collect())
    }

    /// The Pods that have a volume of a driver, each once, with its record of the volume; none if it cannot be read.
    pub(crate) fn records(&self, driver: &str, handle: &str) -> io::Result<Vec<(String, Option<Record>)>> {
        let mut users = Vec::new();
        for pod in names(&self.pods())? {
            let Some(uid) = pod.file_name().and_then(|n| n.to_str()) else { continue };
            let of = names(&self.volumes(uid))?.into_iter().find_map(|volume| match Record::load(&volume) {
                Err(_) => Some(None),
                Ok(record) => record.filter(|r| r.is_of(driver, handle)).map(Some),
            });
            users.extend(of.map(|record| (uid.to_owned(), record)));
        }
        Ok(users)
    }
}

/// The paths in a directory; none where there is none.
pub(crate) fn names(dir: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(dir) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_upstreams() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Record::load(dir.path()).unwrap(), None);
        let record = Record {
            driver_name: "d".into(),
            volume_handle: "h".into(),
            spec_vol_id: "pv".into(),
            attachment_id: "csi-1".into(),
            node_name: "n".into(),
            label: "u:r:t:s0:c1,c2".into(),
            volume_lifecycle_mode: "Persistent".into(),
        };
        record.save(dir.path()).unwrap();
        let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
        let expected = r#"{"attachmentID":"csi-1","driverName":"d","nodeName":"n","seLinuxMountContext":"u:r:t:s0:c1,c2","specVolID":"pv","volumeHandle":"h","volumeLifecycleMode":"Persistent"}"#;
        assert_eq!(text, format!("{expected}\n"));
        assert_eq!(Record::load(dir.path()).unwrap(), Some(record));
        fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(Record::load(dir.path()).is_err());
        // A record of another process has fields that this one does not know.
        fs::write(dir.path().join(FILE), r#"{"driverName":"d","volumeHandle":"h","other":"x"}"#).unwrap();
        assert!(Record::load(dir.path()).unwrap().unwrap().is_of("d", "h"));
        Record::remove(dir.path()).unwrap();
        Record::remove(dir.path()).unwrap();
    }

    #[test]
    fn no_name_leads_elsewhere() {
        let places = Places { root: "/r".into() };
        let at = places.volume("u", "/subscriptions/../disks/d");
        assert_eq!(at, PathBuf::from("/r/pods/u/volumes/kubernetes.io~csi/~subscriptions~..~disks~d"));
        for name in ["", ".", ".."] {
            assert_eq!(places.volume("u", name), PathBuf::from("/r/pods/u/volumes/kubernetes.io~csi/~"));
        }
    }

    #[test]
    fn users_of_a_volume() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places { root: dir.path().to_owned() };
        assert!(places.users("d", "h").unwrap().is_empty());
        for (uid, handle) in [("a", "h"), ("b", "other"), ("c", "h")] {
            let at = places.volumes(uid).join("pv");
            make_dir(&at).unwrap();
            let record =
                Record { driver_name: "d".into(), volume_handle: handle.into(), ..Record::default() };
            record.save(&at).unwrap();
        }
        let mut users = places.users("d", "h").unwrap();
        users.sort();
        assert_eq!(users, ["a", "c"]);
        fs::write(places.volumes("b").join("pv").join(FILE), "{").unwrap();
        assert_eq!(places.users("d", "h").unwrap().len(), 3, "what cannot be read may be of the volume");
    }

    #[test]
    fn names_are_upstreams() {
        // The names that upstream's functions give for these.
        assert!(attachment_name("vol", "driver", "node").starts_with("csi-"));
        assert_eq!(attachment_name("", "", ""), format!("csi-{}", sha256("")));
        assert_eq!(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
