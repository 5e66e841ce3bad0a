//! ServiceAccount: every pod runs as a service account, and its containers find that account's token.

use std::collections::HashSet;
use std::time::Duration;

use api::view::{Edit, View};
use api::{Node, Status, Struct, Text};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Deserialize;

use super::plugin::{Env, Plugin};
use super::reinvocation::Reinvocation;
use super::{AdmissionRequest, Operation};
use crate::reader::{ResourceName, read};

const ACCOUNTS: ResourceName = ("", "serviceaccounts");
const DEFAULT: &str = "default";
const MIRROR: &str = "kubernetes.io/config.mirror";
const VOLUME: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The lifetime of the token that every pod gets, in seconds; the API server knows such tokens by this value.
const TOKEN_LIFETIME: i64 = 3607;
/// The time for which a pod waits for the service account that a controller makes in every namespace.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct ServiceAccount;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Named {
    name: Text,
}

/// The fields of a service account that a pod depends on.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Account {
    metadata: Meta,
    secrets: Vec<Named>,
    image_pull_secrets: Vec<Named>,
    automount_service_account_token: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Meta {
    annotations: std::collections::HashMap<Text, Text>,
}

impl Account {
    /// Whether the account's pods may name only the secrets that it lists.
    fn limits_secrets(&self) -> bool {
        let value = self.metadata.annotations.get("kubernetes.io/enforce-mountable-secrets");
        value.is_some_and(|v| api::go::parse_bool(v.as_str()) == Some(true))
    }
}

impl Plugin for ServiceAccount {
    fn mutate_waiting<'a>(
        &'a self,
        env: &'a Env,
        request: &'a AdmissionRequest<'a>,
        object: &'a mut Struct,
        _: &'a mut Reinvocation,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        if !(request.is("", "pods") && request.operation == Operation::Create) {
            return None;
        }
        let admit = async move {
            wait_for_default(env, request, object).await;
            Self::admit(env, request, object)
        };
        Some(admit.boxed())
    }

    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        let Some(object) = object else { return Ok(()) };
        let ephemeral =
            request.operation == Operation::Update && request.is_with("", "pods", "ephemeralcontainers");
        if !(ephemeral || request.operation == Operation::Create && request.is("", "pods")) {
            return Ok(());
        }
        let pod = env.view(object);
        if !ephemeral && is_mirror(&pod) {
            return check_mirror(env, request, object);
        }
        if pod.st("spec").str("serviceAccountName").is_empty() {
            let name = pod.st("metadata").str("name");
            let why = format!("no service account specified for pod {}/{name}", request.namespace);
            return Err(request.forbidden(Some(object), why));
        }
        let account = find(env, request, object)?;
        if !account.limits_secrets() {
            return Ok(());
        }
        let name = pod.st("spec").str("serviceAccountName");
        match unlisted_secret(&pod.st("spec"), &account, name, ephemeral) {
            Some(why) => Err(request.forbidden(Some(object), why)),
            None => Ok(()),
        }
    }
}

/// Waits until the default account of a Pod's namespace exists, if the Pod needs it, or will not come.
async fn wait_for_default(env: &Env, request: &AdmissionRequest<'_>, object: &Struct) {
    let pod = env.view(object);
    let name = pod.st("spec").str("serviceAccountName");
    if is_mirror(&pod)
        || !matches!(name, "" | DEFAULT)
        || env.reader.get(ACCOUNTS, request.namespace, DEFAULT).is_some()
    {
        return;
    }
    let appears = env.reader.appears(ACCOUNTS, request.namespace, DEFAULT);
    // Admission looks for the account itself, so that the result is not needed.
    let _ = tokio::time::timeout(DEFAULT_WAIT, appears).await;
}

impl ServiceAccount {
    /// Gives a Pod its account, and the account's pull secrets and token.
    fn admit(env: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        if is_mirror(&env.view(object)) {
            return check_mirror(env, request, object);
        }
        if env.view(object).st("spec").str("serviceAccountName").is_empty()
            && let Some(mut spec) = Edit::new(env.schema, object).make("spec")
        {
            spec.set("serviceAccountName", DEFAULT);
            // The old name of the field, which upstream's conversion always fills too.
            spec.set("serviceAccount", DEFAULT);
        }
        let account = find(env, request, object)?;
        let mut pod = Edit::new(env.schema, object);
        let Some(mut spec) = pod.make("spec") else { return Ok(()) };
        let mounts = spec.view().opt_bool("automountServiceAccountToken");
        if mounts.or(account.automount_service_account_token).unwrap_or(true) {
            mount_token(&mut spec);
        }
        if spec.view().len("imagePullSecrets") == 0 && !account.image_pull_secrets.is_empty() {
            let secrets = account.image_pull_secrets.iter().filter_map(|secret| {
                let mut made = spec.fresh("imagePullSecrets")?;
                if !secret.name.is_empty() {
                    Edit::new(env.schema, &mut made).set("name", secret.name.clone());
                }
                Some(made.into())
            });
            let secrets: Vec<Node> = secrets.collect();
            spec.set("imagePullSecrets", secrets);
        }
        Ok(())
    }
}

fn is_mirror(pod: &View<'_>) -> bool {
    pod.st("metadata").map("annotations").is_some_and(|a| a.get(MIRROR).is_some())
}

fn find(env: &Env, request: &AdmissionRequest<'_>, object: &Struct) -> Result<Account, Status> {
    let name = env.view(object).st("spec").str("serviceAccountName");
    match env.reader.get(ACCOUNTS, request.namespace, name) {
        Some(account) => Ok(read(&account).unwrap_or_default()),
        None => Err(request.forbidden(
            Some(object),
            format!(
                "error looking up service account {}/{name}: serviceaccount {name:?} not found",
                request.namespace
            ),
        )),
    }
}

fn check_mirror(env: &Env, request: &AdmissionRequest<'_>, object: &Struct) -> Result<(), Status> {
    let spec = env.view(object).st("spec");
    let why = if !spec.str("serviceAccountName").is_empty() {
        "a mirror pod may not reference service accounts"
    } else if super::references::secret(&spec) {
        "a mirror pod may not reference secrets"
    } else if spec
        .items("volumes")
        .any(|v| v.st("projected").items("sources").any(|s| s.has("serviceAccountToken")))
    {
        "a mirror pod may not use ServiceAccountToken volume projections"
    } else {
        return Ok(());
    };
    Err(request.forbidden(Some(object), why))
}

/// Makes upstream's text about the first secret that a pod names and its account does not list.
fn unlisted_secret(spec: &View<'_>, account: &Account, name: &str, ephemeral: bool) -> Option<String> {
    let names = |of: &'_ [Named]| of.iter().map(|s| s.name.clone()).collect::<HashSet<Text>>();
    let (secrets, pulling) = (names(&account.secrets), names(&account.image_pull_secrets));
    let listed = |secret: &str| secrets.contains(secret);
    let tail = format!("is not allowed because service account {name} does not reference that");
    if !ephemeral {
        for volume in spec.items("volumes") {
            let Some(secret) = volume.opt("secret").map(|s| s.str("secretName")) else { continue };
            if !listed(secret) {
                return Some(format!("volume with secret.secretName=\"{secret}\" {tail} secret"));
            }
        }
    }
    let kinds: &[(&str, &str)] = if ephemeral {
        &[("ephemeralContainers", "ephemeral container")]
    } else {
        &[("initContainers", "init container"), ("containers", "container")]
    };
    for (field, what) in kinds {
        for container in spec.items(field) {
            let this = container.str("name");
            for env in container.items("env") {
                let Some(secret) = env.st("valueFrom").opt("secretKeyRef").map(|r| r.str("name")) else {
                    continue;
                };
                if !listed(secret) {
                    let env = env.str("name");
                    return Some(format!(
                        "{what} {this} with envVar {env} referencing secret.secretName=\"{secret}\" {tail} secret"
                    ));
                }
            }
            for from in container.items("envFrom") {
                let Some(secret) = from.opt("secretRef").map(|r| r.str("name")) else { continue };
                if !listed(secret) {
                    return Some(format!(
                        "{what} {this} with envFrom referencing secret.secretName=\"{secret}\" {tail} secret"
                    ));
                }
            }
        }
    }
    if !ephemeral {
        for (i, secret) in spec.items("imagePullSecrets").map(|s| s.str("name")).enumerate() {
            if !pulling.contains(secret) {
                return Some(format!("imagePullSecrets[{i}].name=\"{secret}\" {tail} imagePullSecret"));
            }
        }
    }
    None
}

/// Adds a volume with the token, the cluster's CA and the namespace, and mounts it into every container that has no
/// mount of its own at that path.
fn mount_token(spec: &mut Edit<'_>) {
    let existing = spec.view().items("volumes").map(|v| v.str("name")).find(|n| n.starts_with(VOLUME));
    let name = existing.map(Text::from);
    let exists = name.is_some();
    let name = name.unwrap_or_else(|| generate_name(VOLUME));
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        for mut container in spec.items(list) {
            if container.view().items("volumeMounts").any(|m| m.str("mountPath") == MOUNT_PATH) {
                continue;
            }
            needed = true;
            append(&mut container, "volumeMounts", |mount| {
                mount.set("name", name.clone());
                mount.set("readOnly", true);
                mount.set("mountPath", MOUNT_PATH);
            });
        }
    }
    if exists || !needed {
        return;
    }
    append(spec, "volumes", |volume| {
        volume.set("name", name.clone());
        let Some(mut projected) = volume.make("projected") else { return };
        projected.set("defaultMode", i64::from(0o644));
        append(&mut projected, "sources", |source| {
            let Some(mut token) = source.make("serviceAccountToken") else { return };
            token.set("expirationSeconds", TOKEN_LIFETIME);
            token.set("path", "token");
        });
        append(&mut projected, "sources", |source| {
            let Some(mut ca) = source.make("configMap") else { return };
            ca.set("name", "kube-root-ca.crt");
            append(&mut ca, "items", |item| {
                item.set("key", "ca.crt");
                item.set("path", "ca.crt");
            });
        });
        append(&mut projected, "sources", |source| {
            let Some(mut downward) = source.make("downwardAPI") else { return };
            append(&mut downward, "items", |item| {
                item.set("path", "namespace");
                let Some(mut field) = item.make("fieldRef") else { return };
                field.set("apiVersion", "v1");
                field.set("fieldPath", "metadata.namespace");
            });
        });
    });
}

/// Makes a name with five random characters at its end, of upstream's alphabet.
fn generate_name(base: &str) -> Text {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut name = Text::from(base);
    for _ in 0..5 {
        name.push(char::from(ALPHABET[fastrand::usize(..ALPHABET.len())]));
    }
    name
}

/// Appends a struct to a list.
pub(super) fn append(to: &mut Edit<'_>, list: &str, fill: impl FnOnce(&mut Edit<'_>)) {
    let Some(mut made) = to.fresh(list) else { return };
    fill(&mut Edit::new(to.schema, &mut made));
    match to.get_mut(list).and_then(Node::as_list_mut) {
        Some(list) => list.push(made.into()),
        None => to.set(list, vec![made.into()]),
    }
}
