//! Real containers on this machine's kernel. The root is a busybox; everything lies below a temporary directory, and
//! cgroups below one of the test's own.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod hooks;
mod hostile;
mod isolation;
mod limits;
mod past;
mod process;
mod recovery;
mod scopes;
mod streams;
mod support;
