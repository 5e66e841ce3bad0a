//! Images: pull policies, back-off, credentials, and the Events that tell of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use cri::runtime as pb;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, Secret};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::Kubelet;
use crate::backoff::Backoffs;
use crate::pods::security::ImageUser;
use crate::pods::spec;
use crate::runtime::error_text;

/// Why a container waits for its image: upstream's reason and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageError {
    /// `ErrImagePull`, `ImagePullBackOff`, …
    pub(crate) reason: &'static str,
    /// What happened.
    pub(crate) message: String,
    /// When to try again, if that is known.
    pub(crate) until: Option<Timestamp>,
}

impl ImageError {
    fn new(reason: &'static str, message: String) -> Self {
        Self { reason, message, until: None }
    }
}

/// Pulls in progress and failures.
pub(crate) struct ImageManager {
    backoff: Backoffs,
    failures: Mutex<HashMap<String, String>>,
    pulls: Arc<Semaphore>,
}

impl ImageManager {
    /// At most `parallel` pulls at once.
    pub(crate) fn new(parallel: usize) -> Self {
        Self {
            backoff: Backoffs::default(),
            failures: Mutex::default(),
            pulls: Arc::new(Semaphore::new(parallel.max(1))),
        }
    }
    /// Forgets the failures of a Pod.
    pub(crate) fn forget(&self, uid: &str) {
        self.backoff.forget(uid);
        self.failures.lock().retain(|key, _| !key.starts_with(uid));
    }
}

/// A parsed image name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ImageName<'a> {
    /// Registry and path, without tag and digest.
    repository: &'a str,
    tagged: bool,
}

fn parse_name(image: &str) -> Result<ImageName<'_>, &'static str> {
    const FORMAT: &str = "invalid reference format";
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    if let Some(digest) = digest {
        let (algorithm, hex) = digest.split_once(':').ok_or(FORMAT)?;
        if algorithm.is_empty() || hex.len() < 32 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(FORMAT);
        }
    }
    let path_at = name.rfind('/').map_or(0, |i| i + 1);
    let (repository, tag) = match name[path_at..].find(':') {
        Some(i) => (&name[..path_at + i], Some(&name[path_at + i + 1..])),
        None => (name, None),
    };
    if let Some(tag) = tag {
        let first = tag.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !first
            || tag.len() > 128
            || !tag.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
        {
            return Err(FORMAT);
        }
    }
    let (domain, path) = match repository.split_once('/') {
        Some((d, p))
            if d.contains(['.', ':']) || d == "localhost" || d.bytes().any(|b| b.is_ascii_uppercase()) =>
        {
            (Some(d), p)
        }
        _ => (None, repository),
    };
    if domain.is_some_and(|d| {
        !d.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b':' | b'[' | b']'))
    }) {
        return Err(FORMAT);
    }
    for component in path.split('/') {
        let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
        if !edge(component.bytes().next())
            || !edge(component.bytes().last())
            || !component.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
        {
            return Err(FORMAT);
        }
    }
    if path.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err("invalid reference format: repository name must be lowercase");
    }
    Ok(ImageName { repository, tagged: tag.is_some() || digest.is_some() })
}

/// The image with its tag, `latest` where it has none.
fn with_tag(image: &str) -> Result<String, String> {
    let name = parse_name(image).map_err(|why| format!("couldn't parse image name {image:?}: {why}"))?;
    Ok(if name.tagged { image.to_owned() } else { format!("{image}:latest") })
}

/// Makes sure that a container's image is there; answers its reference.
pub(crate) async fn ensure(
    kubelet: &Kubelet,
    pod: &Pod,
    container: &Container,
    sandbox: &pb::PodSandboxConfig,
) -> Result<String, ImageError> {
    let wanted = container.image.as_deref().unwrap_or_default();
    let tell = |kind: &str, reason: &str, message: String| {
        kubelet.recorder.container(pod, &container.name, kind, reason, message);
    };
    let image = with_tag(wanted).map_err(|error| {
        let message = format!("Failed to apply default image tag {wanted:?}: {error}");
        tell("Warning", "InspectFailed", message.clone());
        ImageError::new("InvalidImageName", message)
    })?;
    let image_spec = pb::ImageSpec {
        image: image.clone(),
        annotations: pod.metadata.annotations.clone().unwrap_or_default().into_iter().collect(),
        ..pb::ImageSpec::default()
    };
    let policy = container.image_pull_policy.as_deref().unwrap_or("IfNotPresent");
    if policy != "Always" {
        let there = inspect(kubelet, &image_spec).await.map_err(|error| {
            let message = format!("Failed to inspect image {image:?}: {}", error_text(&error));
            tell("Warning", "InspectFailed", message.clone());
            ImageError::new("ImageInspectError", message)
        })?;
        match there {
            Some(found) => {
                let message = format!(
                    "Container image {wanted:?} already present on machine and can be accessed by the pod"
                );
                tell("Normal", "Pulled", message);
                return Ok(found.id);
            }
            None if policy == "Never" => {
                let message = format!("Container image {wanted:?} is not present with pull policy of Never");
                tell("Warning", "ErrImageNeverPull", message.clone());
                return Err(ImageError::new("ErrImageNeverPull", message));
            }
            None => {}
        }
    }

    let images = &kubelet.images;
    let key = format!("{}_{wanted}", spec::uid(pod));
    if let Some(until) = images.backoff.until_since_update(&key, kubelet.clock.now()) {
        let mut message = format!("Back-off pulling image {wanted:?}");
        tell("Normal", "BackOff", message.clone());
        if let Some(before) = images.failures.lock().get(&key) {
            message = format!("{message}: {before}");
        }
        return Err(ImageError { until: Some(until), ..ImageError::new("ImagePullBackOff", message) });
    }
    images.failures.lock().remove(&key);
    tell("Normal", "Pulling", format!("Pulling image {wanted:?}"));
    let began = Instant::now();
    match pull(kubelet, pod, &image_spec, sandbox).await {
        Ok((reference, size, alone)) => {
            let message = format!(
                "Successfully pulled image {wanted:?} in {} ({} including waiting). Image size: {size} bytes.",
                go_millis(alone),
                go_millis(began.elapsed())
            );
            tell("Normal", "Pulled", message);
            Ok(reference)
        }
        Err(message) => {
            tell("Warning", "Failed", format!("Failed to pull image {wanted:?}: {message}"));
            let now = kubelet.clock.now();
            images.backoff.next(&key, now, now);
            let (reason, message) = explain(wanted, message);
            images.failures.lock().insert(key, format!("{reason}: {message}"));
            Err(ImageError::new(reason, message))
        }
    }
}

/// Errors that runtimes mark by their first word.
fn explain(image: &str, message: String) -> (&'static str, String) {
    if let Some(rest) = message.strip_prefix("RegistryUnavailable") {
        return (
            "RegistryUnavailable",
            format!("image pull failed for {image} because the registry is unavailable{rest}"),
        );
    }
    if let Some(rest) = message.strip_prefix("SignatureValidationFailed") {
        return (
            "SignatureValidationFailed",
            format!("image pull failed for {image} because the signature validation failed{rest}"),
        );
    }
    ("ErrImagePull", message)
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
    let (minutes, rest) = (ms / 60_000, ms % 60_000);
    let mut seconds = format!("{}.{:03}", rest / 1000, rest % 1000);
    let kept = seconds.trim_end_matches('0').trim_end_matches('.').len();
    seconds.truncate(kept);
    if minutes > 0 { format!("{minutes}m{seconds}s") } else { format!("{seconds}s") }
}

async fn inspect(kubelet: &Kubelet, image: &pb::ImageSpec) -> Result<Option<pb::Image>, tonic::Status> {
    let request = pb::ImageStatusRequest { image: Some(image.clone()), verbose: false };
    Ok(kubelet.runtime.images().image_status(request).await?.into_inner().image)
}

/// The user that an image's configuration names.
pub(crate) async fn user(kubelet: &Kubelet, image_ref: &str) -> Result<ImageUser, String> {
    let image_spec = pb::ImageSpec { image: image_ref.to_owned(), ..pb::ImageSpec::default() };
    let image = inspect(kubelet, &image_spec)
        .await
        .map_err(|e| error_text(&e))?
        .ok_or_else(|| format!("failed to get image status for {image_ref:?}"))?;
    Ok(ImageUser { uid: image.uid.map(|u| u.value), name: image.username })
}

/// Pulls with each matching credential in turn, or with none; answers reference, size, and the time of the pull alone.
async fn pull(
    kubelet: &Kubelet,
    pod: &Pod,
    image: &pb::ImageSpec,
    sandbox: &pb::PodSandboxConfig,
) -> Result<(String, u64, Duration), String> {
    let mut credentials: Vec<Option<pb::AuthConfig>> =
        credentials(kubelet, pod, &image.image).await.into_iter().map(Some).collect();
    if credentials.is_empty() {
        credentials.push(None);
    }
    let _turn = kubelet.images.pulls.acquire().await.map_err(|e| e.to_string())?;
    let began = Instant::now();
    let mut errors = Vec::new();
    for auth in credentials {
        let request =
            pb::PullImageRequest { image: Some(image.clone()), auth, sandbox_config: Some(sandbox.clone()) };
        match kubelet.runtime.images().pull_image(request).await {
            Ok(answer) => {
                let size = inspect(kubelet, image).await.ok().flatten().map_or(0, |i| i.size);
                return Ok((answer.into_inner().image_ref, size, began.elapsed()));
            }
            Err(error) => errors.push(error_text(&error)),
        }
    }
    errors.dedup();
    Err(match errors.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    })
}

async fn credentials(kubelet: &Kubelet, pod: &Pod, image: &str) -> Vec<pb::AuthConfig> {
    let Ok(name) = parse_name(image) else { return Vec::new() };
    let mut found = Vec::new();
    for reference in spec::spec(pod).image_pull_secrets.iter().flatten() {
        match kubelet.objects.secret(spec::namespace(pod), &reference.name).await {
            Ok(secret) => found.extend(matching(&secret, name.repository)),
            Err(error) => {
                kubelet.recorder.pod(
                    pod,
                    "Warning",
                    "FailedToRetrieveImagePullSecret",
                    format!(
                        "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                        reference.name
                    ),
                );
                tracing::debug!(secret = reference.name, %error, "image pull secret");
            }
        }
    }
    found
}

/// The credentials of a Secret that are meant for a repository.
fn matching(secret: &Secret, repository: &str) -> Vec<pb::AuthConfig> {
    #[derive(serde::Deserialize, Default)]
    #[serde(default)]
    struct Entry {
        username: String,
        password: String,
        auth: String,
        identitytoken: String,
        registrytoken: String,
    }
    #[derive(serde::Deserialize)]
    struct File {
        auths: std::collections::BTreeMap<String, Entry>,
    }
    let data = secret.data.as_ref();
    let get = |key: &str| data.and_then(|d| d.get(key)).map(|v| v.0.as_slice());
    let entries = if let Some(json) = get(".dockerconfigjson") {
        serde_json::from_slice::<File>(json).map(|f| f.auths)
    } else if let Some(json) = get(".dockercfg") {
        serde_json::from_slice(json)
    } else {
        return Vec::new();
    };
    let mut found: Vec<(usize, pb::AuthConfig)> = Vec::new();
    for (server, mut entry) in entries.unwrap_or_default() {
        let key = server.trim_start_matches("https://").trim_start_matches("http://");
        let key = key.trim_end_matches('/').trim_end_matches("/v1").trim_end_matches("/v2");
        if !covers(key, repository) {
            continue;
        }
        if let Some((user, password)) = base64::engine::general_purpose::STANDARD
            .decode(&entry.auth)
            .ok()
            .and_then(|raw| String::from_utf8(raw).ok())
            .and_then(|text| text.split_once(':').map(|(u, p)| (u.to_owned(), p.to_owned())))
        {
            entry.username = user;
            entry.password = password;
        }
        found.push((
            key.len(),
            pb::AuthConfig {
                username: entry.username,
                password: entry.password,
                server_address: server,
                identity_token: entry.identitytoken,
                registry_token: entry.registrytoken,
                ..pb::AuthConfig::default()
            },
        ));
    }
    // The longest match is the most specific one.
    found.sort_by_key(|(length, _)| std::cmp::Reverse(*length));
    found.into_iter().map(|(_, auth)| auth).collect()
}

/// Whether a credential's key (`*.host:port/path`) covers a repository.
fn covers(key: &str, repository: &str) -> bool {
    let (key_host, key_path) = key.split_once('/').unwrap_or((key, ""));
    let (host, path) = repository.split_once('/').unwrap_or((repository, ""));
    let (key_parts, parts): (Vec<&str>, Vec<&str>) =
        (key_host.split('.').collect(), host.split('.').collect());
    key_parts.len() == parts.len()
        && key_parts.iter().zip(&parts).all(|(k, p)| *k == "*" || k == p)
        && (key_path.is_empty() || path == key_path || path.starts_with(&format!("{key_path}/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_names() {
        for (image, want) in [
            ("busybox", Some("busybox:latest")),
            ("busybox:1", Some("busybox:1")),
            ("host.test:5000/a/b", Some("host.test:5000/a/b:latest")),
            ("host.test:5000/a/b:2", Some("host.test:5000/a/b:2")),
            ("a@sha256:0123456789abcdef0123456789abcdef", Some("a@sha256:0123456789abcdef0123456789abcdef")),
            ("", None),
            ("a b", None),
            ("Upper", None),
            (":tag", None),
            ("a:", None),
            ("///", None),
            ("a/", None),
        ] {
            assert_eq!(with_tag(image).ok().as_deref(), want, "{image}");
        }
    }

    #[test]
    fn credentials_cover_repositories() {
        for (key, repository, want) in [
            ("host.test", "host.test/a", true),
            ("*.host.test", "x.host.test/a", true),
            ("*.host.test", "host.test/a", false),
            ("host.test/a", "host.test/a/b", true),
            ("host.test/a", "host.test/ab", false),
            ("host.test:5000", "host.test/a", false),
        ] {
            assert_eq!(covers(key, repository), want, "{key} {repository}");
        }
    }

    #[test]
    fn durations_as_go_prints_them() {
        for (ms, want) in [(0, "0s"), (15, "15ms"), (1234, "1.234s"), (2000, "2s"), (61_500, "1m1.5s")] {
            assert_eq!(go_millis(Duration::from_millis(ms)), want);
        }
    }
}
