//! The kinds of the core group.

use std::collections::HashMap;
use std::fmt::Write;

use api::view::View;
use api::{Schema, Struct};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    AGE, Columns, Definition, Maker, NAME, Row, containers, labels, number, or, shown, since, some_of, text,
    wide,
};

pub(crate) const COMPONENT_STATUS: &Columns =
    &shown!([NAME, text("Status"), text("Message"), text("Error")], |m| {
        let healthy = m.object.items("conditions").find(|c| c.str("type") == "Healthy");
        let status = match healthy.map(|c| c.str("status")) {
            Some("True") => "Healthy",
            Some(_) => "Unhealthy",
            None => "Unknown",
        };
        let part = |name: &str| healthy.map_or("", |c| c.str(name));
        [m.name(), status.into(), part("message").into(), part("error").into()]
    });

pub(crate) const CONFIG_MAP: &Columns = &shown!([NAME, text("Data"), AGE], |m| {
    [m.name(), (m.object.len("data") + m.object.len("binaryData")).into(), m.age()]
});

pub(crate) const ENDPOINTS: &Columns =
    &shown!([NAME, text("Endpoints"), AGE], |m| [m.name(), endpoints(m.object).into(), m.age()]);

pub(crate) const NAMESPACE: &Columns =
    &shown!([NAME, text("Status"), AGE], |m| [m.name(), m.status.str("phase").into(), m.age()]);

pub(crate) const NODE: &Columns = &shown!(
    [
        NAME,
        text("Status"),
        text("Roles"),
        AGE,
        text("Version"),
        wide("Internal-IP"),
        wide("External-IP"),
        wide("OS-Image"),
        wide("Kernel-Version"),
        wide("Container-Runtime"),
    ],
    |m| node(&m)
);

pub(crate) const PERSISTENT_VOLUME_CLAIM: &Columns = &shown!(
    [
        NAME,
        text("Status"),
        text("Volume"),
        text("Capacity"),
        text("Access Modes"),
        text("StorageClass"),
        text("VolumeAttributesClass"),
        AGE,
        wide("VolumeMode"),
    ],
    |m| {
        let bound = !m.spec.str("volumeName").is_empty();
        let capacity = m.status.texts("capacity").find(|c| c.0 == "storage").map_or("0", |c| c.1);
        [
            m.name(),
            phase(&m).into(),
            m.spec.str("volumeName").into(),
            if bound { capacity } else { "" }.into(),
            if bound { access_modes(m.status) } else { String::new() }.into(),
            storage_class(&m).into(),
            m.spec.opt_str("volumeAttributesClassName").unwrap_or("<unset>").into(),
            m.age(),
            m.spec.opt_str("volumeMode").unwrap_or("<unset>").into(),
        ]
    }
);

pub(crate) const PERSISTENT_VOLUME: &Columns = &shown!(
    [
        NAME,
        text("Capacity"),
        text("Access Modes"),
        text("Reclaim Policy"),
        text("Status"),
        text("Claim"),
        text("StorageClass"),
        text("VolumeAttributesClass"),
        text("Reason"),
        AGE,
        wide("VolumeMode"),
    ],
    |m| {
        let claim = m.spec.opt("claimRef").map(|c| format!("{}/{}", c.str("namespace"), c.str("name")));
        [
            m.name(),
            m.spec.texts("capacity").find(|c| c.0 == "storage").map_or("0", |c| c.1).into(),
            access_modes(m.spec).into(),
            m.spec.str("persistentVolumeReclaimPolicy").into(),
            phase(&m).into(),
            claim.unwrap_or_default().into(),
            storage_class(&m).into(),
            m.spec.opt_str("volumeAttributesClassName").unwrap_or("<unset>").into(),
            m.status.str("reason").into(),
            m.age(),
            m.spec.opt_str("volumeMode").unwrap_or("<unset>").into(),
        ]
    }
);

pub(crate) const POD_TEMPLATE: &Columns =
    &shown!([NAME, text("Containers"), text("Images"), text("Pod Labels")], |m| {
        let template = m.object.st("template");
        let [names, images] = containers(template.st("spec"));
        [m.name(), names, images, labels(template.st("metadata").texts("labels")).into()]
    });

pub(crate) const REPLICATION_CONTROLLER: &Columns = &shown!(
    [
        NAME,
        number("Desired"),
        number("Current"),
        number("Ready"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    |m| {
        let [names, images] = containers(m.spec.st("template").st("spec"));
        [
            m.name(),
            m.spec.int("replicas").into(),
            m.status.int("replicas").into(),
            m.status.int("readyReplicas").into(),
            m.age(),
            names,
            images,
            labels(m.spec.texts("selector")).into(),
        ]
    }
);

pub(crate) const RESOURCE_QUOTA: &Columns = &shown!([NAME, text("Request"), text("Limit"), AGE], |m| {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (name, hard) in m.status.texts("hard") {
        let used = m.status.map("used").and_then(|u| u.get(name)).map_or("0", api::Node::as_str);
        let list = if name.starts_with("limits.") { &mut limits } else { &mut requests };
        list.push(format!("{name}: {used}/{hard}"));
    }
    [m.name(), requests.join(", ").into(), limits.join(", ").into(), m.age()]
});

pub(crate) const SECRET: &Columns = &shown!([NAME, text("Type"), text("Data"), AGE], |m| {
    [m.name(), m.object.str("type").into(), m.object.len("data").into(), m.age()]
});

pub(crate) const SERVICE_ACCOUNT: &Columns = &shown!([NAME, AGE], |m| [m.name(), m.age()]);

pub(crate) const SERVICE: &Columns = &shown!(
    [NAME, text("Type"), text("Cluster-IP"), text("External-IP"), text("Port(s)"), AGE, wide("Selector")],
    |m| {
        let ports: Vec<String> = m.spec.items("ports").map(port).collect();
        [
            m.name(),
            m.spec.str("type").into(),
            m.spec.strs("clusterIPs").next().unwrap_or("<none>").into(),
            external_ip(&m).into(),
            or(&ports.join(","), "<none>").into(),
            m.age(),
            labels(m.spec.texts("selector")).into(),
        ]
    }
);

fn phase<'a>(m: &Maker<'a>) -> &'a str {
    if m.meta.has("deletionTimestamp") { "Terminating" } else { m.status.str("phase") }
}

/// The class of a claim or volume: the old annotation wins.
fn storage_class<'a>(m: &Maker<'a>) -> &'a str {
    let old = m.meta.texts("annotations").find(|a| a.0 == "volume.beta.kubernetes.io/storage-class");
    old.map_or_else(|| m.spec.str("storageClassName"), |a| a.1)
}

fn access_modes(of: View<'_>) -> String {
    let has = |mode: &str| of.strs("accessModes").any(|m| m == mode);
    [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ]
    .iter()
    .filter(|(mode, _)| has(mode))
    .map(|(_, short)| *short)
    .collect::<Vec<_>>()
    .join(",")
}

fn port(p: View<'_>) -> String {
    match p.int("nodePort") {
        ..=0 => format!("{}/{}", p.int("port"), p.str("protocol")),
        node => format!("{}:{node}/{}", p.int("port"), p.str("protocol")),
    }
}

/// The addresses of a load balancer, sorted, each once.
pub(super) fn load_balancer(status: View<'_>) -> String {
    let mut all: Vec<&str> = status
        .st("loadBalancer")
        .items("ingress")
        .map(|i| or(i.str("ip"), i.str("hostname")))
        .filter(|a| !a.is_empty())
        .collect();
    all.sort_unstable();
    all.dedup();
    all.join(",")
}

fn external_ip(m: &Maker<'_>) -> String {
    let external = m.spec.strs("externalIPs").collect::<Vec<_>>().join(",");
    match m.spec.str("type") {
        "ClusterIP" | "NodePort" => or(&external, "<none>").to_owned(),
        "LoadBalancer" => {
            let balanced = load_balancer(m.status);
            match (balanced.is_empty(), external.is_empty()) {
                (true, true) => "<pending>".into(),
                (false, true) => balanced,
                (true, false) => external,
                (false, false) => format!("{balanced},{external}"),
            }
        }
        "ExternalName" => m.spec.str("externalName").to_owned(),
        _ => "<unknown>".into(),
    }
}

fn endpoints(object: View<'_>) -> String {
    let mut all = Vec::new();
    for subset in object.items("subsets") {
        let addresses = || subset.items("addresses").map(|a| a.str("ip"));
        if subset.len("ports") == 0 {
            all.extend(addresses().map(str::to_owned));
        }
        for p in subset.items("ports") {
            all.extend(addresses().map(|ip| {
                if ip.contains(':') {
                    format!("[{ip}]:{}", p.int("port"))
                } else {
                    format!("{ip}:{}", p.int("port"))
                }
            }));
        }
    }
    if object.len("subsets") == 0 { "<none>".into() } else { some_of(&all, 3) }
}

fn node(m: &Maker<'_>) -> Vec<Value> {
    let ready = m.status.items("conditions").rfind(|c| c.str("type") == "Ready");
    let mut status = match ready.map(|c| c.str("status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if m.spec.bool("unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let mut roles: Vec<&str> = m
        .meta
        .texts("labels")
        .filter_map(|(k, v)| match k.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role).filter(|r| !r.is_empty()),
            None => Some(v).filter(|v| k == "kubernetes.io/role" && !v.is_empty()),
        })
        .collect();
    roles.sort_unstable();
    roles.dedup();
    let address = |kind: &str| {
        m.status.items("addresses").find(|a| a.str("type") == kind).map_or("<none>", |a| a.str("address"))
    };
    let info = m.status.st("nodeInfo");
    let mut kernel = or(info.str("kernelVersion"), "<unknown>").to_owned();
    if !info.str("architecture").is_empty() {
        let _ = write!(kernel, " ({})", info.str("architecture"));
    }
    vec![
        m.name(),
        status.into(),
        or(&roles.join(","), "<none>").into(),
        m.age(),
        info.str("kubeletVersion").into(),
        address("InternalIP").into(),
        address("ExternalIP").into(),
        or(info.str("osImage"), "<unknown>").into(),
        kernel.into(),
        or(info.str("containerRuntimeVersion"), "<unknown>").into(),
    ]
}

pub(crate) const EVENT: &Columns = &Columns {
    definitions: &[
        text("Last Seen"),
        text("Type"),
        text("Reason"),
        text("Object"),
        wide("Subobject"),
        wide("Source"),
        text("Message"),
        wide("First Seen"),
        wide("Count"),
        Definition { priority: 1, ..NAME },
    ],
    cells: event,
};

fn event(schema: &Schema, tree: &Struct, now: Timestamp) -> Row {
    let m = Maker::new(schema, tree, now);
    let e = m.object;
    // An event has other names for some fields in each of its two groups.
    let either = |a: &'static str, b: &'static str| if e.knows(a) { a } else { b };
    let about = e.st(either("involvedObject", "regarding"));
    let source = e.st(either("source", "deprecatedSource"));
    let event_time = e.str("eventTime");
    let first = or(e.str(either("firstTimestamp", "deprecatedFirstTimestamp")), event_time);
    let last = or(e.str(either("lastTimestamp", "deprecatedLastTimestamp")), first);
    let mut count = e.int(either("count", "deprecatedCount"));
    let mut last = since(last, now);
    if let Some(series) = e.opt("series") {
        last = since(series.str("lastObservedTime"), now);
        count = series.int("count");
    } else if count == 0 {
        count = 1;
    }
    let mut target = about.str("kind").to_lowercase();
    if !about.str("name").is_empty() {
        let _ = write!(target, "/{}", about.str("name"));
    }
    let component = or(source.str("component"), e.str(either("reportingComponent", "reportingController")));
    let instance = or(source.str("host"), e.str("reportingInstance"));
    let source = if instance.is_empty() { component.to_owned() } else { format!("{component}, {instance}") };
    let cells = vec![
        last.into(),
        e.str("type").into(),
        e.str("reason").into(),
        target.into(),
        about.str("fieldPath").into(),
        source.into(),
        e.str(either("message", "note")).trim().into(),
        since(first, now).into(),
        count.into(),
        m.name(),
    ];
    Row { cells, conditions: Vec::new() }
}

pub(crate) const POD: &Columns = &Columns {
    definitions: &[
        NAME,
        text("Ready"),
        text("Status"),
        text("Restarts"),
        AGE,
        wide("IP"),
        wide("Node"),
        wide("Nominated Node"),
        wide("Readiness Gates"),
    ],
    cells: |schema, tree, now| {
        let m = Maker::new(schema, tree, now);
        let conditions = match m.status.str("phase") {
            "Succeeded" => completed("Succeeded", "The pod has completed successfully."),
            "Failed" => completed("Failed", "The pod failed."),
            _ => Vec::new(),
        };
        Row { cells: pod(&m), conditions }
    },
};

fn completed(reason: &str, message: &str) -> Vec<Value> {
    vec![json!({"type": "Completed", "status": "True", "reason": reason, "message": message})]
}

/// The reason, signal or exit code with which a container ended.
fn ended(t: View<'_>) -> String {
    match (t.str("reason"), t.int("signal")) {
        ("", 0) => format!("ExitCode:{}", t.int("exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// Restarts of containers and the newest end among them.
#[derive(Default)]
struct Restarts {
    count: i64,
    last: String,
}

impl Restarts {
    fn add(&mut self, container: View<'_>) {
        self.count += container.int("restartCount");
        let ended = container.st("lastState").st("terminated").str("finishedAt");
        if ended > self.last.as_str() {
            ended.clone_into(&mut self.last);
        }
    }
}

/// The number of a Pod's readiness gates that are met.
fn readiness_gates(m: &Maker<'_>) -> String {
    let all = m.spec.len("readinessGates");
    if all == 0 {
        return "<none>".to_owned();
    }
    // Of several of the same type the first one counts, so it is inserted last.
    let states: HashMap<&str, &str> =
        m.status.items("conditions").rev().map(|c| (c.str("type"), c.str("status"))).collect();
    let met = |kind: &str| states.get(kind) == Some(&"True");
    let open = m.spec.items("readinessGates").filter(|g| met(g.str("conditionType"))).count();
    format!("{open}/{all}")
}

fn pod(m: &Maker<'_>) -> Vec<Value> {
    let (spec, status) = (m.spec, m.status);
    let phase = status.str("phase");
    let mut reason = or(status.str("reason"), phase).to_owned();
    let condition = |kind: &str| status.items("conditions").find(|c| c.str("type") == kind);
    if condition("PodScheduled").is_some_and(|c| c.str("reason") == "SchedulingGated") {
        "SchedulingGated".clone_into(&mut reason);
    }
    // Of several of the same name the last counts.
    let policies: HashMap<&str, &str> =
        spec.items("initContainers").map(|c| (c.str("name"), c.str("restartPolicy"))).collect();
    let sidecar = |name: &str| policies.get(name) == Some(&"Always");
    let sidecars = spec.items("initContainers").filter(|c| c.str("restartPolicy") == "Always").count();
    let total = spec.len("containers") + sidecars;
    let mut ready = 0;
    let (mut restarts, mut sidecar_restarts) = (Restarts::default(), Restarts::default());
    let mut initializing = false;
    for (i, c) in status.items("initContainerStatuses").enumerate() {
        restarts.add(c);
        let restartable = sidecar(c.str("name"));
        if restartable {
            sidecar_restarts.add(c);
        }
        let state = c.st("state");
        if let Some(t) = state.opt("terminated")
            && t.int("exitCode") == 0
        {
            continue;
        }
        if restartable && c.bool("started") {
            ready += usize::from(c.bool("ready"));
            continue;
        }
        let waiting = state.st("waiting").str("reason");
        reason = if let Some(t) = state.opt("terminated") {
            format!("Init:{}", ended(t))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{i}/{}", spec.len("initContainers"))
        };
        initializing = true;
        break;
    }
    if !initializing || condition("Initialized").is_some_and(|c| c.str("status") == "True") {
        restarts = sidecar_restarts;
        let mut running = false;
        let mut error = String::new();
        for c in status.items("containerStatuses").rev() {
            restarts.add(c);
            let state = c.st("state");
            let waiting = state.st("waiting").str("reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut reason);
            } else if let Some(t) = state.opt("terminated") {
                reason = ended(t);
                if t.int("exitCode") != 0 {
                    error.clone_from(&reason);
                }
            } else if c.bool("ready") && state.has("running") {
                running = true;
                ready += 1;
            }
        }
        if reason == "Completed" {
            if running && condition("Ready").is_some_and(|c| c.str("status") == "True") {
                "Running".clone_into(&mut reason);
            } else if !error.is_empty() {
                reason = error;
            } else if running {
                "NotReady".clone_into(&mut reason);
            }
        }
    }
    if m.meta.has("deletionTimestamp") {
        if status.str("reason") == "NodeLost" {
            "Unknown".clone_into(&mut reason);
        } else if !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut reason);
        }
    }
    let restarted = if restarts.count != 0 && !restarts.last.is_empty() {
        format!("{} ({} ago)", restarts.count, m.since(&restarts.last))
    } else {
        restarts.count.to_string()
    };
    vec![
        m.name(),
        format!("{ready}/{total}").into(),
        reason.into(),
        restarted.into(),
        m.age(),
        or(status.items("podIPs").next().map_or("", |ip| ip.str("ip")), "<none>").into(),
        or(spec.str("nodeName"), "<none>").into(),
        or(status.str("nominatedNodeName"), "<none>").into(),
        readiness_gates(m).into(),
    ]
}
