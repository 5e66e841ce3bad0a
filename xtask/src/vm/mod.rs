//! Tests on machines that this one is not: cgroup v2 with controllers, in a virtual machine with Debian's kernel.
//!
//! The binaries are those of every other run of the tests; a machine gets them on a disk.

mod bare;
mod client;
mod cpio;
mod disk;
mod kernel;
mod machine;
mod suites;
mod systemd;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use self::disk::Root;
use self::kernel::Kernel;
use self::machine::Machine;
use self::suites::{Chosen, Suite};
use crate::setup::{self, Purpose};
use crate::step::{binary, target};

/// The parts to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The parts; the smoke if none is named.
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// Only tests whose names contain this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// A part.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// The core on cgroup v2, in three minutes
    Smoke,
    /// Containers, runtime, networks and whole nodes on cgroup v2
    Suite,
    /// A cluster on a machine that has nothing but a kernel
    Bare,
    /// A node with systemd, NUMA nodes and swap, and its shutdown
    Systemd,
}

/// Runs the parts, one after the other.
pub(crate) fn run(args: &Args, root: &Path) -> Result<()> {
    setup::run(root, Purpose::Vm)?;
    let parts = if args.parts.is_empty() { &[Part::Smoke][..] } else { &args.parts };
    for part in parts {
        one(*part, args.only.as_deref(), root)?;
    }
    Ok(())
}

/// Runs a part whose packages are there.
pub(crate) fn part(part: Part, root: &Path) -> Result<()> {
    setup::run(root, Purpose::Vm)?;
    one(part, None, root)
}

fn one(part: Part, only: Option<&str>, root: &Path) -> Result<()> {
    match part {
        Part::Smoke => tests(&suites::SMOKE, only, root),
        Part::Suite => tests(&suites::SUITE, only, root),
        Part::Bare => bare::run(root, &place(root)?),
        Part::Systemd => {
            setup::make_debian(root)?;
            systemd::run(root, &place(root)?)
        }
    }
}

/// The directory of a machine's files.
fn place(root: &Path) -> Result<PathBuf> {
    let at = target(root).join("vm");
    fs::create_dir_all(&at)?;
    Ok(at)
}

/// Runs tests on a machine whose cgroups are version 2's alone.
fn tests(suite: &Suite, only: Option<&str>, root: &Path) -> Result<()> {
    eprintln!("xtask: tests in a virtual machine with cgroup v2");
    let chosen = suites::choose(suite, only, root)?;
    ensure!(!chosen.is_empty(), "no test has such a name");
    let place = place(root)?;
    let disk = place.join("disk.img");
    make_disk(&chosen, root, &place.join("root"), &disk)?;
    let kernel = Kernel::find(root)?;
    let start = place.join("start.cpio");
    fs::write(&start, kernel.start(include_str!("start.sh"))?.finish())?;
    let machine = Machine {
        kernel: &kernel.image,
        start: &start,
        disk: Some(&disk),
        log: &place.join("console.log"),
        memory: "3G",
        processors: 2,
        more: &[],
        words: "",
    };
    let mut results = Results::new(&chosen);
    let ran = machine.run(Duration::from_secs(suite.seconds), |line, _| results.take(line));
    fs::remove_file(&disk)?;
    results.judge(ran)
}

/// The disk with the chosen tests.
fn make_disk(chosen: &[Chosen], root: &Path, at: &Path, disk: &Path) -> Result<()> {
    let tools = setup::tools(root).join("bin");
    let made = Root::new(at.to_owned())?;
    made.programs(&suites::PROGRAMS)?;
    for tool in suites::TOOLS {
        made.program(&fs::canonicalize(tools.join(tool))?, &format!("/tools/{tool}"))?;
    }
    let binaries: BTreeMap<&str, &Path> = chosen.iter().map(|c| (&*c.binary, &*c.path)).collect();
    for (name, path) in binaries {
        made.program(path, &format!("/tests/{name}"))?;
    }
    made.program(&binary(root), "/tests/ferrokube")?;
    made.busybox()?;
    for file in ["/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl/openssl.cnf"] {
        if Path::new(file).exists() {
            made.copy(Path::new(file))?;
        }
    }
    made.script("/init", include_str!("init.sh"))?;
    made.script("/tests/one", include_str!("one.sh"))?;
    let list: Vec<String> =
        chosen.iter().map(|c| format!("{} {} {}\n", c.seconds, c.binary, c.test)).collect();
    fs::write(made.path("/tests/list"), list.concat())?;
    let environment = "export FERROKUBE_BIN=/tests/ferrokube FERROKUBE_TOOLS=/tools RUST_BACKTRACE=1\n";
    fs::write(made.path("/tests/environment"), environment)?;
    made.disk(disk, 4096)
}

/// The results that a machine has told, beside those that it should tell.
struct Results<'a> {
    missing: Vec<&'a Chosen>,
    passed: usize,
    failed: Vec<String>,
}

impl<'a> Results<'a> {
    fn new(chosen: &'a [Chosen]) -> Self {
        Self { missing: chosen.iter().collect(), passed: 0, failed: Vec::new() }
    }

    /// Takes a line: `PASS` or `FAIL`, seconds, binary, test; others are shown.
    fn take(&mut self, line: &str) {
        let mut words = line.split(' ');
        let passed = match words.next() {
            Some("PASS") => true,
            Some("FAIL") => false,
            _ => return println!("{line}"),
        };
        let (Some(seconds), Some(binary), Some(test)) = (words.next(), words.next(), words.next()) else {
            return println!("{line}");
        };
        println!("{} [{seconds:>4} s] {binary} {test}", if passed { "PASS" } else { "FAIL" });
        let Some(at) = self.missing.iter().position(|c| c.binary == binary && c.test == test) else { return };
        self.missing.swap_remove(at);
        if passed {
            self.passed += 1;
        } else {
            self.failed.push(format!("{binary} {test}"));
        }
    }

    /// Fails if the machine did, a test did, or one told nothing.
    fn judge(self, ran: Result<()>) -> Result<()> {
        let Self { missing, passed, failed } = self;
        println!("{passed} passed, {} failed, {} without a result", failed.len(), missing.len());
        ran.context("in the virtual machine")?;
        ensure!(failed.is_empty(), "these tests failed in the virtual machine: {}", failed.join(", "));
        let names: Vec<&str> = missing.iter().map(|c| &*c.test).collect();
        ensure!(names.is_empty(), "the virtual machine told nothing of {}", names.join(", "));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_must_tell_its_result() {
        let one =
            |test: &str| Chosen { binary: "b".into(), path: PathBuf::new(), test: test.into(), seconds: 1 };
        let chosen = [one("x"), one("y")];
        let check = |lines: &[&str], expected: Option<&str>| {
            let mut results = Results::new(&chosen);
            for line in lines {
                results.take(line);
            }
            let error = results.judge(Ok(())).err().map(|e| e.to_string());
            assert_eq!(error.as_deref(), expected, "{lines:?}");
        };
        check(&["noise", "PASS 3 b x", "PASS 0 b y"], None);
        check(&["PASS 3 b x"], Some("the virtual machine told nothing of y"));
        check(&["PASS 3 b x", "PASS 3 b x", "PASS 1 c y"], Some("the virtual machine told nothing of y"));
        check(&["| why", "FAIL 3 b x", "PASS 0 b y"], Some("these tests failed in the virtual machine: b x"));
    }
}
