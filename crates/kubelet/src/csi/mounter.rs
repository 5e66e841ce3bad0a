//! Volumes with files: staged for the node, published for a Pod, and the way back.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::calls::{Abilities, NodeService};
use super::error::{CsiError, Step, Why};
use super::record::{Record, make_dir, unless_missing};
use super::room::Room;
use super::volume::{Rules, Texts, Wanted};
use crate::pods::spec;
use crate::volumes::giving::ownership;
use crate::volumes::mounts;
use crate::work::try_blocking;

/// Upstream's texts.
const NO_MOUNTER: &str = "mounter.SetUpAt failed to get CSI client";
const NO_ATTACHER: &str = "attacher.MountDevice failed to create newCsiDriverClient";

/// A volume that a Pod is given.
pub(super) struct Giving {
    pub(super) room: Arc<Room>,
    pub(super) pod: Arc<Pod>,
    pub(super) wanted: Arc<Wanted>,
    pub(super) rules: Rules,
    /// From its attachment.
    pub(super) context: Texts,
    /// Whether the Pod has it already.
    pub(super) again: bool,
}

impl Giving {
    /// Stages the volume and publishes it. Answers the driver's abilities.
    pub(super) async fn set_up(&self) -> Result<Abilities, CsiError> {
        let (room, wanted) = (&self.room, &self.wanted);
        let _turn = room.turn(&wanted.driver, &wanted.handle).await;
        let node = NodeService::giving(&room.drivers, &wanted.driver, wanted.migrated).map_err(|error| {
            if wanted.ephemeral || self.again {
                self.failed(Step::SetUp, Why::at(NO_MOUNTER, error))
            } else {
                self.failed(Step::MountDevice, Why::at(NO_ATTACHER, error))
            }
        })?;
        let can = node.abilities().await.map_err(|error| self.failed(Step::SetUp, error.into()))?;
        let staged = self.staged(&can);
        if let Some(path) = &staged
            && !self.again
        {
            let done = self.stage(&node, &can, path).await;
            done.map_err(|why| self.failed(Step::MountDevice, why))?;
        }
        let done = self.publish(&node, &can, staged.as_deref()).await;
        done.map_err(|why| self.failed(Step::SetUp, why))?;
        Ok(can)
    }

    fn failed(&self, step: Step, why: Why) -> CsiError {
        CsiError::Failed { step, name: self.wanted.name.clone(), why }
    }

    /// Where the driver stages the volume; none if it does not.
    pub(super) fn staged(&self, can: &Abilities) -> Option<PathBuf> {
        let wanted = &self.wanted;
        (!wanted.ephemeral && can.stages())
            .then(|| self.room.places.staged(&wanted.driver, &wanted.handle).join("globalmount"))
    }

    async fn stage(&self, node: &NodeService, can: &Abilities, path: &Path) -> Result<(), Why> {
        let (room, wanted) = (&self.room, &self.wanted);
        let key = wanted.key();
        if room.staged.lock().contains(&key) {
            return Ok(());
        }
        let secrets = room.secret(wanted.stage_secret.as_ref(), "NodeStageSecretRef").await?;
        let record = Record {
            driver_name: wanted.driver.clone(),
            volume_handle: wanted.handle.clone(),
            ..Record::default()
        };
        let at = path.to_owned();
        try_blocking(move || -> io::Result<()> {
            make_dir(&at)?;
            record.save(at.parent().unwrap_or(&at))
        })
        .await?;
        let group = ownership(&self.pod).map(|o| o.group);
        let request = wanted.stage(can, path, (self.context.clone(), secrets), group);
        match node.stage(request).await {
            Ok(()) => {
                room.staged.lock().insert(key);
                Ok(())
            }
            Err(error) => {
                if error.is_final() {
                    clear(path).await;
                }
                Err(error.into())
            }
        }
    }

    async fn publish(&self, node: &NodeService, can: &Abilities, staged: Option<&Path>) -> Result<(), Why> {
        let (room, wanted, pod) = (&self.room, &self.wanted, &self.pod);
        let target = target(room, spec::uid(pod), &wanted.name);
        let (attributes, secrets) = room.publication(pod, wanted, &self.rules).await?;
        let (at, record) = (target.clone(), wanted.record(&room.node_name));
        try_blocking(move || -> io::Result<()> {
            let dir = at.parent().unwrap_or(&at);
            make_dir(dir)?;
            record.save(dir)
        })
        .await?;
        let owner = ownership(pod);
        let texts = (self.context.clone(), attributes, secrets);
        let request = wanted.publish(can, (staged, &target), texts, owner.map(|o| o.group));
        if let Err(error) = node.publish(request).await {
            // A Pod that has the volume already keeps what it sees.
            if error.is_final() && !self.again {
                clear(&target).await;
            }
            return Err(error.into());
        }
        if let Some(owner) = owner.filter(|_| !can.groups() && wanted.takes_group(&self.rules.group_policy)) {
            room.giver.give(pod, owner, &target).await.map_err(|error| {
                Why::Text(format!("applyFSGroup failed for vol {}: {error}", wanted.handle))
            })?;
        }
        Ok(())
    }
}

/// Where a volume is published for a Pod.
pub(super) fn target(room: &Room, uid: &str, name: &str) -> PathBuf {
    room.places.volume(uid, name).join("mount")
}

/// Removes what was made for a call that failed; the next attempt, or the volume's end, finds what stays.
async fn clear(mount: &Path) {
    let at = mount.to_owned();
    if let Err(error) = try_blocking(move || remove_mount_dir(&at)).await {
        tracing::debug!(path = %mount.display(), %error, "the directory of a volume stays");
    }
}

/// Removes a mount's directory, and the record beside it with its directory.
fn remove_mount_dir(mount: &Path) -> io::Result<()> {
    match mounts::is_mount_point(mount) {
        Ok(true) => return Err(io::Error::other(format!("{} is still mounted", mount.display()))),
        Ok(false) => match fs::remove_dir(mount) {
            // Some drivers publish files.
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => unless_missing(fs::remove_file(mount))?,
            removed => unless_missing(removed)?,
        },
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
        Err(e) => return Err(e),
    }
    let Some(dir) = mount.parent() else { return Ok(()) };
    Record::remove(dir)?;
    unless_missing(fs::remove_dir(dir))
}

/// Takes a volume from a Pod; `dir` has its record.
pub(super) async fn unpublish(room: &Room, dir: PathBuf) -> io::Result<()> {
    let at = dir.clone();
    let Some(record) = try_blocking(move || Record::load(&at)).await? else {
        // Nothing was published before the record was there.
        return try_blocking(move || remove_mount_dir(&dir.join("mount"))).await;
    };
    let _turn = room.turn(&record.driver_name, &record.volume_handle).await;
    let node = NodeService::of(&room.drivers, &record.driver_name).map_err(|error| {
        io::Error::other(format!("kubernetes.io/csi: Unmounter.TearDownAt failed to get CSI client: {error}"))
    })?;
    let mount = dir.join("mount");
    node.unpublish(&record.volume_handle, &mount).await.map_err(|error| {
        io::Error::other(format!("kubernetes.io/csi: Unmounter.TearDownAt failed: {error}"))
    })?;
    try_blocking(move || remove_mount_dir(&mount)).await
}

/// Unstages a volume that no Pod has. Answers whether none has.
pub(super) async fn unstage(room: &Room, driver: &str, handle: &str) -> io::Result<bool> {
    let _turn = room.turn(driver, handle).await;
    let key = (driver.to_owned(), handle.to_owned());
    if !room.users.of(&key).is_empty() {
        return Ok(false);
    }
    let (places, of) = (room.places.clone(), key.clone());
    let (used, record) = try_blocking(move || -> io::Result<_> {
        Ok((!places.users(&of.0, &of.1)?.is_empty(), Record::load(&places.staged(&of.0, &of.1))?))
    })
    .await?;
    if used {
        return Ok(false);
    }
    let path = room.places.staged(driver, handle).join("globalmount");
    if record.is_some() {
        let node = NodeService::of(&room.drivers, driver).map_err(|error| {
            io::Error::other(format!(
                "kubernetes.io/csi: attacher.UnmountDevice failed to create newCsiDriverClient: {error}"
            ))
        })?;
        let failed =
            |error| io::Error::other(format!("kubernetes.io/csi: attacher.UnmountDevice failed: {error}"));
        if node.abilities().await.map_err(failed)?.stages() {
            // Where it fails it may be done in part, and the next Pod has the volume staged again.
            room.staged.lock().remove(&key);
            node.unstage(handle, &path).await.map_err(failed)?;
        }
    }
    room.forget(&key);
    try_blocking(move || remove_mount_dir(&path)).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_mounts_go() {
        let dir = tempfile::tempdir().unwrap();
        let mount = dir.path().join("pv/mount");
        remove_mount_dir(&mount).unwrap();
        fs::create_dir_all(&mount).unwrap();
        Record::default().save(mount.parent().unwrap()).unwrap();
        remove_mount_dir(&mount).unwrap();
        assert!(!dir.path().join("pv").exists());
        fs::create_dir_all(&mount).unwrap();
        fs::write(mount.join("data"), "kept").unwrap();
        assert!(remove_mount_dir(&mount).is_err(), "data are never removed");
        assert!(mount.join("data").exists());
        assert!(remove_mount_dir(Path::new("/proc")).is_err());
    }
}
