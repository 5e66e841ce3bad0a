//! The file in which is kept what Pods were given: upstream's `allocated_pods_state`, with its form and its checksum.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::ResourceRequirements;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::checkpoint::{self, Fnv, RecordError};
use crate::work::in_place;

/// The file's name, below the kubelet's directory.
const FILE: &str = "allocated_pods_state";

/// The resources that a Pod was given.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Entry {
    /// Resources by container.
    pub(crate) container_resources: Option<BTreeMap<String, ResourceRequirements>>,
    /// The Pod's own.
    pub(crate) pod_level_resources: Option<ResourceRequirements>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Data {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    entries: BTreeMap<String, Entry>,
}

#[derive(Serialize, Deserialize)]
struct Outer {
    data: String,
    checksum: u64,
}

/// The sum of a text, as upstream takes it: of the text that a library of Go's shows.
fn checksum(data: &str) -> u64 {
    Fnv::of(&format!("(string){data}"))
}

fn encode(entries: &BTreeMap<String, Entry>) -> Result<Vec<u8>, RecordError> {
    let data = serde_json::to_string(&Data { entries: entries.clone() })?;
    let checksum = checksum(&data);
    Ok(serde_json::to_vec(&Outer { data, checksum })?)
}

fn decode(bytes: &[u8]) -> Result<BTreeMap<String, Entry>, RecordError> {
    let outer: Outer = serde_json::from_slice(bytes)?;
    if outer.checksum != checksum(&outer.data) {
        return Err(RecordError::Corrupt);
    }
    Ok(serde_json::from_str::<Data>(&outer.data)?.entries)
}

/// The resources that Pods were given, by their uids, as a kubelet that starts anew finds it.
pub(crate) struct Record {
    file: PathBuf,
    entries: Mutex<BTreeMap<String, Entry>>,
}

impl Record {
    /// Reads the file below a directory.
    ///
    /// DIFFERENCE: upstream ends where the file is of no use. Here the statuses of Pods tell then what they were given.
    pub(crate) fn load(dir: &std::path::Path) -> Self {
        let file = dir.join(FILE);
        let read = checkpoint::read(&file).map_err(RecordError::from);
        let found = read.and_then(|bytes| bytes.as_deref().map(decode).transpose());
        let entries = found.unwrap_or_else(|error| {
            tracing::warn!(file = %file.display(), %error, "what Pods were given is not known from the file");
            None
        });
        Self { file, entries: Mutex::new(entries.unwrap_or_default()) }
    }

    /// The resources that a Pod was given.
    pub(crate) fn get(&self, uid: &str) -> Option<Entry> {
        self.entries.lock().get(uid).cloned()
    }

    /// Notes what a Pod was given.
    ///
    /// # Errors
    /// It cannot be written; then nothing is noted.
    pub(crate) fn put(&self, uid: &str, entry: Entry) -> Result<(), RecordError> {
        let mut entries = self.entries.lock();
        if entries.get(uid) == Some(&entry) {
            return Ok(());
        }
        let mut new = entries.clone();
        new.insert(uid.to_owned(), entry);
        self.write(&new)?;
        *entries = new;
        Ok(())
    }

    /// Forgets the Pods that are not to be kept.
    ///
    /// # Errors
    /// It cannot be written; then none is forgotten.
    pub(crate) fn keep(&self, keeps: impl Fn(&str) -> bool) -> Result<(), RecordError> {
        let mut entries = self.entries.lock();
        if entries.keys().all(|uid| keeps(uid)) {
            return Ok(());
        }
        let mut new = entries.clone();
        new.retain(|uid, _| keeps(uid));
        self.write(&new)?;
        *entries = new;
        Ok(())
    }

    fn write(&self, entries: &BTreeMap<String, Entry>) -> Result<(), RecordError> {
        let bytes = encode(entries)?;
        // All Pods that start wait for it in turn. Where the machine ends so do its containers, and the statuses of Pods tell
        // what they were given.
        Ok(in_place(|| checkpoint::write_soon(&self.file, &bytes))?)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The file of upstream's `Test_stateCheckpoint_formatUpgraded`.
    #[test]
    fn a_file_of_upstreams_is_read() {
        let text = r#"{"data":"{\"entries\":{\"pod1\":{\"ContainerResources\":{\"container1\":{\"requests\":{\"cpu\":\"1Ki\",\"memory\":\"1Ki\"}}}}}}","checksum":1178570812}"#;
        let found = decode(text.as_bytes()).unwrap();
        let expected = json!({"pod1": {"ContainerResources": {"container1": {"requests": {"cpu": "1Ki", "memory": "1Ki"}}},
            "PodLevelResources": null}});
        assert_eq!(serde_json::to_value(&found).unwrap(), expected);
        assert!(matches!(decode(text.replace("812", "813").as_bytes()), Err(RecordError::Corrupt)));
        assert!(matches!(decode(b"{"), Err(RecordError::Json(_))));
        assert_eq!(decode(&encode(&BTreeMap::new()).unwrap()).unwrap(), BTreeMap::new());
    }

    #[test]
    fn what_was_given_is_known_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let entry = |cpu: &str| -> Entry {
            serde_json::from_value(json!({"ContainerResources": {"c": {"requests": {"cpu": cpu}}},
                "PodLevelResources": {"limits": {"memory": "1Gi"}}}))
            .unwrap()
        };
        let first = Record::load(dir.path());
        assert_eq!(first.get("a"), None);
        for (uid, cpu) in [("a", "1"), ("b", "1"), ("a", "2")] {
            first.put(uid, entry(cpu)).unwrap();
        }
        let second = Record::load(dir.path());
        assert_eq!((second.get("a"), second.get("b")), (Some(entry("2")), Some(entry("1"))));
        second.keep(|uid| uid == "b").unwrap();
        let third = Record::load(dir.path());
        assert_eq!((third.get("a"), third.get("b")), (None, Some(entry("1"))));
        // One that was cut is as good as none, and is written anew.
        std::fs::write(dir.path().join(FILE), "{\"data\":").unwrap();
        let fourth = Record::load(dir.path());
        assert_eq!(fourth.get("b"), None);
        fourth.put("c", entry("3")).unwrap();
        assert_eq!(Record::load(dir.path()).get("c"), Some(entry("3")));
    }
}
