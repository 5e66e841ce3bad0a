//! The metrics of flow control, read when somebody asks.
//!
//! DIFFERENCE: the figures of a level or schema that is gone are gone with it. Upstream shows the last ones for ever.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::counts::{Counts, Kinds, REASONS};
use super::demand::Seen;
use super::live::{Levels, Live, Seats};
use super::queues::seat_seconds;

/// Tells of all levels.
pub(crate) struct FlowMetrics {
    /// Levels decide.
    pub(super) fair: bool,
    pub(super) live: Arc<Live>,
    pub(super) kinds: Arc<Kinds>,
}

impl fmt::Debug for FlowMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlowMetrics")
    }
}

/// A value of any type of metric.
enum Value {
    Gauge(f64),
    /// A gauge of things that are counted, whose text is a whole number.
    Number(i64),
    Counter(u64),
    Histogram(Seen),
}

impl Value {
    fn kind(&self) -> MetricType {
        match self {
            Self::Gauge(_) | Self::Number(_) => MetricType::Gauge,
            Self::Counter(_) => MetricType::Counter,
            Self::Histogram(_) => MetricType::Histogram,
        }
    }

    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Gauge(value) => ConstGauge::new(*value).encode(encoder),
            Self::Number(value) => ConstGauge::new(*value).encode(encoder),
            Self::Counter(value) => ConstCounter::new(*value).encode(encoder),
            Self::Histogram((sum, count, buckets)) => {
                encoder.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)
            }
        }
    }
}

type Labels<'l> = Vec<(&'static str, &'l str)>;

/// A metric with its values by labels; nothing is said of one without any.
fn family(
    out: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    values: &[(Labels<'_>, Value)],
) -> fmt::Result {
    let Some((_, first)) = values.first() else { return Ok(()) };
    let mut family = out.encode_descriptor(name, help, None, first.kind())?;
    if let [(labels, value)] = values
        && labels.is_empty()
    {
        return value.encode(family);
    }
    for (labels, value) in values {
        value.encode(family.encode_family(&labels.as_slice())?)?;
    }
    Ok(())
}

/// A figure of each level: the name of its metric, the text about it, and where it stands.
type OfLevel = (&'static str, &'static str, fn(&Seats) -> f64);

const OF_LEVELS: [OfLevel; 9] = [
    (
        "apiserver_flowcontrol_nominal_limit_seats",
        "[BETA] Nominal number of execution seats configured for each priority level",
        |seats| seats.bounds.nominal.into(),
    ),
    (
        "apiserver_flowcontrol_lower_limit_seats",
        "[ALPHA] Configured lower bound on number of execution seats available to each priority level",
        |seats| seats.bounds.least.into(),
    ),
    (
        "apiserver_flowcontrol_upper_limit_seats",
        "[ALPHA] Configured upper bound on number of execution seats available to each priority level",
        |seats| seats.bounds.most.into(),
    ),
    (
        "apiserver_flowcontrol_current_limit_seats",
        "[ALPHA] current derived number of execution seats available to each priority level",
        |seats| seats.current.into(),
    ),
    ("apiserver_flowcontrol_target_seats", "[ALPHA] Seat allocation targets", |seats| seats.target),
    (
        "apiserver_flowcontrol_demand_seats_high_watermark",
        "[ALPHA] High watermark, over last adjustment period, of demand_seats",
        |seats| seats.demand.high.into(),
    ),
    (
        "apiserver_flowcontrol_demand_seats_average",
        "[ALPHA] Time-weighted average, over last adjustment period, of demand_seats",
        |seats| seats.demand.average,
    ),
    (
        "apiserver_flowcontrol_demand_seats_stdev",
        "[ALPHA] Time-weighted standard deviation, over last adjustment period, of demand_seats",
        |seats| seats.demand.deviation,
    ),
    ("apiserver_flowcontrol_demand_seats_smoothed", "[ALPHA] Smoothed seat demands", |seats| {
        seats.demand.smoothed
    }),
];

const FAIR: (&str, &str) = (
    "apiserver_flowcontrol_seat_fair_frac",
    "[ALPHA] Fair fraction of server's concurrency to allocate to each priority level that can use it",
);

/// A figure of a schema at a level: the name of its metric, the text about it, and where it stands.
type OfSchema = (&'static str, &'static str, fn(&Counts) -> Value);

fn gauge(number: &std::sync::atomic::AtomicI64) -> Value {
    Value::Number(number.load(Ordering::Relaxed))
}

const OF_SCHEMAS: [OfSchema; 6] = [
    (
        "apiserver_flowcontrol_dispatched_requests",
        "[BETA] Number of requests executed by API Priority and Fairness subsystem",
        |counts| Value::Counter(counts.dispatched.load(Ordering::Relaxed)),
    ),
    (
        "apiserver_flowcontrol_current_inqueue_requests",
        "[BETA] Number of requests currently pending in queues of the API Priority and Fairness subsystem",
        |counts| gauge(&counts.queued[0]),
    ),
    (
        "apiserver_flowcontrol_current_inqueue_seats",
        "[ALPHA] Number of seats currently pending in queues of the API Priority and Fairness subsystem",
        |counts| gauge(&counts.queued[1]),
    ),
    (
        "apiserver_flowcontrol_current_executing_requests",
        "[BETA] Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API Priority and Fairness subsystem",
        |counts| gauge(&counts.running),
    ),
    (
        "apiserver_flowcontrol_current_executing_seats",
        "[BETA] Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem",
        |counts| gauge(&counts.seats),
    ),
    (
        "apiserver_flowcontrol_request_dispatch_no_accommodation",
        "[ALPHA] Number of times a dispatch attempt resulted in a non accommodation due to lack of available seats",
        |counts| Value::Counter(counts.too_wide.load(Ordering::Relaxed)),
    ),
];

/// A histogram of a schema at a level: with a further label, if it has one.
type Times =
    (&'static str, &'static str, fn(&Counts) -> Vec<(Option<(&'static str, &'static str)>, Option<Seen>)>);

const TIMES: [Times; 5] = [
    (
        "apiserver_flowcontrol_request_wait_duration_seconds",
        "[BETA] Length of time a request spent waiting in its queue",
        |counts| {
            let of = |at: usize, label| (Some(("execute", label)), counts.waited[at].seen());
            vec![of(0, "false"), of(1, "true")]
        },
    ),
    (
        "apiserver_flowcontrol_request_execution_seconds",
        "[ALPHA] Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of request execution in the API Priority and Fairness subsystem",
        |counts| {
            let of = |at: usize, label| (Some(("type", label)), counts.ran[at].seen());
            vec![of(0, "watch"), of(1, "regular")]
        },
    ),
    (
        "apiserver_flowcontrol_request_queue_length_after_enqueue",
        "[ALPHA] Length of queue in the API Priority and Fairness subsystem, as seen by each request after it is enqueued",
        |counts| vec![(None, counts.lengths.seen())],
    ),
    (
        "apiserver_flowcontrol_work_estimated_seats",
        "[ALPHA] Number of estimated seats (maximum of initial and final seats) associated with requests in API Priority and Fairness",
        |counts| vec![(None, counts.widths.seen())],
    ),
    (
        "apiserver_flowcontrol_watch_count_samples",
        "[ALPHA] count of watchers for mutating requests in API Priority and Fairness",
        |counts| vec![(None, counts.watchers.seen())],
    ),
];

const REJECTED: (&str, &str) = (
    "apiserver_flowcontrol_rejected_requests",
    "[BETA] Number of requests rejected by API Priority and Fairness subsystem",
);

impl Collector for FlowMetrics {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        self.kinds(&mut out)?;
        if !self.fair {
            return Ok(());
        }
        self.live.look(|levels| {
            of_levels(&mut out, levels)?;
            of_schemas(&mut out, levels)?;
            virtual_times(&mut out, levels)?;
            ratios(&mut out, levels)
        })
    }
}

impl FlowMetrics {
    /// Of all requests that read, and of all that write.
    fn kinds(&self, out: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let names = ["readOnly", "mutating"];
        let count = |phases: &[super::counts::Phase; 2]| {
            let each = names.iter().zip(phases);
            each.map(|(kind, phase)| (vec![("request_kind", *kind)], Value::Number(phase.count().into())))
                .collect::<Vec<_>>()
        };
        let help = "[STABLE] Maximal number of currently used inflight request limit of this apiserver per request kind in last second";
        family(out, ("apiserver_current_inflight_requests", help), &count(&self.kinds.running))?;
        if !self.fair {
            return Ok(());
        }
        let help =
            "[ALPHA] Maximal number of queued requests in this apiserver per request kind in last second";
        family(out, ("apiserver_current_inqueue_requests", help), &count(&self.kinds.waiting))?;
        let now = self.kinds.now();
        let phases = [("waiting", &self.kinds.waiting), ("executing", &self.kinds.running)];
        let values: Vec<_> = phases
            .into_iter()
            .flat_map(|(phase, kinds)| {
                names.into_iter().zip(kinds).map(move |(kind, of)| {
                    let labels = vec![("phase", phase), ("request_kind", kind)];
                    (labels, Value::Histogram(of.seen(now)))
                })
            })
            .collect();
        let help = "[ALPHA] Observations, at the end of every nanosecond, of the number of requests (as a fraction of the relevant limit) waiting or in regular stage of execution";
        family(out, ("apiserver_flowcontrol_read_vs_write_current_requests", help), &values)
    }
}

fn of_levels(out: &mut DescriptorEncoder<'_>, levels: &Levels) -> fmt::Result {
    for (name, help, of) in OF_LEVELS {
        let all = levels.all.iter();
        let values: Vec<_> = all
            .map(|(level, seats)| (vec![("priority_level", level.as_str())], Value::Gauge(of(seats))))
            .collect();
        family(out, (name, help), &values)?;
    }
    family(out, FAIR, &[(Vec::new(), Value::Gauge(levels.fair))])
}

fn of_schemas(out: &mut DescriptorEncoder<'_>, levels: &Levels) -> fmt::Result {
    let used: Vec<&Counts> = levels.counts.iter().map(|c| &**c).filter(|c| c.is_used()).collect();
    for (name, help, of) in OF_SCHEMAS {
        let values: Vec<_> = used
            .iter()
            .map(|counts| (pair(counts), of(counts)))
            // Upstream has no count before there is something to count.
            .filter(|(_, value)| !matches!(value, Value::Counter(0)))
            .collect();
        family(out, (name, help), &values)?;
    }
    let mut rejected = Vec::new();
    for counts in &used {
        for (reason, count) in REASONS.iter().zip(&counts.rejected) {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                let mut labels = pair(counts);
                labels.push(("reason", reason));
                rejected.push((labels, Value::Counter(count)));
            }
        }
    }
    family(out, REJECTED, &rejected)?;
    for (name, help, of) in TIMES {
        let mut values = Vec::new();
        for counts in &used {
            for (more, seen) in of(counts) {
                let Some(seen) = seen else { continue };
                let mut labels: Labels<'_> = more.into_iter().collect();
                labels.extend(pair(counts));
                labels.sort_unstable();
                values.push((labels, Value::Histogram(seen)));
            }
        }
        family(out, (name, help), &values)?;
    }
    Ok(())
}

fn pair(counts: &Counts) -> Labels<'_> {
    vec![("flow_schema", counts.schema.as_str()), ("priority_level", counts.level.as_str())]
}

/// The virtual times of each level.
fn virtual_times(out: &mut DescriptorEncoder<'_>, levels: &Levels) -> fmt::Result {
    let (mut now, mut dispatched, mut latest) = (Vec::new(), Vec::new(), Vec::new());
    let (mut next, mut discounted) = (Vec::new(), Vec::new());
    for (name, seats) in &levels.all {
        let labels = || vec![("priority_level", name.as_str())];
        let gauge = |work| Value::Gauge(seat_seconds(work));
        let (r, last) = seats.level.look(|queues| (queues.r(), queues.last));
        now.push((labels(), gauge(r)));
        let Some(last) = last else { continue };
        dispatched.push((labels(), gauge(last.r)));
        latest.push((labels(), gauge(last.s)));
        for (bounds, to) in [(last.bounds, &mut next), (last.discounted, &mut discounted)] {
            for (bound, work) in [("min", bounds.0), ("max", bounds.1)] {
                to.push((vec![("bound", bound), ("priority_level", name.as_str())], gauge(work)));
            }
        }
    }
    let all = [
        ("apiserver_flowcontrol_current_r", "[ALPHA] R(time of last change)", now),
        ("apiserver_flowcontrol_dispatch_r", "[ALPHA] R(time of last dispatch)", dispatched),
        ("apiserver_flowcontrol_latest_s", "[ALPHA] S(most recently dispatched request)", latest),
        (
            "apiserver_flowcontrol_next_s_bounds",
            "[ALPHA] min and max, over queues, of S(oldest waiting request in queue)",
            next,
        ),
        (
            "apiserver_flowcontrol_next_discounted_s_bounds",
            "[ALPHA] min and max, over queues, of S(oldest waiting request in queue) - estimated work in progress",
            discounted,
        ),
    ];
    for (name, help, values) in all {
        family(out, (name, help), &values)?;
    }
    Ok(())
}

/// How full each level was.
fn ratios(out: &mut DescriptorEncoder<'_>, levels: &Levels) -> fmt::Result {
    let (mut requests, mut taken, mut demand) = (Vec::new(), Vec::new(), Vec::new());
    for (name, seats) in &levels.all {
        let now = seats.level.now();
        let [waiting, running, seats, wanted] = seats.level.look(|queues| {
            let ratios = &mut queues.ratios;
            [&mut ratios.waiting, &mut ratios.running, &mut ratios.seats, &mut ratios.demand]
                .map(|ratio| Value::Histogram(ratio.seen(now)))
        });
        let level = ("priority_level", name.as_str());
        requests.push((vec![("phase", "waiting"), level], waiting));
        requests.push((vec![("phase", "executing"), level], running));
        taken.push((vec![("phase", "executing"), level], seats));
        demand.push((vec![level], wanted));
    }
    let help = "[ALPHA] Observations, at the end of every nanosecond, of number of requests (as a fraction of the relevant limit) waiting or in any stage of execution (but only initial stage for WATCHes)";
    family(out, ("apiserver_flowcontrol_priority_level_request_utilization", help), &requests)?;
    let help = "[ALPHA] Observations, at the end of every nanosecond, of utilization of seats for any stage of execution (but only initial stage for WATCHes)";
    family(out, ("apiserver_flowcontrol_priority_level_seat_utilization", help), &taken)?;
    let help = "[ALPHA] Observations, at the end of every nanosecond, of (the number of seats each priority level could use) / (nominal number of seats for that level)";
    family(out, ("apiserver_flowcontrol_demand_seats", help), &demand)
}
