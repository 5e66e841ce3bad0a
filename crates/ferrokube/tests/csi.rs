//! Volumes of a CSI driver on a real node.

use std::fs;
use std::path::Path;

use anyhow::Result;
use serde_json::Value;
use testkit::csi::{Ability, Code, Driver, Fault};
use testkit::{Cluster, Image, Options, Signal, eventually};

const NAME: &str = "dirs.example.com";
/// A driver that took over from a plugin.
const EBS: &str = "ebs.csi.aws.com";

fn cluster(name: &str) -> Result<Cluster> {
    // Features of kubelets that are off unless somebody asks for them.
    let features = "--feature-gates=CSIVolumeHealth=true,CRIListStreaming=true,PodAndContainerStatsFromCRI=true,PodLogsQuerySplitStreams=true";
    let flags =
        ["--eviction-hard", "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%", features];
    let images = vec![Image::busybox("test.local/app:1")?];
    Cluster::start(name, Options { images, flags: flags.map(str::to_owned).into(), ..Options::default() })
}

/// The rules of the driver.
fn rules(more: &str) -> String {
    format!(
        "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {{name: {NAME}}}\nspec: {{attachRequired: false, volumeLifecycleModes: [Persistent, Ephemeral]{more}}}\n"
    )
}

/// A volume that is a directory of the driver, and its claim, both of this name.
fn volume(name: &str, more: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {name}}}
spec:
  capacity: {{storage: 1Mi}}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ""
  claimRef: {{namespace: default, name: {name}}}
  csi: {{driver: {NAME}, volumeHandle: handle-{name}{more}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}}}
spec: {{accessModes: [ReadWriteOnce], storageClassName: "", volumeName: {name}, resources: {{requests: {{storage: 1Mi}}}}}}
"#
    )
}

/// A Pod that runs a command with a volume at `/data`.
fn pod(name: &str, command: &str, source: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  securityContext: {{fsGroup: 1234}}
  containers:
  - name: c
    image: test.local/app:1
    command: [sh, -c, "{command}"]
    volumeMounts: [{{name: data, mountPath: /data}}]
  volumes: [{{name: data, {source}}}]
"#
    )
}

fn claim(name: &str) -> String {
    format!("persistentVolumeClaim: {{claimName: {name}}}")
}

fn phase(c: &Cluster, name: &str, phase: &str) -> Result<()> {
    eventually(&format!("{name} is {phase}"), || {
        Ok((c.get("pod", name)?["status"]["phase"] == phase).then_some(()))
    })
}

/// Waits for an Event about a Pod whose message contains a text.
fn event(c: &Cluster, pod: &str, reason: &str, text: &str) -> Result<()> {
    let field = format!("--field-selector=involvedObject.name={pod},reason={reason}");
    eventually(&format!("an event {reason} of {pod}: {text}"), || {
        let all: Value = serde_json::from_str(&c.kubectl(&["get", "events", &field, "-o", "json"])?)?;
        let items = all["items"].as_array().cloned().unwrap_or_default();
        let told = |e: &Value| e["message"].as_str().is_some_and(|m| m.contains(text));
        Ok(items.iter().any(told).then_some(()))
    })
}

fn drivers(c: &Cluster) -> Result<Value> {
    let all: Value = serde_json::from_str(&c.kubectl(&["get", "csinodes", "-o", "json"])?)?;
    Ok(all["items"][0]["spec"]["drivers"].clone())
}

/// Waits until nothing is left of a driver's volumes on the node.
fn nothing_left(c: &Cluster, driver: &str) -> Result<()> {
    let root = c.data_dir().join("kubelet");
    let empty = |dir: &Path| fs::read_dir(dir).map_or(true, |mut all| all.next().is_none());
    eventually("nothing is left on the node", || {
        let mounts = c.host().run("cat", &["/proc/self/mountinfo"])?;
        let mounted = mounts
            .lines()
            .any(|line| line.contains("kubernetes.io/csi") || line.contains("kubernetes.io~csi"));
        let staged = root.join("plugins/kubernetes.io/csi").join(driver);
        Ok((!mounted && empty(&staged) && empty(&root.join("pods"))).then_some(()))
    })
}

#[test]
fn a_driver_is_told_of_and_gives_inline_volumes() -> Result<()> {
    let c = cluster("csi-inline")?;
    eventually("a CSINode without drivers", || Ok(drivers(&c)?.is_null().then_some(())))?;
    let mut driver =
        Driver::with(&c, NAME, &[Ability::StageUnstageVolume], 7, &[("example.com/rack", "r1")])?;
    eventually("the driver in the CSINode", || {
        let told = serde_json::json!([{"name": NAME, "nodeID": format!("node-of-{NAME}"),
            "topologyKeys": ["example.com/rack"], "allocatable": {"count": 7}}]);
        Ok((drivers(&c)? == told).then_some(()))
    })?;
    assert_eq!(driver.registrations(), [""]);
    let nodes: Value = serde_json::from_str(&c.kubectl(&["get", "nodes", "-o", "json"])?)?;
    let meta = &nodes["items"][0]["metadata"];
    assert_eq!(meta["labels"]["example.com/rack"], "r1");
    let ids = format!("{{\"{NAME}\":\"node-of-{NAME}\"}}");
    assert_eq!(meta["annotations"]["csi.volume.kubernetes.io/nodeid"], ids);

    // Without its rules nobody knows whether the driver has inline volumes.
    c.kubectl(&["create", "secret", "generic", "key", "--from-literal=password=x"])?;
    let source = format!(
        "csi: {{driver: {NAME}, fsType: ext4, volumeAttributes: {{a: b}}, nodePublishSecretRef: {{name: key}}}}"
    );
    c.apply(&pod("inline", "stat -c %g /data; echo one > /data/f; exec sleep 100000", &source))?;
    event(
        &c,
        "inline",
        "FailedMount",
        "volume mode \"Ephemeral\" not supported by driver dirs.example.com (no CSIDriver object)",
    )?;
    c.apply(&rules(", podInfoOnMount: true, tokenRequests: [{audience: aud}], requiresRepublish: true"))?;
    phase(&c, "inline", "Running")?;
    let uid = c.get("pod", "inline")?["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let calls = driver.calls("NodePublishVolume");
    let call = calls.last().expect("a call");
    assert!(call.volume.starts_with("csi-") && call.staged.as_os_str().is_empty(), "{call:?}");
    assert_eq!(call.secrets["password"], "x");
    for (key, value) in [
        ("a", "b"),
        ("csi.storage.k8s.io/pod.name", "inline"),
        ("csi.storage.k8s.io/pod.uid", uid.as_str()),
        ("csi.storage.k8s.io/serviceAccount.name", "default"),
        ("csi.storage.k8s.io/ephemeral", "true"),
    ] {
        assert_eq!(call.context.get(key).map(String::as_str), Some(value), "{key}");
    }
    let tokens: Value = serde_json::from_str(&call.context["csi.storage.k8s.io/serviceAccount.tokens"])?;
    assert!(tokens["aud"]["token"].as_str().is_some_and(|t| t.starts_with("ey")), "{tokens}");
    eventually("the data", || Ok(fs::read_to_string(driver.data(&call.volume).join("f")).ok()))?;
    assert_eq!(c.kubectl(&["logs", "inline"])?.trim(), "1234", "the volume's group");
    assert!(driver.calls("NodeStageVolume").is_empty(), "an inline volume is not staged");

    c.kubectl(&["delete", "pod", "inline"])?;
    let data = driver.data(&call.volume);
    eventually("the volume goes with its Pod", || Ok((!data.exists()).then_some(())))?;
    nothing_left(&c, NAME)?;
    driver.stop();
    eventually("the driver is gone from the CSINode", || Ok(drivers(&c)?.is_null().then_some(())))
}

#[test]
fn volumes_survive_the_kubelet_and_are_given_back() -> Result<()> {
    let mut c = cluster("csi-volumes")?;
    let abilities = [Ability::StageUnstageVolume, Ability::GetVolumeStats, Ability::VolumeCondition];
    let mut driver = Driver::start(&c, NAME, &abilities)?;
    c.apply(&rules(", fsGroupPolicy: File"))?;
    fs::create_dir_all(driver.data("handle-a"))?;
    c.apply(&volume("a", ", volumeAttributes: {kind: plain}"))?;
    c.apply(&pod(
        "writes",
        "echo one > /data/f; while ! test -f /data/end; do sleep 0.1; done; cat /data/g",
        &claim("a"),
    ))?;
    phase(&c, "writes", "Running")?;
    let staged = driver.calls("NodeStageVolume");
    assert_eq!(staged.len(), 1);
    assert_eq!(staged[0].context["kind"], "plain");
    assert!(staged[0].path.ends_with("globalmount"), "{staged:?}");
    let record = staged[0].path.with_file_name("vol_data.json");
    assert!(fs::read_to_string(&record)?.contains("\"volumeHandle\":\"handle-a\""));
    // A second Pod has the same volume; it is staged once.
    driver.condition("handle-a", true, "the disk is dying");
    c.apply(&pod("reads", "cat /data/f; echo oops >&2; exec sleep 100000", &claim("a")))?;
    phase(&c, "reads", "Running")?;
    assert_eq!(driver.calls("NodeStageVolume").len(), 1);
    eventually("one stream of the log", || {
        let of = |stream: &str| {
            c.kubectl(&[
                "get",
                "--raw",
                &format!("/api/v1/namespaces/default/pods/reads/log?stream={stream}"),
            ])
        };
        Ok((of("Stderr")? == "oops\n" && of("Stdout")? == "one\n").then_some(()))
    })?;
    event(&c, "reads", "VolumeConditionAbnormal", "Volume data: the disk is dying")?;
    let nodes: Value = serde_json::from_str(&c.kubectl(&["get", "nodes", "-o", "json"])?)?;
    let node = nodes["items"][0]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let page = |path: &str| c.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{node}/proxy/{path}")]);
    let sick =
        "kubelet_volume_stats_health_status_abnormal{namespace=\"default\",persistentvolumeclaim=\"a\"} 1";
    let metrics =
        eventually("the metric", || Ok(Some(page("metrics")?).filter(|metrics| metrics.contains(sick))))?;
    assert!(metrics.contains("kubelet_metrics_provider{provider=\"cri\"} 1"));
    assert!(page("stats/summary")?.replace(' ', "").contains("\"volumeHealthStats\":{\"abnormal\":true}"));
    let pods = page("metrics/cadvisor")?;
    let told = |l: &&str| l.starts_with("container_memory_working_set_bytes{") && l.contains("pod=\"reads\"");
    assert!(pods.lines().any(|l| told(&l)) && pods.contains("machine_memory_bytes{"), "{pods}");

    // The process ends; its driver goes and comes meanwhile.
    c.stop_ferrokube(Signal::KILL)?;
    driver.stop();
    driver.resume()?;
    c.start_ferrokube()?;
    c.wait_ready()?;
    eventually("the driver is registered again", || Ok(drivers(&c)?.is_array().then_some(())))?;
    fs::write(driver.data("handle-a").join("g"), "two\n")?;
    fs::write(driver.data("handle-a").join("end"), "")?;
    phase(&c, "writes", "Succeeded")?;
    assert!(c.kubectl(&["logs", "writes"])?.contains("two"));
    assert!(driver.calls("NodeUnstageVolume").is_empty(), "a Pod still has the volume");
    c.kubectl(&["delete", "pod", "writes", "reads"])?;
    nothing_left(&c, NAME)?;
    assert_eq!(driver.calls("NodeUnstageVolume").len(), 1);
    assert_eq!(fs::read_to_string(driver.data("handle-a").join("f"))?, "one\n", "the data stay");
    Ok(())
}

#[test]
fn a_driver_that_fails_is_told_of_and_asked_again() -> Result<()> {
    let c = cluster("csi-faults")?;
    c.apply(&rules(""))?;
    c.apply(&volume("a", ""))?;
    c.apply(&pod("waits", "exec sleep 100000", &claim("a")))?;
    event(
        &c,
        "waits",
        "FailedMount",
        "MountVolume.MountDevice failed for volume \"a\" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name dirs.example.com not found in the list of registered CSI drivers",
    )?;
    let mut driver = Driver::start(&c, NAME, &[Ability::StageUnstageVolume, Ability::VolumeMountGroup])?;
    let missing = "MountVolume.MountDevice failed for volume \"a\" : rpc error: code = NotFound desc = no volume handle-a";
    event(&c, "waits", "FailedMount", missing)?;
    driver.fault("NodePublishVolume", Some(Fault::Fails(Code::Internal, "boom".into())));
    fs::create_dir_all(driver.data("handle-a"))?;
    let failed = "MountVolume.SetUp failed for volume \"a\" : rpc error: code = Internal desc = boom";
    event(&c, "waits", "FailedMount", failed)?;
    // An answer that is lost is asked for again.
    driver.fault("NodePublishVolume", Some(Fault::Loses(Code::Aborted, "lost".into())));
    event(&c, "waits", "FailedMount", "rpc error: code = Aborted desc = lost")?;
    driver.fault("NodePublishVolume", None);
    phase(&c, "waits", "Running")?;
    let publish = driver.calls("NodePublishVolume");
    assert_eq!(publish.last().map(|call| call.group.as_str()), Some("1234"), "the driver gives the group");

    // A Pod goes only once its volume is given back, however long its driver is away.
    driver.fault("NodeUnpublishVolume", Some(Fault::Fails(Code::Internal, "boom".into())));
    c.kubectl(&["delete", "pod", "waits", "--wait=false"])?;
    eventually("the driver is asked", || Ok((driver.calls("NodeUnpublishVolume").len() > 1).then_some(())))?;
    driver.fault("NodeUnstageVolume", Some(Fault::Hangs));
    driver.fault("NodeUnpublishVolume", None);
    eventually("the driver hangs", || Ok((!driver.calls("NodeUnstageVolume").is_empty()).then_some(())))?;
    assert!(c.get("pod", "waits").is_ok());
    driver.stop();
    driver.fault("NodeUnstageVolume", None);
    driver.resume()?;
    eventually("the Pod is gone", || Ok(c.get("pod", "waits").is_err().then_some(())))?;
    nothing_left(&c, NAME)?;

    // A volume that could not be unstaged may be so in part: it is staged again for the next Pod.
    driver.fault("NodeUnstageVolume", Some(Fault::Fails(Code::InvalidArgument, "boom".into())));
    c.apply(&pod("first", "exec sleep 100000", &claim("a")))?;
    phase(&c, "first", "Running")?;
    let (staged, unstaged) = (driver.calls("NodeStageVolume").len(), driver.calls("NodeUnstageVolume").len());
    c.kubectl(&["delete", "pod", "first"])?;
    eventually("the driver is asked", || {
        Ok((driver.calls("NodeUnstageVolume").len() > unstaged).then_some(()))
    })?;
    c.apply(&pod("second", "exec sleep 100000", &claim("a")))?;
    phase(&c, "second", "Running")?;
    assert_eq!(driver.calls("NodeStageVolume").len(), staged + 1);
    driver.fault("NodeUnstageVolume", None);
    c.kubectl(&["delete", "pod", "second"])?;
    nothing_left(&c, NAME)
}

/// Waits for the attachment of a driver's volume to the node, and does what the driver's attacher does. Answers its source.
fn attach(c: &Cluster, is_it: impl Fn(&Value) -> bool) -> Result<Value> {
    let made = eventually("an attachment", || {
        let all: Value = serde_json::from_str(&c.kubectl(&["get", "volumeattachments", "-o", "json"])?)?;
        let all = all["items"].as_array().cloned().unwrap_or_default();
        Ok(all.into_iter().find(|a| is_it(&a["spec"]["source"])))
    })?;
    assert_eq!(made["spec"]["attacher"], EBS);
    let name = made["metadata"]["name"].as_str().unwrap_or_default();
    let done = r#"{"status":{"attached":true}}"#;
    c.kubectl(&["patch", "volumeattachment", name, "--subresource=status", "--type=merge", "-p", done])?;
    Ok(made["spec"]["source"].clone())
}

/// Volumes that are written for a plugin of old, by a PersistentVolume or in a Pod, are attached, mounted and given back by
/// the driver that took over, and nobody changes what their users wrote.
#[test]
fn volumes_of_plugins_are_their_drivers() -> Result<()> {
    let c = cluster("csi-migrated")?;
    let own = "awsElasticBlockStore: {volumeID: \"aws://zone/vol-1\", fsType: ext4}";
    let csi = format!("csi: {{driver: {NAME}, volumeHandle: handle-old}}");
    c.apply(&volume("old", "").replace(&csi, own))?;
    let command = "stat -c %g /data; echo one > /data/f; exec sleep 100000";
    c.apply(&pod("old", command, &claim("old")))?;
    let source = attach(&c, |source| source["persistentVolumeName"] == "old")?;
    assert!(source["inlineVolumeSpec"].is_null(), "{source}");
    event(
        &c,
        "old",
        "FailedMount",
        "MountVolume.MountDevice failed for volume \"old\" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name ebs.csi.aws.com not found in the list of registered CSI drivers",
    )?;
    let driver = Driver::start(&c, EBS, &[Ability::StageUnstageVolume])?;
    ["vol-1", "vol-2"].iter().try_for_each(|volume| fs::create_dir_all(driver.data(volume)))?;
    phase(&c, "old", "Running")?;
    let staged = driver.calls("NodeStageVolume");
    let call = staged.last().expect("a call");
    assert_eq!((call.volume.as_str(), call.context["partition"].as_str()), ("vol-1", "0"));
    eventually("its data", || Ok(fs::read_to_string(driver.data("vol-1").join("f")).ok()))?;
    assert!(c.kubectl(&["logs", "old"])?.contains("1234"), "the files are the Pod's group's");

    // A Pod names its volume itself.
    c.apply(&pod("inline", command, "awsElasticBlockStore: {volumeID: vol-2, fsType: ext4}"))?;
    let source = attach(&c, |source| source["inlineVolumeSpec"]["csi"]["volumeHandle"] == "vol-2")?;
    assert_eq!(source["inlineVolumeSpec"]["accessModes"][0], "ReadWriteOnce", "{source}");
    phase(&c, "inline", "Running")?;
    let published = driver.calls("NodePublishVolume");
    let call = published.last().expect("a call");
    assert!(call.path.ends_with("kubernetes.io~csi/ebs.csi.aws.com-vol-2/mount"), "{call:?}");

    // No driver has a volume of such a name: neither the scheduler nor the kubelet believes otherwise.
    let why =
        "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://zone/disk)";
    let wrong = "awsElasticBlockStore: {volumeID: \"aws://zone/disk\"}";
    c.apply(&pod("wrong", command, wrong))?;
    event(&c, "wrong", "FailedScheduling", &format!("converting volume(data) from inline to csi: {why}"))?;
    let nodes: Value = serde_json::from_str(&c.kubectl(&["get", "nodes", "-o", "json"])?)?;
    let node = nodes["items"][0]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let placed = pod("placed", command, wrong).replace("spec:\n", &format!("spec:\n  nodeName: {node}\n"));
    c.apply(&placed)?;
    let text = format!("failed to process volumes=[data]: failed to translate in-tree pv to CSI: {why}");
    event(&c, "placed", "FailedMount", &text)?;

    let metrics = c.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{node}/proxy/metrics")])?;
    let is_told = |line: &str| {
        let labels = ["driver_name=\"ebs.csi.aws.com\"", "NodePublishVolume", "migrated=\"true\""];
        line.starts_with("csi_operations_seconds_count") && labels.iter().all(|label| line.contains(label))
    };
    assert!(metrics.lines().any(is_told), "{metrics}");
    let kept = c.get("pv", "old")?["spec"].clone();
    assert_eq!(kept["awsElasticBlockStore"]["volumeID"], "aws://zone/vol-1");
    assert!(kept["csi"].is_null(), "{kept}");
    c.kubectl(&["delete", "pod", "old", "inline", "wrong", "placed"])?;
    nothing_left(&c, EBS)?;
    eventually("nothing is attached", || {
        Ok(c.kubectl(&["get", "volumeattachments", "-o", "name"])?.is_empty().then_some(()))
    })?;
    assert_eq!(driver.calls("NodeUnstageVolume").len(), 2);
    assert_eq!(fs::read_to_string(driver.data("vol-2").join("f"))?, "one\n", "the data stay");
    Ok(())
}
