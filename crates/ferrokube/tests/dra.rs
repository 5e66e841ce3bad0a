//! Devices that Pods claim, from a driver on a real node.

use std::fs;

use anyhow::Result;
use serde_json::Value;
use testkit::device_plugin::PodResources;
use testkit::dra::{Code, Driver, Fault};
use testkit::{Cluster, Image, Options, Signal, eventually};

const NAME: &str = "gpu.example.com";
const BOTH: [&str; 2] = ["gpu0", "gpu1"];
const PREPARE: &str = "NodePrepareResources";
const UNPREPARE: &str = "NodeUnprepareResources";

fn cluster(name: &str) -> Result<Cluster> {
    let flags = ["--eviction-hard", "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%"];
    let images = vec![Image::busybox("test.local/app:1")?];
    let c = Cluster::start(
        name,
        Options { images, flags: flags.map(str::to_owned).into(), ..Options::default() },
    )?;
    c.apply(&format!(
        r#"
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {{name: gpu}}
spec: {{extendedResourceName: example.com/gpu, selectors: [{{cel: {{expression: "device.driver == '{NAME}'"}}}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: one}}
spec: {{spec: {{devices: {{requests: [{{name: r, exactly: {{deviceClassName: gpu}}}}]}}}}}}
"#
    ))?;
    Ok(c)
}

/// A Pod with a claim of the template, which its first container uses, and a second container.
fn pod(name: &str, command: &str) -> String {
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  resourceClaims: [{{name: device, resourceClaimTemplateName: one}}]
  containers:
  - name: uses
    image: test.local/app:1
    command: [sh, -c, "{command}"]
    resources: {{claims: [{{name: device, request: r}}]}}
  - name: without
    image: test.local/app:1
    command: [sh, -c, "env; ls /dev; exec sleep 100000"]
"#
    )
}

const SHOW: &str = "env; ls -l /dev; echo shown; exec sleep 100000";

/// Offers devices, unless they are offered: the kubelet takes away what it finds at its start, and a driver sees that.
fn offer(c: &Cluster, driver: &Driver, devices: &[&str]) -> Result<()> {
    if slices(c)?.is_empty() { driver.publish(c, devices) } else { Ok(()) }
}

fn phase(c: &Cluster, (driver, devices): (&Driver, &[&str]), name: &str, phase: &str) -> Result<()> {
    eventually(&format!("{name} is {phase}"), || {
        offer(c, driver, devices)?;
        Ok((c.get("pod", name)?["status"]["phase"] == phase).then_some(()))
    })
}

/// Waits for an Event about a Pod with this text.
fn event(c: &Cluster, driver: &Driver, pod: &str, text: &str) -> Result<()> {
    let field = format!("--field-selector=involvedObject.name={pod},reason=FailedPrepareDynamicResources");
    eventually(&format!("an event of {pod}: {text}"), || {
        offer(c, driver, &["gpu0"])?;
        let all: Value = serde_json::from_str(&c.kubectl(&["get", "events", &field, "-o", "json"])?)?;
        let items = all["items"].as_array().cloned().unwrap_or_default();
        let told = |e: &Value| e["message"].as_str().is_some_and(|m| m.contains(text));
        Ok(items.iter().any(told).then_some(()))
    })
}

fn logs(c: &Cluster, pod: &str, container: &str, end: &str) -> Result<String> {
    eventually(&format!("{pod} says {end}"), || {
        let text = c.kubectl(&["logs", pod, "-c", container])?;
        Ok(text.contains(end).then_some(text))
    })
}

fn metrics(c: &Cluster) -> Result<String> {
    let node = c.host().name();
    c.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{node}/proxy/metrics")])
}

fn slices(c: &Cluster) -> Result<String> {
    c.kubectl(&["get", "resourceslices", "-o", "name"])
}

fn state(c: &Cluster) -> Result<Value> {
    let file: Value = serde_json::from_slice(&fs::read(c.data_dir().join("kubelet/dra_manager_state"))?)?;
    Ok(serde_json::from_str(file["Data"].as_str().unwrap_or_default())?)
}

#[test]
fn claims_survive_the_kubelet_and_are_given_back_once() -> Result<()> {
    let mut c = cluster("dra")?;
    let mut driver = Driver::new(&c, NAME, &["v1.DRAPlugin", "v1beta1.DRAPlugin"])?;
    driver.start()?;
    eventually("the driver is registered", || Ok((driver.registrations() == [""]).then_some(())))?;
    c.apply(&pod("a", SHOW))?;
    phase(&c, (&driver, &BOTH), "a", "Running")?;
    let seen = logs(&c, "a", "uses", "shown")?;
    let device =
        ["gpu0", "gpu1"].into_iter().find(|d| seen.contains(&format!("DEVICE_{}=here", d.to_uppercase())));
    let device = device.unwrap_or_else(|| panic!("no device in {seen}"));
    assert!(seen.contains(&format!(" {device}\n")), "{seen}");
    assert!(!logs(&c, "a", "without", "null")?.contains("DEVICE_"), "another container");
    let claim = c.get("pod", "a")?["status"]["resourceClaimStatuses"][0]["resourceClaimName"].clone();
    assert_eq!(driver.calls(PREPARE).iter().map(|c| c.version).collect::<Vec<_>>(), ["v1"]);
    assert_eq!(driver.calls(PREPARE)[0].claims, [claim.as_str().unwrap_or_default()]);
    let written = state(&c)?;
    assert_eq!(written["ClaimInfoStateList"][0]["ClaimName"], claim);
    let cdi = &written["ClaimInfoStateList"][0]["DriverState"][NAME]["Devices"][0]["CDIDeviceIDs"];
    assert_eq!(*cdi, serde_json::json!([format!("{}={device}", driver.kind())]));
    let page = metrics(&c)?;
    for line in [
        "dra_resource_claims_in_use{driver_name=\"<any>\"} 1",
        "dra_resource_claims_in_use{driver_name=\"gpu.example.com\"} 1",
        "dra_grpc_operations_duration_seconds_count{driver_name=\"gpu.example.com\",grpc_status_code=\"OK\",method_name=\"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources\"} 1",
    ] {
        assert!(page.lines().any(|l| l == line), "{line}");
    }

    let told = PodResources::of(&c).list()?;
    let of_claim = told.pod_resources.iter().flat_map(|p| &p.containers).flat_map(|c| &c.dynamic_resources);
    let of_claim: Vec<_> = of_claim.collect();
    assert_eq!((of_claim.len(), &of_claim[0].claim_namespace), (1, &"default".to_owned()));
    let one = &of_claim[0].claim_resources[0];
    assert_eq!((one.driver_name.as_str(), one.device_name.as_str()), (NAME, device));
    assert_eq!(one.cdi_devices[0].name, format!("{}={device}", driver.kind()));

    for (healthy, health) in [(false, "Unhealthy"), (true, "Healthy")] {
        driver.health(device, healthy, "as it is");
        eventually(&format!("the device is {health}"), || {
            let status = c.get("pod", "a")?["status"]["containerStatuses"].clone();
            let all = status.as_array().cloned().unwrap_or_default();
            let uses = all.iter().find(|s| s["name"] == "uses").cloned().unwrap_or_default();
            let told = &uses["allocatedResourcesStatus"][0];
            let expected = serde_json::json!({"name": "claim:device/r", "resources": [{"health": health,
                "message": "as it is", "resourceID": format!("{}={device}", driver.kind())}]});
            Ok((*told == expected).then_some(()))
        })?;
    }

    // The next process knows what this one did. A container that it starts has the device, and nobody is asked anew.
    let id = |c: &Cluster| -> Result<Value> {
        Ok(c.get("pod", "a")?["status"]["containerStatuses"][0]["containerID"].clone())
    };
    let before = id(&c)?;
    c.stop_ferrokube(Signal::KILL)?;
    driver.stop();
    c.start_ferrokube()?;
    c.wait_ready()?;
    eventually("what a driver offered that is not there is taken back", || {
        Ok(slices(&c)?.is_empty().then_some(()))
    })?;
    driver.start()?;
    eventually("the driver is registered again", || Ok((driver.registrations().len() == 2).then_some(())))?;
    c.apply(&pod("b", SHOW))?;
    phase(&c, (&driver, &BOTH), "b", "Running")?;
    let other = logs(&c, "b", "uses", "shown")?;
    assert!(
        !other.contains(&format!("DEVICE_{}=here", device.to_uppercase())),
        "nobody gets it twice: {other}"
    );
    assert_eq!(id(&c)?, before, "the container went on");

    assert!(driver.calls(UNPREPARE).is_empty());
    c.kubectl(&["delete", "pod", "a", "b"])?;
    let mut given: Vec<_> = driver.calls(UNPREPARE).into_iter().flat_map(|c| c.claims).collect();
    given.sort();
    assert_eq!(given.len(), 2, "once each");
    given.dedup();
    assert_eq!(given.len(), 2, "{given:?}");
    assert_eq!(state(&c)?["ClaimInfoStateList"], Value::Null);
    eventually("the claims are gone", || {
        Ok(c.kubectl(&["get", "resourceclaims", "-o", "name"])?.is_empty().then_some(()))
    })?;

    // An extended resource that the class stands for: the scheduler makes the claim.
    c.apply(
        r#"
apiVersion: v1
kind: Pod
metadata: {name: extended}
spec:
  restartPolicy: Never
  containers:
  - name: uses
    image: test.local/app:1
    command: [sh, -c, "env; echo shown"]
    resources: {limits: {example.com/gpu: "2"}}
"#,
    )?;
    phase(&c, (&driver, &BOTH), "extended", "Succeeded")?;
    let seen = logs(&c, "extended", "uses", "shown")?;
    assert!(seen.contains("DEVICE_GPU0=here") && seen.contains("DEVICE_GPU1=here"), "{seen}");
    eventually("it was given back", || Ok((driver.calls(UNPREPARE).len() == 3).then_some(())))?;

    driver.stop();
    eventually("a driver that does not come back offers nothing", || Ok(slices(&c)?.is_empty().then_some(())))
}

#[test]
fn a_driver_that_is_missing_or_fails_is_told_of_and_asked_again() -> Result<()> {
    let c = cluster("dra-faults")?;
    let mut driver = Driver::new(&c, NAME, &["v1beta1.DRAPlugin"])?;
    // The slices of drivers that are not there go with the start.
    eventually("the start is over", || {
        Ok(metrics(&c)?.contains("dra_resource_claims_in_use").then_some(()))
    })?;
    c.apply(&pod("a", SHOW))?;
    event(&c, &driver, "a", "prepare dynamic resources: DRA driver gpu.example.com is not registered")?;
    assert_eq!(state(&c)?["ClaimInfoStateList"], Value::Null, "there is nothing to undo");

    let wrong = [
        (
            Fault::Fails(Code::Internal, "boom".into()),
            "NodePrepareResources: rpc error: code = Internal desc = boom",
        ),
        (Fault::Refuses("no room".into()), "NodePrepareResources failed for ResourceClaim a-device-"),
        (Fault::Wrong, "NodePrepareResources returned result for unknown claim UID not-"),
        (Fault::Skips, "NodePrepareResources skipped 1 ResourceClaims"),
        (Fault::Huge, "NodePrepareResources: rpc error: code = OutOfRange"),
    ];
    driver.fault(PREPARE, Some(wrong[0].0.clone()));
    driver.start()?;
    for (fault, text) in wrong {
        driver.fault(PREPARE, Some(fault));
        event(
            &c,
            &driver,
            "a",
            &format!("Failed to prepare dynamic resources: prepare dynamic resources: {text}"),
        )?;
    }
    assert_eq!(c.get("pod", "a")?["status"]["phase"], "Pending");
    driver.fault(PREPARE, None);
    phase(&c, (&driver, &["gpu0"]), "a", "Running")?;
    assert!(logs(&c, "a", "uses", "shown")?.contains("DEVICE_GPU0=here"));
    assert!(driver.calls(PREPARE).iter().all(|c| c.version == "v1beta1"));

    // A Pod stays until its claims are given back.
    driver.fault(UNPREPARE, Some(Fault::Fails(Code::Unavailable, "not now".into())));
    c.kubectl(&["delete", "pod", "a", "--wait=false"])?;
    eventually("the driver is asked", || Ok((driver.calls(UNPREPARE).len() >= 2).then_some(())))?;
    assert!(c.get("pod", "a")?["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(state(&c)?["ClaimInfoStateList"].as_array().map(Vec::len), Some(1));
    driver.fault(UNPREPARE, None);
    c.kubectl(&["wait", "--for=delete", "pod/a", "--timeout=60s"])?;
    let asked = driver.calls(UNPREPARE).len();
    assert_eq!(state(&c)?["ClaimInfoStateList"], Value::Null);

    // A Pod that goes while its driver hangs.
    driver.fault(PREPARE, Some(Fault::Hangs));
    let before = driver.calls(PREPARE).len();
    c.apply(&pod("b", SHOW))?;
    eventually("the driver is asked", || Ok((driver.calls(PREPARE).len() > before).then_some(())))?;
    c.kubectl(&["delete", "pod", "b", "--timeout=90s"])?;
    assert_eq!(driver.calls(UNPREPARE).len(), asked + 1, "what it may have done is undone");
    Ok(())
}
