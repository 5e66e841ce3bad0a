//! The metrics of claims and volumes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::Informer;
use component::Registry;
use component::metrics::Page;
use k8s_openapi::api::core::v1::{PersistentVolume as Volume, PersistentVolumeClaim as Claim};
use objects::volumes::claim_class;

use super::names::{claim_spec, namespace, phase_of_claim, phase_of_volume, volume_spec};

/// The counters of classes that claims got later.
#[derive(Clone, Default)]
pub(super) struct Metrics(Arc<Given>);

#[derive(Default)]
struct Given {
    done: AtomicU64,
    failed: AtomicU64,
}

impl Metrics {
    /// Puts them into a registry, with the counts of claims and volumes.
    pub(super) fn register(&self, registry: &Registry, claims: &Informer<Claim>, volumes: &Informer<Volume>) {
        let (given, claims, volumes) = (self.0.clone(), claims.clone(), volumes.clone());
        registry.register("persistentvolume-binder-controller", move |page| {
            of_volumes(page, volumes.list().iter().map(Arc::as_ref));
            of_claims(page, claims.list().iter().map(Arc::as_ref));
            let counters = [
                (
                    "retroactive_storageclass_total",
                    "[ALPHA] Total number of retroactive StorageClass assignments to persistent volume claim",
                    &given.done,
                ),
                (
                    "retroactive_storageclass_errors_total",
                    "[ALPHA] Total number of failed retroactive StorageClass assignments to persistent volume claim",
                    &given.failed,
                ),
            ];
            for (name, help, count) in counters {
                page.metric(name, "counter", help).value(name, &[], count.load(Ordering::Relaxed) as f64);
            }
        });
    }

    /// Counts a claim that got the default class later.
    pub(super) fn class_given(&self, done: bool) {
        let count = if done { &self.0.done } else { &self.0.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the name of the plugin that mounts a volume, as upstream's metrics have it.
fn plugin(volume: &Volume) -> String {
    let spec = volume_spec(volume);
    if let Some(csi) = &spec.csi {
        return format!("kubernetes.io/csi:{}", csi.driver);
    }
    let known = [
        (spec.host_path.is_some(), "kubernetes.io/host-path"),
        (spec.local.is_some(), "kubernetes.io/local-volume"),
        (spec.nfs.is_some(), "kubernetes.io/nfs"),
    ];
    known.iter().find(|(is, _)| *is).map_or("N/A", |(_, name)| name).to_owned()
}

fn of_volumes<'v>(page: &mut Page, volumes: impl Iterator<Item = &'v Volume>) {
    let mut total: BTreeMap<(String, &str), f64> = BTreeMap::new();
    let mut bound: BTreeMap<&str, f64> = BTreeMap::new();
    let mut unbound = bound.clone();
    for volume in volumes {
        let spec = volume_spec(volume);
        let mode = spec.volume_mode.as_deref().unwrap_or("Filesystem");
        *total.entry((plugin(volume), mode)).or_default() += 1.0;
        let class = spec.storage_class_name.as_deref().unwrap_or_default();
        let counts = if phase_of_volume(volume) == "Bound" { &mut bound } else { &mut unbound };
        *counts.entry(class).or_default() += 1.0;
    }
    const TOTAL: &str = "pv_collector_total_pv_count";
    if !total.is_empty() {
        page.metric(TOTAL, "gauge", "[ALPHA] Gauge measuring total number of persistent volumes");
    }
    for ((plugin, mode), count) in &total {
        page.value(TOTAL, &[("plugin_name", plugin.as_str()), ("volume_mode", mode)], *count);
    }
    let both = [
        (
            "pv_collector_bound_pv_count",
            "[ALPHA] Gauge measuring number of persistent volume currently bound",
            bound,
        ),
        (
            "pv_collector_unbound_pv_count",
            "[ALPHA] Gauge measuring number of persistent volume currently unbound",
            unbound,
        ),
    ];
    for (name, help, counts) in both.iter().filter(|(.., counts)| !counts.is_empty()) {
        page.metric(name, "gauge", help);
        for (class, count) in counts {
            page.value(name, &[("storage_class", class)], *count);
        }
    }
}

fn of_claims<'c>(page: &mut Page, claims: impl Iterator<Item = &'c Claim>) {
    let mut bound: BTreeMap<[&str; 3], f64> = BTreeMap::new();
    let mut unbound = bound.clone();
    for claim in claims {
        let attributes = claim_spec(claim).volume_attributes_class_name.as_deref().unwrap_or_default();
        let key = [namespace(&claim.metadata), claim_class(claim), attributes];
        let counts = if phase_of_claim(claim) == "Bound" { &mut bound } else { &mut unbound };
        *counts.entry(key).or_default() += 1.0;
    }
    let both = [
        (
            "pv_collector_bound_pvc_count",
            "[ALPHA] Gauge measuring number of persistent volume claim currently bound",
            bound,
        ),
        (
            "pv_collector_unbound_pvc_count",
            "[ALPHA] Gauge measuring number of persistent volume claim currently unbound",
            unbound,
        ),
    ];
    for (name, help, counts) in both.iter().filter(|(.., counts)| !counts.is_empty()) {
        page.metric(name, "gauge", help);
        for ([namespace, class, attributes], count) in counts {
            let labels = [
                ("namespace", *namespace),
                ("storage_class", *class),
                ("volume_attributes_class", *attributes),
            ];
            page.value(name, &labels, *count);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts() {
        let volume = |source: &str, class: &str, phase: &str| {
            let spec = json!({source: {"driver": "d", "volumeHandle": "h", "path": "/p", "server": "s"}, "storageClassName": class});
            serde_json::from_value::<Volume>(
                json!({"metadata": {"name": "v"}, "spec": spec, "status": {"phase": phase}}),
            )
            .unwrap()
        };
        let claim = |class: &str, phase: &str| {
            let claim = json!({"metadata": {"name": "c", "namespace": "n"}, "spec": {"storageClassName": class}, "status": {"phase": phase}});
            serde_json::from_value::<Claim>(claim).unwrap()
        };
        let mut page = Page::default();
        let volumes =
            [volume("csi", "a", "Bound"), volume("local", "", "Bound"), volume("local", "", "Failed")];
        of_volumes(&mut page, volumes.iter());
        let claims = [claim("a", "Bound"), claim("a", "Bound"), claim("a", "Lost")];
        of_claims(&mut page, claims.iter());
        let text = page.text();
        for line in [
            r#"pv_collector_total_pv_count{plugin_name="kubernetes.io/csi:d",volume_mode="Filesystem"} 1"#,
            r#"pv_collector_total_pv_count{plugin_name="kubernetes.io/local-volume",volume_mode="Filesystem"} 2"#,
            r#"pv_collector_bound_pv_count{storage_class="a"} 1"#,
            r#"pv_collector_unbound_pv_count{storage_class=""} 1"#,
            r#"pv_collector_bound_pvc_count{namespace="n",storage_class="a",volume_attributes_class=""} 2"#,
            r#"pv_collector_unbound_pvc_count{namespace="n",storage_class="a",volume_attributes_class=""} 1"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
    }
}
