//! The cluster.

use std::sync::Arc;
use std::time::Duration;

use access::UserInfo;
use access::auth::Authorities;
use access::pki::{Pki, PkiConfig};
use access::security::Keys;
use anyhow::{Context, Result, bail};
use api::FeatureGates;
use apiserver::{Server, in_process};
use client::{Client, Clients, KubeObject, ListParams, Patch};
use component::{Clock, Health, Registry, Shutdown};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde_json::Value;
use storage::Store;
use tokio::time::Instant;

use crate::documents::Plain;
use crate::faults::Faults;
use crate::loads::Loads;

/// How often a condition is looked at, in simulated time.
const LOOK: Duration = Duration::from_millis(100);

/// A control plane; its nodes are a [`Fleet`](crate::Fleet).
pub struct Cluster {
    server: Server,
    clock: Clock,
    root_ca: String,
    faults: Faults,
    loads: Loads,
    shutdown: Shutdown,
}

/// The reports of running controllers on themselves.
#[derive(Clone, Default)]
pub struct Running {
    /// Their metrics.
    pub metrics: Registry,
    /// Their health checks.
    pub health: Health,
}

impl Cluster {
    /// An API server with the objects that every cluster has. Its time of day begins with 2026.
    ///
    /// # Errors
    /// Where the machine has no room for the keys, or the server does not take what it is made of.
    pub async fn start() -> Result<Self> {
        Self::start_with(|_| {}).await
    }

    /// The same with settings of the API server.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub async fn start_with(set: impl FnOnce(&mut apiserver::Config)) -> Result<Self> {
        let clock = Clock::from("2026-01-01T00:00:00Z".parse::<Timestamp>()?);
        let shutdown = Shutdown::new();
        let dir = tempfile::tempdir()?;
        let pki = Pki::ensure(
            dir.path(),
            &PkiConfig {
                hostname: "simulation".into(),
                addresses: Vec::new(),
                names: Vec::new(),
                service_address: None,
                cluster_domain: "cluster.local".into(),
                now: clock.now(),
            },
        )?;
        let keys = Keys {
            client_ca: Authorities::new(vec![pki.ca.certificate()])?,
            front_proxy_ca: None,
            signing_key_pem: pki.service_account_key_pem.clone(),
        };
        let mut config = apiserver::Config::new(dir.path());
        config.clock = clock;
        "simulation".clone_into(&mut config.serving.hostname);
        // A thread would work while the clock goes on.
        config.limits.threads = false;
        // Services of both families.
        config.services.cidrs.push("fd00:10:96::/112".to_owned());
        let loads = Loads::new(clock);
        config.pages = Some(Arc::new(loads.clone()));
        config.documents = Arc::new(Plain);
        set(&mut config);
        let server = in_process::start(config, keys, Store::inline(clock), &shutdown).await?;
        let cluster = Self {
            server,
            clock,
            root_ca: pki.ca.certificate_pem.clone(),
            faults: Faults::default(),
            loads,
            shutdown,
        };
        cluster.loads.read_through(cluster.admin());
        Ok(cluster)
    }

    /// Clients by user name, each with the groups that belong to the user.
    pub fn clients(&self) -> Clients {
        let (server, faults) = (self.server.clone(), self.faults.clone());
        Clients::new(move |user| Client::new(faults.on(server.transport(user_of(user), user), user), user))
    }

    /// The faults that requests meet, but for the administrator's.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The load on the cluster's Pods.
    pub fn loads(&self) -> &Loads {
        &self.loads
    }

    /// The administrator's client.
    pub fn admin(&self) -> Client {
        let groups = ["system:masters", "system:authenticated"].map(Into::into).to_vec();
        let user = UserInfo { name: "admin".into(), groups, ..UserInfo::default() };
        Client::new(self.server.transport(user, "simulation"), "simulation")
    }

    /// The clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The shutdown of what runs in the cluster.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Starts controllers, chosen as `--controllers` chooses them.
    ///
    /// # Errors
    /// Where one of them is not known.
    pub fn controllers(&self, chosen: &[&str]) -> Result<Running> {
        self.controllers_with(chosen, |_| {})
    }

    /// Starts controllers with settings of their own.
    ///
    /// # Errors
    /// Where one of them is not known, or the settings cannot be used.
    pub fn controllers_with(
        &self,
        chosen: &[&str],
        set: impl FnOnce(&mut controllers::Config),
    ) -> Result<Running> {
        self.controllers_until(&self.shutdown, chosen, set)
    }

    /// Starts controllers that end with a shutdown of their own.
    ///
    /// # Errors
    /// Where one of them is not known, or the settings cannot be used.
    pub fn controllers_until(
        &self,
        shutdown: &Shutdown,
        chosen: &[&str],
        set: impl FnOnce(&mut controllers::Config),
    ) -> Result<Running> {
        let mut config = controllers::Config {
            controllers: controllers::Choice::parse(chosen)?,
            ..controllers::Config::new(self.clock, self.root_ca.clone())
        };
        set(&mut config);
        let running = Running::default();
        controllers::run(&config, &self.clients(), &running.metrics, &running.health, shutdown)?;
        Ok(running)
    }

    /// Starts the scheduler.
    pub fn scheduler(&self) {
        self.scheduler_until(&self.shutdown);
    }

    /// Starts a scheduler that ends with a shutdown of its own.
    pub fn scheduler_until(&self, stop: &Shutdown) {
        let run = scheduler::run::run(
            FeatureGates::default(),
            self.clients(),
            self.clock,
            Registry::default(),
            stop.clone(),
        );
        stop.spawn(run);
    }

    /// Starts a scheduler with settings of its own. Gives its metrics.
    pub fn scheduler_with(&self, settings: scheduler::run::Settings) -> Registry {
        let (metrics, stop) = (Registry::default(), self.shutdown.clone());
        let run = scheduler::run::run_with(settings, self.clients(), self.clock, metrics.clone(), stop);
        self.shutdown.spawn(run);
        metrics
    }

    /// Makes an object, given as JSON, in the namespace that it names.
    ///
    /// # Errors
    /// The server's, or where it is no such object.
    pub async fn create<T: KubeObject>(&self, object: &Value) -> Result<T> {
        let typed = T::from_json(object.to_string().as_bytes())?;
        let namespace = typed.metadata().namespace.clone().unwrap_or_default();
        self.admin().api::<T>(&namespace).create(&typed).await.with_context(|| format!("{object}"))
    }

    /// Makes an object be as this JSON says, its status too, whether it is there or not.
    ///
    /// # Errors
    /// The server's, or where it is no such object.
    pub async fn put<T: KubeObject>(&self, object: &Value) -> Result<T> {
        let typed = T::from_json(object.to_string().as_bytes())?;
        let meta = typed.metadata();
        let (namespace, name) =
            (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        let api = self.admin().api::<T>(&namespace);
        let about = || format!("{object}");
        // A Pod's spec stays as it was made, with what admission added.
        let mut change = object.clone();
        if let (Some(fields), "Pod") = (change.as_object_mut(), T::KIND) {
            fields.remove("spec");
        }
        let mut written = match self.get::<T>(&namespace, &name).await? {
            None => api.create(&typed).await.with_context(about)?,
            Some(_) => api.patch(&name, &Patch::Merge(change)).await.with_context(about)?,
        };
        if let Some(status) = object.get("status") {
            // A list that is set is meant whole.
            let patch = Patch::Merge(serde_json::json!({ "status": status }));
            written = api.patch_status(&name, &patch).await.with_context(about)?;
        }
        Ok(written)
    }

    /// Removes an object at once.
    ///
    /// # Errors
    /// The server's.
    pub async fn take<T: KubeObject>(&self, namespace: &str, name: &str) -> Result<()> {
        let at_once = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        Ok(self.admin().api::<T>(namespace).delete(name, Some(&at_once)).await?)
    }

    /// The reasons of the Events so far.
    ///
    /// # Errors
    /// The server's.
    pub async fn reasons(&self) -> Result<Vec<String>> {
        let all = self.list::<Event>("").await?;
        Ok(all.into_iter().filter_map(|e| e.reason).collect())
    }

    /// An object, if there is one.
    ///
    /// # Errors
    /// The server's.
    pub async fn get<T: KubeObject>(&self, namespace: &str, name: &str) -> Result<Option<T>> {
        match self.admin().api::<T>(namespace).get(name).await {
            Ok(object) => Ok(Some(object)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// All objects of a namespace, "" for those of all.
    ///
    /// # Errors
    /// The server's.
    pub async fn list<T: KubeObject>(&self, namespace: &str) -> Result<Vec<T>> {
        Ok(self.admin().api::<T>(namespace).list(&ListParams::default()).await?.items)
    }

    /// Waits, at most for this long in simulated time, until all objects of a namespace are as `wanted` says; how long
    /// that took.
    ///
    /// # Errors
    /// The last of the objects when the time is up.
    pub async fn until<T: KubeObject>(
        &self,
        limit: Duration,
        namespace: &str,
        wanted: impl Fn(&[T]) -> bool,
    ) -> Result<Duration> {
        let start = Instant::now();
        loop {
            let all = self.list::<T>(namespace).await?;
            if wanted(&all) {
                return Ok(start.elapsed());
            }
            if start.elapsed() > limit {
                let last = all.last().map(|o| o.to_json()).transpose()?;
                let last = last.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
                bail!("not within {limit:?}: {} {}, the last is {last}", all.len(), T::URL_PATH_SEGMENT);
            }
            tokio::time::sleep(LOOK).await; // the pace of asking, in simulated time
        }
    }

    /// Ends everything in it.
    pub async fn stop(self) {
        self.shutdown.finish().await;
    }
}

/// A user with the groups that authentication gives such a user.
fn user_of(name: &str) -> UserInfo {
    let mut groups = vec!["system:authenticated".into()];
    let account = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    if let Some((namespace, _)) = account {
        groups.push("system:serviceaccounts".into());
        groups.push(format!("system:serviceaccounts:{namespace}").into());
    }
    if name.starts_with("system:node:") {
        groups.push("system:nodes".into());
    }
    UserInfo { name: name.into(), groups, ..UserInfo::default() }
}
