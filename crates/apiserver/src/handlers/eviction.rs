//! Evictions: deletions of Pods that PodDisruptionBudgets may refuse.

use api::status::{Details, FieldError};
use api::{Object, Status, Struct, Text};
use kinds::access::{Edit, View};

use super::update::{self, Plan};
use super::{Scope, delete, read_object, unreadable};
use crate::admission::Operation;
use crate::answer::Outcome;
use crate::conditions::{self, Condition};
use crate::options::{DeleteOptions, WriteKind, WriteOptions, write_options};
use crate::registry::Subresource;
use crate::request::Request;

/// The condition of a Pod that is evicted.
const EVICTED: Condition<'_> = Condition {
    kind: "DisruptionTarget",
    status: "True",
    reason: "EvictionByEvictionAPI",
    message: "Eviction API: evicting",
};

/// `POST pods/x/eviction`: a deletion that PodDisruptionBudgets may refuse.
pub(crate) async fn evict(scope: &Scope<'_>, sub: &Subresource) -> Result<Outcome, Status> {
    loop {
        if let Some(outcome) = attempt(scope, sub).await? {
            return Ok(outcome);
        }
    }
}

/// The uid of the Pod that is there now.
fn uid(scope: &Scope<'_>) -> Option<Text> {
    scope.inner.store.get(scope.stored.id, scope.namespace, scope.name()).map(|pod| pod.data.uid.clone())
}

/// One try; nothing if another Pod took the name while admission looked at the one before.
async fn attempt(scope: &Scope<'_>, sub: &Subresource) -> Result<Option<Outcome>, Status> {
    let create = write_options(&scope.req.query, WriteKind::Create)?;
    let schema = scope.inner.schema;
    let mut body = eviction(scope, sub, &create)?;
    let before = uid(scope);
    let asks_dry = View::new(schema, &body).st("deleteOptions").len("dryRun") > 0;
    let dry_run = create.dry_run || asks_dry;
    let request = scope.admission(Operation::Create, &sub.kind, scope.name(), None, dry_run);
    scope.inner.admission.mutate(&request, &mut body).await?;
    let view = View::new(schema, &body);
    let name = scope.name();
    super::same_namespace(view.st("metadata").str("namespace"), scope.namespace)?;
    if view.st("metadata").str("name") != name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let wire = view.st("deleteOptions");
    if wire.bool(unreadable::OPTION) {
        let error = FieldError {
            field: format!("deleteOptions.{}", unreadable::OPTION),
            ..unreadable::option_error("can not be set for pod eviction, try after removing the option")
        };
        return Err(Status::invalid("policy", "Eviction", name, &[error]));
    }
    // What is wrong with the options is found by the deletion, so after the Pod itself.
    let checked = DeleteOptions::from_tree(wire, false);
    scope.inner.admission.validate(&request, Some(&body)).await?;
    let pod_object = scope.find(name)?;
    if before.as_ref() != Some(&pod_object.data.uid) {
        return Ok(None);
    }
    let mut options = DeleteOptions { dry_run, ..checked? };
    // DIFFERENCE: upstream evicts whatever has the name by then, also what admission did not see.
    options.uid.get_or_insert_with(|| pod_object.data.uid.clone());
    let pod = scope.tree(&pod_object)?;
    let view = View::new(schema, &pod);
    let ended = scope.meta(&pod).deleting()
        || matches!(view.st("status").str("phase"), "Succeeded" | "Failed" | "Pending");
    if !ended && let Some(refused) = budget(scope, &pod_object, &pod, &mut options).await? {
        return Err(refused);
    }
    if !options.dry_run {
        delete::check_preconditions(scope, &pod_object, &options)?;
        let writes = WriteOptions::default();
        let uid = options.uid.as_deref().map(str::to_owned);
        let plan = Plan { uid, admission: false, privileged: true, ..Plan::new(None, &writes) };
        let now = scope.now.clone();
        let done = update::run(scope, name, &plan, &|old| {
            let mut tree = old.cloned().ok_or_else(Status::no_such_resource)?;
            conditions::set(schema, &mut tree, &EVICTED, &now);
            Ok(tree)
        })
        .await?;
        if let (update::Done::Stored(object), Some(_)) = (&done, &options.resource_version) {
            options.resource_version = Some(object.revision.to_string().into());
        }
    }
    delete::one(scope, name, &options, None).await?;
    Ok(Some(Outcome::Status(Status { code: 201, ..Status::success() })))
}

fn eviction(scope: &Scope<'_>, sub: &Subresource, options: &WriteOptions) -> Result<Struct, Status> {
    let req: &Request = scope.req;
    read_object(scope.inner, req, &sub.kind, options.field_validation)
}

/// Asks the Pod's budget and takes one from it; the refusal, if it says no.
async fn budget(
    scope: &Scope<'_>,
    object: &Object,
    pod: &Struct,
    options: &mut DeleteOptions,
) -> Result<Option<Status>, Status> {
    let inner = scope.inner;
    let schema = inner.schema;
    let Some(budgets) = inner.registry.stored("policy", "poddisruptionbudgets").cloned() else {
        return Ok(None);
    };
    let mut found = Vec::new();
    for budget in inner.reader.list("policy", "poddisruptionbudgets", scope.namespace) {
        let tree = inner.reader.tree("policy", "poddisruptionbudgets", &budget)?;
        let selects = View::new(schema, &tree)
            .st("spec")
            .opt("selector")
            .is_some_and(|s| conditions::selects(&s, object));
        if selects {
            found.push((budget, tree));
        }
    }
    let (budget, tree) = match found.len() {
        0 => return Ok(None),
        1 => found.swap_remove(0),
        _ => {
            return Ok(Some(Status::failure(
                500,
                "",
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            )));
        }
    };
    let view = View::new(schema, &tree);
    let (spec, status) = (view.st("spec"), view.st("status"));
    let ready = View::new(schema, pod)
        .st("status")
        .items("conditions")
        .any(|c| c.str("type") == "Ready" && c.str("status") == "True");
    let healthy =
        status.int("currentHealthy") >= status.int("desiredHealthy") && status.int("desiredHealthy") > 0;
    if !ready && (spec.str("unhealthyPodEvictionPolicy") == "AlwaysAllow" || healthy) {
        options.resource_version = Some(object.revision.to_string().into());
        return Ok(None);
    }
    let refuse = |message: String| {
        let mut s = Status::failure(
            429,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget.",
        );
        s.details = Some(Box::new(Details {
            causes: vec![api::status::Cause {
                reason: "DisruptionBudget".into(),
                message,
                field: String::new(),
            }],
            ..Details::default()
        }));
        s
    };
    let name = &budget.data.name;
    if status.int("observedGeneration") < view.st("metadata").int("generation") {
        let mut s = refuse(format!("The disruption budget {name} is still being processed by the server."));
        if let Some(d) = &mut s.details {
            d.retry_after_seconds = 10;
        }
        return Ok(Some(s));
    }
    if status.int("disruptionsAllowed") <= 0 {
        return Ok(Some(refuse(format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            status.int("desiredHealthy"),
            status.int("currentHealthy")
        ))));
    }
    if options.dry_run {
        return Ok(None);
    }
    let budget_scope = Scope { resource: &budgets, stored: budgets.stored()?, now: inner.now(), ..*scope };
    let writes = WriteOptions::default();
    let plan = Plan { admission: false, privileged: true, ..Plan::new(None, &writes) };
    let pod_name = object.data.name.clone();
    update::run(&budget_scope, name, &plan, &|old| {
        let mut tree = old.cloned().ok_or_else(Status::no_such_resource)?;
        let allowed = View::new(schema, &tree).st("status").int("disruptionsAllowed");
        if allowed <= 0 {
            return Err(refuse(format!(
                "The disruption budget {name} does not allow evicting pods currently"
            )));
        }
        if let Some(mut status) = Edit::new(schema, &mut tree).make("status") {
            status.set("disruptionsAllowed", allowed - 1);
            if let Some(map) = status.make_map("disruptedPods") {
                map.insert(pod_name.clone(), budget_scope.now.as_str());
            }
        }
        Ok(tree)
    })
    .await?;
    Ok(None)
}
