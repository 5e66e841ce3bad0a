//! The project's automation.

use clap::{Parser, Subcommand};

mod schema;
mod setup;
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
    /// Installs what the tests need and runs them all.
    Test,
}

fn main() -> anyhow::Result<()> {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent().unwrap_or(here);
    match Cli::parse().task {
        Task::Schema(args) => schema::run(&args),
        Task::Setup => setup::run(root),
        Task::Test => test::run(root),
    }
}
