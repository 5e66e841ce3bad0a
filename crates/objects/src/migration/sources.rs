//! Volumes of plugins as their drivers have them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    AWSElasticBlockStoreVolumeSource, AzureDiskVolumeSource, CSIPersistentVolumeSource,
    GCEPersistentDiskVolumeSource, PersistentVolume, PersistentVolumeSpec, SecretReference, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::topology::{self, BETA_ZONE, DELIMITER, ZONE};
use super::{MigrationError, Plugin, Result, filled, handles, said, spec_of};

/// The keys by which drivers name zones.
pub(super) const AWS_ZONE: &str = "topology.ebs.csi.aws.com/zone";
pub(super) const AZURE_ZONE: &str = "topology.disk.csi.azure.com/zone";
pub(super) const CINDER_ZONE: &str = "topology.cinder.csi.openstack.org/zone";
pub(super) const GCE_ZONE: &str = "topology.gke.io/zone";
pub(super) const VSPHERE_ZONE: &str = "topology.csi.vmware.com/zone";
pub(super) const VSPHERE_REGION: &str = "topology.csi.vmware.com/region";

/// Attributes of volumes.
pub(super) const PARTITION: &str = "partition";
pub(super) const KIND: &str = "kind";
pub(super) const MANAGED: &str = "Managed";
pub(super) const CACHING: &str = "cachingmode";
pub(super) const FS_TYPE: &str = "fstype";
pub(super) const SHARE: &str = "sharename";
pub(super) const STORAGE_POLICY: &str = "storagepolicyname";
/// Annotations.
pub(super) const RESOURCE_GROUP: &str = "kubernetes.io/azure-file-resource-group";
pub(super) const PORTWORX_SECRET: &str = "openstorage.io/auth-secret-name";
pub(super) const PORTWORX_NAMESPACE: &str = "openstorage.io/auth-secret-namespace";

const ONCE: &str = "ReadWriteOnce";
const MANY: &str = "ReadWriteMany";
const READ: &str = "ReadOnlyMany";

/// A volume of a driver without secrets.
fn source(
    driver: &str,
    handle: String,
    (read_only, fs_type): (Option<bool>, Option<&String>),
    attributes: BTreeMap<String, String>,
) -> CSIPersistentVolumeSource {
    CSIPersistentVolumeSource {
        driver: driver.to_owned(),
        volume_handle: handle,
        read_only: read_only.filter(|only| *only),
        fs_type: fs_type.filter(|t| !t.is_empty()).cloned(),
        volume_attributes: filled(attributes),
        ..CSIPersistentVolumeSource::default()
    }
}

fn attribute(name: &str, value: String) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), value)])
}

fn aws(of: &AWSElasticBlockStoreVolumeSource) -> Result<CSIPersistentVolumeSource> {
    let handle = handles::ebs(&of.volume_id).map_err(MigrationError::Ebs)?;
    let partition = attribute(PARTITION, of.partition.unwrap_or(0).to_string());
    Ok(source(Plugin::AwsEbs.driver(), handle, (of.read_only, of.fs_type.as_ref()), partition))
}

/// `empty`: whether a mode of caching without a name is passed on.
fn azure(of: &AzureDiskVolumeSource, empty: bool) -> Result<CSIPersistentVolumeSource> {
    if let Some(kind) = of.kind.as_ref().filter(|kind| !kind.eq_ignore_ascii_case(MANAGED)) {
        return Err(MigrationError::Kind(kind.clone()));
    }
    let mut attributes = attribute(KIND, MANAGED.to_owned());
    if let Some(mode) = of.caching_mode.as_ref().filter(|mode| empty || !mode.is_empty()) {
        attributes.insert(CACHING.to_owned(), mode.clone());
    }
    if let Some(fs_type) = &of.fs_type {
        attributes.insert(FS_TYPE.to_owned(), fs_type.clone());
    }
    let (driver, how) = (Plugin::AzureDisk.driver(), (of.read_only, of.fs_type.as_ref()));
    Ok(source(driver, of.disk_uri.clone(), how, attributes))
}

/// A share by its group of resources, and a name that is no other's in the namespace.
fn share(
    (group, secret, share): (&str, &str, &str),
    (name, namespace): (&str, &str),
    read_only: Option<bool>,
) -> CSIPersistentVolumeSource {
    let account = handles::azure_account(secret).unwrap_or_else(|_| secret.to_owned());
    let handle = format!("{group}#{account}#{share}#{name}#{namespace}");
    let secret = SecretReference { name: said(secret), namespace: said(namespace) };
    let shared = attribute(SHARE, share.to_owned());
    CSIPersistentVolumeSource {
        node_stage_secret_ref: Some(secret),
        ..source(Plugin::AzureFile.driver(), handle, (read_only, None), shared)
    }
}

fn gce(of: &GCEPersistentDiskVolumeSource, zones: &[&str]) -> Result<CSIPersistentVolumeSource> {
    let partition = of.partition.filter(|p| *p != 0).map(|p| p.to_string()).unwrap_or_default();
    let handle = handles::gce(zones, &of.pd_name)?;
    let how = (of.read_only, of.fs_type.as_ref());
    Ok(source(Plugin::GcePd.driver(), handle, how, attribute(PARTITION, partition)))
}

/// The modes in which a disk of Google's may be used. The plugin looked at none, so that one that many may write is, and
/// was, written by one node.
pub(super) fn gce_modes(modes: &[String]) -> Vec<String> {
    let read = modes.iter().any(|m| m == READ);
    let write = modes.iter().any(|m| m == ONCE || m == MANY);
    vec![if read && !write { READ } else { ONCE }.to_owned()]
}

impl Plugin {
    /// A PersistentVolume of the plugin as its driver has it.
    ///
    /// # Errors
    /// It is not the plugin's, or the driver cannot have it.
    pub fn as_csi(self, volume: &PersistentVolume) -> Result<PersistentVolume> {
        match self {
            Self::AwsEbs => aws_volume(volume),
            Self::AzureDisk => azure_volume(volume),
            Self::AzureFile => share_volume(volume),
            Self::Cinder => cinder_volume(volume),
            Self::GcePd => gce_volume(volume),
            Self::Portworx => portworx_volume(volume),
            Self::Vsphere => vsphere_volume(volume),
        }
    }

    /// A Pod's volume of the plugin as the PersistentVolume that its driver is given. Only shares of Azure's depend on the
    /// Pod's namespace, which has their Secret.
    ///
    /// # Errors
    /// It is not the plugin's, or the driver cannot have it.
    pub fn inline_as_csi(self, volume: &Volume, namespace: &str) -> Result<PersistentVolume> {
        let (name, source, mode) = self.inline(volume, namespace)?;
        Ok(PersistentVolume {
            metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() },
            spec: Some(PersistentVolumeSpec {
                csi: Some(source),
                access_modes: Some(vec![mode.to_owned()]),
                // It is never a device.
                volume_mode: Some("Filesystem".to_owned()),
                ..PersistentVolumeSpec::default()
            }),
            ..PersistentVolume::default()
        })
    }

    /// The name of an inline volume, its source and the mode in which it may be used.
    fn inline(
        self,
        volume: &Volume,
        namespace: &str,
    ) -> Result<(String, CSIPersistentVolumeSource, &'static str)> {
        use MigrationError::Other;
        let driver = self.driver();
        let by_use = |read_only: Option<bool>| if read_only == Some(true) { READ } else { ONCE };
        let named = |of: &str| format!("{driver}-{of}");
        Ok(match self {
            Self::AwsEbs => {
                let of = volume.aws_elastic_block_store.as_ref();
                let of = aws(of.ok_or(Other("volume is nil or AWS EBS not defined on volume"))?)?;
                (named(&of.volume_handle), of, ONCE)
            }
            Self::AzureDisk => {
                let of = volume.azure_disk.as_ref();
                let of = of.ok_or(Other("volume is nil or Azure Disk not defined on volume"))?;
                (of.disk_uri.clone(), azure(of, false)?, ONCE)
            }
            Self::AzureFile => {
                let of = volume.azure_file.as_ref();
                let of = of.ok_or(Other("volume is nil or Azure File not defined on volume"))?;
                let namespace = if namespace.is_empty() { "default" } else { namespace };
                let at = ("", of.secret_name.as_str(), of.share_name.as_str());
                let of = share(at, (&volume.name, namespace), of.read_only);
                (of.volume_handle.clone(), of, MANY)
            }
            Self::Cinder => {
                let of = volume.cinder.as_ref();
                let of = of.ok_or(Other("volume is nil or Cinder not defined on volume"))?;
                let how = (of.read_only, of.fs_type.as_ref());
                (named(&of.volume_id), source(driver, of.volume_id.clone(), how, BTreeMap::new()), ONCE)
            }
            Self::GcePd => {
                let of = volume.gce_persistent_disk.as_ref();
                let of = of.ok_or(Other("volume is nil or GCE PD not defined on volume"))?;
                (named(&of.pd_name), gce(of, &[])?, by_use(of.read_only))
            }
            Self::Portworx => {
                let of = volume.portworx_volume.as_ref();
                let of = of.ok_or(Other("volume is nil or PortworxVolume not defined on volume"))?;
                let how = (None, of.fs_type.as_ref());
                let made = source(driver, of.volume_id.clone(), how, BTreeMap::new());
                (named(&of.volume_id), made, by_use(of.read_only))
            }
            Self::Vsphere => {
                let of = volume.vsphere_volume.as_ref();
                let of = of.ok_or(Other("volume is nil or VsphereVolume not defined on volume"))?;
                // DIFFERENCE: upstream's kubelet and controllers panic at a policy here.
                let made = vsphere(&of.volume_path, of.fs_type.as_ref(), of.storage_policy_name.as_ref());
                (named(&of.volume_path), made, ONCE)
            }
        })
    }
}

fn vsphere(path: &str, fs_type: Option<&String>, policy: Option<&String>) -> CSIPersistentVolumeSource {
    let policy = policy.filter(|p| !p.is_empty()).cloned();
    let attributes = policy.map(|p| attribute(STORAGE_POLICY, p)).unwrap_or_default();
    source(Plugin::Vsphere.driver(), path.to_owned(), (None, fs_type), attributes)
}

/// A volume with another spec.
fn with(volume: &PersistentVolume, spec: PersistentVolumeSpec) -> PersistentVolume {
    PersistentVolume { metadata: volume.metadata.clone(), spec: Some(spec), status: volume.status.clone() }
}

fn aws_volume(volume: &PersistentVolume) -> Result<PersistentVolume> {
    const OTHER: &str = "pv is nil or AWS EBS not defined on pv";
    let mut spec = spec_of(volume, OTHER)?;
    let of = spec.aws_elastic_block_store.take().ok_or(MigrationError::Other(OTHER))?;
    spec.csi = Some(aws(&of)?);
    let mut made = with(volume, spec);
    topology::to_csi(&mut made, AWS_ZONE);
    Ok(made)
}

fn azure_volume(volume: &PersistentVolume) -> Result<PersistentVolume> {
    const OTHER: &str = "pv is nil or Azure Disk source not defined on pv";
    let mut spec = spec_of(volume, OTHER)?;
    let of = spec.azure_disk.take().ok_or(MigrationError::Other(OTHER))?;
    spec.csi = Some(azure(&of, true)?);
    Ok(with(volume, spec))
}

fn share_volume(volume: &PersistentVolume) -> Result<PersistentVolume> {
    const OTHER: &str = "pv is nil or Azure File source not defined on pv";
    let mut spec = spec_of(volume, OTHER)?;
    let of = spec.azure_file.take().ok_or(MigrationError::Other(OTHER))?;
    let annotations = volume.metadata.annotations.as_ref();
    let group = annotations.and_then(|a| a.get(RESOURCE_GROUP)).map(String::as_str).unwrap_or_default();
    let of_claim = || spec.claim_ref.as_ref()?.namespace.clone();
    let namespace = of.secret_namespace.clone().or_else(of_claim).unwrap_or_default();
    if namespace.is_empty() {
        return Err(MigrationError::NoNamespace);
    }
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let at = (group, of.secret_name.as_str(), of.share_name.as_str());
    spec.csi = Some(share(at, (name, &namespace), of.read_only));
    Ok(with(volume, spec))
}

fn cinder_volume(volume: &PersistentVolume) -> Result<PersistentVolume> {
    const OTHER: &str = "pv is nil or Cinder not defined on pv";
    let mut spec = spec_of(volume, OTHER)?;
    let of = spec.cinder.take().ok_or(MigrationError::Other(OTHER))?;
    let how = (of.read_only, of.fs_type.as_ref());
    spec.csi = Some(source(Plugin::Cinder.driver(), of.volume_id, how, BTreeMap::new()));
    let mut made = with(volume, spec);
    topology::to_csi(&mut made, CINDER_ZONE);
    Ok(made)
}

fn gce_volume(volume: &PersistentVolume) -> Result<PersistentVolume> {
    const OTHER: &str = "pv is nil or GCE Persistent Disk source not defined on pv";
    let mut spec = spec_of(volume, OTHER)?;
    let of = spec.gce_persistent_disk.take().ok_or(MigrationError::Other(OTHER))?;
    let older = topology::label(volume, BETA_ZONE).filter(|zones| !zones.is_empty());
    let zones = older.or_else(|| topology::label(volume, ZONE)).unwrap_or_default();
    spec.csi = Some(gce(&of, &zones.split(DELIMITER).collect::<Vec<_>>())?);
    spec.access_modes = spec.access_modes.as_deref().map(gce_modes);
    let mut made = with(volume, spec);
    topology::to_csi(&mut made, GCE_ZONE);
    Ok(made)
}

fn portworx_volume(volume: &PersistentVolume) -> Result<PersistentVolume> {
    const OTHER: &str = "pv is nil or PortworxVolume not defined on pv";
    let mut spec = spec_of(volume, OTHER)?;
    let of = spec.portworx_volume.take().ok_or(MigrationError::Other(OTHER))?;
    let annotation = |key: &str| volume.metadata.annotations.as_ref()?.get(key);
    let secret = match (annotation(PORTWORX_SECRET), annotation(PORTWORX_NAMESPACE)) {
        (Some(name), Some(namespace)) => {
            Some(SecretReference { name: said(name), namespace: said(namespace) })
        }
        _ => None,
    };
    let how = (None, of.fs_type.as_ref());
    spec.csi = Some(CSIPersistentVolumeSource {
        controller_publish_secret_ref: secret.clone(),
        node_stage_secret_ref: secret.clone(),
        node_publish_secret_ref: secret.clone(),
        controller_expand_secret_ref: secret.clone(),
        node_expand_secret_ref: secret,
        ..source(Plugin::Portworx.driver(), of.volume_id, how, BTreeMap::new())
    });
    Ok(with(volume, spec))
}

fn vsphere_volume(volume: &PersistentVolume) -> Result<PersistentVolume> {
    const OTHER: &str = "pv is nil or VsphereVolume not defined on pv";
    let mut spec = spec_of(volume, OTHER)?;
    let of = spec.vsphere_volume.take().ok_or(MigrationError::Other(OTHER))?;
    spec.csi = Some(vsphere(&of.volume_path, of.fs_type.as_ref(), of.storage_policy_name.as_ref()));
    let mut made = with(volume, spec);
    topology::to_vsphere(&mut made, VSPHERE_ZONE, VSPHERE_REGION);
    Ok(made)
}
