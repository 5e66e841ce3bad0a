//! Defaults that objects of the cluster set: DefaultStorageClass and DefaultIngressClass; and
//! StorageObjectInUseProtection.

use std::collections::HashMap;

use api::view::Edit;
use api::{Node, Status, Struct, Text};
use serde::Deserialize;

use super::plugin::{Env, Plugin};
use super::{AdmissionRequest, Operation};
use crate::reader::{ResourceName, read};

#[derive(Deserialize, Default)]
#[serde(default)]
struct Annotated {
    metadata: Meta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    annotations: HashMap<Text, Text>,
    creation_timestamp: Text,
}

/// Finds the newest class that is marked by one of these annotations; of several, the first by name.
fn default_class(env: &Env, resource: ResourceName, marks: &[&str]) -> Option<Text> {
    let mut found: Option<(Text, Text)> = None;
    for object in env.reader.list(resource, "") {
        let Some(Annotated { metadata }) = read(&object) else { continue };
        let marked = marks.iter().any(|m| metadata.annotations.get(*m).is_some_and(|v| v == "true"));
        // RFC 3339 in UTC: the order of the text is the order of time; the list is in the order of names.
        if marked && found.as_ref().is_none_or(|(made, _)| metadata.creation_timestamp > *made) {
            found = Some((metadata.creation_timestamp, object.data.name.clone()));
        }
    }
    found.map(|f| f.1)
}

/// Gives a claim without a class the default one.
#[derive(Default)]
pub(super) struct DefaultStorageClass;

impl Plugin for DefaultStorageClass {
    fn mutate(&self, env: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        if request.operation != Operation::Create || !request.is("", "persistentvolumeclaims") {
            return Ok(());
        }
        let claim = env.view(object);
        let by_annotation = claim
            .st("metadata")
            .map("annotations")
            .is_some_and(|a| a.get("volume.beta.kubernetes.io/storage-class").is_some());
        if by_annotation || claim.st("spec").has("storageClassName") {
            return Ok(());
        }
        const MARKS: [&str; 2] = [
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ];
        if let Some(class) = default_class(env, ("storage.k8s.io", "storageclasses"), &MARKS)
            && let Some(mut spec) = Edit::new(env.schema, object).make("spec")
        {
            spec.set("storageClassName", class);
        }
        Ok(())
    }
}

/// Gives an Ingress without a class the default one.
#[derive(Default)]
pub(super) struct DefaultIngressClass;

impl Plugin for DefaultIngressClass {
    fn mutate(&self, env: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        const GROUP: &str = "networking.k8s.io";
        if request.operation != Operation::Create || !request.is(GROUP, "ingresses") {
            return Ok(());
        }
        let ingress = env.view(object);
        let by_annotation = ingress
            .st("metadata")
            .map("annotations")
            .is_some_and(|a| a.get("kubernetes.io/ingress.class").is_some());
        if by_annotation || ingress.st("spec").has("ingressClassName") {
            return Ok(());
        }
        const MARKS: [&str; 1] = ["ingressclass.kubernetes.io/is-default-class"];
        if let Some(class) = default_class(env, (GROUP, "ingressclasses"), &MARKS)
            && let Some(mut spec) = Edit::new(env.schema, object).make("spec")
        {
            spec.set("ingressClassName", class);
        }
        Ok(())
    }
}

/// Gives storage a finalizer, so that it is not deleted while it is used; a controller takes the finalizer off.
#[derive(Default)]
pub(super) struct StorageObjectInUseProtection;

impl Plugin for StorageObjectInUseProtection {
    fn mutate(&self, env: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        if request.operation != Operation::Create {
            return Ok(());
        }
        let finalizer = if request.is("", "persistentvolumes") {
            "kubernetes.io/pv-protection"
        } else if request.is("", "persistentvolumeclaims") {
            "kubernetes.io/pvc-protection"
        } else if request.is("storage.k8s.io", "volumeattributesclasses") {
            "kubernetes.io/vac-protection"
        } else {
            return Ok(());
        };
        let mut edit = Edit::new(env.schema, object);
        let Some(mut meta) = edit.make("metadata") else { return Ok(()) };
        if meta.view().strs("finalizers").any(|f| f == finalizer) {
            return Ok(());
        }
        match meta.get_mut("finalizers").and_then(Node::as_list_mut) {
            Some(list) => list.push(finalizer.into()),
            None => meta.set("finalizers", vec![finalizer.into()]),
        }
        Ok(())
    }
}
