//! Plugins over gRPC, and Pods that want their devices at the same time.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;

use component::Shutdown;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use plugins::device as pb;
use plugins::device::device_plugin_server::{DevicePlugin, DevicePluginServer};
use plugins::device::registration_client::RegistrationClient;
use plugins::socket;
use serde_json::json;
use tokio::sync::watch;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::*;
use crate::config::Config;
use crate::pods::spec;
use crate::pods::worker::Worker;
use crate::pods::workers::Workers;

const DEV: &str = "example.com/dev";

/// A plugin with devices `a` and `b`; an allocation of `b` never ends while it hangs.
struct Plugin {
    hangs: watch::Receiver<bool>,
    fails: Arc<Mutex<bool>>,
}

#[tonic::async_trait]
impl DevicePlugin for Plugin {
    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<pb::ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<pb::Empty>,
    ) -> Result<Response<pb::DevicePluginOptions>, Status> {
        Ok(Response::new(pb::DevicePluginOptions::default()))
    }
    async fn list_and_watch(
        &self,
        _: Request<pb::Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let one = |id: &str| pb::Device { id: id.into(), health: "Healthy".into(), topology: None };
        let list = pb::ListAndWatchResponse { devices: vec![one("a"), one("b")] };
        let told = tokio_stream::once(Ok(list)).chain(tokio_stream::pending());
        Ok(Response::new(Box::pin(told)))
    }
    async fn get_preferred_allocation(
        &self,
        _: Request<pb::PreferredAllocationRequest>,
    ) -> Result<Response<pb::PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented("nothing is preferred"))
    }
    async fn allocate(
        &self,
        request: Request<pb::AllocateRequest>,
    ) -> Result<Response<pb::AllocateResponse>, Status> {
        let ids: Vec<String> =
            request.into_inner().container_requests.into_iter().flat_map(|r| r.devices_ids).collect();
        if ids.iter().any(|id| id == "b") {
            let _ = self.hangs.clone().wait_for(|hangs| !hangs).await;
        }
        if *self.fails.lock() {
            return Err(Status::internal("boom"));
        }
        let one = pb::ContainerAllocateResponse {
            envs: [("DEVICES".to_owned(), ids.join(","))].into(),
            ..pb::ContainerAllocateResponse::default()
        };
        Ok(Response::new(pb::AllocateResponse { container_responses: vec![one] }))
    }
    async fn pre_start_container(
        &self,
        _: Request<pb::PreStartContainerRequest>,
    ) -> Result<Response<pb::PreStartContainerResponse>, Status> {
        Err(Status::unimplemented("nothing is to be told"))
    }
}

struct World {
    config: Config,
    manager: Arc<DeviceManager>,
    workers: Arc<Workers>,
    hangs: watch::Sender<bool>,
    fails: Arc<Mutex<bool>>,
    _dir: tempfile::TempDir,
}

impl World {
    /// A node whose plugin has told of its devices.
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = Config { root_dir: dir.path().to_owned(), ..Config::new("n") };
        std::fs::create_dir(dir.path().join("device-plugins")).unwrap();
        let workers = Arc::new(Workers::default());
        let manager = DeviceManager::new(&config, workers.clone(), Shutdown::new());
        manager.ready();
        let (hangs, fails) = (watch::Sender::new(false), Arc::default());
        let world = Self { config, manager, workers, hangs, fails, _dir: dir };
        world.register().await;
        world
    }

    /// Serves the registration, and registers the plugin there.
    async fn register(&self) {
        let manager = self.manager.clone();
        tokio::spawn(async move { serve(&manager).await });
        let dir = self.config.root_dir.join("device-plugins");
        let kubelet = socket::channel(&dir.join("kubelet.sock"));
        let mut kubelet = RegistrationClient::new(kubelet);
        let request = pb::RegisterRequest {
            version: "v1beta1".into(),
            endpoint: "plugin.sock".into(),
            resource_name: DEV.into(),
            options: None,
        };
        // The kubelet serves once its directory is clean; a plugin's socket from before would be removed.
        while let Err(status) = kubelet.register(request.clone()).await {
            assert!(status.message().contains("failed to dial") || status.code() == tonic::Code::Unavailable);
            tokio::task::yield_now().await;
            if status.message().contains("failed to dial") {
                let listener = socket::listen(&dir.join("plugin.sock")).unwrap();
                let plugin = Plugin { hangs: self.hangs.subscribe(), fails: self.fails.clone() };
                let server = Server::builder().add_service(DevicePluginServer::new(plugin));
                tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
            }
        }
        while self.manager.offer().await.allocatable.get(DEV) != Some(&2) {
            self.manager.changed.notified().await;
        }
    }

    /// A Pod that asks for devices, and its worker.
    fn pod(&self, uid: &str, count: u32) -> Arc<Pod> {
        let container = json!({"name": "c", "resources": {"limits": {DEV: count.to_string()}}});
        let pod = json!({"metadata": {"name": uid, "namespace": "ns", "uid": uid}, "spec": {"containers": [container]}});
        let pod: Arc<Pod> = Arc::new(serde_json::from_value(pod).unwrap());
        self.workers.put(&Worker::new(pod.clone()));
        pod
    }

    async fn allocate(&self, pod: &Arc<Pod>) -> Result<(), String> {
        for container in spec::init_containers(pod).iter().chain(spec::containers(pod)) {
            self.manager.allocate(pod, container, None).await.map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    async fn devices(&self, pod: &Arc<Pod>) -> String {
        let given = self.manager.of_container(pod, &pod.spec.as_ref().unwrap().containers[0]).await.unwrap();
        given.envs.into_iter().map(|(_, value)| value).collect()
    }
}

const NONE_LEFT: &str =
    "requested number of devices unavailable for example.com/dev. Requested: 1, Available: 0";

#[tokio::test]
async fn nobody_gets_a_device_twice() {
    let w = World::new().await;
    let pods: Vec<_> = (0..5).map(|n| w.pod(&format!("p{n}"), 1)).collect();
    let got = futures::future::join_all(pods.iter().map(|pod| w.allocate(pod))).await;
    let (ok, refused): (Vec<_>, Vec<_>) = got.iter().cloned().partition(Result::is_ok);
    assert_eq!((ok.len(), refused), (2, vec![Err(NONE_LEFT.to_owned()); 3]));
    let mut had = BTreeSet::new();
    for (pod, _) in pods.iter().zip(&got).filter(|(_, got)| got.is_ok()) {
        had.insert(w.devices(pod).await);
        assert_eq!(w.allocate(pod).await, Ok(()), "it has them");
    }
    assert_eq!(had, BTreeSet::from(["a".to_owned(), "b".to_owned()]));

    // The next process knows; a Pod whose worker is gone leaves its device.
    let next = DeviceManager::new(&w.config, w.workers.clone(), Shutdown::new());
    let w = World { manager: next, ..w };
    w.register().await;
    assert_eq!(w.allocate(&w.pod("late", 1)).await.unwrap_err(), NONE_LEFT, "it is not known who is gone");
    w.manager.ready();
    let gone = pods.iter().zip(&got).find(|(_, got)| got.is_ok()).unwrap().0;
    let left = w.devices(gone).await;
    w.workers.remove(gone.metadata.uid.as_deref().unwrap());
    let late = w.pod("late", 1);
    assert_eq!((w.allocate(&late).await, w.devices(&late).await), (Ok(()), left));

    // A file that is damaged costs what it said, not the kubelet.
    let file = w.config.root_dir.join("device-plugins/kubelet_internal_checkpoint");
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap().replace("late", "laet")).unwrap();
    let empty = DeviceManager::new(&w.config, w.workers.clone(), Shutdown::new());
    assert!(!empty.is_plugins(DEV));
}

#[tokio::test]
async fn a_plugin_that_hangs_or_fails_keeps_nothing() {
    let w = World::new().await;
    let (first, other) = (w.pod("first", 1), w.pod("other", 1));
    assert_eq!(
        w.allocate(&w.pod("all", 3)).await.unwrap_err(),
        NONE_LEFT.replace("1, Available: 0", "3, Available: 2")
    );
    *w.fails.lock() = true;
    assert_eq!(w.allocate(&first).await.unwrap_err(), "rpc error: code = Internal desc = boom");
    *w.fails.lock() = false;
    assert_eq!(w.allocate(&first).await, Ok(()));
    w.hangs.send_replace(true);
    let hangs = w.pod("hangs", 1);
    let mut asked = Box::pin(w.allocate(&hangs));
    let now = tokio::select! {
        biased;
        _ = &mut asked => true,
        // It is held while the plugin is asked.
        refused = w.allocate(&other) => {
            assert_eq!(refused.unwrap_err(), NONE_LEFT);
            false
        }
    };
    assert!(!now);
    w.hangs.send_replace(false);
    assert_eq!(asked.await, Ok(()));
    assert_eq!((w.devices(&first).await, w.devices(&hangs).await), ("a".into(), "b".into()));
}
