//! The status of a Pod: computed from what is known here, and written to the API.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::{Gate, Status};
use client::{Backoff, Client, Patch};
use component::Clock;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiStatus};
use serde_json::json;
use tokio::time::Instant;

use super::devices::Devices;
use super::manager::PodManager;
use super::worker::{Phase, Worker};
use super::{allocation, spec, startup};
use crate::config::Config;
use crate::health::Health;
use crate::metrics;
use crate::probes::Probes;
use crate::runtime::Runtime;
use crate::status::generate::{self, Inputs};
use crate::status::patch;

/// Reports the status of Pods.
#[derive(Clone)]
pub(crate) struct Reporter {
    pub(crate) config: Arc<Config>,
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) runtime: Runtime,
    /// Hears of each status.
    pub(crate) pods: Arc<PodManager>,
    pub(crate) probes: Arc<Probes>,
    pub(crate) devices: Devices,
    pub(crate) health: Arc<Health>,
}

impl Reporter {
    /// Computes the status anew; none before the runtime was asked.
    pub(crate) fn compute(&self, worker: &Worker) -> Option<ApiStatus> {
        let mut state = worker.state.lock();
        let status = if let Some(rejected) = &state.rejected {
            rejected.clone()
        } else if state.looked {
            let probe = |kind, id: &str| self.probes.get(id, kind);
            let terminal = state.phase == Phase::Terminated;
            // Nothing is decided any more about a Pod that ends.
            let decided = state.decided.filter(|_| state.phase == Phase::Running);
            let given = state.allocated.as_ref().map(|a| allocation::shown(&state.pod, a, decided));
            let node_ips: &[IpAddr] = &self.config.node_ips;
            let mut generated = generate::generate(&Inputs {
                pod: given.as_deref().unwrap_or(&state.pod),
                pending: state.pending.as_ref(),
                observed: &state.observed,
                waiting: &state.waiting,
                probe: &probe,
                // The status that was computed last is what the API has, or what it will have.
                old: &state.status,
                terminal,
                failed: state.failed.as_ref(),
                node_ips,
                runtime: &self.runtime.version().runtime_name,
                recursive_read_only: self.health.recursive_read_only(),
                actuated: &state.actuated,
                actuated_whole: state.actuated_whole.as_ref(),
                tells_whole: self.config.gates.enabled(Gate::InPlacePodLevelResourcesVerticalScaling),
                resize_error: state.resize_error.as_deref(),
                resizing: state.resizing,
                restarts_all: self.config.gates.enabled(Gate::RestartAllContainersOnContainerExits),
                tells_stop_signals: self.config.gates.enabled(Gate::ContainerStopSignals),
                now: self.clock.now(),
            });
            self.devices.tell(&state.pod, &mut generated);
            if terminal { generate::terminate(generated, &state.pod) } else { generated }
        } else {
            return None;
        };
        startup::count_ended(&state.status, &status, &self.runtime.metrics);
        state.start.computed(&status, &self.runtime.metrics);
        state.status = status.clone();
        let mut shown = (*state.pod).clone();
        shown.status = Some(status.clone());
        drop(state);
        self.pods.put(&worker.uid, Arc::new(shown));
        Some(status)
    }

    /// Writes the status whenever it changes, until the Pod is gone.
    pub(crate) async fn run(&self, worker: &Worker) {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
        loop {
            worker.report.notified().await;
            let began = Instant::now();
            loop {
                if worker.state.lock().gone {
                    worker.written.send_replace(true);
                    return;
                }
                // The last status is final only once it was computed after the clean-up.
                let last = {
                    let state = worker.state.lock();
                    state.phase == Phase::Terminated && state.cleaned
                };
                let Some(status) = self.compute(worker) else { break };
                match self.write(worker, &status).await {
                    Ok(written) => {
                        if written {
                            self.runtime.metrics.took(
                                &metrics::POD_STATUS_SYNC_DURATION_SECONDS,
                                &[],
                                began.elapsed(),
                            );
                        }
                        backoff.reset();
                    }
                    // The Pod is gone, or another one has its name: the watch will say so. A status that the
                    // server finds invalid stays so.
                    Err(error) if matches!(error.code, 404 | 409 | 422) => {
                        if error.code == 422 {
                            let pod = worker.pod();
                            tracing::warn!(pod = spec::full_name(&pod), %error, "status refused");
                        }
                    }
                    Err(error) => {
                        let pod = worker.pod();
                        tracing::debug!(pod = spec::full_name(&pod), %error, "status not written");
                        tokio::time::sleep(backoff.delay()).await;
                        continue;
                    }
                }
                if last {
                    worker.written.send_replace(true);
                }
                break;
            }
        }
    }

    /// Brings the API's status to `status`; answers whether it had to be written.
    async fn write(&self, worker: &Worker, status: &ApiStatus) -> Result<bool, Status> {
        let (pod, sent, mirror) = {
            let state = worker.state.lock();
            (state.pod.clone(), state.sent.clone(), state.mirror.clone())
        };
        let uid = match (spec::is_static(&pod), &mirror) {
            (false, _) => worker.uid.as_str(),
            (true, Some(mirror)) => spec::uid(mirror),
            // Nobody would see it.
            (true, None) => return Ok(false),
        };
        let Some(difference) = patch::difference(&sent, status) else { return Ok(false) };
        let body = json!({"metadata": {"uid": uid}, "status": difference});
        let pods = self.client.api::<Pod>(spec::namespace(&pod));
        let answer = pods.patch_status(spec::name(&pod), &Patch::Strategic(body)).await?;
        let mut state = worker.state.lock();
        state.sent_revision =
            answer.metadata.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0);
        state.sent = answer.status.unwrap_or_default();
        state.start.written(&pod, status, self.clock.now(), &self.runtime.metrics);
        Ok(true)
    }
}
