//! The KMS provider against a plugin of the tests' own, over a real socket, and against upstream's values.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::FeatureGates;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use component::{Clock, Shutdown};
use kms::rpc::key_management_service_server::{KeyManagementService, KeyManagementServiceServer};
use kms::rpc::v1beta1 as v1;
use kms::rpc::v1beta1::key_management_service_server as v1_server;
use kms::rpc::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, EncryptedObject, StatusRequest,
    StatusResponse,
};
use kms::{Plugin, PluginV1};
use parking_lot::Mutex;
use prost::Message;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use super::encryption::Encryption;
use super::kms::Kms;
use super::kms_v1::KmsV1;
use super::probe::{self, Probed};

const AT: &[u8] = b"/registry/secrets/a/b";

/// How a plugin behaves.
#[derive(Clone)]
struct Behaviour {
    healthz: &'static str,
    version: &'static str,
    key_id: String,
    /// Encrypts under a key of another name than it says.
    encrypts_under: Option<String>,
    annotation: &'static str,
    refuses: bool,
    decrypted: usize,
}

/// A plugin that encrypts by changing every byte, and decrypts under any key's name but `forgotten`.
#[derive(Clone)]
struct Fake(Arc<Mutex<Behaviour>>);

impl Fake {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Behaviour {
            healthz: "ok",
            version: "v2",
            key_id: "key-1".into(),
            encrypts_under: None,
            annotation: "local-kek.kms.kubernetes.io",
            refuses: false,
            decrypted: 0,
        })))
    }
    fn set(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.0.lock());
    }
    fn listen(&self, at: &Path, stop: &Shutdown) {
        let listener = UnixListener::bind(at).unwrap();
        let serving = tonic::transport::Server::builder()
            .add_service(KeyManagementServiceServer::new(self.clone()))
            .add_service(v1_server::KeyManagementServiceServer::new(self.clone()))
            .serve_with_incoming(UnixListenerStream::new(listener));
        let signal = stop.clone();
        stop.spawn(async move {
            signal.run(serving).await;
        });
    }
}

fn turned(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|b| b ^ 0x5a).collect()
}

#[tonic::async_trait]
impl KeyManagementService for Fake {
    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let now = self.0.lock().clone();
        Ok(Response::new(StatusResponse {
            version: now.version.into(),
            healthz: now.healthz.into(),
            key_id: now.key_id,
        }))
    }
    async fn decrypt(&self, r: Request<DecryptRequest>) -> Result<Response<DecryptResponse>, Status> {
        let mut now = self.0.lock();
        now.decrypted += 1;
        if now.refuses || r.get_ref().key_id == "forgotten" {
            return Err(Status::invalid_argument("no such key"));
        }
        Ok(Response::new(DecryptResponse { plaintext: turned(&r.get_ref().ciphertext) }))
    }
    async fn encrypt(&self, r: Request<EncryptRequest>) -> Result<Response<EncryptResponse>, Status> {
        let now = self.0.lock().clone();
        Ok(Response::new(EncryptResponse {
            ciphertext: turned(&r.get_ref().plaintext),
            key_id: now.encrypts_under.unwrap_or(now.key_id),
            annotations: BTreeMap::from([(now.annotation.to_owned(), b"note".to_vec())]),
        }))
    }
}

#[tonic::async_trait]
impl v1_server::KeyManagementService for Fake {
    async fn version(&self, _: Request<v1::VersionRequest>) -> Result<Response<v1::VersionResponse>, Status> {
        let version = if self.0.lock().version == "v2" { "v1beta1" } else { "v1" };
        Ok(Response::new(v1::VersionResponse { version: version.into(), ..Default::default() }))
    }
    async fn decrypt(&self, r: Request<v1::DecryptRequest>) -> Result<Response<v1::DecryptResponse>, Status> {
        let mut now = self.0.lock();
        now.decrypted += 1;
        if now.refuses {
            return Err(Status::invalid_argument("no such key"));
        }
        Ok(Response::new(v1::DecryptResponse { plain: turned(&r.get_ref().cipher) }))
    }
    async fn encrypt(&self, r: Request<v1::EncryptRequest>) -> Result<Response<v1::EncryptResponse>, Status> {
        Ok(Response::new(v1::EncryptResponse { cipher: turned(&r.get_ref().plain) }))
    }
}

struct Bench {
    fake: Fake,
    dir: tempfile::TempDir,
    stop: Shutdown,
}

impl Bench {
    fn new() -> Self {
        let bench = Self { fake: Fake::new(), dir: tempfile::tempdir().unwrap(), stop: Shutdown::new() };
        bench.fake.listen(&bench.socket(), &bench.stop);
        bench
    }
    fn socket(&self) -> PathBuf {
        self.dir.path().join("kms.sock")
    }
    /// A provider that has not asked its plugin yet.
    fn provider(&self) -> Arc<Kms> {
        let endpoint = format!("unix://{}", self.socket().display());
        let plugin = Plugin::new(&endpoint, Duration::from_secs(3)).unwrap();
        Arc::new(Kms::new("golden".into(), plugin, Clock::system()))
    }
    fn v1(&self) -> Arc<KmsV1> {
        let endpoint = format!("unix://{}", self.socket().display());
        let plugin = PluginV1::new(&endpoint, Duration::from_secs(3)).unwrap();
        Arc::new(KmsV1::new("golden".into(), plugin, Clock::system(), 10))
    }
    async fn started(&self) -> Arc<Kms> {
        let kms = self.provider();
        probe::start(&kms, &self.stop).await;
        kms
    }
}

#[tokio::test]
async fn there_and_back() {
    let bench = Bench::new();
    let kms = bench.started().await;
    kms.probe().healthy().unwrap();
    let (one, two) = (kms.seal(AT, b"v".to_vec()).unwrap(), kms.seal(AT, b"v".to_vec()).unwrap());
    assert_ne!(one, two);
    let (a, b) = (EncryptedObject::decode(&*one).unwrap(), EncryptedObject::decode(&*two).unwrap());
    assert_eq!((&a.key_id, a.encrypted_dek_source_type), (&b.key_id, 1));
    assert_eq!(a.encrypted_dek_source, b.encrypted_dek_source, "one seed");
    assert_ne!(a.encrypted_data[..32], b.encrypted_data[..32], "a key for each value");
    assert_eq!(kms.open(AT, &one).unwrap(), (b"v".to_vec(), false));
    assert_eq!(bench.fake.0.lock().decrypted, 0, "what it wrote itself it can read");
    assert!(kms.open(b"/registry/secrets/a/c", &one).is_err(), "a value of another key");

    // Another server asks the plugin, once.
    let other = bench.started().await;
    assert!(other.open(AT, &one).unwrap_err().to_string().contains("was not asked"));
    for value in [&one, &two, &one] {
        other.prepare(value).await.unwrap();
        assert_eq!(other.open(AT, value).unwrap(), (b"v".to_vec(), false));
    }
    assert_eq!(bench.fake.0.lock().decrypted, 1);
    bench.stop.finish().await;
}

/// Written by upstream's `envelopekmsv2` with a service that changes bytes as this plugin does: from a seed, and with
/// a key itself.
#[tokio::test]
async fn values_of_upstream() {
    let bench = Bench::new();
    let kms = bench.started().await;
    for (golden, stale) in [(SEED, false), (KEY, true)] {
        let value = STANDARD.decode(golden).unwrap();
        kms.prepare(&value).await.unwrap();
        assert_eq!(kms.open(AT, &value).unwrap(), (b"the value".to_vec(), stale));
        for at in (0..value.len()).step_by(7) {
            let mut bad = value.clone();
            bad[at] ^= 0x41;
            kms.prepare(&bad).await.unwrap();
            assert!(kms.open(AT, &bad).map_or(true, |(v, _)| v == b"the value"), "byte {at}");
            assert!(kms.open(AT, &bad[..at]).is_err());
        }
    }
    bench.stop.finish().await;
}

#[tokio::test]
async fn another_key_of_the_plugin_is_written_with_once_it_is_known() {
    let bench = Bench::new();
    let kms = bench.started().await;
    let old = kms.seal(AT, b"v".to_vec()).unwrap();
    bench.fake.set(|f| f.key_id = "key-2".into());
    probe::poll(&*kms).await;
    kms.probe().healthy().unwrap();
    let new = kms.seal(AT, b"v".to_vec()).unwrap();
    assert_eq!(EncryptedObject::decode(&*new).unwrap().key_id, "key-2");
    assert_eq!(kms.open(AT, &old).unwrap(), (b"v".to_vec(), true), "to be written anew");
    assert_eq!(kms.open(AT, &new).unwrap(), (b"v".to_vec(), false));
    // One that says one key and uses another is not trusted, and what there is goes on.
    bench.fake.set(|f| {
        f.key_id = "key-3".into();
        f.encrypts_under = Some("key-2".into());
    });
    probe::poll(&*kms).await;
    let why = kms.probe().healthy().unwrap_err();
    assert!(why.starts_with("kmsv2 Provider golden is not healthy, error: failed to rotate DEK"), "{why}");
    let last = kms.seal(AT, b"v".to_vec()).unwrap();
    assert_eq!(EncryptedObject::decode(&*last).unwrap().key_id, "key-2");
    bench.stop.finish().await;
}

#[tokio::test]
async fn a_plugin_that_is_not_well() {
    let bench = Bench::new();
    let kms = bench.started().await;
    let sealed = kms.seal(AT, b"v".to_vec()).unwrap();
    let check = async |change: fn(&mut Behaviour), expected: &str| {
        let before = bench.fake.0.lock().clone();
        bench.fake.set(change);
        probe::poll(&*kms).await;
        let why = kms.probe().healthy().unwrap_err();
        assert_eq!(why, format!("kmsv2 Provider golden is not healthy, error: {expected}"));
        kms.seal(AT, b"v".to_vec()).unwrap();
        bench.fake.set(|f| *f = before);
        probe::poll(&*kms).await;
        kms.probe().healthy().unwrap();
    };
    check(|f| f.healthz = "sealed", "got unexpected healthz status: sealed").await;
    check(|f| f.version = "v3", "expected KMSv2 API version v2, got v3").await;
    check(
        |f| f.version = "v2beta1",
        "KMSv2 API version should not change after the initial status response version v2, got v2beta1",
    )
    .await;
    check(|f| f.key_id = String::new(), "got invalid KMSv2 KeyID hash \"\": keyID is empty").await;

    let other = bench.provider();
    bench.fake.set(|f| f.refuses = true);
    other.prepare(&sealed).await.unwrap();
    let why = other.open(AT, &sealed).unwrap_err().to_string();
    assert_eq!(why, "failed to decrypt DEK, error: rpc error: code = InvalidArgument desc = no such key");
    bench.fake.set(|f| f.refuses = false);
    other.prepare(&sealed).await.unwrap();
    assert!(other.open(AT, &sealed).is_ok(), "what was refused once is asked again");

    bench.fake.set(|f| f.annotation = "plain");
    let bad = bench.started().await;
    assert!(bad.probe().healthy().unwrap_err().contains("failed to validate annotations"));
    assert!(bad.seal(AT, b"v".to_vec()).unwrap_err().to_string().contains("it cannot be encrypted"));
    bench.stop.finish().await;
}

#[tokio::test]
async fn a_plugin_that_is_not_there() {
    let bench = Bench::new();
    let written = bench.started().await.seal(AT, b"v".to_vec()).unwrap();
    bench.stop.finish().await;
    std::fs::remove_file(bench.socket()).unwrap();
    let stop = Shutdown::new();
    let kms = bench.provider();
    probe::start(&kms, &stop).await;
    let why = kms.probe().healthy().unwrap_err();
    let said = "failed to perform status section of the healthz check for KMS Provider golden, error: the KMS plugin at";
    assert!(why.starts_with(said), "{why}");
    let why = kms.prepare(&written).await.unwrap_err().to_string();
    assert!(why.contains("does not answer"), "{why}");
    // It comes, and is found without another start.
    bench.fake.listen(&bench.socket(), &stop);
    probe::poll(&*kms).await;
    kms.probe().healthy().unwrap();
    kms.prepare(&written).await.unwrap();
    assert_eq!(kms.open(AT, &written).unwrap(), (b"v".to_vec(), false));
    stop.finish().await;
}

/// Writes go on for three minutes without the plugin, and reads for ever.
#[tokio::test]
async fn a_seed_is_not_written_with_for_ever() {
    let bench = Bench::new();
    let endpoint = format!("unix://{}", bench.socket().display());
    let plugin = Plugin::new(&endpoint, Duration::from_secs(3)).unwrap();
    let kms =
        Arc::new(Kms::new("golden".into(), plugin, Clock::from("2026-01-01T00:00:00Z".parse().unwrap())));
    probe::poll(&*kms).await;
    let sealed = kms.seal(AT, b"v".to_vec()).unwrap();
    tokio::time::pause();
    // Some real time passed before the pause.
    tokio::time::advance(Duration::from_mins(2)).await;
    kms.seal(AT, b"v".to_vec()).unwrap();
    tokio::time::advance(Duration::from_secs(90)).await;
    let why = kms.seal(AT, b"v".to_vec()).unwrap_err().to_string();
    assert!(why.starts_with("encryptedDEKSource with keyID hash \"sha256:"), "{why}");
    assert!(why.contains("\" expired at 2026-01-01T00:03:"), "{why}");
    assert!(why.contains("(current time is 2026-01-01T00:03:"), "{why}");
    assert_eq!(kms.open(AT, &sealed).unwrap().0, b"v");
}

#[tokio::test]
async fn by_the_configuration() {
    let bench = Bench::new();
    let file = bench.dir.path().join("config");
    let text = format!(
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets, \
         configmaps]\n  providers:\n  - kms: {{apiVersion: v2, name: one, endpoint: \"unix://{}\", timeout: 2s}}\n  - \
         identity: {{}}\n",
        bench.socket().display()
    );
    std::fs::write(&file, text).unwrap();
    let encryption = Encryption::from_file(&file, FeatureGates::default()).unwrap();
    encryption.start(&bench.stop).await;
    encryption.healthy().unwrap();
    assert!(encryption.has_plugins());
    let secrets = ("", "secrets");
    let sealed = encryption.seal(secrets, AT, b"v".to_vec()).unwrap();
    assert!(sealed.starts_with(b"k8s:enc:kms:v2:one:"));
    assert_eq!(encryption.open(secrets, AT, &sealed).unwrap(), (b"v"[..].into(), false));
    assert_eq!(encryption.open(("", "configmaps"), AT, b"v").unwrap(), (b"v"[..].into(), true));
    assert!(encryption.prepare("", "secrets", b"k8s\0").is_none());
    let again = Encryption::from_file(&file, FeatureGates::default()).unwrap();
    again.prepare("", "secrets", &sealed).unwrap().await.unwrap();
    assert_eq!(again.open(secrets, AT, &sealed).unwrap(), (b"v"[..].into(), false));
    assert!(!Encryption::default().has_plugins());
    bench.stop.finish().await;
}

#[tokio::test]
async fn version_1() {
    let bench = Bench::new();
    let kms = bench.v1();
    probe::start(&kms, &bench.stop).await;
    kms.probe().healthy().unwrap();
    assert!(kms.seal(AT, b"v".to_vec()).unwrap_err().to_string().contains("was not asked for a key"));
    let mut sealed = Vec::new();
    for _ in 0..2 {
        kms.prepare_write().await.unwrap();
        sealed.push(kms.seal(AT, b"v".to_vec()).unwrap());
    }
    assert_ne!(sealed[0][..34], sealed[1][..34], "a key for each value");
    assert_eq!(kms.open(AT, &sealed[0]).unwrap(), b"v");
    assert!(kms.open(b"/registry/secrets/a/c", &sealed[0]).is_err(), "a value of another key");
    // Another server asks the plugin, once for each.
    let (other, asked) = (bench.v1(), bench.fake.0.lock().decrypted);
    assert!(other.open(AT, &sealed[0]).unwrap_err().to_string().contains("was not asked"));
    for value in [&sealed[0], &sealed[1], &sealed[0]] {
        other.prepare(value).await.unwrap();
        assert_eq!(other.open(AT, value).unwrap(), b"v");
    }
    assert_eq!(bench.fake.0.lock().decrypted - asked, 2);
    for at in 0..sealed[0].len() {
        let mut bad = sealed[0].clone();
        bad[at] ^= 0x41;
        for bad in [&bad[..], &bad[..at]] {
            other.prepare(bad).await.unwrap();
            assert!(other.open(AT, bad).is_err(), "byte {at}");
        }
    }
    bench.fake.set(|f| f.refuses = true);
    let refused = bench.v1();
    refused.prepare(&sealed[0]).await.unwrap();
    let why = refused.open(AT, &sealed[0]).unwrap_err().to_string();
    assert_eq!(why, "rpc error: code = InvalidArgument desc = no such key");
    bench.fake.set(|f| f.version = "v3");
    let why = bench.v1().prepare_write().await.unwrap_err().to_string();
    assert_eq!(why, "KMS provider api version v1 is not supported, only v1beta1 is supported now");
    bench.stop.finish().await;
}

/// Written by upstream's `envelope` with a service that changes bytes as this plugin does: as it is since 1.25, and
/// as it was before.
#[tokio::test]
async fn values_of_upstream_in_version_1() {
    let bench = Bench::new();
    let kms = bench.v1();
    for golden in [V1_GCM, V1_CBC] {
        let value = STANDARD.decode(golden).unwrap();
        kms.prepare(&value).await.unwrap();
        assert_eq!(kms.open(AT, &value).unwrap(), b"k8s\0 the value");
    }
    bench.stop.finish().await;
}

const V1_GCM: &str = "ACA50CYIkCkhkznMTGtUGaVR7Ua3mYbZdxR+l5fXmnimdVIZyVL1lADCAv98oXbO2NRyPaJ22QvmNCeqgVNJOch88iWRI\
    JHxzOvBVA==";
const V1_CBC: &str =
    "ACB0d83pU7fEMnD3evexoe9CH4rwFOVuFqoyaYI27SMfgJnXUh+HpwPGUxUYgWOj+pKWzaPnzvCqJMv+X/w+lKdd";

/// With a seed.
const SEED: &str = "CkWfRbtFqre4d7yqn3E/Q3gwI/oIRyWPqWPEmF35j/fgyZIe2buygBXlszX3BWBQw39WXciKjV8QUjYZ09J88k/nvZ\
    A5CGYSBWtleS0xGiCeiodCGJ9WpCKcKkF8UEp3Xw/RBigzj86n4s94EVWUFCIjChtsb2NhbC1rZWsua21zLmt1YmVy\
    bmV0ZXMuaW8SBG5vdGUoAQ==";
/// With a key itself.
const KEY: &str = "CiXr9w4DAcqaOwAAAAChAVN4daerusuGJ6S5OvLXgTgmIbUhUThPEgVrZXktMRogOE5eM3jRw2GOcHhn8xsX60fdXg\
    D1M3Q5CEfBaCDns7AiIwobbG9jYWwta2VrLmttcy5rdWJlcm5ldGVzLmlvEgRub3Rl";
