//! Fetching from the hosts of a registry: which one, how often, and whether it is what was asked for.

use std::time::Duration;

use http::Method;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::digest::{Digest, Hasher};
use crate::error::{PullError, StoreError};
use crate::layer::LayerError;
use crate::manifest::{self, Descriptor, InvalidManifest};
use crate::pull::Puller;
use crate::reference::{Reference, Version};
use crate::registry::client::{Failure, Remote, whole};
use crate::registry::hosts::Host;
use crate::settings::Credentials;
use crate::store::collect::Item;
use crate::store::lease::Lease;
use crate::unpack::UnpackError;

const FIRST_WAIT: Duration = Duration::from_millis(200);
const LAST_WAIT: Duration = Duration::from_secs(10);

/// One pull's dealings with a registry.
pub(crate) struct Session<'a> {
    pub(super) puller: &'a Puller,
    reference: &'a Reference,
    remotes: Vec<(&'a Host, Remote<'a>)>,
}

/// A small document.
struct Small {
    bytes: Vec<u8>,
    media_type: String,
    digest: Option<Digest>,
}

/// A question for a small document.
struct Ask<'a> {
    method: Method,
    kind: &'static str,
    name: &'a str,
    accept: &'static str,
    /// The most bytes that are taken.
    bound: u64,
    /// Whether hosts are asked that only resolve, or those that have content.
    resolve: bool,
}

impl<'a> Session<'a> {
    /// A session with a registry's hosts.
    pub(crate) fn new(
        puller: &'a Puller,
        reference: &'a Reference,
        hosts: &'a [Host],
        credentials: &Credentials,
    ) -> Result<Self, PullError> {
        let mut session = Self { puller, reference, remotes: Vec::new() };
        for host in hosts {
            let remote = Remote::new(&puller.clients, host, &reference.domain, &reference.path, credentials);
            let remote = remote.map_err(|failure| session.failed(&host.host, failure))?;
            session.remotes.push((host, remote));
        }
        Ok(session)
    }

    /// The reference.
    pub(crate) fn reference(&self) -> &Reference {
        self.reference
    }

    fn text(&self) -> String {
        self.reference.to_string()
    }

    /// The error of an image that is not valid.
    pub(crate) fn invalid(&self, reason: &str) -> PullError {
        PullError::Invalid { reference: self.text(), reason: reason.to_owned() }
    }

    /// The error of an image that exceeds a bound.
    pub(crate) fn large(&self, reason: &str) -> PullError {
        PullError::TooLarge { reference: self.text(), reason: reason.to_owned() }
    }

    /// The error of a document.
    pub(crate) fn bad(&self, error: InvalidManifest) -> PullError {
        match error {
            InvalidManifest::TooManyLayers(_) => self.large(&error.to_string()),
            other => self.invalid(&other.to_string()),
        }
    }

    /// The error of the store.
    pub(crate) fn store(&self, error: StoreError) -> PullError {
        match error {
            StoreError::Io { source, .. } if is_full(&source) => self.no_space(),
            other => PullError::Store(other),
        }
    }

    /// The error of a full disk.
    pub(crate) fn no_space(&self) -> PullError {
        PullError::NoSpace { reference: self.text(), path: self.puller.store.settings.root.clone() }
    }

    /// The error of a layer.
    pub(crate) fn unpack(&self, error: UnpackError) -> PullError {
        match error {
            UnpackError::Layer(LayerError::NoSpace) => self.no_space(),
            UnpackError::Layer(LayerError::Disk { name, source }) => {
                let path = self.puller.store.ingest().join(name);
                self.store(StoreError::Io { path, source })
            }
            UnpackError::Store(error) => self.store(error),
            other => self.invalid(&format!("a layer cannot be unpacked: {other}")),
        }
    }

    /// The error of a host.
    pub(super) fn failed(&self, host: &str, failure: Failure) -> PullError {
        let (reference, host) = (self.text(), host.to_owned());
        match failure {
            Failure::NotFound => PullError::NotFound(reference),
            Failure::Unauthorized(reason) => PullError::Unauthorized { reference, host, reason },
            Failure::Unavailable(reason, _) => PullError::Unavailable { reference, host, reason },
            Failure::Range => PullError::Unavailable {
                reference,
                host,
                reason: "it does not have the rest of it".to_owned(),
            },
            Failure::Fatal(reason) => PullError::Invalid { reference, reason: format!("{host}: {reason}") },
        }
    }

    /// The hosts that have content.
    pub(super) fn sources(&self) -> impl Iterator<Item = &Remote<'a>> {
        self.remotes.iter().filter(|(host, _)| host.pull).map(|(_, remote)| remote)
    }

    /// Asks the hosts in turn, and again after a while where a later try may succeed.
    async fn ask(&self, ask: &Ask<'_>) -> Result<Small, PullError> {
        let mut failures = 0;
        loop {
            let mut last = PullError::NotFound(self.text());
            let mut wait = None;
            let mut again = false;
            for (host, remote) in &self.remotes {
                if ask.resolve && !host.resolve || !ask.resolve && !host.pull {
                    continue;
                }
                match self.once(remote, ask).await {
                    Ok(small) => return Ok(small),
                    Err(failure) => {
                        tracing::debug!(host = remote.host(), ?failure, reference = %self.reference, "a request failed");
                        if let Failure::Unavailable(_, after) = &failure {
                            again = true;
                            wait = wait.max(*after);
                        }
                        last = worse(last, self.failed(remote.host(), failure));
                    }
                }
            }
            failures += 1;
            if !again || failures >= self.attempts() {
                return Err(last);
            }
            pause(failures, wait).await;
        }
    }

    pub(super) fn attempts(&self) -> u32 {
        self.puller.store.settings.limits.attempts.max(1)
    }

    async fn once(&self, remote: &Remote<'_>, ask: &Ask<'_>) -> Result<Small, Failure> {
        let answer = remote.get(ask.method.clone(), ask.kind, ask.name, ask.accept, 0).await?;
        let header = |name: &str| answer.headers().get(name).and_then(|v| v.to_str().ok());
        let media_type = header(CONTENT_TYPE.as_str()).unwrap_or_default().to_owned();
        let digest = header("docker-content-digest").and_then(|d| d.parse().ok());
        let mut bytes = Vec::new();
        if ask.method != Method::HEAD {
            let mut body = answer.into_body();
            while let Some(part) = self.part(&mut body).await? {
                if bytes.len() as u64 + part.len() as u64 > ask.bound {
                    return Err(Failure::Fatal(format!("{} is larger than {} bytes", ask.name, ask.bound)));
                }
                bytes.extend_from_slice(&part);
            }
        }
        Ok(Small { bytes, media_type, digest })
    }

    /// The next piece of a body, if it comes in time.
    pub(super) async fn part(&self, body: &mut Incoming) -> Result<Option<bytes::Bytes>, Failure> {
        loop {
            match tokio::time::timeout(self.puller.clients.silence(), body.frame()).await {
                Err(_) => return Err(Failure::Unavailable("it stopped sending".to_owned(), None)),
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(Failure::Unavailable(whole(&error), None)),
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Finds the meaning of the reference: the digest, the document and its media type.
    pub(crate) async fn resolve(&self) -> Result<(Digest, Vec<u8>, String), PullError> {
        let tag = match &self.reference.version {
            Version::Digest(digest) => {
                let small = self.manifest(&digest.to_string(), Some(digest)).await?;
                return Ok((digest.clone(), small.bytes, small.media_type));
            }
            Version::Tag(tag) => tag,
        };
        // A host that may both resolve and pull answers at once; a mirror that only has content is asked by digest.
        let mirrors = self.remotes.iter().any(|(host, _)| !host.resolve && host.pull);
        let silent = self.remotes.iter().any(|(host, _)| host.resolve && !host.pull);
        if mirrors || silent {
            let ask = Ask {
                method: Method::HEAD,
                kind: "manifests",
                name: tag,
                accept: manifest::ACCEPT,
                bound: 0,
                resolve: true,
            };
            let small = self.ask(&ask).await?;
            if let Some(digest) = small.digest {
                let small = self.manifest(&digest.to_string(), Some(&digest)).await?;
                return Ok((digest, small.bytes, small.media_type));
            }
        }
        let small = self.manifest(tag, None).await?;
        let digest = match small.digest {
            Some(told) => {
                check(&told, &small.bytes).map_err(|e| self.invalid(&e))?;
                told
            }
            None => Digest::of(&small.bytes),
        };
        Ok((digest, small.bytes, small.media_type))
    }

    async fn manifest(&self, name: &str, digest: Option<&Digest>) -> Result<Small, PullError> {
        let ask = Ask {
            method: Method::GET,
            kind: "manifests",
            name,
            accept: manifest::ACCEPT,
            bound: manifest::MAX_MANIFEST,
            resolve: digest.is_none(),
        };
        let small = self.ask(&ask).await?;
        if let Some(digest) = digest {
            check(digest, &small.bytes).map_err(|e| self.invalid(&e))?;
        }
        Ok(small)
    }

    /// A manifest that an index names: from the store, or from the registry.
    pub(crate) async fn document(&self, lease: &Lease, digest: &Digest) -> Result<Vec<u8>, PullError> {
        lease.hold(Item::Blob(digest.clone()));
        let store = &self.puller.store;
        if store.blob(digest).is_some() {
            return store.read_blob(digest, manifest::MAX_MANIFEST).map_err(|e| self.store(e));
        }
        Ok(self.manifest(&digest.to_string(), Some(digest)).await?.bytes)
    }

    /// Small content: from the store, or from the registry.
    pub(crate) async fn blob(&self, lease: &Lease, descriptor: &Descriptor) -> Result<Vec<u8>, PullError> {
        lease.hold(Item::Blob(descriptor.digest.clone()));
        let store = &self.puller.store;
        if let Some(size) = store.blob(&descriptor.digest) {
            if size != descriptor.size {
                let fault = format!("its manifest says that {} has another size", descriptor.digest);
                return Err(self.invalid(&fault));
            }
            return store.read_blob(&descriptor.digest, descriptor.size).map_err(|e| self.store(e));
        }
        let name = descriptor.digest.to_string();
        let ask = Ask {
            method: Method::GET,
            kind: "blobs",
            name: &name,
            accept: "*/*",
            bound: descriptor.size,
            resolve: false,
        };
        let small = self.ask(&ask).await?;
        check(&descriptor.digest, &small.bytes).map_err(|e| self.invalid(&e))?;
        Ok(small.bytes)
    }
}

fn check(digest: &Digest, bytes: &[u8]) -> Result<(), String> {
    let mut hasher = Hasher::new(digest.algorithm());
    hasher.update(bytes);
    let found = hasher.finish();
    if found == *digest { Ok(()) } else { Err(format!("{digest} was asked for, {found} came")) }
}

/// Of two hosts' errors, the one that tells more: the last one's, unless it only does not have the image.
fn worse(before: PullError, now: PullError) -> PullError {
    match now {
        PullError::NotFound(_) => before,
        now => now,
    }
}

/// Whether the disk is full.
pub(crate) fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

/// Waits before another try: longer each time, and not as long as others.
pub(super) async fn pause(failures: u32, asked: Option<Duration>) {
    let wait = FIRST_WAIT.saturating_mul(1 << failures.min(10)).min(LAST_WAIT);
    let wait = wait.mul_f64(0.5 + fastrand::f64() / 2.0);
    tokio::time::sleep(asked.unwrap_or_default().max(wait)).await;
}
