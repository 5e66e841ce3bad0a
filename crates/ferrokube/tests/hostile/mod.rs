//! Attacks and their cost: one evil request, one odd object, one task that dies costs that request, object or task
//! alone. Each test speaks HTTP to a running server or cluster, as an attacker would, so that it outlives today's
//! functions. SECURITY.md links each of its promises to a test here.

#![allow(clippy::unwrap_used, reason = "a test may fail so")]

mod admission;
mod aggregated_servers;
mod alive;
mod controllers;
mod credentials;
mod definitions;
mod depth;
mod files;
mod front_proxies;
mod growth;
mod headers;
mod health;
mod joining;
mod kubelet;
mod limits;
mod node;
mod policies;
mod proxies;
mod scheduler;
mod store;
mod subjects;
mod watches;
mod webhooks;
pub(crate) mod wire;
