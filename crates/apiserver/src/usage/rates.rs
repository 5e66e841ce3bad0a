//! The present use by a node and its Pods, from two pages: metrics-server's rules.

use std::collections::HashMap;

use api::Text;
use jiff::{SignedDuration, Timestamp};

use super::page::{Containers, Page, PodName, Point};

/// A container that began this long ago has used enough to be measured since its beginning.
const FRESH_AT_LEAST: SignedDuration = SignedDuration::from_secs(10);
/// A container that began less than this ago is measured since its beginning; metrics-server's resolution.
const FRESH_BELOW: SignedDuration = SignedDuration::from_secs(15);

/// The two last points of everything on a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct History {
    last: Page,
    before: Page,
}

impl History {
    /// With a further page.
    pub(crate) fn after(&self, page: Page) -> Self {
        let node = match (self.last.node, page.node) {
            (Some(last), Some(new)) if new.at > last.at => Some(last),
            (_, Some(new)) => self.before.node.filter(|before| before.at < new.at),
            (_, None) => None,
        };
        let mut pods = HashMap::new();
        for (pod, containers) in &page.pods {
            let (last, before) = (self.last.pods.get(pod), self.before.pods.get(pod));
            let of = containers.iter().filter_map(|(name, new)| {
                let point = earlier(new, last.and_then(|l| l.get(name)), before.and_then(|b| b.get(name)))?;
                Some((name.clone(), point))
            });
            let of: Containers = of.collect();
            if !of.is_empty() {
                pods.insert(pod.clone(), of);
            }
        }
        Self { last: page, before: Page { node, pods } }
    }

    /// Whether the node itself can be told.
    pub(crate) fn tells_rates(&self) -> bool {
        self.before.node.is_some()
    }

    /// The use by the node.
    pub(crate) fn node(&self) -> Option<Used> {
        Used::between(self.before.node.as_ref()?, self.last.node.as_ref()?)
    }

    /// The use by the containers of a Pod, by name; nothing unless each of them can be told.
    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Option<PodUsed> {
        let pod: PodName = (namespace.into(), name.into());
        let (last, before) = (self.last.pods.get(&pod)?, self.before.pods.get(&pod)?);
        if !last.keys().all(|name| before.contains_key(name)) {
            return None;
        }
        let containers: Vec<(Text, Used)> = last
            .iter()
            .filter_map(|(name, last)| Some((name.clone(), Used::between(before.get(name)?, last)?)))
            .collect();
        let (_, first) = containers.iter().min_by_key(|(_, used)| used.at)?;
        Some(PodUsed { at: first.at, window: first.window, containers })
    }
}

/// The point with which a new one is compared.
fn earlier(new: &Point, last: Option<&Point>, before: Option<&Point>) -> Option<Point> {
    if let Some(started) = new.started {
        let age = new.at.duration_since(started);
        if age >= FRESH_AT_LEAST && age < FRESH_BELOW {
            return Some(Point { at: started, cpu: 0, ..*new });
        }
    }
    // One that began again since has used nothing of what the other one did.
    let last = last.filter(|last| new.started.is_none_or(|started| started < last.at))?;
    if new.at > last.at {
        return Some(*last);
    }
    before.filter(|before| before.at < new.at).copied()
}

/// The use of resources over a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Used {
    /// The end of the window.
    pub(crate) at: Timestamp,
    /// Its length.
    pub(crate) window: SignedDuration,
    /// Billionths of a processor.
    pub(crate) cpu: u64,
    /// The working set at the end, bytes.
    pub(crate) memory: u64,
    /// Swap at the end, bytes.
    pub(crate) swap: u64,
}

impl Used {
    fn between(before: &Point, last: &Point) -> Option<Self> {
        if last.started < before.started {
            return None;
        }
        let used = last.cpu.checked_sub(before.cpu)?;
        let window = last.at.duration_since(before.at);
        let nanos = u128::try_from(window.as_nanos()).ok().filter(|n| *n > 0)?;
        let cpu = u128::from(used) * 1_000_000_000 / nanos;
        let cpu = u64::try_from(cpu).unwrap_or(u64::MAX);
        Some(Self { at: last.at, window, cpu, memory: last.memory, swap: last.swap })
    }
}

/// The use by the containers of a Pod.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PodUsed {
    /// The end of the window of the container that was measured first.
    pub(crate) at: Timestamp,
    /// That window's length.
    pub(crate) window: SignedDuration,
    /// The containers by name.
    pub(crate) containers: Vec<(Text, Used)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: i64 = 1000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(START + seconds).unwrap()
    }

    /// A point `seconds` after the start of the time of these tests, of a container that began then.
    fn point(started: i64, seconds: i64, cpu: u64) -> Point {
        Point { started: Some(at(started)), at: at(seconds), cpu: cpu * 1_000_000_000, memory: 4096, swap: 0 }
    }

    fn page(containers: &[(&str, Point)]) -> Page {
        let of = containers.iter().map(|(name, point)| ((*name).into(), *point)).collect();
        Page { node: None, pods: HashMap::from([(("n".into(), "p".into()), of)]) }
    }

    /// The words about a Pod after these pages: container, window in seconds, thousandths of a processor.
    fn told(pages: &[Page]) -> Option<Vec<(String, i64, u64)>> {
        let history = pages.iter().fold(History::default(), |h, page| h.after(page.clone()));
        let pod = history.pod("n", "p")?;
        let all = pod.containers.iter();
        Some(all.map(|(name, u)| (name.to_string(), u.window.as_secs(), u.cpu / 1_000_000)).collect())
    }

    /// The cases of metrics-server's storage of Pods.
    #[test]
    fn pods() {
        let one = |p: Point| page(&[("c", p)]);
        let is = |window, milli| Some(vec![("c".to_owned(), window, milli)]);
        assert_eq!(told(&[]), None);
        assert_eq!(told(&[one(point(0, 120, 1))]), None, "one page has no rate");
        assert_eq!(told(&[one(point(0, 120, 10)), one(point(0, 130, 15))]), is(10, 500));
        assert_eq!(told(&[one(point(0, 120, 10)), one(point(0, 130, 10))]), is(10, 0));
        let third = [one(point(0, 120, 10)), one(point(0, 130, 15)), one(point(0, 140, 25))];
        assert_eq!(told(&third), is(10, 1000), "the last two pages count");
        let again = [one(point(0, 120, 10)), one(point(0, 130, 15)), one(point(0, 130, 15))];
        assert_eq!(told(&again), is(10, 500), "the same page twice changes nothing");
        let back = [one(point(0, 130, 15)), one(point(0, 120, 10))];
        assert_eq!(told(&back), None, "a page from the past");
        assert_eq!(told(&[one(point(0, 120, 15)), one(point(0, 130, 10))]), None, "less than before");
        assert_eq!(told(&[one(point(0, 120, 10)), one(point(125, 130, 1))]), None, "it began again");
        assert_eq!(told(&[one(point(0, 10, 5))]), is(10, 500), "a container that is new");
        assert_eq!(told(&[one(point(0, 9, 5))]), None, "one that is too new");
        let gone = [one(point(0, 120, 1)), Page::default(), one(point(0, 140, 2))];
        assert_eq!(told(&gone), None, "it was not there in between");
    }

    #[test]
    fn several_containers() {
        let first = page(&[("a", point(0, 120, 10))]);
        let both = |seconds| page(&[("a", point(0, seconds, 20)), ("b", point(0, seconds, 5))]);
        assert_eq!(told(&[first, both(130)]), None, "one of them cannot be told yet");
        let all = told(&[both(130), both(140)]).unwrap();
        assert_eq!(all, [("a".to_owned(), 10, 0), ("b".to_owned(), 10, 0)]);
    }

    #[test]
    fn nodes() {
        let of = |seconds, cpu| Page {
            node: Some(Point { started: None, ..point(0, seconds, cpu) }),
            pods: HashMap::new(),
        };
        let told = |pages: &[Page]| {
            let history = pages.iter().fold(History::default(), |h, page| h.after(page.clone()));
            history.node().map(|used| used.cpu / 1_000_000)
        };
        assert_eq!(told(&[of(1, 1)]), None);
        assert_eq!(told(&[of(1, 1), of(2, 3)]), Some(2000));
        assert_eq!(told(&[of(1, 1), of(2, 3), of(2, 3)]), Some(2000));
        assert_eq!(told(&[of(1, 3), of(2, 1)]), None);
        assert_eq!(told(&[of(1, 1), Page::default()]), None);
    }
}
