//! The estimated costs of Kubernetes' functions and of cel-go's extensions (`library/cost.go`, `ext/lists.go`).

use std::sync::Arc;

use crate::ast::Literal;
use crate::types::Type;

use super::range::scaled;
use super::{CHECK, FLAT, LIST_BASE, REGEX_FACTOR, Range, STRING_FACTOR};

/// Knows the greatest size of the value at a path, of a type.
pub(crate) type Sizes<'a> = dyn Fn(&[&str], &Type) -> Option<Range> + 'a;

/// An argument of a call.
pub(super) struct Argument<'a> {
    pub(super) path: Vec<Arc<str>>,
    pub(super) ty: Type,
    pub(super) literal: Option<&'a Literal>,
    pub(super) size: Option<Range>,
}

type Estimate = Option<(Range, Option<Range>)>;

const ONE: Range = Range { min: 1, max: 1 };

/// The size of an argument.
fn size(known: &Sizes<'_>, of: &Argument<'_>) -> Range {
    of.size.unwrap_or_else(|| {
        let path: Vec<&str> = of.path.iter().map(|p| &**p).collect();
        known(&path, &of.ty).unwrap_or(Range::UNKNOWN)
    })
}

/// The type of a list's items, and their size.
fn items(known: &Sizes<'_>, list: &Argument<'_>) -> Option<(Type, Range)> {
    let of = list.ty.parameters().first().copied()?.clone();
    let mut path: Vec<&str> = list.path.iter().map(|p| &**p).collect();
    if !path.is_empty() {
        path.push("@items");
    }
    let size = known(&path, &of).unwrap_or(Range::UNKNOWN);
    Some((of, size))
}

fn number(of: &Argument<'_>, default: u64) -> u64 {
    match of.literal {
        Some(Literal::Int(i)) => u64::try_from(*i).unwrap_or(0),
        _ => default,
    }
}

/// The functions of cel-go's extensions for lists and sets.
pub(super) fn extension(
    known: &Sizes<'_>,
    id: &str,
    target: Option<&Argument<'_>>,
    args: &[Argument<'_>],
) -> Estimate {
    let made =
        |by: f64, size: Range| Some((size.factor(by).plus(ONE).plus(Range::fixed(LIST_BASE)), Some(size)));
    let itself = |list: &Argument<'_>| {
        let size = size(known, list);
        let text = ["_string_", "list_string", "list_bytes"].iter().any(|t| id.contains(t));
        made(if text { 2.0 + STRING_FACTOR } else { 2.0 }, size.times(size))
    };
    match (id, target, args) {
        ("list_sets_contains_list" | "list_sets_intersects_list", _, [a, b]) => {
            Some((size(known, a).times(size(known, b)).factor(1.0).plus(ONE), None))
        }
        ("list_sets_equivalent_list", _, [a, b]) => {
            Some((size(known, a).times(size(known, b)).factor(2.0).plus(ONE), None))
        }
        ("list_slice", Some(list), [start, end]) => {
            let end = number(end, size(known, list).max);
            made(1.0, Range::fixed(end.wrapping_sub(number(start, 0))))
        }
        ("lists_range", None, [n]) => made(1.0, Range::fixed(number(n, u64::MAX))),
        ("list_reverse", Some(list), []) => made(1.0, size(known, list)),
        ("list_flatten", Some(list), []) => made(1.0, size(known, list)),
        ("list_flatten_int", Some(list), [depth]) => made(number(depth, u64::MAX) as f64, size(known, list)),
        ("list_distinct", Some(list), []) => {
            let size = size(known, list);
            made(2.0, size.times(size))
        }
        (id, Some(list), []) if id.ends_with("_sort") => itself(list),
        (id, Some(_), [keys]) if id.ends_with("_sortByAssociatedKeys") => itself(keys),
        _ => None,
    }
}

fn selector(length: Range) -> Range {
    Range { min: super::selector(length.min), max: super::selector(length.max) }
}

/// The functions of Kubernetes, and those of cel-go that Kubernetes counts otherwise.
pub(super) fn kubernetes(
    known: &Sizes<'_>,
    function: &str,
    id: &str,
    target: Option<&Argument<'_>>,
    args: &[Argument<'_>],
) -> Estimate {
    let read = |of: &Argument<'_>| size(known, of).factor(STRING_FACTOR);
    Some(match (function, target, args) {
        ("check", _, _) => (Range::fixed(CHECK), None),
        (
            "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace" | "name"
            | "allowed" | "reason" | "error" | "errored",
            _,
            _,
        ) => (ONE, None),
        ("fieldSelector" | "labelSelector", _, [text]) => (selector(size(known, text)), None),
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(list), _) => {
            (through(known, list), None)
        }
        ("url" | "jsonpatch.escapeKey", _, [text]) => (read(text), Some(size(known, text))),
        ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(text), _) => {
            (read(text), Some(size(known, text)))
        }
        ("replace", Some(text), [old, new, ..]) => {
            let [text, old, new] = [text, old, new].map(|a| size(known, a));
            (text.factor(2.0 * STRING_FACTOR), Some(replaced(text, old, new)))
        }
        ("split", Some(text), args) => {
            let text = size(known, text);
            let max = match args.get(1).and_then(|a| a.literal) {
                Some(Literal::Int(n)) => *n as u64,
                _ => text.max,
            };
            (text.factor(2.0 * STRING_FACTOR), Some(Range { min: 0, max }))
        }
        ("join", Some(list), args) => {
            let all = joined(known, list, args.first());
            (all.factor(STRING_FACTOR), Some(all))
        }
        ("find" | "findAll", Some(text), [pattern, ..]) => {
            let text = size(known, text);
            let pattern = size(known, pattern).factor(REGEX_FACTOR);
            let cost = text.plus(ONE).factor(STRING_FACTOR).times(pattern);
            (cost, Some(Range { min: 0, max: text.max }))
        }
        ("ip", _, _) if id == "cidr_ip" => (ONE, None),
        (
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver",
            _,
            [text, ..],
        ) => (read(text), None),
        ("ip.isCanonical", _, [text, ..]) => (size(known, text).factor(2.0 * STRING_FACTOR), None),
        ("containsIP" | "containsCIDR", _, [of, ..]) => (contained(function, id, read(of)), None),
        ("validate", _, [text, ..]) => (read(text).factor(128.0 * REGEX_FACTOR), None),
        ("_==_", _, [a, b]) if a.ty == b.ty => (same(a, b)?, None),
        (name, _, _) if FLAT.contains(&name) => (ONE, None),
        _ => return None,
    })
}

/// The cost of going through a list.
fn through(known: &Sizes<'_>, list: &Argument<'_>) -> Range {
    let Some((of, item)) = items(known, list) else {
        return size(known, list).factor(STRING_FACTOR);
    };
    let each = match of {
        Type::String | Type::Bytes => ONE.plus(item.factor(STRING_FACTOR)),
        _ => ONE,
    };
    size(known, list).times(each)
}

/// The size of a text in which parts are replaced.
fn replaced(text: Range, old: Range, new: Range) -> Range {
    let (mut count, mut rest) = (Range::ZERO, Range::ZERO);
    if old.min == 0 {
        count.max = text.max.saturating_add(1);
        rest.max = text.max;
    } else if new.max <= old.min {
        rest.max = text.max;
    } else {
        count.max = (text.max as f64 / old.min as f64).ceil() as u64;
    }
    if old.max == 0 {
        count.min = text.min.saturating_add(1);
        rest.min = text.min;
    } else if old.max <= new.min {
        rest.min = text.min;
    } else {
        count.min = (text.min as f64 / old.max as f64).ceil() as u64;
    }
    count.times(new).plus(rest)
}

fn joined(known: &Sizes<'_>, list: &Argument<'_>, separator: Option<&Argument<'_>>) -> Range {
    let length = size(known, list);
    let all = items(known, list).map_or(Range::ZERO, |(_, item)| length.times(item));
    match separator {
        None => all,
        Some(separator) => {
            let between = Range { min: length.min.saturating_sub(1), max: length.max.saturating_sub(1) };
            all.plus(size(known, separator).times(between))
        }
    }
}

/// The cost of looking whether a network contains an address or a network.
fn contained(function: &str, id: &str, text: Range) -> Range {
    let address = Range { min: 4, max: 16 };
    let mut cost = address.plus(address).factor(STRING_FACTOR);
    if function == "containsCIDR" {
        cost = cost.plus(address.factor(STRING_FACTOR)).plus(ONE);
    }
    if id.ends_with("_string") { cost.plus(text) } else { cost }
}

/// The cost of comparing two values of a library.
fn same(a: &Argument<'_>, b: &Argument<'_>) -> Option<Range> {
    match &a.ty {
        Type::Opaque(name, _) if matches!(&**name, "net.IP" | "net.CIDR") => Some(ONE),
        Type::Object(name) => match &**name {
            "kubernetes.NamedFormat" => {
                Some(Range { min: scaled(1, STRING_FACTOR), max: scaled(64, STRING_FACTOR) })
            }
            "kubernetes.URL" => {
                let size = b.size.unwrap_or(ONE);
                Some(Range { min: 1, max: size.max }.factor(STRING_FACTOR))
            }
            "kubernetes.Quantity" | "kubernetes.Semver" => Some(ONE),
            name if name.starts_with("kubernetes.authorization.") => Some(ONE),
            _ => None,
        },
        _ => None,
    }
}
