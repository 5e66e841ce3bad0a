//! The plans of programs of the host.

use std::path::Path;

use super::sandbox::NEWNS;
use super::{Fields, Label, Plan, Source, fields};
use crate::programs::PATH;
use crate::shim::wire::step;

/// Executes a hook, with all rights, where a container's process is: it sees what that mounted, and the host's files.
pub(crate) fn hook_inside(path: &str, arguments: &[String], environment: &[String]) -> Plan {
    let mut plan = Plan::default();
    let fd = plan.source(Source::Process);
    plan.push(step::SETNS, 0, fields().u32(fd).u32(NEWNS), "join the container's mount namespace");
    execute(&mut plan, path, arguments, environment);
    plan
}

/// Executes a program, with all rights, in a directory. The first argument is its path.
pub(crate) fn program(arguments: &[String], directory: &Path) -> Plan {
    let mut plan = Plan::default();
    let text = directory.to_string_lossy().into_owned();
    plan.push(step::CWD, 0, fields().text(&text), format!("enter {text}"));
    let path = arguments.first().cloned().unwrap_or_default();
    execute(&mut plan, &path, arguments, &[format!("PATH={PATH}")]);
    plan
}

fn execute(plan: &mut Plan, path: &str, arguments: &[String], environment: &[String]) {
    let mut streams = fields();
    for stream in 0..3 {
        let fd = plan.source(Source::Stream(stream));
        streams = streams.u32(fd);
    }
    plan.push(step::STDIO, 0, streams, "set the standard streams");
    plan.push(step::SESSION, 0, fields(), "make a session");
    plan.step(step::LOOK, 0, fields().u32(1).text(path), Label::Look(path.to_owned()));
    plan.push(step::EXEC, 0, lists(fields(), arguments, environment), format!("exec {path}"));
}

/// The lists of a program that is executed.
pub(super) fn lists(values: Fields, arguments: &[String], environment: &[String]) -> Fields {
    let mut values = values.u32(arguments.len() as u32).u32(environment.len() as u32);
    for text in arguments.iter().chain(environment) {
        values = values.text(text);
    }
    values
}
