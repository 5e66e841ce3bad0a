//! Volumes are taken from Pods, and from the node once no Pod has them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::devices::names;
use super::disk::Staged;
use super::give::{is_mounted, known, unmount};
use super::iscsi::{self, Record};
use super::room::Room;
use super::table::Table;
use crate::work::try_blocking;
use plugins::flex::CallError;

/// The directories of Pods' volumes that this module sees to, beside those of drivers of FlexVolumes.
const OWN: [&str; 3] = ["kubernetes.io~iscsi", "kubernetes.io~fc", "kubernetes.io~local-volume"];
/// The directories of Pods' volumes that others see to.
const OTHERS: [&str; 8] = [
    "kubernetes.io~configmap",
    "kubernetes.io~csi",
    "kubernetes.io~downward-api",
    "kubernetes.io~empty-dir",
    "kubernetes.io~host-path",
    "kubernetes.io~nfs",
    "kubernetes.io~projected",
    "kubernetes.io~secret",
];

/// A missing thing is as good as a removed one.
fn unless_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn failed(path: &Path, error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("the volume {} cannot be taken back: {error}", path.display()))
}

/// Takes its volumes from a Pod, and those from the node that no other Pod has.
pub(super) async fn tear_down(room: &Room, uid: &str) -> io::Result<()> {
    room.wearers.leave(uid);
    let mut had = BTreeSet::new();
    let mut result = Ok(());
    for plugin in OWN {
        let dir = room.pods().join(uid).join("volumes").join(plugin);
        let at = dir.clone();
        for name in try_blocking(move || names(&at)).await? {
            match take(room, &dir.join(name)).await {
                Ok(staged) => had.extend(staged),
                // One that cannot be taken back holds up no other.
                Err(error) => result = result.and(Err(error)),
            }
        }
    }
    result = result.and(unpublish_all(room, uid, &mut had).await);
    result = result.and(unmap_all(room, uid, &mut had).await);
    result?;
    had.extend(room.users.leave(uid));
    for dir in had {
        release(room, &dir).await?;
    }
    Ok(())
}

/// Unmounts a Pod's volume. Answers the directory in which it is for the node; none for one that is a directory of the
/// node's own, to which others see.
async fn take(room: &Room, target: &Path) -> io::Result<Option<PathBuf>> {
    let (plugins, at) = (room.plugins(), target.to_owned());
    let staged = try_blocking(move || -> io::Result<_> {
        let table = Table::read()?;
        let same = table.equal(&at, &plugins);
        let is_ours = |dir: &&&Path| dir.strip_prefix(&plugins).is_ok_and(|d| Staged::of_dir(d).is_some());
        Ok(same.iter().find(is_ours).map(|dir| dir.to_path_buf()))
    })
    .await?;
    let Some(dir) = staged else { return Ok(None) };
    let _turn = room.turn(&dir.to_string_lossy()).await;
    let at = target.to_owned();
    try_blocking(move || -> io::Result<()> {
        unmount(&at)?;
        unless_missing(fs::remove_dir(&at))
    })
    .await?;
    Ok(Some(dir))
}

/// Has the drivers of FlexVolumes unmount a Pod's volumes.
async fn unpublish_all(room: &Room, uid: &str, had: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    let volumes = room.pods().join(uid).join("volumes");
    let at = volumes.clone();
    let all = try_blocking(move || -> io::Result<Vec<(String, String)>> {
        let mut all = Vec::new();
        for plugin in names(&at)?.into_iter().filter(|p| !OWN.contains(&&**p) && !OTHERS.contains(&&**p)) {
            all.extend(names(&at.join(&plugin))?.into_iter().map(|name| (plugin.clone(), name)));
        }
        Ok(all)
    })
    .await?;
    let mut result = Ok(());
    for (plugin, name) in all {
        let target = volumes.join(&plugin).join(&name);
        let driver = plugin.replace('~', "/");
        let dir = room.dir(&Staged::Flex { driver: driver.clone(), name });
        let _turn = room.turn(&dir.to_string_lossy()).await;
        let mut done = call(room, &driver, "unmount", &target).await;
        if done.is_ok() {
            done = try_blocking(move || unless_missing(fs::remove_dir(&target))).await;
        }
        if done.is_ok() {
            had.insert(dir);
        }
        result = result.and(done);
    }
    result
}

/// Has a driver unmount a path, or does so itself.
async fn call(room: &Room, name: &str, command: &str, path: &Path) -> io::Result<()> {
    match room.drivers.get(name).await {
        Ok(driver) => {
            let answer = driver.call(command, &[&path.to_string_lossy()]).await;
            known(answer).map_err(|error| failed(path, error))?;
        }
        // DIFFERENCE: upstream waits for the driver, for ever if it was removed.
        Err(CallError::Missing(_)) => {
            tracing::warn!(driver = name, path = %path.display(), "a volume is unmounted without its driver, which is gone");
        }
        Err(error) => return Err(failed(path, error)),
    }
    unmount_at(path).await
}

/// Has a driver detach a volume from this node, which this kubelet attached. Its directory is there until that is done:
/// with it, another process knows that it is to be done.
async fn detach(room: &Room, (driver, volume): (&str, &str), dir: &Path) -> io::Result<()> {
    let failed = |error: CallError| {
        io::Error::other(format!("DetachVolume.Detach failed for volume {volume:?} : {error}"))
    };
    // The driver may have removed it.
    let at = dir.to_owned();
    try_blocking(move || fs::create_dir_all(at)).await?;
    match room.drivers.get(driver).await {
        Ok(of) if of.capabilities.attach => {
            known(of.call("detach", &[volume, &room.of.node_name]).await).map_err(failed)?;
            Ok(())
        }
        Ok(_) => Ok(()),
        // DIFFERENCE: upstream waits for the driver, for ever if it was removed.
        Err(CallError::Missing(_)) => {
            tracing::warn!(driver, volume, "a volume stays attached: its driver is gone");
            Ok(())
        }
        Err(error) => Err(failed(error)),
    }
}

/// Takes its devices from a Pod.
async fn unmap_all(room: &Room, uid: &str, had: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    let staged = all(room).await?;
    for dir in staged.iter().filter(|s| s.is_block()).map(|s| room.dir(s)) {
        let path = dir.join(uid);
        let _turn = room.turn(&dir.to_string_lossy()).await;
        let there = try_blocking(move || -> io::Result<bool> {
            if path.symlink_metadata().is_err() {
                return Ok(false);
            }
            unmount(&path)?;
            unless_missing(fs::remove_file(&path))?;
            Ok(true)
        });
        if there.await? {
            had.insert(dir);
        }
    }
    for plugin in OWN {
        let links = room.pods().join(uid).join("volumeDevices").join(plugin);
        try_blocking(move || -> io::Result<()> {
            for name in names(&links)? {
                unless_missing(fs::remove_file(links.join(name)))?;
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// The volumes that are on the disk.
pub(super) async fn all(room: &Room) -> io::Result<Vec<Staged>> {
    let plugins = room.plugins();
    try_blocking(move || super::room::staged(&plugins)).await
}

/// Takes a volume from the node, unless a Pod has it or is to have it.
pub(super) async fn release(room: &Room, dir: &Path) -> io::Result<()> {
    let Some(staged) = dir.strip_prefix(room.plugins()).ok().and_then(Staged::of_dir) else { return Ok(()) };
    let _turn = room.turn(&dir.to_string_lossy()).await;
    if !room.users.of(&dir.to_owned()).is_empty() || room.is_used(&staged)? {
        return Ok(());
    }
    if dir.symlink_metadata().is_ok() {
        match &staged {
            Staged::Iscsi { record, .. } => release_iscsi(room, dir, record).await?,
            Staged::Fc { disk, .. } => {
                unmount_at(dir).await?;
                disk.detach(&room.host).await.map_err(|error| failed(dir, error))?;
            }
            Staged::Local { .. } => unmount_at(dir).await?,
            Staged::Flex { driver, name } => {
                if is_mounted(dir)? {
                    call(room, driver, "unmountdevice", dir).await?;
                }
                if !room.of.controller_attaches {
                    detach(room, (driver, name), dir).await?;
                }
            }
        }
        remove(dir).await?;
    }
    room.forget(dir);
    Ok(())
}

async fn unmount_at(dir: &Path) -> io::Result<()> {
    let dir = dir.to_owned();
    try_blocking(move || unmount(&dir)).await
}

/// Takes a LUN from the node, and logs out of its target if no other volume is of it.
async fn release_iscsi(room: &Room, dir: &Path, by_name: &Record) -> io::Result<()> {
    unmount_at(dir).await?;
    // It lay below the mount.
    let record = Record::load(dir).unwrap_or_else(|| by_name.clone());
    if let Err(error) = record.forget_devices(&room.host).await {
        tracing::warn!(%error, "devices of an iSCSI target stay");
    }
    let _target = room.turn(&record.iqn).await;
    let tops = [room.plugins().join("iscsi"), room.plugins().join("iscsi/volumeDevices")];
    let portal = record.portals.first().map(String::as_str).unwrap_or_default();
    let mut volumes = 0;
    for top in tops {
        volumes += iscsi::volumes_of(&top, portal, &record.iqn)?;
    }
    if volumes <= 1 {
        record.log_out(&room.host).await.map_err(|error| failed(dir, error))?;
    }
    // The next one that has the target's turn counts directories.
    remove(dir).await
}

/// Removes the directory of a volume that is not mounted.
async fn remove(dir: &Path) -> io::Result<()> {
    let at = dir.to_owned();
    try_blocking(move || -> io::Result<()> {
        unless_missing(fs::remove_file(at.join(iscsi::FILE)))?;
        unless_missing(fs::remove_dir(&at))
    })
    .await
}

/// Takes volumes from the node that no Pod has, which an earlier process left.
pub(super) async fn sweep(room: &Room) -> io::Result<()> {
    let mut result = Ok(());
    for staged in all(room).await? {
        result = result.and(release(room, &room.dir(&staged)).await);
    }
    result
}
