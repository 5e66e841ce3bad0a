//! RFC 6902, with the words of the library that upstream uses.

use super::PatchError;
use super::depth::Depth;
use super::document::Doc;
use crate::tree::{Node, Text};

/// More operations than this are refused (upstream's `maxJSONPatchOperations`).
const MAX_OPERATIONS: usize = 10_000;
/// The limit of all `copy` operations together, in bytes of JSON (upstream's `JSONPatchMaxCopyBytes`).
const MAX_COPIED: usize = 3 << 20;

/// One operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// `add`, `remove`, `replace`, `move`, `copy`, `test`; anything else fails when it is applied.
    pub op: Text,
    /// The place to change, as a JSON pointer.
    pub path: Option<Text>,
    /// The place of the source, for `move` and `copy`.
    pub from: Option<Text>,
    /// The value, for `add`, `replace` and `test`.
    pub value: Option<Node>,
}

/// A list of operations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JsonPatch(pub Vec<Operation>);

fn fails<T>(text: String) -> Result<T, PatchError> {
    Err(PatchError::NotApplicable(text))
}

/// The tokens of a pointer, unescaped; `None` if it does not begin with `/`.
fn tokens(pointer: &str) -> Option<Vec<String>> {
    let rest = pointer.strip_prefix('/')?;
    Some(rest.split('/').map(|t| t.replace("~1", "/").replace("~0", "~")).collect())
}

/// The container of the value that a pointer names, and the last token.
fn container<'d>(doc: &'d mut Doc, pointer: &str) -> Option<(&'d mut Doc, String)> {
    let mut tokens = tokens(pointer)?;
    let last = tokens.pop()?;
    let mut at = doc;
    for t in tokens {
        at.open();
        at = match at {
            Doc::Map(m) => m.get_mut(t.as_str())?,
            Doc::List(l) => {
                let i = index(&t, l.len()).ok()?;
                l.get_mut(i)?
            }
            Doc::Whole(_) => return None,
        };
    }
    at.open();
    (!matches!(at, Doc::Whole(_))).then_some((at, last))
}

/// A list index below `limit`; negative ones count from the end, as upstream allows.
fn index(token: &str, limit: usize) -> Result<usize, String> {
    let i: i64 = token.parse().map_err(|_| format!("strconv.Atoi: parsing {token:?}: invalid syntax"))?;
    let at = if i < 0 { i + limit as i64 } else { i };
    usize::try_from(at)
        .ok()
        .filter(|u| *u < limit)
        .ok_or_else(|| format!("Unable to access invalid index: {i}: invalid index referenced"))
}

fn get<'d>(container: &'d Doc, key: &str) -> Result<Option<&'d Doc>, String> {
    match container {
        Doc::Map(m) => Ok(m.get(key)),
        Doc::List(l) => index(key, l.len()).map(|i| l.get(i)),
        Doc::Whole(_) => Ok(None),
    }
}

fn add(container: &mut Doc, key: String, value: Doc) -> Result<(), String> {
    match container {
        Doc::Map(m) => {
            m.insert(key.into(), value);
        }
        Doc::List(l) if key == "-" => l.insert(l.len(), value),
        Doc::List(l) => {
            if key.parse::<i64>().is_err() {
                return Err(format!(
                    "value was not a proper array index: '{key}': strconv.Atoi: parsing {key:?}: invalid syntax"
                ));
            }
            let i = index(&key, l.len() + 1)?;
            l.insert(i, value);
        }
        Doc::Whole(_) => {}
    }
    Ok(())
}

/// Takes a value out.
fn remove(container: &mut Doc, key: &str) -> Result<Doc, String> {
    let taken = match container {
        Doc::Map(m) => m.remove(key),
        Doc::List(l) => {
            let i = index(key, l.len())?;
            l.remove(i)
        }
        Doc::Whole(_) => None,
    };
    taken.ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value"))
}

/// The length of a value as JSON.
fn size(node: &Node) -> usize {
    let text = |t: &str| {
        let escaped = |b: u8| match b {
            b'"' | b'\\' => 2,
            0..0x20 => 6,
            _ => 1,
        };
        2 + t.bytes().map(escaped).sum::<usize>()
    };
    match node {
        Node::Int(i) => i.to_string().len(),
        Node::Float(f) => f.to_string().len(),
        Node::Str(t) => text(t),
        Node::List(l) => 1 + l.iter().map(|v| size(v) + 1).sum::<usize>().max(1),
        Node::Map(m) => 1 + m.iter().map(|(k, v)| text(k) + size(v) + 2).sum::<usize>().max(1),
        _ => 4,
    }
}

impl JsonPatch {
    /// Reads a patch: a list of objects.
    pub fn from_node(node: Node) -> Result<Self, PatchError> {
        let Node::List(list) = node else {
            let what = match node {
                Node::Map(_) => "object",
                Node::Str(_) => "string",
                Node::Int(_) | Node::Float(_) => "number",
                Node::Bool(_) => "bool",
                _ => return Ok(Self::default()),
            };
            return Err(PatchError::Malformed(format!(
                "json: cannot unmarshal {what} into Go value of type jsonpatch.Patch"
            )));
        };
        if list.len() > MAX_OPERATIONS {
            return Err(PatchError::TooLarge(format!(
                "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                list.len()
            )));
        }
        let mut out = Vec::with_capacity(list.len());
        for item in list {
            let Node::Map(mut m) = item else {
                return Err(PatchError::Malformed(
                    "json: cannot unmarshal patch operation: it is no object".into(),
                ));
            };
            let text = |key: &str| match m.get(key) {
                Some(Node::Str(s)) => Some(s.clone()),
                _ => None,
            };
            let (op, path, from) = (text("op"), text("path"), text("from"));
            out.push(Operation {
                op: op.unwrap_or_else(|| "unknown".into()),
                path,
                from,
                value: m.remove("value"),
            });
        }
        Ok(Self(out))
    }

    /// Applies every operation, or none.
    pub fn apply(self, doc: Node) -> Result<Node, PatchError> {
        let mut doc = Doc::Whole(doc);
        let (mut copied, mut depth) = (0, Depth::new());
        for op in self.0 {
            op.apply(&mut doc, &mut copied, &mut depth)?;
        }
        Ok(doc.into_node())
    }
}

impl Operation {
    fn apply(self, doc: &mut Doc, copied: &mut usize, depth: &mut Depth) -> Result<(), PatchError> {
        match self.op.as_str() {
            "add" => self.add(doc, depth),
            "remove" => self.remove(doc),
            "replace" => self.replace(doc, depth),
            "test" => self.test(doc),
            "move" | "copy" => self.carry(doc, copied, depth),
            op => fails(format!("Unexpected kind: {op}")),
        }
    }

    /// The path that the operation must have.
    fn path(&self) -> Result<&str, PatchError> {
        let op = self.op.as_str();
        self.path.as_deref().ok_or_else(|| {
            PatchError::NotApplicable(match op {
                "add" | "remove" | "copy" => format!("{op} operation failed to decode path: missing value"),
                _ => format!(
                    "{op} operation failed to decode path: operation missing path field: missing value"
                ),
            })
        })
    }

    fn add(self, doc: &mut Doc, depth: &mut Depth) -> Result<(), PatchError> {
        let path = self.path()?.to_owned();
        let Some((c, key)) = container(doc, &path) else {
            return fails(format!(
                "add operation does not apply: doc is missing path: \"{path}\": missing value"
            ));
        };
        let value = self.value.unwrap_or(Node::Null);
        depth.add(&path, &value)?;
        add(c, key, Doc::Whole(value)).map_err(|e| place(&format!("add for path: '{path}'"), &e))
    }

    fn remove(&self, doc: &mut Doc) -> Result<(), PatchError> {
        let path = self.path()?;
        let Some((c, key)) = container(doc, path) else {
            return fails(format!(
                "remove operation does not apply: doc is missing path: \"{path}\": missing value"
            ));
        };
        remove(c, &key).map(drop).map_err(|e| place(&format!("remove for path: '{path}'"), &e))
    }

    fn replace(self, doc: &mut Doc, depth: &mut Depth) -> Result<(), PatchError> {
        let path = self.path()?.to_owned();
        let value = self.value.unwrap_or(Node::Null);
        depth.add(&path, &value)?;
        if path.is_empty() {
            if !matches!(value, Node::Map(_) | Node::List(_)) {
                return fails("replace operation value must be object or array: %!w(<nil>)".into());
            }
            *doc = Doc::Whole(value);
            return Ok(());
        }
        let Some((c, key)) = container(doc, &path) else {
            return fails(format!(
                "replace operation does not apply: doc is missing path: {path}: missing value"
            ));
        };
        if let Doc::List(list) = c {
            let there = index(&key, list.len()).ok().and_then(|i| list.get_mut(i));
            let Some(there) = there else {
                return fails(format!(
                    "replace operation does not apply: doc is missing key: {path}: missing value"
                ));
            };
            *there = Doc::Whole(value);
            return Ok(());
        }
        // As upstream's library, and unlike RFC 6902: what is not in a map comes into it.
        add(c, key, Doc::Whole(value)).map_err(|e| place(&format!("remove for path: '{path}'"), &e))
    }

    fn test(self, doc: &mut Doc) -> Result<(), PatchError> {
        let path = self.path()?.to_owned();
        let failed = || fails(format!("testing value {path} failed: test failed"));
        let want = self.value.unwrap_or(Node::Null);
        if path.is_empty() {
            return if doc.is(&want) { Ok(()) } else { failed() };
        }
        let Some((c, key)) = container(doc, &path) else {
            return fails(format!("test operation does not apply: is missing path: {path}: missing value"));
        };
        let have = get(c, &key).map_err(|e| place(&format!("test for path: '{path}'"), &e))?;
        if have.map_or(want == Node::Null, |have| have.is(&want)) { Ok(()) } else { failed() }
    }

    /// Moves or copies a value to another path.
    fn carry(&self, doc: &mut Doc, copied: &mut usize, depth: &mut Depth) -> Result<(), PatchError> {
        let op = self.op.as_str();
        let Some(from) = &self.from else {
            return fails(format!(
                "{op} operation failed to decode from: operation, missing from field: missing value"
            ));
        };
        let Some((c, key)) = container(doc, from) else {
            return fails(format!(
                "{op} operation does not apply: doc is missing from path: {from}: missing value"
            ));
        };
        let value = if op == "move" {
            Some(remove(c, &key).map_err(|e| place(&format!("move for path: '{key}'"), &e))?)
        } else {
            let value = get(c, &key).map_err(|e| place(&format!("copy for from: '{from}'"), &e))?;
            let value = value.map(Doc::to_node);
            *copied += value.as_ref().map_or(0, size);
            if *copied > MAX_COPIED {
                return fails(format!(
                    "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the \
                     limit {MAX_COPIED}"
                ));
            }
            value.map(Doc::Whole)
        };
        let path = self.path()?;
        match (op, &value) {
            ("move", Some(value)) => depth.shift(doc, from, path, value)?,
            (_, Some(Doc::Whole(value))) => depth.add(path, value)?,
            _ => {}
        }
        let Some((c, key)) = container(doc, path) else {
            return fails(format!(
                "{op} operation does not apply: doc is missing destination path: {path}: missing value"
            ));
        };
        add(c, key, value.unwrap_or(Doc::Whole(Node::Null))).map_err(|e| {
            if op == "move" {
                place(&format!("move for path: '{path}'"), &e)
            } else {
                PatchError::NotApplicable(format!("error while adding value during copy: {e}"))
            }
        })
    }
}

/// An error within an operation, whose key is named.
fn place(key: &str, e: &str) -> PatchError {
    PatchError::NotApplicable(format!("error in {key}: {e}"))
}
