//! StorageVersions and StorageVersionMigrations: the forms in which objects are stored.

use std::collections::{HashMap, HashSet};

use api::field::{Errors, IMMUTABLE, Path, Raw};
use api::names::{self, name_subdomain};
use api::view::View;

use crate::columns;
use crate::strategies::generic::{self, CLUSTER, check, check_update, status_reset_meta};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::rules::{Rules, SubresourceRules, Takes};
use crate::validation::{immutable, meta, print};

pub(super) const STORAGE_VERSION: Rules = Rules {
    group: "internal.apiserver.k8s.io",
    resource: "storageversions",
    columns: columns::cluster::STORAGE_VERSION,
    takes: Takes::BUT_STATUS,
    unconditional_update: false,
    prepare_create: generic::drop_status,
    prepare_update: generic::keep_status,
    validate: |c, s| {
        check(c, s, |e, v| {
            core_meta(e, v.st("metadata"), false, |name, _| version_name(name));
            version_status(e, v.st("status"));
        })
    },
    validate_update: |_, _, _| Vec::new(),
    subresources: &[SubresourceRules {
        name: "status",
        takes: Takes::BUT_SPEC_AND_METADATA,
        prepare_update: status_reset_meta,
        validate_update: |c, n, _| check(c, n, |e, v| version_status(e, v.st("status"))),
    }],
    ..CLUSTER
};

/// Checks a name of the form `<group>.<resource>`.
fn version_name(name: &str) -> Vec<String> {
    let Some((group, resource)) = name.rsplit_once('.') else {
        return vec!["name must be in the form of <group>.<resource>".into()];
    };
    let group = names::dns1123_subdomain(group).into_iter().map(|m| format!("the group segment {m}"));
    let resource = names::dns1035_label(resource).into_iter().map(|m| format!("the resource segment {m}"));
    group.chain(resource).collect()
}

fn version_status(errs: &mut Errors, status: View<'_>) {
    let at = Path::root("status");
    let versions_at = at.field("storageVersions");
    let mut servers: HashSet<&str> = HashSet::new();
    for (i, v) in status.items("storageVersions").enumerate() {
        let at = versions_at.index(i);
        let server = v.str("apiServerID");
        if !servers.insert(server) {
            errs.duplicate(&at.field("apiServerID"), server);
        }
        server_version(errs, &at, v);
    }
    common_version(errs, &at.field("commonEncodingVersion"), status);
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (i, c) in status.items("conditions").enumerate() {
        // Upstream leaves the list's name out of these paths.
        let at = at.index(i);
        let (ty, value) = (c.str("type"), c.str("status"));
        if let Some(before) = seen.insert(ty, i) {
            let why =
                format!("the type of the condition is not unique, it also appears in conditions[{before}]");
            errs.invalid(&at.field("type"), ty, why);
        }
        errs.each(&at.field("type"), ty, names::qualified_name(ty));
        errs.each(&at.field("status"), value, names::qualified_name(value));
        for f in ["reason", "message"] {
            if c.str(f).is_empty() {
                errs.required(&at.field(f), "");
            }
        }
    }
}

fn server_version(errs: &mut Errors, at: &Path<'_>, v: View<'_>) {
    let server = v.str("apiServerID");
    errs.each(&at.field("apiServerID"), server, name_subdomain(server, false));
    let bad = |errs: &mut Errors, at: &Path<'_>, version: &str| {
        let why = api_version(version);
        if !why.is_empty() {
            errs.invalid(at, version, why.join(","));
        }
    };
    let encoding = v.str("encodingVersion");
    bad(errs, &at.field("encodingVersion"), encoding);
    let decodable: HashSet<&str> = v.strs("decodableVersions").collect();
    let decodable_at = at.field("decodableVersions");
    for (i, d) in v.strs("decodableVersions").enumerate() {
        bad(errs, &decodable_at.index(i), d);
    }
    if !decodable.contains(&encoding) {
        let why = format!("decodableVersions must include encodingVersion {encoding}");
        errs.invalid(&decodable_at, Raw(print::field(v, "decodableVersions")), why);
    }
    let served_at = at.field("servedVersions");
    for (i, s) in v.strs("servedVersions").enumerate() {
        let at = served_at.index(i);
        bad(errs, &at, s);
        if !decodable.contains(&s) {
            errs.invalid_because(&at, s, || {
                let all = v.strs("decodableVersions").collect::<Vec<_>>().join(" ");
                format!("individual served version : {s} must be included in decodableVersions : [{all}]")
            });
        }
    }
}

/// Checks that the status names the version in which all servers encode, if they agree on one.
fn common_version(errs: &mut Errors, at: &Path<'_>, status: View<'_>) {
    let mut all = status.items("storageVersions").map(|v| v.str("encodingVersion"));
    let first = all.next();
    let common = first.filter(|f| all.all(|v| v == *f));
    match (common, status.opt_str("commonEncodingVersion")) {
        (None, Some(said)) => errs.invalid(
            at,
            said,
            "should be nil if servers do not agree on the same encoding version, or if there is no server reporting the supported versions yet",
        ),
        (Some(real), None) => {
            errs.invalid(at, Raw("null".into()), format!("the common encoding version is {real}"));
        }
        (Some(real), Some(said)) if real != said => {
            errs.invalid(at, said, format!("the actual common encoding version is {real}"));
        }
        _ => {}
    }
}

/// Checks `group/version` or `version`.
fn api_version(text: &str) -> Vec<String> {
    const EMPTY: &str = "must be non-empty";
    let mut errs = Vec::new();
    let version = match text.split('/').collect::<Vec<_>>()[..] {
        [version] => version,
        [group, version] => {
            if group.is_empty() {
                errs.push(format!("group part: {EMPTY}"));
            } else {
                errs.extend(names::dns1123_subdomain(group).iter().map(|m| format!("group part: {m}")));
            }
            version
        }
        _ => {
            let label = names::regex_error(
                "a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
                "[a-z]([-a-z0-9]*[a-z0-9])?",
                &["my-name", "abc-123"],
            );
            let tail = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')";
            return vec![format!("an apiVersion is {label} {tail}")];
        }
    };
    if version.is_empty() {
        errs.push(format!("version part: {EMPTY}"));
    } else {
        errs.extend(names::dns1035_label(version).iter().map(|m| format!("version part: {m}")));
    }
    errs
}

pub(super) const MIGRATION: Rules = Rules {
    group: "storagemigration.k8s.io",
    resource: "storageversionmigrations",
    columns: columns::cluster::STORAGE_VERSION_MIGRATION,
    takes: Takes::BUT_STATUS,
    unconditional_update: false,
    prepare_create: generic::drop_status,
    prepare_update: generic::keep_status,
    validate: |c, s| check(c, s, migration),
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            migration(e, n);
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            immutable(e, &Path::root(""), n, o, "spec");
        })
    },
    subresources: &[SubresourceRules {
        name: "status",
        takes: Takes::BUT_SPEC_AND_METADATA,
        prepare_update: status_reset_meta,
        validate_update: |c, n, o| check_update(c, n, o, migration_status),
    }],
    ..CLUSTER
};

fn migration(errs: &mut Errors, v: View<'_>) {
    core_meta(errs, v.st("metadata"), false, name_subdomain);
    let at = Path::root("spec.resource");
    let of = v.st("spec").st("resource");
    let (resource, group) = (of.str("resource"), of.str("group"));
    let bad = names::dns1035_label(resource);
    if resource.is_empty() {
        errs.required(&at.field("resource"), "resource is required to be set");
    } else if !bad.is_empty() {
        errs.invalid(&at.field("resource"), resource, bad.join(","));
    }
    let bad = names::dns1123_subdomain(group);
    if !group.is_empty() && !bad.is_empty() {
        errs.invalid(&at.field("group"), group, bad.join(","));
    }
}

/// Whether a text is a whole number above zero, of any length.
fn is_resource_version(text: &str) -> bool {
    !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit())
}

fn migration_status(errs: &mut Errors, n: View<'_>, o: View<'_>) {
    core_meta_update(errs, n.st("metadata"), o.st("metadata"));
    let at = Path::root("status");
    let (status, old) = (n.st("status"), o.st("status"));
    let (version, before) = (status.str("resourceVersion"), old.str("resourceVersion"));
    let version_at = at.field("resourceVersion");
    if !is_resource_version(version) {
        errs.invalid(&version_at, version, format!("resource version is not well formed: {version}"));
    }
    let conditions_at = at.field("conditions");
    meta::conditions(errs, &conditions_at, status, "conditions");
    if !before.is_empty() && before != version {
        errs.invalid(&version_at, version, IMMUTABLE);
    }
    let is = |v: View<'_>, ty: &str| {
        v.items("conditions").find(|c| c.str("type") == ty).is_some_and(|c| c.str("status") == "True")
    };
    let mut wrong = |why: &str| {
        errs.invalid(&conditions_at, Raw(print::field(status, "conditions")), why);
    };
    if is(status, "Succeeded") && is(status, "Failed") {
        wrong("Both success and failed conditions cannot be true at the same time");
    }
    if is(old, "Succeeded") && !is(status, "Succeeded") {
        wrong("Success condition cannot be set to false once it is true");
    }
    if is(old, "Failed") && !is(status, "Failed") {
        wrong("Failed condition cannot be set to false once it is true");
    }
}
