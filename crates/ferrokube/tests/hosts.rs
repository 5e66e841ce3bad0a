//! Several nodes on one machine: `ferrokube up --nodes`, with a container runtime each.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::{Cluster, Image, Options, binary, eventually};

const WEB: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
      containers:
      - name: c
        image: test.local/app:1
        command: [sh, -c, "echo started on $NODE; mkdir /www && echo $NODE > /www/index.html && exec busybox httpd -f -p 80 -h /www"]
        env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
        readinessProbe: {httpGet: {port: 80}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 8080, targetPort: 80}]}
"#;

/// The things that a cluster makes on its machine, as far as they can be counted from the machine.
fn traces(cluster: &Cluster) -> Result<BTreeMap<&'static str, String>> {
    let sh = |script: &str| cluster.host().run("sh", &["-c", script]);
    Ok(BTreeMap::from([
        ("links", sh("ls /sys/class/net; ip -br link | cut -d@ -f1 | cut -d' ' -f1 | sort")?),
        ("routes", sh("ip route; ip -6 route")?),
        ("tables", sh("nft list tables")?),
        ("mounts", sh("cut -d' ' -f5 /proc/self/mountinfo | sort")?),
        ("logs", sh("find /var/log/pods /var/log/containers | sort")?),
        (
            "processes",
            sh(
                "cat /proc/[0-9]*/comm | grep -v -e '^cat$' -e '^sh$' -e '^sleep$' -e '^grep$' -e '^sort$' | sort",
            )?,
        ),
        (
            "namespaces",
            sh("for p in /proc/[0-9]*; do readlink $p/ns/net $p/ns/mnt $p/ns/uts; done | sort -u | wc -l")?,
        ),
    ]))
}

/// The cgroups of the nodes, wherever they are.
fn cgroups(cluster: &Cluster) -> Result<Vec<std::path::PathBuf>> {
    let mut found = Vec::new();
    let nodes = std::fs::read_dir(cluster.data_dir().join("nodes")).into_iter().flatten().flatten();
    let mut nodes: Vec<_> = nodes.map(|node| node.path().join("data")).collect();
    if nodes.is_empty() {
        nodes.push(cluster.data_dir());
    }
    for node in nodes {
        let notes: Value = serde_json::from_slice(&std::fs::read(node.join("footprint.json"))?)?;
        let root = notes["cgroupRoot"].as_str().context("no cgroup")?.trim_start_matches('/').to_owned();
        let bases =
            std::fs::read_dir("/sys/fs/cgroup")?.flatten().map(|e| e.path()).chain(["/sys/fs/cgroup".into()]);
        found.extend(bases.map(|base| base.join(&root)).filter(|dir| dir.is_dir()));
    }
    Ok(found)
}

/// The Pods of the Deployment: node, name, address.
fn pods(cluster: &Cluster) -> Result<BTreeMap<String, (String, String)>> {
    let all = cluster.kubectl(&["get", "pods", "-l", "app=web", "-o", "json"])?;
    let all: Value = serde_json::from_str(&all)?;
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let items = all["items"].as_array().cloned().unwrap_or_default();
    Ok(items
        .iter()
        .map(|p| (text(&p["spec"]["nodeName"]), (text(&p["metadata"]["name"]), text(&p["status"]["podIP"]))))
        .collect())
}

/// The page that a Pod gets from an address.
fn page(cluster: &Cluster, pod: &str, from: &str) -> Result<String> {
    let get = ["exec", pod, "--", "busybox", "timeout", "3", "busybox", "wget", "-qO-", from];
    Ok(cluster.kubectl(&get)?.trim().to_owned())
}

/// The id of a node's process, as seen on the machine of the test.
fn agent(node: &str, data: &str) -> Result<Pid> {
    let name = format!("--node-name={node}");
    let found = std::fs::read_dir("/proc")?.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        (line.contains("\0agent\0") && line.contains(&name) && line.contains(data)).then_some(pid)
    });
    found.and_then(Pid::from_raw).with_context(|| format!("node {node} has no process"))
}

#[test]
fn two_nodes_on_one_machine() -> Result<()> {
    let images = vec![Image::busybox("test.local/app:1")?];
    let options = Options { images, nodes: 2, ..Options::default() };
    let mut cluster = Cluster::start("pair", options)?;
    let (one, two) = ("pair-1", "pair-2");
    let cpus = cluster.kubectl(&["get", "nodes", "-o", "jsonpath={.items[*].status.capacity.cpu}"])?;
    let own = std::thread::available_parallelism()?.get() * 1000 / 2;
    let own = if own % 1000 == 0 { (own / 1000).to_string() } else { format!("{own}m") };
    ensure!(cpus == format!("{own} {own}"), "{cpus}");
    let tokens = || cluster.kubectl(&["-n", "kube-system", "get", "secrets", "-o", "name"]);
    eventually("the tokens of the nodes are gone", || Ok(tokens()?.is_empty().then_some(())))?;

    cluster.apply(WEB)?;
    cluster
        .kubectl(&["rollout", "status", "deployment/web", "--timeout=90s"])
        .with_context(|| cluster.report())?;
    let pods = pods(&cluster)?;
    ensure!(pods.keys().eq([one, two]), "{pods:?}");
    for (node, (pod, _)) in &pods {
        ensure!(cluster.kubectl(&["logs", pod])? == format!("started on {node}\n"), "{node}");
        for (other, (_, address)) in &pods {
            let url = format!("http://{address}/");
            eventually("Pods reach each other", || Ok((page(&cluster, pod, &url)? == *other).then_some(())))?;
        }
        let mut seen = std::collections::BTreeSet::new();
        eventually("a Service by its name leads to both", || {
            seen.insert(page(&cluster, pod, "http://web.default.svc.cluster.local:8080/")?);
            Ok((seen.len() == 2).then_some(()))
        })
        .with_context(|| format!("{seen:?}"))?;
        let name =
            cluster.kubectl(&["get", "--raw", &format!("/api/v1/namespaces/default/pods/{pod}/proxy/")])?;
        ensure!(name.trim() == *node, "the API server reaches Pods: {name}");
    }

    // Each node has its own Pods' logs where collectors look.
    for (node, (pod, _)) in &pods {
        let pid = agent(node, &cluster.data_dir().display().to_string())?.as_raw_nonzero();
        let root = format!("/proc/{pid}/root");
        let links =
            std::fs::read_dir(format!("{root}/var/log/containers"))?.collect::<Result<Vec<_>, _>>()?;
        let web = |link: &&std::fs::DirEntry| link.file_name().to_string_lossy().starts_with("web-");
        let logs = links.iter().filter(web).map(|link| std::fs::read_link(link.path()));
        let logs: Vec<_> = logs.collect::<Result<_, _>>()?;
        let [log] = &logs[..] else { anyhow::bail!("{node}: {logs:?}") };
        ensure!(log.starts_with("/var/log/pods") && log.to_string_lossy().contains(pod), "{node}: {logs:?}");
        let text = std::fs::read_to_string(format!("{root}{}", log.display()))?;
        ensure!(text.ends_with(&format!(" stdout F started on {node}\n")), "{text}");
    }

    // An image that is put among the archives later comes to every node.
    let later = cluster.host().path("later.tar");
    Image::busybox("test.local/later:1")?.write(&later)?;
    std::fs::rename(&later, cluster.host().path("images/later.tar"))?;
    let names = "jsonpath={.items[*].status.images[*].names}";
    eventually("the image is everywhere", || {
        Ok((cluster.kubectl(&["get", "nodes", "-o", names])?.matches("test.local/later:1").count() >= 2)
            .then_some(()))
    })?;

    // A node's process that dies is started again, and its Pods go on.
    let data = cluster.data_dir().display().to_string();
    let before = agent(two, &data)?;
    kill_process(before, Signal::KILL)?;
    eventually("the node's process is back", || Ok((agent(two, &data)? != before).then_some(())))
        .with_context(|| cluster.host().log("ferrokube"))?;
    eventually("its log is read again", || {
        Ok((cluster.kubectl(&["logs", &pods[two].0])? == format!("started on {two}\n")).then_some(()))
    })?;
    let restarts = "jsonpath={.items[*].status.containerStatuses[*].restartCount}";
    ensure!(cluster.kubectl(&["get", "pods", "-o", restarts])? == "0 0");
    ensure!(cluster.host().log("ferrokube").contains("node pair-2: its process ended"));

    // Everything is killed, and comes back with the same Pods.
    cluster.stop_ferrokube(testkit::Signal::KILL)?;
    eventually("the nodes end with it", || Ok(agent(one, &data).is_err().then_some(())))?;
    cluster.start_ferrokube()?;
    cluster.wait_ready()?;
    eventually("a Pod as before", || {
        Ok((page(&cluster, &pods[one].0, "http://web:8080/").is_ok()).then_some(()))
    })?;
    ensure!(cluster.kubectl(&["get", "pods", "-o", restarts])? == "0 0");
    cluster.stop_ferrokube(testkit::Signal::TERM)
}

#[test]
fn nothing_is_left_of_nodes_on_one_machine() -> Result<()> {
    nothing_is_left("traces", 2, false)
}

#[test]
fn nothing_is_left_of_a_cluster_whose_files_were_removed_by_hand() -> Result<()> {
    nothing_is_left("lost", 0, true)
}

#[test]
fn nothing_is_left_of_nodes_whose_files_were_removed_by_hand() -> Result<()> {
    nothing_is_left("lost-nodes", 2, true)
}

/// Starts a cluster of nodes on this machine, or of the machine itself, with Pods, kills it, removes its files by hand if they are to be `lost`, and has `down` remove it.
fn nothing_is_left(name: &str, nodes: usize, lost: bool) -> Result<()> {
    let images = vec![Image::busybox("test.local/app:1")?];
    let options = Options { control_plane_only: true, ..Options::default() };
    let bare = Cluster::start(name, options)?;
    let before = traces(&bare)?;
    drop(bare);
    let options = Options { images, nodes, ..Options::default() };
    let mut cluster = Cluster::start(name, options)?;
    // On a node alone the Pods do not spread.
    cluster.apply(&if nodes > 1 { WEB.to_owned() } else { WEB.replace("replicas: 2", "replicas: 1") })?;
    cluster
        .kubectl(&["rollout", "status", "deployment/web", "--timeout=90s"])
        .with_context(|| cluster.report())?;
    let during = traces(&cluster)?;
    for key in ["links", "tables", "processes", "namespaces"] {
        ensure!(during[key] != before[key], "{key}");
    }
    // Nodes on this machine have logs of their own.
    ensure!((during["logs"] != before["logs"]) == (nodes == 0), "{}", during["logs"]);
    let cgroups = cgroups(&cluster)?;
    ensure!(cgroups.len() >= nodes.max(1), "{cgroups:?}");
    cluster.stop_ferrokube(testkit::Signal::KILL)?;
    let data = cluster.data_dir().display().to_string();
    let ferrokube = |args: &[&str]| {
        let args = [args, &["--data-dir", &data]].concat();
        cluster.host().run(&binary().to_string_lossy(), &args)
    };
    if lost {
        cluster
            .host()
            .run("sh", &["-c", &format!("rm -rf {data} 2> /dev/null; test ! -e {data}/version")])?;
        let up = if nodes > 0 { vec!["up", "--nodes", "2"] } else { vec!["up"] };
        let refused = ferrokube(&up).err().map(|error| error.to_string()).unwrap_or_default();
        let sentence = format!("and they still run: remove them with `ferrokube down --data-dir {data}`");
        ensure!(refused.contains(&sentence), "{refused}");
    }
    let kept = cluster.data_dir().join("mine");
    if lost {
        std::fs::create_dir_all(&kept)?;
    }
    ferrokube(&["down"])?;
    if lost {
        ensure!(kept.exists(), "files that are not the cluster's stay");
        std::fs::remove_dir_all(cluster.data_dir())?;
    }
    ensure!(!cluster.data_dir().exists());
    eventually("nothing is left", || {
        let mut after = traces(&cluster)?;
        // The bare control plane ran while its traces were counted.
        after.insert("processes", format!("{}ferrokube\n", after["processes"]));
        let mut left = Vec::new();
        for (key, was) in &before {
            let (mut was, mut is): (Vec<_>, Vec<_>) = (was.lines().collect(), after[key].lines().collect());
            was.sort_unstable();
            is.sort_unstable();
            if was != is {
                left.push(format!("{key}: {was:?}, now {is:?}"));
            }
        }
        left.extend(cgroups.iter().filter(|dir| dir.is_dir()).map(|dir| dir.display().to_string()));
        ensure!(left.is_empty(), "{}", left.join("\n"));
        Ok(Some(()))
    })
}
