//! The present use of resources by nodes and Pods, which kubelets are asked for when somebody wants to know: the
//! objects of `metrics.k8s.io`.
//!
//! The kubelets of the nodes in question are asked all at once. A page serves for [`SERVES`]; the use of a processor is
//! told by two pages, so the first answer waits for a second one. A node that nobody has asked about for [`KEPT`] is forgotten,
//! and nothing runs then.

mod page;
mod rates;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use bytes::Bytes;
use component::{Clock, Shutdown};
use futures::StreamExt;
use futures::future::{self, BoxFuture};
use parking_lot::Mutex;
use tokio::time::Instant;

pub(crate) use rates::{History, Used};

/// How long a page serves.
const SERVES: Duration = Duration::from_secs(10);
/// How long what a node said is kept when nobody asks: over a longer time a rate says little about now.
const KEPT: Duration = Duration::from_mins(1);
/// The time between the two pages of the first answer.
const APART: Duration = Duration::from_secs(1);
/// How long a node may take for a page; one that takes longer is left out.
const PATIENCE: Duration = Duration::from_secs(3);
/// How many nodes are asked at a time.
const AT_ONCE: usize = 256;

/// The source of the kubelets' pages.
pub trait Pages: Send + Sync {
    /// The page `/metrics/resource` of a node.
    fn page<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<Bytes, Status>>;
}

/// The last words of a node.
#[derive(Default)]
struct Known {
    history: Arc<History>,
    /// When its last page came.
    read: Option<Instant>,
    /// When it was last asked in vain.
    failed: Option<Instant>,
}

/// A node: what it said, for one who asks at a time, and when somebody asked last.
struct Node {
    known: Arc<tokio::sync::Mutex<Known>>,
    asked: Instant,
}

/// The present use of resources.
#[derive(Clone)]
pub(crate) struct Usage {
    pages: Arc<dyn Pages>,
    clock: Clock,
    /// The nodes that somebody asked about lately; there is a task that forgets them exactly if there are some.
    nodes: Arc<Mutex<HashMap<String, Node>>>,
    shutdown: Shutdown,
}

impl Usage {
    /// From the pages of this source.
    pub(crate) fn new(pages: Arc<dyn Pages>, clock: Clock, shutdown: Shutdown) -> Self {
        Self { pages, clock, nodes: Arc::default(), shutdown }
    }

    /// The histories of these nodes, without those that do not answer.
    pub(crate) async fn of(&self, nodes: Vec<String>) -> HashMap<String, Arc<History>> {
        let asked = nodes.into_iter().map(|node| async move {
            let history = self.of_node(&node).await?;
            Some((node, history))
        });
        // Boxed, since the nodes' futures would make that of every request as large.
        let answers = futures::stream::iter(asked).buffer_unordered(AT_ONCE).filter_map(future::ready);
        let all: BoxFuture<'_, HashMap<_, _>> = Box::pin(answers.collect());
        all.await
    }

    async fn of_node(&self, node: &str) -> Option<Arc<History>> {
        let (known, asked) = (self.known(node), Instant::now());
        // Others who ask for the node meanwhile wait for the same page.
        let mut known = known.lock().await;
        if known.failed.is_some_and(|failed| failed > asked) {
            return None;
        }
        if known.read.is_none_or(|read| read.elapsed() >= SERVES) {
            self.read(node, &mut known).await?;
            if !known.history.tells_rates() {
                tokio::time::sleep(APART).await; // the time over which the first rate is told
                self.read(node, &mut known).await?;
            }
        }
        Some(Arc::clone(&known.history))
    }

    /// Reads a page.
    async fn read(&self, node: &str, known: &mut Known) -> Option<()> {
        let answer = match tokio::time::timeout(PATIENCE, self.pages.page(node)).await {
            Ok(answer) => answer,
            Err(_) => Err(Status::internal("no answer in time")),
        };
        let page = match answer {
            Ok(page) => page,
            Err(error) => {
                tracing::debug!(node, %error, "a node does not tell what it uses");
                known.failed = Some(Instant::now());
                return None;
            }
        };
        let page = page::read(&String::from_utf8_lossy(&page), self.clock.now());
        known.history = Arc::new(known.history.after(page));
        known.read = Some(Instant::now());
        Some(())
    }

    /// The place of what a node said; it is kept for a while.
    fn known(&self, node: &str) -> Arc<tokio::sync::Mutex<Known>> {
        let now = Instant::now();
        let mut nodes = self.nodes.lock();
        if nodes.is_empty() {
            let usage = self.clone();
            self.shutdown.spawn_one(async move { usage.forget().await });
        }
        let entry = nodes.entry(node.to_owned());
        let entry = entry.or_insert_with(|| Node { known: Arc::default(), asked: now });
        entry.asked = now;
        Arc::clone(&entry.known)
    }

    /// Forgets nodes that nobody asks about, until none is left.
    async fn forget(&self) {
        loop {
            let Some(first) = self.nodes.lock().values().map(|node| node.asked).min() else { return };
            tokio::time::sleep_until(first + KEPT).await; // until nobody has asked about a node for so long
            let mut nodes = self.nodes.lock();
            nodes.retain(|_, node| node.asked.elapsed() < KEPT);
            if nodes.is_empty() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Nodes that use one and a half processors; `silent` never answers, `broken` refuses.
    struct Cluster {
        start: Instant,
        clock: Clock,
        asked: AtomicU64,
    }

    impl Pages for Cluster {
        fn page<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<Bytes, Status>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                match node {
                    "silent" => std::future::pending().await,
                    "broken" => Err(Status::internal("broken")),
                    _ => {
                        let (cpu, at) = (100.0 + 1.5 * self.start.elapsed().as_secs_f64(), self.clock.now());
                        let at = at.as_millisecond();
                        Ok(format!(
                            "node_cpu_usage_seconds_total {cpu} {at}\nnode_memory_working_set_bytes 7 {at}\n"
                        )
                        .into())
                    }
                }
            })
        }
    }

    fn usage() -> (Usage, Arc<Cluster>) {
        let clock = Clock::from(jiff::Timestamp::from_second(1_000_000).unwrap());
        let cluster = Arc::new(Cluster { start: Instant::now(), clock, asked: AtomicU64::new(0) });
        (Usage::new(Arc::clone(&cluster) as Arc<dyn Pages>, clock, Shutdown::new()), cluster)
    }

    async fn ask(usage: &Usage, nodes: &[&str]) -> Vec<(String, u64)> {
        let told = usage.of(nodes.iter().map(|n| (*n).to_owned()).collect()).await;
        let mut told: Vec<_> = told
            .into_iter()
            .filter_map(|(node, history)| Some((node, history.node()?.cpu / 1_000_000)))
            .collect();
        told.sort();
        told
    }

    #[tokio::test(start_paused = true)]
    async fn pages_serve_for_a_while() {
        let (usage, cluster) = usage();
        let asked = || cluster.asked.swap(0, Ordering::Relaxed);
        let start = Instant::now();
        assert_eq!(ask(&usage, &["a", "b"]).await, [("a".to_owned(), 1500), ("b".to_owned(), 1500)]);
        assert_eq!((asked(), start.elapsed()), (4, APART), "two pages of each, all at once");
        assert_eq!(ask(&usage, &["a"]).await.len(), 1);
        assert_eq!(asked(), 0, "the page still serves");
        tokio::time::advance(SERVES).await;
        let (one, other) = tokio::join!(ask(&usage, &["a"]), ask(&usage, &["a"]));
        assert_eq!((one, other), (vec![("a".to_owned(), 1500)], vec![("a".to_owned(), 1500)]));
        assert_eq!(asked(), 1, "one page for both");
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_that_do_not_answer_are_left_out() {
        let (usage, _) = usage();
        let start = Instant::now();
        assert_eq!(ask(&usage, &["silent", "a", "broken"]).await, [("a".to_owned(), 1500)]);
        assert_eq!(start.elapsed(), PATIENCE);
        let start = Instant::now();
        let (one, other) = tokio::join!(ask(&usage, &["silent"]), ask(&usage, &["silent"]));
        assert_eq!((one, other), (vec![], vec![]));
        assert_eq!(start.elapsed(), PATIENCE, "they wait together");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_where_nobody_asks() {
        let (usage, _) = usage();
        ask(&usage, &["a"]).await;
        tokio::time::sleep(KEPT / 2).await;
        ask(&usage, &["b"]).await;
        let known = || {
            let mut names: Vec<String> = usage.nodes.lock().keys().cloned().collect();
            names.sort();
            names
        };
        assert_eq!(known(), ["a", "b"]);
        tokio::time::sleep(KEPT * 2 / 3).await;
        assert_eq!(known(), ["b"]);
        tokio::time::sleep(KEPT).await;
        assert_eq!(known(), Vec::<String>::new());
        assert_eq!(ask(&usage, &["a"]).await.len(), 1, "and it begins anew");
        assert_eq!(known(), ["a"]);
    }
}
