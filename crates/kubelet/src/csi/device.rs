//! Volumes that are devices: staged and published in the drivers' own directory, with a link in the Pod's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::calls::NodeService;
use super::error::{CsiError, Step, Why};
use super::mounter::Giving;
use super::record::{Record, make_dir, names, unless_missing};
use super::room::Room;
use super::volume::Mount;
use crate::pods::spec;
use crate::work::try_blocking;

impl Giving {
    /// Stages the device and publishes it. Answers where it is.
    pub(super) async fn map(&self) -> Result<PathBuf, CsiError> {
        let (room, wanted) = (&self.room, &self.wanted);
        let failed = |step, why| CsiError::Failed { step, name: wanted.name.clone(), why };
        let _turn = room.turn(&wanted.driver, &wanted.handle).await;
        let node = NodeService::giving(&room.drivers, &wanted.driver, wanted.migrated).map_err(|error| {
            failed(Step::SetUpDevice, Why::at("blockMapper.SetUpDevice failed to get CSI client", error))
        })?;
        let done = self.stage_device(&node).await;
        done.map_err(|why| failed(Step::SetUpDevice, why))?;
        self.publish_device(&node).await.map_err(|why| failed(Step::MapPodDevice, why))
    }

    async fn stage_device(&self, node: &NodeService) -> Result<(), Why> {
        let (room, wanted) = (&self.room, &self.wanted);
        let data = room.places.device(&wanted.name).join("data");
        let record = wanted.record(&room.node_name, None);
        try_blocking(move || -> io::Result<()> {
            make_dir(&data)?;
            record.save(&data)
        })
        .await?;
        let can = node.abilities().await?;
        let key = wanted.key();
        if !can.stages() || room.staged.lock().contains(&key) {
            return Ok(());
        }
        let secrets = room.secret(wanted.stage_secret.as_ref(), "NodeStageSecretRef").await?;
        let path = room.places.device_staged(&wanted.name);
        let at = path.clone();
        try_blocking(move || make_dir(&at)).await?;
        let request = wanted.stage(&can, &path, (self.context.clone(), secrets), Mount::default());
        node.stage(request).await?;
        room.staged.lock().insert(key);
        Ok(())
    }

    async fn publish_device(&self, node: &NodeService) -> Result<PathBuf, Why> {
        let (room, wanted, uid) = (&self.room, &self.wanted, spec::uid(&self.pod));
        let can = node.abilities().await?;
        let dir = room.places.device_published(&wanted.name);
        let path = dir.join(uid);
        let own = room.places.pod_devices(uid);
        let link = own.join(&wanted.name);
        let (attributes, secrets) = room.publication(&self.pod, wanted, &self.rules).await?;
        // The link comes first: with it, another process knows what to take back.
        let (to, all) = (path.clone(), dir.clone());
        try_blocking(move || -> io::Result<()> {
            make_dir(&all)?;
            make_dir(link.parent().unwrap_or(&link))?;
            match std::os::unix::fs::symlink(&to, &link) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                made => made,
            }
        })
        .await?;
        let staged = can.stages().then(|| room.places.device_staged(&wanted.name));
        let texts = (self.context.clone(), attributes, secrets);
        node.publish(wanted.publish(&can, (staged.as_deref(), &path), texts, Mount::default())).await?;
        room.giver.mapped(&self.pod, &wanted.name, [&dir, &own]);
        Ok(path)
    }
}

/// Takes a device from a Pod; `link` is the one in the Pod's directory. Answers the volume that it was of.
pub(super) async fn unmap(room: &Room, uid: &str, link: PathBuf) -> io::Result<Option<Record>> {
    let Some(name) = link.file_name().and_then(|n| n.to_str()).map(str::to_owned) else { return Ok(None) };
    let data = room.places.device(&name).join("data");
    let Some(record) = try_blocking(move || Record::load(&data)).await? else {
        try_blocking(move || unless_missing(fs::remove_file(link))).await?;
        return Ok(None);
    };
    let _turn = room.turn(&record.driver_name, &record.volume_handle).await;
    let node = NodeService::of(&room.drivers, &record.driver_name).map_err(|error| {
        io::Error::other(format!(
            "kubernetes.io/csi: blockMapper.UnmapPodDevice failed to get CSI client: {error}"
        ))
    })?;
    let path = room.places.device_published(&name).join(uid);
    node.unpublish(&record.volume_handle, &path).await.map_err(|error| {
        io::Error::other(format!("kubernetes.io/csi: blockMapper.unpublishVolumeForBlock failed: {error}"))
    })?;
    try_blocking(move || -> io::Result<()> {
        unless_missing(fs::remove_file(&path))?;
        unless_missing(fs::remove_file(&link))
    })
    .await?;
    Ok(Some(record))
}

/// Unstages the device of a volume's name that no Pod has. Answers whether none has.
pub(super) async fn unstage(room: &Room, name: &str, record: &Record) -> io::Result<bool> {
    let (driver, handle) = (&record.driver_name, &record.volume_handle);
    let _turn = room.turn(driver, handle).await;
    let key = (driver.clone(), handle.clone());
    if !room.users.of(&key).is_empty() {
        return Ok(false);
    }
    let published = room.places.device_published(name);
    let pods = room.places.pods();
    let (at, of) = (published.clone(), name.to_owned());
    let places = room.places.clone();
    let used = try_blocking(move || -> io::Result<bool> {
        let linked = |pod: &PathBuf| {
            let uid = pod.file_name().and_then(|n| n.to_str());
            uid.is_some_and(|uid| places.pod_devices(uid).join(&of).symlink_metadata().is_ok())
        };
        Ok(!names(&at)?.is_empty() || names(&pods)?.iter().any(linked))
    })
    .await?;
    if used {
        return Ok(false);
    }
    let node = NodeService::of(&room.drivers, driver).map_err(|error| {
        io::Error::other(format!(
            "kubernetes.io/csi: blockMapper.TearDownDevice failed to get CSI client: {error}"
        ))
    })?;
    let failed = |error| {
        io::Error::other(format!("kubernetes.io/csi: blockMapper.unstageVolumeForBlock failed: {error}"))
    };
    let staged = room.places.device_staged(name);
    if staged.exists() && node.abilities().await.map_err(failed)?.stages() {
        // Where it fails it may be done in part, and the next Pod has the device staged again.
        room.staged.lock().remove(&key);
        node.unstage(handle, &staged).await.map_err(failed)?;
    }
    room.forget(&key);
    let device = room.places.device(name);
    try_blocking(move || clean(&published, &staged, &device)).await?;
    Ok(true)
}

fn clean(published: &Path, staged: &Path, device: &Path) -> io::Result<()> {
    unless_missing(fs::remove_dir(published))?;
    unless_missing(fs::remove_dir(staged))?;
    Record::remove(&device.join("data"))?;
    unless_missing(fs::remove_dir(device.join("data")))?;
    unless_missing(fs::remove_dir(device.join("dev")))?;
    unless_missing(fs::remove_dir(device))
}
