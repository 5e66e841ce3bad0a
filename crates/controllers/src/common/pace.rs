//! The pace of looks at owners of many Pods.

use std::time::Duration;

/// The pause that a Pod of an owner is worth.
const EACH: Duration = Duration::from_micros(50);
/// A pause below this one is none.
const LEAST: Duration = Duration::from_millis(5);
/// The longest pause.
const MOST: Duration = Duration::from_secs(1);

/// Returns the time for which a look at an owner of so many Pods waits for further changes of them.
///
/// A look costs time for each Pod. If each Pod's change led to one, 10,000 Pods that become ready would cost a hundred
/// million steps; with a pause in proportion to their number, looks at an owner take no more than a small, fixed share
/// of a processor. Owners of fewer than a hundred Pods are looked at at once.
pub(crate) fn pause(pods: usize) -> Duration {
    let whole = EACH.saturating_mul(u32::try_from(pods).unwrap_or(u32::MAX)).min(MOST);
    if whole < LEAST { Duration::ZERO } else { whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_the_number_of_pods() {
        let check = |pods: usize, want: u64| assert_eq!(pause(pods), Duration::from_millis(want), "{pods}");
        check(0, 0);
        check(99, 0);
        check(100, 5);
        check(10_000, 500);
        check(20_000, 1000);
        check(usize::MAX, 1000);
    }
}
