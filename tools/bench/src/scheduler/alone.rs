//! The scheduler's decisions alone: cache, plugins, choice and assumption, without an API server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::scheduler::cache::Cache;
use ::scheduler::config::defaults::{self, SCHEDULER_NAME};
use ::scheduler::config::document::Document;
use ::scheduler::cycle::{Around, Decision, Help, Part, decide};
use ::scheduler::framework::profile::{Profile, profiles};
use ::scheduler::kept::Keeper;
use ::scheduler::nominated::Nominated;
use ::scheduler::owners::{Kind, Selecting};
use ::scheduler::plugins;
use ::scheduler::pod::PodInfo;
use ::scheduler::storage::News;
use client::{Cached, Change};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::workloads::{Make, Step, Workload};

/// The figures of a workload.
pub(crate) struct Figures {
    /// Pods placed a second.
    pub(crate) rate: f64,
    /// Pods placed in a second of CPU time.
    pub(crate) cpu_rate: f64,
    /// The 99th percentile of the time of a turn.
    pub(crate) p99: Duration,
}

/// Pods that come meanwhile, whether there is a place for them or not.
struct Churn {
    pace: Duration,
    all: &'static [Make],
    since: Instant,
    next: u32,
}

struct Run {
    profile: Profile,
    cluster: Cache,
    nominated: Nominated,
    keeper: Keeper,
    churn: Option<Churn>,
    begun: Option<(Instant, Duration)>,
    times: Vec<Duration>,
}

/// Runs a workload whose Pods are all placed one after the other.
pub(crate) fn measure(workload: &Workload) -> Result<Figures, String> {
    let mut config = Document::default();
    defaults::complete(&mut config);
    let mut all = profiles(&config, &plugins::registry()?)?;
    let mut run = Run {
        profile: all.remove(SCHEDULER_NAME).ok_or("there is no default profile")?,
        cluster: Cache::default(),
        nominated: Nominated::default(),
        keeper: Keeper::default(),
        churn: None,
        begun: None,
        times: Vec::new(),
    };
    for step in workload.steps {
        run.take(*step)?;
    }
    let (at, cpu) = run.begun.ok_or("nothing is measured")?;
    let (elapsed, cpu) = (at.elapsed(), cpu_time()?.saturating_sub(cpu));
    let mut times = run.times;
    times.sort();
    let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or_default();
    let rate = |time: Duration| times.len() as f64 / time.as_secs_f64();
    Ok(Figures { rate: rate(elapsed), cpu_rate: rate(cpu), p99 })
}

/// The CPU time of this thread.
fn cpu_time() -> Result<Duration, String> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").map_err(|e| e.to_string())?;
    let nanos = stat.split_whitespace().next().and_then(|n| n.parse().ok()).ok_or("no CPU time")?;
    Ok(Duration::from_nanos(nanos))
}

fn read<T: DeserializeOwned>(object: Value) -> Result<T, String> {
    serde_json::from_value(object).map_err(|e| e.to_string())
}

fn new<T: DeserializeOwned>(object: Value) -> Result<Change<T>, String> {
    Ok(Change::Added(Arc::new(read(object)?)))
}

impl Run {
    fn take(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Make(count, make) => (0..count).try_for_each(|i| self.make(make(i)).map(drop)),
            Step::Place(count, make) => self.place_all(count, make),
            Step::Measure => {
                self.times.clear();
                self.begun = Some((Instant::now(), cpu_time()?));
                Ok(())
            }
            Step::Churn(pace, all) => {
                self.churn = Some(Churn { pace, all, since: Instant::now(), next: 0 });
                Ok(())
            }
            other => Err(format!("{other:?} needs an API server")),
        }
    }

    fn place_all(&mut self, count: usize, make: Make) -> Result<(), String> {
        let mut pods = Vec::with_capacity(count);
        for i in 0..count {
            pods.extend(self.make(make(i))?);
        }
        // Decisions do not pay for objects that were made before.
        if let Some(begun) = &mut self.begun {
            *begun = (Instant::now(), cpu_time()?);
        }
        let mut missing = 0;
        for pod in &pods {
            let turn = Instant::now();
            missing += usize::from(!self.place(pod)?);
            self.times.push(turn.elapsed());
            if let Some(Churn { pace, all, since, next }) = &mut self.churn
                && since.elapsed() > *pace * *next
            {
                let (all, i) = (*all, *next as usize);
                *next += 1;
                for make in all {
                    for pod in self.make(make(i))? {
                        self.place(&pod)?;
                    }
                }
            }
        }
        if missing > 0 {
            return Err(format!("{missing} of {count} Pods found no node"));
        }
        Ok(())
    }

    /// Takes in an object, or several; the Pods among them are returned.
    fn make(&mut self, object: Value) -> Result<Vec<PodInfo>, String> {
        let all = match object {
            Value::Array(all) => all,
            one => vec![one],
        };
        let mut pods = Vec::new();
        for object in all {
            let storage = self.cluster.storage().clone();
            match object["kind"].as_str().unwrap_or_default() {
                "Pod" => pods.push(PodInfo::new(read(object)?)),
                "Node" => {
                    let node = Arc::new(read(object)?);
                    storage.set_node(&node);
                    self.cluster.set_node(node);
                }
                "Namespace" => self.cluster.set_namespace(&read(object)?),
                "Service" => {
                    let service = Selecting::decode(object.to_string().as_bytes());
                    let service = service.map_err(|e| e.to_string())?;
                    self.cluster.owners_mut().take(Kind::Service, &Change::Added(Arc::new(service)));
                }
                "PersistentVolume" => drop(storage.take(&News::Volume(new(object)?))),
                "PersistentVolumeClaim" => drop(storage.take(&News::Claim(new(object)?))),
                "CSINode" => drop(storage.take(&News::CsiNode(new(object)?))),
                other => return Err(format!("a {other} is nothing to decisions alone")),
            }
        }
        Ok(pods)
    }

    /// One Pod's turn, and a second one where room was made for it; whether it has a node then.
    fn place(&mut self, pod: &PodInfo) -> Result<bool, String> {
        for _ in 0..2 {
            let around = Around {
                profile: &self.profile,
                cluster: &self.cluster,
                nominated: &self.nominated,
                budgets: &[],
                part: Part::default(),
            };
            match decide(pod, around, &mut self.keeper, &mut |n| fastrand::usize(..n)) {
                Decision::Node(node) => {
                    self.nominated.remove(pod.uid());
                    self.cluster.assume(pod.clone(), &node);
                    return Ok(true);
                }
                Decision::Unschedulable(_, Help::Room(candidate)) => {
                    candidate.victims.iter().for_each(|v| self.cluster.remove_pod(v.uid()));
                    self.nominated.set(pod.clone(), &candidate.node);
                }
                Decision::Unschedulable(error, _) => {
                    // The text is made as it would be written.
                    std::hint::black_box(error.to_string());
                    return Ok(false);
                }
                Decision::Error(why) => return Err(why),
            }
        }
        Ok(false)
    }
}
