//! Pods with demands on the scheduler: rules about other Pods are kept, claims that nobody can fill leave a Pod Pending
//! with the reason, and odd Pods disturb no other. The nodes are objects alone: the scheduler needs no more.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::{Server, eventually};

/// Three nodes, two of them in zone a.
const NODES: [(&str, &str); 3] = [("n1", "a"), ("n2", "a"), ("n3", "b")];

struct Cluster {
    server: Server,
    /// The time of the nodes' last heartbeat.
    beat: Cell<Option<Instant>>,
}

impl Cluster {
    fn start() -> Result<Self> {
        // Claims stay as they are: nobody makes volumes, or claims of ephemeral ones.
        let alone = ["--disable-local-path", "--controllers=*,-ephemeral-volume-controller"];
        let cluster = Self { server: Server::start_as("server", &alone)?, beat: Cell::new(None) };
        for (name, zone) in NODES {
            cluster.add_node(name, &json!({"zone": zone, "host": name}))?;
        }
        for (name, value) in [("high", 1000), ("low", 10)] {
            let class = json!({"metadata": {"name": name}, "value": value});
            cluster.server.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class)?;
        }
        Ok(cluster)
    }

    fn add_node(&self, name: &str, labels: &Value) -> Result<()> {
        self.server.create("/api/v1/nodes", &json!({"metadata": {"name": name, "labels": labels}}))?;
        let status = json!({"status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        }});
        let path = format!("/api/v1/nodes/{name}");
        self.server.patch(&format!("{path}/status"), "strategic-merge", &status).send()?.expect(200)?;
        eventually("a node without taints", || {
            let node = self.server.get(&path).send()?.expect(200)?.json()?;
            Ok(node["spec"]["taints"].as_array().is_none_or(Vec::is_empty).then_some(()))
        })
    }

    /// Sends the nodes' heartbeats, as their kubelets would: otherwise they are given up after 50 s.
    fn heartbeat(&self) -> Result<()> {
        if self.beat.get().is_some_and(|at| at.elapsed() < Duration::from_secs(5)) {
            return Ok(());
        }
        let now = jiff::Timestamp::now().strftime("%FT%TZ").to_string();
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": now}]}});
        for (name, _) in NODES {
            let path = format!("/api/v1/nodes/{name}/status");
            self.server.patch(&path, "strategic-merge", &status).send()?.expect(200)?;
        }
        self.beat.set(Some(Instant::now()));
        Ok(())
    }

    /// Makes a namespace for one scene, and waits until Pods can be made in it.
    fn scene<'c>(&'c self, name: &str, labels: &Value) -> Result<Scene<'c>> {
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        self.server.create("/api/v1/namespaces", &namespace)?;
        eventually("its service account", || {
            let path = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
            Ok((self.server.get(&path).send()?.status == 200).then_some(()))
        })?;
        Ok(Scene { cluster: self, server: &self.server, pods: format!("/api/v1/namespaces/{name}/pods") })
    }
}

/// The Pods of a namespace.
struct Scene<'c> {
    cluster: &'c Cluster,
    server: &'c Server,
    pods: String,
}

impl Scene<'_> {
    /// Makes a Pod.
    fn add(&self, name: &str, labels: &Value, spec: &Value) -> Result<()> {
        let mut full = json!({
            "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "i"}],
        });
        for (key, value) in spec.as_object().into_iter().flatten() {
            full[key] = value.clone();
        }
        let pod = json!({"metadata": {"name": name, "labels": labels}, "spec": full});
        self.server.create(&self.pods, &pod).with_context(|| format!("making {name}"))?;
        Ok(())
    }

    fn get(&self, name: &str) -> Result<Value> {
        self.cluster.heartbeat()?;
        self.server.get(&format!("{}/{name}", self.pods)).send()?.expect(200)?.json()
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.server.request("DELETE", &format!("{}/{name}", self.pods)).send()?.expect(200)?;
        Ok(())
    }

    /// Waits until a Pod has a node; returns the node.
    fn placed(&self, name: &str) -> Result<String> {
        eventually(&format!("{name} has a node"), || {
            Ok(self.get(name)?["spec"]["nodeName"].as_str().map(str::to_owned))
        })
    }

    fn on(&self, name: &str, nodes: &[&str]) -> Result<()> {
        let node = self.placed(name)?;
        ensure!(nodes.contains(&node.as_str()), "{name} is on {node}, not on one of {nodes:?}");
        Ok(())
    }

    /// Waits until a Pod's condition tells the reason for which it is not placed.
    fn waits(&self, name: &str, why: &str) -> Result<()> {
        let mut last = String::new();
        eventually(&format!("{name} waits since {why}"), || {
            let pod = self.get(name)?;
            ensure!(pod["spec"]["nodeName"].is_null(), "{name} was placed on {}", pod["spec"]["nodeName"]);
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let said = conditions.iter().find(|c| c["type"] == "PodScheduled" && c["status"] == "False");
            said.and_then(|c| c["message"].as_str()).unwrap_or_default().clone_into(&mut last);
            Ok((last == why && said.is_some_and(|c| c["reason"] == "Unschedulable")).then_some(()))
        })
        .with_context(|| format!("it says {last:?}"))
    }
}

/// The sentence about three nodes: their reasons, and the result of preemption.
fn none_of_3(reasons: &str, preemption: &str) -> String {
    format!(
        "0/3 nodes are available: {reasons}. no new claims to deallocate, preemption: 0/3 nodes are available: {preemption}."
    )
}

const NO_VICTIMS: &str = "3 No preemption victims found for incoming pod";
const NO_HELP: &str = "3 Preemption is not helpful for scheduling";

fn required(kind: &str, terms: &Value) -> Value {
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

fn app(name: &str) -> Value {
    json!({"app": name})
}

/// A term about Pods with a label `app`.
fn about(name: &str, key: &str) -> Value {
    json!([{"labelSelector": {"matchLabels": app(name)}, "topologyKey": key}])
}

fn spread(name: &str, key: &str, more: &Value) -> Value {
    let mut constraint = json!({
        "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": app(name)},
    });
    for (k, v) in more.as_object().into_iter().flatten() {
        constraint[k] = v.clone();
    }
    json!({"topologySpreadConstraints": [constraint]})
}

fn merged(a: Value, b: Value) -> Value {
    let (Value::Object(mut a), Value::Object(b)) = (a, b) else { return Value::Null };
    a.extend(b);
    Value::Object(a)
}

fn one_a_node(cluster: &Cluster) -> Result<()> {
    let s = cluster.scene("one-a-node", &json!({}))?;
    let alone = required("podAntiAffinity", &about("x", "host"));
    let mut nodes = Vec::new();
    for name in ["x1", "x2", "x3"] {
        s.add(name, &app("x"), &alone)?;
        nodes.push(s.placed(name)?);
    }
    let free = nodes[1].clone();
    nodes.sort();
    ensure!(nodes == ["n1", "n2", "n3"], "{nodes:?}");
    s.add("x4", &app("x"), &alone)?;
    s.waits("x4", &none_of_3("3 node(s) didn't match pod anti-affinity rules", NO_VICTIMS))?;
    s.delete("x2")?;
    s.on("x4", &[&free])
}

fn others_may_object(cluster: &Cluster) -> Result<()> {
    let s = cluster.scene("others-may-object", &json!({}))?;
    for (name, zone) in [("hater-a", "a"), ("hater-b", "b")] {
        let spec =
            merged(required("podAntiAffinity", &about("x", "zone")), json!({"nodeSelector": {"zone": zone}}));
        s.add(name, &app("hater"), &spec)?;
        s.placed(name)?;
    }
    s.add("x", &app("x"), &json!({}))?;
    s.waits("x", &none_of_3("3 node(s) didn't satisfy existing pods anti-affinity rules", NO_VICTIMS))?;
    // The Pod's own labels help it.
    let labels = json!({"metadata": {"labels": app("y")}});
    s.server.patch(&format!("{}/x", s.pods), "merge", &labels).send()?.expect(200)?;
    s.on("x", &["n1", "n2", "n3"])?;
    // Another Pod's end helps it, too.
    s.add("x2", &app("x"), &json!({}))?;
    s.waits("x2", &none_of_3("3 node(s) didn't satisfy existing pods anti-affinity rules", NO_VICTIMS))?;
    s.delete("hater-b")?;
    s.on("x2", &["n3"])
}

fn near_others(cluster: &Cluster) -> Result<()> {
    let s = cluster.scene("near-others", &json!({}))?;
    s.add("web", &app("web"), &required("podAffinity", &about("db", "zone")))?;
    s.waits("web", &none_of_3("3 node(s) didn't match pod affinity rules", NO_HELP))?;
    s.add("db", &app("db"), &json!({"nodeSelector": {"zone": "b"}}))?;
    s.on("db", &["n3"])?;
    s.on("web", &["n3"])?;
    // The first Pod of a group is near itself.
    s.add("g1", &app("g"), &required("podAffinity", &about("g", "host")))?;
    let first = s.placed("g1")?;
    s.add("g2", &app("g"), &required("podAffinity", &about("g", "host")))?;
    s.on("g2", &[&first])?;
    // With matchLabelKeys, a Pod is near those of the same revision alone.
    let term = |revision: &str| {
        let mut terms = about("r", "zone");
        terms[0]["matchLabelKeys"] = json!(["rev"]);
        let zone = json!({"nodeSelector": {"zone": if revision == "1" { "a" } else { "b" }}});
        merged(required("podAffinity", &terms), zone)
    };
    let revision = |rev: &str| json!({"app": "r", "rev": rev});
    s.add("r1", &revision("1"), &term("1"))?;
    s.on("r1", &["n1", "n2"])?;
    s.add("r2", &revision("2"), &term("2"))?;
    s.on("r2", &["n3"])
}

fn other_namespaces(cluster: &Cluster) -> Result<()> {
    let s = cluster.scene("here", &json!({"team": "one"}))?;
    let there = cluster.scene("there", &json!({"team": "two"}))?;
    there.add("db", &app("db"), &json!({"nodeSelector": {"host": "n2"}}))?;
    there.on("db", &["n2"])?;
    s.add("own", &app("web"), &required("podAffinity", &about("db", "host")))?;
    s.waits("own", &none_of_3("3 node(s) didn't match pod affinity rules", NO_HELP))?;
    let mut terms = about("db", "host");
    terms[0]["namespaceSelector"] = json!({"matchLabels": {"team": "two"}});
    s.add("selected", &app("web"), &required("podAffinity", &terms))?;
    s.on("selected", &["n2"])?;
    let mut terms = about("db", "zone");
    terms[0]["namespaces"] = json!(["there"]);
    s.add("named", &app("web"), &required("podAntiAffinity", &terms))?;
    s.on("named", &["n3"])
}

fn spread_evenly(cluster: &Cluster) -> Result<()> {
    let s = cluster.scene("spread-evenly", &json!({}))?;
    let mut in_b = 0;
    for i in 0..4 {
        let name = format!("s{i}");
        s.add(&name, &app("s"), &spread("s", "zone", &json!({})))?;
        in_b += usize::from(s.placed(&name)? == "n3");
    }
    ensure!(in_b == 2, "{in_b} of 4 are in zone b");
    // Two domains are too few, so none may have a second.
    for name in ["m0", "m1"] {
        s.add(name, &app("m"), &spread("m", "zone", &json!({"minDomains": 3})))?;
        s.placed(name)?;
    }
    s.add("m2", &app("m"), &spread("m", "zone", &json!({"minDomains": 3})))?;
    s.waits("m2", &none_of_3("3 node(s) didn't match pod topology spread constraints", NO_VICTIMS))?;
    // Nodes that the Pod itself excludes count if the policy says so.
    let in_a = |policy: &str| {
        let constraint = spread("p", "zone", &json!({"nodeAffinityPolicy": policy}));
        merged(constraint, json!({"nodeSelector": {"zone": "a"}}))
    };
    s.add("p0", &app("p"), &in_a("Ignore"))?;
    s.on("p0", &["n1", "n2"])?;
    s.add("p1", &app("p"), &in_a("Ignore"))?;
    let why = "1 node(s) didn't match Pod's node affinity/selector, 2 node(s) didn't match pod topology spread constraints";
    let victims =
        "1 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod";
    s.waits("p1", &none_of_3(why, victims))?;
    s.add("p2", &app("p"), &in_a("Honor"))?;
    s.on("p2", &["n1", "n2"])?;
    for name in ["p3", "p4"] {
        s.add(name, &app("p"), &json!({"nodeSelector": {"zone": "b"}}))?;
    }
    s.on("p1", &["n1", "n2"])
}

fn labels_of_nodes(cluster: &Cluster) -> Result<()> {
    let s = cluster.scene("labels-of-nodes", &json!({}))?;
    s.add("r", &app("r"), &spread("r", "rack", &json!({})))?;
    let why = "3 node(s) didn't match pod topology spread constraints (missing required label)";
    s.waits("r", &none_of_3(why, NO_HELP))?;
    let label = json!({"metadata": {"labels": {"rack": "r1"}}});
    s.server.patch("/api/v1/nodes/n2", "merge", &label).send()?.expect(200)?;
    s.on("r", &["n2"])?;
    let by_name = |name: &str| {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
        ]}}}})
    };
    s.add("named", &json!({}), &by_name("n1"))?;
    s.on("named", &["n1"])?;
    s.add("nowhere", &json!({}), &by_name("n9"))?;
    s.waits("nowhere", &none_of_3("3 node(s) didn't satisfy plugin(s) [NodeAffinity]", NO_HELP))
}

fn claims_wait(cluster: &Cluster) -> Result<()> {
    let s = cluster.scene("claims-wait", &json!({}))?;
    let volume = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    s.add("p", &json!({}), &volume)?;
    s.waits("p", &none_of_3("persistentvolumeclaim \"data\" not found", NO_HELP))?;
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    s.server.create("/api/v1/namespaces/claims-wait/persistentvolumeclaims", &claim)?;
    s.waits("p", &none_of_3("pod has unbound immediate PersistentVolumeClaims", NO_HELP))?;
    let template =
        json!({"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": claim["spec"]}}}]});
    s.add("e", &json!({}), &template)?;
    let why = "waiting for ephemeral volume controller to create the persistentvolumeclaim \"e-v\"";
    s.waits("e", &none_of_3(why, NO_HELP))?;
    let device = json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]});
    s.add("d", &json!({}), &device)?;
    // Without its claim a Pod is not even tried; with it, it is.
    let claim = json!({
        "metadata": {"name": "mine"},
        "spec": {"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": "none.example.com"}}]}},
    });
    s.server.create("/apis/resource.k8s.io/v1/namespaces/claims-wait/resourceclaims", &claim)?;
    s.waits("d", &none_of_3("request one: device class none.example.com does not exist", NO_HELP))?;
    s.add("c", &json!({}), &json!({"volumes": [{"name": "v", "csi": {"driver": "example.com"}}]}))?;
    // Whether the driver is there is the node's business.
    s.on("c", &["n1", "n2", "n3"])?;
    // A Pod without claims is placed as ever.
    let plain = json!({"volumes": [
        {"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "c", "optional": true}},
        {"name": "c", "hostPath": {"path": "/tmp"}},
    ]});
    s.add("plain", &json!({}), &plain)?;
    s.on("plain", &["n1", "n2", "n3"])
}

fn room_is_made(cluster: &Cluster) -> Result<()> {
    let s = cluster.scene("room-is-made", &json!({}))?;
    for i in 0..3 {
        let spec = json!({"priorityClassName": "low", "nodeSelector": {"host": format!("n{}", i + 1)}});
        s.add(&format!("low{i}"), &app("x"), &spec)?;
        s.placed(&format!("low{i}"))?;
    }
    let spec = merged(required("podAntiAffinity", &about("x", "host")), json!({"priorityClassName": "high"}));
    s.add("high", &json!({}), &spec)?;
    let node = s.placed("high")?;
    let left = s.server.get(&s.pods).send()?.expect(200)?.json()?;
    let left = left["items"].as_array().cloned().unwrap_or_default();
    let on_node: Vec<&Value> = left.iter().filter(|p| p["spec"]["nodeName"] == node.as_str()).collect();
    ensure!(left.len() == 3 && on_node.len() == 1, "left: {} on {node}: {}", left.len(), on_node.len());
    Ok(())
}

fn odd_pods_cost_nobody(cluster: &Cluster) -> Result<()> {
    let s = cluster.scene("odd-pods", &json!({}))?;
    let amounts = json!({"requests": {"cpu": "9223372036854775807", "memory": "8E"}});
    let greedy =
        |n: usize| (0..n).map(|i| json!({"name": format!("c{i}"), "image": "i", "resources": amounts}));
    for name in ["greedy1", "greedy2"] {
        let spec = json!({"containers": greedy(20).collect::<Vec<_>>()});
        s.add(name, &json!({}), &spec)?;
        s.waits(name, &none_of_3("3 Insufficient cpu, 3 Insufficient memory", NO_HELP))?;
        // The same Pod is bound without the scheduler: the scheduler's sums must hold that.
        let bound = merged(spec, json!({"nodeName": "n1"}));
        s.add(&format!("{name}-bound"), &json!({}), &bound)?;
    }
    s.add("elsewhere", &json!({}), &json!({"nodeName": "nowhere"}))?;
    let terms: Vec<Value> = (0..2000)
        .map(|i| json!({"labelSelector": {"matchLabels": {"k": i.to_string()}}, "topologyKey": "host"}))
        .collect();
    s.add("many-terms", &json!({"k": "no"}), &required("podAntiAffinity", &json!(terms)))?;
    s.on("many-terms", &["n1", "n2", "n3"])?;
    s.add("stranger", &json!({}), &json!({"schedulerName": "another"}))?;
    s.add("plain", &json!({}), &json!({}))?;
    s.placed("plain")?;
    for name in ["greedy1-bound", "greedy2-bound"] {
        s.delete(name)?;
    }
    s.add("on-n1", &json!({}), &json!({"nodeSelector": {"host": "n1"}}))?;
    s.on("on-n1", &["n1"])?;
    ensure!(s.get("stranger")?["spec"]["nodeName"].is_null(), "it belongs to another scheduler");
    Ok(())
}

#[test]
fn rules_about_other_pods_are_kept() -> Result<()> {
    let cluster = Cluster::start()?;
    one_a_node(&cluster)?;
    others_may_object(&cluster)?;
    near_others(&cluster)?;
    other_namespaces(&cluster)?;
    room_is_made(&cluster)
}

#[test]
fn pods_are_spread() -> Result<()> {
    let cluster = Cluster::start()?;
    spread_evenly(&cluster)?;
    labels_of_nodes(&cluster)
}

#[test]
fn claims_and_odd_pods_wait_alone() -> Result<()> {
    let cluster = Cluster::start()?;
    claims_wait(&cluster)?;
    odd_pods_cost_nobody(&cluster)?;
    crate::hostile::alive::serves_others(&cluster.server)
}
