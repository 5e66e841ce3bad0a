//! Evictions: deletions of Pods that PodDisruptionBudgets may refuse (upstream:
//! `pkg/registry/core/pod/storage/eviction.go`).

use std::time::Duration;

use access::admission::{DeleteOptions, Operation};
use access::reader::Reader;
use api::status::{Cause, Details, FieldError};
use api::view::{Edit, View};
use api::{Object, Status, Struct, Text};

use super::body::{read_object, same_namespace};
use super::delete;
use super::scope::Scope;
use super::update::{self, Plan};
use crate::catalog::SubresourceEntry;
use crate::conditions::{self, Condition};
use crate::options::{
    UNREADABLE_OPTION, WriteKind, WriteOptions, delete_options_of_tree, unreadable_option_error,
    write_options,
};
use crate::outcome::Outcome;

const GROUP: &str = "policy";
const BUDGETS: &str = "poddisruptionbudgets";
/// How often an eviction is tried while the Pod changes under it.
const TRIES: usize = 20;
/// The time between two tries, and up to a tenth more.
const PAUSE: Duration = Duration::from_millis(500);
/// The most Pods that may be on their way out of one budget before the disruption controller has taken notice.
const MOST_DISRUPTED: usize = 2000;
const TOO_MANY: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
const ALLOWED: &str = "DisruptionAllowed";

/// The condition of a Pod that is evicted.
const EVICTED: Condition<'_> = Condition {
    kind: "DisruptionTarget",
    status: "True",
    reason: "EvictionByEvictionAPI",
    message: "Eviction API: evicting",
};

/// The condition of a budget whose last disruption was taken.
const USED_UP: Condition<'_> =
    Condition { kind: ALLOWED, status: "False", reason: "InsufficientPods", message: "" };

/// `POST pods/x/eviction`: a deletion that PodDisruptionBudgets may refuse.
pub(crate) async fn evict(scope: &Scope<'_>, sub: &SubresourceEntry) -> Result<Outcome, Status> {
    loop {
        let before = uid(scope);
        match attempt(scope, sub, before.as_ref()).await {
            Ok(Some(outcome)) => return Ok(outcome),
            Ok(None) => {}
            // Another Pod took the name meanwhile, and admission has not seen that one.
            Err(e) if e.is_conflict() && uid(scope).is_some_and(|now| before.as_ref() != Some(&now)) => {}
            Err(e) => return Err(e),
        }
    }
}

/// The uid of the Pod that is there now.
fn uid(scope: &Scope<'_>) -> Option<Text> {
    scope
        .handlers
        .objects
        .store
        .get(scope.stored.id, scope.namespace, scope.name())
        .map(|pod| pod.data.uid.clone())
}

/// One try; nothing if another Pod took the name while admission looked at the one `before`.
async fn attempt(
    scope: &Scope<'_>,
    sub: &SubresourceEntry,
    before: Option<&Text>,
) -> Result<Option<Outcome>, Status> {
    let create = write_options(&scope.req.query, WriteKind::Create)?;
    let schema = scope.catalog.schema();
    let mut body = read_object(scope.req, &sub.kind, None, create.field_validation)?;
    let asks_dry = View::new(schema, &body).st("deleteOptions").len("dryRun") > 0;
    let request =
        scope.admission(Operation::Create, &sub.kind, scope.name(), None, create.dry_run || asks_dry);
    scope.handlers.admission.mutate(&request, &mut body).await?;
    let view = View::new(schema, &body);
    let name = scope.name();
    same_namespace(view.st("metadata").str("namespace"), scope.namespace)?;
    if view.st("metadata").str("name") != name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let wire = view.st("deleteOptions");
    if wire.bool(UNREADABLE_OPTION) {
        let error = FieldError {
            field: format!("deleteOptions.{UNREADABLE_OPTION}"),
            ..unreadable_option_error("can not be set for pod eviction, try after removing the option")
        };
        return Err(Status::invalid(GROUP, "Eviction", name, &[error]));
    }
    let dry_run = same_dry_run(scope.req.query.all("dryRun").collect(), wire.strs("dryRun").collect())?;
    // The deletion finds what is wrong with the options, so after the Pod itself.
    let checked = delete_options_of_tree(wire, false);
    scope.handlers.admission.validate(&request, Some(&body)).await?;
    let pod = scope.find(name)?;
    if before != Some(&pod.data.uid) {
        return Ok(None);
    }
    let mut options = DeleteOptions { dry_run, ..checked? };
    // DIFFERENCE: upstream evicts whatever has the name by then, also what admission did not see.
    options.uid.get_or_insert_with(|| pod.data.uid.clone());
    let done = Outcome::Status(Status { code: 201, ..Status::success() });
    let Some(pod) = without_budget(scope, pod, &options).await? else { return Ok(Some(done)) };
    let tree = scope.tree(&pod).await?;
    match budget(scope, &pod, &tree, dry_run).await? {
        Verdict::Go => remove(scope, options).await?,
        Verdict::IfUnchanged(budget) => {
            // DIFFERENCE: upstream's overwrites the version that the caller insists on.
            let own = options.resource_version.is_none();
            let revision = options.resource_version.clone();
            let revision = revision.or_else(|| Some(pod.revision.to_string().into()));
            match remove(scope, DeleteOptions { resource_version: revision, ..options }).await {
                // It may have become ready meanwhile.
                Err(e) if own && e.is_conflict() => return Err(in_process(&budget)),
                other => other?,
            }
        }
    }
    Ok(Some(done))
}

/// Whether nothing is stored, as the request or the eviction in it says.
fn same_dry_run(request: Vec<&str>, eviction: Vec<&str>) -> Result<bool, Status> {
    if !request.is_empty() && !eviction.is_empty() && request != eviction {
        let why = format!(
            "Non-matching dry-run options in request and content: [{}] and [{}]",
            request.join(" "),
            eviction.join(" ")
        );
        return Err(Status::failure(500, "", why));
    }
    Ok(!request.is_empty() || !eviction.is_empty())
}

/// Removes a Pod that no budget counts, because it has ended, has not begun, or goes already; otherwise the Pod as
/// it is then.
async fn without_budget(
    scope: &Scope<'_>,
    mut pod: std::sync::Arc<Object>,
    options: &DeleteOptions,
) -> Result<Option<std::sync::Arc<Object>>, Status> {
    for left in (0..TRIES).rev() {
        let tree = scope.tree(&pod).await?;
        let phase = View::new(scope.catalog.schema(), &tree).st("status").str("phase");
        let pending = phase == "Pending" && !scope.meta(&tree).deleting();
        if !pending && !matches!(phase, "Succeeded" | "Failed") && !scope.meta(&tree).deleting() {
            return Ok(Some(pod));
        }
        let mut of_this = options.clone();
        if pending && options.resource_version.is_none() {
            // It may begin to run, and then a budget counts it.
            of_this.resource_version = Some(pod.revision.to_string().into());
        }
        match remove(scope, of_this).await {
            Err(e) if e.is_conflict() && options.resource_version.is_none() && left > 0 => {
                tokio::time::sleep(PAUSE.mul_f64(1.0 + 0.1 * fastrand::f64())).await;
                let now = scope.find(scope.name())?;
                if now.data.uid != pod.data.uid {
                    return Err(e);
                }
                pod = now;
            }
            other => return other.map(|()| None),
        }
    }
    Ok(Some(pod))
}

/// Says in a Pod's status that it is evicted, and deletes it.
async fn remove(scope: &Scope<'_>, mut options: DeleteOptions) -> Result<(), Status> {
    let schema = scope.catalog.schema();
    let name = scope.name();
    if !options.dry_run {
        let writes = WriteOptions::default();
        let plan = Plan { admission: false, privileged: true, ..Plan::new(None, &writes) };
        let done = update::run(scope, name, &plan, &|old: Option<&Struct>| {
            let mut tree = old.cloned().ok_or_else(Status::no_such_resource)?;
            let meta = scope.meta(&tree);
            delete::preconditions(scope, name, meta.uid(), meta.resource_version(), &options)?;
            conditions::set(schema, &mut tree, &EVICTED, &scope.now);
            Ok(tree)
        })
        .await?;
        if let (update::Done::Stored(object), Some(revision)) = (&done, &mut options.resource_version) {
            // The version that was meant is the one before this write.
            *revision = object.revision.to_string().into();
        }
    }
    delete::one(scope, name, &options, None).await.map(drop)
}

/// The answer of a Pod's budget to its eviction; a refusal is an error.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Go,
    /// It is not healthy, so this budget loses nothing by it, unless it has become healthy meanwhile.
    IfUnchanged(String),
}

/// Asks the Pod's budget, and takes one from what that allows.
async fn budget(scope: &Scope<'_>, object: &Object, pod: &Struct, dry_run: bool) -> Result<Verdict, Status> {
    let (schema, objects) = (scope.catalog.schema(), &scope.handlers.objects);
    let Some(budgets) = scope.catalog.resources.stored(GROUP, BUDGETS).cloned() else {
        return Ok(Verdict::Go);
    };
    let mut found = Vec::new();
    for budget in objects.list((GROUP, BUDGETS), scope.namespace) {
        let tree = objects.tree(GROUP, BUDGETS, &budget)?;
        let selector = View::new(schema, &tree).st("spec").opt("selector");
        if selector.is_some_and(|s| conditions::selects(&s, object)) {
            found.push((budget.data.name.to_string(), tree));
        }
    }
    let (name, tree) = match found.len() {
        0 => return Ok(Verdict::Go),
        1 => found.swap_remove(0),
        _ => {
            let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Status::failure(500, "", why));
        }
    };
    if is_free(View::new(schema, &tree), View::new(schema, pod)) {
        return Ok(Verdict::IfUnchanged(name));
    }
    let budget_scope = Scope {
        resource: &budgets,
        stored: budgets.stored()?,
        lifecycle: None,
        now: objects.now(),
        ..*scope
    };
    if dry_run {
        allows(View::new(schema, &tree), &name)?;
        return Ok(Verdict::Go);
    }
    let writes = WriteOptions::default();
    let plan = Plan { admission: false, privileged: true, ..Plan::new(None, &writes) };
    update::run(&budget_scope, &name, &plan, &|old: Option<&Struct>| {
        let mut tree = old.cloned().ok_or_else(Status::no_such_resource)?;
        let allowed = allows(View::new(schema, &tree), &name)?;
        take(&budget_scope, &mut tree, allowed, &object.data.name);
        Ok(tree)
    })
    .await?;
    Ok(Verdict::Go)
}

/// Whether an eviction costs a budget nothing: the Pod is not ready, and the others are enough or do not matter.
fn is_free(budget: View<'_>, pod: View<'_>) -> bool {
    let mut conditions = pod.st("status").items("conditions");
    if conditions.any(|c| c.str("type") == "Ready" && c.str("status") == "True") {
        return false;
    }
    let status = budget.st("status");
    let (current, desired) = (status.int("currentHealthy"), status.int("desiredHealthy"));
    budget.st("spec").str("unhealthyPodEvictionPolicy") == "AlwaysAllow" || current >= desired && desired > 0
}

/// How many evictions a budget allows, at least one; or the refusal.
fn allows(budget: View<'_>, name: &str) -> Result<i64, Status> {
    let status = budget.st("status");
    if status.int("observedGeneration") < budget.st("metadata").int("generation") {
        return Err(in_process(name));
    }
    let forbidden = |why| Err(Status::forbidden(GROUP, "poddisruptionbudget", name, why));
    let allowed = status.int("disruptionsAllowed");
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if status.len("disruptedPods") > MOST_DISRUPTED {
        return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if allowed > 0 {
        return Ok(allowed);
    }
    let said = status.items("conditions").find(|c| c.str("type") == ALLOWED);
    let said = said.filter(|c| c.str("status") == "False" && !c.str("message").is_empty());
    let said = said.map(|c| (c.str("reason"), c.str("message")));
    let (current, desired) = (status.int("currentHealthy"), status.int("desiredHealthy"));
    let why = match said {
        // The counts of one that could not be counted are old.
        Some(("SyncFailed", message)) => {
            format!("does not allow evicting pods currently because it failed sync: {message}")
        }
        _ if current <= desired => format!("needs {desired} healthy pods and has {current} currently"),
        Some((reason, message)) => format!("does not allow evicting pods currently ({reason}): {message}"),
        None => "does not allow evicting pods currently".to_owned(),
    };
    Err(refusal(format!("The disruption budget {name} {why}"), 0))
}

/// Takes one from what a budget allows, for this Pod.
fn take(scope: &Scope<'_>, budget: &mut Struct, allowed: i64, pod: &str) {
    let schema = scope.catalog.schema();
    let observed = View::new(schema, budget).st("status").int("observedGeneration");
    if allowed == 1 {
        conditions::set(schema, budget, &USED_UP, &scope.now);
    }
    let mut edit = Edit::new(schema, budget);
    let Some(mut status) = edit.make("status") else { return };
    status.set("disruptionsAllowed", allowed - 1);
    if allowed == 1 && observed != 0 {
        for mut condition in status.items("conditions").filter(|c| c.view().str("type") == ALLOWED) {
            condition.set("observedGeneration", observed);
        }
    }
    if let Some(map) = status.make_map("disruptedPods") {
        map.insert(pod, scope.now.as_str());
    }
}

fn refusal(why: String, retry_after_seconds: i32) -> Status {
    let cause = Cause { reason: "DisruptionBudget".into(), message: why, field: String::new() };
    let mut status = Status::failure(429, "TooManyRequests", TOO_MANY);
    status.details =
        Some(Box::new(Details { causes: vec![cause], retry_after_seconds, ..Details::default() }));
    status
}

/// The refusal while a budget is behind.
fn in_process(budget: &str) -> Status {
    refusal(format!("The disruption budget {budget} is still being processed by the server."), 10)
}
