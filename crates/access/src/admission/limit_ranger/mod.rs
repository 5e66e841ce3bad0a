//! LimitRanger: containers, Pods and claims ask for amounts within the ranges of their namespace, and containers that
//! say nothing get the ranges' defaults.

mod bounds;
#[cfg(test)]
mod tests;

use api::view::{Edit, View};
use api::{Status, Struct};
use client::FromJson;
use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem};

use super::plugin::{Env, Plugin};
use super::{AdmissionRequest, Operation};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

#[derive(Default)]
pub(super) struct LimitRanger;

impl Plugin for LimitRanger {
    fn mutate(&self, env: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        if request.resource == "pods" && is_concerned(env, request) {
            for range in ranges(env, request.namespace) {
                set_defaults(&mut Edit::new(env.schema, object), &range);
            }
        }
        Ok(())
    }

    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        let Some(object) = object.filter(|_| is_concerned(env, request)) else { return Ok(()) };
        for range in ranges(env, request.namespace) {
            let errors = check(&env.view(object), request.resource, &range);
            if let Some(why) = aggregate(errors) {
                return Err(request.forbidden(Some(object), why));
            }
        }
        Ok(())
    }
}

/// Whether ranges bound the object of a request. The amounts of a Pod change by `resize` alone, and nothing is refused
/// to an object that is being deleted.
fn is_concerned(env: &Env, request: &AdmissionRequest<'_>) -> bool {
    let (create, update) = (request.operation == Operation::Create, request.operation == Operation::Update);
    let asked = create && request.is("", "pods")
        || update && request.is_with("", "pods", "resize")
        || (create || update) && request.is("", "persistentvolumeclaims");
    asked && !request.old.is_some_and(|old| env.view(old).st("metadata").has("deletionTimestamp"))
}

fn ranges(env: &Env, namespace: &str) -> Vec<LimitRange> {
    let stored = env.reader.list(("", "limitranges"), namespace);
    stored.iter().filter_map(|object| LimitRange::from_json(&object.data.body).ok()).collect()
}

fn items(range: &LimitRange) -> &[LimitRangeItem] {
    range.spec.as_ref().map(|spec| spec.limits.as_slice()).unwrap_or_default()
}

/// Gives a Pod's containers what they do not ask for themselves, and notes it in an annotation.
fn set_defaults(pod: &mut Edit<'_>, range: &LimitRange) {
    let of_containers = || items(range).iter().filter(|item| item.type_ == "Container");
    // A later item's default takes the place of an earlier one's.
    let collect = |of: fn(&LimitRangeItem) -> Option<&objects::quantity::ResourceList>| {
        let mut all = objects::quantity::ResourceList::new();
        for list in of_containers().filter_map(of) {
            all.extend(list.clone());
        }
        all
    };
    let (limits, requests) =
        (collect(|item| item.default.as_ref()), collect(|item| item.default_request.as_ref()));
    if limits.is_empty() && requests.is_empty() {
        return;
    }
    let mut notes = Vec::new();
    if let Some(mut spec) = pod.at("spec") {
        for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
            for mut container in spec.items(list) {
                let of = format!("{what} {}", container.view().str("name"));
                for (field, defaults, kind) in
                    [("requests", &requests, "request"), ("limits", &limits, "limit")]
                {
                    let set = fill(&mut container, field, defaults);
                    if !set.is_empty() {
                        notes.push(format!("{} {kind} for {of}", set.join(", ")));
                    }
                }
            }
        }
    }
    if notes.is_empty() {
        return;
    }
    if let Some(mut meta) = pod.make("metadata")
        && let Some(annotations) = meta.make_map("annotations")
    {
        annotations.insert(ANNOTATION, format!("LimitRanger plugin set: {}", notes.join("; ")));
    }
}

/// Sets amounts that a container does not have; returns their names.
fn fill<'d>(
    container: &mut Edit<'_>,
    field: &str,
    defaults: &'d objects::quantity::ResourceList,
) -> Vec<&'d str> {
    let has = |name: &str| {
        let container = container.view();
        container.st("resources").map(field).is_some_and(|amounts| amounts.get(name).is_some())
    };
    let absent: Vec<&str> = defaults.keys().map(String::as_str).filter(|name| !has(name)).collect();
    if !absent.is_empty()
        && let Some(mut resources) = container.make("resources")
        && let Some(amounts) = resources.make_map(field)
    {
        for name in &absent {
            amounts.insert(*name, defaults[*name].0.as_str());
        }
    }
    absent
}

/// Makes upstream's texts about the amounts of an object that are outside a range.
fn check(object: &View<'_>, resource: &str, range: &LimitRange) -> Vec<String> {
    let spec = object.st("spec");
    let mut errors = Vec::new();
    for item in items(range) {
        match (resource, item.type_.as_str()) {
            ("persistentvolumeclaims", "PersistentVolumeClaim") => {
                let claim = bounds::Amounts::of(&spec.st("resources"));
                errors.extend(bounds::check_claim(item, &claim));
            }
            ("pods", "Container") => {
                for container in spec.items("containers").chain(spec.items("initContainers")) {
                    let amounts = bounds::Amounts::of(&container.st("resources"));
                    errors.extend(bounds::check(item, &amounts));
                }
            }
            ("pods", "Pod") => errors.extend(bounds::check(item, &bounds::Amounts::of_pod(&spec))),
            _ => {}
        }
    }
    errors
}

/// Several errors as Go prints them: each text once, more than one in brackets.
fn aggregate(errors: Vec<String>) -> Option<String> {
    let mut once: Vec<String> = Vec::new();
    for error in errors {
        if !once.contains(&error) {
            once.push(error);
        }
    }
    match once.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}
