//! Defaults: the values of absent fields.
//!
//! Constants stand in a table and in the schema; defaults that depend on other fields are functions. A struct's own
//! function runs first, then its constants, then its children, as upstream's order is.

mod functions;
mod table;

use std::collections::HashMap;

use api::schema::{FieldNo, StructMap, Type, TypeId};
use api::view::Edit;
use api::{Node, Schema, Struct, StructId};

pub(crate) use functions::{job_labels, service_account_alias};

/// The defaults of a struct.
#[derive(Default)]
struct Rules {
    function: Option<functions::Function>,
    constants: Vec<(FieldNo, Node)>,
    /// Fields below which something has a default, with the kind of their values.
    children: Vec<(FieldNo, Child)>,
}

#[derive(Clone, Copy)]
enum Child {
    Struct,
    List,
    Map,
    /// A map of quantities, which are rounded up to thousandths.
    Quantities,
    /// A plain struct that is made if it is absent, since a field in it has a constant default.
    Made(StructId),
}

/// The defaults of everything in a schema.
pub struct Defaults {
    rules: StructMap<Rules>,
}

/// The part of a type's name after its repository's prefix: `core.v1.Pod`.
fn short(name: &str) -> &str {
    let mut at = name.len();
    for _ in 0..3 {
        match name[..at].rfind('.') {
            Some(i) => at = i,
            None => return name,
        }
    }
    &name[at + 1..]
}

fn constant(schema: &Schema, ty: TypeId, json: &str) -> Option<Node> {
    Some(match json {
        "true" => Node::Bool(true),
        "false" => Node::Bool(false),
        "{}" => match schema.ty(ty) {
            Type::Struct(id) => Struct::new(*id).into(),
            _ => return None,
        },
        _ => match json.strip_prefix('"').and_then(|j| j.strip_suffix('"')) {
            Some(s) => Node::from(s),
            None => Node::Int(json.parse().ok()?),
        },
    })
}

impl Defaults {
    /// Collects the defaults of a schema.
    pub fn new(schema: &Schema) -> Self {
        let mut by_name: HashMap<&str, Vec<(&str, &str)>> = HashMap::new();
        for (ty, field, json) in table::CONSTANTS {
            by_name.entry(ty).or_default().push((field, json));
        }
        let functions: HashMap<&str, functions::Function> = functions::FUNCTIONS.iter().copied().collect();
        let rules = StructMap::new(schema, |_, st| {
            let name = short(&st.name);
            let mut r = Rules { function: functions.get(name).copied(), ..Rules::default() };
            let own = by_name.get(name).map_or(&[][..], Vec::as_slice);
            for (i, f) in st.fields.iter().enumerate() {
                let json = own
                    .iter()
                    .find(|(n, _)| *n == f.json)
                    .map(|(_, j)| *j)
                    .or_else(|| f.default.as_deref().filter(|_| st.name.starts_with("io.k8s.api.")));
                let Some(value) = json.and_then(|j| constant(schema, f.ty, j)) else { continue };
                // A plain field's zero is the same as its absence.
                if f.pointer || !value.is_zero() || !f.omitempty {
                    r.constants.push((FieldNo(i as u16), value));
                }
            }
            r
        });
        let mut all = Self { rules };
        all.connect(schema);
        all
    }

    fn has_own(&self, id: StructId) -> bool {
        self.rules.get(id).is_some_and(|r| r.function.is_some() || !r.constants.is_empty())
    }

    /// Finds the fields below which something has a default, until no more are found.
    fn connect(&mut self, schema: &Schema) {
        let mut live = StructMap::new(schema, |id, _| self.has_own(id));
        loop {
            let mut grew = false;
            for (id, st) in schema.structs() {
                if live.get(id) == Some(&true) {
                    continue;
                }
                if st.fields.iter().any(|f| child_of(schema, st, f.ty, &live).is_some()) {
                    if let Some(of_struct) = live.get_mut(id) {
                        *of_struct = true;
                    }
                    grew = true;
                }
            }
            if !grew {
                break;
            }
        }
        for (id, st) in schema.structs() {
            let mut children = Vec::new();
            for (i, f) in st.fields.iter().enumerate() {
                let Some(mut c) = child_of(schema, st, f.ty, &live) else { continue };
                if let (Child::Struct, Type::Struct(s)) = (c, schema.ty(f.ty))
                    && !f.pointer
                    && self.makes(schema, *s)
                {
                    c = Child::Made(*s);
                }
                children.push((FieldNo(i as u16), c));
            }
            if let Some(rules) = self.rules.get_mut(id) {
                rules.children = children;
            }
        }
    }

    /// Whether a plain struct gets a value although it is absent.
    fn makes(&self, schema: &Schema, id: StructId) -> bool {
        // Functions read the fields of an absent struct as zeros, so a struct with one is made as well.
        self.has_own(id)
            || schema.st(id).fields.iter().any(|f| match schema.ty(f.ty) {
                Type::Struct(s) if !f.pointer && *s != id => self.makes(schema, *s),
                _ => false,
            })
    }

    /// Gives an object its defaults. Applying them twice changes nothing.
    pub fn apply(&self, schema: &Schema, s: &mut Struct) {
        if let Some(rest) = &schema.st(s.id).rest {
            if let Some(values) = s.get_mut(rest.field).and_then(Node::as_map_mut) {
                rest.values.drop_nulls(values);
                rest.values.apply_defaults(values);
            }
            return;
        }
        let Some(r) = self.rules.get(s.id) else { return };
        if let Some(f) = r.function {
            f(&mut Edit::new(schema, s));
        }
        for (no, value) in &r.constants {
            match s.get(*no) {
                None => s.set(*no, value.clone()),
                // A field without `omitempty` that was written as `path: ""`.
                Some(n) if n.is_zero() && !schema.st(s.id).at(*no).pointer => s.set(*no, value.clone()),
                Some(_) => {}
            }
        }
        for (no, c) in &r.children {
            let node = match c {
                Child::Made(id) => s.get_or_insert_with(*no, || Struct::new(*id).into()),
                _ => match s.get_mut(*no) {
                    Some(n) => n,
                    None => continue,
                },
            };
            match node {
                Node::Struct(inner) => {
                    self.apply(schema, inner);
                    if matches!(c, Child::Made(_)) && inner.is_empty() {
                        s.remove(*no);
                    }
                }
                Node::List(l) => {
                    for s in l.iter_mut().filter_map(Node::as_struct_mut) {
                        self.apply(schema, s);
                    }
                }
                Node::Map(m) => {
                    for (_, n) in m.iter_mut() {
                        match (c, n) {
                            (Child::Quantities, Node::Str(q)) => functions::round_up(q),
                            (_, Node::Struct(s)) => self.apply(schema, s),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

/// Only the core group's lists of resources are rounded.
fn child_of(
    schema: &Schema,
    of: &api::schema::StructType,
    ty: TypeId,
    live: &StructMap<bool>,
) -> Option<Child> {
    let name = short(&of.name);
    let rounded = name.starts_with("core.v1.") && name != "core.v1.NodeAllocatableResourceClaimStatus";
    child(schema, ty, live).filter(|c| rounded || !matches!(c, Child::Quantities))
}

fn child(schema: &Schema, ty: TypeId, live: &StructMap<bool>) -> Option<Child> {
    match schema.ty(ty) {
        Type::Struct(id) => (live.get(*id) == Some(&true)).then_some(Child::Struct),
        Type::List { of, .. } => child(schema, *of, live).map(|_| Child::List),
        Type::Map { of, .. } => match schema.ty(*of) {
            Type::Quantity => Some(Child::Quantities),
            _ => child(schema, *of, live).map(|_| Child::Map),
        },
        _ => None,
    }
}
