//! Starts API servers alone, for one run.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use client::Config;

use super::target::{Op, Target};

/// The time that a server may take to be ready.
const START_LIMIT: Duration = Duration::from_mins(1);

/// A program in the background, which ends with this value, or with this process.
struct Program(Child);

impl Program {
    fn start(name: &str, dir: &Path, program: &Path, args: &[String]) -> Result<Self> {
        let log = File::create(dir.join(format!("{name}.log")))?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        Ok(Self(child))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A ready API server with all its processes.
pub(crate) struct Server {
    programs: Vec<Program>,
    kubeconfig: PathBuf,
    url: String,
    /// The seconds from its start to `/readyz`.
    pub(crate) start: f64,
}

impl Server {
    /// Starts `ferrokube kube-apiserver` with its data in `DIR/data`.
    pub(crate) async fn ferrokube(bin: &Path, dir: &Path) -> Result<Self> {
        Self::api_server(bin, dir, &[]).await
    }

    /// The same with more flags.
    pub(crate) async fn api_server(bin: &Path, dir: &Path, more: &[&str]) -> Result<Self> {
        let port = free_port()?;
        let kubeconfig = dir.join("admin.kubeconfig");
        let mut args = vec![
            "kube-apiserver".to_owned(),
            format!("--data-dir={}", dir.join("data").display()),
            format!("--write-kubeconfig={}", kubeconfig.display()),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
        ];
        args.extend(more.iter().map(|flag| (*flag).to_owned()));
        Self::ready("ferrokube", dir, bin, &args, Vec::new(), kubeconfig, port).await
    }

    /// Starts `ferrokube server`: API server, controllers and scheduler in one process.
    pub(crate) async fn control_plane(bin: &Path, dir: &Path) -> Result<Self> {
        let port = free_port()?;
        let kubeconfig = dir.join("admin.kubeconfig");
        let args = [
            "server".to_owned(),
            format!("--data-dir={}", dir.join("data").display()),
            format!("--write-kubeconfig={}", kubeconfig.display()),
            format!("--port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
        ];
        Self::ready("ferrokube", dir, bin, &args, Vec::new(), kubeconfig, port).await
    }

    /// Starts a program that belongs to the server; its process.
    pub(crate) fn beside(&mut self, name: &str, dir: &Path, program: &Path, args: &[String]) -> Result<u32> {
        let program = Program::start(name, dir, program, args)?;
        let pid = program.0.id();
        self.programs.push(program);
        Ok(pid)
    }

    /// Writes the administrator's kubeconfig with the address of this server.
    pub(crate) fn write_kubeconfig(&self, to: &Path) -> Result<()> {
        let text = std::fs::read_to_string(&self.kubeconfig)?;
        let old = Config::from_kubeconfig(&self.kubeconfig, None)?.server;
        std::fs::write(to, text.replace(&old, &self.url))?;
        Ok(())
    }

    /// Starts upstream's API server, with the keys and certificates that [`Server::ferrokube`] left in `DIR/data`, so
    /// that TLS costs both the same.
    pub(crate) async fn upstream(apiserver: &Path, etcd: &Path, dir: &Path) -> Result<Self> {
        let (clients, peers, port) = (free_port()?, free_port()?, free_port()?);
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let store = Program::start(
            "etcd",
            dir,
            etcd,
            &[
                format!("--data-dir={}", dir.join("etcd").display()),
                format!("--listen-client-urls={}", url(clients)),
                format!("--advertise-client-urls={}", url(clients)),
                format!("--listen-peer-urls={}", url(peers)),
                format!("--initial-advertise-peer-urls={}", url(peers)),
                format!("--initial-cluster=default={}", url(peers)),
                "--log-level=error".to_owned(),
            ],
        )?;
        let pki = |name: &str| dir.join("data/pki").join(name).display().to_string();
        let args = [
            format!("--etcd-servers={}", url(clients)),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--client-ca-file={}", pki("ca.crt")),
            format!("--tls-cert-file={}", pki("apiserver.crt")),
            format!("--tls-private-key-file={}", pki("apiserver.key")),
            // No token is used; these are keys in the forms that kube-apiserver reads.
            format!("--service-account-key-file={}", pki("apiserver.crt")),
            format!("--service-account-signing-key-file={}", pki("apiserver.key")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
        ];
        let kubeconfig = dir.join("admin.kubeconfig");
        Self::ready("kube-apiserver", dir, apiserver, &args, vec![store], kubeconfig, port).await
    }

    async fn ready(
        name: &str,
        dir: &Path,
        program: &Path,
        args: &[String],
        mut programs: Vec<Program>,
        kubeconfig: PathBuf,
        port: u16,
    ) -> Result<Self> {
        let started = Instant::now();
        programs.push(Program::start(name, dir, program, args)?);
        let url = format!("https://127.0.0.1:{port}");
        let mut server = Self { programs, kubeconfig, url, start: 0.0 };
        loop {
            let Err(error) = server.ask_ready().await else {
                server.start = started.elapsed().as_secs_f64();
                return Ok(server);
            };
            for p in &mut server.programs {
                if let Some(status) = p.0.try_wait()? {
                    let log = std::fs::read_to_string(dir.join(format!("{name}.log"))).unwrap_or_default();
                    bail!("{name} ended with {status}: {}", log.lines().last().unwrap_or_default());
                }
            }
            if started.elapsed() > START_LIMIT {
                return Err(error.context(format!("{name} is not ready")));
            }
            tokio::time::sleep(Duration::from_millis(10)).await; // the pace of asking
        }
    }

    async fn ask_ready(&self) -> Result<()> {
        Target::connect(self.config()?, 1).await?.call(Op::get("/readyz")).await.map(drop)
    }

    /// The configuration of a client.
    pub(crate) fn config(&self) -> Result<Config> {
        let mut config = Config::from_kubeconfig(&self.kubeconfig, None)?;
        config.server.clone_from(&self.url);
        Ok(config)
    }

    /// The ids of all its processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.programs.iter().map(|p| p.0.id()).collect()
    }
}

/// A port on which nothing listens.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
