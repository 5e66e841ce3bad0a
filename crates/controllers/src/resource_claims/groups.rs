//! The claims of PodGroups: made for the group and shared by its Pods (upstream's gate DRAWorkloadResourceClaims).

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Status;
use client::{Cached, Change, EventType, Key, Patch};
use k8s_openapi::api::resource::v1::ResourceClaimConsumerReference;
use k8s_openapi::api::scheduling::v1alpha2::{PodGroup, PodGroupResourceClaim};
use objects::claims;
use serde_json::{Value, json};

use super::plan::Holder;
use super::state::{ResourceClaims, Work};
use crate::common::{deleting, pods, retry};
use crate::views::{ClaimPlace, PodView};

impl ResourceClaims {
    pub(super) fn watch_groups(self: &Arc<Self>) {
        let Some(groups) = &self.groups else { return };
        let c = self.clone();
        groups.all.handle(move |change| {
            if let Change::Updated { old, new } = change
                && old.uid() != new.uid()
            {
                c.look_at_group(old, true);
            }
            c.look_at_group(change.object(), matches!(change, Change::Deleted(_)));
        });
    }

    pub(super) fn look_at_groups_with_claim(&self, key: &str) {
        let groups = self.groups.iter().flat_map(|groups| groups.by_claim.get(key));
        groups.for_each(|group| self.look_at_group(&group, false));
    }

    pub(super) fn look_at_groups_with_template(&self, key: &str) {
        let groups = self.groups.iter().flat_map(|groups| groups.by_template.get(key));
        groups.for_each(|group| self.look_at_group(&group, false));
    }

    /// A PodGroup came, changed or went. Its Pods learn of its claims.
    fn look_at_group(&self, group: &PodGroup, gone: bool) {
        let places = claims::places_in_group(group);
        let Some(groups) = self.groups.as_ref().filter(|_| !places.is_empty()) else { return };
        if gone {
            self.remember(group.uid());
            for place in places {
                if let Ok(Some((name, _))) = claims::name_in_group(group, place) {
                    self.queue.add(Work::Claim(Key::new(group.namespace(), name)));
                }
            }
        } else if self.group_needs_work(group) {
            self.queue.add(Work::Group(group.key()));
        }
        let members = groups.members.get(&pods::claim_key(group.namespace(), group.name()));
        for pod in &members {
            self.look_at(pod, false);
        }
    }

    fn group_needs_work(&self, group: &PodGroup) -> bool {
        let lacks = |place: &PodGroupResourceClaim| match claims::name_in_group(group, place) {
            Err(_) => true,
            Ok(None) => false,
            Ok(Some((name, _))) => {
                // The user makes a claim that the group names. One that another has made keeps its name until it goes.
                place.resource_claim_template_name.is_some()
                    && self.claims.get(group.namespace(), name).is_none()
            }
        };
        !deleting(&group.metadata) && claims::places_in_group(group).iter().any(lacks)
    }

    /// The PodGroup whose claims a Pod may share.
    ///
    /// # Errors
    /// It is not known yet.
    pub(super) fn group_of(&self, pod: &PodView) -> Result<Option<Arc<PodGroup>>, Status> {
        let Some((groups, name)) = self.groups.as_ref().zip(self.user(pod).group) else { return Ok(None) };
        let group = groups.all.get(pod.namespace(), name);
        group.map(Some).ok_or_else(|| {
            let (key, name) = (pod.key(), api::go::quote(name));
            retry(format!("get PodGroup for Pod {key}: podgroup.scheduling.k8s.io {name} not found"))
        })
    }

    /// Whether the claim of a Pod's place is made for its PodGroup.
    pub(super) fn is_made_for_group(&self, pod: &PodView, place: &ClaimPlace) -> bool {
        let Ok(Some(group)) = self.group_of(pod) else { return false };
        let at = (place.name.as_str(), place.source());
        // Of a group that names no claim, it is not sure what to do.
        claims::bind_to(self.user(pod), Some(&group), at).map_or(true, |c| claims::is_pod_group(&c))
    }

    pub(super) async fn sync_group(&self, key: &Key) -> Result<(), Status> {
        let groups = self.groups.as_ref().and_then(|groups| groups.all.get_key(key));
        let Some(group) = groups.filter(|g| !deleting(&g.metadata)) else { return Ok(()) };
        let mut made = BTreeMap::new();
        for place in claims::places_in_group(&group) {
            match self.make_in_group(&group, place).await {
                Ok(name) => made.extend(name.map(|name| (&place.name, name))),
                Err(why) => {
                    let message = format!("PodGroupResourceClaim {}: {why}", place.name);
                    let reason = "FailedResourceClaimCreation";
                    self.recorder.event(&*group, EventType::Warning, reason, message.as_str());
                    return Err(retry(format!("PodGroup {key}, {message}")));
                }
            }
        }
        if made.is_empty() {
            return Ok(());
        }
        let statuses: Vec<Value> =
            made.iter().map(|(place, claim)| json!({"name": place, "resourceClaimName": claim})).collect();
        let patch = json!({"metadata": {"uid": group.uid()}, "status": {"resourceClaimStatuses": statuses}});
        let api = self.client.api::<PodGroup>(&key.namespace);
        match api.patch_status(&key.name, &Patch::Strategic(patch)).await {
            Err(e) if !e.is_not_found() => {
                Err(retry(format!("update PodGroup {key} ResourceClaimStatuses: {}", e.message)))
            }
            _ => Ok(()),
        }
    }

    /// Makes the claim of a group's place, if there is none; the claim's name if the group's status lacks it.
    async fn make_in_group(
        &self,
        group: &PodGroup,
        place: &PodGroupResourceClaim,
    ) -> Result<Option<String>, String> {
        let named = match (claims::name_in_group(group, place), &place.resource_claim_template_name) {
            (Ok(None), _) => return Ok(None),
            (Err(why), None) => return Err(format!("checking for claim before creating it: {why}")),
            (Ok(named), _) => named,
            (Err(_), Some(_)) => None,
        };
        if let Some((name, made)) = named
            && let Some(claim) = self.claims.get(group.namespace(), name)
            && (!made || claims::is_for_group(group, &claim).is_ok())
        {
            return Ok(None);
        }
        let Some(template) = &place.resource_claim_template_name else { return Ok(None) };
        self.make_for(Holder::group(group), &place.name, template).await.map(Some)
    }

    /// Whether a PodGroup is there that uses a claim. Where they have no claims, nobody knows.
    pub(super) async fn group_uses(
        &self,
        namespace: &str,
        consumer: &ResourceClaimConsumerReference,
    ) -> Result<bool, Status> {
        let Some(groups) = &self.groups else { return Ok(true) };
        if self.gone.lock().uids.contains(&consumer.uid) {
            return Ok(false);
        }
        if let Some(group) = groups.all.get(namespace, &consumer.name) {
            return Ok(group.uid() == consumer.uid);
        }
        // It may be that the group is not shown yet.
        match self.client.api::<PodGroup>(namespace).get(&consumer.name).await {
            Ok(group) => Ok(group.uid() == consumer.uid),
            Err(e) if e.is_not_found() => Ok(false),
            Err(e) => Err(e),
        }
    }
}
