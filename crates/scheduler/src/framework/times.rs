//! The time that extension points and plugins take (upstream's `framework_extension_point_duration_seconds` and
//! `plugin_execution_duration_seconds`).
//!
//! A turn notes here what it did, without a lock, an allocation or more than one look at the clock for each extension
//! point; whoever runs it counts the notes afterwards. The time of single plugins is taken in one of ten turns
//! ([`SAMPLES`]).
//!
//! DIFFERENCE: a plugin is asked about all nodes at once, so its time at `Filter` and `Score` is that for all nodes, and
//! the status of `Filter` is that of the question. Verdicts and scores that are [kept](crate::kept) ask no plugin and
//! take none of its time; the work that keeps them true belongs to `Filter`.

use std::time::{Duration, Instant};

use crate::framework::verdict::{Rejection, Stop};

/// Of so many turns in a hundred the time of each plugin is taken (upstream's `pluginMetricsSamplePercent`).
pub const SAMPLES: u8 = 10;

/// Seconds from 0.01 ms, each bound half as much again as the one before (upstream's buckets of plugins).
#[allow(clippy::unreadable_literal, reason = "the numbers are those that upstream computes")]
pub const BUCKETS: &[f64] = &[
    1e-05,
    1.5000000000000002e-05,
    2.2500000000000005e-05,
    3.375000000000001e-05,
    5.062500000000001e-05,
    7.593750000000002e-05,
    0.00011390625000000003,
    0.00017085937500000006,
    0.0002562890625000001,
    0.00038443359375000017,
    0.0005766503906250003,
    0.0008649755859375004,
    0.0012974633789062506,
    0.0019461950683593758,
    0.0029192926025390638,
    0.004378938903808595,
    0.006568408355712893,
    0.009852612533569338,
    0.014778918800354007,
    0.02216837820053101,
];

macro_rules! named {
    ($(#[$doc:meta])* $type:ident, $all:ident: $($name:ident),+) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "the names are upstream's")]
        pub enum $type { $($name),+ }
        impl $type {
            /// All of them.
            pub const $all: &[Self] = &[$(Self::$name),+];
            /// Upstream's name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),+ }
            }
        }
    };
}

named! {
    /// An extension point, or a part of one.
    Point, ALL: PreFilter, Filter, PreScore, Score, PreEnqueue, PreFilterExtensionAddPod,
    PreFilterExtensionRemovePod, PostFilter, ScoreExtensionNormalize, Reserve, Unreserve, Permit, PreBindPreFlight,
    PreBind, Bind, PostBind, PlacementGenerate, PlacementScore, PlacementScoreExtensionNormalize
}

named! {
    /// The answer of an extension point.
    Code, ALL: Success, Error, Unschedulable, UnschedulableAndUnresolvable, Wait, Skip
}

/// How many extension points there are.
pub const POINTS: usize = Point::ALL.len();
/// How many answers there are.
pub const CODES: usize = Code::ALL.len();
/// How many points count their plugins; they are the first ones.
pub const COUNTED: usize = 4;

impl Code {
    /// The code of a refusal.
    pub fn of(rejection: &Rejection) -> Self {
        match rejection {
            Rejection { failed: true, .. } => Self::Error,
            Rejection { unresolvable: true, .. } => Self::UnschedulableAndUnresolvable,
            _ => Self::Unschedulable,
        }
    }
    /// The code of the end of a turn before any node was looked at.
    pub fn of_stop(stop: &Stop) -> Self {
        match stop {
            Stop::Error(_) => Self::Error,
            Stop::Rejected(rejection) => Self::of(rejection),
        }
    }
    /// `Success`, or what a refusal is.
    pub fn of_result<T>(result: &Result<T, Rejection>) -> Self {
        result.as_ref().map_or_else(Self::of, |_| Self::Success)
    }
    /// `Success` or `Error`.
    pub fn of_try<T, E>(result: &Result<T, E>) -> Self {
        if result.is_ok() { Self::Success } else { Self::Error }
    }
}

/// The notes of a turn, or of the way of a Pod to its node.
#[derive(Debug)]
pub struct Times {
    sampled: bool,
    last: Instant,
    points: [Option<(Code, Duration)>; POINTS],
    plugins: Vec<(&'static str, Point, Code, Duration)>,
    /// By point, and by the plugin's number there.
    asked: [Vec<u64>; COUNTED],
}

impl Default for Times {
    fn default() -> Self {
        Self {
            sampled: false,
            last: Instant::now(),
            points: [None; POINTS],
            plugins: Vec::new(),
            asked: [const { Vec::new() }; COUNTED],
        }
    }
}

impl Times {
    /// Begins anew; `sampled`: the time of plugins is taken, too.
    pub fn begin(&mut self, sampled: bool) {
        self.sampled = sampled;
        self.points = [None; POINTS];
        self.plugins.clear();
        self.asked.iter_mut().flatten().for_each(|n| *n = 0);
        self.last = Instant::now();
    }
    /// Lets the time since the last note belong to nobody.
    pub fn pass(&mut self) {
        self.last = Instant::now();
    }
    /// The time since the last note was that of a point. Of several notes on a point the times are added up, and the last
    /// answer counts.
    pub fn ended(&mut self, point: Point, code: Code) {
        let now = Instant::now();
        let took = now.saturating_duration_since(self.last);
        self.last = now;
        let noted = &mut self.points[point as usize];
        let before = noted.map_or(Duration::ZERO, |(_, before)| before);
        *noted = Some((code, before + took));
    }
    /// A plugin had a say in the turn, by its answer or by one that was kept: the one with this number at one of the
    /// points that are counted.
    pub fn count(&mut self, point: Point, plugin: usize) {
        let Some(counts) = self.asked.get_mut(point as usize) else { return };
        if counts.len() <= plugin {
            counts.resize(plugin + 1, 0);
        }
        counts[plugin] += 1;
    }
    /// Asks a plugin, and notes its time if this turn is one of the samples.
    pub fn plugin<T>(
        &mut self,
        point: Point,
        name: &'static str,
        code: impl FnOnce(&T) -> Code,
        ask: impl FnOnce() -> T,
    ) -> T {
        if !self.sampled {
            return ask();
        }
        let start = Instant::now();
        let answer = ask();
        self.plugins.push((name, point, code(&answer), start.elapsed()));
        answer
    }
    /// When a plugin is asked, for [`Times::answered`]; `None` if no time is taken.
    pub fn asks(&self) -> Option<Instant> {
        self.sampled.then(Instant::now)
    }
    /// A plugin that was asked then has answered.
    pub fn answered(&mut self, asked: Option<Instant>, point: Point, name: &'static str, code: Code) {
        if let Some(asked) = asked {
            self.plugins.push((name, point, code, asked.elapsed()));
        }
    }
    /// The extension points of the turn.
    pub fn points(&self) -> impl Iterator<Item = (Point, Code, Duration)> {
        let all = Point::ALL.iter().zip(&self.points);
        all.filter_map(|(point, noted)| noted.map(|(code, took)| (*point, code, took)))
    }
    /// The plugins whose time was taken.
    pub fn plugins(&self) -> &[(&'static str, Point, Code, Duration)] {
        &self.plugins
    }
    /// How often each plugin had a say, by point and by its number there.
    pub fn counts(&self) -> &[Vec<u64>; COUNTED] {
        &self.asked
    }
}

/// Whether the next turn is one of the samples.
pub fn sampled() -> bool {
    fastrand::u8(..100) < SAMPLES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn() {
        let mut times = Times::default();
        times.begin(false);
        assert_eq!(times.plugin(Point::Filter, "a", |_| Code::Success, || 1), 1);
        assert!(times.plugins().is_empty(), "the time of plugins is not taken");
        times.ended(Point::Filter, Code::Error);
        let before = times.points().map(|(_, _, took)| took).sum::<Duration>();
        times.ended(Point::Filter, Code::Success);
        let all: Vec<_> = times.points().collect();
        assert!(matches!(all[..], [(Point::Filter, Code::Success, took)] if took >= before), "{all:?}");
        times.count(Point::Score, 2);
        times.count(Point::Score, 2);
        times.count(Point::PostBind, 0);
        assert_eq!(times.counts()[Point::Score as usize], [0, 0, 2]);
        times.begin(true);
        assert_eq!((times.points().count(), &times.counts()[Point::Score as usize][..]), (0, &[0, 0, 0][..]));
        let answer = times.plugin(Point::Filter, "a", Code::of_try, || Err::<(), _>("no"));
        assert_eq!(answer, Err("no"));
        times.answered(times.asks(), Point::Bind, "b", Code::Skip);
        let said: Vec<_> =
            times.plugins().iter().map(|(name, point, code, _)| (*name, *point, *code)).collect();
        assert_eq!(said, [("a", Point::Filter, Code::Error), ("b", Point::Bind, Code::Skip)]);
    }

    #[test]
    fn codes() {
        for (rejection, expected) in [
            (Rejection::new("a", "x"), "Unschedulable"),
            (Rejection::lasting("a", "x"), "UnschedulableAndUnresolvable"),
            (Rejection::failure("a", "x"), "Error"),
        ] {
            assert_eq!(Code::of(&rejection).name(), expected);
            assert_eq!(Code::of_stop(&Stop::Rejected(rejection.clone())).name(), expected);
            assert_eq!(Code::of_result(&Err::<(), _>(rejection)).name(), expected);
        }
        assert_eq!(Code::of_result(&Ok(())), Code::Success);
        assert_eq!(Code::of_stop(&Stop::Error("x".into())), Code::Error);
        assert_eq!(
            Point::ALL[..COUNTED].iter().map(|p| p.name()).collect::<Vec<_>>(),
            ["PreFilter", "Filter", "PreScore", "Score"]
        );
    }
}
