//! ConfigMaps and Secrets that are read when a Pod needs them, and not followed: upstream's strategies `Get` and `Cache`.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use client::{Client, KubeObject};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::config::Detection;
use crate::node::NodeView;

/// How long an object is good if the Node does not say; upstream's.
const GOOD: Duration = Duration::from_mins(1);
/// The Node's annotation that says for how many seconds objects are good; a controller writes it.
const TTL: &str = "node.alpha.kubernetes.io/ttl";

/// Why an object cannot be had.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum NotThere {
    /// It does not exist; upstream's text.
    #[error("{0}")]
    Missing(String),
    /// The API server did not answer yet.
    #[error("failed to sync {0} cache: timed out waiting for the condition")]
    NotSynced(&'static str),
    /// The API server does not tell it; its text.
    #[error("{0}")]
    Unreadable(String),
}

/// Namespace and name.
pub(crate) type Key = (String, String);

/// The last answer of the API server, and when it was.
type Last<T> = Option<(Result<Arc<T>, NotThere>, Instant)>;

/// An object that Pods need.
struct Entry<T> {
    pods: BTreeSet<String>,
    /// Held while the API server is asked, so that it is asked once.
    last: Arc<tokio::sync::Mutex<Last<T>>>,
}

/// The objects of a kind that Pods need.
pub(crate) struct Reads<T>(Mutex<HashMap<Key, Entry<T>>>);

impl<T> Default for Reads<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: KubeObject> Reads<T> {
    /// An object as it is now, or as it was not long ago.
    pub(crate) async fn get(
        &self,
        (client, node): (&Client, &NodeView),
        detection: Detection,
        (namespace, name): (&str, &str),
    ) -> Result<Arc<T>, NotThere> {
        let key = (namespace.to_owned(), name.to_owned());
        let entry = self.0.lock().get(&key).map(|entry| entry.last.clone());
        let (Detection::Cache, Some(entry)) = (detection, entry) else {
            return read(client, namespace, name).await.map_err(|error| not_there(&error));
        };
        let mut last = entry.lock().await;
        if let Some((Ok(object), at)) = &*last
            && at.elapsed() < good(node)
        {
            return Ok(object.clone());
        }
        match read::<T>(client, namespace, name).await {
            Ok(object) => {
                *last = Some((Ok(object.clone()), Instant::now()));
                Ok(object)
            }
            Err(error) if error.code == 404 => {
                let missing = not_there(&error);
                *last = Some((Err(missing.clone()), Instant::now()));
                Err(missing)
            }
            // One that was there is better than none while the API server is away.
            Err(error) => match &*last {
                Some((known, _)) => known.clone(),
                None => Err(not_there(&error)),
            },
        }
    }

    /// Leaves a Pod with these objects only. One that is new to it is read again.
    pub(crate) fn register(&self, uid: &str, keys: &HashSet<Key>) {
        let mut entries = self.0.lock();
        for key in keys {
            let entry = entries
                .entry(key.clone())
                .or_insert_with(|| Entry { pods: BTreeSet::new(), last: Arc::default() });
            if entry.pods.insert(uid.to_owned()) {
                entry.last = Arc::default();
            }
        }
        entries.retain(|key, entry| keys.contains(key) || !entry.pods.remove(uid) || !entry.pods.is_empty());
    }

    /// The Pods that need any.
    pub(crate) fn pods(&self) -> BTreeSet<String> {
        self.0.lock().values().flat_map(|entry| entry.pods.iter().cloned()).collect()
    }
}

async fn read<T: KubeObject>(client: &Client, namespace: &str, name: &str) -> Result<Arc<T>, Status> {
    client.api::<T>(namespace).get(name).await.map(Arc::new)
}

fn not_there(error: &Status) -> NotThere {
    if error.code == 404 {
        NotThere::Missing(error.to_string())
    } else {
        NotThere::Unreadable(error.to_string())
    }
}

/// How long an object is good.
fn good(node: &NodeView) -> Duration {
    let node = node.object();
    let said = node.as_ref().and_then(|n| n.metadata.annotations.as_ref()?.get(TTL)?.parse::<i64>().ok());
    said.map_or(GOOD, |seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use client::{Call, Informer, Selection};
    use k8s_openapi::api::core::v1::{ConfigMap, Node};
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{self, Answers};

    /// An API server that answers with how often it was asked, or with an error.
    #[derive(Default)]
    struct Counting(Mutex<(u32, Option<u16>)>);

    impl Answers for Counting {
        fn answer(&self, call: &Call) -> Result<Value, Status> {
            let mut state = self.0.lock();
            state.0 += 1;
            match state.1 {
                Some(code) => Err(Status::failure(code, "Odd", "an error")),
                None => Ok(json!({"metadata": {"name": &*call.name}, "data": {"n": state.0.to_string()}})),
            }
        }
    }

    /// Reads, and what the object says, or the error.
    struct Test {
        server: Arc<Counting>,
        client: Client,
        node: NodeView,
        reads: Reads<ConfigMap>,
        detection: Detection,
    }

    impl Test {
        fn new(detection: Detection, ttl: Option<&str>) -> Self {
            let server = Arc::new(Counting::default());
            let client = testing::client(&server);
            let node = NodeView::new("n", Informer::new(&client, Selection::default()), 1);
            let mut object = Node::default();
            object.metadata.annotations = ttl.map(|ttl| [(TTL.to_owned(), ttl.to_owned())].into());
            node.would_be(object);
            Self { server, client, node, reads: Reads::default(), detection }
        }
        fn need(&self, uid: &str, names: &[&str]) {
            let keys = names.iter().map(|name| ("d".to_owned(), (*name).to_owned())).collect();
            self.reads.register(uid, &keys);
        }
        async fn get(&self, name: &str) -> String {
            let at = (&self.client, &self.node);
            match self.reads.get(at, self.detection, ("d", name)).await {
                Ok(map) => map.data.clone().unwrap_or_default()["n"].clone(),
                Err(error) => error.to_string(),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn objects_are_read_at_each_need() {
        let test = Test::new(Detection::Get, None);
        test.need("u", &["a"]);
        assert_eq!([test.get("a").await, test.get("a").await], ["1", "2"]);
        test.server.0.lock().1 = Some(404);
        assert_eq!(test.get("a").await, "an error");
    }

    #[tokio::test(start_paused = true)]
    async fn objects_are_good_for_a_while() {
        let test = Test::new(Detection::Cache, None);
        test.need("u", &["a"]);
        assert_eq!([test.get("a").await, test.get("a").await], ["1", "1"]);
        tokio::time::advance(GOOD).await;
        assert_eq!(test.get("a").await, "2");
        test.need("u", &["a"]);
        assert_eq!(test.get("a").await, "2", "the Pod had it before");
        test.need("v", &["a"]);
        assert_eq!(test.get("a").await, "3", "it is new to another Pod");
        assert_eq!(test.get("b").await, "4");
        assert_eq!(test.get("b").await, "5", "no Pod needs it");
        tokio::time::advance(GOOD).await;
        test.server.0.lock().1 = Some(500);
        assert_eq!(test.get("a").await, "3", "the API server is away");
        assert_eq!(test.get("b").await, "an error");
        test.server.0.lock().1 = Some(404);
        assert_eq!(test.get("a").await, "an error");
        test.server.0.lock().1 = Some(500);
        assert_eq!(test.get("a").await, "an error", "it was gone");
        assert_eq!(test.reads.pods(), ["u".to_owned(), "v".to_owned()].into());
        test.need("u", &[]);
        test.need("v", &[]);
        assert!(test.reads.0.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_node_says_how_long_objects_are_good() {
        let test = Test::new(Detection::Cache, Some("0"));
        test.need("u", &["a"]);
        assert_eq!([test.get("a").await, test.get("a").await], ["1", "2"]);
        let test = Test::new(Detection::Cache, Some("300"));
        test.need("u", &["a"]);
        test.get("a").await;
        tokio::time::advance(Duration::from_secs(299)).await;
        assert_eq!(test.get("a").await, "1");
    }
}
