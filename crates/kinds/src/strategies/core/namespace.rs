//! Namespaces.

use api::Text;
use api::field::{Errors, Path, Typed};
use api::names::{self, name_label};
use api::view::{Edit, View, strings};

use crate::columns;
use crate::strategies::generic::{CLUSTER, check, check_update};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::strategy::Deletion;

pub(crate) const NAMESPACE: Rules = Rules {
    resource: "namespaces",
    columns: columns::core::NAMESPACE,
    is_consulted: true,
    is_namespace: true,
    deletion: Deletion { answers_object: true, unreadable: false, ..Deletion::USUAL },
    is_held: |schema, s| View::new(schema, s).st("spec").len("finalizers") > 0,
    fields: &["status.phase", "name"],
    field_values: fields!("status.phase", "metadata.name"),
    takes: Takes::BUT_STATUS,
    prepare_create: |c, s| {
        let mut e = Edit::new(c.schema, s);
        e.remove("status");
        if let Some(mut st) = e.make("status") {
            st.set("phase", "Active");
        }
        if let Some(mut spec) = e.make("spec") {
            let mut all: Vec<Text> = spec.view().strs("finalizers").map(Text::from).collect();
            if !all.iter().any(|f| f == "kubernetes") {
                all.push("kubernetes".into());
            }
            spec.set("finalizers", strings(all.iter().map(Text::as_str)));
        }
        name_label_of(&mut e);
    },
    prepare_update: |c, n, o| {
        let old = View::new(c.schema, o);
        let mut e = Edit::new(c.schema, n);
        e.copy("status", o);
        let kept = old.st("spec").get("finalizers").cloned();
        if let Some(mut spec) = e.make("spec") {
            spec.put("finalizers", kept);
        }
        name_label_of(&mut e);
    },
    validate: |c, s| check(c, s, namespace),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            namespace(e, n);
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
        })
    },
    subresources: &[
        SubresourceRules {
            name: "status",
            takes: Takes::BUT_SPEC,
            prepare_update: |c, n, o| Edit::new(c.schema, n).copy("spec", o),
            validate_update: |c, n, o| {
                check_update(c, n, o, |e, n, o| {
                    core_meta_update(e, n.st("metadata"), o.st("metadata"));
                    let phase = n.st("status").str("phase");
                    let at = Path::root("status.Phase");
                    let deleting = n.st("metadata").has("deletionTimestamp");
                    if !deleting && phase != "Active" {
                        e.invalid(&at, Typed(phase), "may only be 'Active' if `deletionTimestamp` is empty");
                    }
                    if deleting && phase != "Terminating" {
                        e.invalid(
                            &at,
                            phase,
                            "may only be 'Terminating' if `deletionTimestamp` is not empty",
                        );
                    }
                })
            },
        },
        SubresourceRules {
            name: "finalize",
            takes: Takes::BUT_STATUS,
            prepare_update: |c, n, o| Edit::new(c.schema, n).copy("status", o),
            validate_update: |c, n, o| {
                check_update(c, n, o, |e, n, o| {
                    core_meta_update(e, n.st("metadata"), o.st("metadata"));
                    let at = Path::root("spec.finalizers");
                    for (i, f) in n.st("spec").strs("finalizers").enumerate() {
                        finalizer(e, &at.index(i), f);
                    }
                })
            },
        },
    ],
    ..CLUSTER
};

fn name_label_of(e: &mut Edit<'_>) {
    if let Some(mut m) = e.make("metadata") {
        let name = Text::from(m.view().str("name"));
        if let Some(labels) = m.make_map("labels") {
            labels.insert("kubernetes.io/metadata.name", name);
        }
    }
}

fn finalizer(errs: &mut Errors, at: &Path<'_>, f: &str) {
    errs.each(at, f, names::qualified_name(f));
    if !f.contains('/') && !matches!(f, "kubernetes" | "orphan" | "foregroundDeletion") {
        errs.invalid(at, f, "name is neither a standard finalizer name nor is it fully qualified");
    }
}

fn namespace(errs: &mut Errors, n: View<'_>) {
    core_meta(errs, n.st("metadata"), false, name_label);
    for f in n.st("spec").strs("finalizers") {
        finalizer(errs, &Path::root("spec.finalizers"), f);
    }
}
