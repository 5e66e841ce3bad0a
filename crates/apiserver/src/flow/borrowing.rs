//! How many seats each level has: its share of the server's, and now and again what others do not need.

use super::demand::Demand;

/// The settings of a level's seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    /// Its part of the server's seats, in proportion to all others'.
    pub(super) nominal: i32,
    /// The part of its seats that others may have, in percent.
    pub(super) lendable: i32,
    /// How many seats of others it may have, in percent of its own; any number if nothing is said.
    pub(super) borrowing: Option<i32>,
}

/// The bounds of a level's seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Bounds {
    /// Its own.
    pub(super) nominal: u32,
    /// Its own without those that it lends.
    pub(super) least: u32,
    /// Its own with all that it may borrow.
    pub(super) most: u32,
}

impl Bounds {
    /// Of a level, where the shares of all levels have this sum. Own seats are rounded up, so that all together may be a
    /// little more than the server's.
    pub(super) fn new(server: u32, sum: f64, shares: Shares) -> Self {
        let part = if sum > 0.0 { f64::from(server) * f64::from(shares.nominal.max(0)) / sum } else { 0.0 };
        let nominal = part.ceil() as u32;
        let percent = |of: i32| (f64::from(nominal) * f64::from(of.max(0)) / 100.0).round() as u32;
        let borrowed = shares.borrowing.map_or(server, percent);
        Self { nominal, least: nominal.saturating_sub(percent(shares.lendable)), most: nominal + borrowed }
    }

    /// The seats with which a level begins: half of what it lends is others'.
    pub(super) fn first(&self) -> u32 {
        self.nominal - (self.nominal - self.least) / 2
    }

    /// The most seats that one request of a level with queues takes, of which this many are in a hand.
    pub(super) fn widest(&self, hand: u32) -> u32 {
        let part = (f64::from(self.nominal) * 0.15).ceil();
        part.min(f64::from(self.nominal / hand.max(1))).max(1.0) as u32
    }
}

/// A level, when seats are shared out anew.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sharer {
    /// It gets what it wants.
    pub(super) exempt: bool,
    /// Its bounds.
    pub(super) bounds: Bounds,
    /// The seats that it would use.
    pub(super) demand: Demand,
    /// The seats that it has now.
    pub(super) current: u32,
}

impl Sharer {
    /// The seats that it has in any case, as long as there is enough: those that it used of its own.
    fn floor(&self) -> u32 {
        let used = if self.exempt { self.demand.high } else { self.demand.high.min(self.bounds.nominal) };
        used.max(self.bounds.least)
    }

    fn target(&self) -> f64 {
        f64::from(self.floor()).max(self.demand.smoothed)
    }
}

/// The seats of a level from now on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Share {
    /// How many.
    pub(super) seats: u32,
    /// How many it was to get, before all others were looked at.
    pub(super) target: f64,
}

/// Shares out the own seats of all levels; the part of its target that each gets, and the seats, in the same order.
pub(super) fn share_out(levels: &[Sharer]) -> (f64, Vec<Share>) {
    let sum = |of: &dyn Fn(&Sharer) -> u32, exempt: bool| -> i64 {
        levels.iter().filter(|l| l.exempt == exempt).map(|l| i64::from(of(l))).sum()
    };
    let nominal = sum(&|l| l.bounds.nominal, false) + sum(&|l| l.bounds.nominal, true);
    let left = nominal - sum(&Sharer::floor, true);
    let (least, floors) = (sum(&|l| l.bounds.least, false), sum(&Sharer::floor, false));
    let (mut fair, mut seats) = (0.0, Vec::new());
    if left <= least {
        seats.extend(levels.iter().map(|level| level.bounds.least));
    } else if left <= floors {
        let part = (left - least) as f64 / (floors - least) as f64;
        let between =
            |l: &Sharer| l.bounds.least + (f64::from(l.floor() - l.bounds.least) * part).round() as u32;
        seats.extend(levels.iter().map(between));
    } else {
        let classes: Vec<Class> = levels
            .iter()
            .filter(|level| !level.exempt)
            .map(|l| Class {
                target: l.target(),
                lower: l.floor().into(),
                upper: f64::from(l.bounds.most.max(l.floor())),
            })
            .collect();
        match allocate(nominal as f64, &classes) {
            Ok((part, parts)) => {
                fair = part;
                let mut parts = parts.into_iter();
                let part = |l: &Sharer| if l.exempt { None } else { parts.next() };
                seats.extend(levels.iter().map(part).map(|part| part.unwrap_or_default().round() as u32));
            }
            Err(error) => {
                tracing::warn!(%error, "the seats of priority levels stay as they are");
                seats.extend(levels.iter().map(|level| level.current));
            }
        }
    }
    let share = |(level, seats): (&Sharer, u32)| Share {
        seats: if level.exempt { level.floor() } else { seats },
        target: level.target(),
    };
    (fair, levels.iter().zip(seats).map(share).collect())
}

/// One that gets a part of a sum.
#[derive(Debug, Clone, Copy)]
struct Class {
    target: f64,
    lower: f64,
    upper: f64,
}

/// A sum that cannot be shared out within the bounds.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
enum Impossible {
    #[error("the lower bounds sum to {lower}, which is more than {sum}")]
    Less { lower: f64, sum: f64 },
    #[error("the upper bounds sum to {upper}, which is less than {sum}")]
    More { upper: f64, sum: f64 },
}

/// The least target; one of nothing counts as this.
const LEAST: f64 = 0.001;

/// Shares out a sum so that each gets the same part of its target, within its bounds; upstream's
/// `computeConcurrencyAllocation`. The part, and what each gets.
fn allocate(sum: f64, classes: &[Class]) -> Result<(f64, Vec<f64>), Impossible> {
    const EPSILON: f64 = 1e-7;
    let total = |of: fn(&Class) -> f64| classes.iter().map(of).sum::<f64>();
    let (lower, upper) = (total(|c| c.lower), total(|c| c.upper));
    if lower - sum > EPSILON {
        return Err(Impossible::Less { lower, sum });
    }
    if sum - upper > EPSILON {
        return Err(Impossible::More { upper, sum });
    }
    if sum == 0.0 {
        return Ok((0.0, vec![0.0; classes.len()]));
    }
    let target = |c: &Class| c.target.max(LEAST);
    let lowest = classes.iter().map(|c| c.lower / target(c)).fold(f64::INFINITY, f64::min);
    if lower - sum > -EPSILON {
        return Ok((lowest, classes.iter().map(|c| c.lower).collect()));
    }
    if sum - upper > -EPSILON {
        let highest = classes.iter().map(|c| c.upper / target(c)).fold(0.0, f64::max);
        return Ok((highest, classes.iter().map(|c| c.upper).collect()));
    }
    // The sum of what all get is made of lines with kinks at the bounds: between two of these, those grow whose targets count.
    let mut kinks: Vec<(f64, f64)> = classes
        .iter()
        .flat_map(|c| {
            let target = target(c);
            [(c.lower / target, target), (c.upper / target, -target)]
        })
        .collect();
    kinks.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut part, mut given, mut growth) = (lowest, lower, 0.0);
    for (at, change) in kinks {
        if growth > 0.0 {
            let needed = (sum - given) / growth;
            if part + needed <= at {
                part += needed;
                break;
            }
            given += (at - part) * growth;
        }
        part = at;
        growth += change;
    }
    Ok((part, classes.iter().map(|c| (part * target(c)).min(c.upper).max(c.lower)).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_request() {
        let check = |nominal, hand, expected| {
            let bounds = Bounds { nominal, ..Bounds::default() };
            assert_eq!(bounds.widest(hand), expected, "{nominal} {hand}");
        };
        for (nominal, expected) in [(5, 1), (10, 1), (15, 2), (20, 3), (35, 5), (100, 15), (200, 30)] {
            check(nominal, 6, expected);
        }
        check(10, 1, 2);
        check(100, 20, 5);
    }

    #[test]
    fn bounds_of_levels() {
        let check = |nominal, lendable, borrowing, expected: (u32, u32, u32, u32)| {
            let bounds = Bounds::new(600, 245.0, Shares { nominal, lendable, borrowing });
            assert_eq!((bounds.nominal, bounds.least, bounds.most, bounds.first()), expected);
        };
        // The suggested levels of a server with the default limits.
        check(30, 33, None, (74, 50, 674, 62));
        check(40, 25, None, (98, 73, 698, 86));
        check(100, 90, None, (245, 24, 845, 135));
        check(5, 0, None, (13, 13, 613, 13));
        check(0, 0, None, (0, 0, 600, 0));
        check(40, 50, Some(10), (98, 49, 108, 74));
        let none = Bounds::new(600, 0.0, Shares { nominal: 0, lendable: 0, borrowing: None });
        assert_eq!(none.nominal, 0);
    }

    /// The demands of upstream's `TestConcAlloc` on random problems.
    #[test]
    fn sums_are_shared_out() {
        let mut rng = fastrand::Rng::with_seed(1_234_567_890);
        for _ in 0..10_000 {
            let mut classes: Vec<Class> = (0..rng.usize(0..9))
                .map(|_| {
                    let lower = (rng.f64() * 5.0 - 1.0).max(0.0);
                    Class { lower, target: lower + 2.0 * rng.f64(), upper: lower + 3.0 * rng.f64() }
                })
                .collect();
            while rng.f64() < 0.25 {
                let at = rng.usize(0..=classes.len());
                classes.insert(at, Class { lower: 0.0, target: 0.0, upper: rng.f64() + 1e-5 });
            }
            let total = |of: fn(&Class) -> f64| classes.iter().map(of).sum::<f64>();
            let (lower, upper) = (total(|c| c.lower), total(|c| c.upper));
            let sum = match rng.u8(0..20) {
                0 => lower,
                1 => upper,
                _ => (lower + (upper - lower) * rng.f64()).round(),
            };
            let got = allocate(sum, &classes);
            let possible = lower - sum <= 1e-10 && sum - upper <= 1e-10;
            let Ok((part, parts)) = got else {
                assert!(!possible, "{sum} {classes:?}");
                continue;
            };
            assert!((parts.iter().sum::<f64>() - sum).abs() < 1e-6, "{sum} {classes:?} {parts:?}");
            for (class, got) in classes.iter().zip(parts) {
                let wanted = part * class.target.max(LEAST);
                let expected = wanted.min(class.upper).max(class.lower);
                assert!((got - expected).abs() < 1e-6, "{sum} {classes:?}");
            }
        }
        let class = Class { lower: 1.0, target: 1.0, upper: 2.0 };
        assert_eq!(allocate(0.0, &[class]), Err(Impossible::Less { lower: 1.0, sum: 0.0 }));
        assert_eq!(allocate(3.0, &[class]), Err(Impossible::More { upper: 2.0, sum: 3.0 }));
    }

    /// Upstream's `TestUpdateBorrowing`: workload-high, workload-low and catch-all, on a server of six seats a share.
    #[test]
    fn the_exempt_level_borrows() {
        let server = (40 + 100 + 5) * 6;
        let bounds =
            |nominal, lendable| Bounds::new(server, 145.0, Shares { nominal, lendable, borrowing: None });
        let all = [bounds(0, 0), bounds(40, 50), bounds(100, 90), bounds(5, 0)];
        let demand =
            |high: u32| Demand { high, smoothed: high.into(), average: high.into(), ..Demand::default() };
        let check = |demands: [u32; 4], expected: [u32; 4]| {
            let sharers = std::array::from_fn::<_, 4, _>(|at| Sharer {
                exempt: at == 0,
                bounds: all[at],
                demand: demand(demands[at]),
                current: 0,
            });
            let (_, shares) = share_out(&sharers);
            let seats: Vec<u32> = shares.iter().map(|share| share.seats).collect();
            assert_eq!(seats, expected, "{demands:?}");
        };
        let much = server + 100;
        check([much; 4], [much, all[1].least, all[2].least, all[3].least]);
        let half = |at: usize| u32::midpoint(all[at].nominal, all[at].least);
        let exempt = server - half(1) - half(2) - half(3);
        check([exempt, much, much, much], [exempt, half(1), half(2), half(3)]);
        let exempt = server - all[1].nominal - all[2].least - all[3].nominal;
        check([exempt, much, 1, much], [exempt, all[1].nominal, all[2].least, all[3].nominal]);
    }

    /// The figures of upstream's `TestBorrowing`: two levels of 12 seats, one that wants 24, one that wants 6.
    #[test]
    fn levels_borrow_within_their_limits() {
        let check = |first: (i32, i32), second: (i32, i32)| {
            let sharer = |(lendable, borrowing), wanted: u32| Sharer {
                exempt: false,
                bounds: Bounds::new(24, 200.0, Shares { nominal: 100, lendable, borrowing: Some(borrowing) }),
                demand: Demand { high: wanted, smoothed: wanted.into(), ..Demand::default() },
                current: 12,
            };
            let (_, shares) = share_out(&[sharer(first, 24), sharer(second, 6)]);
            assert_eq!((shares[0].seats, shares[1].seats), (16, 8), "{first:?} {second:?}");
        };
        check((50, 67), (33, 50));
        check((50, 33), (67, 50));
    }
}
