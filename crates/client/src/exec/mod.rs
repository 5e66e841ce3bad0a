//! Credential plugins: programs that give bearer tokens and client certificates (upstream: client-go's
//! `plugin/pkg/client/auth/exec`).
//!
//! A program is run when credentials are needed and there are none, or their end has come, or a server refused them; those
//! who come meanwhile wait for it.

pub(crate) mod counts;
mod document;
mod hint;
mod path;

use std::io;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use component::program::{self, Ended};
use http::HeaderValue;
use jiff::Timestamp;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use tokio::process::Command;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, timeout};
use x509_parser::prelude::{FromDer, X509Certificate};

use self::counts::{Present, Run, Validity};
use self::document::Answer;
use self::hint::Sometimes;
use crate::certificate::Certificate;
use crate::kubeconfig::Exec;

/// The variable in which a program finds its question.
const QUESTION: &str = "KUBERNETES_EXEC_INFO";
/// How long a program may take. DIFFERENCE: upstream waits for as long as it takes, and everybody who needs the
/// credentials with it.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long it may take if it asks who sits at the terminal.
const PATIENCE_WITH_PEOPLE: Duration = Duration::from_mins(10);

/// A program that gives credentials, with those that it gave last.
pub struct Plugin {
    exec: Exec,
    cluster: Option<Value>,
    certificate: Certificate,
    present: Present,
    hints: Sometimes,
    held: Arc<Mutex<Option<Held>>>,
    patience: [Duration; 2],
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Plugin({})", self.exec.command)
    }
}

/// The bearer token that a program gave, and which answer of its was it.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub(crate) bearer: Option<HeaderValue>,
    number: u64,
}

struct Held {
    given: Given,
    answer: Answer,
}

impl Plugin {
    /// Prepares it; `cluster` is what it is told of the cluster, if it wants to know.
    ///
    /// # Errors
    /// Nobody speaks its version.
    pub fn new(exec: &Exec, cluster: Option<Value>) -> Result<Self, String> {
        document::check_version(exec)?;
        let mut exec = exec.clone();
        exec.install_hint = hint::cleaned(&exec.install_hint);
        exec.command = path::clean(&exec.command);
        let cluster = cluster.filter(|_| exec.provide_cluster_info);
        Ok(Self {
            exec,
            cluster,
            certificate: Certificate::default(),
            present: Present::default(),
            hints: Sometimes::default(),
            held: Arc::default(),
            patience: [PATIENCE, PATIENCE_WITH_PEOPLE],
        })
    }

    /// The place of the client certificate, which is empty as long as the program gave none.
    pub(crate) fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Credentials that are good now; the program is run if there are none.
    pub(crate) async fn credentials(self: &Arc<Self>) -> Result<Given, String> {
        let held = Arc::clone(&self.held).lock_owned().await;
        let now = Timestamp::now();
        if let Some(held) = held.as_ref().filter(|h| h.answer.end.is_none_or(|end| now <= end)) {
            return Ok(held.given.clone());
        }
        self.renewed(held).await
    }

    /// Has the program run to its end, even if nobody waits any more: a caller may have less patience than it needs.
    async fn renewed(self: &Arc<Self>, mut held: OwnedMutexGuard<Option<Held>>) -> Result<Given, String> {
        let this = Arc::clone(self);
        let renewing = tokio::spawn(async move { this.renew(&mut held).await });
        renewing.await.map_err(|e| e.to_string())?
    }

    /// Has the program run anew since a server refused what it gave, unless that was done already.
    pub(crate) async fn refused(self: &Arc<Self>, given: &Given) {
        let held = Arc::clone(&self.held).lock_owned().await;
        if held.as_ref().is_some_and(|h| h.given.number == given.number)
            && let Err(error) = self.renewed(held).await
        {
            tracing::error!(program = self.exec.command, error, "refreshing credentials");
        }
    }

    async fn renew(&self, held: &mut Option<Held>) -> Result<Given, String> {
        let output = self.run().await?;
        let answer = document::answer(&output, &self.exec.api_version)?;
        let bearer = bearer(&answer.token)?;
        let old = held.as_ref().and_then(|h| h.answer.certificate.as_ref());
        if old != answer.certificate.as_ref() {
            let validity = if let Some((chain, key)) = &answer.certificate {
                let exchanged = self.exchange(chain.as_bytes(), key.as_bytes());
                Some(exchanged.map_err(|why| format!("failed parsing client key/certificate: {why}"))?)
            } else {
                self.certificate.clear();
                None
            };
            self.present.exchange(validity);
        }
        let number = held.as_ref().map_or(0, |h| h.given.number + 1);
        let given = Given { bearer, number };
        *held = Some(Held { given: given.clone(), answer });
        Ok(given)
    }

    /// Puts a certificate in its place; begin and end of it.
    fn exchange(&self, chain: &[u8], key: &[u8]) -> Result<Validity, String> {
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
        let Some(leaf) = chain.first() else {
            return Err("tls: failed to find any PEM data in certificate input".into());
        };
        let (_, leaf) = X509Certificate::from_der(leaf).map_err(|e| e.to_string())?;
        let time = |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp());
        let validity =
            time(leaf.validity.not_before).and_then(|begin| Ok((begin, time(leaf.validity.not_after)?)));
        let validity = validity.map_err(|e| e.to_string())?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| e.to_string())?;
        self.certificate.exchange(chain, key).map_err(|e| e.to_string())?;
        Ok(validity)
    }

    /// Runs the program; its output.
    async fn run(&self) -> Result<Vec<u8>, String> {
        let interactive = document::interactive(&self.exec.interactive_mode, io::stdin().is_terminal())?;
        let (run, output) = self.run_once(interactive).await;
        counts::ran(run);
        output
    }

    /// Runs it with the terminal, or without; the way in which it ended.
    async fn run_once(&self, interactive: bool) -> (Run, Result<Vec<u8>, String>) {
        let Exec { command, args, env, .. } = &self.exec;
        let question = document::question(&self.exec, self.cluster.as_ref(), interactive);
        let Some(program) = path::find(command) else { return (Run::NotFound, Err(self.not_found())) };
        let mut run = Command::new(program);
        run.args(args).envs(env.iter().map(|v| (&v.name, &v.value))).env(QUESTION, question);
        let patience = self.patience[usize::from(interactive)];
        let Ended { status, stdout, .. } = match timeout(patience, program::consult(&mut run, interactive))
            .await
        {
            Ok(Ok(ended)) => ended,
            Ok(Err(e)) => {
                let why = crate::material::errno(&e);
                return (Run::NotFound, Err(format!("exec: fork/exec {command}: {why}")));
            }
            Err(_) => {
                let within = shown(patience);
                return (Run::Lost, Err(format!("exec: executable {command} did not end within {within}")));
            }
        };
        if !status.success() {
            let code = status.code().unwrap_or(-1);
            let told = format!("exec: executable {command} failed with exit code {code}");
            return (Run::Failed(code), Err(told));
        }
        if stdout.len() >= program::MOST {
            let told = format!("exec: executable {command} wrote too much, {} bytes or more", program::MOST);
            return (Run::Done, Err(told));
        }
        (Run::Done, Ok(stdout))
    }

    fn not_found(&self) -> String {
        let mut told = format!("exec: executable {} not found", self.exec.command);
        if self.hints.is_due(Instant::now()) {
            told.push_str(hint::HELP);
            if !self.exec.install_hint.is_empty() {
                told.push_str("\n\n");
                told.push_str(&self.exec.install_hint);
            }
        }
        told
    }
}

fn shown(patience: Duration) -> String {
    let seconds = i64::try_from(patience.as_secs()).unwrap_or(i64::MAX);
    api::time::format_duration(jiff::SignedDuration::from_secs(seconds)).to_string()
}

fn bearer(token: &str) -> Result<Option<HeaderValue>, String> {
    if token.is_empty() {
        return Ok(None);
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| "net/http: invalid header field value for \"Authorization\"".to_owned())?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// Programs by what they are asked for, so that those who ask for the same have one.
#[derive(Default)]
pub struct Plugins(parking_lot::Mutex<Vec<Known>>);

struct Known {
    exec: Exec,
    cluster: Option<Value>,
    plugin: std::sync::Weak<Plugin>,
}

impl Plugins {
    /// The program of a configuration, as [`Plugin::new`] makes it.
    ///
    /// # Errors
    /// Nobody speaks its version.
    pub fn of(&self, exec: &Exec, cluster: Option<Value>) -> Result<Arc<Plugin>, String> {
        let cluster = cluster.filter(|_| exec.provide_cluster_info);
        let mut known = self.0.lock();
        known.retain(|k| k.plugin.strong_count() > 0);
        let same = known.iter().find(|k| k.exec == *exec && k.cluster == cluster);
        if let Some(plugin) = same.and_then(|k| k.plugin.upgrade()) {
            return Ok(plugin);
        }
        let plugin = Arc::new(Plugin::new(exec, cluster.clone())?);
        known.push(Known { exec: exec.clone(), cluster, plugin: Arc::downgrade(&plugin) });
        Ok(plugin)
    }
}

#[cfg(test)]
mod tests;
