//! Volumes that the controller itself attaches: LUNs of iSCSI targets and disks behind Fibre Channel, for which a node is
//! only told that it has them, and volumes of drivers of FlexVolumes, whose programs are called for it.
//!
//! There is no object of an attachment: what nodes are told is the actual state, which a controller that starts again
//! reads there.

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::EventType;
use k8s_openapi::api::core::v1::PersistentVolume;
use objects::attachable::Attachable;

use super::node::{in_use, is_managed, is_out_of_service, is_ready};
use super::plan::{Attachment, Forced, Holder, Step, Volume, is_shared};
use super::{AttachDetach, Look};
use crate::host::Next;

/// After which time it is looked again for a driver that is not there.
const AGAIN: Duration = Duration::from_mins(1);

/// The name under which it is kept since when nobody wants a volume on a node.
fn key(volume: &str, node: &str) -> String {
    format!("{node} {volume}")
}

impl AttachDetach {
    /// Looks at a volume by the name by which nodes tell of it.
    pub(super) async fn sync_in_tree(&self, unique: &str) -> Result<Next, Status> {
        {
            // A volume for one node must not be attached before it is known who has it.
            let mut in_tree = self.in_tree.lock();
            if !std::mem::replace(&mut in_tree.started, true) {
                for node in self.nodes.list() {
                    in_tree.read(node.metadata.name.as_deref().unwrap_or_default(), &node);
                }
            }
        }
        let volumes = self.by_unique.get(unique);
        let (state, of) = self.in_tree_state(unique, &volumes);
        let name = of.as_ref().map_or(unique, |of| of.name.as_str()).to_owned();
        {
            let mut memory = self.memory.lock();
            for node in state.wanted.keys() {
                memory.unwanted.remove(&key(unique, node));
            }
            memory.forget_refused(&name, &state);
        }
        let mut next: Option<Duration> = None;
        let mut result = Ok(());
        for step in state.plan(|node| self.in_tree_holder(unique, node), self.force) {
            let mut wait = None;
            let done = match step {
                Step::Attach(node) => match &of {
                    Some(of) => self.attach_in_tree(of, &node, &state).await.map(|done| {
                        wait = (!done).then_some(AGAIN);
                    }),
                    None => Ok(()),
                },
                Step::Detach(node, forced) => self.detach_in_tree(unique, &node, forced).await,
                Step::Wait(_, time) => {
                    wait = Some(time);
                    Ok(())
                }
                Step::Refuse(node, pod, text) => {
                    self.refuse((&name, &name), node, pod, &text);
                    Ok(())
                }
            };
            next = [next, wait].into_iter().flatten().min();
            // A step that fails holds up no other.
            result = result.and(done);
        }
        result.map(|()| Next::at(next))
    }

    /// A volume as it is and as it is wanted, and how it is attached if anybody wants it.
    fn in_tree_state(&self, unique: &str, volumes: &[Arc<PersistentVolume>]) -> (Volume, Option<Attachable>) {
        let mut state = Volume { shared: true, ..Volume::default() };
        let mut of = None;
        if let Some(nodes) = self.in_tree.lock().attached.get(unique) {
            let there = Attachment { deleting: false, seen: true };
            state.attached = nodes.keys().map(|node| (node.clone(), there)).collect();
        }
        let mut users = Vec::new();
        for volume in volumes {
            let modes = volume.spec.as_ref().and_then(|s| s.access_modes.as_deref()).unwrap_or_default();
            state.shared &= is_shared(modes);
            of = of.or_else(|| Attachable::persistent(volume));
            users.extend(self.users(volume));
        }
        for pod in self.by_attachable.get(unique).into_iter().filter(|pod| !pod.is_terminal()) {
            of = of.or_else(|| pod.attachables().iter().find(|a| a.unique == unique).cloned());
            users.push(pod);
        }
        for pod in users.iter().filter(|pod| !pod.node.is_empty()) {
            let node = pod.node.as_str();
            let managed = self.nodes.get("", node).is_some_and(|n| is_managed(&n));
            if managed || state.attached.contains_key(node) {
                let pod_name = (pod.namespace().to_owned(), pod.name().to_owned());
                state.wanted.entry(node.to_owned()).or_default().insert(pod_name);
            }
        }
        (state, of)
    }

    fn in_tree_holder(&self, unique: &str, node: &str) -> Holder {
        let now = self.clock.monotonic();
        let since = *self.memory.lock().unwanted.entry(key(unique, node)).or_insert(now);
        let since = now.saturating_duration_since(since);
        // A Node that is gone uses nothing.
        let Some(told) = self.nodes.get("", node) else { return Holder { since, ..Holder::default() } };
        Holder {
            ready: is_ready(&told),
            out_of_service: is_out_of_service(&told),
            in_use: in_use(&told).any(|used| used == unique),
            since,
        }
    }

    /// Attaches a volume to a node. Answers whether it is attached.
    async fn attach_in_tree(&self, of: &Attachable, node: &str, state: &Volume) -> Result<bool, Status> {
        let say = |kind, reason, message: String| {
            for (namespace, name) in state.wanted.get(node).into_iter().flatten() {
                if let Some(pod) = self.pods.get(namespace, name) {
                    self.recorder.event_about(pod.reference(), kind, reason, message.clone());
                }
            }
        };
        let device = match (&of.flex, &self.flex) {
            (None, _) => Some(String::new()),
            (Some(flex), Some(drivers)) => {
                let attached = drivers.attach(of.name.clone(), flex.clone(), node.to_owned()).await;
                attached.map_err(|error| {
                    let message = format!("AttachVolume.Attach failed for volume {:?} : {error}", of.name);
                    say(EventType::Warning, "FailedAttachVolume", message.clone());
                    Status::failure(500, "InternalError", message)
                })?
            }
            (Some(_), None) => None,
        };
        let Some(device) = device else { return Ok(false) };
        self.in_tree.lock().put(&of.unique, node, device);
        self.queue.add(Look::Node(node.into()));
        let message = format!("AttachVolume.Attach succeeded for volume {:?} ", of.name);
        say(EventType::Normal, "SuccessfulAttachVolume", message);
        Ok(true)
    }

    /// Detaches a volume from a node: the node is told no more of it, and must not use it then.
    async fn detach_in_tree(&self, unique: &str, node: &str, forced: Option<Forced>) -> Result<(), Status> {
        let leaves = (unique.to_owned(), node.to_owned());
        self.in_tree.lock().leaving.insert(leaves.clone());
        let stays = || {
            self.in_tree.lock().leaving.remove(&leaves);
            self.queue.add(Look::Node(node.into()));
        };
        let told = self.tell_now(node).await.inspect_err(|_| stays())?;
        if forced.is_none() && told.is_some_and(|of| in_use(&of).any(|used| used == unique)) {
            // The change of the Node that this look did not know yet leads to another.
            stays();
            return Ok(());
        }
        // The other kinds have nothing that must be undone.
        let flex = !["kubernetes.io/iscsi/", "kubernetes.io/fc/"].iter().any(|p| unique.starts_with(p));
        if let Some((driver, name)) = unique.rsplit_once('/').filter(|_| flex)
            && let Some(drivers) = &self.flex
        {
            let detached = drivers.detach(driver.to_owned(), name.to_owned(), node.to_owned()).await;
            detached.map_err(|error| {
                stays();
                let message = format!("DetachVolume.Detach failed for volume {name:?} : {error}");
                Status::failure(500, "InternalError", message)
            })?;
        }
        self.in_tree.lock().remove(unique, node);
        self.memory.lock().unwanted.remove(&key(unique, node));
        if let Some(why) = forced {
            *self.forced.lock().entry(why).or_default() += 1;
        }
        // Somebody may wait for it.
        self.queue.add(Look::InTree(unique.into()));
        Ok(())
    }
}
