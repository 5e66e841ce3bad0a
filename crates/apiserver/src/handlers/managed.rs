//! managedFields: who is recorded for a write, and server-side apply to objects of the store.

use api::managed::{self, Taken, Versions, Writer};
use api::schema::Gvk;
use api::{Map, Node, Schema, Status, Struct, Text};

use super::scope::Scope;
use crate::catalog::Resource;
use crate::options::WriteOptions;
use crate::request::Request;

/// The versions of a resource's kind.
struct KindVersions<'s> {
    schema: &'s Schema,
    resource: &'s Resource,
}

impl KindVersions<'_> {
    fn kind(&self, version: &str) -> Gvk {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        Gvk::new(group, version, &self.resource.kind.kind)
    }
}

impl Versions for KindVersions<'_> {
    fn has(&self, version: &str) -> bool {
        self.schema.kind(&self.kind(version)).is_some()
    }
    fn convert(&self, object: &Struct, from: &str, to: &str) -> Result<Option<Struct>, String> {
        if !self.has(to) {
            return Ok(None);
        }
        let (from, to) = (self.kind(from), self.kind(to));
        let converted = self.resource.strategy.convert(self.schema, object.clone(), &from, &to);
        converted.map(Some).map_err(|e| e.to_string())
    }
}

fn manager(req: &Request, options: &WriteOptions) -> Text {
    if options.field_manager.is_empty() {
        managed::manager_of_agent(&req.user_agent)
    } else {
        options.field_manager.clone()
    }
}

/// Records who set what in an object that is answered and not kept: a review, a token request.
pub(crate) fn track_answered(
    now: &str,
    req: &Request,
    kind: &Gvk,
    tree: &mut Struct,
    options: &WriteOptions,
) {
    let writer = Writer {
        schema: req.catalog.schema,
        api_version: &kind.api_version(),
        subresource: &req.info.subresource,
        manager: &manager(req, options),
        now,
        taken: Taken::All,
        versions: None,
    };
    writer.update(None, tree);
}

/// Does something as the writer that the request stands for.
fn as_writer<T>(scope: &Scope<'_>, options: &WriteOptions, f: impl FnOnce(&Writer<'_>) -> T) -> T {
    let (schema, resource) = (scope.catalog.schema, scope.resource);
    let subresource = scope.req.info.subresource.as_str();
    let manager = manager(scope.req, options);
    let versions = KindVersions { schema, resource };
    f(&Writer {
        schema,
        api_version: &resource.kind.api_version(),
        subresource,
        manager: &manager,
        now: &scope.now,
        taken: resource.strategy.taken(subresource),
        versions: Some(&versions),
    })
}

/// Records who set what; before admission, on every create and update. Both trees are of the stored version.
pub(crate) fn track_update(
    scope: &Scope<'_>,
    old: Option<&Struct>,
    tree: &mut Struct,
    options: &WriteOptions,
) -> Result<(), Status> {
    if scope.resource.same_version() {
        as_writer(scope, options, |w| w.update(old, tree));
        return Ok(());
    }
    // Fields are those of the version of the request.
    let served = |t: &Struct| scope.catalog.to_served(scope.resource, t.clone());
    let old = old.map(served).transpose()?;
    let mut new = served(tree)?;
    as_writer(scope, options, |w| w.update(old.as_ref(), &mut new));
    managed::copy_entries(scope.catalog.schema, &new, tree);
    Ok(())
}

/// Puts back the times in managedFields if nothing else changed. The tree is about to be stored over
/// `old`, whatever its resourceVersion says.
pub(crate) fn keep_times(scope: &Scope<'_>, mut tree: Struct, old: &Struct) -> Result<Struct, Status> {
    let revision = scope.meta(old).resource_version().to_owned();
    scope.meta_mut(&mut tree)?.set_resource_version(&revision);
    managed::keep_times(scope.catalog.schema, old, &mut tree);
    Ok(tree)
}

/// The configuration of an apply request.
pub(crate) fn configuration(body: &[u8]) -> Result<Node, Status> {
    api::yaml::parse(body).map_err(|e| Status::bad_request(format!("error decoding YAML: {e}")))
}

/// Namespace and name as a configuration has them, for an error.
fn named(config: &Node) -> String {
    let metadata = config.as_map().and_then(|m| m.get("metadata")?.as_map());
    let text = |key: &str| metadata.and_then(|m| m.get(key)).map_or("", Node::as_str);
    format!("{}/{}", text("namespace"), text("name"))
}

/// The object, in the stored version and with its managedFields, after a configuration of the served
/// version is applied to it.
pub(crate) fn apply(
    scope: &Scope<'_>,
    old: Option<&Struct>,
    config: Node,
    options: &WriteOptions,
) -> Result<Struct, Status> {
    let catalog = scope.catalog;
    let live = old.map(|o| catalog.to_served(scope.resource, o.clone())).transpose()?;
    let force = options.force.unwrap_or_default();
    let mut applied = as_writer(scope, options, |w| {
        w.apply(&scope.resource.kind, scope.resource.root, live.as_ref(), config, force)
    })?;
    let kind = &scope.resource.kind;
    if let Err(why) = scope.strategy().settle(catalog.schema, &mut applied.object) {
        let named = named(&configuration(&scope.req.body)?);
        let kind = format!("{}, Kind={}", kind.api_version(), kind.kind);
        let why = format!("failed to convert to unversioned ({named}; {kind}): {why}");
        return Err(Status::failure(500, "", why));
    }
    let mut tree = scope.defaulted(catalog.to_stored(scope.resource, applied.object)?);
    if old.is_none() {
        let uid = scope.meta(&tree).uid().to_owned();
        if !uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(scope.conflict(scope.name(), &why));
        }
        scope.meta_mut(&mut tree)?.wipe_system_fields();
    }
    scope.ensure_namespace(&mut tree)?;
    scope.check_name(&tree)?;
    Ok(tree)
}

/// The workload after a Scale is applied to it: the number of replicas is what the Scale says.
pub(crate) fn apply_scale(
    scope: &Scope<'_>,
    kind: &Gvk,
    old: &Struct,
    config: Node,
    options: &WriteOptions,
) -> Result<Struct, Status> {
    let root = scope.catalog.schema.kind(kind).ok_or_else(Status::no_such_resource)?;
    let places = scope.strategy().facts().scale.as_ref().ok_or_else(Status::no_such_resource)?;
    let replicas = config.as_map().and_then(|m| m.get("spec")?.as_map()?.get("replicas")).cloned();
    let metadata = config.as_map().and_then(|m| m.get("metadata")).cloned();
    // Applied to nothing, it shows what is wrong with it.
    as_writer(scope, options, |w| {
        Writer { api_version: &kind.api_version(), ..*w }.apply(kind, root, None, config, false)
    })?;
    let mut workload = Map::new();
    workload.insert("apiVersion", scope.resource.kind.api_version());
    workload.insert("kind", scope.resource.kind.kind.clone());
    workload.insert("metadata", metadata.unwrap_or_else(|| Node::from(Map::new())));
    if let Some((field, value)) = replicas.and_then(|replicas| places.configuration(replicas)) {
        workload.insert(field, value);
    }
    apply(scope, Some(old), Node::from(workload), options)
}
