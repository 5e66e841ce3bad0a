//! Two clusters on one machine: a second cluster is refused the things that the first one has, with the flag that
//! avoids the conflict.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use testkit::{Cluster, Host, Options, eventually, tool};

/// `ferrokube up` of a second cluster.
fn up(host: &Host, flags: &[String]) -> Command {
    let mut command = host.command(testkit::binary());
    command.args(["up", "--node-name=second", "--eviction-hard=memory.available<1Mi"]);
    command.arg("--data-dir").arg(host.path("second/data")).args(flags);
    command
}

/// A second containerd of the host, below its directory.
fn containerd(host: &Host, dir: &Path) -> Result<std::process::Child> {
    fs::create_dir_all(dir.join("cni"))?;
    fs::write(dir.join("containerd.toml"), testkit::containerd_config(dir))?;
    let bin = tool("containerd");
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bin.parent().unwrap_or(dir).display());
    let mut command = host.command(&bin);
    let child =
        host.spawn("second", command.arg("--config").arg(dir.join("containerd.toml")).env("PATH", path))?;
    let socket = dir.join("containerd.sock");
    eventually("the second containerd", || {
        host.run(&tool("ctr").to_string_lossy(), &["--address", &socket.to_string_lossy(), "version"])?;
        Ok(Some(()))
    })?;
    Ok(child)
}

#[test]
fn a_second_cluster_needs_its_own() -> Result<()> {
    let flags = vec!["--kubelet-port=10250".to_owned(), "--eviction-hard=memory.available<1Mi".to_owned()];
    let cluster = Cluster::start("first", Options { flags, containerd: true, ..Options::default() })?;
    let (host, first) = (cluster.host(), cluster.data_dir());
    let second = host.path("second");
    let _containerd = containerd(host, &second)?;
    let mut flags = vec![
        format!("--container-runtime-endpoint={}", cluster.socket().display()),
        format!("--cni-conf-dir={}", host.path("cni").display()),
        format!("--cni-bin-dir={}", second.join("cni-bin").display()),
        "--kubelet-port=10250".to_owned(),
    ];
    let whose = format!("the cluster of {}, which runs on this machine, has", first.display());
    for (sentence, better) in [
        ("port 10250 is in use by another program".to_owned(), "--kubelet-port=10251".to_owned()),
        (format!("{whose} 10.244.0.0/16 for its Pods"), "--cluster-cidr=10.245.0.0/16".to_owned()),
        (format!("{whose} 10.96.0.0/16 for its Services"), "--service-cidr=10.97.0.0/16".to_owned()),
        (
            format!("{whose} the container runtime at {}", cluster.socket().display()),
            format!("--container-runtime-endpoint={}", second.join("containerd.sock").display()),
        ),
        (
            format!("{whose} its pod network's configuration in {}", host.path("cni").display()),
            format!("--cni-conf-dir={}", second.join("cni").display()),
        ),
        ("port 6443 is in use by another program".to_owned(), "--port=6444".to_owned()),
    ] {
        let out = up(host, &flags).output()?;
        let said = String::from_utf8_lossy(&out.stderr);
        let flag = better.split('=').next().unwrap_or_default();
        ensure!(!out.status.success() && said.contains(&sentence), "{sentence}: {said}");
        ensure!(said.contains(&format!("choose another with {flag}")), "{flag}: {said}");
        flags.retain(|f| !f.starts_with(&format!("{flag}=")));
        flags.push(better);
    }
    let mut running = host.spawn("second-cluster", &mut up(host, &flags))?;
    let ready = eventually("the second cluster", || {
        let kubeconfig = second.join("data/admin.kubeconfig");
        let args =
            ["--kubeconfig", &kubeconfig.to_string_lossy(), "wait", "--for=condition=Ready", "node/second"];
        host.run(&tool("kubectl").to_string_lossy(), &args)?;
        Ok(Some(()))
    });
    let log = host.log("second-cluster");
    let pid = i32::try_from(Host::pid_of(&running)?)?;
    kill_process(Pid::from_raw(pid).context("no process has this id")?, Signal::KILL)?;
    running.wait()?;
    ready.map_err(|e| e.context(log))?;
    host.command(testkit::binary()).arg("down").arg("--data-dir").arg(second.join("data")).output()?;
    Ok(())
}
