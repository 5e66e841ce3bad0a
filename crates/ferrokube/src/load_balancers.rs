//! Load balancers: this node's part, which announces the addresses of Services, with the account under which it works.

use std::time::Duration;

use api::Status;
use balancer::{ACCOUNT, NAMESPACE};
use client::{Backoff, Call, Client, Resource, Verb};
use component::Shutdown;
use serde_json::{Value, json};

use crate::cli;
use crate::control_plane::ControlPlane;
use crate::joining::BALANCER_USER;
use crate::seat::Seat;

/// The name of the roles.
const ROLE: &str = "system:ferrokube-balancer";
/// The user that the account is.
pub(crate) fn user() -> String {
    format!("system:serviceaccount:kube-system:{ACCOUNT}")
}

/// Whether nodes announce addresses: those of a pool, unless somebody else does.
pub(crate) fn are_announced(flags: &cli::Server) -> bool {
    !flags.load_balancer_pool.is_empty() && !flags.disable_load_balancer
}

/// Starts this node's part, once the API server has its account.
pub(crate) fn start(seat: &Seat<'_>) {
    let (admin, client) = (seat.admin.clone(), (seat.clients)("balancer").of(&user()));
    let config = balancer::Config {
        node: seat.name.clone(),
        clock: seat.clock,
        timing: balancer::hold::Timing::default(),
    };
    let shutdown = seat.shutdown.clone();
    seat.shutdown.spawn(async move {
        let known = match admin {
            Some(admin) => introduce(&admin, &shutdown).await,
            None => true,
        };
        if known {
            balancer::run(config, client, &shutdown).await;
        }
    });
}

/// Makes the account for the nodes of a control plane that has no node itself.
pub(crate) fn announce(plane: &ControlPlane) {
    let (admin, shutdown) = (plane.admin(), plane.shutdown().clone());
    plane.shutdown().spawn(async move {
        introduce(&admin, &shutdown).await;
    });
}

/// Makes the account with its rights, and the namespace of its Leases, unless they are there; whether they are before
/// the shutdown.
async fn introduce(admin: &Client, shutdown: &Shutdown) -> bool {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
    loop {
        match introduce_once(admin).await {
            Ok(()) => return true,
            Err(status) => tracing::debug!(%status, "the account of load balancers"),
        }
        if shutdown.run(tokio::time::sleep(backoff.delay())).await.is_none() {
            return false;
        }
    }
}

async fn introduce_once(admin: &Client) -> Result<(), Status> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let subject = json!([
        {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "kube-system"},
        {"apiGroup": RBAC, "kind": "User", "name": BALANCER_USER},
    ]);
    let reference = |kind: &str| json!({"apiGroup": RBAC, "kind": kind, "name": ROLE});
    let everywhere = json!([
        {"apiGroups": [""], "resources": ["services", "nodes"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]},
    ]);
    let verbs = json!(["get", "list", "watch", "create", "update", "delete"]);
    let leases = json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}]);
    create(admin, "", "serviceaccounts", "kube-system", ACCOUNT, json!({})).await?;
    create(admin, "", "namespaces", "", NAMESPACE, json!({})).await?;
    create(admin, RBAC, "clusterroles", "", ROLE, json!({"rules": everywhere})).await?;
    let binding = json!({"roleRef": reference("ClusterRole"), "subjects": subject});
    create(admin, RBAC, "clusterrolebindings", "", ROLE, binding).await?;
    create(admin, RBAC, "roles", NAMESPACE, ROLE, json!({ "rules": leases })).await?;
    let binding = json!({"roleRef": reference("Role"), "subjects": subject});
    create(admin, RBAC, "rolebindings", NAMESPACE, ROLE, binding).await
}

/// Creates an object of a resource in its version v1; it may be there.
async fn create(
    admin: &Client,
    group: &str,
    plural: &str,
    namespace: &str,
    name: &str,
    mut object: Value,
) -> Result<(), Status> {
    object["metadata"] = json!({"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}});
    let call = Call {
        verb: Verb::Create,
        resource: Resource { group: group.into(), version: "v1".into(), plural: plural.into() },
        namespace: namespace.into(),
        name: "".into(),
        subresource: "".into(),
        query: vec![("fieldManager".into(), admin.field_manager().to_owned())],
        body: object.to_string().into(),
    };
    match admin.transport().call(call).await {
        Err(status) if !status.is_already_exists() => Err(status),
        _ => Ok(()),
    }
}
