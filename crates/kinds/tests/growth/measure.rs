//! CPU times of steps at several sizes.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The CPU time that the thread has used.
fn now() -> Duration {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec.unsigned_abs(), t.tv_nsec as u32)
}

/// The times of steps by name.
#[derive(Default)]
pub(crate) struct Times(BTreeMap<&'static str, Duration>);

impl Times {
    /// Measures a step.
    pub(crate) fn step<T>(&mut self, name: &'static str, f: impl FnOnce() -> T) -> T {
        let start = now();
        let out = f();
        self.note(name, now().saturating_sub(start));
        out
    }

    /// Notes the time of a step; the longest counts.
    fn note(&mut self, name: &'static str, time: Duration) {
        self.0.entry(name).and_modify(|t| *t = (*t).max(time)).or_insert(time);
    }
}

/// Shorter times are not compared.
const FLOOR: Duration = Duration::from_millis(3);
/// A time grows at most with this power of the size.
const MOST: f64 = 1.5;

fn exponent(small: Duration, large: Duration, factor: usize) -> f64 {
    (large.as_secs_f64() / small.as_secs_f64().max(1e-9)).log2() / (factor as f64).log2()
}

/// The shortest times of five runs.
fn best(run: &dyn Fn(usize, &mut Times), n: usize) -> BTreeMap<&'static str, Duration> {
    let mut best: BTreeMap<&'static str, Duration> = BTreeMap::new();
    for _ in 0..5 {
        let mut times = Times::default();
        run(n, &mut times);
        for (name, time) in times.0 {
            best.entry(name).and_modify(|t| *t = (*t).min(time)).or_insert(time);
        }
    }
    best
}

/// Runs steps at sizes up to about `n` and returns those that grow too fast. A step that seems to is measured again,
/// more closely and at greater sizes.
pub(crate) fn too_fast(what: &str, n: usize, run: &dyn Fn(usize, &mut Times)) -> Vec<String> {
    let (mut few, mut many) = (Times::default(), Times::default());
    run(n / 16, &mut few);
    run(n, &mut many);
    let suspicious = many
        .0
        .iter()
        .any(|(name, t)| *t > FLOOR && few.0.get(name).is_none_or(|f| exponent(*f, *t, 16) > 1.25));
    if !suspicious {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    for scale in [1, 2] {
        let n = n * scale;
        let (a, b) = (best(run, n), best(run, 4 * n));
        wrong = b
            .iter()
            .filter(|(_, t)| **t > FLOOR)
            .filter_map(|(name, t)| {
                let e = exponent(*a.get(name)?, *t, 4);
                (e > MOST).then(|| format!("{what}, {name}: {t:?} at {}, exponent {e:.2}", 4 * n))
            })
            .collect();
        if wrong.is_empty() {
            break;
        }
    }
    wrong
}

/// Fails if a step grows too fast.
pub(crate) fn check(what: &str, n: usize, run: impl Fn(usize, &mut Times)) {
    let wrong = too_fast(what, n, &run);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn quadratic_steps_are_found() {
    let scan = |n: usize, t: &mut Times| {
        let n = n as u64;
        t.note("linear", Duration::from_nanos(n * 2000));
        t.note("quadratic", Duration::from_nanos(n * n));
    };
    let wrong = too_fast("a scan", 3200, &scan);
    assert!(wrong.len() == 1 && wrong[0].starts_with("a scan, quadratic"), "{wrong:?}");
}
