//! Network policies on this node: the account that reads them, and the enforcer between the pod network and the API.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{Backoff, Client, Key};
use component::Registry;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use network::{Guard, Joined};
use policy::{Attached, Config, Gate, Owner};
use serde_json::{Value, json};
use serving::plain::{Handler, metrics_of, not_found, serve};

use crate::control_plane::ControlPlane;
use crate::data_dir::DataDir;
use crate::introduce::create;
use crate::joining::POLICY_USER;
use crate::seat::Seat;

/// The port of `/metrics`, kube-network-policies'.
const METRICS_PORT: u16 = 9080;
/// The name of the role.
const ROLE: &str = "system:ferrokube-network-policy";

/// The table of a cluster's network policies.
pub(crate) fn table(id: &str) -> String {
    format!("ferrokube-{id}-policies")
}

/// The gate of policies, as the pod network asks it.
#[derive(Debug)]
struct Door(Gate);

fn attached(one: Joined) -> Attached {
    Attached {
        container: one.id.into(),
        pod: Owner { key: Key::new(one.pod.namespace, one.pod.name), uid: one.pod.uid.into() },
        addresses: one.addresses,
    }
}

impl Guard for Door {
    fn adopt(&self, all: Vec<Joined>) {
        self.0.adopt(all.into_iter().map(attached).collect());
    }
    fn admit(&self, one: Joined) -> Result<(), String> {
        self.0.admit(attached(one)).map_err(|error| error.to_string())
    }
    fn release(&self, id: &str) {
        self.0.release(id);
    }
}

/// Starts the enforcer of this node's pod network, and returns the guard that the network is to ask. Without a packet
/// filter no Pod can start: nobody would notice that policies do not hold.
pub(crate) fn start(registry: Registry, seat: &Seat<'_>) -> Arc<dyn Guard> {
    let gate = Gate::default();
    let config =
        Config { table: table(&seat.dir.id()), node: seat.name.clone(), gate: gate.clone(), registry };
    let (admin, client) = (seat.admin.clone(), (seat.clients)("network-policy").of(POLICY_USER));
    let shutdown = seat.shutdown.clone();
    seat.shutdown.spawn(async move {
        if let Some(admin) = admin
            && shutdown.run(introduce(&admin)).await.is_none()
        {
            return;
        }
        if let Err(error) = policy::run(config, &client, &shutdown).await {
            let error = anyhow::Error::from(error);
            tracing::error!(
                "no Pod can start: {error:#}; --disable-network-policy runs Pods without network policies"
            );
        }
    });
    Arc::new(Door(gate))
}

/// Serves the metrics of policies where no Service proxy of ours does, on this machine's loopback.
pub(crate) fn serve_metrics(registry: Registry, seat: &Seat<'_>) {
    let handler: Arc<Handler> = Arc::new(move |head, _| {
        Some(match head.uri.path() {
            "/metrics" => metrics_of(&registry),
            _ => not_found(),
        })
    });
    let stop = seat.shutdown.clone();
    seat.shutdown.spawn(async move {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, METRICS_PORT));
        if let Err(error) = serve(handler, address, &stop).await {
            tracing::warn!(%address, %error, "the metrics of network policies have no page");
        }
    });
}

/// Makes the account for the nodes of a control plane that has no node itself.
pub(crate) fn announce(plane: &ControlPlane) {
    let (admin, shutdown) = (plane.admin(), plane.shutdown().clone());
    plane.shutdown().spawn(async move {
        let _ = shutdown.run(introduce(&admin)).await;
    });
}

/// Removes what an enforcer left, so that no policy of then holds.
pub(crate) fn clear(dir: &DataDir) {
    if let Err(error) = policy::remove(table(&dir.id())) {
        tracing::debug!(%error, "the rules of network policies");
    }
}

/// Makes the account with its rights unless they are there.
async fn introduce(admin: &Client) {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
    while let Err(status) = account(admin).await {
        tracing::debug!(%status, "the account of network policies");
        tokio::time::sleep(backoff.delay()).await;
    }
}

/// Makes the account that reads network policies, with its rights.
pub(crate) async fn account(admin: &Client) -> Result<(), Status> {
    create::<ClusterRole>(admin, "", role()).await?;
    create::<ClusterRoleBinding>(admin, "", binding()).await
}

fn role() -> Value {
    json!({
        "metadata": {"name": ROLE, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
        "rules": [
            {"apiGroups": [""], "resources": ["namespaces", "pods"], "verbs": ["list", "watch"]},
            {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["list", "watch"]},
        ],
    })
}

fn binding() -> Value {
    json!({
        "metadata": {"name": ROLE, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": POLICY_USER}],
    })
}
