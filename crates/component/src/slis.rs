//! The outcomes of health checks, for `/metrics/slis`: upstream's `k8s.io/component-base/metrics/prometheus/slis`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::metrics::Page;

/// The last outcome of a check, and how often it succeeded and failed.
#[derive(Default)]
struct Outcome {
    good: bool,
    successes: u64,
    errors: u64,
}

/// The outcomes of the checks of a process, by name and by the endpoint that asked. Clones are the same outcomes.
#[derive(Clone, Default)]
pub struct Slis(Arc<Mutex<BTreeMap<(String, &'static str), Outcome>>>);

impl Slis {
    /// Notes the outcome of a check that `healthz`, `livez` or `readyz` asked. Checks are few: those of the process.
    pub fn note(&self, check: &str, endpoint: &str, good: bool) {
        let Some(endpoint) = ["healthz", "livez", "readyz"].into_iter().find(|known| *known == endpoint)
        else {
            return;
        };
        let mut all = self.0.lock();
        let outcome = all.entry((check.to_owned(), endpoint)).or_default();
        outcome.good = good;
        if good {
            outcome.successes += 1;
        } else {
            outcome.errors += 1;
        }
    }

    /// Takes the present outcome of a check that is there, whether or not it was ever asked: nothing is counted, and an
    /// outcome that somebody asked for stays.
    ///
    /// DIFFERENCE: upstream tells of a check only once an endpoint was asked for it, so that an alert about a check has
    /// nothing to look at until then.
    pub fn known(&self, check: &str, endpoint: &'static str, good: bool) {
        let mut all = self.0.lock();
        all.entry((check.to_owned(), endpoint)).or_insert_with(|| Outcome { good, ..Outcome::default() });
    }

    /// The page.
    pub fn page(&self) -> Page {
        let mut page = Page::default();
        for ((name, endpoint), outcome) in &*self.0.lock() {
            page.metric(
                "kubernetes_healthcheck",
                "gauge",
                "[STABLE] This metric records the result of a single healthcheck.",
            )
            .value(
                "kubernetes_healthcheck",
                &[("name", name), ("type", endpoint)],
                f64::from(u8::from(outcome.good)),
            );
            page.metric(
                "kubernetes_healthchecks_total",
                "counter",
                "[STABLE] This metric records the results of all healthcheck.",
            );
            for (status, count) in [("error", outcome.errors), ("success", outcome.successes)] {
                page.value(
                    "kubernetes_healthchecks_total",
                    &[("name", name), ("status", status), ("type", endpoint)],
                    count as f64,
                );
            }
        }
        page
    }
}

impl fmt::Debug for Slis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slis").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_counted_by_check_and_endpoint() {
        let slis = Slis::default();
        for (check, endpoint, good) in [
            ("etcd", "livez", true),
            ("etcd", "livez", false),
            ("etcd", "readyz", true),
            ("ping", "other", true),
        ] {
            slis.note(check, endpoint, good);
        }
        slis.known("etcd", "livez", true);
        slis.known("new", "readyz", true);
        let text = slis.page().text();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "kubernetes_healthcheck{name=\"etcd\",type=\"livez\"} 0",
                "kubernetes_healthcheck{name=\"etcd\",type=\"readyz\"} 1",
                "kubernetes_healthcheck{name=\"new\",type=\"readyz\"} 1",
                "kubernetes_healthchecks_total{name=\"etcd\",status=\"error\",type=\"livez\"} 1",
                "kubernetes_healthchecks_total{name=\"etcd\",status=\"success\",type=\"livez\"} 1",
                "kubernetes_healthchecks_total{name=\"etcd\",status=\"error\",type=\"readyz\"} 0",
                "kubernetes_healthchecks_total{name=\"etcd\",status=\"success\",type=\"readyz\"} 1",
                "kubernetes_healthchecks_total{name=\"new\",status=\"error\",type=\"readyz\"} 0",
                "kubernetes_healthchecks_total{name=\"new\",status=\"success\",type=\"readyz\"} 0",
            ]
        );
    }
}
