//! Roles and their bindings.

use api::Struct;
use api::field::{Errors, Path, Plain, Raw};
use api::names::{name_subdomain, path_segment};
use api::status::FieldError;
use api::view::{View, same};

use crate::columns;
use crate::strategies::generic::{CLUSTER, NAMESPACED, check, check_update};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::rules::Rules;
use crate::strategy::{Ctx, Deletion};
use crate::validation::meta::{SelectorOptions, has_invalid_value, label_selector};
use crate::validation::print;

const GROUP: &str = "rbac.authorization.k8s.io";

fn rbac_name(name: &str, _: bool) -> Vec<String> {
    path_segment(name, false)
}

pub(super) const ROLE: Rules = Rules {
    group: GROUP,
    resource: "roles",
    deletion: Deletion { unreadable: false, ..Deletion::USUAL },
    create_on_update: true,
    validate: |c, s| check(c, s, role),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            role(e, n);
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
        })
    },
    ..NAMESPACED
};

pub(super) const CLUSTER_ROLE: Rules = Rules {
    group: GROUP,
    resource: "clusterroles",
    deletion: Deletion { unreadable: false, ..Deletion::USUAL },
    create_on_update: true,
    validate: |c, s| check(c, s, |e, v| cluster_role(e, v, false)),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            let keep =
                o.st("aggregationRule").items("clusterRoleSelectors").any(|s| has_invalid_value(Some(s)));
            cluster_role(e, n, keep);
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
        })
    },
    ..CLUSTER
};

pub(super) const ROLE_BINDING: Rules = Rules {
    group: GROUP,
    resource: "rolebindings",
    columns: columns::cluster::ROLE_BINDING,
    deletion: Deletion { unreadable: false, ..Deletion::USUAL },
    create_on_update: true,
    validate: |c, s| check(c, s, |e, v| binding(e, v, true)),
    validate_update: |c, n, o| binding_update(c, n, o, true),
    ..NAMESPACED
};

pub(super) const CLUSTER_ROLE_BINDING: Rules = Rules {
    group: GROUP,
    resource: "clusterrolebindings",
    columns: columns::cluster::CLUSTER_ROLE_BINDING,
    deletion: Deletion { unreadable: false, ..Deletion::USUAL },
    create_on_update: true,
    validate: |c, s| check(c, s, |e, v| binding(e, v, false)),
    validate_update: |c, n, o| binding_update(c, n, o, false),
    ..CLUSTER
};

fn role(errs: &mut Errors, v: View<'_>) {
    core_meta(errs, v.st("metadata"), true, rbac_name);
    rules(errs, v, true);
}

fn rules(errs: &mut Errors, v: View<'_>, namespaced: bool) {
    let at = Path::root("rules");
    for (i, r) in v.items("rules").enumerate() {
        let at = at.index(i);
        if r.len("verbs") == 0 {
            errs.required(&at.field("verbs"), "verbs must contain at least one value");
        }
        if r.len("nonResourceURLs") > 0 {
            let at = at.field("nonResourceURLs");
            let shown = r.get("nonResourceURLs");
            if namespaced {
                errs.invalid(&at, shown, "namespaced rules cannot apply to non-resource URLs");
            }
            if ["apiGroups", "resources", "resourceNames"].iter().any(|f| r.len(f) > 0) {
                errs.invalid(
                    &at,
                    shown,
                    "rules cannot apply to both regular resources and non-resource URLs",
                );
            }
            continue;
        }
        if r.len("apiGroups") == 0 {
            errs.required(&at.field("apiGroups"), "resource rules must supply at least one api group");
        }
        if r.len("resources") == 0 {
            errs.required(&at.field("resources"), "resource rules must supply at least one resource");
        }
    }
}

fn cluster_role(errs: &mut Errors, v: View<'_>, keep_values: bool) {
    core_meta(errs, v.st("metadata"), false, rbac_name);
    rules(errs, v, false);
    let Some(a) = v.opt("aggregationRule") else { return };
    let at = Path::root("aggregationRule.clusterRoleSelectors");
    if a.len("clusterRoleSelectors") == 0 {
        errs.required(&at, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    for (i, s) in a.items("clusterRoleSelectors").enumerate() {
        let at = at.index(i);
        let before = errs.len();
        label_selector(errs, &at, Some(s), SelectorOptions { invalid_values: keep_values });
        if errs.len() > before {
            // Upstream shows the selector that it could not make.
            errs.invalid(&at, Raw("null".into()), "invalid label selector.");
        }
    }
}

fn binding(errs: &mut Errors, v: View<'_>, namespaced: bool) {
    core_meta(errs, v.st("metadata"), namespaced, rbac_name);
    let at = Path::root("roleRef");
    let r = v.st("roleRef");
    errs.one_of_plain(&at.field("apiGroup"), r.str("apiGroup"), &[GROUP]);
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    errs.one_of_plain(&at.field("kind"), r.str("kind"), kinds);
    let name = r.str("name");
    if name.is_empty() {
        errs.required(&at.field("name"), "");
    } else {
        errs.each(&at.field("name"), name, path_segment(name, false));
    }
    let subjects = Path::root("subjects");
    for (i, s) in v.items("subjects").enumerate() {
        let at = subjects.index(i);
        let (name, group) = (s.str("name"), s.str("apiGroup"));
        if name.is_empty() {
            errs.required(&at.field("name"), "");
        }
        match s.str("kind") {
            "ServiceAccount" => {
                if !name.is_empty() {
                    errs.each(&at.field("name"), name, name_subdomain(name, false));
                }
                errs.one_of_plain(&at.field("apiGroup"), group, &[""]);
                if !namespaced && s.str("namespace").is_empty() {
                    errs.required(&at.field("namespace"), "");
                }
            }
            "User" | "Group" => errs.one_of_plain(&at.field("apiGroup"), group, &[GROUP]),
            other => {
                errs.not_supported(&at.field("kind"), Plain(other), &["ServiceAccount", "User", "Group"]);
            }
        }
    }
}

fn binding_update(c: &Ctx<'_>, new: &Struct, old: &Struct, namespaced: bool) -> Vec<FieldError> {
    check_update(c, new, old, |e, n, o| {
        binding(e, n, namespaced);
        core_meta_update(e, n.st("metadata"), o.st("metadata"));
        if !same(n.get("roleRef"), o.get("roleRef")) {
            let r = n.st("roleRef");
            let shown = r.raw().map(|s| print::internal(r.schema, s)).unwrap_or_default();
            e.invalid(&Path::root("roleRef"), Raw(shown), "cannot change roleRef");
        }
    })
}
