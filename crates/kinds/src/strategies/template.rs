//! Rules that the kinds which make pods from a template share.

use api::field::{Errors, Path, Raw};
use api::names;
use api::view::{Edit, View};
use api::{Node, Struct, Text};

use crate::strategies::generic::{self, bump_if_changed, check_update, keep_status};
use crate::strategies::meta::core_meta_update;
use crate::strategies::pod::options::Options;
use crate::strategies::pod::spec::template;
use crate::strategies::pod::{leniency, prepare, warnings};
use crate::strategies::rules::{SubresourceRules, Takes};
use crate::strategy::Ctx;
use crate::validation::meta::{SelectorOptions, is_empty_selector, label_selector, selects};
use crate::validation::print;

/// Drops the disabled fields of the template below the fields `at`.
pub(crate) fn drop_in_template(c: &Ctx<'_>, s: &mut Struct, at: &[&str], old: Option<&Struct>) {
    let old = old.map(|o| {
        let mut v = View::new(c.schema, o);
        for f in at {
            v = v.st(f);
        }
        v.st("spec")
    });
    fn down(e: &mut Edit<'_>, at: &[&str], f: &mut dyn FnMut(&mut Edit<'_>)) {
        match at.split_first() {
            None => f(e),
            Some((first, rest)) => {
                if let Some(mut e) = e.at(first) {
                    down(&mut e, rest, f);
                }
            }
        }
    }
    let mut all = at.to_vec();
    all.push("spec");
    down(&mut Edit::new(c.schema, s), &all, &mut |spec| prepare::drop_disabled(c, spec, old));
}

pub(crate) fn create(c: &Ctx<'_>, s: &mut Struct) {
    generic::create(c, s);
    drop_in_template(c, s, &["spec", "template"], None);
}

pub(crate) fn update(c: &Ctx<'_>, n: &mut Struct, o: &Struct) {
    keep_status(c, n, o);
    drop_in_template(c, n, &["spec", "template"], Some(o));
    bump_if_changed(c, n, o, &["spec"]);
}

pub(crate) fn options<'a>(c: &Ctx<'a>, old: Option<View<'_>>) -> Options<'a> {
    leniency::options(*c, false, old.map(|t| (t.st("spec"), t.st("metadata"))))
}

/// Warnings about the template in `spec`; on an update only if the object changed.
pub(crate) fn template_warnings(c: &Ctx<'_>, n: &Struct, old: Option<&Struct>) -> Vec<String> {
    let mut out = Vec::new();
    if old.is_none() {
        name_warning(&mut out, View::new(c.schema, n).st("metadata"));
    }
    out.extend(unnamed_template_warnings(c, n, old));
    out
}

/// Like [`template_warnings`], for kinds whose name may be any text.
pub(crate) fn unnamed_template_warnings(c: &Ctx<'_>, n: &Struct, old: Option<&Struct>) -> Vec<String> {
    let v = View::new(c.schema, n);
    let mut out = Vec::new();
    let generation = |v: View<'_>| v.st("metadata").int("generation");
    if old.is_some_and(|o| generation(View::new(c.schema, o)) == generation(v)) {
        return out;
    }
    let t = v.st("spec").st("template");
    let at = Path::root("spec.template");
    warnings::of_spec(&mut out, &at, t.st("metadata"), t.st("spec"), true);
    out
}

pub(crate) fn whole(v: View<'_>) -> Raw {
    Raw(v.raw().map(|s| print::internal(v.schema, s)).unwrap_or_default())
}

pub(crate) fn labels_value(v: View<'_>) -> Raw {
    Raw(print::field(v, "labels"))
}

pub(crate) const MISMATCH: &str = "`selector` does not match template `labels`";

/// Checks the rules for pods that are always started again.
pub(crate) fn always(errs: &mut Errors, spec_at: &Path<'_>, t: View<'_>, kind: &str) {
    let at = spec_at.field("template");
    let at = at.field("spec");
    let policy = t.st("spec").str("restartPolicy");
    if policy != "Always" {
        errs.not_supported(&at.field("restartPolicy"), policy, &["Always"]);
    }
    if t.st("spec").has("activeDeadlineSeconds") {
        errs.forbidden(
            &at.field("activeDeadlineSeconds"),
            format!("activeDeadlineSeconds in {kind} is not Supported"),
        );
    }
}

/// Whether a selector can be made of every requirement.
pub(crate) fn is_selector(s: View<'_>) -> bool {
    let mut e = Errors::new();
    label_selector(&mut e, &Path::root(""), Some(s), SelectorOptions::default());
    e.is_empty()
}

pub(crate) fn selector(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, kind: &str) {
    let at = at.field("selector");
    match spec.opt("selector") {
        None => errs.required(&at, ""),
        Some(s) => {
            label_selector(errs, &at, Some(s), SelectorOptions::default());
            if is_empty_selector(s) {
                errs.invalid(&at, whole(s), format!("empty selector is invalid for {kind}"));
            }
        }
    }
}

/// Checks the selector and the template of a ReplicaSet or Deployment.
pub(crate) fn selected_template(errs: &mut Errors, at: &Path<'_>, spec: View<'_>, o: &Options<'_>) {
    let t = spec.st("template");
    let sel = spec.opt("selector");
    if let Some(s) = sel.filter(|s| !is_selector(*s)) {
        errs.invalid(&at.field("selector"), whole(s), "invalid label selector");
        return;
    }
    let template_at = at.field("template");
    // An absent selector selects nothing, so that no template matches it.
    let matches = sel.is_some_and(|s| is_empty_selector(s) || selects(s, t.st("metadata").map("labels")));
    if !matches {
        errs.invalid(&template_at.field("metadata.labels"), labels_value(t.st("metadata")), MISMATCH);
    }
    template(errs, &template_at, t, o);
    always(errs, at, t, "ReplicaSet");
}

/// Checks the counts of a status: none is negative, none is above another.
pub(crate) fn counts(errs: &mut Errors, status: View<'_>, all: &[&str], below_replicas: &[&str]) {
    let at = Path::root("status");
    for f in all {
        if let Some(n) = status.opt_int(f) {
            errs.non_negative(&at.field(f), n);
        }
    }
    for f in below_replicas {
        if status.int(f) > status.int("replicas") {
            errs.invalid(&at.field(f), status.int(f), "cannot be greater than status.replicas");
        }
    }
}

pub(crate) fn available_below_ready(errs: &mut Errors, status: View<'_>, what: &str) {
    if status.int("availableReplicas") > status.int("readyReplicas") {
        errs.invalid(
            &Path::root("status.availableReplicas"),
            status.int("availableReplicas"),
            format!("cannot be greater than {what}"),
        );
    }
}

/// The status of ReplicaSets and ReplicationControllers, which keep a number of Pods; the latter have fewer counts.
pub(crate) const REPLICAS_STATUS: SubresourceRules = SubresourceRules {
    name: "status",
    takes: Takes::BUT_SPEC,
    prepare_update: generic::status_only,
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            let s = n.st("status");
            let below = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
            counts(e, s, &["replicas", below[0], below[1], below[2], "observedGeneration"], &below);
            if s.knows("terminatingReplicas") {
                counts(e, s, &["terminatingReplicas"], &[]);
            }
            available_below_ready(e, s, "readyReplicas");
        })
    },
};

pub(crate) fn collisions(errs: &mut Errors, n: View<'_>, o: View<'_>) {
    let f = "collisionCount";
    if o.opt_int(f).is_some_and(|old| n.opt_int(f).is_none_or(|new| new < old)) {
        errs.invalid(&Path::root("status.collisionCount"), n.int(f), "cannot be decremented");
    }
}

pub(crate) fn replicas_text(schema: &api::Schema, s: &Struct, out: &mut Vec<Text>) {
    out.push(compact_str::format_compact!("{}", View::new(schema, s).st("status").int("replicas")));
}

/// Checks a count or a percentage.
pub(crate) fn int_or_percent(errs: &mut Errors, at: &Path<'_>, v: Option<&Node>) {
    match v {
        Some(Node::Str(s)) => errs.each(at, s, names::percent(s)),
        n => errs.non_negative(at, n.and_then(Node::as_int).unwrap_or(0)),
    }
}

pub(crate) fn percent(v: Option<&Node>) -> Option<i64> {
    match v {
        Some(Node::Str(s)) if names::percent(s).is_empty() => s.trim_end_matches('%').parse().ok(),
        _ => None,
    }
}

/// The number in a count or a percentage, 0 if there is none.
pub(crate) fn amount(v: Option<&Node>) -> i64 {
    percent(v).unwrap_or_else(|| match v {
        Some(Node::Str(s)) => s.parse().unwrap_or(0),
        n => n.and_then(Node::as_int).unwrap_or(0),
    })
}

/// Checks that a percentage is not above 100.
pub(crate) fn at_most_100_percent(errs: &mut Errors, at: &Path<'_>, v: Option<&Node>) {
    if percent(v).is_some_and(|p| p > 100) {
        errs.invalid(at, v, "must not be greater than 100%");
    }
}

/// Warns of a name that is no label, for kinds whose pods bear it.
pub(crate) fn name_warning(out: &mut Vec<String>, meta: View<'_>) {
    let bad = names::dns1123_label(meta.str("name"));
    if !bad.is_empty() {
        out.push(format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
            bad.join(" ")
        ));
    }
}
