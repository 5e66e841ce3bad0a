//! Defaults: the values of absent fields.

use super::{Additional, PartId, Structural, is_forbidden_null};
use crate::tree::{Map, Node};

impl Structural {
    /// Sets the defaults of an object's absent fields.
    pub fn apply_defaults(&self, object: &mut Map) {
        if self.within(self.root()).defaults {
            self.default_entries(object, self.root());
        }
    }

    fn default_entries(&self, object: &mut Map, id: PartId) {
        let part = self.part(id);
        for (name, property) in &part.properties {
            let Some(default) = self.part(*property).default_value() else { continue };
            let missing = object.get(name).is_none_or(|v| is_forbidden_null(v, self.part(*property)));
            if missing {
                object.insert(name.clone(), default.clone());
            }
        }
        let mut properties = part.cursor();
        for (name, value) in object.iter_mut() {
            if let Some(property) = properties.find(name) {
                self.default_within(value, property);
            } else if let Additional::Part(entry) = part.additional {
                self.default_null(value, entry);
                self.default_within(value, entry);
            }
        }
    }

    /// Puts the default in the place of a `null` that may not stand there.
    fn default_null(&self, value: &mut Node, id: PartId) {
        let part = self.part(id);
        if is_forbidden_null(value, part)
            && let Some(default) = part.default_value()
        {
            *value = default.clone();
        }
    }

    fn default_within(&self, value: &mut Node, id: PartId) {
        if !self.within(id).defaults {
            return;
        }
        match value {
            Node::Map(map) => self.default_entries(map, id),
            Node::List(list) => {
                let Some(items) = self.part(id).items else { return };
                for item in list {
                    self.default_null(item, items);
                    self.default_within(item, items);
                }
            }
            _ => {}
        }
    }

    /// Takes out each `null` that may not stand where it is and for which there is no default: clients write it for an
    /// absent value, and an object may have been stored under another schema.
    pub fn drop_nulls(&self, object: &mut Map) {
        self.drop_nulls_of(object, self.root());
    }

    fn drop_nulls_of(&self, object: &mut Map, id: PartId) {
        let part = self.part(id);
        let mut properties = part.cursor();
        object.retain(|name, value| {
            // Most values are scalars, about which nothing has to be known.
            if !matches!(value, Node::Null | Node::Map(_) | Node::List(_)) {
                return true;
            }
            let ((Some(id), _) | (None, Additional::Part(id))) = (properties.find(name), part.additional)
            else {
                return true;
            };
            self.drop_nulls_below(value, id);
            let part = self.part(id);
            !is_forbidden_null(value, part) || part.default_value().is_some()
        });
    }

    fn drop_nulls_below(&self, value: &mut Node, id: PartId) {
        match value {
            Node::Map(map) => self.drop_nulls_of(map, id),
            Node::List(list) => {
                if let Some(items) = self.part(id).items {
                    for item in list {
                        self.drop_nulls_below(item, items);
                    }
                }
            }
            _ => {}
        }
    }
}
