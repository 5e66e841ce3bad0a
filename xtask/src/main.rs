//! The project's automation.

use clap::{Parser, Subcommand};

mod schema;

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
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().task {
        Task::Schema(args) => schema::run(&args),
    }
}
