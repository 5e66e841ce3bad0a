//! What is wrong with literals, whose type says nothing against them.

use std::collections::HashMap;

use crate::ast::{Expr, Id, Kind, Literal};
use crate::issue::Issues;
use crate::library;
use crate::plan::literal;
use crate::types::Type;

use super::Checked;

/// Complains about durations, timestamps and regular expressions that are none, about aggregates of several types, and
/// about formats that do not fit their arguments.
///
/// Environments before 1.29 looked at aggregates alone.
pub(crate) fn literals(checked: &Checked, source: &str, everything: bool) -> Issues {
    let mut issues = Issues::new(source);
    let all = checked.tree.all();
    if !everything {
        aggregates(checked, &all, &mut issues);
        return issues;
    }
    for function in ["duration", "timestamp", "matches"] {
        for e in &all {
            let Kind::Call(call) = &e.kind else { continue };
            if &*call.function != function {
                continue;
            }
            if let Some(arg) = call.args.first()
                && let Kind::Literal(l) = &arg.kind
                && !usable(function, l)
            {
                issues.push(checked.positions.of(arg.id), format!("invalid {function} argument"));
            }
        }
    }
    aggregates(checked, &all, &mut issues);
    for e in &all {
        if let Some((id, text)) = format(checked, e) {
            issues.push(checked.positions.of(id), text);
        }
    }
    issues
}

fn usable(function: &str, l: &Literal) -> bool {
    if function == "matches" {
        return matches!(l, Literal::String(s) if library::compile(s).is_ok());
    }
    library::find(function).is_some_and(|f| library::call(function, f, &[literal(l)]).is_ok())
}

/// Complains about lists and maps whose elements differ in type; those that are formatted may.
fn aggregates(checked: &Checked, all: &[&Expr], issues: &mut Issues) {
    let mut exempt: HashMap<Id, bool> = HashMap::new();
    for e in all {
        let inside = exempt.get(&e.id).copied().unwrap_or_default();
        let formats = matches!(&e.kind, Kind::Call(c) if &*c.function == "format");
        for child in e.children() {
            exempt.insert(child.id, inside || formats);
        }
    }
    let exempt = |e: &Expr| exempt.get(&e.id).copied().unwrap_or_default();
    let inside = |e: &Expr, optional: bool| {
        let ty = checked.type_of(e);
        if optional { ty.unwrap_optional().unwrap_or(ty).clone() } else { ty.clone() }
    };
    let mut differs = |e: &Expr, wanted: &Type, found: &Type| {
        issues.push(checked.positions.of(e.id), format!("expected type '{wanted}' but found '{found}'"));
    };
    for e in all.iter().filter(|e| !exempt(e)) {
        let Kind::List(items) = &e.kind else { continue };
        let mut types = items.iter().map(|(e, optional)| (e, inside(e, *optional)));
        let Some((_, first)) = types.next() else { continue };
        if let Some((e, found)) = types.find(|(_, t)| *t != first) {
            differs(e, &first, &found);
        }
    }
    for e in all.iter().filter(|e| !exempt(e)) {
        let Kind::Map(entries) = &e.kind else { continue };
        let mut types = entries.iter().map(|e| (e, checked.type_of(&e.key), inside(&e.value, e.optional)));
        let Some((_, key, value)) = types.next() else { continue };
        for (entry, k, v) in types {
            if k != key {
                differs(&entry.key, key, k);
            }
            if v != value {
                differs(&entry.value, &value, &v);
            }
        }
    }
}

/// The complaint about a call of `format` whose format and list stand in the source.
fn format(checked: &Checked, e: &Expr) -> Option<(Id, String)> {
    let Kind::Call(call) = &e.kind else { return None };
    let (Some(target), [list], "format") = (&call.target, &call.args[..], &*call.function) else {
        return None;
    };
    let Kind::Literal(Literal::String(text)) = &target.kind else { return None };
    let Kind::List(items) = &list.kind else { return None };
    let mut at = e.id;
    let used = library::check_format(text, items.len(), |i, clause| {
        let item = &items[i].0;
        let bad = if clause == library::Clause::String {
            unprintable(checked, item)
        } else {
            Some(item).filter(|e| !clause.takes(checked.type_of(e)))
        };
        match bad {
            None => Ok(()),
            Some(bad) => {
                at = bad.id;
                let given = checked.type_of(bad).runtime_name();
                Err(format!("error during formatting: {}", clause.complaint(&given)))
            }
        }
    });
    match used {
        Err(text) => Some((at, text)),
        Ok(used) if used < items.len() => Some((
            e.id,
            format!("too many arguments supplied to string.format (expected {used}, got {})", items.len()),
        )),
        Ok(_) => None,
    }
}

/// The part of an expression that `%s` does not show.
fn unprintable<'e>(checked: &Checked, e: &'e Expr) -> Option<&'e Expr> {
    if !library::Clause::String.takes(checked.type_of(e)) {
        return Some(e);
    }
    match &e.kind {
        Kind::List(items) => items.iter().find_map(|(e, _)| unprintable(checked, e)),
        Kind::Map(entries) => entries
            .iter()
            .find_map(|e| unprintable(checked, &e.key).or_else(|| unprintable(checked, &e.value))),
        _ => None,
    }
}
