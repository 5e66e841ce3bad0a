//! A driver of volumes for tests: each volume is a directory of the host, and every call can be made to fail or to hang.

mod controller;
mod node;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
pub use plugins::csi as pb;
use plugins::csi::controller_server::ControllerServer;
use plugins::csi::identity_server::{Identity, IdentityServer};
use plugins::csi::node_server::NodeServer;
pub use plugins::csi::node_service_capability::rpc::Type as Ability;
use plugins::registration::registration_server::RegistrationServer;
pub use tonic::Code;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::plugin::{Faults, Introduction, Serving};
use crate::{Cluster, Host};

/// The way in which a call goes wrong.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It answers with an error.
    Fails(Code, String),
    /// It never answers.
    Hangs,
    /// It does what it should, and answers with an error.
    Loses(Code, String),
}

/// A call as the driver got it.
#[derive(Debug, Clone, Default)]
pub struct Call {
    /// Its name: `NodePublishVolume`.
    pub name: String,
    /// The volume.
    pub volume: String,
    /// The path that the volume is to have, or to lose.
    pub path: PathBuf,
    /// Where the volume is staged.
    pub staged: PathBuf,
    /// The volume's attributes.
    pub context: BTreeMap<String, String>,
    /// Its attachment's metadata.
    pub publish_context: BTreeMap<String, String>,
    /// Secrets.
    pub secrets: BTreeMap<String, String>,
    /// The group of its files, if the driver is to give them to one.
    pub group: String,
    /// Options of its mount.
    pub options: Vec<String>,
    /// Whether it is only to be read.
    pub read_only: bool,
    /// The size that it is to have, in bytes.
    pub size: i64,
}

/// The driver's settings and what it knows.
#[derive(Debug, Default)]
struct State {
    abilities: BTreeSet<i32>,
    limit: i64,
    topology: BTreeMap<String, String>,
    calls: Vec<Call>,
    sizes: BTreeMap<String, i64>,
    /// Where volumes are published on the node.
    published: BTreeMap<String, BTreeSet<PathBuf>>,
    conditions: BTreeMap<String, (bool, String)>,
}

/// The part that all services share.
#[derive(Clone)]
struct Inner {
    name: String,
    /// The process whose mounts are the host's.
    pid: u32,
    data: PathBuf,
    endpoint: PathBuf,
    faults: Faults<Fault>,
    introduction: Introduction,
    state: Arc<Mutex<State>>,
}

/// A driver that runs in this process; its mounts are the host's.
pub struct Driver {
    inner: Inner,
    registration: PathBuf,
    serving: Option<Serving>,
}

impl Driver {
    /// Starts a driver on a cluster's node. It stages volumes, unless `without` says otherwise.
    pub fn start(cluster: &Cluster, name: &str, abilities: &[Ability]) -> Result<Self> {
        Self::with(cluster, name, abilities, 0, &[])
    }

    /// Starts a driver that says how many volumes the node takes, and where the node is.
    pub fn with(
        cluster: &Cluster,
        name: &str,
        abilities: &[Ability],
        limit: i64,
        topology: &[(&str, &str)],
    ) -> Result<Self> {
        let state = State {
            limit,
            topology: topology.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            ..State::default()
        };
        Self::begin(cluster.host(), &cluster.data_dir().join("kubelet"), name, abilities, state)
    }

    /// Starts a driver on a host, beside the kubelet whose root directory this is; it need not be there.
    pub fn on(host: &Host, root: &Path, name: &str, abilities: &[Ability]) -> Result<Self> {
        fs::create_dir_all(root.join("plugins_registry"))?;
        Self::begin(host, root, name, abilities, State::default())
    }

    fn begin(host: &Host, root: &Path, name: &str, abilities: &[Ability], mut state: State) -> Result<Self> {
        let (dir, data) = (root.join("plugins").join(name), host.path("volumes").join(name));
        fs::create_dir_all(&dir)?;
        fs::create_dir_all(&data)?;
        state.abilities = abilities.iter().map(|a| *a as i32).collect();
        let endpoint = dir.join("csi.sock");
        let inner = Inner {
            name: name.to_owned(),
            pid: host.pid(),
            data,
            faults: Faults::default(),
            introduction: Introduction::new("CSIPlugin", name, &endpoint, &["1.0.0"]),
            endpoint,
            state: Arc::new(Mutex::new(state)),
        };
        let registration = root.join("plugins_registry").join(format!("{name}-reg.sock"));
        let mut driver = Self { inner, registration, serving: None };
        driver.resume()?;
        Ok(driver)
    }

    /// Starts the driver again after [`Driver::stop`].
    pub fn resume(&mut self) -> Result<()> {
        let inner = self.inner.clone();
        let sockets = vec![self.inner.endpoint.clone(), self.registration.clone()];
        let serve = move |mut listeners: Vec<_>| async move {
            let (Some(registry), Some(services)) = (listeners.pop(), listeners.pop()) else { return };
            let registration = Server::builder()
                .add_service(RegistrationServer::new(inner.introduction.clone()))
                .serve_with_incoming(registry);
            let services = Server::builder()
                .add_service(IdentityServer::new(inner.clone()))
                .add_service(ControllerServer::new(inner.clone()))
                .add_service(NodeServer::new(inner))
                .serve_with_incoming(services);
            let _ = tokio::join!(registration, services);
        };
        self.serving = Some(Serving::start(sockets, serve)?);
        Ok(())
    }

    /// Ends the driver: its sockets go, and what it mounted stays.
    pub fn stop(&mut self) {
        drop(self.serving.take());
    }

    /// Lets calls of a name go wrong, or go well again.
    pub fn fault(&self, call: &str, fault: Option<Fault>) {
        self.inner.faults.set(call, fault);
    }

    /// Has the driver tell the condition of a volume from now on.
    pub fn condition(&self, volume: &str, abnormal: bool, message: &str) {
        self.inner.state().conditions.insert(volume.to_owned(), (abnormal, message.to_owned()));
    }

    /// The calls of a name that the driver got.
    pub fn calls(&self, name: &str) -> Vec<Call> {
        self.inner.state().calls.iter().filter(|c| c.name == name).cloned().collect()
    }

    /// The names of all calls that change something, in their order.
    pub fn changes(&self) -> Vec<String> {
        let state = self.inner.state();
        let all = state.calls.iter().filter(|c| !c.name.contains("Get"));
        all.map(|c| format!("{} {}", c.name, c.volume)).collect()
    }

    /// The answers that the kubelet gave to registrations: the errors, empty for none.
    pub fn registrations(&self) -> Vec<String> {
        self.inner.introduction.answers()
    }

    /// The directory of a volume's data.
    pub fn data(&self, volume: &str) -> PathBuf {
        self.inner.data.join(volume)
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call, and lets it go wrong. Answers the error that follows when all is done.
    async fn begin(&self, call: Call) -> Result<Option<Status>, Status> {
        let fault = self.faults.of(&call.name);
        self.state().calls.push(call);
        match fault {
            None => Ok(None),
            Some(Fault::Fails(code, message)) => Err(Status::new(code, message)),
            Some(Fault::Loses(code, message)) => Ok(Some(Status::new(code, message))),
            Some(Fault::Hangs) => std::future::pending().await,
        }
    }

    /// The directory of a volume's data.
    fn dir_of(&self, volume: &str) -> Result<PathBuf, Status> {
        needs(!volume.is_empty(), "the volume's id")?;
        let dir = self.data.join(volume);
        let is_name = volume != "." && volume != ".." && !volume.contains('/');
        if is_name && dir.is_dir() { Ok(dir) } else { Err(Status::not_found(format!("no volume {volume}"))) }
    }

    /// Runs a command among the host's mounts.
    fn run(&self, program: &str, args: &[&str]) -> Result<(), Status> {
        let mut command = std::process::Command::new("nsenter");
        // In the host's PID namespace, too: programs read its table of mounts by their own process id.
        command.args(["--all", "--target", &self.pid.to_string(), "--"]).arg(program).args(args);
        let out = command.output().map_err(|e| Status::internal(e.to_string()))?;
        if out.status.success() {
            return Ok(());
        }
        Err(Status::internal(String::from_utf8_lossy(&out.stderr).trim().to_owned()))
    }

    fn is_mounted(&self, path: &Path) -> bool {
        let path = path.display().to_string();
        self.run("mountpoint", &["-q", &path]).is_ok()
    }

    /// Mounts a directory at a path, unless it is there.
    fn mount(&self, from: &Path, at: &Path, read_only: bool) -> Result<(), Status> {
        fs::create_dir_all(at).map_err(|e| Status::internal(e.to_string()))?;
        if self.is_mounted(at) {
            return Ok(());
        }
        let (from, at) = (from.display().to_string(), at.display().to_string());
        self.run("mount", &["--bind", &from, &at])?;
        if read_only { self.run("mount", &["-o", "remount,bind,ro", &at]) } else { Ok(()) }
    }

    /// Unmounts a path and removes it.
    fn unmount(&self, at: &Path) -> Result<(), Status> {
        if self.is_mounted(at) {
            self.run("umount", &[&at.display().to_string()])?;
        }
        // Among the host's mounts: elsewhere the kernel would let a directory go that still has one.
        let _ = self.run("rmdir", &[&at.display().to_string()]);
        Ok(())
    }
}

/// Refuses a request without something that it must have.
fn needs(has: bool, what: &str) -> Result<(), Status> {
    if has { Ok(()) } else { Err(Status::invalid_argument(format!("{what} is missing"))) }
}

fn done<T>(lost: Option<Status>, answer: T) -> Result<Response<T>, Status> {
    lost.map_or_else(|| Ok(Response::new(answer)), Err)
}

#[tonic::async_trait]
impl Identity for Inner {
    async fn get_plugin_info(
        &self,
        _: Request<pb::GetPluginInfoRequest>,
    ) -> Result<Response<pb::GetPluginInfoResponse>, Status> {
        Ok(Response::new(pb::GetPluginInfoResponse {
            name: self.name.clone(),
            vendor_version: "1".into(),
            ..pb::GetPluginInfoResponse::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<pb::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<pb::GetPluginCapabilitiesResponse>, Status> {
        use pb::plugin_capability::{Service, Type, service};
        let service = Service { r#type: service::Type::ControllerService as i32 };
        let one = pb::PluginCapability { r#type: Some(Type::Service(service)) };
        Ok(Response::new(pb::GetPluginCapabilitiesResponse { capabilities: vec![one] }))
    }

    async fn probe(&self, _: Request<pb::ProbeRequest>) -> Result<Response<pb::ProbeResponse>, Status> {
        Ok(Response::new(pb::ProbeResponse { ready: Some(true) }))
    }
}
