//! A Pod as the controller reads it: its volumes, with the labels that its containers have.

use std::collections::{BTreeMap, BTreeSet};

use api::Status;
use client::{Cached, FromJson, Identity};
use k8s_openapi::api::core::v1::{Container, EphemeralContainer, ObjectReference, Pod, PodSpec, VolumeMount};
use k8s_openapi::api::core::v1::{SELinuxOptions, SecurityContext, Volume};
use objects::migration;

use super::labels::label;
use super::volumes::{Known, fibre_channel, iscsi, known};
use crate::views::Meta;

/// A Pod's volumes and labels.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Wearer {
    pub(super) meta: Meta,
    /// Whether it has ended: its volumes are not used any more.
    pub(super) ended: bool,
    /// The way in which it wants its volumes to be labelled.
    pub(super) policy: Option<String>,
    /// The volumes that its containers mount.
    pub(super) mounts: Vec<Mount>,
}

/// A volume that a Pod's containers mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// The volume's name in the Pod.
    pub(super) name: String,
    pub(super) source: Source,
    /// The labels of the containers that mount it and have one.
    pub(super) labels: BTreeSet<String>,
}

/// The place of a volume's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// The volume of a claim of the Pod's namespace.
    Claim(String),
    /// A device or a driver's volume, which several Pods may name.
    Known(Known),
}

/// Returns the place of a volume whose content several Pods may share and that may be labelled as it is mounted; `None`
/// for others.
///
/// DIFFERENCE: upstream also names volumes of kinds that are never labelled so (hostPath, NFS, local), of which it has
/// nothing to say, and fails again and again at a driver's volume that is made for one Pod.
fn source(meta: &Meta, volume: &Volume) -> Option<Source> {
    if let Some(claim) = &volume.persistent_volume_claim {
        return Some(Source::Claim(claim.claim_name.clone()));
    }
    if volume.ephemeral.is_some() {
        return Some(Source::Claim(format!("{}-{}", meta.name, volume.name)));
    }
    // A driver may have taken over from its plugin.
    if let Some(made) = migration::inline_as_csi(volume, &meta.namespace).ok()? {
        return known(&made).map(Source::Known);
    }
    let device = volume.iscsi.as_ref().map(|s| iscsi(&s.target_portal, &s.iqn, s.lun));
    let device = device.or_else(|| volume.fc.as_ref().and_then(fibre_channel));
    device.map(|name| Source::Known(Known { name, driver: String::new() }))
}

/// Adds the label of a container to the volumes that it mounts.
fn note(
    all: &mut BTreeMap<String, BTreeSet<String>>,
    mounts: Option<&Vec<VolumeMount>>,
    context: Option<&SecurityContext>,
    of_pod: Option<&SELinuxOptions>,
) {
    let options = context.and_then(|c| c.se_linux_options.as_ref()).or(of_pod);
    for mount in mounts.into_iter().flatten() {
        all.entry(mount.name.clone()).or_default().extend(options.map(label));
    }
}

/// Returns the labels of each volume that containers mount.
fn mounted(spec: &PodSpec) -> BTreeMap<String, BTreeSet<String>> {
    let of_pod = spec.security_context.as_ref().and_then(|c| c.se_linux_options.as_ref());
    let mut all = BTreeMap::new();
    let mut one = |c: &Container| {
        note(&mut all, c.volume_mounts.as_ref(), c.security_context.as_ref(), of_pod);
    };
    spec.init_containers.iter().flatten().for_each(&mut one);
    spec.containers.iter().for_each(&mut one);
    let mut one = |c: &EphemeralContainer| {
        note(&mut all, c.volume_mounts.as_ref(), c.security_context.as_ref(), of_pod);
    };
    spec.ephemeral_containers.iter().flatten().for_each(&mut one);
    all
}

impl Wearer {
    fn of(meta: Meta, pod: &Pod) -> Self {
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default();
        let ended = matches!(phase, "Failed" | "Succeeded");
        let Some(spec) = &pod.spec else { return Self { meta, ended, ..Self::default() } };
        let mut labels = mounted(spec);
        let mount = |volume: &Volume| {
            let source = source(&meta, volume)?;
            let labels = labels.remove(&volume.name)?;
            Some(Mount { name: volume.name.clone(), source, labels })
        };
        let mounts = spec.volumes.iter().flatten().filter_map(mount).collect();
        let policy = spec.security_context.as_ref().and_then(|c| c.se_linux_change_policy.clone());
        Self { meta, ended, policy, mounts }
    }

    /// The names of its claims.
    pub(super) fn claims(&self) -> impl Iterator<Item = &str> {
        self.mounts.iter().filter_map(|mount| match &mount.source {
            Source::Claim(name) => Some(name.as_str()),
            Source::Known(_) => None,
        })
    }

    /// The reference by which Events name it.
    pub(super) fn reference(&self) -> ObjectReference {
        let some = |text: &str| Some(text.to_owned());
        ObjectReference {
            api_version: some("v1"),
            kind: some("Pod"),
            namespace: some(&self.meta.namespace),
            name: some(&self.meta.name),
            uid: some(&self.meta.uid),
            resource_version: some(&self.meta.resource_version),
            field_path: None,
        }
    }
}

impl Cached for Wearer {
    fn decode(json: &[u8]) -> Result<Self, Status> {
        Ok(Self::of(Meta::decode(json)?, &Pod::from_json(json)?))
    }
    fn identity(&self) -> Identity<'_> {
        self.meta.identity()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn volumes_and_labels() {
        let check = |spec: Value, want: &[(&str, Source, &[&str])]| {
            let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec});
            let pod = Wearer::decode(pod.to_string().as_bytes()).unwrap();
            let got: Vec<_> = pod
                .mounts
                .iter()
                .map(|m| (m.name.as_str(), m.source.clone(), m.labels.iter().map(String::as_str).collect()))
                .collect();
            let want: Vec<(&str, Source, Vec<&str>)> =
                want.iter().map(|(name, source, labels)| (*name, source.clone(), labels.to_vec())).collect();
            assert_eq!(got, want, "{spec}");
        };
        let level = |level: &str| json!({"seLinuxOptions": {"level": level}});
        let container = |name: &str, volume: &str, context: Value| json!({"name": name, "securityContext": context, "volumeMounts": [{"name": volume, "mountPath": "/m"}]});
        let claim = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": "c"}});
        let of_claim = |name: &str| Source::Claim(name.to_owned());
        check(json!({"containers": [], "volumes": [claim("v")]}), &[]);
        let plain = container("a", "v", Value::Null);
        check(json!({"containers": [plain], "volumes": [claim("v")]}), &[("v", of_claim("c"), &[])]);
        check(
            json!({"containers": [plain], "volumes": [claim("v")], "securityContext": level("s0")}),
            &[("v", of_claim("c"), &[":::s0"])],
        );
        let own = container("b", "v", level("s1"));
        check(
            json!({"initContainers": [own], "containers": [plain], "volumes": [claim("v")], "securityContext": level("s0")}),
            &[("v", of_claim("c"), &[":::s0", ":::s1"])],
        );
        check(
            json!({"ephemeralContainers": [own], "containers": [plain], "volumes": [claim("v")]}),
            &[("v", of_claim("c"), &[":::s1"])],
        );
        let made = json!({"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}});
        check(json!({"containers": [plain], "volumes": [made]}), &[("v", of_claim("p-v"), &[])]);
        for other in [json!({"name": "v", "emptyDir": {}}), json!({"name": "v", "csi": {"driver": "d"}})] {
            check(json!({"containers": [plain], "volumes": [other]}), &[]);
        }
        let disk = json!({"name": "v", "iscsi": {"targetPortal": "1.2.3.4:3260", "iqn": "iqn.x", "lun": 7}});
        let of = |name: &str, driver: &str| {
            Source::Known(Known { name: name.to_owned(), driver: driver.to_owned() })
        };
        let device = of("kubernetes.io/iscsi/1.2.3.4:3260:iqn.x:7", "");
        check(json!({"containers": [plain], "volumes": [disk]}), &[("v", device, &[])]);
        let share = json!({"name": "v", "azureFile": {"secretName": "s", "shareName": "t"}});
        let shared = of("kubernetes.io/csi/file.csi.azure.com^#s#t#v#n", "file.csi.azure.com");
        check(json!({"containers": [plain], "volumes": [share]}), &[("v", shared, &[])]);
    }
}
