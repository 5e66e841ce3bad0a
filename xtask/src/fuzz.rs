//! Runs the fuzz targets, one after the other.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::setup;
use crate::step::step;

/// The profile of the targets: a release build as cargo has it by default, and lines for the stacks of findings.
const PROFILE: [(&str, &str); 5] = [
    ("CARGO_PROFILE_RELEASE_LTO", "false"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_RELEASE_STRIP", "none"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only"),
];

/// The targets to run, and the time.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// One target; all if none is named.
    pub(crate) target: Option<String>,
    /// Seconds for which each target runs.
    #[arg(long, default_value_t = 300)]
    pub(crate) seconds: u32,
}

/// Installs cargo-fuzz into `.tools/`, builds the targets and runs them over their corpus and their seeds.
pub(crate) fn run(args: &Args, root: &Path) -> Result<()> {
    let program = setup::cargo_fuzz(root)?;
    // Coverage is a feature of the nightly compiler, which the stable one has, too; sanitizers need a standard library
    // of their own, and there is no unsafe code here for them to check.
    let fuzz = |task: &str| {
        let mut command = Command::new(&program);
        command.arg("fuzz").arg(task).args(["--sanitizer", "none", "--target-dir", "target"]);
        command.current_dir(root.join("fuzz")).env("RUSTC_BOOTSTRAP", "1").envs(PROFILE);
        command
    };
    let listed = Command::new(&program).args(["fuzz", "list"]).current_dir(root.join("fuzz")).output()?;
    let listed = String::from_utf8(listed.stdout)?;
    let all = listed.lines().filter(|t| args.target.as_ref().is_none_or(|wanted| wanted == t));
    let mut any = false;
    for target in all {
        any = true;
        let (corpus, seeds) = (root.join("fuzz/corpus").join(target), root.join("fuzz/seeds").join(target));
        std::fs::create_dir_all(&corpus)?;
        step(
            &format!("fuzzing of {target}"),
            fuzz("run")
                .arg(target)
                .args([corpus, seeds])
                .arg("--")
                .arg(format!("-max_total_time={}", args.seconds))
                .args(["-max_len=4096", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"]),
        )?;
    }
    ensure!(
        any,
        "there is no such target; there are: {}",
        listed.split_whitespace().collect::<Vec<_>>().join(" ")
    );
    Ok(())
}
