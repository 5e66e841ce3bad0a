//! Volumes of plugins that were built into Kubernetes once, in the form of the CSI drivers that took over (upstream:
//! `csi-translation-lib`, `pkg/volume/csimigration`).
//!
//! The API keeps volumes as their users wrote them. A part that attaches, mounts, counts or places one reads it by [`as_csi`]
//! or [`inline_as_csi`], so that all agree on the driver, on its name of the volume and on the nodes that can have it.

mod back;
mod class;
mod error;
mod handles;
mod sources;
#[cfg(test)]
mod tests;
mod topology;

use std::borrow::Cow;
use std::collections::BTreeMap;

use api::go::quote;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeSpec, Volume};
use k8s_openapi::api::storage::v1::StorageClass;

pub use self::error::MigrationError;
use self::error::Result;

/// The annotation of a CSINode with the names of the plugins whose volumes the node's drivers have, with commas between.
pub const MIGRATED_PLUGINS: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// A plugin that was built in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Plugin {
    /// Disks of Amazon's Elastic Block Store: the source `awsElasticBlockStore`.
    AwsEbs,
    /// Disks of Azure: the source `azureDisk`.
    AzureDisk,
    /// Shares of files of Azure: the source `azureFile`.
    AzureFile,
    /// Volumes of `OpenStack`'s block storage: the source `cinder`.
    Cinder,
    /// Persistent disks of Google's Compute Engine: the source `gcePersistentDisk`.
    GcePd,
    /// Volumes of Portworx: the source `portworxVolume`.
    Portworx,
    /// Disks of `vSphere` virtual machines: the source `vsphereVolume`.
    Vsphere,
}

impl Plugin {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::AwsEbs,
        Self::AzureDisk,
        Self::AzureFile,
        Self::Cinder,
        Self::GcePd,
        Self::Portworx,
        Self::Vsphere,
    ];

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::AwsEbs => ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
            Self::AzureDisk => ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
            Self::AzureFile => ("kubernetes.io/azure-file", "file.csi.azure.com"),
            Self::Cinder => ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
            Self::GcePd => ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
            Self::Portworx => ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
            Self::Vsphere => ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
        }
    }

    /// Its name, as classes have it for a provisioner.
    pub fn name(self) -> &'static str {
        self.names().0
    }

    /// The driver that took over.
    pub fn driver(self) -> &'static str {
        self.names().1
    }

    /// That of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plugin| plugin.name() == name)
    }

    /// That from which a driver took over.
    pub fn before(driver: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plugin| plugin.driver() == driver)
    }

    /// That of a PersistentVolume; none if it has another source.
    pub fn of(volume: &PersistentVolume) -> Option<Self> {
        let spec = volume.spec.as_ref()?;
        let sources = [
            spec.aws_elastic_block_store.is_some(),
            spec.azure_disk.is_some(),
            spec.azure_file.is_some(),
            spec.cinder.is_some(),
            spec.gce_persistent_disk.is_some(),
            spec.portworx_volume.is_some(),
            spec.vsphere_volume.is_some(),
        ];
        first(sources)
    }

    /// That of a Pod's volume; none if it has another source.
    pub fn of_inline(volume: &Volume) -> Option<Self> {
        let sources = [
            volume.aws_elastic_block_store.is_some(),
            volume.azure_disk.is_some(),
            volume.azure_file.is_some(),
            volume.cinder.is_some(),
            volume.gce_persistent_disk.is_some(),
            volume.portworx_volume.is_some(),
            volume.vsphere_volume.is_some(),
        ];
        first(sources)
    }

    /// Whether the scheduler asks its driver where volumes may be, and how many of them a node takes; upstream's list.
    pub fn is_scheduled(self) -> bool {
        !matches!(self, Self::AzureFile | Self::Vsphere)
    }
}

fn first(sources: [bool; 7]) -> Option<Plugin> {
    sources.into_iter().zip(Plugin::ALL).find(|(there, _)| *there).map(|(_, plugin)| plugin)
}

/// A PersistentVolume as its driver has it: itself, unless a driver took over from its plugin.
///
/// # Errors
/// A driver took over, and cannot have this volume.
pub fn as_csi(volume: &PersistentVolume) -> Result<Cow<'_, PersistentVolume>> {
    match Plugin::of(volume) {
        Some(plugin) => plugin.as_csi(volume).map(Cow::Owned),
        None => Ok(Cow::Borrowed(volume)),
    }
}

/// A Pod's volume as the PersistentVolume that its driver is given; none if no driver took over from a plugin of it. The
/// name of what is answered is unique to the disk, and none that the API knows.
///
/// # Errors
/// A driver took over, and cannot have this volume.
pub fn inline_as_csi(volume: &Volume, namespace: &str) -> Result<Option<PersistentVolume>> {
    Plugin::of_inline(volume).map(|plugin| plugin.inline_as_csi(volume, namespace)).transpose()
}

/// A PersistentVolume of a driver as the plugin had it from which the driver took over.
///
/// # Errors
/// There was none, or it cannot have had this volume.
pub fn as_in_tree(volume: &PersistentVolume) -> Result<PersistentVolume> {
    let source = volume.spec.as_ref().and_then(|s| s.csi.as_ref());
    let driver = &source.ok_or(MigrationError::Other("CSI persistent volume was nil"))?.driver;
    let unknown = MigrationError::Unknown { what: "in-tree plugin translation logic", name: driver.clone() };
    Plugin::before(driver).ok_or(unknown)?.as_in_tree(volume)
}

/// A class of a plugin as the plugin's driver reads it.
///
/// # Errors
/// There is no such plugin, or the class contradicts itself.
pub fn class_as_csi(plugin: &str, class: &StorageClass) -> Result<StorageClass> {
    let unknown = MigrationError::Unknown {
        what: "in-tree storage class parameter translation logic",
        name: quote(plugin),
    };
    Plugin::named(plugin).ok_or(unknown)?.class_as_csi(class)
}

/// A driver's whole name of a volume, where the project and zone of the node fill what it leaves open.
///
/// # Errors
/// No plugin was before the driver, or the names are of another form.
pub fn repaired_handle(driver: &str, handle: &str, node: &str) -> Result<String> {
    let unknown =
        MigrationError::Unknown { what: "In-Tree driver name", name: format!("CSI plugin {driver}") };
    match Plugin::before(driver).ok_or(unknown)? {
        Plugin::GcePd => handles::repaired_gce(handle, node),
        _ => Ok(handle.to_owned()),
    }
}

/// A text that Go leaves out where it is empty.
fn said(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn spec_of(volume: &PersistentVolume, other: &'static str) -> Result<PersistentVolumeSpec> {
    volume.spec.clone().ok_or(MigrationError::Other(other))
}

/// Names with values, where Go leaves an empty map out.
fn filled(map: BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    Some(map).filter(|map| !map.is_empty())
}
