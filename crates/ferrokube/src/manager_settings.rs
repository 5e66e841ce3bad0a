//! The settings of the controllers as upstream's `/configz` has them: a `KubeControllerManagerConfiguration`, whose fields
//! are those of flags.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The fields, each with the kind of its value and its flag. The first line is a heading.
const FIELDS: &str = include_str!("manager_settings.tsv");

/// The settings by the values of all flags. A field whose flag has no value that is known is left out.
pub(crate) fn settings(flags: &BTreeMap<String, String>) -> Value {
    let mut whole = json!({
        "kind": "KubeControllerManagerConfiguration",
        "apiVersion": "kubecontrollermanager.config.k8s.io/v1alpha1",
    });
    for line in FIELDS.lines().skip(1) {
        let mut columns = line.split('\t');
        let (Some(path), Some(kind), Some(flag)) = (columns.next(), columns.next(), columns.next()) else {
            continue;
        };
        if let Some(value) = flags.get(flag).and_then(|text| read(kind, text)) {
            put(&mut whole, path, value);
        }
    }
    whole
}

/// A flag's value in JSON.
fn read(kind: &str, text: &str) -> Option<Value> {
    let part = |at: usize| text.split(',').nth(at).unwrap_or_default().into();
    match kind {
        "text" => Some(text.into()),
        "number" => serde_json::from_str::<serde_json::Number>(text).ok().map(Value::Number),
        "bool" => text.parse::<bool>().ok().map(Value::Bool),
        "time" => {
            api::time::parse_duration(text).map(|time| api::time::format_duration(time).as_str().into())
        }
        "list" => Some(text.split(',').filter(|item| !item.is_empty()).collect()),
        "first" => Some(part(0)),
        "second" => Some(part(1)),
        _ => None,
    }
}

/// Puts a value at a path of objects.
fn put(whole: &mut Value, path: &str, value: Value) {
    let mut place = whole;
    for field in path.split('.') {
        let Value::Object(fields) = place else { return };
        place = fields.entry(field).or_insert_with(|| Map::new().into());
    }
    *place = value;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;
    use crate::flags;

    #[test]
    fn settings_are_those_of_the_flags() {
        let line = "kube-controller-manager --node-monitor-period=2000ms --node-eviction-rate=0.5 --controllers=*,-ttl \
                    --service-cluster-ip-range=10.0.0.0/24,fd00::/108 --cluster-name=c --leader-elect=false";
        let line =
            flags::read(format!("ferrokube {line}").split(' ').filter(|a| !a.is_empty()).map(Into::into));
        let line = line.unwrap();
        let matches = Cli::command().get_matches_from(line.arguments);
        let got = settings(&flags::values(&matches, line.others));
        for (path, want) in [
            ("/KubeCloudShared/NodeMonitorPeriod", json!("2s")),
            ("/KubeCloudShared/ClusterName", json!("c")),
            ("/KubeCloudShared/AllocateNodeCIDRs", json!(false)),
            ("/NodeLifecycleController/NodeEvictionRate", json!(0.5)),
            ("/NodeLifecycleController/NodeMonitorGracePeriod", json!("50s")),
            ("/NodeIPAMController/ServiceCIDR", json!("10.0.0.0/24")),
            ("/NodeIPAMController/SecondaryServiceCIDR", json!("fd00::/108")),
            ("/Generic/Controllers", json!(["*", "-ttl"])),
            ("/Generic/LeaderElection/leaderElect", json!(false)),
            ("/PodGCController/TerminatedPodGCThreshold", json!(12500)),
            ("/GarbageCollectorController/EnableGarbageCollector", json!(true)),
        ] {
            assert_eq!(got.pointer(path), Some(&want), "{path} in {got}");
        }
    }

    /// Every field has a flag that there is.
    #[test]
    fn fields_have_flags() {
        let line = flags::read(["ferrokube", "kube-controller-manager"].map(Into::into)).unwrap();
        let matches = Cli::command().get_matches_from(["ferrokube", "kube-controller-manager"]);
        let mut known: BTreeSet<String> = flags::values(&matches, line.others).into_keys().collect();
        let table = include_str!("flags/kube-controller-manager.tsv").lines();
        known.extend(table.filter_map(|line| line.split('\t').next()).map(str::to_owned));
        let unknown: Vec<&str> = FIELDS
            .lines()
            .skip(1)
            .filter_map(|line| line.split('\t').nth(2))
            .filter(|flag| !known.contains(*flag))
            .collect();
        assert_eq!(unknown, [""; 0]);
        assert!(FIELDS.lines().all(|line| line.split('\t').count() == 3));
    }
}
