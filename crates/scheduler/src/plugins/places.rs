//! Counts by place: a place is a node label with its value, and nodes that share it are in the same place.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cache::{Cache, Column, NodeInfo};

/// How often something was found in each place.
#[derive(Debug, Clone, Default)]
pub(super) struct Places(HashMap<String, Found>);

/// The same, for the places by one label.
#[derive(Debug, Clone)]
pub(super) struct Found {
    column: Arc<Column>,
    /// By the place's index in the column.
    counts: Vec<i64>,
    /// How many of the counts are not 0.
    places: usize,
}

impl Found {
    /// The count in the place of a node.
    pub(super) fn at(&self, node: usize) -> i64 {
        self.column.of(node).and_then(|place| self.counts.get(place)).copied().unwrap_or(0)
    }
}

impl Places {
    /// Counts `by` in the node's place, if it has the label.
    pub(super) fn count(&mut self, cluster: &Cache, node: &NodeInfo, key: &str, by: i64) {
        let found = if let Some(found) = self.0.get_mut(key) {
            found
        } else {
            let column = cluster.column(key);
            let counts = vec![0; column.values.len()];
            self.0.entry(key.to_owned()).or_insert(Found { column, counts, places: 0 })
        };
        let Some(n) = found.column.of(node.index).and_then(|place| found.counts.get_mut(place)) else {
            return;
        };
        let before = *n != 0;
        *n += by;
        let after = *n != 0;
        found.places = found.places + usize::from(after) - usize::from(before);
    }
    /// The sum of the counts in all places of a node.
    pub(super) fn sum(&self, node: usize) -> i64 {
        self.0.values().map(|found| found.at(node)).sum()
    }
    /// Whether nothing was found anywhere.
    pub(super) fn is_empty(&self) -> bool {
        self.0.values().all(|found| found.places == 0)
    }
    /// The count in the place of a node by one label.
    pub(super) fn at(&self, key: &str, node: usize) -> i64 {
        self.0.get(key).map_or(0, |found| found.at(node))
    }
    /// Those of labels by which something was found.
    pub(super) fn found(&self) -> Vec<&Found> {
        self.0.values().filter(|found| found.places > 0).collect()
    }
    /// The counts in the places by one label.
    pub(super) fn of(&self, key: &str) -> Option<&Found> {
        self.0.get(key)
    }
    #[cfg(test)]
    pub(super) fn listed(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (key, found) in &self.0 {
            let values = found.column.values.iter().zip(&found.counts).filter(|(_, n)| **n != 0);
            all.extend(values.map(|(value, n)| format!("{key}={value}:{n}")));
        }
        all.sort();
        all
    }
}
