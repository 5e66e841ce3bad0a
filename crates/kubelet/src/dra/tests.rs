//! Claims and a driver over gRPC; the cases are those of upstream's `TestPrepareResources`, `TestUnprepareResources` and
//! `TestParallelPrepareUnprepareResources`.

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::transport::{Call, Verb};
use component::Shutdown;
use component::metrics::Page;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use plugins::dra as pb;
use plugins::dra::dra_plugin_server::{DraPlugin, DraPluginServer};
use plugins::socket::listen;
use serde_json::{Value, json};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response};

use super::manager::Dra;
use super::plugins::Plugins;
use super::slices::Slices;
use crate::plugin_manager::{Plugin, PluginHandler};
use crate::testing::{self, Answers};

const DRIVER: &str = "test-driver";

/// An API server that has one claim, or none, and notes which slices are deleted.
#[derive(Default)]
struct OneClaim(Mutex<Option<Value>>, Mutex<Vec<String>>);

impl Answers for OneClaim {
    fn answer(&self, call: &Call) -> Result<Value, Status> {
        if call.verb == Verb::DeleteCollection {
            let selectors = call.query.iter().filter(|(key, _)| *key == "fieldSelector");
            self.1.lock().extend(selectors.map(|(_, value)| value.clone()));
            return Ok(json!({}));
        }
        let found = self.0.lock().clone().filter(|claim| claim["metadata"]["name"] == *call.name);
        found.ok_or_else(testing::not_found)
    }
}

/// The driver's answers.
#[derive(Clone, Copy, PartialEq)]
enum Says {
    /// The device of each claim.
    Devices,
    /// Nothing of any claim.
    Nothing,
    /// An error about each claim.
    Error,
    /// Something of a claim that nobody asked for.
    Other,
    /// It hangs.
    Hangs,
}

struct Driver {
    says: Mutex<Says>,
    calls: Mutex<Vec<String>>,
}

impl Driver {
    async fn uids(&self, call: &str, claims: &[pb::Claim]) -> (Vec<String>, String) {
        let names: Vec<&str> = claims.iter().map(|c| c.name.as_str()).collect();
        self.calls.lock().push(format!("{call} {}", names.join(",")));
        let says = *self.says.lock();
        let uids = claims.iter().map(|c| c.uid.clone()).collect();
        match says {
            Says::Devices => (uids, String::new()),
            Says::Nothing => (Vec::new(), String::new()),
            Says::Error => (uids, "no room".into()),
            Says::Other => (vec!["other".into()], String::new()),
            Says::Hangs => std::future::pending().await,
        }
    }
}

struct Served(Arc<Driver>);

#[tonic::async_trait]
impl DraPlugin for Served {
    async fn node_prepare_resources(
        &self,
        request: Request<pb::NodePrepareResourcesRequest>,
    ) -> Result<Response<pb::NodePrepareResourcesResponse>, tonic::Status> {
        let (uids, error) = self.0.uids("prepare", &request.into_inner().claims).await;
        let device = pb::Device {
            request_names: vec!["r".into()],
            pool_name: "pool".into(),
            device_name: "dev".into(),
            cdi_device_ids: vec!["v/c=dev".into()],
            share_id: None,
        };
        let one = pb::NodePrepareResourceResponse { devices: vec![device], error };
        let claims = uids.into_iter().map(|uid| (uid, one.clone())).collect();
        Ok(Response::new(pb::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<pb::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<pb::NodeUnprepareResourcesResponse>, tonic::Status> {
        let (uids, error) = self.0.uids("unprepare", &request.into_inner().claims).await;
        let one = pb::NodeUnprepareResourceResponse { error };
        let claims = uids.into_iter().map(|uid| (uid, one.clone())).collect();
        Ok(Response::new(pb::NodeUnprepareResourcesResponse { claims }))
    }
}

struct World {
    dir: tempfile::TempDir,
    server: Arc<OneClaim>,
    driver: Arc<Driver>,
    dra: Arc<Dra>,
}

impl World {
    /// A node with a driver that is registered.
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let driver = Arc::new(Driver { says: Mutex::new(Says::Devices), calls: Mutex::default() });
        let listener = listen(&dir.path().join("dra.sock")).unwrap();
        let server = Server::builder().add_service(DraPluginServer::new(Served(driver.clone())));
        tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
        let server = Arc::new(OneClaim::default());
        let dra = Self::dra(&dir, &server);
        let world = Self { dir, server, driver, dra };
        world.register().await;
        world
    }

    fn dra(dir: &tempfile::TempDir, server: &Arc<OneClaim>) -> Arc<Dra> {
        let client = testing::client(server);
        let plugins = Plugins::new(None, Shutdown::new());
        Arc::new(Dra::at(dir.path().join("state"), client, plugins).unwrap())
    }

    async fn register(&self) {
        let plugin = Plugin {
            name: DRIVER.into(),
            endpoint: self.dir.path().join("dra.sock"),
            versions: vec!["v1.DRAPlugin".into()],
        };
        self.dra.registrar().register(&plugin).await.unwrap();
        let again = self.dra.registrar().register(&plugin).await.unwrap_err();
        assert!(
            again.starts_with("endpoint ")
                && again.ends_with(" already registered for DRA driver plugin test-driver")
        );
    }

    /// The next process, with the same driver.
    async fn restarted(mut self) -> Self {
        self.dra = Self::dra(&self.dir, &self.server);
        self.register().await;
        self
    }

    fn claim(&self, uid: &str, driver: &str, pods: &[&str]) {
        let reserved: Vec<Value> =
            pods.iter().map(|uid| json!({"resource": "pods", "name": uid, "uid": uid})).collect();
        let device = json!({"request": "r", "driver": driver, "pool": "pool", "device": "dev"});
        let status = json!({"reservedFor": reserved, "allocation": {"devices": {"results": [device]}}});
        let meta = json!({"namespace": "ns", "name": "claim", "uid": uid});
        *self.server.0.lock() = Some(json!({"metadata": meta, "spec": {}, "status": status}));
    }

    async fn prepare(&self, pod: &str) -> Result<(), String> {
        self.dra.prepare(&self::pod(pod)).await.map_err(|e| e.to_string())
    }

    async fn unprepare(&self, pod: &str) -> Result<(), String> {
        self.dra.unprepare(pod).await.map_err(|e| e.to_string())
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.driver.calls.lock())
    }

    fn cdi(&self) -> Result<Vec<String>, String> {
        let pod = pod("p");
        let container = &crate::pods::spec::containers(&pod)[0];
        self.dra.cdi_devices(&pod, container).map_err(|e| e.to_string())
    }
}

fn pod(uid: &str) -> Pod {
    let containers = json!([{"name": "c", "resources": {"claims": [{"name": "place"}]}}]);
    let claims = json!([{"name": "place", "resourceClaimName": "claim"}]);
    let spec = json!({"containers": containers, "resourceClaims": claims});
    let meta = json!({"namespace": "ns", "name": uid, "uid": uid});
    serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
}

#[tokio::test]
async fn what_keeps_a_pod_from_its_claims() {
    let w = World::new().await;
    let refused = async |text: &str, calls: usize| {
        assert_eq!(w.prepare("p").await.unwrap_err(), format!("prepare dynamic resources: {text}"));
        assert_eq!(w.calls().len(), calls, "{text}");
    };
    refused("fetch ResourceClaim claim: not found", 0).await;
    w.claim("u", "unknown driver", &["p"]);
    refused("DRA driver unknown driver is not registered", 0).await;
    w.claim("u", "", &["p"]);
    refused("DRA driver name is empty", 0).await;
    w.claim("u", DRIVER, &["q"]);
    refused("pod p (p) is not allowed to use ResourceClaim claim (u)", 0).await;
    w.claim("u", DRIVER, &["p"]);
    assert!(w.cdi().is_err());
    for (says, text) in [
        (Says::Nothing, "NodePrepareResources skipped 1 ResourceClaims"),
        (Says::Error, "NodePrepareResources failed for ResourceClaim claim: no room"),
        (Says::Other, "NodePrepareResources returned result for unknown claim UID other"),
    ] {
        *w.driver.says.lock() = says;
        refused(text, 1).await;
    }
    *w.driver.says.lock() = Says::Devices;
    assert_eq!(w.prepare("p").await, Ok(()));
    assert_eq!(w.prepare("p").await, Ok(()));
    assert_eq!(w.calls(), ["prepare claim"], "once");
    assert_eq!(w.cdi().unwrap(), ["v/c=dev"]);
    w.claim("another", DRIVER, &["p"]);
    let old = "old ResourceClaim with same name claim and different UID u still exists (previous pod force-deleted?!)";
    refused(old, 0).await;
    let mut page = Page::default();
    w.dra.write_metrics(&mut page);
    let text = page.text();
    for line in [
        "dra_operations_duration_seconds_count{is_error=\"true\",operation_name=\"PrepareResources\"} 8",
        "dra_operations_duration_seconds_count{is_error=\"false\",operation_name=\"PrepareResources\"} 2",
        "dra_grpc_operations_duration_seconds_count{driver_name=\"test-driver\",grpc_status_code=\"OK\",method_name=\"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources\"} 4",
        "dra_resource_claims_in_use{driver_name=\"<any>\"} 1",
        "dra_resource_claims_in_use{driver_name=\"test-driver\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}");
    }
}

#[tokio::test]
async fn the_last_pod_gives_its_claims_back() {
    let w = World::new().await;
    w.claim("u", DRIVER, &["p", "q"]);
    assert_eq!(w.unprepare("p").await, Ok(()), "it has none");
    let both = tokio::join!(w.prepare("p"), w.prepare("q"));
    assert_eq!(
        (both, w.calls()),
        ((Ok(()), Ok(())), vec!["prepare claim".to_owned()]),
        "one after the other"
    );
    assert_eq!((w.unprepare("q").await, w.calls().len()), (Ok(()), 0), "another Pod has it");

    // The next process has it prepared again, which changes nothing.
    let w = w.restarted().await;
    assert_eq!(w.cdi().unwrap(), ["v/c=dev"]);
    assert_eq!((w.prepare("p").await, w.calls().len()), (Ok(()), 1));
    assert_eq!(w.cdi().unwrap(), ["v/c=dev"], "a device is not there twice");
    for (says, text) in [
        (Says::Nothing, "NodeUnprepareResources skipped 1 ResourceClaims"),
        (Says::Error, "NodeUnprepareResources failed for ResourceClaim claim: no room"),
        (Says::Other, "NodeUnprepareResources returned result for unknown claim UID other"),
    ] {
        *w.driver.says.lock() = says;
        assert_eq!(w.unprepare("p").await.unwrap_err(), format!("unprepare dynamic resources: {text}"));
    }
    *w.driver.says.lock() = Says::Devices;
    let w = w.restarted().await;
    assert_eq!(w.calls().len(), 3);
    assert_eq!((w.unprepare("p").await, w.calls()), (Ok(()), vec!["unprepare claim".to_owned()]));
    assert_eq!((w.unprepare("p").await, w.calls().len()), (Ok(()), 0));
    let w = w.restarted().await;
    assert_eq!((w.unprepare("p").await, w.calls().len()), (Ok(()), 0), "nothing is left");
    // The name may be another claim's now.
    w.claim("another", DRIVER, &["p"]);
    assert_eq!(w.prepare("p").await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_hangs_is_given_up() {
    let w = World::new().await;
    w.claim("u", DRIVER, &["p"]);
    *w.driver.says.lock() = Says::Hangs;
    let began = tokio::time::Instant::now();
    let late = "NodePrepareResources: rpc error: code = DeadlineExceeded desc = context deadline exceeded";
    assert_eq!(w.prepare("p").await.unwrap_err(), format!("prepare dynamic resources: {late}"));
    assert_eq!(began.elapsed().as_secs(), 45);
    let late = late.replace("Prepare", "Unprepare");
    assert_eq!(w.unprepare("p").await.unwrap_err(), format!("unprepare dynamic resources: {late}"));
    *w.driver.says.lock() = Says::Devices;
    assert_eq!(w.unprepare("p").await, Ok(()), "what it may have done is undone");
    // A call whose caller goes runs to its end: the claim is noted, and given back.
    let left = tokio::time::timeout(Duration::ZERO, w.prepare("p")).await;
    assert!(left.is_err());
    assert_eq!(w.prepare("p").await, Ok(()));
    assert_eq!(w.unprepare("p").await, Ok(()));
    assert!(w.calls().last().is_some_and(|c| c == "unprepare claim"));
}

#[tokio::test(start_paused = true)]
async fn slices_go_when_nobody_answers_for_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let serve = || {
        let listener = listen(&dir.path().join("dra.sock")).unwrap();
        let driver = Arc::new(Driver { says: Mutex::new(Says::Devices), calls: Mutex::default() });
        let server = Server::builder().add_service(DraPluginServer::new(Served(driver)));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let stopped = async { drop(stopped.await) };
        let incoming = UnixListenerStream::new(listener);
        (stop, tokio::spawn(server.serve_with_incoming_shutdown(incoming, stopped)))
    };
    let (api, shutdown) = (Arc::new(OneClaim::default()), Shutdown::new());
    let client = testing::client(&api);
    let slices = Slices { client: client.clone(), node_name: "n".into(), registered: Arc::new(|| true) };
    let dra = Dra::at(dir.path().join("state"), client, Plugins::new(Some(slices), shutdown)).unwrap();
    let deleted = async |after: u64| {
        tokio::time::sleep(Duration::from_secs(after)).await;
        std::mem::take(&mut *api.1.lock())
    };
    dra.begin().await;
    assert_eq!(deleted(0).await, ["spec.nodeName=n"]);
    let (stop, server) = serve();
    let (registrar, plugin) = (
        dra.registrar(),
        Plugin {
            name: DRIVER.into(),
            endpoint: dir.path().join("dra.sock"),
            versions: vec!["v1beta1.DRAPlugin".into()],
        },
    );
    registrar.register(&plugin).await.unwrap();
    assert!(deleted(120).await.is_empty(), "it answers");
    registrar.deregister(&plugin).await;
    assert!(deleted(20).await.is_empty(), "it may come back");
    registrar.register(&plugin).await.unwrap();
    assert!(deleted(60).await.is_empty(), "it did");
    // It is still registered, but nobody answers.
    drop(stop);
    server.await.unwrap().unwrap();
    let own = ["spec.driver=test-driver,spec.nodeName=n"];
    assert_eq!(deleted(60).await, own);
    assert!(deleted(600).await.is_empty(), "once");
    let (_stop, _server) = serve();
    assert!(deleted(20).await.is_empty());
    registrar.deregister(&plugin).await;
    registrar.deregister(&plugin).await;
    assert_eq!(deleted(31).await, own);
}
