//! The choice of the metrics that a component shows: upstream's flags `--disabled-metrics`, `--allow-metric-labels` and
//! `--show-hidden-metrics-for-version` (`k8s.io/component-base/metrics`).
//!
//! The choice is made of a page's text, so that it holds for every metric, whoever writes it. A page without a choice is
//! not looked at.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::version::KUBERNETES;

/// The value in place of one that is not allowed; upstream's.
const UNEXPECTED: &str = "unexpected";

/// The choice, as flags and configuration files say it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// The names of metrics that are not shown.
    pub disabled: Vec<String>,
    /// The values that a label may have, separated by commas, by `METRIC,LABEL`; all others become `unexpected`.
    pub allowed: BTreeMap<String, String>,
    /// The release before this one, to see the metrics that this one hides; "" to see none of them.
    pub hidden_for: String,
}

/// The metrics that are shown. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    disabled: BTreeSet<String>,
    /// The values of labels, by metric and label.
    allowed: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    /// The values that were not allowed, so far.
    unexpected: Arc<AtomicU64>,
}

/// Checks the release whose hidden metrics are to be shown, in upstream's words.
///
/// # Errors
/// It is not the one before this.
pub fn check_hidden_for(version: &str) -> Result<(), String> {
    let mut numbers = KUBERNETES.trim_start_matches('v').split('.').map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return Ok(()) };
    let before = format!("{major}.{}", minor.saturating_sub(1));
    if version.is_empty() || version == before {
        return Ok(());
    }
    Err(format!(
        "Invalid value: {version:?}: must be omitted or have the value '{before}'; only the previous minor version is allowed"
    ))
}

/// Whether a text is a name of these letters, with digits only after the first of them.
fn is_name(text: &str, with_colon: bool) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_' || (with_colon && c == ':');
    text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit())
}

impl Choice {
    /// Checks the choice by upstream's rules.
    ///
    /// # Errors
    /// In upstream's words, if it cannot be made.
    pub fn check(&self) -> Result<(), String> {
        check_hidden_for(&self.hidden_for)
            .map_err(|why| format!("metrics.showHiddenMetricsForVersion: {why}"))?;
        if let Some(name) = self.disabled.iter().find(|name| !is_name(name, true)) {
            return Err(format!(
                "metrics.disabledMetrics: Invalid value: {:?}: must be fully qualified metric names matching \"^[a-zA-Z_:][a-zA-Z0-9_:]*$\", got {name:?}",
                self.disabled
            ));
        }
        let is_key = |key: &str| {
            key.split_once(',').is_some_and(|(metric, label)| is_name(metric, true) && is_name(label, false))
        };
        if let Some(key) = self.allowed.keys().find(|key| !is_key(key)) {
            return Err(format!(
                "metrics.allowListMapping: Invalid value: {key:?}: must have keys with format `metricName,labelName` where metricName matches \"[a-zA-Z_:][a-zA-Z0-9_:]*\" and labelName matches \"[a-zA-Z_][a-zA-Z0-9_]*\""
            ));
        }
        Ok(())
    }
}

impl Shown {
    /// Makes the choice. The metrics that v1.36 hides are none that FerroKube has, so there are no more to be shown.
    ///
    /// # Errors
    /// In upstream's words, if it cannot be made.
    pub fn new(choice: Choice) -> Result<Self, String> {
        choice.check()?;
        let mut allowed: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (key, values) in choice.allowed {
            let Some((metric, label)) = key.split_once(',') else { continue };
            let values = values.split(',').map(str::to_owned).collect();
            allowed.entry(metric.to_owned()).or_default().insert(label.to_owned(), values);
        }
        Ok(Self { disabled: choice.disabled.into_iter().collect(), allowed, unexpected: Arc::default() })
    }

    /// The page as it is shown: in Prometheus' text form, or as OpenMetrics.
    pub fn apply(&self, page: String) -> String {
        if self.disabled.is_empty() && self.allowed.is_empty() {
            return page;
        }
        let mut out = String::with_capacity(page.len());
        let mut family = Family::default();
        for line in page.lines() {
            if line == "# EOF" {
                family.end(&mut out);
                self.own(&mut out);
                out.push_str("# EOF\n");
                return out;
            }
            let header = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE "));
            match header {
                Some(rest) => {
                    let (name, about) = rest.split_once(' ').unwrap_or((rest, ""));
                    if family.name != name {
                        family.end(&mut out);
                        family = Family { name: name.to_owned(), ..Family::default() };
                    }
                    if line.starts_with("# TYPE ") {
                        family.is_gauge = about == "gauge";
                    }
                    if !self.is_disabled(name) {
                        out.push_str(line);
                        out.push('\n');
                    }
                }
                None if line.starts_with('#') => {}
                None => self.sample(&mut family, line, &mut out),
            }
        }
        family.end(&mut out);
        self.own(&mut out);
        out
    }

    /// Whether a metric is not shown. OpenMetrics describes a counter without the end of its name.
    fn is_disabled(&self, name: &str) -> bool {
        self.disabled.contains(name) || self.disabled.contains(&format!("{name}_total"))
    }

    /// Takes a line with a value over.
    fn sample(&self, family: &mut Family, line: &str, out: &mut String) {
        let end = line.find(['{', ' ']).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        let of_family = family.of(name);
        let metric = if of_family { family.name.as_str() } else { name };
        if self.is_disabled(metric) || self.disabled.contains(name) {
            return;
        }
        let allowed = self.allowed.get(metric).or_else(|| self.allowed.get(name));
        let labelled = allowed.zip(rest.strip_prefix('{').and_then(labels));
        let Some((allowed, (mut labels, rest))) = labelled else {
            out.push_str(line);
            out.push('\n');
            return;
        };
        for (label, value) in &mut labels {
            if allowed.get(label).is_some_and(|values| !values.contains(value)) {
                UNEXPECTED.clone_into(value);
                self.unexpected.fetch_add(1, Ordering::Relaxed);
            }
        }
        family.add(name, &labels, rest.trim());
    }

    /// The metrics about the choice itself.
    ///
    /// DIFFERENCE: upstream counts a value that is not allowed each time it is set, which is here each time it is shown.
    fn own(&self, out: &mut String) {
        let mut tell = |name: &str, help: &str, value: u64| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}");
        };
        let unexpected = self.unexpected.load(Ordering::Relaxed);
        let help = "[ALPHA] The count of unexpected categorizations during cardinality enforcement.";
        tell("cardinality_enforcement_unexpected_categorizations_total", help, unexpected);
        let help = "[BETA] The count of disabled metrics.";
        tell("disabled_metrics_total", help, u64::try_from(self.disabled.len()).unwrap_or(u64::MAX));
    }
}

/// The values of one metric whose labels are restricted, until all are known: those that have become alike are one.
#[derive(Debug, Default)]
struct Family {
    name: String,
    is_gauge: bool,
    places: HashMap<String, usize>,
    values: Vec<(String, f64)>,
}

impl Family {
    /// Whether a line of this name belongs to the metric: histograms and counters have ends of their own.
    fn of(&self, name: &str) -> bool {
        name.strip_prefix(self.name.as_str())
            .is_some_and(|end| ["", "_bucket", "_sum", "_count", "_total"].contains(&end))
    }

    fn add(&mut self, name: &str, labels: &[(String, String)], value: &str) {
        let Ok(value) = value.split(' ').next().unwrap_or_default().parse::<f64>() else { return };
        let mut key = name.to_owned();
        for (i, (label, value)) in labels.iter().enumerate() {
            key.push(if i == 0 { '{' } else { ',' });
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(key, "{label}=\"{value}\"");
        }
        key.push('}');
        match self.places.get(&key).and_then(|at| self.values.get_mut(*at)) {
            // The last word counts of a gauge, and everything of what is counted.
            Some(known) if self.is_gauge => known.1 = value,
            Some(known) => known.1 += value,
            None => {
                self.places.insert(key.clone(), self.values.len());
                self.values.push((key, value));
            }
        }
    }

    /// Writes the values.
    fn end(&mut self, out: &mut String) {
        self.places.clear();
        for (key, value) in self.values.drain(..) {
            let _ = writeln!(out, "{key} {}", number(value));
        }
    }
}

/// A number as the format has it: there is a sign before infinity.
pub(crate) fn number(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    value.to_string()
}

/// The labels after a brace, and the rest of the line.
fn labels(text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut all = Vec::new();
    let mut rest = text;
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((all, after));
        }
        let (label, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut letters = after.char_indices();
        let end = loop {
            match letters.next()? {
                (at, '"') => break at,
                (_, '\\') => match letters.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, letter) => value.push(letter),
            }
        };
        all.push((label.trim_start_matches(',').trim().to_owned(), value));
        rest = after.get(end + 1..)?;
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Histogram, Page};

    fn allowed(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, values)| ((*key).to_owned(), (*values).to_owned())).collect()
    }

    /// The cases of upstream's `config_test.go`.
    #[test]
    fn choices() {
        let check = |choice: Choice, want: Result<(), &str>| {
            let got = choice.check();
            match want {
                Ok(()) => assert_eq!(got, Ok(()), "{choice:?}"),
                Err(why) => assert!(got.as_ref().is_err_and(|got| got.contains(why)), "{choice:?}: {got:?}"),
            }
        };
        let hidden = |version: &str| Choice { hidden_for: version.to_owned(), ..Choice::default() };
        check(hidden(""), Ok(()));
        check(hidden("1.35"), Ok(()));
        for version in ["1.36", "1.34", "1.invalid", "1.35.0", "v1.35"] {
            check(hidden(version), Err("must be omitted or have the value '1.35'; only the previous minor"));
        }
        let disabled = |names: &[&str]| Choice {
            disabled: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Choice::default()
        };
        check(disabled(&["metric_name", "another:metric"]), Ok(()));
        check(disabled(&["", "another_metric"]), Err("must be fully qualified metric names matching"));
        check(disabled(&["metric_.name"]), Err("got \"metric_.name\""));
        let labels = |key: &str| Choice { allowed: allowed(&[(key, "a,b")]), ..Choice::default() };
        check(labels("metric_name,label_name"), Ok(()));
        for key in ["-metric_name,label_name", "metric_name,:label_name", "metric_name", "a,b,c"] {
            check(labels(key), Err("must have keys with format `metricName,labelName`"));
        }
    }

    fn page() -> String {
        let mut page = Page::default();
        let mut one = Histogram::new(&[1.0, 2.0]);
        one.observe(0.5);
        let mut two = Histogram::new(&[1.0, 2.0]);
        two.observe(1.5);
        page.metric("a_total", "counter", "A.")
            .value("a_total", &[("verb", "GET"), ("code", "200")], 1.0)
            .value("a_total", &[("verb", "BREW"), ("code", "200")], 2.0)
            .value("a_total", &[("verb", "x\"y\n"), ("code", "200")], 3.0);
        page.metric("g", "gauge", "G.").value("g", &[("n", "1")], 4.0).value("g", &[("n", "2")], 5.0);
        page.metric("h", "histogram", "H.").histogram("h", &[("q", "1")], &one);
        page.histogram("h", &[("q", "2")], &two);
        page.metric("z", "gauge", "Z.").value("z", &[], 1.0);
        page.text()
    }

    fn check(choice: Choice, lines: &[&str]) {
        let shown = Shown::new(choice).unwrap().apply(page());
        let got: Vec<&str> = shown.lines().filter(|line| !line.starts_with('#')).collect();
        let own = got.iter().position(|line| line.starts_with("cardinality_enforcement")).unwrap();
        assert_eq!(got[..own], *lines, "{shown}");
    }

    #[test]
    fn nothing_chosen_changes_nothing() {
        let hidden = Choice { hidden_for: "1.35".to_owned(), ..Choice::default() };
        for choice in [Choice::default(), hidden] {
            assert_eq!(Shown::new(choice).unwrap().apply(page()), page());
        }
    }

    #[test]
    fn disabled_metrics_are_gone_with_their_headers() {
        let disabled = ["a_total", "h"].map(str::to_owned).into();
        let choice = Choice { disabled, ..Choice::default() };
        check(choice.clone(), &["g{n=\"1\"} 4", "g{n=\"2\"} 5", "z 1"]);
        let shown = Shown::new(choice).unwrap().apply(page());
        assert!(!shown.contains("a_total") && !shown.contains("# TYPE h "), "{shown}");
        assert!(shown.ends_with("disabled_metrics_total 2\n"), "{shown}");
    }

    #[test]
    fn values_that_are_not_allowed_are_one() {
        let choice = |pairs: &[(&str, &str)]| Choice { allowed: allowed(pairs), ..Choice::default() };
        let rest = [
            "g{n=\"1\"} 4",
            "g{n=\"2\"} 5",
            "h_bucket{q=\"1\",le=\"1\"} 1",
            "h_bucket{q=\"1\",le=\"2\"} 1",
            "h_bucket{q=\"1\",le=\"+Inf\"} 1",
            "h_sum{q=\"1\"} 0.5",
            "h_count{q=\"1\"} 1",
            "h_bucket{q=\"2\",le=\"1\"} 0",
            "h_bucket{q=\"2\",le=\"2\"} 1",
            "h_bucket{q=\"2\",le=\"+Inf\"} 1",
            "h_sum{q=\"2\"} 1.5",
            "h_count{q=\"2\"} 1",
            "z 1",
        ];
        let counted = ["a_total{verb=\"GET\",code=\"200\"} 1", "a_total{verb=\"unexpected\",code=\"200\"} 5"];
        check(choice(&[("a_total,verb", "GET,PUT")]), &[&counted[..], &rest[..]].concat());
        let text = Shown::new(choice(&[("g,n", "3"), ("h,q", "")])).unwrap().apply(page());
        for line in [
            "a_total{verb=\"x\\\"y\\n\",code=\"200\"} 3\n",
            "# TYPE g gauge\ng{n=\"unexpected\"} 5\n",
            "h_bucket{q=\"unexpected\",le=\"1\"} 1\n",
            "h_bucket{q=\"unexpected\",le=\"2\"} 2\n",
            "h_sum{q=\"unexpected\"} 2\n",
            "h_count{q=\"unexpected\"} 2\n",
            "cardinality_enforcement_unexpected_categorizations_total 12\n",
        ] {
            assert!(text.contains(line), "{line:?} in {text}");
        }
    }

    #[test]
    fn open_metrics() {
        let text = "# HELP a A.\n# TYPE a counter\na_total{v=\"1\"} 1\na_total{v=\"2\"} 2\n# EOF\n";
        let disabled = Choice { disabled: vec!["a_total".to_owned()], ..Choice::default() };
        let shown = Shown::new(disabled).unwrap().apply(text.to_owned());
        assert!(!shown.contains("a_total") && shown.ends_with("\n# EOF\n"), "{shown}");
        let choice = Choice { allowed: allowed(&[("a_total,v", "1")]), ..Choice::default() };
        let shown = Shown::new(choice).unwrap().apply(text.to_owned());
        assert!(shown.contains("a_total{v=\"unexpected\"} 2\n"), "{shown}");
    }
}
