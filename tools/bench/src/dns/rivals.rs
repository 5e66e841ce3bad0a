//! Other servers with the same names.

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::{Args, name_of, question};
use crate::server::Server;
use crate::target::{Op, Target};

/// The time within which a server knows all names.
const START_LIMIT: Duration = Duration::from_mins(2);

/// Requests under way at a time while the names are made.
const AT_ONCE: u32 = 32;

/// A server that runs until this value is dropped.
pub(super) struct Rival {
    pub(super) name: &'static str,
    pub(super) pid: u32,
    pub(super) address: SocketAddr,
    child: Child,
    /// The API server that it reads from.
    _server: Option<Server>,
    _dir: TempDir,
}

impl Drop for Rival {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Unbound, if it is there, with the names in its configuration.
pub(super) fn unbound(args: &Args) -> Result<Option<Rival>> {
    if !args.unbound.exists() {
        return Ok(None);
    }
    let dir = tempfile::tempdir()?;
    let port = free_port()?;
    let mut text = format!(
        "server:\n interface: 127.0.0.1\n port: {port}\n num-threads: 1\n do-daemonize: no\n username: \"\"\n \
         chroot: \"\"\n pidfile: \"\"\n use-syslog: no\n module-config: \"iterator\"\n directory: \"{}\"\n \
         local-zone: \"cluster.local.\" static\n",
        dir.path().display()
    );
    for n in 0..args.services {
        let address = Ipv4Addr::from(0x0a60_0000 + n);
        writeln!(text, " local-data: \"{}.ns.svc.cluster.local. 5 IN A {address}\"", name_of(n))?;
    }
    text += "remote-control:\n control-enable: no\n";
    let file = dir.path().join("unbound.conf");
    std::fs::write(&file, text)?;
    let mut command = Command::new(&args.unbound);
    command.args(["-d", "-c"]).arg(&file);
    start("unbound", command, port, args.services, None, dir).map(Some)
}

/// CoreDNS, if it is named, with the plugins of a cluster that answer its own names.
pub(super) fn coredns(args: &Args, root: &Path) -> Result<Option<Rival>> {
    let Some(program) = &args.coredns else { return Ok(None) };
    let bin = match &args.bin {
        Some(bin) => bin.canonicalize().with_context(|| format!("no binary at {}", bin.display()))?,
        None => crate::build(root)?,
    };
    let dir = tempfile::tempdir()?;
    let server = crate::block_on(api_server(&bin, dir.path(), args))?;
    let kubeconfig = dir.path().join("coredns.kubeconfig");
    server.write_kubeconfig(&kubeconfig)?;
    let port = free_port()?;
    let file = dir.path().join("Corefile");
    let corefile = format!(
        ".:{port} {{\n bind 127.0.0.1\n errors\n kubernetes cluster.local in-addr.arpa ip6.arpa {{\n  kubeconfig {}\n  \
         pods insecure\n  ttl 30\n }}\n cache 30 {{\n  disable success cluster.local\n  disable denial cluster.local\n \
         }}\n loadbalance\n}}\n",
        kubeconfig.display()
    );
    std::fs::write(&file, corefile)?;
    let mut command = Command::new(program);
    command.arg("-conf").arg(&file);
    start("CoreDNS", command, port, args.services, Some(server), dir).map(Some)
}

/// Starts an API server that has all Services with their endpoints.
async fn api_server(bin: &Path, dir: &Path, args: &Args) -> Result<Server> {
    let server = Server::api_server(bin, dir, &["--service-cluster-ip-range=10.96.0.0/12"]).await?;
    let target = Arc::new(Target::connect(server.config()?, 2).await?);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}});
    target.call(Op::post("/api/v1/namespaces", namespace.to_string())).await?;
    let mut made = JoinSet::new();
    let (services, endpoints) = (args.services, args.endpoints);
    for worker in 0..AT_ONCE {
        let target = Arc::clone(&target);
        made.spawn(async move {
            for n in (worker..services).step_by(AT_ONCE as usize) {
                make(&target, n, endpoints).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = made.join_next().await {
        done??;
    }
    Ok(server)
}

/// Makes one Service with its endpoints.
async fn make(target: &Target, n: u32, endpoints: u32) -> Result<()> {
    let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name_of(n)},
        "spec": {"ports": ports}});
    target.call(Op::post("/api/v1/namespaces/ns/services", service.to_string())).await?;
    let of: Vec<_> = (0..endpoints)
        .map(|i| json!({"addresses": [Ipv4Addr::from(0x0b00_0000 + n * endpoints + i)], "conditions": {"ready": true}}))
        .collect();
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": format!("{}-x7k2p", name_of(n)), "labels": {"kubernetes.io/service-name": name_of(n)}},
        "ports": ports, "endpoints": of});
    let path = "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices";
    target.call(Op::post(path, slice.to_string())).await?;
    Ok(())
}

/// Starts a server and waits until it knows the last name.
fn start(
    name: &'static str,
    mut command: Command,
    port: u16,
    services: u32,
    server: Option<Server>,
    dir: TempDir,
) -> Result<Rival> {
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("starting {name}"))?;
    let address = (Ipv4Addr::LOCALHOST, port).into();
    let mut rival = Rival { name, pid: child.id(), address, child, _server: server, _dir: dir };
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let began = Instant::now();
    let mut answer = [0; 512];
    loop {
        socket.send_to(&question(1, services - 1), address)?;
        // One answer, without an error.
        if socket.recv(&mut answer).is_ok_and(|n| n > 12 && answer[3].trailing_zeros() >= 4 && answer[7] == 1)
        {
            return Ok(rival);
        }
        if let Some(status) = rival.child.try_wait()? {
            bail!("{name} ended with {status}");
        }
        ensure!(began.elapsed() < START_LIMIT, "{name} does not know all names");
    }
}

fn free_port() -> Result<u16> {
    Ok(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
