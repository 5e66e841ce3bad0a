//! Probes: one task for each probe of a running container, idle between checks.

pub(crate) mod check;
mod kind;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use component::metrics::Histogram;
use component::{Clock, Shutdown};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::pods::actions::ProbeResults;
use crate::pods::addresses::Addresses;
use crate::pods::observed::PodStatus;
use crate::pods::workers::Workers;
use crate::pods::{env, spec};
use crate::recorder::PodRecorder;
use crate::runtime::Runtime;
use check::Outcome;
pub(crate) use kind::Kind;

/// A container's id and one of its probes.
type Key = (String, Kind);

struct Worker {
    uid: String,
    task: AbortHandle,
    /// Wakes a worker that waits for the startup probe.
    poke: Arc<Notify>,
}

/// The last results of probes, and the tasks that ask.
#[derive(Default)]
pub(crate) struct Probes {
    results: RwLock<HashMap<Key, bool>>,
    workers: Mutex<HashMap<Key, Worker>>,
    counts: Mutex<BTreeMap<Counted, u64>>,
    durations: Mutex<BTreeMap<Probed, Histogram>>,
}

/// The bounds of the durations of probes, in seconds; Prometheus' own.
const SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Probes whose durations are counted together, as upstream's metric labels them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Probed {
    uid: String,
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) container: String,
    /// `Liveness`, `Readiness` or `Startup`.
    pub(crate) kind: &'static str,
}

/// Probes that are counted together, as upstream's metric labels them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Counted {
    pub(crate) uid: String,
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) container: String,
    /// `Liveness`, `Readiness` or `Startup`.
    pub(crate) kind: &'static str,
    /// `successful` or `failed`.
    pub(crate) result: &'static str,
}

impl ProbeResults for Probes {
    fn liveness(&self, id: &str) -> Option<bool> {
        self.get(id, Kind::Liveness)
    }
    fn startup(&self, id: &str) -> Option<bool> {
        self.get(id, Kind::Startup)
    }
}

impl Probes {
    /// The last result of a probe of a container.
    pub(crate) fn get(&self, id: &str, kind: Kind) -> Option<bool> {
        self.results.read().get(&(id.to_owned(), kind)).copied()
    }

    /// Notes what a probe says; whether it said something else before.
    fn set(&self, key: &Key, value: bool) -> bool {
        if self.results.write().insert(key.clone(), value) == Some(value) {
            return false;
        }
        if key.1 == Kind::Startup && value {
            let workers = self.workers.lock();
            for kind in [Kind::Liveness, Kind::Readiness] {
                if let Some(worker) = workers.get(&(key.0.clone(), kind)) {
                    worker.poke.notify_one();
                }
            }
        }
        true
    }

    /// Counts a check, which took so long.
    fn count(&self, pod: &Pod, container: &Container, kind: Kind, outcome: &Outcome, took: Duration) {
        let result = match outcome {
            Outcome::Success | Outcome::Warning(_) => "successful",
            Outcome::Failure(_) => "failed",
            // An error says nothing of the container.
            Outcome::Error(_) => return,
        };
        // Upstream tells how long those took that succeeded.
        if result == "successful" {
            let probed = Probed {
                uid: spec::uid(pod).to_owned(),
                namespace: spec::namespace(pod).to_owned(),
                pod: spec::name(pod).to_owned(),
                container: container.name.clone(),
                kind: kind.title(),
            };
            let mut durations = self.durations.lock();
            durations.entry(probed).or_insert_with(|| Histogram::new(SECONDS)).observe(took.as_secs_f64());
        }
        let counted = Counted {
            uid: spec::uid(pod).to_owned(),
            namespace: spec::namespace(pod).to_owned(),
            pod: spec::name(pod).to_owned(),
            container: container.name.clone(),
            kind: kind.title(),
            result,
        };
        *self.counts.lock().entry(counted).or_default() += 1;
    }

    /// How often probes of the Pods that are there said what.
    pub(crate) fn counts(&self) -> Vec<(Counted, u64)> {
        self.counts.lock().iter().map(|(counted, n)| (counted.clone(), *n)).collect()
    }

    /// How long probes of the Pods that are there took.
    pub(crate) fn durations(&self) -> Vec<(Probed, Histogram)> {
        self.durations.lock().iter().map(|(probed, all)| (probed.clone(), all.clone())).collect()
    }

    /// The value before the first check: that of the API for a container which ran before this
    /// kubelet started.
    fn start(&self, pod: &Pod, container: &Container, adopted: bool, key: &Key) {
        let statuses = [&spec::status(pod).container_statuses, &spec::status(pod).init_container_statuses];
        let known = statuses
            .into_iter()
            .flatten()
            .flatten()
            .find(|s| {
                s.name == container.name && s.container_id.as_deref().is_some_and(|id| id.ends_with(&key.0))
            })
            .filter(|_| adopted);
        let value = match key.1 {
            Kind::Liveness => Some(true),
            Kind::Readiness => Some(known.is_some_and(|s| s.ready)),
            Kind::Startup => known.and_then(|s| s.started).filter(|s| *s),
        };
        if let Some(value) = value {
            self.results.write().insert(key.clone(), value);
        }
    }

    /// Ends every probe of a Pod.
    pub(crate) fn forget(&self, uid: &str) {
        let mut gone = Vec::new();
        self.workers.lock().retain(|key, worker| {
            if worker.uid == uid {
                worker.task.abort();
                gone.push(key.clone());
            }
            worker.uid != uid
        });
        let mut results = self.results.write();
        for key in gone {
            results.remove(&key);
        }
        self.counts.lock().retain(|counted, _| counted.uid != uid);
        self.durations.lock().retain(|probed, _| probed.uid != uid);
    }
}

fn seconds(value: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(value.and_then(|v| u64::try_from(v).ok()).filter(|v| *v > 0).unwrap_or(default))
}

/// Counts equal outcomes until they are enough to say something.
#[derive(Debug, Default)]
struct Streak {
    last: Option<bool>,
    count: i32,
}

impl Streak {
    /// Takes an outcome; answers it once it was seen often enough.
    fn push(&mut self, ok: bool, probe: &Probe) -> Option<bool> {
        if self.last == Some(ok) {
            self.count = self.count.saturating_add(1);
        } else {
            *self = Self { last: Some(ok), count: 1 };
        }
        let needed =
            if ok { probe.success_threshold.unwrap_or(1) } else { probe.failure_threshold.unwrap_or(3) };
        (self.count >= needed).then_some(ok)
    }
}

/// How often in a row a container is asked that cannot be asked; upstream's.
const ATTEMPTS: usize = 3;

/// The pause after the first check of a container that is not ready yet.
const SOON: Duration = Duration::from_millis(100);
/// The time in which a container may be on its way without anybody being told that it is not ready.
const STARTING: Duration = Duration::from_secs(1);

/// The pauses between the checks of one probe.
///
/// DIFFERENCE: a readiness probe that has not succeeded yet is asked again soon, each pause twice the one before, until
/// its period is reached. Upstream asks it at every sync of the Pod then (`prober_manager.go`), of which there are
/// several in the first seconds; syncs here are at once, when few programs listen yet.
struct Pauses {
    period: Duration,
    soon: Option<Duration>,
}

impl Pauses {
    fn new(period: Duration, waits_to_be_ready: bool) -> Self {
        Self { period, soon: waits_to_be_ready.then_some(SOON) }
    }

    /// The pause after a check, which found the container good or not.
    fn after(&mut self, good: bool) -> Duration {
        let soon = self.soon.filter(|soon| !good && *soon < self.period);
        self.soon = soon.map(|soon| soon * 2);
        soon.unwrap_or(self.period)
    }
}

/// Asks the containers of Pods how they are.
#[derive(Clone)]
pub(crate) struct Prober {
    pub(crate) probes: Arc<Probes>,
    pub(crate) runtime: Runtime,
    pub(crate) recorder: PodRecorder,
    pub(crate) clock: Clock,
    /// When this kubelet started: containers may have run before.
    pub(crate) started_at: Timestamp,
    /// Whether such containers are asked anew before the API's word on them counts; upstream's gate
    /// `ChangeContainerStatusOnKubeletRestart`.
    pub(crate) forgets: bool,
    pub(crate) addresses: Addresses,
    pub(crate) workers: Arc<Workers>,
    pub(crate) shutdown: Shutdown,
}

impl Prober {
    /// Starts the probes of the containers that run, and ends those of the ones that do not.
    pub(crate) fn follow(&self, pod: &Arc<Pod>, observed: &PodStatus, ending: bool) {
        let uid = spec::uid(pod);
        let mut wanted = HashSet::new();
        let probed = spec::containers(pod)
            .iter()
            .chain(spec::init_containers(pod).iter().filter(|c| spec::is_sidecar(c)));
        for container in probed {
            let Some(status) = observed.container(&container.name).filter(|s| s.running()) else { continue };
            for kind in [Kind::Startup, Kind::Liveness, Kind::Readiness] {
                if kind.of(container).is_none() || (ending && kind != Kind::Readiness) {
                    continue;
                }
                let key = (status.id.clone(), kind);
                wanted.insert(key.clone());
                let mut workers = self.probes.workers.lock();
                if workers.contains_key(&key) {
                    continue;
                }
                let adopted = !self.forgets && status.started_at.is_some_and(|s| s < self.started_at);
                self.probes.start(pod, container, adopted, &key);
                let poke = Arc::new(Notify::new());
                let (prober, of, c) = (self.clone(), pod.clone(), container.clone());
                let (key_of, started, poked) = (key.clone(), status.started_at, poke.clone());
                let run = Box::pin(async move { prober.run(of, c, key_of, started, poked).await });
                let stop = self.shutdown.clone();
                let task = self
                    .shutdown
                    .spawn(async move {
                        let _ = stop.run(run).await;
                    })
                    .abort_handle();
                workers.insert(key, Worker { uid: uid.to_owned(), task, poke });
            }
        }
        let mut gone = Vec::new();
        self.probes.workers.lock().retain(|key, worker| {
            let keep = worker.uid != uid || wanted.contains(key);
            if !keep {
                worker.task.abort();
                gone.push(key.clone());
            }
            keep
        });
        for key in gone {
            self.probes.results.write().remove(&key);
        }
    }

    async fn run(
        &self,
        pod: Arc<Pod>,
        container: Container,
        key: Key,
        started: Option<Timestamp>,
        poke: Arc<Notify>,
    ) {
        let (id, kind) = (&key.0, key.1);
        let Some(probe) = kind.of(&container).cloned() else { return };
        let period = seconds(probe.period_seconds, 10);
        let uid = spec::uid(&pod).to_owned();
        if kind == Kind::Startup && self.probes.get(id, kind) == Some(true) {
            return;
        }
        if kind != Kind::Startup && container.startup_probe.is_some() {
            while self.probes.get(id, Kind::Startup) != Some(true) {
                poke.notified().await;
            }
        }
        let delay =
            Duration::from_secs(probe.initial_delay_seconds.and_then(|d| u64::try_from(d).ok()).unwrap_or(0));
        let mut wait = delay.saturating_sub(started.map_or(Duration::ZERO, |s| self.since(s)));
        if wait.is_zero()
            && self.since(self.started_at) < period
            && started.is_some_and(|s| s < self.started_at)
        {
            // After a restart of the kubelet, not every container is asked at once.
            wait = period.mul_f64(fastrand::f64());
        }
        tokio::time::sleep(wait).await;

        let mut streak = Streak::default();
        let mut pauses = Pauses::new(period, self.probes.get(id, kind) == Some(false));
        loop {
            let began = Instant::now();
            let outcome = self.ask_until_answered(&pod, &container, &probe, id).await;
            self.probes.count(&pod, &container, kind, &outcome, began.elapsed());
            let (ok, event) = match &outcome {
                Outcome::Success => (true, None),
                Outcome::Warning(text) => {
                    (true, Some(("ProbeWarning", format!("{} probe warning: {text}", kind.title()))))
                }
                Outcome::Failure(text) => {
                    (false, Some(("Unhealthy", format!("{} probe failed: {text}", kind.title()))))
                }
                Outcome::Error(text) => (
                    false,
                    Some((
                        "Unhealthy",
                        format!("{} probe errored and resulted in unknown state: {text}", kind.title()),
                    )),
                ),
            };
            let starts = kind == Kind::Readiness && started.is_some_and(|s| self.since(s) < STARTING);
            if let Some((reason, message)) = event.filter(|_| !starts) {
                self.recorder.container(&pod, &container.name, "Warning", reason, message);
            }
            // An error says nothing of the container.
            if !matches!(outcome, Outcome::Error(_))
                && let Some(value) = streak.push(ok, &probe)
            {
                if self.probes.set(&key, value) {
                    self.workers.changed(&uid);
                }
                // The container starts anew, or has started: this probe has nothing more to say of it.
                if (!value && kind != Kind::Readiness) || kind == Kind::Startup {
                    return;
                }
            }
            tokio::time::sleep(pauses.after(ok)).await;
        }
    }

    /// The time since an instant; none since one to come.
    fn since(&self, then: Timestamp) -> Duration {
        Duration::try_from(self.clock.now().duration_since(then)).unwrap_or_default()
    }

    /// Asks again, a few times, where nobody could be asked.
    async fn ask_until_answered(&self, pod: &Pod, container: &Container, probe: &Probe, id: &str) -> Outcome {
        let mut outcome = self.ask(pod, container, probe, id).await;
        for _ in 1..ATTEMPTS {
            if !matches!(outcome, Outcome::Error(_)) {
                break;
            }
            outcome = self.ask(pod, container, probe, id).await;
        }
        outcome
    }

    async fn ask(&self, pod: &Pod, container: &Container, probe: &Probe, id: &str) -> Outcome {
        let limit = seconds(probe.timeout_seconds, 1);
        if let Some(exec) = &probe.exec {
            let of_container = container.env.as_deref().unwrap_or_default();
            let command = env::static_command(exec.command.as_deref().unwrap_or_default(), of_container);
            return check::exec(&self.runtime, id, command, limit).await;
        }
        let ip = self.addresses.of(pod).unwrap_or_default();
        if let Some(action) = &probe.http_get {
            return match check::HttpTarget::new(action, container, &ip, "kube-probe/1.36") {
                Ok(target) => check::http(&target, limit).await,
                Err(error) => Outcome::Error(error.to_string()),
            };
        }
        if let Some(action) = &probe.tcp_socket {
            let host = action.host.as_deref().filter(|h| !h.is_empty()).unwrap_or(&ip);
            return match check::port(&action.port, container) {
                Ok(port) => check::tcp(host, port, limit).await,
                Err(error) => Outcome::Error(error.to_string()),
            };
        }
        if let Some(action) = &probe.grpc {
            let Ok(port) = u16::try_from(action.port) else {
                return Outcome::Error(format!("invalid port number: {}", action.port));
            };
            return check::grpc(&ip, port, action.service.as_deref().unwrap_or_default(), limit).await;
        }
        Outcome::Error(format!("missing probe handler for {}:{}", spec::full_name(pod), container.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_counted_while_their_pod_is_there() {
        let probes = Probes::default();
        let mut pod = Pod::default();
        pod.metadata.uid = Some("u".into());
        let container = Container { name: "c".into(), ..Container::default() };
        for outcome in [
            Outcome::Success,
            Outcome::Warning(String::new()),
            Outcome::Failure(String::new()),
            Outcome::Error(String::new()),
        ] {
            probes.count(&pod, &container, Kind::Liveness, &outcome, Duration::from_millis(20));
        }
        let got: Vec<_> = probes.counts().into_iter().map(|(c, n)| (c.kind, c.result, n)).collect();
        assert_eq!(got, [("Liveness", "failed", 1), ("Liveness", "successful", 2)]);
        let durations: Vec<_> = probes.durations().into_iter().map(|(p, d)| (p.kind, d.count())).collect();
        assert_eq!(durations, [("Liveness", 2)]);
        probes.forget("u");
        assert!(probes.counts().is_empty() && probes.durations().is_empty());
    }

    #[test]
    fn a_container_that_waits_to_be_ready_is_asked_soon() {
        let check = |period: u64, waits: bool, outcomes: &[bool], expected: &[u64]| {
            let mut pauses = Pauses::new(Duration::from_secs(period), waits);
            let got: Vec<u64> =
                outcomes.iter().map(|good| u64::try_from(pauses.after(*good).as_millis()).unwrap()).collect();
            assert_eq!(got, expected, "{period} {waits}");
        };
        let bad = [false; 9];
        check(10, false, &[false, true, false], &[10_000; 3]);
        check(10, true, &bad, &[100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        check(1, true, &bad[..5], &[100, 200, 400, 800, 1000]);
        // One that was ready is asked as its probe says.
        check(10, true, &[false, true, false, false], &[100, 10_000, 10_000, 10_000]);
    }

    #[test]
    fn outcomes_count_once_they_are_enough() {
        let probe = Probe { success_threshold: Some(2), failure_threshold: Some(3), ..Probe::default() };
        let mut streak = Streak::default();
        for (ok, want) in [
            (true, None),
            (true, Some(true)),
            (false, None),
            (false, None),
            (true, None),
            (false, None),
            (false, None),
            (false, Some(false)),
            (false, Some(false)),
        ] {
            assert_eq!(streak.push(ok, &probe), want);
        }
    }
}
