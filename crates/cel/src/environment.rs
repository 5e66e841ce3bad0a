//! Environments: what expressions may use, by the version of Kubernetes.

use std::sync::Arc;

use crate::check::{check, literals};
use crate::cost::{self, Range};
use crate::declarations::Declarations;
use crate::issue::Issues;
use crate::parse::parse;
use crate::plan::plan;
use crate::program::Program;
use crate::types::{Objects, Type};

/// A version of Kubernetes, which decides what there is to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u32);

impl Version {
    /// `1.minor`.
    pub const fn minor(minor: u32) -> Self {
        Self(minor)
    }
    /// What an expression may use that somebody writes now: what servers of the version before understand, so that
    /// the cluster can go back to them.
    pub const NEW: Self = Self(35);
    /// What an expression may use that is stored: all there is.
    pub const STORED: Self = Self(u32::MAX / 2);
}

/// What an expression may use. It is cheap to extend: `with…` takes it and gives another one.
#[derive(Debug, Clone)]
pub struct Environment(Declarations);

/// The reason for which an expression is no program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompileError {
    /// The complaints about its text, names or types.
    Issues(Issues),
    /// A constant of which no value can be made, such as a regular expression that is none.
    Constant(String),
}

impl std::fmt::Display for CompileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Issues(issues) => issues.fmt(f),
            Self::Constant(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for CompileError {}

impl Environment {
    /// What a version has, without variables.
    pub fn new(version: Version) -> Self {
        Self(Declarations {
            minor: version.0,
            variables: Vec::new(),
            objects: Vec::new(),
            bindings: false,
            json_patch: false,
        })
    }
    /// Adds a variable, whose name may have points.
    pub fn with_variable(mut self, name: &str, ty: Type) -> Self {
        self.0.variables.retain(|(n, _)| &**n != name);
        self.0.variables.push((name.into(), ty));
        self
    }
    /// Adds types of objects. They also know the sizes of values; those of the first one that knows count.
    pub fn with_objects(mut self, objects: Arc<dyn Objects>) -> Self {
        self.0.objects.push(objects);
        self
    }
    /// Adds `cel.bind`, which the selectors of devices have.
    pub fn with_bindings(mut self) -> Self {
        self.0.bindings = true;
        self
    }
    /// Adds the functions for JSON patches, which mutations have.
    pub fn with_json_patch(mut self) -> Self {
        self.0.json_patch = true;
        self
    }

    /// Makes a program of an expression.
    pub fn compile(&self, source: &str) -> Result<Program, CompileError> {
        let parsed = parse(source, &self.0.macros(), self.0.minor >= 28).map_err(CompileError::Issues)?;
        let checked = check(parsed, &self.0, source).map_err(CompileError::Issues)?;
        let issues = literals(&checked, source, self.0.minor >= 29);
        if !issues.is_empty() {
            return Err(CompileError::Issues(issues));
        }
        let plan = plan(&checked).map_err(CompileError::Constant)?;
        let sizes = |path: &[&str], _: &Type| {
            let known = if path.is_empty() { None } else { self.0.size(path) };
            known.map(|max| Range { min: 0, max })
        };
        let estimate = cost::estimate(&checked, &sizes);
        let variables = checked.variables();
        Ok(Program::new(plan, checked.type_of(&checked.tree).clone(), estimate, variables))
    }
}
