//! The way of devices into claims: in flight, written, and waited for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::Status;
use client::{Client, EventType, Patch};
use k8s_openapi::api::core::v1::{ContainerExtendedResourceRequest, Pod};
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim, ResourceClaimConsumerReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use objects::claims::{self, FINALIZER, User, is_allocated, is_protected};
use serde_json::json;
use tokio::time::Instant;

use super::needs::Needs;
use super::settings::{Settings, named};
use super::{conditions, extended};
use crate::framework::points::{Binding, Errand};
use crate::inventory::{Devices, NotAssumed, allocation};
use crate::pod::PodInfo;

/// How often a write is tried that meets another, and how long to wait in between (client-go's `DefaultRetry`).
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(10);
/// How long the API may take to show a claim that was made.
const SHOWN: Duration = Duration::from_mins(2);

/// The claims of a Pod that has a node, until they are written.
pub(super) struct Held {
    devices: Devices,
    settings: Settings,
    parts: Mutex<Vec<Part>>,
    mappings: Vec<ContainerExtendedResourceRequest>,
}

/// A claim.
#[derive(Clone)]
struct Part {
    /// As it is known.
    claim: Arc<ResourceClaim>,
    /// The devices that it is to get.
    allocation: Option<AllocationResult>,
    /// Whether those are in flight for this Pod, which may share them.
    in_flight: bool,
    /// The consumer that it is reserved for: the Pod or its PodGroup.
    consumer: ResourceClaimConsumerReference,
    /// The uid under which those are in flight.
    uid: String,
    /// Whether it is the one for extended resources.
    special: bool,
}

/// The error of a step, told as upstream tells it.
enum Failed {
    /// Somebody else has changed the claim.
    Conflict(String),
    Other(String),
}

impl Failed {
    fn of(what: String) -> impl FnOnce(Status) -> Self {
        move |e| {
            let why = format!("{what}: {}", e.message);
            if e.is_conflict() { Self::Conflict(why) } else { Self::Other(why) }
        }
    }
}

fn text(t: Option<&String>) -> &str {
    t.map(String::as_str).unwrap_or_default()
}

fn keys(claim: &ResourceClaim) -> [&str; 2] {
    [&claim.metadata.namespace, &claim.metadata.name].map(|t| text(t.as_ref()))
}

async fn pause() {
    tokio::time::sleep(PAUSE.mul_f64(1.0 + 0.1 * fastrand::f64())).await;
}

impl Held {
    /// Devices were found on a node: they are in flight now.
    pub(super) fn new(
        mut needs: Needs,
        (pod, node): (&PodInfo, &str),
        devices: &Devices,
        settings: Settings,
    ) -> Self {
        let found = needs.found(node).unwrap_or_default();
        let mut results = found.results.iter().cloned();
        // The use of devices is copied on a change as long as somebody has it.
        needs.end();
        let mut parts = Vec::with_capacity(needs.claims.len());
        let mut known = devices.write();
        for (i, claim) in needs.claims.iter().enumerate() {
            let uid = text(claim.metadata.uid.as_ref()).to_owned();
            let special = needs.is_special(i);
            let made = found.extended.claim.clone().filter(|_| special);
            let mut claim = made.map_or_else(|| claim.clone(), Arc::new);
            let mut allocation = None;
            if let Some(shared) = needs.shared.get(&i) {
                let [namespace, name] = keys(&claim);
                let written = known.claim(namespace, name).filter(|claim| is_allocated(claim)).cloned();
                if known.share_pending(&uid) {
                    allocation = Some(shared.clone());
                } else if let Some(written) = written {
                    claim = written;
                } else {
                    known.set_pending(&uid, shared.clone());
                    allocation = Some(shared.clone());
                }
            } else if !is_allocated(&claim) {
                allocation = results.next();
                if let Some(chosen) = &allocation {
                    known.set_pending(&uid, chosen.clone());
                }
            }
            let in_flight = allocation.is_some();
            let consumer = needs.consumers.get(i).cloned();
            let consumer = consumer.unwrap_or_else(|| claims::consumer(pod.name(), pod.uid()));
            parts.push(Part { claim, allocation, in_flight, consumer, uid, special });
        }
        drop(known);
        Self {
            devices: devices.clone(),
            settings,
            parts: Mutex::new(parts),
            mappings: found.extended.mappings.clone(),
        }
    }

    fn parts(&self) -> MutexGuard<'_, Vec<Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back what was not written.
    pub(super) fn give_back(&self) {
        let mut known = self.devices.write();
        for part in self.parts().iter_mut().filter(|p| p.in_flight) {
            part.in_flight = false;
            if known.leave_pending(&part.uid) {
                let [namespace, name] = keys(&part.claim);
                known.restore(namespace, name);
            }
        }
    }

    /// This is what has to be written after that: the Pod uses its claims no more. Those that are reserved for its group
    /// stay so, since others of the group may use them.
    pub(super) fn afterwards(&self, pod: &PodInfo) -> Option<Errand> {
        let parts = self.parts().clone();
        let written = |part: &Part| {
            if part.special {
                !extended::is_in_memory(&part.claim)
            } else {
                is_allocated(&part.claim)
                    && claims::is_reserved_for(User::of(pod.whole(), false), &part.claim)
            }
        };
        let parts: Vec<Part> = parts.into_iter().filter(written).collect();
        if parts.is_empty() {
            return None;
        }
        let uid = pod.uid().to_owned();
        Some(Errand::new(move |client| {
            let (parts, uid) = (parts.clone(), uid.clone());
            Box::pin(async move {
                for part in parts {
                    if part.special {
                        delete(client.clone(), part.claim).await?;
                        continue;
                    }
                    let [namespace, name] = keys(&part.claim);
                    let patch = json!({"metadata": {"uid": part.claim.metadata.uid},
                        "status": {"reservedFor": [{"$patch": "delete", "uid": uid}]}});
                    client
                        .api::<ResourceClaim>(namespace)
                        .patch_status(name, &Patch::Strategic(patch))
                        .await?;
                }
                Ok(())
            })
        }))
    }

    /// Writes the claims, and waits until their devices are attached.
    pub(super) async fn bind(&self, binding: &Binding<'_>) -> Result<(), String> {
        let count = self.parts().len();
        for i in 0..count {
            let Some(part) = self.parts().get(i).cloned() else { continue };
            if !claims::is_reserved_for(self.user(binding.pod), &part.claim)
                && !self.is_written(i, &part, binding)
            {
                self.write(i, part, binding).await?;
            }
        }
        if self.settings.features.binding_conditions {
            self.wait(binding).await?;
        }
        Ok(())
    }

    fn user<'p>(&self, pod: &'p PodInfo) -> User<'p> {
        User::of(pod.whole(), self.settings.by_group)
    }

    /// Whether another Pod of the group has written the claim.
    fn is_written(&self, i: usize, part: &Part, binding: &Binding<'_>) -> bool {
        let [namespace, name] = keys(&part.claim);
        let known = self.devices.read().claim(namespace, name).cloned();
        let user = self.user(binding.pod);
        let written = known.filter(|claim| {
            claim.metadata.uid == part.claim.metadata.uid
                && is_as_chosen(claim, part.allocation.as_ref(), user)
        });
        let Some(written) = written else { return false };
        self.set(i, &written);
        self.end(i, part, Some(&written));
        true
    }

    /// Writes one claim.
    async fn write(&self, i: usize, mut part: Part, binding: &Binding<'_>) -> Result<(), String> {
        if part.special && part.allocation.is_none() && !extended::asks(&part.claim) {
            return Ok(()); // a device plugin offers it all
        }
        let result = self.written(i, &mut part, binding).await;
        self.end(i, &part, result.as_ref().ok());
        let claim = result?;
        if part.special {
            self.tell_pod(&claim, binding).await?;
        }
        Ok(())
    }

    /// A claim is written, or will not be: its devices are in flight no more, unless it is not written and others are on
    /// their way with them, too.
    fn end(&self, i: usize, part: &Part, written: Option<&ResourceClaim>) {
        let mut known = self.devices.write();
        if let Some(claim) = written {
            // If something newer is known, that counts.
            let _ = known.assume(claim.clone());
        }
        if part.in_flight {
            if written.is_some() {
                known.end_pending(&part.uid)
            } else {
                known.leave_pending(&part.uid)
            };
            drop(known);
            if let Some(part) = self.parts().get_mut(i) {
                part.in_flight = false;
            }
        }
    }

    fn set(&self, i: usize, claim: &ResourceClaim) {
        if let Some(part) = self.parts().get_mut(i) {
            part.claim = Arc::new(claim.clone());
        }
    }

    async fn written(
        &self,
        i: usize,
        part: &mut Part,
        binding: &Binding<'_>,
    ) -> Result<ResourceClaim, String> {
        if part.special && extended::is_in_memory(&part.claim) {
            let claim = self.create(&part.claim, binding.client).await?;
            self.set(i, &claim);
            part.claim = Arc::new(claim);
        }
        let mut claim = (*part.claim).clone();
        let namespace = text(claim.metadata.namespace.as_ref()).to_owned();
        let api = binding.client.api::<ResourceClaim>(&namespace);
        for attempt in 1.. {
            if attempt > 1 {
                pause().await;
                let key = named(&claim);
                claim = api
                    .get(text(claim.metadata.name.as_ref()))
                    .await
                    .map_err(|e| format!("get updated claim {key} after conflict: {}", e.message))?;
            }
            match self.try_write(&mut claim, part, binding).await {
                Ok(()) => break,
                Err(Failed::Conflict(_)) if attempt < TRIES => {}
                Err(Failed::Conflict(why) | Failed::Other(why)) => return Err(why),
            }
        }
        self.set(i, &claim);
        if part.special {
            self.shown(&claim).await;
        }
        Ok(claim)
    }

    async fn try_write(
        &self,
        claim: &mut ResourceClaim,
        part: &Part,
        binding: &Binding<'_>,
    ) -> Result<(), Failed> {
        let allocation = part.allocation.as_ref();
        let key = named(claim);
        let meanwhile = |what: &str| Err(Failed::Other(format!("claim {key} got {what} in the meantime")));
        let api = binding.client.api::<ResourceClaim>(text(claim.metadata.namespace.as_ref()));
        if claim.metadata.deletion_timestamp.is_some() {
            return meanwhile("deleted");
        }
        if let Some(allocation) = allocation {
            // DIFFERENCE: upstream has a Pod fail of which another one of its group was quicker.
            if is_as_chosen(claim, Some(allocation), self.user(binding.pod)) {
                return Ok(());
            }
            if is_allocated(claim) {
                return meanwhile("allocated elsewhere");
            }
            if !is_protected(claim) {
                claim.metadata.finalizers.get_or_insert_default().push(FINALIZER.to_owned());
                let failed = Failed::of(format!("add finalizer to claim {key}"));
                *claim = api.update(claim).await.map_err(failed)?;
            }
            claim.status.get_or_insert_default().allocation = Some(allocation.clone());
        }
        let status = claim.status.get_or_insert_default();
        status.reserved_for.get_or_insert_default().push(part.consumer.clone());
        if self.settings.features.binding_conditions {
            let Some(allocation) = &mut status.allocation else {
                return meanwhile("deallocated elsewhere");
            };
            let now = || Time(objects::time::whole_seconds(self.devices.now()).0);
            allocation.allocation_timestamp.get_or_insert_with(now);
        }
        let what = if allocation.is_some() { "allocation and reservation" } else { "reservation" };
        *claim = api.update_status(claim).await.map_err(Failed::of(format!("add {what} to claim {key}")))?;
        Ok(())
    }

    /// Makes the claim for extended resources.
    async fn create(&self, claim: &ResourceClaim, client: &Client) -> Result<ResourceClaim, String> {
        let mut new = claim.clone();
        (new.metadata.name, new.metadata.uid, new.status) = (None, None, None);
        let namespace = text(claim.metadata.namespace.as_ref());
        let made = client.api::<ResourceClaim>(namespace).create(&new).await;
        self.devices.made(made.is_ok());
        made.map_err(|e| format!("create claim for extended resources {}: {}", named(&new), e.message))
    }

    /// Waits until the API shows a claim that was made.
    async fn shown(&self, claim: &ResourceClaim) {
        let [namespace, name] = keys(claim).map(str::to_owned);
        let changes = self.devices.watch(vec![(namespace, name)]);
        let end = Instant::now() + SHOWN;
        loop {
            if self.devices.write().assume(claim.clone()) != Err(NotAssumed::Unknown) {
                return;
            }
            if tokio::time::timeout_at(end, changes.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Writes into the Pod's status which device is for which of its resources.
    async fn tell_pod(&self, claim: &ResourceClaim, binding: &Binding<'_>) -> Result<(), String> {
        let (namespace, name) = (binding.pod.namespace(), binding.pod.name());
        if self.mappings.is_empty() {
            return Err(format!(
                "nil or empty request mappings, no update of pod {namespace}/{name} ExtendedResourceClaimStatus"
            ));
        }
        let patch = json!({"metadata": {"uid": binding.pod.uid()}, "status": {"extendedResourceClaimStatus": {
            "requestMappings": self.mappings, "resourceClaimName": claim.metadata.name,
        }}});
        let pods = binding.client.api::<Pod>(namespace);
        let patched = pods.patch_status(name, &Patch::Strategic(patch)).await;
        patched
            .map(drop)
            .map_err(|e| format!("update pod {namespace}/{name} ExtendedResourceClaimStatus: {}", e.message))
    }

    /// Waits until all devices are attached that have to be.
    async fn wait(&self, binding: &Binding<'_>) -> Result<(), String> {
        let waits = self.parts().iter().any(|p| conditions::waited_for(&p.claim).next().is_some());
        if !waits {
            return Ok(());
        }
        if let Some(recorder) = binding.recorder {
            let message = format!("waiting for binding conditions for device on node {}", binding.node);
            let (pod, reason) = (binding.pod.reference(), "BindingConditionsPending");
            recorder.event_about(pod, EventType::Normal, reason, message);
        }
        let start = Instant::now();
        let end = start + self.settings.binding_timeout;
        let claims = self.parts().iter().map(|p| keys(&p.claim).map(str::to_owned).into()).collect();
        let changes = self.devices.watch(claims);
        let attached = async {
            loop {
                if self.is_attached()? {
                    return Ok(());
                }
                let look = self.next_look(end);
                tokio::select! {
                    () = changes.changed() => {}
                    () = tokio::time::sleep_until(look) => {
                        if look >= end {
                            return Err("device binding timeout: context deadline exceeded".to_owned());
                        }
                    }
                    () = binding.gone.wait() => return Err("context canceled".to_owned()),
                }
            }
        };
        let result: Result<(), String> = binding.place.without(attached).await;
        let status = match &result {
            Ok(()) => "success",
            Err(why) if why.starts_with("device binding timeout") => "timeout",
            Err(why) if why.starts_with("device binding failed") => "failed",
            Err(_) => "error",
        };
        for part in self.parts().iter() {
            let all = conditions::drivers(&part.claim);
            let waited: Vec<&str> = conditions::waited_for(&part.claim).map(|r| r.driver.as_str()).collect();
            self.devices.waited((binding.profile, status), all, &waited, start.elapsed());
        }
        result
    }

    /// When a claim will have been waited for too long, or all are.
    fn next_look(&self, end: Instant) -> Instant {
        let (now, at) = (self.devices.now(), Instant::now());
        let parts = self.parts();
        let left = parts.iter().filter_map(|p| {
            let until = conditions::waits_since(&p.claim)?.checked_add(self.settings.binding_timeout).ok()?;
            Duration::try_from(until.duration_since(now)).ok()
        });
        // A claim has to be over its time.
        let next = left.min().map(|left| at + left + Duration::from_millis(1));
        next.map_or(end, |next| next.min(end))
    }

    fn is_attached(&self) -> Result<bool, String> {
        let known = self.devices.read();
        for part in self.parts().iter_mut() {
            let [namespace, name] = keys(&part.claim);
            let claim = known.claim(namespace, name).ok_or_else(|| {
                format!("could not find ResourceClaim {}", api::go::quote(&format!("{namespace}/{name}")))
            })?;
            part.claim = claim.clone();
            if conditions::ready(claim)? {
                continue;
            }
            if conditions::timed_out(claim, self.settings.binding_timeout, self.devices.now()) {
                let name = text(claim.metadata.name.as_ref());
                return Err(format!("device binding timeout: claim={name}"));
            }
            return Ok(false);
        }
        Ok(true)
    }
}

/// Whether a claim has the devices that were chosen for it, and is reserved for a Pod or its group.
fn is_as_chosen(claim: &ResourceClaim, chosen: Option<&AllocationResult>, user: User<'_>) -> bool {
    let without_time = |a: &AllocationResult| AllocationResult { allocation_timestamp: None, ..a.clone() };
    let has = allocation(claim).map(without_time);
    has.is_some() && has == chosen.map(without_time) && claims::is_reserved_for(user, claim)
}

/// Takes a PodGroup off the consumers of a claim.
pub(super) async fn unreserve(
    client: Client,
    claim: Arc<ResourceClaim>,
    group: String,
) -> Result<(), Status> {
    let [namespace, name] = keys(&claim);
    let patch = json!({"metadata": {"uid": claim.metadata.uid},
        "status": {"reservedFor": [{"$patch": "delete", "uid": group}]}});
    client.api::<ResourceClaim>(namespace).patch_status(name, &Patch::Strategic(patch)).await.map(drop)
}

/// Gives the devices of a claim back.
pub(super) async fn deallocate(client: Client, claim: Arc<ResourceClaim>) -> Result<(), Status> {
    let mut claim = (*claim).clone();
    if let Some(status) = &mut claim.status {
        (status.allocation, status.reserved_for, status.devices) = (None, None, None);
    }
    client.api::<ResourceClaim>(text(claim.metadata.namespace.as_ref())).update_status(&claim).await.map(drop)
}

/// Deletes a claim that the scheduler made.
pub(super) async fn delete(client: Client, claim: Arc<ResourceClaim>) -> Result<(), Status> {
    let [namespace, name] = keys(&claim);
    let api = client.api::<ResourceClaim>(namespace);
    let mut claim = (*claim).clone();
    for attempt in 1.. {
        claim.metadata.finalizers.iter_mut().for_each(|all| all.retain(|f| f != FINALIZER));
        match api.update(&claim).await {
            Ok(_) => break,
            Err(e) if e.is_conflict() && attempt < TRIES => {
                pause().await;
                claim = api.get(name).await?;
            }
            Err(e) => return Err(e),
        }
    }
    api.delete(name, None).await
}
