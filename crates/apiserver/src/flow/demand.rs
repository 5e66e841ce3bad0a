//! The seats that a level would use over time: figures that are weighted by how long each held.

/// A point in time: nanoseconds since some start.
pub(super) type Nanos = u64;

/// A figure over a time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Summary {
    /// Seconds.
    pub(super) seconds: f64,
    /// Its average over the time.
    pub(super) average: f64,
    /// Its standard deviation.
    pub(super) deviation: f64,
    /// Its greatest value.
    pub(super) most: f64,
}

/// Integrates a figure and its square over time.
#[derive(Debug, Clone, Default)]
pub(super) struct Integrator {
    value: f64,
    since: Nanos,
    seconds: f64,
    sum: f64,
    squares: f64,
    most: f64,
}

impl Integrator {
    /// One that begins at a time with a figure of zero.
    pub(super) fn new(now: Nanos) -> Self {
        Self { since: now, ..Self::default() }
    }

    /// The figure is another one from now on.
    pub(super) fn set(&mut self, now: Nanos, value: f64) {
        self.pass(now);
        self.value = value;
        self.most = self.most.max(value);
    }

    fn pass(&mut self, now: Nanos) {
        let seconds = now.saturating_sub(self.since) as f64 / 1e9;
        self.since = self.since.max(now);
        self.seconds += seconds;
        self.sum += self.value * seconds;
        self.squares += self.value * self.value * seconds;
    }

    /// The figure since the last time that this was asked.
    pub(super) fn take(&mut self, now: Nanos) -> Summary {
        self.pass(now);
        let (seconds, most) = (self.seconds, self.most);
        let mut summary = Summary { seconds, most, ..Summary::default() };
        if seconds > 0.0 {
            summary.average = self.sum / seconds;
            // Rounding may make nothing a little less than that.
            let variance = self.squares / seconds - summary.average * summary.average;
            summary.deviation = variance.max(0.0).sqrt();
        }
        (self.seconds, self.sum, self.squares, self.most) = (0.0, 0.0, 0.0, self.value);
        summary
    }
}

/// How fast what is smoothed goes down: by half in five minutes; upstream's `seatDemandSmoothingCoefficient`.
const SMOOTHING: f64 = 0.977;

/// The demand of a level, as it was at the last adjustments.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Demand {
    /// Of the last period.
    pub(super) average: f64,
    /// Of the last period.
    pub(super) deviation: f64,
    /// The most of the last period, in seats.
    pub(super) high: u32,
    /// Average and deviation together; it goes up with them at once, and down slowly.
    pub(super) smoothed: f64,
}

impl Demand {
    /// Takes in a period.
    pub(super) fn update(&mut self, seen: Summary) {
        self.high = seen.most.round() as u32;
        if seen.seconds <= 0.0 {
            return;
        }
        (self.average, self.deviation) = (seen.average, seen.deviation);
        let envelope = seen.average + seen.deviation;
        self.smoothed = envelope.max(SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * envelope);
    }
}

/// The content of a histogram: the sum, the count, and the count by bucket, each with its upper bound.
pub(super) type Seen = (f64, u64, Vec<(f64, u64)>);

/// How long a ratio was in which range, in nanoseconds: upstream's `TimingRatioHistogram`.
#[derive(Debug, Clone)]
pub(super) struct TimingRatio {
    bounds: &'static [f64],
    /// Nanoseconds by bucket; the last is for what is above all bounds.
    times: Box<[u64]>,
    sum: f64,
    numerator: f64,
    denominator: f64,
    since: Nanos,
}

impl TimingRatio {
    /// Of nothing to one.
    pub(super) fn new(bounds: &'static [f64], now: Nanos) -> Self {
        let times = vec![0; bounds.len() + 1].into();
        Self { bounds, times, sum: 0.0, numerator: 0.0, denominator: 1.0, since: now }
    }

    fn pass(&mut self, now: Nanos) {
        let time = now.saturating_sub(self.since);
        self.since = self.since.max(now);
        if time == 0 {
            return;
        }
        let ratio = self.numerator / self.denominator;
        let at = self.bounds.iter().position(|bound| ratio <= *bound).unwrap_or(self.bounds.len());
        self.times[at] += time;
        self.sum += ratio * time as f64;
    }

    /// The part is another one from now on.
    pub(super) fn set(&mut self, now: Nanos, numerator: f64) {
        self.pass(now);
        self.numerator = numerator;
    }

    /// The whole is another one from now on; none counts as one.
    pub(super) fn of(&mut self, now: Nanos, denominator: f64) {
        self.pass(now);
        self.denominator = denominator.max(1.0);
    }

    /// Sum, count and buckets until now.
    pub(super) fn seen(&mut self, now: Nanos) -> Seen {
        self.pass(now);
        let bounds = self.bounds.iter().copied().chain([f64::MAX]);
        (self.sum, self.times.iter().sum(), bounds.zip(self.times.iter().copied()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn figures_weigh_as_long_as_they_hold() {
        let mut integrator = Integrator::new(0);
        integrator.set(SECOND, 3.0);
        let seen = integrator.take(2 * SECOND);
        assert_eq!(seen, Summary { seconds: 2.0, average: 1.5, deviation: 1.5, most: 3.0 });
        let seen = integrator.take(4 * SECOND);
        assert_eq!(seen, Summary { seconds: 2.0, average: 3.0, deviation: 0.0, most: 3.0 });
        assert_eq!(integrator.take(4 * SECOND), Summary { most: 3.0, ..Summary::default() });
    }

    #[test]
    fn demand_falls_slowly() {
        let mut demand = Demand::default();
        let period = |average| Summary { seconds: 10.0, average, deviation: 0.0, most: average };
        demand.update(period(10.0));
        assert_eq!((demand.smoothed, demand.high), (10.0, 10));
        for _ in 0..30 {
            demand.update(period(0.0));
        }
        assert!((demand.smoothed - 5.0).abs() < 0.1, "half of it after five minutes: {}", demand.smoothed);
        demand.update(Summary { most: 4.0, ..Summary::default() });
        assert_eq!((demand.average, demand.high), (0.0, 4), "nothing was seen");
    }

    #[test]
    fn ratios_are_counted_by_the_nanosecond() {
        let mut ratio = TimingRatio::new(&[0.0, 0.5, 1.0], 0);
        ratio.of(5, 4.0);
        ratio.set(10, 2.0);
        ratio.set(30, 8.0);
        let (sum, count, buckets) = ratio.seen(31);
        assert_eq!((sum, count), (12.0, 31));
        assert_eq!(buckets, [(0.0, 10), (0.5, 20), (1.0, 0), (f64::MAX, 1)]);
        ratio.of(31, 0.0);
        ratio.set(31, 1.0);
        assert_eq!((ratio.seen(32).0, ratio.seen(32).1), (13.0, 32));
    }
}
