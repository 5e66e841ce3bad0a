//! Lists that merge as sets or maps: no element stands in them twice.

use std::collections::HashMap;

use super::{Additional, ListType, PartId, Structural};
use crate::field::{Errors, Path, Raw};
use crate::go::scalar_json;
use crate::tree::{Map, Node};

impl Structural {
    /// Reports the elements that stand twice in lists that are sets or maps.
    pub fn check_lists(&self, errs: &mut Errors, object: &Map) {
        if self.within(self.root()).distinct {
            self.lists_of_map(errs, None, self.root(), object);
        }
    }

    fn lists_of_map(&self, errs: &mut Errors, at: Option<&Path<'_>>, id: PartId, object: &Map) {
        let part = self.part(id);
        let mut properties = part.cursor();
        for (name, value) in object.iter() {
            let (id, is_key) = match (properties.find(name), part.additional) {
                (Some(id), _) => (id, false),
                (None, Additional::Part(id)) => (id, true),
                _ => continue,
            };
            if !self.within(id).distinct {
                continue;
            }
            let path = match at {
                None => Path::root(name),
                Some(at) if is_key => at.key(name),
                Some(at) => at.field(name),
            };
            self.lists_of(errs, &path, id, value);
        }
    }

    fn lists_of(&self, errs: &mut Errors, at: &Path<'_>, id: PartId, value: &Node) {
        match value {
            Node::Map(map) => self.lists_of_map(errs, Some(at), id, map),
            Node::List(list) => {
                let part = self.part(id);
                match part.list {
                    ListType::Atomic => {}
                    ListType::Set => {
                        for i in repeated(list.iter().map(scalar_json)) {
                            errs.duplicate(&at.index(i), Raw(printed(&list[i])));
                        }
                    }
                    ListType::Map => self.map_of(errs, at, id, list),
                }
                if let Some(items) = part.items {
                    for (i, item) in list.iter().enumerate() {
                        self.lists_of(errs, &at.index(i), items, item);
                    }
                }
            }
            _ => {}
        }
    }

    fn map_of(&self, errs: &mut Errors, at: &Path<'_>, id: PartId, list: &[Node]) {
        if let Some(i) = list.iter().position(|n| !matches!(n, Node::Map(_) | Node::Null)) {
            errs.invalid(
                &at.index(i),
                Raw(printed(&list[i])),
                "must be an object for an array of list-type map",
            );
            return;
        }
        let keys = self.part(id).keys();
        let key = |n: &Node| {
            let Node::Map(m) = n else { return "{}".to_owned() };
            let of = keys.iter().filter_map(|k| Some((k.clone(), m.get(k)?.clone()))).collect();
            scalar_json(&Node::Map(Map::from_entries(of)))
        };
        for i in repeated(list.iter().map(key)) {
            errs.duplicate(&at.index(i), Raw(key(&list[i])));
        }
    }
}

/// The places at which a value stands for the second time.
fn repeated(values: impl Iterator<Item = String>) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut out = Vec::new();
    for (i, value) in values.enumerate() {
        let times = seen.entry(value).or_default();
        *times += 1;
        if *times == 2 {
            out.push(i);
        }
    }
    out
}

/// A value as an error prints it.
fn printed(node: &Node) -> String {
    match node {
        Node::Str(s) => crate::go::quote(s),
        n => scalar_json(n),
    }
}
