//! Measures the times of steps and suites.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::Result;

/// Steps that were run one after the other, with their time and the CPU time of the processes that they started.
#[derive(Default)]
pub(crate) struct Steps {
    rows: Vec<(String, Duration, f64)>,
}

impl Steps {
    /// Runs a step and notes its time.
    pub(crate) fn run(&mut self, what: &str, step: impl FnOnce() -> Result<()>) -> Result<()> {
        let (start, cpu) = (Instant::now(), children_cpu());
        let result = step();
        self.rows.push((what.to_owned(), start.elapsed(), children_cpu() - cpu));
        result
    }

    /// Whether a step was run.
    pub(crate) fn reached(&self, what: &str) -> bool {
        self.rows.iter().any(|(name, ..)| name == what)
    }

    /// The table of the steps that were run.
    pub(crate) fn table(&self) -> String {
        let mut out = String::from("minutes  CPU minutes  step\n");
        for (what, wall, cpu) in &self.rows {
            let _ = writeln!(out, "{:7.1}  {:11.1}  {what}", wall.as_secs_f64() / 60.0, cpu / 60.0);
        }
        out
    }
}

/// CPU seconds of the processes that this one has started and that have ended.
fn children_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The command, in parentheses, may hold anything.
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
    let ticks: f64 = fields.skip(13).take(2).filter_map(|t| t.parse::<f64>().ok()).sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// The table of suites in a JUnit report: the tests of each, and the sum of their times. Tests run at the same time, so
/// the sums exceed the time that passed. A crate's integration tests are told apart by their modules.
pub(crate) fn suites(junit: &str) -> String {
    let mut suites: BTreeMap<String, (usize, f64)> = BTreeMap::new();
    for case in junit.split("<testcase ").skip(1) {
        let case = case.split('>').next().unwrap_or_default();
        let attribute = |name: &str| {
            let at = case.find(&format!("{name}=\""))? + name.len() + 2;
            case.get(at..)?.split('"').next()
        };
        let (Some(binary), Some(test)) = (attribute("classname"), attribute("name")) else { continue };
        let module = test.split_once("::").filter(|_| binary.ends_with("::it")).map(|(module, _)| module);
        let suite = module.map_or_else(|| binary.to_owned(), |m| format!("{binary} {m}"));
        let row = suites.entry(suite).or_default();
        row.0 += 1;
        row.1 += attribute("time").and_then(|t| t.parse::<f64>().ok()).unwrap_or_default();
    }
    let mut rows: Vec<_> = suites.into_iter().collect();
    rows.sort_by(|(_, (_, a)), (_, (_, b))| b.total_cmp(a));
    let mut out = String::from("minutes  tests  suite\n");
    for (suite, (tests, seconds)) in rows {
        let _ = writeln!(out, "{:7.2}  {tests:5}  {suite}", seconds / 60.0);
    }
    out
}

/// The tests in a JUnit report that failed before they passed, a line each: every one is a bug. None if there is none.
pub(crate) fn flaky(junit: &str) -> Option<String> {
    let mut out = String::new();
    for case in junit.split("<testcase ").skip(1).filter(|case| case.contains("<flakyFailure")) {
        let mut attributes = case.split('>').next().unwrap_or_default().split("name=\"").skip(1);
        let mut next = || attributes.next().and_then(|rest| rest.split('"').next()).unwrap_or_default();
        let (test, binary) = (next(), next());
        let _ = writeln!(out, "  {binary} {test}");
    }
    (!out.is_empty())
        .then(|| format!("passed, but not at once: a bug of the test or of what it tests\n{out}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_report() {
        let report = r#"<testsuites><testsuite name="a::it" tests="3">
            <testcase name="api::x" classname="a::it" timestamp="t" time="30.000"></testcase>
            <testcase name="api::y::z" classname="a::it" time="60.000"/>
            <testcase name="kill" classname="a::it" time="6"><failure message="name=&quot;"/></testcase>
            </testsuite><testcase name="b::c" classname="b" time="120.0"/>"#;
        assert_eq!(
            suites(report),
            "minutes  tests  suite\n   2.00      1  b\n   1.50      2  a::it api\n   0.10      1  a::it\n"
        );
    }

    #[test]
    fn of_tests_that_passed_late() {
        let late =
            r#"<testcase name="api::x" classname="a::it" time="3"><flakyFailure timestamp="t"/></testcase>"#;
        let report = format!(r#"{late}<testcase name="y" classname="b" time="6"><failure/></testcase>"#);
        let want = "passed, but not at once: a bug of the test or of what it tests\n  a::it api::x\n";
        assert_eq!(flaky(&report).as_deref(), Some(want));
        assert_eq!(flaky(r#"<testcase name="y" classname="b" time="6"/>"#), None);
    }

    #[test]
    fn of_steps() {
        let mut steps = Steps::default();
        assert!(steps.run("one", || Ok(())).is_ok());
        assert!(steps.run("two", || anyhow::bail!("no")).is_err());
        assert_eq!(
            steps.table(),
            "minutes  CPU minutes  step\n    0.0          0.0  one\n    0.0          0.0  two\n"
        );
    }
}
