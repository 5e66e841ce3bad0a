//! API servers of others, to which an APIService gives a group version: how they are reached, and what they say of
//! themselves. They may be gone, slow or lie: what is read of them is bounded, and counts for their own group version
//! only.
//!
//! `hooks::aggregation` follows the APIServices, and puts [`Services`] into the catalog; the pipe leads requests on.

mod backend;
mod converted;
pub(crate) mod discovery;
mod document;
mod identity;
mod openapi;
mod priorities;
mod services;
mod versions;

pub(crate) use backend::{Answered, Backend, Outgoing, SendError, no_body, whole};
pub(crate) use discovery::{APIS, Discovered, Served, legacy, list, of_list};
pub(crate) use document::{Fetched, get, probe};
pub(crate) use identity::{aggregator, name_caller};
pub(crate) use openapi::{Specification, index_entry, merged, specification};
pub(crate) use priorities::{COMPUTED, Priority, of_builtin, of_definition, usual};
pub(crate) use services::{Elsewhere, Services};
pub(crate) use versions::compare as compare_versions;
