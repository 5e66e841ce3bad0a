//! Garbage of StorageVersions: what an API server said there goes when its identity Lease is gone (upstream:
//! `pkg/controller/storageversiongc`).

use std::collections::HashSet;
use std::sync::Arc;

use api::{Gate, Status};
use client::{Cached, Change, Client, Informer, Key, Selection, resource_of};
use component::Clock;
use jiff::Timestamp;
use k8s_openapi::api::apiserverinternal::v1alpha1::{StorageVersion, StorageVersionCondition};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions, Time};

use crate::host::{Controller, Host, Next, Shared, Wiring};

const NAMESPACE: &str = "kube-system";
/// The label of the identity Leases of API servers.
const IDENTITY: (&str, &str) = ("apiserver.kubernetes.io/identity", "kube-apiserver");
const ALL_EQUAL: &str = "AllEncodingVersionsEqual";

/// The collector.
pub(crate) struct StorageVersions {
    client: Client,
    clock: Clock,
    leases: Informer<Lease>,
    versions: Informer<StorageVersion>,
}

impl Controller for StorageVersions {
    const NAME: &'static str = "storageversion-garbage-collector-controller";
    const ALIASES: &'static [&'static str] = &["storage-version-gc"];
    const ACCOUNT: &'static str = "storage-version-garbage-collector";
    const QUEUE: &'static str = "storage_version_garbage_collector_storageversions";
    type Key = Key;

    fn wanted(shared: &Shared) -> bool {
        let gates = &shared.config.gates;
        gates.enabled(Gate::APIServerIdentity) && gates.enabled(Gate::StorageVersionAPI)
    }

    fn new(host: &Host<Key>) -> Self {
        let identities = Selection {
            namespace: NAMESPACE.to_owned(),
            label_selector: format!("{}={}", IDENTITY.0, IDENTITY.1),
            ..Selection::default()
        };
        Self {
            client: host.client(),
            clock: host.clock(),
            leases: host.select(resource_of::<Lease>(), identities),
            versions: host.informer(),
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        wiring.follow(&self.versions, false);
        let (queue, c) = (wiring.queue(), self.clone());
        self.leases.handle(move |change| {
            if let Change::Deleted(lease) = change {
                let names = |v: &&Arc<StorageVersion>| servers(v).any(|id| id == lease.name());
                c.versions.list().iter().filter(names).for_each(|v| queue.add(v.key()));
            }
        });
    }

    async fn sync(&self, key: Key) -> Result<Next, Status> {
        let known = |id: &str| self.leases.get(NAMESPACE, id).is_some();
        let cached = self.versions.get_key(&key);
        if cached.is_none_or(|v| servers(&v).all(known)) {
            return Ok(Next::Done);
        }
        let api = self.client.api::<StorageVersion>("");
        let live = match api.get(&key.name).await {
            Err(e) if e.is_not_found() => return Ok(Next::Done),
            other => other?,
        };
        let mut gone = HashSet::new();
        for id in servers(&live) {
            if self.is_gone(id).await? {
                gone.insert(id.to_owned());
            }
        }
        let done = match plan(live, &gone, self.clock.now()) {
            Action::Nothing => Ok(()),
            Action::Update(version) => api.update_status(&version).await.map(drop),
            Action::Delete(seen) => {
                // DIFFERENCE: upstream takes what a server says meanwhile with it.
                let options = DeleteOptions { preconditions: Some(seen), ..DeleteOptions::default() };
                api.delete(&key.name, Some(&options)).await
            }
        };
        match done {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(Next::Done),
        }
    }
}

impl StorageVersions {
    /// Whether an API server has no identity Lease. The cache may be behind: a server makes its Lease before it says
    /// anything else.
    async fn is_gone(&self, id: &str) -> Result<bool, Status> {
        match self.client.api::<Lease>(NAMESPACE).get(id).await {
            Ok(lease) => {
                let label = lease.metadata.labels.as_ref().and_then(|l| l.get(IDENTITY.0));
                Ok(label.is_none_or(|l| l != IDENTITY.1))
            }
            Err(e) if e.is_not_found() => Ok(true),
            // DIFFERENCE: upstream takes a Lease that it cannot read for one that is gone.
            Err(e) => Err(e),
        }
    }
}

/// The API servers that said something.
fn servers(version: &StorageVersion) -> impl Iterator<Item = &str> {
    let all = version.status.iter().flat_map(|s| s.storage_versions.iter().flatten());
    all.map(|s| s.api_server_id.as_str())
}

#[derive(Debug, PartialEq)]
enum Action {
    Nothing,
    Update(Box<StorageVersion>),
    /// It goes as it was seen.
    Delete(Preconditions),
}

/// Takes what servers said that are gone out of an object; without any server it goes as a whole.
fn plan(mut version: StorageVersion, gone: &HashSet<String>, now: Timestamp) -> Action {
    if !servers(&version).any(|id| gone.contains(id)) {
        return Action::Nothing;
    }
    let generation = version.metadata.generation;
    let seen = Preconditions {
        uid: version.metadata.uid.clone(),
        resource_version: version.metadata.resource_version.clone(),
    };
    let status = version.status.get_or_insert_default();
    let all = status.storage_versions.get_or_insert_default();
    all.retain(|s| !gone.contains(&s.api_server_id));
    let Some(first) = all.first().map(|s| s.encoding_version.clone()) else { return Action::Delete(seen) };
    let common = all.iter().all(|s| s.encoding_version == first).then_some(first);
    let old = std::mem::replace(&mut status.common_encoding_version, common.clone());
    let moved = old.is_some() && common.is_some() && old != common;
    let (state, reason, message) = match common {
        Some(_) => ("True", "CommonEncodingVersionSet", "Common encoding version set"),
        None => ("False", "CommonEncodingVersionUnset", "Common encoding version unset"),
    };
    let conditions = status.conditions.get_or_insert_default();
    let before = conditions.iter().position(|c| c.type_ == ALL_EQUAL);
    let since = before.map(|i| &conditions[i]).filter(|c| c.status == state && !moved);
    let condition = StorageVersionCondition {
        type_: ALL_EQUAL.to_owned(),
        status: state.to_owned(),
        observed_generation: generation,
        last_transition_time: since.map_or(Some(Time(now)), |c| c.last_transition_time.clone()),
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    match before {
        Some(i) => conditions[i] = condition,
        None => conditions.push(condition),
    }
    Action::Update(Box::new(version))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn version(servers: &[(&str, &str)], common: Option<&str>) -> StorageVersion {
        let all: Vec<Value> = servers
            .iter()
            .map(|(id, v)| json!({"apiServerID": id, "encodingVersion": v, "decodableVersions": [v]}))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": "k8s.test.resources", "uid": "u", "resourceVersion": "7"}, "spec": {},
            "status": {"storageVersions": all, "commonEncodingVersion": common},
        }))
        .unwrap()
    }

    /// Upstream's 4 tests: a Lease is gone, and the others agree
    /// (`Test_StorageVersionUpdatedWithAllEncodingVersionsEqualOnLeaseDeletion`); they do not
    /// (`Test_StorageVersionUpdatedWithDifferentEncodingVersionsOnLeaseDeletion`); one that never was
    /// (`Test_StorageVersionContainsInvalidLeaseID`); all are gone (`Test_StorageVersionDeletedOnLeaseDeletion`).
    #[test]
    fn upstreams_cases() {
        type Wanted = Option<(&'static [&'static str], Option<&'static str>, &'static str)>;
        let check = |servers: &[(&str, &str)], common: Option<&str>, gone: &[&str], want: Wanted| {
            let gone = gone.iter().map(|g| (*g).to_owned()).collect();
            match (plan(version(servers, common), &gone, now()), want) {
                (Action::Update(v), Some((ids, common, state))) => {
                    assert_eq!(super::servers(&v).collect::<Vec<_>>(), ids);
                    let status = v.status.unwrap();
                    assert_eq!(status.common_encoding_version.as_deref(), common);
                    let conditions = status.conditions.unwrap();
                    assert_eq!((conditions.len(), conditions[0].status.as_str()), (1, state));
                    assert_eq!(conditions[0].last_transition_time, Some(Time(now())));
                }
                (got, None) => {
                    let whole = servers.iter().all(|(id, _)| gone.contains(*id));
                    let seen = Preconditions { uid: Some("u".into()), resource_version: Some("7".into()) };
                    assert_eq!(got, if whole { Action::Delete(seen) } else { Action::Nothing });
                }
                (got, want) => panic!("{got:?} instead of {want:?}"),
            }
        };
        let three = [("a", "v1"), ("b", "v2"), ("c", "v2")];
        check(&three, Some("v1"), &["a"], Some((&["b", "c"], Some("v2"), "True")));
        check(&three, None, &["b"], Some((&["a", "c"], None, "False")));
        check(&[("a", "v1"), ("c", "v2")], Some("v1"), &["b"], None);
        check(&[("a", "v1"), ("odd", "v1")], Some("v1"), &["odd"], Some((&["a"], Some("v1"), "True")));
        check(&[("a", "v1")], Some("v1"), &["a"], None);
    }

    #[test]
    fn a_state_that_stays_keeps_its_time() {
        let gone = HashSet::from(["a".to_owned()]);
        let mut first = version(&[("a", "v1"), ("b", "v1"), ("c", "v1")], Some("v1"));
        let condition = json!({"type": ALL_EQUAL, "status": "True", "reason": "r", "message": "m",
            "lastTransitionTime": "2025-01-01T00:00:00Z"});
        first.status.as_mut().unwrap().conditions = Some(vec![serde_json::from_value(condition).unwrap()]);
        let Action::Update(second) = plan(first, &gone, now()) else { panic!("nothing is written") };
        let condition = &second.status.as_ref().unwrap().conditions.as_ref().unwrap()[0];
        assert_eq!(condition.last_transition_time.as_ref().unwrap().0.to_string(), "2025-01-01T00:00:00Z");
        assert_eq!(condition.reason, "CommonEncodingVersionSet");
    }
}
