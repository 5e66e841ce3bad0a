//! AppArmor: the profile of a container, and whether this machine can confine it.

use std::{fs, iter};

use k8s_openapi::api::core::v1::{AppArmorProfile, Pod, SecurityContext};

use super::spec;

/// The old annotations of profiles, each followed by a container's name.
const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The profile that a container's context names, else an old annotation, else the Pod's context. The API server makes fields
/// of annotations; nobody does it for Pods of this node's files.
pub(super) fn profile(pod: &Pod, container: &str, own: Option<&SecurityContext>) -> Option<AppArmorProfile> {
    let of_pod = || spec::spec(pod).security_context.as_ref()?.app_armor_profile.clone();
    let annotated = || {
        let annotations = pod.metadata.annotations.as_ref()?;
        of_annotation(annotations.get(&format!("{ANNOTATION}{container}"))?)
    };
    own.and_then(|c| c.app_armor_profile.clone()).or_else(annotated).or_else(of_pod)
}

fn of_annotation(value: &str) -> Option<AppArmorProfile> {
    let of = |type_: &str| AppArmorProfile { type_: type_.to_owned(), localhost_profile: None };
    match value {
        "runtime/default" => Some(of("RuntimeDefault")),
        "unconfined" => Some(of("Unconfined")),
        _ => {
            let name = value.strip_prefix("localhost/")?;
            Some(AppArmorProfile { localhost_profile: Some(name.to_owned()), ..of("Localhost") })
        }
    }
}

/// Every container's name and context, of all three kinds.
fn contexts(pod: &Pod) -> impl Iterator<Item = (&str, Option<&SecurityContext>)> {
    let all = spec::containers(pod).iter().chain(spec::init_containers(pod));
    let ephemeral = spec::spec(pod).ephemeral_containers.iter().flatten();
    all.map(|c| (c.name.as_str(), c.security_context.as_ref()))
        .chain(ephemeral.map(|c| (c.name.as_str(), c.security_context.as_ref())))
}

/// Whether a Pod names any profile that confines.
fn is_wanted(pod: &Pod) -> bool {
    let of_pod = spec::spec(pod).security_context.as_ref().and_then(|c| c.app_armor_profile.as_ref());
    let of_containers = contexts(pod).filter_map(|(_, own)| own?.app_armor_profile.as_ref());
    let mut fields = iter::empty().chain(of_pod).chain(of_containers);
    let mut annotations = pod.metadata.annotations.iter().flatten();
    fields.any(|p| p.type_ != "Unconfined")
        || annotations.any(|(name, value)| name.starts_with(ANNOTATION) && value != "unconfined")
}

/// Why this machine cannot confine the Pod as it asks; none if it can. Upstream's text.
pub(super) fn refusal(pod: &Pod, enabled: bool) -> Option<String> {
    if !is_wanted(pod) {
        return None;
    }
    if !enabled {
        return Some("Cannot enforce AppArmor: AppArmor is not enabled on the host".to_owned());
    }
    let nameless = contexts(pod).filter_map(|(name, own)| profile(pod, name, own)).find(|p| {
        p.type_ == "Localhost" && p.localhost_profile.as_deref().unwrap_or_default().trim().is_empty()
    })?;
    let name = nameless.localhost_profile.map_or_else(|| "nil".to_owned(), |name| format!("*{name}"));
    let text = format!("&AppArmorProfile{{Type:Localhost,LocalhostProfile:{name},}}");
    Some(format!("Cannot enforce AppArmor: invalid empty AppArmor profile name: {text:?}"))
}

/// Whether the kernel of this machine confines processes by profiles.
pub(crate) fn is_enabled() -> bool {
    let enabled = fs::read_to_string("/sys/module/apparmor/parameters/enabled").unwrap_or_default();
    enabled.starts_with('Y') && fs::exists("/sys/kernel/security/apparmor").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOT_HERE: &str = "Cannot enforce AppArmor: AppArmor is not enabled on the host";

    fn of(pod: Value) -> Pod {
        serde_json::from_value(pod).unwrap()
    }

    fn annotated(value: &str) -> Pod {
        let name = if value.is_empty() { "foo".to_owned() } else { format!("{ANNOTATION}test") };
        of(json!({"metadata": {"annotations": {name: value}}, "spec": {"containers": [{"name": "test"}]}}))
    }

    /// Upstream's 3 cases of `TestValidateBadHost`, the 7 of `TestValidateValidHost` and its Pod of several containers.
    #[test]
    fn a_machine_refuses_profiles_that_it_cannot_enforce() {
        let check = |value: &str, without: Option<&str>, with: Option<&str>| {
            let pod = annotated(value);
            assert_eq!(refusal(&pod, false).as_deref(), without, "{value:?} without");
            assert_eq!(refusal(&pod, true).as_deref(), with, "{value:?} with");
        };
        check("", None, None);
        check("runtime/default", Some(NOT_HERE), None);
        check("localhost/docker-default", Some(NOT_HERE), None);
        check("localhost/foo-container", Some(NOT_HERE), None);
        check("localhost//usr/sbin/ntpd", Some(NOT_HERE), None);
        let nameless = |name: &str| {
            format!(
                "Cannot enforce AppArmor: invalid empty AppArmor profile name: \"&AppArmorProfile{{Type:Localhost,\
                 LocalhostProfile:*{name},}}\""
            )
        };
        check("localhost/", Some(NOT_HERE), Some(&nameless("")));
        check("localhost/ ", Some(NOT_HERE), Some(&nameless(" ")));
        check("unconfined", None, None);
        let several = of(json!({
            "metadata": {"annotations": {
                format!("{ANNOTATION}init"): "localhost/foo-container",
                format!("{ANNOTATION}test1"): "runtime/default",
                format!("{ANNOTATION}test2"): "localhost/docker-default"}},
            "spec": {"initContainers": [{"name": "init"}],
                "containers": [{"name": "test1"}, {"name": "test2"}, {"name": "no-profile"}]}}));
        assert_eq!(refusal(&several, true), None);
        assert_eq!(refusal(&several, false).as_deref(), Some(NOT_HERE));
        let by_field = of(json!({"spec": {"containers": [{"name": "c", "securityContext":
            {"appArmorProfile": {"type": "RuntimeDefault"}}}]}}));
        assert_eq!(refusal(&by_field, false).as_deref(), Some(NOT_HERE));
    }

    /// Upstream's 10 cases of `TestGetProfile`: the container's field, the annotation, the Pod's field.
    #[test]
    fn a_container_has_the_nearest_profile() {
        let check = |own: Value, annotation: Option<&str>, pods: Value, expected: Value| {
            let mut pod = json!({"spec": {"containers": [{"name": "c", "securityContext": {"appArmorProfile": own}}],
                "securityContext": {"appArmorProfile": pods}}});
            if let Some(value) = annotation {
                pod["metadata"] = json!({"annotations": {format!("{ANNOTATION}c"): value}});
            }
            let pod = of(pod);
            let own = spec::containers(&pod)[0].security_context.as_ref();
            let got = profile(&pod, "c", own);
            assert_eq!(serde_json::to_value(got).unwrap(), expected, "{pod:?}");
        };
        let (unset, default) = (|| Value::Null, || json!({"type": "RuntimeDefault"}));
        let (unconfined, local) =
            (|| json!({"type": "Unconfined"}), || json!({"type": "Localhost", "localhostProfile": "test"}));
        check(unset(), None, unset(), unset());
        check(unset(), None, default(), default());
        check(unconfined(), None, unset(), unconfined());
        check(unset(), Some("localhost/test"), unset(), local());
        check(unset(), Some("invalid"), unset(), unset());
        check(unset(), Some("invalid"), default(), default());
        check(default(), Some("unconfined"), unset(), default());
        check(default(), None, unconfined(), default());
        check(unset(), Some("unconfined"), default(), unconfined());
        check(local(), Some("runtime/default"), unconfined(), local());
    }
}
