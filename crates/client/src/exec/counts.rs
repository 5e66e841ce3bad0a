//! The runs of all credential plugins of this process, and the certificates that they gave: upstream's
//! `rest_client_exec_plugin_*`.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Weak};

use component::metrics::{Histogram, Page};
use jiff::Timestamp;
use parking_lot::Mutex;

/// Ages of certificates in seconds; upstream's, from ten minutes to four years.
const AGES: &[f64] = &[
    600.0,
    1800.0,
    3600.0,
    14400.0,
    86400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    124_416_000.0,
];

/// The way in which a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Run {
    Done,
    /// It ended with this exit code; -1 for the end by a signal.
    Failed(i32),
    NotFound,
    /// It was given up.
    Lost,
}

impl Run {
    /// The labels: upstream's exit code and status.
    fn labels(self) -> (i32, &'static str) {
        match self {
            Self::Done => (0, "no_error"),
            Self::Failed(code) => (code, "plugin_execution_error"),
            Self::NotFound => (1, "plugin_not_found_error"),
            Self::Lost => (1, "client_internal_error"),
        }
    }
}

/// Begin and end of a certificate.
pub(super) type Validity = (Timestamp, Timestamp);

/// The validity of the certificate that a program gave last, if it gave one.
#[derive(Debug, Default)]
pub(super) struct Present(Arc<Mutex<Option<Validity>>>);

/// The runs and certificates so far.
struct Counts {
    runs: BTreeMap<Run, u64>,
    /// How long certificates lived that were exchanged for others, from their begin.
    lives: Histogram,
    /// Those of all programs.
    present: Vec<Weak<Mutex<Option<Validity>>>>,
}

static ALL: LazyLock<Mutex<Counts>> = LazyLock::new(|| Mutex::new(Counts::default()));

impl Default for Counts {
    fn default() -> Self {
        Self { runs: BTreeMap::new(), lives: Histogram::new(AGES), present: Vec::new() }
    }
}

/// Counts a run.
pub(super) fn ran(run: Run) {
    *ALL.lock().runs.entry(run).or_default() += 1;
}

impl Present {
    /// Notes that the program gave another certificate, or none, in the place of the present one.
    pub(super) fn exchange(&self, new: Option<Validity>) {
        ALL.lock().exchange(self, new, Timestamp::now());
    }
}

impl Counts {
    fn exchange(&mut self, present: &Present, new: Option<Validity>, now: Timestamp) {
        if let Some((begin, _)) = std::mem::replace(&mut *present.0.lock(), new) {
            self.lives.observe(now.duration_since(begin).as_secs_f64());
        }
        let this = Arc::downgrade(&present.0);
        self.present.retain(|known| known.strong_count() > 0 && !known.ptr_eq(&this));
        self.present.push(this);
    }

    fn write(&self, page: &mut Page, now: Timestamp) {
        let name = "rest_client_exec_plugin_call_total";
        let help = "[ALPHA] Number of calls to an exec plugin, partitioned by the type of event encountered (no_error, plugin_execution_error, plugin_not_found_error, client_internal_error) and an optional exit code. The exit code will be set to 0 if and only if the plugin call was successful.";
        if !self.runs.is_empty() {
            page.metric(name, "counter", help);
        }
        for (run, n) in &self.runs {
            let (code, status) = run.labels();
            page.value(name, &[("call_status", status), ("code", &code.to_string())], *n as f64);
        }
        let name = "rest_client_exec_plugin_certificate_rotation_age";
        let help = "[ALPHA] Histogram of the number of seconds the last auth exec plugin client certificate lived before being rotated. If auth exec plugin client certificates are unused, histogram will contain no data.";
        page.metric(name, "histogram", help).histogram(name, &[], &self.lives);
        let name = "rest_client_exec_plugin_ttl_seconds";
        let help = "[ALPHA] Gauge of the shortest TTL (time-to-live) of the client certificate(s) managed by the auth exec plugin. The value is in seconds until certificate expiry (negative if already expired). If auth exec plugins are unused or manage no TLS certificates, the value will be +INF.";
        let first = self.present.iter().filter_map(|p| p.upgrade()?.lock().map(|(_, end)| end)).min();
        let left = first.map_or(f64::INFINITY, |end| end.duration_since(now).as_secs_f64());
        page.metric(name, "gauge", help).value(name, &[], left);
    }
}

/// Writes the metrics of all programs.
pub(crate) fn write(page: &mut Page) {
    ALL.lock().write(page, Timestamp::now());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn metrics() {
        let mut counts = Counts::default();
        let check = |counts: &Counts, lines: &[&str]| {
            let mut page = Page::default();
            counts.write(&mut page, at(1000));
            let text = page.text();
            for line in lines {
                assert!(text.lines().any(|l| l == *line), "{line}\n{text}");
            }
        };
        check(
            &counts,
            &[
                "rest_client_exec_plugin_ttl_seconds +Inf",
                "rest_client_exec_plugin_certificate_rotation_age_count 0",
            ],
        );
        for run in [Run::Done, Run::Failed(3), Run::Failed(3), Run::NotFound, Run::Lost] {
            *counts.runs.entry(run).or_default() += 1;
        }
        let [one, other] = [(); 2].map(|()| Present::default());
        counts.exchange(&one, Some((at(0), at(1500))), at(10));
        counts.exchange(&other, Some((at(0), at(1200))), at(10));
        check(
            &counts,
            &[
                "rest_client_exec_plugin_call_total{call_status=\"no_error\",code=\"0\"} 1",
                "rest_client_exec_plugin_call_total{call_status=\"plugin_execution_error\",code=\"3\"} 2",
                "rest_client_exec_plugin_call_total{call_status=\"plugin_not_found_error\",code=\"1\"} 1",
                "rest_client_exec_plugin_call_total{call_status=\"client_internal_error\",code=\"1\"} 1",
                "rest_client_exec_plugin_ttl_seconds 200",
            ],
        );
        drop(other);
        check(&counts, &["rest_client_exec_plugin_ttl_seconds 500"]);
        counts.exchange(&one, Some((at(700), at(900))), at(700));
        check(
            &counts,
            &[
                "rest_client_exec_plugin_ttl_seconds -100",
                "rest_client_exec_plugin_certificate_rotation_age_bucket{le=\"600\"} 0",
                "rest_client_exec_plugin_certificate_rotation_age_bucket{le=\"1800\"} 1",
                "rest_client_exec_plugin_certificate_rotation_age_sum 700",
            ],
        );
        counts.exchange(&one, None, at(800));
        check(&counts, &["rest_client_exec_plugin_ttl_seconds +Inf"]);
    }
}
