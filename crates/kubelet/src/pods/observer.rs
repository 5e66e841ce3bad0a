//! A look at everything that the runtime has of a Pod.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use api::Gate;
use cri::runtime as pb;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use super::manager::PodManager;
use super::observed::{PodStatus, State};
use super::worker::Worker;
use super::{addresses, messages, spec};
use crate::cgroups::Cgroups;
use crate::config::Config;
use crate::metrics;
use crate::runtime::{CallError, Runtime};

/// Asks the runtime about Pods.
#[derive(Clone)]
pub(crate) struct Observer {
    runtime: Runtime,
    pods: Arc<PodManager>,
    /// Where the Pods' directories are.
    dir: PathBuf,
    /// The node's primary address.
    node: Option<IpAddr>,
    cgroups: Cgroups,
    /// Whether figures of Pods' cgroups are wanted: they tell of the resources of whole Pods.
    figures: bool,
    /// Whether the images that are mounted as volumes are asked for; upstream's gate `ImageVolumeWithDigest`.
    image_volumes: bool,
}

impl Observer {
    /// `pods` hears of what is seen.
    pub(crate) fn new(config: &Config, runtime: Runtime, pods: Arc<PodManager>, cgroups: Cgroups) -> Self {
        let (dir, node) = (config.pods_dir(), config.node_ips.first().copied());
        let figures = config.gates.enabled(Gate::InPlacePodLevelResourcesVerticalScaling);
        let image_volumes = config.gates.enabled(Gate::ImageVolumeWithDigest);
        Self { runtime, pods, dir, node, cgroups, figures, image_volumes }
    }

    /// Asks the runtime, and notes the answer, with the messages that containers left. Calls of a step that was
    /// given up come to their end first, so that the answer is complete.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) async fn observe(&self, worker: &Worker) -> Result<Arc<PodStatus>, CallError> {
        self.runtime.idle(&worker.uid).await;
        let pod = worker.pod();
        let uid = spec::uid(&pod);
        let began = Instant::now();
        let observed = self.runtime.pod_status(uid, spec::namespace(&pod), spec::name(&pod)).await?;
        self.runtime.metrics.took(&metrics::PLEG_POD_RELIST_DURATION_SECONDS, &[], began.elapsed());
        Ok(self.note(worker, &pod, observed).await)
    }

    /// Asks for the first sandbox of a Pod of which the runtime had nothing `before`, and notes the answer.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) async fn observe_first(
        &self,
        worker: &Worker,
        before: &PodStatus,
        id: &str,
    ) -> Result<Arc<PodStatus>, CallError> {
        match self.runtime.sandbox_status(id).await? {
            Some(sandbox) if before.sandboxes.is_empty() && before.containers.is_empty() => {
                let observed = PodStatus { sandboxes: vec![sandbox], ..before.clone() };
                Ok(self.note(worker, &worker.pod(), observed).await)
            }
            _ => self.observe(worker).await,
        }
    }

    /// Completes an observation, and lets others know of it.
    async fn note(&self, worker: &Worker, pod: &Pod, mut observed: PodStatus) -> Arc<PodStatus> {
        let uid = spec::uid(pod);
        for sandbox in &mut observed.sandboxes {
            sandbox.ips = addresses::preferred(&sandbox.ips, self.node.as_ref());
        }
        for c in observed.containers.iter_mut().filter(|c| c.state == State::Exited) {
            let dir = self.dir.join(uid).join("containers").join(&c.name);
            messages::complete(c, dir).await;
        }
        if self.image_volumes {
            self.identify_images(&mut observed).await;
        }
        observed.cgroup = self.figures.then(|| self.cgroups.figures(pod)).flatten();
        let observed = Arc::new(observed);
        worker.note(observed.clone());
        self.pods.observe(&worker.uid, observed.clone());
        observed
    }

    /// Asks which images the containers have as volumes, each image once. An image of which nothing is known is asked for
    /// again with the next look.
    async fn identify_images(&self, observed: &mut PodStatus) {
        let mut ids: HashMap<String, Option<String>> = HashMap::new();
        for volume in observed.containers.iter_mut().flat_map(|c| &mut c.image_volumes) {
            let name = &volume.image.image;
            if !ids.contains_key(name) {
                let request = pb::ImageStatusRequest { image: Some(volume.image.clone()), verbose: false };
                let id = match self.runtime.images().image_status(request).await {
                    Ok(answer) => answer.into_inner().image.map(|image| image.id),
                    Err(error) => {
                        tracing::warn!(image = name, %error, "the image of a volume is not known");
                        None
                    }
                };
                ids.insert(name.clone(), id.filter(|id| !id.is_empty()));
            }
            volume.id = ids.get(name).cloned().flatten();
        }
    }
}
