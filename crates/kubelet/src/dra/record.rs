//! The file in which claims in use are kept, `dra_manager_state`: upstream's form and checksum.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::checkpoint::RecordError;

/// The file's name, below the kubelet's directory.
pub(super) const FILE: &str = "dra_manager_state";
const KIND: &str = "DRACheckpoint";
const API_VERSION: &str = "checkpoint.dra.kubelet.k8s.io/v1";

/// A claim in use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct ClaimState {
    #[serde(rename = "ClaimUID")]
    pub(super) claim_uid: String,
    pub(super) claim_name: String,
    pub(super) namespace: String,
    /// The Pods that use it.
    #[serde(rename = "PodUIDs", with = "set")]
    pub(super) pod_uids: BTreeSet<String>,
    /// Each driver that devices of the claim are of, also one that told of none.
    #[serde(deserialize_with = "or_null")]
    pub(super) driver_state: BTreeMap<String, DriverState>,
}

/// The devices that a driver prepared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct DriverState {
    #[serde(with = "list")]
    pub(super) devices: Vec<Device>,
}

/// A device that a driver prepared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Device {
    pub(super) pool_name: String,
    pub(super) device_name: String,
    #[serde(rename = "ShareID")]
    pub(super) share_id: Option<String>,
    /// The claim's requests that it is for; all of them if there are none.
    #[serde(with = "list")]
    pub(super) request_names: Vec<String>,
    #[serde(rename = "CDIDeviceIDs", with = "list")]
    pub(super) cdi_device_ids: Vec<String>,
}

/// A null is as good as nothing.
fn or_null<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Sets as upstream writes them: maps of nothing, `{"a":{}}`.
mod set {
    use std::collections::{BTreeMap, BTreeSet};

    use serde::{Deserializer, Serialize, Serializer};
    use serde_json::Value;

    #[derive(Serialize)]
    struct Nothing {}

    pub(super) fn serialize<S: Serializer>(all: &BTreeSet<String>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(all.iter().map(|one| (one, Nothing {})))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeSet<String>, D::Error> {
        let all: BTreeMap<String, Value> = super::or_null(from)?;
        Ok(all.into_keys().collect())
    }
}

/// Lists as Go writes them: one that is empty is null.
mod list {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer, T: Serialize>(all: &[T], to: S) -> Result<S::Ok, S::Error> {
        Some(all).filter(|all| !all.is_empty()).serialize(to)
    }

    pub(super) fn deserialize<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
    where
        D: Deserializer<'de>,
        T: Deserialize<'de>,
    {
        super::or_null(from)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Outer {
    data: String,
    checksum: u32,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Inner {
    kind: String,
    #[serde(rename = "apiVersion")]
    api_version: String,
    #[serde(rename = "ClaimInfoStateList", with = "list")]
    claims: Vec<ClaimState>,
}

/// The file's content for these claims.
pub(super) fn encode(claims: Vec<ClaimState>) -> Result<Vec<u8>, RecordError> {
    let inner = Inner { kind: KIND.into(), api_version: API_VERSION.into(), claims };
    let data = serde_json::to_string(&inner)?;
    let checksum = crc32fast::hash(data.as_bytes());
    Ok(serde_json::to_vec(&Outer { data, checksum })?)
}

/// The claims of a file.
///
/// # Errors
/// It is another one than was written, or cannot be understood.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<ClaimState>, RecordError> {
    let outer: Outer = serde_json::from_slice(bytes)?;
    if crc32fast::hash(outer.data.as_bytes()) != outer.checksum {
        return Err(RecordError::Corrupt);
    }
    let inner: Inner = serde_json::from_str(&outer.data)?;
    Ok(inner.claims)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, share: Option<&str>, requests: &[&str], cdi: &[&str]) -> Device {
        let texts = |all: &[&str]| all.iter().map(ToString::to_string).collect();
        Device {
            pool_name: "worker-1".into(),
            device_name: name.into(),
            share_id: share.map(str::to_owned),
            request_names: texts(requests),
            cdi_device_ids: texts(cdi),
        }
    }

    fn claim(uid: &str, name: &str, devices: Vec<Device>) -> ClaimState {
        ClaimState {
            claim_uid: uid.into(),
            claim_name: name.into(),
            namespace: "default".into(),
            pod_uids: BTreeSet::from(["139cdb46-f989-4f17-9561-ca10cfb509a6".to_owned()]),
            driver_state: BTreeMap::from([("test-driver.cdi.k8s.io".to_owned(), DriverState { devices })]),
        }
    }

    /// Upstream's cases of `TestCheckpointGetOrCreate` and `TestCheckpointStateStore`, with upstream's files.
    #[test]
    fn files_are_upstreams() {
        const UID: &str = "067798be-454e-4be4-9047-1aa06aea63f7";
        const SHARE: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
        let (request, cdi) = (["test request"], ["example.com/example=cdi-example"]);
        let first = || device("dev-1", None, &request, &cdi);
        let check = |file: &str, claims: Vec<ClaimState>| {
            assert_eq!(decode(file.as_bytes()).unwrap(), claims);
            assert_eq!(String::from_utf8(encode(claims).unwrap()).unwrap(), file);
        };
        check(
            r#"{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[{\"ClaimUID\":\"067798be-454e-4be4-9047-1aa06aea63f7\",\"ClaimName\":\"example\",\"Namespace\":\"default\",\"PodUIDs\":{\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{}},\"DriverState\":{\"test-driver.cdi.k8s.io\":{\"Devices\":[{\"PoolName\":\"worker-1\",\"DeviceName\":\"dev-1\",\"ShareID\":null,\"RequestNames\":[\"test request\"],\"CDIDeviceIDs\":[\"example.com/example=cdi-example\"]}]}}}]}","Checksum":2570581864}"#,
            vec![claim(UID, "example", vec![first()])],
        );
        check(
            r#"{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[{\"ClaimUID\":\"067798be-454e-4be4-9047-1aa06aea63f7\",\"ClaimName\":\"example\",\"Namespace\":\"default\",\"PodUIDs\":{\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{}},\"DriverState\":{\"test-driver.cdi.k8s.io\":{\"Devices\":[{\"PoolName\":\"worker-1\",\"DeviceName\":\"dev-1\",\"ShareID\":\"aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa\",\"RequestNames\":[\"test request\"],\"CDIDeviceIDs\":[\"example.com/example=cdi-example\"]}]}}}]}","Checksum":736302156}"#,
            vec![claim(UID, "example", vec![device("dev-1", Some(SHARE), &request, &cdi)])],
        );
        check(
            r#"{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[{\"ClaimUID\":\"067798be-454e-4be4-9047-1aa06aea63f7\",\"ClaimName\":\"example-1\",\"Namespace\":\"default\",\"PodUIDs\":{\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{}},\"DriverState\":{\"test-driver.cdi.k8s.io\":{\"Devices\":[{\"PoolName\":\"worker-1\",\"DeviceName\":\"dev-1\",\"ShareID\":null,\"RequestNames\":[\"test request\"],\"CDIDeviceIDs\":[\"example.com/example=cdi-example\"]}]}}},{\"ClaimUID\":\"4cf8db2d-06c0-7d70-1a51-e59b25b2c16c\",\"ClaimName\":\"example-2\",\"Namespace\":\"default\",\"PodUIDs\":{\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{}},\"DriverState\":{\"test-driver.cdi.k8s.io\":{\"Devices\":[{\"PoolName\":\"worker-1\",\"DeviceName\":\"dev-2\",\"ShareID\":null,\"RequestNames\":null,\"CDIDeviceIDs\":null}]}}}]}","Checksum":2820117767}"#,
            vec![
                claim(UID, "example-1", vec![first()]),
                claim(
                    "4cf8db2d-06c0-7d70-1a51-e59b25b2c16c",
                    "example-2",
                    vec![device("dev-2", None, &[], &[])],
                ),
            ],
        );
    }

    #[test]
    fn files_of_other_versions_and_files_that_changed() {
        let read = |file: &str| decode(file.as_bytes()).map_err(|e| e.to_string());
        // A file of a kubelet that knew fewer fields, and of another version; upstream reads them, too.
        for (version, checksum) in [("v1", 1_137_250_765_u32), ("v0", 1_284_376_732)] {
            let data = r#"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/VERSION\",\"ClaimInfoStateList\":[{\"ClaimUID\":\"067798be-454e-4be4-9047-1aa06aea63f7\",\"ClaimName\":\"example\",\"Namespace\":\"default\",\"PodUIDs\":{\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{}},\"DriverState\":{\"test-driver.cdi.k8s.io\":{\"Devices\":[{\"PoolName\":\"worker-1\",\"DeviceName\":\"dev-1\",\"CDIDeviceIDs\":[\"example.com/example=cdi-example\"]}]}}}]}"#;
            let file = format!(r#"{{"Data":"{}","Checksum":{checksum}}}"#, data.replace("VERSION", version));
            assert_eq!(read(&file).unwrap()[0].driver_state["test-driver.cdi.k8s.io"].devices.len(), 1);
        }
        let whole = String::from_utf8(encode(vec![claim("u", "c", Vec::new())]).unwrap()).unwrap();
        assert!(read(&whole).is_ok());
        assert_eq!(read(&whole.replace("default", "another")).unwrap_err(), "checkpoint is corrupted");
        for cut in 0..whole.len() {
            assert!(read(&whole[..cut]).is_err(), "{cut}");
        }
        assert!(read(&String::from_utf8(encode(Vec::new()).unwrap()).unwrap()).unwrap().is_empty());
    }
}
