//! The project's automation.

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod lint;
mod schema;
mod setup;
mod step;
mod test;

#[derive(Parser)]
#[command(name = "xtask", about = "The project's automation")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Writes or checks the description of the built-in kinds.
    Schema(schema::Args),
    /// Installs what the tests need: Debian packages, and newer tools into `.tools/`.
    Setup,
    /// Checks formatting, lints, documentation and dependencies.
    Lint,
    /// Installs what the tests need and runs them all.
    Test,
}

fn main() -> ExitCode {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    match run(Cli::parse().task, here.parent().unwrap_or(here)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task, root: &Path) -> anyhow::Result<()> {
    match task {
        Task::Schema(args) => schema::run(&args),
        Task::Setup => setup::run(root),
        Task::Lint => lint::run(root),
        Task::Test => test::run(root),
    }
}
