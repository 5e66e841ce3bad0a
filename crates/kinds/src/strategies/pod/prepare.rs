//! The changes that are made to a pod before it is checked.

use std::collections::HashMap;

use api::field::Path;
use api::view::{Edit, View, same, strings};
use api::{Gate, Map, Node, Struct};

use super::annotations::{APPARMOR, app_armor_annotation};
use super::parts::{CONTAINER_LISTS, restart_rules_used};
use super::resources::qos_class;
use crate::strategies::generic::set_generation;
use crate::strategy::Ctx;

pub(super) fn create(c: &Ctx<'_>, s: &mut Struct) {
    let mut e = Edit::new(c.schema, s);
    set_generation(&mut e, 1);
    let qos = match e.view().st("status").str("qosClass") {
        "" => qos_class(c, e.view().st("spec")).to_owned(),
        sent => sent.to_owned(),
    };
    e.remove("status");
    if let Some(mut status) = e.make("status") {
        status.set("phase", "Pending");
        status.set("qosClass", qos);
    }
    if let Some(mut spec) = e.at("spec") {
        crate::defaults::service_account_alias(&mut spec);
        drop_disabled(c, &mut spec, None);
    }
    gated_condition(&mut e, c.now);
    let labels = e.view().st("metadata").map("labels").cloned().unwrap_or_default();
    let notes = e.view().st("metadata").map("annotations").cloned();
    if let Some(mut spec) = e.at("spec") {
        merge_affinity(&mut spec, &labels);
        let merges =
            [Gate::MatchLabelKeysInPodTopologySpread, Gate::MatchLabelKeysInPodTopologySpreadSelectorMerge];
        if merges.iter().all(|g| c.gates.enabled(*g)) {
            for mut t in spec.items("topologySpreadConstraints") {
                merge_keys(&mut t, "matchLabelKeys", "In", &labels);
            }
        }
        if let Some(notes) = notes {
            app_armor_fields(c, &mut spec, &notes);
        }
    }
}

/// Sets the condition that a pod is not scheduled because of its scheduling gates.
fn gated_condition(e: &mut Edit<'_>, now: &str) {
    if e.view().st("spec").len("schedulingGates") == 0 {
        return;
    }
    let Some(mut status) = e.make("status") else { return };
    let Some(mut condition) = status.fresh("conditions") else { return };
    let mut ce = Edit::new(status.schema, &mut condition);
    ce.set("type", "PodScheduled");
    ce.set("status", "False");
    ce.set("lastTransitionTime", now);
    ce.set("reason", "SchedulingGated");
    ce.set("message", "Scheduling is blocked due to non-empty scheduling gates");
    status.set("conditions", vec![condition.into()]);
}

/// Puts keys into a term's selector, with the values that the pod's own labels have.
fn merge_keys(t: &mut Edit<'_>, field: &str, operator: &str, labels: &Map) {
    if !t.view().has("labelSelector") {
        return;
    }
    let keys: Vec<(api::Text, api::Text)> =
        t.view().strs(field).filter_map(|k| labels.get(k).map(|v| (k.into(), v.as_str().into()))).collect();
    let Some(mut selector) = t.at("labelSelector") else { return };
    for (key, value) in keys {
        let Some(mut req) = selector.fresh("matchExpressions") else { return };
        let mut r = Edit::new(selector.schema, &mut req);
        r.set("key", key);
        r.set("operator", operator);
        r.set("values", strings([value.as_str()]));
        match selector.get_mut("matchExpressions") {
            Some(Node::List(l)) => l.push(req.into()),
            _ => selector.set("matchExpressions", vec![req.into()]),
        }
    }
}

fn merge_affinity(spec: &mut Edit<'_>, labels: &Map) {
    let Some(mut a) = spec.at("affinity") else { return };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(mut p) = a.at(kind) else { continue };
        for mut t in p.items("preferredDuringSchedulingIgnoredDuringExecution") {
            if let Some(mut t) = t.at("podAffinityTerm") {
                merge_keys(&mut t, "matchLabelKeys", "In", labels);
                merge_keys(&mut t, "mismatchLabelKeys", "NotIn", labels);
            }
        }
        for mut t in p.items("requiredDuringSchedulingIgnoredDuringExecution") {
            merge_keys(&mut t, "matchLabelKeys", "In", labels);
            merge_keys(&mut t, "mismatchLabelKeys", "NotIn", labels);
        }
    }
}

fn app_armor_fields(c: &Ctx<'_>, spec: &mut Edit<'_>, notes: &Map) {
    if spec.view().st("os").str("name") == "windows" {
        return;
    }
    let pod = spec.view().st("securityContext").opt("appArmorProfile").and_then(|p| p.raw().cloned());
    for list in CONTAINER_LISTS {
        for mut container in spec.items(list) {
            let view = container.view();
            let key = format!("{}{}", APPARMOR, view.str("name"));
            let Some(note) = notes.get(&key) else { continue };
            if view.st("securityContext").has("appArmorProfile") {
                continue;
            }
            let profile = app_armor_annotation(note.as_str())
                .filter(|(_, profile)| profile.is_none_or(|p| p.trim() == p && p.len() <= 4095));
            let field = profile.and_then(|(ty, profile)| {
                let mut security = container.fresh("securityContext")?;
                let mut field = Edit::new(c.schema, &mut security).fresh("appArmorProfile")?;
                let mut f = Edit::new(c.schema, &mut field);
                f.set("type", ty);
                if let Some(p) = profile {
                    f.set("localhostProfile", p);
                }
                Some(field)
            });
            // A profile that equals the pod's is not repeated, nor warned of.
            if field.is_some() && field == pod {
                continue;
            }
            if let Some(field) = field
                && let Some(mut security) = container.make("securityContext")
            {
                security.set("appArmorProfile", field);
            }
            (c.warn)(super::warnings::app_armor(&Path::root("metadata.annotations"), &key));
        }
    }
}

fn any_container(spec: Option<View<'_>>, mut f: impl FnMut(View<'_>) -> bool) -> bool {
    spec.is_some_and(|s| CONTAINER_LISTS.iter().any(|l| s.items(l).any(&mut f)))
}

/// Drops the fields of features that are off, unless the stored spec uses them.
pub(crate) fn drop_disabled(c: &Ctx<'_>, spec: &mut Edit<'_>, old: Option<View<'_>>) {
    let on = |gate: Gate| c.gates.enabled(gate);
    let sources = |kind: &str| {
        old.is_some_and(|o| {
            o.items("volumes").any(|v| v.st("projected").items("sources").any(|s| s.has(kind)))
        })
    };
    for (gate, kind) in [
        (Gate::ClusterTrustBundleProjection, "clusterTrustBundle"),
        (Gate::PodCertificateRequest, "podCertificate"),
    ] {
        if !on(gate) && !sources(kind) {
            for mut v in spec.items("volumes") {
                if let Some(mut p) = v.at("projected") {
                    for mut s in p.items("sources") {
                        s.remove(kind);
                    }
                }
            }
        }
    }
    if !on(Gate::GenericWorkload) && !old.is_some_and(|o| o.has("schedulingGroup")) {
        spec.remove("schedulingGroup");
    }
    if !on(Gate::PodLevelResources) && !old.is_some_and(|o| o.has("resources")) {
        spec.remove("resources");
    }
    if !on(Gate::HostnameOverride) && !old.is_some_and(|o| o.has("hostnameOverride")) {
        spec.remove("hostnameOverride");
    }
    if !on(Gate::ContainerStopSignals) && !any_container(old, |c| c.st("lifecycle").has("stopSignal")) {
        for list in CONTAINER_LISTS {
            for mut ctr in spec.items(list) {
                let Some(mut l) = ctr.at("lifecycle") else { continue };
                if l.remove("stopSignal").is_some() && l.st.is_empty() {
                    ctr.remove("lifecycle");
                }
            }
        }
    }
    if !on(Gate::ContainerRestartRules) && !old.is_some_and(restart_rules_used) {
        for list in CONTAINER_LISTS {
            for mut ctr in spec.items(list) {
                ctr.remove("restartPolicyRules");
                if list != "initContainers" || ctr.view().str("restartPolicy") != "Always" {
                    ctr.remove("restartPolicy");
                }
            }
        }
    }
    if !on(Gate::EnvFiles)
        && !any_container(old, |c| c.items("env").any(|e| e.st("valueFrom").has("fileKeyRef")))
    {
        for list in CONTAINER_LISTS {
            for mut ctr in spec.items(list) {
                for mut e in ctr.items("env") {
                    if let Some(mut v) = e.at("valueFrom") {
                        v.remove("fileKeyRef");
                    }
                }
            }
        }
    }
}

fn bump(c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
    let o = View::new(c.schema, old);
    let mut e = Edit::new(c.schema, new);
    if !same(e.view().get("spec"), o.get("spec")) {
        let next = e.view().st("metadata").int("generation").max(o.st("metadata").int("generation")) + 1;
        set_generation(&mut e, next);
    }
}

fn drop_against(c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
    let o = View::new(c.schema, old);
    if let Some(mut spec) = Edit::new(c.schema, new).at("spec") {
        drop_disabled(c, &mut spec, Some(o.st("spec")));
    }
}

pub(super) fn update(c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
    let mut e = Edit::new(c.schema, new);
    e.copy("status", old);
    if let Some(mut spec) = e.at("spec") {
        crate::defaults::service_account_alias(&mut spec);
    }
    drop_against(c, new, old);
    bump(c, new, old);
}

pub(super) fn status(c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
    let o = View::new(c.schema, old);
    let mut e = Edit::new(c.schema, new);
    e.copy("spec", old);
    if let (Some(mut m), Some(om)) = (e.make("metadata"), o.st("metadata").raw()) {
        m.copy("deletionTimestamp", om);
        m.copy("ownerReferences", om);
        m.copy("generation", om);
    }
    let Some(mut s) = e.make("status") else { return };
    let os = o.st("status");
    if s.view().str("qosClass").is_empty() {
        s.put("qosClass", os.get("qosClass").cloned());
    }
    if s.view().int("observedGeneration") == 0 {
        s.put("observedGeneration", os.get("observedGeneration").cloned());
    }
    // The stored conditions of each type, the first one last.
    let mut stored: HashMap<&str, Vec<View<'_>>> = HashMap::new();
    for c in os.items("conditions").rev() {
        stored.entry(c.str("type")).or_default().push(c);
    }
    for mut condition in s.items("conditions") {
        if let Some(oc) = stored.get_mut(condition.view().str("type")).and_then(Vec::pop)
            && condition.view().int("observedGeneration") == 0
        {
            condition.put("observedGeneration", oc.get("observedGeneration").cloned());
        }
    }
}

pub(super) fn ephemeral_containers(c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
    let list = View::new(c.schema, new).st("spec").get("ephemeralContainers").cloned();
    restore(c, new, old);
    if let Some(mut spec) = Edit::new(c.schema, new).at("spec") {
        spec.put("ephemeralContainers", list);
    }
    drop_against(c, new, old);
    bump(c, new, old);
}

/// Puts back spec, status and the metadata that only the object itself may change, as they are stored.
fn restore(c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
    let mut e = Edit::new(c.schema, new);
    e.copy("spec", old);
    e.copy("status", old);
    let o = View::new(c.schema, old).st("metadata");
    if let (Some(mut m), Some(om)) = (e.make("metadata"), o.raw()) {
        for f in ["deletionTimestamp", "generation", "labels", "annotations", "finalizers", "ownerReferences"]
        {
            m.copy(f, om);
        }
    }
}

pub(super) fn resize(c: &Ctx<'_>, new: &mut Struct, old: &Struct) {
    let asked = new.clone();
    let asked = View::new(c.schema, &asked).st("spec");
    let stored = View::new(c.schema, old).st("spec");
    let lists = ["containers", "initContainers"];
    // Containers that do not match one by one are left for validation to refuse.
    if lists.iter().all(|l| asked.len(l) == stored.len(l)) {
        restore(c, new, old);
        if let Some(mut spec) = Edit::new(c.schema, new).at("spec") {
            if c.gates.enabled(Gate::InPlacePodLevelResourcesVerticalScaling) {
                spec.put("resources", asked.get("resources").cloned());
            }
            for list in lists {
                let same_names =
                    asked.items(list).zip(stored.items(list)).all(|(a, o)| a.str("name") == o.str("name"));
                if !same_names {
                    spec.put(list, asked.get(list).cloned());
                    continue;
                }
                for (mut ctr, a) in spec.items(list).zip(asked.items(list)) {
                    ctr.put("resources", a.get("resources").cloned());
                    ctr.put("resizePolicy", a.get("resizePolicy").cloned());
                }
            }
        }
    }
    drop_against(c, new, old);
    bump(c, new, old);
}
