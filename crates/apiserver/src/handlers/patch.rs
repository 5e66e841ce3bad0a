//! Patches.

use access::auth::Eventual;
use api::codec::{Decoded, json};
use api::depth;
use api::field::{Errors, Path};
use api::go::json_word;
use api::patch::{JsonPatch, PatchError, merge, strategic};
use api::schema::Gvk;
use api::status::{FieldError, FieldErrorKind};
use api::{Map, Node, Status, Struct};
use bytes::Bytes;
use kinds::Subresource;

use super::scope::Scope;
use super::update::Change;
use super::{managed, update};
use crate::codec;
use crate::negotiate;
use crate::options::{FieldValidation, WriteKind, WriteOptions, write_options};
use crate::outcome::Outcome;
use crate::request::Request;

/// A kind of patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Strategic merge patch.
    Strategic,
    /// Server-side apply; JSON or YAML.
    Apply,
}

const TYPES: [(&str, PatchType); 5] = [
    ("application/json-patch+json", PatchType::Json),
    ("application/merge-patch+json", PatchType::Merge),
    ("application/strategic-merge-patch+json", PatchType::Strategic),
    ("application/apply-patch+yaml", PatchType::Apply),
    ("application/apply-patch", PatchType::Apply),
];

/// A patch as it was sent.
pub(crate) struct Patch {
    pub(crate) kind: PatchType,
    pub(crate) body: Bytes,
}

/// Reads the patch of a request; a 415 for a type that is not known.
pub(crate) fn read(req: &Request) -> Result<Patch, Status> {
    let media = req.content_type.split(';').next().unwrap_or_default().trim();
    let known = TYPES.iter().find(|t| t.0 == media).map(|t| t.1);
    let is_custom = req.resource.as_ref().is_some_and(|r| r.custom.is_some());
    // A definition says nothing of the merging of its lists by a strategic patch.
    if is_custom && known.is_none_or(|kind| kind == PatchType::Strategic) {
        return Err(negotiate::unsupported(&[TYPES[0].0, TYPES[1].0, TYPES[3].0]));
    }
    let kind = known.ok_or_else(negotiate::not_consumed)?;
    Ok(Patch { kind, body: req.body.clone() })
}

/// Refuses a patch that makes another kind or version of a custom object.
fn same_kind(scope: &Scope<'_>, kind: &Gvk, patched: &Decoded) -> Result<(), Status> {
    let mut errs = Errors::new();
    if patched.kind != kind.kind {
        errs.invalid(&Path::root("kind"), patched.kind.as_str(), format!("must be {}", kind.kind));
    }
    let api_version = kind.api_version();
    if patched.api_version != api_version {
        errs.invalid(
            &Path::root("apiVersion"),
            patched.api_version.as_str(),
            format!("must be {api_version}"),
        );
    }
    if errs.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&kind.group, &kind.kind, scope.name(), &errs.0))
}

impl Patch {
    /// Checks the form of a patch before what it says, as upstream does where it looks for fields that are given twice.
    fn check_form(&self, patch: &Node) -> Result<(), Status> {
        let wrong = |node: &Node, go_type: &str| {
            let what = json_word(node);
            Err(Status::bad_request(format!(
                "error decoding patch: json: cannot unmarshal {what} into Go value of type {go_type}"
            )))
        };
        match (self.kind, patch) {
            (PatchType::Merge, Node::Map(_) | Node::Null) | (PatchType::Json, Node::Null) => Ok(()),
            (PatchType::Merge, other) => wrong(other, "map[string]interface {}"),
            (PatchType::Json, Node::List(list)) => match list.iter().find(|op| op.as_map().is_none()) {
                Some(op) if *op != Node::Null => wrong(op, "handlers.jsonPatchOp"),
                _ => Ok(()),
            },
            (PatchType::Json, other) => wrong(other, "[]handlers.jsonPatchOp"),
            _ => Ok(()),
        }
    }

    /// The object after the patch; it and `current` are of `kind`, as clients see it.
    pub(crate) fn apply_to(
        &self,
        scope: &Scope<'_>,
        kind: &Gvk,
        current: &Struct,
        options: &WriteOptions,
    ) -> Result<Struct, Status> {
        let schema = scope.catalog.schema();
        let root = schema.kind(kind).ok_or_else(Status::no_such_resource)?;
        let (patch, mut complaints) = json::decode_any_strict(&self.body)
            .map_err(|e| Status::bad_request(format!("error decoding patch: {e}")))?;
        if options.field_validation != FieldValidation::Ignore {
            self.check_form(&patch)?;
        }
        let mut target = json::to_any(schema, current);
        if let Some(map) = target.as_map_mut() {
            map.insert("kind", kind.kind.clone());
            map.insert("apiVersion", kind.api_version());
        }
        let patched = match self.kind {
            PatchType::Json => {
                for complaint in &mut complaints {
                    complaint.insert_str(0, "json patch ");
                }
                JsonPatch::from_node(patch).and_then(|p| p.apply(target)).map_err(patch_error)?
            }
            PatchType::Merge => {
                if patch.as_map().is_none() {
                    return Err(Status::bad_request("Invalid JSON Patch"));
                }
                merge(target, patch)
            }
            PatchType::Strategic => strategic(schema, root, target, patch).map_err(patch_error)?,
            PatchType::Apply => return Err(negotiate::unsupported(&TYPES.map(|t| t.0)[..3])),
        };
        if !depth::is_bounded(&patched) {
            return Err(patch_error(PatchError::TooDeep));
        }
        let patched = explicit_reset(patched);
        let shown = {
            let mut text = Vec::new();
            json::encode_any(&patched, &mut text);
            String::from_utf8_lossy(&text).into_owned()
        };
        let refuse = |why: String| {
            let error = FieldError {
                kind: FieldErrorKind::Invalid,
                field: "patch".into(),
                value: Some(format!("{shown:?}")),
                detail: why,
            };
            Status::invalid("", "", "", &[error])
        };
        let mut decoded = match self.kind {
            PatchType::Strategic => json::root_from_merged(schema, root, patched),
            _ => json::root_from_patched(schema, root, patched),
        }
        .map_err(|e| refuse(e.to_string()))?;
        // A strategic patch is of the kind that the path names, whatever it says itself.
        if self.kind != PatchType::Strategic && decoded.api_version.matches('/').count() > 1 {
            return Err(refuse(format!("unexpected GroupVersion string: {}", decoded.api_version)));
        }
        if schema.st(root).rest.is_some() {
            same_kind(scope, kind, &decoded)?;
        } else if self.kind != PatchType::Strategic
            && let Some(why) = codec::unregistered(schema, kind, &decoded.api_version, &decoded.kind)
        {
            return Err(refuse(why));
        }
        // Upstream takes what is left without a version for an object without a name.
        if self.kind != PatchType::Strategic && decoded.api_version.is_empty() {
            let name = scope.name();
            return Err(Status::bad_request(format!(
                "the name of the object ({name} based on URL) was undeterminable: name must be provided"
            )));
        }
        if *kind == scope.resource.kind {
            scope.strategy().settle(schema, &mut decoded.tree).map_err(|why| match self.kind {
                PatchType::Strategic => Status::failure(500, "", why),
                _ => refuse(why),
            })?;
        }
        complaints.extend(decoded.strict);
        match options.field_validation {
            _ if complaints.is_empty() => {}
            FieldValidation::Ignore => {}
            FieldValidation::Warn => complaints.into_iter().for_each(|c| scope.req.warn(c)),
            FieldValidation::Strict => {
                return Err(refuse(format!("strict decoding error: {}", complaints.join(", "))));
            }
        }
        Ok(decoded.tree)
    }
}

/// An empty list of managedFields asks to forget all managers, as one empty entry does; trees hold only
/// the latter.
fn explicit_reset(mut object: Node) -> Node {
    let list = object
        .as_map_mut()
        .and_then(|m| m.get_mut("metadata")?.as_map_mut()?.get_mut("managedFields")?.as_list_mut());
    if let Some(list) = list
        && list.is_empty()
    {
        list.push(Node::from(Map::new()));
    }
    object
}

fn patch_error(error: PatchError) -> Status {
    match error {
        PatchError::Malformed(text) => Status::bad_request(text),
        PatchError::NotApplicable(_) => {
            // Upstream drops the reason on the way, too.
            let text = "the server rejected our request due to an error in our request";
            let mut status = Status::failure(422, "Invalid", text);
            status.details = Some(Box::default());
            status
        }
        PatchError::TooDeep => {
            let error = FieldError {
                kind: FieldErrorKind::Invalid,
                field: "patch".into(),
                value: None,
                detail: error.to_string(),
            };
            Status::invalid("", "", "", &[error])
        }
        PatchError::TooLarge(text) => {
            Status::failure(413, "RequestEntityTooLarge", format!("Request entity too large: {text}"))
        }
    }
}

/// A configuration that is applied.
struct Applying<'s> {
    scope: &'s Scope<'s>,
    config: Node,
    options: &'s WriteOptions,
}

impl Change for Applying<'_> {
    fn make<'m>(&'m self, old: Option<&'m Struct>) -> Eventual<'m, Result<Struct, Status>> {
        managed::apply(self.scope, old, self.config.clone(), self.options)
    }
}

/// A patch of the version that is served.
struct Patching<'s> {
    scope: &'s Scope<'s>,
    patch: Patch,
    options: &'s WriteOptions,
}

impl Patching<'_> {
    fn checked(&self, patched: Struct) -> Result<Struct, Status> {
        let mut patched = self.scope.defaulted(patched);
        self.scope.ensure_namespace(&mut patched)?;
        self.scope.check_name(&patched)?;
        Ok(patched)
    }
}

impl Change for Patching<'_> {
    fn make<'m>(&'m self, old: Option<&'m Struct>) -> Eventual<'m, Result<Struct, Status>> {
        let scope = self.scope;
        let Some(old) = old else { return Eventual::Now(Err(Status::no_such_resource())) };
        let patched = scope.to_served(old.clone()).and_then(move |served| {
            match self.patch.apply_to(scope, &scope.resource.kind, &served, self.options) {
                Ok(patched) => scope.to_stored(patched),
                Err(refused) => Eventual::Now(Err(refused)),
            }
        });
        patched.and_then(|patched| Eventual::Now(self.checked(patched)))
    }
}

/// Answers a patch of a resource or of a subresource on its tree.
pub(crate) async fn patch(scope: &Scope<'_>, rules: Option<&dyn Subresource>) -> Result<Outcome, Status> {
    let patch = read(scope.req)?;
    let kind = if patch.kind == PatchType::Apply { WriteKind::Apply } else { WriteKind::Patch };
    let options = &write_options(&scope.req.query, kind)?;
    let mut plan = update::Plan::new(rules, options);
    let done = if patch.kind == PatchType::Apply {
        let config = managed::configuration(&patch.body)?;
        plan.create = rules.is_none();
        plan.tracked = true;
        update::run(scope, scope.name(), &plan, &Applying { scope, config, options }).await?
    } else {
        update::run(scope, scope.name(), &plan, &Patching { scope, patch, options }).await?
    };
    update::answer(scope, done).await
}
