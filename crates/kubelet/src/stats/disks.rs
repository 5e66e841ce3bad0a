//! The room that Pods' volumes and logs take, measured in turn, one Pod at a time.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use component::Clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Volume};
use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::probes::Probes;
use super::tree::{Taken, measure, measure_file, whole};
use crate::config::Config;
use crate::csi::{Condition, Usage};
use crate::metrics;
use crate::node::machine::Filesystem;
use crate::pods::spec;
use crate::pods::workers::Workers;
use crate::recorder::PodRecorder;
use crate::volumes::{self, VolumeManager};
use crate::work::blocking;

/// How often it is looked for Pods to measure.
const TICK: Duration = Duration::from_secs(10);
/// How long drivers are waited for, of a Pod.
const PATIENCE: Duration = Duration::from_secs(10);
/// A Pod is not measured for so many times as long as it took: a tree of any size costs a twentieth of a processor.
const REST: u32 = 20;

/// A volume of a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeUse {
    /// Its name in the Pod.
    pub(crate) name: String,
    /// Whether it lies on the node's own disk and goes with the Pod.
    pub(crate) ephemeral: bool,
    /// The room that it takes.
    pub(crate) taken: Taken,
    /// The file system that it lies on.
    pub(crate) room: Filesystem,
    /// The claim by which the Pod has it: namespace and name.
    pub(crate) claim: Option<(String, String)>,
    /// Its condition, where its driver tells it.
    pub(crate) condition: Option<Condition>,
}

impl From<Usage> for VolumeUse {
    fn from(usage: Usage) -> Self {
        let taken = Taken { bytes: usage.used, inodes: usage.inodes_used };
        let Usage { name, room, claim, condition, .. } = usage;
        Self { name, ephemeral: false, taken, room, claim, condition }
    }
}

/// The room that a Pod takes of the node's disks beside the layers of its containers.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodUse {
    /// When it was measured.
    pub(crate) at: Timestamp,
    /// Its volumes.
    pub(crate) volumes: Vec<VolumeUse>,
    /// The logs of its containers, by their names.
    pub(crate) logs: BTreeMap<String, Taken>,
    /// The files that belong to the Pod as a whole: `/etc/hosts`, logs.
    pub(crate) others: Taken,
}

struct Known {
    at: Instant,
    took: Duration,
    /// Whether a container ran, so that all volumes were there.
    ran: bool,
    found: Arc<PodUse>,
}

/// The newest measurements.
pub(crate) struct Disks {
    config: Arc<Config>,
    clock: Clock,
    workers: Arc<Workers>,
    /// Volumes that Pods have by claims, and those whose drivers know what they take.
    volumes: Option<Arc<VolumeManager>>,
    /// Tells Pods of volumes that are not as they should be.
    recorder: PodRecorder,
    probes: Probes,
    known: RwLock<HashMap<String, Known>>,
    /// A Pod was measured that has limits.
    pub(crate) measured: Notify,
}

/// The paths that are measured of a Pod.
struct Places {
    /// Volumes of the node that the Pod has by claims: name, namespace and claim, and where.
    claims: Vec<(String, (String, String), PathBuf)>,
    /// Name, whether it is ephemeral, whether it is a file system of its own, and where.
    volumes: Vec<(String, bool, bool, PathBuf)>,
    logs: PathBuf,
    hosts: PathBuf,
}

impl Disks {
    pub(crate) fn new(
        config: Arc<Config>,
        clock: Clock,
        workers: Arc<Workers>,
        volumes: Option<Arc<VolumeManager>>,
        recorder: PodRecorder,
    ) -> Self {
        let (probes, known) = (Probes::default(), RwLock::default());
        Self { config, clock, workers, volumes, recorder, probes, known, measured: Notify::new() }
    }

    /// The newest measurement of a Pod; none before the first.
    pub(crate) fn of(&self, uid: &str) -> Option<Arc<PodUse>> {
        self.known.read().get(uid).map(|known| known.found.clone())
    }

    /// Measures again and again, unless upstream's `volumeStatsAggPeriod` says that nothing is measured.
    pub(crate) async fn keep(&self) {
        let Some(period) = self.config.volume_stats_period else { return };
        loop {
            let active: HashMap<String, Arc<Pod>> =
                self.workers.active_pods().into_iter().map(|p| (spec::uid(&p).to_owned(), p)).collect();
            self.known.write().retain(|uid, _| active.contains_key(uid));
            for (uid, pod) in active {
                let known = self.known.read().get(&uid).map(|k| (k.at.elapsed(), k.took, k.ran));
                let due = known.is_none_or(|(passed, took, ran)| {
                    passed >= if ran { rest(&pod, period, took) } else { TICK.min(period).max(took * REST) }
                });
                if due {
                    self.measure(&uid, &pod).await;
                }
            }
            tokio::time::sleep(TICK.min(period)).await;
        }
    }

    async fn measure(&self, uid: &str, pod: &Pod) {
        let ran = self.workers.get(uid).is_some_and(|w| w.state.lock().observed.running().next().is_some());
        let places = self.places(uid, pod);
        let at = self.clock.now();
        let began = Instant::now();
        let Ok(mut found) = blocking(move || look(at, &places)).await else { return };
        if let Some(volumes) = &self.volumes {
            let metric = &metrics::VOLUME_METRIC_COLLECTION_DURATION_SECONDS;
            volumes.metrics.took(metric, &["du"], began.elapsed());
            // A driver that does not answer holds the others up for a while only.
            let usage = tokio::time::timeout(PATIENCE, volumes.csi.usage(uid)).await;
            found.volumes.extend(usage.unwrap_or_default().into_iter().map(VolumeUse::from));
            for message in found.volumes.iter().filter_map(abnormal) {
                self.recorder.pod(pod, "Warning", "VolumeConditionAbnormal", message);
            }
            for (name, claim, path) in volumes.filesystems(pod) {
                let Some((taken, room)) = self.probes.of(path).await else { continue };
                found.volumes.push(VolumeUse { name, ephemeral: false, taken, room, claim, condition: None });
            }
        }
        let known = Known { at: Instant::now(), took: began.elapsed(), ran, found: Arc::new(found) };
        self.known.write().insert(uid.to_owned(), known);
        if is_limited(pod) {
            self.measured.notify_one();
        }
    }

    fn places(&self, uid: &str, pod: &Pod) -> Places {
        let dir = self.config.pod_dir(uid);
        let measured = |v: &&Volume| {
            v.empty_dir.is_some()
                || v.config_map.is_some()
                || v.secret.is_some()
                || v.projected.is_some()
                || v.downward_api.is_some()
        };
        let volumes = spec::spec(pod).volumes.iter().flatten().filter(measured).map(|v| {
            let alone = medium(v).is_some_and(|m| !m.is_empty());
            let at = dir.join("volumes").join(volumes::plugin(v)).join(&v.name);
            (v.name.clone(), is_local_ephemeral(v), alone, at)
        });
        Places {
            claims: self.volumes.as_ref().map(|v| v.local_claims(pod)).unwrap_or_default(),
            volumes: volumes.collect(),
            logs: self.config.pod_log_dir(spec::namespace(pod), spec::name(pod), uid),
            hosts: dir.join("etc-hosts"),
        }
    }
}

/// The word on a volume that is not as it should be; upstream's.
fn abnormal(volume: &VolumeUse) -> Option<String> {
    let condition = volume.condition.as_ref().filter(|condition| condition.abnormal)?;
    Some(format!("Volume {}: {}", volume.name, condition.message))
}

/// The medium of an emptyDir; none of another volume.
fn medium(volume: &Volume) -> Option<&str> {
    Some(volume.empty_dir.as_ref()?.medium.as_deref().unwrap_or_default())
}

/// Whether a volume takes room of the node's disk that goes with the Pod; upstream's rule.
pub(crate) fn is_local_ephemeral(volume: &Volume) -> bool {
    medium(volume) == Some("") || volume.config_map.is_some()
}

/// Whether the Pod has a limit of what it may take of the disk.
fn is_limited(pod: &Pod) -> bool {
    let limited = |v: &Volume| v.empty_dir.as_ref().is_some_and(|e| e.size_limit.is_some());
    let limits = |r: Option<&k8s_openapi::api::core::v1::ResourceRequirements>| {
        r.and_then(|r| r.limits.as_ref()).is_some_and(|l| l.contains_key("ephemeral-storage"))
    };
    spec::spec(pod).volumes.iter().flatten().any(limited)
        || spec::containers(pod).iter().any(|c| limits(c.resources.as_ref()))
        || limits(spec::spec(pod).resources.as_ref())
}

/// After which time a Pod is measured again.
///
/// DIFFERENCE: upstream waits its whole period for every Pod. One that has limits is measured as often as the kubelet
/// looks whether Pods keep them, if that costs little.
fn rest(pod: &Pod, period: Duration, took: Duration) -> Duration {
    let paid = took.saturating_mul(REST);
    if is_limited(pod) { paid.clamp(TICK.min(period), period) } else { paid.max(period) }
}

fn look(at: Timestamp, places: &Places) -> PodUse {
    let mut found = PodUse { at, ..PodUse::default() };
    for (name, ephemeral, alone, path) in &places.volumes {
        let Some(room) = Filesystem::of(path) else { continue };
        let taken = if *alone { Some(whole(path)) } else { measure(path).ok() };
        let Some(taken) = taken else { continue };
        found.volumes.push(VolumeUse {
            name: name.clone(),
            ephemeral: *ephemeral,
            taken,
            room,
            claim: None,
            condition: None,
        });
    }
    for (name, claim, path) in &places.claims {
        let Some(room) = Filesystem::of(path) else { continue };
        // Upstream tells what is used of the whole file system.
        let (taken, claim) = (whole(path), Some(claim.clone()));
        let name = name.clone();
        found.volumes.push(VolumeUse { name, ephemeral: false, taken, room, claim, condition: None });
    }
    for entry in std::fs::read_dir(&places.logs).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        match measure(&path) {
            Ok(taken) => drop(found.logs.insert(name.to_string_lossy().into_owned(), taken)),
            Err(_) => found.others.add(measure_file(&path)),
        }
    }
    found.others.add(measure_file(&places.hosts));
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}))
            .unwrap()
    }

    #[test]
    fn pods_with_limits_are_measured_more_often() {
        let seconds = Duration::from_secs;
        let limited = json!({"containers": [], "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]});
        let container = json!({"containers": [{"name": "c",
            "resources": {"limits": {"ephemeral-storage": "1Mi"}}}]});
        let other = json!({"containers": [], "volumes": [{"name": "v", "emptyDir": {}}]});
        let check = |spec: &Value, took: u64, expected: u64| {
            let got = rest(&pod(spec.clone()), seconds(60), Duration::from_millis(took));
            assert_eq!(got, seconds(expected), "{spec} {took}");
        };
        check(&limited, 1, 10);
        check(&container, 1, 10);
        check(&limited, 1000, 20);
        check(&limited, 10_000, 60);
        check(&other, 1, 60);
        check(&other, 10_000, 200);
    }

    #[test]
    fn volumes_and_logs_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::new("n");
        config.root_dir = dir.path().join("root");
        config.pod_logs_dir = dir.path().join("logs");
        let recorder = PodRecorder(client::Recorder::channel("kubelet", Clock::system()).0);
        let disks = Disks::new(Arc::new(config.clone()), Clock::system(), Arc::default(), None, recorder);
        let pod = pod(json!({"containers": [{"name": "c"}], "volumes": [
            {"name": "scratch", "emptyDir": {}}, {"name": "conf", "configMap": {"name": "x"}},
            {"name": "secret", "secret": {"secretName": "x"}}, {"name": "host", "hostPath": {"path": "/"}},
            {"name": "gone", "emptyDir": {}}]}));
        let volume = |plugin: &str, name: &str| {
            let at = config.pod_dir("u").join("volumes").join(plugin).join(name);
            std::fs::create_dir_all(&at).unwrap();
            std::fs::write(at.join("f"), vec![1; 40 << 10]).unwrap();
        };
        volume("kubernetes.io~empty-dir", "scratch");
        volume("kubernetes.io~configmap", "conf");
        volume("kubernetes.io~secret", "secret");
        let logs = config.pod_log_dir("n", "p", "u");
        std::fs::create_dir_all(logs.join("c")).unwrap();
        std::fs::write(logs.join("c/0.log"), vec![1; 80 << 10]).unwrap();
        std::fs::write(config.pod_dir("u").join("etc-hosts"), "x").unwrap();
        let found = look(Timestamp::UNIX_EPOCH, &disks.places("u", &pod));
        let names: Vec<_> = found.volumes.iter().map(|v| (v.name.as_str(), v.ephemeral)).collect();
        assert_eq!(names, [("scratch", true), ("conf", true), ("secret", false)]);
        assert!(found.volumes.iter().all(|v| v.taken.inodes == 2 && v.taken.bytes >= 40 << 10));
        assert!(found.logs["c"].bytes >= 80 << 10 && found.logs["c"].inodes == 2);
        assert_eq!(found.others.inodes, 1);
    }
}
