//! Pruning: fields that the schema does not know are dropped.

use super::{Additional, Part, PartId, Structural, is_meta};
use crate::tree::{Map, Node};

/// The greatest number of unknown fields that are named.
const MOST: usize = 100;

/// The unknown fields that were found.
struct Found {
    path: String,
    paths: Vec<String>,
}

impl Found {
    fn at<T>(&mut self, step: impl FnOnce(&mut String), f: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        step(&mut self.path);
        let out = f(self);
        self.path.truncate(length);
        out
    }
    fn unknown(&mut self, name: &str) {
        if self.paths.len() < MOST {
            let dot = if self.path.is_empty() { "" } else { "." };
            self.paths.push(format!("{}{dot}{name}", self.path));
        }
    }
}

fn key(name: &str) -> impl FnOnce(&mut String) {
    move |path| {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(name);
    }
}

fn index(i: usize) -> impl FnOnce(&mut String) {
    move |path| {
        use std::fmt::Write;
        // Writing to a String does not fail.
        let _ = write!(path, "[{i}]");
    }
}

impl Structural {
    /// Drops the fields of an object that the schema does not know; returns their paths, sorted.
    ///
    /// `object` holds what stands beside `kind`, `apiVersion` and `metadata`.
    pub fn prune(&self, object: &mut Map) -> Vec<String> {
        let mut found = Found { path: String::new(), paths: Vec::new() };
        self.prune_map(object, self.root(), &mut found);
        found.paths.sort();
        found.paths
    }

    /// Drops the fields of a value that the schema does not know.
    pub fn prune_at(&self, id: PartId, value: &mut Node) {
        self.prune_value(value, Some(id), &mut Found { path: String::new(), paths: Vec::new() });
    }

    fn prune_value(&self, value: &mut Node, id: Option<PartId>, found: &mut Found) {
        match value {
            Node::Map(map) => {
                if let Some(id) = id {
                    self.prune_map(map, id, found);
                } else {
                    map.iter().for_each(|(name, _)| found.unknown(name));
                    *map = Map::new();
                }
            }
            Node::List(list) => {
                let items = id.and_then(|id| self.part(id).items);
                if id.is_some_and(|id| self.part(id).keeps_unknown) && items.is_none() {
                    return;
                }
                let keeps = id.is_some_and(|id| self.part(id).keeps_unknown);
                for (i, item) in list.iter_mut().enumerate() {
                    found.at(index(i), |found| match (items, item) {
                        // Below a list that keeps what it does not know, so do its elements.
                        (Some(items), Node::Map(map)) if keeps => {
                            self.prune_entries(map, self.part(items), true, found);
                        }
                        (items, item) => self.prune_value(item, items, found),
                    });
                }
            }
            _ => {}
        }
    }

    fn prune_map(&self, map: &mut Map, id: PartId, found: &mut Found) {
        let part = self.part(id);
        self.prune_entries(map, part, part.keeps_unknown, found);
    }

    fn prune_entries(&self, map: &mut Map, part: &Part, keeps: bool, found: &mut Found) {
        let mut properties = part.cursor();
        map.retain(|name, value| {
            if part.embedded && is_meta(name) {
                return true;
            }
            match (properties.find(name), part.additional) {
                // Nothing is below a scalar.
                (Some(_), _) | (None, Additional::Part(_) | Additional::Any)
                    if !matches!(value, Node::Map(_) | Node::List(_)) =>
                {
                    true
                }
                (Some(id), _) | (None, Additional::Part(id)) => {
                    found.at(key(name), |found| self.prune_value(value, Some(id), found));
                    true
                }
                (None, Additional::Any) => {
                    found.at(key(name), |found| self.prune_value(value, None, found));
                    true
                }
                (None, _) if keeps => true,
                (None, _) => {
                    found.unknown(name);
                    false
                }
            }
        });
    }
}
