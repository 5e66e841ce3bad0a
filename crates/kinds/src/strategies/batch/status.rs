//! The rules for writes to a Job's status. Most hold only for fields that a write changes: a stored status that breaks
//! them can still be updated elsewhere.

use std::collections::HashSet;

use api::field::{Errors, IMMUTABLE, Path, Raw};
use api::view::{View, same};

use super::indexes::{count_indexes, interval};
use crate::strategies::meta::core_meta_update;
use crate::validation::print;

fn condition(status: View<'_>, ty: &str, state: &str) -> bool {
    status.items("conditions").any(|c| c.str("type") == ty && c.str("status") == state)
}

fn is(status: View<'_>, ty: &str) -> bool {
    condition(status, ty, "True")
}

fn finished(status: View<'_>) -> bool {
    is(status, "Complete") || is(status, "Failed")
}

/// Checks an update of the status.
pub(super) fn check(errs: &mut Errors, n: View<'_>, o: View<'_>) {
    core_meta_update(errs, n.st("metadata"), o.st("metadata"));
    let at = Path::root("status");
    let (spec, new, old) = (n.st("spec"), n.st("status"), o.st("status"));
    counters(errs, &at, new);
    let changed = |f: &str| !same(new.get(f), old.get(f));
    let turned = |ty: &str| is(new, ty) != is(old, ty);
    let ended = finished(new) != finished(old);
    let (complete, failed) = (is(new, "Complete"), is(new, "Failed"));
    let conditions = at.field("conditions");
    if turned("Complete") || turned("Failed") {
        refuse(errs, &conditions, complete && failed, "cannot set Complete=True and Failed=true conditions");
    }
    if turned("Complete") || turned("FailureTarget") {
        let both = complete && is(new, "FailureTarget");
        refuse(errs, &conditions, both, "cannot set Complete=True and FailureTarget=true conditions");
    }
    times(errs, &at, new, old, turned("Complete"));
    let indexes = changed("completedIndexes") || changed("failedIndexes");
    if (turned("Failed") || changed("failedIndexes")) && failed && !is(new, "FailureTarget") {
        errs.invalid_here(
            &conditions,
            "cannot set Failed=True condition without the FailureTarget=true condition",
        );
    }
    if (turned("Complete") || turned("SuccessCriteriaMet")) && complete && !is(new, "SuccessCriteriaMet") {
        errs.invalid_here(
            &conditions,
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        );
    }
    if (ended || changed("active")) && new.int("active") > 0 && finished(new) {
        errs.invalid(&at.field("active"), new.int("active"), "active>0 is invalid for finished job");
    }
    let never_ran = spec.opt_bool("suspend") == Some(true) && spec.opt_int("completions") == Some(0);
    if (ended || changed("startTime")) && !never_ran && !new.has("startTime") && finished(new) {
        errs.required(&at.field("startTime"), "startTime is required for finished job");
    }
    let uncounted = new.st("uncountedTerminatedPods");
    if (ended || changed("uncountedTerminatedPods"))
        && finished(new)
        && uncounted.len("failed") + uncounted.len("succeeded") > 0
    {
        errs.invalid(
            &at.field("uncountedTerminatedPods"),
            Raw(print::field(new, "uncountedTerminatedPods")),
            "must be empty for finished job",
        );
    }
    index_lists(errs, &at, spec, new, [changed("completedIndexes"), changed("failedIndexes"), indexes]);
    if (ended || changed("terminating")) && new.int("terminating") > 0 && finished(new) {
        errs.invalid(
            &at.field("terminating"),
            new.int("terminating"),
            "terminating>0 is invalid for finished job",
        );
    }
    if (changed("ready") || changed("active")) && new.has("ready") && new.int("ready") > new.int("active") {
        errs.invalid(&at.field("ready"), new.int("ready"), "cannot set more ready pods than active");
    }
    let met = is(new, "SuccessCriteriaMet");
    refuse(errs, &conditions, met && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions");
    let target = met && is(new, "FailureTarget");
    refuse(errs, &conditions, target, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
    if spec.has("successPolicy") && !met && complete {
        errs.invalid_here(
            &conditions,
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        );
    }
    transitions(errs, &at, spec, new, old);
}

fn refuse(errs: &mut Errors, at: &Path<'_>, bad: bool, why: &str) {
    if bad {
        errs.invalid_here(at, why);
    }
}

fn counters(errs: &mut Errors, at: &Path<'_>, new: View<'_>) {
    for f in ["active", "succeeded", "failed", "ready", "terminating"] {
        errs.non_negative(&at.field(f), new.int(f));
    }
    let at = at.field("uncountedTerminatedPods");
    let mut seen = HashSet::new();
    for f in ["succeeded", "failed"] {
        let at = at.field(f);
        for (i, uid) in new.st("uncountedTerminatedPods").strs(f).enumerate() {
            let at = at.index(i);
            if uid.is_empty() {
                errs.invalid(&at, uid, "must not be empty");
            } else if seen.contains(&uid) {
                errs.duplicate(&at, uid);
            } else {
                seen.insert(uid);
            }
        }
    }
}

fn times(errs: &mut Errors, at: &Path<'_>, new: View<'_>, old: View<'_>, completed: bool) {
    let (start, end) = (new.opt_str("startTime"), new.opt_str("completionTime"));
    let at = at.field("completionTime");
    let moved = !same(new.get("completionTime"), old.get("completionTime"));
    if completed || moved {
        match end {
            Some(_) if !is(new, "Complete") => {
                errs.invalid(
                    &at,
                    new.get("completionTime"),
                    "cannot set completionTime when there is no Complete=True condition",
                );
            }
            None if is(new, "Complete") => {
                errs.required(&at, "completionTime is required for Complete jobs");
            }
            _ => {}
        }
    }
    if (moved || !same(new.get("startTime"), old.get("startTime")))
        && let (Some(start), Some(end)) = (start, end)
        && end < start
    {
        errs.invalid(&at, end, "must be equal to or after `startTime`");
    }
}

/// Checks the lists of indexes. `changed` tells whether the completed indexes changed, the failed ones, and either.
fn index_lists(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, new: View<'_>, changed: [bool; 3]) {
    let completions = spec.opt_int("completions");
    let completed = new.str("completedIndexes");
    let failed = new.opt_str("failedIndexes");
    let limited = spec.has("backoffLimitPerIndex");
    let (completed_at, failed_at) = (at.field("completedIndexes"), at.field("failedIndexes"));
    if changed[0]
        && let Some(Err(e)) = completions.map(|c| count_indexes(completed, c))
    {
        errs.invalid(&completed_at, completed, format!("error parsing completedIndexes: {e}"));
    }
    if changed[1]
        && limited
        && let (Some(c), Some(failed)) = (completions, failed)
        && let Err(e) = count_indexes(failed, c)
    {
        errs.invalid(&failed_at, failed, format!("error parsing failedIndexes: {e}"));
    }
    if changed[0] && !completed.is_empty() && spec.str("completionMode") != "Indexed" {
        errs.invalid(
            &completed_at,
            completed,
            "cannot set non-empty completedIndexes when non-indexed completion mode",
        );
    }
    if changed[1]
        && !limited
        && let Some(failed) = failed
    {
        errs.invalid(
            &failed_at,
            failed,
            "cannot set non-null failedIndexes when backoffLimitPerIndex is null",
        );
    }
    if changed[2]
        && let (Some(c), Some(failed)) = (completions, failed)
        && let Some(i) = overlap(completed, failed, c)
    {
        errs.invalid(&failed_at, failed, format!("failedIndexes and completedIndexes overlap at index: {i}"));
    }
}

/// The first index found in both lists; intervals that cannot be read are passed over.
fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let read = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| interval(part, completions).ok()).collect()
    };
    let (completed, failed) = (read(completed), read(failed));
    let (mut c, mut f) = (0, 0);
    while let (Some(&(cx, cy)), Some(&(fx, fy))) = (completed.get(c), failed.get(f)) {
        if cx <= fy && fx <= cy {
            return Some(cx.max(fx));
        }
        if cx <= fx {
            c += 1;
        } else {
            f += 1;
        }
    }
    None
}

/// Checks that nothing that the Job reached is taken back.
fn transitions(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, new: View<'_>, old: View<'_>) {
    let conditions = at.field("conditions");
    for ty in ["Failed", "Complete", "FailureTarget"] {
        if is(old, ty) && !is(new, ty) {
            errs.invalid_here(&conditions, format!("cannot disable the terminal {ty}=True condition"));
        }
    }
    if new.int("failed") < old.int("failed") {
        errs.invalid(&at.field("failed"), new.int("failed"), "cannot decrease the failed counter");
    }
    // A Job whose parallelism equals its completions may be scaled down.
    let scalable =
        spec.str("completionMode") == "Indexed" && spec.opt_int("completions") == spec.opt_int("parallelism");
    if !scalable && new.int("succeeded") < old.int("succeeded") {
        errs.invalid(&at.field("succeeded"), new.int("succeeded"), "cannot decrease the succeeded counter");
    }
    if new.has("completionTime")
        && old.has("completionTime")
        && new.get("completionTime") != old.get("completionTime")
    {
        errs.invalid(&at.field("completionTime"), new.get("completionTime"), IMMUTABLE);
    }
    let resumes = is(old, "Suspended") && condition(new, "Suspended", "False");
    if !resumes
        && old.has("startTime")
        && new.get("startTime") != old.get("startTime")
        && !spec.bool("suspend")
    {
        errs.invalid(
            &at.field("startTime"),
            new.get("startTime"),
            "field is immutable for unsuspended job once set",
        );
    }
    let (met, was_met) = (is(new, "SuccessCriteriaMet"), is(old, "SuccessCriteriaMet"));
    refuse(errs, &conditions, was_met && !met, "cannot disable the SuccessCriteriaMet=True condition");
    if is(old, "Complete") && !was_met && met {
        errs.invalid_here(
            &conditions,
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
        );
    }
}
