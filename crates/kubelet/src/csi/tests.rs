//! Volumes of a driver over gRPC.
//!
//! Most of upstream's tests of its volume manager have no counterpart. Those of `actual_state_of_world_test.go`, the others of
//! `desired_state_of_world_test.go` and those of `reconstruct_test.go` are about caches, where records on the disk and the
//! Pods' workers are the state here. Those of `reconciler_test.go` are about a loop between these caches; whole nodes show
//! the same here (`ferrokube/tests/csi.rs`). Of `desired_state_of_world_populator_test.go`, the cases about Pods that come
//! and go are the workers', and those about claims stand in `volumes/claimed.rs`. `Test_AddPodToVolume_WithEmptyDirSizeLimit`
//! is about quotas of file systems, which this kubelet does not set.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use api::Status;
use client::{Call, Informer, Recorder, Selection};
use component::metrics::Page;
use component::{Clock, Shutdown};
use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use parking_lot::Mutex;
use plugins::csi as pb;
use plugins::csi::node_server::{Node, NodeServer};
use plugins::csi::node_service_capability::{Rpc, Type, rpc};
use plugins::csi::volume_capability::AccessType;
use plugins::socket::{channel, listen};
use serde_json::{Value, json};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response};

use super::drivers::{Driver as Registered, Version};
use super::error::CsiError;
use super::record::Record;
use super::*;
use crate::metrics::Metrics;
use crate::node::NodeView;
use crate::recorder::PodRecorder;
use crate::testing::{self, Answers};
use crate::volumes::giving::Giver;
use crate::volumes::selinux::{Labels, tests::machine};
use crate::volumes::tokens::Issuer;

const DRIVER: &str = "d.example.com";

/// An API server that has one CSIDriver.
struct Api(Value);

impl Answers for Api {
    fn answer(&self, _: &Call) -> Result<Value, Status> {
        Err(testing::not_found())
    }
    fn list(&self, call: &Call) -> Result<Vec<Value>, Status> {
        if &*call.resource.plural == "csidrivers" { Ok(vec![self.0.clone()]) } else { Ok(Vec::new()) }
    }
}

/// A driver that stages volumes and mounts nothing. It notes the calls, with the options of mounts.
#[derive(Default)]
struct Driver(Mutex<Vec<String>>);

impl Driver {
    fn note(&self, call: &str, volume: &str, capability: Option<&pb::VolumeCapability>) {
        let options = match capability.and_then(|c| c.access_type.as_ref()) {
            Some(AccessType::Mount(mount)) => mount.mount_flags.join(" "),
            _ => String::new(),
        };
        self.0.lock().push(format!("{call} {volume} {options}").trim_end().to_owned());
    }
}

struct Served(Arc<Driver>);

type Answer<T> = Result<Response<T>, tonic::Status>;

#[tonic::async_trait]
impl Node for Served {
    async fn node_stage_volume(
        &self,
        request: Request<pb::NodeStageVolumeRequest>,
    ) -> Answer<pb::NodeStageVolumeResponse> {
        let of = request.into_inner();
        self.0.note("stage", &of.volume_id, of.volume_capability.as_ref());
        Ok(Response::new(pb::NodeStageVolumeResponse {}))
    }
    async fn node_unstage_volume(
        &self,
        request: Request<pb::NodeUnstageVolumeRequest>,
    ) -> Answer<pb::NodeUnstageVolumeResponse> {
        self.0.note("unstage", &request.into_inner().volume_id, None);
        Ok(Response::new(pb::NodeUnstageVolumeResponse {}))
    }
    async fn node_publish_volume(
        &self,
        request: Request<pb::NodePublishVolumeRequest>,
    ) -> Answer<pb::NodePublishVolumeResponse> {
        let of = request.into_inner();
        self.0.note("publish", &of.volume_id, of.volume_capability.as_ref());
        fs::create_dir_all(&of.target_path)?;
        Ok(Response::new(pb::NodePublishVolumeResponse {}))
    }
    async fn node_unpublish_volume(
        &self,
        request: Request<pb::NodeUnpublishVolumeRequest>,
    ) -> Answer<pb::NodeUnpublishVolumeResponse> {
        self.0.note("unpublish", &request.into_inner().volume_id, None);
        Ok(Response::new(pb::NodeUnpublishVolumeResponse {}))
    }
    async fn node_get_volume_stats(
        &self,
        _: Request<pb::NodeGetVolumeStatsRequest>,
    ) -> Answer<pb::NodeGetVolumeStatsResponse> {
        Err(tonic::Status::unimplemented("no statistics"))
    }
    async fn node_expand_volume(
        &self,
        _: Request<pb::NodeExpandVolumeRequest>,
    ) -> Answer<pb::NodeExpandVolumeResponse> {
        Err(tonic::Status::unimplemented("no growth"))
    }
    async fn node_get_capabilities(
        &self,
        _: Request<pb::NodeGetCapabilitiesRequest>,
    ) -> Answer<pb::NodeGetCapabilitiesResponse> {
        let stages = Type::Rpc(Rpc { r#type: rpc::Type::StageUnstageVolume as i32 });
        let capabilities = vec![pb::NodeServiceCapability { r#type: Some(stages) }];
        Ok(Response::new(pb::NodeGetCapabilitiesResponse { capabilities }))
    }
    async fn node_get_info(&self, _: Request<pb::NodeGetInfoRequest>) -> Answer<pb::NodeGetInfoResponse> {
        Err(tonic::Status::unimplemented("no place"))
    }
}

/// A node with a driver.
struct World {
    dir: tempfile::TempDir,
    driver: Arc<Driver>,
    /// The CSIDriver's own fields.
    rules: Value,
    metrics: Metrics,
    /// Whether volumes for several Pods are mounted with labels.
    all: bool,
    shutdown: Shutdown,
}

impl World {
    /// `selinux`: whether it is on.
    fn new(rules: Value, (selinux, all): (bool, bool)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        if selinux {
            machine(dir.path());
        }
        let driver = Arc::new(Driver::default());
        let listener = listen(&dir.path().join("csi.sock")).unwrap();
        let server = Server::builder().add_service(NodeServer::new(Served(driver.clone())));
        tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
        Self { dir, driver, rules, metrics: Metrics::default(), all, shutdown: Shutdown::new() }
    }

    /// The part of another process.
    fn volumes(&self) -> CsiVolumes {
        let mut spec = self.rules.clone();
        spec["attachRequired"] = json!(false);
        spec["volumeLifecycleModes"] = json!(["Persistent"]);
        let rules = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
            "metadata": {"name": DRIVER, "uid": "u", "resourceVersion": "1"}, "spec": spec});
        let client = testing::client(&Arc::new(Api(rules)));
        let rules = Informer::new(&client, Selection::default());
        rules.start(&self.shutdown);
        let drivers = Drivers::counted_by(self.metrics.clone());
        let endpoint = self.dir.path().join("csi.sock");
        let version = Version::highest(&["v1.0.0".to_owned()]).unwrap();
        drivers.put(DRIVER, Registered { channel: channel(&endpoint), endpoint, version });
        let (recorder, _) = Recorder::channel("kubelet", Clock::system());
        let root = self.dir.path().join("kubelet");
        let giver = Giver { recorder: PodRecorder(recorder), pods: root.join("pods") };
        let given = Given {
            node: NodeView::new("n", Informer::new(&client, Selection::default()), 1),
            tokens: Issuer::new(client.clone(), Clock::system()),
            client,
            node_name: "n".into(),
            drivers,
            rules,
            standalone: false,
            root,
            giver,
            controller_attaches: true,
            volume_health: false,
            labels: Labels::new(self.dir.path(), self.all, &self.metrics),
        };
        CsiVolumes::new(Arc::new(Room::new(given, Arc::default())))
    }

    /// The calls since the last time.
    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.driver.0.lock())
    }

    /// The records of a volume for a Pod, and of the staged volume: the labels in them.
    fn labels(&self, uid: &str) -> (Option<String>, Option<String>) {
        let places = record::Places { root: self.dir.path().join("kubelet") };
        let label = |dir: &Path| Record::load(dir).unwrap().map(|record| record.label);
        (label(&places.volume(uid, "pv")), label(&places.staged(DRIVER, "h")))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.stop();
    }
}

fn wanted(mode: &str, read_only: bool) -> Arc<Wanted> {
    let volume = json!({"metadata": {"name": "pv"}, "spec": {"accessModes": [mode], "mountOptions": ["noatime"],
        "csi": {"driver": DRIVER, "volumeHandle": "h"}}});
    let volume: PersistentVolume = serde_json::from_value(volume).unwrap();
    Arc::new(Wanted::persistent(&volume, None, read_only).unwrap())
}

fn pod(uid: &str, level: &str) -> Pod {
    let container = json!({"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    let options = if level.is_empty() { Value::Null } else { json!({"level": level}) };
    let spec = json!({"containers": [container], "securityContext": {"seLinuxOptions": options}});
    serde_json::from_value(json!({"metadata": {"name": uid, "namespace": "n", "uid": uid}, "spec": spec}))
        .unwrap()
}

async fn mount(
    volumes: &CsiVolumes,
    pod: &Pod,
    wanted: Arc<Wanted>,
    running: bool,
) -> Result<Published, CsiError> {
    let (published, stale) = volumes.mount(pod, "v", wanted, running, jiff::Timestamp::UNIX_EPOCH).await?;
    assert!(stale.is_none(), "{stale:?}");
    Ok(published)
}

const LABEL: &str = "system_u:object_r:container_file_t:s0:c1,c2";
const OTHER: &str = "system_u:object_r:container_file_t:s0:c3";

/// Upstream's cases about SELinux of `TestMounterSetUp` and `TestPluginConstructVolumeSpec`, and more.
#[tokio::test]
async fn options_of_mounts_with_labels() {
    let check = async |rules: Value, selinux: bool, mode: &str, level: &str, label: Option<&str>| {
        let world = World::new(rules.clone(), (selinux, false));
        let volumes = world.volumes();
        let what = format!("{rules} {selinux} {mode} {level:?}");
        let a = pod("a", level);
        let published = mount(&volumes, &a, wanted(mode, false), false).await.unwrap();
        let options = label.map(|label| format!(" context=\"{label}\"")).unwrap_or_default();
        let calls = [format!("stage h noatime{options}"), format!("publish h noatime{options}")];
        assert_eq!(world.calls(), calls, "{what}");
        let kept = Some(label.unwrap_or_default().to_owned());
        assert_eq!(world.labels("a"), (kept.clone(), kept), "{what}");
        // The next process finds it so, whatever the driver does by then.
        let again = world.volumes();
        assert_eq!(mount(&again, &a, wanted(mode, false), true).await.unwrap(), published, "{what}");
        assert!(label.is_none() || !published.relabel, "{what}");
        again.tear_down("a").await.unwrap();
        assert_eq!(world.calls(), ["unpublish h", "unstage h"]);
        assert_eq!(world.labels("a"), (None, None));
    };
    let (yes, no) = (json!({"seLinuxMount": true}), json!({"seLinuxMount": false}));
    let once = "ReadWriteOncePod";
    check(yes.clone(), true, once, "s0:c1,c2", Some(LABEL)).await;
    check(no, true, once, "s0:c1,c2", None).await;
    check(json!({}), true, once, "s0:c1,c2", None).await;
    check(yes.clone(), true, once, "", None).await;
    check(yes.clone(), true, "ReadWriteOnce", "s0:c1,c2", None).await;
    check(yes, false, once, "s0:c1,c2", None).await;
}

/// Upstream's cases of `Test_AddPodToVolume_Positive_SELinux` and `Test_MarkDeviceAsMounted_Positive_SELinux`, as far as a Pod
/// sees them.
#[tokio::test]
async fn a_pod_waits_for_a_volume_with_another_label() {
    let world = World::new(json!({"seLinuxMount": true}), (true, true));
    let (volumes, wanted) = (world.volumes(), || wanted("ReadWriteMany", false));
    let (a, b, c) = (pod("a", "s0:c1,c2"), pod("b", "s0:c1,c2"), pod("c", "s0:c3"));
    mount(&volumes, &a, wanted(), false).await.unwrap();
    mount(&volumes, &b, wanted(), false).await.unwrap();
    let with = |call: &str, label: &str| format!("{call} h noatime context=\"{label}\"");
    let calls = [with("stage", LABEL), with("publish", LABEL), with("publish", LABEL)];
    assert_eq!(world.calls(), calls);
    let failed = |why: &str| {
        format!(
            "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: {why}"
        )
    };
    let error = mount(&volumes, &c, wanted(), false).await.unwrap_err();
    let conflict = format!("conflicting SELinux labels of volume pv: \"{LABEL}\" and \"{OTHER}\"");
    assert_eq!((error.reason(), error.to_string()), ("FailedMount", failed(&conflict)));
    // Another process knows of no Pod before it is told of one.
    let again = world.volumes();
    let error = mount(&again, &c, wanted(), false).await.unwrap_err().to_string();
    let waiting = format!(
        "waiting for unmount of volume \"kubernetes.io/csi/{DRIVER}^h\", because it is already mounted to a different pod with a different SELinux label"
    );
    assert_eq!(error, failed(&waiting));
    assert!(world.calls().is_empty());
    // The one that waits is there when the last one leaves, so it unstages the volume itself.
    again.tear_down("a").await.unwrap();
    again.tear_down("b").await.unwrap();
    assert_eq!(world.calls(), ["unpublish h", "unpublish h"]);
    mount(&again, &c, wanted(), false).await.unwrap();
    assert_eq!(world.calls(), ["unstage h".to_owned(), with("stage", OTHER), with("publish", OTHER)]);
    again.tear_down("c").await.unwrap();
    assert_eq!(world.calls(), ["unpublish h", "unstage h"]);
    let mut page = Page::default();
    world.metrics.write(&mut page);
    let labels = format!("{{access_mode=\"RWX\",volume_plugin=\"kubernetes.io/csi/{DRIVER}\"}}");
    for line in [
        format!("volume_manager_selinux_volume_context_mismatch_errors_total{labels} 1"),
        format!("volume_manager_selinux_volumes_admitted_total{labels} 2"),
    ] {
        assert!(page.text().lines().any(|l| l == line), "{line}");
    }
}

/// A volume that is published again and again keeps its label.
#[tokio::test]
async fn labels_of_volumes_that_are_published_again() {
    let world = World::new(json!({"seLinuxMount": true, "requiresRepublish": true}), (true, false));
    let (volumes, wanted) = (world.volumes(), || wanted("ReadWriteOncePod", false));
    let a = pod("a", "s0:c1,c2");
    mount(&volumes, &a, wanted(), false).await.unwrap();
    let again = world.volumes();
    mount(&again, &a, wanted(), true).await.unwrap();
    let publish = format!("publish h noatime context=\"{LABEL}\"");
    assert_eq!(world.calls()[1..], [publish.clone(), publish]);
    assert_eq!(world.labels("a").0.as_deref(), Some(LABEL));
    again.tear_down("a").await.unwrap();
}
