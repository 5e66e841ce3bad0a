//! Priority: a pod's priority comes from its class.

use std::sync::Arc;

use api::view::Edit;
use api::{Gate, Object, Status, Struct, Text};
use serde::Deserialize;

use super::plugin::{Env, Plugin};
use super::{AdmissionRequest, Operation};
use crate::reader::{ResourceName, read};

const GROUP: &str = "scheduling.k8s.io";
const CLASSES: ResourceName = (GROUP, "priorityclasses");

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Class {
    value: i64,
    global_default: bool,
    preemption_policy: Option<Text>,
}

#[derive(Default)]
pub(super) struct Priority;

impl Priority {
    /// The default class; of several, the one of the lowest value.
    fn default_class(env: &Env) -> Option<(Arc<Object>, Class)> {
        let classes = env.reader.list(CLASSES, "").into_iter();
        let defaults = classes.filter_map(|o| {
            let class: Class = read(&o)?;
            class.global_default.then_some((o, class))
        });
        defaults.min_by_key(|(_, class)| class.value)
    }

    /// Finds the class that an object names, or the default one: its name and its content.
    fn class(
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: &Struct,
        named: &str,
    ) -> Result<(Text, Class), Status> {
        if named.is_empty() {
            return Ok(if let Some((object, class)) = Self::default_class(env) {
                (object.data.name.clone(), class)
            } else {
                let preemption_policy = Some("PreemptLowerPriority".into());
                (Text::default(), Class { preemption_policy, ..Class::default() })
            });
        }
        let Some(found) = env.reader.get(CLASSES, "", named) else {
            let why = format!("no PriorityClass with name {named} was found");
            return Err(request.forbidden(Some(object), why));
        };
        Ok((named.into(), read(&found).unwrap_or_default()))
    }

    /// Sets a PodGroup's priority, too, if the feature is on.
    fn group(env: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        if request.operation != Operation::Create || !env.gates.enabled(Gate::WorkloadAwarePreemption) {
            return Ok(());
        }
        let spec = env.view(object).st("spec");
        let given = spec.opt_int("priority");
        let (name, class) = Self::class(env, request, object, spec.str("priorityClassName"))?;
        if let Some(given) = given.filter(|g| *g != class.value) {
            let why = format!(
                "priority set in the pod group ({given}) must match the priority computed ({}) based on the priority class set in the spec",
                class.value
            );
            return Err(request.forbidden(Some(object), why));
        }
        let mut edit = Edit::new(env.schema, object);
        if let Some(mut spec) = edit.make("spec") {
            if !name.is_empty() {
                spec.set("priorityClassName", name);
            }
            spec.set("priority", class.value);
        }
        Ok(())
    }
}

impl Plugin for Priority {
    fn mutate(&self, env: &Env, request: &AdmissionRequest<'_>, object: &mut Struct) -> Result<(), Status> {
        if request.is(GROUP, "podgroups") {
            return Self::group(env, request, object);
        }
        if !request.is("", "pods") {
            return Ok(());
        }
        let spec = env.view(object).st("spec");
        let (given, given_policy) = (spec.opt_int("priority"), spec.opt_str("preemptionPolicy"));
        match request.operation {
            Operation::Update => {
                let Some(old) = request.old.map(|o| env.view(o).st("spec")) else { return Ok(()) };
                let (priority, policy) = (old.opt_int("priority"), old.opt_str("preemptionPolicy"));
                let (no_priority, no_policy) = (given.is_none(), given_policy.is_none());
                let mut edit = Edit::new(env.schema, object);
                let Some(mut spec) = edit.make("spec") else { return Ok(()) };
                if let Some(priority) = priority.filter(|_| no_priority) {
                    spec.set("priority", priority);
                }
                if let Some(policy) = policy.filter(|_| no_policy) {
                    spec.set("preemptionPolicy", policy);
                }
                Ok(())
            }
            Operation::Create => {
                let (name, class) = Self::class(env, request, object, spec.str("priorityClassName"))?;
                if let Some(given) = given.filter(|g| *g != class.value) {
                    let why = format!(
                        "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
                        class.value
                    );
                    return Err(request.forbidden(Some(object), why));
                }
                if let (Some(given), Some(policy)) = (given_policy, &class.preemption_policy)
                    && given != policy
                {
                    let why = format!(
                        "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
                    );
                    return Err(request.forbidden(Some(object), why));
                }
                let mut edit = Edit::new(env.schema, object);
                let Some(mut spec) = edit.make("spec") else { return Ok(()) };
                if !name.is_empty() {
                    spec.set("priorityClassName", name);
                }
                spec.set("priority", class.value);
                if let Some(policy) = class.preemption_policy {
                    spec.set("preemptionPolicy", policy);
                }
                Ok(())
            }
            Operation::Delete | Operation::Connect => Ok(()),
        }
    }

    fn validate(
        &self,
        env: &Env,
        request: &AdmissionRequest<'_>,
        object: Option<&Struct>,
    ) -> Result<(), Status> {
        let Some(object) = object.filter(|_| request.is(GROUP, "priorityclasses")) else { return Ok(()) };
        let class = env.view(object);
        if !class.bool("globalDefault") {
            return Ok(());
        }
        let name = class.st("metadata").str("name");
        match Self::default_class(env) {
            Some((other, _)) if request.operation == Operation::Create || other.data.name != name => {
                let why = format!(
                    "PriorityClass {} is already marked as default. Only one default can exist",
                    other.data.name
                );
                Err(request.forbidden(Some(object), why))
            }
            _ => Ok(()),
        }
    }
}
