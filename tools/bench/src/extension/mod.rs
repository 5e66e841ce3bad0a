//! The cost of extending the API: objects of a definition beside built-in ones, many definitions, and a policy's share
//! of a write.

mod definitions;
mod objects;
mod policy;

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use super::requests::{connect, quantile};
use super::server::Server;
use super::target::Target;
use super::{Programs, block_on};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    programs: Programs,
    /// Objects of each kind
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(100..))]
    objects: u32,
    /// Definitions of 300 fields
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..))]
    definitions: u32,
}

/// The number of watchers of a resource.
const WATCHERS: u32 = 100;

/// The rounds in which things that are compared take turns.
const ROUNDS: u32 = 5;

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    quantile(&all, 0.5)
}

/// A server that is measured.
struct Measured {
    who: &'static str,
    server: Server,
    target: Arc<Target>,
}

impl Measured {
    async fn new(who: &'static str, server: Server) -> Result<Self> {
        let target = Arc::new(connect(server.config()?, WATCHERS).await?);
        Ok(Self { who, server, target })
    }
}

/// Runs the measurements, on a server at a time.
pub(crate) fn run(args: &Args, root: &Path) -> Result<()> {
    let bin = args.programs.ours(root)?;
    block_on(async {
        let dir = tempfile::Builder::new().prefix("ferrokube-bench-").tempdir()?;
        let ours = Measured::new("ferrokube", Server::ferrokube(&bin, dir.path()).await?).await?;
        measure(&ours, args).await?;
        drop(ours);
        if let Some((apiserver, etcd)) = args.programs.reference() {
            let server = Server::upstream(apiserver, etcd, dir.path()).await?;
            measure(&Measured::new("kube-apiserver", server).await?, args).await?;
        }
        Ok(())
    })
}

async fn measure(of: &Measured, args: &Args) -> Result<()> {
    println!("{}", objects::measure(of, args.objects).await?);
    println!("{}", policy::measure(of, args.objects).await?);
    println!("{}", definitions::measure(of, args.definitions).await?);
    Ok(())
}
