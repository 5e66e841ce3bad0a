//! Certificates of Pods (upstream: `pkg/kubelet/podcertificate`).
//!
//! A volume's source that wants a certificate is noted when its files are made for the first time; from then on a key
//! is made for it, a signer is asked by a PodCertificateRequest, and the certificate is exchanged in time. `state.rs`
//! decides. Nothing is kept on the disk: a kubelet that starts again asks anew.
//!
//! DIFFERENCE: upstream's kubelet asks for every Pod that is bound to its node, also for one that it will refuse, and
//! for one that has ended. This one asks for those whose volumes it makes, as long as they run.

mod keys;
mod state;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{Client, Informer, Queue, RateLimit, Selection};
use component::{Clock, Shutdown};
use jiff::SignedDuration;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1beta1::{PodCertificateRequest, PodCertificateRequestSpec};
use k8s_openapi::api::core::v1::{Node, Pod, PodCertificateProjection, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use parking_lot::Mutex;

use self::keys::{KeyError, PrivateKey};
use self::state::{Asked, Next, State};
pub(crate) use self::state::{Bundle, CredentialError};
use crate::config::Config;
use crate::metrics::{self, Metrics};
use crate::node::NodeView;
use crate::pods::spec;
use crate::pods::workers::Workers;
use crate::recorder::PodRecorder;
use crate::work::{Interrupted, blocking};

/// How often every certificate is looked at, at least; upstream's, and up to twice as long.
const PASS: Duration = Duration::from_mins(1);
/// The most that is added to a time, in nanoseconds; upstream's.
const JITTER_NANOS: i64 = 5 * 60 * 1_000_000_000;
/// How many keys are made at once.
const AT_ONCE: usize = 2;

/// A source of a volume of a Pod that wants a certificate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Place {
    namespace: String,
    pod: String,
    uid: String,
    volume: String,
    source: usize,
}

impl Place {
    fn new(pod: &Pod, volume: &str, source: usize) -> Self {
        Self {
            namespace: spec::namespace(pod).to_owned(),
            pod: spec::name(pod).to_owned(),
            uid: spec::uid(pod).to_owned(),
            volume: volume.to_owned(),
            source,
        }
    }

    /// The Pod's words about it.
    fn of<'p>(&self, pod: &'p Pod) -> Option<&'p PodCertificateProjection> {
        let volume = spec::spec(pod).volumes.iter().flatten().find(|v| v.name == self.volume)?;
        volume.projected.as_ref()?.sources.as_ref()?.get(self.source)?.pod_certificate.as_ref()
    }
}

impl fmt::Display for Place {
    /// As Go shows upstream's key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, pod, uid, volume, source } = self;
        write!(f, "{namespace} {pod} {uid} {volume} {source}")
    }
}

/// A certificate of a Pod.
#[derive(Debug)]
struct Record {
    signer: String,
    state: State,
    /// The Pod was told that no key of the type can be made.
    told: bool,
}

/// Why a look came to nothing; upstream's texts.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error("{0}")]
    Again(String),
    #[error("while fetching service account: {0}")]
    Account(Box<Status>),
    #[error("while getting node object from local cache: node {0:?} not found")]
    Node(String),
    #[error("while creating {which} PodCertificateRequest: {why}")]
    Request { which: &'static str, why: RequestError },
}

/// Why no request was made; upstream's texts.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("while generating keypair: {0}")]
    Key(#[from] KeyError),
    #[error("while generating keypair: {0}")]
    Interrupted(#[from] Interrupted),
    #[error("while creating on API: {0}")]
    Api(Box<Status>),
}

/// The certificates of this node's Pods; nothing where the feature is off.
#[derive(Clone)]
pub(crate) struct PodCertificates(Option<Arc<Manager>>);

struct Manager {
    client: Client,
    clock: Clock,
    node_name: String,
    node: NodeView,
    recorder: PodRecorder,
    workers: Arc<Workers>,
    /// The requests of this node.
    requests: Informer<PodCertificateRequest>,
    queue: Queue<Place>,
    /// As many as volumes of this node's Pods have sources for.
    records: Mutex<HashMap<Place, Record>>,
}

impl PodCertificates {
    /// Asks for nothing before [`Self::start`].
    pub(crate) fn new(
        config: &Config,
        (client, clock): (&Client, Clock),
        node: NodeView,
        recorder: PodRecorder,
        workers: Arc<Workers>,
    ) -> Self {
        if !config.pod_certificates || config.standalone {
            return Self(None);
        }
        let own = Selection {
            field_selector: format!("spec.nodeName={}", config.node_name),
            ..Selection::default()
        };
        Self(Some(Arc::new(Manager {
            client: client.clone(),
            clock,
            node_name: config.node_name.clone(),
            node,
            recorder,
            workers,
            requests: Informer::new(client, own),
            queue: Queue::new(RateLimit::UPSTREAM),
            records: Mutex::default(),
        })))
    }

    /// Looks after certificates until `shutdown`.
    pub(crate) fn start(&self, shutdown: &Shutdown) {
        let Some(manager) = &self.0 else { return };
        let told = manager.clone();
        manager.requests.handle(move |change| told.queue_pod(&change.object().spec.pod_uid));
        manager.requests.start(shutdown);
        let look = manager.clone();
        manager.queue.work("podcertificate", AT_ONCE, shutdown, move |place| {
            let manager = look.clone();
            async move {
                manager.requests.synced().await;
                manager.node.known().await;
                let looked = Box::pin(manager.look(&place)).await;
                // That a request is not seen yet is nothing to worry about.
                if let Err(error) = &looked
                    && !matches!(error, LookError::Again(_))
                {
                    tracing::warn!(%error, %place, "while handling podCertificate projected volume source");
                }
                looked
            }
        });
        let (manager, stop) = (manager.clone(), shutdown.clone());
        shutdown.spawn(async move {
            while stop.run(tokio::time::sleep(PASS.mul_f64(1.0 + fastrand::f64()))).await.is_some() {
                let all: Vec<Place> = manager.records.lock().keys().cloned().collect();
                for place in all {
                    manager.queue.add(place);
                }
            }
        });
    }

    /// The key and the certificates of a source of a Pod's volume. The first call has them asked for.
    ///
    /// # Errors
    /// There are none (yet).
    pub(crate) fn bundle(&self, pod: &Pod, volume: &str, source: usize) -> Result<Bundle, CredentialError> {
        let manager = self.0.as_ref().ok_or(CredentialError::Unsupported)?;
        let place = Place::new(pod, volume, source);
        let mut records = manager.records.lock();
        if let Some(record) = records.get(&place) {
            return record.state.bundle();
        }
        let signer = place.of(pod).map(|wanted| wanted.signer_name.clone()).unwrap_or_default();
        records.insert(place.clone(), Record { signer, state: State::Initial, told: false });
        drop(records);
        manager.queue.add(place.clone());
        Err(CredentialError::Unknown(place.to_string()))
    }

    /// Forgets the keys and certificates of a Pod.
    pub(crate) fn forget(&self, uid: &str) {
        if let Some(manager) = &self.0 {
            manager.records.lock().retain(|place, _| place.uid != uid);
        }
    }

    /// Counts certificates by signer and state.
    pub(crate) fn count(&self, metrics: &Metrics) {
        let Some(manager) = &self.0 else { return };
        let now = manager.clock.now();
        let mut counts: BTreeMap<(String, &'static str), usize> = BTreeMap::new();
        for record in manager.records.lock().values() {
            *counts.entry((record.signer.clone(), record.state.counted(now))).or_default() += 1;
        }
        metrics.reset(&metrics::PODCERTIFICATE_STATES);
        for ((signer, state), count) in counts {
            metrics.set(&metrics::PODCERTIFICATE_STATES, &[&signer, state], count as f64);
        }
    }
}

impl Manager {
    /// Lets all certificates of a Pod be looked at.
    fn queue_pod(&self, uid: &str) {
        let own: Vec<Place> = self.records.lock().keys().filter(|place| place.uid == uid).cloned().collect();
        for place in own {
            self.queue.add(place);
        }
    }

    /// Looks at one certificate, and does what is to be done. Nobody else does so meanwhile: the queue sees to it.
    async fn look(&self, place: &Place) -> Result<(), LookError> {
        let worker = self.workers.get(&place.uid).filter(|worker| worker.active());
        let Some(worker) = worker else {
            self.records.lock().remove(place);
            return Ok(());
        };
        let pod = worker.pod();
        let Some(wanted) = place.of(&pod) else { return Ok(()) };
        let outcome = {
            let mut records = self.records.lock();
            let Some(record) = records.get_mut(place) else { return Ok(()) };
            let seen = record.state.awaited().and_then(|name| self.requests.get(&place.namespace, name));
            record.state.look(seen.as_deref(), &place.namespace, self.clock.now(), jitter())
        };
        for told in outcome.told {
            self.recorder.pod(&pod, "Warning", told.reason, told.message);
        }
        if outcome.news {
            worker.wake.notify_one();
        }
        match outcome.next {
            Next::Rest => Ok(()),
            Next::Again(why) => Err(LookError::Again(why)),
            Next::Ask { refresh } => self.ask(place, &pod, wanted, refresh).await,
        }
    }

    /// Makes a key, and asks the signer to certify it.
    async fn ask(
        &self,
        place: &Place,
        pod: &Pod,
        wanted: &PodCertificateProjection,
        refresh: bool,
    ) -> Result<(), LookError> {
        let accounts = self.client.api::<ServiceAccount>(&place.namespace);
        let account = accounts.get(account_name(pod)).await.map_err(|e| LookError::Account(Box::new(e)))?;
        let node = self.node.registered().ok_or_else(|| LookError::Node(self.node_name.clone()))?;
        let made = self.request(pod, wanted, &account, &node).await;
        let (key, request) = made.map_err(|why| {
            self.tell(place, pod, &why);
            LookError::Request { which: if refresh { "refresh" } else { "initial" }, why }
        })?;
        let made = request.metadata.creation_timestamp.map_or_else(|| self.clock.now(), |at| at.0);
        let asked = Asked::new(key, request.metadata.name.unwrap_or_default(), made, jitter());
        if let Some(record) = self.records.lock().get_mut(place) {
            record.state.asked(asked);
        }
        // The request is looked at when it is seen.
        Ok(())
    }

    async fn request(
        &self,
        pod: &Pod,
        wanted: &PodCertificateProjection,
        account: &ServiceAccount,
        node: &Node,
    ) -> Result<(PrivateKey, PodCertificateRequest), RequestError> {
        // RSA keys take long.
        let kind = wanted.key_type.clone();
        let (key, proof) = blocking(move || keys::generate(&kind)).await??;
        let request = request(pod, wanted, account, node, proof);
        let requests = self.client.api::<PodCertificateRequest>(spec::namespace(pod));
        let request = requests.create(&request).await.map_err(|e| RequestError::Api(Box::new(e)))?;
        Ok((key, request))
    }

    /// Tells the Pod, once, that it asks for a key that cannot be made: the API of a newer cluster may know more types.
    ///
    /// DIFFERENCE: upstream's kubelet says so in its log alone.
    fn tell(&self, place: &Place, pod: &Pod, why: &RequestError) {
        let RequestError::Key(KeyError::Unknown(_)) = why else { return };
        let first = |record: &mut Record| !std::mem::replace(&mut record.told, true);
        if self.records.lock().get_mut(place).is_some_and(first) {
            self.recorder.pod(pod, "Warning", "Failed", why.to_string());
        }
    }
}

fn jitter() -> SignedDuration {
    SignedDuration::from_nanos(fastrand::i64(0..JITTER_NANOS))
}

fn account_name(pod: &Pod) -> &str {
    spec::spec(pod).service_account_name.as_deref().filter(|name| !name.is_empty()).unwrap_or("default")
}

/// The request of a Pod's source for a certificate.
fn request(
    pod: &Pod,
    wanted: &PodCertificateProjection,
    account: &ServiceAccount,
    node: &Node,
    proof: Vec<u8>,
) -> PodCertificateRequest {
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: spec::name(pod).to_owned(),
        uid: spec::uid(pod).to_owned(),
        ..OwnerReference::default()
    };
    PodCertificateRequest {
        metadata: ObjectMeta {
            namespace: Some(spec::namespace(pod).to_owned()),
            generate_name: Some("req-".into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: PodCertificateRequestSpec {
            signer_name: wanted.signer_name.clone(),
            pod_name: spec::name(pod).to_owned(),
            pod_uid: spec::uid(pod).to_owned(),
            service_account_name: account_name(pod).to_owned(),
            service_account_uid: account.metadata.uid.clone().unwrap_or_default(),
            node_name: node.metadata.name.clone().unwrap_or_default(),
            node_uid: node.metadata.uid.clone().unwrap_or_default(),
            max_expiration_seconds: wanted.max_expiration_seconds,
            stub_pkc_s10_request: ByteString(proof),
            unverified_user_annotations: wanted.user_annotations.clone(),
            ..PodCertificateRequestSpec::default()
        },
        ..PodCertificateRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"namespace": "ns1", "name": "workload", "uid": "pod-uid"},
            "spec": {"serviceAccountName": "workload", "nodeName": "node1", "containers": [{"name": "main"}],
                "volumes": [{"name": "other"}, {"name": "certificate", "projected": {"sources": [
                    {"downwardAPI": {}},
                    {"podCertificate": {"signerName": "foo.com/signer", "keyType": "ED25519",
                        "credentialBundlePath": "creds.pem", "maxExpirationSeconds": 86400,
                        "userAnnotations": {"test.domain/foo": "bar"}}}]}}]}}))
        .unwrap()
    }

    fn object<T: serde::de::DeserializeOwned>(name: &str, uid: &str) -> T {
        serde_json::from_value(json!({"metadata": {"name": name, "uid": uid}})).unwrap()
    }

    /// Upstream's `TestTransitionInitialToWait`.
    #[test]
    fn a_request_says_who_asks() {
        let pod = pod();
        let wanted = Place::new(&pod, "certificate", 1).of(&pod).unwrap();
        let (account, node) = (object("workload", "account-uid"), object("node1", "node1-uid"));
        let got: Value = serde_json::to_value(request(&pod, wanted, &account, &node, vec![1, 2, 3])).unwrap();
        let expected = json!({
            "apiVersion": "certificates.k8s.io/v1beta1", "kind": "PodCertificateRequest",
            "metadata": {"namespace": "ns1", "generateName": "req-", "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "workload", "uid": "pod-uid"}]},
            "spec": {"signerName": "foo.com/signer", "podName": "workload", "podUID": "pod-uid",
                "serviceAccountName": "workload", "serviceAccountUID": "account-uid", "nodeName": "node1",
                "nodeUID": "node1-uid", "maxExpirationSeconds": 86400, "stubPKCS10Request": "AQID",
                "unverifiedUserAnnotations": {"test.domain/foo": "bar"}}});
        assert_eq!(got, expected);
    }

    #[test]
    fn a_place_is_one_source() {
        let pod = pod();
        for (volume, source, there) in [
            ("certificate", 1, true),
            ("certificate", 0, false),
            ("certificate", 2, false),
            ("other", 0, false),
            ("none", 0, false),
        ] {
            assert_eq!(Place::new(&pod, volume, source).of(&pod).is_some(), there, "{volume} {source}");
        }
        let unknown = CredentialError::Unknown(Place::new(&pod, "certificate", 1).to_string());
        assert_eq!(unknown.to_string(), "no credentials yet for key={ns1 workload pod-uid certificate 1}");
    }

    #[test]
    fn jitter_is_at_most_five_minutes() {
        let all: Vec<SignedDuration> = (0..1000).map(|_| jitter()).collect();
        let half = SignedDuration::from_secs(150);
        assert!(all.iter().all(|j| !j.is_negative() && *j < half * 2));
        assert!(all.iter().any(|j| *j > half) && all.iter().any(|j| *j < half));
    }
}
