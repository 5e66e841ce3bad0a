//! Opening a store: what a crash has left is removed, and what can be used is taken up.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use component::Turns;
use parking_lot::Mutex;
use rustix::fs::XattrFlags;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::digest::Digest;
use crate::error::{OpenError, StoreError};
use crate::layer::tree::unique;
use crate::settings::Settings;
use crate::store::collect::Item;
use crate::store::files::{self, at};
use crate::store::record::{LayerId, LayerInfo, Record, RootRecord};
use crate::store::{State, Store};

/// The form of the store. A change of it gets another number.
const VERSION: &str = "1";
const DIRECTORIES: &[&str] =
    &["blobs/sha256", "blobs/sha512", "ingest", "layers", "images", "roots", "trash"];
/// The largest record.
const MAX_RECORD: u64 = 16 << 20;
/// How long a download that a crash broke off is kept.
const MAX_AGE: Duration = Duration::from_hours(24);

fn open_error(error: StoreError) -> OpenError {
    match error {
        StoreError::Io { path, source } => OpenError::Io { path, source },
        other => OpenError::Io { path: "".into(), source: std::io::Error::other(other.to_string()) },
    }
}

impl Store {
    /// Opens the store.
    pub(crate) async fn open(mut settings: Settings) -> Result<Arc<Self>, OpenError> {
        files::directory(&settings.root).map_err(open_error)?;
        // Mounts name layers by path, whatever the process's directory is later.
        settings.root = fs::canonicalize(&settings.root).map_err(|e| open_error(at(&settings.root)(e)))?;
        let lock = files::lock(&settings.root.join("lock")).await?;
        let opened = tokio::task::spawn_blocking(move || -> Result<Self, StoreError> {
            for name in DIRECTORIES {
                files::directory(&settings.root.join(name))?;
            }
            check_version(&settings.root)?;
            let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            let xattrs = if may_trust(&settings.root) { "trusted." } else { "user." };
            let mut store = Self {
                settings,
                boot: boot.trim().to_owned(),
                xattrs,
                state: Mutex::default(),
                downloads: Turns::default(),
                wake: Arc::new(Notify::new()),
                _lock: lock,
            };
            let state = store.load()?;
            store.state = Mutex::new(state);
            store.collect(&mut store.state.lock());
            Ok(store)
        });
        let store = opened.await.map_err(|e| OpenError::Io { path: "".into(), source: e.into() })?;
        store.map(Arc::new).map_err(open_error)
    }

    fn load(&self) -> Result<State, StoreError> {
        let mut state = State::default();
        let same_boot = self.same_boot()?;
        self.clear_ingest(same_boot)?;
        for algorithm in ["sha256", "sha512"] {
            for entry in entries(&self.settings.root.join("blobs").join(algorithm))? {
                let name = entry.file_name();
                let digest =
                    name.to_str().and_then(|hex| format!("{algorithm}:{hex}").parse::<Digest>().ok());
                match (digest, entry.metadata()) {
                    (Some(digest), Ok(facts)) => {
                        state.blobs.insert(digest, facts.len());
                    }
                    _ => {
                        self.discard(&entry.path());
                    }
                }
            }
        }
        for entry in entries(&self.settings.root.join("layers"))? {
            let id = text(&entry.file_name()).and_then(|name| LayerId::try_from(name).ok());
            match (id, read::<LayerInfo>(&entry.path().join("info"))) {
                (Some(id), Ok(info)) => {
                    state.layers.insert(id, info);
                }
                _ => {
                    self.discard(&entry.path());
                }
            }
        }
        self.load_images(&mut state)?;
        if !same_boot {
            self.drop_unsynced(&mut state);
        }
        for entry in entries(&self.settings.root.join("roots"))? {
            let Some(key) = text(&entry.file_name()) else { continue };
            let record = read::<RootRecord>(&entry.path().join("root")).ok().map(Arc::new);
            state.roots.insert(key, record);
        }
        // A pull that was broken off may be tried again.
        let now = Instant::now();
        let live = state.live(now, !self.settings.discard_archives);
        let blobs = state.blobs.keys().cloned().map(Item::Blob);
        let items = blobs.chain(state.layers.keys().cloned().map(Item::Layer));
        state.leftovers = items.filter(|item| !live.contains(item)).map(|item| (item, now)).collect();
        Ok(state)
    }

    /// Whether the store was open in this boot before, so that everything that was written is there.
    fn same_boot(&self) -> Result<bool, StoreError> {
        let path = self.settings.root.join("boot");
        let same = fs::read_to_string(&path).is_ok_and(|b| b == self.boot && !b.is_empty());
        if !same {
            files::write(&self.ingest(), &path, self.boot.as_bytes(), true)?;
        }
        Ok(same)
    }

    /// Removes what was not complete, but for downloads that may go on.
    fn clear_ingest(&self, same_boot: bool) -> Result<(), StoreError> {
        for entry in entries(&self.ingest())? {
            let young = entry
                .metadata()
                .and_then(|f| f.modified())
                .is_ok_and(|time| SystemTime::now().duration_since(time).is_ok_and(|age| age < MAX_AGE));
            let partial = Path::new(&entry.file_name()).extension() == Some(OsStr::new("part"));
            if !(same_boot && young && partial) {
                self.discard(&entry.path());
            }
        }
        Ok(())
    }

    fn load_images(&self, state: &mut State) -> Result<(), StoreError> {
        let mut given: HashMap<String, u64> = HashMap::new();
        for entry in entries(&self.settings.root.join("images"))? {
            let path = entry.path();
            let record = match read::<Record>(&path) {
                Ok(record) if self.record_path(&record.id) == path => record,
                other => {
                    let reason = other.err().unwrap_or_else(|| "it is another image's".to_owned());
                    tracing::warn!(path = %path.display(), reason, "the record of an image cannot be read");
                    self.discard(&path);
                    continue;
                }
            };
            let unsynced = record.boot.as_ref().is_some_and(|boot| *boot != self.boot);
            let whole = [&record.manifest, &record.configuration].iter().all(|d| state.blobs.contains_key(d))
                && record.layers.iter().all(|l| state.layers.contains_key(&l.layer));
            if unsynced || !whole {
                tracing::warn!(image = %record.id, "an image was not whole on the disk, and is to be pulled again");
                self.discard(&path);
                continue;
            }
            for (name, sequence) in &record.names {
                state.sequence = state.sequence.max(*sequence);
                let last = given.entry(name.clone()).or_default();
                if *sequence >= *last {
                    *last = *sequence;
                    state.names.insert(name.clone(), record.id.clone());
                }
            }
            state.images.insert(record.id.clone(), Arc::new(record));
        }
        // A crash between two records leaves a name with both.
        let mut odd = Vec::new();
        for record in state.images.values() {
            let names = record.names.keys().filter(|n| state.names.get(*n) != Some(&record.id));
            odd.extend(names.map(|n| (record.id.clone(), n.clone())));
        }
        for (id, name) in odd {
            if let Some(record) = state.images.get(&id).cloned() {
                let mut record = Record::clone(&record);
                record.names.remove(&name);
                self.put(state, record)?;
            }
        }
        Ok(())
    }

    /// After a power cut only what images on the disk have is sure to be whole.
    fn drop_unsynced(&self, state: &mut State) {
        let mut sure = std::collections::HashSet::new();
        for record in state.images.values() {
            sure.extend(record.content().cloned().map(Item::Blob));
            sure.extend(record.layers.iter().map(|l| Item::Layer(l.layer.clone())));
        }
        let blobs: Vec<_> =
            state.blobs.keys().filter(|d| !sure.contains(&Item::Blob((*d).clone()))).cloned().collect();
        for digest in blobs {
            self.discard(&self.blob_path(&digest));
            state.blobs.remove(&digest);
        }
        let layers: Vec<_> =
            state.layers.keys().filter(|l| !sure.contains(&Item::Layer((*l).clone()))).cloned().collect();
        for layer in layers {
            self.discard(&self.layer_path(&layer));
            state.layers.remove(&layer);
        }
    }
}

fn check_version(root: &Path) -> Result<(), StoreError> {
    let path = root.join("version");
    match fs::read_to_string(&path) {
        Ok(text) if text.trim() == VERSION => Ok(()),
        Ok(text) => {
            let reason =
                format!("its form is {:?}, which another version of this program wrote", text.trim());
            Err(at(&path)(std::io::Error::other(reason)))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            files::write(&root.join("ingest"), &path, VERSION.as_bytes(), true)
        }
        Err(e) => Err(at(&path)(e)),
    }
}

/// Whether overlayfs's attributes for root may be set: not in a user namespace.
fn may_trust(root: &Path) -> bool {
    let probe = root.join("ingest").join(format!("tmp-{}", unique()));
    let may = fs::create_dir(&probe).is_ok()
        && rustix::fs::lsetxattr(&probe, "trusted.overlay.opaque", b"y", XattrFlags::empty()).is_ok();
    let _ = fs::remove_dir(&probe);
    may
}

fn entries(path: &Path) -> Result<Vec<DirEntry>, StoreError> {
    fs::read_dir(path).and_then(Iterator::collect).map_err(at(path))
}

fn text(name: &OsStr) -> Option<String> {
    name.to_str().map(str::to_owned)
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, String> {
    let length = fs::metadata(path).map_err(|e| e.to_string())?.len();
    if length > MAX_RECORD {
        return Err("it is too large".to_owned());
    }
    let bytes = fs::read(path).map_err(|e| e.to_string())?;
    serde_json::from_slice(&bytes).map_err(|e| e.to_string())
}
