//! The file in which devices of Pods are kept, `kubelet_internal_checkpoint`: upstream's form and checksum.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::checkpoint::{Fnv, RecordError};

/// The file's name, in the directory of the plugins' sockets.
pub(super) const FILE: &str = "kubelet_internal_checkpoint";

/// Devices of a container. Lists may be null, which the checksum tells from empty ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Entry {
    #[serde(rename = "PodUID")]
    pub(super) pod_uid: String,
    pub(super) container_name: String,
    pub(super) resource_name: String,
    /// By the NUMA node that they are near to; -1 for those that are near to none.
    #[serde(rename = "DeviceIDs")]
    pub(super) device_ids: Option<BTreeMap<i64, Option<Vec<String>>>>,
    /// The plugin's answer, in protobuf.
    pub(super) alloc_resp: Option<Binary>,
}

/// Bytes that are written in base64.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Binary(pub(super) Vec<u8>);

impl Serialize for Binary {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Binary {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// All that is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Data {
    pub(super) pod_device_entries: Option<Vec<Entry>>,
    /// The healthy devices of each resource.
    pub(super) registered_devices: Option<BTreeMap<String, Option<Vec<String>>>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: Data,
    checksum: u64,
}

/// A list in Go's words for hashes: `[a b]`, or `<nil>`.
struct List<'a, T>(&'a Option<Vec<T>>);

impl<T: fmt::Display> fmt::Display for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(all) = self.0 else { return f.write_str("<nil>") };
        f.write_str("[")?;
        for (i, one) in all.iter().enumerate() {
            if i > 0 {
                f.write_str(" ")?;
            }
            write!(f, "{one}")?;
        }
        f.write_str("]")
    }
}

/// A map in Go's words for hashes: `map[k:[v] l:<nil>]`, or `<nil>`.
struct Map<'a, K>(&'a Option<BTreeMap<K, Option<Vec<String>>>>);

impl<K: fmt::Display> fmt::Display for Map<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(all) = self.0 else { return f.write_str("<nil>") };
        f.write_str("map[")?;
        for (i, (key, value)) in all.iter().enumerate() {
            let space = if i > 0 { " " } else { "" };
            write!(f, "{space}{key}:{}", List(value))?;
        }
        f.write_str("]")
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.alloc_resp.as_ref().map(|b| b.0.clone());
        write!(
            f,
            "{{PodUID:(string){} ContainerName:(string){} ResourceName:(string){} DeviceIDs:(checkpoint.DevicesPerNUMA){} AllocResp:([]uint8){}}}",
            self.pod_uid,
            self.container_name,
            self.resource_name,
            Map(&self.device_ids),
            List(&bytes)
        )
    }
}

/// Upstream's checksum: that of the text in which a library of Go's shows the data.
fn checksum(data: &Data) -> u64 {
    let mut hash = Fnv::default();
    // Writing to a hash cannot fail.
    let _ = write!(
        hash,
        "(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){} RegisteredDevices:(map[string][]string){}}}",
        List(&data.pod_device_entries),
        Map(&data.registered_devices)
    );
    hash.sum()
}

/// The file's content.
pub(super) fn encode(data: Data) -> Result<Vec<u8>, RecordError> {
    let checksum = checksum(&data);
    Ok(serde_json::to_vec(&File { data, checksum })?)
}

/// Reads a file's content.
///
/// # Errors
/// It is another one than was written, or cannot be understood.
pub(super) fn decode(bytes: &[u8]) -> Result<Data, RecordError> {
    let file: File = serde_json::from_slice(bytes)?;
    if checksum(&file.data) == file.checksum { Ok(file.data) } else { Err(RecordError::Corrupt) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files that upstream's code wrote.
    const FILES: [&str; 3] = [
        r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3467439661}"#,
        r#"{"Data":{"PodDeviceEntries":[],"RegisteredDevices":null},"Checksum":3252601439}"#,
        r#"{"Data":{"PodDeviceEntries":[{"PodUID":"pod1","ContainerName":"con1","ResourceName":"domain1.com/resource1","DeviceIDs":{"-1":["dev\"2\n\u003cé\u003e"],"0":["dev1"],"1":["dev1"]},"AllocResp":"CgMB/wA="},{"PodUID":"pod2","ContainerName":"con2","ResourceName":"r","DeviceIDs":null,"AllocResp":null},{"PodUID":"pod3","ContainerName":"c","ResourceName":"r","DeviceIDs":{},"AllocResp":""}],"RegisteredDevices":{"a":[],"b":null,"domain1.com/resource1":["dev1","dev2"],"domain10.com/x":["\\"]}},"Checksum":1805845164}"#,
    ];

    #[test]
    fn files_are_upstreams() {
        for file in FILES {
            let data = decode(file.as_bytes()).unwrap();
            let again = encode(data.clone()).unwrap();
            assert_eq!(decode(&again).unwrap(), data);
            let checksum = |text: &str| text.rsplit(':').next().map(str::to_owned);
            assert_eq!(checksum(std::str::from_utf8(&again).unwrap()), checksum(file));
            for cut in 0..file.len() {
                assert!(decode(&file.as_bytes()[..cut]).is_err(), "{cut}");
            }
        }
        let other = FILES[0].replace("{}", r#"{"example.com/dev":["a"]}"#);
        assert_eq!(decode(other.as_bytes()).unwrap_err().to_string(), "checkpoint is corrupted");
    }
}
