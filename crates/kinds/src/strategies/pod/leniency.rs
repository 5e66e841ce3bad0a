//! The rules that a stored pod already violates, and that its update may therefore go on violating.

use api::Gate;
use api::names;
use api::view::View;

use super::options::Options;
use super::paths::local_non_reserved;
use crate::strategy::Ctx;
use crate::validation::meta::has_invalid_value;

/// Whether a stored spec uses a feature.
type Used = fn(View<'_>) -> bool;

/// Features that stay although their gates are off, with the use in a stored spec that lets them stay.
const USES: [(Gate, Used); 5] = [
    (Gate::ContainerRestartRules, super::parts::restart_rules_used),
    (Gate::RestartAllContainersOnContainerExits, |spec| {
        ["containers", "initContainers"].iter().any(|l| {
            spec.items(l)
                .any(|c| c.items("restartPolicyRules").any(|r| r.str("action") == "RestartAllContainers"))
        })
    }),
    (Gate::EnvFiles, |spec| {
        containers(spec).any(|c| c.items("env").any(|e| e.st("valueFrom").has("fileKeyRef")))
    }),
    (Gate::UserNamespacesHostNetworkSupport, |spec| {
        spec.bool("hostNetwork") && spec.opt_bool("hostUsers") == Some(false)
    }),
    (Gate::TaintTolerationComparisonOperators, |spec| {
        spec.items("tolerations").any(|t| matches!(t.str("operator"), "Lt" | "Gt"))
    }),
];

fn containers(spec: View<'_>) -> impl Iterator<Item = View<'_>> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |l| spec.items(l))
}

/// The conditions for a spec and its metadata, given the stored ones on an update.
pub(crate) fn options<'a>(ctx: Ctx<'a>, is_pod: bool, old: Option<(View<'_>, View<'_>)>) -> Options<'a> {
    let mut o = Options {
        ctx,
        is_pod,
        invalid_deletion_cost: !ctx.gates.enabled(Gate::PodDeletionCost),
        invalid_selector_values: false,
        invalid_node_affinity_values: false,
        invalid_spread_selectors: false,
        indivisible_huge_pages: false,
        host_sysctls: false,
        non_local_token_path: false,
        devices_in_user_namespace: false,
        restart_of_plain_init: false,
        any_selinux_policy: ctx.gates.enabled(Gate::SELinuxMount),
        other_spread_keys: false,
        in_use: [None; 5],
    };
    let Some((spec, meta)) = old else { return o };
    for (slot, (gate, used)) in o.in_use.iter_mut().zip(USES) {
        if used(spec) {
            *slot = Some(gate);
        }
    }
    o.invalid_deletion_cost |= meta.map("annotations").is_some_and(|a| {
        a.get(super::annotations::DELETION_COST)
            .is_some_and(|v| !super::annotations::is_deletion_cost(v.as_str()))
    });
    o.any_selinux_policy |= spec.st("securityContext").has("seLinuxChangePolicy");
    let affinity = spec.st("affinity");
    o.invalid_selector_values = ["podAffinity", "podAntiAffinity"].iter().any(|a| {
        let a = affinity.st(a);
        let bad = |t: View<'_>| {
            has_invalid_value(t.opt("labelSelector")) || has_invalid_value(t.opt("namespaceSelector"))
        };
        a.items("requiredDuringSchedulingIgnoredDuringExecution").any(bad)
            || a.items("preferredDuringSchedulingIgnoredDuringExecution")
                .any(|t| bad(t.st("podAffinityTerm")))
    });
    o.invalid_node_affinity_values = affinity
        .st("nodeAffinity")
        .st("requiredDuringSchedulingIgnoredDuringExecution")
        .items("nodeSelectorTerms")
        .any(|t| {
            t.items("matchExpressions").any(|e| e.strs("values").any(|v| !names::label_value(v).is_empty()))
        });
    o.invalid_spread_selectors = spec.items("topologySpreadConstraints").any(|t| {
        let mut e = api::field::Errors::new();
        crate::validation::meta::label_selector(
            &mut e,
            &api::field::Path::root(""),
            t.opt("labelSelector"),
            crate::validation::meta::SelectorOptions::default(),
        );
        !e.is_empty()
    });
    let merged = ctx.gates.enabled(Gate::MatchLabelKeysInPodTopologySpreadSelectorMerge);
    o.other_spread_keys = ctx.gates.enabled(Gate::MatchLabelKeysInPodTopologySpread)
        && spec.items("topologySpreadConstraints").any(|t| {
            let mut e = api::field::Errors::new();
            let at = api::field::Path::root("");
            if merged {
                super::scheduling::label_keys(&mut e, &at, t, &[]);
            } else {
                super::scheduling::spread_keys(&mut e, &at, t);
            }
            !e.is_empty()
        });
    o.indivisible_huge_pages = containers(spec).any(|c| {
        let r = c.st("resources");
        ["limits", "requests"].iter().any(|m| r.texts(m).any(|(k, v)| !super::resources::is_divisible(k, v)))
    });
    o.host_sysctls = spec
        .st("securityContext")
        .items("sysctls")
        .any(|s| super::security::host_sysctl(spec, s.str("name")).is_some());
    o.non_local_token_path = spec.items("volumes").any(|v| {
        v.st("projected").items("sources").any(|s| {
            s.opt("serviceAccountToken").is_some_and(|t| {
                let mut e = api::field::Errors::new();
                local_non_reserved(&mut e, &api::field::Path::root(""), t.str("path"));
                !e.is_empty()
            })
        })
    });
    o.devices_in_user_namespace =
        spec.opt_bool("hostUsers") == Some(false) && containers(spec).any(|c| c.len("volumeDevices") > 0);
    o.restart_of_plain_init = spec.items("initContainers").any(|c| {
        c.str("restartPolicy") != "Always"
            && c.items("resizePolicy").any(|p| p.str("restartPolicy") == "RestartContainer")
    });
    o
}
