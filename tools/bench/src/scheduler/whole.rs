//! The scheduler with the API server, as upstream's scheduler_perf measures it: everything is made through the API, and a
//! Pod counts when the API shows its node.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;

use super::plane::{Plane, key};
use super::workloads::{Step, Workload};
use crate::process;
use crate::requests::quantile;

/// The figures of a workload.
pub(super) struct Figures {
    /// Pods that were bound in the measured part.
    pub(super) pods: usize,
    /// Pods that are bound a second.
    pub(super) rate: f64,
    /// The scheduler's CPU time for a Pod, in microseconds.
    pub(super) cpu: f64,
    /// The API server's CPU time for a Pod, in microseconds.
    pub(super) server_cpu: f64,
    /// The 99th percentile of the time from a Pod's creation until the API shows its node, in milliseconds.
    pub(super) p99: f64,
}

/// The beginning of the measured part.
struct Begun {
    at: Instant,
    cpu: (f64, f64),
    bound: usize,
}

/// A workload under way.
struct Run<'a> {
    plane: &'a Plane,
    begun: Option<Begun>,
    /// The steps that go on meanwhile; they end with this value.
    meanwhile: JoinSet<Result<()>>,
}

/// Runs a workload.
pub(super) async fn measure(bin: &Path, workload: &Workload) -> Result<Figures> {
    let dir = tempfile::Builder::new().prefix("ferrokube-bench-").tempdir()?;
    let plane = Plane::start(bin, dir.path(), workload.claims).await?;
    let mut run = Run { plane: &plane, begun: None, meanwhile: JoinSet::new() };
    for (i, step) in workload.steps.iter().enumerate() {
        run.take(*step).await.with_context(|| format!("{}, step {}", workload.name, i + 1))?;
        while let Some(ended) = run.meanwhile.try_join_next() {
            ended??;
        }
    }
    let begun = run.begun.context("nothing is measured")?;
    let (seconds, cpu) = (begun.at.elapsed().as_secs_f64(), plane.cpu()?);
    let mut times = plane.board().times(begun.bound);
    ensure!(!times.is_empty(), "no Pod was bound in the measured part");
    times.sort_by(f64::total_cmp);
    let pods = times.len() as f64;
    Ok(Figures {
        pods: times.len(),
        rate: pods / seconds,
        cpu: (cpu.0 - begun.cpu.0) / pods * 1e6,
        server_cpu: (cpu.1 - begun.cpu.1) / pods * 1e6,
        p99: quantile(&times, 0.99),
    })
}

impl Run<'_> {
    async fn take(&mut self, step: Step) -> Result<()> {
        let plane = self.plane;
        match step {
            Step::Make(count, make) => plane.make(0..count, make, false).await,
            Step::Place(count, make) => {
                plane.make(0..count, make, true).await?;
                plane.bound(Some((0..count).map(|i| key(&make(i))).collect())).await
            }
            Step::Leave(count, make) => plane.make(0..count, make, true).await,
            Step::Tried => plane.tried().await,
            Step::Bound => plane.bound(None).await,
            Step::Measure => {
                let bound = plane.board().bound();
                self.begun = Some(Begun { at: Instant::now(), cpu: plane.cpu()?, bound });
                Ok(())
            }
            Step::Churn(pace, all) => {
                let target = plane.target.clone();
                self.meanwhile.spawn(async move {
                    let mut tick = tokio::time::interval(pace);
                    for i in 0.. {
                        tick.tick().await;
                        for make in all {
                            target.make(&make(i)).await?;
                        }
                    }
                    Ok(())
                });
                Ok(())
            }
            Step::Recreate(pace, all) => {
                let target = plane.target.clone();
                self.meanwhile.spawn(async move {
                    let mut tick = tokio::time::interval(pace);
                    for i in 0.. {
                        tick.tick().await;
                        for make in all {
                            if i % 2 == 0 {
                                target.make(&make(i / 2)).await?;
                            } else {
                                target.remove(&make(i / 2)).await?;
                            }
                        }
                    }
                    Ok(())
                });
                Ok(())
            }
            Step::Delete(count, pace, make) => {
                let target = plane.target.clone();
                self.meanwhile.spawn(async move {
                    let mut tick = tokio::time::interval(Duration::from_secs(1) / pace as u32);
                    for i in 0..count {
                        tick.tick().await;
                        target.remove(&make(i)).await?;
                    }
                    Ok(())
                });
                Ok(())
            }
            Step::Update(count, pace, change, make) => {
                let mut tick = tokio::time::interval(Duration::from_secs(1) / pace as u32);
                for i in 0..count {
                    tick.tick().await;
                    plane.target.change(&make(i), change).await?;
                }
                Ok(())
            }
            Step::Steady(time, at_once, make) => {
                let end = Instant::now() + time;
                let mut first = 0;
                while Instant::now() < end {
                    plane.make(first..first + at_once, make, true).await?;
                    plane.bound(None).await?;
                    plane.remove(first..first + at_once, make).await?;
                    first += at_once;
                }
                Ok(())
            }
        }
    }
}

/// The figures at a pace, and at rest.
pub(super) struct Pace {
    /// Milliseconds from a Pod's creation until the API shows its node.
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// Bytes of the scheduler's memory for a node, and for a Pod.
    pub(super) node: f64,
    pub(super) pod: f64,
    /// The scheduler's CPU at rest, in percent of a core.
    pub(super) rest: f64,
}

/// Makes the nodes of a workload and its Pods at a pace of so many a second, then more until there are `pods`, and looks
/// at the scheduler at rest.
pub(super) async fn at_pace(bin: &Path, workload: &Workload, each_second: u32, pods: usize) -> Result<Pace> {
    const SECONDS: u32 = 10;
    const REST: Duration = Duration::from_secs(20);
    let (nodes, node, pod) = match workload.steps {
        [Step::Make(nodes, node), .., Step::Place(_, pod)] => (*nodes, *node, *pod),
        _ => anyhow::bail!("the workload does not make nodes and measure Pods"),
    };
    let dir = tempfile::Builder::new().prefix("ferrokube-bench-").tempdir()?;
    let plane = Plane::start(bin, dir.path(), false).await?;
    let memory = || process::memory(&[plane.scheduler]).map(|m| m.rss * f64::from(1 << 20));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let empty = memory()?;
    plane.make(0..nodes, node, false).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let with_nodes = memory()?;
    let count = (each_second * SECONDS) as usize;
    ensure!(pods >= count, "there are more Pods at the pace than in all");
    let mut tick = tokio::time::interval(Duration::from_secs(1) / each_second);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    let mut under_way = JoinSet::new();
    for i in 0..count {
        tick.tick().await;
        let (target, pod) = (plane.target.clone(), pod(i));
        plane.board().add(&pod);
        under_way.spawn(async move { target.make(&pod).await });
    }
    while let Some(done) = under_way.join_next().await {
        done??;
    }
    plane.bound(None).await?;
    let mut times = plane.board().times(0);
    times.sort_by(f64::total_cmp);
    // The rest of the Pods are there already, on nodes: nobody has to find these a place.
    plane
        .make_each(count..pods, |i| {
            let mut pod = pod(i);
            pod["spec"]["nodeName"] = node(i % nodes)["metadata"]["name"].clone();
            pod
        })
        .await?;
    plane.bound(None).await?;
    tokio::time::sleep(REST).await;
    let with_pods = memory()?;
    let before = process::cpu(&[plane.scheduler])?;
    tokio::time::sleep(REST).await;
    let rest = (process::cpu(&[plane.scheduler])? - before) / REST.as_secs_f64() * 100.0;
    Ok(Pace {
        p50: quantile(&times, 0.5),
        p99: quantile(&times, 0.99),
        node: (with_nodes - empty) / nodes as f64,
        pod: (with_pods - with_nodes) / pods as f64,
        rest,
    })
}
