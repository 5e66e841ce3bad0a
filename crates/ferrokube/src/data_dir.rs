//! The data directory: its owner, its version, and the notes by which `down` removes the rest of a cluster.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::archives;
use crate::footprint::{self, Footprint, Lost, id_of};
use crate::private;

/// The version of the layout that this program writes. It is raised when an older program could not read the layout.
const VERSION: u32 = 1;

/// The directory of archives of images, which may be there before the first start.
pub(crate) const IMAGES: &str = "images";

/// The data directory of a machine's cluster, unless another is chosen.
pub(crate) const DATA_DIR: &str = "/var/lib/ferrokube";

/// Upstream's directory of the kubelet, which manifests of drivers and of device plugins name.
pub(crate) const KUBELET_ROOT: &str = "/var/lib/kubelet";

/// The file in a kubelet's root directory outside that names the data directory of its cluster.
const OWNER: &str = "ferrokube-data-dir";

/// A locked data directory.
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Opens or makes a data directory and locks it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        match fs::DirBuilder::new().recursive(true).mode(0o700).create(path) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                bail!("no permission to make {shown}; run as root or choose another --data-dir")
            }
            Err(e) if e.kind() == ErrorKind::ReadOnlyFilesystem => {
                bail!("{shown} is on a read-only file system; remount it, or choose another --data-dir")
            }
            Err(e) if e.kind() == ErrorKind::StorageFull => {
                bail!("the disk of {shown} is full; free some space, or choose another --data-dir")
            }
            Err(e) if matches!(e.kind(), ErrorKind::AlreadyExists | ErrorKind::NotADirectory) => {
                bail!("{shown} is not a directory; choose another --data-dir")
            }
            Err(e) => return Err(e).with_context(|| format!("the data directory {shown} can't be made")),
        }
        let path = path.canonicalize()?;
        let version = path.join("version");
        match fs::read_to_string(&version) {
            Ok(text) => match text.trim().parse::<u32>() {
                Ok(VERSION) => private::own_directory(&path)?,
                Ok(v) if v > VERSION => bail!(
                    "{shown} was written by a newer FerroKube (layout {v}, this one knows {VERSION}); use that version or another --data-dir"
                ),
                _ => bail!(
                    "{shown} is not a data directory of FerroKube: its version file says {:?}; choose another --data-dir",
                    text.trim()
                ),
            },
            Err(e) if e.kind() == ErrorKind::NotFound => {
                if let Some(lost) = Lost::find(&path)?.filter(Lost::remains) {
                    bail!(
                        "the files of the cluster of {0} were removed while its containers ran, and they still run: remove them with `ferrokube down --data-dir {0}`, and start again",
                        lost.path.display()
                    );
                }
                if has_foreign(&path)? {
                    bail!(
                        "{shown} is not empty and not a data directory of FerroKube; choose another --data-dir"
                    );
                }
                private::own_directory(&path)?;
                fs::write(&version, format!("{VERSION}\n"))
                    .with_context(|| format!("{shown} can't be written to"))?;
            }
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                bail!(
                    "no permission to read {shown}; run as the user it belongs to, or choose another --data-dir"
                )
            }
            Err(e) => return Err(e).with_context(|| format!("{} can't be read", version.display())),
        }
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path.join("lock"))
            .with_context(|| format!("{shown} can't be written to"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                bail!("another FerroKube runs on {shown}; stop it first, or choose another --data-dir")
            }
            Err(TryLockError::Error(e)) => Err(e).with_context(|| format!("{shown} can't be locked")),
        }
    }

    /// The path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the store.
    pub(crate) fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    /// A name for this cluster's things on a shared machine, made from the directory's path.
    pub(crate) fn id(&self) -> String {
        id_of(&self.path)
    }

    /// The directory of the kubelet: this one, made if it is not there; otherwise upstream's for a machine's own cluster,
    /// and a place in the data directory for others.
    ///
    /// # Errors
    /// Another kubelet has it: this one would remove the volumes of Pods that it does not know.
    pub(crate) fn kubelet_root(&self, wanted: Option<&Path>) -> Result<PathBuf> {
        let own = self.path.join("kubelet");
        match wanted {
            Some(wanted) => self.take_kubelet_root(wanted),
            // A machine's own cluster has upstream's directory, unless it was made before that was so, or there is another
            // kubelet.
            None if self.path == Path::new(DATA_DIR) && !own.exists() => {
                Ok(self.take_kubelet_root(Path::new(KUBELET_ROOT)).unwrap_or(own))
            }
            None => Ok(own),
        }
    }

    fn take_kubelet_root(&self, wanted: &Path) -> Result<PathBuf> {
        let shown = wanted.display();
        let unusable = || format!("--root-dir {shown} cannot be used");
        fs::DirBuilder::new().recursive(true).mode(0o750).create(wanted).with_context(unusable)?;
        let (root, owner) = (wanted.canonicalize()?, self.path.as_os_str().as_encoded_bytes());
        let note = root.join(OWNER);
        match fs::read(&note) {
            Ok(known) if known == owner => return Ok(root),
            Ok(known) => bail!(
                "{shown} is the kubelet's of the cluster in {}; choose another --root-dir",
                String::from_utf8_lossy(&known)
            ),
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e).with_context(unusable),
        }
        if fs::read_dir(&root).with_context(unusable)?.next().is_some() {
            bail!("{shown} is not empty, so it may be another kubelet's; choose another --root-dir");
        }
        fs::write(&note, owner).with_context(unusable)?;
        Ok(root)
    }

    /// Writes the list of things made outside.
    pub(crate) fn write_footprint(&self, footprint: &Footprint) -> Result<()> {
        let text = serde_json::to_vec_pretty(footprint)?;
        let new = self.path.join("footprint.json.new");
        fs::write(&new, &text)?;
        fs::rename(new, self.path.join("footprint.json"))?;
        footprint::note(&self.id(), &text)
    }

    /// Reads the list of things made outside.
    pub(crate) fn footprint(&self) -> Result<Footprint> {
        match fs::read(self.path.join("footprint.json")) {
            Ok(text) => serde_json::from_slice(&text).context("footprint.json can't be read"),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Footprint::default()),
            Err(e) => Err(e).context("footprint.json can't be read"),
        }
    }
}

/// Whether a kubelet's root directory is that of the cluster in this data directory.
pub(crate) fn is_owned(root: &Path, data_dir: &Path) -> bool {
    fs::read(root.join(OWNER)).is_ok_and(|owner| owner == data_dir.as_os_str().as_encoded_bytes())
}

/// Whether a directory that no cluster has used yet has anything but archives of images at their place: `down` removes
/// it with all that it holds.
fn has_foreign(path: &Path) -> std::io::Result<bool> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name() != IMAGES || !entry.file_type()?.is_dir() {
            return Ok(true);
        }
        for archive in fs::read_dir(entry.path())? {
            if !archives::is_archive(&archive?.path()) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn refused(dir: &Path) -> String {
        DataDir::open(dir).err().map(|e| e.to_string()).unwrap_or_default()
    }

    #[test]
    fn refuses_what_is_not_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let ours = dir.path().join("ours");
        let open = DataDir::open(&ours).unwrap();
        assert!(refused(&ours).contains("another FerroKube runs on"));
        drop(open);
        DataDir::open(&ours).unwrap();
        fs::write(ours.join("version"), "9\n").unwrap();
        assert!(refused(&ours).contains("written by a newer FerroKube"));
        fs::write(ours.join("version"), "x").unwrap();
        assert!(refused(&ours).contains("is not a data directory of FerroKube"));
        let foreign = dir.path().join("foreign");
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join("file"), "").unwrap();
        fs::set_permissions(&foreign, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(refused(&foreign).contains("is not empty"));
        let images = dir.path().join("new").join(IMAGES);
        fs::create_dir_all(&images).unwrap();
        fs::write(images.join("photo.jpg"), "").unwrap();
        assert!(refused(&dir.path().join("new")).contains("is not empty"));
        fs::rename(images.join("photo.jpg"), images.join("busybox.tar")).unwrap();
        DataDir::open(&dir.path().join("new")).unwrap();
        let mode = |dir: &Path| fs::metadata(dir).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&foreign), 0o755, "a foreign directory is left as it is");
        assert_eq!(mode(&ours), 0o700);
        fs::write(ours.join("version"), format!("{VERSION}\n")).unwrap();
        fs::set_permissions(&ours, fs::Permissions::from_mode(0o755)).unwrap();
        DataDir::open(&ours).unwrap();
        assert_eq!(mode(&ours), 0o700);
    }

    #[test]
    fn a_kubelets_directory_is_one_clusters() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| DataDir::open(&dir.path().join(name)).unwrap();
        let (one, other, root) = (at("one"), at("other"), dir.path().join("kubelet"));
        assert_eq!(one.kubelet_root(None).unwrap(), one.path().join("kubelet"));
        assert_eq!(one.kubelet_root(Some(&root)).unwrap(), root.canonicalize().unwrap());
        one.kubelet_root(Some(&root)).unwrap();
        let why = other.kubelet_root(Some(&root)).unwrap_err().to_string();
        assert!(why.contains(&format!("of the cluster in {}", one.path().display())), "{why}");
        let foreign = dir.path().join("foreign");
        fs::create_dir_all(foreign.join("pods")).unwrap();
        let why = other.kubelet_root(Some(&foreign)).unwrap_err().to_string();
        assert!(why.contains("is not empty"), "{why}");
    }
}
