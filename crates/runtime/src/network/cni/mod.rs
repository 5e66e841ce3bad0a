//! Networks by plugins of CNI, as its specification says: one configuration of a directory, whose plugins are executed
//! one after the other.

mod cache;
mod config;
mod exec;
mod result;

use std::net::IpAddr;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use self::cache::{Attachment, Cache};
use self::config::Config;
use self::exec::{Environment, execute};
use super::{Network, NetworkError, Pod, Work, bandwidth};

/// A Pod's interface.
const INTERFACE: &str = "eth0";

/// The directories of CNI.
#[derive(Debug, Clone)]
pub struct Directories {
    /// The configurations; the first that is good counts.
    pub conf: PathBuf,
    /// The plugins; the first directory that has one counts.
    pub bin: Vec<PathBuf>,
    /// The attachments that were made.
    pub cache: PathBuf,
}

/// A network by plugins.
#[derive(Debug)]
pub struct Cni {
    directories: Directories,
    cache: Cache,
}

fn failed(why: impl std::fmt::Display) -> NetworkError {
    NetworkError(why.to_string())
}

impl Cni {
    /// Takes the directories; they need not be there yet.
    pub fn new(directories: Directories) -> Self {
        let cache = Cache::new(&directories.cache);
        Self { directories, cache }
    }

    /// Whether a sandbox was attached by plugins.
    pub fn has(&self, id: &str) -> bool {
        matches!(self.cache.get(id), Ok(Some(_)) | Err(_))
    }

    async fn add(&self, pod: &Pod) -> Result<Vec<IpAddr>, NetworkError> {
        let config = Config::load(&self.directories.conf).map_err(failed)?;
        let netns = pod.netns.as_ref().ok_or_else(|| failed("the Pod has no network namespace"))?;
        let mut one = Attachment {
            container: pod.id.clone(),
            interface: INTERFACE.to_owned(),
            netns: netns.display().to_string(),
            arguments: pod.arguments(),
            config: config.to_value(),
            asked: asked(pod)?,
            result: Value::Null,
        };
        // Written first: an ADD that is cut off is undone by the DEL of it.
        self.cache.put(&one).map_err(failed)?;
        let mut previous = None;
        for plugin in &config.plugins {
            let input = config.input(plugin, &one.asked, previous.as_ref(), &[]);
            previous = Some(self.call("ADD", plugin, &one, &input).await.map_err(NetworkError)?);
        }
        one.result = previous.unwrap_or_default();
        self.cache.put(&one).map_err(failed)?;
        let addresses = result::addresses(&one.result, INTERFACE);
        if addresses.is_empty() {
            return Err(NetworkError(format!("network {:?} gave the Pod no address", config.name)));
        }
        Ok(addresses)
    }

    async fn call(
        &self,
        command: &'static str,
        plugin: &Map<String, Value>,
        of: &Attachment,
        input: &Value,
    ) -> Result<Value, String> {
        let kind = plugin.get("type").and_then(Value::as_str).unwrap_or_default();
        let environment = Environment {
            command,
            container: of.container.clone(),
            netns: of.netns.clone(),
            interface: of.interface.clone(),
            arguments: of.arguments.clone(),
        };
        execute(kind, &self.directories.bin, &environment, input).await
    }

    /// Takes out a sandbox that was attached; `netns` is its namespace if that is still there.
    async fn delete(&self, id: &str, netns: Option<String>) -> Result<(), NetworkError> {
        let Some(mut one) = self.cache.get(id).map_err(failed)? else { return Ok(()) };
        one.netns = netns.unwrap_or_default();
        let config = Config::of_value(&one.config).map_err(NetworkError)?;
        let known = Some(&one.result).filter(|result| !result.is_null() && config.is_at_least("0.4.0"));
        for plugin in config.plugins.iter().rev() {
            let input = config.input(plugin, &one.asked, known, &[]);
            self.call("DEL", plugin, &one, &input).await.map_err(NetworkError)?;
        }
        self.cache.remove(id).map_err(failed)
    }

    async fn garbage(&self, present: &[String]) -> Result<(), NetworkError> {
        let mut done = Ok(());
        for id in self.cache.containers() {
            if !present.contains(&id) {
                done = done.and(self.delete(&id, None).await);
            }
        }
        let Ok(config) = Config::load(&self.directories.conf) else { return done };
        if config.is_at_least("1.1.0") {
            let valid: Vec<Value> =
                present.iter().map(|id| json!({ "containerID": id, "ifname": INTERFACE })).collect();
            // The second name is that of the specification's first text.
            let more =
                [("cni.dev/valid-attachments", valid.clone().into()), ("cni.dev/attachments", valid.into())];
            for plugin in &config.plugins {
                let input = config.input(plugin, &Map::new(), None, &more);
                let called = self.call("GC", plugin, &nobody(), &input).await;
                done = done.and(called.map(|_| ()).map_err(NetworkError));
            }
        }
        done
    }

    async fn state(&self) -> Result<(), String> {
        let config = Config::load(&self.directories.conf).map_err(|error| error.to_string())?;
        if config.is_at_least("1.1.0") {
            for plugin in &config.plugins {
                let input = config.input(plugin, &Map::new(), None, &[]);
                self.call("STATUS", plugin, &nobody(), &input).await?;
            }
        }
        Ok(())
    }
}

/// The attachment of a call that is about none.
fn nobody() -> Attachment {
    Attachment {
        container: String::new(),
        interface: String::new(),
        netns: String::new(),
        arguments: String::new(),
        config: Value::Null,
        asked: Map::new(),
        result: Value::Null,
    }
}

/// The wishes of a Pod, by the names of capabilities.
fn asked(pod: &Pod) -> Result<Map<String, Value>, NetworkError> {
    let mut all = Map::new();
    let ports = pod.port_mappings();
    if ports.as_array().is_some_and(|ports| !ports.is_empty()) {
        all.insert("portMappings".to_owned(), ports);
    }
    if let Some(limits) = bandwidth::of(&pod.annotations).map_err(failed)? {
        all.insert("bandwidth".to_owned(), serde_json::to_value(limits).map_err(failed)?);
    }
    let dns = &pod.dns;
    if !(dns.servers.is_empty() && dns.searches.is_empty() && dns.options.is_empty()) {
        let value = json!({ "servers": dns.servers, "searches": dns.searches, "options": dns.options });
        all.insert("dns".to_owned(), value);
    }
    let annotations: Map<String, Value> =
        pod.annotations.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
    all.insert("io.kubernetes.cri.pod-annotations".to_owned(), annotations.into());
    if !pod.cgroup_parent.is_empty() {
        all.insert("cgroupPath".to_owned(), pod.cgroup_parent.clone().into());
    }
    Ok(all)
}

impl Network for Cni {
    fn attach<'a>(&'a self, pod: &'a Pod) -> Work<'a, Result<Vec<IpAddr>, NetworkError>> {
        Box::pin(self.add(pod))
    }
    fn detach<'a>(&'a self, pod: &'a Pod) -> Work<'a, Result<(), NetworkError>> {
        let netns = pod.netns.as_ref().map(|path| path.display().to_string());
        Box::pin(self.delete(&pod.id, netns))
    }
    fn collect<'a>(&'a self, present: &'a [String]) -> Work<'a, Result<(), NetworkError>> {
        Box::pin(self.garbage(present))
    }
    fn status(&self) -> Work<'_, Result<(), String>> {
        Box::pin(self.state())
    }
}
