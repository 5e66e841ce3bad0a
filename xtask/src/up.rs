//! Runs a cluster from a checkout, on a machine that has nothing installed for it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use supplies::Image;

use crate::setup::{self, Purpose};
use crate::step::{binary, build, step};

/// An image to play with, as nothing is downloaded.
const BUSYBOX: &str = "localhost/busybox:1";

fn dir(root: &Path) -> PathBuf {
    root.join(".tools/cluster")
}

/// The flag by which the cluster gets a containerd in place of the built-in container runtime.
const CONTAINERD: &str = "--containerd";

/// Sets up, builds, and becomes `ferrokube up`.
pub(crate) fn up(root: &Path, flags: &[String]) -> Result<()> {
    let containerd = flags.iter().any(|flag| flag == CONTAINERD);
    let flags: Vec<&String> = flags.iter().filter(|flag| *flag != CONTAINERD).collect();
    let purpose = if containerd { Purpose::Containerd } else { Purpose::Up };
    // One waits for the network, the other for the processor.
    std::thread::scope(|scope| {
        let setup = scope.spawn(|| setup::run(root, purpose));
        let built = build(root);
        setup.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the set-up panicked")))?;
        built
    })?;
    let dir = dir(root);
    let images = dir.join("images");
    fs::create_dir_all(&images)?;
    Image::busybox(BUSYBOX)?.write(&images.join("busybox.tar"))?;
    let mut command = Command::new(binary(root));
    command.arg("up").arg("--data-dir").arg(dir.join("data")).arg("--images").arg(images);
    if containerd && flags.iter().any(|flag| *flag == "--nodes" || flag.starts_with("--nodes=")) {
        prepare_nodes(root, &dir, &mut command)?;
    } else if containerd {
        fs::create_dir_all(dir.join("cni"))?;
        start_containerd(root, &dir)?;
        command.arg("--container-runtime-endpoint").arg(dir.join("containerd.sock"));
        command.arg("--cni-conf-dir").arg(dir.join("cni")).arg("--cni-bin-dir").arg(dir.join("cni-bin"));
    }
    println!("an image to try with: {BUSYBOX}");
    command.args(flags);
    Err(command.exec()).context("starting ferrokube")
}

/// Writes what the containerds of several nodes have, which FerroKube starts itself.
fn prepare_nodes(root: &Path, dir: &Path, command: &mut Command) -> Result<()> {
    let config = dir.join("nodes-containerd.toml");
    fs::write(&config, supplies::nodes_containerd_config())?;
    Image::pause(supplies::PAUSE)?.write(&dir.join("images").join("pause.tar"))?;
    let bin = setup::tools(root).join("bin");
    command.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bin.display()));
    command.arg("--containerd").arg(bin.join("containerd"));
    command.arg("--containerd-config").arg(config);
    Ok(())
}

/// Removes the cluster, its containerd if it has one, and its directory.
pub(crate) fn down(root: &Path) -> Result<()> {
    let dir = dir(root);
    if !dir.exists() {
        println!("there is no cluster of this checkout");
        return Ok(());
    }
    let containerd = dir.join("containerd.pid").exists();
    if containerd {
        start_containerd(root, &dir)?;
    }
    step("removal", Command::new(binary(root)).arg("down").arg("--data-dir").arg(dir.join("data")))?;
    if !containerd {
        return fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()));
    }
    let pid: i32 = fs::read_to_string(dir.join("containerd.pid"))?.trim().parse()?;
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
        rustix::process::pidfd_send_signal(&process, rustix::process::Signal::TERM)?;
        // The descriptor is readable once the process has ended.
        let mut ended = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut ended, None)?;
    }
    fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))
}

/// Starts containerd unless it runs, apart from this terminal: containers outlive the cluster's processes.
fn start_containerd(root: &Path, dir: &Path) -> Result<()> {
    let bin = setup::tools(root).join("bin");
    let socket = dir.join("containerd.sock");
    let ctr = |args: &[&str]| {
        setup::sh(
            Command::new(bin.join("ctr")).arg("--address").arg(&socket).args(["-n", "k8s.io"]).args(args),
        )
    };
    if ctr(&["version"]).is_ok() {
        return Ok(());
    }
    let config = dir.join("containerd.toml");
    fs::write(&config, supplies::containerd_config(dir))?;
    let log = fs::File::create(dir.join("containerd.log"))?;
    let child = Command::new(bin.join("containerd"))
        .arg("--config")
        .arg(&config)
        .env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bin.display()))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .context("starting containerd")?;
    fs::write(dir.join("containerd.pid"), child.id().to_string())?;
    supplies::within(Duration::from_secs(30), "containerd", || Ok(Some(ctr(&["version"])?)))
        .with_context(|| format!("see {}", dir.join("containerd.log").display()))?;
    for image in [Image::pause(supplies::PAUSE)?, Image::busybox(BUSYBOX)?] {
        let tar = dir.join("image.tar");
        image.write(&tar)?;
        ctr(&["images", "import", "--local", &tar.to_string_lossy()])?;
        fs::remove_file(tar)?;
    }
    Ok(())
}
