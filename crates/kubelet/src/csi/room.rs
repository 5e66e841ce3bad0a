//! The things that all work on volumes of drivers shares: the node, its drivers and their rules, and the volumes as they are.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Informer};
use component::Turns;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use super::attached::InUse;
use super::drivers::Drivers;
use super::error::Why;
use super::record::{Places, attachment_name};
use super::volume::{Key, Rules, SecretName, Texts, Wanted, pod_info};
use crate::node::NodeView;
use crate::users::Users;
use crate::volumes::giving::Giver;
use crate::volumes::growth::Sizes;
use crate::volumes::selinux::{Labels, Wearers};
use crate::volumes::tokens::Issuer;

/// How long an answer of the API server is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// The parts of a kubelet that the work on volumes of drivers needs.
pub(crate) struct Given {
    /// Requests with the node's identity.
    pub(crate) client: Client,
    /// The node's name.
    pub(crate) node_name: String,
    /// The node.
    pub(crate) node: NodeView,
    /// Its drivers.
    pub(crate) drivers: Drivers,
    /// The rules of all drivers; nobody fills it where there is no API server.
    pub(crate) rules: Informer<CSIDriver>,
    /// Whether there is no API server.
    pub(crate) standalone: bool,
    /// The kubelet's root directory.
    pub(crate) root: PathBuf,
    /// Tokens of Pods for drivers.
    pub(crate) tokens: Issuer,
    /// Gives files to groups.
    pub(crate) giver: Giver,
    /// Whether the controller manager attaches volumes, and not this kubelet.
    pub(crate) controller_attaches: bool,
    /// Whether conditions of volumes are told; upstream's gate `CSIVolumeHealth`.
    pub(crate) volume_health: bool,
    /// The node's SELinux.
    pub(crate) labels: Arc<Labels>,
}

/// The room in which volumes of drivers are worked on.
pub(crate) struct Room {
    /// Requests with the node's identity.
    pub(super) client: Client,
    /// The node's name.
    pub(super) node_name: String,
    /// The node.
    pub(super) node: NodeView,
    /// Its drivers.
    pub(super) drivers: Drivers,
    /// The rules of all drivers; nobody fills it where there is no API server.
    pub(super) rules: Informer<CSIDriver>,
    /// Whether there is no API server.
    standalone: bool,
    /// Where volumes are.
    pub(super) places: Places,
    /// The volumes that the Node tells of.
    pub(super) in_use: Arc<InUse>,
    /// Tokens of Pods for drivers.
    pub(super) tokens: Issuer,
    /// Gives files to groups.
    pub(super) giver: Giver,
    /// Whether the controller manager attaches volumes, and not this kubelet.
    pub(super) controller_attaches: bool,
    /// Whether conditions of volumes are told; upstream's gate `CSIVolumeHealth`.
    pub(super) volume_health: bool,
    /// The SELinux labels of the volumes that Pods are to have.
    pub(super) wearers: Wearers<Key>,
    /// One thing at a time is done to a volume.
    turns: Turns<Key>,
    /// The Pods that are to have a volume, from before it is staged.
    pub(super) users: Users<Key>,
    /// The volumes that this process has staged.
    pub(super) staged: Mutex<HashSet<Key>>,
    /// The volumes that may grow.
    pub(super) sizes: Sizes<Key>,
}

impl Room {
    /// Nothing is there yet.
    pub(crate) fn new(given: Given, in_use: Arc<InUse>) -> Self {
        InUse::follow(&in_use, &given.rules);
        Self {
            client: given.client,
            node_name: given.node_name,
            node: given.node,
            drivers: given.drivers,
            rules: given.rules,
            standalone: given.standalone,
            places: Places { root: given.root },
            in_use,
            tokens: given.tokens,
            giver: given.giver,
            controller_attaches: given.controller_attaches,
            volume_health: given.volume_health,
            wearers: Wearers::new(&given.labels),
            turns: Turns::default(),
            users: Users::default(),
            staged: Mutex::default(),
            sizes: Sizes::default(),
        }
    }

    /// Waits for the turn to change a volume.
    pub(super) async fn turn(&self, driver: &str, handle: &str) -> OwnedMutexGuard<()> {
        self.turns.take((driver.to_owned(), handle.to_owned())).await
    }

    /// The rules of a driver.
    ///
    /// # Errors
    /// They are not known yet.
    pub(super) async fn rules(&self, driver: &str) -> Result<Rules, String> {
        if self.standalone {
            return Ok(Rules::of(None));
        }
        let known = timeout(PATIENCE, self.rules.synced()).await;
        known
            .map_err(|_| "failed to sync CSIDriver cache: timed out waiting for the condition".to_owned())?;
        Ok(Rules::of(self.rules.get("", driver).map(|d| d.spec.clone()).as_ref()))
    }

    /// The content of a Secret.
    pub(super) async fn secret(&self, name: Option<&SecretName>, what: &str) -> Result<Texts, Why> {
        let Some((namespace, name)) = name else { return Ok(Texts::new()) };
        let found = timeout(PATIENCE, self.client.api::<Secret>(namespace).get(name)).await;
        let why = |error: String| {
            Why::Text(format!(
                "fetching {what} {namespace}/{name} failed: kubernetes.io/csi: failed to find the secret {name} in the namespace {namespace} with error: {error}"
            ))
        };
        let found =
            found.map_err(|_| why("context deadline exceeded".into()))?.map_err(|e| why(e.message))?;
        let data = found.data.unwrap_or_default().into_iter();
        data.map(|(key, value)| match String::from_utf8(value.0) {
            Ok(value) => Ok((key, value)),
            // The protocol has texts only.
            Err(_) => Err(why(format!("the value of {key:?} is not text"))),
        })
        .collect()
    }

    /// The metadata of a volume's attachment to this node.
    pub(super) async fn attachment(&self, wanted: &Wanted) -> Result<Texts, String> {
        let name = attachment_name(&wanted.handle, &wanted.driver, &self.node_name);
        let handle = &wanted.handle;
        let got = timeout(PATIENCE, self.client.api::<VolumeAttachment>("").get(&name)).await;
        let failed =
            |error: &str| format!("volume {handle} has GET error for volume attachment {name}: {error}");
        let got = got.map_err(|_| failed("context deadline exceeded"))?.map_err(|e| failed(&e.message))?;
        if got.metadata.deletion_timestamp.is_some() {
            return Err("volume attachment is being deleted".into());
        }
        let status = got.status.unwrap_or_default();
        if status.attached {
            return Ok(status.attachment_metadata.unwrap_or_default());
        }
        Err(match status.attach_error {
            Some(error) => error.message.unwrap_or_default(),
            None => format!("volume {handle} is not attached for volume attachment {name}"),
        })
    }

    /// The attributes and secrets with which a volume is published for a Pod.
    pub(super) async fn publication(
        &self,
        pod: &Pod,
        wanted: &Wanted,
        rules: &Rules,
    ) -> Result<(Texts, Texts), Why> {
        let mut secrets = self.secret(wanted.publish_secret.as_ref(), "NodePublishSecretRef").await?;
        let mut attributes = wanted.attributes.clone();
        if rules.pod_info {
            attributes.extend(pod_info(pod, wanted));
        }
        // A device gets no tokens, as with upstream's kubelet.
        if !rules.tokens.is_empty() && !wanted.block {
            let mut tokens = serde_json::Map::new();
            for (audience, seconds) in &rules.tokens {
                let token =
                    self.tokens.token(pod, audience, seconds.unwrap_or(3600)).await.map_err(|error| {
                        Why::at("mounter.SetUpAt failed to get service accoount token attributes", error)
                    })?;
                let expires = objects::time::text(token.expires);
                tokens
                    .insert(audience.clone(), json!({ "token": token.text, "expirationTimestamp": expires }));
            }
            let to = if rules.tokens_in_secrets { &mut secrets } else { &mut attributes };
            let tokens = serde_json::Value::Object(tokens).to_string();
            to.insert("csi.storage.k8s.io/serviceAccount.tokens".into(), tokens);
        }
        Ok((attributes, secrets))
    }

    /// Forgets a volume that no Pod of this node has.
    pub(super) fn forget(&self, key: &Key) {
        self.staged.lock().remove(key);
        self.sizes.forget(key);
    }
}
