//! Lists whose items are told apart: sets, and lists that are maps by keys.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::error::EvalError;
use crate::value::{Foreign, Shape, Value, equal};

use super::escape::escape;
use super::types::{Definition, ListType};

/// The items of a set, or of a list whose items have keys.
pub(super) struct Listed<'v> {
    items: Vec<Value<'v>>,
    d: &'v Definition,
}

/// The values that tell an item apart.
type Identity<'v> = Vec<Option<Value<'v>>>;

/// Items by what tells them apart.
struct Index<'v> {
    identities: Vec<Identity<'v>>,
    /// The places of the identities with a mark.
    places: HashMap<u64, Vec<usize>>,
    marks: RandomState,
}

impl<'v> Index<'v> {
    fn new(capacity: usize) -> Self {
        Self {
            identities: Vec::with_capacity(capacity),
            places: HashMap::with_capacity(capacity),
            marks: RandomState::new(),
        }
    }

    fn add(&mut self, identity: Identity<'v>) {
        let mark = self.mark(&identity);
        self.places.entry(mark).or_default().push(self.identities.len());
        self.identities.push(identity);
    }

    /// The last place of an identity.
    fn find(&self, identity: &[Option<Value<'_>>]) -> Option<usize> {
        let places = self.places.get(&self.mark(identity))?;
        places.iter().rev().copied().find(|at| alike(&self.identities[*at], identity))
    }

    fn mark(&self, identity: &[Option<Value<'_>>]) -> u64 {
        identity.iter().fold(0_u64, |all, value| {
            let one = value.as_ref().map_or(0, |v| mark(&self.marks, v, 0));
            all.rotate_left(5) ^ one
        })
    }
}

/// How deep marks look into values.
const DEEPEST: usize = 8;

/// A number that equal values have in common, and others hardly.
fn mark(by: &RandomState, of: &Value<'_>, depth: usize) -> u64 {
    if depth > DEEPEST {
        return 0;
    }
    match of {
        Value::Bool(b) => by.hash_one((1_u8, b)),
        Value::Int(i) => number(by, *i as f64, i128::from(*i)),
        Value::Uint(u) => number(by, *u as f64, i128::from(*u)),
        Value::Double(f) => number(by, *f, *f as i128),
        Value::String(s) => by.hash_one((3_u8, &**s)),
        Value::Bytes(b) => by.hash_one((4_u8, &**b)),
        Value::Timestamp(t) => by.hash_one((5_u8, t.unix())),
        Value::Duration(d) => by.hash_one((6_u8, d)),
        // Of sets and maps the order says nothing.
        of if of.is_list() => {
            let items = of.items().unwrap_or_default();
            items.iter().fold(7, |all, item| mark(by, item, depth + 1).wrapping_add(all))
        }
        of if of.is_map() => of.keys().iter().fold(8, |all, key| {
            let value = of.entry(key).ok().flatten().map_or(0, |v| mark(by, &v, depth + 1));
            by.hash_one((mark(by, key, depth + 1), value)).wrapping_add(all)
        }),
        _ => 0,
    }
}

/// The mark of a number: numbers that are equal are one, whatever their types.
fn number(by: &RandomState, float: f64, whole: i128) -> u64 {
    if float.fract() == 0.0 && float.abs() < 1e19 {
        by.hash_one((2_u8, whole))
    } else {
        by.hash_one((2_u8, float.to_bits()))
    }
}

/// The values that tell an item of a list apart.
fn identity<'v>(d: &Definition, item: &Value<'v>) -> Result<Identity<'v>, EvalError> {
    if d.list_type != ListType::Map {
        return Ok(vec![Some(item.clone())]);
    }
    let name = |k: &Arc<str>| Value::text(escape(k).unwrap_or_else(|| k.to_string()));
    d.list_map_keys.iter().map(|k| item.entry(&name(k))).collect()
}

impl<'t> Listed<'t> {
    /// The items of a list, by its definition.
    pub(super) fn new(items: Vec<Value<'t>>, d: &'t Definition) -> Self {
        Self { items, d }
    }

    fn index(&self) -> Result<Index<'t>, EvalError> {
        let mut index = Index::new(self.items.len());
        for item in &self.items {
            index.add(identity(self.d, item)?);
        }
        Ok(index)
    }

    /// Whether another list has the same items, in any order.
    pub(super) fn same(&self, other: &Value<'_>) -> Result<bool, EvalError> {
        let others = other.items()?;
        if self.items.len() != others.len() {
            return Ok(false);
        }
        let known = self.index()?;
        for item in &others {
            let Some(at) = known.find(&identity(self.d, item)?) else { return Ok(false) };
            if !equal(&self.items[at], item)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The items of both lists: one that is in both takes the place of the first and the value of the second.
    pub(super) fn merged(self, other: &Value<'t>) -> Result<Value<'t>, EvalError> {
        if !other.is_list() {
            return Err(EvalError::no_overload());
        }
        let mut known = self.index()?;
        let mut items = self.items;
        for item in other.items()? {
            let identity = identity(self.d, &item)?;
            match known.find(&identity) {
                Some(at) => items[at] = item,
                None => {
                    items.push(item);
                    known.add(identity);
                }
            }
        }
        Ok(Value::foreign(Listed { items, d: self.d }))
    }
}

impl Foreign for Listed<'_> {
    fn shape(&self) -> Shape {
        Shape::List
    }
    fn len(&self) -> usize {
        self.items.len()
    }
    fn item<'v>(&self, index: usize) -> Result<Option<Value<'v>>, EvalError>
    where
        Self: 'v,
    {
        Ok(self.items.get(index).cloned())
    }
    fn equals(&self, other: &Value<'_>) -> Option<Result<bool, EvalError>> {
        Some(if other.is_list() { self.same(other) } else { Err(EvalError::no_overload()) })
    }
    fn add<'v>(&self, other: &Value<'v>) -> Option<Result<Value<'v>, EvalError>>
    where
        Self: 'v,
    {
        Some(Listed { items: self.items.clone(), d: self.d }.merged(other))
    }
}

fn alike(a: &[Option<Value<'_>>], b: &[Option<Value<'_>>]) -> bool {
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => equal(a, b).unwrap_or_default(),
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Text;

    fn texts(n: usize, of: fn(usize) -> String) -> Vec<Value<'static>> {
        (0..n).map(|i| Value::String(Text::from(of(i)))).collect()
    }

    #[test]
    fn marks_of_equal_values_are_equal() {
        let by = RandomState::new();
        let check = |a: &Value<'_>, b: &Value<'_>, expected: bool| {
            assert_eq!(mark(&by, a, 0) == mark(&by, b, 0), expected, "{a:?} {b:?}");
        };
        check(&Value::Int(1), &Value::Double(1.0), true);
        check(&Value::Int(1), &Value::Uint(1), true);
        check(&Value::Double(0.0), &Value::Double(-0.0), true);
        check(&Value::Double(1.5), &Value::Double(1.25), false);
        check(&Value::text("a"), &Value::text("b"), false);
        let list = |items: Vec<Value<'static>>| Value::list(items);
        check(&list(texts(2, |i| i.to_string())), &list(texts(2, |i| (1 - i).to_string())), true);
        check(&list(texts(2, |i| i.to_string())), &list(texts(3, |i| i.to_string())), false);
    }

    #[test]
    fn great_sets_are_compared_by_their_marks() {
        // Comparing each item with each other would take hours.
        let d = Definition { list_type: ListType::Set, ..Definition::default() };
        let n = 400_000;
        let set = Listed::new(texts(n, |i| i.to_string()), &d);
        let reversed: Vec<_> = set.items.iter().rev().cloned().collect();
        assert!(set.same(&Value::list(reversed.clone())).unwrap());
        let merged = Listed::new(reversed, &d).merged(&Value::list(set.items.clone())).unwrap();
        assert_eq!(merged.size(), Some(n));
        let mut other = set.items.clone();
        other[7] = Value::text("x");
        assert!(!set.same(&Value::list(other)).unwrap());
    }
}
