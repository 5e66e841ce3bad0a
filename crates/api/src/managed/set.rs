//! Sets of fields: which places of an object somebody manages, and their JSON form (`FieldsV1`).

use std::cmp::Ordering;
use std::fmt::{self, Write};

use super::value;
use crate::codec::json;
use crate::go::quote;
use crate::tree::{Map, Node, Text};

/// A step from a value to one of its parts.
#[derive(Debug, Clone, PartialEq)]
pub enum Element {
    /// A field of a struct or a key of a map.
    Field(Text),
    /// The element of a list that has these keys, sorted by name.
    Key(Vec<(Text, Node)>),
    /// The element of a set.
    Value(Node),
    /// The element of a list at a place.
    Index(i64),
}

impl Eq for Element {}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Element {
    /// Upstream's order, in which a set is written: fields, keys, values, indexes.
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => a
                .iter()
                .zip(b)
                .map(|(x, y)| x.0.cmp(&y.0).then_with(|| value::order(&x.1, &y.1)))
                .find(|o| o.is_ne())
                .unwrap_or_else(|| a.len().cmp(&b.len())),
            (Self::Value(a), Self::Value(b)) => value::order(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl fmt::Display for Element {
    /// As in paths of conflicts: `.name`, `[name="a"]`, `[="a"]`, `[0]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                f.write_char('[')?;
                for (i, (name, v)) in keys.iter().enumerate() {
                    if i > 0 {
                        f.write_char(',')?;
                    }
                    write!(f, "{name}={}", shown(v))?;
                }
                f.write_char(']')
            }
            Self::Value(v) => write!(f, "[={}]", shown(v)),
            Self::Index(i) => write!(f, "[{i}]"),
        }
    }
}

fn shown(v: &Node) -> String {
    match v {
        Node::Str(s) => quote(s),
        Node::Null => "null".into(),
        other => {
            let mut out = Vec::new();
            json::encode_any(other, &mut out);
            String::from_utf8_lossy(&out).into_owned()
        }
    }
}

impl Element {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }

    /// The step's key in `FieldsV1`.
    fn text(&self) -> Text {
        let json = |v: &Node, out: &mut Vec<u8>| json::encode_any(v, out);
        match self {
            Self::Field(name) => {
                let mut text = Text::with_capacity(name.len() + 2);
                text.push_str("f:");
                text.push_str(name);
                text
            }
            Self::Key(keys) => {
                let mut out = Vec::with_capacity(32);
                out.extend_from_slice(b"k:{");
                for (i, (name, v)) in keys.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    json::write_string(name, &mut out);
                    out.push(b':');
                    json(v, &mut out);
                }
                out.push(b'}');
                Text::from_utf8_lossy(&out)
            }
            Self::Value(v) => {
                let mut out = b"v:".to_vec();
                json(v, &mut out);
                Text::from_utf8_lossy(&out)
            }
            Self::Index(i) => compact_str::format_compact!("i:{i}"),
        }
    }

    /// Reads a step from its key in `FieldsV1`; `None` for a kind of step that only a later version may know.
    fn parse(text: &str) -> Result<Option<Self>, String> {
        let (Some(kind), Some(colon)) = (text.as_bytes().first(), text.as_bytes().get(1)) else {
            return Err("key must be 2 characters long:".into());
        };
        if *colon != b':' {
            return Err(format!("missing colon: {text}"));
        }
        let rest = &text[2..];
        let read = |s: &str| json::decode_any(s.as_bytes()).map_err(|e| e.to_string());
        Ok(Some(match kind {
            b'f' => Self::Field(rest.into()),
            b'v' => Self::Value(read(rest)?),
            b'k' => match read(rest)? {
                Node::Map(mut m) => {
                    m.sort();
                    Self::Key(m.into_entries())
                }
                _ => return Err(format!("no keys: {text}")),
            },
            b'i' => Self::Index(
                rest.parse().map_err(|_| format!("strconv.Atoi: parsing {}: invalid syntax", quote(rest)))?,
            ),
            _ => return Ok(None),
        }))
    }
}

/// A path as conflicts show it: `.spec.containers[name="a"].image`.
pub fn path_text<'e>(path: impl IntoIterator<Item = &'e Element>) -> String {
    path.into_iter().fold(String::new(), |mut s, e| {
        let _ = write!(s, "{e}");
        s
    })
}

/// One step of a set: whether the place itself belongs to it, and the members below it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) element: Element,
    pub(super) member: bool,
    pub(super) under: FieldSet,
}

/// A set of fields. No entry is empty: each is a member or has members below it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FieldSet {
    pub(super) entries: Vec<Entry>,
}

impl FieldSet {
    /// A set of paths of field names.
    pub fn of_names(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<Element> = path.iter().map(|n| Element::Field((*n).into())).collect();
            set.insert(&path);
        }
        set
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn find(&self, element: &Element) -> Option<&Entry> {
        self.entries.binary_search_by(|e| e.element.cmp(element)).ok().map(|i| &self.entries[i])
    }

    pub(super) fn under(&self, element: &Element) -> Option<&FieldSet> {
        self.find(element).map(|e| &e.under).filter(|s| !s.is_empty())
    }

    pub(super) fn has_member(&self, element: &Element) -> bool {
        self.find(element).is_some_and(|e| e.member)
    }

    /// Whether the place at a path belongs to the set.
    pub fn has(&self, path: &[&Element]) -> bool {
        match path {
            [] => false,
            [last] => self.has_member(last),
            [first, rest @ ..] => self.under(first).is_some_and(|s| s.has(rest)),
        }
    }

    /// Adds the place at a path.
    pub fn insert(&mut self, path: &[Element]) {
        let Some((first, rest)) = path.split_first() else { return };
        let i = match self.entries.binary_search_by(|e| e.element.cmp(first)) {
            Ok(i) => i,
            Err(i) => {
                let entry = Entry { element: first.clone(), member: false, under: Self::default() };
                self.entries.insert(i, entry);
                i
            }
        };
        if rest.is_empty() {
            self.entries[i].member = true;
        } else {
            self.entries[i].under.insert(rest);
        }
    }

    /// Adds an entry, unless it is empty. Entries that come in their order are appended.
    pub(super) fn push(&mut self, entry: Entry) {
        if !entry.member && entry.under.is_empty() {
            return;
        }
        if self.entries.last().is_none_or(|l| l.element < entry.element) {
            self.entries.push(entry);
            return;
        }
        match self.entries.binary_search_by(|e| e.element.cmp(&entry.element)) {
            Ok(i) => {
                let there = &mut self.entries[i];
                there.member |= entry.member;
                there.under = std::mem::take(&mut there.under).union(entry.under);
            }
            Err(i) => self.entries.insert(i, entry),
        }
    }

    /// The members of either set.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let mut entries = Vec::with_capacity(self.entries.len() + other.entries.len());
        let (mut a, mut b) = (self.entries.into_iter().peekable(), other.entries.into_iter().peekable());
        loop {
            let order = match (a.peek(), b.peek()) {
                (Some(x), Some(y)) => x.element.cmp(&y.element),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return Self { entries },
            };
            match order {
                Ordering::Less => entries.extend(a.next()),
                Ordering::Greater => entries.extend(b.next()),
                Ordering::Equal => entries.extend(a.next().zip(b.next()).map(|(x, y)| Entry {
                    element: x.element,
                    member: x.member || y.member,
                    under: x.under.union(y.under),
                })),
            }
        }
    }

    /// The members of any of the sets.
    pub fn union_all(mut sets: Vec<Self>) -> Self {
        // The sets are joined in pairs: one after the other, the first members would be gone through again with each.
        while sets.len() > 1 {
            let mut pairs = Vec::with_capacity(sets.len().div_ceil(2));
            let mut all = sets.into_iter();
            while let Some(one) = all.next() {
                pairs.push(match all.next() {
                    Some(other) => one.union(other),
                    None => one,
                });
            }
            sets = pairs;
        }
        sets.pop().unwrap_or_default()
    }

    /// Makes a set from entries in any order, of which several may be of the same step.
    fn from_entries(mut entries: Vec<Entry>) -> Self {
        entries.retain(|e| e.member || !e.under.is_empty());
        if entries.windows(2).all(|w| w[0].element < w[1].element) {
            return Self { entries };
        }
        entries.sort_by(|a, b| a.element.cmp(&b.element));
        let mut out: Vec<Entry> = Vec::with_capacity(entries.len());
        let mut more: Vec<FieldSet> = Vec::new();
        let close = |out: &mut Vec<Entry>, more: &mut Vec<FieldSet>| {
            if let Some(last) = out.last_mut().filter(|_| !more.is_empty()) {
                more.push(std::mem::take(&mut last.under));
                last.under = Self::union_all(std::mem::take(more));
            }
        };
        for e in entries {
            match out.last_mut() {
                Some(last) if last.element == e.element || last.element.cmp(&e.element).is_eq() => {
                    last.member |= e.member;
                    more.push(e.under);
                }
                _ => {
                    close(&mut out, &mut more);
                    out.push(e);
                }
            }
        }
        close(&mut out, &mut more);
        Self { entries: out }
    }

    /// The members of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut out = Self::default();
        for (a, b) in self.entries.iter().filter_map(|e| Some((e, other.find(&e.element)?))) {
            out.push(Entry {
                element: a.element.clone(),
                member: a.member && b.member,
                under: a.under.intersection(&b.under),
            });
        }
        out
    }

    /// The members of this set only. To take a place away leaves the members below it.
    #[must_use]
    pub fn difference(mut self, other: &Self) -> Self {
        if !other.is_empty() {
            self.subtract(other, false);
        }
        self
    }

    /// Like [`FieldSet::difference`], but to take a place away takes all below it.
    #[must_use]
    pub fn recursive_difference(mut self, other: &Self) -> Self {
        if !other.is_empty() {
            self.subtract(other, true);
        }
        self
    }

    fn subtract(&mut self, other: &Self, recursive: bool) {
        self.entries.retain_mut(|e| {
            let Some(gone) = other.find(&e.element) else { return true };
            if gone.member {
                if recursive {
                    return false;
                }
                e.member = false;
            }
            e.under.subtract(&gone.under, recursive);
            e.member || !e.under.is_empty()
        });
    }

    /// The members without other members below them.
    pub fn leaves(&self) -> Self {
        let entries = self
            .entries
            .iter()
            .map(|e| Entry {
                element: e.element.clone(),
                member: e.under.is_empty(),
                under: e.under.leaves(),
            })
            .collect();
        Self { entries }
    }

    /// Keeps the paths that begin with one of the patterns; `None` in a pattern stands for any step.
    pub fn matching(&self, patterns: &[&[Option<&str>]]) -> Self {
        let mut out = Self::default();
        for e in &self.entries {
            let below: Vec<&[Option<&str>]> = patterns
                .iter()
                .filter_map(|p| p.split_first())
                .filter(|(first, _)| match (first, &e.element) {
                    (None, _) => true,
                    (Some(name), Element::Field(f)) => f == name,
                    _ => false,
                })
                .map(|(_, rest)| rest)
                .collect();
            if below.is_empty() {
                continue;
            }
            let under =
                if below.iter().any(|p| p.is_empty()) { e.under.clone() } else { e.under.matching(&below) };
            out.push(Entry { element: e.element.clone(), member: e.member, under });
        }
        out
    }

    /// Calls `f` with every path, the places of a level before those below them.
    pub fn each_path(&self, f: &mut dyn FnMut(&[&Element])) {
        fn walk<'s>(set: &'s FieldSet, prefix: &mut Vec<&'s Element>, f: &mut dyn FnMut(&[&Element])) {
            for e in set.entries.iter().filter(|e| e.member) {
                prefix.push(&e.element);
                f(prefix);
                prefix.pop();
            }
            for e in &set.entries {
                prefix.push(&e.element);
                walk(&e.under, prefix, f);
                prefix.pop();
            }
        }
        walk(self, &mut Vec::new(), f);
    }

    /// The set as `FieldsV1`, as a value.
    pub fn to_node(&self) -> Node {
        Node::Map(self.to_map(false))
    }

    fn to_map(&self, with_self: bool) -> Map {
        let mut out = Vec::with_capacity(self.entries.len() + usize::from(with_self));
        if with_self && !self.is_empty() {
            out.push((Text::const_new("."), Node::Map(Map::new())));
        }
        for e in &self.entries {
            out.push((e.element.text(), Node::Map(e.under.to_map(e.member))));
        }
        Map::from_entries(out)
    }

    /// Reads a set from `FieldsV1`.
    pub fn from_node(node: &Node) -> Result<Self, String> {
        match node {
            Node::Map(m) => Self::from_map(m).map(|(set, _)| set),
            Node::Null => Ok(Self::default()),
            _ => Err("fieldsV1 is no object".into()),
        }
    }

    /// The set, and whether the place itself belongs to the set above.
    fn from_map(map: &Map) -> Result<(Self, bool), String> {
        let mut entries = Vec::with_capacity(map.len());
        let mut member = false;
        for (key, value) in map.iter() {
            if key == "." {
                member = true;
                continue;
            }
            let Some(element) = Element::parse(key)? else { continue };
            let (under, member) = match value {
                Node::Map(m) => Self::from_map(m)?,
                Node::Null => (Self::default(), true),
                _ => return Err(format!("the value of {key} is no object")),
            };
            entries.push(Entry { element, member, under });
        }
        let set = Self::from_entries(entries);
        let member = member || set.is_empty();
        Ok((set, member))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> FieldSet {
        FieldSet::from_node(&json::decode_any(text.as_bytes()).unwrap()).unwrap()
    }

    fn text(set: &FieldSet) -> String {
        let mut out = Vec::new();
        json::encode_any(&set.to_node(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn round_trips() {
        for t in [
            r"{}",
            r#"{"f:a":{".":{},"f:b":{}},"f:c":{}}"#,
            r#"{"f:l":{"k:{\"name\":\"x\",\"port\":80}":{".":{},"f:v":{}},"k:{\"name\":\"y\"}":{}}}"#,
            r#"{"f:s":{"v:1":{},"v:\"a\"":{},"v:true":{}}}"#,
            r#"{"f:a/b~\"c\"":{},"i:3":{}}"#,
        ] {
            assert_eq!(text(&set(t)), t);
        }
        // The entries are out of order, and one has a step of an unknown kind.
        assert_eq!(text(&set(r#"{"f:b":{},"x:1":{},"f:a":{"f:c":{}}}"#)), r#"{"f:a":{"f:c":{}},"f:b":{}}"#);
        for bad in [r#"{"f":{}}"#, r#"{"fa":{}}"#, r#"{"v:{":{}}"#, r#"{"i:x":{}}"#, r#"{"f:a":1}"#] {
            assert!(FieldSet::from_node(&json::decode_any(bad.as_bytes()).unwrap()).is_err(), "{bad}");
        }
    }

    #[test]
    fn operations() {
        let a = set(r#"{"f:a":{".":{},"f:b":{},"f:c":{}},"f:d":{}}"#);
        let b = set(r#"{"f:a":{"f:b":{}},"f:d":{"f:e":{}}}"#);
        assert_eq!(
            text(&a.clone().union(b.clone())),
            r#"{"f:a":{".":{},"f:b":{},"f:c":{}},"f:d":{".":{},"f:e":{}}}"#
        );
        assert_eq!(text(&a.intersection(&b)), r#"{"f:a":{"f:b":{}}}"#);
        assert_eq!(text(&a.clone().difference(&b)), r#"{"f:a":{".":{},"f:c":{}},"f:d":{}}"#);
        let whole = set(r#"{"f:a":{}}"#);
        assert_eq!(text(&a.clone().difference(&whole)), r#"{"f:a":{"f:b":{},"f:c":{}},"f:d":{}}"#);
        assert_eq!(text(&a.clone().recursive_difference(&whole)), r#"{"f:d":{}}"#);
        assert_eq!(text(&b.recursive_difference(&set(r#"{"f:d":{"f:e":{}}}"#))), r#"{"f:a":{"f:b":{}}}"#);
        assert_eq!(text(&a.leaves()), r#"{"f:a":{"f:b":{},"f:c":{}},"f:d":{}}"#);
        let mut paths = Vec::new();
        a.each_path(&mut |p| paths.push(path_text(p.iter().copied())));
        assert_eq!(paths, [".a", ".d", ".a.b", ".a.c"]);
        assert_eq!(text(&a.matching(&[&[Some("a"), Some("b")]])), r#"{"f:a":{".":{},"f:b":{}}}"#);
    }
}
