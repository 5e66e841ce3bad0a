//! The claims in use: by which Pods, and with which devices. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::error::Why;
use super::health::DeviceId;
use super::record::{ClaimState, Device, DriverState};

/// The label of a count of claims of any driver.
pub(super) const ANY_DRIVER: &str = "<any>";

/// Namespace and name of a claim.
pub(super) type Key = (String, String);

/// A claim that a Pod wants, with the drivers of its devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) key: Key,
    pub(super) uid: String,
    pub(super) drivers: BTreeSet<String>,
}

#[derive(Debug, Clone, Default)]
struct Claim {
    state: ClaimState,
    /// Whether all its drivers have prepared it for this process. A later one has it prepared again, which costs a
    /// driver nothing.
    prepared: bool,
}

/// The claims in use.
#[derive(Debug, Default)]
pub(super) struct Claims(BTreeMap<Key, Claim>);

impl Claims {
    /// Those that an earlier process left.
    pub(super) fn new(states: Vec<ClaimState>) -> Self {
        let one = |state: ClaimState| {
            let key = (state.namespace.clone(), state.claim_name.clone());
            (key, Claim { state, prepared: false })
        };
        Self(states.into_iter().map(one).collect())
    }

    /// All of them, to be written.
    pub(super) fn states(&self) -> Vec<ClaimState> {
        self.0.values().map(|c| c.state.clone()).collect()
    }

    /// Notes that a Pod uses claims. Answers those that are still to be prepared.
    ///
    /// # Errors
    /// One of the name is another claim. Then nothing is noted.
    pub(super) fn enter(&mut self, pod_uid: &str, wanted: &[Wanted]) -> Result<Vec<ClaimState>, Why> {
        for claim in wanted {
            if let Some(known) = self.0.get(&claim.key)
                && known.state.claim_uid != claim.uid
            {
                return Err(Why::Old(claim.key.1.clone(), known.state.claim_uid.clone()));
            }
        }
        let mut open: Vec<ClaimState> = Vec::new();
        for claim in wanted {
            let known = self.0.entry(claim.key.clone()).or_insert_with(|| Claim {
                state: ClaimState {
                    claim_uid: claim.uid.clone(),
                    namespace: claim.key.0.clone(),
                    claim_name: claim.key.1.clone(),
                    ..ClaimState::default()
                },
                prepared: false,
            });
            for driver in &claim.drivers {
                known.state.driver_state.entry(driver.clone()).or_default();
            }
            known.state.pod_uids.insert(pod_uid.to_owned());
            if !known.prepared && open.iter().all(|c| c.claim_uid != claim.uid) {
                open.push(known.state.clone());
            }
        }
        Ok(open)
    }

    /// Notes the devices that a driver prepared of a claim.
    ///
    /// DIFFERENCE: they take the place of those that it told of before. Upstream adds them, so that a container gets a
    /// device twice after a claim was prepared anew.
    pub(super) fn note(&mut self, key: &Key, driver: &str, devices: Vec<Device>) -> Result<(), Why> {
        let claim = self.0.get_mut(key).ok_or_else(|| Why::Missing(key.1.clone(), key.0.clone()))?;
        claim.state.driver_state.insert(driver.to_owned(), DriverState { devices });
        Ok(())
    }

    /// Notes that claims are prepared.
    pub(super) fn prepared(&mut self, keys: &[Key]) {
        for key in keys {
            if let Some(claim) = self.0.get_mut(key) {
                claim.prepared = true;
            }
        }
    }

    /// The claims that a Pod uses.
    pub(super) fn of_pod(&self, pod_uid: &str) -> BTreeSet<Key> {
        let used = self.0.iter().filter(|(_, c)| c.state.pod_uids.contains(pod_uid));
        used.map(|(key, _)| key.clone()).collect()
    }

    /// A Pod has ended: it uses its claims no more. Answers those that nobody else uses. They stay until they are given
    /// back, since only then is nothing left of them.
    ///
    /// DIFFERENCE: a claim that a Pod did not come to use is none of its own. Upstream gives it back all the same, if one
    /// other Pod uses it.
    pub(super) fn leave(&mut self, pod_uid: &str) -> Vec<ClaimState> {
        let mut last = Vec::new();
        for claim in self.0.values_mut() {
            if !claim.state.pod_uids.contains(pod_uid) {
                continue;
            }
            if claim.state.pod_uids.len() > 1 {
                claim.state.pod_uids.remove(pod_uid);
            } else {
                last.push(claim.state.clone());
            }
        }
        last
    }

    /// Forgets claims that were given back.
    pub(super) fn forget(&mut self, keys: &[Key]) {
        for key in keys {
            self.0.remove(key);
        }
    }

    /// The Pods that use claims.
    pub(super) fn pods(&self) -> BTreeSet<String> {
        self.0.values().flat_map(|c| c.state.pod_uids.iter().cloned()).collect()
    }

    /// The CDI devices of a claim's requests, each once. A request without a name stands for all.
    pub(super) fn cdi_devices(&self, key: &Key, requests: &[&str]) -> Result<Vec<String>, Why> {
        let claim = self.0.get(key).ok_or_else(|| Why::Missing(key.1.clone(), key.0.clone()))?;
        let mut all: Vec<String> = Vec::new();
        for request in requests {
            let devices = claim.state.driver_state.values().flat_map(|d| &d.devices);
            let asked = devices.filter(|d| is_for(d, request));
            for id in asked.flat_map(|d| &d.cdi_device_ids) {
                if !all.contains(id) {
                    all.push(id.clone());
                }
            }
        }
        Ok(all)
    }

    /// The devices of a request of a claim, with their drivers; those of all requests if it has no name.
    pub(super) fn devices<'a>(
        &'a self,
        key: &Key,
        request: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Device)> {
        let drivers = self.0.get(key).into_iter().flat_map(|c| &c.state.driver_state);
        let all = drivers.flat_map(|(driver, d)| d.devices.iter().map(move |one| (driver.as_str(), one)));
        all.filter(move |(_, device)| is_for(device, request))
    }

    /// The Pods that use one of these devices of a driver.
    pub(super) fn pods_with(&self, driver: &str, ids: &BTreeSet<DeviceId>) -> BTreeSet<String> {
        let has = |c: &&Claim| {
            let mut all = c.state.driver_state.get(driver).into_iter().flat_map(|d| &d.devices);
            all.any(|d| ids.contains(&(d.pool_name.clone(), d.device_name.clone())))
        };
        self.0.values().filter(has).flat_map(|c| c.state.pod_uids.iter().cloned()).collect()
    }

    /// How many claims are prepared, by driver, and of any driver.
    pub(super) fn in_use(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::from([(ANY_DRIVER.to_owned(), 0)]);
        for claim in self.0.values().filter(|c| c.prepared) {
            let drivers = claim.state.driver_state.keys().map(String::as_str);
            for driver in drivers.chain([ANY_DRIVER]) {
                *counts.entry(driver.to_owned()).or_default() += 1;
            }
        }
        counts
    }
}

/// Whether a device is for a request of its claim.
pub(super) fn is_for(device: &Device, request: &str) -> bool {
    request.is_empty() || device.request_names.is_empty() || device.request_names.iter().any(|r| r == request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(name: &str, uid: &str, drivers: &[&str]) -> Wanted {
        Wanted {
            key: ("ns".into(), name.into()),
            uid: uid.into(),
            drivers: drivers.iter().map(ToString::to_string).collect(),
        }
    }

    fn names(claims: &[ClaimState]) -> Vec<&str> {
        claims.iter().map(|c| c.claim_name.as_str()).collect()
    }

    fn device(requests: &[&str], cdi: &[&str]) -> Device {
        let texts = |all: &[&str]| all.iter().map(ToString::to_string).collect();
        Device { request_names: texts(requests), cdi_device_ids: texts(cdi), ..Device::default() }
    }

    #[test]
    fn the_last_pod_gives_a_claim_back() {
        let mut claims = Claims::default();
        let key = |name: &str| ("ns".to_owned(), name.to_owned());
        let both = [wanted("a", "ua", &["x"]), wanted("b", "ub", &["x", "y"])];
        assert_eq!(names(&claims.enter("p1", &both).unwrap()), ["a", "b"]);
        assert_eq!(names(&claims.enter("p1", &both).unwrap()), ["a", "b"], "not prepared yet");
        // The same claim in two places of a Pod is asked for once.
        let twice = [wanted("a", "ua", &["x"]), wanted("a", "ua", &["x"])];
        assert_eq!(names(&claims.enter("p1", &twice).unwrap()), ["a"]);
        assert_eq!(claims.in_use(), BTreeMap::from([(ANY_DRIVER.into(), 0)]));
        claims.prepared(&[key("a"), key("b")]);
        assert!(claims.enter("p2", &[wanted("a", "ua", &["x"])]).unwrap().is_empty());
        let counts = [(ANY_DRIVER.to_owned(), 2), ("x".to_owned(), 2), ("y".to_owned(), 1)];
        assert_eq!(claims.in_use(), BTreeMap::from(counts));

        let other = claims.enter("p3", &[wanted("c", "uc", &[]), wanted("a", "new", &["x"])]).unwrap_err();
        assert_eq!(
            other.to_string(),
            "old ResourceClaim with same name a and different UID ua still exists (previous pod force-deleted?!)"
        );
        assert!(claims.of_pod("p3").is_empty(), "nothing is half noted");

        assert!(claims.leave("p3").is_empty(), "a Pod that did not come to use any");
        assert_eq!(names(&claims.leave("p1")), ["b"]);
        assert_eq!(names(&claims.leave("p1")), ["b"], "it was not given back yet");
        claims.forget(&[key("b")]);
        assert!(claims.leave("p1").is_empty());
        assert_eq!(names(&claims.leave("p2")), ["a"]);
        // Another process begins with what is written, and has it prepared again.
        let mut next = Claims::new(claims.states());
        assert_eq!(next.states(), claims.states());
        assert_eq!(next.pods(), BTreeSet::from(["p2".to_owned()]));
        assert_eq!(names(&next.enter("p2", &[wanted("a", "ua", &["x"])]).unwrap()), ["a"]);
    }

    /// Upstream's cases of `TestCDIDevicesAsList` and `TestGetResources`, and those of requests.
    #[test]
    fn devices_of_requests() {
        let mut claims = Claims::default();
        claims.enter("p", &[wanted("c", "u", &["x", "y"])]).unwrap();
        let key = ("ns".to_owned(), "c".to_owned());
        claims.note(&key, "x", vec![device(&["r"], &["old"])]).unwrap();
        claims.note(&key, "x", vec![device(&["r1"], &["a", "b"]), device(&["r1", "r2"], &["c"])]).unwrap();
        claims.note(&key, "y", vec![device(&[], &["d"])]).unwrap();
        let check = |requests: &[&str], expected: &[&str]| {
            assert_eq!(claims.cdi_devices(&key, requests).unwrap(), expected, "{requests:?}");
        };
        check(&[""], &["a", "b", "c", "d"]);
        check(&["r1"], &["a", "b", "c", "d"]);
        check(&["r2"], &["c", "d"]);
        check(&["r2", "r1"], &["c", "d", "a", "b"]);
        check(&["r3"], &["d"]);
        check(&[], &[]);
        let missing = claims.cdi_devices(&("ns".into(), "n".into()), &[""]).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "internal error: unable to get claim info for ResourceClaim n in namespace ns"
        );
    }
}
