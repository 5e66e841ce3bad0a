//! The objects by which nodes join: the ConfigMap that tells where the cluster is and by which authority it is known,
//! and the rights of those who join. Names are kubeadm's, where it has one, so that its tools find them.

use std::time::Duration;

use api::Status;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::bootstrap::{CLUSTER_INFO, KUBECONFIG_KEY, NODE_GROUP};
use client::{Backoff, Client, Patch};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::introduce::create;
use crate::seat::NodeParts;

/// The namespace and the name of the ConfigMap with the settings that nodes need; kubeadm's.
pub(crate) const SETTINGS: (&str, &str) = ("kube-system", "kubeadm-config");
/// The key of the settings in the ConfigMap.
pub(crate) const SETTINGS_KEY: &str = "ClusterConfiguration";
/// The key of the names of the parts that nodes run themselves besides the kubelet.
pub(crate) const PARTS_KEY: &str = "FerroKubeNodeParts";
/// The key of the names of the features that are on for kubelets.
pub(crate) const FEATURES_KEY: &str = "FerroKubeNodeFeatures";
/// The user as whom a node's DNS server reads; one of [`controllers::certificates::NODE_ACCOUNTS`].
pub(crate) const DNS_USER: &str = dns::USER;
/// The user as whom a node reads network policies, another of them.
pub(crate) const POLICY_USER: &str = "system:node-policy";
/// The user as whom a node announces load balancers, another of them.
pub(crate) const BALANCER_USER: &str = "system:node-balancer";

const RBAC: &str = "rbac.authorization.k8s.io";
const CERTIFICATES: &str = "certificates.k8s.io";
const NODES: &str = "system:nodes";

/// The facts of the cluster that the objects tell.
#[derive(Debug, Clone)]
struct Facts {
    server: String,
    ca: String,
    pods: String,
    services: String,
    parts: String,
    features: String,
}

/// Makes the objects, and makes them what they should be, in the background.
pub(crate) fn introduce(plane: &ControlPlane, parts: NodeParts) {
    let facts = Facts {
        server: plane.advertised_url(),
        ca: plane.pki().ca.certificate_pem.clone(),
        pods: plane.cluster_cidr().to_owned(),
        services: plane.service_cidrs().join(","),
        parts: parts.names(),
        features: plane.node_features().names(),
    };
    let (admin, shutdown) = (plane.admin(), plane.shutdown().clone());
    plane.shutdown().spawn(async move {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
        let work = async {
            while let Err(status) = introduce_once(&admin, &facts).await {
                tracing::warn!(%status, "the objects by which nodes join, will retry");
                tokio::time::sleep(backoff.delay()).await;
            }
        };
        let _ = shutdown.run(work).await;
    });
}

async fn introduce_once(admin: &Client, facts: &Facts) -> Result<(), Status> {
    for role in cluster_roles() {
        create::<ClusterRole>(admin, "", role).await?;
    }
    for binding in cluster_bindings() {
        create::<ClusterRoleBinding>(admin, "", binding).await?;
    }
    dns_account(admin).await?;
    for (namespace, name, map) in [
        (CLUSTER_INFO.0, "kubeadm:bootstrap-signer-clusterinfo", CLUSTER_INFO.1),
        (SETTINGS.0, "kubeadm:nodes-kubeadm-config", SETTINGS.1),
    ] {
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [map], "verbs": ["get"]}]);
        let role = json!({"metadata": {"name": name, "namespace": namespace}, "rules": rules});
        create::<Role>(admin, namespace, role).await?;
        let subjects = match map {
            // A machine that joins knows nothing of the cluster yet, and has no name there.
            map if map == CLUSTER_INFO.1 => {
                json!([{"apiGroup": RBAC, "kind": "User", "name": "system:anonymous"}])
            }
            _ => json!([group(NODE_GROUP), group(NODES)]),
        };
        let role = json!({"apiGroup": RBAC, "kind": "Role", "name": name});
        let binding = json!({"metadata": {"name": name, "namespace": namespace}, "roleRef": role, "subjects": subjects});
        create::<RoleBinding>(admin, namespace, binding).await?;
    }
    tell(admin, CLUSTER_INFO, KUBECONFIG_KEY, &cluster_info(&facts.server, &facts.ca)).await?;
    tell(admin, SETTINGS, SETTINGS_KEY, &settings(facts)).await?;
    // The last one is found by nobody who does not find all of them.
    tell(admin, SETTINGS, FEATURES_KEY, &facts.features).await?;
    tell(admin, SETTINGS, PARTS_KEY, &facts.parts).await
}

/// Gives nodes' DNS servers their rights, which are those of CoreDNS.
pub(crate) async fn dns_account(admin: &Client) -> Result<(), Status> {
    let role = json!({
        "metadata": {"name": DNS_USER},
        "rules": [
            {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"]},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        ],
    });
    create::<ClusterRole>(admin, "", role).await?;
    let binding = json!({
        "metadata": {"name": DNS_USER},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": DNS_USER},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": DNS_USER}],
    });
    create::<ClusterRoleBinding>(admin, "", binding).await
}

/// The kubeconfig of `cluster-info`: the cluster without anybody's credentials.
fn cluster_info(server: &str, ca: &str) -> String {
    let cluster = json!({"certificate-authority-data": STANDARD.encode(ca), "server": server});
    let all = json!({
        "apiVersion": "v1", "kind": "Config", "preferences": {}, "current-context": "",
        "clusters": [{"name": "", "cluster": cluster}], "contexts": null, "users": null,
    });
    format!("{all:#}\n")
}

/// The settings that nodes need, as kubeadm writes them.
fn settings(facts: &Facts) -> String {
    let all = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ClusterConfiguration", "clusterName": "kubernetes",
        "kubernetesVersion": component::version::KUBERNETES,
        "controlPlaneEndpoint": facts.server.trim_start_matches("https://"),
        "networking": {"dnsDomain": "cluster.local", "podSubnet": facts.pods, "serviceSubnet": facts.services},
    });
    format!("{all:#}\n")
}

fn group(name: &str) -> Value {
    json!({"apiGroup": RBAC, "kind": "Group", "name": name})
}

fn cluster_roles() -> Vec<Value> {
    let rule = |verbs: &[&str], group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let signers = ["kubernetes.io/kube-apiserver-client", "kubernetes.io/kubelet-serving"];
    let approve = json!({
        "apiGroups": [CERTIFICATES], "resources": ["signers"], "resourceNames": signers, "verbs": ["approve"],
    });
    let requests = "certificatesigningrequests";
    vec![
        json!({"metadata": {"name": "kubeadm:get-nodes"}, "rules": [rule(&["get"], "", &["nodes"])]}),
        json!({
            "metadata": {"name": "system:certificates.k8s.io:certificatesigningrequests:nodeaccount"},
            "rules": [rule(&["create"], CERTIFICATES, &["certificatesigningrequests/nodeaccount"])],
        }),
        json!({
            "metadata": {"name": "system:controller:node-certificate-approver"},
            "rules": [
                rule(&["get", "list", "watch"], CERTIFICATES, &[requests]),
                rule(&["update"], CERTIFICATES, &["certificatesigningrequests/approval"]),
                approve,
                rule(&["create"], "authorization.k8s.io", &["subjectaccessreviews"]),
            ],
        }),
    ]
}

fn cluster_bindings() -> Vec<Value> {
    let binding = |name: &str, role: &str, subject: Value| {
        let role = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": role});
        json!({"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
    };
    let requests = |sub: &str| format!("system:certificates.k8s.io:certificatesigningrequests:{sub}");
    let approver = "system:controller:node-certificate-approver";
    let account =
        json!({"kind": "ServiceAccount", "namespace": "kube-system", "name": "node-certificate-approver"});
    vec![
        binding("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", group(NODE_GROUP)),
        binding("kubeadm:get-nodes", "kubeadm:get-nodes", group(NODE_GROUP)),
        binding("kubeadm:node-autoapprove-bootstrap", &requests("nodeclient"), group(NODE_GROUP)),
        binding("kubeadm:node-autoapprove-certificate-rotation", &requests("selfnodeclient"), group(NODES)),
        binding(&requests("nodeaccount"), &requests("nodeaccount"), group(NODES)),
        binding(approver, approver, account),
    ]
}

/// Writes one key of a ConfigMap, unless it is so already. Other keys are others'.
async fn tell(admin: &Client, (namespace, name): (&str, &str), key: &str, text: &str) -> Result<(), Status> {
    let api = admin.api::<ConfigMap>(namespace);
    match api.get(name).await {
        Err(status) if status.is_not_found() => {
            let map = json!({"metadata": {"name": name, "namespace": namespace}, "data": {key: text}});
            create::<ConfigMap>(admin, namespace, map).await
        }
        Err(status) => Err(status),
        Ok(map) if map.data.as_ref().is_some_and(|d| d.get(key).is_some_and(|old| old == text)) => Ok(()),
        Ok(_) => api.patch(name, &Patch::Merge(json!({"data": {key: text}}))).await.map(drop),
    }
}
