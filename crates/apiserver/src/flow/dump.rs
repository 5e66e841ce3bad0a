//! Upstream's pages about flow control: a line for each level, queue or request.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use super::demand::Nanos;
use super::live::Live;
use super::queues::work_text;

/// Lines of cells, laid out as Go's `tabwriter` does with upstream's settings: a cell has at least eight characters, and a
/// blank more than its text; the last of a line has no end. Upstream writes a comma before each end.
struct Table(Vec<Vec<String>>);

impl Table {
    fn new(names: &[&str]) -> Self {
        let mut table = Self(Vec::new());
        table.line(names.iter().map(|name| (*name).to_owned()));
        table
    }

    fn line(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.push(cells.into_iter().collect());
    }

    fn text(self) -> String {
        let columns = self.0.first().map_or(0, Vec::len);
        let width = |column: usize| {
            let cells = self.0.iter().filter_map(|line| line.get(column));
            let longest = cells.map(|cell| cell.chars().count() + 1).max().unwrap_or(0);
            (longest + 1).max(8)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for line in &self.0 {
            for (cell, width) in line.iter().zip(&widths).take(columns.saturating_sub(1)) {
                // Writing to a String does not fail.
                let _ = write!(out, "{:<width$}", format!("{cell},"));
            }
            out.extend(line.last().map(String::as_str));
            out.push('\n');
        }
        out
    }
}

/// A line for each level.
pub(super) fn levels(live: &Live) -> String {
    let mut table = Table::new(&[
        "PriorityLevelName",
        "ActiveQueues",
        "IsIdle",
        "IsQuiescing",
        "WaitingRequests",
        "ExecutingRequests",
        "DispatchedRequests",
        "RejectedRequests",
        "TimedoutRequests",
        "CancelledRequests",
    ]);
    live.look(|levels| {
        for (name, seats) in &levels.all {
            seats.level.look(|queues| {
                let (waiting, running, _) = queues.load();
                let active = queues.shown().filter(|queue| queue.waiting > 0).count();
                table.line([
                    name.to_string(),
                    active.to_string(),
                    queues.is_idle().to_string(),
                    seats.level.goes().to_string(),
                    waiting.to_string(),
                    running.to_string(),
                    queues.totals.dispatched.to_string(),
                    queues.totals.rejected.to_string(),
                    // Upstream counts none; those are the cancelled ones.
                    "0".to_owned(),
                    queues.totals.cancelled.to_string(),
                ]);
            });
        }
    });
    table.text()
}

/// A line for each queue.
pub(super) fn queues(live: &Live) -> String {
    let mut table = Table::new(&[
        "PriorityLevelName",
        "Index",
        "PendingRequests",
        "ExecutingRequests",
        "SeatsInUse",
        "NextDispatchR",
        "InitialSeatsSum",
        "MaxSeatsSum",
        "TotalWorkSum",
    ]);
    live.look(|levels| {
        for (name, seats) in &levels.all {
            seats.level.look(|queues| {
                for (at, queue) in queues.shown().enumerate() {
                    table.line([
                        name.to_string(),
                        at.to_string(),
                        queue.waiting.to_string(),
                        queue.running.to_string(),
                        queue.seats.to_string(),
                        work_text(queue.next),
                        queue.sums.0.to_string(),
                        queue.sums.1.to_string(),
                        work_text(queue.sums.2),
                    ]);
                }
            });
        }
    });
    table.text()
}

/// A line for each request that waits or runs; with what it asks if `details`.
pub(super) fn requests(live: &Live, details: bool) -> String {
    let mut names = vec![
        "PriorityLevelName",
        "FlowSchemaName",
        "QueueIndex",
        "RequestIndexInQueue",
        "FlowDistingsher",
        "ArriveTime",
        "InitialSeats",
        "FinalSeats",
        "AdditionalLatency",
        "StartTime",
    ];
    if details {
        names.extend([
            "UserName",
            "Verb",
            "APIPath",
            "Namespace",
            "Name",
            "APIVersion",
            "Resource",
            "SubResource",
        ]);
    }
    let mut table = Table::new(&names);
    live.look(|levels| {
        for (name, seats) in &levels.all {
            seats.level.look(|queues| {
                // A thing of no queue, or of none that wait, has the number -1.
                let number = |at: Option<usize>| at.map_or_else(|| "-1".to_owned(), |at| at.to_string());
                let (now, wall) = (seats.level.now(), SystemTime::now());
                for ((queue, order), known) in queues.requests() {
                    let (request, estimate) = (&known.request, known.estimate);
                    let mut line = vec![
                        name.to_string(),
                        request.schema().to_owned(),
                        number(queue),
                        number(order),
                        request.flow().to_owned(),
                        time(wall, now, Some(known.arrived)),
                        estimate.initial.to_string(),
                        estimate.last.to_string(),
                        duration(estimate.after),
                        time(wall, now, known.began),
                    ];
                    if details {
                        let info = &request.info;
                        let version = if info.group.is_empty() {
                            info.version.to_string()
                        } else {
                            format!("{}/{}", info.group, info.version)
                        };
                        line.extend([
                            request.user.name.to_string(),
                            info.verb.to_owned(),
                            info.path.clone(),
                            info.namespace.to_string(),
                            info.name.to_string(),
                            version,
                            info.resource.to_string(),
                            info.subresource.to_string(),
                        ]);
                    }
                    table.line(line);
                }
            });
        }
    });
    table.text()
}

/// A point in time of a level, as Go writes times; Go's zero time for none.
fn time(wall: SystemTime, now: Nanos, at: Option<Nanos>) -> String {
    let ago = at.map(|at| Duration::from_nanos(now.saturating_sub(at)));
    let at = ago.and_then(|ago| wall.checked_sub(ago)).and_then(|at| Timestamp::try_from(at).ok());
    at.map_or_else(|| "0001-01-01T00:00:00Z".to_owned(), |at| at.to_string())
}

/// A short time, as Go writes it.
fn duration(time: Nanos) -> String {
    match time {
        0 => "0s".to_owned(),
        _ => format!("{}ms", time as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stand_below_each_other() {
        let mut table = Table::new(&["A", "LongerThanEight", "C"]);
        table.line(["some-name".to_owned(), "1".to_owned(), "x".to_owned()]);
        assert_eq!(table.text(), "A,         LongerThanEight, C\nsome-name, 1,               x\n");
        let mut table = Table::new(&["A", "B"]);
        table.line(["1".to_owned(), "2".to_owned()]);
        assert_eq!(table.text(), "A,      B\n1,      2\n");
    }

    #[test]
    fn times() {
        assert_eq!(
            (duration(0), duration(5_000_000), duration(7_500_000)),
            ("0s".into(), "5ms".into(), "7.5ms".into())
        );
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(10);
        assert_eq!(time(wall, 3_000_000_000, Some(1_500_000_000)), "1970-01-01T00:00:08.5Z");
        assert_eq!(time(wall, 3, None), "0001-01-01T00:00:00Z");
    }
}
