//! The provisioner of volumes in directories of nodes, so that a claim on a fresh cluster is bound
//! ([`objects::local_path`] says how it and the nodes' agents work together).
//!
//! A volume is made once the scheduler has chosen a node for a claim's first Pod. When a volume is not needed any more,
//! its deletion begins first, so that no claim gets it again; then its node removes the content; then a finalizer goes,
//! and the volume with it. Events are those of `sig-storage-lib-external-provisioner`.

mod plan;

use std::fmt;
use std::sync::Arc;

use api::Status;
use client::{Cached, Change, Client, EventType, Index, Informer, Key, Patch, Queue, Recorder};
use compact_str::CompactString as Text;
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume as Volume, PersistentVolumeClaim as Claim,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use objects::local_path::{self, CLASS, PROVISIONER, REMOVE};
use objects::volumes::{SELECTED_NODE, WAIT_FOR_CONSUMER, claim_class};
use serde_json::json;

use self::plan::{ForClaim, ForVolume};
use crate::host::{Controller, Host, Next, Shared, Wiring};
use crate::persistent_volumes::{DEFAULT_CLASS, annotate, annotation, key_of, name, namespace, unannotate};
use crate::views::{NodeView, nodes};

/// The namespace whose annotation tells that the class was made.
const SYSTEM: &str = "kube-system";
/// The annotation of [`SYSTEM`] that tells that the class was made once: it is the users' from then on.
const CLASS_MADE: &str = "ferrokube.io/local-path-class";

/// The object of a look.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Look {
    /// The class.
    Class,
    /// A claim.
    Claim(Key),
    /// A volume.
    Volume(Text),
    /// A node.
    Node(Text),
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class => f.write_str("class"),
            Self::Claim(key) => write!(f, "claim {key}"),
            Self::Volume(name) => write!(f, "volume {name}"),
            Self::Node(name) => write!(f, "node {name}"),
        }
    }
}

/// The provisioner.
pub(crate) struct LocalPath {
    client: Client,
    recorder: Recorder,
    claims: Informer<Claim>,
    volumes: Informer<Volume>,
    classes: Informer<StorageClass>,
    nodes: Informer<NodeView>,
    /// Its own volumes, by their nodes.
    on_node: Index<Volume>,
    queue: Queue<Look>,
}

impl Controller for LocalPath {
    const NAME: &'static str = "local-path-provisioner-controller";
    const ACCOUNT: &'static str = "local-path-provisioner";
    const QUEUE: &'static str = "local_path";
    type Key = Look;

    fn wanted(shared: &Shared) -> bool {
        shared.config.local_path
    }

    fn new(host: &Host<Self::Key>) -> Self {
        let volumes: Informer<Volume> = host.informer();
        let of_node = |v: &Volume| if plan::is_ours(v) { vec![plan::node_of(v).into()] } else { Vec::new() };
        Self {
            client: host.client(),
            recorder: host.recorder(PROVISIONER),
            claims: host.informer(),
            on_node: volumes.index("local-path-node", of_node),
            volumes,
            classes: host.informer(),
            nodes: nodes(host.factory()),
            queue: host.main_queue(),
        }
    }

    fn watch(self: &Arc<Self>, _wiring: &Wiring<Look>) {
        self.queue.add(Look::Class);
        let queue = self.queue.clone();
        self.claims.handle(move |change| {
            if !matches!(change, Change::Deleted(_)) {
                queue.add(Look::Claim(change.object().key()));
            }
        });
        let queue = self.queue.clone();
        self.volumes.handle(move |change| {
            let volume = change.object();
            if plan::is_ours(volume) {
                queue.add(Look::Volume(volume.name().into()));
                queue.add(Look::Node(plan::node_of(volume).into()));
            }
        });
        let c = self.clone();
        self.classes.handle(move |change| {
            let named = change.object().name();
            for claim in c.claims.list().iter().filter(|claim| claim_class(claim) == named) {
                c.queue.add(Look::Claim(claim.key()));
            }
        });
        let c = self.clone();
        self.nodes.handle(move |change| c.node_changed(change));
    }

    async fn sync(&self, look: Look) -> Result<Next, Status> {
        match look {
            Look::Class => self.make_class().await,
            Look::Claim(key) => self.provision(&key).await,
            Look::Volume(name) => self.look_at_volume(&name).await,
            Look::Node(name) => self.ask_node(&name).await,
        }
        .map(|()| Next::Done)
    }
}

impl LocalPath {
    fn node_changed(&self, change: &Change<NodeView>) {
        if let Change::Updated { old, new } = change
            && old.metadata.annotations == new.metadata.annotations
        {
            return;
        }
        let name = change.object().name();
        self.queue.add(Look::Node(name.into()));
        let all = self.on_node.get(name);
        all.iter().filter(|v| plan::is_due(v)).for_each(|v| self.queue.add(Look::Volume(v.name().into())));
    }

    /// Makes the class in a cluster that never had it. One that a user changed or removed stays so.
    async fn make_class(&self) -> Result<(), Status> {
        let namespaces = self.client.api::<Namespace>("");
        if annotation(&namespaces.get(SYSTEM).await?.metadata, CLASS_MADE).is_some() {
            return Ok(());
        }
        let mut metadata = ObjectMeta { name: Some(CLASS.to_owned()), ..ObjectMeta::default() };
        let [mark, _] = DEFAULT_CLASS;
        annotate(&mut metadata, mark, "true");
        let class = StorageClass {
            metadata,
            provisioner: PROVISIONER.to_owned(),
            reclaim_policy: Some("Delete".to_owned()),
            volume_binding_mode: Some(WAIT_FOR_CONSUMER.to_owned()),
            ..StorageClass::default()
        };
        match self.client.api::<StorageClass>("").create(&class).await {
            Err(e) if !e.is_already_exists() => return Err(e),
            _ => {}
        }
        let patch = Patch::Merge(json!({"metadata": {"annotations": {CLASS_MADE: "made"}}}));
        namespaces.patch(SYSTEM, &patch).await.map(drop)
    }

    async fn provision(&self, key: &Key) -> Result<(), Status> {
        let Some(claim) = self.claims.get_key(key) else { return Ok(()) };
        let class = self.classes.get("", claim_class(&claim));
        let volume = match plan::claim(&claim, class.as_deref(), |name| self.nodes.get("", name)) {
            ForClaim::Nothing => return Ok(()),
            ForClaim::Make(volume) => volume,
            ForClaim::Refuse { why, elsewhere } => return self.refuse(&claim, &why, elsewhere).await,
        };
        let named = name(&volume.metadata);
        if self.volumes.get("", named).is_some() {
            return Ok(());
        }
        let normal =
            |reason, message: String| self.recorder.event(&*claim, EventType::Normal, reason, message);
        let key = key_of(&claim);
        normal("Provisioning", format!("External provisioner is provisioning volume for claim {key:?}"));
        match self.client.api::<Volume>("").create(&volume).await {
            Ok(_) => normal("ProvisioningSucceeded", format!("Successfully provisioned volume {named}")),
            Err(e) if e.is_already_exists() => {}
            Err(e) => {
                self.tell_failure(&claim, &e.message);
                return Err(e);
            }
        }
        Ok(())
    }

    fn tell_failure(&self, claim: &Claim, why: &str) {
        let class = claim_class(claim);
        let message = format!("failed to provision volume with StorageClass {class:?}: {why}");
        self.recorder.event(claim, EventType::Warning, "ProvisioningFailed", message);
    }

    /// Tells that a claim gets no volume, on its node or at all.
    async fn refuse(&self, claim: &Claim, why: &str, elsewhere: bool) -> Result<(), Status> {
        self.tell_failure(claim, why);
        let mut free = claim.clone();
        if !elsewhere || !unannotate(&mut free.metadata, SELECTED_NODE) {
            return Ok(());
        }
        self.client.api::<Claim>(namespace(&claim.metadata)).update(&free).await.map(drop)
    }

    async fn look_at_volume(&self, named: &str) -> Result<(), Status> {
        let Some(volume) = self.volumes.get("", named) else { return Ok(()) };
        let node = self.nodes.get("", plan::node_of(&volume));
        let volumes = self.client.api::<Volume>("");
        match plan::for_volume(&volume, node.as_deref()) {
            ForVolume::Nothing => Ok(()),
            ForVolume::Ask => {
                self.queue.add(Look::Node(plan::node_of(&volume).into()));
                Ok(())
            }
            ForVolume::Delete => {
                // A claim may have got it since: then it has another resourceVersion.
                let seen = Preconditions {
                    uid: volume.metadata.uid.clone(),
                    resource_version: volume.metadata.resource_version.clone(),
                };
                let options = DeleteOptions { preconditions: Some(seen), ..DeleteOptions::default() };
                gone(volumes.delete(named, Some(&options)).await)
            }
            ForVolume::Finalizers(all) => {
                let mut changed = (*volume).clone();
                changed.metadata.finalizers = Some(all);
                gone(volumes.update(&changed).await.map(drop))
            }
        }
    }

    /// Asks a node to remove what it has of volumes that are not needed any more.
    async fn ask_node(&self, named: &str) -> Result<(), Status> {
        let Some(node) = self.nodes.get("", named) else { return Ok(()) };
        let volumes = self.on_node.get(named);
        let Some(wanted) = plan::for_node(&node, volumes.iter().map(Arc::as_ref)) else { return Ok(()) };
        let patch = json!({"metadata": {"annotations": {REMOVE: local_path::text(&wanted)}}});
        gone(self.client.api::<Node>("").patch(named, &Patch::Merge(patch)).await.map(drop))
    }
}

/// Takes an object that is gone for done.
fn gone(answer: Result<(), Status>) -> Result<(), Status> {
    answer.or_else(|e| if e.is_not_found() { Ok(()) } else { Err(e) })
}
