//! Upstream's figures as they were measured once, for runs without upstream beside them. Absolute
//! times belong to that machine; the CPU time of an operation varies less.

use super::requests::{self, Row};

/// The programs that were measured, and the machine.
pub(crate) const WHERE: &str = "kube-apiserver 1.36.2 with etcd 3.5.30, default settings, 10000 objects, \
     500 watchers, load from the same two cores (AMD EPYC, 23 GiB, Debian 12, November 2026)";

/// Seconds from kube-apiserver's start to `/readyz`.
pub(crate) const START: f64 = 3.0;
/// MiB of kube-apiserver and etcd together, before the load.
pub(crate) const MEMORY_AT_REST: f64 = 337.0;
/// MiB of both together at most.
pub(crate) const MEMORY_PEAK: f64 = 1542.0;

/// The figures of kube-apiserver and etcd together.
pub(crate) const ROWS: &[Row] = &[
    row(64, requests::CREATE, 2734.0, 21.0, 60.0, 616.0),
    row(1, requests::CREATE, 789.0, 1.1, 5.3, 1500.0),
    row(64, requests::GET, 5596.0, 10.0, 32.0, 292.0),
    row(64, requests::UPDATE, 2171.0, 26.0, 71.0, 817.0),
    row(64, requests::PATCH, 1958.0, 30.0, 75.0, 908.0),
    row(64, requests::APPLY, 1689.0, 33.0, 94.0, 1058.0),
    row(64, requests::CREATE_POD, 1365.0, 41.0, 118.0, 1326.0),
    row(1, requests::LIST_CACHE, 2.4, 407.0, 536.0, 488_000.0),
    row(1, requests::LIST, 2.2, 456.0, 607.0, 529_000.0),
    row(1, requests::LIST_LABEL, 143.0, 7.2, 10.0, 6500.0),
    row(1, requests::LIST_PAGE, 39.0, 24.0, 39.0, 31_600.0),
    Row { name: requests::WATCH, at_once: 500, rate: 72_600.0, p50: None, p99: None, cpu: 18.0 },
];

const fn row(at_once: u32, name: &'static str, rate: f64, p50: f64, p99: f64, cpu: f64) -> Row {
    Row { name, at_once, rate, p50: Some(p50), p99: Some(p99), cpu }
}
