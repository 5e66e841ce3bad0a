//! The authorizer: what an expression asks it.

use crate::access::{Decision, Question, ResourceCheck, Subject};
use crate::error::EvalError;
use crate::value::{Opaque, Value};

use super::{Function, Outcome};

fn opaque<'v>(v: &'v Value<'_>) -> Option<&'v Opaque> {
    match v {
        Value::Opaque(o) => Some(o),
        _ => None,
    }
}

fn made<'a>(of: Opaque) -> Outcome<'a> {
    Some(Ok(Value::opaque(of)))
}

fn failed<'a>(text: &'static str) -> Outcome<'a> {
    Some(Err(EvalError::new(text)))
}

fn path<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [of, Value::String(path)] = args else { return None };
    let Opaque::Authorizer(subject) = opaque(of)? else { return None };
    if path.trim().is_empty() {
        return failed("path must not be empty");
    }
    made(Opaque::PathCheck(subject.clone(), path.to_string()))
}

fn group<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [of, Value::String(group)] = args else { return None };
    let Opaque::Authorizer(subject) = opaque(of)? else { return None };
    made(Opaque::GroupCheck(subject.clone(), group.to_string()))
}

fn service_account<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [of, Value::String(namespace), Value::String(name)] = args else { return None };
    let Opaque::Authorizer(_) = opaque(of)? else { return None };
    if !api::names::name_subdomain(name, false).is_empty() {
        return failed("Invalid service account name");
    }
    if !api::names::name_label(namespace, false).is_empty() {
        return failed("Invalid service account namespace");
    }
    let (namespace, name) = (namespace.to_string(), name.to_string());
    made(Opaque::Authorizer(Subject::ServiceAccount { namespace, name }))
}

fn resource<'a>(args: &[Value<'a>]) -> Outcome<'a> {
    let [of, Value::String(resource)] = args else { return None };
    let Opaque::GroupCheck(subject, group) = opaque(of)? else { return None };
    if resource.trim().is_empty() {
        return failed("resource must not be empty");
    }
    made(Opaque::ResourceCheck(Box::new(ResourceCheck {
        subject: subject.clone(),
        group: group.clone(),
        resource: resource.to_string(),
        ..ResourceCheck::default()
    })))
}

fn narrowed<'a>(args: &[Value<'a>], set: fn(&mut ResourceCheck, String)) -> Outcome<'a> {
    let [of, Value::String(text)] = args else { return None };
    let Opaque::ResourceCheck(check) = opaque(of)? else { return None };
    let mut check = check.clone();
    set(&mut check, text.to_string());
    made(Opaque::ResourceCheck(check))
}

fn answer<'v>(args: &'v [Value<'_>]) -> Option<&'v Decision> {
    match opaque(args.first()?)? {
        Opaque::Decision(d) => Some(d),
        _ => None,
    }
}

/// The functions of the authorizer, but for the one that asks.
pub(super) fn find(name: &str) -> Option<Function> {
    Some(match name {
        "path" => path,
        "group" => group,
        "serviceAccount" => service_account,
        "resource" => resource,
        "subresource" => |args| narrowed(args, |c, s| c.subresource = s),
        "namespace" => |args| narrowed(args, |c, s| c.namespace = s),
        "name" => |args| narrowed(args, |c, s| c.name = s),
        "fieldSelector" => |args| narrowed(args, |c, s| c.field_selector = s),
        "labelSelector" => |args| narrowed(args, |c, s| c.label_selector = s),
        "allowed" => |args| Some(Ok(Value::Bool(answer(args)?.allowed))),
        "reason" => |args| Some(Ok(Value::text(answer(args)?.reason.as_str()))),
        "errored" => |args| Some(Ok(Value::Bool(answer(args)?.error.is_some()))),
        "error" => |args| Some(Ok(Value::text(answer(args)?.error.clone().unwrap_or_default()))),
        _ => return None,
    })
}

/// The question that `check` asks.
pub(crate) fn ask(args: &[Value<'_>]) -> Option<Question> {
    let [of, Value::String(verb)] = args else { return None };
    let verb = verb.to_string();
    match opaque(of)? {
        Opaque::PathCheck(subject, path) => {
            Some(Question::Path { subject: subject.clone(), path: path.clone(), verb })
        }
        Opaque::ResourceCheck(check) => Some(Question::Resource { check: (**check).clone(), verb }),
        _ => None,
    }
}

/// An answer as a value.
pub(crate) fn decision<'a>(of: Decision) -> Value<'a> {
    Value::opaque(Opaque::Decision(Box::new(of)))
}
