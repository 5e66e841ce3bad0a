//! The pod network of a node: a CNI configuration made from the Node's pod CIDRs for the standard bridge, host-local
//! and portmap plugins, and its removal with all that the plugins leave behind.
//!
//! The crate depends on `component`, `client` and `objects`. The runtime runs the plugins; this crate must never run
//! one itself, nor know a Pod.

pub mod cni;
pub mod teardown;

pub use cni::{Cni, CniError};

use client::{Client, Informer, Selection};
use component::Shutdown;
use k8s_openapi::api::core::v1::Node;

/// Keeps the CNI configuration in step with the pod CIDRs of the Node `node_name` until `shutdown`.
pub async fn run(client: Client, node_name: &str, cni: Cni, shutdown: Shutdown) {
    let selection =
        Selection { field_selector: format!("metadata.name={node_name}"), ..Selection::default() };
    let nodes: Informer<Node> = Informer::new(&client, selection);
    let changed = std::sync::Arc::new(tokio::sync::Notify::new());
    let notify = changed.clone();
    nodes.handle(move |_| notify.notify_one());
    nodes.start(&shutdown);
    let follow = async {
        loop {
            if let Some(node) = nodes.get("", node_name) {
                let cidrs = pod_cidrs(&node);
                if !cidrs.is_empty()
                    && let Err(error) = cni.ensure(&cidrs)
                {
                    tracing::error!(%error, "cannot configure the pod network");
                }
            }
            changed.notified().await;
        }
    };
    let _ = shutdown.run(follow).await;
}

fn pod_cidrs(node: &Node) -> Vec<String> {
    let Some(spec) = &node.spec else { return Vec::new() };
    match (&spec.pod_cidrs, &spec.pod_cidr) {
        (Some(all), _) if !all.is_empty() => all.clone(),
        (_, Some(one)) if !one.is_empty() => vec![one.clone()],
        _ => Vec::new(),
    }
}
