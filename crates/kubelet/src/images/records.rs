//! Records of who pulled an image, and so may use it: a Pod does not get an image that is there only
//! because another Pod's credentials brought it.
//!
//! On disk as upstream has it: `image_manager/pulling` has a file for each pull that is under way,
//! `image_manager/pulled` one for each image that this kubelet pulled. An image of which there is
//! neither was there before, and is for all.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::credential::{Credential, PullAccount, PullSecret, Source, hex};
use super::names::{self, Why};
use crate::work::blocking;

/// Beyond so many Secrets of an image, further ones that match are not written down.
const MAX_MATCHED: usize = 100;
/// The largest record that is read.
const MAX_RECORD: u64 = 16 << 20;

/// The images that only Pods with the right credentials may use; upstream's `imagePullCredentialsVerificationPolicy`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Verification {
    /// Of none.
    NeverVerify,
    /// Of those that this kubelet pulled.
    #[default]
    NeverVerifyPreloadedImages,
    /// Of all but these: names without tag and digest, or such with `/*` for all below.
    NeverVerifyAllowlistedImages(Vec<String>),
    /// Of all.
    AlwaysVerify,
}

/// Why a text is no pattern of images; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It begins or ends with a space.
    #[error("leading/trailing spaces are not allowed: {0}")]
    Spaces(String),
    /// It is empty.
    #[error("the supplied pattern is too short: {0}")]
    Short(String),
    /// It has a `*` elsewhere than in a `/*` at its end.
    #[error("not a valid wildcard pattern, only patterns ending with '/*' are allowed: {0}")]
    Wildcard(String),
    /// It is `/*`.
    #[error("at least registry hostname is required")]
    NoRegistry,
    /// It is no image's name.
    #[error("failed to parse as an image name: {0}")]
    NoName(String),
    /// It has a tag or a digest.
    #[error("neither tag nor digest is accepted in an image reference: {0}")]
    Tagged(String),
}

/// Checks one pattern of `preloadedImagesVerificationAllowlist`.
fn check_pattern(pattern: &str) -> Result<(), PatternError> {
    let whole = || pattern.to_owned();
    if pattern != pattern.trim() {
        return Err(PatternError::Spaces(whole()));
    }
    let prefix = pattern.strip_suffix('*').filter(|prefix| prefix.ends_with('/'));
    match prefix.unwrap_or(pattern) {
        "" => Err(PatternError::Short(whole())),
        rest if rest.contains('*') => Err(PatternError::Wildcard(whole())),
        "/" if prefix.is_some() => Err(PatternError::NoRegistry),
        _ if prefix.is_some() => Ok(()),
        name => match names::parse(name) {
            Err(error) => match error.into_why() {
                // Nobody completes such a name here.
                Why::Id(_) => Ok(()),
                Why::UpperCase(_) => Err(PatternError::NoName("repository name must be lowercase".into())),
                why => Err(PatternError::NoName(why.to_string())),
            },
            Ok(parsed) if parsed.repository != name => Err(PatternError::Tagged(whole())),
            Ok(_) => Ok(()),
        },
    }
}

impl Verification {
    /// Verification of all images but those of a list.
    ///
    /// # Errors
    /// The first pattern that is none.
    pub fn of_all_but(patterns: Vec<String>) -> Result<Self, PatternError> {
        patterns.iter().try_for_each(|pattern| check_pattern(pattern))?;
        Ok(Self::NeverVerifyAllowlistedImages(patterns))
    }

    fn required(&self, repository: &str, pulled: bool) -> bool {
        match self {
            Self::NeverVerify => false,
            Self::NeverVerifyPreloadedImages => pulled,
            Self::NeverVerifyAllowlistedImages(list) => !list.iter().any(|pattern| {
                pattern
                    .strip_suffix('*')
                    .filter(|prefix| prefix.ends_with('/'))
                    .map_or_else(|| pattern == repository, |prefix| repository.starts_with(prefix))
            }),
            Self::AlwaysVerify => true,
        }
    }
}

/// The credentials that may use an image under one of its names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ImageCredentials {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) kubernetes_secrets: Vec<PullSecret>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) kubernetes_service_accounts: Vec<PullAccount>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) node_pods_accessible: bool,
}

impl ImageCredentials {
    /// The record of a pull with a credential, or without any.
    pub(super) fn of(credential: Option<&Credential>) -> Self {
        match credential.map(|c| &c.source) {
            None | Some(Source::Node) => Self { node_pods_accessible: true, ..Self::default() },
            Some(Source::Secret(secret)) => {
                Self { kubernetes_secrets: vec![secret.clone()], ..Self::default() }
            }
            Some(Source::Account(account)) => {
                Self { kubernetes_service_accounts: vec![account.clone()], ..Self::default() }
            }
        }
    }

    /// The first of a Pod's credentials that is one of them, and whether it should be noted. Of its accounts the first one
    /// counts.
    pub(super) fn matching<'a>(&self, own: &'a [Credential]) -> Option<(bool, &'a Credential)> {
        let secret = own.iter().find_map(|c| match &c.source {
            Source::Secret(secret) => Some((self.matching_secret(secret)?, c)),
            _ => None,
        });
        secret.or_else(|| {
            let mut accounts = own.iter().filter_map(|c| match &c.source {
                Source::Account(account) => Some((account, c)),
                _ => None,
            });
            let (account, credential) = accounts.next()?;
            self.kubernetes_service_accounts.contains(account).then_some((false, credential))
        })
    }

    /// Whether a Pod's Secret is one of them: none if not, else whether it should be noted, being the same credential in
    /// another Secret, or another one in the same.
    fn matching_secret(&self, own: &PullSecret) -> Option<bool> {
        let secrets = &self.kubernetes_secrets;
        let room = secrets.len() < MAX_MATCHED;
        secrets.iter().find_map(|known| {
            let same_hash = !known.credential_hash.is_empty() && known.credential_hash == own.credential_hash;
            match (same_hash, known.same_secret(own)) {
                (true, same_secret) => Some(!same_secret && room),
                (false, true) if room => Some(true),
                _ => None,
            }
        })
    }

    /// Adds others; whether that changed anything.
    fn merge(&mut self, more: ImageCredentials) -> bool {
        if self.node_pods_accessible {
            return false;
        }
        if more.node_pods_accessible {
            *self = Self { node_pods_accessible: true, ..Self::default() };
            return true;
        }
        let before = self.clone();
        for secret in more.kubernetes_secrets {
            self.kubernetes_secrets.retain(|known| !known.same_secret(&secret));
            self.kubernetes_secrets.push(secret);
        }
        self.kubernetes_secrets.sort();
        let accounts = &mut self.kubernetes_service_accounts;
        accounts.extend(more.kubernetes_service_accounts);
        accounts.sort();
        accounts.dedup();
        *self != before
    }
}

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pulled {
    kind: String,
    api_version: String,
    last_updated_time: Timestamp,
    image_ref: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    credential_mapping: BTreeMap<String, ImageCredentials>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Intent {
    kind: String,
    api_version: String,
    image: String,
}

/// The answer to who may use an image that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Access {
    /// Everybody on this node.
    Everybody,
    /// Pods that have one of these credentials.
    Some(ImageCredentials),
    /// Nobody, before it was pulled once more.
    Nobody,
}

/// The records of one kubelet.
#[derive(Debug, Clone)]
pub(super) struct Records(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pulling: PathBuf,
    pulled: PathBuf,
    /// Pulls under way by image; held while records are read or written.
    intents: Mutex<HashMap<String, usize>>,
}

impl Records {
    /// Below a kubelet's directory. Nothing is read or written yet.
    pub(super) fn new(root_dir: &Path) -> Self {
        let dir = root_dir.join("image_manager");
        let (pulling, pulled) = (dir.join("pulling"), dir.join("pulled"));
        Self(Arc::new(Inner { pulling, pulled, intents: Mutex::default() }))
    }

    async fn with<T: Send + 'static>(&self, work: impl FnOnce(&Inner) -> T + Send + 'static) -> Option<T> {
        let inner = self.0.clone();
        blocking(move || work(&inner)).await.ok()
    }

    /// Notes that an image is about to be pulled.
    pub(super) async fn intend(&self, image: &str) -> io::Result<UnderWay> {
        let (inner, image) = (self.0.clone(), image.to_owned());
        // Made where the work ends, so that it counts also when nobody waits any more.
        let noted = blocking(move || {
            inner.intend(image.clone())?;
            Ok(UnderWay { inner, image: Some(image) })
        });
        noted.await.unwrap_or_else(|error| Err(error.into()))
    }

    /// Adds to who may use an image.
    pub(super) async fn add(&self, image: &str, reference: &str, by: ImageCredentials) {
        let (image, reference) = (image.to_owned(), reference.to_owned());
        self.with(move |inner| {
            if let Err(error) = inner.add(&image, &reference, by) {
                tracing::error!(%error, image, "failed to write an image pulled record");
            }
        })
        .await;
    }

    /// Answers who may use an image.
    pub(super) async fn access(&self, policy: &Verification, image: &str, reference: &str) -> Access {
        let (policy, image, reference) = (policy.clone(), image.to_owned(), reference.to_owned());
        self.with(move |inner| inner.access(&policy, &image, &reference)).await.unwrap_or(Access::Nobody)
    }

    /// Brings the records to the images that there are: their ids, each with its tags and digests.
    pub(super) async fn reconcile(&self, images: Vec<(String, Vec<String>)>) {
        self.with(move |inner| inner.reconcile(&images)).await;
    }
}

/// A pull that has begun. One that is dropped was given up: it counts as failed.
#[derive(Debug)]
pub(super) struct UnderWay {
    inner: Arc<Inner>,
    /// None once its end is noted.
    image: Option<String>,
}

impl UnderWay {
    /// Notes the end of the pull: none if it failed, else the image's reference and by what it was pulled.
    pub(super) async fn ended(mut self, by: Option<(&str, ImageCredentials)>) {
        let by = by.map(|(reference, by)| (reference.to_owned(), by));
        // One that is interrupted is dropped with the work.
        let _ = blocking(move || {
            let Some(image) = self.image.take() else { return };
            if let Some((reference, by)) = by
                && let Err(error) = self.inner.add(&image, &reference, by)
            {
                // The intent stays: so the image is not taken for one that was there before.
                tracing::error!(%error, image, "failed to write image pulled record");
                return;
            }
            self.inner.end(&image);
        })
        .await;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Some(image) = self.image.take() else { return };
        let inner = self.inner.clone();
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || inner.end(&image))),
            Err(_) => inner.end(&image),
        }
    }
}

impl Inner {
    fn intend(&self, image: String) -> io::Result<()> {
        let mut intents = self.intents.lock();
        let intent =
            Intent { kind: "ImagePullIntent".into(), api_version: API_VERSION.into(), image: image.clone() };
        write(&self.pulling, &image, &intent)?;
        *intents.entry(image).or_default() += 1;
        Ok(())
    }

    fn end(&self, image: &str) {
        let mut intents = self.intents.lock();
        match intents.get_mut(image) {
            Some(count) if *count > 1 => *count -= 1,
            _ => match fs::remove_file(self.pulling.join(file_name(image))) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::error!(%error, image, "failed to remove image pull intent");
                }
                _ => {
                    intents.remove(image);
                }
            },
        }
    }

    fn add(&self, image: &str, reference: &str, by: ImageCredentials) -> io::Result<()> {
        let _held = self.intents.lock();
        self.add_held(image, reference, Some(by))
    }

    /// `None`: it is known that the image was pulled, but not by whom.
    fn add_held(&self, image: &str, reference: &str, by: Option<ImageCredentials>) -> io::Result<()> {
        let name = names::parse(image).map_err(io::Error::other)?.repository.to_owned();
        // One that cannot be read is written anew, with less in it.
        let known = self.pulled(reference).unwrap_or_default();
        let mut changed = known.is_none();
        let mut record = known.unwrap_or_else(|| Pulled {
            kind: "ImagePulledRecord".into(),
            api_version: API_VERSION.into(),
            last_updated_time: Timestamp::UNIX_EPOCH,
            image_ref: reference.to_owned(),
            credential_mapping: BTreeMap::new(),
        });
        if let Some(by) = by {
            changed |= record.credential_mapping.entry(name).or_default().merge(by);
        }
        if !changed {
            return Ok(());
        }
        record.last_updated_time = now();
        write(&self.pulled, reference, &record)
    }

    fn pulled(&self, reference: &str) -> io::Result<Option<Pulled>> {
        let record: Option<Pulled> = read(&self.pulled.join(file_name(reference)))?;
        Ok(record.filter(|r| r.image_ref == reference))
    }

    fn access(&self, policy: &Verification, image: &str, reference: &str) -> Access {
        let intents = self.intents.lock();
        let Ok(name) = names::parse(image) else { return Access::Nobody };
        let record = match self.pulled(reference) {
            Ok(record) => record,
            Err(error) => {
                tracing::error!(%error, image, "unable to access records about image pulls");
                return Access::Nobody;
            }
        };
        let pulled =
            record.is_some() || intents.contains_key(image) || self.pulling.join(file_name(image)).exists();
        if !policy.required(name.repository, pulled) {
            return Access::Everybody;
        }
        let credentials = record.and_then(|mut r| r.credential_mapping.remove(name.repository));
        match credentials {
            Some(c) if c.node_pods_accessible => Access::Everybody,
            Some(c) if !c.kubernetes_secrets.is_empty() || !c.kubernetes_service_accounts.is_empty() => {
                Access::Some(c)
            }
            _ => Access::Nobody,
        }
    }

    fn reconcile(&self, images: &[(String, Vec<String>)]) {
        let intents = self.intents.lock();
        let pulling: Vec<Intent> = all(&self.pulling);
        // Those of this kubelet are still under way.
        for intent in pulling.iter().filter(|i| !intents.contains_key(&i.image)) {
            let ends = |name: &String| names::is_named(name, &intent.image);
            for (id, _) in images.iter().filter(|(_, names)| names.iter().any(ends)) {
                if let Err(error) = self.add_held(&intent.image, id, None) {
                    tracing::error!(%error, image = intent.image, "failed to write an image pull record");
                    return;
                }
            }
            let _ = fs::remove_file(self.pulling.join(file_name(&intent.image)));
        }
        let there: HashSet<&str> = images.iter().map(|(id, _)| id.as_str()).collect();
        for record in all::<Pulled>(&self.pulled) {
            if !there.contains(record.image_ref.as_str()) {
                let _ = fs::remove_file(self.pulled.join(file_name(&record.image_ref)));
            }
        }
    }
}

fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

fn file_name(of: &str) -> String {
    format!("sha256-{}", hex(&Sha256::digest(of)))
}

/// Writes a record, whole or not at all.
fn write(dir: &Path, of: &str, record: &impl Serialize) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let (path, new) = (dir.join(file_name(of)), dir.join(format!("{}.tmp", file_name(of))));
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    let written = serde_json::to_writer(&mut file, record).map_err(io::Error::from);
    let renamed = written.and_then(|()| file.sync_all()).and_then(|()| fs::rename(&new, &path));
    renamed.inspect_err(|_| drop(fs::remove_file(&new)))
}

/// Reads a record; none if it is not there.
fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let file = match fs::File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let limited = io::BufReader::new(io::Read::take(file, MAX_RECORD));
    Ok(Some(serde_json::from_reader(limited)?))
}

/// The records of a directory that can be read.
fn all<T: DeserializeOwned>(dir: &Path) -> Vec<T> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let temporary = |name: &str| Path::new(name).extension().is_some_and(|e| e == "tmp");
    let own = |name: &str| name.starts_with("sha256-") && !temporary(name);
    entries
        .filter(|e| e.file_name().to_str().is_some_and(own))
        .filter_map(|e| {
            let record = read(&e.path());
            record.inspect_err(|error| tracing::error!(%error, "an image record cannot be read")).ok()?
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(name: &str, hash: &str) -> PullSecret {
        let uid = format!("uid-{name}");
        PullSecret { namespace: "n".into(), name: name.into(), uid, credential_hash: hash.into() }
    }
    fn by(secrets: &[(&str, &str)]) -> ImageCredentials {
        let kubernetes_secrets = secrets.iter().map(|(n, h)| secret(n, h)).collect();
        ImageCredentials { kubernetes_secrets, ..ImageCredentials::default() }
    }
    fn everybody() -> ImageCredentials {
        ImageCredentials { node_pods_accessible: true, ..ImageCredentials::default() }
    }

    #[tokio::test]
    async fn an_image_is_for_those_it_was_pulled_for() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path());
        let policy = Verification::default();
        let access = async |image: &str, id: &str| records.access(&policy, image, id).await;
        assert_eq!(access("r.test/old:1", "id-old").await, Access::Everybody, "it was there before");

        let pull = records.intend("r.test/a:1").await.unwrap();
        assert_eq!(access("r.test/a:1", "id-a").await, Access::Nobody, "nobody knows yet by whom");
        pull.ended(Some(("id-a", by(&[("s", "h")])))).await;
        assert_eq!(access("r.test/a:1", "id-a").await, Access::Some(by(&[("s", "h")])));
        assert_eq!(access("r.test/a", "id-a").await, Access::Some(by(&[("s", "h")])), "another tag");
        assert_eq!(access("other.test/a:1", "id-a").await, Access::Nobody, "the same under another name");
        assert_eq!(fs::read_dir(&records.0.pulling).unwrap().count(), 0);

        records.add("r.test/a:1", "id-a", by(&[("t", "h2")])).await;
        let both = by(&[("s", "h"), ("t", "h2")]);
        assert_eq!(access("r.test/a:1", "id-a").await, Access::Some(both));
        records.add("r.test/a:1", "id-a", everybody()).await;
        assert_eq!(access("r.test/a:1", "id-a").await, Access::Everybody);
        records.add("r.test/a:1", "id-a", by(&[("t", "h2")])).await;
        assert_eq!(access("r.test/a:1", "id-a").await, Access::Everybody, "it stays so");

        // A failed pull leaves nothing; of two at once the first one's end is not that of both.
        let first = records.intend("r.test/b").await.unwrap();
        let second = records.intend("r.test/b").await.unwrap();
        first.ended(None).await;
        assert_eq!(access("r.test/b", "id-b").await, Access::Nobody);
        second.ended(None).await;
        assert_eq!(access("r.test/b", "id-b").await, Access::Everybody);

        let broken = records.0.pulled.join(file_name("id-a"));
        fs::write(&broken, "{").unwrap();
        assert_eq!(access("r.test/a:1", "id-a").await, Access::Nobody, "unreadable");
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&broken).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn a_restart_finds_what_was_under_way() {
        let dir = tempfile::tempdir().unwrap();
        let before = Records::new(dir.path());
        for image in ["r.test/a:1", "busybox", "r.test/never:1"] {
            // The process dies.
            std::mem::forget(before.intend(image).await.unwrap());
        }
        let pull = before.intend("r.test/gone:1").await.unwrap();
        pull.ended(Some(("id-gone", everybody()))).await;

        let records = Records::new(dir.path());
        let images =
            [("id-a", "r.test/a:1"), ("id-b", "docker.io/library/busybox:latest"), ("id-old", "old:1")];
        let images = images.map(|(id, tag)| (id.to_owned(), vec![tag.to_owned()])).into();
        records.reconcile(images).await;
        let policy = Verification::default();
        for (image, id, want) in [
            ("r.test/a:1", "id-a", Access::Nobody),
            ("busybox", "id-b", Access::Nobody),
            ("old:1", "id-old", Access::Everybody),
            ("r.test/never:1", "id-never", Access::Everybody),
            ("r.test/gone:1", "id-gone", Access::Everybody),
        ] {
            assert_eq!(records.access(&policy, image, id).await, want, "{image}");
        }
        assert_eq!(fs::read_dir(&records.0.pulling).unwrap().count(), 0);
        assert!(records.0.pulled("id-gone").unwrap().is_none());
    }

    #[test]
    fn credentials_match_by_hash_or_secret() {
        let recorded = by(&[("s", "h")]);
        let check =
            |own: PullSecret, want: Option<bool>| assert_eq!(recorded.matching_secret(&own), want, "{own:?}");
        check(secret("s", "h"), Some(false));
        check(secret("copy", "h"), Some(true));
        check(secret("s", "changed"), Some(true));
        check(secret("other", "other"), None);
        let unknown = by(&[("s", "")]);
        assert_eq!(unknown.matching_secret(&secret("other", "")), None, "no hash is no match");
        let many: Vec<(String, String)> =
            (0..MAX_MATCHED).map(|n| (format!("s{n}"), format!("h{n}"))).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|(n, h)| (n.as_str(), h.as_str())).collect();
        let full = by(&many);
        assert_eq!(full.matching_secret(&secret("copy", "h1")), Some(false), "used, but not noted");
        assert_eq!(full.matching_secret(&secret("s1", "changed")), None);
    }

    #[test]
    fn credentials_match_by_accounts() {
        let account =
            |name: &str| PullAccount { namespace: "n".into(), name: name.into(), uid: format!("uid-{name}") };
        let login = || ("u".to_owned(), "p".to_owned());
        let own = |name: &str| Credential::of_login(login(), Source::Account(account(name)));
        let node = Credential::of_login(login(), Source::Node);
        let mut recorded = ImageCredentials::of(Some(&own("b")));
        assert!(recorded.merge(ImageCredentials::of(Some(&own("a")))));
        assert!(!recorded.merge(ImageCredentials::of(Some(&own("b")))));
        assert_eq!(recorded.kubernetes_service_accounts, [account("a"), account("b")]);
        let matches = |own: &[Credential]| recorded.matching(own).is_some();
        assert!(matches(&[node.clone(), own("a")]));
        assert!(!matches(&[own("c"), own("a")]), "the first account is the Pod's");
        assert!(!matches(std::slice::from_ref(&node)) && !matches(&[]));
        let both = [own("a"), Credential::of_login(login(), Source::Secret(secret("s", "h")))];
        assert_eq!(by(&[("s", "h")]).matching(&both), Some((false, &both[1])));
        assert_eq!(ImageCredentials::of(Some(&node)), everybody());
        assert_eq!(ImageCredentials::of(None), everybody());
    }

    #[test]
    fn policies_choose_images() {
        let list = ["r.test/a", "r.test/team/*"].map(str::to_owned).to_vec();
        let listed = Verification::NeverVerifyAllowlistedImages(list);
        for (policy, repository, pulled, want) in [
            (&Verification::NeverVerify, "a", true, false),
            (&Verification::NeverVerifyPreloadedImages, "a", true, true),
            (&Verification::NeverVerifyPreloadedImages, "a", false, false),
            (&Verification::AlwaysVerify, "a", false, true),
            (&listed, "r.test/a", true, false),
            (&listed, "r.test/ab", true, true),
            (&listed, "r.test/team/x/y", true, false),
            (&listed, "r.test/team", false, true),
        ] {
            assert_eq!(policy.required(repository, pulled), want, "{policy:?} {repository}");
        }
    }

    #[test]
    fn records_are_upstreams() {
        let dir = tempfile::tempdir().unwrap();
        let text = r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2024-10-21T12:26:40Z","imageRef":"sha256:1","credentialMapping":{"r.test/a":{"kubernetesSecrets":[{"uid":"u","namespace":"n","name":"s","credentialHash":"h"}]},"r.test/b":{"nodePodsAccessible":true}}}"#;
        fs::write(dir.path().join("f"), text).unwrap();
        let record: Pulled = read(&dir.path().join("f")).unwrap().unwrap();
        assert!(record.credential_mapping["r.test/b"].node_pods_accessible);
        let again = serde_json::to_value(&record).unwrap();
        assert_eq!(again, serde_json::from_str::<serde_json::Value>(text).unwrap());
    }

    /// Credentials in short: `node`, `NAMESPACE/NAME/UID#HASH` of Secrets, `NAMESPACE/NAME/UID` of accounts.
    fn credentials(text: &str) -> ImageCredentials {
        let mut all = ImageCredentials::default();
        for text in text.split_whitespace() {
            let (place, hash) =
                text.split_once('#').map_or((text, None), |(place, hash)| (place, Some(hash)));
            let parts: Vec<String> = place.split('/').map(str::to_owned).collect();
            match (&parts[..], hash) {
                ([node], None) if node == "node" => all.node_pods_accessible = true,
                ([namespace, name, uid], Some(hash)) => all.kubernetes_secrets.push(PullSecret {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    uid: uid.clone(),
                    credential_hash: hash.to_owned(),
                }),
                ([namespace, name, uid], None) => all.kubernetes_service_accounts.push(PullAccount {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    uid: uid.clone(),
                }),
                _ => panic!("{text}"),
            }
        }
        all
    }

    /// 19 of upstream's 20 cases of `Test_pulledRecordMergeNewCreds`, whose last has no credentials at all, and the 7 of
    /// `Test_mergePullServiceAccounts`. DIFFERENCE: the list of a new record is sorted, too.
    #[test]
    fn credentials_add_up() {
        let check = |known: &str, more: &str, expected: &str| {
            let mut got = credentials(known);
            let changed = got.merge(credentials(more));
            assert_eq!(got, credentials(expected), "[{known}] [{more}]");
            assert_eq!(changed, known != expected, "[{known}] [{more}]");
        };
        let one = "namespace1/name1/uid1#hash1";
        let two = "namespace1/name1/uid1#hash1 namespace2/name2/uid2#hash2";
        let (account, mixed) = ("default/sa1/sa-uid1", "kube-system/secret1/u#h kube-system/sa2/sa-uid2");
        check("", "n/new/u#h", "n/new/u#h");
        check(one, "newnamespace/new/u#h", &format!("{one} newnamespace/new/u#h"));
        check(
            two,
            "namespace1/newname/u#h",
            &format!("{one} namespace1/newname/u#h namespace2/name2/uid2#hash2"),
        );
        check(two, "node", "node");
        check(two, "namespace2/name2/uid2#newhash", &format!("{one} namespace2/name2/uid2#newhash"));
        check(two, "namespace2/name3/uid3#hash2", &format!("{two} namespace2/name3/uid3#hash2"));
        check("", "default/new-sa/u", "default/new-sa/u");
        check(account, "kube-system/new-sa/u", &format!("{account} kube-system/new-sa/u"));
        check(account, account, account);
        check(two, "default/new-sa/u", &format!("{two} default/new-sa/u"));
        check(account, "default/new/u#h", &format!("default/new/u#h {account}"));
        check(mixed, "node", "node");
        check("node", "any/any/u#h", "node");
        check("node", "any/any/u", "node");
        check(one, "", one);
        check("", "z/z/z#z a/a/a#a m/m/m#m", "a/a/a#a m/m/m#m z/z/z#z");
        check("", "z/z/z a/a/a m/m/m", "a/a/a m/m/m z/z/z");
        check(account, "default/sa1/different-uid", &format!("default/sa1/different-uid {account}"));

        let (first, second) = ("default/serviceaccount1/sa1", "kube-system/serviceaccount2/sa2");
        check("", "", "");
        check("", first, first);
        check(first, first, first);
        check(first, second, &format!("{first} {second}"));
        check(
            "kube-system/z-sa/sa2",
            "default/a-sa/sa1 kube-system/a-sa/sa3",
            "default/a-sa/sa1 kube-system/a-sa/sa3 kube-system/z-sa/sa2",
        );
        let third = "default/serviceaccount3/sa3";
        check(
            &format!("{first} {second}"),
            &format!("{first} {third}"),
            &format!("{first} {third} {second}"),
        );
        check(first, "default/serviceaccount1/sa2", &format!("{first} default/serviceaccount1/sa2"));
    }

    /// 24 of upstream's 25 cases of `TestFileBasedImagePullManager_MustAttemptImagePull`; the last asks about an image that is
    /// not there. The columns are the policy, the credentials of the record or of an intent, those of the Pod, the image's
    /// name, whether the image must be pulled, and whether the Pod's credentials were looked at.
    #[tokio::test]
    async fn an_image_must_be_pulled_by_those_who_are_not_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path());
        let (image, other) = ("docker.io/testing/test:latest", "docker.io/testing/different:latest");
        let own = credentials("default/pull-secret/u#hash");
        records.add(image, "secret", own).await;
        records.add(image, "broken", credentials("default/pull-secret/u#")).await;
        records.add(image, "account", credentials("default/test-sa/sa")).await;
        records.add(image, "node", credentials("node")).await;
        records
            .with(|inner| inner.add_held("docker.io/testing/test:latest", "empty", None))
            .await
            .unwrap()
            .unwrap();
        let under_way = records.intend("docker.io/testing/intent:latest").await.unwrap();

        let check =
            async |policy: Verification, image: &str, id: &str, of_pod: &str, expected: (bool, bool)| {
                let login = || ("u".to_owned(), "p".to_owned());
                let ImageCredentials { kubernetes_secrets, kubernetes_service_accounts, .. } =
                    credentials(of_pod);
                let secrets = kubernetes_secrets.into_iter().map(Source::Secret);
                let all = secrets.chain(kubernetes_service_accounts.into_iter().map(Source::Account));
                let own: Vec<_> = all.map(|source| Credential::of_login(login(), source)).collect();
                let got = match records.access(&policy, image, id).await {
                    Access::Everybody => (false, false),
                    Access::Nobody => (true, false),
                    Access::Some(recorded) => (recorded.matching(&own).is_none(), true),
                };
                assert_eq!(got, expected, "{policy:?} {image} {id} [{of_pod}]");
            };
        let preloaded = || Verification::NeverVerifyPreloadedImages;
        let exact = "default/pull-secret/u#hash";
        check(preloaded(), image, "secret", exact, (false, true)).await;
        check(preloaded(), image, "secret", "", (true, true)).await;
        check(preloaded(), image, "secret", "default/pull-secret/u#different", (false, true)).await;
        check(preloaded(), image, "secret", "default/pull-secret/different#different", (true, true)).await;
        check(preloaded(), image, "secret", "differentns/pull-secret/u#different", (true, true)).await;
        check(preloaded(), image, "secret", "differentns/pull-secret/u#hash", (false, true)).await;
        check(preloaded(), other, "secret", exact, (true, false)).await;
        check(preloaded(), image, "empty", "", (true, false)).await;
        check(preloaded(), image, "unknown", "", (false, false)).await;
        check(Verification::AlwaysVerify, image, "unknown", "", (true, false)).await;
        let intent = "docker.io/testing/intent:latest";
        let account = "default/test-sa/sa";
        for of_pod in [exact, account] {
            check(preloaded(), intent, "unknown", of_pod, (true, false)).await;
            check(Verification::NeverVerify, intent, "unknown", of_pod, (false, false)).await;
        }
        for of_pod in ["", exact, account] {
            check(preloaded(), image, "node", of_pod, (false, false)).await;
        }
        check(preloaded(), image, "broken", "differentns/pull-secret/u#", (true, true)).await;
        check(preloaded(), image, "broken", "default/pull-secret/u#", (false, true)).await;
        check(preloaded(), image, "account", account, (false, true)).await;
        check(preloaded(), image, "secret", "", (true, true)).await;
        check(preloaded(), image, "account", "default/test-sa/different", (true, true)).await;
        check(preloaded(), image, "account", "different-ns/test-sa/sa", (true, true)).await;
        check(preloaded(), other, "account", account, (true, false)).await;
        under_way.ended(None).await;
    }

    /// Upstream's 10 patterns of `TestNewNeverVerifyAllowListedPullPolicy` that are none, and 3 more.
    #[test]
    fn patterns_that_are_none() {
        let check = |pattern: &str, expected: &str| {
            let error = Verification::of_all_but(vec!["a.io/*".to_owned(), pattern.to_owned()]).unwrap_err();
            assert_eq!(error.to_string(), expected.replace("{}", pattern), "{pattern}");
        };
        let wildcard = "not a valid wildcard pattern, only patterns ending with '/*' are allowed: {}";
        for pattern in
            ["image.repo/pokus*/imagename", "image.repo/pokus*", "image.repo/*/imagename", "*", "a*/*"]
        {
            check(pattern, wildcard);
        }
        check("/*", "at least registry hostname is required");
        check("image.repo/", "failed to parse as an image name: invalid reference format");
        check("image.repo/Up", "failed to parse as an image name: repository name must be lowercase");
        check("", "the supplied pattern is too short: ");
        let tagged = "neither tag nor digest is accepted in an image reference: {}";
        check("test.io/test/image1:tagged", tagged);
        let digest = "sha256:38a8906435c4dd5f4258899d46621bfd8eea3ad6ff494ee3c2f17ef0321625bd";
        check(&format!("test.io/test/image1@{digest}"), tagged);
        for pattern in ["test.io/test/image1 ", " test.io/*"] {
            check(pattern, "leading/trailing spaces are not allowed: {}");
        }
    }

    /// The other 12 of upstream's 22 cases of `TestNewNeverVerifyAllowListedPullPolicy`, and the 2 of
    /// `TestNeverVerifyPreloadedPullPolicy`.
    #[test]
    fn images_on_the_list_are_for_all() {
        let check = |image: &str, list: &[&str], expected: bool| {
            let list = list.iter().map(|pattern| (*pattern).to_owned()).collect();
            let policy = Verification::of_all_but(list).unwrap();
            let repository = names::parse(image).unwrap().repository;
            for pulled in [false, true] {
                assert_eq!(policy.required(repository, pulled), expected, "{image}");
            }
        };
        let basic = "test.io/test/test-image:tag";
        check(basic, &["test.io/test/image1", "test.io/test/image2", "test.io/test/image3"], true);
        check(basic, &["test.io/test/image1", "test.io/test/test-image", "test.io/test/image3"], false);
        check(basic, &["test.io/test/image1", "test.io/test/image2", "different.repo/test/*"], true);
        check(basic, &["test.io/test/image1", "test.io/test/image2", "test.io/test/*"], false);
        check(basic, &["test.io/test/image1", "test.io/test/image2", "test.io/*"], false);
        check("ubuntu", &["docker.io/library/ubuntu"], true);
        check("ubuntu", &["docker.io/library/*"], true);
        let digest = "@sha256:38a8906435c4dd5f4258899d46621bfd8eea3ad6ff494ee3c2f17ef0321625bd";
        for image in ["ubuntu", "ubuntu:tagged", &format!("ubuntu{digest}")] {
            check(image, &["ubuntu"], false);
        }
        for pulled in [false, true] {
            assert_eq!(Verification::NeverVerifyPreloadedImages.required("test-image", pulled), pulled);
        }
    }
}
