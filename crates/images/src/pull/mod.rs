//! Pulling an image: which documents, which layers, and in which order. `fetch` fetches documents, `download` layers.

pub(crate) mod download;
pub(crate) mod fetch;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::Semaphore;

use crate::digest::Digest;
use crate::error::PullError;
use crate::image::Pulled;
use crate::manifest::{self, Content, Descriptor, Document, InvalidManifest, Manifest};
use crate::pull::download::{LayerJob, State};
use crate::pull::fetch::Session;
use crate::reference::{Reference, Version};
use crate::registry::client::Clients;
use crate::registry::hosts;
use crate::settings::{Credentials, Platform};
use crate::store::Store;
use crate::store::collect::Item;
use crate::store::lease::Lease;
use crate::store::record::{LayerId, LayerRef, Record};
use crate::unpack::{Form, Unpacked};

/// The deepest index of indexes.
const MAX_DEPTH: usize = 4;

/// The things that all pulls share.
#[derive(Debug)]
pub(crate) struct Puller {
    /// The store.
    pub store: Arc<Store>,
    /// Connections and tokens.
    pub clients: Clients,
    /// Downloads under way.
    pub slots: Arc<Semaphore>,
}

/// An image whose documents are there.
struct Found {
    digest: Digest,
    manifest: Manifest,
    size: u64,
    indexes: BTreeSet<Digest>,
    /// `None`: an artifact.
    configuration: Option<oci_spec::image::ImageConfiguration>,
}

/// An image's layers before they are unpacked. Shared with imports.
pub(crate) struct Plan {
    /// The forms of the layers, the lowest first.
    pub forms: Vec<Form>,
    /// Their names if nothing below them matters.
    pub layers: Vec<LayerId>,
}

impl Plan {
    /// The plan of a manifest; the layers' digests are those of an image's configuration.
    pub(crate) fn new(manifest: &Manifest, contents: Option<&[String]>) -> Result<Self, String> {
        let mut plan = Self { forms: Vec::new(), layers: Vec::new() };
        for (number, layer) in manifest.layers.iter().enumerate() {
            let (form, id) = match (layer.content(), contents) {
                (Content::Encrypted, _) => {
                    return Err("its layers are encrypted, which is not supported".into());
                }
                (Content::Archive, Some(contents)) => {
                    let diff: Digest =
                        contents.get(number).and_then(|c| c.parse().ok()).ok_or("a layer has no digest")?;
                    (Form::Archive(Some(diff.clone())), LayerId::of_content(&diff))
                }
                (Content::File(_), Some(_)) => {
                    return Err(format!(
                        "a layer has the media type {:?}, which is not supported",
                        layer.media_type
                    ));
                }
                (Content::Archive, None) => (Form::Archive(None), LayerId::of_artifact(None, &layer.digest)),
                (Content::File(name), None) => {
                    let name = if name.is_empty() { layer.digest.hex().to_owned() } else { name };
                    let id = LayerId::of_artifact(Some(&name), &layer.digest);
                    (Form::File(name), id)
                }
            };
            plan.forms.push(form);
            plan.layers.push(id);
        }
        Ok(plan)
    }

    /// The name of a layer if what is below it matters.
    pub(crate) fn chain(&self, number: usize) -> LayerId {
        LayerId::of_chain(&self.layers[..=number])
    }

    /// Puts unpacked layers into the store, the lowest first; the names under which they are there.
    pub(crate) fn commit(&self, states: Vec<State>) -> Result<Vec<LayerId>, crate::unpack::UnpackError> {
        let mut done: Vec<LayerId> = Vec::new();
        for (number, state) in states.into_iter().enumerate() {
            match state {
                State::Ready(layer) => done.push(layer),
                State::Unpacked(unpacked) => {
                    let mut unpacked: Unpacked = *unpacked;
                    let below: Vec<LayerId> = done.iter().rev().cloned().collect();
                    unpacked.adapt(&below)?;
                    let layer = self.chain(number);
                    unpacked.commit(&layer)?;
                    done.push(layer);
                }
            }
        }
        Ok(done)
    }
}

impl Puller {
    /// Pulls an image.
    pub(crate) async fn pull(&self, text: &str, credentials: &Credentials) -> Result<Pulled, PullError> {
        let reference = Reference::parse(text)
            .map_err(|e| PullError::Reference { reference: text.to_owned(), reason: e.to_string() })?;
        let domain = reference.domain.clone();
        let directories = self.store.settings.registries.clone();
        let hosts = tokio::task::spawn_blocking(move || hosts::load(&directories, &domain)).await;
        let hosts = hosts.map_err(|e| e.to_string()).and_then(|h| h.map_err(|e| e.to_string()));
        let hosts = hosts.map_err(|reason| PullError::Settings { host: reference.domain.clone(), reason })?;
        let session = Session::new(self, &reference, &hosts, credentials)?;
        let lease = Arc::new(Lease::new(&self.store));
        let (target, bytes, media_type) = session.resolve().await?;
        let found = self.find(&session, &lease, target.clone(), bytes, &media_type).await?;
        let layers = self.layers(&session, &lease, &found).await?;
        let pulled = self.keep(&session, &target, found, layers).await?;
        lease.done();
        Ok(pulled)
    }

    /// Goes from what the name means to a manifest of this machine's platform and its configuration.
    async fn find(
        &self,
        session: &Session<'_>,
        lease: &Lease,
        target: Digest,
        bytes: Vec<u8>,
        media_type: &str,
    ) -> Result<Found, PullError> {
        let mut indexes = BTreeSet::new();
        // Documents still to be looked at; the flag tells that its platform is not known.
        let mut todo = vec![(target, Some(bytes), media_type.to_owned(), 0, false)];
        let mut mismatch = false;
        while let Some((digest, bytes, media_type, depth, unsure)) = todo.pop() {
            let bytes = match bytes {
                Some(bytes) => bytes,
                None => session.document(lease, &digest).await?,
            };
            self.keep_small(session, lease, &digest, &bytes)?;
            match manifest::parse(&media_type, &bytes).map_err(|e| session.bad(e))? {
                Document::Index(list) => {
                    indexes.insert(digest);
                    if depth == MAX_DEPTH {
                        return Err(session.invalid("its index has indexes in it, and so on"));
                    }
                    let best = manifest::candidates(&self.store.settings.platform, &list);
                    mismatch |= best.is_empty();
                    // The first is looked at first.
                    for entry in best.into_iter().rev().take(64) {
                        let unsure = entry.platform().is_none();
                        todo.push((entry.digest.clone(), None, entry.media_type.clone(), depth + 1, unsure));
                    }
                }
                Document::Manifest(manifest) => {
                    let size = bytes.len() as u64;
                    let found = self.configured(session, lease, digest, manifest, size, &indexes).await?;
                    let fits = found.configuration.as_ref().is_none_or(|c| self.runs(c));
                    if !unsure || fits {
                        return Ok(found);
                    }
                    mismatch = true;
                }
            }
        }
        let platform = &self.store.settings.platform;
        let (os, arch) = (&platform.os, &platform.architecture);
        let reason = if mismatch { "it has no manifest for" } else { "its index is empty; nothing is for" };
        Err(session.invalid(&format!("{reason} the platform {os}/{arch}")))
    }

    fn runs(&self, configuration: &oci_spec::image::ImageConfiguration) -> bool {
        let os = configuration.os().to_string();
        let architecture = configuration.architecture().to_string();
        let variant = configuration.variant().as_deref().unwrap_or_default().to_owned();
        self.store.settings.platform.rank(&Platform::new(&os, &architecture, &variant)).is_some()
    }

    fn keep_small(
        &self,
        session: &Session<'_>,
        lease: &Lease,
        digest: &Digest,
        bytes: &[u8],
    ) -> Result<(), PullError> {
        lease.hold(Item::Blob(digest.clone()));
        self.store.put_blob(digest, bytes).map_err(|e| session.store(e))
    }

    async fn configured(
        &self,
        session: &Session<'_>,
        lease: &Lease,
        digest: Digest,
        manifest: Manifest,
        size: u64,
        indexes: &BTreeSet<Digest>,
    ) -> Result<Found, PullError> {
        let descriptor = &manifest.configuration;
        if descriptor.size > manifest::MAX_CONFIGURATION {
            return Err(session.large("its configuration is larger than 8 MiB"));
        }
        let bytes = session.blob(lease, descriptor).await?;
        self.keep_small(session, lease, &descriptor.digest, &bytes)?;
        let configuration = descriptor
            .is_configuration()
            .then(|| manifest::configuration(&bytes, manifest.layers.len()).map_err(|e| session.bad(e)))
            .transpose()?;
        let size = size + descriptor.size + manifest.layers.iter().map(|l| l.size).sum::<u64>();
        Ok(Found { digest, manifest, size, indexes: indexes.clone(), configuration })
    }

    /// Gets all layers, several at a time.
    async fn layers(
        &self,
        session: &Session<'_>,
        lease: &Arc<Lease>,
        found: &Found,
    ) -> Result<Vec<LayerId>, PullError> {
        let contents = found.configuration.as_ref().map(|c| &**c.rootfs().diff_ids());
        let plan = Plan::new(&found.manifest, contents).map_err(|e| session.invalid(&e))?;
        // One archive may be there several times; a second download of it would wait for the first.
        let mut first: HashMap<&LayerId, usize> = HashMap::new();
        let jobs: Vec<LayerJob> = (0..plan.layers.len())
            .map(|number| LayerJob {
                descriptor: found.manifest.layers[number].clone(),
                form: plan.forms[number].clone(),
                layer: plan.layers[number].clone(),
                chain: plan.chain(number),
                number,
            })
            .collect();
        let wanted: Vec<&LayerJob> =
            jobs.iter().filter(|j| *first.entry(&j.layer).or_insert(j.number) == j.number).collect();
        let at_once = self.store.settings.limits.layers_at_once.max(1);
        // A loop, not a closure: the compiler cannot tell that a closure's futures may change threads.
        let mut futures = Vec::new();
        for job in wanted {
            futures.push(one(session, lease, job));
        }
        let mut done: HashMap<usize, State> =
            stream::iter(futures).buffer_unordered(at_once).try_collect().await?;
        let mut states = Vec::new();
        for job in &jobs {
            let state = match done.remove(&job.number) {
                Some(state) => state,
                // The same layer once more: if it depends on what is below it, it is another one here.
                None => session.layer_again(lease, job).await?,
            };
            states.push(state);
        }
        let committed = tokio::task::spawn_blocking(move || plan.commit(states)).await;
        let committed = committed.map_err(|e| session.invalid(&e.to_string()))?;
        committed.map_err(|e| session.unpack(e))
    }

    /// Writes the record.
    async fn keep(
        &self,
        session: &Session<'_>,
        target: &Digest,
        found: Found,
        layers: Vec<LayerId>,
    ) -> Result<Pulled, PullError> {
        let reference = session.reference();
        let record =
            record(&found.digest, &found.manifest, found.size, found.indexes, &layers, found.configuration);
        let id = record.id.clone();
        let mut names = vec![reference.with_digest(target)];
        if let Version::Tag(_) = reference.version {
            names.push(reference.to_string());
        }
        let store = Arc::clone(&self.store);
        let kept = tokio::task::spawn_blocking(move || store.add(record, &names)).await;
        kept.map_err(|e| session.invalid(&e.to_string()))?.map_err(|e| session.store(e))?;
        Ok(Pulled { id, digest: target.clone(), name: reference.to_string() })
    }
}

/// A layer and its place.
async fn one(session: &Session<'_>, lease: &Arc<Lease>, job: &LayerJob) -> Result<(usize, State), PullError> {
    Ok((job.number, session.layer(lease, job).await?))
}

/// The record of an image.
pub(crate) fn record(
    digest: &Digest,
    manifest: &Manifest,
    size: u64,
    indexes: BTreeSet<Digest>,
    layers: &[LayerId],
    configuration: Option<oci_spec::image::ImageConfiguration>,
) -> Record {
    let layer = |(descriptor, layer): (&Descriptor, &LayerId)| LayerRef {
        digest: descriptor.digest.clone(),
        size: descriptor.size,
        layer: layer.clone(),
    };
    let artifact = configuration.is_none();
    let user = configuration.and_then(|c| c.config().as_ref().and_then(|c| c.user().clone()));
    Record {
        id: if artifact { digest.clone() } else { manifest.configuration.digest.clone() },
        names: std::collections::BTreeMap::new(),
        manifest: digest.clone(),
        indexes,
        configuration: manifest.configuration.digest.clone(),
        layers: manifest.layers.iter().zip(layers).map(layer).collect(),
        size,
        user: user.unwrap_or_default(),
        annotations: manifest.annotations.clone(),
        artifact,
        pinned: false,
        boot: None,
    }
}

impl From<InvalidManifest> for String {
    fn from(error: InvalidManifest) -> Self {
        error.to_string()
    }
}
