//! Fields of features that are off: a write loses them, unless the stored object has them already.

use std::collections::HashSet;

use api::schema::{Type, TypeId};
use api::{FieldNo, Node, Schema, Struct, StructId};

/// Which fields go.
#[derive(Debug, Default)]
pub struct Gated {
    fields: HashSet<(StructId, FieldNo)>,
    /// The structs that hold such a field, themselves or further down.
    holders: HashSet<StructId>,
}

impl Gated {
    /// For a schema; `off` says of a gate whether it exists and is off.
    pub fn new(schema: &Schema, off: impl Fn(&str) -> bool) -> Self {
        let mut out = Self::default();
        for (id, st) in schema.structs() {
            for (i, field) in st.fields.iter().enumerate() {
                if field.gate.as_deref().is_some_and(|gates| gates.split(',').any(&off)) {
                    out.fields.insert((id, FieldNo(i as u16)));
                    out.holders.insert(id);
                }
            }
        }
        // What holds a holder is one, until there are no more.
        loop {
            let before = out.holders.len();
            for (id, st) in schema.structs() {
                let holds = |ty: TypeId| inner(schema, ty).is_some_and(|s| out.holders.contains(&s));
                if !out.holders.contains(&id) && st.fields.iter().any(|f| holds(f.ty)) {
                    out.holders.insert(id);
                }
            }
            if out.holders.len() == before {
                return out;
            }
        }
    }

    /// Drops them from a new object, given the stored one.
    pub fn drop(&self, new: &mut Struct, old: Option<&Struct>) {
        let mut found = HashSet::new();
        self.find(new, &mut found);
        if let Some(old) = old.filter(|_| !found.is_empty()) {
            let mut used = HashSet::new();
            self.find(old, &mut used);
            found.retain(|f| !used.contains(f));
        }
        if !found.is_empty() {
            remove(new, &found);
        }
    }

    fn find(&self, st: &Struct, found: &mut HashSet<(StructId, FieldNo)>) {
        if !self.holders.contains(&st.id) {
            return;
        }
        for (no, node) in st.iter() {
            if self.fields.contains(&(st.id, no)) {
                found.insert((st.id, no));
            }
            self.find_in(node, found);
        }
    }

    fn find_in(&self, node: &Node, found: &mut HashSet<(StructId, FieldNo)>) {
        match node {
            Node::Struct(s) => self.find(s, found),
            Node::List(l) => l.iter().for_each(|n| self.find_in(n, found)),
            Node::Map(m) => m.iter().for_each(|(_, n)| self.find_in(n, found)),
            _ => {}
        }
    }
}

/// The struct that a type leads to.
fn inner(schema: &Schema, ty: TypeId) -> Option<StructId> {
    match schema.ty(ty) {
        Type::Struct(id) | Type::Or { of: id, .. } => Some(*id),
        Type::List { of, .. } | Type::Map { of, .. } => inner(schema, *of),
        _ => None,
    }
}

fn remove(st: &mut Struct, fields: &HashSet<(StructId, FieldNo)>) {
    let id = st.id;
    st.retain(|no, node| {
        let kept = !fields.contains(&(id, no));
        if kept {
            remove_in(node, fields);
        }
        kept
    });
}

fn remove_in(node: &mut Node, fields: &HashSet<(StructId, FieldNo)>) {
    match node {
        Node::Struct(s) => remove(s, fields),
        Node::List(l) => l.iter_mut().for_each(|n| remove_in(n, fields)),
        Node::Map(m) => m.iter_mut().for_each(|(_, n)| remove_in(n, fields)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::codec::json;
    use api::schema::Gvk;

    #[test]
    fn fields_go_with_their_feature() {
        let schema = Schema::builtin();
        let check = |off: &str, kind: &Gvk, new: &str, old: Option<&str>, expected: &str| {
            let read = |text: &str| {
                let root = schema.kind(kind).unwrap();
                json::decode(schema, root, text.as_bytes()).unwrap().tree
            };
            let mut tree = read(new);
            let gated = Gated::new(schema, |g| g == off);
            gated.drop(&mut tree, old.map(read).as_ref());
            assert_eq!(tree, read(expected), "{off}: {new}");
        };
        let pod = Gvk::new("", "v1", "Pod");
        let env = |from: &str| {
            format!(
                r#"{{"spec":{{"containers":[{{"name":"a","env":[{{"name":"E","valueFrom":{{{from}}}}}]}}]}}}}"#
            )
        };
        let with = env(r#""fileKeyRef":{"key":"k","path":"p","volumeName":"v"}"#);
        check("EnvFiles", &pod, &with, None, &env(""));
        check("EnvFiles", &pod, &with, Some(&with), &with);
        check("EnvFiles", &pod, &with, Some(&env("")), &env(""));
        check("HostnameOverride", &pod, &with, None, &with);
        let slice = Gvk::new("resource.k8s.io", "v1", "ResourceSlice");
        let device = |policy: &str| {
            format!(
                r#"{{"spec":{{"devices":[{{"name":"a","capacity":{{"m":{{"value":"1Gi"{policy}}}}}}}]}}}}"#
            )
        };
        let with = device(r#","requestPolicy":{"default":"1Gi"}"#);
        check("DRAConsumableCapacity", &slice, &with, None, &device(""));
    }
}
