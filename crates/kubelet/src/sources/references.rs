//! The objects of the API that a Pod needs, which a static one may not; upstream's rules and names.

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, PodSpec, Volume};

/// A kind of object that a Pod needs.
pub(super) fn of(spec: &PodSpec) -> Option<&'static str> {
    if spec.service_account_name.as_ref().is_some_and(|name| !name.is_empty()) {
        return Some("serviceaccounts");
    }
    if has_secret(spec) {
        return Some("secrets");
    }
    if has_config_map(spec) {
        return Some("configmaps");
    }
    if has_claims(spec) {
        return Some("resourceclaims");
    }
    spec.volumes.iter().flatten().find_map(of_volume)
}

/// Whether a Pod claims devices.
pub(super) fn has_claims(spec: &PodSpec) -> bool {
    spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty())
}

/// Whether a Pod has a volume of a ClusterTrustBundle.
pub(super) fn has_trust_bundle(spec: &PodSpec) -> bool {
    let projected = spec.volumes.iter().flatten().filter_map(|volume| volume.projected.as_ref());
    projected
        .flat_map(|projected| projected.sources.iter().flatten())
        .any(|source| source.cluster_trust_bundle.is_some())
}

/// The variables of all containers, and where others of theirs are from.
fn environment(spec: &PodSpec) -> (impl Iterator<Item = &EnvVar>, impl Iterator<Item = &EnvFromSource>) {
    let all = || spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let ephemeral = || spec.ephemeral_containers.iter().flatten();
    let variables = all().flat_map(|c| c.env.iter().flatten());
    let from = all().flat_map(|c| c.env_from.iter().flatten());
    (
        variables.chain(ephemeral().flat_map(|c| c.env.iter().flatten())),
        from.chain(ephemeral().flat_map(|c| c.env_from.iter().flatten())),
    )
}

/// Whether a Pod names a Secret.
fn has_secret(spec: &PodSpec) -> bool {
    let (mut variables, mut from) = environment(spec);
    let named = |name: &str| !name.is_empty();
    spec.image_pull_secrets.iter().flatten().any(|secret| named(&secret.name))
        || from.any(|from| from.secret_ref.as_ref().is_some_and(|secret| named(&secret.name)))
        || variables.any(|variable| {
            let key = variable.value_from.as_ref().and_then(|from| from.secret_key_ref.as_ref());
            key.is_some_and(|key| named(&key.name))
        })
        || spec.volumes.iter().flatten().flat_map(secrets_of_volume).any(named)
}

/// The Secrets that a volume names; a name may be empty.
fn secrets_of_volume(volume: &Volume) -> impl Iterator<Item = &str> {
    let local = [
        volume.cephfs.as_ref().and_then(|source| source.secret_ref.as_ref()),
        volume.cinder.as_ref().and_then(|source| source.secret_ref.as_ref()),
        volume.flex_volume.as_ref().and_then(|source| source.secret_ref.as_ref()),
        volume.rbd.as_ref().and_then(|source| source.secret_ref.as_ref()),
        volume.scale_io.as_ref().map(|source| &source.secret_ref),
        volume.iscsi.as_ref().and_then(|source| source.secret_ref.as_ref()),
        volume.storageos.as_ref().and_then(|source| source.secret_ref.as_ref()),
        volume.csi.as_ref().and_then(|source| source.node_publish_secret_ref.as_ref()),
    ];
    let direct = [
        volume.azure_file.as_ref().map(|source| source.secret_name.as_str()),
        volume.secret.as_ref().and_then(|source| source.secret_name.as_deref()),
    ];
    let projected = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    local
        .into_iter()
        .flatten()
        .map(|secret| secret.name.as_str())
        .chain(direct.into_iter().flatten())
        .chain(projected.filter_map(|source| Some(source.secret.as_ref()?.name.as_str())))
}

/// Whether a Pod names a ConfigMap.
fn has_config_map(spec: &PodSpec) -> bool {
    let (mut variables, mut from) = environment(spec);
    let named = |name: &str| !name.is_empty();
    from.any(|from| from.config_map_ref.as_ref().is_some_and(|map| named(&map.name)))
        || variables.any(|variable| {
            let key = variable.value_from.as_ref().and_then(|from| from.config_map_key_ref.as_ref());
            key.is_some_and(|key| named(&key.name))
        })
        || spec.volumes.iter().flatten().any(|volume| {
            let projected = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
            let all = projected.filter_map(|source| source.config_map.as_ref().map(|map| &map.name));
            volume.config_map.iter().map(|map| &map.name).chain(all).any(|name| named(name))
        })
}

fn of_volume(volume: &Volume) -> Option<&'static str> {
    if volume.config_map.is_some() {
        return Some("configmaps (via configmap volumes)");
    }
    if volume.secret.is_some() {
        return Some("secrets (via secret volumes)");
    }
    if volume.csi.is_some() {
        return Some("csidrivers (via CSI volumes)");
    }
    if volume.glusterfs.is_some() {
        return Some("endpoints (via glusterFS volumes)");
    }
    if volume.persistent_volume_claim.is_some() {
        return Some("persistentvolumeclaims");
    }
    if volume.ephemeral.is_some() {
        return Some("persistentvolumeclaims (via ephemeral volumes)");
    }
    if volume.azure_file.is_some() {
        return Some("secrets (via azureFile volumes)");
    }
    volume.projected.iter().flat_map(|p| p.sources.iter().flatten()).find_map(|source| {
        if source.config_map.is_some() {
            Some("configmaps (via projected volumes)")
        } else if source.secret.is_some() {
            Some("secrets (via projected volumes)")
        } else if source.service_account_token.is_some() {
            Some("serviceaccounts (via projected volumes)")
        } else if source.cluster_trust_bundle.is_some() {
            Some("clustertrustbundles")
        } else if source.pod_certificate.is_some() {
            Some("podcertificates")
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: Value, expected: &str) {
        let mut spec = spec;
        if spec.get("containers").is_none() {
            spec["containers"] = json!([]);
        }
        let typed: PodSpec = serde_json::from_value(spec.clone()).unwrap();
        assert_eq!(of(&typed).unwrap_or_default(), expected, "{spec}");
    }

    fn volumes(sources: &[Value]) -> Value {
        let named = |source: &Value| {
            let mut volume = source.clone();
            volume["name"] = json!("v");
            volume
        };
        json!({"volumes": sources.iter().map(named).collect::<Vec<_>>()})
    }

    fn projected(source: Value) -> Value {
        json!({"projected": {"sources": [source]}})
    }

    /// Upstream's cases (`TestHasAPIReferences`) of volumes, 36 of them.
    #[test]
    fn volumes_need_objects_of_the_api() {
        check(json!({}), "");
        check(json!({"serviceAccountName": "default"}), "serviceaccounts");
        for free in [
            json!({"hostPath": {"path": ""}}),
            json!({"emptyDir": {}}),
            json!({"gcePersistentDisk": {"pdName": ""}}),
            json!({"awsElasticBlockStore": {"volumeID": ""}}),
            json!({"gitRepo": {"repository": ""}}),
            json!({"nfs": {"server": "", "path": ""}}),
            json!({"iscsi": {"targetPortal": "", "iqn": "", "lun": 0}}),
            json!({"rbd": {"monitors": [], "image": ""}}),
            json!({"flexVolume": {"driver": ""}}),
            json!({"cinder": {"volumeID": ""}}),
            json!({"cephfs": {"monitors": []}}),
            json!({"flocker": {}}),
            json!({"downwardAPI": {}}),
            json!({"fc": {}}),
            json!({"vsphereVolume": {"volumePath": ""}}),
            json!({"quobyte": {"registry": "", "volume": ""}}),
            json!({"azureDisk": {"diskName": "", "diskURI": ""}}),
            json!({"photonPersistentDisk": {"pdID": ""}}),
            projected(json!({"downwardAPI": {}})),
            json!({"portworxVolume": {"volumeID": ""}}),
            json!({"scaleIO": {"gateway": "", "system": "", "secretRef": {}}}),
            json!({"storageos": {}}),
            json!({"image": {}}),
        ] {
            check(volumes(&[free]), "");
        }
        let kept = |source: Value, expected: &str| check(volumes(&[source]), expected);
        kept(json!({"secret": {}}), "secrets (via secret volumes)");
        kept(json!({"configMap": {}}), "configmaps (via configmap volumes)");
        kept(json!({"glusterfs": {"endpoints": "", "path": ""}}), "endpoints (via glusterFS volumes)");
        kept(json!({"persistentVolumeClaim": {"claimName": ""}}), "persistentvolumeclaims");
        kept(json!({"azureFile": {"secretName": "", "shareName": ""}}), "secrets (via azureFile volumes)");
        kept(projected(json!({"clusterTrustBundle": {"path": ""}})), "clustertrustbundles");
        let certificate = json!({"podCertificate": {"signerName": "", "keyType": ""}});
        kept(projected(certificate), "podcertificates");
        kept(projected(json!({"secret": {}})), "secrets (via projected volumes)");
        kept(projected(json!({"configMap": {}})), "configmaps (via projected volumes)");
        kept(
            projected(json!({"serviceAccountToken": {"path": ""}})),
            "serviceaccounts (via projected volumes)",
        );
        kept(json!({"csi": {"driver": ""}}), "csidrivers (via CSI volumes)");
        kept(json!({"ephemeral": {}}), "persistentvolumeclaims (via ephemeral volumes)");
        let of_map = "configmaps (via configmap volumes)";
        check(volumes(&[json!({"portworxVolume": {"volumeID": ""}}), json!({"configMap": {}})]), of_map);
        let downward = projected(json!({"downwardAPI": {}}));
        check(volumes(&[downward.clone(), json!({"configMap": {}})]), of_map);
        let map = projected(json!({"configMap": {}}));
        check(volumes(&[downward, map]), "configmaps (via projected volumes)");
    }

    /// Upstream's cases of variables, 6 of them, for each kind of container.
    #[test]
    fn variables_need_objects_of_the_api() {
        let env = |from: Value| json!({"env": [{"name": "e", "valueFrom": from}]});
        for (container, expected) in [
            (json!({}), ""),
            (json!({"env": [{"name": "e", "value": "v"}]}), ""),
            (json!({"envFrom": [{"configMapRef": {"name": "test"}}]}), "configmaps"),
            (json!({"envFrom": [{"secretRef": {"name": "test"}}]}), "secrets"),
            (env(json!({"configMapKeyRef": {"name": "test", "key": "k"}})), "configmaps"),
            (env(json!({"secretKeyRef": {"name": "test", "key": "k"}})), "secrets"),
        ] {
            for list in ["containers", "initContainers", "ephemeralContainers"] {
                let mut container = container.clone();
                container["name"] = json!("c");
                check(json!({list: [container]}), expected);
            }
        }
    }

    /// A name counts before the kind of its volume.
    #[test]
    fn names_in_volumes_need_objects_of_the_api() {
        let secret = json!({"name": "s"});
        for source in [
            json!({"secret": {"secretName": "s"}}),
            json!({"azureFile": {"secretName": "s", "shareName": ""}}),
            json!({"cephfs": {"monitors": [], "secretRef": secret}}),
            json!({"cinder": {"volumeID": "", "secretRef": secret}}),
            json!({"flexVolume": {"driver": "", "secretRef": secret}}),
            json!({"rbd": {"monitors": [], "image": "", "secretRef": secret}}),
            json!({"scaleIO": {"gateway": "", "system": "", "secretRef": secret}}),
            json!({"iscsi": {"targetPortal": "", "iqn": "", "lun": 0, "secretRef": secret}}),
            json!({"storageos": {"secretRef": secret}}),
            json!({"csi": {"driver": "", "nodePublishSecretRef": secret}}),
            projected(json!({"secret": secret})),
        ] {
            check(volumes(&[source]), "secrets");
        }
        check(volumes(&[json!({"configMap": {"name": "m"}})]), "configmaps");
        check(volumes(&[projected(json!({"configMap": {"name": "m"}}))]), "configmaps");
        check(json!({"imagePullSecrets": [{"name": "s"}]}), "secrets");
        check(json!({"resourceClaims": [{"name": "r"}]}), "resourceclaims");
    }
}
