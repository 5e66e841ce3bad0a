//! The project's automation: it sets a checkout up, runs, tests and checks it.
//!
//! It is small, since it is compiled before anything else. Tasks that need the project's own crates are tools that this
//! builds and runs: benchmarks (`tools/bench`), requests made from the OpenAPI documents (`tools/openapi`), the
//! generators of the schema (`tools/schema`) and of the protocols' code (`tools/protocols`).

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod fuzz;
mod lint;
mod results;
mod setup;
mod soak;
mod step;
mod test;
mod up;
mod vm;

use setup::Purpose;

#[derive(Parser)]
#[command(name = "xtask", bin_name = "cargo xtask", about = "The project's automation")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Installs kubectl, builds FerroKube and runs `ferrokube up`; everything is kept below `.tools/cluster`.
    Up {
        /// `--containerd` for a containerd in place of the built-in container runtime; further flags of `ferrokube up`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// Removes all that `up` made, and ends its containerd if it has one.
    Down,
    /// Installs the tools that the tests need, checks the code and runs all tests.
    Test(test::Args),
    /// Checks formatting, lints, promises and documentation, and the dependencies if cargo-deny is installed.
    Lint,
    /// Checks the code against what the project's prose promises of it.
    Tidy {
        /// Print the files that use each other in a circle, as tools/tidy/circles.txt lists them.
        #[arg(long)]
        circles: bool,
    },
    /// Installs Debian packages, and newer tools and libraries into `.tools/`.
    Setup {
        /// The purpose of the set-up.
        #[arg(value_enum, default_value_t = Purpose::Test)]
        purpose: Purpose,
    },
    /// Writes or checks the description of the built-in kinds: `cargo xtask schema --help`.
    #[command(disable_help_flag = true)]
    Schema {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Writes the Rust code of the protobuf protocols, which is committed.
    Protocols,
    /// Measures FerroKube, beside upstream if asked to: `cargo xtask bench --help`.
    #[command(disable_help_flag = true)]
    Bench {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Runs the fuzz targets.
    Fuzz(fuzz::Args),
    /// Makes requests from the API server's OpenAPI documents and checks the answers: `cargo xtask openapi --help`.
    #[command(disable_help_flag = true)]
    Openapi {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Runs tests in a virtual machine with cgroup v2.
    VmTest(vm::Args),
    /// Runs the tests that take too long for every change: power cuts and kills by the thousand, fuzz targets, requests
    /// made from the OpenAPI documents.
    Soak(soak::Args),
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
        Task::Up { flags } => up::up(root, &flags),
        Task::Down => up::down(root),
        Task::Test(args) => test::run(&args, root),
        Task::Lint => lint::run(root),
        Task::Tidy { circles: false } => lint::tidy(root),
        Task::Tidy { circles: true } => lint::circles(root),
        Task::Setup { purpose } => setup::run(root, purpose),
        Task::Protocols => step::tool(root, "protocols", "up", &[]),
        Task::Schema { args } => step::tool(root, "schema", "up", &args),
        Task::Bench { args } => bench(root, &args),
        Task::Fuzz(args) => fuzz::run(&args, root),
        Task::Openapi { args } => openapi(root, &args),
        Task::VmTest(args) => vm::run(&args, root),
        Task::Soak(args) => soak::run(&args, root),
    }
}

/// Runs the tool on the binary of the tests, with what they need.
pub(crate) fn openapi(root: &Path, args: &[OsString]) -> anyhow::Result<()> {
    setup::run(root, Purpose::Test)?;
    step::build(root)?;
    step::tool(root, "openapi", "up", args)
}

fn bench(root: &Path, args: &[OsString]) -> anyhow::Result<()> {
    // Only these have Pods, which need the tools.
    if args.first().is_some_and(|a| a == "first" || a == "runtime")
        && std::env::var_os("FERROKUBE_TOOLS").is_none()
    {
        setup::run(root, Purpose::Containerd)?;
    }
    step::tool(root, "bench", "release", args)
}
