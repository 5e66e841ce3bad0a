//! What an attacker sends, and what it may cost: one request that is evil, one object that is odd, one task that dies
//! costs that request, object or task alone. Each test speaks HTTP to a running server or cluster, as an attacker
//! would, so that it outlives today's functions. SECURITY.md links each of its promises to a test here.

#![allow(clippy::unwrap_used, reason = "what fails here is the test")]

mod admission;
mod alive;
mod files;
mod growth;
mod headers;
mod health;
mod node;
mod proxies;
mod store;
mod subjects;
#[allow(dead_code, reason = "what attacks need comes with them")]
mod wire;
