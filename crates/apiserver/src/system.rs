//! What the API server keeps up itself: the `kubernetes` Service, where it leads, and the default
//! range of Service addresses.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use bytes::Bytes;
use client::events::{EventType, Recorder};
use client::{Call, Client, Resource, Transport, Verb};
use component::Shutdown;
use futures::StreamExt;
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};
use storage::{Batch, Scope, Servers, WatchOptions, WatchStart};

use crate::allocate::DEFAULT_RANGE;
use crate::health::Hook;
use crate::inner::Inner;
use crate::server::Server;

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
                "metadata": {"name": DEFAULT_RANGE},
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
            Ok(bytes) => client::decode::<Value>(&bytes)?,
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

/// What is to be done about the default ServiceCIDR.
#[derive(Debug, PartialEq, Eq)]
enum RangeStep {
    Nothing,
    /// A second family was configured.
    Grow,
    /// Nobody has said yet that it is ready.
    Ready,
    /// Its state is for people to look at.
    Warn {
        reason: String,
        message: String,
    },
}

/// Compares it with the configured ranges, as upstream's controller of it does.
fn default_range(object: &Value, configured: &[String]) -> RangeStep {
    let has = object["spec"]["cidrs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let has = has.collect::<Vec<_>>();
    if configured.len() == 2 && has == [configured[0].as_str()] {
        return RangeStep::Grow;
    }
    if object["metadata"].get("deletionTimestamp").is_some() {
        return RangeStep::Nothing;
    }
    if has.iter().ne(configured) {
        let message = format!(
            "The default ServiceCIDR [{}] does not match the controller flag configurations [{}]",
            has.join(" "),
            configured.join(" ")
        );
        return RangeStep::Warn { reason: "KubernetesDefaultServiceCIDRInconsistent".into(), message };
    }
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let Some(ready) = conditions.find(|c| c["type"] == "Ready") else { return RangeStep::Ready };
    let text = |field: &str| ready[field].as_str().unwrap_or_default();
    match text("status") {
        "True" => RangeStep::Nothing,
        "False" => RangeStep::Warn {
            reason: text("reason").into(),
            message: format!("Configuration matches, but {}", text("message")),
        },
        _ => RangeStep::Ready,
    }
}

/// Keeps the default ServiceCIDR as it is configured, and says that it is ready or what is wrong with it.
async fn settle_range(
    inner: &Inner,
    transport: &dyn Transport,
    wanted: &Wanted,
    recorder: &Recorder,
) -> Result<(), Status> {
    let bytes = transport.call(wanted.call(Verb::Get, "", None)).await?;
    let mut object: Value = client::decode(&bytes)?;
    let configured = inner.allocators.cidrs().iter().map(super::allocate::Cidr::text).collect::<Vec<_>>();
    let subresource = match default_range(&object, &configured) {
        RangeStep::Nothing => return Ok(()),
        RangeStep::Grow => {
            object["spec"]["cidrs"] = json!(configured);
            ""
        }
        RangeStep::Ready => {
            let conditions = json!([{
                "type": "Ready",
                "status": "True",
                "reason": "",
                "message": "Kubernetes default Service CIDR is ready",
                "lastTransitionTime": inner.now(),
            }]);
            object["status"]["conditions"] = conditions;
            "status"
        }
        RangeStep::Warn { reason, message } => {
            let about = ObjectReference {
                api_version: Some("networking.k8s.io/v1".into()),
                kind: Some("ServiceCIDR".into()),
                name: Some(DEFAULT_RANGE.into()),
                uid: object["metadata"]["uid"].as_str().map(str::to_owned),
                ..ObjectReference::default()
            };
            recorder.event_about(about, EventType::Warning, &reason, message);
            return Ok(());
        }
    };
    match transport.call(wanted.call(Verb::Update, subresource, Some(&object))).await {
        Err(e) if !e.is_conflict() => Err(e),
        // Another server was faster.
        _ => Ok(()),
    }
}

impl Server {
    /// Repairs what is known of node ports and addresses in use, now and again. Makes the `kubernetes` Service,
    /// its Endpoints and EndpointSlice and the default ServiceCIDR, and makes them again whenever somebody changes them, until shutdown. The transport's
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
        self.0.allocators.keep_repaired(&self.0, recorders, shutdown).await;
        self.0.health.done(Hook::Repair);
        let servers = self.0.store.servers();
        // Others would list an address that leads nowhere.
        if let Some(servers) = servers.as_ref().filter(|_| !address.is_loopback()) {
            servers.announce(address, shutdown).await.map_err(Status::internal)?;
        }
        let all = wanted(&self.0, &addresses(address, servers.as_ref()));
        let ranges = recorder("kubernetes-service-cidr-controller");
        for one in &all {
            settle(&self.0, &*transport, one, &ranges).await?;
        }
        self.0.health.done(Hook::Services);
        self.0.health.done(Hook::Ranges);
        for one in all {
            let (inner, transport, stop) = (Arc::clone(&self.0), Arc::clone(&transport), shutdown.clone());
            let ranges = ranges.clone();
            let servers = servers.clone().filter(|_| matches!(one.plural, "endpoints" | "endpointslices"));
            shutdown.spawn(async move {
                stop.run(follow(&inner, &*transport, one, address, servers, &ranges)).await;
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
    ranges: &Recorder,
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
        let start = WatchStart::After(inner.store.current(id));
        let watcher = inner.store.watch(id, scope.clone(), start, WatchOptions::default());
        settle_until_done(inner, transport, wanted, ranges).await;
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
            settle_until_done(inner, transport, wanted, ranges).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Makes an object what it should be. `ranges` tells what is wrong with the default ServiceCIDR.
async fn settle(
    inner: &Inner,
    transport: &dyn Transport,
    wanted: &Wanted,
    ranges: &Recorder,
) -> Result<(), Status> {
    wanted.ensure(transport).await?;
    if wanted.plural == "servicecidrs" {
        settle_range(inner, transport, wanted, ranges).await
    } else {
        Ok(())
    }
}

async fn settle_until_done(inner: &Inner, transport: &dyn Transport, wanted: &Wanted, ranges: &Recorder) {
    while let Err(error) = settle(inner, transport, wanted, ranges).await {
        tracing::warn!(plural = wanted.plural, %error, "cannot keep up an object of the cluster");
        tokio::time::sleep(PAUSE.mul_f64(1.0 + fastrand::f64())).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_range() {
        let check = |object: Value, configured: &[&str], expected: RangeStep| {
            let configured = configured.iter().map(|c| (*c).to_owned()).collect::<Vec<_>>();
            assert_eq!(default_range(&object, &configured), expected, "{object}");
        };
        let (a, b) = ("10.0.0.0/16", "fd00::/112");
        let of = |cidrs: &[&str], ready: &str| {
            let condition = json!({"type": "Ready", "status": ready, "reason": "Why", "message": "because"});
            json!({"metadata": {}, "spec": {"cidrs": cidrs}, "status": {"conditions": [condition]}})
        };
        check(json!({"spec": {"cidrs": [a]}}), &[a], RangeStep::Ready);
        check(of(&[a], "Unknown"), &[a], RangeStep::Ready);
        check(of(&[a], "True"), &[a], RangeStep::Nothing);
        check(of(&[a], "True"), &[a, b], RangeStep::Grow);
        let not_ready =
            RangeStep::Warn { reason: "Why".into(), message: "Configuration matches, but because".into() };
        check(of(&[a], "False"), &[a], not_ready);
        let message = "The default ServiceCIDR [10.0.0.0/16 fd00::/112] does not match the controller flag \
                       configurations [10.0.0.0/16]";
        let other = |message: &str| RangeStep::Warn {
            reason: "KubernetesDefaultServiceCIDRInconsistent".into(),
            message: message.into(),
        };
        check(of(&[a, b], "True"), &[a], other(message));
        let mut going = of(&[b], "True");
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        check(going, &[a], RangeStep::Nothing);
    }
}
