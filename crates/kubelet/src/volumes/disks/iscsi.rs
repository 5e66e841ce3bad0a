//! LUNs of iSCSI targets, by the host's `iscsiadm` (upstream: `pkg/volume/iscsi`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ISCSIPersistentVolumeSource, ISCSIVolumeSource};
use serde::{Deserialize, Serialize};

use super::devices::names;
use super::host::{Host, RunError};
use crate::work::{Interrupted, try_blocking};

const PROGRAM: &str = "iscsiadm";
/// The file beside a volume that says how to log out; upstream's name and form.
pub(super) const FILE: &str = "iscsi.json";
/// The longest such file that is read.
const MOST: u64 = 1 << 16;
/// The port of portals that name none.
pub(super) const PORT: u16 = 3260;
/// The paths that are enough for a volume with several portals, after so many attempts; upstream's.
const ENOUGH: (usize, usize) = (2, 2);
/// How often the paths of a volume are looked for; upstream's.
const ATTEMPTS: usize = 5;
/// How often a device is looked for, a second apart; upstream's.
const DEVICE_LOOKS: usize = 30;
/// How often a device that joins several paths is looked for, a second apart; upstream's.
const MULTIPATH_LOOKS: usize = 10;
/// The exit code of `iscsiadm` for something that is there already.
const EXISTS: i32 = 15;
/// The exit codes of `iscsiadm` for a session or a record that is not there.
const NOT_THERE: [i32; 2] = [2, 21];

/// The keys of a Secret for discovery; upstream's.
const DISCOVERY: [&str; 4] = [
    "discovery.sendtargets.auth.username",
    "discovery.sendtargets.auth.password",
    "discovery.sendtargets.auth.username_in",
    "discovery.sendtargets.auth.password_in",
];
/// The keys of a Secret for a session; upstream's.
const SESSION: [&str; 4] = [
    "node.session.auth.username",
    "node.session.auth.password",
    "node.session.auth.username_in",
    "node.session.auth.password_in",
];

/// A Secret's content.
pub(super) type Texts = BTreeMap<String, String>;

/// A LUN, as it is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Iscsi {
    /// The way to the target, as it is kept.
    pub(super) record: Record,
    /// Whether discovery has a name and a password.
    chap_discovery: bool,
    /// Whether sessions have a name and a password.
    chap_session: bool,
    /// The Secret that has them: its namespace and name.
    secret: Option<(String, String)>,
}

/// The way to a LUN, kept beside its mount; upstream's form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Record {
    /// The name of the PersistentVolume, or of the Pod's volume.
    vol_name: String,
    /// The target's portals.
    #[serde(deserialize_with = "or_empty")]
    pub(super) portals: Vec<String>,
    /// The target.
    pub(super) iqn: String,
    /// The LUN.
    pub(super) lun: String,
    /// The interface that is there.
    init_iface: String,
    /// The interface that is used.
    pub(super) iface: String,
    /// The name of the initiator; empty for the host's own.
    initiator_name: String,
}

/// A list that Go may have written as null.
fn or_empty<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::<Vec<String>>::deserialize(from)?.unwrap_or_default())
}

/// Why a LUN is not there; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IscsiError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{text}: {output} ({error})")]
    Program { text: String, output: String, error: RunError },
    #[error("could not parse iface file for {0}")]
    NoTransport(String),
    #[error("iscsi: cannot clone iface with same name: {0}")]
    SameInterface(String),
    #[error("iscsi: failed to parse iface records: invalid iface setting: {0}")]
    Interface(String),
    #[error("AttachDisk: lun is not a number: {0}")]
    Lun(String),
    #[error("Could not get SCSI host number for portal {0} after logging in")]
    NoHost(String),
    #[error("Timed out waiting for device at path {0} after {DEVICE_LOOKS}s")]
    NoDevice(String),
    #[error("failed to get any path for iscsi disk, last err seen:\n{0}")]
    NoPath(Box<IscsiError>),
}

impl From<Interrupted> for IscsiError {
    fn from(error: Interrupted) -> Self {
        Self::Io(error.into())
    }
}

fn failed(text: impl Into<String>) -> impl FnOnce(RunError) -> IscsiError {
    let text = text.into();
    move |error| match error {
        RunError::Failed { ref output, .. } => {
            IscsiError::Program { text, output: output.trim_end().to_owned(), error }
        }
        error => IscsiError::Program { text, output: String::new(), error },
    }
}

/// A portal with its port.
fn with_port(portal: &str) -> String {
    if portal.contains(':') { portal.to_owned() } else { format!("{portal}:{PORT}") }
}

/// The parts that both kinds of sources have.
struct Source<'a> {
    target_portal: &'a str,
    portals: &'a [String],
    iqn: &'a str,
    lun: i32,
    iface: Option<&'a str>,
    initiator: Option<&'a str>,
    chap: (Option<bool>, Option<bool>),
}

/// The fields that the sources of Pods' volumes and of PersistentVolumes have in common.
macro_rules! source {
    ($of:expr) => {
        Source {
            target_portal: &$of.target_portal,
            portals: $of.portals.as_deref().unwrap_or_default(),
            iqn: &$of.iqn,
            lun: $of.lun,
            iface: $of.iscsi_interface.as_deref(),
            initiator: $of.initiator_name.as_deref(),
            chap: ($of.chap_auth_discovery, $of.chap_auth_session),
        }
    };
}

impl Iscsi {
    fn new(name: &str, of: &Source<'_>, secret: Option<(String, String)>) -> Self {
        let mut portals = vec![with_port(of.target_portal)];
        for portal in of.portals {
            let portal = with_port(portal);
            if !portals.contains(&portal) {
                portals.push(portal);
            }
        }
        let init_iface = of.iface.unwrap_or("default").to_owned();
        let initiator_name = of.initiator.unwrap_or_default().to_owned();
        let iface =
            if initiator_name.is_empty() { init_iface.clone() } else { format!("{}:{name}", portals[0]) };
        let (iqn, lun) = (of.iqn.to_owned(), of.lun.to_string());
        let record =
            Record { vol_name: name.to_owned(), portals, iqn, lun, init_iface, iface, initiator_name };
        let (chap_discovery, chap_session) = (of.chap.0.unwrap_or(false), of.chap.1.unwrap_or(false));
        let secret = secret.filter(|_| chap_discovery || chap_session);
        Self { record, chap_discovery, chap_session, secret }
    }

    /// That of a Pod's volume.
    pub(super) fn inline(name: &str, of: &ISCSIVolumeSource, namespace: &str) -> Self {
        let secret = of.secret_ref.as_ref().map(|s| (namespace.to_owned(), s.name.clone()));
        Self::new(name, &source!(of), secret)
    }

    /// That of a PersistentVolume, for a Pod of a namespace.
    pub(super) fn persistent(name: &str, of: &ISCSIPersistentVolumeSource, namespace: &str) -> Self {
        let secret = of.secret_ref.as_ref().and_then(|s| {
            let own = s.namespace.clone().filter(|n| !n.is_empty());
            Some((own.unwrap_or_else(|| namespace.to_owned()), s.name.clone()?))
        });
        Self::new(name, &source!(of), secret)
    }

    /// The Secret that is needed: its namespace and name.
    pub(super) fn secret(&self) -> Option<&(String, String)> {
        self.secret.as_ref()
    }

    /// Logs in to the target, if the host is not yet, and finds the device. Answers its path.
    ///
    /// # Errors
    /// There is no path to it.
    pub(super) async fn attach(&self, host: &Host, secret: &Texts) -> Result<PathBuf, IscsiError> {
        let of = &self.record;
        let shown = host.run(PROGRAM, &["-m", "iface", "-I", &of.init_iface, "-o", "show"]).await;
        let shown = shown.map_err(failed(format!("iscsi: could not read iface {} error", of.init_iface)))?;
        let clones = !of.initiator_name.is_empty();
        if clones {
            of.clone_interface(host, &shown).await?;
        }
        let transport = transport(&shown);
        let Some(transport) = transport else { return Err(IscsiError::NoTransport(of.iface.clone())) };
        let mut found: BTreeMap<&str, PathBuf> = BTreeMap::new();
        for attempt in 1..=ATTEMPTS {
            let mut last = None;
            for portal in &of.portals {
                if found.contains_key(portal.as_str()) {
                    continue;
                }
                match self.path_by(host, portal, &transport, secret).await {
                    Ok(path) => drop(found.insert(portal, path)),
                    Err(error) => {
                        tracing::debug!(portal, %error, "no path to an iSCSI target");
                        last = Some(error);
                    }
                }
            }
            if found.is_empty() {
                if clones {
                    let _ = host.run(PROGRAM, &["-m", "iface", "-I", &of.iface, "-o", "delete"]).await;
                }
                let last = last.unwrap_or_else(|| IscsiError::NoDevice(of.iqn.clone()));
                return Err(IscsiError::NoPath(Box::new(last)));
            }
            if found.len() == of.portals.len() || found.len() >= ENOUGH.0 && attempt >= ENOUGH.1 {
                break;
            }
        }
        let paths: Vec<PathBuf> = found.into_values().collect();
        // A volume with one portal need not be joined with others, so it is not waited for that.
        let looks = if of.portals.len() > 1 { MULTIPATH_LOOKS } else { 1 };
        let joined = looks_for(looks, || {
            let (host, paths) = (host.clone(), paths.clone());
            move || Ok(paths.iter().find_map(|path| host.multipath_of(path)))
        })
        .await?;
        Ok(joined.or_else(|| paths.into_iter().next()).unwrap_or_default())
    }

    /// Finds the device by one portal.
    async fn path_by(
        &self,
        host: &Host,
        portal: &str,
        transport: &str,
        secret: &Texts,
    ) -> Result<PathBuf, IscsiError> {
        let of = &self.record;
        let mut number = of.host_number(host, portal).await?;
        if number.is_none() {
            self.log_in(host, portal, secret).await?;
            number = of.host_number(host, portal).await?;
        }
        let number = number.ok_or_else(|| IscsiError::NoHost(portal.to_owned()))?;
        let lun = of.lun.parse().map_err(|_| IscsiError::Lun(of.lun.clone()))?;
        let on = host.clone();
        try_blocking(move || on.scan_lun(number, lun)).await?;
        let (prefix, suffix) = of.device(portal, transport);
        let found = looks_for(DEVICE_LOOKS, || {
            let (by_path, prefix, suffix) = (host.at("/dev/disk/by-path"), prefix.clone(), suffix.clone());
            move || {
                let mut all = names(&by_path)?.into_iter();
                let found = all.find(|name| name.starts_with(&prefix) && name.ends_with(&suffix));
                Ok(found.map(|name| by_path.join(name)))
            }
        })
        .await?;
        let shown =
            || format!("/dev/disk/by-path/{prefix}{}{suffix}", if prefix.is_empty() { "" } else { "*" });
        found.ok_or_else(|| IscsiError::NoDevice(shown()))
    }

    /// Logs in to the target by one portal; upstream's sequence.
    async fn log_in(&self, host: &Host, portal: &str, secret: &Texts) -> Result<(), IscsiError> {
        let of = &self.record;
        let discovery = ["-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", &of.iface];
        let node = ["-m", "node", "-p", portal, "-T", &of.iqn, "-I", &of.iface];
        let run = async |before: &[&str], more: &[&str]| host.run(PROGRAM, &[before, more].concat()).await;
        // It may be there already.
        let _ = run(&discovery, &["-o", "new"]).await;
        if self.chap_discovery {
            let text = format!("iscsi: failed to update discoverydb to portal {portal} error");
            let name = "discovery.sendtargets.auth.authmethod";
            set(host, &discovery, name, "CHAP").await.map_err(failed(text.clone()))?;
            set_all(host, &discovery, &DISCOVERY, secret, &text).await?;
        }
        if let Err(error) = run(&discovery, &["--discover"]).await {
            let _ = run(&discovery, &["-o", "delete"]).await;
            return Err(failed(format!("iscsi: failed to sendtargets to portal {portal} output"))(error));
        }
        // With a scan of its own, the kernel would find LUNs of others, too. An old program does not know the setting.
        if let Err(error) = set(host, &node, "node.session.scan", "manual").await {
            tracing::warn!(%error, "LUNs of others may be found, since the host's iscsiadm has no node.session.scan");
        }
        if self.chap_session {
            let text = format!("iscsi: failed to update iscsi node to portal {portal} error");
            let name = "node.session.auth.authmethod";
            set(host, &node, name, "CHAP").await.map_err(failed(text.clone()))?;
            set_all(host, &node, &SESSION, secret, &text).await?;
        }
        if let Err(error) = run(&node, &["--login"]).await {
            let _ = run(&node, &["-o", "delete"]).await;
            return Err(failed("iscsi: failed to attach disk: Error")(error));
        }
        // The host does not log in by itself when it starts.
        let manual = ["-m", "node", "-p", portal, "-T", &of.iqn];
        if let Err(error) = set(host, &manual, "node.startup", "manual").await {
            tracing::warn!(%error, "the host may log in to an iSCSI target by itself when it starts");
        }
        Ok(())
    }
}

async fn set(host: &Host, record: &[&str], name: &str, value: &str) -> Result<(), RunError> {
    host.run(PROGRAM, &[record, &["-o", "update", "-n", name, "-v", value]].concat()).await.map(drop)
}

async fn set_all(
    host: &Host,
    record: &[&str],
    keys: &[&str],
    secret: &Texts,
    text: &str,
) -> Result<(), IscsiError> {
    for key in keys {
        if let Some(value) = secret.get(*key).filter(|value| !value.is_empty()) {
            let text = format!("{text}: iscsi: failed to update key {key:?} error");
            set(host, record, key, value).await.map_err(failed(text))?;
        }
    }
    Ok(())
}

/// Looks for something again and again, a second apart.
async fn looks_for<T, W>(looks: usize, mut work: impl FnMut() -> W) -> Result<Option<T>, IscsiError>
where
    T: Send + 'static,
    W: FnOnce() -> io::Result<Option<T>> + Send + 'static,
{
    for look in 0..looks {
        if look > 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        if let Some(found) = try_blocking::<_, IscsiError, _>({
            let work = work();
            move || Ok(work()?)
        })
        .await?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The transport of an interface; none if it has no line for it.
fn transport(shown: &str) -> Option<String> {
    let value = shown.lines().find_map(|line| line.split_once("iface.transport_name = "))?.1.trim_end();
    Some(if value == "<empty>" { "tcp" } else { value }.to_owned())
}

/// The settings of an interface that another one can have, too.
fn settings(shown: &str) -> Result<BTreeMap<String, String>, IscsiError> {
    let mut settings = BTreeMap::new();
    let lines = shown.lines().filter(|line| line.starts_with("iface.") && !line.contains("<empty>"));
    for line in lines {
        let parts: Vec<&str> = line.split_whitespace().collect();
        let [name, "=", value] = parts[..] else { return Err(IscsiError::Interface(line.to_owned())) };
        // The name of an interface stays.
        if name != "iface.iscsi_ifacename" {
            settings.insert(name.to_owned(), value.to_owned());
        }
    }
    Ok(settings)
}

impl Record {
    /// The name of the directory of the LUN.
    pub(super) fn dir(&self) -> PathBuf {
        let portal = self.portals.first().map(String::as_str).unwrap_or_default();
        Path::new(&format!("iface-{}", self.iface)).join(format!("{portal}-{}-lun-{}", self.iqn, self.lun))
    }

    /// That of a directory of an interface, and the directory of a LUN in it.
    pub(super) fn of_dir(iface: &str, dir: &str) -> Option<Self> {
        let (rest, lun) = dir.rsplit_once("-lun-")?;
        let begin = rest.find("iqn.").or_else(|| rest.find("eui.")).or_else(|| rest.find("naa."))?;
        let (portal, iqn) = (rest[..begin].strip_suffix('-')?, &rest[begin..]);
        lun.parse::<u32>().ok()?;
        Some(Self {
            portals: vec![portal.to_owned()],
            iqn: iqn.to_owned(),
            lun: lun.to_owned(),
            iface: iface.strip_prefix("iface-")?.to_owned(),
            ..Self::default()
        })
    }

    /// Writes it into a directory, in one step.
    pub(super) fn save(&self, dir: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec(self).map_err(io::Error::other)?;
        text.push(b'\n');
        let new = dir.join(format!(".{FILE}.new"));
        fs::write(&new, text)?;
        fs::rename(&new, dir.join(FILE))
    }

    /// Reads that of a directory; none where there is none that can be understood.
    pub(super) fn load(dir: &Path) -> Option<Self> {
        use std::io::Read;
        let mut text = Vec::new();
        fs::File::open(dir.join(FILE)).ok()?.take(MOST).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// The beginning and the end of the device's name among those of the ways to devices.
    fn device(&self, portal: &str, transport: &str) -> (String, String) {
        let address = portal.replace(['[', ']'], "");
        let name = format!("ip-{address}-iscsi-{}-lun-{}", self.iqn, self.lun);
        if transport == "tcp" { (name, String::new()) } else { ("pci-".into(), format!("-{name}")) }
    }

    async fn host_number(&self, host: &Host, portal: &str) -> Result<Option<u32>, IscsiError> {
        let (on, iqn) = (host.clone(), self.iqn.clone());
        let portals = try_blocking(move || on.portals(&iqn)).await;
        Ok(portals.map_err(IscsiError::Io)?.get(portal).copied())
    }

    /// Makes an interface like the one that is there, with the initiator's name.
    async fn clone_interface(&self, host: &Host, shown: &str) -> Result<(), IscsiError> {
        if self.init_iface == self.iface {
            return Err(IscsiError::SameInterface(self.iface.clone()));
        }
        let mut settings = settings(shown)?;
        settings.insert("iface.initiatorname".into(), self.initiator_name.clone());
        let iface = ["-m", "iface", "-I", &self.iface];
        match host.run(PROGRAM, &[&iface[..], &["-o", "new"]].concat()).await {
            Err(error) if error.code() != Some(EXISTS) => {
                return Err(failed("iscsi: failed to create new iface")(error));
            }
            _ => {}
        }
        for (name, value) in settings {
            if let Err(error) = set(host, &iface, &name, &value).await {
                let _ = host.run(PROGRAM, &[&iface[..], &["-o", "delete"]].concat()).await;
                return Err(failed("iscsi: failed to update iface records")(error));
            }
        }
        Ok(())
    }

    /// Takes the LUN's devices from the kernel.
    pub(super) async fn forget_devices(&self, host: &Host) -> Result<(), IscsiError> {
        let lun = self.lun.parse().map_err(|_| IscsiError::Lun(self.lun.clone()))?;
        let (on, iqn) = (host.clone(), self.iqn.clone());
        let find = move || -> Result<(BTreeSet<String>, BTreeSet<PathBuf>), IscsiError> {
            let devices = on.devices_of_lun(&iqn, lun)?;
            let joined = devices.iter().filter_map(|d| on.multipath_of(&on.at("/dev").join(d))).collect();
            Ok((devices, joined))
        };
        let (devices, joined) = try_blocking(find).await?;
        for device in joined {
            if let Err(error) = host.run("multipath", &["-f", &device.to_string_lossy()]).await {
                tracing::warn!(device = %device.display(), %error, "a multipath device could not be flushed");
            }
        }
        let on = host.clone();
        let delete = move || {
            for device in devices {
                if let Err(error) = on.delete(&device) {
                    tracing::warn!(device, %error, "a device could not be removed");
                }
            }
            Ok::<_, IscsiError>(())
        };
        try_blocking(delete).await
    }

    /// Logs out of the target by all its portals.
    ///
    /// # Errors
    /// The program fails.
    pub(super) async fn log_out(&self, host: &Host) -> Result<(), IscsiError> {
        for portal in &self.portals {
            for what in [&["--logout"][..], &["-o", "delete"]] {
                let node = ["-m", "node", "-p", portal, "-T", &self.iqn];
                let arguments = [&node[..], what, &["-I", &self.iface]].concat();
                let text = format!("iscsi: failed to detach disk from portal {portal} Error");
                self.unless_missing(host, &arguments, text).await?;
            }
        }
        // An interface of somebody else's stays.
        let own = self.portals.first().map(|portal| format!("{portal}:{}", self.vol_name));
        if !self.initiator_name.is_empty() && own.as_ref() == Some(&self.iface) {
            let arguments = ["-m", "iface", "-I", &self.iface, "-o", "delete"];
            self.unless_missing(host, &arguments, "iscsi: failed to delete iface Error".into()).await?;
        }
        Ok(())
    }

    async fn unless_missing(&self, host: &Host, arguments: &[&str], text: String) -> Result<(), IscsiError> {
        match host.run(PROGRAM, arguments).await {
            Err(error) if error.code().is_some_and(|code| NOT_THERE.contains(&code)) => Ok(()),
            // Without the program nobody can have logged in.
            Err(RunError::Missing(_)) if host.portals(&self.iqn)?.is_empty() => Ok(()),
            done => done.map(drop).map_err(failed(text)),
        }
    }
}

/// The number of volumes of a target that are in a directory with directories of interfaces.
///
/// DIFFERENCE: upstream also counts those of a target whose name only begins with this one.
pub(super) fn volumes_of(dir: &Path, portal: &str, iqn: &str) -> io::Result<usize> {
    let prefix = format!("{portal}-{iqn}-lun-");
    let mut count = 0;
    for iface in names(dir)?.into_iter().filter(|n| n.starts_with("iface-")) {
        count += names(&dir.join(iface))?.iter().filter(|n| n.starts_with(&prefix)).count();
    }
    Ok(count)
}

#[cfg(test)]
pub(super) mod tests;
