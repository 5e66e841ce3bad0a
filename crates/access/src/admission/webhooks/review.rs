//! `AdmissionReview`: what a webhook is told, and what it answers (upstream: `plugin/webhook/request`).

use std::collections::BTreeMap;

use api::codec::json::{encode_any, encode_kind, write_string};
use api::go::{json_word, quote};
use api::{Gvk, Node, Schema, Status, Struct, Text, base64_text};

use super::Versioned;
use crate::admission::matching::Matched;
use crate::admission::{AdmissionRequest, Operation};
use crate::webhook::Document;

pub(super) const GROUP: &str = "admission.k8s.io";
pub(super) const KIND: &str = "AdmissionReview";

/// Writes an object of JSON, in the order in which Go writes it.
struct Writer {
    out: Vec<u8>,
}

impl Writer {
    fn key(&mut self, key: &str) {
        if !matches!(self.out.last(), Some(b'{' | b'[')) {
            self.out.push(b',');
        }
        write_string(key, &mut self.out);
        self.out.push(b':');
    }
    fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        write_string(value, &mut self.out);
    }
    /// A text that is left out where it is empty.
    fn given(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.text(key, value);
        }
    }
    fn begin(&mut self, key: &str) {
        self.key(key);
        self.out.push(b'{');
    }
    fn end(&mut self) {
        self.out.push(b'}');
    }
    fn list(&mut self, key: &str, values: &[Text]) {
        self.key(key);
        self.out.push(b'[');
        for (i, value) in values.iter().enumerate() {
            if i > 0 {
                self.out.push(b',');
            }
            write_string(value, &mut self.out);
        }
        self.out.push(b']');
    }
    fn object(&mut self, key: &str, schema: &Schema, kind: &Gvk, tree: Option<&Struct>) {
        self.key(key);
        match tree {
            Some(tree) => encode_kind(schema, kind, tree, &mut self.out),
            None => self.out.extend_from_slice(b"null"),
        }
    }
    fn kind(&mut self, key: &str, kind: &Gvk) {
        self.begin(key);
        self.text("group", &kind.group);
        self.text("version", &kind.version);
        self.text("kind", &kind.kind);
        self.end();
    }
    fn resource(&mut self, key: &str, [group, version, resource]: [&str; 3]) {
        self.begin(key);
        self.text("group", group);
        self.text("version", version);
        self.text("resource", resource);
        self.end();
    }
}

/// The text of a review in a version.
pub(super) fn text(
    version: &str,
    uid: &str,
    request: &AdmissionRequest<'_>,
    matched: &Matched,
    objects: &Versioned<'_>,
) -> Vec<u8> {
    let (info, of) = (request.info, &matched.resource);
    let mut w = Writer { out: Vec::with_capacity(4096) };
    w.out.push(b'{');
    w.text("kind", KIND);
    w.text("apiVersion", &format!("{GROUP}/{version}"));
    w.begin("request");
    w.text("uid", uid);
    w.kind("kind", &of.kind);
    w.resource("resource", [&*of.group, &*of.version, &*of.resource]);
    w.given("subResource", request.subresource);
    w.kind("requestKind", request.request_kind);
    w.resource("requestResource", [&*info.group, &*info.version, request.resource]);
    w.given("requestSubResource", request.subresource);
    w.given("name", request.name);
    w.given("namespace", request.namespace);
    w.text("operation", request.operation.name());
    w.begin("userInfo");
    let user = request.user;
    w.given("username", &user.name);
    w.given("uid", &user.uid);
    if !user.groups.is_empty() {
        w.list("groups", &user.groups);
    }
    if !user.extra.is_empty() {
        w.begin("extra");
        for (key, values) in &user.extra {
            w.list(key, values);
        }
        w.end();
    }
    w.end();
    let schema = request.versions.schema();
    w.object("object", schema, &of.kind, objects.object.as_deref());
    w.object("oldObject", schema, &of.kind, objects.old.as_deref());
    w.key("dryRun");
    w.out.extend_from_slice(if request.dry_run { b"true" } else { b"false" });
    let options = if request.operation == Operation::Connect { None } else { request.options.tree(schema) };
    let kind = Gvk::new("meta.k8s.io", "v1", request.options.kind());
    w.object("options", schema, &kind, options.as_ref());
    w.end();
    w.end();
    w.out
}

/// `AdmissionResponse` on the wire.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Wire {
    uid: String,
    allowed: bool,
    status: Option<Status>,
    patch: Vec<u8>,
    patch_type: Option<String>,
    annotations: BTreeMap<String, String>,
    warnings: Vec<String>,
}

impl Wire {
    /// Reads the response of a review, if it has one. The error is that of Go's decoder, for which `null` is nothing.
    pub(super) fn of(document: &Document) -> Result<Option<Self>, String> {
        let map = match document.content.get("response") {
            None | Some(Node::Null) => return Ok(None),
            Some(Node::Map(map)) => map,
            Some(other) => {
                let found = json_word(other);
                return Err(format!(
                    "json: cannot unmarshal {found} into Go struct field AdmissionReview.response of type v1.AdmissionResponse"
                ));
            }
        };
        let mut wire = Self::default();
        map.iter().try_for_each(|(key, value)| wire.take(key, value)).map(|()| Some(wire))
    }

    fn take(&mut self, key: &str, value: &Node) -> Result<(), String> {
        match (key, value) {
            (_, Node::Null) => {}
            ("uid", Node::Str(uid)) => self.uid = uid.to_string(),
            ("uid", other) => return Err(mismatch(key, other, "types.UID")),
            ("allowed", Node::Bool(allowed)) => self.allowed = *allowed,
            ("allowed", other) => return Err(mismatch(key, other, "bool")),
            ("status", Node::Map(_)) => {
                let mut text = Vec::new();
                encode_any(value, &mut text);
                let status = serde_json::from_slice(&text);
                self.status = Some(status.map_err(|e| format!("json: cannot unmarshal: {e}"))?);
            }
            ("status", other) => return Err(mismatch(key, other, "v1.Status")),
            ("patch", Node::Str(text)) => self.patch = base64_text::decode(text)?,
            ("patch", other) => return Err(mismatch(key, other, "[]uint8")),
            ("patchType", Node::Str(kind)) => self.patch_type = Some(kind.to_string()),
            ("patchType", other) => return Err(mismatch(key, other, "v1.PatchType")),
            ("auditAnnotations", Node::Map(map)) => {
                let texts = map.iter().map(|(name, value)| Ok((name.to_string(), text_of(key, value)?)));
                self.annotations = texts.collect::<Result<_, String>>()?;
            }
            ("auditAnnotations", other) => return Err(mismatch(key, other, "map[string]string")),
            ("warnings", Node::List(list)) => {
                self.warnings = list.iter().map(|value| text_of(key, value)).collect::<Result<_, _>>()?;
            }
            ("warnings", other) => return Err(mismatch(key, other, "[]string")),
            _ => {}
        }
        Ok(())
    }
}

/// Go's error for a value of another type than a field of the response has.
fn mismatch(key: &str, found: &Node, wanted: &str) -> String {
    let found = json_word(found);
    format!(
        "json: cannot unmarshal {found} into Go struct field AdmissionResponse.response.{key} of type {wanted}"
    )
}

/// A text within a field of the response.
fn text_of(key: &str, value: &Node) -> Result<String, String> {
    match value {
        Node::Str(text) => Ok(text.to_string()),
        Node::Null => Ok(String::new()),
        other => Err(mismatch(key, other, "string")),
    }
}

/// The answer of a webhook.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Response {
    pub(super) allowed: bool,
    pub(super) result: Option<Status>,
    /// The text of a patch; empty for none.
    pub(super) patch: Vec<u8>,
    pub(super) patch_type: String,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) warnings: Vec<String>,
}

/// Checks an answer to the review of this uid and version; the error is upstream's.
pub(super) fn verify(
    version: &str,
    uid: &str,
    mutating: bool,
    document: &Document,
    wire: Option<Wire>,
) -> Result<Response, String> {
    let wire = wire.ok_or("webhook response was absent")?;
    let patch = wire.patch;
    let mut patch_type = String::new();
    if version == "v1" {
        if wire.uid != uid {
            return Err(format!("expected response.uid={}, got {}", quote(uid), quote(&wire.uid)));
        }
        let Document { api_version, kind, .. } = document;
        if api_version.split_once('/') != Some((GROUP, "v1")) || kind != KIND {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            return Err(format!(
                "expected webhook response of {GROUP}/v1, Kind={KIND}, got {group}/{version}, Kind={kind}"
            ));
        }
        match (mutating, patch.is_empty(), &wire.patch_type) {
            (true, false, None) => {
                return Err("webhook returned response.patch but not response.patchType".into());
            }
            (true, true, Some(_)) => {
                return Err("webhook returned response.patchType but not response.patch".into());
            }
            (true, _, Some(kind)) if kind.is_empty() => {
                return Err(format!("webhook returned invalid response.patchType of {}", quote(kind)));
            }
            (false, false, _) => return Err("validating webhook may not return response.patch".into()),
            (false, true, Some(_)) => {
                return Err("validating webhook may not return response.patchType".into());
            }
            _ => {}
        }
        patch_type = wire.patch_type.unwrap_or_default();
    } else if mutating && !patch.is_empty() {
        // This version never said which type; there is one.
        patch_type = "JSONPatch".into();
    }
    Ok(Response {
        allowed: wire.allowed,
        result: wire.status,
        patch: if mutating { patch } else { Vec::new() },
        patch_type,
        annotations: wire.annotations,
        warnings: wire.warnings,
    })
}

/// The refusal of a webhook; upstream's `ToStatusErr`.
pub(super) fn refusal(name: &str, result: Option<Status>) -> Status {
    let mut status = result.unwrap_or_default();
    status.code = status.code.max(400);
    if matches!(status.status.as_str(), "" | "Success") {
        status.status = "Failure".into();
    }
    let denied = format!("admission webhook {} denied the request", quote(name));
    status.message = if !status.message.is_empty() {
        format!("{denied}: {}", status.message)
    } else if !status.reason.is_empty() {
        format!("{denied}: {}", status.reason)
    } else {
        format!("{denied} without explanation")
    };
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn verified(version: &str, mutating: bool, review: &Value) -> Result<Response, String> {
        let body = review.to_string();
        let other = if version == "v1" { "v1beta1" } else { "v1" };
        let document =
            Document::read(body.as_bytes(), (GROUP, version), other, KIND).map_err(|e| e.to_string())?;
        let wire = Wire::of(&document)?;
        verify(version, "123", mutating, &document, wire)
    }

    /// Upstream's `TestVerifyAdmissionResponse`.
    #[test]
    fn answers() {
        let of = |version: &str, response: Value| json!({"apiVersion": format!("{GROUP}/{version}"), "kind": KIND, "response": response});
        let check = |version: &str, mutating: bool, review: Value, expected: Result<Response, &str>| {
            let got = verified(version, mutating, &review);
            assert_eq!(got, expected.map_err(str::to_owned), "{review}");
        };
        let allowed = || Response { allowed: true, ..Response::default() };
        for mutating in [false, true] {
            check("v1beta1", mutating, of("v1beta1", json!({"allowed": true})), Ok(allowed()));
            check("v1", mutating, of("v1", json!({"uid": "123", "allowed": true})), Ok(allowed()));
        }
        let annotated =
            || Response { annotations: BTreeMap::from([("foo".into(), "bar".into())]), ..allowed() };
        let notes = json!({"uid": "123", "allowed": true, "auditAnnotations": {"foo": "bar"}});
        check("v1beta1", false, of("v1beta1", notes.clone()), Ok(annotated()));
        check("v1", false, of("v1", notes), Ok(annotated()));
        let patch =
            |kind: Value| json!({"uid": "123", "allowed": true, "patch": "W3t9XQ==", "patchType": kind});
        let patched = || Response { patch: b"[{}]".to_vec(), patch_type: "JSONPatch".into(), ..allowed() };
        check("v1beta1", true, of("v1beta1", json!({"allowed": true, "patch": "W3t9XQ=="})), Ok(patched()));
        check("v1beta1", true, of("v1beta1", patch(json!("Foo"))), Ok(patched()));
        check("v1", true, of("v1", patch(json!("JSONPatch"))), Ok(patched()));
        check("v1beta1", false, of("v1beta1", patch(json!("JSONPatch"))), Ok(allowed()));
        check(
            "v1",
            false,
            of("v1", patch(json!("JSONPatch"))),
            Err("validating webhook may not return response.patch"),
        );
        check(
            "v1",
            false,
            of("v1", json!({"uid": "123", "allowed": true, "patchType": "JSONPatch"})),
            Err("validating webhook may not return response.patchType"),
        );
        check(
            "v1",
            true,
            of("v1", patch(Value::Null)),
            Err("webhook returned response.patch but not response.patchType"),
        );
        check(
            "v1",
            true,
            of("v1", patch(json!(""))),
            Err("webhook returned invalid response.patchType of \"\""),
        );
        check(
            "v1",
            true,
            of("v1", json!({"uid": "123", "allowed": true, "patchType": "JSONPatch"})),
            Err("webhook returned response.patchType but not response.patch"),
        );
        let refused = json!({"uid": "123", "allowed": false, "status": {"code": 418, "message": "no"}});
        let status = Status { code: 418, message: "no".into(), ..Status::default() };
        let no = || Response { result: Some(status.clone()), ..Response::default() };
        check("v1", false, of("v1", refused.clone()), Ok(no()));
        check("v1beta1", false, of("v1beta1", refused), Ok(no()));
        for version in ["v1", "v1beta1"] {
            check(version, false, of(version, Value::Null), Err("webhook response was absent"));
        }
        check("v1", false, of("v1", json!({"uid": "x"})), Err("expected response.uid=\"123\", got \"x\""));
        check("v1beta1", false, json!({"response": {"allowed": true, "uid": "x"}}), Ok(allowed()));
        check(
            "v1",
            false,
            json!({"response": {"allowed": true, "uid": "123"}}),
            Err("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="),
        );
    }

    /// Go's decoder: `null` is nothing, and other types than it wants are told.
    #[test]
    fn answers_are_read_as_go_reads_them() {
        let check = |response: Value, expected: Result<Response, &str>| {
            let review = json!({"apiVersion": format!("{GROUP}/v1"), "kind": KIND, "response": response});
            assert_eq!(verified("v1", true, &review), expected.map_err(str::to_owned), "{review}");
        };
        let nothing = json!({"uid": "123", "allowed": null, "status": null, "patch": null, "auditAnnotations": null, "warnings": null});
        check(nothing, Ok(Response::default()));
        for (field, value, expected) in [
            (
                "allowed",
                json!("yes"),
                "string into Go struct field AdmissionResponse.response.allowed of type bool",
            ),
            ("uid", json!(1), "number into Go struct field AdmissionResponse.response.uid of type types.UID"),
            (
                "warnings",
                json!({}),
                "object into Go struct field AdmissionResponse.response.warnings of type []string",
            ),
            (
                "warnings",
                json!([1]),
                "number into Go struct field AdmissionResponse.response.warnings of type string",
            ),
            (
                "patch",
                json!([]),
                "array into Go struct field AdmissionResponse.response.patch of type []uint8",
            ),
        ] {
            let mut response = json!({"uid": "123", "allowed": true});
            response[field] = value;
            check(response, Err(&format!("json: cannot unmarshal {expected}")));
        }
        let bad = json!({"uid": "123", "allowed": true, "patch": "W3t9!", "patchType": "JSONPatch"});
        check(bad, Err("illegal base64 data at input byte 4"));
        let broken =
            json!({"uid": "123", "allowed": true, "patch": "W3t9\nXQ==\n", "patchType": "JSONPatch"});
        let patched = Response {
            allowed: true,
            patch: b"[{}]".to_vec(),
            patch_type: "JSONPatch".into(),
            ..Response::default()
        };
        check(broken, Ok(patched));
        let bad = json!([]);
        check(
            bad,
            Err(
                "json: cannot unmarshal array into Go struct field AdmissionReview.response of type v1.AdmissionResponse",
            ),
        );
    }

    /// Upstream's `TestToStatusErr`.
    #[test]
    fn refusals() {
        let check = |result: Option<Status>, code: u16, reason: &str, message: &str| {
            let status = refusal("foobar", result);
            assert_eq!(
                (status.code, status.reason.as_str(), status.status.as_str()),
                (code, reason, "Failure")
            );
            assert_eq!(status.message, format!("admission webhook \"foobar\" denied the request{message}"));
        };
        let of = |code, status: &str, reason: &str, message: &str| {
            let (status, reason, message) = (status.into(), reason.into(), message.into());
            Some(Status { code, status, reason, message, ..Status::default() })
        };
        check(None, 400, "", " without explanation");
        check(of(0, "", "", ""), 400, "", " without explanation");
        check(of(0, "", "", "msg"), 400, "", ": msg");
        check(of(0, "", "reason", ""), 400, "reason", ": reason");
        check(of(0, "", "reason", "msg"), 400, "reason", ": msg");
        check(of(200, "Success", "", "msg"), 400, "", ": msg");
        check(of(422, "", "", "msg"), 422, "", ": msg");
    }
}
