//! Volumes that the host's own tools provide: LUNs of iSCSI targets, disks behind Fibre Channel, drivers of FlexVolumes,
//! and devices of the node (upstream: `pkg/volume/{iscsi,fc,flexvolume,local}`).
//!
//! A volume is found by the host and mounted once for the node, in upstream's directory below `plugins`, and bound into the
//! directory of each Pod that wants it (`give`). Once no Pod has it or is to have it, it is unmounted, and the host takes it
//! away (`release`). The directory is there before anything is done, so it and the kernel's table of mounts are the actual
//! state: any later process can undo what this one did. The desired state is the Pods' workers, which enter a volume
//! before they mount it (`room`). One thing at a time is done to a volume, and it is done to its end, whoever waits.

mod devices;
mod disk;
mod error;
mod expand;
mod fc;
mod format;
mod give;
mod host;
mod iscsi;
mod release;
mod room;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

pub(crate) use self::disk::Disk;
use self::disk::Kind;
pub(crate) use self::error::DiskError;
use self::error::{Step, Why};
use self::give::Giving;
pub(crate) use self::give::is_block_device;
use self::host::Host;
pub(crate) use self::room::Given;
use self::room::Room;
use super::mounted::Mounted;
use crate::pods::spec;
use crate::work::{to_end, try_blocking};
use plugins::flex::Driver;

/// A volume that is a file system of its own: its name in the Pod, the claim by which the Pod has it, and where it is.
pub(crate) type OwnFilesystem = (String, Option<(String, String)>, PathBuf);

/// How often it is looked whether the volume of a running Pod is to grow. Upstream does so with each sync of the Pod, about
/// as often.
const PERIOD: Duration = Duration::from_mins(1);

/// A volume that a Pod has.
struct Known {
    disk: Arc<Disk>,
    /// The driver of a FlexVolume; none if it is gone.
    driver: Option<Arc<Driver>>,
    /// Whether its files get the label of each container.
    relabel: bool,
    /// When it is to be looked at again; never, if it cannot grow.
    next: Option<Timestamp>,
}

/// Gives Pods volumes, and takes them back.
pub(crate) struct DiskVolumes {
    room: Arc<Room>,
    /// By the uids of Pods.
    known: Mutex<HashMap<String, HashMap<String, Known>>>,
}

impl DiskVolumes {
    /// No volumes yet.
    pub(crate) fn new(of: Given) -> Self {
        Self::with(of, Host::system())
    }

    fn with(of: Given, host: Host) -> Self {
        Self { room: Arc::new(Room::new(of, host)), known: Mutex::default() }
    }

    /// Gives a Pod a volume, or brings it up to date. `running`: a container of the Pod has it. Answers also why it could not
    /// be brought up to date.
    ///
    /// # Errors
    /// The Pod does not have it.
    pub(crate) async fn mount(
        &self,
        pod: &Pod,
        volume: &str,
        disk: Arc<Disk>,
        running: bool,
    ) -> Result<(Mounted, Option<DiskError>), DiskError> {
        let (room, uid) = (&self.room, spec::uid(pod));
        let mounted = |path, relabel| {
            let read_only = disk.read_only;
            if disk.block {
                Mounted::Device { path, read_only }
            } else {
                Mounted::Path { path, read_only, relabel }
            }
        };
        let path = self.path(uid, &disk);
        let known =
            self.known.lock().get(uid).and_then(|known| known.get(volume).map(|k| (k.next, k.relabel)));
        if running && let Some((next, relabel)) = known {
            let stale = self.refresh(pod, volume, &path, next).await;
            return Ok((mounted(path, relabel), stale.err()));
        }
        let failed = |step, why| DiskError::Failed { step, name: disk.name.clone(), why };
        let driver = match &disk.kind {
            Kind::Flex(of) => Some(room.drivers.get(&of.driver).await),
            _ => None,
        };
        // Another process mounted it; its containers run on, whatever became of the driver.
        let there = running && self.is_there(&path).await;
        let driver = match driver.transpose() {
            Ok(driver) => driver,
            Err(_) if there => None,
            Err(error) => return Err(failed(Step::Begin, error.into())),
        };
        let staged = disk.staged();
        let dir = room.dir(&staged);
        let label = room.wearers.enter(dir.clone(), (pod, volume), &disk.traits());
        let label = match label {
            // Its containers have it as it is.
            _ if there => room.label_at(&path).await.map_err(|error| failed(Step::SetUp, error.into()))?,
            label => label.map_err(|why| DiskError::Unprocessed { volume: volume.to_owned(), why })?,
        };
        let relabel = disk.relabels(label.as_deref(), driver.as_deref());
        room.users.enter(uid, dir);
        let is_attached = match &disk.kind {
            Kind::Flex(_) => driver.as_ref().is_some_and(|driver| driver.capabilities.attach),
            _ => true,
        };
        let unique = disk.unique.as_ref().filter(|_| is_attached);
        if let Some(name) = unique {
            room.tell(&staged, vec![name.clone()]);
        }
        let path = if there {
            path
        } else {
            let mut device = String::new();
            if let Some(name) = unique.filter(|_| !room.of.standalone && room.of.controller_attaches) {
                let found = room.of.in_use.attached(&room.of.node, name).await;
                let unattached = || DiskError::Unattached { volume: volume.to_owned(), hint: hint(&disk) };
                device = found.ok_or_else(unattached)?;
            }
            let (room, pod, volume) = (room.clone(), Arc::new(pod.clone()), volume.to_owned());
            let giving =
                Giving { room, pod, volume, disk: disk.clone(), driver: driver.clone(), device, label };
            let given = to_end(async move { Box::pin(giving.give()).await }).await;
            given.unwrap_or_else(|error| Err(failed(Step::SetUp, Why::from(error))))?
        };
        let mounted = mounted(path, relabel);
        let next = self.later().filter(|_| !disk.read_only && disk.grows(driver.as_deref()));
        let known = Known { disk, driver, relabel, next };
        self.known.lock().entry(uid.to_owned()).or_default().insert(volume.to_owned(), known);
        Ok((mounted, None))
    }

    fn later(&self) -> Option<Timestamp> {
        self.room.of.clock.now().checked_add(PERIOD).ok()
    }

    /// Makes the volume of a running Pod larger, where it is time to look whether that is due.
    async fn refresh(
        &self,
        pod: &Pod,
        volume: &str,
        path: &Path,
        next: Option<Timestamp>,
    ) -> Result<(), DiskError> {
        if next.is_none_or(|next| next > self.room.of.clock.now()) {
            return Ok(());
        }
        let later = self.later();
        let known = self.known.lock().get_mut(spec::uid(pod)).and_then(|known| {
            let known = known.get_mut(volume)?;
            known.next = later;
            Some((known.disk.clone(), known.driver.clone()))
        });
        let Some((disk, driver)) = known else { return Ok(()) };
        let failed = |error| DiskError::Failed { step: Step::Expand, name: disk.name.clone(), why: error };
        let (room, pod, volume) = (self.room.clone(), Arc::new(pod.clone()), volume.to_owned());
        let giving =
            Giving { room, pod, volume, disk: disk.clone(), driver, device: String::new(), label: None };
        let at = path.to_owned();
        let done = to_end(async move { Box::pin(giving.expand(&at, true)).await }).await;
        done.unwrap_or_else(|error| Err(failed(error.into())))
    }

    /// When a volume of a Pod is to be looked at again.
    pub(crate) fn next(&self, uid: &str) -> Option<Timestamp> {
        self.known.lock().get(uid)?.values().filter_map(|known| known.next).min()
    }

    /// Where a volume is for a Pod.
    fn path(&self, uid: &str, disk: &Disk) -> PathBuf {
        if disk.block {
            return self.room.dir(&disk.staged()).join(uid);
        }
        self.room.target(uid, &disk.plugin(), &disk.name)
    }

    async fn is_there(&self, path: &Path) -> bool {
        let path = path.to_owned();
        try_blocking(move || give::is_mounted(&path)).await.unwrap_or(false)
    }

    /// Takes its volumes from a Pod, and those from the node that no other Pod has.
    ///
    /// # Errors
    /// One of them stays, and with it what is needed to take it later.
    pub(crate) async fn tear_down(&self, uid: &str) -> io::Result<()> {
        let (room, of) = (self.room.clone(), uid.to_owned());
        let done = to_end(async move { release::tear_down(&room, &of).await }).await;
        done.unwrap_or_else(|error| Err(error.into()))?;
        self.known.lock().remove(uid);
        Ok(())
    }

    /// Takes volumes from the node that no Pod has, which an earlier process left.
    pub(crate) async fn sweep(&self) -> io::Result<()> {
        let room = self.room.clone();
        let done = to_end(async move { release::sweep(&room).await }).await;
        done.unwrap_or_else(|error| Err(error.into()))
    }

    /// Takes up the volumes that an earlier process left: the Node says of them that they are in use.
    pub(crate) async fn recover(&self) -> io::Result<()> {
        for staged in release::all(&self.room).await? {
            let names = staged.unique_names();
            if !names.is_empty() {
                self.room.tell(&staged, names);
            }
        }
        Ok(())
    }

    /// Whether other Pods of the node have a volume.
    pub(crate) async fn others(&self, uid: &str, disk: &Disk) -> io::Result<bool> {
        let dir = self.room.dir(&disk.staged());
        if self.room.users.of(&dir).iter().any(|other| other != uid) {
            return Ok(true);
        }
        let (pods, plugin, name, block) = (self.room.pods(), disk.plugin(), disk.name.clone(), disk.block);
        let uid = uid.to_owned();
        try_blocking(move || -> io::Result<bool> {
            if block {
                let all = devices::names(&dir)?;
                return Ok(all.iter().any(|other| *other != uid && !other.contains(iscsi::FILE)));
            }
            let at = |other: &String| pods.join(other).join("volumes").join(&plugin).join(&name);
            let mut others = devices::names(&pods)?.into_iter().filter(|other| *other != uid);
            Ok(others.any(|other| at(&other).symlink_metadata().is_ok()))
        })
        .await
    }

    /// The volumes of a Pod that are file systems of their own.
    pub(crate) fn filesystems(&self, uid: &str) -> Vec<OwnFilesystem> {
        let known = self.known.lock();
        let of = known.get(uid).into_iter().flatten();
        let told = of.filter(|(_, Known { disk, driver, .. })| {
            !disk.block && driver.as_ref().is_none_or(|driver| driver.capabilities.supports_metrics)
        });
        told.map(|(name, Known { disk, .. })| (name.clone(), disk.claim.clone(), self.path(uid, disk)))
            .collect()
    }
}

/// A remedy for a volume that is not attached.
fn hint(disk: &Disk) -> String {
    let Kind::Flex(of) = &disk.kind else { return String::new() };
    format!(
        "; the controller manager attaches volumes of the driver {}, which must be in its --flex-volume-plugin-dir, too",
        of.driver
    )
}
