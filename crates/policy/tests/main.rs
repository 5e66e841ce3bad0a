//! Packets pass as policies say, in network namespaces of the tests' own.
#![expect(clippy::unwrap_used, reason = "tests")]

mod matrix;
mod network;
mod oracle;
mod table;
