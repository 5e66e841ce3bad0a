//! The cost of a call when it is made, by upstream's rules (cel-go's `runtimecost.go`, Kubernetes' `library/cost.go`).

use crate::value::{Opaque, Value};

use super::{FLAT, LIST_BASE, REGEX_FACTOR, STRING_FACTOR, STRUCT_BASE, factor};

/// The size of a value as costs count it.
fn size(v: &Value<'_>) -> u64 {
    match v {
        Value::Optional(Some(v)) => size(v),
        other => other.size().map_or(1, |n| n as u64),
    }
}

/// The size of an argument as Kubernetes' functions count it.
fn plain_size(v: Option<&Value<'_>>) -> u64 {
    v.and_then(Value::size).map_or(1, |n| n as u64)
}

fn traversal(v: &Value<'_>) -> u64 {
    match v {
        Value::String(s) => (s.len() as f64 * STRING_FACTOR) as u64,
        Value::Bytes(b) => (b.len() as f64 * STRING_FACTOR) as u64,
        v if v.is_list() => v.items().unwrap_or_default().iter().map(traversal).sum(),
        v if v.is_map() => v
            .keys()
            .iter()
            .map(|k| traversal(k) + v.entry(k).ok().flatten().map_or(1, |v| traversal(&v)))
            .sum(),
        _ => 1,
    }
}

/// Whether the result of a call is needed to know its cost.
pub(crate) fn needs_result(function: &str, overload: &str) -> bool {
    function == "join" || matches!(overload, "list_slice" | "lists_range" | "list_reverse")
}

/// The cost of a call. `result` is its value, if it has one and the cost depends on it.
pub(crate) fn call(function: &str, overload: &str, args: &[Value<'_>], result: Option<&Value<'_>>) -> u64 {
    if let Some(cost) = extension(overload, args, result) {
        return cost;
    }
    if let Some(cost) = kubernetes(function, overload, args, result) {
        return cost;
    }
    let [first, second] = [args.first().map_or(1, size), args.get(1).map_or(1, size)];
    match overload {
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
        | "strings_quote" | "string_format" => factor(first, STRING_FACTOR),
        "in_list" => second,
        "less_string"
        | "greater_string"
        | "less_equals_string"
        | "greater_equals_string"
        | "less_bytes"
        | "greater_bytes"
        | "less_equals_bytes"
        | "greater_equals_bytes"
        | "equals"
        | "not_equals" => factor(first.min(second), STRING_FACTOR),
        "add_string" | "add_bytes" => factor(first + second, STRING_FACTOR),
        "matches_string" => factor(first + 1, STRING_FACTOR).saturating_mul(factor(second, REGEX_FACTOR)),
        "contains_string" => factor(first, STRING_FACTOR).saturating_mul(factor(second, STRING_FACTOR)),
        _ => 1,
    }
}

/// The functions of cel-go's extensions for lists and sets.
fn extension(overload: &str, args: &[Value<'_>], result: Option<&Value<'_>>) -> Option<u64> {
    let allocating = |factor: f64, size: u64| (size as f64 * factor) as u64 + 1 + LIST_BASE;
    let first = || args.first().map_or(1, |v| plain_size(Some(v)));
    let itself = |list: Option<&Value<'_>>| {
        let size = plain_size(list);
        let text = list
            .and_then(|l| l.item(0).ok().flatten())
            .is_some_and(|i| matches!(i, Value::String(_) | Value::Bytes(_)));
        allocating(if text { 2.0 + STRING_FACTOR } else { 2.0 }, size.saturating_mul(size))
    };
    Some(match overload {
        "list_sets_contains_list" | "list_sets_intersects_list" => {
            1 + first().saturating_mul(plain_size(args.get(1)))
        }
        "list_sets_equivalent_list" => 1 + first().saturating_mul(plain_size(args.get(1))).saturating_mul(2),
        "list_slice" | "lists_range" | "list_reverse" => allocating(1.0, plain_size(result)),
        "list_flatten" => allocating(1.0, first()),
        "list_flatten_int" => match args.get(1) {
            // The conversion of a negative number wraps in Go.
            Some(Value::Int(depth)) => {
                let by = (first() as f64 * *depth as f64) as i64;
                (by as u64).wrapping_add(1 + LIST_BASE)
            }
            _ => allocating(1.0, first()),
        },
        "list_distinct" => itself(args.first()),
        id if id.ends_with("_sort") => itself(args.first()),
        id if id.ends_with("_sortByAssociatedKeys") => itself(args.get(1)),
        _ => return None,
    })
}

/// The functions of Kubernetes, and those of cel-go that Kubernetes counts otherwise.
fn kubernetes(function: &str, overload: &str, args: &[Value<'_>], result: Option<&Value<'_>>) -> Option<u64> {
    let first = || plain_size(args.first());
    let second = || plain_size(args.get(1));
    Some(match function {
        "check" => super::CHECK,
        "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace" | "name"
        | "allowed" | "reason" | "error" | "errored" => 1,
        "fieldSelector" | "labelSelector" => super::selector(second()),
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => args.first().map_or(0, traversal),
        "url"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "jsonpatch.escapeKey"
        | "cidr"
        | "isIP"
        | "isCIDR"
        | "quantity"
        | "isQuantity"
        | "semver"
        | "isSemver" => factor(first(), STRING_FACTOR),
        "replace" | "split" | "ip.isCanonical" => factor(first(), 2.0 * STRING_FACTOR),
        "join" => factor(plain_size(result), 2.0 * STRING_FACTOR),
        "find" | "findAll" => {
            factor(first() + 1, STRING_FACTOR).saturating_mul(factor(second(), REGEX_FACTOR))
        }
        "ip" if overload == "cidr_ip" => 1,
        "ip" => factor(first(), STRING_FACTOR),
        name if FLAT.contains(&name) => 1,
        "containsIP" => {
            let text =
                if overload == "cidr_contains_ip_string" { factor(second(), STRING_FACTOR) } else { 0 };
            factor(2 * first(), STRING_FACTOR) + text
        }
        "containsCIDR" => {
            let text =
                if overload == "cidr_contains_cidr_string" { factor(second(), STRING_FACTOR) } else { 0 };
            factor(2 * first(), STRING_FACTOR) + factor(first(), STRING_FACTOR) + 1 + text
        }
        "validate" => match args.first() {
            Some(Value::Opaque(o)) => match &**o {
                Opaque::Format(f) => factor(second() + 1, STRING_FACTOR)
                    .saturating_mul(factor(f.regex_size as u64, REGEX_FACTOR)),
                _ => return None,
            },
            _ => return None,
        },
        "_==_" if matches!(args.first(), Some(Value::Opaque(_))) => 1,
        _ => return None,
    })
}

/// The cost of an object that is made.
pub(crate) const OBJECT: u64 = STRUCT_BASE;
