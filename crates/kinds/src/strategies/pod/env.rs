//! Environment variables of containers.

use api::Gate;
use api::field::{Errors, Path};
use api::names;
use api::view::View;

use super::options::Options;
use super::paths;
use super::references::{field_ref, resource_field_ref};

const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

fn env_name(name: &str, o: &Options<'_>) -> Vec<String> {
    if o.gate(Gate::RelaxedEnvironmentVariableValidation) {
        names::relaxed_env_var_name(name)
    } else {
        names::env_var_name(name)
    }
}

pub(super) fn env(errs: &mut Errors, at: &Path<'_>, c: View<'_>, o: &Options<'_>) {
    for (i, e) in c.items("env").enumerate() {
        let at = at.index(i);
        let name = e.str("name");
        if name.is_empty() {
            errs.required(&at.field("name"), "");
        } else {
            errs.each(&at.field("name"), name, env_name(name, o));
        }
        let Some(from) = e.opt("valueFrom") else { continue };
        let at = at.field("valueFrom");
        let mut sources = 0;
        if let Some(r) = from.opt("fieldRef") {
            sources += 1;
            field_ref(errs, &at.field("fieldRef"), r, ENV_FIELDS);
        }
        if let Some(r) = from.opt("resourceFieldRef") {
            sources += 1;
            resource_field_ref(errs, &at.field("resourceFieldRef"), r, false);
        }
        for f in ["configMapKeyRef", "secretKeyRef"] {
            if let Some(r) = from.opt(f) {
                sources += 1;
                key_selector(errs, &at.field(f), r);
            }
        }
        if let Some(r) = from.opt("fileKeyRef") {
            sources += 1;
            file_key(errs, &at.field("fileKeyRef"), r);
        }
        if sources == 0 {
            errs.invalid(
                &at,
                "",
                if o.gate(Gate::EnvFiles) {
                    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
                } else {
                    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
                },
            );
        } else if !e.str("value").is_empty() {
            errs.invalid(&at, "", "may not be specified when `value` is not empty");
        } else if sources > 1 {
            errs.invalid(&at, "", "may not have more than one field specified at a time");
        }
    }
}

fn key_selector(errs: &mut Errors, at: &Path<'_>, r: View<'_>) {
    let (name, key) = (r.str("name"), r.str("key"));
    errs.each(&at.field("name"), name, names::name_subdomain(name, false));
    if key.is_empty() {
        errs.required(&at.field("key"), "");
    } else {
        errs.each(&at.field("key"), key, names::config_map_key(key));
    }
}

fn file_key(errs: &mut Errors, at: &Path<'_>, r: View<'_>) {
    let (key, volume, path) = (r.str("key"), r.str("volumeName"), r.str("path"));
    if key.is_empty() {
        errs.required(&at.field("key"), "");
    } else {
        errs.each(&at.field("key"), key, names::relaxed_env_var_name(key));
    }
    if volume.is_empty() {
        errs.required(&at.field("volumeName"), "");
    } else {
        errs.each(&at.field("volumeName"), volume, names::dns1123_label(volume));
    }
    if path.is_empty() {
        errs.required(&at.field("path"), "");
    } else {
        paths::no_backsteps(errs, &at.field("path"), path);
    }
}

pub(super) fn env_from(errs: &mut Errors, list_at: &Path<'_>, c: View<'_>, o: &Options<'_>) {
    for (i, e) in c.items("envFrom").enumerate() {
        let at = list_at.index(i);
        let prefix = e.str("prefix");
        if !prefix.is_empty() {
            errs.each(&at.field("prefix"), prefix, env_name(prefix, o));
        }
        let mut sources = 0;
        for f in ["configMapRef", "secretRef"] {
            let Some(r) = e.opt(f) else { continue };
            sources += 1;
            let at = at.field(f);
            let name = r.str("name");
            if name.is_empty() {
                errs.required(&at.field("name"), "");
            } else {
                errs.each(&at.field("name"), name, names::name_subdomain(name, true));
            }
        }
        if sources == 0 {
            errs.invalid(list_at, "", "must specify one of: `configMapRef` or `secretRef`");
        } else if sources > 1 {
            errs.invalid(list_at, "", "may not have more than one field specified at a time");
        }
    }
}
