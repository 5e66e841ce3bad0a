//! Errors as clients see them: upstream's `metav1.Status`, and field errors with upstream's texts.

use crate::go::quote;
use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// `metav1.Status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// `Success` or `Failure`.
    pub status: String,
    /// The error in words, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The error as a word for programs (`NotFound`, `Conflict`, …).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Details of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<Details>>,
    /// HTTP status code; 0 is left out, and answered as 200.
    #[serde(skip_serializing_if = "is_unset")]
    pub code: u16,
    /// `metadata.continue` of a 410 for a list: a token with which the list can go on inconsistently.
    #[serde(skip)]
    pub continue_token: Option<String>,
}

/// `metav1.StatusDetails`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Details {
    /// Name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Group of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Resource or kind of the object, as upstream fills it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// uid of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Single causes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// The seconds after which the client may try again.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: i32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(i: &i32) -> bool {
    *i == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_unset(code: &u16) -> bool {
    *code == 0
}

/// `metav1.StatusCause`. Upstream's order of fields: reason, message, field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Cause {
    /// Machine-readable reason (`FieldValueInvalid`, …).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Text for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Path of the field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

impl Status {
    /// A failure.
    pub fn failure(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            status: "Failure".into(),
            message: message.into(),
            reason: reason.into(),
            code,
            ..Self::default()
        }
    }
    /// A success without more to say.
    pub fn success() -> Self {
        Self { status: "Success".into(), code: 200, ..Self::default() }
    }
    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        self.details = Some(Box::new(Details {
            name: name.into(),
            group: group.into(),
            kind: kind.into(),
            ..Details::default()
        }));
        self
    }
    /// 400 with a text.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(400, "BadRequest", message)
    }
    /// 401.
    pub fn unauthorized() -> Self {
        Self::failure(401, "Unauthorized", "Unauthorized")
    }
    /// 403 for an object of a resource; `why` follows the colon.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: impl fmt::Display) -> Self {
        let subject = qualified(group, resource);
        let message = if name.is_empty() {
            format!("{subject} is forbidden: {why}")
        } else {
            format!("{subject} {} is forbidden: {why}", quote(name))
        };
        Self::failure(403, "Forbidden", message).about(group, resource, name)
    }
    /// 404 for an object.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        Self::failure(404, "NotFound", format!("{} {} not found", qualified(group, resource), quote(name)))
            .about(group, resource, name)
    }
    /// 404 for a path that is no resource.
    pub fn no_such_resource() -> Self {
        let mut s = Self::failure(404, "NotFound", "the server could not find the requested resource");
        s.details = Some(Box::default());
        s
    }
    /// 409 because the name is taken.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        Self::failure(
            409,
            "AlreadyExists",
            format!("{} {} already exists", qualified(group, resource), quote(name)),
        )
        .about(group, resource, name)
    }
    /// 409 because of another write.
    pub fn conflict(group: &str, resource: &str, name: &str, why: impl fmt::Display) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} {}: {why}", qualified(group, resource), quote(name));
        Self::failure(409, "Conflict", message).about(group, resource, name)
    }
    /// 410.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(410, "Expired", message)
    }
    /// 422 with its field errors.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let subject = qualified(group, kind);
        let (shown, more) = shown(errors);
        let mut seen = HashSet::with_capacity(shown.len());
        let mut all: Vec<String> = Vec::with_capacity(shown.len() + 1);
        for e in &shown {
            let text = e.to_string();
            if !seen.contains(&text) {
                seen.insert(text.clone());
                all.push(text);
            }
        }
        let cause = |e: &&FieldError| Cause {
            reason: e.kind.reason().into(),
            message: e.body(),
            field: e.field.clone(),
        };
        let mut causes: Vec<Cause> = shown.iter().map(cause).collect();
        if more > 0 {
            let rest = FieldError::more(more);
            all.push(rest.to_string());
            causes.push(Cause { message: rest.to_string(), ..Cause::default() });
        }
        let what = match all.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut s = Self::failure(422, "Invalid", format!("{subject} {} is invalid: {what}", quote(name)))
            .about(group, kind, name);
        if let Some(d) = &mut s.details {
            d.causes = causes;
        }
        s
    }
    /// 405.
    pub fn method_not_supported(group: &str, resource: &str, verb: &str) -> Self {
        let mut s = Self::failure(
            405,
            "MethodNotAllowed",
            format!("{verb} is not supported on resources of kind \"{}\"", qualified(group, resource)),
        );
        s.details =
            Some(Box::new(Details { group: group.into(), kind: resource.into(), ..Details::default() }));
        s
    }
    /// 500.
    pub fn internal(why: impl fmt::Display) -> Self {
        let mut s = Self::failure(500, "InternalError", format!("Internal error occurred: {why}"));
        s.details = Some(Box::new(Details {
            causes: vec![Cause { message: why.to_string(), ..Cause::default() }],
            ..Details::default()
        }));
        s
    }
    /// Whether the reason is the given one.
    pub fn is(&self, reason: &str) -> bool {
        self.reason == reason
    }
    /// Whether the status is a 404.
    pub fn is_not_found(&self) -> bool {
        self.is("NotFound")
    }
    /// Whether the status is a conflict with another write.
    pub fn is_conflict(&self) -> bool {
        self.is("Conflict")
    }
    /// Whether the status says that the name was taken.
    pub fn is_already_exists(&self) -> bool {
        self.is("AlreadyExists")
    }
    /// The JSON of the status as upstream writes it, with kind and version.
    pub fn to_json(&self) -> Vec<u8> {
        self.json(Some(("Status", "v1")), false)
    }
    /// The same, indented for people.
    pub fn to_pretty_json(&self) -> Vec<u8> {
        self.json(Some(("Status", "v1")), true)
    }
    /// The JSON of the status without kind and version, as it ends a stream.
    pub fn to_untyped_json(&self) -> Vec<u8> {
        self.json(None, false)
    }
    fn json(&self, kind: Option<(&str, &str)>, pretty: bool) -> Vec<u8> {
        #[derive(Serialize)]
        struct Meta<'a> {
            #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
            token: &'a Option<String>,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Full<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            kind: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            api_version: Option<&'a str>,
            metadata: Meta<'a>,
            #[serde(flatten)]
            status: &'a Status,
        }
        let full = Full {
            kind: kind.map(|(kind, _)| kind),
            api_version: kind.map(|(_, version)| version),
            metadata: Meta { token: &self.continue_token },
            status: self,
        };
        let written = if pretty { serde_json::to_vec_pretty(&full) } else { serde_json::to_vec(&full) };
        written.unwrap_or_default()
    }
}

/// `resource.group`, or `resource` for the core group.
pub fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

/// The kind of a field error; upstream's `field.ErrorType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// A referenced thing does not exist.
    NotFound,
    /// A value is missing where one must be.
    Required,
    /// A value stands twice where it must be unique.
    Duplicate,
    /// A malformed or out-of-range value.
    Invalid,
    /// A value is none of the fixed set that is wanted.
    NotSupported,
    /// A valid value that may not stand here.
    Forbidden,
    /// Too long a string.
    TooLong,
    /// Too many elements.
    TooMany,
    /// Something failed inside.
    Internal,
    /// A value is of another type.
    TypeInvalid,
    /// So many more errors are not shown.
    More(usize),
}

impl FieldErrorKind {
    /// The text at the start of a message.
    pub fn text(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
            Self::More(_) => "",
        }
    }
    /// The reason of a cause.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Internal => "InternalError",
            Self::More(_) => "",
        }
    }
}

/// One field error: where, what kind, the value as upstream prints it, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// Kind.
    pub kind: FieldErrorKind,
    /// Path, e.g. `spec.containers[0].image`.
    pub field: String,
    /// The bad value as upstream prints it (a string quoted, a number bare, a struct as JSON); `None` where upstream
    /// prints none.
    pub value: Option<String>,
    /// The reason, in words.
    pub detail: String,
}

impl FieldError {
    /// An entry that stands for `more` errors that are not shown.
    pub fn more(more: usize) -> Self {
        Self { kind: FieldErrorKind::More(more), field: String::new(), value: None, detail: String::new() }
    }
    /// The text after the field's path, as in a cause's message.
    pub fn body(&self) -> String {
        let mut s = self.kind.text().to_owned();
        if let Some(v) = &self.value {
            s.push_str(": ");
            s.push_str(v);
        }
        if !self.detail.is_empty() {
            s.push_str(": ");
            s.push_str(&self.detail);
        }
        s
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            FieldErrorKind::More(1) => f.write_str("1 more error"),
            FieldErrorKind::More(more) => write!(f, "{more} more errors"),
            _ => write!(f, "{}: {}", self.field, self.body()),
        }
    }
}

/// The greatest number of errors of an object that are shown.
///
/// DIFFERENCE: upstream shows them all, each in the message and again as a cause. With 100,000 wrong labels in 3 MB, or
/// a few errors that each repeat a large value, the answer is a multiple of the request, so that a client could fill
/// memory with such requests.
const MOST_ERRORS: usize = 1000;
/// Errors are shown until their texts have so many bytes.
const MOST_BYTES: usize = 1 << 20;

/// The room for errors that is left in an answer.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    errors: usize,
    bytes: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { errors: MOST_ERRORS, bytes: MOST_BYTES }
    }
}

impl Room {
    /// Whether no further error is shown.
    pub fn is_used_up(&self) -> bool {
        self.errors == 0 || self.bytes == 0
    }
    /// Takes the room of an error. The last error may be larger than the room that is left.
    pub fn take(&mut self, e: &FieldError) {
        let size = e.field.len() + e.detail.len() + e.value.as_ref().map_or(0, String::len);
        self.errors = self.errors.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(size);
    }
}

/// The errors that an answer shows, and the number of the others.
fn shown(errors: &[FieldError]) -> (Vec<&FieldError>, usize) {
    let (mut room, mut shown, mut more) = (Room::default(), Vec::new(), 0);
    for e in errors {
        match e.kind {
            FieldErrorKind::More(n) => more += n,
            _ if room.is_used_up() => more += 1,
            _ => {
                room.take(e);
                shown.push(e);
            }
        }
    }
    (shown, more)
}
