//! What the API server keeps up itself: the `kubernetes` Service, where it leads, and the default
//! range of Service addresses.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use bytes::Bytes;
use client::events::Recorder;
use client::{Call, Client, Resource, Transport, Verb};
use component::Shutdown;
use futures::StreamExt;
use serde_json::{Value, json};
use storage::{Batch, Scope, Servers, WatchOptions, WatchStart};

use crate::server::{Inner, Server};

/// How long to wait after a write failed.
const PAUSE: Duration = Duration::from_secs(2);
/// How often an object is read again that others changed meanwhile.
const TRIES: usize = 10;

/// An object that must be there, and how much of it is ours.
struct Wanted {
    group: &'static str,
    plural: &'static str,
    namespace: &'static str,
    object: Value,
    /// The parts that are put back when somebody changes them.
    ours: &'static [&'static str],
}

/// The objects for servers at these addresses.
fn wanted(inner: &Inner, addresses: &[IpAddr]) -> Vec<Wanted> {
    let port = inner.config.port;
    let first = inner.allocators.cidrs()[0].first();
    let cidrs: Vec<String> = inner.allocators.cidrs().iter().map(super::allocate::Cidr::text).collect();
    // Nobody could be led to a loopback address, and none is allowed there: such a machine has no network.
    let mut led: Vec<IpAddr> = addresses.iter().copied().filter(|a| !a.is_loopback()).collect();
    led.sort();
    led.dedup();
    let ipv6 = led.first().is_some_and(IpAddr::is_ipv6);
    let listed: Vec<Value> = led.iter().map(|a| json!({"ip": a.to_string()})).collect();
    let slice: Vec<Value> = led
        .iter()
        .filter(|a| a.is_ipv6() == ipv6)
        .map(|a| json!({"addresses": [a.to_string()], "conditions": {"ready": true}}))
        .collect();
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    let mut all = vec![
        Wanted {
            group: "networking.k8s.io",
            plural: "servicecidrs",
            namespace: "",
            object: json!({
                "apiVersion": "networking.k8s.io/v1",
                "kind": "ServiceCIDR",
                "metadata": {"name": "kubernetes"},
                "spec": {"cidrs": cidrs},
            }),
            ours: &[],
        },
        Wanted {
            group: "",
            plural: "services",
            namespace: "default",
            object: json!({
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {
                    "name": "kubernetes",
                    "namespace": "default",
                    "labels": {"component": "apiserver", "provider": "kubernetes"},
                },
                "spec": {
                    "type": "ClusterIP",
                    "clusterIP": first.to_string(),
                    "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
                    "sessionAffinity": "None",
                },
            }),
            ours: &[],
        },
        Wanted {
            group: "",
            plural: "endpoints",
            namespace: "default",
            object: json!({
                "apiVersion": "v1",
                "kind": "Endpoints",
                "metadata": {
                    "name": "kubernetes",
                    "namespace": "default",
                    "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
                },
                "subsets": [{"addresses": listed, "ports": ports}],
            }),
            ours: &["subsets"],
        },
        Wanted {
            group: "discovery.k8s.io",
            plural: "endpointslices",
            namespace: "default",
            object: json!({
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": "kubernetes",
                    "namespace": "default",
                    "labels": {"kubernetes.io/service-name": "kubernetes"},
                },
                "addressType": if ipv6 { "IPv6" } else { "IPv4" },
                "endpoints": slice,
                "ports": ports,
            }),
            ours: &["addressType", "endpoints", "ports"],
        },
    ];
    if led.is_empty() {
        all.retain(|w| !matches!(w.plural, "endpoints" | "endpointslices"));
    }
    all
}

impl Wanted {
    fn call(&self, verb: Verb, subresource: &str, body: Option<&Value>) -> Call {
        Call {
            verb,
            resource: Resource { group: self.group.into(), version: "v1".into(), plural: self.plural.into() },
            namespace: self.namespace.into(),
            name: if verb == Verb::Create { "".into() } else { "kubernetes".into() },
            subresource: subresource.into(),
            query: Vec::new(),
            body: body.map_or_else(Bytes::new, |b| b.to_string().into()),
        }
    }
    /// Makes the object, or puts back what is ours in it. Other servers do the same at the same time.
    async fn ensure(&self, transport: &dyn Transport) -> Result<(), Status> {
        for _ in 1..TRIES {
            match self.ensure_once(transport).await {
                Err(e) if e.is_conflict() => {}
                other => return other,
            }
        }
        self.ensure_once(transport).await
    }

    async fn ensure_once(&self, transport: &dyn Transport) -> Result<(), Status> {
        let current = match transport.call(self.call(Verb::Get, "", None)).await {
            Ok(bytes) => serde_json::from_slice::<Value>(&bytes).map_err(Status::internal)?,
            Err(e) if e.is_not_found() => {
                return match transport.call(self.call(Verb::Create, "", Some(&self.object))).await {
                    Err(e) if !e.is_already_exists() => Err(e),
                    _ => Ok(()),
                };
            }
            Err(e) => return Err(e),
        };
        let mut next = current.clone();
        for part in self.ours {
            next[*part] = self.object[*part].clone();
        }
        if next == current {
            return Ok(());
        }
        transport.call(self.call(Verb::Update, "", Some(&next))).await.map(|_| ())
    }
}

/// Says in the default ServiceCIDR that it is ready, unless somebody else does.
async fn cidr_ready(inner: &Inner, transport: &dyn Transport, wanted: &Wanted) -> Result<(), Status> {
    let bytes = transport.call(wanted.call(Verb::Get, "", None)).await?;
    let mut object: Value = serde_json::from_slice(&bytes).map_err(Status::internal)?;
    let ready =
        object["status"]["conditions"].as_array().is_some_and(|l| l.iter().any(|c| c["type"] == "Ready"));
    if ready {
        return Ok(());
    }
    object["status"] = json!({"conditions": [{
        "type": "Ready",
        "status": "True",
        "reason": "",
        "message": "Kubernetes default Service CIDR is ready",
        "lastTransitionTime": inner.now(),
    }]});
    match transport.call(wanted.call(Verb::Update, "status", Some(&object))).await {
        Err(e) if !e.is_conflict() => Err(e),
        _ => Ok(()),
    }
}

impl Server {
    /// Repairs what is known of node ports and addresses in use, now and again. Makes the `kubernetes` Service, its Endpoints and EndpointSlice and the default ServiceCIDR,
    /// and makes them again whenever somebody changes them, until shutdown. The transport's
    /// identity must be a superuser's, the namespace `default` there.
    pub async fn keep_up(
        &self,
        transport: Arc<dyn Transport>,
        address: IpAddr,
        shutdown: &Shutdown,
    ) -> Result<(), Status> {
        let recorder = |component| {
            let client = Client::new(Arc::clone(&transport), "kube-apiserver");
            Recorder::start(client, component, "", self.0.config.clock, shutdown)
        };
        let recorders =
            [recorder("portallocator-repair-controller"), recorder("ipallocator-repair-controller")];
        self.0.allocators.keep_repaired(&self.0, recorders, shutdown).await?;
        let servers = self.0.store.servers();
        // Others would list an address that leads nowhere.
        if let Some(servers) = servers.as_ref().filter(|_| !address.is_loopback()) {
            servers.announce(address, shutdown).await.map_err(Status::internal)?;
        }
        let all = wanted(&self.0, &addresses(address, servers.as_ref()));
        for one in &all {
            one.ensure(&*transport).await?;
        }
        cidr_ready(&self.0, &*transport, &all[0]).await?;
        for one in all {
            let (inner, transport, stop) = (Arc::clone(&self.0), Arc::clone(&transport), shutdown.clone());
            let servers = servers.clone().filter(|_| matches!(one.plural, "endpoints" | "endpointslices"));
            shutdown.spawn(async move {
                stop.run(follow(&inner, &*transport, one, address, servers)).await;
            });
        }
        Ok(())
    }
}

/// Where the servers are: this one, and those that announced themselves beside it.
fn addresses(own: IpAddr, servers: Option<&Servers>) -> Vec<IpAddr> {
    let mut all = servers.map_or_else(Vec::new, Servers::addresses);
    all.push(own);
    all
}

/// Ensures an object at every change of it, and of the servers that it lists.
async fn follow(
    inner: &Inner,
    transport: &dyn Transport,
    mut one: Wanted,
    address: IpAddr,
    mut servers: Option<Servers>,
) {
    let wanted_now = |servers: Option<&Servers>| wanted(inner, &addresses(address, servers));
    let changed = async |servers: &mut Option<Servers>| match servers {
        Some(servers) => servers.changed().await,
        None => std::future::pending().await,
    };
    let wanted = &mut one;
    let Some(id) = inner.reader.resource(wanted.group, wanted.plural) else { return };
    let scope = Scope { namespace: wanted.namespace.into(), name: "kubernetes".into(), field: None };
    loop {
        let start = WatchStart::After(inner.store.current());
        let watcher = inner.store.watch(id, scope.clone(), start, WatchOptions::default());
        ensure_until_done(transport, wanted).await;
        let Ok(mut watcher) = watcher else { continue };
        loop {
            tokio::select! {
                batch = watcher.next() => match batch {
                    Some(Ok(Batch::Events(_))) => {}
                    Some(Ok(_)) => continue,
                    Some(Err(_)) | None => break,
                },
                () = changed(&mut servers) => {
                    let mut now = wanted_now(servers.as_ref()).into_iter();
                    if let Some(now) = now.find(|w| w.plural == wanted.plural) {
                        *wanted = now;
                    }
                }
            }
            ensure_until_done(transport, wanted).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn ensure_until_done(transport: &dyn Transport, wanted: &Wanted) {
    while let Err(error) = wanted.ensure(transport).await {
        tracing::warn!(plural = wanted.plural, %error, "cannot keep up an object of the cluster");
        tokio::time::sleep(PAUSE.mul_f64(1.0 + fastrand::f64())).await;
    }
}
