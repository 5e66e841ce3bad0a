//! A kubelet's `/metrics/resource`, read by metrics-server's rules.

use std::collections::{BTreeMap, HashMap};

use api::Text;
use jiff::Timestamp;

/// The resources that were used up to a moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Point {
    /// The beginning of the container, if it is known.
    pub(crate) started: Option<Timestamp>,
    /// When it was measured.
    pub(crate) at: Timestamp,
    /// Processor time since the beginning, nanoseconds.
    pub(crate) cpu: u64,
    /// The working set, bytes.
    pub(crate) memory: u64,
    /// Swap, bytes.
    pub(crate) swap: u64,
}

impl Point {
    fn is_whole(&self) -> bool {
        self.at != Timestamp::default() && self.cpu > 0 && self.memory > 0
    }
}

/// Namespace and name of a Pod.
pub(crate) type PodName = (Text, Text);

/// The containers of a Pod, by name.
pub(crate) type Containers = BTreeMap<Text, Point>;

/// A page.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Page {
    /// The node, if the page has all of it.
    pub(crate) node: Option<Point>,
    /// The Pods of which the page has all.
    pub(crate) pods: HashMap<PodName, Containers>,
}

/// The series that are read; those of containers have their names, too.
#[derive(Clone, Copy)]
enum Series {
    Cpu,
    Memory,
    Swap,
    Start,
}

impl Series {
    /// The series of a metric, and whether it is of containers.
    fn named(name: &str) -> Option<(Self, bool)> {
        Some(match name {
            "node_cpu_usage_seconds_total" => (Self::Cpu, false),
            "node_memory_working_set_bytes" => (Self::Memory, false),
            "node_swap_usage_bytes" => (Self::Swap, false),
            "container_cpu_usage_seconds_total" => (Self::Cpu, true),
            "container_memory_working_set_bytes" => (Self::Memory, true),
            "container_swap_usage_bytes" => (Self::Swap, true),
            "container_start_time_seconds" => (Self::Start, true),
            _ => return None,
        })
    }

    fn put(self, value: f64, at: Timestamp, point: &mut Point) {
        match self {
            Self::Start => {
                point.started = Timestamp::from_nanosecond(i128::from(whole(value * 1e9))).ok();
                return;
            }
            Self::Cpu => point.cpu = whole(value * 1e9),
            Self::Memory => point.memory = whole(value),
            Self::Swap => point.swap = whole(value),
        }
        point.at = at;
    }
}

/// A number without its fraction, cut off at the limits.
fn whole(value: f64) -> u64 {
    value as u64
}

/// Reads a page; lines that are none of its form are passed over. `now` is the time of values that have none.
pub(crate) fn read(text: &str, now: Timestamp) -> Page {
    let mut node = Point::default();
    let mut pods: HashMap<PodName, Containers> = HashMap::new();
    for line in text.lines() {
        let Some((name, labels, value, at)) = sample(line) else { continue };
        let Some((series, of_container)) = Series::named(name) else { continue };
        let at = at.unwrap_or(now);
        if !of_container {
            series.put(value, at, &mut node);
            continue;
        }
        let label = |key: &str| labels.iter().find(|l| l.0 == key).map(|l| Text::from(l.1.as_str()));
        let (Some(namespace), Some(pod), Some(container)) =
            (label("namespace"), label("pod"), label("container"))
        else {
            continue;
        };
        let containers = pods.entry((namespace, pod)).or_default();
        series.put(value, at, containers.entry(container).or_default());
    }
    // As metrics-server does: a Pod counts with all of its containers or not at all.
    pods.retain(|_, containers| containers.values().all(Point::is_whole));
    Page { node: node.is_whole().then_some(node), pods }
}

/// Name, labels, value and time of a line.
type Sample<'a> = (&'a str, Vec<(&'a str, String)>, f64, Option<Timestamp>);

fn sample(line: &str) -> Option<Sample<'_>> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    let end = line.find(['{', ' ', '\t'])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        (labels, rest) = label_pairs(inner)?;
    }
    let mut numbers = rest.split_ascii_whitespace();
    let value = numbers.next()?.parse::<f64>().ok().filter(|v| v.is_finite())?;
    let at = match numbers.next() {
        None => None,
        Some(millis) => Some(Timestamp::from_millisecond(millis.parse().ok()?).ok()?),
    };
    Some((name, labels, value, at))
}

/// The labels up to the closing brace, and what follows it.
fn label_pairs(mut rest: &str) -> Option<(Vec<(&str, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (key, quoted) = rest.split_once("=\"")?;
        let (value, after) = label_value(quoted)?;
        labels.push((key.trim(), value));
        rest = after;
    }
}

/// A value up to its closing quote, and what follows it.
fn label_value(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, quoted.get(at + 1..)?)),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    /// The cases of metrics-server's decoder.
    #[test]
    fn pages() {
        let now = at(1000);
        let whole = r#"
# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time
node_cpu_usage_seconds_total 357.35491 1633253809720
node_memory_working_set_bytes 1.616273408e+09 1633253809720
node_swap_usage_bytes 4096 1633253809720
container_cpu_usage_seconds_total{container="coredns",namespace="kube-system",pod="coredns-1"} 4.710169 1633253812125
container_memory_working_set_bytes{container="coredns",namespace="kube-system",pod="coredns-1"} 1.253376e+07 1633253812125
container_start_time_seconds{container="coredns",namespace="kube-system",pod="coredns-1"} 1.633252712e+09
pod_cpu_usage_seconds_total{namespace="kube-system",pod="coredns-1"} 9 1633253812125
"#;
        let page = read(whole, now);
        let millis = |ms| Timestamp::from_millisecond(ms).unwrap();
        assert_eq!(
            page.node,
            Some(Point {
                started: None,
                at: millis(1_633_253_809_720),
                cpu: 357_354_910_000,
                memory: 1_616_273_408,
                swap: 4096
            })
        );
        let of = Point {
            started: Some(at(1_633_252_712)),
            at: millis(1_633_253_812_125),
            cpu: 4_710_169_000,
            memory: 12_533_760,
            swap: 0,
        };
        let name = ("kube-system".into(), "coredns-1".into());
        assert_eq!(page.pods, HashMap::from([(name, Containers::from([("coredns".into(), of)]))]));
    }

    #[test]
    fn what_is_left_out() {
        let check = |text: &str, node: bool, pods: usize| {
            let page = read(text, at(1000));
            assert_eq!((page.node.is_some(), page.pods.len()), (node, pods), "{text}");
        };
        let container = |cpu: &str, memory: &str| {
            let labels = r#"{container="c",namespace="n",pod="p"}"#;
            format!(
                "container_cpu_usage_seconds_total{labels} {cpu}\ncontainer_memory_working_set_bytes{labels} {memory}\n"
            )
        };
        check("", false, 0);
        check("node_cpu_usage_seconds_total 1\n", false, 0);
        check("node_cpu_usage_seconds_total 1\nnode_memory_working_set_bytes 1\n", true, 0);
        check(&container("1", "1"), false, 1);
        check(&container("0", "1"), false, 0);
        check(&container("1", "0"), false, 0);
        check(&container("NaN", "1"), false, 0);
        check(&container("-1", "1"), false, 0);
        check("container_cpu_usage_seconds_total{container=\"c\" 1", false, 0);
        check("container_cpu_usage_seconds_total{container=\"c\",namespace=\"n\"} 1", false, 0);
        check("node_cpu_usage_seconds_total{", false, 0);
        check("node_cpu_usage_seconds_total 1 x\nnode_memory_working_set_bytes 1\n", false, 0);
    }

    #[test]
    fn labels() {
        let (labels, rest) = label_pairs(r#"a="x\"y",b="1\\2" } 5"#).unwrap();
        assert_eq!(labels, [("a", "x\"y".to_owned()), ("b", "1\\2".to_owned())]);
        assert_eq!(rest, " 5");
        assert!(label_pairs("a=\"x").is_none());
    }
}
