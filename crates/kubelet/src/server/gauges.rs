//! The gauges of `/metrics` that say how things are: looked at when somebody asks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::gate::Gate;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};

use super::served::Served;
use crate::metrics::{self, Metric, Metrics};
use crate::pods::spec;
use crate::pods::worker::{Phase, Worker};
use crate::stats::disks::{PodUse, VolumeUse};
use crate::volumes::{plugin_name, volumes_in};
use crate::work::blocking;

/// Looks at everything.
pub(super) async fn read(served: &Served) {
    let metrics = &served.metrics;
    let workers = served.workers.all();
    metrics.set(&metrics::NODE_NAME, &[&served.config.node_name], 1.0);
    metrics.set(&metrics::CGROUP_VERSION, &[], f64::from(served.collector.cgroups.version()));
    let by_runtime = served.config.gates.enabled(Gate::PodAndContainerStatsFromCRI);
    metrics.set(&metrics::METRICS_PROVIDER, &[if by_runtime { "cri" } else { "cadvisor" }], 1.0);
    metrics.set(&metrics::MIRROR_PODS, &[], served.mirrors.all().len() as f64);
    served.plugins.write_metrics(metrics);
    served.certificates.count(metrics);
    pods(metrics, &workers);
    certificates(served, served.clock.now());
    let uses = workers.iter().filter_map(|w| Some((w.pod(), served.collector.disks.of(&w.uid)?)));
    let uses: Vec<(Arc<Pod>, Arc<PodUse>)> = uses.collect();
    logs(metrics, &uses);
    volumes(metrics, uses.iter().flat_map(|(_, found)| &found.volumes));
    let dir = served.config.pods_dir();
    let pods: Vec<Arc<Pod>> = workers.iter().filter(|w| w.to_run()).map(|w| w.pod()).collect();
    let images = served.config.root_dir.join("image_manager");
    let of_dirs = blocking(move || {
        (plugins(&dir, &pods), files(&images.join("pulling")), files(&images.join("pulled")))
    });
    let Ok((plugins, intents, records)) = of_dirs.await else { return };
    metrics.reset(&metrics::VOLUME_MANAGER_TOTAL_VOLUMES);
    for ((plugin, state), count) in plugins {
        metrics.set(&metrics::VOLUME_MANAGER_TOTAL_VOLUMES, &[&plugin, state], count as f64);
    }
    metrics.set(&metrics::IMAGEMANAGER_ONDISK_PULLINTENTS, &[], intents as f64);
    metrics.set(&metrics::IMAGEMANAGER_ONDISK_PULLEDRECORDS, &[], records as f64);
}

/// Whether a Pod is static, in upstream's words.
fn is_static(pod: &Pod) -> &'static str {
    if spec::is_static(pod) { "true" } else { "" }
}

/// The numbers of Pods and containers.
fn pods(metrics: &Metrics, workers: &[Arc<Worker>]) {
    let counted = [
        &metrics::DESIRED_PODS,
        &metrics::ACTIVE_PODS,
        &metrics::WORKING_PODS,
        &metrics::RUNNING_CONTAINERS,
        &metrics::POD_PENDING_RESIZES,
    ];
    for metric in counted {
        metrics.reset(metric);
    }
    for label in ["", "true"] {
        metrics.set(&metrics::DESIRED_PODS, &[label], 0.0);
        metrics.set(&metrics::ACTIVE_PODS, &[label], 0.0);
    }
    for state in ["created", "exited", "running", "unknown"] {
        metrics.set(&metrics::RUNNING_CONTAINERS, &[state], 0.0);
    }
    let (mut running, mut ephemeral, mut resizing) = (0, 0, 0);
    for worker in workers {
        let active = worker.active();
        let state = worker.state.lock();
        let kind = is_static(&state.pod);
        if !state.gone {
            metrics.add(&metrics::DESIRED_PODS, &[kind], 1.0);
            ephemeral += spec::ephemeral_containers(&state.pod).len();
        }
        if active {
            metrics.add(&metrics::ACTIVE_PODS, &[kind], 1.0);
        }
        let phase = match state.phase {
            Phase::Running => "sync",
            Phase::Terminating => "terminating",
            Phase::Terminated => "terminated",
        };
        let config = if state.gone { "orphan" } else { "desired" };
        metrics.add(&metrics::WORKING_PODS, &[config, phase, kind], 1.0);
        running += usize::from(state.observed.sandboxes.iter().any(|s| s.ready));
        for container in &state.observed.containers {
            metrics.add(&metrics::RUNNING_CONTAINERS, &[container.state.name()], 1.0);
        }
        if let Some(pending) = &state.pending {
            metrics.add(&metrics::POD_PENDING_RESIZES, &[&pending.reason.to_lowercase()], 1.0);
        }
        resizing += usize::from(is_resizing(&state.status));
    }
    metrics.set(&metrics::RUNNING_PODS, &[], running as f64);
    metrics.set(&metrics::MANAGED_EPHEMERAL_CONTAINERS, &[], ephemeral as f64);
    metrics.set(&metrics::POD_IN_PROGRESS_RESIZES, &[], resizing as f64);
}

fn is_resizing(status: &PodStatus) -> bool {
    status.conditions.iter().flatten().any(|c| c.type_ == "PodResizeInProgress" && c.status == "True")
}

/// How long certificates are good; infinitely where there is none that could end.
fn certificates(served: &Served, now: Timestamp) {
    let (metrics, all) = (&served.metrics, &served.config.certificates);
    let left = |certificate: Option<&client::Certificate>| {
        let end = certificate.and_then(client::Certificate::validity).map(|(_, end)| end);
        end.map_or(f64::INFINITY, |end| end.duration_since(now).as_secs_f64().floor())
    };
    let of = |certificate: Option<&client::Certificate>| {
        certificate.map(client::Certificate::renewals).unwrap_or_default()
    };
    let (client, server) = (all.client.as_ref(), all.server.as_ref());
    metrics.set(&metrics::CERTIFICATE_MANAGER_CLIENT_TTL_SECONDS, &[], left(client));
    metrics.set(&metrics::CERTIFICATE_MANAGER_SERVER_TTL_SECONDS, &[], left(server));
    let failures = of(client).failures as f64;
    metrics.set(&metrics::CERTIFICATE_MANAGER_CLIENT_EXPIRATION_RENEW_ERRORS, &[], failures);
    let renewals = of(server);
    metrics.set(&metrics::SERVER_EXPIRATION_RENEW_ERRORS, &[], renewals.failures as f64);
    metrics.reset(&metrics::CERTIFICATE_MANAGER_SERVER_ROTATION_SECONDS);
    for life in renewals.lives {
        metrics.observe(&metrics::CERTIFICATE_MANAGER_SERVER_ROTATION_SECONDS, &[], life.as_secs_f64());
    }
}

/// The room that logs take.
fn logs(metrics: &Metrics, uses: &[(Arc<Pod>, Arc<PodUse>)]) {
    metrics.reset(&metrics::CONTAINER_LOG_FILESYSTEM_USED_BYTES);
    for (pod, found) in uses {
        for (container, taken) in &found.logs {
            let labels = [container, spec::namespace(pod), spec::name(pod), spec::uid(pod)];
            metrics.set(&metrics::CONTAINER_LOG_FILESYSTEM_USED_BYTES, &labels, taken.bytes as f64);
        }
    }
}

/// The room that claims have: of a claim that several Pods have, once.
fn volumes<'a>(metrics: &Metrics, all: impl Iterator<Item = &'a VolumeUse>) {
    type Of = fn(&VolumeUse) -> u64;
    let counted: [(&'static Metric, Of); 6] = [
        (&metrics::VOLUME_STATS_CAPACITY_BYTES, |v| v.room.capacity),
        (&metrics::VOLUME_STATS_AVAILABLE_BYTES, |v| v.room.available),
        (&metrics::VOLUME_STATS_USED_BYTES, |v| v.taken.bytes),
        (&metrics::VOLUME_STATS_INODES, |v| v.room.inodes),
        (&metrics::VOLUME_STATS_INODES_FREE, |v| v.room.inodes_free),
        (&metrics::VOLUME_STATS_INODES_USED, |v| v.taken.inodes),
    ];
    for (metric, _) in counted {
        metrics.reset(metric);
    }
    metrics.reset(&metrics::VOLUME_STATS_HEALTH_STATUS_ABNORMAL);
    for volume in all {
        let Some((namespace, claim)) = &volume.claim else { continue };
        if let Some(condition) = &volume.condition {
            let abnormal = f64::from(u8::from(condition.abnormal));
            metrics.set(&metrics::VOLUME_STATS_HEALTH_STATUS_ABNORMAL, &[namespace, claim], abnormal);
        }
        for (metric, of) in counted {
            metrics.set(metric, &[namespace, claim], of(volume) as f64);
        }
    }
}

/// The volumes by plugin: those that Pods want, and those that are there.
fn plugins(pods_dir: &Path, pods: &[Arc<Pod>]) -> BTreeMap<(String, &'static str), u64> {
    let mut all = BTreeMap::new();
    for pod in pods {
        let there: Vec<String> = volumes_in(&pods_dir.join(spec::uid(pod)).join("volumes"))
            .into_iter()
            .map(|(_, name)| name)
            .collect();
        for volume in spec::spec(pod).volumes.iter().flatten() {
            let plugin = plugin_name(volume);
            *all.entry((plugin.clone(), "desired_state_of_world")).or_default() += 1;
            // Neither a path of the host nor an image has a directory; a claim's has the name of its volume.
            let mounted = there.contains(&volume.name)
                || volume.host_path.is_some()
                || volume.image.is_some()
                || (volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some());
            if mounted {
                *all.entry((plugin, "actual_state_of_world")).or_default() += 1;
            }
        }
    }
    all
}

fn files(dir: &PathBuf) -> usize {
    std::fs::read_dir(dir).map_or(0, |entries| entries.flatten().count())
}

#[cfg(test)]
mod tests {
    use component::metrics::Page;
    use serde_json::json;

    use super::*;
    use crate::csi::Condition;
    use crate::node::machine::Filesystem;
    use crate::stats::tree::Taken;

    fn pod(uid: &str, volumes: serde_json::Value) -> Arc<Pod> {
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": uid}, "spec": {
            "containers": [{"name": "c"}], "volumes": volumes}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn text(metrics: &Metrics) -> String {
        let mut page = Page::default();
        metrics.write(&mut page);
        page.text()
    }

    #[tokio::test]
    async fn pods_and_claims() {
        let metrics = Metrics::default();
        let (one, two) = (Worker::new(pod("a", json!([]))), Worker::new(pod("b", json!([]))));
        two.deleted();
        two.advance(Phase::Terminating);
        pods(&metrics, &[one, two]);
        let room = Filesystem { capacity: 100, available: 40, inodes: 10, inodes_free: 7 };
        let volume = |claim: Option<(&str, &str)>, abnormal: Option<bool>| VolumeUse {
            name: "v".into(),
            ephemeral: false,
            taken: Taken { bytes: 60, inodes: 3 },
            room,
            claim: claim.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
            condition: abnormal.map(|abnormal| Condition { abnormal, message: String::new() }),
        };
        let all = [
            volume(Some(("n", "data")), None),
            volume(None, Some(true)),
            volume(Some(("n", "sick")), Some(true)),
            volume(Some(("n", "well")), Some(false)),
        ];
        volumes(&metrics, all.iter());
        let text = text(&metrics);
        for line in [
            "kubelet_desired_pods{static=\"\"} 1",
            "kubelet_active_pods{static=\"\"} 2",
            "kubelet_active_pods{static=\"true\"} 0",
            "kubelet_working_pods{config=\"desired\",lifecycle=\"sync\",static=\"\"} 1",
            "kubelet_working_pods{config=\"orphan\",lifecycle=\"terminating\",static=\"\"} 1",
            "kubelet_running_containers{container_state=\"running\"} 0",
            "kubelet_volume_stats_capacity_bytes{namespace=\"n\",persistentvolumeclaim=\"data\"} 100",
            "kubelet_volume_stats_used_bytes{namespace=\"n\",persistentvolumeclaim=\"data\"} 60",
            "kubelet_volume_stats_inodes_used{namespace=\"n\",persistentvolumeclaim=\"data\"} 3",
            "kubelet_volume_stats_health_status_abnormal{namespace=\"n\",persistentvolumeclaim=\"sick\"} 1",
            "kubelet_volume_stats_health_status_abnormal{namespace=\"n\",persistentvolumeclaim=\"well\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        let told = text.lines().filter(|l| l.starts_with("kubelet_volume_stats_health_status_abnormal{"));
        assert_eq!(told.count(), 2, "{text}");
    }

    #[test]
    fn volumes_are_wanted_and_there() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("u/volumes/kubernetes.io~configmap/conf")).unwrap();
        let pod = pod(
            "u",
            json!([{"name": "conf", "configMap": {"name": "x"}}, {"name": "scratch", "emptyDir": {}}]),
        );
        let found = plugins(dir.path(), &[pod]);
        let found: Vec<(&str, &str, u64)> = found.iter().map(|((p, s), n)| (p.as_str(), *s, *n)).collect();
        assert_eq!(
            found,
            [
                ("kubernetes.io/configmap", "actual_state_of_world", 1),
                ("kubernetes.io/configmap", "desired_state_of_world", 1),
                ("kubernetes.io/empty-dir", "desired_state_of_world", 1),
            ]
        );
        assert_eq!(files(&dir.path().join("u")), 1);
        assert_eq!(files(&dir.path().join("missing")), 0);
    }
}
