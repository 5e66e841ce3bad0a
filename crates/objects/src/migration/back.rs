//! Volumes of drivers as the plugins had them.

use k8s_openapi::api::core::v1::{
    AWSElasticBlockStoreVolumeSource, AzureDiskVolumeSource, AzureFilePersistentVolumeSource,
    CSIPersistentVolumeSource, CinderPersistentVolumeSource, GCEPersistentDiskVolumeSource, PersistentVolume,
    PersistentVolumeSpec, PortworxVolumeSource, VsphereVirtualDiskVolumeSource,
};

use super::sources::{
    AWS_ZONE, CACHING, CINDER_ZONE, FS_TYPE, GCE_ZONE, MANAGED, PARTITION, RESOURCE_GROUP, SHARE,
    VSPHERE_REGION, VSPHERE_ZONE,
};
use super::topology::RegionOf;
use super::{MigrationError, Plugin, Result, handles, said, spec_of, topology};

/// The attribute by which the driver of vSphere tells the path of a volume that it made.
const PATH: &str = "initialvolumefilepath";

impl Plugin {
    /// A PersistentVolume of the plugin's driver as the plugin had it.
    ///
    /// # Errors
    /// It is no driver's, or the plugin cannot have had it.
    pub fn as_in_tree(self, volume: &PersistentVolume) -> Result<PersistentVolume> {
        const OTHER: &str = "pv is nil or CSI source not defined on pv";
        let mut spec = spec_of(volume, OTHER)?;
        let csi = spec.csi.take().ok_or(MigrationError::Other(OTHER))?;
        let mut made = volume.clone();
        match self {
            Self::AwsEbs => {
                spec.aws_elastic_block_store = Some(aws(csi)?);
                finish(&mut made, spec, AWS_ZONE, Some(handles::aws_region))?;
            }
            Self::AzureDisk => {
                spec.azure_disk = Some(azure(csi)?);
                made.spec = Some(spec);
            }
            Self::AzureFile => {
                let (share, group) = share(csi)?;
                spec.azure_file = Some(share);
                made.spec = Some(spec);
                if let Some(group) = said(&group) {
                    let annotations = made.metadata.annotations.get_or_insert_default();
                    annotations.insert(RESOURCE_GROUP.to_owned(), group);
                }
            }
            Self::Cinder => {
                spec.cinder = Some(CinderPersistentVolumeSource {
                    volume_id: csi.volume_handle,
                    fs_type: csi.fs_type,
                    read_only: csi.read_only,
                    secret_ref: None,
                });
                // A zone does not tell its region there.
                finish(&mut made, spec, CINDER_ZONE, None)?;
            }
            Self::GcePd => {
                spec.gce_persistent_disk = Some(gce(csi)?);
                finish(&mut made, spec, GCE_ZONE, Some(handles::gce_region))?;
            }
            Self::Portworx => {
                spec.portworx_volume = Some(PortworxVolumeSource {
                    volume_id: csi.volume_handle,
                    fs_type: csi.fs_type,
                    read_only: csi.read_only,
                });
                made.spec = Some(spec);
            }
            Self::Vsphere => {
                let path = csi.volume_attributes.as_ref().and_then(|a| a.get(PATH));
                spec.vsphere_volume = Some(VsphereVirtualDiskVolumeSource {
                    fs_type: csi.fs_type,
                    volume_path: path.cloned().unwrap_or_default(),
                    ..VsphereVirtualDiskVolumeSource::default()
                });
                made.spec = Some(spec);
                topology::from_vsphere(&mut made, VSPHERE_ZONE, VSPHERE_REGION);
            }
        }
        Ok(made)
    }
}

/// Gives a volume its spec, and Kubernetes' names of its zones.
fn finish(
    made: &mut PersistentVolume,
    spec: PersistentVolumeSpec,
    key: &str,
    region: Option<RegionOf>,
) -> Result<()> {
    made.spec = Some(spec);
    topology::to_in_tree(made, key, region).map_err(|why| MigrationError::Topology {
        volume: made.metadata.name.clone().unwrap_or_default(),
        why: Box::new(why),
    })
}

/// The partition that an attribute names; none for the whole disk.
fn partition(text: Option<&String>, failed: &'static str) -> Result<Option<i32>> {
    let Some(text) = text else { return Ok(None) };
    match text.parse::<i64>() {
        // As Go cuts it.
        Ok(number) => Ok(Some(number as i32).filter(|n| *n != 0)),
        Err(why) => {
            let why = api::go::no_integer("Atoi", text, &why);
            Err(MigrationError::Partition(failed, text.clone(), why))
        }
    }
}

fn aws(csi: CSIPersistentVolumeSource) -> Result<AWSElasticBlockStoreVolumeSource> {
    let text = csi.volume_attributes.as_ref().and_then(|a| a.get(PARTITION));
    Ok(AWSElasticBlockStoreVolumeSource {
        partition: partition(text, "failed")?,
        volume_id: csi.volume_handle,
        fs_type: csi.fs_type,
        read_only: csi.read_only,
    })
}

fn gce(csi: CSIPersistentVolumeSource) -> Result<GCEPersistentDiskVolumeSource> {
    let pd_name = handles::gce_disk(&csi.volume_handle)?;
    let text = csi.volume_attributes.as_ref().and_then(|a| a.get(PARTITION)).filter(|p| !p.is_empty());
    Ok(GCEPersistentDiskVolumeSource {
        partition: partition(text, "Failed")?,
        pd_name,
        fs_type: csi.fs_type,
        read_only: csi.read_only,
    })
}

fn azure(csi: CSIPersistentVolumeSource) -> Result<AzureDiskVolumeSource> {
    let disk_name = handles::azure_disk(&csi.volume_handle)?;
    let mut made = AzureDiskVolumeSource {
        disk_name,
        disk_uri: csi.volume_handle,
        fs_type: Some(csi.fs_type.unwrap_or_default()),
        read_only: Some(csi.read_only.unwrap_or(false)),
        kind: Some(MANAGED.to_owned()),
        caching_mode: None,
    };
    for (key, value) in csi.volume_attributes.iter().flatten().filter(|(_, value)| !value.is_empty()) {
        match key.to_lowercase().as_str() {
            CACHING => made.caching_mode = Some(value.clone()),
            FS_TYPE => made.fs_type = Some(value.clone()),
            _ => {}
        }
    }
    Ok(made)
}

/// A share, and the group of resources that has it, "" where nobody tells.
fn share(csi: CSIPersistentVolumeSource) -> Result<(AzureFilePersistentVolumeSource, String)> {
    let mut made = AzureFilePersistentVolumeSource {
        read_only: csi.read_only,
        ..AzureFilePersistentVolumeSource::default()
    };
    for (key, value) in csi.volume_attributes.iter().flatten() {
        match key.to_lowercase().as_str() {
            SHARE => made.share_name.clone_from(value),
            "secretname" => made.secret_name.clone_from(value),
            "secretnamespace" => made.secret_namespace = Some(value.clone()),
            _ => {}
        }
    }
    let secret = csi.node_stage_secret_ref.unwrap_or_default();
    if let Some(name) = secret.name.filter(|name| !name.is_empty()) {
        made.secret_name = name;
        made.secret_namespace = Some(secret.namespace.unwrap_or_default());
    }
    let mut group = String::new();
    if made.share_name.is_empty() || made.secret_name.is_empty() {
        let [of, account, share, _] = handles::azure_share(&csi.volume_handle)?;
        group = of;
        if made.share_name.is_empty() {
            made.share_name = share;
        }
        if made.secret_name.is_empty() {
            made.secret_name = format!("azure-storage-account-{account}-secret");
        }
    }
    made.secret_namespace.get_or_insert_with(|| "default".to_owned());
    Ok((made, group))
}
