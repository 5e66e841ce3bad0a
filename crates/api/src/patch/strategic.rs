//! Upstream's strategic merge patch (`k8s.io/apimachinery/pkg/util/strategicpatch`): maps merge, and
//! lists merge by the key that the schema names, with directives in the patch.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::PatchError;
use super::merge::without_nulls;
use crate::by_value::ByValue;
use crate::schema::{Field, PatchStrategy, Schema, StructId, Type, TypeId};
use crate::tree::{Map, Node, Text};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE_PRIMITIVES: &str = "$deleteFromPrimitiveList/";

/// Applies a strategic merge patch to an object of the root struct `root`.
pub fn strategic(schema: &Schema, root: StructId, target: Node, patch: Node) -> Result<Node, PatchError> {
    let (Node::Map(target), Node::Map(patch)) = (target, patch) else {
        return Err(PatchError::Malformed("invalid JSON document".into()));
    };
    let m = Merger { schema };
    m.maps(target, patch, Place::Struct(root)).map(Node::Map)
}

/// The entries of a map while it is merged.
type Entries = BTreeMap<Text, Node>;

fn bad<T>(text: impl Into<String>) -> Result<T, PatchError> {
    Err(PatchError::Malformed(text.into()))
}

/// A value as Go's `%v` prints it, for messages.
fn go(v: &Node) -> String {
    match v {
        Node::Null => "<nil>".into(),
        Node::Bool(b) => b.to_string(),
        Node::Int(i) => i.to_string(),
        Node::Float(f) => f.to_string(),
        Node::Str(s) => s.to_string(),
        Node::List(l) => format!("[{}]", l.iter().map(go).collect::<Vec<_>>().join(" ")),
        Node::Map(m) => {
            let mut parts: Vec<String> = m.iter().map(|(k, v)| format!("{k}:{}", go(v))).collect();
            parts.sort();
            format!("map[{}]", parts.join(" "))
        }
        Node::Raw(text) => text.to_string(),
        Node::Struct(_) => "{}".into(),
    }
}

fn no_merge_key<T>(m: &Node, key: &str) -> Result<T, PatchError> {
    bad(format!("map: {} does not contain declared merge key: {key}", go(m)))
}

/// The schema of a value.
#[derive(Clone, Copy)]
enum Place {
    Struct(StructId),
    /// A map whose values are of this type.
    Map(TypeId),
    /// No schema.
    Free,
}

struct Merger<'s> {
    schema: &'s Schema,
}

impl Merger<'_> {
    /// The field of a struct, or the place and strategy of a map's value.
    fn field(&self, place: Place, key: &str) -> (Option<&Field>, Place, Option<TypeId>) {
        let of = |ty: TypeId| match self.schema.ty(ty) {
            Type::Struct(id) | Type::Or { of: id, .. } => Place::Struct(*id),
            Type::Map { of, .. } => Place::Map(*of),
            _ => Place::Free,
        };
        match place {
            Place::Struct(id) => {
                let st = self.schema.st(id);
                match st.field(key) {
                    Some(no) => {
                        let f = st.at(no);
                        (Some(f), of(f.ty), Some(f.ty))
                    }
                    None => (None, Place::Free, None),
                }
            }
            Place::Map(ty) => (None, of(ty), Some(ty)),
            Place::Free => (None, Place::Free, None),
        }
    }

    fn maps(&self, target: Map, patch: Map, place: Place) -> Result<Map, PatchError> {
        let (mut target, mut patch) = (target.into_tree(), patch.into_tree());
        if let Some(directive) = patch.remove(DIRECTIVE) {
            return match directive.as_str() {
                "replace" => Ok(Map::from_tree(patch)),
                "delete" => Ok(Map::new()),
                _ => {
                    let shown = go(&directive);
                    patch.insert(DIRECTIVE.into(), directive);
                    let patch = Node::Map(Map::from_tree(patch));
                    bad(format!("unknown patch type: {shown} in map: {}", go(&patch)))
                }
            };
        }
        if let Some(keep) = patch.remove(RETAIN_KEYS) {
            retain_keys(&mut target, &patch, &keep)?;
        }
        self.ordered_lists(&mut target, &mut patch, place)?;
        for (key, value) in patch {
            let deletes = key.strip_prefix(DELETE_PRIMITIVES).map(Text::from);
            let name = deletes.clone().unwrap_or_else(|| key.clone());
            if value == Node::Null {
                target.remove(&name);
                continue;
            }
            let Some(old) = target.remove(&name) else {
                if deletes.is_none()
                    && let Some(value) = unmatched(value)
                {
                    target.insert(name, value);
                }
                continue;
            };
            if deletes.is_some() {
                // Nothing can be deleted from a value that is no list.
                let left = match (old, value) {
                    (Node::List(mut old), Node::List(gone)) => {
                        take_out(&mut old, &gone);
                        Node::List(old)
                    }
                    (old, _) => old,
                };
                target.insert(name, left);
                continue;
            }
            let (field, inner, ty) = self.field(place, &name);
            let strategy = field.map(|f| f.patch).unwrap_or_default();
            let merged = match (old, value) {
                (Node::Map(_), new @ Node::Map(_)) if strategy.replace => Some(new),
                (Node::Map(old), Node::Map(new)) => Some(Node::Map(self.maps(old, new, inner)?)),
                (Node::List(old), Node::List(new)) if strategy.merge => {
                    Some(Node::List(self.lists(old, new, strategy, self.element(ty))?.0))
                }
                (Node::List(_), new @ Node::List(_)) => Some(new),
                (_, new) => unmatched(new),
            };
            if let Some(merged) = merged {
                target.insert(name, merged);
            }
        }
        Ok(Map::from_tree(target))
    }

    /// The struct that a list holds.
    fn element(&self, list: Option<TypeId>) -> Option<StructId> {
        let Type::List { of, .. } = self.schema.ty(list?) else { return None };
        match self.schema.ty(*of) {
            Type::Struct(id) => Some(*id),
            _ => None,
        }
    }

    /// The JSON name of a list's merge key; "" for lists of scalars.
    fn merge_key(&self, strategy: PatchStrategy, element: Option<StructId>) -> Text {
        match (strategy.merge_key, element) {
            (Some(no), Some(id)) => self.schema.st(id).at(no).json.clone(),
            _ => Text::default(),
        }
    }

    /// The merged list, and the old order as upstream remembers it: in the places of deleted elements, at the end,
    /// stand the first ones that were added.
    fn lists(
        &self,
        mut old: Vec<Node>,
        new: Vec<Node>,
        strategy: PatchStrategy,
        element: Option<StructId>,
    ) -> Result<(Vec<Node>, Vec<Node>), PatchError> {
        if old.is_empty() && new.is_empty() {
            return Ok((old, new));
        }
        let length = old.len();
        let key = self.merge_key(strategy, element);
        let maps = old.iter().chain(&new).all(|v| matches!(v, Node::Map(_)));
        if old.iter().chain(&new).any(|v| matches!(v, Node::List(_))) {
            return bad("lists of lists are not supported");
        }
        if !maps {
            if old.iter().chain(&new).any(|v| matches!(v, Node::Map(_))) {
                return bad("list element types are not identical");
            }
            let mut seen = HashSet::with_capacity(old.len());
            let merged: Vec<Node> =
                old.iter().chain(&new).filter(|v| seen.insert(ByValue(*v))).cloned().collect();
            return Ok((in_order(merged, &new, &old, ""), old));
        }
        if key.is_empty() {
            return bad("cannot merge lists without merge key");
        }
        let (mut plain, mut gone) = (Vec::new(), Vec::new());
        let mut replace = false;
        for item in new {
            let directive = item.as_map().and_then(|m| m.get(DIRECTIVE)).cloned();
            match directive.as_ref().map(Node::as_str) {
                None => plain.push(item),
                Some("delete") => {
                    let Some(wanted) = item.as_map().and_then(|m| m.get(&key)).cloned() else {
                        return no_merge_key(&item, &key);
                    };
                    gone.push(wanted);
                }
                Some("replace") => replace = true,
                Some("merge") => return bad("merging lists cannot yet be specified in the patch"),
                Some(_) => {
                    let shown = directive.as_ref().map(go).unwrap_or_default();
                    return bad(format!("unknown patch type: {shown} in map: {}", go(&item)));
                }
            }
        }
        if !gone.is_empty() {
            let gone: HashSet<ByValue<&Node>> = gone.iter().map(ByValue).collect();
            old.retain(|v| identity(v, &key).is_none_or(|k| !gone.contains(&ByValue(k))));
        }
        if replace {
            return Ok((plain, old));
        }
        let before = old.clone();
        let inner = element.map_or(Place::Free, Place::Struct);
        let mut places = places(&before, &key);
        for item in &plain {
            let Some(wanted) = identity(item, &key) else {
                return no_merge_key(item, &key);
            };
            match (places.get(&ByValue(wanted)), item) {
                (Some(i), Node::Map(item)) => {
                    if let Node::Map(m) = std::mem::replace(&mut old[*i], Node::Null) {
                        old[*i] = Node::Map(self.maps(m, item.clone(), inner)?);
                    }
                }
                (_, item) => {
                    places.insert(ByValue(wanted), old.len());
                    old.push(item.clone());
                }
            }
        }
        let remembered = old[..length.min(old.len())].to_vec();
        Ok((in_order(old, &plain, &before, &key), remembered))
    }

    /// Merges the lists for which the patch gives an order (`$setElementOrder/x`), and takes them out of it.
    fn ordered_lists(
        &self,
        target: &mut Entries,
        patch: &mut Entries,
        place: Place,
    ) -> Result<(), PatchError> {
        let keys: Vec<Text> = patch.keys().filter(|k| k.starts_with(ORDER)).cloned().collect();
        for directive in keys {
            let Some(order) = patch.remove(&directive) else { continue };
            let name = Text::from(&directive[ORDER.len()..]);
            let Node::List(order) = order else {
                return bad("invalid patch format of setElementOrder list");
            };
            let (field, _, ty) = self.field(place, &name);
            let strategy = field.map(|f| f.patch).unwrap_or_default();
            let element = self.element(ty);
            let key = self.merge_key(strategy, element);
            for item in order.iter().filter(|_| !key.is_empty()) {
                if item.as_map().is_none_or(|m| m.get(&key).is_none()) {
                    return no_merge_key(item, &key);
                }
            }
            if let Some(Node::List(new)) = patch.get(&name) {
                // The elements that the patch sets must stand in the list of the order, in that order.
                let mut at = 0;
                for item in new.iter().filter(|i| i.as_map().is_none_or(|m| m.get(DIRECTIVE).is_none())) {
                    match order[at..].iter().position(|o| same(o, item, &key)) {
                        Some(i) => at += i + 1,
                        None => {
                            return bad(format!(
                                "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                                go(&Node::List(new.clone())),
                                go(&Node::List(order.clone()))
                            ));
                        }
                    }
                }
            }
            let old = target.remove(&name);
            let new = match patch.get(&name) {
                Some(Node::Null) => {
                    if let Some(old) = old {
                        target.insert(name, old);
                    }
                    continue;
                }
                _ => patch.remove(&name),
            };
            // Elements of a list of scalars are deleted first: the rest is put in order.
            let deletes = format!("{DELETE_PRIMITIVES}{name}");
            let (before, merged) = match (old, new) {
                (None, None) => continue,
                (Some(Node::List(mut old)), new) => {
                    if let Some(Node::List(gone)) = patch.remove(deletes.as_str()) {
                        take_out(&mut old, &gone);
                    }
                    let before = old.clone();
                    match new {
                        None => (before, old),
                        Some(Node::List(new)) if strategy.merge => {
                            let (merged, before) = self.lists(old, new, strategy, element)?;
                            (before, merged)
                        }
                        Some(Node::List(new)) => (before, new),
                        Some(_) => return bad("invalid patch format of setElementOrder list"),
                    }
                }
                (None, Some(new)) => match without_directives(new) {
                    Some(Node::List(new)) => (Vec::new(), new),
                    _ => return bad("invalid patch format of setElementOrder list"),
                },
                (Some(_), _) => return bad("invalid patch format of setElementOrder list"),
            };
            target.insert(name, Node::List(in_order(merged, &order, &before, &key)));
        }
        Ok(())
    }
}

/// The value that identifies an element of a list: the value of its merge key, or a scalar itself.
fn identity<'n>(v: &'n Node, key: &str) -> Option<&'n Node> {
    if key.is_empty() { Some(v) } else { v.as_map()?.get(key) }
}

/// Whether two elements are the same one.
fn same(a: &Node, b: &Node, key: &str) -> bool {
    matches!((identity(a, key), identity(b, key)), (Some(a), Some(b)) if a == b)
}

/// The first place of each element.
fn places<'n>(list: &'n [Node], key: &str) -> HashMap<ByValue<&'n Node>, usize> {
    let mut out = HashMap::with_capacity(list.len());
    for (i, v) in list.iter().enumerate() {
        if let Some(v) = identity(v, key) {
            out.entry(ByValue(v)).or_insert(i);
        }
    }
    out
}

fn take_out(list: &mut Vec<Node>, gone: &[Node]) {
    let gone: HashSet<ByValue<&Node>> = gone.iter().map(ByValue).collect();
    list.retain(|v| !gone.contains(&ByValue(v)));
}

/// Puts the elements that the patch names (in `order`) in the patch's order and the rest in the old order, and
/// merges both: an old element stays before a named one only if it stood before it.
fn in_order(all: Vec<Node>, order: &[Node], before: &[Node], key: &str) -> Vec<Node> {
    let (order, before) = (places(order, key), places(before, key));
    let (mut named, mut rest) = (Vec::new(), Vec::new());
    for v in all {
        let at = |places: &HashMap<ByValue<&Node>, usize>| {
            identity(&v, key).and_then(|id| places.get(&ByValue(id)).copied())
        };
        match (at(&order), at(&before)) {
            (Some(rank), old) => named.push((rank, old, v)),
            (None, old) => rest.push((old.unwrap_or(usize::MAX), old, v)),
        }
    }
    named.sort_by_key(|v| v.0);
    rest.sort_by_key(|v| v.0);
    let mut out = Vec::with_capacity(named.len() + rest.len());
    let (mut named, mut rest) = (named.into_iter().peekable(), rest.into_iter().peekable());
    loop {
        let old_first = match (rest.peek(), named.peek()) {
            (None, None) => return out,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some((_, r, _)), Some((_, n, _))) => matches!((r, n), (Some(r), Some(n)) if r < n),
        };
        out.extend(if old_first { rest.next() } else { named.next() }.map(|v| v.2));
    }
}

/// Clears the fields that `$retainKeys` does not name.
fn retain_keys(target: &mut Entries, patch: &Entries, keep: &Node) -> Result<(), PatchError> {
    let Node::List(keep) = keep else { return bad("invalid patch format of retainKeys") };
    let keep: HashSet<&str> = keep.iter().map(Node::as_str).collect();
    let kept = |k: &str| keep.contains(k);
    for (k, v) in patch {
        if *v != Node::Null && !k.starts_with(DELETE_PRIMITIVES) && !k.starts_with(ORDER) && !kept(k) {
            return bad("invalid patch format of retainKeys");
        }
    }
    target.retain(|k, _| kept(k));
    Ok(())
}

/// A part of the patch that has no counterpart to merge with: its nulls are dropped, and its directives have nothing to
/// act on. `None` if nothing is left.
fn unmatched(node: Node) -> Option<Node> {
    without_directives(without_nulls(node))
}

fn without_directives(node: Node) -> Option<Node> {
    match node {
        Node::Map(m) if m.get(DIRECTIVE).is_some() => None,
        Node::Map(m) => {
            let entries = m.into_entries().into_iter();
            let kept = entries.filter_map(|(k, v)| Some((k, without_directives(v)?)));
            Some(Node::Map(Map::from_entries(kept.collect())))
        }
        Node::List(l) => Some(Node::List(l.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}
