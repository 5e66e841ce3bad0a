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

    fn at(hour: i64) -> Timestamp {
        Timestamp::from_second(hour * 3600).unwrap()
    }

    fn service(hour: i64) -> Service {
        let meta = json!({"name": "s", "namespace": "ns", "creationTimestamp": at(hour).to_string()});
        serde_json::from_value(json!({ "metadata": meta })).unwrap()
    }

    fn pods(all: &[(&str, i64)]) -> Vec<Arc<PodView>> {
        let pod = |(name, hour): &(&str, i64)| {
            let ready =
                json!({"type": "Ready", "status": "True", "lastTransitionTime": at(*hour).to_string()});
            Arc::new(view(&json!({"metadata": {"name": name}, "status": {"conditions": [ready]}})))
        };
        all.iter().map(pod).collect()
    }

    /// Upstream's cases of `TestNewServiceNoPods`, `TestNewServiceExistingPods`, `TestPodsAdded`, `TestPodsUpdated`,
    /// `TestPodsUpdatedNoOp`, `TestPodDeletedThenAdded`, `TestServiceDeletedThenAdded` and
    /// `TestServiceUpdatedNoPodChange`: looks at a Service, each with the hour in which it was made, with the hours since
    /// when its Pods have their readiness, and the hour that is told. A look at no hour is the Service's end.
    #[test]
    fn looks() {
        type Look<'a> = (Option<i64>, &'a [(&'a str, i64)], Option<i64>);
        let check = |looks: &[Look<'_>]| {
            let triggers = Triggers::default();
            for (made, all, expected) in looks {
                let Some(made) = made else {
                    triggers.forget(&service(0).key());
                    continue;
                };
                let change = triggers.last_change(&service(*made), &pods(all));
                assert_eq!(change, expected.map(at), "{looks:?}");
            }
        };
        let made = Some(0);
        check(&[(Some(2), &[], Some(2))]);
        check(&[(Some(3), &[("1", 0), ("2", 1), ("3", 5)], Some(3))]);
        check(&[(made, &[], Some(0)), (made, &[("1", 2), ("2", 1)], Some(1))]);
        let three = [("1", 1), ("2", 2), ("3", 3)];
        check(&[(made, &three, Some(0)), (made, &[("1", 5), ("2", 4), ("3", 3)], Some(4))]);
        check(&[(made, &three, Some(0)), (made, &three, None)]);
        let two = [("1", 1), ("2", 2)];
        check(&[(made, &two, Some(0)), (made, &two[..1], None), (made, &[("1", 1), ("2", 4)], Some(4))]);
        check(&[(made, &two, Some(0)), (None, &[], None), (Some(3), &two, Some(3))]);
        check(&[(made, &two, Some(0)), (made, &two, None)]);
        // The Service is another one of the name, whose end nobody saw.
        check(&[(made, &two[..1], Some(0)), (Some(2), &two[..1], Some(2))]);
        check(&[(made, &two[..1], Some(0)), (made, &[], None)]);
    }

    /// Upstream's cases of `TestLastTriggerChangeTimeAnnotation`,
    /// `TestLastTriggerChangeTimeAnnotation_AnnotationOverridden` and
    /// `TestLastTriggerChangeTimeAnnotation_AnnotationCleared`: the hour that is told before, those of the Service and of
    /// a Pod at a look, and the hour that is told then.
    #[test]
    fn hours_that_are_told() {
        let check = |before: Option<i64>, looks: &[(i64, &[(&str, i64)])], want: Option<i64>| {
            let triggers = Triggers::default();
            let mut metadata = ObjectMeta::default();
            annotate(&mut metadata, before.map(at));
            for (made, all) in looks {
                annotate(&mut metadata, triggers.last_change(&service(*made), &pods(all)));
            }
            let told = metadata.annotations.and_then(|a| a.get(ANNOTATION).cloned());
            assert_eq!(told, want.map(|hour| at(hour).to_string()), "{before:?} {looks:?}");
        };
        check(None, &[(5, &[])], Some(5));
        check(Some(1), &[(5, &[])], Some(5));
        check(Some(5), &[(5, &[]), (5, &[])], None);
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
