//! The objects of one resource that quotas count.

use std::collections::HashSet;
use std::sync::Arc;

use client::{Cached, Change, Client, Factory, Informer, Resource, Selection};
use component::Shutdown;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ScopedResourceSelectorRequirement, Service};
use k8s_openapi::api::resource::v1::ResourceClaim;
use objects::quota::{self, Counted, DeviceClasses, Kind, Usage};
use tokio::time::Instant;

use super::views::{Countable, Seen};
use crate::views::Meta;

/// The meaning of a change for quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// There is one more object. Admission has reserved what it takes.
    More,
    /// An object takes something else than before, or is gone.
    Other,
}

/// Hears of each object whose part in quotas changes: its namespace, and the effect.
pub(super) type Heard = Arc<dyn Fn(&str, Effect) + Send + Sync>;

/// The objects of a resource.
enum Source {
    Pods(Informer<Seen<Pod>>),
    Services(Informer<Seen<Service>>),
    Claims(Informer<Seen<PersistentVolumeClaim>>),
    DeviceClaims(Informer<Seen<ResourceClaim>>),
    /// Objects that count by their number alone.
    Numbered(Informer<Meta>),
}

/// Follows the objects of a resource.
pub(super) struct Monitor {
    kind: Kind,
    pub(super) resource: Resource,
    source: Source,
    /// The end of an informer that nobody else needs; `None` for those of all controllers, which do not end.
    end: Option<Shutdown>,
    pub(super) started: Instant,
}

/// Where informers come from.
pub(super) struct Origin<'a> {
    /// The informers of all controllers.
    pub(super) shared: &'a Factory,
    pub(super) client: &'a Client,
    pub(super) shutdown: &'a Shutdown,
}

impl Origin<'_> {
    /// Makes an informer, tells of its changes, and starts it. A resource that other controllers read has one watch for
    /// all.
    fn informer<T: Cached>(
        &self,
        resource: Resource,
        handle: impl Fn(&Change<T>) + Send + Sync + 'static,
    ) -> (Informer<T>, Option<Shutdown>) {
        let everything = Selection::default();
        if self.shared.reads(&resource, &everything) {
            let informer = self.shared.select::<T>(resource, everything);
            informer.handle(handle);
            return (informer, None);
        }
        let informer = Informer::of(self.client, resource, everything);
        informer.handle(handle);
        let end = self.shutdown.child();
        informer.start(&end);
        (informer, Some(end))
    }

    fn seen<T: Countable>(&self, resource: Resource, heard: Heard) -> (Informer<Seen<T>>, Option<Shutdown>) {
        self.informer(resource, move |change: &Change<Seen<T>>| match change {
            Change::Added(object) => heard(object.namespace(), Effect::More),
            Change::Deleted(object) => heard(object.namespace(), Effect::Other),
            Change::Updated { old, new } if old.counted != new.counted => {
                heard(new.namespace(), Effect::Other);
            }
            Change::Updated { .. } => {}
        })
    }
}

impl Monitor {
    /// Begins to follow a resource.
    pub(super) fn start(kind: &Kind, resource: &Resource, origin: &Origin<'_>, heard: Heard) -> Self {
        let of = resource.clone();
        let (source, end) = match kind {
            Kind::Pods => {
                let (informer, end) = origin.seen(of, heard);
                (Source::Pods(informer), end)
            }
            Kind::Services => {
                let (informer, end) = origin.seen(of, heard);
                (Source::Services(informer), end)
            }
            Kind::Claims => {
                let (informer, end) = origin.seen(of, heard);
                (Source::Claims(informer), end)
            }
            Kind::DeviceClaims => {
                let (informer, end) = origin.seen(of, heard);
                (Source::DeviceClaims(informer), end)
            }
            Kind::Other(..) => {
                let (informer, end) = origin.informer(of, move |change: &Change<Meta>| match change {
                    Change::Added(object) => heard(&object.namespace, Effect::More),
                    Change::Deleted(object) => heard(&object.namespace, Effect::Other),
                    Change::Updated { .. } => {}
                });
                (Source::Numbered(informer), end)
            }
        };
        Self { kind: kind.clone(), resource: resource.clone(), source, end, started: Instant::now() }
    }

    /// Ends it, if nobody else needs its informer. Whether it ended.
    pub(super) fn stop(&self) -> bool {
        if let Some(end) = &self.end {
            end.stop();
        }
        self.end.is_some()
    }

    /// Whether all objects are known.
    pub(super) fn is_synced(&self) -> bool {
        match &self.source {
            Source::Pods(informer) => informer.is_synced(),
            Source::Services(informer) => informer.is_synced(),
            Source::Claims(informer) => informer.is_synced(),
            Source::DeviceClaims(informer) => informer.is_synced(),
            Source::Numbered(informer) => informer.is_synced(),
        }
    }

    /// Waits until all objects are known.
    pub(super) fn synced(&self) -> BoxFuture<'static, ()> {
        fn of<T: Cached>(informer: &Informer<T>) -> BoxFuture<'static, ()> {
            let informer = informer.clone();
            async move { informer.synced().await }.boxed()
        }
        match &self.source {
            Source::Pods(informer) => of(informer),
            Source::Services(informer) => of(informer),
            Source::Claims(informer) => of(informer),
            Source::DeviceClaims(informer) => of(informer),
            Source::Numbered(informer) => of(informer),
        }
    }
}

/// The objects of a namespace that a quota counts.
pub(super) struct Selected<'a> {
    pub(super) namespace: &'a str,
    pub(super) scopes: &'a [ScopedResourceSelectorRequirement],
    pub(super) now: Timestamp,
}

/// The sum of the amounts that objects take.
#[derive(Debug, Default)]
pub(super) struct Sum {
    pub(super) usage: Usage,
    /// The time at which one of them takes less, though nothing changes.
    pub(super) until: Option<Timestamp>,
}

impl Sum {
    fn add(&mut self, object: &Counted, selected: &Selected<'_>) {
        if !object.is_in_all(selected.scopes) {
            return;
        }
        object.add_to(&mut self.usage, selected.now);
        let ends = object.gone().filter(|gone| *gone >= selected.now);
        self.until = self.until.into_iter().chain(ends).min();
    }
}

impl Monitor {
    /// Sums what objects take. `pods` are the Pods for whose extended resources claims of devices may stand.
    pub(super) fn sum(&self, selected: &Selected<'_>, devices: &DeviceClasses, pods: Option<&Self>) -> Sum {
        fn all<T: Countable>(informer: &Informer<Seen<T>>, selected: &Selected<'_>) -> Sum {
            let mut sum = Sum::default();
            for object in informer.list_namespace(selected.namespace) {
                sum.add(&object.counted, selected);
            }
            sum
        }
        match &self.source {
            Source::Pods(informer) => all(informer, selected),
            Source::Services(informer) => all(informer, selected),
            Source::Claims(informer) => all(informer, selected),
            Source::DeviceClaims(informer) => sum_of_devices(informer, selected, devices, pods),
            Source::Numbered(informer) => {
                let one = Counted::number(&self.kind);
                let mut sum = Sum::default();
                for _ in informer.list_namespace(selected.namespace) {
                    sum.add(&one, selected);
                }
                sum
            }
        }
    }

    /// Returns the amounts of the Pod for whose extended resources a claim stands.
    fn usage_of_pod(&self, claim: &Seen<ResourceClaim>, now: Timestamp) -> Option<Usage> {
        let Source::Pods(informer) = &self.source else { return None };
        let (name, uid) = claim.counted.stands_for()?;
        let pod = informer.get(claim.namespace(), name).filter(|pod| pod.uid() == uid)?;
        pod.counted.may_be_stood_for_by(claim.name()).then(|| pod.counted.usage(now))
    }
}

fn sum_of_devices(
    informer: &Informer<Seen<ResourceClaim>>,
    selected: &Selected<'_>,
    devices: &DeviceClasses,
    pods: Option<&Monitor>,
) -> Sum {
    let mut sum = Sum::default();
    if !selected.scopes.is_empty() {
        return sum;
    }
    // One claim alone stands for a Pod. Upstream takes the oldest of several; the names are in order here.
    let mut stood_for = HashSet::new();
    for claim in informer.list_namespace(selected.namespace) {
        let first = claim.counted.stands_for().is_some_and(|(_, uid)| stood_for.insert(uid.to_owned()));
        let of_pod = pods.filter(|_| first).and_then(|pods| pods.usage_of_pod(&claim, selected.now));
        quota::add(&mut sum.usage, &claim.counted.usage_of_devices(devices, of_pod.as_ref()));
    }
    sum
}
