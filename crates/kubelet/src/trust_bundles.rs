//! ClusterTrustBundles for volumes (upstream: `pkg/kubelet/clustertrustbundle`).
//!
//! They are followed from the moment at which the first Pod asks for one: few clusters have any, and each node that
//! follows them has all of them.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use api::pem;
use client::{Change, Client, Informer, Selection};
use component::Shutdown;
use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{ClusterTrustBundleProjection, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use objects::labels::{Selector, SelectorError};

use crate::config::Config;
use crate::pods::spec;
use crate::pods::workers::Workers;

/// How long the first answer of the API server is waited for.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// The longest text of a selector, in bytes.
const MAX_SELECTOR: usize = 100 * 1024;

/// Why there are no trust anchors; upstream's texts.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TrustError {
    /// The feature is off.
    #[error("ClusterTrustBundle projection is not supported in static kubelet mode")]
    Unsupported,
    /// The API server did not answer yet.
    #[error("ClusterTrustBundle informer has not yet synced")]
    NotSynced,
    /// There is none of the name.
    #[error("while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io {0:?} not found")]
    Missing(String),
    /// The selector is wrong.
    #[error("while parsing label selector: {0}")]
    Selector(#[from] SelectorError),
    /// The selector is too long.
    #[error("label selector length ({0}) is larger than {MAX_SELECTOR}")]
    Long(usize),
    /// There is none of the signer that the selector selects.
    #[error("combination of signerName and labelSelector matched zero ClusterTrustBundles")]
    NoneOfSigner,
    /// The source says neither which one nor whose.
    #[error("ClusterTrustBundle projection requires either name or signerName to be set")]
    Neither,
}

/// The ClusterTrustBundles of the cluster; nothing where the feature is off.
///
/// DIFFERENCE: upstream's kubelet looks once which version the API server has, and gives up if it has none. This one
/// knows v1beta1, and waits for it.
pub(crate) struct TrustBundles(Option<Followed>);

struct Followed {
    bundles: Informer<ClusterTrustBundle>,
    /// Decides the order of anchors.
    order: RandomState,
    shutdown: Shutdown,
}

impl TrustBundles {
    /// Nothing is asked for yet. `workers` look at their volumes again when a bundle of theirs changes.
    pub(crate) fn new(config: &Config, client: &Client, workers: Arc<Workers>, shutdown: &Shutdown) -> Self {
        if !config.trust_bundles || config.standalone {
            return Self(None);
        }
        let bundles: Informer<ClusterTrustBundle> = Informer::new(client, Selection::default());
        bundles.handle(move |change| {
            for worker in workers.all().iter().filter(|worker| concerns(change, &worker.pod())) {
                worker.wake.notify_one();
            }
        });
        Self(Some(Followed { bundles, order: RandomState::new(), shutdown: shutdown.clone() }))
    }

    /// The trust anchors that a source of a volume names, in PEM.
    ///
    /// # Errors
    /// There are none, and the source wants some.
    pub(crate) async fn anchors(&self, source: &ClusterTrustBundleProjection) -> Result<String, TrustError> {
        let followed = self.0.as_ref().ok_or(TrustError::Unsupported)?;
        // It is started once.
        followed.bundles.start(&followed.shutdown);
        let synced = tokio::time::timeout(FIRST_ANSWER, followed.bundles.synced()).await;
        synced.map_err(|_| TrustError::NotSynced)?;
        let optional = source.optional == Some(true);
        if let Some(name) = &source.name {
            let bundle = followed.bundles.get("", name);
            return of_name(bundle.as_deref(), name, optional, &followed.order);
        }
        let signer = source.signer_name.as_deref().ok_or(TrustError::Neither)?;
        of_signer(&followed.bundles.list(), signer, source.label_selector.as_ref(), optional, &followed.order)
    }
}

/// Whether a Pod has a volume in which the bundle that changed is, or was.
fn concerns(change: &Change<ClusterTrustBundle>, pod: &Pod) -> bool {
    let sources = spec::spec(pod)
        .volumes
        .iter()
        .flatten()
        .filter_map(|v| v.projected.as_ref())
        .flat_map(|p| p.sources.iter().flatten());
    sources.filter_map(|source| source.cluster_trust_bundle.as_ref()).any(|source| {
        change.states().any(|bundle| match &source.name {
            Some(name) => bundle.metadata.name.as_ref() == Some(name),
            None => source.signer_name.as_deref() == bundle.spec.signer_name.as_deref(),
        })
    })
}

fn of_name(
    bundle: Option<&ClusterTrustBundle>,
    name: &str,
    optional: bool,
    order: &RandomState,
) -> Result<String, TrustError> {
    match bundle {
        Some(bundle) => Ok(normalize([bundle.spec.trust_bundle.as_str()], order)),
        None if optional => Ok(String::new()),
        None => Err(TrustError::Missing(name.to_owned())),
    }
}

fn of_signer(
    all: &[Arc<ClusterTrustBundle>],
    signer: &str,
    selector: Option<&LabelSelector>,
    optional: bool,
    order: &RandomState,
) -> Result<String, TrustError> {
    // An absent selector selects nothing, an empty one everything.
    let selector = Selector::new(selector)?;
    let length = selector.to_string().len();
    if length > MAX_SELECTOR {
        return Err(TrustError::Long(length));
    }
    let chosen: Vec<&str> = all
        .iter()
        .filter(|b| b.spec.signer_name.as_deref().unwrap_or_default() == signer)
        .filter(|b| selector.matches(b.metadata.labels.as_ref()))
        .map(|b| b.spec.trust_bundle.as_str())
        .collect();
    if chosen.is_empty() && !optional {
        return Err(TrustError::NoneOfSigner);
    }
    Ok(normalize(chosen, order))
}

/// Each certificate of bundles once, in an order that is the same as long as this process runs and that nobody can
/// rely on.
fn normalize<'b>(bundles: impl IntoIterator<Item = &'b str>, order: &RandomState) -> String {
    let all: BTreeSet<Vec<u8>> = bundles.into_iter().flat_map(pem::certificates).collect();
    let mut all: Vec<Vec<u8>> = all.into_iter().collect();
    all.sort_by_cached_key(|certificate| order.hash_one(certificate));
    all.iter().map(|der| pem::encode_certificate(der)).collect()
}

#[cfg(test)]
mod tests;
