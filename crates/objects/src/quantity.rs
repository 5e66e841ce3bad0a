//! Quantities of typed objects as numbers.

use std::collections::BTreeMap;

use api::quantity::Quantity as Parsed;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// A resource list as objects have it.
pub type ResourceList = BTreeMap<String, Quantity>;

/// A quantity in thousandths, rounded up; `None` if it is malformed.
pub fn parse_milli(text: &str) -> Option<i64> {
    Parsed::parse(text).ok().map(|q| q.milli_value())
}

/// A quantity in thousandths; 0 where it is missing or malformed.
pub fn milli(q: Option<&Quantity>) -> i64 {
    q.and_then(|q| parse_milli(&q.0)).unwrap_or(0)
}

/// A quantity in units, rounded up; 0 where it is missing or malformed.
pub fn value(q: Option<&Quantity>) -> i64 {
    q.and_then(|q| Parsed::parse(&q.0).ok()).map_or(0, |q| q.value())
}

/// A quantity of thousandths in its shortest decimal form.
pub fn from_milli(milli: i64) -> Quantity {
    if milli % 1000 == 0 { Quantity((milli / 1000).to_string()) } else { Quantity(format!("{milli}m")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (text, milli_value, units) in [
            ("1", 1000, 1),
            ("1500m", 1500, 2),
            ("1u", 1, 1),
            ("1Ki", 1_024_000, 1024),
            ("x", 0, 0),
            ("9223372036854775807", i64::MAX, i64::MAX),
        ] {
            let q = Quantity(text.to_owned());
            assert_eq!((milli(Some(&q)), value(Some(&q))), (milli_value, units), "{text}");
        }
        assert_eq!((milli(None), value(None)), (0, 0));
        for (milli, text) in [(0, "0"), (2000, "2"), (1500, "1500m")] {
            assert_eq!(from_milli(milli).0, text);
        }
    }
}
