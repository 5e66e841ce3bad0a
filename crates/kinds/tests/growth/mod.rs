//! The growth of the cost of each pure step with an object: with each list and map of every kind, with patches, with
//! managedFields. No step may be quadratic in the size of one request.
//!
//! This is the one place where tests look at time: the thread's CPU time at several sizes, in one run.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails where it can't go on")]

mod attacks;
mod custom;
mod lists;
mod managed;
mod measure;
mod patches;
mod sample;

use std::sync::LazyLock;

use api::Schema;
use ferrokube_kinds::defaults::Defaults;

static DEFAULTS: LazyLock<Defaults> = LazyLock::new(|| Defaults::new(Schema::builtin()));
