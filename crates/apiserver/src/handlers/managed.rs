//! managedFields: who is recorded for a write, and server-side apply to objects of the store.

use std::cell::RefCell;

use access::auth::Eventual;
use api::managed::{self, Taken, Versions, Writer};
use api::schema::Gvk;
use api::{Map, Node, Schema, Status, Struct, Text};

use super::scale_object;
use super::scope::Scope;
use crate::catalog::{ResourceEntry, conversion};
use crate::options::WriteOptions;
use crate::request::Request;

/// The versions of a resource's kind. managedFields are worked out in one go: a conversion for which somebody must be
/// asked is noted, and they are worked out again with the answer.
struct KindVersions<'s> {
    schema: &'s Schema,
    resource: &'s ResourceEntry,
    answers: &'s Answers,
}

/// A tree, its version, and the version that is wanted.
type Question = (Struct, Gvk, Gvk);

/// Conversions for which somebody must be asked.
#[derive(Default)]
struct Answers {
    known: Vec<(Question, Struct)>,
    /// Questions without an answer.
    open: RefCell<Vec<Question>>,
}

impl Answers {
    /// The answer to a question, which is noted if there is none.
    fn get(&self, question: Question) -> Option<Struct> {
        let known = self.known.iter().find(|(asked, _)| *asked == question);
        if known.is_none() {
            self.open.borrow_mut().push(question);
        }
        known.map(|(_, answer)| answer.clone())
    }
    /// Asks the open questions: at once those that want the same.
    async fn ask(&mut self, scope: &Scope<'_>) -> Result<(), Status> {
        let mut open = self.open.take();
        while let Some((from, to)) = open.first().map(|(_, from, to)| (from.clone(), to.clone())) {
            let now: Vec<Question>;
            (now, open) = open.into_iter().partition(|(_, f, t)| (f, t) == (&from, &to));
            let trees = now.iter().map(|(tree, ..)| tree.clone()).collect();
            let answers = scope.conversion(&from, &to).all(trees, &from.kind).get().await?;
            self.known.extend(now.into_iter().zip(answers));
        }
        Ok(())
    }
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
        if self.resource.converter().is_some() && from != to {
            let answer = self.answers.get((object.clone(), from, to));
            return answer.map(Some).ok_or_else(|| "its conversion is still to be asked for".to_owned());
        }
        let strategy = &*self.resource.strategy;
        let converted = conversion::by_strategy(strategy, self.schema, object.clone(), &from, &to);
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
        schema: req.catalog.schema(),
        api_version: &kind.api_version(),
        subresource: &req.info.subresource,
        manager: &manager(req, options),
        now,
        taken: Taken::All,
        versions: None,
    };
    writer.update(None, tree);
}

/// Does something as the writer that the request stands for, with the conversions that were asked for.
fn as_writer<T>(
    scope: &Scope<'_>,
    options: &WriteOptions,
    answers: &Answers,
    f: impl FnOnce(&Writer<'_>) -> T,
) -> T {
    let (schema, resource) = (scope.catalog.schema(), scope.resource);
    let subresource = scope.req.info.subresource.as_str();
    let manager = manager(scope.req, options);
    let versions = KindVersions { schema, resource, answers };
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

/// Does something as the writer, again and again until it has all conversions that it needs. Each time it knows more of
/// them, and it needs some for each version of the kind at most.
async fn as_asking_writer<T>(
    scope: &Scope<'_>,
    options: &WriteOptions,
    f: impl Fn(&Writer<'_>) -> T,
) -> Result<T, Status> {
    let mut answers = Answers::default();
    loop {
        let done = as_writer(scope, options, &answers, &f);
        if answers.open.get_mut().is_empty() {
            return Ok(done);
        }
        scope.req.in_time()?;
        answers.ask(scope).await?;
    }
}

/// Records who set what; before admission, on every create and update. Both trees are of the stored version.
pub(crate) async fn track_update(
    scope: &Scope<'_>,
    old: Option<&Struct>,
    tree: &mut Struct,
    options: &WriteOptions,
) -> Result<(), Status> {
    let none = Answers::default();
    let asks = scope.resource.converter().is_some();
    if scope.resource.same_version() && !asks {
        as_writer(scope, options, &none, |w| w.update(old, tree));
        return Ok(());
    }
    // Fields are those of the version of the request.
    let (stored, served) = (&scope.stored.kind, &scope.resource.kind);
    let both = [Some(&*tree), old].into_iter().flatten().cloned().collect();
    let mut both = scope.conversion(stored, served).all(both, &stored.kind).get().await?.into_iter();
    let mut new = both.next().ok_or_else(Status::no_such_resource)?;
    let old = both.next();
    if asks {
        let start = &new;
        new = as_asking_writer(scope, options, |w| {
            let mut new = start.clone();
            w.update(old.as_ref(), &mut new);
            new
        })
        .await?;
    } else {
        as_writer(scope, options, &none, |w| w.update(old.as_ref(), &mut new));
    }
    managed::copy_entries(scope.catalog.schema(), &new, tree);
    Ok(())
}

/// Puts back the times in managedFields if nothing else changed. The tree is about to be stored over
/// `old`, whatever its resourceVersion says.
pub(crate) fn keep_times(scope: &Scope<'_>, mut tree: Struct, old: &Struct) -> Result<Struct, Status> {
    let revision = scope.meta(old).resource_version().to_owned();
    scope.meta_mut(&mut tree)?.set_resource_version(&revision);
    managed::keep_times(scope.catalog.schema(), old, &mut tree);
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
pub(crate) fn apply<'a>(
    scope: &'a Scope<'a>,
    old: Option<&Struct>,
    config: Node,
    options: &'a WriteOptions,
) -> Eventual<'a, Result<Struct, Status>> {
    let is_new = old.is_none();
    let live = match old {
        Some(old) => scope.to_served(old.clone()).and_then(|live| Eventual::Now(Ok(Some(live)))),
        None => Eventual::Now(Ok(None)),
    };
    live.and_then(move |live| apply_to(scope, live, config, options))
        .and_then(move |applied| match settled(scope, applied) {
            Ok(applied) => scope.to_stored(applied),
            Err(refused) => Eventual::Now(Err(refused)),
        })
        .and_then(move |tree| Eventual::Now(applied(scope, tree, is_new)))
}

/// The object of the served version after a configuration is applied to it.
fn apply_to<'a>(
    scope: &'a Scope<'a>,
    live: Option<Struct>,
    config: Node,
    options: &'a WriteOptions,
) -> Eventual<'a, Result<Struct, Status>> {
    let (kind, root) = (&scope.resource.kind, scope.resource.root);
    let force = options.force.unwrap_or_default();
    if scope.resource.converter().is_some() {
        return Eventual::later(async move {
            let apply = |w: &Writer<'_>| w.apply(kind, root, live.as_ref(), config.clone(), force);
            Ok(as_asking_writer(scope, options, apply).await??.object)
        });
    }
    let applied =
        as_writer(scope, options, &Answers::default(), |w| w.apply(kind, root, live.as_ref(), config, force));
    Eventual::Now(applied.map(|applied| applied.object).map_err(Status::from))
}

/// The object of the served version as upstream reads it.
fn settled(scope: &Scope<'_>, mut object: Struct) -> Result<Struct, Status> {
    let kind = &scope.resource.kind;
    if let Err(why) = scope.strategy().settle(scope.catalog.schema(), &mut object) {
        let named = named(&configuration(&scope.req.body)?);
        let kind = format!("{}, Kind={}", kind.api_version(), kind.kind);
        let why = format!("failed to convert to unversioned ({named}; {kind}): {why}");
        return Err(Status::failure(500, "", why));
    }
    Ok(object)
}

/// Checks what was applied, in the stored version.
fn applied(scope: &Scope<'_>, tree: Struct, is_new: bool) -> Result<Struct, Status> {
    let mut tree = scope.defaulted(tree);
    if is_new {
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
pub(crate) fn apply_scale<'a>(
    scope: &'a Scope<'a>,
    kind: &Gvk,
    old: &Struct,
    config: Node,
    options: &'a WriteOptions,
) -> Eventual<'a, Result<Struct, Status>> {
    let replicas = config.as_map().and_then(|m| m.get("spec")?.as_map()?.get("replicas"));
    if replicas.is_none()
        && let Some(places) = &scope.facts().scale
        && !places.has_replicas(scope.catalog.schema(), old)
    {
        return Eventual::Now(Err(scale_object::no_replicas(places)));
    }
    match workload(scope, kind, config, options) {
        Ok(workload) => apply(scope, Some(old), workload, options),
        Err(refused) => Eventual::Now(Err(refused)),
    }
}

/// The configuration of a workload that says what that of its Scale does.
fn workload(scope: &Scope<'_>, kind: &Gvk, config: Node, options: &WriteOptions) -> Result<Node, Status> {
    let root = scope.catalog.schema().kind(kind).ok_or_else(Status::no_such_resource)?;
    let places = scope.strategy().facts().scale.as_ref().ok_or_else(Status::no_such_resource)?;
    let replicas = config.as_map().and_then(|m| m.get("spec")?.as_map()?.get("replicas")).cloned();
    let metadata = config.as_map().and_then(|m| m.get("metadata")).cloned();
    // Applied to nothing, it shows what is wrong with it.
    as_writer(scope, options, &Answers::default(), |w| {
        Writer { api_version: &kind.api_version(), ..*w }.apply(kind, root, None, config, false)
    })?;
    let mut workload = Map::new();
    workload.insert("apiVersion", scope.resource.kind.api_version());
    workload.insert("kind", scope.resource.kind.kind.clone());
    workload.insert("metadata", metadata.unwrap_or_else(|| Node::from(Map::new())));
    if let Some((field, value)) = replicas.and_then(|replicas| places.configuration(replicas)) {
        workload.insert(field, value);
    }
    Ok(Node::from(workload))
}
