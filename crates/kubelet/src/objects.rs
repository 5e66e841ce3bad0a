//! ConfigMaps and Secrets that this node's Pods refer to: one watch for each, for as long as a Pod needs it, unless they
//! are read when they are needed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use client::{Cached, Client, Informer, KubeObject, Selection};
use component::Shutdown;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use parking_lot::Mutex;

use crate::config::Detection;
use crate::node::NodeView;
pub(crate) use crate::object_reads::NotThere;
use crate::object_reads::{Key, Reads};
use crate::pods::spec;

/// How long a first answer of the API server is waited for.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

struct Entry<T> {
    informer: Informer<T>,
    stop: Shutdown,
    pods: Arc<Mutex<HashSet<String>>>,
}

struct Cache<T> {
    kind: &'static str,
    entries: Mutex<HashMap<Key, Entry<T>>>,
}

/// Called with a Pod's uid when something it refers to changed.
type Wake = Arc<dyn Fn(&str) + Send + Sync>;

impl<T: KubeObject> Cache<T> {
    fn new(kind: &'static str) -> Self {
        Self { kind, entries: Mutex::new(HashMap::new()) }
    }

    fn informer(&self, shared: &Shared, key: &Key, pod: Option<&str>) -> Informer<T> {
        let mut entries = self.entries.lock();
        let entry = entries.entry(key.clone()).or_insert_with(|| {
            let selection = Selection {
                namespace: key.0.clone(),
                field_selector: format!("metadata.name={}", key.1),
                ..Selection::default()
            };
            let informer = Informer::new(&shared.client, selection);
            let pods: Arc<Mutex<HashSet<String>>> = Arc::default();
            let (of, wake) = (pods.clone(), shared.wake.clone());
            informer.handle(move |_| {
                let uids: Vec<String> = of.lock().iter().cloned().collect();
                for uid in &uids {
                    wake(uid);
                }
            });
            let stop = shared.shutdown.child();
            informer.start(&stop);
            Entry { informer, stop, pods }
        });
        if let Some(uid) = pod {
            entry.pods.lock().insert(uid.to_owned());
        }
        entry.informer.clone()
    }

    async fn get(&self, shared: &Shared, namespace: &str, name: &str) -> Result<Arc<T>, NotThere>
    where
        T: Cached,
    {
        let informer = self.informer(shared, &(namespace.to_owned(), name.to_owned()), None);
        tokio::time::timeout(FIRST_ANSWER, informer.synced())
            .await
            .map_err(|_| NotThere::NotSynced(self.kind))?;
        informer
            .get(namespace, name)
            .ok_or_else(|| NotThere::Missing(format!("{} {name:?} not found", self.kind)))
    }

    /// Leaves a Pod with these references only.
    fn register(&self, shared: &Shared, uid: &str, keys: &HashSet<Key>) {
        for key in keys {
            self.informer(shared, key, Some(uid));
        }
        self.entries.lock().retain(|key, entry| {
            if keys.contains(key) {
                return true;
            }
            let mut pods = entry.pods.lock();
            if pods.remove(uid) && pods.is_empty() {
                entry.stop.stop();
                return false;
            }
            true
        });
    }
}

struct Shared {
    client: Client,
    shutdown: Shutdown,
    wake: Wake,
}

/// How changes are seen.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) detection: Detection,
    /// After which time Pods are looked at again whose objects are not followed.
    pub(crate) period: Duration,
    /// The node, which may say for how long objects are good.
    pub(crate) node: NodeView,
}

/// The objects that Pods refer to.
pub(crate) struct Objects {
    shared: Shared,
    config_maps: Cache<ConfigMap>,
    secrets: Cache<Secret>,
    seen: Seen,
    config_map_reads: Reads<ConfigMap>,
    secret_reads: Reads<Secret>,
}

impl Objects {
    /// None yet; `wake` hears of changes, or from time to time where they are not followed.
    pub(crate) fn new(client: Client, shutdown: Shutdown, wake: Wake, seen: Seen) -> Arc<Self> {
        let all = Arc::new(Self {
            shared: Shared { client, shutdown: shutdown.clone(), wake },
            config_maps: Cache::new("configmap"),
            secrets: Cache::new("secret"),
            seen,
            config_map_reads: Reads::default(),
            secret_reads: Reads::default(),
        });
        if !all.follows() {
            let (objects, stop) = (all.clone(), shutdown.clone());
            shutdown.spawn(async move {
                let _ = stop.run(objects.look_again()).await;
            });
        }
        all
    }
    fn follows(&self) -> bool {
        self.seen.detection == Detection::Watch
    }
    /// Wakes the Pods whose objects are not followed, from time to time.
    async fn look_again(&self) {
        loop {
            // Not all kubelets at the same time.
            tokio::time::sleep(self.seen.period.mul_f64(1.0 + fastrand::f64() / 2.0)).await;
            let mut pods = self.config_map_reads.pods();
            pods.extend(self.secret_reads.pods());
            for uid in &pods {
                (self.shared.wake)(uid);
            }
        }
    }
    /// Follows what a Pod refers to.
    pub(crate) fn register(&self, pod: &Pod) {
        let (config_maps, secrets) = references(pod);
        self.need(spec::uid(pod), &config_maps, &secrets);
    }
    /// Follows nothing for a Pod any more.
    pub(crate) fn unregister(&self, uid: &str) {
        self.need(uid, &HashSet::new(), &HashSet::new());
    }
    fn need(&self, uid: &str, config_maps: &HashSet<Key>, secrets: &HashSet<Key>) {
        if self.follows() {
            self.config_maps.register(&self.shared, uid, config_maps);
            self.secrets.register(&self.shared, uid, secrets);
        } else {
            self.config_map_reads.register(uid, config_maps);
            self.secret_reads.register(uid, secrets);
        }
    }
    /// A ConfigMap.
    pub(crate) async fn config_map(&self, namespace: &str, name: &str) -> Result<Arc<ConfigMap>, NotThere> {
        if self.follows() {
            return self.config_maps.get(&self.shared, namespace, name).await;
        }
        let from = (&self.shared.client, &self.seen.node);
        self.config_map_reads.get(from, self.seen.detection, (namespace, name)).await
    }
    /// A Secret.
    pub(crate) async fn secret(&self, namespace: &str, name: &str) -> Result<Arc<Secret>, NotThere> {
        if self.follows() {
            return self.secrets.get(&self.shared, namespace, name).await;
        }
        let from = (&self.shared.client, &self.seen.node);
        self.secret_reads.get(from, self.seen.detection, (namespace, name)).await
    }
}

/// The ConfigMaps and Secrets that a Pod names.
fn references(pod: &Pod) -> (HashSet<Key>, HashSet<Key>) {
    let key = |name: &str| (spec::namespace(pod).to_owned(), name.to_owned());
    let (mut config_maps, mut secrets) = (HashSet::new(), HashSet::new());
    let pod_spec = spec::spec(pod);
    let ephemeral = spec::ephemeral_containers(pod);
    let all = spec::containers(pod)
        .iter()
        .chain(spec::init_containers(pod))
        .chain(ephemeral.iter().map(|(c, _)| c));
    for container in all {
        for from in container.env_from.iter().flatten() {
            config_maps.extend(from.config_map_ref.as_ref().map(|r| key(&r.name)));
            secrets.extend(from.secret_ref.as_ref().map(|r| key(&r.name)));
        }
        for source in container.env.iter().flatten().filter_map(|e| e.value_from.as_ref()) {
            config_maps.extend(source.config_map_key_ref.as_ref().map(|r| key(&r.name)));
            secrets.extend(source.secret_key_ref.as_ref().map(|r| key(&r.name)));
        }
    }
    for volume in pod_spec.volumes.iter().flatten() {
        config_maps.extend(volume.config_map.as_ref().map(|r| key(&r.name)));
        secrets.extend(volume.secret.as_ref().and_then(|r| r.secret_name.as_deref()).map(key));
        for source in volume.projected.iter().flat_map(|p| p.sources.iter().flatten()) {
            config_maps.extend(source.config_map.as_ref().map(|r| key(&r.name)));
            secrets.extend(source.secret.as_ref().map(|r| key(&r.name)));
        }
    }
    secrets.extend(pod_spec.image_pull_secrets.iter().flatten().map(|r| key(&r.name)));
    (config_maps, secrets)
}
