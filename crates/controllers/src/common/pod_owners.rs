//! The owners at which a controller looks when a Pod changes.

use std::sync::Arc;
use std::time::Duration;

use client::{Cached, Change, Informer, Key, KubeObject, Queue};
use objects::Selector;

use super::expectations::Expectations;
use super::owners::resolve;
use super::pace::pause;
use super::selecting::{Selecting, label_pairs};
use crate::views::PodView;

/// A kind of object whose Pods are those that its selector chooses.
pub(crate) trait PodOwner: KubeObject + Cached {
    /// Its selector.
    fn selector(&self) -> Selector;
    /// The number of Pods at which each look at it looks, as far as a look may wait for more changes of them.
    fn pods(&self) -> usize;
}

/// Returns the time for which a look at an owner that changed may wait: the controller's own writes change statuses, and
/// led at once to the next one if Pods go on to change.
pub(crate) fn wait_after<T: PodOwner>(change: &Change<T>) -> Duration {
    match change {
        Change::Updated { old, new } => {
            let (old, meta) = (old.metadata(), new.metadata());
            let same = old.uid == meta.uid
                && old.generation == meta.generation
                && old.deletion_timestamp == meta.deletion_timestamp;
            if same { pause(new.pods()) } else { Duration::ZERO }
        }
        _ => Duration::ZERO,
    }
}

/// Queues the owners of Pods that change, and tells the controller's expectations what the cache shows by now.
pub(crate) struct PodOwners<T> {
    owners: Informer<T>,
    selecting: Selecting<T>,
    queue: Queue<Key>,
    expectations: Option<Arc<Expectations>>,
}

impl<T: PodOwner> PodOwners<T> {
    /// For the owners of an informer.
    pub(crate) fn new(
        owners: &Informer<T>,
        queue: Queue<Key>,
        expectations: Option<Arc<Expectations>>,
    ) -> Self {
        let selecting = Selecting::new(owners, T::selector);
        Self { owners: owners.clone(), selecting, queue, expectations }
    }

    /// Takes a change of a Pod.
    pub(crate) fn take(&self, change: &Change<PodView>) {
        match change {
            Change::Added(pod) => self.added(pod),
            Change::Updated { old, new } => self.updated(old, new),
            // That it goes was known.
            Change::Deleted(pod) if pod.is_deleting() => self.enqueue_later(pod, deletion(pod)),
            Change::Deleted(pod) => self.deleted(pod),
        }
    }

    /// Queues the owners that may want to adopt an orphan.
    fn enqueue_matching(&self, pod: &PodView) {
        for owner in self.selecting.of(pod.namespace(), label_pairs(&pod.labels)) {
            if !owner.selector().is_everything() {
                self.queue.add(owner.key());
            }
        }
    }

    /// Queues the owner of a Pod that came or went, after `seen` told the expectations. While others are expected the
    /// controller does not act, so that it need not look at once.
    fn enqueue_owner(&self, pod: &PodView, seen: impl FnOnce(&Expectations, &str)) {
        if let Some((key, owner)) = resolve(&self.owners, pod.namespace(), pod.controller()) {
            let pause = if self.tell(&owner, seen) { Duration::ZERO } else { pause(owner.pods()) };
            self.queue.add_after(key, pause);
        }
    }

    /// Queues the owner of a Pod that it has as before.
    fn enqueue_later(&self, pod: &PodView, seen: impl FnOnce(&Expectations, &str)) {
        if let Some((key, owner)) = resolve(&self.owners, pod.namespace(), pod.controller()) {
            self.tell(&owner, seen);
            self.queue.add_after(key, pause(owner.pods()));
        }
    }

    /// Tells the expectations of an owner, and returns whether it has none any more.
    fn tell(&self, owner: &T, seen: impl FnOnce(&Expectations, &str)) -> bool {
        let uid = owner.metadata().uid.as_deref().unwrap_or_default();
        self.expectations.as_ref().is_none_or(|expectations| {
            seen(expectations, uid);
            expectations.satisfied(uid)
        })
    }

    fn added(&self, pod: &PodView) {
        if pod.is_deleting() {
            self.deleted(pod);
        } else if pod.controller().is_none() {
            self.enqueue_matching(pod);
        } else {
            self.enqueue_owner(pod, |e, owner| e.created(owner, 1));
        }
    }

    fn updated(&self, old: &PodView, new: &PodView) {
        let relabelled = old.labels != new.labels;
        if new.is_deleting() {
            if old.is_deleting() {
                self.enqueue_later(new, deletion(new));
            } else {
                self.deleted(new);
            }
            if relabelled {
                self.deleted(old);
            }
            return;
        }
        let another = old.controller() != new.controller();
        if another {
            self.enqueue_owner(old, |_, _| {});
            self.enqueue_owner(new, |_, _| {});
        } else {
            self.enqueue_later(new, |_, _| {});
        }
        if new.controller().is_none() && (relabelled || another) {
            self.enqueue_matching(new);
        }
    }

    fn deleted(&self, pod: &PodView) {
        self.enqueue_owner(pod, deletion(pod));
    }
}

/// Tells that a Pod's deletion is seen.
fn deletion(pod: &PodView) -> impl FnOnce(&Expectations, &str) {
    |expectations, owner| expectations.deleted(owner, pod.uid())
}
