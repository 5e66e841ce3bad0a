//! The embedded engine does what every store must do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail so")]
#![allow(clippy::many_single_char_names, reason = "a store, its resource, its watcher, two objects")]
#![allow(async_fn_in_trait, reason = "nobody else implements it")]

mod directories;
mod full_disk;
mod quota;
#[path = "../suite/mod.rs"]
mod suite;

use std::time::Duration;

use component::Shutdown;
use ferrokube_storage::{Store, StoreConfig};
use suite::Fixture;

struct Embedded {
    store: Store,
    dir: tempfile::TempDir,
}

impl Embedded {
    fn open(dir: tempfile::TempDir) -> Self {
        let progress_interval = Duration::from_millis(5);
        let config = StoreConfig { progress_interval, ..StoreConfig::new(dir.path().join("store")) };
        Self { store: Store::open(config, &Shutdown::new()).unwrap(), dir }
    }
}

impl Fixture for Embedded {
    async fn fresh() -> Self {
        Self::open(tempfile::tempdir().unwrap())
    }
    fn store(&self) -> &Store {
        &self.store
    }
    async fn reopen(self) -> Self {
        self.store.close().await;
        drop(self.store);
        Self::open(self.dir)
    }
}

suite!(Embedded);
