//! The Service `kubernetes` and where it leads: to this server, and to those beside it.

use std::net::IpAddr;
use std::sync::Arc;

use api::Status;
use serde_json::{Value, json};
use storage::Servers;

use super::env::Env;
use super::kept_object::{Changes, KeptObject, failed};

/// The facts of which the objects are made besides the servers' addresses.
#[derive(Debug, Clone, Copy)]
struct Facts {
    /// The port of the servers.
    port: u16,
    /// The first address of the Services' range.
    first: IpAddr,
    /// The port on which nodes lead to the Service; zero for none (`--kubernetes-service-node-port`).
    node_port: u16,
    /// Whether the Service's endpoints are kept (`--endpoint-reconciler-type`).
    endpoints: bool,
}

impl Facts {
    fn of(env: &Env) -> Self {
        Self {
            port: env.port,
            first: env.allocators.cidrs()[0].first(),
            node_port: env.node_port,
            endpoints: env.endpoints,
        }
    }
}

/// The objects for servers at these addresses.
fn wanted(Facts { port, first, node_port, endpoints }: Facts, addresses: &[IpAddr]) -> Vec<KeptObject> {
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
    let mut service_port = json!({"name": "https", "port": 443, "protocol": "TCP", "targetPort": port});
    if node_port > 0 {
        service_port["nodePort"] = node_port.into();
    }
    let mut all = vec![
        KeptObject {
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
                    "type": if node_port > 0 { "NodePort" } else { "ClusterIP" },
                    "clusterIP": first.to_string(),
                    "ports": [service_port],
                    "sessionAffinity": "None",
                },
            }),
            ours: &[],
        },
        KeptObject {
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
        KeptObject {
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
    if led.is_empty() || !endpoints {
        all.retain(|kept| kept.plural == "services");
    }
    all
}

/// Where the servers are: this one, and those that announced themselves beside it.
fn addresses(own: IpAddr, servers: Option<&Servers>) -> Vec<IpAddr> {
    let mut all = servers.map_or_else(Vec::new, Servers::addresses);
    all.push(own);
    all
}

/// Makes them, and keeps them up from then on.
pub(super) async fn run(env: &Env) -> Result<(), Status> {
    let facts = Facts::of(env);
    let servers = env.objects.store.servers().filter(|_| facts.endpoints);
    // Others would list an address that leads nowhere.
    if let Some(servers) = servers.as_ref().filter(|_| !env.advertised.is_loopback()) {
        servers.announce(env.advertised, &env.ending).await.map_err(Status::internal)?;
    }
    let all = wanted(facts, &addresses(env.advertised, servers.as_ref()));
    for kept in all {
        let changes = Changes::of(&env.objects, &kept);
        kept.ensure(&*env.transport).await?;
        keep(env, kept, changes, servers.clone());
    }
    Ok(())
}

/// Puts an object right at every change of it, and of the servers that it lists.
fn keep(env: &Env, mut kept: KeptObject, mut changes: Changes, servers: Option<Servers>) {
    let (objects, transport) = (Arc::clone(&env.objects), Arc::clone(&env.transport));
    let (advertised, stop) = (env.advertised, env.shutdown.clone());
    let facts = Facts::of(env);
    let mut servers = servers.filter(|_| kept.plural != "services");
    env.shutdown.spawn(async move {
        let keep = async {
            loop {
                let others_changed = async {
                    match &mut servers {
                        Some(servers) => servers.changed().await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = changes.next(&objects, &kept) => {}
                    () = others_changed => {
                        let now = wanted(facts, &addresses(advertised, servers.as_ref()));
                        if let Some(now) = now.into_iter().find(|now| now.plural == kept.plural) {
                            kept = now;
                        }
                    }
                }
                while let Err(error) = kept.ensure(&*transport).await {
                    failed(&kept, &error).await;
                }
            }
        };
        stop.run(keep).await;
    });
}
