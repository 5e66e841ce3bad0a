//! Paths of fields and the list of errors about them, with upstream's texts (`util/validation/field`).

use std::fmt;

use crate::status::{FieldError, FieldErrorKind, Room};
use crate::tree::Node;

/// The path of a field: a list linked on the stack, printed only for an error.
#[derive(Clone, Copy)]
pub struct Path<'a> {
    up: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// A field of the object; `a.b` for a field of a field.
    pub const fn root(name: &'a str) -> Self {
        Self { up: None, step: Step::Field(name) }
    }
    /// A field below this path.
    pub const fn field(&'a self, name: &'a str) -> Self {
        Self { up: Some(self), step: Step::Field(name) }
    }
    /// An element of the list at this path.
    pub const fn index(&'a self, i: usize) -> Self {
        Self { up: Some(self), step: Step::Index(i) }
    }
    /// An entry of the map at this path.
    pub const fn key(&'a self, key: &'a str) -> Self {
        Self { up: Some(self), step: Step::Key(key) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(up) = self.up {
            up.fmt(f)?;
        }
        match self.step {
            Step::Field("") => Ok(()),
            Step::Field(name) => {
                if self.up.is_some_and(|up| !up.is_root()) {
                    f.write_str(".")?;
                }
                f.write_str(name)
            }
            Step::Index(i) => write!(f, "[{i}]"),
            Step::Key(k) => write!(f, "[{k}]"),
        }
    }
}

impl Path<'_> {
    /// Whether the path is this field of the object.
    pub fn is_named(&self, field: &str) -> bool {
        self.up.is_none() && matches!(self.step, Step::Field(name) if name == field)
    }
    fn is_root(&self) -> bool {
        matches!(self.step, Step::Field("")) && self.up.is_none_or(Path::is_root)
    }
}

/// A bad value, printed as upstream prints it.
pub trait BadValue {
    /// The value as text.
    fn print(&self) -> String;
    /// The text of a value of a type of its own, as most enumerations are: Go prints that as JSON.
    fn print_typed(&self) -> String {
        self.print()
    }
}
impl BadValue for &str {
    fn print(&self) -> String {
        crate::go::quote(self)
    }
    fn print_typed(&self) -> String {
        crate::go::scalar_json(&Node::from(*self))
    }
}
/// A string of a type of its own, or behind a pointer: Go prints that as JSON.
#[derive(Clone, Copy)]
pub struct Typed<'a>(pub &'a str);
impl BadValue for Typed<'_> {
    fn print(&self) -> String {
        self.0.print_typed()
    }
}
/// A plain string where one of a type of its own is usual.
#[derive(Clone, Copy)]
pub struct Plain<'a>(pub &'a str);
impl BadValue for Plain<'_> {
    fn print(&self) -> String {
        self.0.print()
    }
}
impl BadValue for String {
    fn print(&self) -> String {
        crate::go::quote(self)
    }
    fn print_typed(&self) -> String {
        self.as_str().print_typed()
    }
}
impl BadValue for i64 {
    fn print(&self) -> String {
        self.to_string()
    }
}
impl BadValue for usize {
    fn print(&self) -> String {
        self.to_string()
    }
}
impl BadValue for bool {
    fn print(&self) -> String {
        self.to_string()
    }
}
/// A value that is printed only where the error is shown: for one that is large, and reported again and again.
pub struct Lazy<F>(pub F);
impl<F: Fn() -> String> BadValue for Lazy<F> {
    fn print(&self) -> String {
        (self.0)()
    }
}
/// Text that is printed as it is: a number, or a value's JSON.
pub struct Raw(pub String);
impl BadValue for Raw {
    fn print(&self) -> String {
        self.0.clone()
    }
}
impl BadValue for Option<&Node> {
    fn print(&self) -> String {
        match self {
            None => "null".into(),
            Some(Node::Str(s)) => crate::go::quote(s),
            Some(n) => crate::go::scalar_json(n),
        }
    }
}

/// The errors found so far, in upstream's order of checks. The errors beyond those that an answer shows are only
/// counted: the last entry says how many they are ([`FieldErrorKind::More`]).
#[derive(Default)]
pub struct Errors(pub Vec<FieldError>, Room);

impl Errors {
    /// No errors.
    pub fn new() -> Self {
        Self::default()
    }
    /// The number of errors, with those that are only counted.
    pub fn len(&self) -> usize {
        self.0.len() + self.more()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Whether further errors are only counted.
    pub fn is_full(&self) -> bool {
        matches!(self.0.last(), Some(FieldError { kind: FieldErrorKind::More(_), .. }))
    }
    /// The number of errors for which the last entry stands, beyond itself.
    fn more(&self) -> usize {
        match self.0.last().map(|e| e.kind) {
            Some(FieldErrorKind::More(more)) => more.saturating_sub(1),
            _ => 0,
        }
    }
    /// Adds an error. Its value is printed only if the error is shown.
    fn push(
        &mut self,
        kind: FieldErrorKind,
        at: &Path<'_>,
        value: Option<&dyn Fn() -> String>,
        detail: String,
    ) {
        self.push_with(kind, at, value, || detail);
    }
    fn push_with(
        &mut self,
        kind: FieldErrorKind,
        at: &Path<'_>,
        value: Option<&dyn Fn() -> String>,
        detail: impl FnOnce() -> String,
    ) {
        if self.is_full() || self.1.is_used_up() {
            self.count(1);
        } else {
            let value = value.map(|print| print());
            self.add(FieldError { kind, field: at.to_string(), value, detail: detail() });
        }
    }
    fn add(&mut self, error: FieldError) {
        self.1.take(&error);
        self.0.push(error);
    }
    /// Counts errors that are not shown.
    fn count(&mut self, more: usize) {
        match self.0.last_mut() {
            Some(FieldError { kind: FieldErrorKind::More(all), .. }) => *all += more,
            _ => self.0.push(FieldError::more(more)),
        }
    }
    /// Reports the same error so many times.
    pub fn times(&mut self, times: usize, mut f: impl FnMut(&mut Self)) {
        for done in 0..times {
            if self.is_full() {
                return self.count(times - done);
            }
            f(self);
        }
    }
    /// Adds the errors of another list.
    pub fn append(&mut self, found: Errors) {
        self.append_list(found.0);
    }
    /// Adds errors that were made elsewhere.
    pub fn append_list(&mut self, found: Vec<FieldError>) {
        for e in found {
            match e.kind {
                FieldErrorKind::More(more) => self.count(more),
                _ if self.is_full() || self.1.is_used_up() => self.count(1),
                _ => self.add(e),
            }
        }
    }
    /// A malformed or out-of-range value.
    pub fn invalid(&mut self, at: &Path<'_>, value: impl BadValue, detail: impl Into<String>) {
        self.push(FieldErrorKind::Invalid, at, Some(&|| value.print()), detail.into());
    }
    /// Like [`Errors::invalid`], with a long reason that is made only if the error is shown.
    pub fn invalid_because(&mut self, at: &Path<'_>, value: impl BadValue, why: impl FnOnce() -> String) {
        self.push_with(FieldErrorKind::Invalid, at, Some(&|| value.print()), why);
    }
    /// A malformed value that is not repeated.
    pub fn invalid_here(&mut self, at: &Path<'_>, detail: impl Into<String>) {
        self.push(FieldErrorKind::Invalid, at, None, detail.into());
    }
    /// Reports the same value once for each text.
    pub fn each(&mut self, at: &Path<'_>, value: &str, details: Vec<String>) {
        for d in details {
            self.invalid(at, value, d);
        }
    }
    /// Reports the same value, of a type of its own, once for each text.
    pub fn each_typed(&mut self, at: &Path<'_>, value: &str, details: Vec<String>) {
        for d in details {
            self.invalid(at, Typed(value), d);
        }
    }
    /// A value is missing where one must be.
    pub fn required(&mut self, at: &Path<'_>, detail: impl Into<String>) {
        self.push(FieldErrorKind::Required, at, None, detail.into());
    }
    /// A value that may not stand here.
    pub fn forbidden(&mut self, at: &Path<'_>, detail: impl Into<String>) {
        self.push(FieldErrorKind::Forbidden, at, None, detail.into());
    }
    /// A value stands twice where it must be unique.
    pub fn duplicate(&mut self, at: &Path<'_>, value: impl BadValue) {
        self.push(FieldErrorKind::Duplicate, at, Some(&|| value.print()), String::new());
    }
    /// A value stands twice where it must be unique, with the reason.
    pub fn duplicate_because(&mut self, at: &Path<'_>, value: impl BadValue, detail: impl Into<String>) {
        self.push(FieldErrorKind::Duplicate, at, Some(&|| value.print()), detail.into());
    }
    /// A referenced thing that is not there.
    pub fn not_found(&mut self, at: &Path<'_>, value: impl BadValue) {
        self.push(FieldErrorKind::NotFound, at, Some(&|| value.print()), String::new());
    }
    /// A referenced thing that is not there, and where it should be.
    pub fn not_found_in(&mut self, at: &Path<'_>, value: impl BadValue, detail: impl FnOnce() -> String) {
        self.push_with(FieldErrorKind::NotFound, at, Some(&|| value.print()), detail);
    }
    /// A value out of a fixed set was wanted; they are listed as given.
    pub fn not_supported(&mut self, at: &Path<'_>, value: impl BadValue, valid: &[&str]) {
        let detail = if valid.is_empty() || self.is_full() {
            String::new()
        } else {
            let all: Vec<String> = valid.iter().map(|v| crate::go::quote(v)).collect();
            format!("supported values: {}", all.join(", "))
        };
        self.push(FieldErrorKind::NotSupported, at, Some(&|| value.print_typed()), detail);
    }
    /// Reports a string that is not one of the valid ones; lists them sorted, as upstream's sets do.
    pub fn one_of(&mut self, at: &Path<'_>, value: &str, valid: &[&str]) {
        if !valid.contains(&value) {
            self.not_supported(at, value, valid);
        }
    }
    /// Like [`Errors::one_of`], for a plain string.
    pub fn one_of_plain(&mut self, at: &Path<'_>, value: &str, valid: &[&str]) {
        if !valid.contains(&value) {
            self.not_supported(at, Plain(value), valid);
        }
    }
    /// Too long a value, in bytes.
    pub fn too_long(&mut self, at: &Path<'_>, max: usize) {
        let unit = if max == 1 { "byte" } else { "bytes" };
        self.push(FieldErrorKind::TooLong, at, None, format!("may not be more than {max} {unit}"));
    }
    /// Too many elements.
    pub fn too_many(&mut self, at: &Path<'_>, actual: usize, max: usize) {
        let unit = if max == 1 { "item" } else { "items" };
        self.push(
            FieldErrorKind::TooMany,
            at,
            Some(&|| actual.to_string()),
            format!("must have at most {max} {unit}"),
        );
    }
    /// Something failed inside.
    pub fn internal(&mut self, at: &Path<'_>, detail: impl Into<String>) {
        self.push(FieldErrorKind::Internal, at, None, detail.into());
    }
    /// `must be greater than or equal to 0`.
    pub fn non_negative(&mut self, at: &Path<'_>, value: i64) {
        if value < 0 {
            self.invalid(at, value, NEGATIVE);
        }
    }
    /// `must be greater than zero`.
    pub fn positive(&mut self, at: &Path<'_>, value: i64) {
        if value <= 0 {
            self.invalid(at, value, "must be greater than zero");
        }
    }
}

/// The text for a number below zero.
pub const NEGATIVE: &str = "must be greater than or equal to 0";
/// The text for a field that may not change.
pub const IMMUTABLE: &str = "field is immutable";
