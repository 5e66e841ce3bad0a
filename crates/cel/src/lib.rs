//! The Common Expression Language as Kubernetes v1.36 has it: what cel-go and `k8s.io/apiserver/pkg/cel` do, with their
//! texts, limits and costs.
//!
//! An [`Environment`] says what an expression may use; it makes a [`Program`] of a text, or tells what is wrong with it.
//! A program is shared, and evaluated with an [`Activation`], which has the values of variables, within a [`Budget`].
//! Values of the caller are read where they are ([`Foreign`]); [`schema`] makes types and values of what a definition
//! says about objects.
//!
//! ```
//! use cel::{Budget, Environment, Type, Value, Variables, Version};
//!
//! let env = Environment::new(Version::NEW).with_variable("replicas", Type::Int);
//! let program = env.compile("replicas >= 1 && replicas <= 5").unwrap();
//! assert_eq!(*program.result_type(), Type::Bool);
//! let variables = Variables::default().with("replicas", Value::Int(3));
//! let value = program.evaluate(&variables, &mut Budget::default()).unwrap();
//! assert!(matches!(value, Value::Bool(true)));
//! ```
//!
//! The way of an expression: `parse` (text to tree, macros expanded) → `check` (names, types, literals) → `cost` (what it
//! may cost) and `plan` (what is constant is worked out, names become places) → `eval`. The plan's steps are those of
//! cel-go's interpreter, because costs are counted by them.

mod access;
mod ast;
mod check;
mod cost;
mod declarations;
mod environment;
mod error;
mod eval;
mod functions;
mod issue;
mod library;
mod parse;
mod plan;
mod program;
pub mod schema;
mod types;
mod value;

pub use access::{Decision, Question, ResourceCheck, Subject};
pub use cost::Range;
pub use environment::{CompileError, Environment, Version};
pub use error::EvalError;
pub use eval::{Activation, Variables};
pub use issue::{Issue, Issues};
pub use parse::RESERVED;
pub use program::{Budget, MATCH_CONDITIONS_BUDGET, PER_CALL_LIMIT, Program, RUNTIME_BUDGET};
pub use types::{Objects, Type};
pub use value::{
    Cidr, Foreign, Made, MapValue, NamedFormat, Opaque, Semver, Shape, Text, Time, Url, Value, literal,
};
