//! The things that all work on these volumes shares, and the volumes as they are.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::Client;
use component::{Clock, Turns};
use k8s_openapi::api::core::v1::Secret;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use super::devices::names;
use super::disk::Staged;
use super::error::Why;
use super::host::Host;
use super::iscsi::{self, Texts};
use super::table::Table;
use crate::csi::InUse;
use crate::node::NodeView;
use crate::users::Users;
use crate::volumes::giving::Giver;
use crate::volumes::growth::Sizes;
use crate::volumes::selinux::{self, Labels, Wearers};
use crate::work::try_blocking;
use plugins::flex::{self, Drivers};

/// How long an answer of the API server is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// The deepest directory of a volume below that of the plugins.
const DEPTH: usize = 8;

/// The parts of a kubelet that the work needs.
pub(crate) struct Given {
    /// Requests with the node's identity.
    pub(crate) client: Client,
    /// The node.
    pub(crate) node: NodeView,
    /// The volumes that the Node tells of.
    pub(crate) in_use: Arc<InUse>,
    /// Gives files to groups.
    pub(crate) giver: Giver,
    /// The kubelet's root directory.
    pub(crate) root: PathBuf,
    /// The directory of drivers of FlexVolumes.
    pub(crate) drivers: PathBuf,
    /// Whether there is no API server, so that nobody says that a volume is attached.
    pub(crate) standalone: bool,
    pub(crate) clock: Clock,
    /// The node's name.
    pub(crate) node_name: String,
    /// Whether the controller manager attaches volumes, and not this kubelet.
    pub(crate) controller_attaches: bool,
    /// The node's SELinux.
    pub(crate) labels: Arc<Labels>,
}

/// The room in which volumes are worked on.
pub(super) struct Room {
    pub(super) of: Given,
    /// The machine.
    pub(super) host: Host,
    /// The drivers of FlexVolumes.
    pub(super) drivers: Drivers,
    /// One thing at a time is done to a volume, and to a target.
    turns: Turns<String>,
    /// The Pods that are to have a volume, by its directory, from before it is there.
    pub(super) users: Users<PathBuf>,
    /// The SELinux labels of the volumes that Pods are to have.
    pub(super) wearers: Wearers<PathBuf>,
    /// The names by which the Node tells of volumes, by their directories.
    names: Mutex<HashMap<PathBuf, Vec<String>>>,
    /// The devices of the volumes that this process has attached itself, by the volumes' directories.
    pub(super) attached: Mutex<HashMap<PathBuf, String>>,
    /// The SELinux labels with which this process has mounted volumes, by the volumes' directories. The kernel tells them in
    /// a form of its own.
    pub(super) labelled: Mutex<HashMap<PathBuf, Option<String>>>,
    /// The volumes that may grow, by their directories.
    pub(super) sizes: Sizes<PathBuf>,
}

impl Room {
    pub(super) fn new(mut of: Given, host: Host) -> Self {
        // The kernel's table of mounts has no links in its paths, and what it says of a volume decides whether the volume
        // goes.
        if let Ok(real) = std::fs::canonicalize(&of.root) {
            of.root = real;
        }
        let drivers = Drivers::new(of.drivers.clone());
        let wearers = Wearers::new(&of.labels);
        Self {
            of,
            host,
            wearers,
            drivers,
            turns: Turns::default(),
            users: Users::default(),
            names: Mutex::default(),
            attached: Mutex::default(),
            labelled: Mutex::default(),
            sizes: Sizes::default(),
        }
    }

    /// The SELinux label with which the file system at a path is mounted.
    pub(super) async fn label_at(&self, path: &Path) -> io::Result<Option<String>> {
        if !self.wearers.enabled() {
            return Ok(None);
        }
        if let Some(label) = self.labelled.lock().get(path) {
            return Ok(label.clone());
        }
        let at = path.to_owned();
        let options = try_blocking(move || Table::read().map(|table| table.options(&at))).await?;
        Ok(options.as_deref().and_then(selinux::of_mount))
    }

    /// Waits for the turn to change something.
    pub(super) async fn turn(&self, of: &str) -> OwnedMutexGuard<()> {
        self.turns.take(of.to_owned()).await
    }

    /// The directory of the plugins' volumes.
    pub(super) fn plugins(&self) -> PathBuf {
        self.of.root.join("plugins/kubernetes.io")
    }

    /// The directory of a volume.
    pub(super) fn dir(&self, staged: &Staged) -> PathBuf {
        self.plugins().join(staged.dir())
    }

    /// The directory of all Pods.
    pub(super) fn pods(&self) -> PathBuf {
        self.of.root.join("pods")
    }

    /// The directory of a Pod's volume.
    pub(super) fn target(&self, uid: &str, plugin: &str, name: &str) -> PathBuf {
        self.pods().join(uid).join("volumes").join(plugin).join(name)
    }

    /// Where the link to a Pod's device is.
    pub(super) fn link(&self, uid: &str, plugin: &str, name: &str) -> PathBuf {
        self.pods().join(uid).join("volumeDevices").join(plugin).join(name)
    }

    /// The content of a Secret; nothing without one. `kind`: the type that it must have.
    pub(super) async fn secret(
        &self,
        name: Option<&(String, String)>,
        kind: Option<&str>,
    ) -> Result<HashMap<String, Vec<u8>>, Why> {
        let Some((namespace, name)) = name else { return Ok(HashMap::new()) };
        let failed = |why: &str| Why::Text(format!("couldn't get secret {namespace}/{name} error: {why}"));
        let found = timeout(PATIENCE, self.of.client.api::<Secret>(namespace).get(name)).await;
        let found =
            found.map_err(|_| failed("context deadline exceeded"))?.map_err(|e| failed(&e.message))?;
        if let Some(kind) = kind.filter(|kind| found.type_.as_deref() != Some(*kind)) {
            return Err(failed(&format!("cannot get secret of type {kind}")));
        }
        Ok(found.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect())
    }

    /// The content of a Secret, of which all is text.
    pub(super) async fn texts(&self, name: Option<&(String, String)>) -> Result<Texts, Why> {
        let data = self.secret(name, None).await?.into_iter();
        let text = |(key, value): (String, Vec<u8>)| match String::from_utf8(value) {
            Ok(value) => Ok((key, value)),
            Err(_) => Err(Why::Text(format!("the value of {key:?} in the secret is not text"))),
        };
        data.map(text).collect()
    }

    /// Has the Node tell that a volume is used, by these names and no others.
    pub(super) fn tell(&self, staged: &Staged, told: Vec<String>) {
        for name in &told {
            self.of.in_use.add(name);
        }
        let old = self.names.lock().insert(self.dir(staged), told.clone());
        for name in old.into_iter().flatten().filter(|old| !told.contains(old)) {
            self.of.in_use.remove(&name);
        }
    }

    /// Has the Node not tell any more that a volume is used.
    fn untell(&self, dir: &Path) {
        for name in self.names.lock().remove(dir).into_iter().flatten() {
            self.of.in_use.remove(&name);
        }
    }

    /// Forgets a volume that no Pod of this node has.
    pub(super) fn forget(&self, dir: &Path) {
        self.attached.lock().remove(dir);
        self.labelled.lock().remove(dir);
        self.sizes.forget(dir);
        self.untell(dir);
    }

    /// Whether a Pod has a volume, as the disk and the kernel tell.
    pub(super) fn is_used(&self, staged: &Staged) -> io::Result<bool> {
        let dir = self.dir(staged);
        if let Staged::Flex { driver, name } = staged {
            let plugin = flex::directory(driver);
            let has = |uid: &String| self.target(uid, &plugin, name).symlink_metadata().is_ok();
            return Ok(names(&self.pods())?.iter().any(has));
        }
        if staged.is_block() {
            return Ok(names(&dir)?.iter().any(|name| !name.contains(iscsi::FILE)));
        }
        Ok(!Table::read()?.same(&dir, &self.pods()).is_empty())
    }
}

/// The volumes that are on the disk, below the plugins' directory.
pub(super) fn staged(plugins: &Path) -> io::Result<Vec<Staged>> {
    let tops = ["iscsi", "fc", "local-volume", "flexvolume"];
    let mut left: Vec<PathBuf> = tops.iter().map(PathBuf::from).collect();
    let mut found = Vec::new();
    while let Some(dir) = left.pop() {
        if let Some(staged) = Staged::of_dir(&dir) {
            found.push(staged);
        } else if dir.components().count() < DEPTH {
            left.extend(names(&plugins.join(&dir))?.into_iter().map(|name| dir.join(name)));
        }
    }
    Ok(found)
}
