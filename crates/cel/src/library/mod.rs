//! What functions do.

mod authorizer;
mod dates;
mod format;
mod lists;
mod names;
mod net;
mod operators;
mod quantity;
mod regex;
mod semver;
mod strings;
mod url;

pub(crate) use authorizer::{ask, decision};
pub(crate) use format::{Clause, check_format};
pub(crate) use regex::{Pattern, compile, find_with};

use crate::error::EvalError;
use crate::types::Type;
use crate::value::{Opaque, Value, convert};

/// The result of a function; `None` if it does not know such arguments.
pub(crate) type Outcome<'a> = Option<Result<Value<'a>, EvalError>>;

/// A function.
pub(crate) type Function = for<'a> fn(&[Value<'a>]) -> Outcome<'a>;

/// Calls a function with arguments.
pub(crate) fn call<'a>(name: &str, function: Function, args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    function(args).unwrap_or_else(|| {
        let types: Vec<_> = args.iter().map(Value::type_name).collect();
        Err(EvalError::new(format!("no such overload: {name}({})", types.join(", "))))
    })
}

/// What a function does, by its name. Those that look at more than their arguments are not here.
pub(crate) fn find(name: &str) -> Option<Function> {
    operator(name).or_else(|| text_or_list(name)).or_else(|| kubernetes(name))
}

/// What a function does for one overload alone.
pub(crate) fn find_overload(id: &str) -> Option<Function> {
    Some(match id {
        "list_uint_sum_uint" => |args| lists::sum(args, Value::Uint(0)),
        "list_double_sum_double" => |args| lists::sum(args, Value::Double(0.0)),
        "list_duration_sum_duration" => |args| lists::sum(args, Value::Duration(0)),
        _ => return None,
    })
}

fn operator(name: &str) -> Option<Function> {
    Some(match name {
        "!_" => operators::not,
        "_==_" => operators::equals,
        "_!=_" => operators::differs,
        "_+_" => operators::add,
        "_-_" => operators::subtract,
        "_*_" => operators::multiply,
        "_/_" => operators::divide,
        "_%_" => operators::modulo,
        "-_" => operators::negate,
        "_<_" => operators::less,
        "_<=_" => operators::less_equals,
        "_>_" => operators::greater,
        "_>=_" => operators::greater_equals,
        "@in" => operators::within,
        "size" => operators::size,
        "type" => operators::type_of,
        "dyn" => |args| args.first().map(|v| Ok(v.clone())),
        "bool" => |args| Some(convert(args.first()?, &Type::Bool)),
        "bytes" => |args| Some(convert(args.first()?, &Type::Bytes)),
        "double" => |args| Some(convert(args.first()?, &Type::Double)),
        "duration" => |args| Some(convert(args.first()?, &Type::Duration)),
        "int" => |args| Some(convert(args.first()?, &Type::Int)),
        "string" => |args| Some(convert(args.first()?, &Type::String)),
        "timestamp" => |args| Some(convert(args.first()?, &Type::Timestamp)),
        "uint" => |args| Some(convert(args.first()?, &Type::Uint)),
        "getFullYear" => |args| dates::part(args, |f| f.year),
        "getMonth" => |args| dates::part(args, |f| f.month),
        "getDayOfYear" => |args| dates::part(args, |f| f.day_of_year),
        "getDayOfMonth" => |args| dates::part(args, |f| f.day - 1),
        "getDate" => |args| dates::part(args, |f| f.day),
        "getDayOfWeek" => |args| dates::part(args, |f| f.weekday),
        "getHours" => |args| dates::clock(args, |f| f.hour, 3_600_000_000_000),
        "getMinutes" => |args| dates::clock(args, |f| f.minute, 60_000_000_000),
        "getSeconds" => |args| dates::clock(args, |f| f.second, 1_000_000_000),
        "getMilliseconds" => |args| dates::clock(args, |f| f.milli, 1_000_000),
        _ => return None,
    })
}

fn text_or_list(name: &str) -> Option<Function> {
    Some(match name {
        "contains" => strings::contains,
        "startsWith" => strings::starts_with,
        "endsWith" => strings::ends_with,
        "charAt" => strings::char_at,
        "indexOf" => strings::index_of,
        "lastIndexOf" => strings::last_index_of,
        "lowerAscii" => strings::lower,
        "upperAscii" => strings::upper,
        "trim" => strings::trim,
        "replace" => strings::replace,
        "split" => strings::split,
        "substring" => strings::substring,
        "join" => strings::join,
        "strings.quote" => strings::quote,
        "format" => format::format,
        "jsonpatch.escapeKey" => strings::escape_key,
        "isSorted" => lists::is_sorted,
        "sum" => |args| lists::sum(args, Value::Int(0)),
        "max" => lists::max,
        "min" => lists::min,
        "sets.contains" => lists::set_contains,
        "sets.equivalent" => lists::set_equivalent,
        "sets.intersects" => lists::set_intersects,
        "slice" => lists::slice,
        "flatten" => lists::flatten,
        "sort" => lists::sort,
        "@sortByAssociatedKeys" => lists::sort_by,
        "lists.range" => lists::range,
        "reverse" => lists::reverse,
        "distinct" => lists::distinct,
        "first" => lists::first,
        "last" => lists::last,
        "optional.unwrap" | "unwrapOpt" => lists::unwrap,
        "optional.of" => lists::optional_of,
        "optional.none" => lists::optional_none,
        "optional.ofNonZeroValue" => lists::optional_non_zero,
        "value" => lists::optional_value,
        "hasValue" => lists::optional_has_value,
        "cel.@mapInsert" => lists::map_insert,
        "matches" | "find" | "findAll" => return regex::function(name),
        _ => return None,
    })
}

fn kubernetes(name: &str) -> Option<Function> {
    Some(match name {
        "url" => url::url,
        "isURL" => url::is_url,
        "getScheme" => url::scheme_name,
        "getHost" => url::host,
        "getHostname" => url::hostname,
        "getPort" => url::port,
        "getEscapedPath" => url::escaped_path,
        "getQuery" => url::query,
        "quantity" => quantity::quantity,
        "isQuantity" => quantity::is_quantity,
        "sign" => quantity::sign,
        "asApproximateFloat" => quantity::as_float,
        "asInteger" => quantity::as_integer,
        "isInteger" => quantity::is_integer,
        "add" => quantity::add,
        "sub" => quantity::sub,
        "isGreaterThan" => |args| ordered(args).map(|o| Ok(Value::Bool(o.is_gt()))),
        "isLessThan" => |args| ordered(args).map(|o| Ok(Value::Bool(o.is_lt()))),
        "compareTo" => |args| ordered(args).map(|o| Ok(Value::Int(o as i64))),
        "semver" => semver::semver,
        "isSemver" => semver::is_semver,
        "major" => |args| semver::part(args, |v| v.major),
        "minor" => |args| semver::part(args, |v| v.minor),
        "patch" => |args| semver::part(args, |v| v.patch),
        "ip" => net::ip,
        "isIP" => net::is_ip,
        "ip.isCanonical" => net::is_canonical,
        "family" => net::family,
        "isUnspecified" => |args| net::is(args, |ip| ip.is_unspecified()),
        "isLoopback" => |args| net::is(args, |ip| ip.is_loopback()),
        "isLinkLocalMulticast" => |args| net::is(args, net::link_local_multicast),
        "isLinkLocalUnicast" => |args| net::is(args, net::link_local_unicast),
        "isGlobalUnicast" => |args| net::is(args, net::global_unicast),
        "cidr" => net::cidr,
        "isCIDR" => net::is_cidr,
        "containsIP" => net::contains_ip,
        "containsCIDR" => net::contains_cidr,
        "prefixLength" => net::prefix_length,
        "masked" => net::masked,
        "validate" => names::validate,
        "format.named" => names::named,
        _ => return names::constant(name).or_else(|| authorizer::find(name)),
    })
}

/// The order of two quantities or two versions.
fn ordered(args: &[Value<'_>]) -> Option<std::cmp::Ordering> {
    let [Value::Opaque(a), Value::Opaque(b)] = args else { return None };
    match (&**a, &**b) {
        (Opaque::Quantity(a), Opaque::Quantity(b)) => Some(a.cmp(b)),
        (Opaque::Semver(a), Opaque::Semver(b)) => Some(a.precedence(b)),
        _ => None,
    }
}
