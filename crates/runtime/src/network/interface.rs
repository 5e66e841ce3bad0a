//! A Pod network as the runtime uses it.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::Future;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;

use cri::runtime as pb;

/// A future of a network.
pub type Work<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A Pod that joins or leaves a network.
#[derive(Debug, Clone, Default)]
pub struct Pod {
    /// The sandbox's id.
    pub id: String,
    /// The Pod's namespace.
    pub namespace: String,
    /// The Pod's name.
    pub name: String,
    /// The Pod's uid.
    pub uid: String,
    /// The file of its network namespace; none if that is gone.
    pub netns: Option<PathBuf>,
    /// The ports of the node that lead to it.
    pub ports: Vec<pb::PortMapping>,
    /// Its annotations, of which some are for the network.
    pub annotations: HashMap<String, String>,
    /// Its name servers.
    pub dns: pb::DnsConfig,
    /// The parent of its cgroups.
    pub cgroup_parent: String,
}

impl Pod {
    /// `CNI_ARGS`, as runtimes give them.
    pub fn arguments(&self) -> String {
        let Self { id, namespace, name, uid, .. } = self;
        format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_INFRA_CONTAINER_ID={id};K8S_POD_UID={uid}"
        )
    }

    /// The port mappings as CNI has them: those that have a port of the node.
    pub fn port_mappings(&self) -> serde_json::Value {
        let all = self.ports.iter().filter(|port| port.host_port > 0);
        let one = |port: &pb::PortMapping| {
            serde_json::json!({
                "hostPort": port.host_port,
                "containerPort": port.container_port,
                "protocol": port.protocol().as_str_name().to_ascii_lowercase(),
                "hostIP": port.host_ip,
            })
        };
        all.map(one).collect()
    }
}

/// A Pod that cannot join or leave.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NetworkError(pub String);

/// The network of Pods.
pub trait Network: Debug + Send + Sync + 'static {
    /// Joins a Pod's namespace to the network; its addresses, the primary one first.
    fn attach<'a>(&'a self, pod: &'a Pod) -> Work<'a, Result<Vec<IpAddr>, NetworkError>>;
    /// Takes a Pod out, also one that only began to join, or whose namespace is gone. One that is not in is no error.
    fn detach<'a>(&'a self, pod: &'a Pod) -> Work<'a, Result<(), NetworkError>>;
    /// Takes out all but these sandboxes, which are all that there are.
    fn collect<'a>(&'a self, present: &'a [String]) -> Work<'a, Result<(), NetworkError>>;
    /// Whether Pods can join; the reason if not.
    fn status(&self) -> Work<'_, Result<(), String>>;
}

/// No network: a Pod with a namespace of its own has loopback alone.
#[derive(Debug, Clone, Copy)]
pub struct None;

impl Network for None {
    fn attach<'a>(&'a self, _: &'a Pod) -> Work<'a, Result<Vec<IpAddr>, NetworkError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    fn detach<'a>(&'a self, _: &'a Pod) -> Work<'a, Result<(), NetworkError>> {
        Box::pin(async { Ok(()) })
    }
    fn collect<'a>(&'a self, _: &'a [String]) -> Work<'a, Result<(), NetworkError>> {
        Box::pin(async { Ok(()) })
    }
    fn status(&self) -> Work<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}
