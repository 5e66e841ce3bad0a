//! Volumes that Pods have by claims: found when they are first needed, mounted, and given to the Pod's group.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::Client;
use component::Clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::claimed::{self, ClaimError, Claimed, Named, Source};
use super::directories::Directories;
use super::disks::{Disk, DiskVolumes, is_block_device};
use super::error::MountError;
use super::giving::{Giver, ownership};
use super::host_path::check_host_path;
use super::mounted::Mounted;
use super::selinux::{Labels, Traits};
use super::{local, mounts, nfs};
use crate::csi::{CsiVolumes, Published};
use crate::node::NodeView;
use crate::pods::spec;
use crate::work::try_blocking;
use objects::volumes;

/// The time for which an answer of the API server is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether the volume of a running Pod is to grow. Upstream does so with each sync of the Pod, about
/// as often.
const PERIOD: Duration = Duration::from_mins(1);

/// A volume that is set up.
#[derive(Clone)]
struct Known {
    claimed: Arc<Claimed>,
    /// When it is to be looked at again; never, if its growth is nothing to this module.
    next: Option<Timestamp>,
}

/// The volumes that Pods have by claims.
pub(crate) struct Claims {
    client: Client,
    node: NodeView,
    giver: Giver,
    /// Volumes of drivers.
    csi: Arc<CsiVolumes>,
    /// Volumes that the host's tools provide.
    disks: Arc<DiskVolumes>,
    labels: Arc<Labels>,
    clock: Clock,
    /// The directory of all Pods' files.
    pods: PathBuf,
    /// The directory of the node's own volumes.
    own: Option<String>,
    /// The volumes that are set up, by the uids of Pods and by name.
    known: Mutex<HashMap<String, HashMap<String, Known>>>,
    /// Those that are directories of the node.
    directories: Directories,
}

impl Claims {
    pub(super) fn new(
        config: &crate::Config,
        (client, clock): (Client, Clock),
        node: NodeView,
        giver: Giver,
        (csi, disks, labels): (Arc<CsiVolumes>, Arc<DiskVolumes>, Arc<Labels>),
    ) -> Self {
        let own = config.local_volumes.as_ref().map(|path| path.to_string_lossy().into_owned());
        let (pods, known) = (config.pods_dir(), Mutex::default());
        let recorder = giver.recorder.clone();
        let directories = Directories::new(client.clone(), recorder, clock, &config.node_name);
        Self { client, node, giver, csi, disks, labels, clock, pods, own, known, directories }
    }

    /// Forgets the volumes of a Pod.
    pub(super) fn forget(&self, uid: &str) {
        let mut known = self.known.lock();
        let gone = known.remove(uid).unwrap_or_default();
        for Known { claimed, .. } in gone.values() {
            let others = known.values().flat_map(HashMap::values).any(|k| k.claimed.name == claimed.name);
            if !others {
                self.directories.forget(&claimed.name);
            }
        }
    }

    /// When a volume of a Pod is to be looked at again.
    pub(super) fn next(&self, uid: &str) -> Option<Timestamp> {
        self.known.lock().get(uid)?.values().filter_map(|known| known.next).min()
    }

    /// The place of a Pod's volume that is one of the node's own.
    pub(super) fn local(&self, uid: &str, volume: &str) -> Option<PathBuf> {
        let Known { claimed, .. } = self.known.lock().get(uid)?.get(volume)?.clone();
        let local = matches!(claimed.source, Source::Local { .. });
        local.then(|| local::target(&self.pods.join(uid), &claimed.name))
    }

    /// The place of a Pod's volume that is an NFS server's.
    pub(super) fn nfs(&self, uid: &str, volume: &str) -> Option<PathBuf> {
        let Known { claimed, .. } = self.known.lock().get(uid)?.get(volume)?.clone();
        let nfs = matches!(claimed.source, Source::Nfs(_));
        nfs.then(|| nfs::target(&self.pods.join(uid), &claimed.name))
    }

    /// The groups that own a Pod's volumes, but for those that the Pod names itself.
    pub(super) fn groups(&self, pod: &Pod) -> BTreeSet<i64> {
        let known = self.known.lock();
        let all = known.get(spec::uid(pod)).into_iter().flat_map(HashMap::values);
        claimed::groups_beside(pod, all.filter_map(|known| known.claimed.group))
    }

    /// Whether a Pod's volume is one of a plugin from which a driver took over.
    pub(super) fn is_migrated(&self, uid: &str, volume: &str) -> bool {
        let known = self.known.lock();
        let known = known.get(uid).and_then(|volumes| volumes.get(volume));
        known.is_some_and(|k| matches!(&k.claimed.source, Source::Csi(wanted) if wanted.migrated))
    }

    /// Sets up the volume of a claim, or finds it as it is. `running`: containers use it. Answers also why it could not
    /// be brought up to date.
    pub(super) async fn mount(
        &self,
        pod: &Pod,
        volume: &Volume,
        (claim, ephemeral): (&str, bool),
        running: bool,
    ) -> Result<(Mounted, Option<MountError>), MountError> {
        let uid = spec::uid(pod);
        let known = self.known.lock().get(uid).and_then(|v| v.get(&volume.name)).cloned();
        if let Some(Known { claimed, next }) = known.as_ref().filter(|_| running)
            && let Some(mounted) = self.mounted(uid, claimed)
        {
            let grown = if next.is_some_and(|next| next <= self.clock.now()) {
                self.keep(uid, &volume.name, claimed.clone());
                self.grow(pod, claim, claimed, true).await
            } else {
                Ok(())
            };
            return Ok((mounted, grown.err().map(MountError::from)));
        }
        let fresh = known.is_none();
        let claimed = if let Some(Known { claimed, .. }) = known {
            claimed
        } else {
            let source = volume.persistent_volume_claim.as_ref();
            let read_only = source.and_then(|s| s.read_only).unwrap_or(false);
            let named = Named { volume: &volume.name, claim, ephemeral, read_only };
            Arc::new(self.find(pod, &named).await?)
        };
        if claimed.is_for_one() && self.is_used_elsewhere(uid, &claimed).await? {
            return Err(ClaimError::InUse(claimed.name.clone()).into());
        }
        let (mounted, stale) = if let Source::Csi(wanted) = &claimed.source {
            let now = self.clock.now();
            let given = Box::pin(self.csi.mount(pod, &volume.name, wanted.clone(), running, now)).await;
            let (Published { path, relabel, .. }, stale) = given?;
            let read_only = claimed.read_only;
            let mounted = if wanted.block {
                Mounted::Device { path, read_only }
            } else {
                Mounted::Path { path, read_only, relabel }
            };
            (Some(mounted), stale.map(MountError::from))
        } else if let Source::Disk(disk) = &claimed.source {
            let given = Box::pin(self.disks.mount(pod, &volume.name, disk.clone(), running)).await?;
            (Some(given.0), given.1.map(MountError::from))
        } else {
            if !running {
                let traits =
                    Traits { name: &claimed.name, plugin: "", modes: Some(&claimed.modes), mountable: false };
                let looked = self.labels.look(pod, &volume.name, &traits);
                looked.map_err(|why| ClaimError::Unprocessed { volume: volume.name.clone(), why })?;
            }
            self.set_up(pod, &claimed, fresh, running).await?;
            if !running {
                self.grow(pod, claim, &claimed, false).await?;
            }
            (self.mounted(uid, &claimed), None)
        };
        let Some(mounted) = mounted else { return Err(MountError::NoPlugin) };
        self.keep(uid, &volume.name, claimed);
        Ok((mounted, stale))
    }

    /// Notes that a Pod has a volume.
    fn keep(&self, uid: &str, volume: &str, claimed: Arc<Claimed>) {
        let next = self.clock.now().checked_add(PERIOD).ok().filter(|_| claimed.is_growing_directory());
        let known = Known { claimed, next };
        self.known.lock().entry(uid.to_owned()).or_default().insert(volume.to_owned(), known);
    }

    /// Looks whether a volume that is a directory of the node is to grow. `running`: containers have it.
    async fn grow(&self, pod: &Pod, claim: &str, claimed: &Claimed, running: bool) -> Result<(), ClaimError> {
        if !claimed.is_growing_directory() {
            return Ok(());
        }
        let of = (spec::namespace(pod).to_owned(), claim.to_owned());
        let grown = self.directories.look(pod, &claimed.name, &of).await;
        grown.map_err(|why| ClaimError::Expand { running, name: claimed.name.clone(), why })
    }

    /// The volume as containers mount it; none if its driver must be asked.
    fn mounted(&self, uid: &str, claimed: &Claimed) -> Option<Mounted> {
        let path = match &claimed.source {
            Source::HostPath(source) => PathBuf::from(&source.path),
            Source::Local { .. } => local::target(&self.pods.join(uid), &claimed.name),
            Source::Nfs(_) => nfs::target(&self.pods.join(uid), &claimed.name),
            Source::Csi(_) | Source::Disk(_) => return None,
        };
        let relabel = matches!(claimed.source, Source::Local { .. }) && !claimed.read_only;
        Some(Mounted::Path { path, read_only: claimed.read_only, relabel })
    }

    /// Asks for the claim and its volume. There is no watch: a node may only read the single objects of its Pods.
    async fn find(&self, pod: &Pod, named: &Named<'_>) -> Result<Claimed, ClaimError> {
        let claims = self.client.api::<PersistentVolumeClaim>(spec::namespace(pod));
        let claim = within(claims.get(named.claim)).await;
        let claim = claim.map_err(|e| {
            named.wrong(pod, format_args!("failed to fetch PVC from API server: {}", e.message))
        })?;
        named.check(pod, &claim)?;
        let name = volumes::volume_name(&claim);
        let volume = within(self.client.api::<PersistentVolume>("").get(name)).await;
        let volume = volume.map_err(|e| {
            named.wrong(pod, format_args!("failed to fetch PV {name} from API server: {}", e.message))
        })?;
        // Whether the volume may be used here depends on the Node's labels.
        let Some(node) = self.node.object() else {
            return Err(named.unprocessed("the Node is not known yet"));
        };
        let labels = node.metadata.labels.as_ref();
        let mut claimed = named.resolve(pod, &claim, &volume, labels, self.own.as_deref())?;
        if let Source::Local { path, own: false } = &claimed.source {
            let path = path.clone();
            let device = try_blocking(move || Ok::<_, io::Error>(is_block_device(&path))).await;
            // A device gets a file system and is mounted.
            let of_claim = (spec::namespace(pod), named.claim);
            if device.unwrap_or(false)
                && let Some(Ok(disk)) = Disk::persistent(&volume, of_claim, claimed.read_only)
            {
                claimed.source = Source::Disk(Arc::new(disk));
            }
        }
        Ok(claimed)
    }

    /// Whether another Pod of this node has a volume that is for one alone.
    async fn is_used_elsewhere(&self, uid: &str, claimed: &Claimed) -> Result<bool, ClaimError> {
        let others = |known: &HashMap<String, HashMap<String, Known>>| {
            let mut others = known.iter().filter(|(other, _)| *other != uid);
            others.any(|(_, volumes)| volumes.values().any(|v| v.claimed.name == claimed.name))
        };
        if others(&self.known.lock()) {
            return Ok(true);
        }
        if let Source::Csi(wanted) = &claimed.source {
            return self.csi.others(uid, wanted).await.map_err(|e| failed(claimed, e));
        }
        if let Source::Disk(disk) = &claimed.source {
            return self.disks.others(uid, disk).await.map_err(|e| failed(claimed, e));
        }
        let (pods, name, uid) = (self.pods.clone(), claimed.name.clone(), uid.to_owned());
        let users = try_blocking(move || local::users(&pods, &name, Some(&uid))).await;
        Ok(!users.map_err(|e| failed(claimed, e))?.is_empty())
    }

    /// Makes the volume's content reachable for the Pod. `fresh`: the volume was just asked for.
    async fn set_up(
        &self,
        pod: &Pod,
        claimed: &Claimed,
        fresh: bool,
        running: bool,
    ) -> Result<(), ClaimError> {
        let (path, own) = match &claimed.source {
            Source::HostPath(source) => {
                if running {
                    return Ok(());
                }
                let source = source.clone();
                let checked = try_blocking(move || check_host_path(&source)).await;
                return checked.map_err(|e| failed(claimed, e));
            }
            Source::Nfs(export) => {
                let target = nfs::target(&self.pods.join(spec::uid(pod)), &claimed.name);
                return Box::pin(export.mount(&target)).await.map_err(|e| failed(claimed, e));
            }
            Source::Local { path, own } => (path.clone(), *own),
            Source::Csi(_) | Source::Disk(_) => return Ok(()),
        };
        // The directory of a volume that was known before may be gone on purpose.
        if own && fresh {
            let at = path.clone();
            try_blocking(move || local::make(&at)).await.map_err(|e: io::Error| failed(claimed, e))?;
        }
        if !path.is_dir() {
            return Err(if path.exists() {
                let why = io::Error::other(format!("{} is not a directory", path.display()));
                failed(claimed, why)
            } else {
                ClaimError::NoPath { name: claimed.name.clone(), path }
            });
        }
        let uid = spec::uid(pod);
        let target = local::target(&self.pods.join(uid), &claimed.name);
        let (pods, name, but) = (self.pods.clone(), claimed.name.clone(), uid.to_owned());
        let users = try_blocking(move || local::users(&pods, &name, Some(&but))).await;
        let shared = !users.map_err(|e| failed(claimed, e))?.is_empty();
        let (source, at, read_only) = (path.clone(), target.clone(), claimed.read_only);
        let bound = try_blocking(move || local::bind(&source, &at, read_only)).await;
        let new = bound.map_err(|e| failed(claimed, e))?;
        match ownership(pod) {
            Some(of) if new && shared => self.warn_of_group(pod, claimed, of.group, &path),
            Some(of) if new && !claimed.read_only => {
                let given = self.giver.give(pod, of, &target).await;
                if let Err(error) = given {
                    // The next attempt gives all files to the group, not only those that are left.
                    let _ = try_blocking(move || mounts::unmount_all_at(&target)).await;
                    return Err(failed(claimed, error));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Tells of a volume that another Pod uses with another group.
    fn warn_of_group(&self, pod: &Pod, claimed: &Claimed, group: u32, path: &Path) {
        let Ok(found) = std::fs::metadata(path) else { return };
        let has = std::os::unix::fs::MetadataExt::gid(&found);
        if has != group {
            let message = format!(
                "The requested fsGroup is {group}, but the volume {} has GID {has}. The volume may not be shareable.",
                claimed.name
            );
            self.giver.recorder.pod(pod, "Warning", "AlreadyMountedVolume", message);
        }
    }
}

fn failed(claimed: &Claimed, error: impl Into<MountError>) -> ClaimError {
    let error: MountError = error.into();
    ClaimError::SetUp { name: claimed.name.clone(), error: Box::new(error) }
}

/// Waits for an answer of the API server, for a limited time.
async fn within<T>(request: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let late = || Err(Status::failure(504, "Timeout", "context deadline exceeded"));
    timeout(PATIENCE, request).await.unwrap_or_else(|_| late())
}
