//! Sources of static Pods: they say again and again which ones there are.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use component::{Clock, Shutdown};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;

use super::Source;
use super::manifest::seen;
use crate::pods::host::PodHost;
use crate::pods::{labels, spec};

/// Reads which static Pods there are.
pub(crate) trait Reader: Send + Sync {
    /// Reads; none if nothing can be said, and what was said before holds.
    fn read(&self) -> BoxFuture<'_, Option<Vec<Pod>>>;
    /// Resolves when something may have changed since the call.
    fn changed(&self) -> BoxFuture<'_, ()>;
    /// How often it is read although nothing was heard of a change.
    fn period(&self) -> Duration;
}

/// A source that a reader reads.
pub(crate) struct StaticSource<R> {
    pub(crate) reader: R,
    pub(crate) clock: Clock,
    /// The Pods, once they were read.
    pub(crate) pods: watch::Sender<Option<Vec<Arc<Pod>>>>,
}

impl<R: Reader> StaticSource<R> {
    /// Has not read anything yet.
    pub(crate) fn new(reader: R, clock: Clock) -> Self {
        Self { reader, clock, pods: watch::Sender::new(None) }
    }

    /// Reads once, and tells `host` of what is new and what is gone.
    async fn look(&self, host: &PodHost) {
        let Some(read) = self.reader.read().await else { return };
        let (read, twice) = of_different_names(read);
        for pod in &twice {
            host.recorder.pod(pod, "Warning", "FailedValidation", duplicate(pod));
        }
        let before = self.pods.borrow().clone();
        let known = before.clone().unwrap_or_default();
        let now = self.clock.now();
        // A Pod that was there stays the same object, with the time at which it was seen first.
        let same = |pod: &Pod| known.iter().find(|k| spec::uid(k) == spec::uid(pod)).cloned();
        let all: Vec<Arc<Pod>> = read
            .into_iter()
            .map(|mut pod| {
                same(&pod).unwrap_or_else(|| {
                    seen(&mut pod, now);
                    Arc::new(pod)
                })
            })
            .collect();
        if before.as_ref() == Some(&all) {
            return;
        }
        self.pods.send_replace(Some(all.clone()));
        host.replace(&known, &all);
    }
}

/// Of Pods of the same name the first one, and apart from them the others.
fn of_different_names(all: Vec<Pod>) -> (Vec<Pod>, Vec<Pod>) {
    let mut names = HashSet::new();
    all.into_iter().partition(|pod| names.insert((pod.metadata.namespace.clone(), pod.metadata.name.clone())))
}

/// The message about a Pod whose name another one of its source has; upstream's text.
fn duplicate(pod: &Pod) -> String {
    let (name, namespace, uid) = (spec::name(pod), spec::namespace(pod), spec::uid(pod));
    let annotations = pod.metadata.annotations.as_ref();
    let source = annotations.and_then(|all| all.get(labels::CONFIG_SOURCE)).map_or("", String::as_str);
    format!(
        "Error validating pod {name}_{namespace}({uid}) from {source} due to duplicate pod name {name:?}, ignoring"
    )
}

impl<R: Reader + 'static> Source for StaticSource<R> {
    fn follow(self: Arc<Self>, host: Arc<PodHost>, shutdown: &Shutdown) {
        let stop = shutdown.clone();
        shutdown.spawn(async move {
            let follow = async {
                loop {
                    // Changes from here on are heard of.
                    let changed = self.reader.changed();
                    self.look(&host).await;
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep(self.reader.period()) => {}
                    }
                }
            };
            let _ = stop.run(follow).await;
        });
    }

    fn known(&self) -> BoxFuture<'_, ()> {
        async {
            // The sender lives as long as `self`.
            let _ = self.pods.subscribe().wait_for(Option::is_some).await;
        }
        .boxed()
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        self.pods.borrow().clone().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Upstream's case of a Pod that is there twice (`TestInvalidPodFiltered` has it for a source's updates).
    #[test]
    fn the_first_pod_of_a_name_counts() {
        let pod = |namespace: &str, name: &str, uid: &str| -> Pod {
            let source = json!({labels::CONFIG_SOURCE: "http"});
            let meta = json!({"namespace": namespace, "name": name, "uid": uid, "annotations": source});
            serde_json::from_value(json!({"metadata": meta})).unwrap()
        };
        let all = vec![pod("new", "foo", "1"), pod("other", "foo", "2"), pod("new", "foo", "3")];
        let (kept, twice) = of_different_names(all);
        let uids = |all: &[Pod]| all.iter().map(|pod| spec::uid(pod).to_owned()).collect::<Vec<_>>();
        assert_eq!((uids(&kept), uids(&twice)), (vec!["1".into(), "2".into()], vec!["3".into()]));
        let told = "Error validating pod foo_new(3) from http due to duplicate pod name \"foo\", ignoring";
        assert_eq!(duplicate(&twice[0]), told);
    }
}
