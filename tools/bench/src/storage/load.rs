//! Runs many clients at once, and measures the times of their operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

/// The figures of a load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figures {
    /// Operations a second.
    pub(super) rate: f64,
    /// The time in milliseconds that half of the operations took at most.
    pub(super) p50: f64,
    /// The time in milliseconds that all but a hundredth of the operations took at most.
    pub(super) p99: f64,
}

/// The figures of several runs of a load.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Operations a second, in each run.
    pub(super) rates: Vec<f64>,
    took: Vec<Duration>,
}

impl Tally {
    /// The median rate, and the times of all operations.
    pub(super) fn figures(mut self) -> Option<Figures> {
        self.took.sort_unstable();
        let at = |percent: usize| Some(self.took.get(self.took.len() * percent / 100)?.as_secs_f64() * 1e3);
        Some(Figures { rate: median(self.rates)?, p50: at(50)?, p99: at(99)? })
    }

    /// Lets clients do one operation after the other for some time. Each operation gets a number, which is used once.
    pub(super) async fn run<F, O>(&mut self, clients: usize, time: Duration, operation: F) -> Result<()>
    where
        F: Fn(u64) -> O + Clone + Send + 'static,
        O: Future<Output = Result<()>> + Send,
    {
        // The numbers of earlier runs are far below.
        let next = Arc::new(AtomicU64::new((self.rates.len() as u64) << 24));
        let start = Instant::now();
        let tasks: Vec<_> = (0..clients)
            .map(|_| {
                let (next, operation) = (next.clone(), operation.clone());
                tokio::spawn(async move {
                    let mut took = Vec::new();
                    while start.elapsed() < time {
                        let begun = Instant::now();
                        operation(next.fetch_add(1, Ordering::Relaxed)).await?;
                        took.push(begun.elapsed());
                    }
                    anyhow::Ok(took)
                })
            })
            .collect();
        let before = self.took.len();
        for task in tasks {
            self.took.extend(task.await??);
        }
        self.rates.push((self.took.len() - before) as f64 / start.elapsed().as_secs_f64());
        Ok(())
    }
}

/// The median.
pub(super) fn median(mut all: Vec<f64>) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// Does the operations 0 to `count`, so many at once.
pub(super) async fn all<F, O>(clients: usize, count: u64, operation: F) -> Result<()>
where
    F: Fn(u64) -> O + Clone + Send + 'static,
    O: Future<Output = Result<()>> + Send,
{
    let next = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..clients)
        .map(|_| {
            let (next, operation) = (next.clone(), operation.clone());
            tokio::spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        return anyhow::Ok(());
                    }
                    operation(n).await?;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}
