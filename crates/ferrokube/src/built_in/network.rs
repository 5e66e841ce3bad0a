//! The Pod network of the built-in runtime: the agent of this process, without a plugin that is executed; or plugins of
//! somebody else's.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use network::{Agent, Asked};
use runtime::network::{Bandwidth, Cni, Directories, Network, NetworkError, Pod, Work, bandwidth};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

/// A Pod's interface.
const INTERFACE: &str = "eth0";
/// The sentence before the network is there.
const NOT_YET: &str = "the node's Pod network has not begun yet";
/// How long a Pod waits for an agent that is not there yet.
const PATIENCE: Duration = Duration::from_secs(10);
/// The number of questions to the agent at a time.
const CALLS: usize = 16;

/// The directories in which a Pod network of somebody else's is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CniDirs {
    /// Configurations.
    pub(crate) conf: PathBuf,
    /// Plugins.
    pub(crate) bin: PathBuf,
}

/// Those who make the network.
struct Makers {
    /// The agent of this process; none if plugins do, whatever there is.
    agent: Option<Agent>,
    conf_dir: PathBuf,
    plugins: Cni,
}

impl Makers {
    /// The agent, unless the directory has a configuration of somebody else's; this process writes none.
    fn agent(&self) -> Option<&Agent> {
        let entries = std::fs::read_dir(&self.conf_dir).into_iter().flatten().flatten();
        let is_config = |path: PathBuf| {
            matches!(path.extension().and_then(|e| e.to_str()), Some("conf" | "conflist" | "json"))
        };
        let foreign = entries.map(|entry| entry.path()).any(is_config);
        self.agent.as_ref().filter(|_| !foreign)
    }
}

/// The network.
pub(crate) struct PodNetwork {
    /// The directory of what plugins did.
    cache: PathBuf,
    /// Nobody before the node has begun.
    by: watch::Sender<Option<Arc<Makers>>>,
    /// The places of those who ask the agent. It answers one after the other but for those that leave, so more threads
    /// would only wait.
    places: Semaphore,
}

impl std::fmt::Debug for PodNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodNetwork").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl PodNetwork {
    /// A network of which nothing is there yet. `cache` keeps what plugins did.
    pub(crate) fn new(cache: PathBuf) -> Self {
        Self { cache, by: watch::Sender::new(None), places: Semaphore::new(CALLS) }
    }

    /// Leaves the network to an agent, unless `dirs` has a configuration of somebody else's.
    pub(crate) fn by_agent(&self, agent: Agent, dirs: CniDirs) {
        self.made_by(Some(agent), dirs);
    }

    /// Leaves the network to plugins.
    pub(crate) fn by_plugins(&self, dirs: CniDirs) {
        self.made_by(None, dirs);
    }

    fn made_by(&self, agent: Option<Agent>, dirs: CniDirs) {
        let CniDirs { conf, bin } = dirs;
        let cache = self.cache.clone();
        let plugins = Cni::new(Directories { conf: conf.clone(), bin: vec![bin], cache });
        self.by.send_replace(Some(Arc::new(Makers { agent, conf_dir: conf, plugins })));
    }

    /// Those who make the network, once they are there.
    async fn makers(&self) -> Result<Arc<Makers>, NetworkError> {
        let mut by = self.by.subscribe();
        let known = tokio::time::timeout(PATIENCE, by.wait_for(Option::is_some)).await;
        let known = known.ok().and_then(Result::ok).and_then(|by| by.clone());
        known.ok_or_else(|| NetworkError(NOT_YET.to_owned()))
    }

    async fn add(&self, pod: &Pod) -> Result<Vec<IpAddr>, NetworkError> {
        let makers = self.makers().await?;
        let Some(agent) = makers.agent() else { return makers.plugins.attach(pod).await };
        let limits = bandwidth::of(&pod.annotations).map_err(|error| NetworkError(error.to_string()))?;
        let settings = json!({ "runtimeConfig": settings(pod, limits) });
        let result = self.ask(agent.clone(), "ADD", pod.clone(), settings).await?;
        Ok(addresses(&result))
    }

    async fn delete(&self, pod: &Pod) -> Result<(), NetworkError> {
        let makers = self.makers().await?;
        // Those who attached it take it out.
        if makers.plugins.has(&pod.id) {
            return makers.plugins.detach(pod).await;
        }
        match &makers.agent {
            Some(agent) => self.ask(agent.clone(), "DEL", pod.clone(), Value::Null).await.map(drop),
            None => Ok(()),
        }
    }

    async fn garbage(&self, present: &[String]) -> Result<(), NetworkError> {
        let makers = self.makers().await?;
        makers.plugins.collect(present).await?;
        let Some(agent) = &makers.agent else { return Ok(()) };
        let valid: Vec<Value> =
            present.iter().map(|id| json!({ "containerID": id, "ifname": INTERFACE })).collect();
        let settings = json!({ "cni.dev/valid-attachments": valid });
        self.ask(agent.clone(), "GC", Pod::default(), settings).await.map(drop)
    }

    /// Asks the agent, whose calls of the kernel block.
    async fn ask(
        &self,
        agent: Agent,
        command: &'static str,
        pod: Pod,
        settings: Value,
    ) -> Result<Value, NetworkError> {
        let _place = self.places.acquire().await;
        let asked = tokio::task::spawn_blocking(move || {
            let container = Asked {
                id: &pod.id,
                namespace: pod.netns.as_deref().unwrap_or(Path::new("")),
                interface: INTERFACE,
                arguments: &pod.arguments(),
            };
            agent.ask(command, &container, settings)
        });
        asked.await.map_err(|error| NetworkError(error.to_string()))?.map_err(NetworkError)
    }

    async fn state(&self) -> Result<(), String> {
        let by = self.by.borrow().clone();
        let Some(makers) = by else { return Err(NOT_YET.to_owned()) };
        match makers.agent() {
            Some(agent) => {
                let asked = self.ask(agent.clone(), "STATUS", Pod::default(), Value::Null).await;
                asked.map(drop).map_err(|error| error.0)
            }
            None => makers.plugins.status().await,
        }
    }
}

/// The wishes of a Pod, as a configuration of CNI has it.
fn settings(pod: &Pod, limits: Option<Bandwidth>) -> Value {
    let mut all = json!({ "portMappings": pod.port_mappings() });
    if let Some(limits) = limits {
        all["bandwidth"] = json!(limits);
    }
    all
}

/// The addresses of the agent's answer, in its order.
fn addresses(result: &Value) -> Vec<IpAddr> {
    let all = result["ips"].as_array().into_iter().flatten();
    all.filter_map(|ip| ip["address"].as_str()?.split('/').next()?.parse().ok()).collect()
}

impl Network for PodNetwork {
    fn attach<'a>(&'a self, pod: &'a Pod) -> Work<'a, Result<Vec<IpAddr>, NetworkError>> {
        Box::pin(self.add(pod))
    }
    fn detach<'a>(&'a self, pod: &'a Pod) -> Work<'a, Result<(), NetworkError>> {
        Box::pin(self.delete(pod))
    }
    fn collect<'a>(&'a self, present: &'a [String]) -> Work<'a, Result<(), NetworkError>> {
        Box::pin(self.garbage(present))
    }
    fn status(&self) -> Work<'_, Result<(), String>> {
        Box::pin(self.state())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn before_anybody_makes_it() {
        let dir = tempfile::tempdir().unwrap();
        let network = PodNetwork::new(dir.path().join("cache"));
        assert!(network.status().await.unwrap_err().contains("has not begun"));
        let pod = Pod { id: "a".into(), ..Pod::default() };
        assert!(network.attach(&pod).await.unwrap_err().to_string().contains("has not begun"));
        network.by_plugins(CniDirs { conf: dir.path().into(), bin: dir.path().into() });
        assert!(network.status().await.unwrap_err().contains("no network config found"));
        network.detach(&pod).await.unwrap();
    }

    #[test]
    fn answers_of_the_agent() {
        let result = json!({"ips": [{"address": "10.0.0.2/32"}, {"address": "fd00::2/128"}]});
        let text: Vec<String> = addresses(&result).iter().map(ToString::to_string).collect();
        assert_eq!(text, ["10.0.0.2", "fd00::2"]);
    }
}
