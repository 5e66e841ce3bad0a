//! Normal form: which values a tree holds, and how scalars are written in it.

use super::report::Report;
use crate::base64_text;
use crate::quantity::Quantity;
use crate::schema::{Field, FieldNo, Schema, Type, TypeId};
use crate::tree::{Map, Node, Struct, Text};

/// Puts a field's value into a struct, or notes it if the normal form has no place for it.
pub(crate) fn put(into: &mut Struct, no: FieldNo, field: &Field, ty: &Type, value: Node) {
    match (ty, &value) {
        // Go writes a pointer to its zero time as `null`.
        (Type::Time | Type::MicroTime, Node::Str(s)) if crate::time::is_zero(s) => {
            if field.pointer {
                into.push(no, Node::Null);
            } else {
                into.note_empty(no, value);
            }
        }
        _ if keeps(field, ty, &value) => into.push(no, value),
        _ => into.note_empty(no, value),
    }
}

/// Whether a field's value belongs in a tree in normal form.
pub(crate) fn keeps(field: &Field, ty: &Type, value: &Node) -> bool {
    if field.pointer {
        return true;
    }
    match (ty, value) {
        (Type::Quantity, Node::Str(s)) => s != "0",
        (Type::IntOrString, Node::Str(_)) => true,
        (Type::Bytes, Node::Str(s)) => !s.is_empty() || !field.omitempty,
        (Type::Duration, Node::Str(s)) => s != "0s",
        (Type::Any(_) | Type::Or { .. }, v) => *v != Node::Null,
        (_, v) => !v.is_zero(),
    }
}

/// The value that Go gives a list's element or a map's value that is `null`.
pub(crate) fn zero(schema: &Schema, ty: TypeId) -> Node {
    match schema.ty(ty) {
        Type::Bool => Node::Bool(false),
        Type::Int32 | Type::Int64 | Type::IntOrString => Node::Int(0),
        Type::Float64 => Node::Float(0.0),
        Type::String | Type::Bytes => Node::Str(Text::default()),
        Type::Quantity => Node::Str("0".into()),
        Type::Duration => Node::Str("0s".into()),
        Type::Time | Type::MicroTime | Type::Any(_) | Type::Or { .. } => Node::Null,
        Type::List { .. } => Node::List(Vec::new()),
        Type::Map { .. } => Node::Map(Map::new()),
        Type::Struct(s) => Node::Struct(Box::new(Struct::new(*s))),
    }
}

/// The node of a JSON string in the place of a scalar type. A string that does not fit is reported and gives `None`.
pub(crate) fn from_str(report: &mut Report<'_, '_>, ty: TypeId, s: &str) -> Option<Node> {
    match report.schema.ty(ty) {
        Type::String | Type::IntOrString => Some(Node::Str(s.into())),
        Type::Quantity => quantity(report, s),
        Type::Bytes => bytes(report, s),
        Type::Time if is_normal_time(s.as_bytes()) => Some(Node::Str(s.into())),
        Type::Time => match crate::time::parse_time(s).map(crate::time::format) {
            Ok(t) => Some(Node::Str(t)),
            Err(why) => unreadable_time(report, why),
        },
        Type::MicroTime => match crate::time::parse_micro(s).map(crate::time::format_micro) {
            Ok(t) => Some(Node::Str(t)),
            Err(why) => unreadable_time(report, why),
        },
        Type::Duration => {
            let Some(d) = crate::time::parse_duration(s) else {
                report.stop_invalid(format!("time: invalid duration {}", crate::go::quote(s)));
                return None;
            };
            Some(Node::Str(crate::time::format_duration(d)))
        }
        _ => {
            report.mismatch_of("string", ty);
            None
        }
    }
}

/// Whether a text is a time as upstream writes it: most are.
fn is_normal_time(b: &[u8]) -> bool {
    let [y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1, b'T', h0, h1, b':', i0, i1, b':', s0, s1, b'Z'] = *b
    else {
        return false;
    };
    if ![y0, y1, y2, y3, m0, m1, d0, d1, h0, h1, i0, i1, s0, s1].iter().all(u8::is_ascii_digit) {
        return false;
    }
    let two = |a: u8, b: u8| (a - b'0') * 10 + (b - b'0');
    // Days that not every month has, and the year of Go's zero time, are left to the full parser.
    (1..=12).contains(&two(m0, m1))
        && (1..=28).contains(&two(d0, d1))
        && two(h0, h1) < 24
        && two(i0, i1) < 60
        && two(s0, s1) < 60
        && (y0, y1) != (b'0', b'0')
}

fn unreadable_time(report: &mut Report<'_, '_>, why: String) -> Option<Node> {
    report.stop_invalid(why);
    None
}

/// The node of a quantity in canonical form.
pub(crate) fn quantity(report: &mut Report<'_, '_>, s: &str) -> Option<Node> {
    let s = s.trim();
    // Most quantities are a few digits, which are their own canonical form unless a suffix is shorter.
    let b = s.as_bytes();
    let plain = !b.is_empty() && b.len() < 10 && b[0] != b'0' && b.iter().all(u8::is_ascii_digit);
    if plain && !b.ends_with(b"000") {
        return Some(Node::Str(s.into()));
    }
    match Quantity::parse(s) {
        Ok(q) => Some(Node::Str(compact_str::format_compact!("{q}"))),
        Err(e) => {
            report.stop_invalid(e.to_string());
            None
        }
    }
}

fn bytes(report: &mut Report<'_, '_>, s: &str) -> Option<Node> {
    match base64_text::canonical(s) {
        Ok(text) => Some(Node::Str(text)),
        Err(why) => {
            report.invalid(why);
            None
        }
    }
}

/// The node of a JSON number in the place of a scalar type. A number that does not fit is reported and gives `None`.
pub(crate) fn from_number(report: &mut Report<'_, '_>, ty: TypeId, text: &str) -> Option<Node> {
    match report.schema.ty(ty) {
        Type::Int64 => match text.parse() {
            Ok(i) => Some(Node::Int(i)),
            Err(_) => bad_number(report, text, "int64"),
        },
        Type::Int32 => match text.parse::<i32>() {
            Ok(i) => Some(Node::Int(i.into())),
            Err(_) => bad_number(report, text, "int32"),
        },
        Type::IntOrString => {
            let i = text.parse::<i32>().ok();
            if i.is_none() {
                report.stop_mismatch(&format!("number {text}"), "int32");
            }
            i.map(|i| Node::Int(i.into()))
        }
        Type::Float64 => match text.parse::<f64>() {
            Ok(f) if f.is_finite() => Some(Node::Float(f)),
            _ => bad_number(report, text, "float64"),
        },
        Type::Quantity => quantity(report, text),
        Type::Time | Type::MicroTime | Type::Duration => {
            report.stop_mismatch("number", "string");
            None
        }
        _ => {
            report.mismatch_of("number", ty);
            None
        }
    }
}

fn bad_number(report: &mut Report<'_, '_>, text: &str, ty: &str) -> Option<Node> {
    report.mismatch(&format!("number {text}"), ty);
    None
}

/// The node of `true` or `false` in the place of a scalar type. A boolean that does not fit is reported and gives
/// `None`.
pub(crate) fn from_bool(report: &mut Report<'_, '_>, ty: TypeId, b: bool) -> Option<Node> {
    match report.schema.ty(ty) {
        Type::Bool => Some(Node::Bool(b)),
        Type::IntOrString => {
            report.stop_mismatch("bool", "int32");
            None
        }
        Type::Time | Type::MicroTime | Type::Duration => {
            report.stop_mismatch("bool", "string");
            None
        }
        Type::Quantity => quantity(report, if b { "true" } else { "false" }),
        _ => {
            report.mismatch_of("bool", ty);
            None
        }
    }
}

/// Reports an object or an array (`what`) in the place of a type that is neither.
pub(crate) fn from_compound(report: &mut Report<'_, '_>, ty: TypeId, what: &str) {
    match report.schema.ty(ty) {
        Type::IntOrString => report.stop_mismatch(what, "int32"),
        Type::Time | Type::MicroTime | Type::Duration => report.stop_mismatch(what, "string"),
        Type::Quantity => {
            quantity(report, "{}");
        }
        _ => report.mismatch_of(what, ty),
    }
}

/// Sorts the maps of a schema, to which entries were appended in the order of arrival.
pub(crate) fn settle(schema: &Schema, tree: &mut Struct) {
    let st = schema.st(tree.id);
    for (no, node) in tree.iter_mut() {
        settle_node(schema, st.at(no).ty, node);
    }
}

fn settle_node(schema: &Schema, ty: TypeId, node: &mut Node) {
    match (schema.ty(ty), node) {
        (Type::Map { of, .. }, Node::Map(map)) => {
            map.settle();
            map.iter_mut().for_each(|(_, n)| settle_node(schema, *of, n));
        }
        (Type::List { of, .. }, Node::List(list)) => {
            for n in list {
                settle_node(schema, *of, n);
            }
        }
        (Type::Or { .. }, Node::List(list)) => {
            list.iter_mut().filter_map(Node::as_struct_mut).for_each(|s| settle(schema, s));
        }
        (_, Node::Struct(s)) => settle(schema, s),
        _ => {}
    }
}

/// Brings the values that a definition describes into their form: fields that it does not know are dropped, and named
/// in the complaints.
pub(crate) fn prune(schema: &Schema, tree: &mut Struct, strict: &mut Vec<String>) {
    let Some(rest) = &schema.st(tree.id).rest else { return };
    let Some(values) = tree.get_mut(rest.field).and_then(Node::as_map_mut) else { return };
    let mut unknown =
        if rest.values.has_embedded() { rest.values.coerce_embedded(schema, values) } else { Vec::new() };
    unknown.extend(rest.values.prune(values));
    strict.extend(unknown.into_iter().map(|path| format!("unknown field \"{path}\"")));
}

/// Sorts entries by key. Of entries with the same key it keeps the last and reports the others.
pub(crate) fn distinct(report: &mut Report<'_, '_>, mut entries: Vec<(Text, Node)>) -> Map {
    if !entries.windows(2).all(|w| w[0].0 < w[1].0) {
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        let mut out: Vec<(Text, Node)> = Vec::with_capacity(entries.len());
        for entry in entries {
            match out.last_mut() {
                Some(last) if last.0 == entry.0 => {
                    report.duplicate(&entry.0);
                    *last = entry;
                }
                _ => out.push(entry),
            }
        }
        entries = out;
    }
    Map::from_entries(entries)
}

/// Like [`distinct`], but in the order of arrival: for values that upstream keeps as raw JSON.
pub(crate) fn distinct_in_order(entries: Vec<(Text, Node)>) -> Map {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by(|a, b| entries[*a].0.cmp(&entries[*b].0));
    let mut drop = vec![false; entries.len()];
    let mut any = false;
    for w in order.windows(2) {
        if entries[w[0]].0 == entries[w[1]].0 {
            drop[w[0]] = true;
            any = true;
        }
    }
    if !any {
        return Map::from_entries(entries);
    }
    Map::from_entries(entries.into_iter().zip(drop).filter(|(_, d)| !d).map(|(e, _)| e).collect())
}
