//! The embedded engine does all that every store must do.

mod directories;
mod full_disk;
mod quota;

use std::time::Duration;

use crate::suite::Fixture;
use component::Shutdown;
use ferrokube_storage::{Store, StoreConfig};

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

crate::suite!(Embedded);
