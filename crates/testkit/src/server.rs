//! Starts an API server alone, on loopback.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::http::Request;
use crate::{binary, eventually, free_port, tool};

/// A FerroKube process without a node, with a data directory and a port of its own. It ends when it is dropped.
pub struct Server {
    child: Child,
    dir: TempDir,
    form: &'static str,
    port: u16,
    flags: Vec<String>,
}

impl Server {
    /// Starts `ferrokube kube-apiserver` with further flags, and waits until it is ready.
    pub fn start(flags: &[&str]) -> Result<Self> {
        Self::start_as("kube-apiserver", flags)
    }

    /// Starts another form of the server: `server` has the controllers and the scheduler, too.
    pub fn start_as(form: &'static str, flags: &[&str]) -> Result<Self> {
        Self::start_in(tempfile::Builder::new().prefix("ferrokube-").tempdir()?, form, flags)
    }

    /// Starts `ferrokube kube-apiserver` with so many descriptors as its soft and its hard limit.
    pub fn start_with_descriptors(soft: usize, hard: usize) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("ferrokube-").tempdir()?;
        let (form, port) = ("kube-apiserver", free_port()?);
        let server = Self::command(form, port, dir.path(), &[]);
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--nofile={soft}:{hard}")).arg(server.get_program()).args(server.get_args());
        let child = limited.stdout(Stdio::null()).spawn().context("starting it")?;
        let mut server = Self { child, dir, form, port, flags: Vec::new() };
        server.ready()?;
        Ok(server)
    }

    /// Starts the server with a data directory, which may have content already.
    pub fn start_in(dir: TempDir, form: &'static str, flags: &[&str]) -> Result<Self> {
        let port = free_port()?;
        let flags = flags.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>();
        let child = Self::command(form, port, dir.path(), &flags).spawn().context("starting it")?;
        let mut server = Self { child, dir, form, port, flags };
        server.ready()?;
        Ok(server)
    }

    /// The command that starts the server.
    pub fn command(form: &str, port: u16, dir: &Path, flags: &[String]) -> Command {
        let port_flag = if form == "kube-apiserver" { "--secure-port" } else { "--port" };
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(binary())
            .args([form, "--bind-address=127.0.0.1"])
            .arg(format!("{port_flag}={port}"))
            .arg(format!("--data-dir={}", dir.join("data").display()))
            .arg(format!("--write-kubeconfig={}", dir.join("kubeconfig").display()))
            .args(flags)
            .stdout(Stdio::null());
        command
    }

    fn ready(&mut self) -> Result<()> {
        eventually("the API server", || {
            let ended = self.child.try_wait()?;
            ensure!(ended.is_none(), "it ended with {ended:?}");
            Ok(self.kubectl(&["get", "--raw", "/readyz"]).ok())
        })?;
        self.credentials()
    }

    /// Writes the files with which curl is the administrator.
    fn credentials(&self) -> Result<()> {
        let config: Value = serde_json::from_str(&self.kubectl(&["config", "view", "--raw", "-o", "json"])?)?;
        for (file, at) in [
            ("ca.pem", "/clusters/0/cluster/certificate-authority-data"),
            ("cert.pem", "/users/0/user/client-certificate-data"),
            ("key.pem", "/users/0/user/client-key-data"),
        ] {
            let data = config.pointer(at).and_then(Value::as_str).with_context(|| at.to_owned())?;
            fs::write(self.path(file), BASE64_STANDARD.decode(data)?)?;
        }
        Ok(())
    }

    /// Kills the server without a warning, and starts it again.
    pub fn restart(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.child = Self::command(self.form, self.port, self.dir.path(), &self.flags).spawn()?;
        self.ready()
    }

    /// Ends the server by a signal, and waits until it has ended.
    pub fn stop(&mut self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal)?;
        self.child.wait()?;
        Ok(())
    }

    /// The id of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The port on which the server listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A file in the server's directory: `kubeconfig`; `ca.pem`, `cert.pem` and `key.pem` of the administrator; `data`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A command of kubectl as the administrator, not run yet.
    pub fn kubectl_command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(tool("kubectl"));
        command.env("KUBECONFIG", self.path("kubeconfig")).env("HOME", self.dir.path()).args(args);
        command
    }

    /// Runs kubectl as the administrator; returns its standard output, or its standard error as the failure.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        let out = self.kubectl_command(args).output().context("running kubectl")?;
        ensure!(out.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&out.stderr).trim());
        Ok(String::from_utf8(out.stdout)?)
    }

    /// A request of the administrator.
    pub fn request(&self, method: &str, path: &str) -> Request {
        let mut curl = self.curl();
        curl.arg("--cert").arg(self.path("cert.pem")).arg("--key").arg(self.path("key.pem"));
        Request::new(curl, method, &self.url(path))
    }

    /// A request with a certificate and its key, in files.
    pub fn with_certificate(&self, method: &str, path: &str, certificate: &Path, key: &Path) -> Request {
        let mut curl = self.curl();
        curl.arg("--cert").arg(certificate).arg("--key").arg(key);
        Request::new(curl, method, &self.url(path))
    }

    /// A request without credentials.
    pub fn anonymous(&self, method: &str, path: &str) -> Request {
        Request::new(self.curl(), method, &self.url(path))
    }

    fn curl(&self) -> Command {
        let mut curl = Command::new("curl");
        // curl reads no settings of the machine's user.
        curl.arg("-q").arg("--cacert").arg(self.path("ca.pem"));
        curl
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.port)
    }

    /// A GET of the administrator.
    pub fn get(&self, path: &str) -> Request {
        self.request("GET", path)
    }

    /// Creates an object, which must succeed.
    pub fn create(&self, path: &str, object: &Value) -> Result<Value> {
        self.request("POST", path).json(object).send()?.expect(201)?.json()
    }

    /// A patch of the administrator.
    pub fn patch(&self, path: &str, kind: &str, patch: &Value) -> Request {
        let content_type = match kind {
            "apply" => "application/apply-patch+yaml".to_owned(),
            kind => format!("application/{kind}-patch+json"),
        };
        self.request("PATCH", path).body(&content_type, patch.to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
