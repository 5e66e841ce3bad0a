//! Work of the API server beside answering requests: upstream's post-start hooks. Each has a name, what it
//! runs, and a check of its own, which passes once that has run.
//!
//! Left out is what this server does not do, since a check of nothing would always pass: another certificate towards
//! aggregated servers without a new start (`aggregator-reload-proxy-client-cert`), and a connection of the server to
//! itself (`loopback-serving-certificate`).

mod aggregation;
mod authentication_info;
mod bootstrap;
mod default_service_cidr;
mod definitions;
mod env;
mod flow_schema_conditions;
mod identity_lease;
mod kept_object;
mod kubernetes_service;
mod legacy_tokens;
mod status;
mod system_map;

use std::sync::Arc;

use api::Status;
use futures::FutureExt;
use futures::future::{BoxFuture, try_join_all};

pub(crate) use bootstrap::flowcontrol::{
    FLOW_CONTROL, FLOW_SCHEMAS, PRIORITY_LEVELS, flow_schemas, priority_levels,
};
pub(crate) use env::{AuthenticationInfo, Env};
pub(crate) use flow_schema_conditions::changed;

use crate::flow;
use crate::health::REGISTERED;
use crate::rooms::Rooms;

/// The function of a hook; work that goes on afterwards runs in tasks.
type Run = for<'a> fn(&'a Env) -> BoxFuture<'a, Result<(), Status>>;

/// A hook by upstream's name.
struct Hook(&'static str, Run);

/// The hooks in the order in which they run: those of a line at once, each line after the one before it.
const STAGES: [&[Hook]; 6] = [
    // The state that admission, authorization and storage begin with was read before there was a server.
    &[
        Hook("start-apiserver-admission-initializer", |_| there()),
        Hook("generic-apiserver-start-informers", |_| there()),
        Hook("storage-readiness", |_| there()),
        Hook("start-apiextensions-informers", |_| there()),
        Hook("start-apiextensions-controllers", |env| definitions::run(env).boxed()),
        Hook("crd-informer-synced", |_| there()),
        Hook("start-system-namespaces-controller", |env| bootstrap::namespaces(&*env.transport).boxed()),
    ],
    &[
        Hook("rbac/bootstrap-roles", |env| bootstrap::roles(&*env.transport, &env.gates).boxed()),
        Hook("scheduling/bootstrap-system-priority-classes", |env| {
            bootstrap::priority_classes(&*env.transport).boxed()
        }),
        Hook("priority-and-fairness-config-producer", |env| make_flow_control(env).boxed()),
        Hook("start-cluster-authentication-info-controller", |env| authentication_info::run(env).boxed()),
        Hook("start-kube-apiserver-identity-lease-controller", |env| identity_lease::run(env).boxed()),
        Hook("start-kube-apiserver-identity-lease-garbage-collector", |env| {
            identity_lease::clean_up(env);
            there()
        }),
        Hook("start-legacy-token-tracking-controller", |env| {
            legacy_tokens::run(env);
            there()
        }),
        Hook("start-kube-aggregator-informers", |env| aggregation::run(env).boxed()),
        Hook("kube-apiserver-autoregistration", |env| aggregation::registration::run(env).boxed()),
    ],
    // These are parts of the task that follows APIServices, which runs.
    &[
        Hook("apiservice-status-local-available-controller", |_| there()),
        Hook("apiservice-status-remote-available-controller", |_| there()),
        Hook("apiservice-registration-controller", |_| there()),
        Hook("apiservice-discovery-controller", |_| there()),
        Hook(REGISTERED, |_| there()),
        Hook("apiservice-openapi-controller", |_| there()),
        Hook("apiservice-openapiv3-controller", |_| there()),
        // It reads what the producer has made.
        Hook("priority-and-fairness-config-consumer", |env| {
            follow_flow_control(env);
            there()
        }),
        // Requests are counted when they come.
        Hook("priority-and-fairness-filter", |_| there()),
        Hook("storage-object-count-tracker-hook", |env| {
            count_objects(env);
            there()
        }),
    ],
    &[Hook("start-service-ip-repair-controllers", |env| repair_services(env).boxed())],
    &[Hook("start-kubernetes-service-cidr-controller", |env| default_service_cidr::run(env).boxed())],
    &[Hook("bootstrap-controller", |env| kubernetes_service::run(env).boxed())],
];

/// The hooks' names, in the order in which upstream's checks stand.
pub(crate) const NAMES: [&str; 29] = [
    "start-apiserver-admission-initializer",
    "generic-apiserver-start-informers",
    "priority-and-fairness-config-consumer",
    "priority-and-fairness-filter",
    "storage-object-count-tracker-hook",
    "start-apiextensions-informers",
    "start-apiextensions-controllers",
    "crd-informer-synced",
    "start-system-namespaces-controller",
    "start-cluster-authentication-info-controller",
    "start-kube-apiserver-identity-lease-controller",
    "start-kube-apiserver-identity-lease-garbage-collector",
    "storage-readiness",
    "start-legacy-token-tracking-controller",
    "start-service-ip-repair-controllers",
    "rbac/bootstrap-roles",
    "scheduling/bootstrap-system-priority-classes",
    "priority-and-fairness-config-producer",
    "bootstrap-controller",
    "start-kubernetes-service-cidr-controller",
    "start-kube-aggregator-informers",
    "apiservice-status-local-available-controller",
    "apiservice-status-remote-available-controller",
    "apiservice-registration-controller",
    "apiservice-discovery-controller",
    "kube-apiserver-autoregistration",
    REGISTERED,
    "apiservice-openapi-controller",
    "apiservice-openapiv3-controller",
];

/// There was nothing to do.
fn there() -> BoxFuture<'static, Result<(), Status>> {
    std::future::ready(Ok(())).boxed()
}

/// Makes the flow schemas and priority levels of the system, and keeps the conditions of all flow schemas.
async fn make_flow_control(env: &Env) -> Result<(), Status> {
    bootstrap::flow_control(&*env.transport).await?;
    flow_schema_conditions::keep(env);
    Ok(())
}

/// Has flow control go by the flow schemas and priority levels of the store.
fn follow_flow_control(env: &Env) {
    let (flow, objects, stop) = (Arc::clone(&env.flow), Arc::clone(&env.objects), env.shutdown.clone());
    env.shutdown.spawn(async move {
        stop.run(flow::follow(&flow, &objects)).await;
    });
}

/// Lets flow control know how much there is to list.
fn count_objects(env: &Env) {
    let (flow, objects, stop) = (Arc::clone(&env.flow), Arc::clone(&env.objects), env.shutdown.clone());
    env.shutdown.spawn(async move {
        stop.run(flow::count_objects(&flow, &objects)).await;
    });
}

/// Repairs what is known of node ports and addresses in use, now and again.
async fn repair_services(env: &Env) -> Result<(), Status> {
    let recorders = ["portallocator-repair-controller", "ipallocator-repair-controller"];
    let recorders = recorders.map(|component| env.recorder(component));
    env.allocators.keep_repaired(recorders, &env.shutdown).await;
    Ok(())
}

/// Runs the hooks, and returns when all have run; what they keep up goes on until shutdown. The transport's identity
/// must be a superuser's.
pub(crate) async fn run(rooms: &Rooms, env: Env) -> Result<(), Status> {
    let env = &env;
    for stage in STAGES {
        let run = |Hook(name, run): &'static Hook| async move {
            run(env).await?;
            rooms.front.health.done(name);
            Ok::<_, Status>(())
        };
        try_join_all(stage.iter().map(run)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hook_has_a_check_and_every_check_a_hook() {
        let mut run: Vec<&str> = STAGES.iter().flat_map(|stage| stage.iter().map(|hook| hook.0)).collect();
        let mut checked = NAMES.to_vec();
        run.sort_unstable();
        checked.sort_unstable();
        assert_eq!(run, checked);
    }
}
