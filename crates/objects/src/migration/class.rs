//! Classes of plugins as their drivers read them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{TopologySelectorLabelRequirement, TopologySelectorTerm};
use k8s_openapi::api::storage::v1::StorageClass;

use super::sources::{
    AWS_ZONE, AZURE_ZONE, CINDER_ZONE, FS_TYPE, GCE_ZONE, PORTWORX_NAMESPACE, PORTWORX_SECRET,
    STORAGE_POLICY, VSPHERE_ZONE,
};
use super::{MigrationError, Plugin, Result, filled, topology};

/// The parameter of the file system for drivers.
const CSI_FS_TYPE: &str = "csi.storage.k8s.io/fstype";
/// The parameters that vSphere's plugin had, and which its driver takes under another name.
const VSPHERE: [&str; 8] = [
    "datastore",
    "diskformat",
    "hostfailurestotolerate",
    "forceprovisioning",
    "cachereservation",
    "diskstripes",
    "objectspacereservation",
    "iopslimit",
];
/// The steps for which Portworx' driver is given a Secret.
const STEPS: [&str; 6] =
    ["provisioner", "controller-publish", "node-publish", "node-stage", "controller-expand", "node-expand"];

type Parameters = BTreeMap<String, String>;

impl Plugin {
    /// A class of the plugin as its driver reads it.
    ///
    /// # Errors
    /// It says twice where its volumes may be.
    pub fn class_as_csi(self, class: &StorageClass) -> Result<StorageClass> {
        let mut made = class.clone();
        let given = class.parameters.clone().unwrap_or_default();
        match self {
            Self::AwsEbs => zoned(&mut made, given, AWS_ZONE, aws)?,
            Self::GcePd => zoned(&mut made, given, GCE_ZONE, fs_type)?,
            Self::AzureDisk => {
                zoned(&mut made, given, AZURE_ZONE, |key, value| vec![(key, value)])?;
                made.allowed_topologies.iter_mut().flatten().for_each(without_domains);
            }
            Self::AzureFile => {}
            Self::Cinder => {
                made.parameters = filled(given.into_iter().flat_map(|(k, v)| fs_type(k, v)).collect());
                allow(&mut made, CINDER_ZONE);
            }
            Self::Portworx => {
                let all: Parameters = given.into_iter().flat_map(|(k, v)| portworx(k, v)).collect();
                if !all.is_empty() {
                    made.parameters = Some(all);
                }
                self.driver().clone_into(&mut made.provisioner);
            }
            Self::Vsphere => {
                let mut all: Parameters = given.into_iter().filter_map(|(k, v)| vsphere(&k, v)).collect();
                // By this the driver knows that the plugin is meant, and tells the path of a volume.
                all.insert("csimigration".to_owned(), "true".to_owned());
                made.parameters = Some(all);
                allow(&mut made, VSPHERE_ZONE);
            }
        }
        Ok(made)
    }
}

/// Names the zones that a class allows by a driver's key.
fn allow(class: &mut StorageClass, key: &str) {
    class.allowed_topologies = class.allowed_topologies.take().map(|all| topology::allowed(&all, key));
}

/// A class of which zones are told by parameters or as those that it allows, which a driver wants.
fn zoned(
    class: &mut StorageClass,
    given: Parameters,
    key: &str,
    other: fn(String, String) -> Vec<(String, String)>,
) -> Result<()> {
    let (mut zones, mut all): (Option<Vec<String>>, _) = (None, Parameters::new());
    for (name, value) in given {
        match name.to_lowercase().as_str() {
            "zone" => zones = Some(vec![value]),
            "zones" => zones = Some(value.split(',').map(str::to_owned).collect()),
            _ => all.extend(other(name, value)),
        }
    }
    let allows = class.allowed_topologies.as_ref().is_some_and(|all| !all.is_empty());
    match zones {
        Some(_) if allows => return Err(MigrationError::Topologies),
        Some(values) => {
            let wanted = TopologySelectorLabelRequirement { key: key.to_owned(), values };
            let term = TopologySelectorTerm { match_label_expressions: Some(vec![wanted]) };
            class.allowed_topologies = Some(vec![term]);
        }
        None => allow(class, key),
    }
    class.parameters = filled(all);
    Ok(())
}

fn fs_type(name: String, value: String) -> Vec<(String, String)> {
    let is = name.eq_ignore_ascii_case(FS_TYPE);
    vec![(if is { CSI_FS_TYPE.to_owned() } else { name }, value)]
}

fn aws(name: String, value: String) -> Vec<(String, String)> {
    // The plugin made too few operations more, which the driver does if it is told to.
    let more = name.eq_ignore_ascii_case("iopspergb");
    let mut all = fs_type(name, value);
    if more {
        all.push(("allowautoiopspergbincrease".to_owned(), "true".to_owned()));
    }
    all
}

fn portworx(name: String, value: String) -> Vec<(String, String)> {
    let part = match name.to_lowercase().as_str() {
        PORTWORX_SECRET => "name",
        PORTWORX_NAMESPACE => "namespace",
        _ => return vec![(name, value)],
    };
    STEPS.iter().map(|step| (format!("csi.storage.k8s.io/{step}-secret-{part}"), value.clone())).collect()
}

/// Parameters that the driver does not know are left out, as upstream does.
fn vsphere(name: &str, value: String) -> Option<(String, String)> {
    let name = name.to_lowercase();
    let key = match name.as_str() {
        FS_TYPE => CSI_FS_TYPE.to_owned(),
        STORAGE_POLICY => name,
        older if VSPHERE.contains(&older) => format!("{older}-migrationparam"),
        _ => return None,
    };
    Some((key, value))
}

/// Where a region has no zones, Kubernetes numbers its domains, and the driver's zone is empty.
fn without_domains(term: &mut TopologySelectorTerm) {
    let wanted = term.match_label_expressions.iter_mut().flatten();
    for value in wanted.filter(|w| w.key == AZURE_ZONE).flat_map(|w| w.values.iter_mut()) {
        if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
            value.clear();
        }
    }
}
