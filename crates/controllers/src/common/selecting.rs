//! Finds the objects whose selectors choose an object with some labels, without a look at all of a namespace.

use std::sync::Arc;

use client::{Cached, Index, Informer};
use compact_str::{CompactString as Text, format_compact};
use objects::Selector;
use objects::labels::CompactLabels;

/// An index of objects by what their selectors need.
pub(crate) struct Selecting<T> {
    index: Index<T>,
    selector: fn(&T) -> Selector,
}

impl<T: Cached> Selecting<T> {
    /// Of an informer's objects, each with this selector.
    pub(crate) fn new(informer: &Informer<T>, selector: fn(&T) -> Selector) -> Self {
        let index =
            informer.index("selector", move |object| places(object.identity().namespace, &selector(object)));
        Self { index, selector }
    }

    /// The objects of a namespace whose selectors choose an object with these labels.
    pub(crate) fn of<'l>(
        &self,
        namespace: &str,
        labels: impl Iterator<Item = (&'l str, &'l str)> + Clone,
    ) -> Vec<Arc<T>> {
        let places = looked_at(namespace, labels.clone());
        let mut found: Vec<Arc<T>> = places.iter().flat_map(|place| self.index.get(place)).collect();
        let label = |key: &str| labels.clone().find(|(k, _)| *k == key).map(|(_, v)| v);
        found.retain(|object| (self.selector)(object).matches_by(label));
        found
    }
}

/// The labels of a Pod, as [`Selecting::of`] takes them.
pub(crate) fn label_pairs(labels: &CompactLabels) -> impl Iterator<Item = (&str, &str)> + Clone {
    labels.pairs().map(|(key, value)| (key.as_str(), value.as_str()))
}

/// The place of the selectors that need a label, and of the objects that have it.
pub(super) fn place(namespace: &str, (key, value): (&str, &str)) -> Text {
    format_compact!("{namespace}/{key}={value}")
}

/// The place of the selectors that need no certain label.
fn other(namespace: &str) -> Text {
    format_compact!("{namespace}/")
}

/// The places of a selector.
fn places(namespace: &str, selector: &Selector) -> Vec<Text> {
    match selector.needed() {
        Some(needed) => needed.into_iter().map(|label| place(namespace, label)).collect(),
        None => vec![other(namespace)],
    }
}

/// The places of the selectors that may choose an object with these labels.
fn looked_at<'l>(namespace: &str, labels: impl Iterator<Item = (&'l str, &'l str)>) -> Vec<Text> {
    let mut all = vec![other(namespace)];
    all.extend(labels.map(|label| place(namespace, label)));
    all
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    /// A selector that chooses an object stands in exactly one of the places that are looked at.
    #[test]
    fn places_of_selectors() {
        let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        let selectors: [(Value, usize); 8] = [
            (json!({}), 1),
            (json!({"matchLabels": {"a": "1"}}), 1),
            (json!({"matchLabels": {"a": "1", "b": "2"}}), 1),
            (expression("a", "In", &["1", "2"]), 2),
            (expression("a", "NotIn", &["1"]), 1),
            (expression("a", "Exists", &[]), 1),
            (expression("c", "DoesNotExist", &[]), 1),
            (json!({"matchLabels": {"b": "2"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}), 1),
        ];
        let objects: [&[(&str, &str)]; 5] =
            [&[], &[("a", "1")], &[("a", "2"), ("c", "3")], &[("a", "1"), ("b", "2")], &[("b", "2")]];
        let mut chosen = 0;
        for (text, count) in selectors {
            let selector = Selector::new(Some(&from_value(text.clone()).unwrap())).unwrap();
            let stands = places("n", &selector);
            assert_eq!(stands.len(), count, "{text}");
            for labels in objects {
                let looked = looked_at("n", labels.iter().copied());
                let label = |key: &str| labels.iter().find(|l| l.0 == key).map(|l| l.1);
                if selector.matches_by(label) {
                    chosen += 1;
                    assert_eq!(looked.iter().filter(|p| stands.contains(p)).count(), 1, "{text} {labels:?}");
                }
                let elsewhere = looked_at("m", labels.iter().copied());
                assert!(!elsewhere.iter().any(|p| stands.contains(p)), "{text} {labels:?}");
            }
        }
        assert_eq!(chosen, 22);
        assert!(places("n", &Selector::nothing()).is_empty());
    }
}
