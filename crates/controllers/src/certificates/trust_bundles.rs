//! Publisher of the trust bundle of the signer `kubernetes.io/kube-apiserver-serving`: the authorities by which Pods
//! verify the API server, in a ClusterTrustBundle (upstream: `pkg/controller/certificates/clustertrustbundlepublisher`).

use std::fmt::Write as _;
use std::sync::Arc;

use api::{Gate, Status};
use client::{Client, Informer, Key, Selection, resource_of};
use component::Clock;
use k8s_openapi::api::certificates::v1beta1::{ClusterTrustBundle, ClusterTrustBundleSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sha2::{Digest, Sha256};

use crate::common::counters::{Counters, SHORT_SECONDS};
use crate::host::{Controller, Host, Next, Shared, Wiring};

const SIGNER: &str = "kubernetes.io/kube-apiserver-serving";
const SYNCS: &str = "clustertrustbundle_publisher_sync_total";
const SECONDS: &str = "clustertrustbundle_publisher_sync_duration_seconds";
/// The number of bytes of the bundle's hash in the object's name.
const HASH: usize = 12;

/// The publisher.
pub(crate) struct TrustBundles {
    client: Client,
    clock: Clock,
    /// PEM of the authorities.
    bundle: String,
    bundles: Informer<ClusterTrustBundle>,
    counters: Arc<Counters>,
}

impl Controller for TrustBundles {
    const NAME: &'static str = "kube-apiserver-serving-clustertrustbundle-publisher-controller";
    const ACCOUNT: &'static str = "kube-apiserver-serving-clustertrustbundle-publisher";
    const QUEUE: &'static str = "ca_cert_publisher_cluster_trust_bundles";
    type Key = Key;

    fn wanted(shared: &Shared) -> bool {
        shared.config.gates.enabled(Gate::ClusterTrustBundle) && !shared.config.root_ca.is_empty()
    }

    fn new(host: &Host<Key>) -> Self {
        let counters = Arc::new(Counters::new(
            &[(SYNCS, &["code"], "[ALPHA] Number of syncs that occurred in cluster trust bundle publisher.")],
            &[(
                (SECONDS, &["code"], "[ALPHA] The time it took to sync a cluster trust bundle."),
                SHORT_SECONDS,
            )],
        ));
        let reported = counters.clone();
        host.metrics().register(Self::NAME, move |page| reported.report(page));
        let own = Selection { field_selector: format!("spec.signerName={SIGNER}"), ..Selection::default() };
        Self {
            client: host.client(),
            clock: host.clock(),
            bundle: host.config().root_ca.clone(),
            bundles: host.select(resource_of::<ClusterTrustBundle>(), own),
            counters,
        }
    }

    fn watch(self: &Arc<Self>, wiring: &Wiring<Key>) {
        // The one key stands for a look at all bundles of the signer.
        let queue = wiring.queue();
        queue.add(Key::new("", SIGNER));
        self.bundles.handle(move |_| queue.add(Key::new("", SIGNER)));
    }

    async fn sync(&self, _: Key) -> Result<Next, Status> {
        let begun = self.clock.monotonic();
        let mut done = Ok(Next::Done);
        for action in plan(&self.bundles.list(), &self.bundle) {
            let deletes = matches!(action, Action::Delete(_));
            if let Err(error) = self.execute(action).await {
                done = Err(error);
                // Older ones stay until the new one is there.
                if !deletes {
                    break;
                }
            }
        }
        let code = done.as_ref().map_or_else(|e| e.code.to_string(), |_| "200".to_owned());
        self.counters.add(SYNCS, &[&code], 1);
        self.counters.observe(SECONDS, &[&code], (self.clock.monotonic() - begun).as_secs_f64());
        done
    }
}

#[derive(Debug, PartialEq)]
enum Action {
    Create(ClusterTrustBundle),
    Update(ClusterTrustBundle),
    Delete(String),
}

impl TrustBundles {
    async fn execute(&self, action: Action) -> Result<(), Status> {
        let api = self.client.api::<ClusterTrustBundle>("");
        match action {
            Action::Create(bundle) => api.create(&bundle).await.map(drop),
            Action::Update(bundle) => api.update(&bundle).await.map(drop),
            Action::Delete(name) => match api.delete(&name, None).await {
                Err(e) if !e.is_not_found() => Err(e),
                _ => Ok(()),
            },
        }
    }
}

/// The name of the bundle's object.
fn name_of(bundle: &str) -> String {
    let mut name = SIGNER.replace('/', ":") + ":";
    for byte in &Sha256::digest(bundle)[..HASH] {
        // Writing to a String does not fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// The bundle is there before older ones go.
fn plan(known: &[Arc<ClusterTrustBundle>], bundle: &str) -> Vec<Action> {
    let name = name_of(bundle);
    let (own, others): (Vec<_>, Vec<_>) =
        known.iter().partition(|b| b.metadata.name.as_deref() == Some(&name));
    let first = match own.first() {
        None => Some(Action::Create(ClusterTrustBundle {
            metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() },
            spec: ClusterTrustBundleSpec {
                signer_name: Some(SIGNER.to_owned()),
                trust_bundle: bundle.to_owned(),
            },
        })),
        Some(own) if own.spec.trust_bundle != bundle => {
            let mut wanted = ClusterTrustBundle::clone(own);
            bundle.clone_into(&mut wanted.spec.trust_bundle);
            Some(Action::Update(wanted))
        }
        Some(_) => None,
    };
    let gone = others.into_iter().filter_map(|b| b.metadata.name.clone()).map(Action::Delete);
    first.into_iter().chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's 7 cases of `TestCTBPublisherSync`; bundles of other signers are not selected.
    #[test]
    fn upstreams_cases() {
        const BUNDLE: &str = "CA";
        let name = name_of(BUNDLE);
        assert!(name.starts_with("kubernetes.io:kube-apiserver-serving:") && name.len() == 37 + 2 * HASH);
        let make = |name: &str, content: &str| {
            Arc::new(ClusterTrustBundle {
                metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
                spec: ClusterTrustBundleSpec {
                    signer_name: Some(SIGNER.to_owned()),
                    trust_bundle: content.to_owned(),
                },
            })
        };
        let check = |known: &[(&str, &str)], want: &[Action]| {
            let known: Vec<_> = known.iter().map(|(name, content)| make(name, content)).collect();
            assert_eq!(plan(&known, BUNDLE), want, "{known:?}");
        };
        let own = ClusterTrustBundle::clone(&make(&name, BUNDLE));
        let (create, update) = (|| Action::Create(own.clone()), || Action::Update(own.clone()));
        let delete = || Action::Delete("other".to_owned());
        check(&[], &[create()]);
        check(&[(&name, "olddata")], &[update()]);
        check(&[(&name, BUNDLE), ("other", BUNDLE)], &[delete()]);
        check(&[(&name, "olddata"), ("other", BUNDLE)], &[update(), delete()]);
        check(&[("other", BUNDLE)], &[create(), delete()]);
        check(&[(&name, BUNDLE)], &[]);
    }
}
