//! The store: the embedded engine in this process, and etcd through its client, one after the other on one disk.

mod embedded;
mod load;
mod reference;
mod shared;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::block_on;
use super::table::{Table, figure};
use load::{Figures, Tally, median};
use reference::Etcd;

/// The number of parts in which a load is measured, FerroKube's and etcd's in turn. Medians count, since a disk's speed
/// varies.
const ROUNDS: u32 = 12;
/// The numbers of clients that put at once.
const WRITERS: [usize; 4] = [1, 16, 64, 256];
/// The sizes of the objects that they put, in bytes.
const SIZES: [usize; 2] = [1024, 4096];
/// The time for which the bare disk is measured each time.
const RAW: Duration = Duration::from_millis(200);
/// The number of clients that read and write at once, and the number of operations for each write.
const MIXED: (usize, u64) = (64, 10);
/// The number of objects that are read and written.
const WORKING_SET: u64 = 10_000;
/// The number of watchers to which every event goes, and the number of events.
const WATCHERS: usize = 1000;
const EVENTS: u64 = 2000;
/// The number of objects in a list.
const LISTED: u64 = 100_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A directory on the disk to measure; everything that this makes in it is removed
    #[arg(long, value_name = "DIR", default_value = "target/bench-storage")]
    dir: PathBuf,
    /// Seconds for each load
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Objects of 1 KiB in the store that is opened
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    objects: u64,
    /// Only one part
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// An etcd to put under the same load
    #[arg(long, value_name = "FILE")]
    reference_etcd: Option<PathBuf>,
    /// Open this store, and print the time that it took and the memory that it needs
    #[arg(long, value_name = "DIR", hide = true)]
    open: Option<PathBuf>,
    /// Open the store in this etcd, and print the same figures
    #[arg(long, value_name = "URL", hide = true)]
    open_etcd: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Durable puts
    Puts,
    /// Reads and writes together, lists
    Reads,
    /// Fan-out to watchers, and their cost
    Watch,
    /// Opening a large store
    Open,
    /// The etcd engine, beside the bare client on the same etcd
    Engine,
}

/// Runs the parts.
pub(crate) fn run(args: &Args, root: &Path) -> Result<()> {
    ensure!(!cfg!(debug_assertions), "only a release build is measured: `cargo xtask bench storage`");
    if let Some(dir) = &args.open {
        return embedded::open_and_tell(dir);
    }
    if let Some(url) = &args.open_etcd {
        return block_on(shared::open_and_tell(url));
    }
    let dir = root.join(&args.dir);
    std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let dir = tempfile::Builder::new().prefix("store-").tempdir_in(&dir)?;
    block_on(measure(args, dir.path()))
}

async fn measure(args: &Args, dir: &Path) -> Result<()> {
    let wants = |part| args.only.is_none_or(|only| only == part);
    let time = Duration::from_secs(args.seconds);
    let etcd = args.reference_etcd.as_deref();
    // This part comes first: memory that was used before would hide the watchers' memory.
    if wants(Part::Watch) {
        println!("{}", watches(dir, etcd).await?);
    }
    if wants(Part::Puts) {
        println!("{}", puts(dir, time, etcd).await?);
    }
    if wants(Part::Reads) {
        println!("{}", reads(dir, time, etcd).await?);
    }
    if wants(Part::Open) {
        println!("{}", opening(dir, args.objects, etcd).await?);
    }
    if wants(Part::Engine)
        && let Some(program) = etcd
    {
        for table in shared::measure(program, &dir.join("engine"), time).await? {
            println!("{table}");
        }
    }
    Ok(())
}

/// A fresh etcd, if one was given.
async fn start(etcd: Option<&Path>, dir: &Path) -> Result<Option<Etcd>> {
    match etcd {
        Some(program) => Ok(Some(Etcd::start(program, dir).await?)),
        None => Ok(None),
    }
}

/// The ratio of one figure to another.
fn ratio(of: f64, to: f64) -> String {
    format!("{}x", figure(of / to))
}

/// A table of figures of which a lower one is better: FerroKube's, etcd's, and etcd's divided by FerroKube's.
struct Costs(Table);

impl Costs {
    fn new(what: &str) -> Self {
        Self(Table::new(&[what, "embedded", "etcd", "ratio"]))
    }
    fn row(&mut self, what: impl Into<String>, ours: f64, theirs: Option<f64>) {
        let (other, times) = theirs.map_or_else(Default::default, |t| (figure(t), ratio(t, ours)));
        self.0.row([what.into(), figure(ours), other, times]);
    }
}

/// Appends and syncs for a while; returns the syncs per second.
fn raw_syncs(file: &mut File, size: usize) -> Result<f64> {
    let bytes = vec![b'x'; size];
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < RAW {
        file.write_all(&bytes)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

/// Measures durable puts, beside the bare disk with the same bytes: appended and synced as one, for as many writers.
async fn puts(dir: &Path, time: Duration, etcd: Option<&Path>) -> Result<Table> {
    let mut table = Table::new(&[
        "durable puts",
        "writers",
        "fdatasync/s",
        "embedded/s",
        "p50 ms",
        "p99 ms",
        "of a bare log",
        "etcd/s",
        "p50 ms",
        "p99 ms",
        "ratio",
    ]);
    for size in SIZES {
        for writers in WRITERS {
            let (mut raw, mut ours, mut theirs) = (Vec::new(), Tally::default(), Tally::default());
            let (store_dir, etcd_dir) = (dir.join("puts"), dir.join("puts-etcd"));
            let store = embedded::Bench::open(&store_dir)?;
            let reference = start(etcd, &etcd_dir).await?;
            // The file is kept meanwhile: if the disk is told of a removal, that slows down the next run.
            let bare_file = dir.join("bare");
            let mut bare = File::create(&bare_file)?;
            for _round in 0..ROUNDS {
                store.puts(&mut ours, writers, size, time / ROUNDS).await?;
                if let Some(etcd) = &reference {
                    etcd.puts(&mut theirs, writers, size, time / ROUNDS).await?;
                }
                raw.push(raw_syncs(&mut bare, size * writers)?);
            }
            store.close().await;
            std::fs::remove_file(&bare_file)?;
            std::fs::remove_dir_all(&store_dir)?;
            if reference.is_some() {
                drop(reference);
                std::fs::remove_dir_all(&etcd_dir)?;
            }
            let times = median(ours.rates.iter().zip(&theirs.rates).map(|(o, t)| o / t).collect());
            let (Some(raw), Some(ours)) = (median(raw), ours.figures()) else { continue };
            let mut row = vec![
                format!("{} KiB", size / 1024),
                writers.to_string(),
                figure(raw),
                figure(ours.rate),
                figure(ours.p50),
                figure(ours.p99),
                figure(ours.rate / (raw * writers as f64)),
            ];
            if let (Some(Figures { rate, p50, p99 }), Some(times)) = (theirs.figures(), times) {
                row.extend([figure(rate), figure(p50), figure(p99), ratio(times, 1.0)]);
            }
            table.row(row);
        }
    }
    Ok(table)
}

async fn reads(dir: &Path, time: Duration, etcd: Option<&Path>) -> Result<Table> {
    let (clients, per_write) = MIXED;
    let store = embedded::Bench::open(&dir.join("reads"))?;
    let reference = start(etcd, &dir.join("reads-etcd")).await?;
    store.fill(WORKING_SET).await?;
    if let Some(etcd) = &reference {
        etcd.fill(WORKING_SET).await?;
    }
    let (mut ours, mut theirs) = (Tally::default(), Tally::default());
    for _round in 0..ROUNDS {
        store.mixed(&mut ours, clients, per_write, time / ROUNDS).await?;
        if let Some(etcd) = &reference {
            etcd.mixed(&mut theirs, WORKING_SET, clients, per_write, time / ROUNDS).await?;
        }
    }
    let (ours, theirs) = (ours.figures().context("no operation ended")?, theirs.figures());
    store.fill(LISTED).await?;
    let our_list = store.list()? * 1e3;
    store.close().await;
    let mut their_list = None;
    if let Some(etcd) = &reference {
        etcd.fill(LISTED).await?;
        their_list = Some(etcd.list(LISTED).await? * 1e3);
    }
    let mut costs = Costs::new("reads");
    let what = format!("{clients} clients, {} reads to a write", per_write - 1);
    costs.row(format!("{what}: us each"), 1e6 / ours.rate, theirs.map(|t| 1e6 / t.rate));
    costs.row(format!("{what}: p99 ms"), ours.p99, theirs.map(|t| t.p99));
    costs.row(format!("list of {LISTED} objects of 1 KiB, ms"), our_list, their_list);
    Ok(costs.0)
}

async fn watches(dir: &Path, etcd: Option<&Path>) -> Result<Table> {
    let store = embedded::Bench::open(&dir.join("watches"))?;
    let bytes = store.watcher_bytes()?;
    let mut costs = Costs::new("watches");
    costs.row("bytes of memory a watcher", bytes, None);
    let reference = start(etcd, &dir.join("watches-etcd")).await?;
    for writers in [1, 64] {
        let ours = store.fan_out(WATCHERS, EVENTS, writers).await?;
        let theirs = match &reference {
            Some(etcd) => Some(etcd.fan_out(WATCHERS, EVENTS, writers).await?),
            None => None,
        };
        let what = format!("{EVENTS} events of {writers} writers to {WATCHERS} watchers: CPU ns for each");
        costs.row(what, ours, theirs);
    }
    store.close().await;
    Ok(costs.0)
}

async fn opening(dir: &Path, objects: u64, etcd: Option<&Path>) -> Result<Table> {
    let at = dir.join("open");
    let store = embedded::Bench::open(&at)?;
    let begun = Instant::now();
    store.fill(objects).await?;
    let filled = begun.elapsed().as_secs_f64();
    store.close().await;
    let opened = embedded::open_apart(&at)?;
    std::fs::remove_dir_all(&at)?;
    let mut theirs = None;
    if let Some(etcd) = start(etcd, &dir.join("open-etcd")).await? {
        etcd.fill(objects).await?;
        let (_, seconds, mib) = etcd.restart().await?;
        theirs = Some((seconds, mib));
    }
    let per_byte = |mib: f64| mib * f64::from(1 << 20) / (objects * 1024) as f64;
    let mut costs = Costs::new("a large store");
    costs.row(format!("{objects} objects of 1 KiB put by 256 clients, s"), filled, None);
    costs.row("opened, s", opened.seconds, theirs.map(|t| t.0));
    costs.row("memory after it, MiB", opened.mib, theirs.map(|t| t.1));
    costs.row("memory for a byte of the objects", per_byte(opened.mib), theirs.map(|t| per_byte(t.1)));
    Ok(costs.0)
}
