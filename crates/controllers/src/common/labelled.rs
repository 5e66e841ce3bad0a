//! Finds the Pods that have some labels, without a look at all of a namespace: it may have a hundred thousand.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::{Index, Informer};
use objects::Selector;

use super::selecting::{label_pairs, place};
use crate::views::PodView;

/// An index of Pods by their labels.
pub(crate) struct Labelled {
    pods: Informer<PodView>,
    index: Index<PodView>,
}

impl Labelled {
    /// Of an informer's Pods.
    pub(crate) fn new(pods: &Informer<PodView>) -> Self {
        let index = pods.index("labels", |pod| {
            label_pairs(&pod.labels).map(|label| place(pod.namespace(), label)).collect()
        });
        Self { pods: pods.clone(), index }
    }

    /// The Pods of a namespace that have all of these labels, ordered by name; all of them for no labels.
    pub(crate) fn of(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Vec<Arc<PodView>> {
        let places = labels.iter().map(|(key, value)| place(namespace, (key, value)));
        let Some(rarest) = places.min_by_key(|place| self.index.count(place)) else {
            return self.pods.list_namespace(namespace);
        };
        let mut found = self.index.get(&rarest);
        let selector = Selector::exactly(labels);
        found.retain(|pod| pod.is_selected_by(&selector));
        found
    }
}
