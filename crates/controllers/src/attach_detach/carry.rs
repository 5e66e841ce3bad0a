//! Carries out the plans of volumes, and tells Nodes of them.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{EventType, Patch, resource_of};
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use k8s_openapi::api::storage::v1::{VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use objects::attachable::Attachable;
use objects::migration;
use serde_json::json;

use super::names::{Handle, find, is_inline, is_ours, volume_of};
use super::node::{in_use, is_managed, is_out_of_service, is_ready, told};
use super::plan::{Attachment, Forced, Holder, PodName, Step, Volume, is_shared};
use super::{AttachDetach, Look, Memory, is_attached, name_of};
use crate::host::Next;
use crate::views::NodeView;

/// Attachments of a volume that is not what it was when they were made: their names and nodes.
type Strays = Vec<(String, String)>;

impl AttachDetach {
    pub(super) async fn sync_volume(&self, name: &str) -> Result<Next, Status> {
        let volume = self.volume(name);
        if let Some(of) = volume.as_deref().and_then(Attachable::persistent) {
            self.queue.add(Look::InTree(of.unique.into()));
            return Ok(Next::Done);
        }
        let of = volume.as_deref().and_then(Handle::of);
        let of = of.as_ref();
        let (mut state, strays) = self.attached(name, of);
        if let (Some(volume), Some(of)) = (&volume, of) {
            self.wanted((name, volume), of, &mut state);
        }
        self.forget(name, of, &state);
        let mut steps: Vec<(String, Step)> = Vec::new();
        for (own, node) in strays {
            let step = self.holder(&own, &node, None).detach(&node, self.force);
            steps.push((own, step));
        }
        if let Some(of) = of {
            let own = |node: &str| of.attachment(node);
            let plan = state.plan(|node| self.holder(&own(node), node, Some(of)), self.force);
            steps.extend(plan.into_iter().map(|step| (own(step.node()), step)));
        }
        let mut next: Option<Duration> = None;
        let mut result = Ok(());
        // A step that fails holds up no other.
        for (own, step) in steps {
            let done = match step {
                Step::Attach(node) => self.attach((name, volume.as_deref()), &own, of, &node).await,
                Step::Detach(node, forced) => self.detach(name, &own, &node, forced).await,
                Step::Wait(_, time) => {
                    next = Some(next.map_or(time, |n| n.min(time)));
                    Ok(())
                }
                Step::Refuse(node, pod, text) => {
                    let shown = volume.as_deref().and_then(|v| v.metadata.name.as_deref()).unwrap_or(name);
                    self.refuse((name, shown), node, pod, &text);
                    Ok(())
                }
            };
            result = result.and(done);
        }
        result.map(|()| Next::at(next))
    }

    /// The attachments that a volume has: those of what it is, and strays.
    fn attached(&self, volume: &str, of: Option<&Handle>) -> (Volume, Strays) {
        let (mut state, mut strays) = (Volume::default(), Strays::new());
        let is_current = |own: &str, node: &str| of.is_some_and(|of| of.attachment(node) == own);
        let all = self.by_volume.get(volume);
        let mut memory = self.memory.lock();
        let mut pending = memory.pending.remove(volume).unwrap_or_default();
        for attachment in all.iter().filter(|a| is_ours(a)) {
            let (own, node) = (name_of(attachment), attachment.spec.node_name.as_str());
            pending.remove(own);
            let deleting = attachment.metadata.deletion_timestamp.is_some() || memory.is_deleted(attachment);
            if is_current(own, node) {
                state.attached.insert(node.to_owned(), Attachment { deleting, seen: true });
            } else if !deleting {
                strays.push((own.to_owned(), node.to_owned()));
            }
        }
        for (own, node) in &pending {
            if is_current(own, node) {
                state.attached.insert(node.clone(), Attachment { deleting: false, seen: false });
            } else {
                strays.push((own.clone(), node.clone()));
            }
        }
        if !pending.is_empty() {
            memory.pending.insert(volume.to_owned(), pending);
        }
        (state, strays)
    }

    /// Adds where a volume is wanted.
    fn wanted(&self, (key, volume): (&str, &PersistentVolume), of: &Handle, state: &mut Volume) {
        // The modes of a plugin may not be those of its driver.
        let csi = migration::as_csi(volume).ok();
        let modes = csi.as_deref().and_then(|v| v.spec.as_ref()?.access_modes.as_deref()).unwrap_or_default();
        state.shared = is_shared(modes);
        if self.drivers.get("", &of.driver).is_some_and(|d| d.spec.attach_required == Some(false)) {
            return;
        }
        for pod in self.users_of(key, volume) {
            let node = pod.node.as_str();
            // A node that is gone, or is not managed any more, keeps the volumes that its Pods have.
            let managed = self.nodes.get("", node).is_some_and(|n| is_managed(&n));
            if managed || state.attached.contains_key(node) {
                let pod_name = (pod.namespace().to_owned(), pod.name().to_owned());
                state.wanted.entry(node.to_owned()).or_default().insert(pod_name);
            }
        }
    }

    /// Forgets of a volume what does not hold any more.
    fn forget(&self, volume: &str, of: Option<&Handle>, state: &Volume) {
        let mut memory = self.memory.lock();
        for node in state.wanted.keys() {
            let own = of.map(|of| of.attachment(node)).unwrap_or_default();
            memory.unwanted.remove(&own);
            // One that is wanted again before it was detached stays.
            if memory.leaving.remove(&own) {
                self.queue.add(Look::Node(node.as_str().into()));
            }
        }
        memory.forget_refused(volume, state);
    }

    fn holder(&self, own: &str, node: &str, of: Option<&Handle>) -> Holder {
        let now = self.clock.monotonic();
        let since = *self.memory.lock().unwanted.entry(own.to_owned()).or_insert(now);
        let since = now.saturating_duration_since(since);
        // A Node that is gone uses nothing.
        let Some(told) = self.nodes.get("", node) else { return Holder { since, ..Holder::default() } };
        Holder {
            ready: is_ready(&told),
            out_of_service: is_out_of_service(&told),
            in_use: uses(&told, of, own, node),
            since,
        }
    }

    async fn attach(
        &self,
        (volume, known): (&str, Option<&PersistentVolume>),
        own: &str,
        of: Option<&Handle>,
        node: &str,
    ) -> Result<(), Status> {
        let Some(of) = of else { return Ok(()) };
        let source = if is_inline(volume) {
            let spec = known.and_then(|v| v.spec.clone());
            VolumeAttachmentSource { inline_volume_spec: spec, ..VolumeAttachmentSource::default() }
        } else {
            let name = Some(volume.to_owned());
            VolumeAttachmentSource { persistent_volume_name: name, ..VolumeAttachmentSource::default() }
        };
        let attachment = VolumeAttachment {
            metadata: ObjectMeta { name: Some(own.to_owned()), ..ObjectMeta::default() },
            spec: VolumeAttachmentSpec {
                attacher: of.driver.to_string(),
                node_name: node.to_owned(),
                source,
            },
            ..VolumeAttachment::default()
        };
        {
            // An answer may be lost, so it is there until its absence is known.
            let mut memory = self.memory.lock();
            memory.pending.entry(volume.to_owned()).or_default().insert(own.to_owned(), node.to_owned());
        }
        match self.client.api::<VolumeAttachment>("").create(&attachment).await {
            Err(error) if !error.is_already_exists() => Err(error),
            _ => Ok(()),
        }
    }

    async fn detach(
        &self,
        volume: &str,
        own: &str,
        node: &str,
        forced: Option<Forced>,
    ) -> Result<(), Status> {
        let seen = self.attachments.get("", own);
        let known = self.volume(volume);
        let handle = known.as_deref().and_then(Handle::of).filter(|of| of.attachment(node) == own);
        if seen.as_ref().is_some_and(|a| volume_of(a).as_deref() != Some(volume)) {
            // Two PersistentVolumes tell of one volume of the driver, and it was attached for the other.
            self.memory.lock().forget_pending(volume, own);
            return Ok(());
        }
        self.memory.lock().leaving.insert(own.to_owned());
        let safe = self.tell_now(node).await.map(|of| match of {
            Some(of) => forced.is_some() || !uses(&of, handle.as_ref(), own, node),
            None => true,
        });
        if !matches!(safe, Ok(true)) {
            // The change of the Node that this look did not know yet leads to another.
            self.memory.lock().leaving.remove(own);
            self.queue.add(Look::Node(node.into()));
            return safe.map(drop);
        }
        let uid = seen.and_then(|a| a.metadata.uid.clone());
        let this = uid.clone().map(|uid| DeleteOptions {
            preconditions: Some(Preconditions { uid: Some(uid), ..Preconditions::default() }),
            ..DeleteOptions::default()
        });
        let answer = self.client.api::<VolumeAttachment>("").delete(own, this.as_ref()).await;
        let mut memory = self.memory.lock();
        match answer {
            Ok(()) => {
                memory.deleted.extend(uid.map(|uid| (own.to_owned(), uid)));
                if let Some(why) = forced {
                    *self.forced.lock().entry(why).or_default() += 1;
                }
            }
            Err(error) if error.is_not_found() => {
                memory.forget_pending(volume, own);
                if uid.is_none() {
                    memory.unwanted.remove(own);
                }
            }
            // Another one has its name by now, which will be seen.
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error),
        }
        memory.leaving.remove(own);
        Ok(())
    }

    /// Tells a Node which volumes are attached to it, unless it seems to know.
    pub(super) async fn sync_node(&self, name: &str) -> Result<(), Status> {
        let _turn = self.turn(name).lock().await;
        match self.nodes.get("", name) {
            Some(node) => self.tell(name, node).await.map(drop),
            None => Ok(()),
        }
    }

    /// Tells a Node which volumes are attached to it. Answers the Node after that; none if it is gone.
    pub(super) async fn tell_now(&self, name: &str) -> Result<Option<Arc<NodeView>>, Status> {
        let _turn = self.turn(name).lock().await;
        match self.client.resource::<NodeView>(resource_of::<Node>(), "").get(name).await {
            Ok(node) => self.tell(name, Arc::new(node)).await,
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn turn(&self, node: &str) -> &tokio::sync::Mutex<()> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(node);
        &self.turns[(hash % self.turns.len() as u64) as usize]
    }

    async fn tell(&self, name: &str, node: Arc<NodeView>) -> Result<Option<Arc<NodeView>>, Status> {
        let attached = self.to_tell(name, &node);
        if !is_managed(&node) || told_with_devices(&node) == attached {
            return Ok(Some(node));
        }
        let attached = attached.iter().map(|(name, device)| json!({ "name": name, "devicePath": device }));
        let attached: Vec<_> = attached.collect();
        let patch = Patch::Strategic(json!({ "status": { "volumesAttached": attached } }));
        let api = self.client.resource::<NodeView>(resource_of::<Node>(), "");
        match api.patch_status(name, &patch).await {
            Ok(node) => Ok(Some(Arc::new(node))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The volumes of which a Node is to be told.
    fn to_tell(&self, name: &str, node: &NodeView) -> BTreeMap<String, String> {
        let mut attached = {
            let mut in_tree = self.in_tree.lock();
            in_tree.read(name, node);
            in_tree.to_tell(name)
        };
        for attachment in self.by_node.get(name).iter().filter(|a| is_ours(a) && is_attached(a)) {
            let own = name_of(attachment);
            let leaves = {
                let memory = self.memory.lock();
                memory.leaving.contains(own) || memory.is_deleted(attachment)
            };
            if leaves || attachment.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let source = &attachment.spec.source;
            let named = || Handle::of(&*self.volumes.get("", source.persistent_volume_name.as_deref()?)?);
            let of = source.inline_volume_spec.as_ref().and_then(Handle::of_spec).or_else(named);
            let of = of.filter(|of| of.attachment(name) == own);
            // A volume that is gone may be known to the Node.
            let known = || find(told(node), own, name).map(str::to_owned);
            let unique = of.map(|of| of.unique_name()).or_else(known);
            attached.extend(unique.map(|unique| (unique, String::new())));
        }
        attached
    }

    /// Tells a Pod that its volume is elsewhere, once; `shown` is the name that people know the volume by.
    pub(super) fn refuse(&self, (volume, shown): (&str, &str), node: String, pod: PodName, text: &str) {
        let new =
            self.memory.lock().refused.entry(volume.to_owned()).or_default().insert((node, pod.clone()));
        let Some(pod) = self.pods.get(&pod.0, &pod.1).filter(|_| new) else { return };
        let message = format!("Multi-Attach error for volume {shown:?} {text}");
        self.recorder.event_about(pod.reference(), EventType::Warning, "FailedAttachVolume", message);
    }
}

/// The volumes of which a Node is told, with the paths of their devices.
fn told_with_devices(node: &NodeView) -> BTreeMap<String, String> {
    let all = node.status.iter().flat_map(|s| s.volumes_attached.iter().flatten());
    all.map(|v| (v.name.clone(), v.device_path.clone())).collect()
}

/// Whether a node tells that it uses an attachment's volume. Nodes may tell of very many: the name of a volume that is
/// known is compared, and only that of one that is gone is worked out from each.
fn uses(told: &NodeView, of: Option<&Handle>, own: &str, node: &str) -> bool {
    match of.map(Handle::unique_name) {
        Some(name) => in_use(told).any(|used| used == name),
        None => find(in_use(told), own, node).is_some(),
    }
}

impl Memory {
    /// Forgets the Pods that do not wait for a volume any more.
    pub(super) fn forget_refused(&mut self, volume: &str, state: &Volume) {
        let Some(refused) = self.refused.get_mut(volume) else { return };
        refused.retain(|(node, pod)| {
            let waits = state.wanted.get(node).is_some_and(|pods| pods.contains(pod));
            waits && !state.attached.contains_key(node)
        });
        if refused.is_empty() {
            self.refused.remove(volume);
        }
    }

    /// Forgets an attachment that is not there.
    fn forget_pending(&mut self, volume: &str, own: &str) {
        if let Some(pending) = self.pending.get_mut(volume) {
            pending.remove(own);
            if pending.is_empty() {
                self.pending.remove(volume);
            }
        }
    }

    /// Whether an attachment was deleted, though that is not seen yet.
    fn is_deleted(&self, attachment: &VolumeAttachment) -> bool {
        self.deleted.get(name_of(attachment)) == attachment.metadata.uid.as_ref()
            && attachment.metadata.uid.is_some()
    }
}
