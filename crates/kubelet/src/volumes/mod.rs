//! Volumes of Pods: made before the first container, brought up to date while it runs, removed with it.

pub(crate) mod atomic;
mod claimed;
mod claims;
mod directories;
mod disks;
pub(crate) mod env_file;
mod error;
pub(crate) mod giving;
pub(crate) mod growth;
mod host_path;
mod local;
pub(crate) mod local_path;
mod memory;
mod mounted;
pub(crate) mod mounts;
mod nested;
mod nfs;
mod ownership;
pub(crate) mod payload;
pub(crate) mod selinux;
pub(crate) mod subpath;
pub(crate) mod tokens;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::Client;
use component::Clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod, Volume};
use rustix::mount::MountFlags;
use tokio::time::{Duration, Instant, timeout_at};

use self::claimed::ClaimError;
use self::disks::Disk;
pub(crate) use self::disks::{DiskVolumes, Given as DisksGiven, OwnFilesystem};
pub(crate) use self::error::{MountError, VolumeError};
use self::giving::Giver;
use self::host_path::check_host_path;
pub(crate) use self::mounted::{Mounted, Volumes};
use self::nfs::Export;
use self::ownership::group;
use self::selinux::{Labels, Traits};
use crate::config::Config;
use crate::csi::{CsiVolumes, Published, Wanted};
use crate::metrics::{self, Metrics};
use crate::node::NodeView;
use crate::pod_certificates::PodCertificates;
use crate::pods::downward::Facts;
use crate::pods::spec;
use crate::work::{blocking, try_blocking};
use objects::migration::Plugin;
use objects::quantity::ResourceList;

/// How long the content of volumes that are there already is waited for: containers wait meanwhile for
/// whoever tends them.
const REFRESH: Duration = Duration::from_secs(2);

/// The plugin's directory name, as upstream has it.
pub(crate) fn plugin(volume: &Volume) -> &'static str {
    if volume.empty_dir.is_some() {
        "kubernetes.io~empty-dir"
    } else if volume.config_map.is_some() {
        "kubernetes.io~configmap"
    } else if volume.secret.is_some() {
        "kubernetes.io~secret"
    } else if volume.downward_api.is_some() {
        "kubernetes.io~downward-api"
    } else if volume.nfs.is_some() {
        nfs::PLUGIN
    } else {
        "kubernetes.io~projected"
    }
}

/// Whether a volume's files come from objects, which may change.
fn has_files(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

/// Upstream's name of a volume's plugin.
pub(crate) fn plugin_name(volume: &Volume) -> String {
    let own = volume.csi.as_ref().map(|csi| csi.driver.as_str());
    match own.or_else(|| Plugin::of_inline(volume).map(Plugin::driver)) {
        Some(driver) => format!("kubernetes.io/csi:{driver}"),
        None if volume.host_path.is_some() => "kubernetes.io/host-path".into(),
        None if volume.image.is_some() => "kubernetes.io/image".into(),
        None if volume.iscsi.is_some() => "kubernetes.io/iscsi".into(),
        None if volume.fc.is_some() => "kubernetes.io/fc".into(),
        None if volume.flex_volume.is_some() => {
            volume.flex_volume.as_ref().map(|flex| flex.driver.clone()).unwrap_or_default()
        }
        None if volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() => {
            "kubernetes.io/csi".into()
        }
        None => plugin(volume).replace('~', "/"),
    }
}

/// The volumes that are in a Pod's directory of volumes: their plugins and names.
pub(crate) fn volumes_in(dir: &Path) -> Vec<(String, String)> {
    let names = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter_map(|e| e.file_name().into_string().ok()).collect::<Vec<_>>()
    };
    let of = |plugin: String| {
        let volumes = names(&dir.join(&plugin));
        volumes.into_iter().map(move |volume| (plugin.replace('~', "/"), volume))
    };
    names(dir).into_iter().flat_map(of).collect()
}

/// Makes the volumes of Pods, and removes them.
pub(crate) struct VolumeManager {
    /// Where Pods' directories are.
    pods: PathBuf,
    sources: payload::Sources,
    claims: claims::Claims,
    pub(crate) csi: Arc<CsiVolumes>,
    disks: Arc<DiskVolumes>,
    labels: Arc<Labels>,
    clock: Clock,
    pub(crate) metrics: Metrics,
}

impl VolumeManager {
    /// Asks for tokens and claims with the node's identity.
    pub(crate) fn new(
        config: &Config,
        client: Client,
        clock: Clock,
        sources: payload::Sources,
        (node, giver): (NodeView, Giver),
        (csi, disks, labels): (Arc<CsiVolumes>, Arc<DiskVolumes>, Arc<Labels>),
        metrics: &Metrics,
    ) -> Arc<Self> {
        let drivers = (csi.clone(), disks.clone(), labels.clone());
        let claims = claims::Claims::new(config, (client, clock), node, giver, drivers);
        let metrics = metrics.clone();
        Arc::new(Self { pods: config.pods_dir(), sources, claims, csi, disks, labels, clock, metrics })
    }

    fn pod_dir(&self, uid: &str) -> PathBuf {
        self.pods.join(uid)
    }

    /// The volumes of the node that a Pod has by claims: names, namespaces and claims, and where they are mounted.
    pub(crate) fn local_claims(&self, pod: &Pod) -> Vec<(String, (String, String), PathBuf)> {
        let uid = spec::uid(pod);
        let of = |volume: &Volume| {
            let (claim, _) = objects::volumes::claim_of(spec::name(pod), volume)?;
            let path = self.claims.local(uid, &volume.name)?;
            Some((volume.name.clone(), (spec::namespace(pod).to_owned(), claim), path))
        };
        spec::spec(pod).volumes.iter().flatten().filter_map(of).collect()
    }

    /// The volumes of a Pod that are file systems of their own, which may never answer.
    pub(crate) fn filesystems(&self, pod: &Pod) -> Vec<OwnFilesystem> {
        let uid = spec::uid(pod);
        let of = |volume: &Volume| -> Option<OwnFilesystem> {
            let name = volume.name.clone();
            if volume.nfs.is_some() {
                return Some((name, None, nfs::target(&self.pod_dir(uid), &volume.name)));
            }
            let (claim, _) = objects::volumes::claim_of(spec::name(pod), volume)?;
            let claim = (spec::namespace(pod).to_owned(), claim);
            Some((name, Some(claim), self.claims.nfs(uid, &volume.name)?))
        };
        let volumes = spec::spec(pod).volumes.iter().flatten();
        volumes.filter_map(of).chain(self.disks.filesystems(uid)).collect()
    }

    /// When a Pod's volumes are to be looked at again: a token is to be renewed, or a driver to be asked.
    pub(crate) fn next_renewal(&self, uid: &str) -> Option<Timestamp> {
        let drivers = [self.csi.next(uid), self.disks.next(uid), self.claims.next(uid)];
        let all = drivers.into_iter().chain([self.sources.issuer.next_renewal(uid)]);
        all.flatten().min()
    }

    /// The certificates of Pods.
    pub(crate) fn certificates(&self) -> &PodCertificates {
        &self.sources.certificates
    }

    /// Forgets a Pod's tokens and certificates.
    pub(crate) fn forget(&self, uid: &str) {
        self.sources.issuer.forget(uid);
        self.sources.certificates.forget(uid);
    }

    /// Makes every volume of a Pod that a container uses, or brings it up to date. Answers the volumes, and those that stay as
    /// they were because they could not be brought up to date. `running`: a container of the Pod runs, for
    /// which they were all made.
    ///
    /// # Errors
    /// A volume that was never made cannot be: no container starts without it.
    pub(crate) async fn mount_all(
        &self,
        facts: &Facts<'_>,
        running: bool,
    ) -> Result<(Volumes, Vec<VolumeError>), VolumeError> {
        let (mut volumes, mut stale) = (Volumes::default(), Vec::new());
        let deadline = Instant::now() + REFRESH;
        let used = spec::used_volumes(facts.pod);
        for volume in spec::spec(facts.pod).volumes.iter().flatten() {
            // As upstream's. Images of volumes are pulled all the same.
            if volume.image.is_none() && !used.contains(volume.name.as_str()) {
                continue;
            }
            let error = |error| VolumeError { volume: volume.name.clone(), error };
            let began = Instant::now();
            let made = self.mount(facts, volume, running, deadline).await;
            // A volume that is there already is left alone, but for files, which are brought up to date.
            if !running || has_files(volume) {
                let migrated = self.is_migrated(facts.pod, volume);
                self.did(("volume_mount", migrated), &plugin_name(volume), made.is_ok(), began);
            }
            let (mounted, old) = made.map_err(error)?;
            stale.extend(old.map(error));
            volumes.insert(&volume.name, mounted);
        }
        volumes.groups = self.claims.groups(facts.pod);
        Ok((volumes, stale))
    }

    /// Answers also why the volume could not be brought up to date, if it was made before.
    async fn mount(
        &self,
        facts: &Facts<'_>,
        volume: &Volume,
        running: bool,
        deadline: Instant,
    ) -> Result<(Mounted, Option<MountError>), MountError> {
        let pod = facts.pod;
        if let Some(source) = &volume.host_path {
            let source = source.clone();
            let path = PathBuf::from(&source.path);
            // Containers that run keep the file that they mounted, whatever is at the path by now.
            if !running {
                try_blocking(move || check_host_path(&source)).await?;
            }
            return Ok((Mounted::Path { path, read_only: false, relabel: false }, None));
        }
        if let Some(image) = &volume.image {
            let reference = image.reference.clone().unwrap_or_default();
            return Ok((Mounted::Image { reference, pull_policy: image.pull_policy.clone() }, None));
        }
        if let Some((claim, made)) = objects::volumes::claim_of(spec::name(pod), volume) {
            let mounted = Box::pin(self.claims.mount(pod, volume, (&claim, made), running)).await?;
            return Ok(mounted);
        }
        let migrated = Wanted::inline_migrated(pod, volume);
        let migrated = migrated.map_err(|why| ClaimError::untranslated(&volume.name, &why))?;
        if let Some(wanted) = migrated.or_else(|| Wanted::inline(pod, volume)) {
            let (read_only, now) = (wanted.read_only, self.clock.now());
            let given = self.csi.mount(pod, &volume.name, Arc::new(wanted), running, now);
            let (Published { path, relabel, .. }, stale) = Box::pin(given).await?;
            return Ok((Mounted::Path { path, read_only, relabel }, stale.map(MountError::from)));
        }
        if let Some(disk) = Disk::inline(pod, volume) {
            let disk = Arc::new(disk.map_err(MountError::Source)?);
            let mounted = Box::pin(self.disks.mount(pod, &volume.name, disk, running)).await?;
            return Ok((mounted.0, mounted.1.map(MountError::from)));
        }
        if !running {
            let traits = Traits { name: &volume.name, plugin: "", modes: None, mountable: false };
            self.labels.look(pod, &volume.name, &traits).map_err(MountError::Source)?;
        }
        if let Some(source) = &volume.nfs {
            let read_only = source.read_only.unwrap_or(false);
            let path = nfs::target(&self.pod_dir(spec::uid(pod)), &volume.name);
            Box::pin(Export::new(source, read_only, Vec::new()).mount(&path)).await?;
            return Ok((Mounted::Path { path, read_only, relabel: false }, None));
        }
        let dir = self.pod_dir(spec::uid(pod)).join("volumes").join(plugin(volume)).join(&volume.name);
        let gid = group(pod);
        if let Some(source) = &volume.empty_dir {
            let (source, at) = (source.clone(), dir.clone());
            let space = Space::of(&source, pod, facts.allocatable)?;
            try_blocking(move || empty_dir(&space, &at, gid)).await?;
            return Ok((Mounted::Path { path: dir, read_only: false, relabel: true }, None));
        }
        let in_memory = volume.config_map.is_none();
        let nested = nested::mount_points(&volume.name, pod)?;
        let at = dir.clone();
        let there = blocking(move || is_written(&at, in_memory)).await?;
        let files = self.sources.of_volume(facts, volume);
        let payload = if there {
            timeout_at(deadline, files).await.map_err(|_| MountError::TimedOut)
        } else {
            Ok(files.await)
        };
        let at = dir.clone();
        let written = match payload {
            Err(late) => Err(late),
            Ok(None) => return Err(MountError::NoPlugin),
            Ok(Some(Err(error))) => Err(error.into()),
            Ok(Some(Ok(payload))) => {
                let write = move || Ok(write(&at, in_memory, (&payload, &nested), gid)?);
                try_blocking(write).await
            }
        };
        match written {
            Err(error) if !there => Err(error),
            written => Ok((Mounted::Path { path: dir, read_only: true, relabel: true }, written.err())),
        }
    }

    /// Whether a Pod's volume is written for a plugin from which a driver took over, as far as it is known.
    fn is_migrated(&self, pod: &Pod, volume: &Volume) -> bool {
        Plugin::of_inline(volume).is_some() || self.claims.is_migrated(spec::uid(pod), &volume.name)
    }

    /// Counts work on a volume of a plugin; the operation, and whether a driver took over from another plugin.
    fn did(&self, (operation, migrated): (&str, bool), plugin: &str, done: bool, began: Instant) {
        let migrated = if migrated { "true" } else { "false" };
        let labels = [migrated, operation, if done { "success" } else { "fail-unknown" }, plugin];
        self.metrics.took(&metrics::STORAGE_OPERATION_DURATION_SECONDS, &labels, began.elapsed());
    }

    /// Unmounts and removes a Pod's volumes; what its containers said last stays.
    pub(crate) async fn remove_volumes(&self, uid: &str) -> io::Result<()> {
        let dir = self.pod_dir(uid).join("volumes");
        let began = Instant::now();
        let there = blocking(move || volumes_in(&dir)).await?;
        let removed = self.remove_all(uid).await;
        for (plugin, _) in there {
            self.did(("volume_unmount", false), &plugin, removed.is_ok(), began);
        }
        removed
    }

    async fn remove_all(&self, uid: &str) -> io::Result<()> {
        let dir = self.pod_dir(uid);
        let subpaths = dir.join("volume-subpaths");
        try_blocking(move || mounts::remove_unmounted(&subpaths)).await?;
        // One that cannot be taken back holds up no other.
        let (csi, disks) = (self.csi.tear_down(uid).await, self.disks.tear_down(uid).await);
        csi.and(disks)?;
        let mut parts = ["volumes", "volumeDevices"].into_iter();
        try_blocking(move || parts.try_for_each(|part| mounts::remove_unmounted(&dir.join(part)))).await?;
        self.claims.forget(uid);
        Ok(())
    }

    /// Undoes what an earlier process did for volumes that no Pod has.
    pub(crate) async fn sweep(&self) -> io::Result<()> {
        let (csi, disks) = (self.csi.sweep().await, self.disks.sweep().await);
        csi.and(disks)
    }

    /// Unmounts and removes everything a Pod had on this node.
    pub(crate) async fn remove_pod(&self, uid: &str) -> io::Result<()> {
        self.remove_volumes(uid).await?;
        let dir = self.pod_dir(uid);
        try_blocking(move || mounts::remove_unmounted(&dir)).await?;
        self.claims.forget(uid);
        Ok(())
    }
}

/// Whether a volume of files was made before, whole: its files are switched all at once.
fn is_written(dir: &Path, in_memory: bool) -> bool {
    atomic::is_written(dir) && (!in_memory || mounts::is_mount_point(dir).unwrap_or(false))
}

/// Brings a volume to these files, and to directories for other volumes.
fn write(
    dir: &Path,
    in_memory: bool,
    (payload, nested): (&atomic::Payload, &BTreeSet<String>),
    gid: Option<u32>,
) -> io::Result<()> {
    if in_memory && !mounts::is_mount_point(dir).unwrap_or(false) {
        tmpfs(dir, None)?;
    }
    make_dir(dir, 0o777)?;
    if let Some(gid) = gid {
        own(dir, gid, 0o2777)?;
    }
    for path in nested {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(dir.join(path))?;
    }
    atomic::write(dir, payload, gid).map(drop)
}

fn make_dir(dir: &Path, mode: u32) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let have = fs::metadata(dir)?.permissions().mode() & 0o777;
    if have != mode & 0o777 {
        fs::set_permissions(dir, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Gives a directory to a group, and these bits to those of its mode: memory's sticky one stays.
fn own(path: &Path, gid: u32, bits: u32) -> io::Result<()> {
    chown(path, None, Some(gid))?;
    let mode = fs::metadata(path)?.permissions().mode() & 0o7777 | bits;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

fn tmpfs(dir: &Path, size: Option<i64>) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let size = size.filter(|bytes| *bytes > 0).map(|bytes| format!("size={bytes}"));
    let without: Vec<&str> = size.as_deref().into_iter().collect();
    // Secrets do not belong on a disk. A kernel before 6.4 cannot keep them from there; it is asked once, since each
    // refusal is a line in its log.
    static UNKNOWN: AtomicBool = AtomicBool::new(false);
    if UNKNOWN.load(Ordering::Relaxed) {
        return mount_tmpfs(dir, &without);
    }
    match mount_tmpfs(dir, &[&without[..], &[NO_SWAP]].concat()) {
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
            mount_tmpfs(dir, &without)?;
            UNKNOWN.store(true, Ordering::Relaxed);
            Ok(())
        }
        other => other,
    }
}

/// The option of a volume in memory that is never on a disk.
const NO_SWAP: &str = "noswap";

fn mount_tmpfs(dir: &Path, options: &[&str]) -> io::Result<()> {
    let data = std::ffi::CString::new(options.join(","))?;
    Ok(rustix::mount::mount("tmpfs", dir, "tmpfs", MountFlags::empty(), Some(data.as_c_str()))?)
}

/// Whether volumes in memory never are on a disk, which a mount below `root` tells.
pub(crate) fn keeps_from_swap(root: &Path) -> bool {
    let dir = root.join(format!("tmpfs-noswap-test-{}", std::process::id()));
    let kept = fs::create_dir_all(&dir).and_then(|()| mount_tmpfs(&dir, &[NO_SWAP]));
    if let Err(error) = mounts::remove_unmounted(&dir) {
        tracing::warn!(%error, dir = %dir.display(), "a directory that was to be tried stays");
    }
    kept.is_ok()
}

/// The place of an `emptyDir` volume.
enum Space {
    /// On the node's disk.
    Disk,
    /// In memory, of at most so many bytes.
    Memory(Option<i64>),
    /// In huge pages of this size (`2Mi`).
    Pages(String),
}

impl Space {
    fn of(source: &EmptyDirVolumeSource, pod: &Pod, allocatable: &ResourceList) -> Result<Self, MountError> {
        match source.medium.as_deref().unwrap_or_default() {
            "" => Ok(Self::Disk),
            "Memory" => Ok(Self::Memory(memory::size(source, pod, allocatable))),
            pages if pages.starts_with("HugePages") => Ok(Self::Pages(memory::page_size(pages, pod)?)),
            other => Err(MountError::Medium(other.to_owned())),
        }
    }
}

fn empty_dir(space: &Space, dir: &Path, gid: Option<u32>) -> Result<(), MountError> {
    if dir.is_dir() && (matches!(space, Space::Disk) || mounts::is_mount_point(dir)?) {
        return Ok(());
    }
    match space {
        Space::Disk => {}
        Space::Memory(size) => tmpfs(dir, *size)?,
        Space::Pages(size) => {
            fs::create_dir_all(dir)?;
            let data = std::ffi::CString::new(format!("pagesize={size}"))?;
            rustix::mount::mount("nodev", dir, "hugetlbfs", MountFlags::empty(), Some(data.as_c_str()))
                .map_err(io::Error::from)?;
        }
    }
    make_dir(dir, 0o777)?;
    if let Some(gid) = gid {
        own(dir, gid, 0o2777)?;
    }
    Ok(())
}

/// Closes the directory of all Pods' files to the node's other users: files in it have the modes that
/// containers are to see.
pub(crate) fn close(config: &crate::Config) -> Result<(), (PathBuf, io::Error)> {
    let pods = config.pods_dir();
    fs::set_permissions(&pods, fs::Permissions::from_mode(0o750)).map_err(|error| (pods, error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_group_gets_a_directory_with_its_other_bits() {
        let dir = tempfile::tempdir().unwrap();
        let check = |had: u32, has: u32| {
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(had)).unwrap();
            own(dir.path(), 123, 0o2777).unwrap();
            let found = fs::metadata(dir.path()).unwrap();
            assert_eq!((found.permissions().mode() & 0o7777, found.gid()), (has, 123), "{had:o}");
        };
        check(0o777, 0o2777);
        check(0o700, 0o2777);
        // A tmpfs is made so.
        check(0o1777, 0o3777);
    }

    /// A volume of files has directories for the volumes that containers mount in it, also after its files changed.
    #[test]
    fn volumes_of_files_have_room_for_others() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("volume");
        let nested = BTreeSet::from(["a/b".to_owned(), "c".to_owned()]);
        for text in ["1", "2"] {
            let file = atomic::File { data: text.into(), mode: 0o644, owner: None };
            let payload = atomic::Payload::from([("f".to_owned(), file)]);
            write(&dir, false, (&payload, &nested), None).unwrap();
            assert_eq!(fs::read_to_string(dir.join("f")).unwrap(), text);
            assert!(dir.join("a/b").is_dir() && dir.join("c").is_dir());
        }
    }
}
