//! Volumes with files: staged for the node, published for a Pod, and the way back.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::calls::{Abilities, NodeService};
use super::error::{CsiError, Step, Why};
use super::record::{Places, Record, make_dir, unless_missing};
use super::room::Room;
use super::volume::{Key, Mount, Rules, Texts, Wanted};
use crate::pods::spec;
use crate::volumes::giving::ownership;
use crate::volumes::{mounts, selinux};
use crate::work::try_blocking;

/// Upstream's texts.
const NO_MOUNTER: &str = "mounter.SetUpAt failed to get CSI client";
const NO_ATTACHER: &str = "attacher.MountDevice failed to create newCsiDriverClient";

/// A volume that a Pod is given.
pub(super) struct Giving {
    pub(super) room: Arc<Room>,
    pub(super) pod: Arc<Pod>,
    /// The volume's name in the Pod.
    pub(super) volume: String,
    pub(super) wanted: Arc<Wanted>,
    pub(super) rules: Rules,
    /// The SELinux label with which it is mounted.
    pub(super) label: Option<String>,
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
        if !self.again {
            self.await_label(&node, &can).await?;
        }
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

    /// Takes the volume from the node where it is mounted there with another SELinux label and no other Pod has it.
    ///
    /// # Errors
    /// Another Pod still has it so.
    async fn await_label(&self, node: &NodeService, can: &Abilities) -> Result<(), CsiError> {
        let (room, wanted) = (&self.room, &self.wanted);
        if !room.wearers.enabled() || wanted.ephemeral {
            return Ok(());
        }
        let failed = |why: Why| self.failed(Step::MountDevice, why);
        let (places, (driver, handle)) = (room.places.clone(), wanted.key());
        let (uid, label) = (spec::uid(&self.pod).to_owned(), self.label.clone().unwrap_or_default());
        let there = try_blocking(move || there(&places, (&driver, &handle), &uid, &label));
        let there = there.await.map_err(|error: io::Error| failed(error.into()))?;
        if there == There::Worn {
            let why = selinux::waiting(&wanted.unique_name());
            return Err(CsiError::Unprocessed { volume: self.volume.clone(), why });
        }
        if there == There::Staged {
            unstage_now(room, node, (can, &wanted.key())).await.map_err(|error| failed(error.into()))?;
        }
        Ok(())
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
            label: self.label.clone().unwrap_or_default(),
            ..Record::default()
        };
        let at = path.to_owned();
        try_blocking(move || -> io::Result<()> {
            make_dir(&at)?;
            record.save(at.parent().unwrap_or(&at))
        })
        .await?;
        let request = wanted.stage(can, path, (self.context.clone(), secrets), self.how());
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

    fn how(&self) -> Mount<'_> {
        Mount { group: ownership(&self.pod).map(|o| o.group), label: self.label.as_deref() }
    }

    async fn publish(&self, node: &NodeService, can: &Abilities, staged: Option<&Path>) -> Result<(), Why> {
        let (room, wanted, pod) = (&self.room, &self.wanted, &self.pod);
        let target = target(room, spec::uid(pod), &wanted.name);
        let (attributes, secrets) = room.publication(pod, wanted, &self.rules).await?;
        let (at, record) = (target.clone(), wanted.record(&room.node_name, self.label.as_deref()));
        try_blocking(move || -> io::Result<()> {
            let dir = at.parent().unwrap_or(&at);
            make_dir(dir)?;
            record.save(dir)
        })
        .await?;
        let owner = ownership(pod);
        let texts = (self.context.clone(), attributes, secrets);
        let request = wanted.publish(can, (staged, &target), texts, self.how());
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

/// A volume on the node that has another SELinux label than a Pod wants.
#[derive(Debug, PartialEq, Eq)]
enum There {
    /// It is not there, or has the label.
    Fits,
    /// Nobody has it so.
    Staged,
    /// Another Pod has it so.
    Worn,
}

/// Looks whether a volume is on the node with another SELinux label than this one, as the records tell.
fn there(places: &Places, (driver, handle): (&str, &str), uid: &str, label: &str) -> io::Result<There> {
    let staged = Record::load(&places.staged(driver, handle))?;
    let mut others = places.records(driver, handle)?;
    others.retain(|(other, _)| other != uid);
    if others.iter().any(|(_, record)| record.as_ref().is_some_and(|r| r.label != label)) {
        return Ok(There::Worn);
    }
    let differs = staged.is_some_and(|record| record.label != label);
    Ok(if others.is_empty() && differs { There::Staged } else { There::Fits })
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
    if record.is_some() {
        let node = NodeService::of(&room.drivers, driver).map_err(|error| {
            io::Error::other(format!(
                "kubernetes.io/csi: attacher.UnmountDevice failed to create newCsiDriverClient: {error}"
            ))
        })?;
        let can = node.abilities().await.map_err(unstaged)?;
        unstage_now(room, &node, (&can, &key)).await?;
    } else {
        remove_staged(room, &key).await?;
    }
    room.forget(&key);
    Ok(true)
}

fn unstaged(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("kubernetes.io/csi: attacher.UnmountDevice failed: {error}"))
}

/// Unstages a volume, whoever is to have it; it is the caller's turn.
async fn unstage_now(room: &Room, node: &NodeService, (can, key): (&Abilities, &Key)) -> io::Result<()> {
    if can.stages() {
        let path = room.places.staged(&key.0, &key.1).join("globalmount");
        // Where it fails it may be done in part, and the next Pod has the volume staged again.
        room.staged.lock().remove(key);
        node.unstage(&key.1, &path).await.map_err(unstaged)?;
    }
    remove_staged(room, key).await
}

/// Removes the directory in which a volume was staged, with its record.
async fn remove_staged(room: &Room, (driver, handle): &Key) -> io::Result<()> {
    let path = room.places.staged(driver, handle).join("globalmount");
    try_blocking(move || remove_mount_dir(&path)).await
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
