//! The memory of informers for Pods: whole decoded Pods beside the parts that the scheduler and the controllers keep.

use std::sync::Arc;

use ::scheduler::cache::Cache;
use ::scheduler::pod::PodView;
use anyhow::{Context, Result, ensure};
use api::Status;
use bytes::Bytes;
use clap::Args as ClapArgs;
use client::{
    Cached, Call, Client, EventKind, Factory, Informer, ListAnswer, Resource, Selection, Transport,
    WatchEvent, resource_of,
};
use component::Shutdown;
use controllers::views::Meta;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use parking_lot::Mutex;
use serde_json::json;

use crate::process;
use crate::table::{Table, figure};

const MIB: f64 = (1 << 20) as f64;

/// How much to measure.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    /// Pods that have a node
    #[arg(long, value_name = "N", default_value_t = 150_000, value_parser = clap::value_parser!(u32).range(1000..))]
    pods: u32,
    /// Nodes that they are on
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
}

/// Fills an informer of each sort and prints what a Pod costs.
///
/// The smaller one comes first, and both stay: so neither takes memory that the other gave back.
pub(crate) fn run(args: &Args) -> Result<()> {
    let cache = Arc::new(Mutex::new(Cache::default()));
    for n in 0..args.nodes {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": node_name(n)},
            "status": {"allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110"}},
        }))?;
        cache.lock().set_node(Arc::new(node));
    }
    crate::block_on(async {
        let shutdown = Shutdown::new();
        let fill = cache.clone();
        let views: Informer<PodView> =
            Informer::of(&client(args), resource_of::<Pod>(), Selection::default());
        views.handle(move |change| {
            let pod = change.object();
            if let Some(node) = pod.node() {
                fill.lock().set_pod(pod.clone().into(), node);
            }
        });
        let metadata: Informer<Meta> =
            Informer::of(&client(args), resource_of::<Pod>(), Selection::default());
        let metadata = cost(&metadata, args.pods, &shutdown).await?;
        let controllers = controllers::pods(&Factory::new(client(args)));
        let controllers = cost(&controllers, args.pods, &shutdown).await?;
        let kept = cost(&views, args.pods, &shutdown).await?;
        let wholes: Informer<Pod> = Informer::new(&client(args), Selection::default());
        let whole = cost(&wholes, args.pods, &shutdown).await?;
        let json = f64::from(u32::try_from(pod(0, args.nodes).len())?);
        let mut table = Table::new(&["memory of a Pod", "bytes", "beside whole Pods"]);
        let mut row = |name: &str, bytes: f64| {
            table.row([name.to_owned(), figure(bytes), format!("{:.2}", bytes / whole)]);
        };
        row("its JSON", json);
        row("an informer of whole decoded Pods", whole);
        row("the scheduler's informer and cache", kept);
        row("the controllers' informer, with its indexes", controllers);
        row("an informer of metadata", metadata);
        println!("{} Pods on {} nodes\n\n{table}", args.pods, args.nodes);
        shutdown.finish().await;
        Ok(())
    })
}

/// Lets an informer read all Pods; the bytes of memory that each of them takes.
async fn cost<T: Cached>(informer: &Informer<T>, pods: u32, shutdown: &Shutdown) -> Result<f64> {
    let resident = || process::memory(&[std::process::id()]).map(|m| m.rss * MIB).context("own memory");
    let before = resident()?;
    informer.start(shutdown);
    informer.synced().await;
    ensure!(informer.len() == pods as usize, "the informer has {} of {pods} Pods", informer.len());
    Ok((resident()? - before) / f64::from(pods))
}

fn client(args: &Args) -> Client {
    Client::new(Arc::new(Pods { count: args.pods, nodes: args.nodes }), "bench")
}

/// A server that has Pods, and makes each when it is asked for.
struct Pods {
    count: u32,
    nodes: u32,
}

impl Transport for Pods {
    fn call(&self, _: Call) -> BoxFuture<'_, Result<Bytes, Status>> {
        async { Err(Status::bad_request("there are only watches")) }.boxed()
    }
    fn list(&self, _: Call) -> BoxFuture<'_, Result<ListAnswer, Status>> {
        async { Err(Status::bad_request("there are only watches")) }.boxed()
    }
    fn raw(&self, _: &str) -> BoxFuture<'_, Result<Bytes, Status>> {
        async { Err(Status::bad_request("there are only watches")) }.boxed()
    }
    fn watch(
        &self,
        call: Call,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchEvent, Status>>, Status>> {
        debug_assert_eq!(call.resource, Resource { plural: "pods".into(), ..resource_of::<Pod>() });
        let nodes = self.nodes;
        let all = stream::iter(0..self.count)
            .map(move |n| WatchEvent { kind: EventKind::Added, object: pod(n, nodes).into() });
        let end = json!({"metadata": {"resourceVersion": "9000000",
            "annotations": {"k8s.io/initial-events-end": "true"}}});
        let end = WatchEvent { kind: EventKind::Bookmark, object: end.to_string().into() };
        let events = all.chain(stream::iter([end])).map(Ok).chain(stream::pending());
        async { Ok(events.boxed()) }.boxed()
    }
}

fn node_name(n: u32) -> String {
    format!("node-{n:05}.example")
}

/// A running Pod of a Deployment, as the API server shows it: one container with requests, the service account's volume,
/// five labels.
fn pod(n: u32, nodes: u32) -> String {
    let (set, time) = (n / 50, "2026-01-02T03:04:05Z");
    let name = format!("service-{set:04}-7d9f8c6b5d-{n:06}");
    let requests = json!({"cpu": "100m", "memory": "128Mi"});
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": time, "observedGeneration": 1});
    let kinds = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let tolerates = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    let image = format!("registry.example/team/service-{set:04}:v1.2.3");
    let ip = format!("10.{}.{}.{}", n >> 16, (n >> 8) & 255, n & 255);
    json!({
        "metadata": {
            "name": name, "generateName": format!("service-{set:04}-7d9f8c6b5d-"), "namespace": format!("team-{}", set % 100),
            "uid": format!("5f0c1d3e-7a9b-4c2d-8e1f-{n:012x}"), "resourceVersion": (1_000_000 + n).to_string(),
            "generation": 1, "creationTimestamp": time,
            "labels": {
                "app.kubernetes.io/name": format!("service-{set:04}"), "app.kubernetes.io/part-of": "shop",
                "pod-template-hash": "7d9f8c6b5d", "tier": "backend", "version": "v1.2.3",
            },
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("service-{set:04}-7d9f8c6b5d"),
                "uid": format!("6f0c1d3e-7a9b-4c2d-8e1f-{set:012x}"), "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
                "time": time, "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {".": {}}}}}],
        },
        "spec": {
            "containers": [{
                "name": "service", "image": image, "resources": {"requests": requests},
                "volumeMounts": [{"name": "kube-api-access-x7k2p", "readOnly": true,
                    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }],
            "volumes": [{"name": "kube-api-access-x7k2p", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
            ]}}],
            "nodeName": node_name(n % nodes), "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst", "serviceAccountName": "default", "serviceAccount": "default",
            "securityContext": {}, "schedulerName": "default-scheduler", "priority": 0, "enableServiceLinks": true,
            "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [tolerates("node.kubernetes.io/not-ready"), tolerates("node.kubernetes.io/unreachable")],
        },
        "status": {
            "phase": "Running", "qosClass": "Burstable", "startTime": time, "hostIP": "10.0.0.1",
            "hostIPs": [{"ip": "10.0.0.1"}], "podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": kinds.map(condition),
            "containerStatuses": [{
                "name": "service", "image": image, "imageID": format!("registry.example/team/service@sha256:{n:064x}"),
                "containerID": format!("containerd://{n:064x}"), "ready": true, "started": true, "restartCount": 0,
                "state": {"running": {"startedAt": time}}, "lastState": {}, "allocatedResources": requests,
                "resources": {"requests": requests},
            }],
        },
    })
    .to_string()
}
