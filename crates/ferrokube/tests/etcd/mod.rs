//! API servers on a real etcd, used through kubectl.

mod kms;
mod sharing;
mod unreadable;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use testkit::{Etcd, Server, eventually};

/// The command of an API server, with the store in etcd or in the data directory.
fn server(dir: &Path, urls: Option<&str>) -> Result<Command> {
    let flags = urls.map(|urls| format!("--etcd-servers={urls}"));
    Ok(Server::command("kube-apiserver", testkit::free_port()?, dir, flags.as_slice()))
}

fn start(etcd: &Etcd) -> Result<Server> {
    start_with(etcd, &[])
}

fn start_with(etcd: &Etcd, flags: &[&str]) -> Result<Server> {
    let servers = format!("--etcd-servers={}", etcd.urls().join(","));
    Server::start(&[&[servers.as_str()], flags].concat())
}

/// Two API servers and three members of etcd, one of which goes: all see the same state, and watches go on.
#[test]
fn two_servers_on_one_etcd() -> Result<()> {
    let mut etcd = Etcd::start(3)?;
    let (a, b) = (start(&etcd)?, start(&etcd)?);
    let mut watch = b
        .kubectl_command(&["get", "configmaps", "--watch-only", "-o", "name"])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut seen = BufReader::new(watch.stdout.take().context("no output")?).lines();
    a.kubectl(&["create", "configmap", "one"])?;
    ensure!(b.kubectl(&["get", "configmap", "one", "-o", "name"])? == "configmap/one\n");
    let leader = etcd.leader()?;
    etcd.kill(leader)?;
    a.kubectl(&["create", "configmap", "two"])?;
    b.kubectl(&["label", "configmap", "two", "from=b"])?;
    a.kubectl(&["label", "configmap", "two", "and=a"])?;
    let labels = b.kubectl(&["get", "configmap", "two", "-o", "jsonpath={.metadata.labels}"])?;
    ensure!(labels == r#"{"and":"a","from":"b"}"#, "{labels}");
    a.kubectl(&["delete", "configmap", "one"])?;
    ensure!(b.kubectl(&["get", "configmap", "one"]).is_err(), "a deleted object is gone for all");
    // The first event may be older than the watch.
    let mut next = || seen.next().context("the watch ended")?.context("reading the watch");
    while next()? != "configmap/two" {}
    for _ in 0..3 {
        next()?;
    }
    etcd.restart(leader)?;
    let keys = etcd.etcdctl(&["get", "/registry/configmaps/default/", "--prefix", "--keys-only"])?;
    ensure!(keys.contains("/registry/configmaps/default/two"), "{keys}");
    watch.kill()?;
    watch.wait()?;
    Ok(())
}

/// Somebody writes a value that is no object: a watch ends with upstream's error, lists fail with it, and objects of
/// other lists can be read as before.
#[test]
fn a_value_that_cannot_be_read() -> Result<()> {
    let etcd = Etcd::start(1)?;
    let a = start(&etcd)?;
    a.kubectl(&["create", "configmap", "one"])?;
    let configmaps = "/api/v1/namespaces/default/configmaps";
    let revision = a.kubectl(&["get", "configmap", "one", "-o", "jsonpath={.metadata.resourceVersion}"])?;
    let path = format!("{configmaps}?watch=1&resourceVersion={revision}");
    let mut watch = a.kubectl_command(&["get", "--raw", &path]).stdout(Stdio::piped()).spawn()?;
    let mut events = BufReader::new(watch.stdout.take().context("no output")?);
    a.kubectl(&["create", "configmap", "two"])?;
    let mut seen = String::new();
    // The first event shows that the watch has begun.
    events.read_line(&mut seen)?;
    let key = "/registry/configmaps/default/bad";
    etcd.etcdctl(&["put", key, "garbage"])?;
    events.read_to_string(&mut seen)?;
    watch.wait()?;
    let types: Vec<_> = seen.lines().filter_map(|line| line.split('"').nth(3)).collect();
    ensure!(types == ["ADDED", "ERROR"], "{seen}");
    ensure!(seen.contains(r#""code":500"#) && seen.contains("unable to transform key"), "{seen}");
    let error = a.kubectl(&["get", "configmaps"]).err().context("a list without it")?.to_string();
    ensure!(error.contains(&format!("unable to transform key \"{key}\"")), "{error}");
    for other in
        [&["get", "configmap", "one"][..], &["get", "configmaps", "-n", "kube-system"], &["get", "secrets"]]
    {
        a.kubectl(other)?;
    }
    etcd.etcdctl(&["del", key])?;
    let names = a.kubectl(&["get", "configmaps", "-o", "name"])?;
    ensure!(names.contains("configmap/one\nconfigmap/two\n"), "{names}");
    Ok(())
}

/// Two whole control planes share an etcd: one leads, and the other takes over.
#[test]
fn one_control_plane_works_at_a_time() -> Result<()> {
    let etcd = Etcd::start(1)?;
    let servers = format!("--etcd-servers={}", etcd.urls().join(","));
    let start = || Server::start_as("server", &[&servers]);
    let (a, b) = (start()?, start()?);
    let holders = |s: &Server| {
        let leases = s.kubectl(&["-n", "kube-system", "get", "leases", "-o", "name"])?;
        ensure!(leases.contains("kube-controller-manager") && leases.contains("kube-scheduler"), "{leases}");
        s.kubectl(&["-n", "kube-system", "get", "leases", "-o", "jsonpath={.items[*].spec.holderIdentity}"])
    };
    let before = eventually("leaders", || Ok(holders(&a).ok()))?;
    a.kubectl(&["create", "deployment", "web", "--image=x"])?;
    let pods = |s: &Server| s.kubectl(&["get", "pods", "-l", "app=web", "-o", "name"]);
    eventually("a Pod", || Ok((pods(&b)?.lines().count() == 1).then_some(())))?;
    // The server that was first leads; its Deployment goes on without it.
    drop(a);
    b.kubectl(&["scale", "deployment", "web", "--replicas=2"])?;
    eventually("another Pod", || Ok((pods(&b)?.lines().count() == 2).then_some(())))?;
    ensure!(holders(&b)? != before, "{before}");
    Ok(())
}

/// The content of a cluster moves into an etcd and back.
#[test]
fn a_cluster_moves() -> Result<()> {
    let (one, two) = (Etcd::start(1)?, Etcd::start(1)?);
    let server = start(&one)?;
    server.kubectl(&["create", "configmap", "kept", "--from-literal=a=b"])?;
    let port = |name: &'static str| ["create", "service", "nodeport", name, "--tcp=80", "--node-port=30500"];
    server.kubectl(&port("one"))?;
    let read = |s: &Server| s.kubectl(&["get", "configmap", "kept", "-o", "jsonpath={.data}{.metadata.uid}"]);
    let before = read(&server)?;
    drop(server);
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data").display().to_string();
    let migrate = |from: &str, to: &str| -> Result<Output> {
        Ok(Command::new(testkit::binary())
            .args(["storage", "migrate", "--from", from, "--to", to])
            .output()?)
    };
    let out = migrate(&one.urls()[0], &data)?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    // The revision of a store that was moved is far above a new etcd's.
    let out = migrate(&data, &two.urls()[0])?;
    let why = String::from_utf8_lossy(&out.stderr);
    ensure!(why.contains("etcdutl snapshot restore --bump-revision"), "{why}");
    let out = migrate(&one.urls()[0], &data)?;
    let why = String::from_utf8_lossy(&out.stderr);
    ensure!(why.contains("holds a store: move into a fresh data directory"), "{why}");
    let served = Server::start_in(dir, "kube-apiserver", &[])?;
    ensure!(read(&served)? == before && before.starts_with(r#"{"a":"b"}"#), "{before}");
    let why = served.kubectl(&port("two")).map_or_else(|e| e.to_string(), |_| "it was created".to_owned());
    ensure!(why.contains("provided port is already allocated"), "{why}");
    Ok(())
}

/// The error is one sentence, and the exit status is not 0.
#[test]
fn an_etcd_that_cannot_be_used() -> Result<()> {
    let check = |urls: &str, expected: &str| -> Result<()> {
        let dir = tempfile::tempdir()?;
        let out = server(dir.path(), Some(urls))?.output()?;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        ensure!(!out.status.success() && said.trim_end().ends_with(expected), "{said}");
        Ok(())
    };
    check(
        "localhost:2379",
        r#""localhost:2379" is not a URL of etcd: want http://HOST:PORT or https://HOST:PORT"#,
    )?;
    check("https://localhost:2379", "name the authority's file with --etcd-cafile")
}
