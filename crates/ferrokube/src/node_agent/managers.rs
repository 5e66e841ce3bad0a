//! The fields about processors, memory and NUMA nodes: upstream's rules and texts.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, anyhow, bail};
use api::FeatureGates;
use api::quantity::Quantity;
use kubelet::cpu_manager::{CpuPolicy, CpuSet};
use kubelet::memory_manager::{MemoryPolicy, Reservation};
use kubelet::resource_managers::Options;
use kubelet::topology_manager::{PolicyKind, Scope};
use serde_json::Value;

use super::settings::Settings;

/// A value as upstream's file and its flags have it.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Settings {
    /// How processors, memory and devices are given to Pods.
    ///
    /// # Errors
    /// A field has a value that it cannot have.
    pub(super) fn managers(&self, gates: FeatureGates) -> Result<Options> {
        let of_others = [&self.system_reserved_cgroup, &self.kube_reserved_cgroup];
        if !self.reserved_system_cpus.is_empty() && of_others.iter().any(|name| !name.is_empty()) {
            bail!(
                "invalid configuration: can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)"
            );
        }
        let cpu = match self.cpu_manager_policy.as_str() {
            "" => CpuPolicy::None,
            name => CpuPolicy::named(name).with_context(|| format!("unknown policy: {name:?}"))?,
        };
        let memory = match self.memory_manager_policy.as_str() {
            "" => MemoryPolicy::None,
            "BestEffort" => bail!("policy \"BestEffort\" is not available for platform \"linux\""),
            name => MemoryPolicy::named(name).with_context(|| format!("unknown policy: {name:?}"))?,
        };
        let topology = match self.topology_manager_policy.as_str() {
            "" => PolicyKind::None,
            name => PolicyKind::named(name).with_context(|| {
                let all = PolicyKind::ALL.map(|(_, name)| format!("{name:?}")).join(" ");
                format!(
                    "invalid configuration: topologyManagerPolicy (--topology-manager-policy) {name:?} must be one of: [{all}]"
                )
            })?,
        };
        let scope = match self.topology_manager_scope.as_str() {
            "" => Scope::Container,
            name => Scope::named(name).with_context(|| {
                format!(
                    "invalid configuration: topologyManagerScope (--topology-manager-scope) {name:?} must be one of: \"container\", or \"pod\""
                )
            })?,
        };
        Ok(Options {
            cpu,
            cpu_options: self.cpu_manager_policy_options.clone(),
            reconcile: Self::time(self.cpu_manager_reconcile_period, 10, "cpuManagerReconcilePeriod")?,
            reserved_cpus: self.reserved_cpus()?,
            memory,
            reserved_memory: self.reserved_memory()?,
            topology,
            topology_options: self.topology_manager_policy_options.clone(),
            scope,
            gates,
        })
    }

    /// The processors that are kept for the system.
    ///
    /// # Errors
    /// The text is no set of processors.
    pub(super) fn reserved_cpus(&self) -> Result<CpuSet> {
        let text = &self.reserved_system_cpus;
        text.parse().map_err(|error| {
            anyhow!(
                "invalid configuration: unable to parse reservedSystemCPUs (--reserved-cpus) {text}, error: {error}"
            )
        })
    }

    /// The amounts that are kept of each NUMA node.
    ///
    /// # Errors
    /// A kind or an amount is none, or a kind is named twice for a node.
    fn reserved_memory(&self) -> Result<Vec<Reservation>> {
        let mut seen: BTreeSet<(u32, &str)> = BTreeSet::new();
        let mut all = Vec::new();
        for reserved in &self.reserved_memory {
            let node = reserved.numa_node;
            let mut limits = BTreeMap::new();
            for (kind, amount) in &reserved.limits {
                if kind != "memory" && !kind.starts_with("hugepages-") {
                    bail!(
                        "invalid configuration: the limit type {kind:?} for NUMA node {node} is not supported, only [memory hugepages-<HugePageSize>] is accepted"
                    );
                }
                let amount = text(amount);
                let bytes = Quantity::parse(&amount).ok().and_then(|q| u64::try_from(q.value()).ok());
                let bytes = bytes.with_context(|| {
                    format!("invalid configuration: {amount:?} is no amount of {kind} of NUMA node {node}")
                })?;
                if bytes == 0 {
                    bail!(
                        "invalid configuration: reserved memory may not be zero for NUMA node {node} and resource {kind:?}"
                    );
                }
                if !seen.insert((node, kind)) {
                    bail!(
                        "invalid configuration: the reserved memory has a duplicate value for NUMA node {node} and resource {kind:?}"
                    );
                }
                limits.insert(kind.clone(), bytes);
            }
            all.push(Reservation { node: usize::try_from(node)?, limits });
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use api::Gate;
    use serde_json::json;

    use super::super::validation;
    use super::*;

    fn managers(value: Value) -> Result<Options> {
        let settings: Settings = serde_json::from_value(value)?;
        settings.managers(validation::gates(&settings)?)
    }

    #[test]
    fn fields_are_honoured() {
        let got = managers(json!({
            "cpuManagerPolicy": "static",
            "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
            "cpuManagerReconcilePeriod": "3s",
            "reservedSystemCPUs": "0-1",
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": 1, "limits": {"memory": "1Gi", "hugepages-2Mi": 2_097_152}}],
            "topologyManagerPolicy": "single-numa-node",
            "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
            "topologyManagerScope": "pod",
            "featureGates": {"CPUManagerPolicyAlphaOptions": true, "SidecarContainers": true},
        }))
        .unwrap();
        assert_eq!((got.cpu, got.memory), (CpuPolicy::Static, MemoryPolicy::Static));
        assert_eq!((got.topology, got.scope), (PolicyKind::SingleNumaNode, Scope::Pod));
        assert_eq!((got.reconcile.as_secs(), got.reserved_cpus.to_string().as_str()), (3, "0-1"));
        let limits = [("memory".to_owned(), 1 << 30), ("hugepages-2Mi".to_owned(), 2 << 20)];
        assert_eq!(got.reserved_memory, [Reservation { node: 1, limits: limits.into() }]);
        assert!(got.gates.enabled(Gate::CPUManagerPolicyAlphaOptions));
        let none = managers(json!({})).unwrap();
        assert_eq!((none.cpu, none.memory), (CpuPolicy::None, MemoryPolicy::None));
        assert_eq!(none.topology, PolicyKind::None);
        assert_eq!((none.reconcile.as_secs(), none.scope), (10, Scope::Container));
    }

    #[test]
    fn processors_that_are_named_count_instead_of_their_number() {
        let settings = |value| serde_json::from_value::<Settings>(value).unwrap();
        let amounts =
            json!({"reservedSystemCPUs": "0,2-3", "kubeReserved": {"cpu": "500m", "memory": "1Gi"}});
        let got = settings(amounts).node().unwrap().reserved;
        assert_eq!((got.milli_cpus, got.memory), (3000, 1 << 30));
    }

    #[test]
    fn values_that_cannot_be_had() {
        let check = |value: Value, expected: &str| {
            assert_eq!(format!("{:#}", managers(value).unwrap_err()), expected);
        };
        check(json!({"cpuManagerPolicy": "dynamic"}), "unknown policy: \"dynamic\"");
        check(json!({"memoryManagerPolicy": "static"}), "unknown policy: \"static\"");
        check(
            json!({"memoryManagerPolicy": "BestEffort"}),
            "policy \"BestEffort\" is not available for platform \"linux\"",
        );
        check(
            json!({"topologyManagerPolicy": "x"}),
            "invalid configuration: topologyManagerPolicy (--topology-manager-policy) \"x\" must be one of: [\"none\" \"best-effort\" \"restricted\" \"single-numa-node\"]",
        );
        check(
            json!({"topologyManagerScope": "node"}),
            "invalid configuration: topologyManagerScope (--topology-manager-scope) \"node\" must be one of: \"container\", or \"pod\"",
        );
        check(
            json!({"reservedSystemCPUs": "1-x"}),
            "invalid configuration: unable to parse reservedSystemCPUs (--reserved-cpus) 1-x, error: strconv.Atoi: parsing \"x\": invalid syntax",
        );
        check(json!({"cpuManagerReconcilePeriod": "-1s"}), "cpuManagerReconcilePeriod must not be negative");
        let memory = |all: &[(&str, &str)]| {
            let one = |(kind, amount): &(&str, &str)| json!({"numaNode": 1, "limits": {*kind: amount}});
            json!({"reservedMemory": all.iter().map(one).collect::<Vec<_>>()})
        };
        check(
            memory(&[("cpu", "1")]),
            "invalid configuration: the limit type \"cpu\" for NUMA node 1 is not supported, only [memory hugepages-<HugePageSize>] is accepted",
        );
        check(
            memory(&[("memory", "0")]),
            "invalid configuration: reserved memory may not be zero for NUMA node 1 and resource \"memory\"",
        );
        check(
            memory(&[("memory", "1Gi"), ("memory", "2Gi")]),
            "invalid configuration: the reserved memory has a duplicate value for NUMA node 1 and resource \"memory\"",
        );
        check(json!({"featureGates": {"NoSuch": true}}), "unrecognized feature gate: NoSuch");
        check(
            json!({"reservedSystemCPUs": "0", "kubeReservedCgroup": "/kube"}),
            "invalid configuration: can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)",
        );
    }
}
