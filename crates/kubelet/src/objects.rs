//! ConfigMaps and Secrets that this node's Pods refer to: one watch for each, for as long as a Pod needs it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use client::{Cached, Client, Informer, KubeObject, Selection};
use component::Shutdown;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use parking_lot::Mutex;

use crate::pods::spec;

/// How long a first answer of the API server is waited for.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// Why an object cannot be had.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum NotThere {
    /// It does not exist; upstream's text.
    #[error("{0}")]
    Missing(String),
    /// The API server did not answer yet.
    #[error("failed to sync {0} cache: timed out waiting for the condition")]
    NotSynced(&'static str),
}

type Key = (String, String);

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

/// The objects that Pods refer to.
pub(crate) struct Objects {
    shared: Shared,
    config_maps: Cache<ConfigMap>,
    secrets: Cache<Secret>,
}

impl Objects {
    /// None yet; `wake` hears of changes.
    pub(crate) fn new(client: Client, shutdown: Shutdown, wake: Wake) -> Self {
        Self {
            shared: Shared { client, shutdown, wake },
            config_maps: Cache::new("configmap"),
            secrets: Cache::new("secret"),
        }
    }
    /// Follows what a Pod refers to.
    pub(crate) fn register(&self, pod: &Pod) {
        let (config_maps, secrets) = references(pod);
        self.config_maps.register(&self.shared, spec::uid(pod), &config_maps);
        self.secrets.register(&self.shared, spec::uid(pod), &secrets);
    }
    /// Follows nothing for a Pod any more.
    pub(crate) fn unregister(&self, uid: &str) {
        self.config_maps.register(&self.shared, uid, &HashSet::new());
        self.secrets.register(&self.shared, uid, &HashSet::new());
    }
    /// A ConfigMap.
    pub(crate) async fn config_map(&self, namespace: &str, name: &str) -> Result<Arc<ConfigMap>, NotThere> {
        self.config_maps.get(&self.shared, namespace, name).await
    }
    /// A Secret.
    pub(crate) async fn secret(&self, namespace: &str, name: &str) -> Result<Arc<Secret>, NotThere> {
        self.secrets.get(&self.shared, namespace, name).await
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
