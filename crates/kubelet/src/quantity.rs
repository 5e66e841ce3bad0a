//! Quantities as numbers.

use std::collections::BTreeMap;

use api::quantity::Quantity as Parsed;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// A resource list.
pub(crate) type Resources = BTreeMap<String, Quantity>;

/// A quantity in thousandths, rounded up; none if it is malformed.
pub(crate) fn parse_milli(text: &str) -> Option<i64> {
    Parsed::parse(text).ok().map(|q| q.milli_value())
}

/// A quantity in thousandths; 0 where it is missing or malformed.
pub(crate) fn milli(q: Option<&Quantity>) -> i64 {
    q.and_then(|q| parse_milli(&q.0)).unwrap_or(0)
}

/// A quantity in units, rounded up; 0 where it is missing or malformed.
pub(crate) fn value(q: Option<&Quantity>) -> i64 {
    q.and_then(|q| Parsed::parse(&q.0).ok()).map_or(0, |q| q.value())
}

/// A quantity of thousandths in its shortest decimal form.
pub(crate) fn from_milli(milli: i64) -> Quantity {
    if milli % 1000 == 0 { Quantity((milli / 1000).to_string()) } else { Quantity(format!("{milli}m")) }
}
