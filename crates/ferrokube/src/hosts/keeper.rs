//! The process of a node on this machine: started, heard, started again when it dies, and ended.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::bootstrap::{NAMESPACE, NODE_GROUP, Spec, Token, USAGES};
use client::{Backoff, Client};
use component::{Clock, Shutdown};
use k8s_openapi::api::core::v1::Secret;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::plan::Host;
use crate::say::say;
use crate::{node, private};

/// The time for which a node's token is good.
const TOKEN: Duration = Duration::from_mins(10);
/// The time that a node's process has to end, with its runtime.
const END: Duration = Duration::from_secs(30);
/// The pauses before a process is started again; one that ran for the longest begins anew.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// The things that the nodes' processes need of the control plane.
#[derive(Clone)]
pub(super) struct Cluster {
    /// The API server's address, as the nodes reach it.
    pub(super) server: String,
    /// The certificate of its authority, in PEM.
    pub(super) ca: String,
    pub(super) admin: Client,
    pub(super) clock: Clock,
}

/// A node whose process is kept.
pub(super) struct Keeper {
    pub(super) host: Host,
    /// The arguments of its process.
    pub(super) arguments: Vec<OsString>,
    pub(super) cluster: Cluster,
    /// Whether it was Ready.
    pub(super) ready: Arc<watch::Sender<bool>>,
}

impl Keeper {
    /// Keeps the process until `shutdown`, and ends it then.
    pub(super) async fn keep(self, shutdown: Shutdown) {
        let name = &self.host.name;
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        while !shutdown.stopped() {
            let began = self.cluster.clock.monotonic();
            let why = match self.run(&shutdown).await {
                Ok(None) => return,
                Ok(Some(status)) => format!("its process ended ({status})"),
                Err(error) => format!("{error:#}"),
            };
            if self.cluster.clock.monotonic() - began > AGAIN.1 {
                backoff.reset();
            }
            say(&format!("node {name}: {why}; it is started again, and its Pods go on"));
            if shutdown.run(sleep(backoff.delay())).await.is_none() {
                return;
            }
        }
    }

    /// Runs the process once; the way in which it ended, or none if it was ended.
    async fn run(&self, shutdown: &Shutdown) -> Result<Option<ExitStatus>> {
        let Some(token) = shutdown.run(self.token()).await.transpose()? else { return Ok(None) };
        let mut child = self.spawn()?;
        // Its end tells the node that this process is gone; waiting for a child would close it.
        let _alive = child.stdin.take();
        let ended = {
            let ready = async {
                if shutdown.run(node::ready(&self.cluster.admin, &self.host.name, shutdown)).await.is_none() {
                    return;
                }
                self.ready.send_replace(true);
                self.forget(&token).await;
                std::future::pending::<()>().await;
            };
            tokio::select! {
                status = child.wait() => Some(status?),
                () = shutdown.wait() => None,
                () = ready => None,
            }
        };
        if ended.is_none() {
            self.end(&mut child).await?;
        }
        self.forget(&token).await;
        Ok(ended)
    }

    fn spawn(&self) -> Result<Child> {
        let program = std::env::current_exe().context("this program is gone")?;
        let without = without_proxy(&self.cluster.server, |name| std::env::var(name).ok());
        let mut child = Command::new(program)
            .args(&self.arguments)
            // A proxy of the environment is for images; it does not reach this machine's own networks.
            .envs(["NO_PROXY", "no_proxy"].map(|name| (name, &without)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A terminal's interrupt is for this process, which ends the nodes in order.
            .process_group(0)
            .spawn()
            .context("its process can't be started")?;
        if let Some(out) = child.stdout.take() {
            tokio::spawn(tell(self.host.name.clone(), out));
        }
        if let Some(err) = child.stderr.take() {
            tokio::spawn(tell(self.host.name.clone(), err));
        }
        Ok(child)
    }

    async fn end(&self, child: &mut Child) -> Result<()> {
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            kill_process(pid, Signal::TERM)?;
        }
        if timeout(END, child.wait()).await.is_err() {
            say(&format!("node {} does not end in {} s and is killed", self.host.name, END.as_secs()));
            child.kill().await?;
        }
        Ok(())
    }

    /// Makes a token, and the kubeconfig with which the node joins, should it have no certificate that is good.
    async fn token(&self) -> Result<Token> {
        let token = Token::generate().context("the system gives no random numbers")?;
        let expires = self.cluster.clock.now() + TOKEN;
        let spec = Spec {
            token,
            description: format!("for the node {} of this machine", self.host.name),
            expires: Some(expires),
            usages: USAGES.map(str::to_owned).to_vec(),
            groups: vec![NODE_GROUP.to_owned()],
        };
        let made = self.cluster.admin.api::<Secret>(NAMESPACE).create(&spec.secret()).await;
        made.map_err(|e| anyhow!("its token can't be made: {}", e.message))?;
        let path = self.host.bootstrap();
        let _ = fs::remove_file(&path);
        let write = || private::create(&path)?.write_all(self.kubeconfig(&spec.token).as_bytes());
        write().with_context(|| format!("{} can't be written", path.display()))?;
        Ok(spec.token)
    }

    fn kubeconfig(&self, token: &Token) -> String {
        let Cluster { server, ca, .. } = &self.cluster;
        let cluster = json!({"server": server, "certificate-authority-data": STANDARD.encode(ca)});
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "join",
            "clusters": [{"name": "cluster", "cluster": cluster}],
            "users": [{"name": "token", "user": {"token": token.text()}}],
            "contexts": [{"name": "join", "context": {"cluster": "cluster", "user": "token"}}],
        })
        .to_string()
    }

    /// Removes the token, which nobody needs any more; if that fails, it expires.
    async fn forget(&self, token: &Token) {
        let _ = fs::remove_file(self.host.bootstrap());
        let deleted = self.cluster.admin.api::<Secret>(NAMESPACE).delete(&token.secret_name(), None).await;
        if let Err(status) = deleted
            && !status.is_not_found()
        {
            tracing::debug!(%status, "a node's token stays until it expires");
        }
    }
}

/// Passes on what a node's process says, with the node's name before each line.
async fn tell(name: String, from: impl AsyncRead + Unpin) {
    /// The longest line that is passed on whole.
    const LINE: usize = 16 << 10;
    let mut from = BufReader::with_capacity(LINE, from);
    let mut line = Vec::new();
    while let Ok(read) = from.fill_buf().await {
        if read.is_empty() {
            break;
        }
        let end = read.iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&read[..end.unwrap_or(read.len())]);
        let used = end.map_or(read.len(), |end| end + 1);
        from.consume(used);
        if end.is_some() || line.len() >= LINE {
            say(&format!("{name}: {}", String::from_utf8_lossy(&line)));
            line.clear();
        }
    }
    if !line.is_empty() {
        say(&format!("{name}: {}", String::from_utf8_lossy(&line)));
    }
}

/// The value of `NO_PROXY` with which a node reaches this server, and everything that the environment exempts, directly.
fn without_proxy(server: &str, variable: impl Fn(&str) -> Option<String>) -> String {
    let given =
        ["NO_PROXY", "no_proxy"].into_iter().find_map(|name| variable(name).filter(|v| !v.is_empty()));
    let host = |uri: http::Uri| Some(uri.host()?.trim_matches(['[', ']']).to_owned());
    given.into_iter().chain(server.parse().ok().and_then(host)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_reached_without_a_proxy() {
        let check = |server: &str, given: &[(&str, &str)], expected: &str| {
            let variable = |name: &str| given.iter().find(|g| g.0 == name).map(|g| g.1.to_owned());
            assert_eq!(without_proxy(server, variable), expected, "{server} {given:?}");
        };
        check("https://10.242.0.1:6443", &[], "10.242.0.1");
        check("https://[fd00::1]:6443", &[("NO_PROXY", "")], "fd00::1");
        check("https://10.242.0.1:6443", &[("NO_PROXY", ".in,10.0.0.0/8")], ".in,10.0.0.0/8,10.242.0.1");
        check("https://10.242.0.1:6443", &[("NO_PROXY", ""), ("no_proxy", "a")], "a,10.242.0.1");
    }
}
