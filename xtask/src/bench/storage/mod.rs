//! The store: the embedded engine in this process, and etcd through its client, one after the other on one disk.

mod embedded;
mod load;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::first::block_on;
use super::table::{Table, figure};
use crate::step::{cargo, step};
use load::Figures;

/// The clients that put at once.
const WRITERS: [usize; 4] = [1, 16, 64, 256];
/// The sizes of what they put, in bytes.
const SIZES: [usize; 2] = [1024, 4096];
/// The clients that read and write at once, and how many operations there are to one write.
const MIXED: (usize, u64) = (64, 10);
/// The objects that are read and written.
const WORKING_SET: u64 = 10_000;
/// The watchers that every event goes to, and the events.
const WATCHERS: usize = 1000;
const EVENTS: u64 = 2000;
/// The objects of a list.
const LISTED: u64 = 100_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// On which disk; everything in it that this makes is removed
    #[arg(long, value_name = "DIR", default_value = "target/bench-storage")]
    dir: PathBuf,
    /// Seconds for each figure of a load
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Objects of 1 KiB in the store that is opened
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    objects: u64,
    /// Only one part
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// Open this store, and say how long that took and what it needs
    #[arg(long, value_name = "DIR", hide = true)]
    open: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Durable puts
    Puts,
    /// Reads and writes together, lists
    Reads,
    /// Fan-out to watchers, and what they cost
    Watch,
    /// Opening a large store
    Open,
}

/// Runs it.
pub(crate) fn run(args: &Args, root: &Path) -> Result<()> {
    if cfg!(debug_assertions) {
        // What is measured must be what is shipped.
        let mut again = cargo(root);
        again
            .args(["run", "--release", "--quiet", "--package", "xtask", "--"])
            .args(std::env::args_os().skip(1));
        return step("release build of the benchmark", &mut again);
    }
    if let Some(dir) = &args.open {
        return embedded::open_and_tell(dir);
    }
    let dir = root.join(&args.dir);
    std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let dir = tempfile::Builder::new().prefix("store-").tempdir_in(&dir)?;
    block_on(measure(args, dir.path()))
}

async fn measure(args: &Args, dir: &Path) -> Result<()> {
    let wants = |part| args.only.is_none_or(|only| only == part);
    let time = Duration::from_secs(args.seconds);
    if wants(Part::Puts) {
        println!("{}", puts(dir, time).await?);
    }
    if wants(Part::Reads) {
        println!("{}", reads(dir, time).await?);
    }
    if wants(Part::Watch) {
        println!("{}", watches(dir).await?);
    }
    if wants(Part::Open) {
        println!("{}", opening(dir, args.objects).await?);
    }
    Ok(())
}

/// Appends and syncs for a second: syncs a second.
fn raw_syncs(path: &Path, size: usize) -> Result<f64> {
    let bytes = vec![b'x'; size];
    let mut file = File::create(path)?;
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(1) {
        file.write_all(&bytes)?;
        file.sync_data()?;
        count += 1;
    }
    let rate = f64::from(count) / start.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(rate)
}

/// Durable puts, beside what the disk does with the same bytes: appended and synced as one, for as many writers.
async fn puts(dir: &Path, time: Duration) -> Result<Table> {
    let head = ["durable puts", "writers", "puts/s", "p50 ms", "p99 ms", "fdatasync/s", "of a bare log"];
    let mut table = Table::new(&head);
    for size in SIZES {
        for writers in WRITERS {
            let raw = raw_syncs(&dir.join("raw"), size * writers)?;
            let ours = embedded::puts(&dir.join("puts"), writers, size, time).await?;
            let Figures { rate, p50, p99 } = ours;
            table.row([
                format!("{} KiB", size / 1024),
                writers.to_string(),
                figure(rate),
                figure(p50),
                figure(p99),
                figure(raw),
                figure(rate / (raw * writers as f64)),
            ]);
        }
    }
    Ok(table)
}

async fn reads(dir: &Path, time: Duration) -> Result<Table> {
    let (clients, per_write) = MIXED;
    let store = embedded::Bench::open(&dir.join("reads"))?;
    store.fill(WORKING_SET).await?;
    let mixed = store.mixed(clients, per_write, time).await?;
    store.fill(LISTED).await?;
    let list = store.list()?;
    store.close().await?;
    let mut table = Table::new(&["reads", "embedded"]);
    let what = format!("{clients} clients, {} reads to a write", per_write - 1);
    table.row([format!("{what}, operations/s"), figure(mixed.rate)]);
    table.row([format!("{what}, p99 ms"), figure(mixed.p99)]);
    table.row([format!("list of {LISTED} objects of 1 KiB, ms"), figure(list * 1e3)]);
    Ok(table)
}

async fn watches(dir: &Path) -> Result<Table> {
    let store = embedded::Bench::open(&dir.join("watches"))?;
    let bytes = store.watcher_bytes()?;
    let one = store.fan_out(WATCHERS, EVENTS, 1).await?;
    let many = store.fan_out(WATCHERS, EVENTS, 64).await?;
    store.close().await?;
    let mut table = Table::new(&["watches", "embedded"]);
    table.row(["bytes a watcher".to_owned(), figure(bytes)]);
    for (writers, ns) in [("one writer", one), ("64 writers", many)] {
        let what = format!("{EVENTS} events of {writers} to {WATCHERS} watchers, CPU ns for each");
        table.row([what, figure(ns)]);
    }
    Ok(table)
}

async fn opening(dir: &Path, objects: u64) -> Result<Table> {
    let at = dir.join("open");
    let store = embedded::Bench::open(&at)?;
    let begun = Instant::now();
    store.fill(objects).await?;
    let filled = begun.elapsed().as_secs_f64();
    store.close().await?;
    let opened = embedded::open_apart(&at)?;
    let mut table = Table::new(&["a large store", "embedded"]);
    table.row([format!("{objects} objects of 1 KiB written by 256 clients, s"), figure(filled)]);
    table.row(["opened, s".to_owned(), figure(opened.seconds)]);
    table.row(["memory after it, MiB".to_owned(), figure(opened.mib)]);
    let per_byte = opened.mib * f64::from(1 << 20) / (objects * 1024) as f64;
    table.row(["memory for a byte of the objects".to_owned(), figure(per_byte)]);
    Ok(table)
}
