//! Metrics in Prometheus' text format.
//!
//! Nothing is collected between requests: a part that has metrics registers a function, which writes the present values
//! into a [`Page`].

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::shown::{Shown, number};

/// The `Content-Type` of a page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page of metrics, in the order of their names.
#[derive(Debug, Default)]
pub struct Page {
    families: BTreeMap<String, Family>,
}

#[derive(Debug, Default)]
struct Family {
    header: String,
    samples: String,
}

impl Page {
    /// Begins a metric. A second call with the same name adds to the first.
    pub fn metric(&mut self, name: &str, kind: &str, help: &str) -> &mut Self {
        let family = self.families.entry(name.to_owned()).or_default();
        family.header = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        self
    }
    /// Adds a value to a metric.
    pub fn value(&mut self, name: &str, labels: &[(&str, &str)], value: f64) -> &mut Self {
        self.value_at(name, labels, value, None)
    }
    /// Adds a value to a metric, with the time of its measurement in milliseconds since 1970.
    pub fn value_at(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        value: f64,
        millis: Option<i64>,
    ) -> &mut Self {
        let family = self.families.entry(name.to_owned()).or_default();
        sample(&mut family.samples, name, labels, value, millis);
        self
    }
    /// Adds a histogram to a metric.
    pub fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: &Histogram) -> &mut Self {
        let family = self.families.entry(name.to_owned()).or_default();
        let out = &mut family.samples;
        let (bucket, mut below) = (format!("{name}_bucket"), 0);
        for (bound, count) in histogram.bounds.iter().zip(&histogram.counts) {
            below += count;
            let bound = bound.to_string();
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            sample(out, &bucket, &labels, below as f64, None);
        }
        let labels_all: Vec<_> = labels.iter().copied().chain([("le", "+Inf")]).collect();
        sample(out, &bucket, &labels_all, histogram.count as f64, None);
        sample(out, &format!("{name}_sum"), labels, histogram.sum, None);
        sample(out, &format!("{name}_count"), labels, histogram.count as f64, None);
        self
    }
    /// The page as text.
    pub fn text(&self) -> String {
        self.families.values().flat_map(|f| [f.header.as_str(), f.samples.as_str()]).collect()
    }
}

fn sample(out: &mut String, name: &str, labels: &[(&str, &str)], value: f64, millis: Option<i64>) {
    out.push_str(name);
    for (i, (key, value)) in labels.iter().enumerate() {
        out.push(if i == 0 { '{' } else { ',' });
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        // Writing to a string cannot fail.
        let _ = write!(out, "{key}=\"{value}\"");
    }
    if !labels.is_empty() {
        out.push('}');
    }
    let value = number(value);
    let _ = match millis {
        Some(millis) => writeln!(out, " {value} {millis}"),
        None => writeln!(out, " {value}"),
    };
}

/// A histogram: counts of values by bounds. Its owner keeps it under a lock.
#[derive(Debug, Clone)]
pub struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    count: u64,
    sum: f64,
}

impl Histogram {
    /// Makes an empty histogram with these upper bounds, ascending.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len()], count: 0, sum: 0.0 }
    }
    /// The number of values.
    pub fn count(&self) -> u64 {
        self.count
    }
    /// Counts a value.
    pub fn observe(&mut self, value: f64) {
        if let Some(i) = self.bounds.iter().position(|bound| value <= *bound) {
            self.counts[i] += 1;
        }
        self.count += 1;
        self.sum += value;
    }
}

type Collect = Arc<dyn Fn(&mut Page) + Send + Sync>;

/// The parts that have metrics, by name. Clones are the same registry.
#[derive(Clone, Default)]
pub struct Registry(Arc<Registered>);

#[derive(Default)]
struct Registered {
    parts: Mutex<BTreeMap<String, Collect>>,
    shown: Mutex<Arc<Shown>>,
}

impl Registry {
    /// Registers a part's function, in the place of one that had its name before.
    pub fn register(&self, name: impl Into<String>, collect: impl Fn(&mut Page) + Send + Sync + 'static) {
        self.0.parts.lock().insert(name.into(), Arc::new(collect));
    }
    /// Chooses the metrics that are shown.
    pub fn choose(&self, shown: Shown) {
        *self.0.shown.lock() = Arc::new(shown);
    }
    /// The choice of the metrics that are shown.
    pub fn shown(&self) -> Arc<Shown> {
        self.0.shown.lock().clone()
    }
    /// Collects the metrics of all parts.
    pub fn page(&self) -> Page {
        // The functions run without the lock: they may take locks of their own.
        let all: Vec<Collect> = self.0.parts.lock().values().cloned().collect();
        let mut page = Page::default();
        for collect in all {
            collect(&mut page);
        }
        page
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.parts.lock().keys()).finish()
    }
}

/// The clock ticks of a second in the kernel's files about processes.
const TICKS: f64 = 100.0;

/// Adds the metrics that Prometheus' library for Go has of every process, with its names and helps.
pub fn process(page: &mut Page) {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    let stat = read("stat");
    let mut tell = |name: &str, kind: &str, help: &str, value: Option<f64>| {
        if let Some(value) = value {
            page.metric(name, kind, help).value(name, &[], value);
        }
    };
    let field = |number: usize| field(&stat, number);
    let status = read("status");
    let kib = |key: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(key))?;
        line.split_ascii_whitespace().next()?.parse::<f64>().ok().map(|kib| kib * 1024.0)
    };
    let limits = read("limits");
    let limit = |key: &str| {
        let soft = limits.lines().find_map(|l| l.strip_prefix(key))?.split_ascii_whitespace().next()?;
        if soft == "unlimited" { Some(u64::MAX as f64) } else { soft.parse().ok() }
    };
    let used = field(14).zip(field(15)).map(|(user, system)| (user + system) / TICKS);
    let open = std::fs::read_dir("/proc/self/fd").ok().map(|all| all.count() as f64);
    let (received, sent) = network(&read("net/netstat"));
    let counter = "counter";
    tell("process_cpu_seconds_total", counter, "Total user and system CPU time spent in seconds.", used);
    tell("process_max_fds", "gauge", "Maximum number of open file descriptors.", limit("Max open files"));
    tell("process_open_fds", "gauge", "Number of open file descriptors.", open);
    tell("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", kib("VmRSS:"));
    let help = "Start time of the process since unix epoch in seconds.";
    tell("process_start_time_seconds", "gauge", help, started());
    tell("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", kib("VmSize:"));
    let help = "Maximum amount of virtual memory available in bytes.";
    tell("process_virtual_memory_max_bytes", "gauge", help, limit("Max address space"));
    let help = "Number of bytes received by the process over the network.";
    tell("process_network_receive_bytes_total", counter, help, received);
    let help = "Number of bytes sent by the process over the network.";
    tell("process_network_transmit_bytes_total", counter, help, sent);
}

/// A field of `/proc/PID/stat`, from the third on. The second may hold spaces, but ends with ")".
fn field(stat: &str, number: usize) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    fields.nth(number.checked_sub(3)?)?.parse().ok()
}

/// When this process started, in seconds since 1970.
pub fn started() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let machine = std::fs::read_to_string("/proc/stat").ok()?;
    let booted: f64 = machine.lines().find_map(|l| l.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(booted + field(&stat, 22)? / TICKS)
}

/// The bytes that came and went, of `/proc/PID/net/netstat`: a line of names, and one of numbers.
fn network(netstat: &str) -> (Option<f64>, Option<f64>) {
    let mut lines = netstat.lines().filter_map(|l| l.strip_prefix("IpExt: "));
    let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else { return (None, None) };
    let of = |name: &str| {
        let at = names.split(' ').position(|n| n == name)?;
        numbers.split(' ').nth(at)?.parse().ok()
    };
    (of("InOctets"), of("OutOctets"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_format() {
        let mut page = Page::default();
        page.metric("m", "gauge", "Help.").value("m", &[("a", "x\"y\\z\n"), ("b", "")], 1.5).value(
            "m",
            &[],
            2.0,
        );
        assert_eq!(page.text(), "# HELP m Help.\n# TYPE m gauge\nm{a=\"x\\\"y\\\\z\\n\",b=\"\"} 1.5\nm 2\n");
    }

    #[test]
    fn infinity_has_a_sign() {
        for (value, expected) in
            [(f64::INFINITY, "+Inf"), (f64::NEG_INFINITY, "-Inf"), (1e3, "1000"), (0.25, "0.25")]
        {
            assert_eq!(number(value), expected);
        }
    }

    #[test]
    fn bytes_of_the_network() {
        let text = "TcpExt: A B\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 30 40\n";
        assert_eq!(network(text), (Some(30.0), Some(40.0)));
        assert_eq!(network("IpExt: InOctets\n"), (None, None));
    }

    #[test]
    fn histograms_are_cumulative() {
        let mut histogram = Histogram::new(&[0.1, 1.0]);
        for value in [0.05, 0.1, 0.5, 7.0] {
            histogram.observe(value);
        }
        let mut page = Page::default();
        page.metric("h", "histogram", "H").histogram("h", &[("name", "n")], &histogram);
        let lines: Vec<String> = page.text().lines().skip(2).map(str::to_owned).collect();
        assert_eq!(
            lines,
            [
                r#"h_bucket{name="n",le="0.1"} 2"#,
                r#"h_bucket{name="n",le="1"} 3"#,
                r#"h_bucket{name="n",le="+Inf"} 4"#,
                r#"h_sum{name="n"} 7.65"#,
                r#"h_count{name="n"} 4"#,
            ]
        );
    }

    #[test]
    fn a_metric_that_several_tell_of_stands_together() {
        let registry = Registry::default();
        for name in ["b", "a", "a"] {
            registry.register(name, move |page: &mut Page| {
                page.metric("m", "gauge", "Help.").value("m", &[("name", name)], 1.0);
                page.metric("other", "gauge", "Help.").value("other", &[("name", name)], 1.0);
            });
        }
        let text = registry.page().text();
        assert_eq!(text.matches("# TYPE m ").count(), 1);
        assert!(text.contains("m{name=\"a\"} 1\nm{name=\"b\"} 1\n# HELP other"), "{text}");
        let mut own = Page::default();
        process(&mut own);
        let own = own.text();
        let told = own.lines().filter(|l| l.starts_with("process_")).count();
        assert!(told == 9 && own.contains("\nprocess_resident_memory_bytes "), "{own}");
    }
}
