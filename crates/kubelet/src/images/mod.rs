//! Images: pull policies, back-off, who may use what was pulled, and the Events that tell of them.

mod credential;
mod credentials;
mod error;
mod keyring;
mod names;
mod node_files;
mod records;
#[cfg(test)]
mod upstream_tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::Gate;
use client::Client;
use client::rate::Bucket;
use component::Clock;
use cri::runtime as pb;
use k8s_openapi::api::core::v1::{Container, Pod};
use parking_lot::Mutex;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;

use self::credential::Credential;
use self::error::PullError;
pub(crate) use self::error::{ImageError, ImageUserError};
pub(crate) use self::names::is_named;
use self::node_files::NodeFiles;
use self::records::{Access, ImageCredentials, Records};
pub use self::records::{PatternError, Verification};
use crate::backoff::Backoffs;
use crate::config::Config;
use crate::credential_providers::Providers;
use crate::metrics;
use crate::objects::Objects;
use crate::pods::runtime_classes::{RuntimeClassError, RuntimeClasses};
use crate::pods::security::ImageUser;
use crate::pods::spec;
use crate::recorder::PodRecorder;
use crate::runtime::{CallError, Runtime};

/// Makes sure that images are there, for those who may use them: pulls in progress and failures.
pub(crate) struct ImageManager {
    runtime: Runtime,
    clock: Clock,
    recorder: PodRecorder,
    secrets: Arc<Objects>,
    /// The credentials of the node.
    node: NodeFiles,
    /// The programs that are asked for credentials, if any are.
    providers: Option<Providers>,
    /// Whether it is kept for whom images were pulled; upstream's gate `KubeletEnsureSecretPulledImages`, without which
    /// everybody may use an image that is there.
    verifies: bool,
    /// The images whose users are asked for their credentials.
    verification: Verification,
    /// The handlers of Pods, if the runtime is told for which one it pulls an image.
    classes: Option<RuntimeClasses>,
    backoff: Backoffs,
    failures: Mutex<HashMap<String, String>>,
    pulls: Arc<Semaphore>,
    /// When pulls may begin, if not at any time.
    rate: Option<Mutex<Bucket>>,
    records: Records,
    /// Set once the records are those of the images that the runtime has.
    reconciled: OnceCell<()>,
}

/// An image that is there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Present {
    /// How the runtime is asked for it from now on, by the name by which it knows it.
    pub(crate) spec: pb::ImageSpec,
    /// The user that its configuration names; none if the runtime was not asked.
    user: Option<ImageUser>,
}

fn user_of(image: &pb::Image) -> ImageUser {
    ImageUser::of(image.uid.as_ref().map(|u| u.value), image.username.clone())
}

impl ImageManager {
    /// Keeps its records below the kubelet's directory.
    pub(crate) fn new(
        config: &Config,
        runtime: Runtime,
        (client, clock): (&Client, Clock),
        recorder: PodRecorder,
        secrets: Arc<Objects>,
        providers: Option<Providers>,
    ) -> Self {
        Self {
            runtime,
            clock,
            recorder,
            secrets,
            node: NodeFiles::new(&config.docker_config),
            providers,
            verifies: config.gates.enabled(Gate::KubeletEnsureSecretPulledImages),
            verification: config.image_verification.clone(),
            classes: config
                .gates
                .enabled(Gate::RuntimeClassInImageCriApi)
                .then(|| RuntimeClasses::new(client.clone())),
            backoff: Backoffs::default(),
            failures: Mutex::default(),
            pulls: Arc::new(Semaphore::new(config.max_parallel_image_pulls.max(1))),
            rate: config.pull_rate.map(|rate| Mutex::new(Bucket::new(rate))),
            records: Records::new(&config.root_dir),
            reconciled: OnceCell::new(),
        }
    }
    /// Forgets the failures of a Pod.
    pub(crate) fn forget(&self, uid: &str) {
        self.backoff.forget(uid);
        self.failures.lock().retain(|key, _| !key.starts_with(uid));
        if let Some(providers) = &self.providers {
            providers.forget(uid);
        }
    }

    /// The credentials of a Pod for an image.
    async fn credentials(&self, pod: &Pod, image: &str) -> Vec<Credential> {
        let others = (&self.node, self.providers.as_ref());
        credentials::of_pod(&self.secrets, others, &self.recorder, pod, image).await
    }

    /// The handler that images of a Pod are for, "" for the runtime's own.
    async fn handler(&self, pod: &Pod) -> Result<String, RuntimeClassError> {
        match &self.classes {
            Some(classes) => classes.handler(pod).await,
            None => Ok(String::new()),
        }
    }

    /// Makes sure that a container's image is there.
    pub(crate) async fn ensure(
        &self,
        pod: &Pod,
        container: &Container,
        sandbox: &pb::PodSandboxConfig,
    ) -> Result<Present, ImageError> {
        let handler = self.handler(pod).await?;
        let (reference, user) = self.ensure_for(pod, container, sandbox, handler.clone()).await?;
        let spec = pb::ImageSpec {
            image: reference,
            user_specified_image: container.image.clone().unwrap_or_default(),
            runtime_handler: handler,
            annotations: pod.metadata.annotations.clone().unwrap_or_default().into_iter().collect(),
            ..pb::ImageSpec::default()
        };
        Ok(Present { spec, user })
    }

    /// Makes sure that a container's image is there for a handler; answers its reference, and its user if the runtime was
    /// asked.
    async fn ensure_for(
        &self,
        pod: &Pod,
        container: &Container,
        sandbox: &pb::PodSandboxConfig,
        runtime_handler: String,
    ) -> Result<(String, Option<ImageUser>), ImageError> {
        let wanted = container.image.as_deref().unwrap_or_default();
        let policy = container.image_pull_policy.as_deref().unwrap_or("IfNotPresent");
        let tell = |kind: &str, reason: &str, message: String| {
            self.recorder.container(pod, &container.name, kind, reason, message);
        };
        let inspect_failed = |error: ImageError| {
            self.asked(policy, ["unknown", "unknown"]);
            tell("Warning", "InspectFailed", error.to_string());
            error
        };
        let image = names::with_tag(wanted)
            .map_err(|error| inspect_failed(ImageError::InvalidName { image: wanted.to_owned(), error }))?;
        let image_spec = pb::ImageSpec {
            image: image.clone(),
            runtime_handler,
            annotations: pod.metadata.annotations.clone().unwrap_or_default().into_iter().collect(),
            ..pb::ImageSpec::default()
        };
        let absent = || {
            // A Pod that may not use an image must not learn that it is there.
            let error = ImageError::NeverPull(wanted.to_owned());
            tell("Warning", "ErrImageNeverPull", error.to_string());
            error
        };
        let mut found_credentials = None;
        if policy == "Always" {
            self.asked(policy, Local::NotAsked.labels(policy));
        } else {
            let there = self
                .inspect(&image_spec)
                .await
                .map_err(|error| inspect_failed(ImageError::Inspect { image: image.clone(), error }))?;
            if let Some(found) = there {
                let may =
                    !self.verifies || self.may_use(pod, wanted, &found.id, &mut found_credentials).await;
                self.asked(policy, Local::There { may }.labels(policy));
                if may {
                    tell("Normal", "Pulled", present(wanted, self.verifies));
                    let user = Some(user_of(&found));
                    return Ok((found.id, user));
                }
                if policy == "Never" {
                    return Err(absent());
                }
            } else {
                self.asked(policy, Local::Missing.labels(policy));
                if policy == "Never" {
                    return Err(absent());
                }
            }
        }

        let key = format!("{}_{wanted}", spec::uid(pod));
        if let Some(until) = self.backoff.until_since_update(&key, self.clock.now()) {
            tell("Normal", "BackOff", format!("Back-off pulling image {wanted:?}"));
            let last = self.failures.lock().get(&key).cloned();
            return Err(ImageError::BackOff { image: wanted.to_owned(), until, last });
        }
        self.failures.lock().remove(&key);
        tell("Normal", "Pulling", format!("Pulling image {wanted:?}"));
        let began = Instant::now();
        let usable = match found_credentials {
            Some(found) => found,
            None => self.credentials(pod, &image).await,
        };
        match self.pull_and_record(wanted, &image_spec, sandbox, &usable).await {
            Ok(Pull { reference, size, alone, .. }) => {
                let metrics = &self.runtime.metrics;
                metrics.took(&metrics::IMAGE_PULL_DURATION_SECONDS, &[size_class(size)], alone);
                let message = format!(
                    "Successfully pulled image {wanted:?} in {} ({} including waiting). Image size: {size} bytes.",
                    go_millis(alone),
                    go_millis(began.elapsed())
                );
                tell("Normal", "Pulled", message);
                Ok((reference, None))
            }
            Err(error) => {
                tell("Warning", "Failed", format!("Failed to pull image {wanted:?}: {error}"));
                let now = self.clock.now();
                self.backoff.next(&key, now, now);
                let error = ImageError::of_pull(wanted, &error);
                self.failures.lock().insert(key, format!("{}: {error}", error.reason()));
                Err(error)
            }
        }
    }

    /// Pulls an image, and records for whom.
    async fn pull_and_record(
        &self,
        wanted: &str,
        image: &pb::ImageSpec,
        sandbox: &pb::PodSandboxConfig,
        usable: &[Credential],
    ) -> Result<Pull, PullError> {
        if !self.verifies {
            return self.pull(image, sandbox, usable).await;
        }
        // From here on the image, if it comes, is not one that was there before.
        let intent = self.records.intend(wanted).await;
        let under_way = intent.map_err(|error| PullError::Intent { image: wanted.to_owned(), error })?;
        let pulled = self.pull(image, sandbox, usable).await;
        let by = pulled.as_ref().ok();
        let by = by.map(|p| (p.reference.as_str(), ImageCredentials::of(p.credential.as_ref())));
        under_way.ended(by).await;
        pulled
    }

    /// Counts that an image was asked for: whether it was there, and whether it must be pulled.
    fn asked(&self, policy: &str, [there, pull]: [&str; 2]) {
        let labels = [there, &policy.to_lowercase(), pull];
        self.runtime.metrics.count(&metrics::IMAGE_MANAGER_ENSURE_IMAGE_REQUESTS_TOTAL, &labels);
    }

    async fn inspect(&self, image: &pb::ImageSpec) -> Result<Option<pb::Image>, CallError> {
        let request = pb::ImageStatusRequest { image: Some(image.clone()), verbose: false };
        Ok(self.runtime.images().image_status(request).await?.into_inner().image)
    }

    /// The user that an image's configuration names.
    pub(crate) async fn user(&self, image: &Present) -> Result<ImageUser, ImageUserError> {
        if let Some(user) = &image.user {
            return Ok(user.clone());
        }
        let reference = &image.spec.image;
        let spec = pb::ImageSpec { image: reference.clone(), ..pb::ImageSpec::default() };
        let found = self.inspect(&spec).await?;
        found.as_ref().map(user_of).ok_or_else(|| ImageUserError::Missing(reference.clone()))
    }

    /// Whether a Pod may use an image that is there: because of who it was pulled for, or because nobody
    /// pulled it. Credentials that had to be looked for are left in `found`.
    async fn may_use(
        &self,
        pod: &Pod,
        image: &str,
        reference: &str,
        found: &mut Option<Vec<Credential>>,
    ) -> bool {
        let records = &self.records;
        self.reconciled.get_or_init(|| self.reconcile()).await;
        let checked = |result: &str| {
            self.runtime.metrics.count(&metrics::IMAGEMANAGER_IMAGE_MUSTPULL_CHECKS_TOTAL, &[result]);
        };
        match records.access(&self.verification, image, reference).await {
            Access::Everybody => {
                checked("credentialPolicyAllowed");
                true
            }
            Access::Nobody => {
                checked("mustAuthenticate");
                false
            }
            Access::Some(recorded) => {
                let own = self.credentials(pod, image).await;
                let matched = recorded.matching(&own);
                if let Some((true, credential)) = matched {
                    // The same credential in another Secret, or another one in the same: it counts from now on.
                    records.add(image, reference, ImageCredentials::of(Some(credential))).await;
                }
                let may = matched.is_some();
                checked(if may { "credentialRecordFound" } else { "mustAuthenticate" });
                *found = Some(own);
                may
            }
        }
    }

    /// Forgets the records of images that were removed.
    pub(crate) async fn forget_removed(&self) {
        self.reconcile().await;
    }

    /// Brings the records to the images that the runtime has: pulls that a kubelet did not see the end of
    /// count, images that are gone do not.
    async fn reconcile(&self) {
        match self.runtime.images().list_images(pb::ListImagesRequest::default()).await {
            Ok(answer) => {
                let names = |i: pb::Image| (i.id, i.repo_tags.into_iter().chain(i.repo_digests).collect());
                let images = answer.into_inner().images.into_iter().map(names).collect();
                self.records.reconcile(images).await;
            }
            Err(error) => {
                tracing::warn!(error = error.message(), "cannot list images; records stay as they are");
            }
        }
    }

    /// Pulls with each credential in turn, or with none.
    async fn pull(
        &self,
        image: &pb::ImageSpec,
        sandbox: &pb::PodSandboxConfig,
        usable: &[Credential],
    ) -> Result<Pull, PullError> {
        let _turn = self.pulls.acquire().await?;
        let began = Instant::now();
        let mut errors = Vec::new();
        let none = usable.is_empty().then_some(None);
        for credential in none.into_iter().chain(usable.iter().map(Some)) {
            let request = pb::PullImageRequest {
                image: Some(image.clone()),
                auth: credential.map(|c| c.auth.clone()),
                sandbox_config: Some(sandbox.clone()),
            };
            // As upstream's, a pull that comes too early fails, and is tried again after its back-off.
            if self.rate.as_ref().is_some_and(|rate| !rate.lock().try_turn()) {
                return Err(PullError::TooMany);
            }
            match self.runtime.images().pull_image(request).await {
                Ok(answer) => {
                    let size = self.inspect(image).await.ok().flatten().map_or(0, |i| i.size);
                    return Ok(Pull {
                        reference: answer.into_inner().image_ref,
                        size,
                        alone: began.elapsed(),
                        credential: credential.cloned(),
                    });
                }
                Err(error) => errors.push(error.into()),
            }
        }
        Err(PullError::of_runtime(errors))
    }
}

/// The message about an image that is there; `verified`: it was looked whether the Pod may use it. Upstream's texts.
fn present(image: &str, verified: bool) -> String {
    let end = if verified { " and can be accessed by the pod" } else { "" };
    format!("Container image {image:?} already present on machine{end}")
}

/// Upstream's classes of sizes of images, in bytes.
fn size_class(size: u64) -> &'static str {
    const MIB: u64 = 1 << 20;
    const CLASSES: [(u64, &str); 11] = [
        (10 * MIB, "0-10MB"),
        (100 * MIB, "10MB-100MB"),
        (500 * MIB, "100MB-500MB"),
        (1024 * MIB, "500MB-1GB"),
        (5 * 1024 * MIB, "1GB-5GB"),
        (10 * 1024 * MIB, "5GB-10GB"),
        (20 * 1024 * MIB, "10GB-20GB"),
        (30 * 1024 * MIB, "20GB-30GB"),
        (40 * 1024 * MIB, "30GB-40GB"),
        (60 * 1024 * MIB, "40GB-60GB"),
        (100 * 1024 * MIB, "60GB-100GB"),
    ];
    CLASSES.iter().find(|(end, _)| size < *end).map_or("GT100GB", |(_, class)| class)
}

/// A duration in milliseconds as Go prints it (`1.234s`, `15ms`).
fn go_millis(d: Duration) -> String {
    let ms = d.as_millis();
    if ms == 0 {
        return "0s".into();
    }
    if ms < 1000 {
        return format!("{ms}ms");
    }
    let (hours, minutes, rest) = (ms / 3_600_000, ms / 60_000 % 60, ms % 60_000);
    let mut seconds = format!("{}.{:03}", rest / 1000, rest % 1000);
    let kept = seconds.trim_end_matches('0').trim_end_matches('.').len();
    seconds.truncate(kept);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// An image of this node.
enum Local {
    /// Whether it is there does not matter.
    NotAsked,
    /// It is not there.
    Missing,
    /// It is there.
    There {
        /// Whether the Pod may use it without a pull.
        may: bool,
    },
}

impl Local {
    /// The labels of a request for it: whether it is there, and whether it must be pulled. Upstream's.
    fn labels(&self, policy: &str) -> [&'static str; 2] {
        match self {
            Self::NotAsked => ["unknown", "true"],
            Self::Missing if policy == "Never" => ["false", "unknown"],
            Self::Missing => ["false", "true"],
            Self::There { may: true } => ["true", "false"],
            Self::There { may: false } => ["true", "true"],
        }
    }
}

/// An image that was pulled.
struct Pull {
    reference: String,
    size: u64,
    /// The time of the pull alone.
    alone: Duration,
    /// With what it was let go.
    credential: Option<Credential>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_sizes() {
        for (size, want) in
            [(0, "0-10MB"), (10 << 20, "10MB-100MB"), (1 << 30, "1GB-5GB"), (1 << 40, "GT100GB")]
        {
            assert_eq!(size_class(size), want);
        }
    }

    #[test]
    fn durations_as_go_prints_them() {
        for (ms, want) in [
            (0, "0s"),
            (15, "15ms"),
            (1234, "1.234s"),
            (2000, "2s"),
            (61_500, "1m1.5s"),
            (3_600_000, "1h0m0s"),
        ] {
            assert_eq!(go_millis(Duration::from_millis(ms)), want);
        }
    }

    /// Upstream's messages in `pullerTestCases`.
    #[test]
    fn images_that_are_there() {
        let there = "Container image \"present_image\" already present on machine";
        assert_eq!(present("present_image", false), there);
        assert_eq!(present("present_image", true), format!("{there} and can be accessed by the pod"));
    }

    /// The labels of upstream's `pullerTestCases` that an image can have; those of its other cases are `unknown` twice.
    #[test]
    fn requests_are_counted() {
        let check =
            |local: Local, policy: &str, expected: [&str; 2]| assert_eq!(local.labels(policy), expected);
        check(Local::Missing, "IfNotPresent", ["false", "true"]);
        check(Local::There { may: true }, "IfNotPresent", ["true", "false"]);
        check(Local::NotAsked, "Always", ["unknown", "true"]);
        check(Local::Missing, "Never", ["false", "unknown"]);
        check(Local::There { may: false }, "IfNotPresent", ["true", "true"]);
        check(Local::There { may: false }, "Never", ["true", "true"]);
    }
}
