//! Counters of the work on claims; upstream's names.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use component::metrics::{Histogram, Page};
use parking_lot::Mutex;
use tonic::Code;

use crate::grpc::code_name;

/// The most combinations of labels that are counted: a plugin chooses its driver's name.
const MOST: usize = 1000;

/// Upstream's bounds: fifteen from 0.1 s to 40 s, each by the same factor larger than the one before.
static SECONDS: LazyLock<[f64; 15]> = LazyLock::new(|| {
    let factor = (40.0_f64 / 0.1).powf(1.0 / 14.0);
    std::array::from_fn(|i| 0.1 * factor.powf(i as f64))
});

/// Driver, method, name of the answer's code.
type Call = (String, &'static str, &'static str);

/// The counters.
#[derive(Debug, Default)]
pub(super) struct DraMetrics {
    operations: Mutex<BTreeMap<(&'static str, bool), Histogram>>,
    calls: Mutex<BTreeMap<Call, Histogram>>,
}

impl DraMetrics {
    /// Counts what was done for a Pod.
    pub(super) fn operation(&self, name: &'static str, failed: bool, took: Duration) {
        let mut all = self.operations.lock();
        let one = all.entry((name, failed)).or_insert_with(|| Histogram::new(&*SECONDS));
        one.observe(took.as_secs_f64());
    }

    /// Counts a call to a driver.
    pub(super) fn call(&self, driver: &str, method: &'static str, code: Code, took: Duration) {
        let mut all = self.calls.lock();
        let key = (driver.to_owned(), method, code_name(code));
        if all.len() >= MOST && !all.contains_key(&key) {
            return;
        }
        all.entry(key).or_insert_with(|| Histogram::new(&*SECONDS)).observe(took.as_secs_f64());
    }

    /// Writes all of them, and how many claims are in use, by driver.
    pub(super) fn write(&self, page: &mut Page, in_use: &BTreeMap<String, usize>) {
        let name = "dra_operations_duration_seconds";
        page.metric(name, "histogram", "[ALPHA] Latency histogram in seconds for the duration of handling all ResourceClaims referenced by a pod when the pod starts or stops. Identified by the name of the operation (PrepareResources or UnprepareResources) and separated by the success of the operation. The number of failed operations is provided through the histogram's overall count.");
        for ((operation, failed), histogram) in self.operations.lock().iter() {
            let failed = if *failed { "true" } else { "false" };
            page.histogram(name, &[("is_error", failed), ("operation_name", operation)], histogram);
        }
        let name = "dra_grpc_operations_duration_seconds";
        page.metric(name, "histogram", "[ALPHA] Duration in seconds of the DRA gRPC operations");
        for ((driver, method, code), histogram) in self.calls.lock().iter() {
            let labels =
                [("driver_name", driver.as_str()), ("grpc_status_code", code), ("method_name", method)];
            page.histogram(name, &labels, histogram);
        }
        let name = "dra_resource_claims_in_use";
        page.metric(name, "gauge", "[ALPHA] The number of ResourceClaims that are currently in use on the node, by driver name (driver_name label value) and across all drivers (special value <any> for driver_name). Note that the sum of all by-driver counts is not the total number of in-use ResourceClaims because the same ResourceClaim might use devices from different drivers. Instead, use the count for the <any> driver_name.");
        for (driver, count) in in_use {
            page.value(name, &[("driver_name", driver)], *count as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_bounds() {
        let metrics = DraMetrics::default();
        metrics.operation("PrepareResources", true, Duration::from_millis(90));
        for n in 0..MOST + 10 {
            metrics.call(&format!("driver-{n}"), "/m", Code::DeadlineExceeded, Duration::from_secs(45));
        }
        let mut page = Page::default();
        metrics.write(&mut page, &BTreeMap::from([("<any>".to_owned(), 2)]));
        let text = page.text();
        for line in [
            "dra_operations_duration_seconds_bucket{is_error=\"true\",operation_name=\"PrepareResources\",le=\"0.1\"} 1",
            "dra_grpc_operations_duration_seconds_count{driver_name=\"driver-0\",grpc_status_code=\"DeadlineExceeded\",method_name=\"/m\"} 1",
            "dra_resource_claims_in_use{driver_name=\"<any>\"} 2",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{}", &text[..4000]);
        }
        assert!(!text.contains(&format!("driver-{MOST}")), "bounded");
        assert!((SECONDS[14] - 40.0).abs() < 1e-9);
    }
}
