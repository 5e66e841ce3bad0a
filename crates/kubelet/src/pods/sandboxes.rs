//! Sandboxes of Pods: how they are made.

use std::sync::Arc;

use cri::runtime as pb;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use super::config::{Requests, SandboxConfigError};
use super::runtime_classes::{RuntimeClassError, RuntimeClasses};
use super::spec;
use crate::health::Health;
use crate::metrics;
use crate::recorder::PodRecorder;
use crate::runtime::{CallError, Runtime};
use crate::volumes::Volumes;

/// Why a Pod has no sandbox; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxError {
    #[error("Failed to generate sandbox config for pod {pod:?}: {error}")]
    Config { pod: String, error: SandboxConfigError },
    #[error("network is not ready: {0}")]
    Network(NetworkNotReady),
    #[error("Failed to create sandbox for pod {pod:?}: {error}")]
    RuntimeClass { pod: String, error: RuntimeClassError },
    #[error(transparent)]
    Run(#[from] CallError),
}

/// The runtime has no network for Pods; its own reason and message.
#[derive(Debug, thiserror::Error)]
#[error("container runtime network not ready: NetworkReady=false reason:{reason} message:{message}")]
pub(crate) struct NetworkNotReady {
    reason: String,
    message: String,
}

impl SandboxError {
    /// Reason and message of the Event.
    fn event(&self) -> (&'static str, String) {
        match self {
            Self::Network(_) => ("NetworkNotReady", self.to_string()),
            _ => ("FailedCreatePodSandBox", format!("Failed to create pod sandbox: {self}")),
        }
    }
}

/// Makes sandboxes.
pub(crate) struct Sandboxes {
    pub(crate) classes: RuntimeClasses,
    pub(crate) runtime: Runtime,
    pub(crate) recorder: PodRecorder,
    pub(crate) requests: Arc<Requests>,
    /// Knows what the runtime said of its network.
    pub(crate) health: Arc<Health>,
}

impl Sandboxes {
    /// The sandbox of a Pod as the runtime is asked for it. An Event tells of an error.
    pub(crate) async fn config(
        &self,
        pod: &Pod,
        attempt: u32,
        volumes: &Volumes,
    ) -> Result<pb::PodSandboxConfig, SandboxError> {
        // The users of a Pod are what a handler makes.
        let handler = match spec::spec(pod).host_users {
            Some(false) => self.runtime_handler(pod).await.map_err(|error| self.failed(pod, error))?,
            _ => String::new(),
        };
        let made = self.requests.sandbox(pod, attempt, &handler, &volumes.groups).await;
        made.map_err(|error| self.failed(pod, SandboxError::Config { pod: spec::full_name(pod), error }))
    }

    /// Makes a sandbox; answers its CRI id. An Event tells of an error.
    pub(crate) async fn create(
        &self,
        pod: &Pod,
        config: &pb::PodSandboxConfig,
    ) -> Result<String, SandboxError> {
        let metrics = &self.runtime.metrics;
        let own_users = spec::spec(pod).host_users == Some(false);
        metrics.count(&metrics::STARTED_PODS_TOTAL, &[]);
        if own_users {
            metrics.count(&metrics::STARTED_USER_NAMESPACED_PODS_TOTAL, &[]);
        }
        self.run(pod, config).await.map_err(|error| {
            metrics.count(&metrics::STARTED_PODS_ERRORS_TOTAL, &[]);
            if own_users {
                metrics.count(&metrics::STARTED_USER_NAMESPACED_PODS_ERRORS_TOTAL, &[]);
            }
            self.failed(pod, error)
        })
    }

    fn failed(&self, pod: &Pod, error: SandboxError) -> SandboxError {
        let (reason, message) = error.event();
        self.recorder.pod(pod, "Warning", reason, message);
        error
    }

    async fn run(&self, pod: &Pod, config: &pb::PodSandboxConfig) -> Result<String, SandboxError> {
        if !spec::host_network(pod) {
            self.network_ready().await.map_err(SandboxError::Network)?;
        }
        let runtime_handler = self.runtime_handler(pod).await?;
        let (metrics, handler) = (&self.runtime.metrics, runtime_handler.clone());
        let began = Instant::now();
        let request = pb::RunPodSandboxRequest { config: Some(config.clone()), runtime_handler };
        let answer = self.runtime.of(spec::uid(pod)).run_pod_sandbox(request).await;
        metrics.took(&metrics::RUN_PODSANDBOX_DURATION_SECONDS, &[&handler], began.elapsed());
        if answer.is_err() {
            metrics.count(&metrics::RUN_PODSANDBOX_ERRORS_TOTAL, &[&handler]);
        }
        Ok(answer.map_err(CallError::from)?.into_inner().pod_sandbox_id)
    }

    /// Whether the runtime has a network for Pods. A runtime that does not say is taken to have one. It is asked only if it
    /// did not say so a short while ago: the network may have come since.
    async fn network_ready(&self) -> Result<(), NetworkNotReady> {
        if self.health.has_network() {
            return Ok(());
        }
        let answer = self.runtime.service().status(pb::StatusRequest { verbose: false }).await;
        let conditions = answer.ok().and_then(|a| a.into_inner().status).map(|s| s.conditions);
        let lacking = conditions.into_iter().flatten().find(|c| c.r#type == "NetworkReady" && !c.status);
        match lacking {
            Some(c) => Err(NetworkNotReady { reason: c.reason, message: c.message }),
            None => Ok(()),
        }
    }

    /// The runtime handler that the Pod's runtime class names.
    async fn runtime_handler(&self, pod: &Pod) -> Result<String, SandboxError> {
        let handler = self.classes.handler(pod).await;
        handler.map_err(|error| SandboxError::RuntimeClass { pod: spec::full_name(pod), error })
    }
}
