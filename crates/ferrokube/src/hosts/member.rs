//! A node's process on a shared machine: `ferrokube agent`, in the node's namespaces, with a runtime of its own.

use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use component::Shutdown;
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::process::{Signal, getpid, kill_process};
use tokio::net::unix::pipe::Receiver;

use super::runtime::Containerd;
use crate::archives::{Archives, Importer};
use crate::{agent, cli};

/// The directories of a node's logs, and the places at which collectors of logs look for them.
const LOGS: [(&str, &str); 2] = [("pod-logs", "/var/log/pods"), ("container-logs", "/var/log/containers")];

/// Runs the node until a signal stops it, or until the process that started it is gone.
pub(crate) async fn run(flags: &cli::Agent, hosted: &cli::Hosted) -> Result<()> {
    end_with_parent()?;
    let runtime = Shutdown::new();
    let result = serve(flags, hosted, &runtime).await;
    // The agent has ended; the runtime goes last.
    runtime.finish().await;
    result
}

async fn serve(flags: &cli::Agent, hosted: &cli::Hosted, runtime: &Shutdown) -> Result<()> {
    let root = flags.node.root_dir.iter().map(|root| ("kubelet", root.as_path()));
    for (dir, at) in root.chain(LOGS.map(|(dir, at)| (dir, Path::new(at)))) {
        mount_own(&hosted.host_dir.join(dir), at)
            .with_context(|| format!("the node's own {} can't be mounted", at.display()))?;
    }
    if let (Some(program), Some(images)) = (&hosted.containerd, &flags.node.images) {
        let containerd = Containerd::new(program, &hosted.host_dir);
        containerd.clone().start(runtime).await?;
        let import = move |archive: &Path| {
            let mut command = containerd.ctr();
            command.args(["images", "import", "--local"]).arg(archive);
            command
        };
        let mut images = Archives::new(images, Importer::Program(Box::new(import)));
        // A Pod that comes with the node finds them.
        images.import().await;
        let stop = runtime.clone();
        runtime.spawn(images.follow(stop));
    }
    agent::run(flags).await
}

/// Mounts a directory of the node at a path that every node has, among the node's own mounts.
fn mount_own(dir: &Path, at: &Path) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    std::fs::create_dir_all(at)?;
    // The machine may have a mount of its own there.
    if !is_same(dir, at)? {
        mount_bind(dir, at)?;
        // A group of mounts of its own: what is mounted below one path need not appear below the other, too.
        mount_change(at, MountPropagationFlags::PRIVATE)?;
        mount_change(at, MountPropagationFlags::SHARED)?;
    }
    Ok(())
}

/// Whether two paths lead to the same directory.
fn is_same(one: &Path, other: &Path) -> Result<bool> {
    let (one, other) = (std::fs::metadata(one)?, std::fs::metadata(other)?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// Sends this process the signal to end once its standard input ends: a process that is killed closes it.
fn end_with_parent() -> Result<()> {
    let input = std::io::stdin().as_fd().try_clone_to_owned()?;
    let mut input = Receiver::from_owned_fd(input)?;
    tokio::spawn(async move {
        let _ = tokio::io::copy(&mut input, &mut tokio::io::sink()).await;
        let _ = kill_process(getpid(), Signal::TERM);
    });
    Ok(())
}
