//! A node as Prometheus sees it through the API server's proxy, with the rules, alerts and dashboards that come with
//! kube-prometheus.

mod format;
mod rules;

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use testkit::{Cluster, Image, Options, Signal, eventually};

use self::format::Page;
use self::rules::READ;

const IMAGE: &str = "test.local/app:1";

/// Pods that burn a processor, hold memory, lose a process to a limit, and answer over the network from a claim.
const PODS: &str = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: burns}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: test.local/app:1
    command: [sh, -c, "while :; do :; done"]
    resources: {limits: {cpu: 100m, memory: 64Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: holds}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: test.local/app:1
    command: [sh, -c, "x=$(head -c 20000000 /dev/zero | tr '\\0' a); while :; do sleep 1000000; done"]
---
apiVersion: v1
kind: Pod
metadata: {name: loses}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: test.local/app:1
    command: [sh, -c, "sh -c 'x=$(head -c 100000000 /dev/zero | tr \"\\0\" a)'; while :; do sleep 1000000; done"]
    resources: {limits: {memory: 32Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: answers}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: test.local/app:1
    command: [sh, -c, "echo here > /data/index.html; exec busybox httpd -f -p 8080 -h /data"]
    readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
"#;

/// A page of the node's kubelet.
fn scrape(c: &Cluster, page: &str) -> Result<Page> {
    let path = format!("/api/v1/nodes/{}/proxy/metrics/{page}", c.host().name());
    let text = c.kubectl(&["get", "--raw", path.trim_end_matches('/')])?;
    Page::parse(&text).with_context(|| format!("/metrics/{page}"))
}

fn pages(c: &Cluster) -> Result<Vec<(&'static str, Page)>> {
    ["", "cadvisor", "probes", "resource", "slis"]
        .into_iter()
        .map(|page| Ok((page, scrape(c, page)?)))
        .collect()
}

/// The reads of the rules that would find nothing, and why.
fn lacking(pages: &[(&str, Page)]) -> Vec<String> {
    let mut lacking = Vec::new();
    for (of, name, labels, there) in READ {
        let Some((_, page)) = pages.iter().find(|(page, _)| page == of) else { continue };
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|s| name.strip_suffix(s)).unwrap_or(name);
        let Some(family) = page.0.get(*name).or_else(|| page.0.get(base)) else {
            lacking.push(format!("/metrics/{of} has no {name}"));
            continue;
        };
        let samples: Vec<_> = family.samples.iter().filter(|(n, _, _)| n == name).collect();
        if *there && samples.is_empty() {
            lacking.push(format!("{name} has no series"));
        }
        for (_, has, _) in samples {
            if let Some(label) = labels.iter().find(|l| !has.contains_key(**l)) {
                lacking.push(format!("{name} has no label {label}: {has:?}"));
                break;
            }
        }
    }
    lacking
}

/// Waits until everything that the rules read is there, and the Pods have done what they do.
fn told(c: &Cluster) -> Result<Vec<(&'static str, Page)>> {
    let mut last = Vec::new();
    let found = eventually("everything that the rules read", || {
        let pages = pages(c)?;
        last = lacking(&pages);
        Ok(last.is_empty().then_some(pages))
    });
    found.with_context(|| last.join("\n"))
}

/// The labels of a Pod's only container.
fn of(pod: &str) -> [(&str, &str); 4] {
    [("namespace", "default"), ("pod", pod), ("container", "main"), ("image", IMAGE)]
}

/// Waits until the numbers are what the Pods make them.
fn plausible(c: &Cluster) -> Result<()> {
    let mut last = String::new();
    let found = eventually("numbers that tell what the Pods do", || {
        let page = scrape(c, "cadvisor")?;
        let sum = |name: &str, labels: &[(&str, &str)]| page.sum(name, labels).unwrap_or(-1.0);
        let checks = [
            ("time", sum("container_cpu_usage_seconds_total", &of("burns")) > 0.5),
            ("idle", sum("container_cpu_usage_seconds_total", &of("answers")) < 5.0),
            ("quota", (sum("container_spec_cpu_quota", &of("burns")) - 10_000.0).abs() < 0.5),
            ("periods", sum("container_cpu_cfs_periods_total", &of("burns")) > 5.0),
            ("throttled", sum("container_cpu_cfs_throttled_periods_total", &of("burns")) > 1.0),
            ("rss", sum("container_memory_rss", &of("holds")) >= 20_000_000.0),
            ("working set", sum("container_memory_working_set_bytes", &of("holds")) >= 20_000_000.0),
            (
                "limit",
                (sum("container_spec_memory_limit_bytes", &of("loses")) - f64::from(32 << 20)).abs() < 0.5,
            ),
            ("none", sum("container_spec_memory_limit_bytes", &of("holds")) == 0.0),
            ("oom", sum("container_oom_events_total", &of("loses")) >= 1.0),
            ("no oom", sum("container_oom_events_total", &of("holds")) == 0.0),
            ("processes", sum("container_processes", &of("holds")) >= 1.0),
            ("root", sum("container_memory_usage_bytes", &[("id", "/")]) > 20_000_000.0),
        ];
        let network = |name: &str| sum(name, &[("pod", "answers"), ("interface", "eth0")]);
        let network = network("container_network_receive_bytes_total") > 500.0
            && network("container_network_transmit_bytes_total") > 500.0;
        let wrong: Vec<&str> = checks.iter().filter(|(_, good)| !good).map(|(what, _)| *what).collect();
        let series = page
            .0
            .values()
            .flat_map(|f| &f.samples)
            .map(|(name, labels, value)| format!("{name}{labels:?} {value}"));
        last = format!("{wrong:?} network: {network}\n{}", series.collect::<Vec<_>>().join("\n"));
        Ok((wrong.is_empty() && network).then_some(()))
    });
    found.with_context(|| last.clone())
}

/// Compares the kubelet's own page with upstream's metrics, both ways.
fn is_upstreams(pages: &[(&str, Page)]) -> Result<()> {
    const UPSTREAM: &str = include_str!("../../../kubelet/src/metrics/upstream.tsv");
    let (_, page) = pages.iter().find(|(page, _)| page.is_empty()).context("no page")?;
    let rows: Vec<Vec<&str>> = UPSTREAM.lines().map(|line| line.split('\t').collect()).collect();
    let mut wrong = Vec::new();
    for row in &rows {
        let family = page.0.get(row[0]);
        let here = row[3] == "here";
        if family.is_some() != here {
            wrong.push(format!("{}: told: {}, to be told: {here}", row[0], family.is_some()));
        }
        let Some(family) = family else { continue };
        if family.kind != row[1] {
            wrong.push(format!("{} is a {}", row[0], family.kind));
        }
        let expected: BTreeSet<&str> = row[2].split(',').filter(|l| !l.is_empty()).collect();
        for (_, labels, _) in &family.samples {
            let has: BTreeSet<&str> = labels.keys().map(String::as_str).filter(|l| *l != "le").collect();
            if has != expected {
                wrong.push(format!("{} has {has:?}", row[0]));
                break;
            }
        }
    }
    let others = page.0.keys().filter(|name| !rows.iter().any(|row| row[0] == name.as_str()));
    wrong.extend(others.map(|name| format!("{name} is not upstream's")));
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn scraped(c: &mut Cluster) -> Result<()> {
    // Before anybody asked for a health check.
    let slis = scrape(c, "slis")?;
    for check in ["ping", "log", "syncloop"] {
        let labels = [("name", check), ("type", "healthz")];
        ensure!(slis.sum("kubernetes_healthcheck", &labels) == Some(1.0), "{check}");
        ensure!(slis.sum("kubernetes_healthchecks_total", &labels).is_some(), "{check}");
    }
    let server = Page::parse(&c.kubectl(&["get", "--raw", "/metrics/slis"])?)?;
    for check in ["etcd", "ping", "poststarthook/rbac/bootstrap-roles"] {
        let labels = [("name", check), ("type", "livez")];
        ensure!(server.sum("kubernetes_healthcheck", &labels) == Some(1.0), "{check}");
    }
    c.apply(PODS)?;
    let before = told(c)?;
    plausible(c)?;
    is_upstreams(&before)?;
    let claim = [("namespace", "default"), ("persistentvolumeclaim", "data")];
    let (_, own) = &before[0];
    let room = |name: &str| own.sum(name, &claim).unwrap_or_default();
    ensure!(room("kubelet_volume_stats_capacity_bytes") > room("kubelet_volume_stats_available_bytes"));
    ensure!(own.sum("kubelet_running_pods", &[]) >= Some(4.0));
    ensure!(own.sum("kubelet_started_containers_total", &[("container_type", "container")]) >= Some(4.0));
    ensure!(own.sum("kubelet_pod_start_total_duration_seconds_count", &[]) >= Some(4.0));

    // Another process finds the same containers: their counters go on, the kubelet's own begin anew.
    let used = |page: &Page| page.sum("container_cpu_usage_seconds_total", &of("burns")).unwrap_or_default();
    let earlier = used(&scrape(c, "cadvisor")?);
    c.stop_ferrokube(Signal::KILL)?;
    c.start_ferrokube()?;
    c.wait_ready()?;
    plausible(c)?;
    let later = used(&scrape(c, "cadvisor")?);
    ensure!(later >= earlier, "{later} after {earlier}");
    let pages = pages(c)?;
    is_upstreams(&pages)?;
    // A Pod that has gone is not told of any more.
    c.kubectl(&["delete", "pod", "burns", "--now"])?;
    eventually("the Pod's series end", || {
        let gone = scrape(c, "cadvisor")?.sum("container_last_seen", &[("pod", "burns")]).is_none();
        Ok(gone.then_some(()))
    })
}

fn run(containerd: bool) -> Result<()> {
    let images = vec![Image::busybox(IMAGE)?];
    // The disk of the test machine does not matter.
    let flags = vec![
        "--eviction-hard".into(),
        "memory.available<10Mi,nodefs.available<1%,imagefs.available<1%".into(),
    ];
    let mut cluster = Cluster::start("metrics", Options { images, flags, containerd, ..Options::default() })?;
    scraped(&mut cluster).with_context(|| cluster.report())
}

#[test]
fn prometheus_finds_what_its_rules_read() -> Result<()> {
    run(false)
}

#[test]
fn prometheus_finds_what_its_rules_read_on_containerd() -> Result<()> {
    run(true)
}
