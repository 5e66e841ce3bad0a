//! The options of each verb, from query parameters, with upstream's checks.

use std::time::Duration;

use access::Query;
use access::admission::{DeleteOptions, Propagation};
use api::status::{FieldError, FieldErrorKind};
use api::view::View;
use api::{Status, Text};

/// The field of `DeleteOptions` by which an object is deleted that cannot be read.
pub(crate) const UNREADABLE_OPTION: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

/// One thing that is wrong with [`UNREADABLE_OPTION`].
pub(crate) fn unreadable_option_error(why: &str) -> FieldError {
    error(FieldErrorKind::Invalid, UNREADABLE_OPTION, Some("true".into()), why)
}

/// The group of the options.
pub(crate) const META: &str = "meta.k8s.io";

/// The treatment of fields that the schema does not know, and of fields that are given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FieldValidation {
    /// Drop them in silence.
    Ignore,
    /// Drop them and say so in Warning headers.
    #[default]
    Warn,
    /// Refuse the request.
    Strict,
}

/// `CreateOptions`, `UpdateOptions` and `PatchOptions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WriteOptions {
    /// Nothing is stored.
    pub dry_run: bool,
    /// The manager that is recorded in managedFields; "" for the user agent.
    pub field_manager: Text,
    /// Unknown and duplicate fields.
    pub field_validation: FieldValidation,
    /// Take over fields that other appliers own.
    pub force: Option<bool>,
}

/// How long the client waits for a request (`timeout=`); no time, and none at all, if it does not say.
pub(crate) fn timeout(query: &Query) -> Result<Option<Duration>, Status> {
    let text = query.str("timeout");
    if text.is_empty() {
        return Ok(None);
    }
    let wanted = api::time::parse_duration(text).ok_or_else(|| {
        Status::bad_request(format!(
            "invalid timeout specified in the request URL - time: invalid duration {text:?}"
        ))
    })?;
    Ok(Duration::try_from(wanted).ok().filter(|t| !t.is_zero()))
}

/// Which `*Options` kind is checked; it stands in the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteKind {
    /// A create.
    Create,
    /// An update.
    Update,
    /// A patch that is no apply.
    Patch,
    /// Server-side apply.
    Apply,
}

fn error(kind: FieldErrorKind, field: &str, value: Option<String>, detail: impl Into<String>) -> FieldError {
    FieldError { kind, field: field.into(), value, detail: detail.into() }
}

fn not_supported(field: &str, value: &str, supported: &[&str]) -> FieldError {
    let list: Vec<String> = supported.iter().map(|v| format!("{v:?}")).collect();
    error(
        FieldErrorKind::NotSupported,
        field,
        Some(format!("{value:?}")),
        format!("supported values: {}", list.join(", ")),
    )
}

fn check_dry_run<'a>(values: impl Iterator<Item = &'a str>, errors: &mut Vec<FieldError>) -> bool {
    let values: Vec<&str> = values.collect();
    if values.iter().any(|v| *v != "All") {
        let shown = format!("[{}]", values.iter().map(|v| format!("{v:?}")).collect::<Vec<_>>().join(","));
        errors.push(error(FieldErrorKind::NotSupported, "dryRun", Some(shown), "supported values: \"All\""));
    }
    !values.is_empty()
}

fn check_manager(manager: &str, errors: &mut Vec<FieldError>) {
    if manager.len() > 128 {
        errors.push(error(FieldErrorKind::TooLong, "fieldManager", None, "may not be more than 128 bytes"));
    }
    if let Some((at, c)) = manager.char_indices().find(|(_, c)| c.is_control()) {
        errors.push(error(
            FieldErrorKind::Invalid,
            "fieldManager",
            Some(format!("{manager:?}")),
            format!("invalid character U+{:04X} (at position {at}) is not printable", c as u32),
        ));
    }
}

/// Reads the options of a write.
pub(crate) fn write_options(query: &Query, kind: WriteKind) -> Result<WriteOptions, Status> {
    let mut errors = Vec::new();
    let mut options = WriteOptions { field_manager: query.str("fieldManager").into(), ..Default::default() };
    if matches!(kind, WriteKind::Patch | WriteKind::Apply) {
        options.force = query.bool("force");
        if kind == WriteKind::Apply {
            if options.field_manager.is_empty() {
                errors.push(error(
                    FieldErrorKind::Required,
                    "fieldManager",
                    None,
                    "is required for apply patch",
                ));
            }
        } else if options.force.is_some() {
            errors.push(error(
                FieldErrorKind::Forbidden,
                "force",
                None,
                "may not be specified for non-apply patch",
            ));
        }
    }
    check_manager(&options.field_manager, &mut errors);
    options.dry_run = check_dry_run(query.all("dryRun"), &mut errors);
    options.field_validation = match query.str("fieldValidation") {
        "" | "Warn" => FieldValidation::Warn,
        "Strict" => FieldValidation::Strict,
        "Ignore" => FieldValidation::Ignore,
        other => {
            errors.push(not_supported("fieldValidation", other, &["", "Ignore", "Strict", "Warn"]));
            FieldValidation::Warn
        }
    };
    if errors.is_empty() {
        return Ok(options);
    }
    let kind = match kind {
        WriteKind::Create => "CreateOptions",
        WriteKind::Update => "UpdateOptions",
        WriteKind::Patch | WriteKind::Apply => "PatchOptions",
    };
    Err(Status::invalid(META, kind, "", &errors))
}

/// `DeleteOptions` of a body's tree; whether objects that cannot be read may be deleted.
pub(crate) fn delete_options_of_tree(
    options: View<'_>,
    unsafe_deletion: bool,
) -> Result<DeleteOptions, Status> {
    let preconditions = options.st("preconditions");
    let read = DeleteOptions {
        ignore_read_error: unsafe_deletion && options.bool(UNREADABLE_OPTION),
        grace: options.opt_int("gracePeriodSeconds"),
        uid: preconditions.opt_str("uid").map(Text::from),
        resource_version: preconditions.opt_str("resourceVersion").map(Text::from),
        orphan_dependents: options.opt_bool("orphanDependents"),
        ..DeleteOptions::default()
    };
    checked(read, options.opt_str("propagationPolicy"), options.strs("dryRun"), options.has("preconditions"))
}

/// `DeleteOptions` of a query, when there is no body; whether objects that cannot be read may be deleted.
pub(crate) fn delete_options_of_query(query: &Query, unsafe_deletion: bool) -> Result<DeleteOptions, Status> {
    let read = DeleteOptions {
        ignore_read_error: unsafe_deletion && query.bool(UNREADABLE_OPTION) == Some(true),
        grace: query.int("gracePeriodSeconds")?,
        orphan_dependents: query.bool("orphanDependents"),
        ..DeleteOptions::default()
    };
    checked(read, query.get("propagationPolicy").filter(|p| !p.is_empty()), query.all("dryRun"), false)
}

fn checked<'a>(
    mut options: DeleteOptions,
    propagation: Option<&str>,
    dry_run: impl Iterator<Item = &'a str>,
    preconditions: bool,
) -> Result<DeleteOptions, Status> {
    let mut errors = Vec::new();
    if propagation.is_some() && options.orphan_dependents.is_some() {
        errors.push(error(
            FieldErrorKind::Invalid,
            "propagationPolicy",
            propagation.map(|p| format!("{p:?}")),
            "orphanDependents and deletionPropagation cannot be both set",
        ));
    }
    options.propagation = match propagation {
        None => None,
        Some("Orphan") => Some(Propagation::Orphan),
        Some("Background") => Some(Propagation::Background),
        Some("Foreground") => Some(Propagation::Foreground),
        Some(other) => {
            errors.push(not_supported(
                "propagationPolicy",
                other,
                &["Foreground", "Background", "Orphan", "nil"],
            ));
            None
        }
    };
    options.dry_run = check_dry_run(dry_run, &mut errors);
    if options.ignore_read_error {
        let others = [
            (options.dry_run, "dryRun"),
            (propagation.is_some(), "propagationPolicy"),
            (options.orphan_dependents.is_some(), "orphanDependents"),
            (options.grace.is_some(), "gracePeriodSeconds"),
            (preconditions, "preconditions"),
        ];
        let set = others.iter().filter(|(set, _)| *set);
        errors.extend(
            set.map(|(_, other)| unreadable_option_error(&format!("cannot be set together with .{other}"))),
        );
    }
    if errors.is_empty() { Ok(options) } else { Err(Status::invalid(META, "DeleteOptions", "", &errors)) }
}

/// `resourceVersionMatch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match {
    /// Exactly that state.
    Exact,
    /// That state or a later one.
    NotOlderThan,
}

/// `ListOptions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ListOptions {
    /// As sent.
    pub label_selector: String,
    /// As sent.
    pub field_selector: String,
    /// A watch is asked for.
    pub watch: bool,
    /// Bookmarks are welcome.
    pub bookmarks: bool,
    /// As sent; see [`ListOptions::revision`].
    pub resource_version: String,
    /// How to read it.
    pub matching: Option<Match>,
    /// Seconds until a watch ends.
    pub timeout: Option<i64>,
    /// At most so many items; 0 for all.
    pub limit: i64,
    /// Where to go on.
    pub token: String,
    /// A watch begins with the current state; `None` where neither asked nor implied.
    pub initial_events: Option<bool>,
}

impl ListOptions {
    /// Reads, sets the implied, checks.
    pub(crate) fn from_query(query: &Query, force_watch: bool) -> Result<Self, Status> {
        let mut o = Self {
            label_selector: query.str("labelSelector").into(),
            field_selector: query.str("fieldSelector").into(),
            watch: force_watch || query.bool("watch").unwrap_or_default(),
            bookmarks: query.bool("allowWatchBookmarks").unwrap_or_default(),
            resource_version: query.str("resourceVersion").into(),
            matching: None,
            timeout: query.int("timeoutSeconds")?,
            limit: query.int("limit")?.unwrap_or_default(),
            token: query.str("continue").into(),
            initial_events: query.bool("sendInitialEvents"),
        };
        let mut matching = query.str("resourceVersionMatch");
        let mut errors = Vec::new();
        let forbidden = |field: &str, why: &str| error(FieldErrorKind::Forbidden, field, None, why);
        if o.watch {
            if o.initial_events.is_none()
                && matching.is_empty()
                && matches!(o.resource_version.as_str(), "" | "0")
            {
                o.initial_events = Some(true);
                matching = "NotOlderThan";
            }
            if o.initial_events.is_some() && matching != "NotOlderThan" {
                errors.push(forbidden(
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ));
            }
            if !matching.is_empty() {
                if o.initial_events.is_none() {
                    errors.push(forbidden(
                        "resourceVersionMatch",
                        "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                    ));
                }
                if matching != "NotOlderThan" {
                    errors.push(not_supported("resourceVersionMatch", matching, &["NotOlderThan"]));
                }
                if !o.token.is_empty() {
                    errors.push(forbidden(
                        "resourceVersionMatch",
                        "resourceVersionMatch is forbidden when continue is provided",
                    ));
                }
            }
        } else {
            if !matching.is_empty() {
                if o.resource_version.is_empty() {
                    errors.push(forbidden(
                        "resourceVersionMatch",
                        "resourceVersionMatch is forbidden unless resourceVersion is provided",
                    ));
                }
                if !o.token.is_empty() {
                    errors.push(forbidden(
                        "resourceVersionMatch",
                        "resourceVersionMatch is forbidden when continue is provided",
                    ));
                }
                if !matches!(matching, "Exact" | "NotOlderThan") {
                    errors.push(not_supported(
                        "resourceVersionMatch",
                        matching,
                        &["Exact", "NotOlderThan", ""],
                    ));
                }
                if matching == "Exact" && o.resource_version == "0" {
                    errors.push(forbidden(
                        "resourceVersionMatch",
                        "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                    ));
                }
            }
            if o.initial_events.is_some() {
                errors.push(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
            }
        }
        if !errors.is_empty() {
            return Err(Status::invalid(META, "ListOptions", "", &errors));
        }
        o.matching = match matching {
            "Exact" => Some(Match::Exact),
            "NotOlderThan" => Some(Match::NotOlderThan),
            _ => None,
        };
        Ok(o)
    }
    /// The resourceVersion as a number; 0 for "" and "0".
    pub(crate) fn revision(&self) -> Result<u64, Status> {
        revision(&self.resource_version)
    }
}

/// A resourceVersion as a number; "" is 0. Upstream's error otherwise.
pub(crate) fn revision(text: &str) -> Result<u64, Status> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|e: std::num::ParseIntError| {
        let why = api::go::no_integer("ParseUint", text, &e);
        Status::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {text:?}: {why}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;
    use crate::negotiate::Format;

    #[test]
    fn list_rules() {
        let check = |query: &str, expected: &str| {
            let message = ListOptions::from_query(&Query::parse(query), false).err().map(|s| s.message);
            assert_eq!(message.unwrap_or_default(), expected, "{query}");
        };
        check("resourceVersion=5&resourceVersionMatch=Exact", "");
        check("watch=1", "");
        check(
            "resourceVersionMatch=Exact",
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        );
        check(
            "resourceVersion=0&resourceVersionMatch=Exact",
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        );
        check(
            "sendInitialEvents=true",
            "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
        );
        check(
            "watch=1&resourceVersion=7&sendInitialEvents=true",
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        );
    }

    #[test]
    fn delete_options_from_body_and_query() {
        let schema = api::Schema::builtin();
        let read = |body: &str| {
            let tree = codec::delete_options(schema, Format::Json, body.as_bytes())?;
            delete_options_of_tree(View::new(schema, &tree), false)
        };
        let o = read(
            r#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"preconditions":{"uid":"u"},"propagationPolicy":"Background"}"#,
        )
        .unwrap();
        assert_eq!(o.grace, Some(0));
        assert_eq!(o.uid.as_deref(), Some("u"));
        assert_eq!(o.propagation, Some(Propagation::Background));
        assert!(read("null").is_ok());
        for (body, code) in [
            ("[]", 400),
            ("[0]", 400),
            ("1", 400),
            ("\"x\"", 400),
            ("true", 400),
            ("{", 400),
            (r#"{"preconditions":[]}"#, 400),
            (r#"{"ignoreStoreReadErrorWithClusterBreakingPotential":1}"#, 400),
            (r#"{"propagationPolicy":""}"#, 422),
            (r#"{"dryRun":["Some"]}"#, 422),
        ] {
            assert_eq!(read(body).unwrap_err().code, code, "{body}");
        }
        let o = delete_options_of_query(&Query::parse("propagationPolicy=Orphan&dryRun=All"), false).unwrap();
        assert!(o.dry_run && o.propagation == Some(Propagation::Orphan));
        assert!(delete_options_of_query(&Query::parse("propagationPolicy=Never"), false).is_err());
    }

    #[test]
    fn unsafe_deletion_goes_with_nothing_else() {
        let schema = api::Schema::builtin();
        let check = |with: &str, allowed: bool, expected: Result<bool, &str>| {
            let body = format!(r#"{{"ignoreStoreReadErrorWithClusterBreakingPotential":true{with}}}"#);
            let tree = codec::delete_options(schema, Format::Json, body.as_bytes()).unwrap();
            let read = delete_options_of_tree(View::new(schema, &tree), allowed);
            let start = "DeleteOptions.meta.k8s.io \"\" is invalid: ";
            let expected = expected.map_err(|why| format!("{start}{why}"));
            assert_eq!(read.map(|o| o.ignore_read_error).map_err(|s| s.message), expected, "{body}");
        };
        let one = |other: &str| {
            format!("{UNREADABLE_OPTION}: Invalid value: true: cannot be set together with .{other}")
        };
        check("", true, Ok(true));
        check("", false, Ok(false));
        check(r#","dryRun":[]"#, true, Ok(true));
        check(r#","dryRun":["All"]"#, false, Ok(false));
        for (other, with) in [
            ("dryRun", r#""dryRun":["All"]"#),
            ("propagationPolicy", r#""propagationPolicy":"Orphan""#),
            ("orphanDependents", r#""orphanDependents":false"#),
            ("gracePeriodSeconds", r#""gracePeriodSeconds":0"#),
            ("preconditions", r#""preconditions":{}"#),
        ] {
            check(&format!(",{with}"), true, Err(&one(other)));
        }
        let both = format!("[{}, {}]", one("dryRun"), one("gracePeriodSeconds"));
        check(r#","gracePeriodSeconds":1,"dryRun":["All"]"#, true, Err(&both));
        let query =
            Query::parse("ignoreStoreReadErrorWithClusterBreakingPotential=true&gracePeriodSeconds=1");
        assert_eq!(delete_options_of_query(&query, true).unwrap_err().code, 422);
        assert!(!delete_options_of_query(&query, false).unwrap().ignore_read_error);
    }
}
