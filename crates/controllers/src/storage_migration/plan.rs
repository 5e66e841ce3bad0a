//! Decisions about StorageVersionMigrations: pure.

use std::sync::Arc;

use api::Status;
use jiff::Timestamp;
use k8s_openapi::api::storagemigration::v1beta1::StorageVersionMigration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

use crate::common::conditions;
use crate::discovery::Served;

pub(super) const RUNNING: &str = "Running";
pub(super) const SUCCEEDED: &str = "Succeeded";
pub(super) const FAILED: &str = "Failed";
/// The verbs that a resource must have.
pub(super) const VERBS: [&str; 3] = ["update", "patch", "list"];
/// The condition of a definition whose objects are migrated.
const MIGRATING: &str = "StorageMigrating";

/// The next thing to do for the migrations of a resource.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// A migration is over: its definition learns of it, and the next one may begin.
    Finish(Arc<StorageVersionMigration>),
    /// No migration runs: this one begins.
    Begin(Arc<StorageVersionMigration>),
    /// A migration runs, and notes up to which revision objects must be written again.
    Observe(Arc<StorageVersionMigration>),
    /// Objects are written again.
    Migrate(Arc<StorageVersionMigration>),
}

/// Returns what must be done for the migrations of one resource. Migrations of a resource run one after the other, the
/// oldest first.
pub(super) fn steps(all: &[Arc<StorageVersionMigration>]) -> Vec<Step> {
    let (running, others): (Vec<_>, Vec<_>) = all.iter().cloned().partition(|m| holds(m, RUNNING));
    let (ended, runs): (Vec<_>, Vec<_>) = running.into_iter().partition(|m| is_terminal(m));
    let age = |m: &Arc<StorageVersionMigration>| {
        (m.metadata.creation_timestamp.as_ref().map(|t| t.0), m.metadata.name.clone())
    };
    let next = if runs.is_empty() {
        others.into_iter().filter(|m| !is_terminal(m)).min_by_key(age).map(Step::Begin)
    } else {
        None
    };
    let goes_on = runs.into_iter().map(|m| match revision(&m) {
        "" => Step::Observe(m),
        _ => Step::Migrate(m),
    });
    ended.into_iter().map(Step::Finish).chain(next).chain(goes_on).collect()
}

/// Whether the objects of a resource can be written again.
pub(super) fn is_migratable(served: &Served) -> bool {
    VERBS.iter().all(|verb| served.can(verb))
}

/// Whether a condition of a migration holds.
fn holds(migration: &StorageVersionMigration, kind: &str) -> bool {
    let all = migration.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions::find(all, kind).is_some_and(|c| c.status == "True")
}

/// Whether a migration is over.
pub(super) fn is_terminal(migration: &StorageVersionMigration) -> bool {
    holds(migration, SUCCEEDED) || holds(migration, FAILED)
}

/// The revision up to which objects must be written again, "" if nobody has noted it yet.
pub(super) fn revision(migration: &StorageVersionMigration) -> &str {
    migration.status.as_ref().and_then(|s| s.resource_version.as_deref()).unwrap_or_default()
}

/// Returns a migration with one more condition, unless it has that already.
pub(super) fn with(
    migration: &StorageVersionMigration,
    (kind, reason, message): (&str, &str, &str),
    now: Timestamp,
) -> StorageVersionMigration {
    let mut migration = migration.clone();
    let all = migration.status.get_or_insert_default().conditions.get_or_insert_default();
    if conditions::find(&*all, kind).is_none() {
        all.push(Condition {
            type_: kind.to_owned(),
            status: "True".to_owned(),
            last_transition_time: Time(now),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: None,
        });
    }
    migration
}

/// Returns a migration that runs no longer.
pub(super) fn finished(migration: &StorageVersionMigration, now: Timestamp) -> StorageVersionMigration {
    let mut migration = migration.clone();
    let generation = migration.metadata.generation;
    let all = migration.status.get_or_insert_default().conditions.get_or_insert_default();
    let condition = Condition {
        type_: RUNNING.to_owned(),
        status: "False".to_owned(),
        last_transition_time: Time(now),
        reason: "MigrationCompleted".to_owned(),
        message: "Migration completed".to_owned(),
        observed_generation: generation,
    };
    conditions::set(all, condition);
    migration
}

/// The patch by which a definition learns that its objects are migrated.
pub(super) fn definition_begins(definition: &Value, migration: &str, now: Timestamp) -> Value {
    let message = format!("Migration {migration} is running");
    definition_patch(definition, ("True", "MigrationRunning", &message), None, now)
}

/// The patch by which a definition learns that the migration of its objects is over. If nothing happened to it
/// meanwhile, its objects are stored in one version alone now.
pub(super) fn definition_ends(definition: &Value, succeeded: bool, now: Timestamp) -> Value {
    let generation = definition["metadata"]["generation"].as_i64().unwrap_or(0);
    let all = definition["status"]["conditions"].as_array();
    let noted = all.into_iter().flatten().find(|c| c["type"] == MIGRATING);
    let same = noted.is_some_and(|c| c["observedGeneration"].as_i64().unwrap_or(0) == generation);
    let (reason, message) = match (succeeded, same) {
        (true, true) => {
            ("MigrationSucceeded", "The migration has succeeded and the stored versions have been updated")
        }
        (true, false) => (
            "MigrationSucceeded",
            "The migration has succeeded but the stored versions have not been updated due to a generation mismatch",
        ),
        // DIFFERENCE: upstream says then too that one version alone is stored, although objects may be in others.
        (false, _) => ("MigrationFailed", "The migration has failed"),
    };
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let stored = versions.filter(|v| v["storage"] == true).find_map(|v| v["name"].as_str());
    let stored = stored.filter(|_| succeeded && same);
    definition_patch(definition, ("False", reason, message), stored, now)
}

fn definition_patch(
    definition: &Value,
    (status, reason, message): (&str, &str, &str),
    stored: Option<&str>,
    now: Timestamp,
) -> Value {
    let meta = &definition["metadata"];
    let mut patch = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        // A change since it was read would make the generation wrong.
        "metadata": {"name": meta["name"], "resourceVersion": meta["resourceVersion"]},
        "status": {"conditions": [{
            "type": MIGRATING, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": Time(now), "observedGeneration": meta["generation"],
        }]},
    });
    if let Some(stored) = stored {
        patch["status"]["storedVersions"] = json!([stored]);
    }
    patch
}

/// The fate of a migration after the answer for one object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The object is stored anew, or somebody else wrote it meanwhile.
    Done,
    /// The answer may be another one later.
    Again,
    /// The migration fails.
    Fail,
}

/// Decides what an answer means.
pub(super) fn judge(answer: &Result<(), Status>) -> Verdict {
    match answer {
        Ok(()) => Verdict::Done,
        Err(e) if e.is_conflict() || e.is_not_found() => Verdict::Done,
        Err(e) if matches!(e.code, 429 | 500 | 503 | 504) => Verdict::Again,
        Err(_) => Verdict::Fail,
    }
}

/// Whether an object of a revision was written before another revision or at it; `None` if one is no number.
pub(super) fn is_up_to(revision: &str, limit: &str) -> Option<bool> {
    let number = |text: &str| {
        let plain = !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| text.parse::<u64>().ok()).flatten()
    };
    Some(number(revision)? <= number(limit)?)
}

#[cfg(test)]
mod tests {
    use client::Resource;

    use super::*;

    /// 4 of upstream's 7 cases of `TestIsResourceMigratable`, by their verbs; the simulation has that of a resource that is
    /// not there, and versions other than the preferred one are not looked at.
    #[test]
    fn resources_that_can_be_written_again() {
        let check = |plural: &str, verbs: &str, want: bool| {
            let resource = Resource { group: "".into(), version: "v1".into(), plural: plural.into() };
            let verbs: Vec<&str> = verbs.split(' ').collect();
            assert_eq!(
                is_migratable(&Served::new(resource, "Kind", true).with_verbs(&verbs)),
                want,
                "{plural}"
            );
        };
        check("pods", "get list watch create update patch delete", true);
        check("events", "get list watch create delete", false);
        check("secrets", "get watch create delete update delete", false);
        check("configmaps", "get watch create delete update patch delete", false);
    }

    fn migration(
        name: &str,
        made: i64,
        conditions: &[(&str, &str)],
        revision: &str,
    ) -> Arc<StorageVersionMigration> {
        let all: Vec<Value> = conditions
            .iter()
            .map(|(kind, status)| {
                json!({"type": kind, "status": status, "reason": "", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name,
                    "creationTimestamp": Timestamp::from_second(made).unwrap().to_string()},
                "spec": {"resource": {"group": "example.com", "resource": "widgets"}},
                "status": {"conditions": all, "resourceVersion": revision},
            }))
            .unwrap(),
        )
    }

    /// Upstream's cases of `TestCustomResourceController_Sync` (8), `TestRVSync` (7 of 10) and `TestSync` (2 of 10),
    /// as far as they tell which step is next; the rest are answers of the server.
    #[test]
    fn next_steps() {
        type Of = (&'static str, i64, &'static [(&'static str, &'static str)], &'static str);
        let check = |all: &[Of], want: &[(&str, &str)]| {
            let all: Vec<_> = all.iter().map(|(n, m, c, r)| migration(n, *m, c, r)).collect();
            let got: Vec<(&str, String)> = steps(&all)
                .into_iter()
                .map(|step| match step {
                    Step::Finish(m) => ("finish", m),
                    Step::Begin(m) => ("begin", m),
                    Step::Observe(m) => ("observe", m),
                    Step::Migrate(m) => ("migrate", m),
                })
                .map(|(step, m)| (step, m.metadata.name.clone().unwrap()))
                .collect();
            let got: Vec<(&str, &str)> = got.iter().map(|(step, name)| (*step, name.as_str())).collect();
            assert_eq!(got, want, "{all:?}");
        };
        check(&[], &[]);
        check(&[("a", 0, &[], "")], &[("begin", "a")]);
        check(&[("a", 0, &[(RUNNING, "True")], "")], &[("observe", "a")]);
        check(&[("a", 0, &[(RUNNING, "True")], "123")], &[("migrate", "a")]);
        check(&[("a", 0, &[(SUCCEEDED, "True"), (RUNNING, "True")], "1")], &[("finish", "a")]);
        check(&[("a", 0, &[(FAILED, "True"), (RUNNING, "True")], "1")], &[("finish", "a")]);
        check(&[("a", 0, &[(SUCCEEDED, "True")], "100")], &[]);
        check(&[("a", 0, &[(FAILED, "True")], "100")], &[]);
        check(&[("a", 0, &[(SUCCEEDED, "True"), (RUNNING, "False")], "1")], &[]);
        check(&[("new", 3600, &[], ""), ("old", 0, &[], "")], &[("begin", "old")]);
        check(&[("b", 0, &[], ""), ("a", 0, &[], "")], &[("begin", "a")]);
        check(&[("a", 0, &[], ""), ("b", 1, &[(RUNNING, "True")], "")], &[("observe", "b")]);
        check(
            &[("a", 0, &[(RUNNING, "True"), (SUCCEEDED, "True")], "1"), ("b", 1, &[], "")],
            &[("finish", "a"), ("begin", "b")],
        );
    }

    /// Upstream's cases of `TestCustomResourceController_Sync` about the definition.
    #[test]
    fn definitions() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let definition = |generation: i64, noted: Option<i64>| {
            let noted = noted.map(|g| json!({"type": MIGRATING, "status": "True", "observedGeneration": g}));
            json!({
                "metadata": {"name": "widgets.example.com", "resourceVersion": "7", "generation": generation},
                "spec": {"versions": [{"name": "v1", "storage": false}, {"name": "v2", "storage": true}]},
                "status": {"conditions": noted.into_iter().collect::<Vec<_>>()},
            })
        };
        let check = |patch: &Value, want: (&str, &str, &str), stored: Option<&str>| {
            let condition = &patch["status"]["conditions"][0];
            let text = |field: &str| condition[field].as_str().unwrap();
            assert_eq!((text("status"), text("reason"), text("message")), want);
            assert_eq!(patch["status"].get("storedVersions"), stored.map(|s| json!([s])).as_ref());
            assert_eq!(patch["metadata"], json!({"name": "widgets.example.com", "resourceVersion": "7"}));
        };
        let begins = definition_begins(&definition(1, None), "test-svm", now);
        check(&begins, ("True", "MigrationRunning", "Migration test-svm is running"), None);
        let updated = "The migration has succeeded and the stored versions have been updated";
        let ends =
            |generation, noted, succeeded| definition_ends(&definition(generation, noted), succeeded, now);
        check(&ends(1, Some(1), true), ("False", "MigrationSucceeded", updated), Some("v2"));
        let moved = "The migration has succeeded but the stored versions have not been updated due to a generation mismatch";
        check(&ends(2, Some(1), true), ("False", "MigrationSucceeded", moved), None);
        check(&ends(2, None, true), ("False", "MigrationSucceeded", moved), None);
        check(&ends(1, Some(1), false), ("False", "MigrationFailed", "The migration has failed"), None);
    }

    /// Upstream's cases of `TestSync` about answers (5 of 10), and revisions that cannot be compared (3).
    #[test]
    fn answers() {
        let check = |code: u16, reason: &str, want: Verdict| {
            assert_eq!(judge(&Err(Status::failure(code, reason, "why"))), want, "{code}");
        };
        assert_eq!(judge(&Ok(())), Verdict::Done);
        check(409, "Conflict", Verdict::Done);
        check(404, "NotFound", Verdict::Done);
        check(429, "TooManyRequests", Verdict::Again);
        check(503, "ServiceUnavailable", Verdict::Again);
        check(422, "Invalid", Verdict::Fail);
        check(403, "Forbidden", Verdict::Fail);
        for (revision, limit, want) in [
            ("90", "100", Some(true)),
            ("100", "100", Some(true)),
            ("101", "100", Some(false)),
            ("abc", "100", None),
            ("7", "", None),
            ("007", "100", None),
        ] {
            assert_eq!(is_up_to(revision, limit), want, "{revision} {limit}");
        }
    }

    #[test]
    fn conditions_are_set_once() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let begun = with(&migration("a", 0, &[], ""), (RUNNING, "MigrationRunning", "m"), now);
        assert_eq!(with(&begun, (RUNNING, "other", "m"), now), begun);
        let over = finished(&begun, now);
        let condition = &over.status.as_ref().unwrap().conditions.as_ref().unwrap()[0];
        assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "MigrationCompleted"));
        assert!(!holds(&over, RUNNING));
    }
}
