//! Server-side apply.

use std::collections::BTreeMap;

use super::entries::{Manager, Operation, Places};
use super::merge::{merge, remove, with_named_fields};
use super::set::{Element, FieldSet, path_text};
use super::update::{Differences, lessened, strip};
use super::value::same;
use super::walk::{Comparison, compare_any, of_any, validate};
use super::{LAST_APPLIED, Writer};
use crate::codec::json;
use crate::schema::{Gvk, Schema, StructId};
use crate::status::{Cause, Details, Status};
use crate::tree::{Map, Node, Struct, Text};

/// The manager of the fields that were there before anything was applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The manager's name by which kubectl applies; only this manager cares for kubectl's own annotation.
const KUBECTL: &str = "kubectl";
/// Annotations may hold so many bytes together.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// A field that somebody else manages with another value.
#[derive(Debug, Clone, PartialEq)]
pub struct Conflict {
    /// The other manager, as the error names it.
    pub manager: String,
    /// The path of the field.
    pub path: Vec<Element>,
}

/// Conflicts, sorted by manager. The conflicts beyond those that an answer shows are only counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conflicts {
    /// The conflicts that are shown.
    pub shown: Vec<Conflict>,
    /// The number of conflicts that are not shown.
    ///
    /// DIFFERENCE: upstream shows them all. Each shows its whole path, so that many below one long key would make an
    /// answer that is many times as large as the request.
    pub more: usize,
}

/// The reason for which a configuration was not applied.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ApplyError {
    /// The configuration is not for this request, or does not fit the schema: a 400. Upstream answers 500 to one that
    /// does not fit, although the fault is the client's.
    #[error("{0}")]
    BadRequest(String),
    /// Others manage fields of the configuration: upstream answers 409.
    #[error("{}", conflicts_text(.0))]
    Conflicts(Conflicts),
    /// The stored object does not fit the schema: a 500.
    #[error("{0}")]
    Failed(String),
}

impl From<ApplyError> for Status {
    fn from(e: ApplyError) -> Self {
        match e {
            ApplyError::BadRequest(text) => Self::bad_request(text),
            ApplyError::Failed(text) => Self::failure(500, "", text),
            ApplyError::Conflicts(ref conflicts) => {
                let mut s = Self::failure(409, "Conflict", e.to_string());
                let causes = conflicts
                    .shown
                    .iter()
                    .map(|c| Cause {
                        reason: "FieldManagerConflict".into(),
                        message: format!("conflict with {}", c.manager),
                        field: path_text(&c.path),
                    })
                    .collect();
                s.details = Some(Box::new(Details { causes, ..Details::default() }));
                s
            }
        }
    }
}

/// The message about conflicts, which are sorted by manager already.
fn conflicts_text(Conflicts { shown, more }: &Conflicts) -> String {
    if let ([one], 0) = (shown.as_slice(), more) {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            one.manager,
            path_text(&one.path)
        );
    }
    let mut lines = Vec::new();
    for group in shown.chunk_by(|a, b| a.manager == b.manager) {
        lines.push(format!("conflicts with {}:", group[0].manager));
        lines.extend(group.iter().map(|c| format!("- {}", path_text(&c.path))));
    }
    if *more > 0 {
        lines.push(format!("and {more} more"));
    }
    format!("Apply failed with {} conflicts: {}", shown.len() + more, lines.join("\n"))
}

/// The result of an apply.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// The object with its managedFields, in the request's version. Defaults in the parts that the configuration adds
    /// are not yet set.
    pub object: Struct,
    /// Whether the configuration changed nothing but managedFields.
    pub unchanged: bool,
}

/// An object without a schema's types, in one version.
#[derive(Clone)]
struct Versioned {
    node: Node,
    root: StructId,
    version: Text,
}

/// The state of an apply: managers and objects.
struct Applier<'w, 'a> {
    w: &'w Writer<'a>,
    schema: &'a Schema,
}

impl Writer<'_> {
    /// Applies a configuration of the kind `kind` to `live`, or makes an object of it (`live` is `None`;
    /// `root` is the kind's struct).
    ///
    /// The configuration is what the client wrote: its explicit zeros and nulls count.
    pub fn apply(
        &self,
        kind: &Gvk,
        root: StructId,
        live: Option<&Struct>,
        config: Node,
        force: bool,
    ) -> Result<Applied, ApplyError> {
        let refuse = |what: &str, e: String| ApplyError::BadRequest(format!("{what}: {e}"));
        let fail = |what: &str, e: String| ApplyError::Failed(format!("{what}: {e}"));
        let Some(places) = Places::new(self.schema, root) else {
            return Err(ApplyError::Failed(
                "couldn't get accessor: object does not implement the Object interfaces".into(),
            ));
        };
        let stored = live.map(|l| places.read(l)).transpose();
        let mut managers =
            stored.map_err(|e| fail("failed to decode managed fields", e))?.unwrap_or_default();
        let Node::Map(mut config) = config else {
            return Err(ApplyError::BadRequest("the configuration is no object".into()));
        };
        let whole = config.clone();
        let text = |n: Option<Node>| n.map(|n| Text::from(n.as_str())).unwrap_or_default();
        let (given_version, given_kind) = (text(config.remove("apiVersion")), text(config.remove("kind")));
        if given_version != kind.api_version() || given_kind != kind.kind {
            let (group, version) = given_version.split_once('/').unwrap_or(("", &given_version));
            return Err(ApplyError::BadRequest(format!(
                "invalid object type: {group}/{version}, Kind={given_kind}"
            )));
        }
        if managers.is_empty()
            && let Some(live) = live
        {
            let mut bare = live.clone();
            places.clear(&mut bare);
            managers = self
                .after_update(None, &bare, managers, BEFORE_FIRST_APPLY)
                .map_err(|e| fail("failed to create manager for existing fields", e))?;
        }
        let given = config.get("metadata").and_then(Node::as_map).and_then(|m| m.get("managedFields"));
        if given.is_some_and(|g| *g != Node::Null) {
            return Err(ApplyError::BadRequest("metadata.managedFields must be nil".into()));
        }
        let config = Node::Map(config);
        validate(self.schema, root, &config, false).map_err(|e| {
            refuse(&format!("failed to create typed patch object ({})", shown(&whole, kind)), e)
        })?;
        let mut bare = live.cloned().unwrap_or_else(|| Struct::new(root));
        places.clear(&mut bare);
        let live_node = json::to_any(self.schema, &bare);
        let live_node = Versioned { node: live_node, root, version: self.api_version.into() };
        let applier = Applier { w: self, schema: self.schema };
        let result = match applier.apply(&live_node, &config, managers.clone(), Force::of(force)) {
            Err(ApplyError::Conflicts(conflicts)) if self.manager == KUBECTL => {
                match applier.applied_by_kubectl(&live_node) {
                    Some(own) => applier.apply(&live_node, &config, managers, Force::Of(&own)),
                    None => Err(ApplyError::Conflicts(conflicts)),
                }
            }
            other => other,
        };
        let (node, managers) = result?;
        let unchanged = node.is_none();
        let mut object = match node {
            Some(node) => {
                json::root_from_merged(self.schema, root, node.node)
                    .map_err(|e| {
                        let what = format!(
                            "failed to convert new object ({}) to proper version ({})",
                            shown(&whole, kind),
                            self.api_version
                        );
                        refuse(&what, e.to_string())
                    })?
                    .tree
            }
            None => bare,
        };
        if self.manager == KUBECTL {
            remember(&places, &mut object, whole);
        }
        places.write(self.schema, &mut object, managers);
        Ok(Applied { object, unchanged })
    }
}

/// The name and kind of an object, for errors.
fn shown(config: &Map, kind: &Gvk) -> String {
    let meta = config.get("metadata").and_then(Node::as_map);
    let text = |key: &str| meta.map(|m| m.str(key)).unwrap_or_default().to_owned();
    format!("{}/{}; {}, Kind={}", text("namespace"), text("name"), versioned(kind), kind.kind)
}

fn versioned(kind: &Gvk) -> String {
    format!("{}/{}", kind.group, kind.version)
}

/// Brings kubectl's annotation up to date, if the object has it.
fn remember(places: &Places, object: &mut Struct, mut config: Map) {
    let annotations = object.st_mut(places.metadata).and_then(|m| m.get_mut(places.annotations));
    let Some(Node::Map(annotations)) = annotations else { return };
    if annotations.str(LAST_APPLIED).is_empty() {
        return;
    }
    let own = config.get_mut("metadata").and_then(Node::as_map_mut).and_then(|m| m.get_mut("annotations"));
    if let Some(Node::Map(own)) = own {
        own.remove(LAST_APPLIED);
    }
    config.sort();
    let mut text = Vec::new();
    json::encode_any(&Node::Map(config), &mut text);
    text.push(b'\n');
    annotations.insert(LAST_APPLIED, Node::Str(Text::from_utf8_lossy(&text)));
    let size: usize = annotations.iter().map(|(k, v)| k.len() + v.as_str().len()).sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(LAST_APPLIED);
    }
}

/// The fields that are taken from other managers instead of being a conflict.
#[derive(Clone, Copy)]
enum Force<'f> {
    Nothing,
    All,
    Of(&'f FieldSet),
}

impl Force<'_> {
    fn of(force: bool) -> Self {
        if force { Self::All } else { Self::Nothing }
    }
}

/// The room for conflicts that is left in an answer.
struct Room {
    conflicts: usize,
    bytes: usize,
}

impl Conflicts {
    fn add(&mut self, room: &mut Room, manager: &str, path: &[&Element]) {
        if room.conflicts == 0 || room.bytes == 0 {
            self.more += 1;
            return;
        }
        room.conflicts -= 1;
        room.bytes = room.bytes.saturating_sub(manager.len() + path_text(path.iter().copied()).len());
        self.shown.push(Conflict { manager: manager.into(), path: path.iter().copied().cloned().collect() });
    }
}

type Outcome = Result<(Option<Versioned>, Vec<Manager>), ApplyError>;

impl Applier<'_, '_> {
    /// The merged object, or `None` if it is the live one, and the managers after it.
    fn apply(
        &self,
        live: &Versioned,
        config: &Node,
        mut managers: Vec<Manager>,
        force: Force<'_>,
    ) -> Outcome {
        let fail = |what: &str, e: String| ApplyError::Failed(format!("{what}: {e}"));
        let merged = merge(self.schema, live.root, live.node.clone(), config.clone())
            .map_err(|e| fail("failed to merge config", e))?;
        let fields =
            of_any(self.schema, live.root, config).map_err(|e| fail("failed to get field set", e))?;
        let current = Manager {
            name: if self.w.manager.is_empty() { "unknown".into() } else { self.w.manager.into() },
            operation: Operation::Apply,
            api_version: self.w.api_version.into(),
            subresource: self.w.subresource.into(),
            time: None,
            fields: self.w.taken.filter(fields),
        };
        let at = managers.iter().position(|m| m.is(&current));
        let (at, last) = if let Some(at) = at {
            let time = managers[at].time.clone();
            (at, Some(std::mem::replace(&mut managers[at], Manager { time, ..current })))
        } else {
            managers.push(current);
            (managers.len() - 1, None)
        };
        let merged = Versioned { node: merged, root: live.root, version: live.version.clone() };
        let new = match last {
            Some(last) if !last.fields.is_empty() => {
                self.prune(merged, &managers, &last).map_err(|e| fail("failed to prune fields", e))?
            }
            _ => merged,
        };
        let mut managers = self.take_over(live, &new, managers, at, force)?;
        let unchanged = same(&live.node, &new.node);
        let mine = |m: &Manager| {
            m.operation == Operation::Apply
                && m.name == if self.w.manager.is_empty() { "unknown" } else { self.w.manager }
                && m.subresource == self.w.subresource
        };
        for m in managers.iter_mut().filter(|m| mine(m)) {
            m.fields = strip(std::mem::take(&mut m.fields));
            if !unchanged {
                m.time = Some(self.w.now.into());
            }
        }
        managers.retain(|m| !m.fields.is_empty());
        Ok(((!unchanged).then_some(new), managers))
    }

    /// Takes the changed fields from the other managers, or finds that they conflict.
    fn take_over(
        &self,
        live: &Versioned,
        new: &Versioned,
        mut managers: Vec<Manager>,
        own: usize,
        force: Force<'_>,
    ) -> Result<Vec<Manager>, ApplyError> {
        let compared = |live: &Versioned, new: &Versioned| -> Result<Comparison, String> {
            let c = compare_any(self.schema, new.root, &live.node, &new.node)
                .map_err(|e| format!("failed to compare objects: {e}"))?;
            Ok(self.w.taken.filter_all(c))
        };
        let first = compared(live, new).map_err(ApplyError::Failed)?;
        let mut differences = Differences::new(self.w, first);
        let mut conflicts: Vec<(usize, FieldSet)> = Vec::new();
        let mut gone = vec![false; managers.len()];
        let mut after: Vec<FieldSet> = Vec::with_capacity(managers.len());
        for (i, m) in managers.iter().enumerate() {
            if i == own {
                after.push(m.fields.clone());
                continue;
            }
            let make = || {
                let old = self.convert(live, &m.api_version)?;
                let new = self.convert(new, &m.api_version)?;
                old.zip(new).map(|(o, n)| compared(&o, &n)).transpose()
            };
            let c = differences.get(&m.api_version, make).map_err(ApplyError::Failed)?;
            let Some(c) = c else {
                gone[i] = true;
                after.push(FieldSet::default());
                continue;
            };
            let theirs = m.fields.intersection(&c.modified).union(m.fields.intersection(&c.added));
            if !theirs.is_empty() {
                conflicts.push((i, theirs));
            }
            after.push(lessened(m.fields.clone(), c));
        }
        if !matches!(force, Force::All) && !conflicts.is_empty() {
            let key = |i: usize| {
                let m = &managers[i];
                (&m.name, m.operation, &m.api_version, &m.subresource)
            };
            conflicts.sort_by(|a, b| key(a.0).cmp(&key(b.0)));
            let mut found = Conflicts::default();
            let mut room = Room { conflicts: 1000, bytes: 1 << 20 };
            for (i, set) in &conflicts {
                let manager = managers[*i].shown();
                set.each_path(&mut |path| {
                    if !matches!(force, Force::Of(own) if own.has(path)) {
                        found.add(&mut room, &manager, path);
                    }
                });
            }
            if !found.shown.is_empty() {
                return Err(ApplyError::Conflicts(found));
            }
        }
        for (m, fields) in managers.iter_mut().zip(after) {
            m.fields = fields;
        }
        let mut gone = gone.into_iter();
        managers.retain(|m| gone.next() != Some(true) && !m.fields.is_empty());
        Ok(managers)
    }

    /// The object in another version; `None` if there is no such version.
    fn convert(&self, object: &Versioned, version: &str) -> Result<Option<Versioned>, String> {
        if object.version == version {
            return Ok(Some(object.clone()));
        }
        let Some(versions) = self.w.versions else {
            return Ok(Some(Versioned { version: version.into(), ..object.clone() }));
        };
        if !versions.has(version) {
            return Ok(None);
        }
        let tree = json::root_from_merged(self.schema, object.root, object.node.clone());
        let converted = versions.convert(&tree.map_err(|e| e.to_string())?.tree, &object.version, version)?;
        Ok(converted.map(|tree| Versioned {
            node: json::to_any(self.schema, &tree),
            root: tree.id,
            version: version.into(),
        }))
    }

    /// Takes out the fields that this manager applied last time, does not apply now, and no other manager has.
    fn prune(&self, merged: Versioned, managers: &[Manager], last: &Manager) -> Result<Versioned, String> {
        let version = merged.version.clone();
        let Some(before) = self.convert(&merged, &last.api_version)? else { return Ok(merged) };
        let named = |v: &Versioned, set: FieldSet| with_named_fields(self.schema, v.root, set);
        let without = |v: &Versioned, set: &FieldSet| Versioned {
            node: remove(self.schema, v.root, v.node.clone(), set),
            ..v.clone()
        };
        let set_of = |v: &Versioned| of_any(self.schema, v.root, &v.node);
        let last_fields = named(&before, last.fields.clone());
        let mut pruned = without(&before, &last_fields);

        // Fields that other managers or the new configuration have are put back: first in the version that is pruned,
        // as a conversion may need some of them.
        let mut owned: BTreeMap<(bool, &str), Vec<FieldSet>> = BTreeMap::new();
        for m in managers {
            let version = self.w.version_of(&m.api_version);
            let other = version != last.api_version;
            owned.entry((other, version)).or_default().push(m.fields.clone());
        }
        let mut full = before.clone();
        for ((_, v), sets) in owned {
            let (Some(f), Some(p)) = (self.convert(&full, v)?, self.convert(&pruned, v)?) else {
                continue;
            };
            let there = named(&f, set_of(&f)?);
            let keep = named(&p, set_of(&p)?).union(named(&f, FieldSet::union_all(sets)));
            pruned = without(&f, &there.difference(&keep));
            full = f;
        }

        // Fields that nobody has and this manager never applied stay.
        let Some(pruned) = self.convert(&pruned, &last.api_version)? else { return Ok(merged) };
        let left = named(&pruned, set_of(&pruned)?);
        let there = named(&before, set_of(&before)?);
        let gone = there.difference(&left).intersection(&last_fields);
        let pruned = without(&before, &gone);
        match self.convert(&pruned, &version)? {
            Some(pruned) => Ok(pruned),
            None => Ok(merged),
        }
    }

    /// The fields that kubectl applied on its own side and nobody changed since, read from its annotation.
    fn applied_by_kubectl(&self, live: &Versioned) -> Option<FieldSet> {
        let text =
            live.node.as_map()?.get("metadata")?.as_map()?.get("annotations")?.as_map()?.str(LAST_APPLIED);
        let Ok(Node::Map(mut last)) = json::decode_any(text.as_bytes()) else { return None };
        if last.str("apiVersion") != self.w.api_version {
            return None;
        }
        last.remove("apiVersion");
        last.remove("kind");
        let last = Node::Map(last);
        validate(self.schema, live.root, &live.node, false).ok()?;
        validate(self.schema, live.root, &last, false).ok()?;
        let set = of_any(self.schema, live.root, &last).ok()?;
        let c = compare_any(self.schema, live.root, &last, &live.node).ok()?;
        Some(lessened(set, &c))
    }
}
