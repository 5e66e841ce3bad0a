use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use api::Status;
use client::{Informer, Recorder, Selection};
use component::Clock;
use k8s_openapi::api::core::v1::Event;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::devices::tests::put;
use super::format::tests::Loop;
use super::host::tests::host;
use super::iscsi::tests::{PORTAL, TARGET, calls, iscsiadm};
use super::*;
use crate::csi::InUse;
use crate::metrics::Metrics;
use crate::node::NodeView;
use crate::recorder::PodRecorder;
use crate::testing::{self, Answers};
use crate::volumes::giving::Giver;
use crate::volumes::mounts;
use crate::volumes::selinux::{Labels, tests::machine};

/// An API server that has one Secret.
struct Api;

impl Answers for Api {
    fn answer(&self, call: &client::Call) -> Result<Value, Status> {
        match (&*call.namespace, &*call.name) {
            ("n", "s") => Ok(json!({"apiVersion": "v1", "kind": "Secret", "type": "k8s.io/d",
                "metadata": {"name": "s", "namespace": "n"}, "data": {"key": "c2VjcmV0"}})),
            (_, name) => Err(Status::failure(404, "NotFound", format!("secrets {name:?} not found"))),
        }
    }
}

/// A node with a directory of its own.
struct Node {
    dir: tempfile::TempDir,
    in_use: Arc<InUse>,
    scripts: Vec<(&'static str, String)>,
    /// Whether the controller manager attaches its volumes.
    controller_attaches: bool,
    events: Mutex<Vec<mpsc::Receiver<Event>>>,
}

impl Node {
    fn new(scripts: impl FnOnce(&Path) -> Vec<(&'static str, String)>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let scripts = scripts(dir.path());
        let (in_use, events) = (Arc::default(), Mutex::default());
        Self { in_use, scripts, controller_attaches: true, events, dir }
    }

    fn host(&self) -> Host {
        let scripts: Vec<(&str, &str)> = self.scripts.iter().map(|(n, s)| (*n, s.as_str())).collect();
        host(self.dir.path(), &scripts)
    }

    /// The part of another process.
    fn volumes(&self) -> DiskVolumes {
        self.volumes_beside(&Arc::new(Api))
    }

    fn volumes_beside(&self, api: &Arc<impl Answers>) -> DiskVolumes {
        let client = testing::client(api);
        let node = NodeView::new("n", Informer::new(&client, Selection::default()), 1);
        let (recorder, events) = Recorder::channel("kubelet", Clock::system());
        self.events.lock().push(events);
        let recorder = PodRecorder(recorder);
        let given = Given {
            client,
            node,
            in_use: self.in_use.clone(),
            giver: Giver { recorder, pods: self.path("kubelet/pods") },
            root: self.path("kubelet"),
            drivers: self.path("exec"),
            standalone: true,
            clock: Clock::system(),
            node_name: "n".into(),
            controller_attaches: self.controller_attaches,
            labels: Labels::new(&self.dir.path().join("root"), false, &Metrics::default()),
        };
        DiskVolumes::with(given, self.host())
    }

    /// The Events that were not asked for yet: reasons and messages.
    fn events(&self) -> Vec<(String, String)> {
        let mut told = Vec::new();
        for events in self.events.lock().iter_mut() {
            while let Ok(event) = events.try_recv() {
                told.push((event.reason.unwrap_or_default(), event.message.unwrap_or_default()));
            }
        }
        told
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// Nothing of any volume is left.
    fn is_clean(&self) {
        let left = super::room::staged(&self.path("kubelet/plugins/kubernetes.io")).unwrap();
        assert!(left.is_empty(), "{left:?}");
        assert!(self.in_use.all().is_empty());
        let below = mounts::mount_points().unwrap();
        assert!(!below.iter().any(|p| p.starts_with(self.dir.path())), "{below:?}");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = mounts::unmount_below(self.dir.path());
    }
}

fn pod(uid: &str, more: Value) -> Pod {
    let pod = json!({"metadata": {"name": uid, "namespace": "n", "uid": uid}, "spec": more});
    serde_json::from_value(pod).unwrap()
}

fn inline(volume: Value) -> Arc<Disk> {
    let volume = serde_json::from_value(volume).unwrap();
    Arc::new(Disk::inline(&pod("u", json!({"containers": []})), &volume).unwrap().unwrap())
}

fn persistent(spec: Value, read_only: bool) -> Arc<Disk> {
    let volume = json!({"metadata": {"name": "pv"}, "spec": spec});
    Arc::new(
        Disk::persistent(&serde_json::from_value(volume).unwrap(), ("n", "c"), read_only).unwrap().unwrap(),
    )
}

fn path((mounted, stale): (Mounted, Option<DiskError>)) -> PathBuf {
    assert!(stale.is_none(), "{stale:?}");
    match mounted {
        Mounted::Path { path, .. } | Mounted::Device { path, .. } => path,
        Mounted::Image { .. } => panic!("an image"),
    }
}

fn lun() -> Value {
    json!({"targetPortal": "192.0.2.1", "iqn": TARGET, "lun": 1, "fsType": "ext4"})
}

/// A node with a device behind an iSCSI target.
fn iscsi_node() -> (Node, Loop) {
    let mut device = None;
    let node = Node::new(|dir| {
        let made = Loop::new(dir);
        let script = iscsiadm(dir, &made.0.to_string_lossy());
        device = Some(made);
        vec![("iscsiadm", script)]
    });
    (node, device.unwrap())
}

#[tokio::test]
async fn a_lun_is_shared_by_pods_and_logged_out_of_after_the_last() {
    let (node, device) = iscsi_node();
    let volumes = node.volumes();
    let grouped = pod("a", json!({"containers": [], "securityContext": {"fsGroup": 4711}}));
    let disk = || inline(json!({"name": "v", "iscsi": lun()}));
    let first = path(volumes.mount(&grouped, "v", disk(), false).await.unwrap());
    assert_eq!(first, node.path("kubelet/pods/a/volumes/kubernetes.io~iscsi/v"));
    let root = fs::metadata(&first).unwrap();
    assert_eq!((root.gid(), root.permissions().mode() & 0o2070), (4711, 0o2070));
    fs::write(first.join("file"), "x").unwrap();
    let name = format!("kubernetes.io/iscsi/192.0.2.1:{TARGET}:1");
    assert_eq!(node.in_use.all(), [name]);
    let other = pod("b", json!({"containers": []}));
    let read_only = inline(
        json!({"name": "w", "iscsi": {"readOnly": true, "targetPortal": PORTAL, "iqn": TARGET, "lun": 1}}),
    );
    let second = path(volumes.mount(&other, "w", read_only, false).await.unwrap());
    assert_eq!(fs::read_to_string(second.join("file")).unwrap(), "x");
    assert!(fs::write(second.join("file"), "y").is_err());
    let own = volumes.filesystems("a");
    assert_eq!(own, [("v".to_owned(), None, first.clone())]);
    calls(node.dir.path());
    volumes.tear_down("a").await.unwrap();
    assert!(!first.exists() && second.join("file").exists() && calls(node.dir.path()).is_empty());
    volumes.tear_down("b").await.unwrap();
    let logout = format!("-m node -p {PORTAL} -T {TARGET} --logout -I default");
    assert_eq!(calls(node.dir.path())[0], logout);
    node.is_clean();
    drop(device);
}

#[tokio::test]
async fn another_process_takes_back_what_one_gave() {
    let (node, device) = iscsi_node();
    let (a, b) = (pod("a", json!({"containers": []})), pod("b", json!({"containers": []})));
    let disk = || persistent(json!({"iscsi": lun()}), false);
    let first = node.volumes();
    first.mount(&a, "v", disk(), false).await.unwrap();
    let at = path(first.mount(&b, "v", disk(), false).await.unwrap());
    drop(first);
    node.in_use.remove(&format!("kubernetes.io/iscsi/192.0.2.1:{TARGET}:1"));
    let second = node.volumes();
    second.recover().await.unwrap();
    // A source need not name the port: the controller may know it by either name.
    let names = [PORTAL, "192.0.2.1"].map(|portal| format!("kubernetes.io/iscsi/{portal}:{TARGET}:1"));
    assert_eq!(node.in_use.all(), names);
    second.sweep().await.unwrap();
    assert!(mounts::is_mount_point(&at).unwrap(), "Pods have it");
    calls(node.dir.path());
    // The containers of one Pod run on; nothing is called for them.
    assert_eq!(path(second.mount(&b, "v", disk(), true).await.unwrap()), at);
    assert_eq!(node.in_use.all(), names[1..], "the source says which");
    assert!(calls(node.dir.path()).is_empty());
    assert!(second.others("a", &disk()).await.unwrap() && second.others("b", &disk()).await.unwrap());
    second.tear_down("a").await.unwrap();
    assert!(!second.others("b", &disk()).await.unwrap());
    drop(second);
    node.in_use.remove(&format!("kubernetes.io/iscsi/192.0.2.1:{TARGET}:1"));
    let third = node.volumes();
    third.recover().await.unwrap();
    third.tear_down("b").await.unwrap();
    node.is_clean();
    // One that was interrupted between two steps.
    let staged = disk().staged();
    let dir = third.room.dir(&staged);
    fs::create_dir_all(&dir).unwrap();
    third.recover().await.unwrap();
    third.sweep().await.unwrap();
    node.is_clean();
    drop(device);
}

#[tokio::test]
async fn a_lun_can_be_a_device() {
    let (node, device) = iscsi_node();
    let volumes = node.volumes();
    let disk = || persistent(json!({"iscsi": lun(), "volumeMode": "Block"}), false);
    let a = pod("a", json!({"containers": []}));
    let mounted = volumes.mount(&a, "v", disk(), false).await.unwrap();
    let at = node.path(&format!(
        "kubelet/plugins/kubernetes.io/iscsi/volumeDevices/iface-default/{PORTAL}-{TARGET}-lun-1/a"
    ));
    assert_eq!(mounted.0, Mounted::Device { path: at.clone(), read_only: false });
    assert_eq!(fs::metadata(&at).unwrap().rdev(), fs::metadata(&device.0).unwrap().rdev());
    let link = node.path("kubelet/pods/a/volumeDevices/kubernetes.io~iscsi/pv");
    assert_eq!(fs::read_link(&link).unwrap(), at);
    let told = [("globalMapPath", &at), ("volumeMapPath", &link)].map(|(name, path)| {
        let dir = path.parent().unwrap().display().to_string();
        format!("MapVolume.MapPodDevice succeeded for volume \"pv\" {name} {dir:?}")
    });
    let events = node.events();
    assert!(events.iter().all(|(reason, _)| reason == "SuccessfulMountVolume"), "{events:?}");
    assert_eq!(events.into_iter().map(|(_, message)| message).collect::<Vec<_>>(), told);
    let volumes = node.volumes();
    volumes.recover().await.unwrap();
    volumes.sweep().await.unwrap();
    assert!(at.exists() && volumes.others("b", &disk()).await.unwrap());
    assert!(!volumes.others("a", &disk()).await.unwrap() && volumes.filesystems("a").is_empty());
    assert_eq!(path(volumes.mount(&a, "v", disk(), true).await.unwrap()), at);
    volumes.tear_down("a").await.unwrap();
    assert!(!link.exists() && host_has_no_session(&node));
    node.is_clean();
}

fn host_has_no_session(node: &Node) -> bool {
    node.host().portals(TARGET).unwrap().is_empty()
}

#[tokio::test]
async fn a_missing_tool_is_named_and_holds_up_no_pods_end() {
    let mut node = Node::new(|_| Vec::new());
    node.scripts.clear();
    let volumes = {
        let volumes = node.volumes();
        let Room { of, mut host, .. } = Arc::into_inner(volumes.room).unwrap();
        host.path.truncate(1);
        DiskVolumes::with(of, host)
    };
    let a = pod("a", json!({"containers": []}));
    let error =
        volumes.mount(&a, "v", inline(json!({"name": "v", "iscsi": lun()})), false).await.unwrap_err();
    assert_eq!(error.reason(), "FailedMount");
    let told = error.to_string();
    let expected =
        "MountVolume.WaitForAttach failed for volume \"v\" : iscsi: could not read iface default error: ";
    assert!(told.starts_with(expected) && told.contains("\"iscsiadm\": executable file not found"), "{told}");
    volumes.tear_down("a").await.unwrap();
    node.is_clean();
}

#[tokio::test]
async fn a_disk_behind_fibre_channel() {
    let mut device = None;
    let node = Node::new(|dir| {
        device = Some(Loop::new(dir));
        vec![("blockdev", String::new())]
    });
    let (device, volumes) = (device.unwrap(), node.volumes());
    let host = node.host();
    let name = device.0.file_name().unwrap().to_str().unwrap().to_owned();
    let deleted = format!("/sys/block/{name}/device/delete");
    put(&host, &deleted, "");
    let a = pod("a", json!({"containers": []}));
    let disk = || inline(json!({"name": "v", "fc": {"targetWWNs": ["500a0981891b8dc5"], "lun": 0}}));
    let told = volumes.mount(&a, "v", disk(), false).await.unwrap_err().to_string();
    assert_eq!(told, "MountVolume.WaitForAttach failed for volume \"v\" : no fc disk found");
    fs::create_dir_all(host.at("/dev/disk/by-path")).unwrap();
    let way = host.at("/dev/disk/by-path/pci-0000:41:00.0-fc-0x500a0981891b8dc5-lun-0");
    std::os::unix::fs::symlink(&device.0, way).unwrap();
    let at = path(volumes.mount(&a, "v", disk(), false).await.unwrap());
    fs::write(at.join("file"), "x").unwrap();
    assert_eq!(node.in_use.all(), ["kubernetes.io/fc/[500a0981891b8dc5]:0"]);
    volumes.tear_down("a").await.unwrap();
    assert_eq!(fs::read_to_string(host.at(&deleted)).unwrap(), "1");
    node.is_clean();
}

#[tokio::test]
async fn a_device_of_the_node_gets_a_file_system() {
    let mut device = None;
    let node = Node::new(|dir| {
        device = Some(Loop::new(dir));
        Vec::new()
    });
    let (device, volumes) = (device.unwrap(), node.volumes());
    let a = pod("a", json!({"containers": []}));
    let disk = persistent(json!({"local": {"path": device.0}}), false);
    let at = path(volumes.mount(&a, "v", disk, false).await.unwrap());
    assert_eq!(at, node.path("kubelet/pods/a/volumes/kubernetes.io~local-volume/pv"));
    fs::write(at.join("file"), "x").unwrap();
    assert!(node.in_use.all().is_empty(), "nobody attaches it");
    // A directory of the node's own beside it is not this module's.
    let own = node.path("kubelet/pods/a/volumes/kubernetes.io~local-volume/own");
    local_bind(&node.path("own"), &own);
    volumes.tear_down("a").await.unwrap();
    assert!(!at.exists() && mounts::is_mount_point(&own).unwrap());
    mounts::unmount_all_at(&own).unwrap();
    node.is_clean();
    let missing = persistent(json!({"local": {"path": "/none"}, "volumeMode": "Block"}), false);
    let error = volumes.mount(&a, "v", missing, false).await.unwrap_err();
    assert_eq!(error.reason(), "FailedMapVolume");
    let told = error.to_string();
    assert_eq!(
        told,
        "MapVolume.WaitForAttach failed for volume \"pv\" : path \"/none\" is not a block device"
    );
}

fn local_bind(from: &Path, to: &Path) {
    fs::create_dir_all(from).unwrap();
    super::super::local::bind(from, to, false).unwrap();
}

/// A driver that notes its calls and answers as `cases` say; it does not know other commands.
fn install(node: &Node, driver: &str, cases: &str) {
    let at = node.path("exec").join(flex_directory(driver));
    fs::create_dir_all(&at).unwrap();
    let program = at.join(driver.rsplit('/').next().unwrap());
    let script = format!(
        "#!/bin/sh\nD={dir}\necho \"$@\" >> $D/calls\nok() {{ echo '{{\"status\": \"Success\"'\"$1\"'}}'; exit 0; }}\ncase $1 in\n{cases}\nesac\necho '{{\"status\": \"Not supported\"}}'; exit 1\n",
        dir = node.dir.path().display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
}

fn flex_directory(driver: &str) -> String {
    plugins::flex::directory(driver)
}

#[tokio::test]
async fn a_driver_mounts_for_each_pod() {
    let node = Node::new(|_| Vec::new());
    let volumes = node.volumes();
    let a =
        pod("a", json!({"containers": [], "serviceAccountName": "sa", "securityContext": {"fsGroup": 42}}));
    let source = json!({"driver": "k8s.io/d", "options": {"share": "x"}, "secretRef": {"name": "s"}});
    let disk = || inline(json!({"name": "v", "flexVolume": source}));
    let told = volumes.mount(&a, "v", disk(), false).await.unwrap_err().to_string();
    let expected = "MountVolume.NewMounter initialization failed for volume \"v\" : no volume plugin matched: the driver ";
    assert!(told.starts_with(expected) && told.contains("exec/k8s.io~d/d is not there"), "{told}");
    install(
        &node,
        "k8s.io/d",
        "init) ok ', \"capabilities\": {\"attach\": false, \"supportsMetrics\": true}';;\nmount) mkdir -p $D/share && mount --bind $D/share $2 && ok;;\nunmount) umount $2 && ok;;",
    );
    let at = path(volumes.mount(&a, "v", disk(), false).await.unwrap());
    assert_eq!(at, node.path("kubelet/pods/a/volumes/k8s.io~d/v"));
    let share = fs::metadata(node.path("share")).unwrap();
    assert_eq!((share.gid(), share.permissions().mode() & 0o2070), (42, 0o2070));
    let options = r#"{"kubernetes.io/fsType":"","kubernetes.io/mounterArgs.FsGroup":"42","kubernetes.io/pod.name":"a","kubernetes.io/pod.namespace":"n","kubernetes.io/pod.uid":"a","kubernetes.io/pvOrVolumeName":"v","kubernetes.io/readwrite":"rw","kubernetes.io/secret/key":"c2VjcmV0","kubernetes.io/serviceAccount.name":"sa","share":"x"}"#;
    assert_eq!(calls(node.dir.path()), ["init".to_owned(), format!("mount {} {options}", at.display())]);
    assert_eq!(volumes.filesystems("a"), [("v".to_owned(), None, at.clone())]);
    // It is there already, for this process and for the next one.
    for volumes in [&volumes, &node.volumes()] {
        assert_eq!(path(volumes.mount(&a, "v", disk(), true).await.unwrap()), at);
    }
    assert_eq!(calls(node.dir.path()), ["init"]);
    node.volumes().tear_down("a").await.unwrap();
    assert_eq!(calls(node.dir.path()), ["init".to_owned(), format!("unmount {}", at.display())]);
    volumes.tear_down("a").await.unwrap();
    assert!(!at.exists());
    node.is_clean();
}

#[tokio::test]
async fn a_driver_mounts_a_device_once() {
    let mut device = None;
    let node = Node::new(|dir| {
        device = Some(Loop::new(dir));
        Vec::new()
    });
    let (device, volumes) = (device.unwrap(), node.volumes());
    // Upstream's defaults do the rest: the device is formatted and mounted, and bound into the Pod.
    let cases = format!("init) ok;;\nwaitforattach) ok ', \"device\": \"{}\"';;", device.0.display());
    install(&node, "k8s.io/d", &cases);
    let a = pod("a", json!({"containers": []}));
    let disk = || persistent(json!({"flexVolume": {"driver": "k8s.io/d", "fsType": "ext4"}}), false);
    let at = path(volumes.mount(&a, "v", disk(), false).await.unwrap());
    fs::write(at.join("file"), "x").unwrap();
    let global = node.path("kubelet/plugins/kubernetes.io/flexvolume/k8s.io/d/mounts/pv");
    assert_eq!(fs::read_to_string(global.join("file")).unwrap(), "x");
    assert_eq!(node.in_use.all(), ["k8s.io/d/pv"]);
    let options = r#"{"kubernetes.io/fsType":"ext4","kubernetes.io/pvOrVolumeName":"pv","kubernetes.io/readwrite":"rw"}"#;
    let made = calls(node.dir.path());
    assert_eq!(made[..2], ["init".to_owned(), format!("getvolumename {options}")]);
    assert_eq!(made[2], format!("waitforattach  {options}"));
    assert_eq!(made[3], format!("mountdevice {} {} {options}", global.display(), device.0.display()));
    // The driver is gone; its volumes are not there for ever.
    fs::remove_dir_all(node.path("exec")).unwrap();
    let next = node.volumes();
    next.recover().await.unwrap();
    next.sweep().await.unwrap();
    assert!(at.join("file").exists());
    next.tear_down("a").await.unwrap();
    assert!(!at.exists() && !global.exists());
    node.is_clean();
}

#[tokio::test]
async fn a_kubelet_attaches_and_detaches_itself() {
    let mut device = None;
    let mut node = Node::new(|dir| {
        device = Some(Loop::new(dir));
        Vec::new()
    });
    node.controller_attaches = false;
    let (device, volumes) = (device.unwrap(), node.volumes());
    let driver = |attach: &str, detach: &str| {
        install(&node, "k8s.io/d", &format!("init) ok;;\nattach) {attach};;\ndetach) {detach};;"));
    };
    let failed = "echo '{\"status\": \"Failure\", \"message\": \"no\"}'; exit 1";
    driver(failed, "ok");
    let a = pod("a", json!({"containers": []}));
    let disk = || persistent(json!({"flexVolume": {"driver": "k8s.io/d", "fsType": "ext4"}}), false);
    let error = volumes.mount(&a, "v", disk(), false).await.unwrap_err();
    assert_eq!(error.reason(), "FailedAttachVolume");
    let expected =
        "AttachVolume.Attach failed for volume \"pv\" : attach command failed, status: Failure, reason: no";
    assert_eq!(error.to_string(), expected);
    assert!(node.events().is_empty());
    driver(&format!("ok ', \"device\": \"{}\"'", device.0.display()), failed);
    calls(node.dir.path());
    let at = path(volumes.mount(&a, "v", disk(), false).await.unwrap());
    let options = r#"{"kubernetes.io/fsType":"ext4","kubernetes.io/pvOrVolumeName":"pv","kubernetes.io/readwrite":"rw"}"#;
    let made = calls(node.dir.path());
    assert_eq!(made[..2], ["init".to_owned(), format!("attach {options} n")]);
    assert!(made.contains(&format!("waitforattach {} {options}", device.0.display())), "{made:?}");
    let attached = "AttachVolume.Attach succeeded for volume \"pv\" ".to_owned();
    assert_eq!(node.events(), [("SuccessfulAttachVolume".to_owned(), attached)]);
    assert_eq!(node.in_use.all(), ["k8s.io/d/pv"]);
    fs::write(at.join("file"), "x").unwrap();
    // Another Pod, and another process: it is attached already.
    let next = node.volumes();
    next.mount(&pod("b", json!({"containers": []})), "v", disk(), false).await.unwrap();
    assert!(!calls(node.dir.path()).iter().any(|call| call.starts_with("attach")));
    next.tear_down("b").await.unwrap();
    assert!(!calls(node.dir.path()).iter().any(|call| call.starts_with("detach")));
    // The volume cannot be detached; the next process knows that it is attached.
    let told = next.tear_down("a").await.unwrap_err().to_string();
    let expected =
        "DetachVolume.Detach failed for volume \"pv\" : detach command failed, status: Failure, reason: no";
    assert_eq!(told, expected);
    assert_eq!(node.in_use.all(), ["k8s.io/d/pv"]);
    calls(node.dir.path());
    driver("ok", "ok");
    let last = node.volumes();
    last.recover().await.unwrap();
    last.sweep().await.unwrap();
    assert_eq!(calls(node.dir.path()), ["init", "detach pv n"]);
    node.is_clean();
}

#[tokio::test]
async fn a_lun_needs_no_attaching() {
    let (mut node, _device) = iscsi_node();
    node.controller_attaches = false;
    let volumes = node.volumes();
    let a = pod("a", json!({"containers": []}));
    for _ in 0..2 {
        volumes.mount(&a, "v", inline(json!({"name": "v", "iscsi": lun()})), false).await.unwrap();
    }
    let attached = "AttachVolume.Attach succeeded for volume \"v\" ".to_owned();
    assert_eq!(node.events(), [("SuccessfulAttachVolume".to_owned(), attached)]);
    volumes.tear_down("a").await.unwrap();
    node.is_clean();
}

#[tokio::test]
async fn a_drivers_failure_is_told() {
    let node = Node::new(|_| Vec::new());
    let volumes = node.volumes();
    install(
        &node,
        "d",
        "init) ok ', \"capabilities\": {\"attach\": false}';;\nmount) echo '{\"status\": \"Failure\", \"message\": \"no share\"}'; exit 1;;",
    );
    let a = pod("a", json!({"containers": []}));
    let told =
        volumes.mount(&a, "v", inline(json!({"name": "v", "flexVolume": {"driver": "d"}})), false).await;
    let expected =
        "MountVolume.SetUp failed for volume \"v\" : mount command failed, status: Failure, reason: no share";
    assert_eq!(told.unwrap_err().to_string(), expected);
    assert!(!node.path("kubelet/pods/a/volumes/d/v").exists());
    // The Secret is another driver's.
    let source = json!({"driver": "d", "secretRef": {"name": "s"}});
    let told = volumes.mount(&a, "v", inline(json!({"name": "v", "flexVolume": source})), false).await;
    let expected = "couldn't get secret n/s error: cannot get secret of type d";
    assert!(told.unwrap_err().to_string().ends_with(expected));
    volumes.tear_down("a").await.unwrap();
    node.is_clean();
}

/// A process that knows the mounts of no Pod takes no volume from one, also where the kubelet's directory is reached by a
/// link.
#[tokio::test]
async fn a_lun_stays_for_its_last_pod_behind_a_link() {
    let (node, _device) = iscsi_node();
    fs::create_dir(node.path("real")).unwrap();
    std::os::unix::fs::symlink("real", node.path("kubelet")).unwrap();
    let volumes = node.volumes();
    let disk = || inline(json!({"name": "v", "iscsi": lun()}));
    let mut at = PathBuf::new();
    for uid in ["a", "b"] {
        let pod = pod(uid, json!({"containers": []}));
        at = path(volumes.mount(&pod, "v", disk(), false).await.unwrap());
    }
    fs::write(at.join("file"), "x").unwrap();
    node.in_use.remove(&format!("kubernetes.io/iscsi/192.0.2.1:{TARGET}:1"));
    let again = node.volumes();
    again.recover().await.unwrap();
    again.sweep().await.unwrap();
    again.tear_down("a").await.unwrap();
    assert_eq!(fs::read_to_string(at.join("file")).unwrap(), "x");
    again.tear_down("b").await.unwrap();
    node.is_clean();
}

/// A kernel without SELinux takes no label, so the program that mounts leaves it out; all else is real.
#[tokio::test]
async fn a_lun_is_mounted_with_the_label_of_its_pod() {
    let mut device = None;
    let node = Node::new(|dir| {
        let made = Loop::new(dir);
        let script = iscsiadm(dir, &made.0.to_string_lossy());
        device = Some(made);
        let mount = format!(
            "echo \"mount $4\" >> {}/calls\nexec /bin/mount -t \"$2\" -o \"$(echo \"$4\" | sed 's/context=\"[^\"]*\",//')\" -- \"$6\" \"$7\"",
            dir.display()
        );
        vec![("iscsiadm", script), ("mount", mount)]
    });
    machine(&node.host().root);
    let volumes = node.volumes();
    let of = |modes: Value| persistent(json!({"iscsi": lun(), "accessModes": modes}), false);
    let labelled = |uid: &str, levels: [&str; 2]| {
        let container = |level: &&str| {
            json!({"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                "securityContext": {"seLinuxOptions": {"level": level}}})
        };
        pod(uid, json!({"containers": levels.iter().map(container).collect::<Vec<_>>()}))
    };
    let once = || of(json!(["ReadWriteOncePod"]));
    let error = volumes.mount(&labelled("a", ["s0:c1", "s0:c2"]), "v", once(), false).await.unwrap_err();
    let expected = "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: multiple SELinux labels found: system_u:object_r:container_file_t:s0:c1,system_u:object_r:container_file_t:s0:c2";
    assert_eq!((error.reason(), error.to_string().as_str()), ("FailedMount", expected));
    let mounts =
        || calls(node.dir.path()).into_iter().filter(|c| c.starts_with("mount ")).collect::<Vec<_>>();
    let (a, b) = (labelled("a", ["s0:c1,c2"; 2]), labelled("b", ["s0:c1,c2"; 2]));
    let unlabelled = |relabel: bool, mounted: (Mounted, Option<DiskError>)| {
        assert!(matches!(mounted.0, Mounted::Path { relabel: r, .. } if r == relabel), "{mounted:?}");
    };
    // The way in which a process mounted a volume is known to it, however the kernel writes the label.
    for _ in 0..2 {
        unlabelled(false, volumes.mount(&a, "v", once(), false).await.unwrap());
    }
    let label = "context=\"system_u:object_r:container_file_t:s0:c1,c2\"";
    assert_eq!(mounts(), [format!("mount {label},defaults")]);
    // The kernel says that it has another label, and another process knows no better.
    let again = node.volumes();
    let error = again.mount(&b, "v", once(), false).await.unwrap_err().to_string();
    let expected = format!(
        "waiting for unmount of volume \"kubernetes.io/iscsi/192.0.2.1:{TARGET}:1\", because it is already mounted to a different pod with a different SELinux label"
    );
    assert!(error.ends_with(&expected), "{error}");
    // A running Pod keeps what it has; one that does not run gets it anew.
    unlabelled(true, again.mount(&a, "v", once(), true).await.unwrap());
    assert!(mounts().is_empty());
    let third = node.volumes();
    third.mount(&a, "v", once(), false).await.unwrap();
    assert_eq!(mounts(), [format!("mount {label},defaults")]);
    third.tear_down("a").await.unwrap();
    // The one that waited takes it.
    again.mount(&b, "v", once(), false).await.unwrap();
    assert_eq!(mounts(), [format!("mount {label},defaults")]);
    again.tear_down("b").await.unwrap();
    again.tear_down("a").await.unwrap();
    // One for several Pods has none, unless the gate says so.
    unlabelled(true, again.mount(&a, "v", of(json!(["ReadWriteOnce"])), false).await.unwrap());
    assert_eq!(mounts(), ["mount defaults"]);
    again.tear_down("a").await.unwrap();
    node.is_clean();
}

/// A claim that grows on its node, and the answers of an API server about it.
struct Growing(Mutex<Vec<Value>>);

impl Answers for Growing {
    fn answer(&self, call: &client::Call) -> Result<Value, Status> {
        if !call.body.is_empty() {
            self.0.lock().push(serde_json::from_slice(&call.body).unwrap());
        }
        match &*call.name {
            "c" => Ok(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": "c", "namespace": "n", "resourceVersion": "7"},
                "status": {"capacity": {"storage": "16Mi"}, "allocatedResources": {"storage": "32Mi"},
                    "allocatedResourceStatuses": {"storage": "NodeResizePending"}}})),
            "pv" => Ok(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"},
                "spec": {"capacity": {"storage": "32Mi"}}})),
            name => Err(Status::failure(404, "NotFound", format!("{name:?} not found"))),
        }
    }
}

#[tokio::test]
async fn who_only_reads_makes_nothing_larger() {
    let mut device = None;
    let node = Node::new(|dir| {
        device = Some(Loop::new(dir));
        Vec::new()
    });
    let device = device.unwrap();
    let attach = format!("init) ok;;\nwaitforattach) ok ', \"device\": \"{}\"';;", device.0.display());
    install(&node, "k8s.io/d", &attach);
    let a = pod("a", json!({"containers": []}));
    let disk = |ro| persistent(json!({"flexVolume": {"driver": "k8s.io/d", "fsType": "ext4"}}), ro);
    // The device gets its file system.
    let first = node.volumes();
    first.mount(&a, "v", disk(false), false).await.unwrap();
    first.tear_down("a").await.unwrap();
    let api = Arc::new(Growing(Mutex::default()));
    let volumes = node.volumes_beside(&api);
    volumes.mount(&a, "v", disk(true), false).await.unwrap();
    let refused =
        "MountVolume.NodeExpandVolume failed for volume \"pv\" requested read-only file system".to_owned();
    assert_eq!(node.events(), vec![("FileSystemResizeFailed".to_owned(), refused); 2]);
    assert!(api.0.lock().is_empty() && volumes.next("a").is_none());
    assert!(!calls(node.dir.path()).iter().any(|call| call.starts_with("expandfs")));
    volumes.tear_down("a").await.unwrap();
    node.is_clean();
}

/// The file system of a kernel grows only for those who may resize file systems, so its program only says so.
#[tokio::test]
async fn a_flex_volume_grows() {
    let mut device = None;
    let node = Node::new(|dir| {
        device = Some(Loop::new(dir));
        vec![("resize2fs", format!("echo \"resize2fs $*\" >> {}/calls", dir.display()))]
    });
    let device = device.unwrap();
    let attach = format!("init) ok;;\nwaitforattach) ok ', \"device\": \"{}\"';;", device.0.display());
    install(&node, "k8s.io/d", &attach);
    let api = Arc::new(Growing(Mutex::default()));
    let volumes = node.volumes_beside(&api);
    let a = pod("a", json!({"containers": []}));
    let disk = || persistent(json!({"flexVolume": {"driver": "k8s.io/d", "fsType": "ext4"}}), false);
    // The driver leaves it to the kubelet.
    let at = path(volumes.mount(&a, "v", disk(), false).await.unwrap());
    let options = r#"{"kubernetes.io/fsType":"ext4","kubernetes.io/pvOrVolumeName":"pv","kubernetes.io/readwrite":"rw"}"#;
    let call =
        format!("expandfs {options} {} {} {} {}", device.0.display(), at.display(), 32 << 20, 16 << 20);
    let made = calls(node.dir.path());
    assert_eq!(made[made.len() - 2..], [call, format!("resize2fs {}", device.0.display())]);
    let told = std::mem::take(&mut *api.0.lock());
    assert_eq!(told[0]["metadata"]["resourceVersion"], "7");
    assert_eq!(told[0]["status"]["allocatedResourceStatuses"]["storage"], "NodeResizeInProgress");
    assert_eq!((told.len(), &told[1]["status"]["capacity"]["storage"]), (2, &json!("32Mi")));
    let grown = "MountVolume.NodeExpandVolume succeeded for volume \"pv\" n".to_owned();
    assert_eq!(node.events(), vec![("FileSystemResizeSuccessful".to_owned(), grown); 2]);
    // While containers have it, it is looked at from time to time.
    let next = volumes.next("a").unwrap();
    assert!(path(volumes.mount(&a, "v", disk(), true).await.unwrap()) == at && api.0.lock().is_empty());
    install(
        &node,
        "k8s.io/d",
        &format!("{attach}\nexpandfs) echo '{{\"status\": \"Failure\", \"message\": \"no\"}}'; exit 1;;"),
    );
    let driver = volumes.room.drivers.get("k8s.io/d").await.unwrap();
    for known in volumes.known.lock().get_mut("a").unwrap().values_mut() {
        (known.next, known.driver) = (Some(Timestamp::MIN), Some(driver.clone()));
    }
    let (_, stale) = volumes.mount(&a, "v", disk(), true).await.unwrap();
    let stale = stale.unwrap();
    let expected = "NodeExpandVolume.NodeExpandVolume failed for volume \"pv\" : expandfs command failed, status: Failure, reason: no";
    assert_eq!((stale.reason(), stale.to_string().as_str()), ("VolumeResizeFailed", expected));
    let told = std::mem::take(&mut *api.0.lock());
    let condition = &told[1]["status"]["conditions"][0];
    assert_eq!(condition["type"], "NodeResizeError");
    assert_eq!(
        condition["message"],
        "failed to expand pvc with expandfs command failed, status: Failure, reason: no"
    );
    assert!(volumes.next("a").unwrap() >= next);
    volumes.tear_down("a").await.unwrap();
    node.is_clean();
}

/// A device of the node's own has grown by its owner's hand: its file system follows, and a device that a Pod has as such
/// has grown already.
#[tokio::test]
async fn a_local_device_grows() {
    for mode in ["Filesystem", "Block"] {
        let mut device = None;
        let node = Node::new(|dir| {
            device = Some(Loop::new(dir));
            vec![("resize2fs", format!("echo \"resize2fs $*\" >> {}/calls", dir.display()))]
        });
        let device = device.unwrap();
        let api = Arc::new(Growing(Mutex::default()));
        let volumes = node.volumes_beside(&api);
        let a = pod("a", json!({"containers": []}));
        let spec = json!({"local": {"path": device.0, "fsType": "ext4"}, "volumeMode": mode});
        volumes.mount(&a, "v", persistent(spec, false), false).await.unwrap();
        let expected =
            if mode == "Block" { vec![] } else { vec![format!("resize2fs {}", device.0.display())] };
        assert_eq!(calls(node.dir.path()), expected);
        let told = std::mem::take(&mut *api.0.lock());
        assert_eq!((told.len(), &told[1]["status"]["capacity"]["storage"]), (2, &json!("32Mi")));
        assert!(volumes.next("a").is_some(), "it is looked at from time to time");
        volumes.tear_down("a").await.unwrap();
        node.is_clean();
    }
}
