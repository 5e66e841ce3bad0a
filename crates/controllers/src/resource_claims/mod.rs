//! Claims on devices: those of templates are made for their Pods; claims are reserved for as long as Pods use them, give
//! their devices back, and go with their Pods (upstream: `pkg/controller/resourceclaim`). Where the gate
//! DRAWorkloadResourceClaims is on, PodGroups have claims, too, which their Pods share (`groups.rs`).
//!
//! A claim is made before the Pod's status names it. An end in between costs nothing: the claim is found again by its
//! owner and its annotation. Writes of a claim's status say what was read, so that a consumer that came meanwhile is not
//! lost.

mod groups;
mod plan;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::{Gate, Status};
use client::{Cached, Change, EventType, Informer, Key, Patch, resource_of};
use component::Registry;
use component::metrics::Page;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;
use objects::claims::{self, EXTENDED, POD_CLAIM_NAME, User, is_allocated, reserved_for};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::common::{pods, retry};
use crate::config::Config;
use crate::host::{Controller, Host, Next, Wiring};
use crate::views::{ClaimPlace, Made, PodView};
use plan::owner;
use plan::{Holder, Owner, has_alternatives, holder_uid, is_done, wants_admin};
use state::{Attempts, PodGroups};
pub(crate) use state::{ResourceClaims, Work};

fn text(t: Option<&String>) -> &str {
    t.map(String::as_str).unwrap_or_default()
}

fn place_of(claim: &ResourceClaim) -> Option<&str> {
    claim.metadata.annotations.as_ref()?.get(POD_CLAIM_NAME).map(String::as_str)
}

impl Controller for ResourceClaims {
    const NAME: &'static str = "resourceclaim-controller";
    const ALIASES: &'static [&'static str] = &["resource-claim-controller"];
    const ACCOUNT: &'static str = "resource-claim-controller";
    const QUEUE: &'static str = "resource_claim";
    type Key = Work;

    fn workers(config: &Config) -> usize {
        config.workers.resource_claims
    }

    fn new(host: &Host<Self::Key>) -> Self {
        let pods = pods::informer(host.factory());
        let by_claim = pods.index("device claim", |pod| {
            pod.device_claims().map(|name| pods::claim_key(pod.namespace(), name).into()).collect()
        });
        let by_template = pods.index("claim template", |pod| {
            let templates = pod.claim_places().iter().filter_map(|place| place.template.as_ref());
            templates.map(|name| pods::claim_key(pod.namespace(), name).into()).collect()
        });
        let claims = host.informer::<ResourceClaim>();
        let by_owner = claims.index("owner", |claim| holder_uid(claim).map(Into::into).into_iter().collect());
        let attempts = Arc::<Attempts>::default();
        register(host.metrics(), &attempts, &claims);
        let shares = host.config().gates.enabled(Gate::DRAWorkloadResourceClaims);
        let groups = shares.then(|| PodGroups::new(host.informer(), &pods));
        Self {
            client: host.client(),
            recorder: host.recorder("resource_claim"),
            gates: host.config().gates,
            pods,
            by_claim,
            by_template,
            groups,
            claims,
            by_owner,
            templates: host.informer(),
            queue: host.main_queue(),
            gone: Mutex::default(),
            made: Mutex::default(),
            attempts,
        }
    }

    fn wanted(shared: &crate::host::Shared) -> bool {
        shared.config.gates.enabled(Gate::DynamicResourceAllocation)
    }

    fn watch(self: &Arc<Self>, _wiring: &Wiring<Work>) {
        let c = self.clone();
        self.pods.handle(move |change| {
            if let Change::Updated { old, new } = change
                && old.uid() != new.uid()
            {
                c.look_at(old, true);
            }
            c.look_at(change.object(), matches!(change, Change::Deleted(_)));
        });
        let c = self.clone();
        self.claims.handle(move |change| {
            let claim = change.object();
            if let Some(uid) = holder_uid(claim)
                && let Some(place) = place_of(claim)
            {
                c.made.lock().remove(&(uid.to_owned(), place.to_owned()));
            }
            if !matches!(change, Change::Deleted(_)) {
                c.queue.add(Work::Claim(claim.key()));
            }
            let key = pods::claim_key(claim.namespace(), claim.name());
            c.by_claim.get(&key).iter().for_each(|pod| c.look_at(pod, false));
            c.look_at_groups_with_claim(&key);
        });
        let c = self.clone();
        self.templates.handle(move |change| {
            if let Change::Added(template) | Change::Updated { new: template, .. } = change {
                let key = pods::claim_key(template.namespace(), template.name());
                c.by_template.get(&key).iter().for_each(|pod| c.look_at(pod, false));
                c.look_at_groups_with_template(&key);
            }
        });
        self.watch_groups();
    }

    async fn sync(&self, key: Work) -> Result<Next, Status> {
        match key {
            Work::Pod(key) => self.sync_pod(&key).await,
            Work::Group(key) => self.sync_group(&key).await,
            Work::Claim(key) => self.sync_claim(&key).await,
        }
        .map(|()| Next::Done)
    }
}

impl ResourceClaims {
    /// A Pod came, changed or went.
    fn look_at(&self, pod: &PodView, gone: bool) {
        if pod.claim_places().is_empty() && pod.extended_claim().is_empty() {
            return;
        }
        if gone {
            self.remember(pod.uid());
        }
        if gone || is_done(pod) {
            for name in pod.device_claims() {
                self.queue.add(Work::Claim(Key::new(pod.namespace(), name)));
            }
        }
        if !gone && self.needs_work(pod) {
            self.queue.add(Work::Pod(pod.key()));
        }
    }

    /// A Pod or a PodGroup is gone.
    fn remember(&self, uid: &str) {
        self.gone.lock().add(uid);
        self.made.lock().retain(|(holder, _), _| holder != uid);
    }

    fn user<'p>(&self, pod: &'p PodView) -> User<'p> {
        pod.user(self.groups.is_some())
    }

    /// Whether a claim is there that belongs to a place.
    fn claim_of(&self, pod: &PodView, place: &ClaimPlace) -> Option<Arc<ResourceClaim>> {
        let (name, made) = place.named()?;
        let claim = self.claims.get(pod.namespace(), name)?;
        (!made || claims::is_for(self.user(pod), &claim).is_ok()).then_some(claim)
    }

    fn needs_work(&self, pod: &PodView) -> bool {
        // A claim of a Pod that has ended goes; to make another would have no end.
        if pod.is_deleting() || is_done(pod) {
            return false;
        }
        pod.claim_places().iter().any(|place| match (place.named(), &place.made) {
            (None, Made::NotNeeded) => false,
            (None, _) => true,
            (Some((name, made)), _) => match self.claims.get(pod.namespace(), name) {
                // The user makes a claim that the Pod names.
                None => place.template.is_some() && !self.is_made_for_group(pod, place),
                Some(claim) if made && self.claim_of(pod, place).is_none() => {
                    let _ = claim; // another's claim has the name, until that goes
                    false
                }
                Some(claim) => self.needs_reservation(pod, &claim),
            },
        })
    }

    async fn sync_pod(&self, key: &Key) -> Result<(), Status> {
        let Some(pod) = self.pods.get_key(key).filter(|p| !p.is_deleting() && !is_done(p)) else {
            return Ok(());
        };
        let group = self.group_of(&pod)?;
        let mut made = BTreeMap::new();
        for place in pod.claim_places() {
            let why = match self.make(&pod, group.as_deref(), place).await {
                Ok(name) => {
                    made.extend(name.map(|name| (place.name.to_string(), name)));
                    continue;
                }
                Err(why) => why,
            };
            let message = format!("PodResourceClaim {}: {why}", place.name);
            let reason = "FailedResourceClaimCreation";
            self.recorder.event_about(pod.reference(), EventType::Warning, reason, message.as_str());
            return Err(retry(format!("pod {key}, {message}")));
        }
        if !made.is_empty() {
            self.tell(&pod, &made).await?;
        }
        if pod.node.is_empty() {
            return Ok(()); // the scheduler reserves claims
        }
        for place in pod.claim_places() {
            let Some(claim) = self.claim_of(&pod, place) else { continue };
            if self.needs_reservation(&pod, &claim) {
                let mut claim = (*claim).clone();
                let status = claim.status.get_or_insert_default();
                let at = (place.name.as_str(), place.source());
                let consumer = claims::bind_to(self.user(&pod), group.as_deref(), at).map_err(retry)?;
                status.reserved_for.get_or_insert_default().push(consumer);
                let api = self.client.api::<ResourceClaim>(pod.namespace());
                api.update_status(&claim)
                    .await
                    .map_err(|e| retry(format!("reserve claim {}: {}", claim.key(), e.message)))?;
            }
        }
        Ok(())
    }

    /// Makes the claim of a place, if there is none; the claim's name if the Pod's status lacks it.
    async fn make(
        &self,
        pod: &PodView,
        group: Option<&PodGroup>,
        place: &ClaimPlace,
    ) -> Result<Option<String>, String> {
        match (place.named(), &place.made, &place.template) {
            (None, Made::NotNeeded, Some(_)) => return Ok(None),
            (None, _, None) => {
                let pod = api::go::quote(&pod.key().to_string());
                let place = api::go::quote(&place.name);
                return Err(format!(
                    "checking for claim before creating it: pod {pod}, spec.resourceClaim {place}: none of the supported fields are set"
                ));
            }
            _ => {}
        }
        if self.claim_of(pod, place).is_some() {
            return Ok(None);
        }
        let Some(template) = &place.template else { return Ok(None) };
        let consumer = claims::bind_to(self.user(pod), group, (&place.name, place.source()))?;
        if let Some(group) = group.filter(|_| claims::is_pod_group(&consumer)) {
            return Ok(self.orphan(Holder::group(group), &place.name));
        }
        self.make_for(Holder::pod(pod), &place.name, template).await.map(Some)
    }

    /// Makes the claim of a holder's place, if none is there that nobody names yet; its name.
    async fn make_for(&self, holder: Holder<'_>, place: &str, template: &str) -> Result<String, String> {
        if let Some(name) = self.orphan(holder, place) {
            return Ok(name);
        }
        let template = self.templates.get(holder.namespace, template).ok_or_else(|| {
            let name = api::go::quote(template);
            format!("resource claim template {name}: resourceclaimtemplate.resource.k8s.io {name} not found")
        })?;
        let claim = plan::claim_for(holder, place, &template);
        let admin = wants_admin(&claim);
        if admin && !self.gates.enabled(Gate::DRAAdminAccess) {
            return Err("admin access is requested, but the feature is disabled".to_owned());
        }
        if has_alternatives(&claim) && !self.gates.enabled(Gate::DRAPrioritizedList) {
            let why = "template includes a prioritized list of subrequests, but the feature is disabled";
            return Err(why.to_owned());
        }
        let made = self.client.api::<ResourceClaim>(holder.namespace).create(&claim).await;
        self.attempts.0[usize::from(made.is_ok())][usize::from(admin)].fetch_add(1, Ordering::Relaxed);
        let made = made.map_err(|e| format!("create ResourceClaim : {}", e.message))?;
        let name = made.metadata.name.unwrap_or_default();
        // The lock is held meanwhile: a claim that is shown right after the look takes its note away again.
        let mut notes = self.made.lock();
        if self.claims.get(holder.namespace, &name).is_none() {
            notes.insert((holder.uid.to_owned(), place.to_owned()), name.clone());
        }
        Ok(name)
    }

    /// A claim that was made for a place, and that the holder's status does not name.
    fn orphan(&self, holder: Holder<'_>, place: &str) -> Option<String> {
        let its = self.by_owner.get(holder.uid);
        let found =
            its.iter().find(|claim| claim.namespace() == holder.namespace && place_of(claim) == Some(place));
        let name = found.map(|claim| claim.name().to_owned());
        name.or_else(|| self.made.lock().get(&(holder.uid.to_owned(), place.to_owned())).cloned())
    }

    /// Writes the names of claims into the Pod's status.
    async fn tell(&self, pod: &PodView, made: &BTreeMap<String, String>) -> Result<(), Status> {
        let statuses: Vec<Value> =
            made.iter().map(|(place, claim)| json!({"name": place, "resourceClaimName": claim})).collect();
        let patch = json!({"metadata": {"uid": pod.uid()}, "status": {"resourceClaimStatuses": statuses}});
        let api = self.client.api::<Pod>(pod.namespace());
        match api.patch_status(pod.name(), &Patch::Strategic(patch)).await {
            Ok(_) => Ok(()),
            Err(e) if e.is_not_found() => Ok(()),
            // Another change came first, or the Pod is another one, which the next look shows.
            Err(e) => {
                let key = pod.key();
                Err(retry(format!("update pod {key} ResourceClaimStatuses: {}", e.message)))
            }
        }
    }

    async fn sync_claim(&self, key: &Key) -> Result<(), Status> {
        let Some(claim) = self.claims.get_key(key) else { return Ok(()) };
        let mut keep = Vec::new();
        for consumer in reserved_for(&claim) {
            keep.push(self.uses(key, consumer).await?);
        }
        let plan = plan::plan(&claim, &keep, self.owner_of(&claim));
        let api = self.client.api::<ResourceClaim>(&key.namespace);
        let mut now = (*claim).clone();
        if let Some(status) = plan.status {
            now.status = Some(status);
            now = api.update_status(&now).await?;
        }
        if plan.unprotect {
            match api.update(&plan::unprotected(now)).await {
                Err(e) if !e.is_not_found() => return Err(e),
                _ => {}
            }
        }
        if plan.delete {
            api.delete(&key.name, None).await.or_else(|e| {
                if e.is_not_found() {
                    Ok(())
                } else {
                    Err(retry(format!("delete unused generated claim {key}: {}", e.message)))
                }
            })?;
        }
        Ok(())
    }

    fn owner_of(&self, claim: &ResourceClaim) -> Owner {
        let pod = owner(claim).and_then(|(name, uid)| Some((self.pods.get(claim.namespace(), name)?, uid)));
        match pod {
            None => Owner::Unknown,
            Some((pod, uid)) if pod.uid() != uid || is_done(&pod) => Owner::Done,
            Some(_) => Owner::Uses,
        }
    }

    /// Whether a consumer may use a claim still. Of one that is neither a Pod nor a PodGroup, nobody here knows.
    async fn uses(&self, key: &Key, consumer: &ResourceClaimConsumerReference) -> Result<bool, Status> {
        if claims::is_pod_group(consumer) {
            return self.group_uses(&key.namespace, consumer).await;
        }
        if !claims::is_pod(consumer) {
            return Ok(true);
        }
        if self.gone.lock().uids.contains(&consumer.uid) {
            return Ok(false);
        }
        if let Some(pod) = self.pods.get(&key.namespace, &consumer.name) {
            return Ok(pod.uid() == consumer.uid && !is_done(&pod));
        }
        // It may be that the Pod is not shown yet.
        let api = self.client.resource::<PodView>(resource_of::<Pod>(), &key.namespace);
        match api.get(&consumer.name).await {
            Ok(pod) => Ok(pod.uid() == consumer.uid),
            Err(e) if e.is_not_found() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Whether a Pod that has a node uses a claim that does not say so.
    fn needs_reservation(&self, pod: &PodView, claim: &ResourceClaim) -> bool {
        !pod.node.is_empty() && is_allocated(claim) && !claims::is_reserved_for(self.user(pod), claim)
    }
}

fn register(registry: &Registry, attempts: &Arc<Attempts>, claims: &Informer<ResourceClaim>) {
    let (attempts, claims) = (attempts.clone(), claims.clone());
    registry.register("resourceclaim-controller", move |page| report(page, &attempts, &claims.list()));
}

fn report(page: &mut Page, attempts: &Attempts, claims: &[Arc<ResourceClaim>]) {
    const CREATES: &str = "resourceclaim_controller_creates_total";
    const CLAIMS: &str = "resourceclaim_controller_resource_claims";
    let truth = |b: bool| if b { "true" } else { "false" };
    page.metric(
        CREATES,
        "counter",
        "[ALPHA] Number of ResourceClaims creation requests, categorized by creation status and admin access",
    );
    for (status, by_access) in ["failure", "success"].into_iter().zip(&attempts.0) {
        for (admin, n) in [false, true].into_iter().zip(by_access) {
            let n = n.load(Ordering::Relaxed);
            if n != 0 {
                page.value(CREATES, &[("status", status), ("admin_access", truth(admin))], n as f64);
            }
        }
    }
    page.metric(CLAIMS, "gauge", "[ALPHA] Number of ResourceClaims, categorized by allocation status, admin access, and source. Source can be 'resource_claim_template' (created from a template), 'extended_resource' (extended resources), or empty (manually created by a user).");
    let mut counts: BTreeMap<(bool, bool, &str), u64> = BTreeMap::new();
    for claim in claims {
        let annotations = claim.metadata.annotations.as_ref();
        let of = |name: &str| text(annotations.and_then(|a| a.get(name)));
        let source = if of(EXTENDED) == "true" {
            "extended_resource"
        } else if of(POD_CLAIM_NAME).is_empty() {
            ""
        } else {
            "resource_claim_template"
        };
        *counts.entry((is_allocated(claim), wants_admin(claim), source)).or_default() += 1;
    }
    for ((allocated, admin, source), n) in counts {
        let labels = [("allocated", truth(allocated)), ("admin_access", truth(admin)), ("source", source)];
        page.value(CLAIMS, &labels, n as f64);
    }
}
