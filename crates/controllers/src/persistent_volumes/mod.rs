//! Claims and persistent volumes, bound to each other (upstream: `pkg/controller/volume/persistentvolume`).
//!
//! [`claims`] and [`volumes`] say the next write about a claim and a volume; this module carries it out and asks again.
//! A look is caused by changes alone: by those of a volume for the claims that it may satisfy, by those of a class for
//! its claims. Volumes are made and removed by provisioners; none is built in.

mod binding;
mod claims;
mod matching;
mod metrics;
mod migration;
mod names;
mod step;
#[cfg(test)]
mod tests;
mod volumes;

use std::sync::Arc;

use ::objects::volumes::{claim_class, volume_class, volume_name};
use api::Status;
use client::{Cached, Change, Client, Index, Informer, Key, Queue, Recorder};
use compact_str::CompactString as Text;
use k8s_openapi::api::core::v1::{PersistentVolume as Volume, PersistentVolumeClaim as Claim};
use k8s_openapi::api::storage::v1::StorageClass;

use self::metrics::Metrics;
pub(crate) use self::names::{
    DEFAULT_CLASS, EXTERNAL_FINALIZER, Named, PROVISIONED_BY, PROVISIONER, annotate, annotation, claim_of,
    claim_spec, key_of, name, namespace, phase_of_volume, reclaim_policy, uid, unannotate,
};
use self::names::{is_default, is_unbound};
use self::step::{About, Step, Told, Write};
use crate::common::latest::Latest;
use crate::common::{pods, retry};
use crate::host::{Controller, Host, Next, Wiring};
use crate::views::PodView;

/// The most writes in one look: a binding has four.
const STEPS: usize = 8;

/// The controller of claims and persistent volumes.
pub(crate) struct Binder {
    client: Client,
    recorder: Recorder,
    claims: Informer<Claim>,
    volumes: Informer<Volume>,
    classes: Informer<StorageClass>,
    /// Claims by the volume that they name, and those that look for one by their class.
    wanting: Index<Claim>,
    /// Volumes by the claim that they name, and those that name none by their class.
    offered: Index<Volume>,
    pods: Informer<PodView>,
    by_claim: Index<PodView>,
    written_claims: Latest<Claim>,
    written_volumes: Latest<Volume>,
    queue: Queue<Key>,
    volume_queue: Queue<Key>,
    provisions: bool,
    metrics: Metrics,
}

fn of_class(class: &str) -> Text {
    Text::from(format!("class/{class}"))
}

fn of_volume(volume: &str) -> Text {
    Text::from(format!("volume/{volume}"))
}

fn of_claim(namespace: &str, name: &str) -> Text {
    Text::from(format!("claim/{namespace}/{name}"))
}

impl Controller for Binder {
    const NAME: &'static str = "persistentvolume-binder-controller";
    const ALIASES: &'static [&'static str] = &["persistentvolume-binder"];
    const ACCOUNT: &'static str = "persistent-volume-binder";
    const QUEUE: &'static str = "claims";
    type Key = Key;

    fn new(host: &Host<Self::Key>) -> Self {
        let (claims, volumes): (Informer<Claim>, Informer<Volume>) = (host.informer(), host.informer());
        let pods = pods::informer(host.factory());
        let metrics = Metrics::default();
        metrics.register(host.metrics(), &claims, &volumes);
        Self {
            client: host.client(),
            recorder: host.recorder("persistentvolume-controller"),
            classes: host.informer(),
            wanting: claims.index("volume-or-class", |claim| match volume_name(claim) {
                "" if is_unbound(claim) => vec![of_class(claim_class(claim))],
                "" => Vec::new(),
                named => vec![of_volume(named)],
            }),
            offered: volumes.index("claim-or-class", |volume| match claim_of(volume).map(Named::of) {
                Some(claim) => vec![of_claim(claim.namespace, claim.name)],
                None => vec![of_class(volume_class(volume))],
            }),
            by_claim: pods::by_claim(&pods),
            pods,
            claims,
            volumes,
            written_claims: Latest::default(),
            written_volumes: Latest::default(),
            queue: host.main_queue(),
            volume_queue: host.queue("volumes"),
            provisions: host.config().dynamic_provisioning,
            metrics,
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        let c = self.clone();
        self.claims.handle(move |change| c.claim_changed(change));
        let c = self.clone();
        self.volumes.handle(move |change| c.volume_changed(change));
        let c = self.clone();
        self.classes.handle(move |change| {
            let class = change.object();
            c.look_at_claims(&of_class(class.name()));
            if is_default(class) {
                c.look_at_claims(&of_class(""));
            }
        });
        let c = self.clone();
        self.pods.handle(move |change| c.pod_changed(change));
        let c = self.clone();
        wiring.work(&self.volume_queue, Self::NAME, 1, move |key| {
            let c = c.clone();
            async move { Box::pin(c.sync_volume(key)).await }
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        for _ in 0..STEPS {
            let Some(claim) = self.claim(&key) else { return Ok(Next::Done) };
            let step = claims::plan(&claim, self);
            if !self.carry_out(step, Some(&claim), None).await? {
                return Ok(Next::Done);
            }
        }
        Err(retry("the claim takes more writes than it should"))
    }
}

impl claims::World for Binder {
    fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        Some(self.written_volumes.of(self.volumes.get("", name)?))
    }
    fn candidates(&self, claim: &Claim) -> Vec<Arc<Volume>> {
        let named = self.offered.get(&of_claim(namespace(&claim.metadata), name(&claim.metadata)));
        let free = self.offered.get(&of_class(claim_class(claim)));
        named.into_iter().chain(free).map(|v| self.written_volumes.of(v)).collect()
    }
    fn class(&self, name: &str) -> Option<Arc<StorageClass>> {
        self.classes.get("", name)
    }
    fn classes(&self) -> Vec<Arc<StorageClass>> {
        self.classes.list()
    }
    fn waiting_pods(&self, claim: &Claim) -> Vec<String> {
        let pods = self.by_claim.get(&pods::claim_key(namespace(&claim.metadata), name(&claim.metadata)));
        let waiting = pods.iter().filter(|p| !p.is_terminal() && p.node.is_empty());
        let mut names: Vec<String> = waiting.map(|p| p.name().to_owned()).collect();
        names.sort();
        names
    }
    fn provisions(&self) -> bool {
        self.provisions
    }
}

impl Binder {
    fn claim(&self, key: &Key) -> Option<Arc<Claim>> {
        Some(self.written_claims.of(self.claims.get_key(key)?))
    }

    fn look_at_claims(&self, value: &str) {
        self.wanting.get(value).iter().for_each(|claim| self.queue.add(claim.key()));
    }

    fn claim_changed(&self, change: &Change<Claim>) {
        self.written_claims.seen(change);
        let claim = change.object();
        let deleted = matches!(change, Change::Deleted(_));
        if !deleted {
            self.queue.add(claim.key());
        }
        if deleted || !is_unbound(claim) {
            let named = self.offered.get(&of_claim(claim.namespace(), claim.name()));
            for volume in &named {
                self.volume_queue.add(volume.key());
            }
        }
        if deleted && !volume_name(claim).is_empty() {
            self.volume_queue.add(Key::new("", volume_name(claim)));
        }
    }

    fn volume_changed(&self, change: &Change<Volume>) {
        self.written_volumes.seen(change);
        let volume = change.object();
        if !matches!(change, Change::Deleted(_)) {
            self.volume_queue.add(volume.key());
        }
        self.look_at_claims(&of_volume(volume.name()));
        match claim_of(volume).map(Named::of) {
            Some(claim) => self.queue.add(Key::new(claim.namespace, claim.name)),
            None if phase_of_volume(volume) == "Available" => {
                self.look_at_claims(&of_class(volume_class(volume)));
            }
            None => {}
        }
    }

    async fn sync_volume(&self, key: Key) -> Result<Next, Status> {
        for _ in 0..STEPS {
            let Some(volume) = claims::World::volume(self, &key.name) else { return Ok(Next::Done) };
            let claim = self.claim_of(&volume).await?;
            let step = volumes::plan(&volume, claim.as_deref(), &|| self.users(&volume));
            if !self.carry_out(step, claim.as_deref(), Some(&volume)).await? {
                return Ok(Next::Done);
            }
        }
        Err(retry("the volume takes more writes than it should"))
    }

    /// Returns the Pods that have not ended and use the claim that a volume names, if that is gone.
    fn users(&self, volume: &Volume) -> Vec<String> {
        let Some(named) = claim_of(volume).map(Named::of) else { return Vec::new() };
        if self.claims.get(named.namespace, named.name).is_some() {
            return Vec::new();
        }
        let pods = self.by_claim.get(&pods::claim_key(named.namespace, named.name));
        let running = pods.iter().filter(|p| !p.is_terminal());
        let mut names: Vec<String> = running.map(|p| format!("{}/{}", p.namespace(), p.name())).collect();
        names.sort();
        names
    }

    /// Looks at the volumes of the claims that a Pod used.
    fn pod_changed(&self, change: &Change<PodView>) {
        let pod = change.object();
        if !pod.is_terminal() && !matches!(change, Change::Deleted(_)) {
            return;
        }
        for claim in pod.claims().chain(pod.ephemeral_claims()) {
            let named = self.offered.get(&of_claim(pod.namespace(), claim));
            for volume in &named {
                self.volume_queue.add(volume.key());
            }
        }
    }

    /// Returns the claim that a volume names, if it is the one that the volume means. The API server is asked before a
    /// claim counts as gone: the volume's content depends on it.
    async fn claim_of(&self, volume: &Volume) -> Result<Option<Arc<Claim>>, Status> {
        let Some(named) = claim_of(volume).map(Named::of) else { return Ok(None) };
        if named.uid.is_empty() {
            return Ok(None);
        }
        let known = self.claim(&Key::new(named.namespace, named.name));
        match known {
            Some(claim) if claim.uid() == named.uid => return Ok(Some(claim)),
            None if matches!(phase_of_volume(volume), "Released" | "Failed") => return Ok(None),
            _ => {}
        }
        match self.client.api::<Claim>(named.namespace).get(named.name).await {
            Ok(claim) => Ok(Some(Arc::new(claim)).filter(|c| c.uid() == named.uid)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Carries out a step; returns whether there may be more to do.
    async fn carry_out(
        &self,
        step: Step,
        claim: Option<&Claim>,
        volume: Option<&Volume>,
    ) -> Result<bool, Status> {
        if let Some(write) = &step.write {
            let written = self.write(write).await;
            if step.gives_class {
                self.metrics.class_given(written.is_ok());
            }
            written?;
        }
        for Told { about, kind, reason, message } in step.told {
            match (about, claim, volume) {
                (About::Claim, Some(claim), _) => self.recorder.event(claim, kind, reason, message),
                (About::Volume, _, Some(volume)) => self.recorder.event(volume, kind, reason, message),
                _ => {}
            }
        }
        if let Some(key) = step.look_at {
            self.queue.add(key);
        }
        match step.error {
            Some(error) => Err(retry(error)),
            None => Ok(step.more && step.write.is_some()),
        }
    }

    async fn write(&self, write: &Write) -> Result<(), Status> {
        let volumes = self.client.api::<Volume>("");
        let claims = |claim: &Claim| self.client.api::<Claim>(namespace(&claim.metadata));
        match write {
            Write::Volume(v) => self.written_volumes.note(Arc::new(volumes.update(v).await?)),
            Write::VolumeStatus(v) => self.written_volumes.note(Arc::new(volumes.update_status(v).await?)),
            Write::Claim(c) => self.written_claims.note(Arc::new(claims(c).update(c).await?)),
            Write::ClaimStatus(c) => self.written_claims.note(Arc::new(claims(c).update_status(c).await?)),
        }
        Ok(())
    }
}
