//! A volume is given to a Pod: found by the host, mounted once for the node, and bound into the Pod's directory.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Pod;
use rustix::mount::UnmountFlags;

use super::disk::{Disk, Flex, Kind};
use super::error::{DiskError, Step, Why};
use super::format::format_and_mount;
use super::room::Room;
use super::table::Table;
use crate::pods::spec;
use crate::volumes::giving::ownership;
use crate::volumes::{local, mounts, selinux};
use crate::work::try_blocking;
use plugins::flex::{self, CallError, Driver};

/// A volume that a Pod is given.
pub(super) struct Giving {
    pub(super) room: Arc<Room>,
    pub(super) pod: Arc<Pod>,
    /// The volume's name in the Pod.
    pub(super) volume: String,
    pub(super) disk: Arc<Disk>,
    /// The driver of a FlexVolume.
    pub(super) driver: Option<Arc<Driver>>,
    /// The device, as the Node's status tells it.
    pub(super) device: String,
    /// The SELinux label with which it is mounted.
    pub(super) label: Option<String>,
}

/// Makes a directory for the kubelet alone and its group, with those above it.
fn make_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o750).create(dir)
}

/// Whether something is mounted at a path, which need not be there.
pub(super) fn is_mounted(path: &Path) -> io::Result<bool> {
    match mounts::is_mount_point(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        found => found,
    }
}

/// Unmounts a path. A device goes away after that, so it must not be in use any more: there is no lazy end.
pub(super) fn unmount(path: &Path) -> io::Result<()> {
    while is_mounted(path)? {
        rustix::mount::unmount(path, UnmountFlags::NOFOLLOW).map_err(|error| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("cannot unmount {}: {error}", path.display()))
        })?;
    }
    Ok(())
}

async fn is_mounted_at(path: &Path) -> Result<bool, Why> {
    let path = path.to_owned();
    Ok(try_blocking(move || is_mounted(&path)).await?)
}

/// Whether a device is at a path.
pub(crate) fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

/// Without an answer to a command that a driver need not know.
pub(super) fn known<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Err(CallError::NotSupported) => Ok(None),
        answer => answer.map(Some),
    }
}

impl Giving {
    pub(super) fn failed(&self, step: Step) -> impl FnOnce(Why) -> DiskError {
        let name = self.disk.name.clone();
        move |why| DiskError::Failed { step, name, why }
    }

    /// Gives it. Answers where it is.
    pub(super) async fn give(self) -> Result<PathBuf, DiskError> {
        let staged = self.disk.staged();
        let dir = self.room.dir(&staged);
        let turn = self.room.turn(&dir.to_string_lossy()).await;
        if self.disk.block {
            let path = self.map(&dir).await?;
            drop(turn);
            self.expand(&path, false).await?;
            return Ok(path);
        }
        let once = self.driver.as_ref().is_none_or(|driver| driver.capabilities.attach);
        if self.disk.traits().mountable && self.room.wearers.enabled() {
            let clear = self.take_other_label(&dir).await.map_err(self.failed(Step::MountDevice))?;
            if !clear {
                let why = selinux::waiting(self.disk.unique.as_deref().unwrap_or_default());
                return Err(DiskError::Unprocessed { volume: self.volume.clone(), why });
            }
        }
        if once && !is_mounted_at(&dir).await.map_err(self.failed(Step::MountDevice))? {
            let told = self.attach(&dir).await.map_err(self.failed(Step::Attach))?;
            let device = self.find(&dir, &told).await.map_err(self.failed(Step::WaitForAttach))?;
            self.mount_device(&device, &dir).await.map_err(self.failed(Step::MountDevice))?;
            self.room.labelled.lock().insert(dir.clone(), self.label.clone());
        }
        let path = self.set_up(&dir).await.map_err(self.failed(Step::SetUp))?;
        drop(turn);
        self.expand(&path, false).await?;
        Ok(path)
    }

    /// Unmounts the volume where it is mounted with another SELinux label. Answers whether it could be done: not while
    /// another Pod has it so.
    async fn take_other_label(&self, dir: &Path) -> Result<bool, Why> {
        let room = &self.room;
        if !is_mounted_at(dir).await? || room.label_at(dir).await? == self.label {
            return Ok(true);
        }
        let (at, pods, own) = (dir.to_owned(), room.pods(), room.pods().join(spec::uid(&self.pod)));
        let clear = try_blocking(move || -> io::Result<bool> {
            let table = Table::read()?;
            let all = table.same(&at, &pods);
            if all.iter().any(|point| !point.starts_with(&own)) {
                return Ok(false);
            }
            // The last one mounted goes first.
            for point in all.into_iter().rev() {
                unmount(point)?;
            }
            unmount(&at)?;
            Ok(true)
        });
        Ok(clear.await?)
    }

    /// Attaches the volume to the node, where that is this kubelet's part. Answers the device, as the attacher tells it. The
    /// directory is there before: with it, another process knows what to undo.
    async fn attach(&self, dir: &Path) -> Result<String, Why> {
        let (room, disk) = (&self.room, &self.disk);
        if room.of.controller_attaches || disk.unique.is_none() {
            return Ok(self.device.clone());
        }
        if let Some(device) = room.attached.lock().get(dir) {
            return Ok(device.clone());
        }
        let mut device = String::new();
        if let (Kind::Flex(of), Some(driver)) = (&disk.kind, &self.driver) {
            let at = dir.to_owned();
            try_blocking(move || make_dir(&at)).await?;
            let options = self.options(of, BTreeMap::new());
            let answer = known(driver.call("attach", &[&options, &room.of.node_name]).await)?;
            device = answer.map(|answer| answer.device).unwrap_or_default();
        }
        room.attached.lock().insert(dir.to_owned(), device.clone());
        let message = format!("AttachVolume.Attach succeeded for volume {:?} ", disk.name);
        room.of.giver.recorder.pod(&self.pod, "Normal", "SuccessfulAttachVolume", message);
        Ok(device)
    }

    /// Finds the device; `told`: where it is, as its attacher tells it. The directory is there before.
    async fn find(&self, dir: &Path, told: &str) -> Result<PathBuf, Why> {
        let room = &self.room;
        let at = dir.to_owned();
        match &self.disk.kind {
            Kind::Iscsi(of) => {
                let secret = room.texts(of.secret()).await?;
                let _target = room.turn(&of.record.iqn).await;
                let record = of.record.clone();
                try_blocking(move || -> io::Result<()> {
                    make_dir(&at)?;
                    record.save(&at)
                })
                .await?;
                Ok(of.attach(&room.host, &secret).await?)
            }
            Kind::Fc(of) => {
                try_blocking(move || make_dir(&at)).await?;
                Ok(of.attach(&room.host).await?)
            }
            Kind::Local(path) => {
                try_blocking(move || make_dir(&at)).await?;
                if !is_block_device(path) {
                    let path = path.display().to_string();
                    return Err(Why::Text(format!("path {path:?} is not a block device")));
                }
                Ok(path.clone())
            }
            Kind::Flex(of) => {
                try_blocking(move || make_dir(&at)).await?;
                let Some(driver) = &self.driver else { return Ok(PathBuf::new()) };
                let options = self.options(of, BTreeMap::new());
                // The name is upstream's own, whatever the driver answers.
                known(driver.call("getvolumename", &[&options]).await)?;
                let answer = known(driver.call("waitforattach", &[told, &options]).await)?;
                Ok(PathBuf::from(answer.map_or_else(|| told.to_owned(), |answer| answer.device)))
            }
        }
    }

    fn options(&self, of: &Flex, more: BTreeMap<String, String>) -> String {
        let disk = &self.disk;
        flex::options((&disk.fs_type, disk.read_only, &disk.name), more, &of.options)
    }

    /// Mounts the device for the node.
    async fn mount_device(&self, device: &Path, dir: &Path) -> Result<(), Why> {
        let (host, disk) = (&self.room.host, &self.disk);
        if let (Kind::Flex(of), Some(driver)) = (&disk.kind, &self.driver) {
            let options = self.options(of, BTreeMap::new());
            let (at, path) = (dir.to_string_lossy(), device.to_string_lossy());
            let arguments: [&str; 3] = [&at, &path, &options];
            if known(driver.call("mountdevice", &arguments).await)?.is_some() || device.as_os_str().is_empty()
            {
                return Ok(());
            }
            let mode = if disk.read_only { "ro" } else { "rw" }.to_owned();
            return Ok(format_and_mount(host, (device, dir), &disk.fs_type, &[mode]).await?);
        }
        Ok(format_and_mount(host, (device, dir), &disk.fs_type, &disk.mount_options(self.label.as_deref()))
            .await?)
    }

    /// Mounts the volume for the Pod, and gives its files to the Pod's group.
    async fn set_up(&self, dir: &Path) -> Result<PathBuf, Why> {
        let disk = &self.disk;
        let target = self.room.target(spec::uid(&self.pod), &disk.plugin(), &disk.name);
        let at = target.clone();
        let new = try_blocking(move || -> io::Result<bool> {
            make_dir(&at)?;
            Ok(!is_mounted(&at)?)
        });
        if !new.await? {
            return Ok(target);
        }
        let grouped = self.driver.as_ref().is_none_or(|driver| driver.capabilities.fs_group);
        let mut done = self.publish(dir, &target).await;
        if done.is_ok()
            && !disk.read_only
            && let Some(owner) = ownership(&self.pod).filter(|_| grouped)
        {
            done = self.room.of.giver.give(&self.pod, owner, &target).await.map_err(Why::from);
        }
        if done.is_err() {
            // The next attempt begins anew, with all files.
            let at = target.clone();
            let cleared = try_blocking(move || -> io::Result<()> {
                mounts::unmount_all_at(&at)?;
                fs::remove_dir(&at)
            });
            if let Err(error) = cleared.await {
                tracing::debug!(path = %target.display(), %error, "the directory of a volume stays");
            }
        }
        done.map(|()| target)
    }

    async fn publish(&self, dir: &Path, target: &Path) -> Result<(), Why> {
        let disk = &self.disk;
        if let (Kind::Flex(of), Some(driver)) = (&disk.kind, &self.driver) {
            let options = self.options(of, self.about_pod(of).await?);
            let at = target.to_string_lossy();
            let arguments: [&str; 2] = [&at, &options];
            if known(driver.call("mount", &arguments).await)?.is_some() {
                return Ok(());
            }
            if !is_mounted_at(dir).await? {
                let text = format!("the driver {} does neither mount nor mountdevice", of.driver);
                return Err(Why::Text(text));
            }
        }
        let (from, at, read_only) = (dir.to_owned(), target.to_owned(), disk.read_only);
        Ok(try_blocking(move || local::bind(&from, &at, read_only)).await.map(drop)?)
    }

    /// The options that tell a driver of the Pod.
    async fn about_pod(&self, of: &Flex) -> Result<BTreeMap<String, String>, Why> {
        let pod = &self.pod;
        let account = spec::spec(pod).service_account_name.clone().unwrap_or_default();
        let pair = |name: &str, value: &str| (format!("kubernetes.io/{name}"), value.to_owned());
        let mut options = BTreeMap::from([
            pair("pod.name", spec::name(pod)),
            pair("pod.namespace", spec::namespace(pod)),
            pair("pod.uid", spec::uid(pod)),
            pair("serviceAccount.name", &account),
        ]);
        let secret = self.room.secret(of.secret.as_ref(), Some(&of.driver)).await?.into_iter();
        options.extend(secret.map(|(key, value)| pair(&format!("secret/{key}"), &STANDARD.encode(value))));
        options.extend(ownership(pod).map(|o| pair("mounterArgs.FsGroup", &o.group.to_string())));
        Ok(options)
    }

    /// Gives the Pod a device: a file that is the device, with a link in the Pod's directory.
    ///
    /// DIFFERENCE: upstream puts a loop device on it besides, so that nothing else can be at its number. A mount holds the
    /// device as well.
    async fn map(&self, dir: &Path) -> Result<PathBuf, DiskError> {
        let uid = spec::uid(&self.pod);
        let path = dir.join(uid);
        if is_mounted_at(&path).await.map_err(self.failed(Step::MapPodDevice))? {
            return Ok(path);
        }
        let told = self.attach(dir).await.map_err(self.failed(Step::Attach))?;
        let device = self.find(dir, &told).await.map_err(self.failed(Step::MapWaitForAttach))?;
        let link = self.room.link(uid, &self.disk.plugin(), &self.disk.name);
        let own = link.parent().unwrap_or(&link).to_owned();
        let to = path.clone();
        let mapped = try_blocking(move || -> io::Result<()> {
            fs::OpenOptions::new().create(true).append(true).mode(0o640).open(&to)?;
            rustix::mount::mount_bind(&device, &to)?;
            make_dir(link.parent().unwrap_or(&link))?;
            match std::os::unix::fs::symlink(&to, &link) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                made => made,
            }
        });
        mapped.await.map_err(|error: io::Error| self.failed(Step::MapPodDevice)(error.into()))?;
        self.room.of.giver.mapped(&self.pod, &self.disk.name, [dir, &own]);
        Ok(path)
    }
}
