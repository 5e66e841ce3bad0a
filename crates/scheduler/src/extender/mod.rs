//! Extenders: HTTP servers that have a say in decisions (upstream's `pkg/scheduler/extender.go`).
//!
//! A decision is a pure function, and cannot wait for an answer. So a turn that needs one ends with its [`Question`]; the
//! scheduler asks, notes the answer in the [`Talk`], and takes the same turn again, in which nothing has changed but that
//! this answer is known.

mod talk;
mod wire;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use client::{PostTls, Poster};
use k8s_openapi::api::core::v1::Container;

pub use talk::{Answer, Filtered, Interrupted, Question, Talk};

use crate::config::extenders::{Extender as Config, ExtenderTls};
use crate::pod::PodInfo;

/// How long an answer may take if the configuration does not say.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The plugin that stands for extenders among those that refuse nodes.
pub const NAME: &str = "Extender";
/// The best score that an extender gives a node.
pub const MAX_PRIORITY: i64 = 10;

/// An extender.
pub struct Extender {
    config: Config,
    managed: BTreeSet<String>,
    poster: Poster,
}

impl fmt::Debug for Extender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extender({})", self.config.url_prefix)
    }
}

/// The content of a file, or what stands in its place.
fn content(file: &str, data: &[u8]) -> Result<Vec<u8>, String> {
    if file.is_empty() || !data.is_empty() {
        return Ok(data.to_vec());
    }
    std::fs::read(file).map_err(|e| format!("open {file}: {e}"))
}

/// The settings of TLS (upstream's `makeTransport`).
///
/// DIFFERENCE: files are read once; upstream reads a client's certificate anew when its file changes.
fn tls(config: &Config) -> Result<PostTls, String> {
    let none = ExtenderTls::default();
    let said = config.tls_config.as_ref().unwrap_or(&none);
    let authority = !said.ca_file.is_empty() || !said.ca_data.0.is_empty();
    // As upstream has it: without an authority nobody is verified.
    let insecure = said.insecure || config.enable_https && !authority;
    if insecure && authority {
        return Err("specifying a root certificates file with the insecure flag is not allowed".to_owned());
    }
    Ok(PostTls {
        insecure,
        server_name: said.server_name.clone(),
        certificate: content(&said.cert_file, &said.cert_data.0)?,
        key: content(&said.key_file, &said.key_data.0)?,
        authorities: content(&said.ca_file, &said.ca_data.0)?,
    })
}

impl Extender {
    /// Prepares an extender. Nothing is asked yet.
    ///
    /// # Errors
    /// If its address, or the settings of TLS, cannot be used.
    pub fn new(config: &Config) -> Result<Self, String> {
        let said = api::time::parse_duration(&config.http_timeout).and_then(|d| Duration::try_from(d).ok());
        let timeout = said.filter(|t| !t.is_zero()).unwrap_or(TIMEOUT);
        let poster = Poster::new(&config.url_prefix, &tls(config)?, timeout).map_err(|e| e.to_string())?;
        let managed = config.managed_resources.iter().map(|r| r.name.clone()).collect();
        Ok(Self { config: config.clone(), managed, poster })
    }

    /// The resources that it alone looks at.
    pub fn hidden(&self) -> impl Iterator<Item = &str> {
        self.config.managed_resources.iter().filter(|r| r.ignored_by_scheduler).map(|r| r.name.as_str())
    }

    /// Whether it is asked about a Pod: one that wants a resource that it manages, if it manages some.
    pub fn concerns(&self, pod: &PodInfo) -> bool {
        let wants = |c: &Container| {
            let lists = c.resources.iter().flat_map(|r| [&r.requests, &r.limits]);
            lists.flatten().flat_map(|list| list.keys()).any(|name| self.managed.contains(name))
        };
        let spec = pod.spec();
        self.managed.is_empty()
            || spec.is_some_and(|s| s.containers.iter().chain(s.init_containers.iter().flatten()).any(wants))
    }

    /// Whether decisions go on without it if it does not answer.
    pub fn is_ignorable(&self) -> bool {
        self.config.ignorable
    }

    /// Whether it binds Pods.
    pub fn binds(&self) -> bool {
        !self.config.bind_verb.is_empty()
    }
}
