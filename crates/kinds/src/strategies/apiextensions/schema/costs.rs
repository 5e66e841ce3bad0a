//! The most that the rules of a schema may cost.

use api::Text;

/// The most that one expression may be estimated to cost. Upstream's `StaticEstimatedCostLimit`.
const LIMIT: u64 = 10_000_000;
/// The most that all expressions of a schema may be estimated to cost. Upstream's `StaticEstimatedCRDCostLimit`.
const TOTAL_LIMIT: u64 = 100_000_000;
/// The number of expressions that are named if all together cost too much.
const NAMED: usize = 4;

/// The estimated costs of a schema's expressions.
#[derive(Debug, Default)]
pub(super) struct Costs {
    total: u64,
    /// The expressions that cost most, the dearest first, with their paths.
    most: Vec<(u64, Text)>,
}

impl Costs {
    /// Adds an expression. Upstream's `ObserveExpressionCost`.
    pub(super) fn add(&mut self, cost: u64, path: impl FnOnce() -> String) {
        self.total = self.total.saturating_add(cost);
        if cost < TOTAL_LIMIT / 100 {
            return;
        }
        let place = self.most.partition_point(|(other, _)| *other >= cost);
        if place < NAMED {
            self.most.insert(place, (cost, path().into()));
            self.most.truncate(NAMED);
        }
    }

    /// Why the expressions are too expensive together, if they are.
    pub(super) fn over_total(&self) -> Option<String> {
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        (self.total > TOTAL_LIMIT).then(|| message(what, self.total, TOTAL_LIMIT))
    }

    /// The paths of the expressions that cost most.
    pub(super) fn most_expensive(&self) -> impl Iterator<Item = &str> {
        self.most.iter().map(|(_, path)| path.as_str())
    }
}

/// Why an expression is too expensive, if it is.
pub(super) fn over_limit(what: &str, cost: u64) -> Option<String> {
    (cost > LIMIT).then(|| message(what, cost, LIMIT))
}

fn message(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors() {
        let check = |cost: u64, expected: Option<&str>| {
            let got = over_limit("estimated rule cost", cost);
            let expected = expected.map(|f| {
                format!(
                    "estimated rule cost exceeds budget by factor of {f} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
                )
            });
            assert_eq!(got, expected, "{cost}");
        };
        check(LIMIT, None);
        check(LIMIT + 1, Some("1.000000x"));
        check(12_000_000, Some("1.200000x"));
        check(15_000_000, Some("1.5x"));
        check(1_000_000_000, Some("100.0x"));
        check(u64::MAX, Some("more than 100x"));
    }

    #[test]
    fn the_dearest_are_named() {
        let mut costs = Costs::default();
        for (i, cost) in [5, 2_000_000, 89_000_000, 3_000_000, 1_000_000, 4_000_000].into_iter().enumerate() {
            costs.add(cost, || i.to_string());
        }
        assert_eq!(costs.over_total(), None);
        assert_eq!(costs.most_expensive().collect::<Vec<_>>(), ["2", "5", "3", "1"]);
        costs.add(999_996, String::new);
        assert!(costs.over_total().is_some());
        costs.add(u64::MAX, String::new);
        assert!(costs.over_total().unwrap().contains("more than 100x"));
    }
}
