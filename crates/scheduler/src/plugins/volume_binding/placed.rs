//! A volume, and the nodes that can have it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use objects::migration::Plugin;
use objects::{Labels, volumes};

/// A volume. One of a plugin from which a driver took over is judged by the driver's labels on nodes whose drivers have
/// the plugin's volumes (upstream's `tryTranslatePVToCSI`).
#[derive(Debug)]
pub(super) struct Placed {
    own: Arc<PersistentVolume>,
    /// The plugin, and the volume as its driver has it or why it cannot have it.
    csi: Option<(Plugin, Result<PersistentVolume, String>)>,
}

fn has_place(volume: &PersistentVolume) -> bool {
    volume.spec.as_ref().is_some_and(|s| s.node_affinity.is_some())
}

impl Placed {
    /// A volume.
    pub(super) fn of(volume: Arc<PersistentVolume>) -> Self {
        let plugin = Plugin::of(&volume).filter(|plugin| plugin.is_scheduled());
        let made = |plugin: Plugin| {
            let made = plugin.as_csi(&volume);
            (plugin, made.map_err(|why| format!("could not translate pv: {why}")))
        };
        Self { csi: plugin.map(made), own: volume }
    }

    /// Whether a node with these labels can have it. `migrated`: whether the node's drivers have the volumes of a plugin.
    ///
    /// # Errors
    /// Its driver cannot have it on any node; upstream's text.
    pub(super) fn admits(
        &self,
        labels: Option<&Labels>,
        migrated: impl Fn(Plugin) -> bool,
    ) -> Result<bool, String> {
        match &self.csi {
            Some((plugin, csi)) if migrated(*plugin) => match csi {
                Ok(csi) => Ok(volumes::admits(csi, labels)),
                Err(why) => Err(why.clone()),
            },
            _ => Ok(volumes::admits(&self.own, labels)),
        }
    }

    /// Whether every node can have it.
    pub(super) fn is_anywhere(&self) -> bool {
        let csi = |made: &Result<PersistentVolume, String>| made.as_ref().is_ok_and(|v| !has_place(v));
        !has_place(&self.own) && self.csi.as_ref().is_none_or(|(_, made)| csi(made))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The cases of upstream's `TestFindPodVolumesWithCSIMigration` and `TestCheckBindingsWithCSIMigration` that differ here:
    /// a volume by its labels and affinity, the label of the node, and whether the node's drivers have the plugin's volumes.
    #[test]
    fn volumes_of_plugins() {
        let affinity = |key: &str| {
            json!({"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": key, "operator": "In", "values": ["z"]}]}]}})
        };
        let check = |volume: Value, label: (&str, &str), migrated: bool, expected: Result<bool, &str>| {
            let placed = Placed::of(Arc::new(serde_json::from_value(volume.clone()).unwrap()));
            let labels = Labels::from([(label.0.to_owned(), label.1.to_owned())]);
            let got = placed.admits(Some(&labels), |plugin| migrated && plugin == Plugin::GcePd);
            assert_eq!(got.as_ref().map(|is| *is).map_err(String::as_str), expected, "{volume} {label:?}");
            if placed.is_anywhere() {
                assert_eq!(got, Ok(true), "{volume}");
            }
        };
        let zone = "topology.kubernetes.io/zone";
        let disk = |affinity: Value, labels: Value| {
            json!({"metadata": {"name": "v", "labels": labels},
                "spec": {"gcePersistentDisk": {"pdName": "d"}, "nodeAffinity": affinity}})
        };
        let by_affinity = || disk(affinity(zone), json!({}));
        check(by_affinity(), (zone, "z"), false, Ok(true));
        check(by_affinity(), (zone, "z"), true, Ok(false));
        check(by_affinity(), ("topology.gke.io/zone", "z"), true, Ok(true));
        check(by_affinity(), ("topology.gke.io/zone", "y"), true, Ok(false));
        check(by_affinity(), ("topology.gke.io/zone", "z"), false, Ok(false));
        let by_label = || disk(json!(null), json!({zone: "z"}));
        check(by_label(), ("a", "b"), false, Ok(true));
        check(by_label(), ("a", "b"), true, Ok(false));
        check(by_label(), ("topology.gke.io/zone", "z"), true, Ok(true));
        let wrong = || disk(json!(null), json!({zone: "a-b-c__d-e-f"}));
        check(wrong(), ("a", "b"), false, Ok(true));
        let why = "could not translate pv: failed to get region from zones: multiple or no regions gotten from zones, got: map[a-b:{} d-e:{}]";
        check(wrong(), ("a", "b"), true, Err(why));
        check(disk(json!(null), json!({})), ("a", "b"), true, Ok(true));
        // The driver of shares is not asked.
        let share =
            json!({"metadata": {"name": "v"}, "spec": {"azureFile": {"secretName": "s", "shareName": "t"}}});
        check(share, ("a", "b"), true, Ok(true));
    }
}
