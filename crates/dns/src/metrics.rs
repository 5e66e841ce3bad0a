//! Metrics, by CoreDNS' names.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use component::metrics::{Histogram, Page};
use parking_lot::Mutex;

use crate::cache::Cache;
use crate::packet::{Query, Rcode, Transport, rcode_of};

/// The bounds of times, in seconds: from 0.25 ms, each twice the one before; CoreDNS'.
pub(crate) const TIMES: &[f64] = &[
    0.000_25, 0.000_5, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048,
    4.096, 8.192,
];
/// The bounds of sizes, in bytes; CoreDNS'.
const SIZES: &[f64] =
    &[0.0, 100.0, 200.0, 300.0, 400.0, 511.0, 1023.0, 2047.0, 4095.0, 8291.0, 16e3, 32e3, 48e3, 64e3];
/// The bounds of the time until a change is served, in seconds: from 1 ms, each twice the one before; CoreDNS'.
const PROGRAMMING: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
    32.768, 65.536, 131.072, 262.144, 524.288,
];

/// The types that have a label of their own; CoreDNS'. The last is for all others.
const KINDS: [(u16, &str); 20] = [
    (1, "A"),
    (28, "AAAA"),
    (5, "CNAME"),
    (48, "DNSKEY"),
    (43, "DS"),
    (15, "MX"),
    (50, "NSEC3"),
    (47, "NSEC"),
    (2, "NS"),
    (12, "PTR"),
    (46, "RRSIG"),
    (6, "SOA"),
    (33, "SRV"),
    (16, "TXT"),
    (65, "HTTPS"),
    (64, "SVCB"),
    (251, "IXFR"),
    (252, "AXFR"),
    (255, "ANY"),
    (0, "other"),
];
/// How many response codes are told apart; the last is for all others.
const RCODES: usize = 18;

/// The part of the names that a question was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Area {
    /// The cluster's domain.
    Cluster = 0,
    /// Names of addresses of the cluster.
    Reverse = 1,
    /// All others.
    Outside = 2,
    /// Packets that are no questions.
    Dropped = 3,
}

const AREAS: usize = 4;

/// The counts of one area.
struct Counts {
    requests: [[[AtomicU64; KINDS.len()]; 2]; 2],
    responses: [AtomicU64; RCODES],
    dnssec: AtomicU64,
    measured: Mutex<Measured>,
}

struct Measured {
    duration: Histogram,
    request_size: [Histogram; 2],
    response_size: [Histogram; 2],
}

impl Default for Counts {
    fn default() -> Self {
        let sizes = || [Histogram::new(SIZES), Histogram::new(SIZES)];
        let measured =
            Measured { duration: Histogram::new(TIMES), request_size: sizes(), response_size: sizes() };
        Self {
            requests: Default::default(),
            responses: Default::default(),
            dnssec: AtomicU64::new(0),
            measured: Mutex::new(measured),
        }
    }
}

/// A query that was answered.
pub(crate) struct Served<'a> {
    pub(crate) area: Area,
    pub(crate) transport: Transport,
    pub(crate) source: IpAddr,
    pub(crate) query: Option<&'a Query>,
    pub(crate) request: usize,
    pub(crate) response: &'a [u8],
    pub(crate) took: Duration,
}

/// The counts of a server.
pub(crate) struct Metrics {
    /// The server, as CoreDNS names it.
    server: String,
    zones: [String; AREAS],
    counts: [Counts; AREAS],
    pub(crate) panics: AtomicU64,
    pub(crate) rejected: AtomicU64,
    programming: [Mutex<Histogram>; 2],
}

impl Metrics {
    pub(crate) fn new(port: u16, domain: String) -> Arc<Self> {
        let zones = [domain, "in-addr.arpa.".to_owned(), ".".to_owned(), "dropped".to_owned()];
        let histogram = || Mutex::new(Histogram::new(PROGRAMMING));
        Arc::new(Self {
            server: format!("dns://:{port}"),
            zones,
            counts: Default::default(),
            panics: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            programming: [histogram(), histogram()],
        })
    }

    /// Counts a query.
    pub(crate) fn served(&self, served: &Served<'_>) {
        let counts = &self.counts[served.area as usize];
        let transport = served.transport as usize;
        let wanted = served.query.map_or(0, |q| q.kind);
        let kind = KINDS.iter().position(|(k, _)| *k == wanted).unwrap_or(KINDS.len() - 1);
        let family = usize::from(served.source.is_ipv6());
        counts.requests[transport][family][kind].fetch_add(1, Ordering::Relaxed);
        let rcode = match rcode_of(served.response) {
            // The code of a version is longer than a header has room for.
            0 if served.query.is_some_and(|q| q.edns.is_some_and(|e| e.version > 0)) => 16,
            known @ 0..=10 => usize::from(known),
            _ => RCODES - 1,
        };
        counts.responses[rcode].fetch_add(1, Ordering::Relaxed);
        if served.query.is_some_and(Query::dnssec) {
            counts.dnssec.fetch_add(1, Ordering::Relaxed);
        }
        let mut measured = counts.measured.lock();
        measured.duration.observe(served.took.as_secs_f64());
        measured.request_size[transport].observe(served.request as f64);
        measured.response_size[transport].observe(served.response.len() as f64);
    }

    /// Notes how long it took until a change of endpoints was served.
    pub(crate) fn programmed(&self, headless: bool, took: Duration) {
        self.programming[usize::from(headless)].lock().observe(took.as_secs_f64());
    }

    /// Tells everything that was counted.
    pub(crate) fn report(&self, page: &mut Page) {
        for (zone, counts) in self.zones.iter().zip(&self.counts) {
            self.report_area(page, zone, counts);
        }
        page.metric("coredns_panics_total", "counter", "A metrics that counts the number of panics.");
        page.value("coredns_panics_total", &[], self.panics.load(Ordering::Relaxed) as f64);
        let name = "coredns_forward_max_concurrent_rejects_total";
        let help =
            "Counter of the number of queries rejected because the concurrent queries were at maximum.";
        page.metric(name, "counter", help).value(name, &[], self.rejected.load(Ordering::Relaxed) as f64);
        let name = "coredns_kubernetes_dns_programming_duration_seconds";
        let help = "Histogram of the time (in seconds) it took to program a dns instance.";
        page.metric(name, "histogram", help);
        for (kind, histogram) in ["cluster_ip", "headless_with_selector"].iter().zip(&self.programming) {
            page.histogram(name, &[("service_kind", kind)], &histogram.lock());
        }
        let name = "coredns_build_info";
        let help = "A metric with a constant '1' value labeled by version, revision, and goversion from which CoreDNS was built.";
        let labels = [("version", env!("CARGO_PKG_VERSION")), ("revision", "ferrokube"), ("goversion", "")];
        page.metric(name, "gauge", help).value(name, &labels, 1.0);
    }

    fn report_area(&self, page: &mut Page, zone: &str, counts: &Counts) {
        let base = [("server", self.server.as_str()), ("zone", zone), ("view", "")];
        let name = "coredns_dns_requests_total";
        page.metric(name, "counter", "Counter of DNS requests made per zone, protocol and family.");
        for (proto, by_family) in ["udp", "tcp"].iter().zip(&counts.requests) {
            for (family, by_kind) in ["1", "2"].iter().zip(by_family) {
                for ((_, kind), count) in KINDS.iter().zip(by_kind) {
                    let labels =
                        [&base[..], &[("proto", *proto), ("family", *family), ("type", *kind)]].concat();
                    counter(page, name, &labels, count);
                }
            }
        }
        let name = "coredns_dns_responses_total";
        page.metric(name, "counter", "Counter of response status codes.");
        for (rcode, count) in (0u16..).zip(&counts.responses) {
            counter(
                page,
                name,
                &[&base[..], &[("rcode", Rcode::name(rcode)), ("plugin", "")]].concat(),
                count,
            );
        }
        let name = "coredns_dns_do_requests_total";
        page.metric(name, "counter", "Counter of DNS requests with DO bit set per zone.");
        counter(page, name, &base, &counts.dnssec);
        let measured = counts.measured.lock();
        let name = "coredns_dns_request_duration_seconds";
        page.metric(name, "histogram", "Histogram of the time (in seconds) each request took per zone.");
        page.histogram(name, &base, &measured.duration);
        let help = "Size of the EDNS0 UDP buffer in bytes (64K for TCP) per zone and protocol.";
        page.metric("coredns_dns_request_size_bytes", "histogram", help);
        page.metric(
            "coredns_dns_response_size_bytes",
            "histogram",
            "Size of the returned response in bytes.",
        );
        for (i, proto) in ["udp", "tcp"].into_iter().enumerate() {
            let labels = [&base[..], &[("proto", proto)]].concat();
            page.histogram("coredns_dns_request_size_bytes", &labels, &measured.request_size[i]);
            page.histogram("coredns_dns_response_size_bytes", &labels, &measured.response_size[i]);
        }
    }

    /// Tells of a cache.
    pub(crate) fn report_cache(&self, page: &mut Page, cache: &Cache) {
        let labels = [("server", self.server.as_str()), ("zones", "."), ("view", "")];
        let of_type = |kind| [&labels[..], &[("type", kind)]].concat();
        let (answers, denials) = cache.len();
        let name = "coredns_cache_entries";
        page.metric(name, "gauge", "The number of elements in the cache.");
        page.value(name, &of_type("success"), answers as f64).value(name, &of_type("denial"), denials as f64);
        let counts = cache.counts();
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        let (hits, denial_hits) = (load(&counts.hits), load(&counts.denial_hits));
        let name = "coredns_cache_hits_total";
        page.metric(name, "counter", "The count of cache hits.");
        page.value(name, &of_type("success"), hits).value(name, &of_type("denial"), denial_hits);
        let name = "coredns_cache_requests_total";
        page.metric(name, "counter", "The count of cache requests.").value(
            name,
            &labels,
            load(&counts.requests),
        );
        let name = "coredns_cache_misses_total";
        let help = "The count of cache misses. Deprecated, derive misses from cache hits/requests counters.";
        page.metric(name, "counter", help);
        page.value(name, &labels, load(&counts.requests) - hits - denial_hits);
        let name = "coredns_cache_evictions_total";
        page.metric(name, "counter", "The count of cache evictions.");
        page.value(name, &of_type("success"), load(&counts.evictions));
    }
}

/// Tells a count, unless it is zero.
fn counter(page: &mut Page, name: &str, labels: &[(&str, &str)], count: &AtomicU64) {
    let count = count.load(Ordering::Relaxed);
    if count > 0 {
        page.value(name, labels, count as f64);
    }
}
