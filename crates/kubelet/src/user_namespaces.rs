//! The ranges of ids that Pods with users of their own have (`hostUsers: false`): upstream's `pkg/kubelet/userns`.
//!
//! Every Pod has a range of the same length, and no two have the same. The file `userns` in a Pod's directory, in upstream's
//! form, says which; the files are all there is to know, so a range is free again as soon as its file is gone.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cri::runtime as pb;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::checkpoint;
use crate::config::Config;
use crate::work::{Interrupted, blocking};

/// The name of a Pod's file; upstream's.
const FILE: &str = "userns";
/// The user whose subordinate ids Pods have, if there is one.
const USER: &str = "kubelet";
/// A program that tells them.
const PROGRAM: &str = "getsubids";

/// Why Pods cannot have users of their own; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub enum UserNamespaceError {
    /// The kubelet's ids cannot be known.
    #[error("kubelet mappings: {0}")]
    Ids(String),
    /// The ids do not begin with a range.
    #[error("kubelet user assigned ID {0} is not a multiple of {1}")]
    Begin(u32, u32),
    /// The ids begin too early.
    #[error("kubelet user assigned ID {0} must be greater or equal to {1}")]
    Early(u32, u32),
    /// The ids do not end with a range.
    #[error("kubelet user assigned IDs length {0} is not a multiple of {1}")]
    Length(u32, u32),
    /// There are more Pods than ranges.
    #[error("kubelet user assigned IDs are not enough to support {0} pods")]
    Few(u32),
    /// A Pod's file is of no use.
    #[error("record pod mappings for existing pod {pod:?}: {source}")]
    Existing {
        /// The Pod's uid.
        pod: String,
        /// Why.
        #[source]
        source: MappingError,
    },
    /// The directory of Pods cannot be read.
    #[error("read pods from disk: {0}")]
    Pods(#[source] io::Error),
}

/// Why a Pod has no range; upstream's texts.
#[derive(Debug, thiserror::Error)]
pub enum MappingError {
    /// The file is not one of the kubelet's.
    #[error("invalid user namespace mappings file: {0}")]
    File(#[from] serde_json::Error),
    /// It has several ranges.
    #[error("invalid user namespace configuration: no more than one mapping allowed.")]
    Several,
    /// Groups differ from users.
    #[error("invalid user namespace configuration: GID and UID mapping should be identical")]
    Groups,
    /// The first id is not mapped.
    #[error("invalid user namespace configuration: UID 0 must be mapped")]
    Root,
    /// The range has another length.
    #[error("wrong user namespace length {0}")]
    Length(u32),
    /// The range does not begin where one does.
    #[error("wrong user namespace offset specified {0}")]
    Begin(u32),
    /// The range is none of the kubelet's.
    #[error("id {0} is out of range")]
    Outside(u32),
    /// Another Pod has it.
    #[error("range picked for pod {0:?} already taken")]
    Taken(String),
    /// All are taken.
    #[error("could not find an empty slot to allocate a user namespace")]
    Full,
    /// A file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Interrupted> for MappingError {
    fn from(error: Interrupted) -> Self {
        Self::Io(error.into())
    }
}

/// A Pod's file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    #[serde(default)]
    uid_mappings: Vec<Mapping>,
    #[serde(default)]
    gid_mappings: Vec<Mapping>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

/// The ranges of one kubelet. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct UserNamespaces {
    pods: PathBuf,
    /// How many ids a range has.
    length: u32,
    /// The number of the first range, counted from the id 0, and how many there are.
    first: u32,
    count: u32,
    /// One Pod gets its range at a time.
    turn: Arc<Mutex<()>>,
}

impl UserNamespaces {
    /// The ranges that this machine's configuration gives the kubelet.
    ///
    /// # Errors
    /// They are not enough, or a Pod's file is of no use.
    pub(crate) fn new(config: &Config) -> Result<Self, UserNamespaceError> {
        let length = config.ids_per_pod;
        let ids = ids(length).map_err(UserNamespaceError::Ids)?;
        Self::of(&config.pods_dir(), length, ids, config.max_pods)
    }

    /// The ranges of `length` ids in those from `begin` on, `ids` of them.
    fn of(
        pods: &Path,
        length: u32,
        (begin, ids): (u32, u32),
        max_pods: u32,
    ) -> Result<Self, UserNamespaceError> {
        if !begin.is_multiple_of(length) {
            return Err(UserNamespaceError::Begin(begin, length));
        }
        if begin < length {
            return Err(UserNamespaceError::Early(begin, length));
        }
        if !ids.is_multiple_of(length) {
            return Err(UserNamespaceError::Length(ids, length));
        }
        if ids / length < max_pods {
            return Err(UserNamespaceError::Few(max_pods));
        }
        let (pods, turn) = (pods.to_owned(), Arc::default());
        let own = Self { pods, length, first: begin / length, count: ids / length, turn };
        own.taken()?;
        Ok(own)
    }

    /// The ranges that Pods have, by their numbers from the first one on.
    fn taken(&self) -> Result<BTreeSet<u32>, UserNamespaceError> {
        let entries = match std::fs::read_dir(&self.pods) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
            other => other.map_err(UserNamespaceError::Pods)?,
        };
        let mut taken = BTreeSet::new();
        for entry in entries {
            let pod = entry.map_err(UserNamespaceError::Pods)?.file_name().to_string_lossy().into_owned();
            let wrong = |source| UserNamespaceError::Existing { pod: pod.clone(), source };
            if let Some(mapping) = self.read(&pod).map_err(wrong)?
                && !taken.insert(self.number(mapping.host_id))
            {
                return Err(wrong(MappingError::Taken(pod.clone())));
            }
        }
        Ok(taken)
    }

    fn number(&self, id: u32) -> u32 {
        (id / self.length).saturating_sub(self.first)
    }

    fn file(&self, uid: &str) -> PathBuf {
        self.pods.join(uid).join(FILE)
    }

    /// The range of a Pod; none if it has none.
    fn read(&self, uid: &str) -> Result<Option<Mapping>, MappingError> {
        let bytes = match checkpoint::read(&self.file(uid)) {
            // A file beside the directories has none.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => None,
            other => other?,
        };
        let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else { return Ok(None) };
        let record: Record = serde_json::from_slice(&bytes)?;
        let [mapping] = *record.uid_mappings else { return Err(MappingError::Several) };
        if record.gid_mappings != record.uid_mappings {
            return Err(MappingError::Groups);
        }
        let Mapping { host_id, container_id, length } = mapping;
        if container_id != 0 {
            return Err(MappingError::Root);
        }
        if length != self.length {
            return Err(MappingError::Length(length));
        }
        if !host_id.is_multiple_of(length) {
            return Err(MappingError::Begin(host_id));
        }
        let end = self.first.saturating_add(self.count);
        if (self.first..end).contains(&(host_id / length)) {
            Ok(Some(mapping))
        } else {
            Err(MappingError::Outside(host_id))
        }
    }

    /// The range of a Pod, which gets one if it has none yet; its directory is there.
    fn get(&self, uid: &str) -> Result<Mapping, MappingError> {
        let _turn = self.turn.lock();
        if let Some(mapping) = self.read(uid)? {
            return Ok(mapping);
        }
        let taken = match self.taken() {
            Ok(taken) => taken,
            Err(UserNamespaceError::Existing { source, .. }) => return Err(source),
            Err(error) => return Err(MappingError::Io(io::Error::other(error))),
        };
        // As upstream, any of them: a range that was used shortly before is unlikely to come again soon.
        let begin = fastrand::u32(..self.count);
        let mut all = (begin..self.count).chain(0..begin);
        let number = all.find(|number| !taken.contains(number)).ok_or(MappingError::Full)?;
        let host_id = self.first.saturating_add(number).saturating_mul(self.length);
        let mapping = Mapping { host_id, container_id: 0, length: self.length };
        let record = Record { uid_mappings: vec![mapping], gid_mappings: vec![mapping] };
        let file = self.file(uid);
        checkpoint::write(&file, &serde_json::to_vec(&record)?)?;
        // The Pod's processes must not outlive the record of their ids.
        if let Some(dir) = file.parent() {
            std::fs::File::open(dir)?.sync_all()?;
        }
        Ok(mapping)
    }

    /// The users of a Pod as the runtime is told; it gets a range if it has none yet.
    ///
    /// # Errors
    /// There is no range, or its file is of no use.
    pub(crate) async fn of_pod(&self, uid: &str) -> Result<pb::UserNamespace, MappingError> {
        let (ranges, uid) = (self.clone(), uid.to_owned());
        let Mapping { host_id, container_id, length } = blocking(move || ranges.get(&uid)).await??;
        let mapping = pb::IdMapping { host_id, container_id, length };
        Ok(pb::UserNamespace {
            mode: pb::NamespaceMode::Pod.into(),
            uids: vec![mapping],
            gids: vec![mapping],
        })
    }

    /// Frees the range of a Pod that has ended.
    ///
    /// # Errors
    /// Its file stays.
    pub(crate) async fn release(&self, uid: &str) -> io::Result<()> {
        let file = self.file(uid);
        match blocking(move || std::fs::remove_file(file)).await? {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

/// The users of a Pod that has the machine's, as the runtime is told.
pub(crate) fn of_machine() -> pb::UserNamespace {
    pb::UserNamespace { mode: pb::NamespaceMode::Node.into(), ..pb::UserNamespace::default() }
}

/// The first id that Pods may have, and how many: the subordinate ids of the user `kubelet`, or all but those of the first
/// range.
///
/// DIFFERENCE: the user is looked for in `/etc/passwd` alone, where upstream asks the name service.
fn ids(length: u32) -> Result<(u32, u32), String> {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let has_user = users.lines().any(|line| line.split(':').next() == Some(USER));
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let program = std::env::split_paths(&paths).map(|dir| dir.join(PROGRAM)).find(|path| path.is_file());
    let Some(program) = program.filter(|_| has_user) else { return Ok((length, length.wrapping_neg())) };
    let ask = |arguments: &[&str], of: &str| {
        let output = std::process::Command::new(&program).args(arguments).output();
        let output = output.ok().filter(|output| output.status.success());
        let output = output.ok_or_else(|| format!("error retrieving additional {of} for user {USER:?}"))?;
        Ok::<_, String>(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (uids, gids) = (ask(&[USER], "uids")?, ask(&["-g", USER], "gids")?);
    if uids != gids {
        return Err(format!("mismatched subuids and subgids for user {USER:?}"));
    }
    subordinate(&uids)
}

/// The ids in what `getsubids` prints: `0: kubelet 65536 7208960`.
fn subordinate(text: &str) -> Result<(u32, u32), String> {
    let line = text.trim_matches('\n');
    if line.contains('\n') {
        return Err(format!("error parsing line {text:?}: it must contain only one line"));
    }
    let [_, _, first, count] = *line.split_whitespace().collect::<Vec<_>>() else {
        return Err(format!("invalid line {text:?}"));
    };
    let number =
        |word: &str| word.parse::<u32>().map_err(|error| format!("error parsing line {text:?}: {error}"));
    Ok((number(first)?, number(count)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u32 = 65536;

    fn ranges(dir: &Path, count: u32) -> UserNamespaces {
        UserNamespaces::of(dir, UNIT, (UNIT, UNIT * count), 1).unwrap()
    }

    fn pod(dir: &Path, uid: &str, record: &str) {
        std::fs::create_dir_all(dir.join(uid)).unwrap();
        if !record.is_empty() {
            std::fs::write(dir.join(uid).join(FILE), record).unwrap();
        }
    }

    /// Upstream's cases of `TestMakeUserNsManager` and its kin.
    #[test]
    fn ids_are_enough_and_whole_ranges() {
        let dir = tempfile::tempdir().unwrap();
        let check = |length: u32, ids: (u32, u32), pods: u32, expected: &str| {
            let made = UserNamespaces::of(dir.path(), length, ids, pods);
            assert_eq!(made.err().map(|e| e.to_string()).unwrap_or_default(), expected, "{ids:?}");
        };
        check(UNIT, (UNIT, UNIT * 110), 110, "");
        check(UNIT, (UNIT, UNIT.wrapping_neg()), 110, "");
        check(UNIT * 2, (UNIT * 2, (UNIT * 2).wrapping_neg()), 110, "");
        check(UNIT, (UNIT + 1, UNIT), 1, "kubelet user assigned ID 65537 is not a multiple of 65536");
        check(UNIT, (0, UNIT), 1, "kubelet user assigned ID 0 must be greater or equal to 65536");
        check(UNIT, (UNIT, UNIT + 1), 1, "kubelet user assigned IDs length 65537 is not a multiple of 65536");
        check(UNIT, (UNIT, UNIT * 9), 10, "kubelet user assigned IDs are not enough to support 10 pods");
    }

    #[test]
    fn no_two_pods_have_the_same_ids() {
        let dir = tempfile::tempdir().unwrap();
        let all = ranges(dir.path(), 3);
        let mut seen = BTreeSet::new();
        for uid in ["a", "b", "c"] {
            pod(dir.path(), uid, "");
            let mapping = all.get(uid).unwrap();
            assert_eq!((mapping.container_id, mapping.length, mapping.host_id % UNIT), (0, UNIT, 0));
            assert!((UNIT..UNIT * 4).contains(&mapping.host_id) && seen.insert(mapping.host_id), "{uid}");
            // The same again, also for the next process.
            assert_eq!(all.get(uid).unwrap(), mapping);
            assert_eq!(ranges(dir.path(), 3).get(uid).unwrap(), mapping);
        }
        pod(dir.path(), "d", "");
        let full = "could not find an empty slot to allocate a user namespace";
        assert_eq!(all.get("d").unwrap_err().to_string(), full);
        let freed = all.get("b").unwrap();
        std::fs::remove_dir_all(dir.path().join("b")).unwrap();
        assert_eq!(all.get("d").unwrap(), freed);
    }

    /// Upstream's cases of `TestUserNsManagerParseUserNsFile`.
    #[test]
    fn files_are_upstreams() {
        let check = |record: &str, expected: &str| {
            let dir = tempfile::tempdir().unwrap();
            pod(dir.path(), "p", record);
            let made = UserNamespaces::of(dir.path(), UNIT, (UNIT, UNIT * 3), 1);
            let got = made.err().map(|e| e.to_string()).unwrap_or_default();
            let head = if expected.is_empty() { "" } else { "record pod mappings for existing pod \"p\": " };
            assert!(got.starts_with(&format!("{head}{expected}")), "{record}: {got}");
            assert_eq!(got.is_empty(), expected.is_empty(), "{record}: {got}");
        };
        let map = |host: u32, container: u32, length: u32| {
            format!("{{\"hostId\":{host},\"containerId\":{container},\"length\":{length}}}")
        };
        let file = |uids: &str, gids: &str| format!("{{\"uidMappings\":[{uids}],\"gidMappings\":[{gids}]}}");
        let same = |map: &str| file(map, map);
        check("", "");
        check(&same(&map(131_072, 0, UNIT)), "");
        check(&same(&map(0, 0, UNIT)), "id 0 is out of range");
        check(&same(&map(UNIT * 4, 0, UNIT)), "id 262144 is out of range");
        check(&same(&map(UNIT + 1, 0, UNIT)), "wrong user namespace offset specified 65537");
        check(&same(&map(UNIT, 0, 1)), "wrong user namespace length 1");
        check(&same(&map(UNIT, 1, UNIT)), "invalid user namespace configuration: UID 0 must be mapped");
        let several = "invalid user namespace configuration: no more than one mapping allowed.";
        check(&same(&format!("{},{}", map(UNIT, 0, UNIT), map(131_072, 0, UNIT))), several);
        check("{}", several);
        let groups = "invalid user namespace configuration: GID and UID mapping should be identical";
        check(&file(&map(UNIT, 0, UNIT), &map(131_072, 0, UNIT)), groups);
        check("{", "invalid user namespace mappings file: ");
        let dir = tempfile::tempdir().unwrap();
        let own = ranges(dir.path(), 1);
        pod(dir.path(), "p", "");
        own.get("p").unwrap();
        let written = std::fs::read_to_string(dir.path().join("p").join(FILE)).unwrap();
        assert_eq!(written, same(&map(UNIT, 0, UNIT)));
        pod(dir.path(), "q", &written);
        let taken = UserNamespaces::of(dir.path(), UNIT, (UNIT, UNIT), 1).unwrap_err().to_string();
        assert!(taken.contains("already taken"), "{taken}");
    }

    #[tokio::test]
    async fn a_pod_that_has_ended_has_no_ids() {
        let dir = tempfile::tempdir().unwrap();
        let own = ranges(dir.path(), 1);
        pod(dir.path(), "p", "");
        let users = own.of_pod("p").await.unwrap();
        assert_eq!((users.mode(), users.uids[0].host_id), (pb::NamespaceMode::Pod, UNIT));
        assert_eq!(users.uids, users.gids);
        own.release("p").await.unwrap();
        own.release("p").await.unwrap();
        pod(dir.path(), "q", "");
        assert_eq!(own.of_pod("q").await.unwrap(), users);
        assert!(own.of_pod("missing").await.is_err());
    }

    /// Upstream's cases of `TestParseGetSubIdsOutput`.
    #[test]
    fn subordinate_ids() {
        let check =
            |text: &str, expected: Option<(u32, u32)>| assert_eq!(subordinate(text).ok(), expected, "{text}");
        check("0: kubelet 65536 2147483648", Some((65536, 2_147_483_648)));
        check("0: kubelet 65536 2147483648\n", Some((65536, 2_147_483_648)));
        check("0: kubelet 2147483648", None);
        check("0: kubelet 65536 2147483648 0", None);
        check("0: kubelet 65536 2147483648\n1: kubelet 1 2\n", None);
        check("0: kubelet 65536 4294967296", None);
        check("0: kubelet -1 1", None);
        check("", None);
    }
}
