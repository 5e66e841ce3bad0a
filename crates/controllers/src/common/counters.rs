//! Counters and histograms with labels, for the metrics of a controller.

use std::collections::BTreeMap;

use component::metrics::{Histogram, Page};
use parking_lot::Mutex;

/// Buckets of seconds: 0.001 and on, each twice the one before, as some of upstream's.
pub(crate) const SHORT_SECONDS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];

/// A metric of a controller: its whole name, its labels, and its help.
pub(crate) type Metric = (&'static str, &'static [&'static str], &'static str);

/// The numbers of a controller, by upstream's names.
pub(crate) struct Counters {
    counters: &'static [Metric],
    histograms: &'static [(Metric, &'static [f64])],
    counts: Mutex<BTreeMap<(&'static str, Vec<String>), u64>>,
    observed: Mutex<BTreeMap<(&'static str, Vec<String>), Histogram>>,
}

impl Counters {
    /// Makes counters, and histograms with these upper bounds.
    pub(crate) fn new(counters: &'static [Metric], histograms: &'static [(Metric, &'static [f64])]) -> Self {
        Self { counters, histograms, counts: Mutex::default(), observed: Mutex::default() }
    }

    /// Adds to a counter, under the values of its labels.
    pub(crate) fn add(&self, name: &'static str, labels: &[&str], number: u64) {
        *self.counts.lock().entry((name, owned(labels))).or_default() += number;
    }

    /// Counts a value in a histogram, under the values of its labels.
    pub(crate) fn observe(&self, name: &'static str, labels: &[&str], value: f64) {
        let Some((_, bounds)) = self.histograms.iter().find(|((of, ..), _)| *of == name) else { return };
        let mut observed = self.observed.lock();
        observed.entry((name, owned(labels))).or_insert_with(|| Histogram::new(bounds)).observe(value);
    }

    /// Writes the page.
    pub(crate) fn report(&self, page: &mut Page) {
        let counts = self.counts.lock();
        for (name, labels, help) in self.counters {
            page.metric(name, "counter", help);
            for ((_, values), count) in counts.iter().filter(|((of, _), _)| of == name) {
                page.value(name, &pairs(labels, values), *count as f64);
            }
            if labels.is_empty() && !counts.contains_key(&(*name, Vec::new())) {
                page.value(name, &[], 0.0);
            }
        }
        let observed = self.observed.lock();
        for ((name, labels, help), bounds) in self.histograms {
            page.metric(name, "histogram", help);
            if labels.is_empty() && !observed.contains_key(&(*name, Vec::new())) {
                page.histogram(name, &[], &Histogram::new(bounds));
            }
            for ((_, values), histogram) in observed.iter().filter(|((of, _), _)| of == name) {
                page.histogram(name, &pairs(labels, values), histogram);
            }
        }
    }
}

fn owned(labels: &[&str]) -> Vec<String> {
    labels.iter().map(|l| (*l).to_owned()).collect()
}

fn pairs<'a>(labels: &[&'static str], values: &'a [String]) -> Vec<(&'static str, &'a str)> {
    labels.iter().copied().zip(values.iter().map(String::as_str)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages() {
        let counters = Counters::new(
            &[("a_total", &["zone"], "A"), ("b_total", &[], "B")],
            &[(("c_seconds", &[], "C"), &[1.0])],
        );
        counters.add("a_total", &["z"], 2);
        counters.add("a_total", &["z"], 1);
        counters.observe("c_seconds", &[], 0.5);
        counters.observe("nothing", &[], 0.5);
        let mut page = Page::default();
        counters.report(&mut page);
        let values: Vec<String> =
            page.text().lines().filter(|l| !l.starts_with('#')).map(str::to_owned).collect();
        assert_eq!(
            values,
            [
                "a_total{zone=\"z\"} 3",
                "b_total 0",
                "c_seconds_bucket{le=\"1\"} 1",
                "c_seconds_bucket{le=\"+Inf\"} 1",
                "c_seconds_sum 0.5",
                "c_seconds_count 1"
            ]
        );
    }
}
