//! Starting a container: its image, the runtime's part, its hook.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::Informer;
use component::Clock;
use cri::runtime as pb;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, Service};
use tokio::time::{Instant, timeout};

use super::actions::KillReason;
use super::addresses::Addresses;
use super::config::{self, ContainerConfigError, ContainerInputs, Requests};
use super::devices::Devices;
use super::downward::Facts;
use super::hooks::{self, HookError};
use super::kill::Killer;
use super::observed::{ContainerStatus, PodStatus, State};
use super::observer::Observer;
use super::resources;
use super::security::ImageUser;
use super::spec;
use super::startup;
use super::worker::Worker;
use crate::backoff::{Backoffs, go_duration};
use crate::images::{ImageError, ImageManager, ImageUserError};
use crate::log_links::LogLinks;
use crate::metrics;
use crate::node::NodeView;
use crate::recorder::PodRecorder;
use crate::runtime::{CallError, Runtime};
use crate::volumes::{Mounted, Volumes};
use crate::work::{blocking, try_blocking};

/// How long the Services are waited for, which are read once after the start.
const SERVICES: Duration = Duration::from_secs(10);

/// Why a container does not run; upstream's reasons and texts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContainerError {
    #[error("back-off {delay} restarting failed container={container} pod={pod}")]
    BackingOff { delay: String, container: String, pod: String, until: Timestamp },
    #[error(transparent)]
    Image(ImageError),
    #[error(transparent)]
    ImageVolume(ImageError),
    #[error(transparent)]
    ImageUser(#[from] ImageUserError),
    #[error("unable to find target container {0}")]
    NoTarget(String),
    #[error("services have not yet been read at least once, cannot construct envvars")]
    NoServices,
    #[error(transparent)]
    Config(#[from] ContainerConfigError),
    #[error("{}", .0.message())]
    Create(CallError),
    #[error("{}", .0.message())]
    Run(CallError),
    #[error(transparent)]
    PostStart(HookError),
}

impl ContainerError {
    /// The reason in the container's status.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::BackingOff { .. } => "CrashLoopBackOff",
            Self::Image(error) | Self::ImageVolume(error) => error.reason(),
            Self::ImageUser(_) | Self::NoTarget(_) | Self::NoServices | Self::Config(_) => {
                "CreateContainerConfigError"
            }
            Self::Create(_) => "CreateContainerError",
            Self::Run(_) => "RunContainerError",
            Self::PostStart(_) => "PostStartHookError",
        }
    }

    /// When to try again, if that is known.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        match self {
            Self::BackingOff { until, .. } => Some(*until),
            Self::Image(error) | Self::ImageVolume(error) => error.until(),
            _ => None,
        }
    }

    /// The message of the Event `Failed`; none where other Events tell of the error.
    fn event(&self) -> Option<String> {
        match self {
            Self::BackingOff { .. } | Self::ImageVolume(_) | Self::PostStart(_) => None,
            Self::Image(error) => Some(format!("Error: {}", error.reason())),
            _ => Some(format!("Error: {self}")),
        }
    }
}

/// The Pod whose containers are started, and what there is of it already.
pub(crate) struct Place<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) pod: &'a Pod,
    pub(crate) volumes: &'a Volumes,
    pub(crate) sandbox: &'a pb::PodSandboxConfig,
    /// CRI id.
    pub(crate) sandbox_id: &'a str,
    pub(crate) ips: &'a [String],
}

/// Starts containers.
pub(crate) struct Starter {
    pub(crate) clock: Clock,
    pub(crate) runtime: Runtime,
    pub(crate) recorder: PodRecorder,
    pub(crate) images: Arc<ImageManager>,
    pub(crate) requests: Arc<Requests>,
    pub(crate) services: Informer<Service>,
    pub(crate) node: NodeView,
    pub(crate) addresses: Addresses,
    pub(crate) killer: Killer,
    pub(crate) observer: Observer,
    pub(crate) devices: Devices,
    /// Back-off of containers that end.
    pub(crate) crashes: Arc<Backoffs>,
}

impl Starter {
    /// Forgets the failures of a Pod.
    pub(crate) fn forget(&self, uid: &str) {
        self.crashes.forget(uid);
        self.images.forget(uid);
    }

    /// Starts a container, `target` being the name of the one whose processes it shall see. The Pod's status and
    /// Events tell of an error. `observed` is brought up to date if the container has a hook.
    pub(crate) async fn start(
        &self,
        place: &Place<'_>,
        c: &Container,
        target: Option<&str>,
        observed: &mut Arc<PodStatus>,
    ) -> Result<(), ContainerError> {
        let started = match self.not_backing_off(place, c, observed) {
            Ok(()) => {
                let (metrics, kind) = (&self.runtime.metrics, startup::kind(place.pod, &c.name));
                metrics.count(&metrics::STARTED_CONTAINERS_TOTAL, &[kind]);
                let made = Box::pin(self.make_and_run(place, c, target, observed)).await;
                if let Err(error) = &made {
                    metrics.count(&metrics::STARTED_CONTAINERS_ERRORS_TOTAL, &[error.reason(), kind]);
                }
                made
            }
            Err(error) => Err(error),
        };
        if let Some(message) = started.as_ref().err().and_then(ContainerError::event) {
            self.tell(place, c, "Warning", "Failed", message);
        }
        let waiting = started.as_ref().err().map(|e| (e.reason().to_owned(), e.to_string()));
        place.worker.waits(&c.name, waiting);
        started
    }

    fn tell(&self, place: &Place<'_>, c: &Container, kind: &str, reason: &str, message: impl Into<String>) {
        self.recorder.container(place.pod, &c.name, kind, reason, message);
    }

    /// Refuses to start a container that ended a short while ago; counts the start otherwise.
    fn not_backing_off(
        &self,
        place: &Place<'_>,
        c: &Container,
        observed: &PodStatus,
    ) -> Result<(), ContainerError> {
        let last = observed.containers.iter().find(|s| s.name == c.name && s.state == State::Exited);
        let Some(finished) = last.and_then(|last| last.finished_at) else { return Ok(()) };
        let key = spec::backoff_key(&place.worker.uid, c);
        let now = self.clock.now();
        let Some(until) = self.crashes.until(&key, finished, now) else {
            self.crashes.next(&key, finished, now);
            return Ok(());
        };
        let pod = spec::full_name(place.pod);
        let message = format!("Back-off restarting failed container {} in pod {pod}", c.name);
        self.tell(place, c, "Warning", "BackOff", message);
        let delay = go_duration(self.crashes.delay(&key));
        Err(ContainerError::BackingOff { delay, container: c.name.clone(), pod, until })
    }

    async fn make_and_run(
        &self,
        place: &Place<'_>,
        c: &Container,
        target: Option<&str>,
        observed: &mut Arc<PodStatus>,
    ) -> Result<(), ContainerError> {
        place.worker.report.notify_one();
        let request = self.request(place, c, target, observed).await?;
        let log = request.config.as_ref().map(|config| config.log_path.clone()).unwrap_or_default();
        let calls = self.runtime.of(&place.worker.uid);
        let made = calls.create_container(request).await.map_err(|e| ContainerError::Create(e.into()))?;
        let id = made.into_inner().container_id;
        self.tell(place, c, "Normal", "Created", "Container created");
        self.requests.managers.starts(place.pod, c).await;
        let request = pb::StartContainerRequest { container_id: id.clone() };
        calls.start_container(request).await.map_err(|e| ContainerError::Run(e.into()))?;
        self.tell(place, c, "Normal", "Started", "Container started");
        self.link_log(Path::new(&place.sandbox.log_directory).join(log), id.clone()).await;
        place.worker.state.lock().actuated.insert(id.clone(), resources::effective(place.pod, c));
        self.post_start(place, c, &id, observed).await
    }

    /// Links the log of a container that has started.
    async fn link_log(&self, log: PathBuf, id: String) {
        let links = LogLinks::new(&self.requests.config);
        let path = log.clone();
        let made = try_blocking(move || links.make(&log, &id)).await;
        if let Err(error) = made {
            tracing::warn!(path = %path.display(), %error, "the log of a container has no link");
        }
    }

    /// The runtime's part of the work: the image is there, and everything that the container is made from.
    async fn request(
        &self,
        place: &Place<'_>,
        c: &Container,
        target: Option<&str>,
        observed: &PodStatus,
    ) -> Result<pb::CreateContainerRequest, ContainerError> {
        let pod = place.pod;
        let began = Instant::now();
        let image = self.images.ensure(pod, c, place.sandbox).await.map_err(ContainerError::Image)?;
        place.worker.state.lock().start.pulled += began.elapsed();
        let image_volumes = self.image_volumes(place, c).await?;
        let image_user = self.images.user(&image).await?;
        let target = match target.filter(|t| !t.is_empty()) {
            None => None,
            Some(name) => {
                let found = observed.container(name).map(|t| t.id.clone());
                Some(found.ok_or_else(|| ContainerError::NoTarget(name.to_owned()))?)
            }
        };
        // Environment variables name every Service there is.
        if !spec::is_static(pod) && timeout(SERVICES, self.services.synced()).await.is_err() {
            return Err(ContainerError::NoServices);
        }
        let config =
            self.config(place, c, (image.spec.image, image_user), image_volumes, target, observed).await?;
        Ok(pb::CreateContainerRequest {
            pod_sandbox_id: place.sandbox_id.to_owned(),
            config: Some(config),
            sandbox_config: Some(place.sandbox.clone()),
        })
    }

    /// How often a container was restarted of which the newest was made and never started, since the kubelet ended in
    /// between; that one goes, because its name is taken.
    ///
    /// DIFFERENCE: upstream counts it as a start, so that a container that ran once has one restart.
    async fn starts_without(&self, place: &Place<'_>, made: &ContainerStatus) -> u32 {
        let removed = self.killer.remove_container(&place.worker.uid, &made.id).await;
        made.restart_count + u32::from(removed.is_err())
    }

    async fn config(
        &self,
        place: &Place<'_>,
        c: &Container,
        (image_ref, image_user): (String, ImageUser),
        image_volumes: HashMap<String, pb::ImageSpec>,
        target: Option<String>,
        observed: &PodStatus,
    ) -> Result<pb::ContainerConfig, ContainerConfigError> {
        let log_dir = self.requests.container_log_dir(place.pod, &c.name);
        let restart_count = match observed.container(&c.name) {
            Some(made) if made.state == State::Created => self.starts_without(place, made).await,
            Some(last) => last.restart_count + 1,
            None => blocking(move || config::restarts_by_logs(&log_dir)).await.unwrap_or(0),
        };
        let allocatable = self.node.allocatable();
        let facts = Facts {
            pod: place.pod,
            pod_ips: place.ips,
            node_ips: &self.requests.config.node_ips,
            allocatable: &allocatable,
        };
        let given = self.devices.of_container(place.pod, c).await?;
        let inputs = ContainerInputs {
            facts: &facts,
            container: c,
            image_ref: &image_ref,
            image_user: &image_user,
            restart_count,
            given: &given,
            volumes: place.volumes,
            image_volumes: &image_volumes,
            target,
        };
        self.requests.container(&inputs).await
    }

    /// Runs the postStart hook; a container whose hook fails is stopped.
    async fn post_start(
        &self,
        place: &Place<'_>,
        c: &Container,
        id: &str,
        observed: &mut Arc<PodStatus>,
    ) -> Result<(), ContainerError> {
        const FAILED: &str = "FailedPostStartHook";
        let Some(hook) = c.lifecycle.as_ref().and_then(|l| l.post_start.as_ref()) else { return Ok(()) };
        if let Ok(now) = self.observer.observe(place.worker).await {
            *observed = now;
        }
        let run = hooks::run(&self.runtime, &self.addresses, &self.recorder, place.pod, c, id, hook).await;
        let Err(error) = run else { return Ok(()) };
        self.tell(place, c, "Warning", FAILED, "PostStartHook failed");
        if let Some(status) = observed.containers.iter().find(|s| s.id == id) {
            let killed =
                self.killer.container(place.pod, status, FAILED, KillReason::PostStartHook, None, None).await;
            if let Err(error) = killed {
                tracing::debug!(pod = spec::full_name(place.pod), %error, "container not killed");
            }
        }
        Err(ContainerError::PostStart(error))
    }

    /// Pulls the images that a container mounts as volumes.
    async fn image_volumes(
        &self,
        place: &Place<'_>,
        c: &Container,
    ) -> Result<HashMap<String, pb::ImageSpec>, ContainerError> {
        let mut found = HashMap::new();
        for mount in c.volume_mounts.iter().flatten() {
            let Some(Mounted::Image { reference, pull_policy }) = place.volumes.get(&mount.name) else {
                continue;
            };
            let stand_in = Container {
                name: c.name.clone(),
                image: Some(reference.clone()),
                image_pull_policy: pull_policy.clone(),
                ..Container::default()
            };
            let metrics = &self.runtime.metrics;
            metrics.count(&metrics::IMAGE_VOLUME_REQUESTED_TOTAL, &[]);
            let pulled = self.images.ensure(place.pod, &stand_in, place.sandbox).await;
            metrics.count(
                match &pulled {
                    Ok(_) => &metrics::IMAGE_VOLUME_MOUNTED_SUCCEED_TOTAL,
                    Err(_) => &metrics::IMAGE_VOLUME_MOUNTED_ERRORS_TOTAL,
                },
                &[],
            );
            found.insert(mount.name.clone(), pulled.map_err(ContainerError::ImageVolume)?.spec);
        }
        Ok(found)
    }
}
