//! Images: an image from a registry on loopback to an unpacked one, beside `gzip -dc | tar x` of the same archive.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ::images::{Credentials, Images, Settings};
use anyhow::{Context, Result, ensure};
use clap::Args as ClapArgs;
use component::Shutdown;
use serde_json::json;
use testkit::registry::{Layer, Registry};

use crate::table::{Table, figure};

/// How much to measure.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// MiB of the image's one layer as the registry has it, about
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=2000))]
    size: u32,
    /// How often each is done; the shortest counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// A directory on the disk to measure [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    directory: Option<std::path::PathBuf>,
}

/// Seconds, and seconds of CPU time.
#[derive(Debug, Clone, Copy)]
struct Cost {
    wall: Duration,
    cpu: Duration,
}

impl Cost {
    fn least(self, other: Self) -> Self {
        if other.wall < self.wall { other } else { self }
    }
}

/// A file of words: it shrinks to about a third, as programs and libraries do.
fn words(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let dictionary: Vec<[u8; 8]> = (0..8192).map(|_| std::array::from_fn(|_| random.u8(..))).collect();
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        out.extend_from_slice(&dictionary[random.usize(..dictionary.len())]);
        if random.u8(..) < 40 {
            out.extend_from_slice(&random.u64(..).to_le_bytes());
        }
    }
    out.truncate(bytes);
    out
}

/// A layer of files of many sizes, of about so many bytes when it is compressed.
fn layer(size: usize) -> Result<Layer> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut tar = tar::Builder::new(Vec::new());
    let mut sum = 0;
    let mut number = 0;
    // The words of this file shrink to less than a third.
    while sum < size * 28 / 10 {
        // Most files are small, most bytes are in large ones.
        let length = match random.u8(..100) {
            0..80 => random.usize(100..20_000),
            80..98 => random.usize(20_000..300_000),
            _ => random.usize(1_000_000..8_000_000),
        };
        let path = format!("usr/lib/d{}/f{number}", number / 100);
        let mut header = tar::Header::new_gnu();
        header.set_size(length as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, &*words(length, number))?;
        sum += length;
        number += 1;
    }
    Layer::gzip(&tar.into_inner()?)
}

/// Runs the benchmark.
pub(crate) fn run(args: &Args) -> Result<()> {
    let layer = layer((args.size as usize) << 20)?;
    let place = args.directory.clone().unwrap_or_else(std::env::temp_dir);
    let registry = Registry::start()?;
    registry.push("bench/image", "1", &json!({}), std::slice::from_ref(&layer));
    let name = format!("{}/bench/image:1", registry.host());
    let archive = tempfile::NamedTempFile::new_in(&place)?;
    fs::write(archive.path(), &layer.bytes)?;
    let mut best: Option<(Cost, Cost)> = None;
    for _ in 0..args.runs {
        // In turn, so that both meet the same disturbances.
        let theirs = reference(archive.path(), &place)?;
        let ours = pull(&name, &place)?;
        best = Some(match best {
            None => (ours, theirs),
            Some((o, t)) => (o.least(ours), t.least(theirs)),
        });
    }
    let (ours, theirs) = best.context("nothing was measured")?;
    let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64().max(1e-9);
    println!(
        "An image of {} MiB (gzip), pulled from a registry on loopback and unpacked:",
        layer.bytes.len() >> 20
    );
    let mut table = Table::new(&["", "seconds", "CPU seconds"]);
    for (what, cost) in [("pull", ours), ("gzip -dc | tar x", theirs)] {
        table.row([what.to_owned(), figure(cost.wall.as_secs_f64()), figure(cost.cpu.as_secs_f64())]);
    }
    let ratios = [ratio(ours.wall, theirs.wall), ratio(ours.cpu, theirs.cpu)];
    table.row(["ratio".to_owned(), figure(ratios[0]), figure(ratios[1])]);
    println!("{table}");
    println!("The pull's CPU time has the registry's in it, and checks every byte by two digests.");
    Ok(())
}

/// This process's CPU time, all threads, and its ended children's.
fn cpu(of: &str) -> Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let after = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let fields: Vec<u64> = after.split(' ').map(|f| f.parse().unwrap_or(0)).collect();
    let at = if of == "children" { 13 } else { 11 };
    let ticks = fields.get(at).zip(fields.get(at + 1)).map(|(a, b)| a + b).context("/proc/self/stat")?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

fn pull(name: &str, place: &Path) -> Result<Cost> {
    let directory = tempfile::tempdir_in(place)?;
    crate::block_on(async {
        let shutdown = Shutdown::new();
        let images = Images::open(Settings::new(directory.path()), &shutdown).await?;
        let (start, before) = (Instant::now(), cpu("self")?);
        images.pull(name, &Credentials::default()).await?;
        let cost = Cost { wall: start.elapsed(), cpu: cpu("self")?.saturating_sub(before) };
        shutdown.stop();
        shutdown.finish().await;
        Ok(cost)
    })
}

fn reference(archive: &Path, place: &Path) -> Result<Cost> {
    let directory = tempfile::tempdir_in(place)?;
    let (start, before) = (Instant::now(), cpu("children")?);
    let mut gzip = Command::new("gzip").arg("-dc").arg(archive).stdout(Stdio::piped()).spawn()?;
    let out = gzip.stdout.take().context("gzip has no output")?;
    let tar = Command::new("tar").arg("-xC").arg(directory.path()).stdin(out).status()?;
    ensure!(tar.success() && gzip.wait()?.success(), "gzip and tar failed");
    Ok(Cost { wall: start.elapsed(), cpu: cpu("children")?.saturating_sub(before) })
}
