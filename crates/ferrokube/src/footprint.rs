//! The things that a cluster made outside its data directory: noted there, and below `/run` for the day on which somebody
//! removes that directory by hand while its containers run.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::cli::CgroupDriver;
use crate::marks::Marks;

/// The directory in which the clusters of this machine leave notes and claims, emptied when it starts.
pub(crate) const DIR: &str = "/run/ferrokube";

/// The things that a cluster made outside its data directory, so that `down` finds them also after a crash.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Footprint {
    /// The runtime's socket, "" if the cluster has no node.
    pub(crate) runtime_endpoint: String,
    /// Whether that is the built-in runtime.
    pub(crate) built_in: bool,
    /// The maker of the cgroups of that one's containers.
    pub(crate) cgroup_driver: CgroupDriver,
    /// The directory of the CNI configuration.
    pub(crate) cni_conf_dir: PathBuf,
    /// The directory of the CNI plugin.
    pub(crate) cni_bin_dir: PathBuf,
    /// The kubelet's root directory; "" in notes of older versions, which had it in the data directory. Where a cluster
    /// has several nodes on this machine, the place at which each has its own.
    pub(crate) kubelet_root: PathBuf,
    /// The parent cgroup of Pods.
    pub(crate) cgroup_root: String,
    /// The kubeconfig, if it is outside the data directory.
    pub(crate) kubeconfig: PathBuf,
    /// The node's name.
    pub(crate) node_name: String,
    /// The Pods' range.
    pub(crate) cluster_cidr: String,
    /// The addresses of the cluster's DNS, which this machine has.
    pub(crate) dns: Vec<IpAddr>,
}

impl Footprint {
    /// The root directory of the kubelet of the cluster in this directory.
    pub(crate) fn kubelet_root(&self, data_dir: &Path) -> PathBuf {
        if self.kubelet_root.as_os_str().is_empty() {
            data_dir.join("kubelet")
        } else {
            self.kubelet_root.clone()
        }
    }

    /// The marks of the processes of this machine's node.
    pub(crate) fn marks(&self) -> Marks {
        let cgroups = match self.cgroup_root.trim_matches('/') {
            "" => Vec::new(),
            root => kubelet::teardown::root_cgroups(root).to_vec(),
        };
        Marks { namespaces: Vec::new(), cgroups }
    }
}

/// The name of the cluster whose data directory has this path, without links.
pub(crate) fn id_of(path: &Path) -> String {
    let mut hash: u32 = 0x811c_9dc5;
    for b in path.as_os_str().as_encoded_bytes() {
        hash = (hash ^ u32::from(*b)).wrapping_mul(0x0100_0193);
    }
    format!("{hash:08x}")
}

/// The file below [`DIR`] with a cluster's footprint.
fn file(id: &str) -> PathBuf {
    Path::new(DIR).join(format!("{id}.footprint"))
}

/// Notes a cluster's footprint outside its data directory, too.
pub(crate) fn note(id: &str, footprint: &[u8]) -> Result<()> {
    let path = file(id);
    let failed = || format!("{} can't be written; run as root", path.display());
    DirBuilder::new().recursive(true).mode(0o700).create(DIR).with_context(failed)?;
    let new = path.with_extension("footprint-new");
    fs::write(&new, footprint).with_context(failed)?;
    fs::rename(new, &path).with_context(failed)
}

/// Forgets a cluster's footprint, once all of it is removed.
pub(crate) fn forget(id: &str) -> Result<()> {
    match fs::remove_file(file(id)) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e).context("its footprint can't be removed"),
        _ => Ok(()),
    }
}

/// Whether a cluster other than this one has its kubelets' directory at a path.
pub(crate) fn is_root_of_another(id: &str, root: &Path) -> bool {
    is_in_notes(Path::new(DIR), &file(id), root)
}

/// Whether a note in a directory, but for one of them, has a path as the kubelets' directory.
fn is_in_notes(dir: &Path, but: &Path, root: &Path) -> bool {
    let notes = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut others = notes.filter(|note| note != but && note.extension().is_some_and(|e| e == "footprint"));
    others.any(|note| {
        let Ok(text) = fs::read(note) else { return false };
        // One that cannot be understood may have it.
        serde_json::from_slice::<Footprint>(&text).map_or(true, |other| other.kubelet_root == root)
    })
}

/// The directory of the files that keep the namespaces of a cluster's nodes.
pub(crate) fn namespaces(id: &str) -> PathBuf {
    Path::new(DIR).join(format!("nodes-{id}"))
}

/// A cluster without its data directory.
#[derive(Debug)]
pub(crate) struct Lost {
    /// The path at which that was.
    pub(crate) path: PathBuf,
    pub(crate) id: String,
    pub(crate) footprint: Footprint,
}

impl Lost {
    /// Finds the cluster whose data directory was there.
    ///
    /// # Errors
    /// Its footprint cannot be read.
    pub(crate) fn find(path: &Path) -> Result<Option<Self>> {
        let path = without_links(path)?;
        if path.join("version").exists() {
            return Ok(None);
        }
        let id = id_of(&path);
        match fs::read(file(&id)) {
            Ok(text) => {
                let footprint = serde_json::from_slice(&text)
                    .with_context(|| format!("{} can't be read; remove it", file(&id).display()))?;
                Ok(Some(Self { path, id, footprint }))
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| format!("{} can't be read", file(&id).display())),
        }
    }

    /// Whether containers of it, or its nodes, are still there.
    pub(crate) fn remains(&self) -> bool {
        self.footprint.marks().any() || namespaces(&self.id).exists()
    }
}

/// A path without links, of which the last part need not be there.
fn without_links(path: &Path) -> Result<PathBuf> {
    if let Ok(whole) = path.canonicalize() {
        return Ok(whole);
    }
    let path = std::path::absolute(path)?;
    match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(parent)), Some(name)) => Ok(parent.join(name)),
        _ => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_what_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        let link = real.join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let check = |path: PathBuf, expected: PathBuf| assert_eq!(without_links(&path).unwrap(), expected);
        check(link.clone(), real.clone());
        check(link.join("gone"), real.join("gone"));
        check(link.join("gone/deeper"), link.join("gone/deeper"));
        check("gone".into(), std::env::current_dir().unwrap().join("gone"));
    }

    #[test]
    fn only_a_directory_without_a_cluster_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Lost::find(dir.path()).unwrap().is_none());
        let id = id_of(&dir.path().canonicalize().unwrap());
        let text = serde_json::to_vec(&Footprint { node_name: "n".into(), ..Footprint::default() }).unwrap();
        note(&id, &text).unwrap();
        let lost = Lost::find(dir.path()).unwrap().unwrap();
        assert_eq!((lost.footprint.node_name.as_str(), lost.remains()), ("n", false));
        fs::write(dir.path().join("version"), "1").unwrap();
        assert!(Lost::find(dir.path()).unwrap().is_none());
        forget(&id).unwrap();
        forget(&id).unwrap();
        fs::remove_file(dir.path().join("version")).unwrap();
        assert!(Lost::find(dir.path()).unwrap().is_none());
    }

    #[test]
    fn kubelets_share_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (own, root) = (dir.path().join("own.footprint"), Path::new("/var/lib/kubelet"));
        let check = |name: &str, text: &str, expected: bool| {
            let note = dir.path().join(name);
            fs::write(&note, text).unwrap();
            assert_eq!(is_in_notes(dir.path(), &own, root), expected, "{name} {text}");
            fs::remove_file(note).unwrap();
        };
        let same = r#"{"kubeletRoot": "/var/lib/kubelet"}"#;
        check("own.footprint", same, false);
        check("other.footprint", same, true);
        check("other.json", same, false);
        check("other.footprint", r#"{"kubeletRoot": "/data/kubelet"}"#, false);
        check("other.footprint", "{}", false);
        check("other.footprint", "no note", true);
        assert!(!is_in_notes(&dir.path().join("none"), &own, root));
    }
}
