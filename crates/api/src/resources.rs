//! The built-in resources: what discovery says about each.

use std::sync::OnceLock;

use crate::gate::Gate;

/// A resource of one group and version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceInfo {
    /// Group, "" for the core group.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Plural name, as in paths.
    pub resource: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Singular name.
    pub singular: &'static str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Short names.
    pub short_names: Vec<&'static str>,
    /// Categories, such as `all`.
    pub categories: Vec<&'static str>,
    /// Verbs, sorted.
    pub verbs: Vec<&'static str>,
    /// Subresources, sorted by name.
    pub subresources: Vec<SubresourceInfo>,
    /// Whether the server serves the resource without a flag that asks for it.
    pub served_by_default: bool,
    /// The feature gate that the resource needs.
    pub gate: Option<Gate>,
    /// Group of the form in which objects are stored, "" for the core group.
    pub storage_group: &'static str,
    /// Version of the form in which objects are stored; "" if they are not stored.
    pub storage_version: &'static str,
    /// Whether a delete answers with the object, as OpenAPI says; all others answer with a `Status`.
    pub returns_deleted: bool,
}

/// A subresource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubresourceInfo {
    /// Name in the path.
    pub name: &'static str,
    /// Group of the kind that the subresource takes.
    pub group: &'static str,
    /// Version of the kind that the subresource takes.
    pub version: &'static str,
    /// The kind that the subresource takes.
    pub kind: &'static str,
    /// Verbs, sorted.
    pub verbs: Vec<&'static str>,
}

impl ResourceInfo {
    /// Whether the resource has a verb.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }
    /// The subresource of a name.
    pub fn subresource(&self, name: &str) -> Option<&SubresourceInfo> {
        self.subresources.iter().find(|s| s.name == name)
    }
}

/// Every built-in resource of v1.36, served by default or not, in discovery's order of groups and
/// with the preferred version of a group first.
pub fn builtin() -> &'static [ResourceInfo] {
    static TABLE: OnceLock<Vec<ResourceInfo>> = OnceLock::new();
    TABLE.get_or_init(|| include_str!("../schema/resources.tsv").lines().skip(1).filter_map(row).collect())
}

fn list(column: &'static str) -> Vec<&'static str> {
    column.split(',').filter(|s| !s.is_empty()).collect()
}

fn row(line: &'static str) -> Option<ResourceInfo> {
    let columns: Vec<&'static str> = line.split('\t').collect();
    let [
        group,
        version,
        resource,
        kind,
        singular,
        namespaced,
        short,
        categories,
        verbs,
        subresources,
        served,
        gate,
        storage,
        returns_deleted,
    ] = columns[..]
    else {
        return None;
    };
    let (storage_group, storage_version) = match storage.split_once('/') {
        Some(("core", v)) => ("", v),
        Some(gv) => gv,
        None => (group, storage),
    };
    Some(ResourceInfo {
        group,
        version,
        resource,
        kind,
        singular,
        namespaced: namespaced == "true",
        short_names: list(short),
        categories: list(categories),
        verbs: list(verbs),
        subresources: subresources.split(';').filter_map(|s| subresource(group, version, s)).collect(),
        served_by_default: served == "y",
        gate: if gate.is_empty() { None } else { Some(Gate::named(gate)?) },
        storage_group,
        storage_version,
        returns_deleted: returns_deleted == "y",
    })
}

/// `name:[group/version.]Kind:verbs`
fn subresource(group: &'static str, version: &'static str, text: &'static str) -> Option<SubresourceInfo> {
    let mut parts = text.split(':');
    let (name, kind, verbs) = (parts.next()?, parts.next()?, parts.next()?);
    let (group, version, kind) = match kind.rsplit_once('.') {
        Some((gv, kind)) => {
            let (g, v) = gv.split_once('/').unwrap_or(("", gv));
            (g, v, kind)
        }
        None => (group, version, kind),
    };
    Some(SubresourceInfo { name, group, version, kind, verbs: list(verbs) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Gvk, Schema};

    #[test]
    fn every_row_is_read_and_known_to_the_schema() {
        let rows = include_str!("../schema/resources.tsv").lines().count() - 1;
        assert_eq!(builtin().len(), rows);
        let schema = Schema::builtin();
        for r in builtin() {
            let known = |g: &str, v: &str, k: &str| schema.kind(&Gvk::new(g, v, k)).is_some();
            assert!(known(r.group, r.version, r.kind), "{r:?}");
            assert!(!r.has_verb("list") || known(r.group, r.version, &format!("{}List", r.kind)), "{r:?}");
            for s in &r.subresources {
                assert!(known(s.group, s.version, s.kind), "{s:?} of {}", r.resource);
            }
            assert!(
                r.storage_version.is_empty() || known(r.storage_group, r.storage_version, r.kind),
                "storage of {r:?}"
            );
        }
    }

    #[test]
    fn subresources_of_pods() {
        let pods = builtin().iter().find(|r| r.group.is_empty() && r.resource == "pods").unwrap();
        let eviction = pods.subresource("eviction").unwrap();
        assert_eq!((eviction.group, eviction.version, eviction.kind), ("policy", "v1", "Eviction"));
        assert_eq!(pods.short_names, ["po"]);
    }
}
