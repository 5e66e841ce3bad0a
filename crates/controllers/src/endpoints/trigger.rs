//! The time of the change that led to a write of endpoints, which the annotation
//! `endpoints.kubernetes.io/last-change-trigger-time` tells (upstream: `util/trigger_time_tracker.go`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use client::{Cached, Key};
use compact_str::CompactString as Text;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;

use crate::views::PodView;

const ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The times that were seen at the last look at each Service.
#[derive(Default)]
pub(super) struct Triggers(Mutex<HashMap<Key, Seen>>);

#[derive(Default)]
struct Seen {
    service: Option<Timestamp>,
    pods: HashMap<Text, Timestamp>,
}

impl Triggers {
    /// Returns the earliest change since the last look: that of a Pod's readiness, or, at the first look, the time at
    /// which the Service was made. Every look must ask, also one that then writes nothing.
    pub(super) fn last_change(&self, service: &Service, pods: &[Arc<PodView>]) -> Option<Timestamp> {
        let created = service.metadata.creation_timestamp.as_ref().map(|t| t.0);
        let times = pods.iter().filter_map(|pod| Some((Text::from(pod.name()), pod.ready.as_ref()?.since?)));
        let now = Seen { service: created, pods: times.collect() };
        let first = |before: &Seen| {
            let is_later = |time: &Timestamp, old: Option<&Timestamp>| old.is_none_or(|old| time > old);
            let pods = now.pods.iter().filter(|(name, time)| is_later(time, before.pods.get(*name)));
            let service = now.service.filter(|time| is_later(time, before.service.as_ref()));
            pods.map(|(_, time)| *time).chain(service).min()
        };
        let mut all = self.0.lock();
        let change = all.get(&service.key()).map_or(created, first);
        all.insert(service.key(), now);
        change
    }

    /// Forgets a Service that is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

/// Sets or removes the annotation of an object that is about to be written.
pub(super) fn annotate(metadata: &mut ObjectMeta, change: Option<Timestamp>) {
    let mut annotations: BTreeMap<String, String> = metadata.annotations.take().unwrap_or_default();
    match change {
        Some(time) => annotations.insert(ANNOTATION.to_owned(), time.to_string()),
        None => annotations.remove(ANNOTATION),
    };
    metadata.annotations = Some(annotations).filter(|a| !a.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::tests::view;
    use serde_json::json;

    /// Upstream's cases of `TestNewPod…`, `TestUpdatePod…` and so on: looks at a Service of the hour 0, each with the
    /// hours since when its Pods have their readiness, and the hour that is told.
    #[test]
    fn looks() {
        let at = |hour: i64| Timestamp::from_second(hour * 3600).unwrap();
        type Look<'a> = (i64, &'a [(&'a str, i64)], Option<i64>);
        let check = |looks: &[Look<'_>]| {
            let triggers = Triggers::default();
            for (made, pods, expected) in looks {
                let service: Service = serde_json::from_value(json!({
                    "metadata": {"name": "s", "namespace": "ns", "creationTimestamp": at(*made).to_string()},
                }))
                .unwrap();
                let pods: Vec<_> = pods
                    .iter()
                    .map(|(name, hour)| {
                        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": at(*hour).to_string()});
                        Arc::new(view(&json!({"metadata": {"name": name}, "status": {"conditions": [ready]}})))
                    })
                    .collect();
                assert_eq!(triggers.last_change(&service, &pods), expected.map(at), "{looks:?}");
            }
        };
        check(&[(0, &[], Some(0))]);
        check(&[(2, &[("p", 1)], Some(2))]);
        check(&[(2, &[("p", 5)], Some(2))]);
        // A Pod comes, becomes ready anew, several do, one goes.
        check(&[(0, &[], Some(0)), (0, &[("p", 1)], Some(1))]);
        check(&[(0, &[("p", 1)], Some(0)), (0, &[("p", 2)], Some(2))]);
        check(&[(0, &[("p", 1)], Some(0)), (0, &[("p", 3), ("q", 2)], Some(2))]);
        check(&[(0, &[("p", 1)], Some(0)), (0, &[], None)]);
        check(&[(0, &[("p", 1)], Some(0)), (0, &[("p", 1)], None)]);
        // The Service is another one of the name.
        check(&[(0, &[("p", 1)], Some(0)), (2, &[("p", 1)], Some(2))]);
    }

    #[test]
    fn the_annotation() {
        let mut metadata = ObjectMeta::default();
        annotate(&mut metadata, Some("2018-01-01T00:00:00.5Z".parse().unwrap()));
        assert_eq!(metadata.annotations.as_ref().unwrap()[ANNOTATION], "2018-01-01T00:00:00.5Z");
        annotate(&mut metadata, None);
        assert_eq!(metadata.annotations, None);
    }
}
