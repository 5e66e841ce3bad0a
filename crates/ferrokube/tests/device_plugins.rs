//! Devices of device plugins on a real node.

use anyhow::Result;
use serde_json::Value;
use testkit::device_plugin::{Code, Fault, Plugin, PodResources, resources};
use testkit::{Cluster, Image, Options, Signal, eventually};

const DEV: &str = "example.com/dev";

fn cluster(name: &str) -> Result<Cluster> {
    let flags = ["--eviction-hard", "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%"];
    let images = vec![Image::busybox("test.local/app:1")?];
    Cluster::start(name, Options { images, flags: flags.map(str::to_owned).into(), ..Options::default() })
}

/// A container that says which devices it has.
fn container(name: &str, resource: &str, count: u32, command: &str) -> String {
    format!(
        "{{name: {name}, image: \"test.local/app:1\", command: [sh, -c, \"env; ls /dev /of-plugin; echo shown; {command}\"], \
         env: [{{name: OWN, value: container}}], resources: {{limits: {{{resource}: {count}}}}}}}"
    )
}

fn pod(name: &str, more: &str, containers: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{terminationGracePeriodSeconds: 1, {more}containers: [{containers}]}}\n"
    )
}

const STAY: &str = "exec sleep 100000";

fn phase(c: &Cluster, name: &str, phase: &str) -> Result<Value> {
    eventually(&format!("{name} is {phase}"), || {
        let status = c.get("pod", name)?["status"].clone();
        Ok((status["phase"] == phase).then_some(status))
    })
}

/// The devices that a container says it has.
fn devices(c: &Cluster, pod: &str, container: &str) -> Result<Vec<String>> {
    let text = eventually(&format!("{container} of {pod} shows its devices"), || {
        let text = c.kubectl(&["logs", pod, "-c", container])?;
        Ok(text.contains("shown").then_some(text))
    })?;
    let line = text.lines().find_map(|l| l.strip_prefix("DEVICES=")).unwrap_or_default();
    let all: Vec<String> = line.split(',').filter(|d| !d.is_empty()).map(str::to_owned).collect();
    for id in &all {
        assert!(text.lines().any(|l| l == id), "the file of {id}: {text}");
    }
    assert!(all.is_empty() || text.contains("debian_version"), "the plugin's mount: {text}");
    assert!(text.contains("OWN=container"), "{text}");
    Ok(all)
}

/// Waits until the node offers so many of a resource, and so many of them to Pods.
fn offers(c: &Cluster, resource: &str, expected: Option<(&str, &str)>) -> Result<()> {
    eventually(&format!("the node offers {expected:?} of {resource}"), || {
        let node = c.get("node", c.host().name())?["status"].clone();
        let of = |list: &str| node[list][resource].as_str().map(str::to_owned);
        let found = of("capacity").zip(of("allocatable"));
        Ok((found.as_ref().map(|(a, b)| (a.as_str(), b.as_str())) == expected).then_some(()))
    })
}

fn unschedulable(c: &Cluster, name: &str, resource: &str) -> Result<()> {
    eventually(&format!("nothing is left for {name}"), || {
        let conditions = c.get("pod", name)?["status"]["conditions"].to_string();
        Ok(conditions.contains(&format!("Insufficient {resource}")).then_some(()))
    })
}

fn health(c: &Cluster, pod: &str, health: &str) -> Result<()> {
    eventually(&format!("the device of {pod} is {health}"), || {
        let told = c.get("pod", pod)?["status"]["containerStatuses"][0]["allocatedResourcesStatus"].clone();
        Ok((told[0]["name"] == DEV && told[0]["resources"][0]["health"] == health).then_some(()))
    })
}

#[test]
fn devices_are_given_kept_and_free_again() -> Result<()> {
    let mut c = cluster("device-plugin")?;
    let mut plugin = Plugin::new(&c, DEV, &["a", "b", "c"]);
    plugin.start()?;
    offers(&c, DEV, Some(("3", "3")))?;

    // Init containers hand on what they had.
    let init = format!("initContainers: [{}], ", container("first", DEV, 2, "true"));
    c.apply(&pod("two", &init, &container("uses", DEV, 2, STAY)))?;
    phase(&c, "two", "Running")?;
    let two = devices(&c, "two", "uses")?;
    assert_eq!((devices(&c, "two", "first")?, two.len()), (two.clone(), 2));
    let end = "while [ ! -e /tmp/end ]; do sleep 0.1; done";
    c.apply(&pod("one", "", &container("uses", DEV, 1, end)))?;
    phase(&c, "one", "Running")?;
    let one = devices(&c, "one", "uses")?;
    assert!(one.len() == 1 && !two.contains(&one[0]), "{one:?} beside {two:?}");
    health(&c, "one", "Healthy")?;

    let agent = PodResources::of(&c);
    let of = |resources: &resources::PodResources| -> Vec<String> {
        let all = resources.containers.iter().filter(|c| c.name == "uses").flat_map(|c| &c.devices);
        let own = all.filter(|d| d.resource_name == DEV && d.topology.is_none());
        own.flat_map(|d| d.device_ids.clone()).collect()
    };
    assert_eq!(of(&agent.get("default", "two")?), two);
    let all = agent.list()?.pod_resources;
    let listed = all.iter().find(|p| p.name == "one").expect("the Pod is listed");
    assert_eq!(of(listed), one);
    assert_eq!(agent.allocatable()?.devices.len(), 3);
    let missing = format!("{:#}", agent.get("default", "none").unwrap_err());
    assert!(missing.contains("pod none in namespace default not found"), "{missing}");
    let refused = eventually("an agent that asks too often is refused", || {
        Ok(Some(agent.flood(500)?).filter(|refused| !refused.is_empty()))
    })?;
    assert!(refused.iter().all(|r| r == "rejected by rate limit"), "{refused:?}");

    // Nothing is left: the scheduler knows, and so does the node.
    c.apply(&pod("waits", "", &container("uses", DEV, 1, STAY)))?;
    unschedulable(&c, "waits", DEV)?;
    let forced = format!("nodeName: {}, ", c.host().name());
    c.apply(&pod("forced", &forced, &container("uses", DEV, 1, STAY)))?;
    let status = phase(&c, "forced", "Failed")?;
    assert_eq!(status["reason"], "UnexpectedAdmissionError");
    assert_eq!(
        status["message"],
        "Pod was rejected: Allocate failed due to requested number of devices unavailable for example.com/dev. Requested: 1, Available: 0, which is unexpected"
    );

    plugin.health(&one[0], false);
    offers(&c, DEV, Some(("3", "2")))?;
    health(&c, "one", "Unhealthy")?;
    plugin.stop();
    offers(&c, DEV, Some(("3", "0")))?;
    plugin.health(&one[0], true);
    plugin.start()?;
    offers(&c, DEV, Some(("3", "3")))?;
    health(&c, "one", "Healthy")?;

    // The next process knows who has what, also for containers that it starts.
    c.stop_ferrokube(Signal::KILL)?;
    plugin.stop();
    c.start_ferrokube()?;
    c.wait_ready()?;
    offers(&c, DEV, Some(("0", "0")))?;
    plugin.start()?;
    offers(&c, DEV, Some(("3", "3")))?;
    unschedulable(&c, "waits", DEV)?;
    assert_eq!(plugin.calls("Allocate").len(), 3, "two containers of the first Pod, one of the second");
    c.kubectl(&["exec", "one", "--", "touch", "/tmp/end"])?;
    eventually("the container has started again", || {
        let status = c.get("pod", "one")?["status"]["containerStatuses"][0].clone();
        Ok((status["restartCount"] == 1 && status["state"]["running"].is_object()).then_some(()))
    })?;
    assert_eq!(devices(&c, "one", "uses")?, one);
    assert_eq!(c.get("pod", "two")?["status"]["containerStatuses"][0]["restartCount"], 0);

    c.kubectl(&["delete", "pod", "two", "forced"])?;
    phase(&c, "waits", "Running")?;
    let freed = devices(&c, "waits", "uses")?;
    assert!(freed.len() == 1 && two.contains(&freed[0]), "{freed:?} of {two:?}");
    let page = c.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{}/proxy/metrics", c.host().name())])?;
    for line in [
        "kubelet_device_plugin_registration_total{resource_name=\"example.com/dev\"} 1",
        "kubelet_device_plugin_alloc_duration_seconds_count{resource_name=\"example.com/dev\"} 1",
    ] {
        assert!(page.lines().any(|l| l == line), "{line}");
    }
    Ok(())
}

#[test]
fn plugins_that_fail_or_say_odd_things() -> Result<()> {
    let c = cluster("device-plugin-faults")?;
    let mut plugin = Plugin::new(&c, "example.com/odd", &["a", "b", "c"]).found(&c, &["c", "nothing"]);
    plugin.start()?;
    eventually("the plugin is registered", || Ok((plugin.registrations() == [""]).then_some(())))?;
    offers(&c, "example.com/odd", Some(("3", "3")))?;
    for (version, resource, socket, text) in [
        (
            "v1alpha1",
            "example.com/x",
            "nothing.sock",
            "requested API version \"v1alpha1\" is not supported by kubelet. Supported version is [\"v1beta1\"]",
        ),
        ("v1beta1", "cpu", "nothing.sock", "the ResourceName \"cpu\" is invalid"),
        ("v1beta1", "kubernetes.io/x", "nothing.sock", "the ResourceName \"kubernetes.io/x\" is invalid"),
        ("v1beta1", "example.com/x", "nothing.sock", "failed to dial device plugin: "),
        (
            "v1beta1",
            "example.com/x",
            "../../../../nothing.sock",
            "the Endpoint is not below the directory of device plugins",
        ),
    ] {
        let refused = plugin.register(version, resource, socket).unwrap_err();
        let refused = format!("{refused:#}").replace("\\\"", "\"");
        assert!(refused.contains(text), "{refused}");
    }

    // It is asked what it prefers, and told before a container starts.
    c.apply(&pod("prefers", "", &container("uses", "example.com/odd", 1, STAY)))?;
    phase(&c, "prefers", "Running")?;
    assert_eq!(devices(&c, "prefers", "uses")?, ["c"]);
    assert_eq!(plugin.calls("GetPreferredAllocation"), [["a", "b", "c"]]);
    assert_eq!(plugin.calls("PreStartContainer"), [["c"]]);

    for (name, fault, text) in [
        ("fails", Fault::Fails(Code::Internal, "boom".into()), "rpc error: code = Internal desc = boom"),
        ("empty", Fault::Empty, "no containers return in allocation response"),
    ] {
        plugin.fault("Allocate", Some(fault));
        c.apply(&pod(name, "restartPolicy: Never, ", &container("uses", "example.com/odd", 1, STAY)))?;
        let status = phase(&c, name, "Failed")?;
        let message = format!("Pod was rejected: Allocate failed due to {text}, which is unexpected");
        assert_eq!(status["message"], message.as_str());
    }
    plugin.fault("Allocate", None);
    plugin.fault("GetPreferredAllocation", Some(Fault::Fails(Code::Unknown, "no".into())));
    c.apply(&pod("undecided", "restartPolicy: Never, ", &container("uses", "example.com/odd", 1, STAY)))?;
    let status = phase(&c, "undecided", "Failed")?;
    let text =
        "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Unknown desc = no";
    assert!(status["message"].as_str().is_some_and(|m| m.contains(text)), "{status}");

    // One that hangs holds up those who ask for its devices, and nobody else.
    plugin.fault("GetPreferredAllocation", Some(Fault::Hangs));
    c.apply(&pod("hangs", "", &container("uses", "example.com/odd", 1, STAY)))?;
    eventually("it is asked", || Ok((plugin.calls("GetPreferredAllocation").len() > 4).then_some(())))?;
    c.apply(&pod("other", "", &container("uses", "cpu", 1, STAY)))?;
    phase(&c, "other", "Running")?;
    assert_eq!(c.get("pod", "hangs")?["status"]["phase"], "Pending");

    // A container does not start while its plugin does not let it.
    plugin.fault("GetPreferredAllocation", None);
    plugin.fault("PreStartContainer", Some(Fault::Fails(Code::Aborted, "not yet".into())));
    c.apply(&pod("later", "", &container("uses", "example.com/odd", 1, STAY)))?;
    let text =
        "device plugin PreStartContainer rpc failed with err: rpc error: code = Aborted desc = not yet";
    eventually("the reason is told", || {
        let waiting = c.get("pod", "later")?["status"]["containerStatuses"][0]["state"]["waiting"].clone();
        let told = waiting["reason"] == "CreateContainerConfigError" && waiting["message"] == text;
        Ok(told.then_some(()))
    })?;
    plugin.fault("PreStartContainer", None);
    phase(&c, "later", "Running")?;
    Ok(())
}
