//! Collects the descriptions of types and fields from the JSON schemas of k8s-openapi's types, and those that they lack
//! from `more.tsv`, into one file: records of definition, field (empty for the definition itself) and text, in
//! compressed blocks.
//!
//! With its `schemars` feature k8s-openapi takes about 20 s of CPU to compile, without optimization. It is a dependency
//! of this script alone: the k8s-openapi that the binary links is compiled without that feature.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Error, Result, Write};
use std::path::Path;

use k8s_openapi::schemars::SchemaGenerator;
use serde_json::Value;

/// Texts by definition and field.
type Texts = BTreeMap<(String, String), String>;

/// Makes the schemas of the types, and with them those of all types that they reach.
macro_rules! schemas {
    ($generator:ident; $($($module:ident)::+: $($kind:ident),+;)+) => {
        $({
            use k8s_openapi::$($module)::+ as module;
            $($generator.subschema_for::<module::$kind>();)+
        })+
    };
}

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=more.tsv");
    let out = std::env::var_os("OUT_DIR").ok_or_else(|| Error::other("no OUT_DIR"))?;
    let mut texts = Texts::new();
    for (definition, schema) in definitions() {
        descriptions(&definition, &schema, &mut texts);
    }
    more(include_str!("more.tsv"), &mut texts);
    let (mut packed, mut blocks) = (Vec::new(), String::new());
    let mut block = Block::default();
    for ((definition, field), text) in texts {
        if block.text.len() >= BLOCK {
            std::mem::take(&mut block).pack(&mut packed, &mut blocks)?;
        }
        if block.text.is_empty() {
            block.first = format!("{definition}\t{field}");
        }
        write!(block.text, "{definition}\x1f{field}\x1f{text}\x1e")?;
    }
    block.pack(&mut packed, &mut blocks)?;
    let out = Path::new(&out);
    std::fs::write(out.join("descriptions.z"), packed)?;
    std::fs::write(out.join("blocks.tsv"), blocks)
}

/// The size of a block, in bytes: what is unpacked for one text. Larger ones pack better.
const BLOCK: usize = 32 << 10;

/// A run of records that is packed by itself.
#[derive(Default)]
struct Block {
    /// The definition and the field of the first record.
    first: String,
    text: Vec<u8>,
}

impl Block {
    fn pack(self, packed: &mut Vec<u8>, blocks: &mut String) -> Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        let start = packed.len();
        let mut out = flate2::write::ZlibEncoder::new(&mut *packed, flate2::Compression::best());
        out.write_all(&self.text)?;
        out.finish()?;
        writeln!(blocks, "{}\t{}", self.first, packed.len() - start).map_err(Error::other)?;
        Ok(())
    }
}

/// The schemas of every type of the API, by their names in OpenAPI. Only types that no other type has as a
/// field need to be named.
fn definitions() -> BTreeMap<String, Value> {
    let mut generator = SchemaGenerator::default();
    kinds(&mut generator);
    generator.take_definitions(false).into_iter().collect()
}

#[rustfmt::skip]
fn kinds(generator: &mut SchemaGenerator) {
    schemas! { generator;
        api::admissionregistration::v1:
            MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration,
            ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration;
        api::admissionregistration::v1alpha1: MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding;
        api::admissionregistration::v1beta1: MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding;
        api::apiserverinternal::v1alpha1: StorageVersion;
        api::apps::v1: ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet;
        api::authentication::v1: SelfSubjectReview, TokenRequest, TokenReview;
        api::authorization::v1:
            LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview;
        api::autoscaling::v1: HorizontalPodAutoscaler, Scale;
        api::autoscaling::v2: HorizontalPodAutoscaler;
        api::batch::v1: CronJob, Job;
        api::certificates::v1: CertificateSigningRequest;
        api::certificates::v1alpha1: ClusterTrustBundle;
        api::certificates::v1beta1: ClusterTrustBundle, PodCertificateRequest;
        api::coordination::v1: Lease;
        api::coordination::v1alpha2: LeaseCandidate;
        api::coordination::v1beta1: LeaseCandidate;
        api::core::v1:
            Binding, ComponentStatus, ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolume,
            Pod, PodTemplate, ReplicationController, ResourceQuota, Secret, Service, ServiceAccount;
        api::discovery::v1: EndpointSlice;
        api::events::v1: Event;
        api::flowcontrol::v1: FlowSchema, PriorityLevelConfiguration;
        api::networking::v1: IPAddress, Ingress, IngressClass, NetworkPolicy, ServiceCIDR;
        api::networking::v1beta1: IPAddress, ServiceCIDR;
        api::node::v1: RuntimeClass;
        api::policy::v1: Eviction, PodDisruptionBudget;
        api::rbac::v1: ClusterRole, ClusterRoleBinding, Role, RoleBinding;
        api::resource::v1: DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice;
        api::resource::v1alpha3: DeviceTaintRule, ResourcePoolStatusRequest;
        api::resource::v1beta1: DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice;
        api::resource::v1beta2: DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice;
        api::scheduling::v1: PriorityClass;
        api::scheduling::v1alpha2: PodGroup, Workload;
        api::storage::v1:
            CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass;
        api::storage::v1beta1: VolumeAttributesClass;
        api::storagemigration::v1beta1: StorageVersionMigration;
        apiextensions_apiserver::pkg::apis::apiextensions::v1: CustomResourceDefinition;
        apimachinery::pkg::apis::meta::v1: APIGroupList, APIResourceList, APIVersions, Patch, Status;
        apimachinery::pkg::version: Info;
        kube_aggregator::pkg::apis::apiregistration::v1: APIService;
    }
}

/// Takes a definition's description, and those of its fields.
fn descriptions(definition: &str, schema: &Value, out: &mut Texts) {
    let mut take = |field: &str, of: &Value| {
        if let Some(text) = of["description"].as_str() {
            out.insert((definition.to_owned(), field.to_owned()), text.to_owned());
        }
    };
    take("", schema);
    for (field, of) in schema["properties"].as_object().into_iter().flatten() {
        take(field, of);
    }
}

fn more(table: &str, texts: &mut Texts) {
    let of_all = ["apiVersion", "kind"].map(|field| {
        let pod = ("io.k8s.api.core.v1.Pod".to_owned(), field.to_owned());
        (field, texts.get(&pod).cloned().unwrap_or_default())
    });
    for line in table.lines().filter(|l| !l.starts_with('#')) {
        let mut columns = line.splitn(3, '\t');
        let (Some(definition), Some(field), Some(text)) = (columns.next(), columns.next(), columns.next())
        else {
            continue;
        };
        let at = (definition.to_owned(), field.to_owned());
        let text = unescaped(text);
        match text.strip_prefix('+') {
            Some(rest) => texts.entry(at).or_default().push_str(rest),
            None => {
                texts.insert(at, text);
            }
        }
        if definition.ends_with("List") {
            for (field, text) in &of_all {
                texts.insert((definition.to_owned(), (*field).to_owned()), text.clone());
            }
        }
    }
}

/// The value of a string literal.
fn unescaped(literal: &str) -> String {
    let mut out = String::with_capacity(literal.len());
    let mut chars = literal.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('u') => {
                let hex: String = chars.by_ref().skip(1).take_while(|c| *c != '}').collect();
                out.extend(u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32));
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}
