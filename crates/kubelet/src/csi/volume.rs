//! A volume of a driver as a Pod wants it, and the requests that are made of it; pure.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::{PersistentVolume, Pod, SecretReference, Volume};
use k8s_openapi::api::storage::v1::CSIDriverSpec;
use objects::migration::{self, MigrationError};
use plugins::csi as pb;

use super::calls::{Abilities, text};
use super::record::{Record, attachment_name, inline_handle};
use crate::pods::spec;
use crate::volumes::selinux::{self, Traits};

/// Names with values, as the protocol has them.
pub(super) type Texts = BTreeMap<String, String>;

/// A volume: its driver and the driver's name of it.
pub(super) type Key = (String, String);

/// A reference to a Secret: its namespace and name.
pub(super) type SecretName = (String, String);

/// The way in which a volume is mounted for a Pod.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mount<'a> {
    /// The group that is to have its files.
    pub(super) group: Option<u32>,
    /// The SELinux label of all its files.
    pub(super) label: Option<&'a str>,
}

/// A volume of a driver.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Wanted {
    /// The name of the PersistentVolume, or of the Pod's volume.
    pub(crate) name: String,
    /// The driver's name.
    pub(crate) driver: String,
    /// The driver's name of the volume.
    pub(crate) handle: String,
    /// Whether it comes and goes with the Pod.
    pub(crate) ephemeral: bool,
    /// Whether a Pod names it itself, so that there is no PersistentVolume.
    inline: bool,
    /// Whether it is a device.
    pub(crate) block: bool,
    /// Whether containers may only read it.
    pub(crate) read_only: bool,
    /// The file system that it is to have; empty for the driver's choice.
    pub(super) fs_type: String,
    /// The driver's own attributes of it.
    pub(super) attributes: Texts,
    /// The modes in which it may be used.
    pub(super) access_modes: Vec<String>,
    /// Options of its mount.
    pub(super) mount_options: Vec<String>,
    /// The Secret for its publication.
    pub(super) publish_secret: Option<SecretName>,
    /// The Secret for its staging.
    pub(super) stage_secret: Option<SecretName>,
    /// The Secret for its expansion.
    pub(super) expand_secret: Option<SecretName>,
    /// Its capacity in bytes; 0 where it is not known.
    pub(super) capacity: i64,
    /// The claim by which the Pod has it: namespace and name.
    pub(super) claim: Option<(String, String)>,
    /// Whether its driver took over from a plugin that it is written for.
    pub(crate) migrated: bool,
}

fn secret(reference: Option<&SecretReference>) -> Option<SecretName> {
    let reference = reference?;
    Some((reference.namespace.clone().unwrap_or_default(), reference.name.clone().unwrap_or_default()))
}

impl Wanted {
    /// An inline volume of a Pod; none if it is another kind of volume.
    pub(crate) fn inline(pod: &Pod, volume: &Volume) -> Option<Self> {
        let source = volume.csi.as_ref()?;
        let secret = source.node_publish_secret_ref.as_ref();
        Some(Self {
            name: volume.name.clone(),
            driver: source.driver.clone(),
            handle: inline_handle(spec::uid(pod), &volume.name),
            ephemeral: true,
            inline: true,
            read_only: source.read_only.unwrap_or(false),
            fs_type: source.fs_type.clone().unwrap_or_default(),
            attributes: source.volume_attributes.clone().unwrap_or_default(),
            publish_secret: secret.map(|s| (spec::namespace(pod).to_owned(), s.name.clone())),
            ..Self::default()
        })
    }

    /// A volume of a plugin, from which a driver took over, that a Pod names itself; none if it is another kind of volume.
    ///
    /// # Errors
    /// The driver cannot have it.
    pub(crate) fn inline_migrated(pod: &Pod, volume: &Volume) -> Result<Option<Self>, MigrationError> {
        let made = migration::inline_as_csi(volume, spec::namespace(pod))?;
        // Whether it is only read is the driver's affair, as upstream.
        let wanted = made.and_then(|made| Self::persistent(&made, None, false));
        Ok(wanted.map(|wanted| Self { migrated: true, inline: true, ..wanted }))
    }

    /// A driver's PersistentVolume by a claim, if there is one; none if it is another kind of volume.
    pub(crate) fn persistent(
        volume: &PersistentVolume,
        claim: Option<(&str, &str)>,
        read_only: bool,
    ) -> Option<Self> {
        let of = volume.spec.as_ref()?;
        let source = of.csi.as_ref()?;
        let capacity = of.capacity.as_ref().and_then(|c| c.get("storage"));
        Some(Self {
            name: volume.metadata.name.clone().unwrap_or_default(),
            driver: source.driver.clone(),
            handle: source.volume_handle.clone(),
            ephemeral: false,
            inline: false,
            block: of.volume_mode.as_deref() == Some("Block"),
            read_only,
            fs_type: source.fs_type.clone().unwrap_or_default(),
            attributes: source.volume_attributes.clone().unwrap_or_default(),
            access_modes: of.access_modes.clone().unwrap_or_default(),
            mount_options: of.mount_options.clone().unwrap_or_default(),
            publish_secret: secret(source.node_publish_secret_ref.as_ref()),
            stage_secret: secret(source.node_stage_secret_ref.as_ref()),
            expand_secret: secret(source.node_expand_secret_ref.as_ref()),
            capacity: objects::quantity::value(capacity),
            claim: claim.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
            migrated: false,
        })
    }

    /// `Ephemeral` or `Persistent`.
    pub(super) fn lifecycle(&self) -> &'static str {
        if self.ephemeral { "Ephemeral" } else { "Persistent" }
    }

    /// Its driver and the driver's name of it.
    pub(super) fn key(&self) -> Key {
        (self.driver.clone(), self.handle.clone())
    }

    /// The name by which nodes tell of it; upstream's.
    pub(super) fn unique_name(&self) -> String {
        unique_name(&self.driver, &self.handle)
    }

    fn access_mode(&self) -> &str {
        self.access_modes.first().map_or("ReadWriteOnce", String::as_str)
    }

    /// The parts of it on which its SELinux label depends; `plugin`: [`Wanted::plugin`].
    pub(super) fn traits<'a>(&'a self, plugin: &'a str, rules: &Rules) -> Traits<'a> {
        // Both its own inline volumes and those of plugins have no PersistentVolume.
        let modes = (!self.inline).then_some(self.access_modes.as_slice());
        Traits { name: &self.name, plugin, modes, mountable: rules.labels }
    }

    /// The name of its plugin, as metrics name it.
    pub(super) fn plugin(&self) -> String {
        format!("kubernetes.io/csi/{}", self.driver)
    }

    /// The record that is kept for a Pod that has it; `label`: the SELinux label with which it is mounted.
    pub(super) fn record(&self, node: &str, label: Option<&str>) -> Record {
        Record {
            attachment_id: attachment_name(&self.handle, &self.driver, node),
            driver_name: self.driver.clone(),
            node_name: node.to_owned(),
            label: label.unwrap_or_default().to_owned(),
            spec_vol_id: self.name.clone(),
            volume_handle: self.handle.clone(),
            volume_lifecycle_mode: if self.block { String::new() } else { self.lifecycle().to_owned() },
        }
    }

    /// Whether the kubelet gives the volume's files to the Pod's group.
    pub(super) fn takes_group(&self, policy: &str) -> bool {
        match policy {
            "None" => false,
            _ if self.read_only || self.block => false,
            "File" => true,
            _ if self.fs_type.is_empty() => false,
            _ => {
                let once = |mode: &String| mode == "ReadWriteOnce" || mode == "ReadWriteOncePod";
                self.ephemeral || self.access_modes.iter().any(once)
            }
        }
    }

    fn capability(&self, can: &Abilities, mount: Mount<'_>) -> pb::VolumeCapability {
        use pb::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
        let group = mount.group.filter(|_| can.groups());
        let label = mount.label.map(selinux::option);
        let access_type = if self.block {
            AccessType::Block(BlockVolume {})
        } else {
            AccessType::Mount(MountVolume {
                fs_type: self.fs_type.clone(),
                mount_flags: self.mount_options.iter().cloned().chain(label).collect(),
                volume_mount_group: group.map(|g| g.to_string()).unwrap_or_default(),
            })
        };
        pb::VolumeCapability {
            access_mode: Some(AccessMode { mode: can.access_mode(self.access_mode()) }),
            access_type: Some(access_type),
        }
    }

    /// The request to stage it; `context` comes from its attachment.
    pub(super) fn stage(
        &self,
        can: &Abilities,
        path: &Path,
        (context, secrets): (Texts, Texts),
        mount: Mount<'_>,
    ) -> pb::NodeStageVolumeRequest {
        pb::NodeStageVolumeRequest {
            volume_id: self.handle.clone(),
            publish_context: context,
            staging_target_path: text(path),
            volume_capability: Some(self.capability(can, mount)),
            secrets,
            volume_context: self.attributes.clone(),
        }
    }

    /// The request to publish it at a path; `staged` is where it was staged, if it was.
    pub(super) fn publish(
        &self,
        can: &Abilities,
        (staged, target): (Option<&Path>, &Path),
        (context, attributes, secrets): (Texts, Texts, Texts),
        mount: Mount<'_>,
    ) -> pb::NodePublishVolumeRequest {
        pb::NodePublishVolumeRequest {
            volume_id: self.handle.clone(),
            publish_context: context,
            staging_target_path: staged.map(text).unwrap_or_default(),
            target_path: text(target),
            volume_capability: Some(self.capability(can, mount)),
            readonly: self.read_only,
            secrets,
            volume_context: attributes,
        }
    }

    /// The request to make it as large as its PersistentVolume says.
    pub(super) fn expand(
        &self,
        can: &Abilities,
        (staged, path): (Option<&Path>, &Path),
        secrets: Texts,
        capacity: i64,
    ) -> pb::NodeExpandVolumeRequest {
        pb::NodeExpandVolumeRequest {
            volume_id: self.handle.clone(),
            volume_path: text(path),
            capacity_range: Some(pb::CapacityRange { required_bytes: capacity, limit_bytes: 0 }),
            staging_target_path: staged.map(text).unwrap_or_default(),
            volume_capability: Some(self.capability(can, Mount::default())),
            secrets,
        }
    }
}

/// The name by which nodes tell of a volume; upstream's.
pub(super) fn unique_name(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

/// The rules of a driver, from its CSIDriver if there is one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rules {
    /// Whether its volumes are attached to nodes.
    pub(super) attach: bool,
    /// Whether it is told of the Pod.
    pub(super) pod_info: bool,
    /// The policy for groups.
    pub(super) group_policy: String,
    /// Whether its volumes are mounted with a SELinux label.
    pub(super) labels: bool,
    /// Whether its volumes are published again and again.
    pub(super) republish: bool,
    /// The tokens that it wants: audiences with the seconds that they are good for.
    pub(super) tokens: Vec<(String, Option<i64>)>,
    /// Whether they are among the Secrets.
    pub(super) tokens_in_secrets: bool,
    /// The kinds of volumes that it has; none if nobody says.
    pub(super) lifecycles: Option<Vec<String>>,
}

impl Rules {
    /// Those of a CSIDriver, or those without one.
    pub(super) fn of(driver: Option<&CSIDriverSpec>) -> Self {
        let Some(of) = driver else {
            return Self {
                attach: true,
                pod_info: false,
                group_policy: "ReadWriteOnceWithFSType".into(),
                labels: false,
                republish: false,
                tokens: Vec::new(),
                tokens_in_secrets: false,
                lifecycles: None,
            };
        };
        let tokens = of.token_requests.iter().flatten();
        Self {
            attach: of.attach_required != Some(false),
            pod_info: of.pod_info_on_mount == Some(true),
            group_policy: of.fs_group_policy.clone().unwrap_or_else(|| "ReadWriteOnceWithFSType".into()),
            labels: of.se_linux_mount == Some(true),
            republish: of.requires_republish == Some(true),
            tokens: tokens.map(|t| (t.audience.clone(), t.expiration_seconds)).collect(),
            tokens_in_secrets: of.service_account_token_in_secrets == Some(true),
            lifecycles: Some(of.volume_lifecycle_modes.clone().unwrap_or_default()),
        }
    }

    /// Says whether the driver has volumes of this kind.
    ///
    /// # Errors
    /// Upstream's text, where it has not.
    pub(super) fn check(&self, wanted: &Wanted) -> Result<(), String> {
        let (mode, driver) = (wanted.lifecycle(), &wanted.driver);
        match &self.lifecycles {
            None if !wanted.ephemeral => Ok(()),
            None => {
                Err(format!("volume mode {mode:?} not supported by driver {driver} (no CSIDriver object)"))
            }
            Some(all) if all.iter().any(|m| m == mode) => Ok(()),
            Some(all) => {
                let all: Vec<String> = all.iter().map(|m| format!("{m:?}")).collect();
                let all = all.join(" ");
                Err(format!("volume mode {mode:?} not supported by driver {driver} (only supports [{all}])"))
            }
        }
    }
}

/// The attributes that tell a driver of the Pod; upstream's.
pub(super) fn pod_info(pod: &Pod, wanted: &Wanted) -> Texts {
    let account = spec::spec(pod).service_account_name.clone().unwrap_or_default();
    let of = |name: &str, value: &str| (format!("csi.storage.k8s.io/{name}"), value.to_owned());
    Texts::from([
        of("pod.name", spec::name(pod)),
        of("pod.namespace", spec::namespace(pod)),
        of("pod.uid", spec::uid(pod)),
        of("serviceAccount.name", &account),
        of("ephemeral", if wanted.ephemeral { "true" } else { "false" }),
    ])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn volumes_of_plugins_that_pods_name() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n"}})).unwrap();
        let of = |volume: Value| Wanted::inline_migrated(&pod, &serde_json::from_value(volume).unwrap());
        assert_eq!(of(json!({"name": "v", "emptyDir": {}})), Ok(None));
        let share =
            json!({"name": "v", "azureFile": {"secretName": "s", "shareName": "t", "readOnly": true}});
        let wanted = of(share).unwrap().unwrap();
        assert_eq!((wanted.name.as_str(), wanted.handle.as_str()), ("#s#t#v#n", "#s#t#v#n"));
        assert_eq!(wanted.stage_secret, Some(("n".to_owned(), "s".to_owned())));
        assert_eq!(wanted.access_modes, ["ReadWriteMany"]);
        assert!(wanted.migrated && !wanted.ephemeral && !wanted.read_only && wanted.claim.is_none());
        assert!(
            of(json!({"name": "v", "azureDisk": {"diskName": "d", "diskURI": "u", "kind": "Shared"}}))
                .is_err()
        );
    }

    #[test]
    fn groups() {
        let check = |policy: &str, fs_type: &str, modes: &[&str], read_only: bool, expected: bool| {
            let wanted = Wanted {
                fs_type: fs_type.into(),
                access_modes: modes.iter().map(ToString::to_string).collect(),
                read_only,
                ..Wanted::default()
            };
            assert_eq!(wanted.takes_group(policy), expected, "{policy} {fs_type} {modes:?} {read_only}");
        };
        // Upstream's cases of `TestMounterSetUpWithFSGroup` and `TestMounterSupportsFSGroup`.
        let default = "ReadWriteOnceWithFSType";
        check(default, "", &["ReadWriteOnce"], false, false);
        check(default, "ext4", &["ReadWriteMany"], false, false);
        check(default, "ext4", &["ReadWriteOnce"], true, false);
        check(default, "ext4", &["ReadWriteOnce"], false, true);
        check(default, "ext4", &["ReadWriteOncePod"], false, true);
        check(default, "ext4", &["ReadWriteOnce", "ReadWriteMany"], false, true);
        check(default, "ext4", &[], false, false);
        check("File", "", &["ReadWriteMany"], false, true);
        check("File", "", &[], true, false);
        check("None", "ext4", &["ReadWriteOnce"], false, false);
        let inline = Wanted { ephemeral: true, fs_type: "ext4".into(), ..Wanted::default() };
        assert!(inline.takes_group(default) && inline.takes_group("File") && !inline.takes_group("None"));
    }

    fn rules(spec: Value) -> Rules {
        Rules::of(Some(&serde_json::from_value(spec).unwrap()))
    }

    #[test]
    fn rules_of_drivers() {
        let persistent = Wanted { driver: "d".into(), ..Wanted::default() };
        let inline = Wanted { ephemeral: true, ..persistent.clone() };
        let none = Rules::of(None);
        assert!(none.attach && !none.pod_info && none.check(&persistent).is_ok());
        let error = |rules: &Rules, wanted: &Wanted| rules.check(wanted).unwrap_err();
        let missing = "volume mode \"Ephemeral\" not supported by driver d (no CSIDriver object)";
        assert_eq!(error(&none, &inline), missing);
        let only = rules(json!({"volumeLifecycleModes": ["Persistent"], "attachRequired": false}));
        assert!(!only.attach && only.check(&persistent).is_ok());
        let other = "volume mode \"Ephemeral\" not supported by driver d (only supports [\"Persistent\"])";
        assert_eq!(error(&only, &inline), other);
        let both = rules(json!({"volumeLifecycleModes": ["Ephemeral", "Persistent"], "podInfoOnMount": true,
            "requiresRepublish": true, "tokenRequests": [{"audience": "a", "expirationSeconds": 600}]}));
        assert!(both.attach && both.pod_info && both.republish && both.check(&inline).is_ok());
        assert_eq!(both.tokens, [("a".to_owned(), Some(600))]);
    }

    #[test]
    fn requests() {
        let volume: PersistentVolume = serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Ki"}, "mountOptions": ["noatime"],
            "csi": {"driver": "d", "volumeHandle": "h", "fsType": "ext4", "volumeAttributes": {"a": "b"},
                "nodeStageSecretRef": {"namespace": "n", "name": "s"}}}}))
        .unwrap();
        let wanted = Wanted::persistent(&volume, Some(("n", "c")), true).unwrap();
        assert_eq!(wanted.unique_name(), "kubernetes.io/csi/d^h");
        assert_eq!(wanted.stage_secret, Some(("n".into(), "s".into())));
        assert_eq!(wanted.capacity, 1024);
        let can = Abilities::default();
        let made = wanted.publish(
            &can,
            (Some(Path::new("/staged")), Path::new("/target")),
            (Texts::new(), wanted.attributes.clone(), Texts::new()),
            Mount { group: Some(5), label: None },
        );
        assert!(made.readonly);
        assert_eq!((made.staging_target_path.as_str(), made.target_path.as_str()), ("/staged", "/target"));
        assert_eq!(made.volume_context, Texts::from([("a".to_owned(), "b".to_owned())]));
        let Some(pb::volume_capability::AccessType::Mount(mount)) =
            made.volume_capability.and_then(|c| c.access_type)
        else {
            panic!("a mount");
        };
        assert_eq!(
            (mount.fs_type.as_str(), mount.mount_flags.as_slice()),
            ("ext4", &["noatime".to_owned()][..])
        );
        assert_eq!(mount.volume_mount_group, "", "the driver does not do groups");
        assert_eq!(wanted.record("node", None).volume_lifecycle_mode, "Persistent");
    }
}
