//! Roles and bindings grant only rules that their writer has, unless the writer may `escalate` or `bind`.

use api::view::{Edit, View};
use api::{Status, Struct, Text};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::plugin::{Env, Plugin};
use super::reinvocation::Reinvocation;
use super::{AdmissionRequest, Operation};
use crate::auth::Access;
use crate::auth::rbac::{GROUP, RoleRef, Rule, missing, refusal};

#[derive(Default)]
pub(super) struct RbacEscalation;

impl Plugin for RbacEscalation {
    fn mutate_waiting<'a>(
        &'a self,
        env: &'a Env,
        request: &'a AdmissionRequest<'a>,
        object: &'a mut Struct,
        _: &'a mut Reinvocation,
    ) -> Option<BoxFuture<'a, Result<(), Status>>> {
        let object = &*object;
        if request.info.group != GROUP
            || !request.subresource.is_empty()
            || !matches!(request.operation, Operation::Create | Operation::Update)
            || request.user.groups.iter().any(|g| g == "system:masters")
        {
            return None;
        }
        let old = request.old.filter(|_| request.operation == Operation::Update);
        if old.is_some_and(|old| only_collection_fields(env, object, old)) {
            return None;
        }
        match request.resource {
            "roles" | "clusterroles" => Some(check_role(env, request, object, old).boxed()),
            "rolebindings" | "clusterrolebindings" => Some(check_binding(env, request, object).boxed()),
            _ => None,
        }
    }
}

/// Whether an update changes only fields that the garbage collector must change.
pub(super) fn only_collection_fields(env: &Env, new: &Struct, old: &Struct) -> bool {
    let mut copy = new.clone();
    let old_meta = env.view(old).st("metadata");
    let mut edit = Edit::new(env.schema, &mut copy);
    let (Some(mut meta), Some(old_meta)) = (edit.at("metadata"), old_meta.raw()) else { return false };
    for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion", "selfLink"] {
        meta.copy(field, old_meta);
    }
    copy == *old
}

fn rules(role: &View<'_>) -> Vec<Rule> {
    let texts = |rule: &View<'_>, field: &str| rule.strs(field).map(Text::from).collect();
    role.items("rules")
        .map(|rule| Rule {
            verbs: texts(&rule, "verbs"),
            api_groups: texts(&rule, "apiGroups"),
            resources: texts(&rule, "resources"),
            resource_names: texts(&rule, "resourceNames"),
            non_resource_urls: texts(&rule, "nonResourceURLs"),
        })
        .collect()
}

/// Refuses with a 403 unless the caller has everything that the rules grant.
fn confirm(
    env: &Env,
    request: &AdmissionRequest<'_>,
    object: &Struct,
    wanted: &[Rule],
) -> Result<(), Status> {
    let (owned, error) = env.authorizer.rbac().rules_for(request.user, request.namespace);
    let lacking = match missing(&owned, wanted) {
        Ok(lacking) if lacking.is_empty() => return Ok(()),
        Ok(lacking) => lacking,
        Err(why) => return Err(request.forbidden(Some(object), why)),
    };
    let why = refusal(request.user, lacking, error.as_deref());
    Err(request.forbidden(Some(object), why))
}

async fn check_role(
    env: &Env,
    request: &AdmissionRequest<'_>,
    object: &Struct,
    old: Option<&Struct>,
) -> Result<(), Status> {
    let escalate = Access {
        is_resource: true,
        verb: "escalate",
        group: GROUP,
        resource: request.resource,
        namespace: request.namespace,
        name: &request.info.name,
        ..Access::default()
    };
    if env.authorizer.allows(request.user, &escalate).await {
        return Ok(());
    }
    confirm(env, request, object, &rules(&env.view(object)))?;
    if request.resource == "clusterroles" {
        let aggregates = |role: &Struct| env.view(role).st("aggregationRule").len("clusterRoleSelectors") > 0;
        let all = [
            Rule::resources(&["*"], "*", &["*"]),
            Rule { verbs: vec!["*".into()], non_resource_urls: vec!["*".into()], ..Rule::default() },
        ];
        if (aggregates(object) || old.is_some_and(aggregates)) && confirm(env, request, object, &all).is_err()
        {
            let why = "must have cluster-admin privileges to use the aggregationRule";
            return Err(request.forbidden(Some(object), why));
        }
    }
    Ok(())
}

async fn check_binding(env: &Env, request: &AdmissionRequest<'_>, object: &Struct) -> Result<(), Status> {
    let reference = env.view(object).st("roleRef");
    let role = RoleRef {
        api_group: reference.str("apiGroup").into(),
        kind: reference.str("kind").into(),
        name: reference.str("name").into(),
    };
    let resource = match role.kind.as_str() {
        "ClusterRole" => Some("clusterroles"),
        "Role" => Some("roles"),
        _ => None,
    };
    if let Some(resource) = resource {
        let bind = Access {
            is_resource: true,
            verb: "bind",
            group: &role.api_group,
            resource,
            namespace: request.namespace,
            name: &role.name,
            ..Access::default()
        };
        if env.authorizer.allows(request.user, &bind).await {
            return Ok(());
        }
    }
    match env.authorizer.rbac().role_rules(&role, request.namespace) {
        Ok(wanted) => confirm(env, request, object, &wanted),
        Err(error) => match resource {
            Some(resource) => Err(Status::not_found(GROUP, resource.trim_end_matches('s'), &role.name)),
            None => Err(Status::internal(error)),
        },
    }
}
