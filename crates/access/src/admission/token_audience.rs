//! The audiences for which the volumes of a pod need tokens of its service account.

use api::{Object, Text};
use objects::migration::Plugin;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::reader::{Reader, read};

/// The parts of a pod that say on which node it runs and what its volumes need.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Pod {
    pub(super) spec: PodSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    pub(super) node_name: Text,
    volumes: Vec<Volume>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Volume {
    name: Text,
    projected: Option<Projected>,
    persistent_volume_claim: Option<Claim>,
    ephemeral: Option<IgnoredAny>,
    csi: Option<Csi>,
    #[serde(flatten)]
    in_tree: InTree,
}

/// The sources of plugins from which drivers took over.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct InTree {
    aws_elastic_block_store: Option<IgnoredAny>,
    azure_disk: Option<IgnoredAny>,
    azure_file: Option<IgnoredAny>,
    cinder: Option<IgnoredAny>,
    gce_persistent_disk: Option<IgnoredAny>,
    portworx_volume: Option<IgnoredAny>,
    vsphere_volume: Option<IgnoredAny>,
}

impl InTree {
    /// The driver of the volume.
    ///
    /// DIFFERENCE: upstream answers an error where the driver cannot have the volume, of which nothing is said here.
    fn driver(&self) -> Option<Text> {
        let sources = [
            (&self.aws_elastic_block_store, Plugin::AwsEbs),
            (&self.azure_disk, Plugin::AzureDisk),
            (&self.azure_file, Plugin::AzureFile),
            (&self.cinder, Plugin::Cinder),
            (&self.gce_persistent_disk, Plugin::GcePd),
            (&self.portworx_volume, Plugin::Portworx),
            (&self.vsphere_volume, Plugin::Vsphere),
        ];
        let (_, plugin) = sources.into_iter().find(|(source, _)| source.is_some())?;
        Some(plugin.driver().into())
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Projected {
    sources: Vec<Source>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Source {
    service_account_token: Option<Audience>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Audience {
    audience: Text,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Claim {
    claim_name: Text,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Csi {
    driver: Text,
}

/// Whether a volume of the pod, or the driver of one, asks for tokens for an audience.
pub(super) fn pod_needs(reader: &dyn Reader, object: &Object, pod: &Pod, audience: &str) -> bool {
    pod.spec.volumes.iter().any(|volume| {
        let projected = volume.projected.iter().flat_map(|p| &p.sources);
        if projected.filter_map(|s| s.service_account_token.as_ref()).any(|t| t.audience == audience) {
            return true;
        }
        let driver = if volume.ephemeral.is_some() {
            driver_of_claim(reader, &object.data.namespace, &format!("{}-{}", object.data.name, volume.name))
        } else if let Some(claim) = &volume.persistent_volume_claim {
            driver_of_claim(reader, &object.data.namespace, &claim.claim_name)
        } else {
            volume.csi.as_ref().map(|c| c.driver.clone()).or_else(|| volume.in_tree.driver())
        };
        driver.is_some_and(|driver| driver_needs(reader, &driver, audience))
    })
}

fn driver_of_claim(reader: &dyn Reader, namespace: &str, claim: &str) -> Option<Text> {
    #[derive(Deserialize)]
    struct Of<T> {
        spec: T,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ClaimSpec {
        volume_name: Text,
    }
    #[derive(Deserialize)]
    struct VolumeSpec {
        csi: Option<Csi>,
        #[serde(flatten)]
        in_tree: InTree,
    }
    let claim = reader.get(("", "persistentvolumeclaims"), namespace, claim)?;
    let name = read::<Of<ClaimSpec>>(&claim)?.spec.volume_name;
    let volume = reader.get(("", "persistentvolumes"), "", &name)?;
    let spec = read::<Of<VolumeSpec>>(&volume)?.spec;
    spec.csi.map(|csi| csi.driver).or_else(|| spec.in_tree.driver())
}

fn driver_needs(reader: &dyn Reader, driver: &str, audience: &str) -> bool {
    #[derive(Deserialize)]
    struct Driver {
        spec: Spec,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        #[serde(default)]
        token_requests: Vec<Audience>,
    }
    let driver = reader.get(("storage.k8s.io", "csidrivers"), "", driver);
    driver
        .and_then(|d| read::<Driver>(&d))
        .is_some_and(|d| d.spec.token_requests.iter().any(|t| t.audience == audience))
}
