//! Tests of the store: the properties of every engine, and those of each alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail so")]
#![allow(clippy::many_single_char_names, reason = "a store, its resource, its watcher, two objects")]
#![allow(async_fn_in_trait, reason = "nobody else implements it")]

mod backup;
mod embedded;
mod etcd;
mod formats;
mod suite;
