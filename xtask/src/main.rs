//! The project's automation.

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;
mod fuzz;
mod lint;
mod openapi;
mod schema;
mod setup;
mod step;
mod test;
mod up;

/// The allocator of what is shipped, because the store is measured in this process.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    /// Measures FerroKube, beside upstream where asked to.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Installs what the tests need: Debian packages, and newer tools into `.tools/`.
    Setup,
    /// Checks formatting, lints, documentation and dependencies.
    Lint,
    /// Installs what the tests need and runs them all.
    Test,
    /// Runs the fuzz targets.
    Fuzz(fuzz::Args),
    /// Makes requests from the API server's OpenAPI documents and checks the answers.
    Openapi(openapi::Args),
    /// Installs what a cluster needs, builds FerroKube and runs `ferrokube up` with a containerd of
    /// its own; everything is kept below `.tools/cluster`.
    Up {
        /// Further flags of `ferrokube up`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Removes all that `up` made, and ends its containerd.
    Down,
}

fn main() -> ExitCode {
    // As the binary that is shipped does.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
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
        Task::Bench(args) => bench::run(&args, root),
        Task::Setup => setup::run(root),
        Task::Lint => lint::run(root),
        Task::Test => test::run(root),
        Task::Fuzz(args) => fuzz::run(&args, root),
        Task::Openapi(args) => openapi::run(&args, root),
        Task::Up { flags } => up::up(root, &flags),
        Task::Down => up::down(root),
    }
}
