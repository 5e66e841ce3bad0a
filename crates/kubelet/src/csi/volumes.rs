//! The volumes of drivers that this node's Pods have.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use plugins::csi as pb;
use plugins::csi::node_service_capability::rpc::Type as Capability;

use super::calls::NodeService;
use super::device;
use super::error::{CsiError, Step, Why};
use super::expand;
use super::mounter::{self, Giving, target};
use super::record::{Record, names};
use super::room::Room;
use super::volume::{Key, Rules, Texts, Wanted, unique_name};
use crate::metrics;
use crate::node::machine::Filesystem;
use crate::pods::spec;
use crate::volumes::selinux;
use crate::work::{to_end, try_blocking};

/// How often the volume of a running Pod is looked at: whether it is to be published again or made larger. Upstream does
/// so with each sync of the Pod, about as often.
const PERIOD: Duration = Duration::from_mins(1);
/// The most letters that are kept of a driver's words on a volume.
const MAX_MESSAGE: usize = 1024;

/// A volume that a Pod has.
struct Known {
    wanted: Arc<Wanted>,
    published: Published,
    /// When it is to be looked at again; never, where neither can be.
    next: Option<Timestamp>,
}

/// A volume as a Pod has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Published {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// The SELinux label with which it is mounted.
    label: Option<String>,
    /// Whether its files are to be labelled for each container.
    pub(crate) relabel: bool,
}

impl Published {
    /// One at a path, with its label if it is mounted with one. `enabled`: SELinux is on.
    async fn new(path: PathBuf, wanted: &Wanted, label: Option<String>, enabled: bool) -> io::Result<Self> {
        let mut relabel = enabled && label.is_none() && !wanted.read_only && !wanted.block;
        if relabel {
            let at = path.clone();
            let table = || std::fs::read("/proc/self/mountinfo");
            relabel = try_blocking(move || table().map(|table| selinux::takes_labels(&table, &at))).await?;
        }
        Ok(Self { path, label, relabel })
    }
}

/// The room that a volume takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Its name in the Pod.
    pub(crate) name: String,
    /// Bytes that are used.
    pub(crate) used: u64,
    /// Inodes that are used.
    pub(crate) inodes_used: u64,
    /// The whole of it.
    pub(crate) room: Filesystem,
    /// The claim by which the Pod has it: namespace and name.
    pub(crate) claim: Option<(String, String)>,
    /// Its condition, where its driver tells it and the gate `CSIVolumeHealth` is on.
    pub(crate) condition: Option<Condition>,
}

/// The condition of a volume, as its driver sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Condition {
    /// Whether it is not as it should be.
    pub(crate) abnormal: bool,
    /// The driver's words.
    pub(crate) message: String,
}

/// Gives Pods volumes, and takes them back.
pub(crate) struct CsiVolumes {
    room: Arc<Room>,
    /// By the uids of Pods and the volumes' names in them.
    known: Mutex<HashMap<String, HashMap<String, Known>>>,
}

impl CsiVolumes {
    /// No volumes yet.
    pub(crate) fn new(room: Arc<Room>) -> Self {
        Self { room, known: Mutex::default() }
    }

    /// Gives a Pod a volume, or brings it up to date. `running`: a container of the Pod has it. Answers where it is, and
    /// why it could not be brought up to date.
    ///
    /// # Errors
    /// The Pod does not have it.
    pub(crate) async fn mount(
        &self,
        pod: &Pod,
        volume: &str,
        wanted: Arc<Wanted>,
        running: bool,
        now: Timestamp,
    ) -> Result<(Published, Option<CsiError>), CsiError> {
        let uid = spec::uid(pod);
        let known =
            self.known.lock().get(uid).and_then(|v| v.get(volume)).map(|k| (k.published.clone(), k.next));
        let again = known.is_some();
        let published = match known {
            Some((published, next)) if running => {
                if next.is_none_or(|next| next > now) {
                    return Ok((published, None));
                }
                Some(published)
            }
            // Another process published it; its containers run on, whether or not the driver is there again.
            // DIFFERENCE: upstream publishes it once more, and the Pod waits for its driver.
            None if running => self.published_before(uid, &wanted).await,
            _ => None,
        };
        let rules = self.room.rules(&wanted.driver).await;
        if let Some(published) = published {
            let known = Known { wanted: wanted.clone(), published: published.clone(), next: later(now) };
            self.put(uid, volume, known);
            self.room.users.enter(uid, wanted.key());
            if let Ok(rules) = rules.as_ref()
                && !again
                && let Err(error) = self.label((pod, volume), &wanted, rules)
            {
                // Its containers have it as it is.
                tracing::warn!(volume = wanted.name, %error, "a volume that is in use");
            }
            let refreshed = match rules {
                Ok(rules) => Box::pin(self.refresh((pod, volume), &wanted, rules, &published)).await,
                Err(why) => Err(failed(&wanted, Step::SetUp, Why::Text(why))),
            };
            return Ok((published, refreshed.err()));
        }
        let rules = rules.map_err(|why| failed(&wanted, Step::SetUp, Why::Text(why)))?;
        rules.check(&wanted).map_err(|why| {
            let text = "mounter.SetupAt failed to check volume lifecycle mode";
            failed(&wanted, Step::SetUp, Why::at(text, why))
        })?;
        let label = self.label((pod, volume), &wanted, &rules)?;
        self.room.users.enter(uid, wanted.key());
        let context = self.attach(volume, &wanted, &rules).await?;
        let repeats = rules.republish;
        let giving = self.giving((pod, volume), &wanted, rules, (context, label, false));
        let (published, expands) = to_end(give(giving))
            .await
            .unwrap_or_else(|error| Err(failed(&wanted, Step::SetUp, error.into())))?;
        let next = later(now).filter(|_| repeats || expands);
        self.put(uid, volume, Known { wanted, published: published.clone(), next });
        Ok((published, None))
    }

    /// The SELinux label with which a volume is to be mounted.
    fn label(
        &self,
        (pod, volume): (&Pod, &str),
        wanted: &Wanted,
        rules: &Rules,
    ) -> Result<Option<String>, CsiError> {
        let plugin = wanted.plugin();
        let traits = wanted.traits(&plugin, rules);
        let label = self.room.wearers.enter(wanted.key(), (pod, volume), &traits);
        label.map_err(|why| CsiError::Unprocessed { volume: volume.to_owned(), why })
    }

    fn put(&self, uid: &str, volume: &str, known: Known) {
        self.known.lock().entry(uid.to_owned()).or_default().insert(volume.to_owned(), known);
    }

    fn giving(
        &self,
        (pod, volume): (&Pod, &str),
        wanted: &Arc<Wanted>,
        rules: Rules,
        (context, label, again): (Texts, Option<String>, bool),
    ) -> Giving {
        let (room, pod) = (self.room.clone(), Arc::new(pod.clone()));
        Giving { room, pod, volume: volume.to_owned(), wanted: wanted.clone(), rules, label, context, again }
    }

    /// A volume that an earlier process published.
    async fn published_before(&self, uid: &str, wanted: &Wanted) -> Option<Published> {
        let places = &self.room.places;
        let (record, path) = if wanted.block {
            let name = &wanted.name;
            (places.device(name).join("data"), places.device_published(name).join(uid))
        } else {
            (places.volume(uid, &wanted.name), target(&self.room, uid, &wanted.name))
        };
        let (driver, handle) = (wanted.driver.clone(), wanted.handle.clone());
        let at = path.clone();
        let found = try_blocking(move || -> io::Result<Option<Record>> {
            let record = Record::load(&record)?;
            Ok(record.filter(|r| r.is_of(&driver, &handle) && at.exists()))
        });
        let record = found.await.ok().flatten()?;
        let label = Some(record.label).filter(|label| !label.is_empty());
        Published::new(path, wanted, label, self.room.wearers.enabled()).await.ok()
    }

    /// Waits until a volume is attached to this node. Answers what its attachment says.
    async fn attach(&self, volume: &str, wanted: &Wanted, rules: &Rules) -> Result<Texts, CsiError> {
        if wanted.ephemeral || !rules.attach {
            return Ok(Texts::new());
        }
        let name = wanted.unique_name();
        self.room.in_use.add(&name);
        if !self.room.controller_attaches {
            // Upstream's words: a node may read attachments and not make them.
            let why = "attaching volumes from the kubelet is not supported".to_owned();
            return Err(failed(wanted, Step::Attach, Why::Text(why)));
        }
        if self.room.in_use.attached(&self.room.node, &name).await.is_none() {
            return Err(CsiError::Unattached { volume: volume.to_owned() });
        }
        let context = self.room.attachment(wanted).await;
        context.map_err(|why| failed(wanted, Step::WaitForAttach, Why::Text(why)))
    }

    /// Publishes the volume of a running Pod again, where its driver wants that, and makes it larger where it is due.
    async fn refresh(
        &self,
        (pod, volume): (&Pod, &str),
        wanted: &Arc<Wanted>,
        rules: Rules,
        published: &Published,
    ) -> Result<(), CsiError> {
        if rules.republish && !wanted.block {
            let context = if wanted.ephemeral || !rules.attach {
                Texts::new()
            } else {
                let context = self.room.attachment(wanted).await;
                context.map_err(|why| failed(wanted, Step::SetUp, Why::Text(why)))?
            };
            let label = published.label.clone();
            let giving = self.giving((pod, volume), wanted, rules, (context, label, true));
            let done = to_end(async move { giving.set_up().await.map(drop) }).await;
            done.unwrap_or_else(|error| Err(failed(wanted, Step::SetUp, error.into())))?;
        }
        if wanted.claim.is_none() {
            return Ok(());
        }
        let (room, pod) = (self.room.clone(), Arc::new(pod.clone()));
        let (of, path) = (wanted.clone(), published.path.clone());
        let done = to_end(async move { expand::look(&room, &pod, &of, &path, true).await }).await;
        done.unwrap_or_else(|error| Err(failed(wanted, Step::Expand, error.into())))
    }

    /// When a volume of a Pod is to be looked at again.
    pub(crate) fn next(&self, uid: &str) -> Option<Timestamp> {
        self.known.lock().get(uid)?.values().filter_map(|k| k.next).min()
    }

    /// Takes its volumes from a Pod, and unstages those that no other Pod has.
    ///
    /// # Errors
    /// One of them stays, and with it what is needed to take it later.
    pub(crate) async fn tear_down(&self, uid: &str) -> io::Result<()> {
        let room = self.room.clone();
        let of = uid.to_owned();
        let done = to_end(async move { tear_down(&room, &of).await }).await;
        done.unwrap_or_else(|error| Err(error.into()))?;
        self.known.lock().remove(uid);
        Ok(())
    }

    /// Unstages volumes that no Pod has, which an earlier process left.
    pub(crate) async fn sweep(&self) -> io::Result<()> {
        let room = self.room.clone();
        let done = to_end(async move { sweep(&room).await }).await;
        done.unwrap_or_else(|error| Err(error.into()))
    }

    /// Takes up the volumes that an earlier process left: the Node says of them that they are in use.
    pub(crate) async fn recover(&self) -> io::Result<()> {
        let places = self.room.places.clone();
        let records = try_blocking(move || -> io::Result<Vec<Record>> {
            let mut dirs = places.all_staged()?;
            for pod in names(&places.pods())? {
                let uid = pod.file_name().and_then(|n| n.to_str()).map(str::to_owned);
                dirs.extend(names(&places.volumes(&uid.unwrap_or_default()))?);
            }
            for device in names(&places.devices())? {
                dirs.push(device.join("data"));
            }
            Ok(dirs.iter().filter_map(|dir| Record::load(dir).ok().flatten()).collect())
        })
        .await?;
        for record in records.iter().filter(|r| r.volume_lifecycle_mode != "Ephemeral") {
            let rules = self.room.rules.get("", &record.driver_name);
            if Rules::of(rules.map(|r| r.spec.clone()).as_ref()).attach {
                self.room.in_use.add(&unique_name(&record.driver_name, &record.volume_handle));
            }
        }
        Ok(())
    }

    /// The other Pods of the node that have a volume.
    pub(crate) async fn others(&self, uid: &str, wanted: &Wanted) -> io::Result<bool> {
        let (places, driver, handle) =
            (self.room.places.clone(), wanted.driver.clone(), wanted.handle.clone());
        let (name, block) = (wanted.name.clone(), wanted.block);
        let users = try_blocking(move || -> io::Result<Vec<String>> {
            if !block {
                return places.users(&driver, &handle);
            }
            let all = names(&places.device_published(&name))?.into_iter();
            Ok(all.filter_map(|p| Some(p.file_name()?.to_str()?.to_owned())).collect())
        })
        .await?;
        Ok(users.iter().any(|other| other != uid))
    }

    /// The room that a Pod's volumes take, as far as their drivers say.
    pub(crate) async fn usage(&self, uid: &str) -> Vec<Usage> {
        let known: Vec<(String, Arc<Wanted>, PathBuf)> = {
            let known = self.known.lock();
            let of = known.get(uid).into_iter().flatten();
            of.map(|(name, k)| (name.clone(), k.wanted.clone(), k.published.path.clone())).collect()
        };
        let mut all = Vec::new();
        for (name, wanted, path) in known {
            let Ok(node) = NodeService::giving(&self.room.drivers, &wanted.driver, wanted.migrated) else {
                continue;
            };
            let can = match node.abilities().await {
                Ok(can) if can.has(Capability::GetVolumeStats) => can,
                _ => continue,
            };
            let told = self.room.volume_health && can.has(Capability::VolumeCondition);
            let began = Instant::now();
            let stats = node.stats(&wanted.handle, &path).await;
            let metrics = &self.room.drivers.metrics;
            let metric = &metrics::VOLUME_METRIC_COLLECTION_DURATION_SECONDS;
            metrics.took(metric, &[&wanted.driver], began.elapsed());
            match stats {
                Ok(stats) => all.extend(usage(name, wanted.claim.clone(), stats, told)),
                Err(error) => tracing::debug!(volume = wanted.name, %error, "no statistics of a volume"),
            }
        }
        all
    }
}

fn later(now: Timestamp) -> Option<Timestamp> {
    now.checked_add(PERIOD).ok()
}

fn failed(wanted: &Wanted, step: Step, why: Why) -> CsiError {
    CsiError::Failed { step, name: wanted.name.clone(), why }
}

/// Gives a volume. Answers also whether its driver makes volumes larger.
async fn give(giving: Giving) -> Result<(Published, bool), CsiError> {
    let (room, wanted) = (giving.room.clone(), giving.wanted.clone());
    let (path, can) = if wanted.block {
        (giving.map().await?, None)
    } else {
        let can = giving.set_up().await?;
        (target(&room, spec::uid(&giving.pod), &wanted.name), Some(can))
    };
    let expands = can.is_none_or(|can| can.has(Capability::ExpandVolume)) && wanted.claim.is_some();
    if expands {
        expand::look(&room, &giving.pod, &wanted, &path, false).await?;
    }
    let published = Published::new(path, &wanted, giving.label, room.wearers.enabled()).await;
    let unknown = |error| {
        failed(&wanted, Step::SetUp, Why::Text(format!("error checking for SELinux support: {error}")))
    };
    Ok((published.map_err(unknown)?, expands))
}

async fn tear_down(room: &Room, uid: &str) -> io::Result<()> {
    room.wearers.leave(uid);
    let (places, of) = (room.places.clone(), uid.to_owned());
    let (volumes, devices) = try_blocking(move || -> io::Result<_> {
        Ok((names(&places.volumes(&of))?, names(&places.pod_devices(&of))?))
    })
    .await?;
    let mut had: BTreeSet<Key> = BTreeSet::new();
    let mut result = Ok(());
    for dir in volumes {
        let at = dir.clone();
        let record = try_blocking(move || Record::load(&at)).await;
        had.extend(record.ok().flatten().map(|r| (r.driver_name, r.volume_handle)));
        // One that cannot be taken back holds up no other.
        result = result.and(mounter::unpublish(room, dir).await);
    }
    let mut unmapped = Vec::new();
    for link in devices {
        let name = link.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        match device::unmap(room, uid, link).await {
            Ok(record) => unmapped.extend(record.map(|r| (name, r))),
            Err(error) => result = result.and(Err(error)),
        }
    }
    result?;
    had.extend(room.users.leave(uid));
    for (name, record) in unmapped {
        had.remove(&(record.driver_name.clone(), record.volume_handle.clone()));
        if device::unstage(room, &name, &record).await? {
            room.in_use.remove(&unique_name(&record.driver_name, &record.volume_handle));
        }
    }
    for (driver, handle) in had {
        if mounter::unstage(room, &driver, &handle).await? {
            room.in_use.remove(&unique_name(&driver, &handle));
        }
    }
    Ok(())
}

async fn sweep(room: &Room) -> io::Result<()> {
    let places = room.places.clone();
    let (staged, devices) = try_blocking(move || -> io::Result<_> {
        let staged = places.all_staged()?;
        let staged: Vec<Record> = staged.iter().filter_map(|d| Record::load(d).ok().flatten()).collect();
        let devices = names(&places.devices())?;
        let of = |dir: &PathBuf| {
            let name = dir.file_name()?.to_str()?.to_owned();
            Some((name, Record::load(&dir.join("data")).ok().flatten()?))
        };
        Ok((staged, devices.iter().filter_map(of).collect::<Vec<_>>()))
    })
    .await?;
    let mut result = Ok(());
    for record in staged {
        let (driver, handle) = (&record.driver_name, &record.volume_handle);
        match mounter::unstage(room, driver, handle).await {
            Ok(true) => room.in_use.remove(&unique_name(driver, handle)),
            Ok(false) => {}
            Err(error) => result = result.and(Err(error)),
        }
    }
    for (name, record) in devices {
        match device::unstage(room, &name, &record).await {
            Ok(true) => room.in_use.remove(&unique_name(&record.driver_name, &record.volume_handle)),
            Ok(false) => {}
            Err(error) => result = result.and(Err(error)),
        }
    }
    result
}

/// The room that a volume takes, from its driver's answer; numbers below 0 count as none. `told`: the driver tells the
/// volume's condition, without which an answer that names no room says nothing; upstream's rule.
fn usage(
    name: String,
    claim: Option<(String, String)>,
    stats: pb::NodeGetVolumeStatsResponse,
    told: bool,
) -> Option<Usage> {
    if !told && stats.usage.is_empty() {
        return None;
    }
    let condition = told.then(|| {
        let of = stats.volume_condition.unwrap_or_default();
        Condition { abnormal: of.abnormal, message: of.message.chars().take(MAX_MESSAGE).collect() }
    });
    let number = |n: i64| u64::try_from(n).unwrap_or(0);
    let mut found = Usage { name, used: 0, inodes_used: 0, room: Filesystem::default(), claim, condition };
    for usage in &stats.usage {
        let (available, total, used) = (number(usage.available), number(usage.total), number(usage.used));
        match usage.unit() {
            pb::volume_usage::Unit::Bytes => {
                found.used = used;
                (found.room.capacity, found.room.available) = (total, available);
            }
            pb::volume_usage::Unit::Inodes => {
                found.inodes_used = used;
                (found.room.inodes, found.room.inodes_free) = (total, available);
            }
            pb::volume_usage::Unit::Unknown => {}
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics() {
        use pb::volume_usage::Unit;
        let one = |unit: Unit, total, used, available| pb::VolumeUsage {
            unit: unit as i32,
            total,
            used,
            available,
        };
        let stats = pb::NodeGetVolumeStatsResponse {
            usage: vec![
                one(Unit::Bytes, 10, 4, 6),
                one(Unit::Inodes, 100, 1, 99),
                one(Unit::Unknown, 1, 1, 1),
            ],
            ..pb::NodeGetVolumeStatsResponse::default()
        };
        let found = usage("v".into(), None, stats, false).unwrap();
        assert_eq!((found.used, found.room.capacity, found.room.available), (4, 10, 6));
        assert_eq!((found.inodes_used, found.room.inodes, found.room.inodes_free), (1, 100, 99));
        let odd = pb::NodeGetVolumeStatsResponse {
            usage: vec![one(Unit::Bytes, -1, -1, -1)],
            ..pb::NodeGetVolumeStatsResponse::default()
        };
        assert_eq!(usage("v".into(), None, odd, false).unwrap().used, 0);
    }

    /// Upstream's cases of `TestNodeGetVolumeStats` and of csi_metrics_test.go.
    #[test]
    fn conditions() {
        let check = |condition: Option<(bool, &str)>,
                     room: bool,
                     told: bool,
                     expected: Option<Option<(bool, &str)>>| {
            let stats = pb::NodeGetVolumeStatsResponse {
                usage: if room { vec![pb::VolumeUsage::default()] } else { Vec::new() },
                volume_condition: condition
                    .map(|(abnormal, message)| pb::VolumeCondition { abnormal, message: message.into() }),
            };
            let got = usage("v".into(), None, stats, told).map(|u| u.condition);
            let of = |(abnormal, message): (bool, &str)| Condition { abnormal, message: message.into() };
            assert_eq!(got, expected.map(|c| c.map(of)), "{condition:?} {room} {told}");
        };
        check(Some((true, "broken")), true, true, Some(Some((true, "broken"))));
        check(Some((true, "broken")), false, true, Some(Some((true, "broken"))));
        check(Some((false, "")), false, true, Some(Some((false, ""))));
        // A driver that can tell and does not counts as one that found nothing.
        check(None, true, true, Some(Some((false, ""))));
        check(Some((true, "broken")), true, false, Some(None));
        check(Some((true, "broken")), false, false, None);
        check(None, false, false, None);
    }
}
