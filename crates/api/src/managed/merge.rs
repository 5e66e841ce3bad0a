//! Merging of an applied configuration into an object, and taking fields out; both on values without a
//! schema's types, as the configuration's explicit zeros and nulls count.

use std::collections::{BTreeMap, BTreeSet};

use super::set::{Element, FieldSet};
use super::value::{Class, Item, Merging, Shape, Val, item_element};
use crate::schema::{Schema, StructId};
use crate::tree::{Map, Node};

/// The object with every value of the configuration in it.
pub(super) fn merge(schema: &Schema, root: StructId, live: Node, config: Node) -> Result<Node, String> {
    let merged = Merger { schema }.value(Shape::root(schema, root), Some(live), Some(config))?;
    Ok(merged.unwrap_or_else(|| Node::Map(Map::new())))
}

struct Merger<'s> {
    schema: &'s Schema,
}

fn blank(node: Option<&Node>) -> bool {
    match node {
        Some(Node::Map(m)) => m.is_empty(),
        Some(Node::List(l)) => l.is_empty(),
        _ => true,
    }
}

impl Merger<'_> {
    fn value(&self, shape: Shape<'_>, l: Option<Node>, r: Option<Node>) -> Result<Option<Node>, String> {
        let class = |n: &Option<Node>| n.as_ref().map(|n| Val::Node(n).class(shape));
        let atomic = shape.is_atomic();
        let class = match (class(&l), class(&r)) {
            (Some(Class::Any), Some(c)) | (Some(c), Some(Class::Any)) => c,
            (Some(a), Some(b)) if a != b => Class::Leaf,
            (_, Some(c)) | (Some(c), None) => c,
            (None, None) => return Ok(None),
        };
        // Two empty ones are a leaf, so that the configuration's empty list or map stays what it is.
        if atomic || class == Class::Leaf || blank(l.as_ref()) && blank(r.as_ref()) {
            return Ok(r.or(l));
        }
        if let (Class::List, Shape::List { of, kind }) = (class, shape) {
            let items = |n: Option<Node>| if let Some(Node::List(l)) = n { l } else { Vec::new() };
            let out = self.lists(of, kind, items(l), items(r))?;
            return Ok((!out.is_empty()).then_some(Node::List(out)));
        }
        let entries = |n: Option<Node>| if let Some(Node::Map(m)) = n { m } else { Map::new() };
        let mut out = entries(l).into_tree();
        for (name, right) in entries(r).into_entries() {
            let left = out.remove(&name);
            let below = shape.below(self.schema, &Element::Field(name.clone()));
            if let Some(v) = self.value(below, left, Some(right))? {
                out.insert(name, v);
            }
        }
        Ok((!out.is_empty()).then_some(Node::Map(Map::from_tree(out))))
    }

    fn steps(&self, of: Item<'_>, kind: Merging<'_>, items: &[Node]) -> Result<Vec<Element>, String> {
        items
            .iter()
            .enumerate()
            .map(|(i, n)| {
                item_element(self.schema, of, kind, Val::Node(n)).map_err(|e| format!("element {i}: {e}"))
            })
            .collect()
    }

    /// Elements in the order of the object if the configuration does not change it, else in the
    /// configuration's, with the object's own ones left where they stand between.
    fn lists(
        &self,
        of: Item<'_>,
        kind: Merging<'_>,
        l: Vec<Node>,
        r: Vec<Node>,
    ) -> Result<Vec<Node>, String> {
        let below = of.shape(self.schema);
        let (left, right) = (self.steps(of, kind, &l)?, self.steps(of, kind, &r)?);
        let mut here: BTreeMap<&Element, Option<&Node>> = BTreeMap::new();
        for (step, node) in left.iter().zip(&l) {
            // Elements that stand in the object twice do not merge: the configuration's one replaces them.
            here.entry(step).and_modify(|n| *n = None).or_insert(Some(node));
        }
        let mut wanted: BTreeSet<&Element> = BTreeSet::new();
        if let Some(twice) = right.iter().find(|s| !wanted.insert(s)) {
            return Err(format!("duplicate entries for key {twice}"));
        }
        let mut shared = right.iter().filter(|s| here.contains_key(s));
        let mut next = shared.next();
        let mut merged: BTreeSet<&Element> = BTreeSet::new();
        let mut out = Vec::with_capacity(l.len().max(r.len()));
        let (mut li, mut ri) = (0, 0);
        let join = |step: &Element, node: &Node| {
            let live = here.get(step).map(|n| n.cloned().unwrap_or(Node::Null));
            self.value(below, live, Some(node.clone()))
        };
        while li < left.len() || ri < right.len() {
            if li < left.len() && ri < right.len() {
                let step = &left[li];
                if *step == right[ri] {
                    merged.insert(step);
                    out.extend(join(step, &r[ri])?);
                    li += 1;
                    ri += 1;
                    next = shared.next();
                    continue;
                }
                if wanted.contains(step) && next.is_some_and(|n| n != step) {
                    li += 1;
                    continue;
                }
            }
            if li < left.len() {
                let step = &left[li];
                if !wanted.contains(step) {
                    out.push(l[li].clone());
                    li += 1;
                    continue;
                }
                if merged.contains(step) {
                    li += 1;
                }
            }
            if ri < right.len() {
                let step = &right[ri];
                merged.insert(step);
                out.extend(join(step, &r[ri])?);
                ri += 1;
                if next == Some(step) {
                    next = shared.next();
                }
            }
        }
        Ok(out)
    }
}

/// The object without the fields of the set.
pub(super) fn remove(schema: &Schema, root: StructId, object: Node, set: &FieldSet) -> Node {
    if set.is_empty() {
        return object;
    }
    take(schema, Shape::root(schema, root), object, set).unwrap_or_else(|| Node::Map(Map::new()))
}

/// Takes the fields of the set out of a value; `None` if nothing is left.
fn take(schema: &Schema, shape: Shape<'_>, node: Node, set: &FieldSet) -> Option<Node> {
    let atomic = shape.is_atomic() || matches!(shape, Shape::Opaque);
    // A part that is not taken itself loses its taken parts: containers stay, if empty.
    let inner = |step: &Element, node: Node, touched: &mut bool| -> Node {
        let Some(under) = set.under(step) else { return node };
        *touched = true;
        let emptied = match &node {
            Node::Map(_) => Node::Map(Map::new()),
            Node::List(_) => Node::List(Vec::new()),
            _ => Node::Null,
        };
        take(schema, shape.below(schema, step), node, under).unwrap_or(emptied)
    };
    match node {
        Node::List(_) | Node::Map(_) if atomic => None,
        Node::List(items) => {
            let Shape::List { of, kind } = shape else { return None };
            let mut touched = false;
            let mut out = Vec::with_capacity(items.len());
            for item in items {
                match item_element(schema, of, kind, Val::Node(&item)) {
                    Ok(step) if set.has_member(&step) => {}
                    Ok(step) => out.push(inner(&step, item, &mut touched)),
                    Err(_) => out.push(item),
                }
            }
            (touched || !out.is_empty()).then_some(Node::List(out))
        }
        Node::Map(map) => {
            let mut touched = false;
            let mut out = Vec::with_capacity(map.len());
            for (name, value) in map.into_entries() {
                let step = Element::Field(name.clone());
                if !set.has_member(&step) {
                    out.push((name, inner(&step, value, &mut touched)));
                }
            }
            (touched || !out.is_empty()).then_some(Node::Map(Map::from_entries(out)))
        }
        other => Some(other),
    }
}

/// The set with every named field that has members of the set below it, so that a struct goes with its last field.
pub(super) fn with_named_fields(schema: &Schema, root: StructId, mut set: FieldSet) -> FieldSet {
    fn walk(schema: &Schema, shape: Shape<'_>, set: &mut FieldSet) {
        for e in set.entries.iter_mut().filter(|e| !e.under.is_empty()) {
            if let Element::Field(name) = &e.element
                && shape.names(schema, name)
            {
                e.member = true;
            }
            walk(schema, shape.below(schema, &e.element), &mut e.under);
        }
    }
    walk(schema, Shape::root(schema, root), &mut set);
    set
}
