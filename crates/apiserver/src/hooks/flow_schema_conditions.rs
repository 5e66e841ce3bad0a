//! The condition `Dangling` of FlowSchemas: whether the priority level that one names is there. Upstream's
//! API server keeps it, so this one does.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use access::reader::Reader;
use api::view::View;
use api::{Object, Status, Struct, Text};
use client::{Call, Resource, Transport, Verb};
use futures::StreamExt;
use serde_json::json;
use storage::{Batch, Watcher};

use super::bootstrap::flowcontrol::{
    FLOW_CONTROL as GROUP, FLOW_SCHEMAS as SCHEMAS, PRIORITY_LEVELS as LEVELS,
};
use super::env::Env;
use crate::objects::Objects;

/// Upstream's name in managedFields.
const MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
/// How long to wait after a write or a watch failed.
const PAUSE: Duration = Duration::from_secs(2);

/// The content of the condition.
#[derive(Debug, PartialEq, Eq)]
struct Dangling {
    status: &'static str,
    reason: &'static str,
    message: String,
}

/// The condition that a FlowSchema must get, unless it has it already.
fn plan(schema: View<'_>, levels: &HashSet<Text>) -> Option<Dangling> {
    let level = schema.st("spec").st("priorityLevelConfiguration").str("name");
    let head = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?}");
    let wanted = if levels.contains(level) {
        Dangling { status: "False", reason: "Found", message: format!("{head} and it exists") }
    } else {
        let message = format!("{head} but there is no such object");
        Dangling { status: "True", reason: "NotFound", message }
    };
    let status = schema.st("status");
    let has = status.items("conditions").find(|c| c.str("type") == "Dangling").is_some_and(|c| {
        c.str("status") == wanted.status
            && c.str("reason") == wanted.reason
            && c.str("message") == wanted.message
    });
    (!has).then_some(wanted)
}

fn apply(name: &str, condition: &Dangling, now: &str) -> Call {
    let body = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": name},
        "status": {"conditions": [{
            "type": "Dangling",
            "status": condition.status,
            "lastTransitionTime": now,
            "reason": condition.reason,
            "message": condition.message,
        }]},
    });
    Call {
        verb: Verb::Apply,
        resource: Resource { group: GROUP.into(), version: "v1".into(), plural: SCHEMAS.into() },
        namespace: Text::default(),
        name: name.into(),
        subresource: "status".into(),
        query: vec![("fieldManager".into(), MANAGER.into()), ("force".into(), "true".into())],
        body: body.to_string().into(),
    }
}

async fn write_all(objects: &Objects, transport: &dyn Transport) -> Result<(), Status> {
    let levels: HashSet<Text> =
        objects.list((GROUP, LEVELS), "").iter().map(|o| o.data.name.clone()).collect();
    for object in objects.list((GROUP, SCHEMAS), "") {
        let tree: Struct = objects.tree(GROUP, SCHEMAS, &object)?;
        let Some(condition) = plan(View::new(objects.schema(), &tree), &levels) else { continue };
        let object: &Object = &object;
        match transport.call(apply(&object.data.name, &condition, &objects.now())).await {
            // It is gone meanwhile.
            Err(e) if e.is_not_found() => {}
            other => drop(other?),
        }
    }
    Ok(())
}

/// Waits for a change; false once the watch has ended.
pub(crate) async fn changed(watcher: &mut Watcher) -> bool {
    loop {
        match watcher.next().await {
            Some(Ok(Batch::Events(_))) => return true,
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return false,
        }
    }
}

async fn follow(objects: &Objects, transport: &dyn Transport) {
    loop {
        let watch = |plural: &'static str| objects.watch((GROUP, plural));
        let (Some(mut schemas), Some(mut levels)) = (watch(SCHEMAS), watch(LEVELS)) else {
            // They are not served.
            return;
        };
        loop {
            if let Err(error) = write_all(objects, transport).await {
                tracing::warn!(%error, "cannot write the conditions of FlowSchemas");
                break;
            }
            let goes_on = tokio::select! {
                on = changed(&mut schemas) => on,
                on = changed(&mut levels) => on,
            };
            if !goes_on {
                break;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Keeps the conditions of FlowSchemas until shutdown.
pub(super) fn keep(env: &Env) {
    let (objects, transport, stop) =
        (Arc::clone(&env.objects), Arc::clone(&env.transport), env.shutdown.clone());
    env.shutdown.spawn(async move {
        stop.run(follow(&objects, &*transport)).await;
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::schema::Gvk;

    #[test]
    fn conditions() {
        let schema = api::Schema::builtin();
        let root = schema.kind(&Gvk::new(GROUP, "v1", "FlowSchema")).unwrap();
        let levels = HashSet::from([Text::from("low")]);
        let check = |level: &str, conditions: &str, expected: Option<&str>| {
            let body = format!(
                r#"{{"spec":{{"priorityLevelConfiguration":{{"name":"{level}"}}}},"status":{{"conditions":[{conditions}]}}}}"#
            );
            let tree = api::codec::json::decode(schema, root, body.as_bytes()).unwrap().tree;
            let got = plan(View::new(schema, &tree), &levels);
            assert_eq!(got.map(|c| c.status), expected, "{body}");
        };
        let found = r#"{"type":"Dangling","status":"False","reason":"Found","message":"This FlowSchema references the PriorityLevelConfiguration object named \"low\" and it exists"}"#;
        check("low", "", Some("False"));
        check("low", found, None);
        check("high", found, Some("True"));
        check("low", &found.replace("False", "True"), Some("False"));
    }
}
