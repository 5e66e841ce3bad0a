//! Upstream's cases of images that must be there (`image_manager_test.go`), with a service of images on a socket.

use std::sync::Arc;
use std::time::Duration;

use api::{FeatureGates, Status};
use client::rate::Rate;
use client::{Call, Informer, Recorder, Selection};
use component::Shutdown;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;
use pb::image_service_server::{ImageService, ImageServiceServer};
use pb::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response};

use super::credential::PullSecret;
use super::*;
use crate::config::Detection;
use crate::node::NodeView;
use crate::objects::Seen;
use crate::testing::{self, Answers};

/// The image that upstream's cases have.
const PRESENT: &str = "present_image:latest";

/// A service of images that notes how it is called.
#[derive(Clone, Default)]
struct Fake {
    calls: Arc<Mutex<Vec<&'static str>>>,
    images: Arc<Mutex<Vec<pb::ImageSpec>>>,
    inspect_error: Option<&'static str>,
    pull_error: Option<&'static str>,
    /// Pulls wait for a permit, if there is something to wait at.
    held: Option<Arc<Semaphore>>,
}

impl Fake {
    fn pulls(&self) -> usize {
        self.calls.lock().iter().filter(|call| **call == "PullImage").count()
    }
}

fn image(spec: pb::ImageSpec) -> pb::Image {
    pb::Image { id: spec.image.clone(), spec: Some(spec), ..pb::Image::default() }
}

#[tonic::async_trait]
impl RuntimeService for Fake {
    async fn version(
        &self,
        _: Request<pb::VersionRequest>,
    ) -> Result<Response<pb::VersionResponse>, tonic::Status> {
        Ok(Response::new(pb::VersionResponse::default()))
    }
}

#[tonic::async_trait]
impl ImageService for Fake {
    async fn list_images(
        &self,
        _: Request<pb::ListImagesRequest>,
    ) -> Result<Response<pb::ListImagesResponse>, tonic::Status> {
        let images = self.images.lock().iter().cloned().map(image).collect();
        Ok(Response::new(pb::ListImagesResponse { images }))
    }
    async fn image_status(
        &self,
        request: Request<pb::ImageStatusRequest>,
    ) -> Result<Response<pb::ImageStatusResponse>, tonic::Status> {
        self.calls.lock().push("ImageStatus");
        if let Some(error) = self.inspect_error {
            return Err(tonic::Status::unknown(error));
        }
        let name = request.into_inner().image.unwrap_or_default().image;
        let image = self.images.lock().iter().find(|there| there.image == name).cloned().map(image);
        Ok(Response::new(pb::ImageStatusResponse { image, ..pb::ImageStatusResponse::default() }))
    }
    async fn pull_image(
        &self,
        request: Request<pb::PullImageRequest>,
    ) -> Result<Response<pb::PullImageResponse>, tonic::Status> {
        self.calls.lock().push("PullImage");
        if let Some(held) = &self.held {
            held.acquire().await.unwrap().forget();
        }
        if let Some(error) = self.pull_error {
            return Err(tonic::Status::unknown(error));
        }
        let spec = request.into_inner().image.unwrap_or_default();
        let image_ref = spec.image.clone();
        self.images.lock().push(spec);
        Ok(Response::new(pb::PullImageResponse { image_ref }))
    }
}

/// An API server with Secrets.
struct Secrets(Vec<Value>);

impl Answers for Secrets {
    fn answer(&self, call: &Call) -> Result<Value, Status> {
        let secret = self.0.iter().find(|secret| secret["metadata"]["name"] == call.name.as_str());
        secret.cloned().ok_or_else(testing::not_found)
    }
}

/// A Secret with a credential for the image.
fn secret(name: &str, uid: &str, user: &str) -> Value {
    let config = json!({"auths": {"docker.io/library/present_image": {"username": user, "password": "p"}}});
    let data = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, config.to_string());
    json!({"metadata": {"name": name, "namespace": "testns", "uid": uid},
        "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": data}})
}

/// A kubelet's images.
struct Node {
    images: ImageManager,
    clock: Clock,
    events: mpsc::Receiver<Event>,
    fake: Fake,
    _dir: tempfile::TempDir,
}

impl Node {
    /// With these settings beside its own ones.
    async fn new(fake: Fake, secrets: Vec<Value>, set: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("cri.sock");
        let incoming = UnixListenerStream::new(tokio::net::UnixListener::bind(&socket).unwrap());
        let server = tonic::transport::Server::builder()
            .add_service(RuntimeServiceServer::new(fake.clone()))
            .add_service(ImageServiceServer::new(fake.clone()));
        tokio::spawn(server.serve_with_incoming(incoming));
        let runtime = Runtime::connect(&format!("unix://{}", socket.display())).await.unwrap();
        let mut config = Config::new("n");
        config.root_dir = dir.path().to_owned();
        config.pull_rate = None;
        set(&mut config);
        let clock = Clock::from(Timestamp::UNIX_EPOCH);
        let (recorder, events) = Recorder::channel("kubelet", clock);
        let client = testing::client(&Arc::new(Secrets(secrets)));
        let node = NodeView::new("n", Informer::new(&client, Selection::default()), 1);
        let seen = Seen { detection: Detection::Get, period: Duration::from_hours(1), node };
        let objects = Objects::new(client.clone(), Shutdown::new(), Arc::new(|_| {}), seen);
        let images =
            ImageManager::new(&config, runtime, (&client, clock), PodRecorder(recorder), objects, None);
        Self { images, clock, events, fake, _dir: dir }
    }

    /// Asks for an image; answers with the calls and the Events of that, and the reason why the image is not there.
    async fn ensure(&mut self, pod: &Pod, container: &Container) -> (String, String, String) {
        self.fake.calls.lock().clear();
        let sandbox = pb::PodSandboxConfig::default();
        let answer = self.images.ensure(pod, container, &sandbox).await;
        let events: Vec<String> =
            std::iter::from_fn(|| self.events.try_recv().ok()).filter_map(|event| event.reason).collect();
        let reason = match answer {
            Ok(_) => String::new(),
            Err(error @ ImageError::Pull(_)) => error.reason().to_owned(),
            Err(error) => format!("{}: {error}", error.reason()),
        };
        (self.fake.calls.lock().join(" "), reason, events.join(" "))
    }
}

fn pod(secrets: &[Value]) -> Pod {
    let names: Vec<Value> =
        secrets.iter().map(|secret| json!({"name": secret["metadata"]["name"]})).collect();
    let meta = json!({"name": "test_pod", "namespace": "testns", "uid": "bar"});
    serde_json::from_value(json!({"metadata": meta, "spec": {"containers": [], "imagePullSecrets": names}}))
        .unwrap()
}

fn container(image: &str, policy: &str) -> Container {
    Container {
        name: "container_name".into(),
        image: Some(image.into()),
        image_pull_policy: Some(policy.into()),
        ..Container::default()
    }
}

/// Calls, reason and Events.
type Step<'a> = (&'a str, &'a str, &'a str);

const PULLED: Step<'_> = ("PullImage ImageStatus", "", "Pulling Pulled");
const WAS_THERE: Step<'_> = ("ImageStatus", "", "Pulled");

/// The image is asked for again and again, each time ten seconds later; upstream's test has tenths of its delays.
async fn check(
    (image, policy): (&str, &str),
    (inspect_error, pull_error): (Option<&'static str>, Option<&'static str>),
    rate: Option<Rate>,
    steps: &[Step<'_>],
) {
    for (verifies, at_once) in [(false, 10), (false, 1), (true, 10), (true, 1)] {
        let images =
            Arc::new(Mutex::new(vec![pb::ImageSpec { image: PRESENT.into(), ..Default::default() }]));
        let fake = Fake { images, inspect_error, pull_error, ..Fake::default() };
        let set = |config: &mut Config| {
            config.gates = FeatureGates::default().with(Gate::KubeletEnsureSecretPulledImages, verifies);
            config.max_parallel_image_pulls = at_once;
            config.pull_rate = rate;
        };
        let mut node = Node::new(fake, Vec::new(), set).await;
        for (step, (calls, reason, events)) in steps.iter().enumerate() {
            node.clock.step(SignedDuration::from_secs(10));
            let (got_calls, got_reason, got_events) = node.ensure(&pod(&[]), &container(image, policy)).await;
            let got = (got_calls.as_str(), got_reason.as_str(), got_events.as_str());
            assert_eq!(got, (*calls, *reason, *events), "{image} {policy} {verifies} {at_once} {step}");
        }
    }
}

/// `TestSerializedPuller` and `TestParallelPuller`: the cases without credentials, 14 of them, each in four ways.
#[tokio::test]
async fn images_are_there_or_their_containers_wait() {
    let fine = (None, None);
    let missing = ("ImageStatus PullImage ImageStatus", "", "Pulling Pulled");
    check(("missing_image", "IfNotPresent"), fine, None, &[missing]).await;
    check(("present_image", "IfNotPresent"), fine, None, &[WAS_THERE; 3]).await;
    check(("present_image", "Always"), fine, None, &[PULLED; 3]).await;
    let never = (
        "ImageStatus",
        "ErrImageNeverPull: Container image \"missing_image\" is not present with pull policy of Never",
        "ErrImageNeverPull",
    );
    check(("missing_image", "Never"), fine, None, &[never; 3]).await;
    let inspect = (
        "ImageStatus",
        "ImageInspectError: Failed to inspect image \"missing_image:latest\": rpc error: code = Unknown desc = unknown inspectError",
        "InspectFailed",
    );
    let broken = (Some("unknown inspectError"), None);
    check(("missing_image", "IfNotPresent"), broken, None, &[inspect; 3]).await;

    let failed = ("ImageStatus PullImage", "ErrImagePull", "Pulling Failed");
    let waits = (
        "ImageStatus",
        "ImagePullBackOff: Back-off pulling image \"typo_image\": ErrImagePull: 404",
        "BackOff",
    );
    let steps = [failed, failed, waits, failed, waits, waits];
    check(("typo_image", "IfNotPresent"), (None, Some("404")), None, &steps).await;

    let rate = Rate { per_second: 400.0, burst: 600 };
    check(("present_image", "Always"), fine, Some(rate), &[PULLED; 3]).await;
    let none = Rate { per_second: 2000.0, burst: 0 };
    let too_many = ("", "ErrImagePull", "Pulling Failed");
    let waits = (
        "",
        "ImagePullBackOff: Back-off pulling image \"present_image\": ErrImagePull: pull QPS exceeded",
        "BackOff",
    );
    check(("present_image", "Always"), fine, Some(none), &[too_many, too_many, waits]).await;

    let unsigned = (
        "ImageStatus PullImage",
        "SignatureValidationFailed: image pull failed for typo_image because the signature validation failed",
        "Pulling Failed",
    );
    let waits = (
        "ImageStatus",
        "ImagePullBackOff: Back-off pulling image \"typo_image\": SignatureValidationFailed: image pull failed for typo_image because the signature validation failed",
        "BackOff",
    );
    let steps = [unsigned, unsigned, waits, unsigned, waits];
    check(("typo_image", "IfNotPresent"), (None, Some("SignatureValidationFailed")), None, &steps).await;
}

#[tokio::test]
async fn names_that_are_none_are_not_pulled() {
    for image in
        ["FAILED_IMAGE", "http://url", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"]
    {
        let mut node = Node::new(Fake::default(), Vec::new(), |_| {}).await;
        let (calls, reason, events) = node.ensure(&pod(&[]), &container(image, "Always")).await;
        assert_eq!((calls.as_str(), events.as_str()), ("", "InspectFailed"), "{image}");
        let start = format!("InvalidImageName: Failed to apply default image tag {image:?}: ");
        assert!(reason.starts_with(&start), "{reason}");
    }
}

/// The cases with Secrets, 4 of them, and that of the node's credentials alone. A pull with a Secret lets its Pods use the
/// image, which upstream's mock does not note.
#[tokio::test]
async fn images_are_for_those_who_may_pull_them() {
    let other = [secret("testname", "someothertestuid", "own")];
    let check = async |policy: &str,
                       own: &[Value],
                       recorded: Option<(&str, &str)>,
                       how: Verification,
                       steps: &[Step<'_>]| {
        let images =
            Arc::new(Mutex::new(vec![pb::ImageSpec { image: PRESENT.into(), ..Default::default() }]));
        let fake = Fake { images, ..Fake::default() };
        let set = |config: &mut Config| {
            config.gates = FeatureGates::default().with(Gate::KubeletEnsureSecretPulledImages, true);
            config.image_verification = how;
        };
        let mut node = Node::new(fake, own.to_vec(), set).await;
        if let Some((name, uid)) = recorded {
            let [namespace, name, uid, credential_hash] = ["testns", name, uid, "other"].map(str::to_owned);
            let by = ImageCredentials {
                kubernetes_secrets: vec![PullSecret { namespace, name, uid, credential_hash }],
                ..ImageCredentials::default()
            };
            node.images.reconcile().await;
            node.images.records.add("present_image", PRESENT, by).await;
        }
        for (calls, reason, events) in steps {
            let got = node.ensure(&pod(own), &container("present_image", policy)).await;
            let got = (got.0.as_str(), got.1.split(':').next().unwrap_or_default(), got.2.as_str());
            assert_eq!(got, (*calls, *reason, *events), "{policy} {recorded:?}");
        }
    };
    let pulled = ("ImageStatus PullImage ImageStatus", "", "Pulling Pulled");
    let preloaded = Verification::default;
    check("IfNotPresent", &other, None, Verification::AlwaysVerify, &[pulled, WAS_THERE]).await;
    let known = Some(("testname", "testuid"));
    check("IfNotPresent", &other, known, preloaded(), &[pulled, WAS_THERE]).await;
    let never = ("ImageStatus", "ErrImageNeverPull", "ErrImageNeverPull");
    check("Never", &other, known, preloaded(), &[never; 3]).await;
    let both = [secret("other", "someothertestuid", "own"), secret("testname", "testuid", "mine")];
    check("IfNotPresent", &both, known, preloaded(), &[WAS_THERE; 3]).await;
    check("IfNotPresent", &[], None, preloaded(), &[WAS_THERE]).await;
}

/// `TestPullAndListImageWithPodAnnotations`.
#[tokio::test]
async fn runtimes_learn_the_annotations_of_pods() {
    let mut node = Node::new(Fake::default(), Vec::new(), |_| {}).await;
    let mut pod = pod(&[]);
    let handler = ("kubernetes.io/runtimehandler".to_owned(), "handler_name".to_owned());
    pod.metadata.annotations = Some([handler.clone()].into());
    node.ensure(&pod, &container("missing_image", "IfNotPresent")).await;
    let images = node.fake.images.lock().clone();
    let [image] = &images[..] else { panic!("{images:?}") };
    assert_eq!((image.image.as_str(), image.runtime_handler.as_str()), ("missing_image:latest", ""));
    assert_eq!(image.annotations, [handler].into());
}

/// `TestPullAndListImageWithRuntimeHandlerInImageCriAPIFeatureGate`, and the same without the gate.
#[tokio::test]
async fn runtimes_learn_the_handlers_of_pods_where_the_gate_is_on() {
    let classes = vec![json!({"metadata": {"name": "sandboxed"}, "handler": "handler_name"})];
    for (gate, class, expected) in [
        (true, "sandboxed", Ok("handler_name")),
        (true, "", Ok("")),
        (true, "other", Err("CreateContainerConfigError: RuntimeClass \"other\" not found")),
        (false, "sandboxed", Ok("")),
        (false, "other", Ok("")),
    ] {
        let set = |config: &mut Config| {
            config.gates = FeatureGates::default().with(Gate::RuntimeClassInImageCriApi, gate);
        };
        let mut node = Node::new(Fake::default(), classes.clone(), set).await;
        let mut pod = pod(&[]);
        pod.spec.as_mut().unwrap().runtime_class_name = Some(class.to_owned());
        let container = container("missing_image", "IfNotPresent");
        let (calls, reason, _) = node.ensure(&pod, &container).await;
        let asked = node.fake.images.lock().clone();
        let Ok(handler) = expected else {
            assert_eq!((calls.as_str(), reason.as_str(), asked.len()), ("", expected.unwrap_err(), 0));
            continue;
        };
        let pulled: Vec<_> = asked.iter().map(|i| (i.image.as_str(), i.runtime_handler.as_str())).collect();
        assert_eq!(pulled, [("missing_image:latest", handler)], "{gate} {class}");
        let answer =
            node.images.ensure(&pod, &container, &pb::PodSandboxConfig::default()).await.unwrap().spec;
        assert_eq!(
            (answer.image.as_str(), answer.user_specified_image.as_str(), answer.runtime_handler.as_str()),
            ("missing_image:latest", "missing_image", handler)
        );
    }
}

/// `TestMaxParallelImagePullsLimit`.
#[tokio::test]
async fn so_many_images_are_pulled_at_once() {
    let held = Arc::new(Semaphore::new(0));
    let fake = Fake { held: Some(held.clone()), ..Fake::default() };
    let node = Node::new(fake.clone(), Vec::new(), |config| config.max_parallel_image_pulls = 5).await;
    let (pod, container) = (pod(&[]), container("present_image", "Always"));
    let sandbox = pb::PodSandboxConfig::default();
    let seven = futures::future::join_all((0..7).map(|_| node.images.ensure(&pod, &container, &sandbox)));
    let watch = async {
        let reached = async |pulls: usize| {
            while fake.pulls() < pulls {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // No more come.
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(fake.pulls(), pulls);
        };
        reached(5).await;
        held.add_permits(2);
        reached(7).await;
        held.add_permits(5);
    };
    let (answers, ()) = tokio::join!(seven, watch);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(fake.pulls(), 7);
}
