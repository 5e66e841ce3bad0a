//! Claims on devices, as Pods refer to them (upstream's `dynamic-resource-allocation/resourceclaim`).

use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use k8s_openapi::api::scheduling::v1alpha2::{PodGroup, PodGroupResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// The finalizer of claims that have devices.
pub const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The annotation by which a claim that was made for a Pod names its place in the Pod.
pub const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
/// The annotation of the claim that stands for a Pod's extended resources.
pub const EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";
/// The prefix of the extended resource that every class has.
pub const CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";
/// The API group of PodGroups.
pub const GROUP: &str = "scheduling.k8s.io";
/// The most consumers of a claim.
pub const MOST_RESERVED: usize = 256;

fn text(t: Option<&String>) -> &str {
    t.map(String::as_str).unwrap_or_default()
}

fn key(pod: &Pod) -> String {
    format!("{}/{}", text(pod.metadata.namespace.as_ref()), text(pod.metadata.name.as_ref()))
}

/// A Pod as a user of claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User<'p> {
    /// Its namespace.
    pub namespace: &'p str,
    /// Its name.
    pub name: &'p str,
    /// Its uid.
    pub uid: &'p str,
    /// The PodGroup whose claims it shares; `None` too where the gate `DRAWorkloadResourceClaims` is off.
    pub group: Option<&'p str>,
}

impl<'p> User<'p> {
    /// A Pod; `by_group`: whether claims of PodGroups are shared.
    pub fn of(pod: &'p Pod, by_group: bool) -> Self {
        let group = pod.spec.as_ref().and_then(|s| s.scheduling_group.as_ref());
        let meta = &pod.metadata;
        Self {
            namespace: text(meta.namespace.as_ref()),
            name: text(meta.name.as_ref()),
            uid: text(meta.uid.as_ref()),
            group: group.and_then(|g| g.pod_group_name.as_deref()).filter(|_| by_group),
        }
    }
}

/// The claim of a place in a Pod: its name, and whether it was made for the Pod, so that its owner has to be looked at.
/// `None`: there needs to be none.
///
/// # Errors
/// In upstream's words, if it is not made yet, or the place names none.
pub fn name<'p>(pod: &'p Pod, place: &'p PodResourceClaim) -> Result<Option<(&'p str, bool)>, String> {
    if let Some(name) = &place.resource_claim_name {
        return Ok(Some((name, false)));
    }
    if place.resource_claim_template_name.is_none() {
        return Err(format!(
            "pod {}, spec.resourceClaim {}: none of the supported fields are set",
            api::go::quote(&key(pod)),
            api::go::quote(&place.name)
        ));
    }
    let statuses = pod.status.as_ref().and_then(|s| s.resource_claim_statuses.as_deref()).unwrap_or_default();
    match statuses.iter().find(|s| s.name == place.name) {
        Some(status) => Ok(status.resource_claim_name.as_deref().map(|name| (name, true))),
        None => Err(format!("pod {}: ResourceClaim not created yet", api::go::quote(&key(pod)))),
    }
}

/// The controller of a claim.
pub fn controller(claim: &ResourceClaim) -> Option<&OwnerReference> {
    claim.metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true))
}

/// The claim of a place in a PodGroup, as [`name`] has it for a Pod.
///
/// # Errors
/// In upstream's words, if it is not made yet, or the place names none.
pub fn name_in_group<'g>(
    group: &'g PodGroup,
    place: &'g PodGroupResourceClaim,
) -> Result<Option<(&'g str, bool)>, String> {
    if let Some(name) = &place.resource_claim_name {
        return Ok(Some((name, false)));
    }
    let key = key_of_group(group);
    if place.resource_claim_template_name.is_none() {
        let place = &place.name;
        return Err(format!(
            "PodGroup {key}, spec.resourceClaim {place}: none of the supported fields are set"
        ));
    }
    let statuses = group.status.as_ref().and_then(|s| s.resource_claim_statuses.as_deref());
    match statuses.unwrap_or_default().iter().find(|s| s.name == place.name) {
        Some(status) => Ok(status.resource_claim_name.as_deref().map(|name| (name, true))),
        None => Err(format!("PodGroup {key}: ResourceClaim not created yet")),
    }
}

fn key_of_group(group: &PodGroup) -> String {
    format!("{}/{}", text(group.metadata.namespace.as_ref()), text(group.metadata.name.as_ref()))
}

/// The places in a PodGroup that name claims.
pub fn places_in_group(group: &PodGroup) -> &[PodGroupResourceClaim] {
    group.spec.resource_claims.as_deref().unwrap_or_default()
}

fn named(claim: &ResourceClaim) -> String {
    format!("{}/{}", text(claim.metadata.namespace.as_ref()), text(claim.metadata.name.as_ref()))
}

/// Checks that a claim was made for a Pod, or for its PodGroup.
///
/// DIFFERENCE: of a Pod without a PodGroup, upstream says nothing that is about one; where PodGroups have claims it fails.
///
/// # Errors
/// In upstream's words, if it was not.
pub fn is_for(user: User<'_>, claim: &ResourceClaim) -> Result<(), String> {
    let User { namespace, name, uid, group } = user;
    let claimed = named(claim);
    if text(claim.metadata.namespace.as_ref()) != namespace {
        return Err(format!(
            "ResourceClaim {claimed} is not in the same namespace as Pod {namespace}/{name}"
        ));
    }
    let owner = controller(claim);
    if owner.is_some_and(|o| o.uid == uid) {
        return Ok(());
    }
    let Some(group) = group else {
        return Err(format!(
            "ResourceClaim {claimed} was not created for Pod {namespace}/{name} (Pod is not owner)"
        ));
    };
    // The Pod does not know the uid of its group.
    if owner.is_some_and(|o| o.name == group && is_group(o)) {
        return Ok(());
    }
    Err(format!(
        "ResourceClaim {claimed} was not created for Pod {namespace}/{name} (neither Pod nor PodGroup {group} is the owner)"
    ))
}

/// Whether an owner is a PodGroup, of any version.
fn is_group(owner: &OwnerReference) -> bool {
    owner.kind == "PodGroup"
        && owner.api_version.strip_prefix(GROUP).is_some_and(|version| version.starts_with('/'))
}

/// Checks that a claim was made for a PodGroup.
///
/// # Errors
/// In upstream's words, if it was not.
pub fn is_for_group(group: &PodGroup, claim: &ResourceClaim) -> Result<(), String> {
    let (claimed, key) = (named(claim), key_of_group(group));
    if claim.metadata.namespace != group.metadata.namespace {
        return Err(format!("ResourceClaim {claimed} is not in the same namespace as PodGroup {key}"));
    }
    if controller(claim).is_none_or(|o| Some(&o.uid) != group.metadata.uid.as_ref()) {
        return Err(format!(
            "ResourceClaim {claimed} was not created for PodGroup {key} (PodGroup is not owner)"
        ));
    }
    Ok(())
}

/// The consumers of a claim.
pub fn reserved_for(claim: &ResourceClaim) -> &[ResourceClaimConsumerReference] {
    claim.status.as_ref().and_then(|s| s.reserved_for.as_deref()).unwrap_or_default()
}

/// Whether a claim has devices.
pub fn is_allocated(claim: &ResourceClaim) -> bool {
    claim.status.as_ref().is_some_and(|s| s.allocation.is_some())
}

/// Whether a consumer is a Pod.
pub fn is_pod(consumer: &ResourceClaimConsumerReference) -> bool {
    text(consumer.api_group.as_ref()).is_empty() && consumer.resource == "pods"
}

/// Whether a consumer is a PodGroup.
pub fn is_pod_group(consumer: &ResourceClaimConsumerReference) -> bool {
    consumer.api_group.as_deref() == Some(GROUP) && consumer.resource == "podgroups"
}

/// Whether a claim is reserved for a Pod, or for its PodGroup.
pub fn is_reserved_for(user: User<'_>, claim: &ResourceClaim) -> bool {
    reserved_for(claim).iter().any(|consumer| {
        consumer.uid == user.uid
            || is_pod_group(consumer) && user.group.is_some_and(|group| consumer.name == group)
    })
}

/// Whether a claim has its finalizer.
pub fn is_protected(claim: &ResourceClaim) -> bool {
    claim.metadata.finalizers.iter().flatten().any(|f| f == FINALIZER)
}

/// The places in a Pod that name claims.
pub fn places(pod: &Pod) -> &[PodResourceClaim] {
    pod.spec.as_ref().and_then(|s| s.resource_claims.as_deref()).unwrap_or_default()
}

/// A Pod as a consumer.
pub fn consumer(name: &str, uid: &str) -> ResourceClaimConsumerReference {
    ResourceClaimConsumerReference {
        api_group: None,
        name: name.to_owned(),
        resource: "pods".to_owned(),
        uid: uid.to_owned(),
    }
}

/// A PodGroup as a consumer.
pub fn group_consumer(group: &PodGroup) -> ResourceClaimConsumerReference {
    ResourceClaimConsumerReference {
        api_group: Some(GROUP.to_owned()),
        name: text(group.metadata.name.as_ref()).to_owned(),
        resource: "podgroups".to_owned(),
        uid: text(group.metadata.uid.as_ref()).to_owned(),
    }
}

/// The claim that a place names, and the template of one.
pub type Source<'p> = (Option<&'p str>, Option<&'p str>);

/// The consumer of the claim of a Pod's place: the Pod's PodGroup, if it has the same place, or else the Pod (upstream's
/// `BindTo`). The place is its name and its source.
///
/// # Errors
/// In upstream's words, if a place names no claim, or the group is not the Pod's.
pub fn bind_to(
    user: User<'_>,
    group: Option<&PodGroup>,
    (place, source): (&str, Source<'_>),
) -> Result<ResourceClaimConsumerReference, String> {
    const UNSUPPORTED: &str = "none of the supported fields are set";
    let User { namespace, name, .. } = user;
    if source == (None, None) {
        return Err(format!("Pod {namespace}/{name} claim {place}: {UNSUPPORTED}"));
    }
    let Some(group) = group else { return Ok(consumer(name, user.uid)) };
    let key = key_of_group(group);
    let own = user.group.ok_or_else(|| format!("Pod {namespace}/{name} does not belong to a PodGroup"))?;
    let own = format!("{namespace}/{own}");
    if own != key {
        return Err(format!("Pod {namespace}/{name} belongs to PodGroup {own}, not PodGroup {key}"));
    }
    for other in places_in_group(group) {
        let its = (other.resource_claim_name.as_deref(), other.resource_claim_template_name.as_deref());
        if its == (None, None) {
            return Err(format!("PodGroup {key} claim {}: {UNSUPPORTED}", other.name));
        }
        if (other.name.as_str(), its) == (place, source) {
            return Ok(group_consumer(group));
        }
    }
    Ok(consumer(name, user.uid))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(claims: Value, statuses: Value) -> Pod {
        let pod = json!({"metadata": {"namespace": "n", "name": "p", "uid": "u"},
            "spec": {"containers": [], "resourceClaims": claims}, "status": {"resourceClaimStatuses": statuses}});
        serde_json::from_value(pod).unwrap()
    }

    /// The cases of upstream's `TestName`.
    #[test]
    fn names() {
        let check = |claim: Value, statuses: Value, expected: Result<Option<(&str, bool)>, &str>| {
            let pod = pod(json!([claim]), statuses);
            assert_eq!(name(&pod, &places(&pod)[0]), expected.map_err(str::to_owned));
        };
        let template = json!({"name": "a", "resourceClaimTemplateName": "t"});
        check(json!({"name": "a", "resourceClaimName": "c"}), json!([]), Ok(Some(("c", false))));
        check(template.clone(), json!([{"name": "a", "resourceClaimName": "g"}]), Ok(Some(("g", true))));
        check(template.clone(), json!([{"name": "a"}]), Ok(None));
        check(
            template,
            json!([{"name": "b", "resourceClaimName": "g"}]),
            Err("pod \"n/p\": ResourceClaim not created yet"),
        );
        let why = "pod \"n/p\", spec.resourceClaim \"a\": none of the supported fields are set";
        check(json!({"name": "a"}), json!([]), Err(why));
    }

    /// The cases of upstream's `TestNameFromPodGroup`.
    #[test]
    fn names_in_groups() {
        let check = |claim: Value, statuses: Value, expected: Result<Option<(&str, bool)>, &str>| {
            let group = group("default", "test-podgroup", "u", json!([claim]), statuses);
            let got = name_in_group(&group, &places_in_group(&group)[0]);
            assert_eq!(got, expected.map_err(str::to_owned));
        };
        let template = json!({"name": "a", "resourceClaimTemplateName": "t"});
        check(
            json!({"name": "a", "resourceClaimName": "existing"}),
            json!([]),
            Ok(Some(("existing", false))),
        );
        let made = json!([{"name": "a", "resourceClaimName": "created"}]);
        check(template.clone(), made, Ok(Some(("created", true))));
        check(template.clone(), json!([{"name": "a"}]), Ok(None));
        let other = json!([{"name": "other", "resourceClaimName": "created"}]);
        check(template, other, Err("PodGroup default/test-podgroup: ResourceClaim not created yet"));
        let why =
            "PodGroup default/test-podgroup, spec.resourceClaim a: none of the supported fields are set";
        check(json!({"name": "a"}), json!([]), Err(why));
    }

    fn group(namespace: &str, name: &str, uid: &str, claims: Value, statuses: Value) -> PodGroup {
        serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": name, "uid": uid},
            "spec": {"schedulingPolicy": {"basic": {}}, "resourceClaims": claims},
            "status": {"resourceClaimStatuses": statuses},
        }))
        .unwrap()
    }

    /// A claim with a controller: API version, kind, name and uid.
    fn owned(namespace: &str, name: &str, owner: Option<[&str; 4]>) -> ResourceClaim {
        let owners: Vec<Value> = owner
            .iter()
            .map(|[v, k, n, u]| json!({"apiVersion": v, "kind": k, "name": n, "uid": u, "controller": true}))
            .collect();
        let meta = json!({"namespace": namespace, "name": name, "ownerReferences": owners});
        serde_json::from_value(json!({"metadata": meta, "spec": {}})).unwrap()
    }

    const POD: [&str; 4] = ["v1", "Pod", "podOwner", "1"];
    const PODGROUP: [&str; 4] = ["scheduling.k8s.io/v1alpha2", "PodGroup", "podGroupOwner", "2"];

    /// The cases of upstream's `TestResourceClaimIsFor` about Pods, and PodGroups of other names.
    #[test]
    fn owners() {
        let check = |(name, uid, group): (&str, &str, Option<&str>),
                     claim: &ResourceClaim,
                     expected: Result<(), &str>| {
            let user = User { namespace: "kube-system", name, uid, group };
            assert_eq!(is_for(user, claim), expected.map_err(str::to_owned), "{user:?}");
        };
        let owner = |group| ("podOwner", "1", group);
        let with_owner = owned("kube-system", "claimWithOwner", Some(POD));
        let of_group = owned("kube-system", "claimWithPodGroupOwner", Some(PODGROUP));
        let nobodys = owned("kube-system", "claimNoOwner", None);
        check(owner(None), &with_owner, Ok(()));
        check(owner(Some("podGroupOwner")), &with_owner, Ok(()));
        check(
            ("podNotOwner", "3", None),
            &with_owner,
            Err(
                "ResourceClaim kube-system/claimWithOwner was not created for Pod kube-system/podNotOwner (Pod is not owner)",
            ),
        );
        check(
            owner(None),
            &nobodys,
            Err(
                "ResourceClaim kube-system/claimNoOwner was not created for Pod kube-system/podOwner (Pod is not owner)",
            ),
        );
        check(
            owner(None),
            &owned("user-namespace", "userClaimWithOwner", Some(POD)),
            Err(
                "ResourceClaim user-namespace/userClaimWithOwner is not in the same namespace as Pod kube-system/podOwner",
            ),
        );
        check(owner(Some("podGroupOwner")), &of_group, Ok(()));
        let [_, kind, name, uid] = PODGROUP;
        let other_version = owned("kube-system", "c", Some(["scheduling.k8s.io/v25", kind, name, uid]));
        check(owner(Some("podGroupOwner")), &other_version, Ok(()));
        let not = |claim: &str, group: &str| {
            format!(
                "ResourceClaim kube-system/{claim} was not created for Pod kube-system/podOwner (neither Pod nor PodGroup {group} is the owner)"
            )
        };
        let other = not("claimWithPodGroupOwner", "podGroupNotOwner");
        check(owner(Some("podGroupNotOwner")), &of_group, Err(&other));
        check(owner(Some("podGroupOwner")), &nobodys, Err(&not("claimNoOwner", "podGroupOwner")));
        check(
            owner(Some("podGroupOwner")),
            &owned("user-namespace", "userClaimWithPodGroupOwner", Some(PODGROUP)),
            Err(
                "ResourceClaim user-namespace/userClaimWithPodGroupOwner is not in the same namespace as Pod kube-system/podOwner",
            ),
        );
        // Others that have the group's name.
        for other in ["scheduling.k8s.io", "scheduling.k8s.iox/v1", "v1"] {
            let claim = owned("kube-system", "c", Some([other, kind, name, uid]));
            check(owner(Some("podGroupOwner")), &claim, Err(&not("c", "podGroupOwner")));
        }
        check(
            owner(None),
            &of_group,
            Err(
                "ResourceClaim kube-system/claimWithPodGroupOwner was not created for Pod kube-system/podOwner (Pod is not owner)",
            ),
        );
    }

    /// The cases of upstream's `TestResourceClaimIsFor` about PodGroups.
    #[test]
    fn owning_groups() {
        let check = |name: &str, uid: &str, claim: &ResourceClaim, expected: Result<(), &str>| {
            let group = group("kube-system", name, uid, json!([]), json!([]));
            assert_eq!(is_for_group(&group, claim), expected.map_err(str::to_owned));
        };
        let claim = owned("kube-system", "claimWithPodGroupOwner", Some(PODGROUP));
        check("podGroupOwner", "2", &claim, Ok(()));
        check(
            "podGroupNotOwner",
            "4",
            &claim,
            Err(
                "ResourceClaim kube-system/claimWithPodGroupOwner was not created for PodGroup kube-system/podGroupNotOwner (PodGroup is not owner)",
            ),
        );
        check(
            "podGroupOwner",
            "2",
            &owned("kube-system", "claimNoOwner", None),
            Err(
                "ResourceClaim kube-system/claimNoOwner was not created for PodGroup kube-system/podGroupOwner (PodGroup is not owner)",
            ),
        );
        let elsewhere = owned("user-namespace", "userClaimWithPodGroupOwner", Some(PODGROUP));
        check(
            "podGroupOwner",
            "2",
            &elsewhere,
            Err(
                "ResourceClaim user-namespace/userClaimWithPodGroupOwner is not in the same namespace as PodGroup kube-system/podGroupOwner",
            ),
        );
    }

    /// The cases of upstream's `TestIsReservedForPod`: names of Pods and of PodGroups; a PodGroup's begin with `group`.
    #[test]
    fn reservations() {
        let check = |reserved: &[&str], group: Option<&str>, expected: bool| {
            let consumers: Vec<ResourceClaimConsumerReference> = reserved
                .iter()
                .map(|name| {
                    if name.starts_with("group") {
                        group_consumer(&self::group(
                            "kube-system",
                            name,
                            &format!("uid-{name}"),
                            json!([]),
                            json!([]),
                        ))
                    } else {
                        consumer(name, &format!("uid-{name}"))
                    }
                })
                .collect();
            let claim = json!({"metadata": {}, "spec": {}, "status": {"reservedFor": consumers}});
            let user = User { namespace: "kube-system", name: "pod", uid: "uid-pod", group };
            assert_eq!(
                is_reserved_for(user, &serde_json::from_value(claim).unwrap()),
                expected,
                "{reserved:?}"
            );
        };
        check(&[], None, false);
        check(&["pod"], None, true);
        check(&["other"], None, false);
        check(&["other", "pod"], None, true);
        check(&["other", "third"], None, false);
        check(&["group"], Some("group"), true);
        check(&["group"], None, false);
        check(&["pod", "group"], Some("group"), true);
        check(&["group2"], Some("group"), false);
        check(&["group2", "group"], Some("group"), true);
        check(&["group2", "group3"], Some("group"), false);
        // A Pod that has the group's name.
        check(&["other"], Some("other"), false);
    }

    /// The cases of upstream's `TestBindTo`.
    #[test]
    fn consumers() {
        let claim = |name: &str, claim: &str, template: &str| {
            let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            json!({"name": name, "resourceClaimName": some(claim), "resourceClaimTemplateName": some(template)})
        };
        let check = |place: &Value, group: Option<(&str, &str, Value)>, expected: Result<&str, &str>| {
            let member = group.is_some().then_some("my-podgroup");
            let user = User { namespace: "my-namespace", name: "my-pod", uid: "uid-pod", group: member };
            let group =
                group.map(|(ns, name, claims)| self::group(ns, name, "uid-podgroup", claims, json!([])));
            let source = (place["resourceClaimName"].as_str(), place["resourceClaimTemplateName"].as_str());
            let got = bind_to(user, group.as_ref(), (place["name"].as_str().unwrap(), source));
            assert_eq!(
                got.as_ref().map(|c| c.resource.as_str()).map_err(String::as_str),
                expected,
                "{place}"
            );
            if let Ok(consumer) = got {
                assert_eq!(is_pod_group(&consumer), expected == Ok("podgroups"));
                assert_eq!(is_pod(&consumer), expected == Ok("pods"));
                assert_eq!(consumer.uid, if expected == Ok("pods") { "uid-pod" } else { "uid-podgroup" });
            }
        };
        let in_group = |claims: Value| Some(("my-namespace", "my-podgroup", claims));
        let named = claim("my-claim", "my-resource-claim", "");
        let templated = claim("my-claim", "", "my-template");
        let none = "Pod my-namespace/my-pod claim my-claim: none of the supported fields are set";
        check(&claim("my-claim", "", ""), None, Err(none));
        check(&named, None, Ok("pods"));
        check(&templated, None, Ok("pods"));
        check(&named, in_group(json!([named])), Ok("podgroups"));
        check(&templated, in_group(json!([templated])), Ok("podgroups"));
        check(
            &named,
            Some(("not-my-namespace", "my-podgroup", json!([named]))),
            Err(
                "Pod my-namespace/my-pod belongs to PodGroup my-namespace/my-podgroup, not PodGroup not-my-namespace/my-podgroup",
            ),
        );
        check(
            &named,
            Some(("my-namespace", "not-my-podgroup", json!([named]))),
            Err(
                "Pod my-namespace/my-pod belongs to PodGroup my-namespace/my-podgroup, not PodGroup my-namespace/not-my-podgroup",
            ),
        );
        check(&named, in_group(json!([claim("other", "other", "")])), Ok("pods"));
        check(&named, in_group(json!([claim("other", "other", ""), named])), Ok("podgroups"));
        check(&named, in_group(json!([claim("other", "my-resource-claim", "")])), Ok("pods"));
        check(&named, in_group(json!([claim("my-claim", "other", "")])), Ok("pods"));
        check(&templated, in_group(json!([claim("my-claim", "", "other")])), Ok("pods"));
        let odd = "PodGroup my-namespace/my-podgroup claim odd: none of the supported fields are set";
        check(&named, in_group(json!([claim("odd", "", ""), named])), Err(odd));
    }
}
