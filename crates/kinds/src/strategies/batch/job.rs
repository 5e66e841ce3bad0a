//! Jobs.

use std::collections::HashSet;

use api::field::{Errors, Path, Raw};
use api::names::{self, domain_prefixed_path, name_subdomain};
use api::view::{Edit, View};
use api::{Gate, Node, Schema, Struct, Text};

use super::indexes::count_indexes;
use super::status;
use crate::columns;
use crate::defaults::job_labels;
use crate::strategies::generic::{
    self, NAMESPACED, STATUS, bump_if_changed, check, check_update, keep_status,
};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::pod::leniency::options;
use crate::strategies::pod::options::Options;
use crate::strategies::pod::spec::template;
use crate::strategies::pod::warnings;
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::strategies::template::name_warning;
use crate::strategies::template::{drop_in_template, is_selector, labels_value, whole};
use crate::strategy::{Ctx, Deletion, Dependents};
use crate::validation::immutable;
use crate::validation::meta::{SelectorOptions, has_invalid_value, label_selector, selects};
use crate::validation::print;

const UID: &str = "batch.kubernetes.io/controller-uid";
const NAME: &str = "batch.kubernetes.io/job-name";
const OLD_UID: &str = "controller-uid";
const OLD_NAME: &str = "job-name";

/// Upstream's limits.
const MAX_PARALLELISM_INDEXED: i64 = 100_000;
const MAX_FAILED_INDEXES: i64 = 100_000;
const MANY_COMPLETIONS: i64 = 100_000;
const LIMIT_OF_MANY: i64 = 10_000;
const MAX_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;
const MAX_PATTERNS: usize = 20;
const MAX_MANAGED_BY: usize = 63;
const MAX_SUCCEEDED_INDEXES: usize = 64 * 1024;

pub(crate) const JOB: Rules = Rules {
    group: "batch",
    resource: "jobs",
    columns: columns::workloads::JOB,
    deletion: Deletion { dependents: Dependents::Orphan, ..Deletion::USUAL },
    canonicalize: |c, s| job_labels(&mut Edit::new(c.schema, s)),
    takes: Takes::BUT_STATUS,
    prepare_create: |c, s| {
        let v = View::new(c.schema, s);
        let of_template = v.st("spec").st("template").st("metadata").get("labels");
        // Labels that the Job has from its template are the same map in upstream's server.
        let shared = of_template.is_some() && of_template == v.st("metadata").get("labels");
        if !v.st("spec").bool("manualSelector") {
            generate_selector(&mut Edit::new(c.schema, s));
        }
        generic::create(c, s);
        drop_in_template(c, s, &["spec", "template"], None);
        if shared {
            labels_of_template(&mut Edit::new(c.schema, s));
        }
    },
    prepare_update: |c, n, o| {
        keep_status(c, n, o);
        drop_in_template(c, n, &["spec", "template"], Some(o));
        bump_if_changed(c, n, o, &["spec"]);
    },
    validate: |c, s| check(c, s, |e, v| job(e, v, &options(*c, false, None), true)),
    validate_update: |c, n, o| check_update(c, n, o, |e, n, o| job_update(e, n, o, c)),
    warnings: |c, n, old| {
        let v = View::new(c.schema, n);
        let mut out = Vec::new();
        match old {
            None => name_warning(&mut out, v.st("metadata")),
            Some(o) if same_generation(c, v, o) => return out,
            Some(_) => {}
        }
        spec_warnings(&mut out, &Path::root("spec"), v.st("spec"));
        out
    },
    fields: &["status.successful"],
    field_values: succeeded,
    subresources: &[SubresourceRules {
        validate_update: |c, n, o| check_update(c, n, o, status::check),
        ..STATUS
    }],
    ..NAMESPACED
};

fn succeeded(schema: &Schema, s: &Struct, out: &mut Vec<Text>) {
    out.push(compact_str::format_compact!("{}", View::new(schema, s).st("status").int("succeeded")));
}

pub(super) fn same_generation(c: &Ctx<'_>, new: View<'_>, old: &Struct) -> bool {
    View::new(c.schema, old).st("metadata").int("generation") == new.st("metadata").int("generation")
}

/// Gives a Job its template's labels.
fn labels_of_template(e: &mut Edit<'_>) {
    let labels = e.view().st("spec").st("template").st("metadata").get("labels").cloned();
    if let Some(mut meta) = e.make("metadata") {
        meta.put("labels", labels);
    }
}

/// Generates the selector: pods of a Job are told apart by the Job's uid, in labels of the template and in the
/// selector.
fn generate_selector(e: &mut Edit<'_>) {
    let meta = e.view().st("metadata");
    let (name, uid) = (Text::from(meta.str("name")), Text::from(meta.str("uid")));
    let Some(mut spec) = e.make("spec") else { return };
    if let Some(mut template) = spec.make("template")
        && let Some(mut meta) = template.make("metadata")
        && let Some(labels) = meta.make_map("labels")
    {
        for (key, value) in [(OLD_NAME, &name), (NAME, &name), (OLD_UID, &uid), (UID, &uid)] {
            if labels.get(key).is_none() {
                labels.insert(key, value.clone());
            }
        }
    }
    if let Some(mut selector) = spec.make("selector")
        && let Some(labels) = selector.make_map("matchLabels")
        && labels.get(UID).is_none()
    {
        labels.insert(UID, uid);
    }
}

pub(super) fn spec_warnings(out: &mut Vec<String>, at: &Path<'_>, spec: View<'_>) {
    if spec.str("completionMode") == "Indexed"
        && spec.int("completions") > MANY_COMPLETIONS
        && spec.int("parallelism") > LIMIT_OF_MANY
    {
        out.push(format!(
            "{at}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    let t = spec.st("template");
    warnings::of_spec(out, &at.field("template"), t.st("metadata"), t.st("spec"), true);
}

fn has_label(errs: &mut Errors, at: &Path<'_>, meta: View<'_>, key: &str, expected: &str) {
    let at = at.field("labels");
    let at = at.key(key);
    let detail = format!("must be '{expected}'");
    match meta.map("labels").and_then(|m| m.get(key)).map(Node::as_str) {
        None => errs.required(&at, detail),
        Some(v) if v != expected => errs.invalid(&at, labels_value(meta), detail),
        Some(_) => {}
    }
}

fn generated_selector(errs: &mut Errors, v: View<'_>, prefixed: bool) {
    let spec = v.st("spec");
    let Some(selector) = spec.opt("selector").filter(|_| !spec.bool("manualSelector")) else { return };
    let (uid, name) = (v.st("metadata").str("uid"), v.st("metadata").str("name"));
    if uid.is_empty() {
        errs.required(&Path::root("metadata.uid"), "");
    }
    let at = Path::root("spec.template.metadata");
    let meta = spec.st("template").st("metadata");
    let mut expected = api::Map::new();
    for (key, value, old) in
        [(OLD_UID, uid, true), (OLD_NAME, name, true), (UID, uid, false), (NAME, name, false)]
    {
        if old || prefixed {
            has_label(errs, &at, meta, key, value);
            expected.insert(key, value);
        }
    }
    if is_selector(selector) && !selects(selector, Some(&expected)) {
        errs.invalid(&Path::root("spec.selector"), whole(selector), "`selector` not auto-generated");
    }
}

fn job(errs: &mut Errors, v: View<'_>, o: &Options<'_>, prefixed: bool) {
    let (meta, spec) = (v.st("metadata"), v.st("spec"));
    core_meta(errs, meta, true, name_subdomain);
    generated_selector(errs, v, prefixed);
    job_spec(errs, &Path::root("spec"), spec, o);
    if spec.str("completionMode") == "Indexed" && spec.int("completions") > 0 {
        let name = meta.str("name");
        let last = format!("{name}-{}", spec.int("completions") - 1);
        if !names::dns1123_label(&last).is_empty() {
            errs.invalid(
                &Path::root("metadata.name"),
                name,
                format!("will not able to create pod with invalid DNS label: {last}"),
            );
        }
    }
}

fn job_spec(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, o: &Options<'_>) {
    common_spec(errs, at, spec, o);
    let selector_at = at.field("selector");
    let selector = spec.opt("selector");
    match selector {
        None => errs.required(&selector_at, ""),
        Some(s) => label_selector(
            errs,
            &selector_at,
            Some(s),
            SelectorOptions { invalid_values: o.invalid_selector_values },
        ),
    }
    let meta = spec.st("template").st("metadata");
    // An absent selector selects nothing.
    if selector.is_none_or(|s| is_selector(s) && !selects(s, meta.map("labels"))) {
        errs.invalid(
            &at.field("template.metadata.labels"),
            labels_value(meta),
            "`selector` does not match template `labels`",
        );
    }
}

/// Checks the spec of a Job or of a CronJob's template.
pub(super) fn common_spec(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, o: &Options<'_>) {
    for f in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        if let Some(n) = spec.opt_int(f) {
            errs.non_negative(&at.field(f), n);
        }
    }
    let per_index = spec.opt_int("backoffLimitPerIndex");
    let max_failed = spec.opt_int("maxFailedIndexes");
    let per_index_at = at.field("backoffLimitPerIndex");
    let max_failed_at = at.field("maxFailedIndexes");
    if max_failed.is_some() && per_index.is_none() {
        errs.required(&per_index_at, "when maxFailedIndexes is specified");
    }
    if let Some(by) = spec.opt_str("managedBy") {
        let at = at.field("managedBy");
        domain_prefixed_path(errs, &at, by);
        if by.len() > MAX_MANAGED_BY {
            errs.too_long(&at, MAX_MANAGED_BY);
        }
    }
    let mode = spec.opt_str("completionMode");
    if let Some(mode) = mode {
        errs.one_of(&at.field("completionMode"), mode, &["NonIndexed", "Indexed"]);
    }
    if mode == Some("Indexed") {
        indexed(errs, at, spec);
    }
    if mode.is_none_or(|m| m == "NonIndexed") {
        for (at, n) in [(&per_index_at, per_index), (&max_failed_at, max_failed)] {
            if let Some(n) = n {
                errs.invalid(at, n, "requires indexed completion mode");
            }
        }
    }
    if let Some(policy) = spec.opt("podFailurePolicy") {
        failure_policy(errs, &at.field("podFailurePolicy"), spec, policy);
    }
    if let Some(policy) = spec.opt("successPolicy") {
        let at = at.field("successPolicy");
        if mode == Some("Indexed") {
            success_policy(errs, &at, spec, policy);
        } else {
            errs.invalid(&at, whole(policy), "requires indexed completion mode");
        }
    }
    if let Some(p) = spec.opt_str("podReplacementPolicy") {
        let valid: &[&str] =
            if spec.has("podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
        errs.one_of(&at.field("podReplacementPolicy"), p, valid);
    }
    let t = spec.st("template");
    let template_at = at.field("template");
    template(errs, &template_at, t, o);
    let policy = t.st("spec").str("restartPolicy");
    let at = template_at.field("spec");
    let at = at.field("restartPolicy");
    match policy {
        "Always" | "" => errs.required(&at, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" | "Never" => {
            if spec.has("podFailurePolicy") && policy != "Never" {
                errs.invalid(&at, policy, "only \"Never\" is supported when podFailurePolicy is specified");
            }
        }
        _ => errs.not_supported(&at, policy, &["OnFailure", "Never"]),
    }
}

fn indexed(errs: &mut Errors, at: &Path<'_>, spec: View<'_>) {
    let (parallelism_at, max_failed_at) = (at.field("parallelism"), at.field("maxFailedIndexes"));
    let completions = spec.opt_int("completions");
    let parallelism = spec.opt_int("parallelism");
    let max_failed = spec.opt_int("maxFailedIndexes");
    if completions.is_none() {
        errs.required(&at.field("completions"), "when completion mode is Indexed");
    }
    if let Some(p) = parallelism.filter(|p| *p > MAX_PARALLELISM_INDEXED) {
        errs.invalid(
            &parallelism_at,
            p,
            format!(
                "must be less than or equal to {MAX_PARALLELISM_INDEXED} when completion mode is Indexed"
            ),
        );
    }
    if let (Some(c), Some(m)) = (completions, max_failed)
        && m > c
    {
        errs.invalid(&max_failed_at, m, "must be less than or equal to completions");
    }
    if let Some(m) = max_failed.filter(|m| *m > MAX_FAILED_INDEXES) {
        errs.invalid(&max_failed_at, m, format!("must be less than or equal to {MAX_FAILED_INDEXES}"));
    }
    if completions.is_some_and(|c| c > MANY_COMPLETIONS) && spec.has("backoffLimitPerIndex") {
        let why = || {
            format!(
                "must be less than or equal to {LIMIT_OF_MANY} when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
            )
        };
        if max_failed.is_none() {
            errs.required(
                &max_failed_at,
                format!("must be specified when completions is above {MANY_COMPLETIONS}"),
            );
        }
        if let Some(p) = parallelism.filter(|p| *p > LIMIT_OF_MANY) {
            errs.invalid(&parallelism_at, p, why());
        }
        if let Some(m) = max_failed.filter(|m| *m > LIMIT_OF_MANY) {
            errs.invalid(&max_failed_at, m, why());
        }
    }
}

/// A list of strings as Go's `%q` prints it.
fn quoted(all: &[&str]) -> String {
    let all: Vec<String> = all.iter().map(|s| api::go::quote(s)).collect();
    format!("valid values: [{}]", all.join(" "))
}

fn failure_policy(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, policy: View<'_>) {
    const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];
    const STATES: &[&str] = &["False", "True", "Unknown"];
    let at = at.field("rules");
    let count = policy.len("rules");
    if count > MAX_RULES {
        errs.too_many(&at, count, MAX_RULES);
    }
    let pod = spec.st("template").st("spec");
    let containers: HashSet<&str> =
        pod.items("containers").chain(pod.items("initContainers")).map(|c| c.str("name")).collect();
    for (i, rule) in policy.items("rules").enumerate() {
        let at = at.index(i);
        let action = rule.str("action");
        let action_at = at.field("action");
        match action {
            "" => errs.required(&action_at, quoted(ACTIONS)),
            "FailIndex" => {
                if !spec.has("backoffLimitPerIndex") {
                    errs.invalid(&action_at, action, "requires the backoffLimitPerIndex to be set");
                }
            }
            _ => errs.one_of(&action_at, action, ACTIONS),
        }
        let codes = rule.opt("onExitCodes");
        let patterns = rule.len("onPodConditions");
        if let Some(codes) = codes {
            exit_codes(errs, &at.field("onExitCodes"), codes, &containers);
        }
        let conditions_at = at.field("onPodConditions");
        if patterns > MAX_PATTERNS {
            errs.too_many(&conditions_at, patterns, MAX_PATTERNS);
        }
        for (j, p) in rule.items("onPodConditions").enumerate() {
            let at = conditions_at.index(j);
            let (ty, state) = (p.str("type"), p.str("status"));
            errs.each(&at.field("type"), ty, names::qualified_name(ty));
            if state.is_empty() {
                errs.required(&at.field("status"), quoted(STATES));
            } else {
                errs.one_of(&at.field("status"), state, STATES);
            }
        }
        match (codes.is_some(), patterns > 0) {
            (true, true) => {
                errs.invalid_here(&at, "specifying both OnExitCodes and OnPodConditions is not supported");
            }
            (false, false) => {
                errs.invalid_here(&at, "specifying one of OnExitCodes and OnPodConditions is required");
            }
            _ => {}
        }
    }
}

fn exit_codes(errs: &mut Errors, at: &Path<'_>, codes: View<'_>, containers: &HashSet<&str>) {
    const OPERATORS: &[&str] = &["In", "NotIn"];
    let operator = codes.str("operator");
    let operator_at = at.field("operator");
    if operator.is_empty() {
        errs.required(&operator_at, quoted(OPERATORS));
    } else {
        errs.one_of(&operator_at, operator, OPERATORS);
    }
    if let Some(name) = codes.opt_str("containerName").filter(|name| !containers.contains(name)) {
        errs.invalid(
            &at.field("containerName"),
            name,
            "must be one of the container or initContainer names in the pod template",
        );
    }
    let at = at.field("values");
    let values: Vec<i64> = codes.list("values").iter().filter_map(Node::as_int).collect();
    if values.is_empty() {
        errs.invalid(&at, Raw(print::field(codes, "values")), "at least one value is required");
    } else if values.len() > MAX_EXIT_CODES {
        errs.too_many(&at, values.len(), MAX_EXIT_CODES);
    }
    let mut seen = HashSet::new();
    for (j, code) in values.iter().enumerate() {
        let at = at.index(j);
        if operator == "In" && *code == 0 {
            errs.invalid(&at, *code, "must not be 0 for the In operator");
        }
        if !seen.insert(*code) {
            errs.duplicate(&at, *code);
        }
    }
    if !values.is_sorted() {
        errs.invalid(&at, codes.get("values"), "must be ordered");
    }
}

fn success_policy(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, policy: View<'_>) {
    let at = at.field("rules");
    let count = policy.len("rules");
    if count == 0 {
        errs.required(&at, "at least one rules must be specified when the successPolicy is specified");
    }
    if count > MAX_RULES {
        errs.too_many(&at, count, MAX_RULES);
    }
    let completions = spec.int("completions");
    for (i, rule) in policy.items("rules").enumerate() {
        let at = at.index(i);
        let (wanted, indexes) = (rule.opt_int("succeededCount"), rule.opt_str("succeededIndexes"));
        if wanted.is_none() && indexes.is_none() {
            errs.required(&at, "at least one of succeededCount or succeededIndexes must be specified");
        }
        let mut total = 0;
        if let Some(text) = indexes {
            let at = at.field("succeededIndexes");
            if text.len() > MAX_SUCCEEDED_INDEXES {
                errs.too_long(&at, MAX_SUCCEEDED_INDEXES);
            }
            match count_indexes(text, completions) {
                Ok(n) => total = n,
                Err(why) => errs.invalid(&at, text, format!("error parsing succeededIndexes: {why}")),
            }
        }
        let at = at.field("succeededCount");
        if let Some(n) = wanted {
            errs.non_negative(&at, n);
            if n > completions {
                errs.invalid(
                    &at,
                    n,
                    format!(
                        "must be less than or equal to {completions} (the number of specified completions)"
                    ),
                );
            }
            if indexes.is_some() && n > total {
                errs.invalid(
                    &at,
                    n,
                    format!(
                        "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
                    ),
                );
            }
        }
    }
}

fn job_update(errs: &mut Errors, n: View<'_>, o: View<'_>, c: &Ctx<'_>) {
    let (ns, os) = (n.st("spec"), o.st("spec"));
    let mut options =
        options(*c, false, Some((os.st("template").st("spec"), os.st("template").st("metadata"))));
    options.invalid_selector_values |= has_invalid_value(os.opt("selector"));
    let labels = os.st("template").st("metadata").map("labels");
    let has = |key: &str| labels.is_some_and(|l| l.get(key).is_some());
    job(errs, n, &options, has(UID) && has(NAME));
    core_meta_update(errs, n.st("metadata"), o.st("metadata"));
    let at = Path::root("spec");
    job_spec(errs, &at, ns, &options);
    completions_update(errs, &at, ns, os);
    immutable(errs, &at, ns, os, "selector");
    template_update(errs, &at, ns, o, c);
    for f in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        immutable(errs, &at, ns, os, f);
    }
}

/// Checks an update of the completions: only an Indexed Job may be scaled, together with its parallelism.
fn completions_update(errs: &mut Errors, at: &Path<'_>, n: View<'_>, o: View<'_>) {
    if n.str("completionMode") != "Indexed" {
        immutable(errs, at, n, o, "completions");
        return;
    }
    let Some(new) = n.opt_int("completions").filter(|c| o.opt_int("completions") != Some(*c)) else { return };
    if Some(new) != n.opt_int("parallelism") {
        errs.invalid(&at.field("completions"), new, "can only be modified in tandem with spec.parallelism");
    }
}

/// Checks an update of the template: a suspended Job may change the fields about the scheduling of pods, and their
/// resources.
fn template_update(errs: &mut Errors, at: &Path<'_>, n: View<'_>, old: View<'_>, c: &Ctx<'_>) {
    let o = old.st("spec");
    let status = old.st("status");
    let suspended = o.bool("suspend");
    let started = status.has("startTime");
    let has_condition =
        status.items("conditions").any(|c| c.str("type") == "Suspended" && c.str("status") == "True");
    let may_change = suspended && (!started || has_condition) && status.int("active") == 0;
    let scheduling = if c.gates.enabled(Gate::MutableSchedulingDirectivesForSuspendedJobs) {
        may_change
    } else {
        suspended && !started
    };
    let resources = c.gates.enabled(Gate::MutablePodResourcesForSuspendedJobs) && may_change;
    let Some(old_spec) = o.raw() else { return };
    let mut spec = old_spec.clone();
    let t = n.st("template");
    {
        let mut edit = Edit::new(n.schema, &mut spec);
        let Some(mut template) = edit.make("template") else { return };
        if scheduling {
            take_scheduling(&mut template, t);
        }
        if suspended
            && resources
            && let Some(mut pod) = template.make("spec")
        {
            take_resources(&mut pod, t.st("spec"));
        }
    }
    let allowed = View::new(n.schema, &spec);
    if suspended && resources {
        let (new, allowed) = (t.st("spec"), allowed.st("template").st("spec"));
        if new.raw() != allowed.raw() {
            errs.invalid(&at.field("template.spec"), whole(new), api::field::IMMUTABLE);
        }
    } else {
        immutable(errs, at, n, allowed, "template");
    }
}

fn take_scheduling(template: &mut Edit<'_>, new: View<'_>) {
    if let Some(mut pod) = template.make("spec") {
        let node = new.st("spec").st("affinity").get("nodeAffinity").cloned();
        if new.st("spec").has("affinity") || pod.view().has("affinity") {
            if let Some(mut affinity) = pod.make("affinity") {
                affinity.put("nodeAffinity", node);
            }
            if pod.view().st("affinity").is_empty() && !new.st("spec").has("affinity") {
                pod.remove("affinity");
            }
        }
        for f in ["nodeSelector", "tolerations", "schedulingGates"] {
            pod.put(f, new.st("spec").get(f).cloned());
        }
    }
    if let Some(mut meta) = template.make("metadata") {
        for f in ["annotations", "labels"] {
            meta.put(f, new.st("metadata").get(f).cloned());
        }
    }
}

fn take_resources(pod: &mut Edit<'_>, new: View<'_>) {
    for list in ["containers", "initContainers"] {
        if pod.view().len(list) != new.len(list) {
            continue;
        }
        for (mut container, n) in pod.items(list).zip(new.items(list)) {
            if container.view().str("name") == n.str("name") {
                container.put("resources", n.get("resources").cloned());
            }
        }
    }
}
