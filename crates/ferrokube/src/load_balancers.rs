//! Load balancers: this node's part, which announces the addresses of Services, with the account under which it works.

use std::time::Duration;

use api::Status;
use balancer::NAMESPACE;
use client::{Backoff, Client};
use component::Shutdown;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde_json::{Value, json};

use crate::cli;
use crate::control_plane::ControlPlane;
use crate::introduce::create;
use crate::joining::BALANCER_USER;
use crate::seat::Seat;

/// The name of the roles.
const ROLE: &str = "system:ferrokube-balancer";

/// Whether nodes announce addresses: those of a pool, unless somebody else does.
pub(crate) fn are_announced(flags: &cli::Server) -> bool {
    !flags.load_balancer_pool.is_empty() && !flags.disable_load_balancer
}

/// Starts this node's part, once the API server has its account.
pub(crate) fn start(seat: &Seat<'_>) {
    let (admin, client) = (seat.admin.clone(), (seat.clients)("balancer").of(BALANCER_USER));
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
        match account(admin).await {
            Ok(()) => return true,
            Err(status) => tracing::debug!(%status, "the account of load balancers"),
        }
        if shutdown.run(tokio::time::sleep(backoff.delay())).await.is_none() {
            return false;
        }
    }
}

/// Makes the account that announces load balancers, with its rights and the namespace of its Leases.
pub(crate) async fn account(admin: &Client) -> Result<(), Status> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let subject = json!([{"apiGroup": RBAC, "kind": "User", "name": BALANCER_USER}]);
    let reference = |kind: &str| json!({"apiGroup": RBAC, "kind": kind, "name": ROLE});
    let everywhere = json!([
        {"apiGroups": [""], "resources": ["services", "nodes"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]},
    ]);
    let verbs = json!(["get", "list", "watch", "create", "update", "delete"]);
    let leases = json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}]);
    let named = |namespace: &str, name: &str, rest: Value| {
        let labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
        let mut object = json!({"metadata": {"name": name, "namespace": namespace, "labels": labels}});
        if let (Some(object), Value::Object(rest)) = (object.as_object_mut(), rest) {
            object.extend(rest);
        }
        object
    };
    let bound = |kind: &str| json!({"roleRef": reference(kind), "subjects": subject});
    create::<Namespace>(admin, "", named("", NAMESPACE, json!({}))).await?;
    create::<ClusterRole>(admin, "", named("", ROLE, json!({"rules": everywhere}))).await?;
    create::<ClusterRoleBinding>(admin, "", named("", ROLE, bound("ClusterRole"))).await?;
    create::<Role>(admin, NAMESPACE, named(NAMESPACE, ROLE, json!({"rules": leases}))).await?;
    create::<RoleBinding>(admin, NAMESPACE, named(NAMESPACE, ROLE, bound("Role"))).await
}
