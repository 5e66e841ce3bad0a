//! Roots of containers on the disk.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::sync::Arc;

use oci_spec::runtime::LinuxIdMapping;

use crate::digest::Digest;
use crate::error::StoreError;
use crate::layer::tree::{self, unique};
use crate::root::{IdMap, Root};
use crate::settings::{StoreUsage, Usage};
use crate::store::Store;
use crate::store::files::at;
use crate::store::record::{LayerId, RootRecord};

/// Keys become names of directories.
fn check_key(key: &str) -> Result<(), StoreError> {
    let plain = key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    let first = key.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if plain && first && key.len() <= 128 { Ok(()) } else { Err(StoreError::Key(key.to_owned())) }
}

/// This machine's id for an id inside; ids that are not mapped belong to the namespace's root.
fn map(mappings: &[LinuxIdMapping], inside: u32) -> u32 {
    let outside = |id: u32| {
        mappings.iter().find_map(|m| {
            let offset = id.checked_sub(m.container_id()).filter(|o| *o < m.size())?;
            m.host_id().checked_add(offset)
        })
    };
    outside(inside).or_else(|| outside(0)).unwrap_or(inside)
}

impl Store {
    /// Makes a root, or a view.
    pub(crate) fn prepare(
        self: &Arc<Self>,
        key: &str,
        image: &Digest,
        id_map: Option<&IdMap>,
        view: bool,
    ) -> Result<Root, StoreError> {
        check_key(key)?;
        let record = self.record_of(image)?;
        // An image may have a layer twice, overlayfs may not: the upper one hides all that the lower one does.
        let mut layers: Vec<LayerId> = Vec::new();
        for layer in record.layers.iter().rev() {
            if !layers.contains(&layer.layer) {
                layers.push(layer.layer.clone());
            }
        }
        let (mode, uid, gid) = self.root_attributes(&layers);
        let root = RootRecord { image: image.clone(), layers, id_map: id_map.cloned(), view };
        let directory = self.ingest().join(format!("root-{}", unique()));
        let made = (|| {
            fs::create_dir(&directory)?;
            let upper = directory.join("upper");
            fs::create_dir(&upper)?;
            // A view's lies below an idmapped mount, as the layers do; a writable one's has this machine's ids.
            let (uid, gid) = match id_map.filter(|_| !view) {
                Some(ids) => (map(&ids.uids, uid), map(&ids.gids, gid)),
                None => (uid, gid),
            };
            chown(&upper, Some(uid), Some(gid))?;
            fs::set_permissions(&upper, fs::Permissions::from_mode(mode))?;
            if !view {
                fs::create_dir(directory.join("work"))?;
            }
            fs::write(directory.join("root"), serde_json::to_vec(&root)?)
        })();
        let made = made.map_err(at(&directory)).and_then(|()| self.commit_root(key, &directory, &root));
        if made.is_err() {
            let _ = fs::remove_dir_all(&directory);
        }
        made?;
        self.open_root(key, &root)
    }

    fn commit_root(
        &self,
        key: &str,
        directory: &std::path::Path,
        root: &RootRecord,
    ) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if state.roots.contains_key(key) {
            return Err(StoreError::RootExists(key.to_owned()));
        }
        // The image may have been removed meanwhile, and its layers with it.
        if let Some(lost) = root.layers.iter().find(|l| !state.layers.contains_key(l)) {
            tracing::debug!(layer = %lost, "a layer went before its root was there");
            return Err(StoreError::NoImage(root.image.to_string()));
        }
        let path = self.settings.root.join("roots").join(key);
        fs::rename(directory, &path).map_err(at(&path))?;
        state.roots.insert(key.to_owned(), Some(Arc::new(root.clone())));
        Ok(())
    }

    fn open_root(self: &Arc<Self>, key: &str, root: &RootRecord) -> Result<Root, StoreError> {
        Ok(Root {
            key: key.to_owned(),
            image: root.image.clone(),
            directory: self.settings.root.join("roots").join(key),
            layers: root.layers.iter().map(|l| self.layer_root(l)).collect(),
            id_map: root.id_map.clone(),
            view: root.view,
            user_xattrs: self.xattrs == "user.",
        })
    }

    /// The root of a key.
    pub(crate) fn root(self: &Arc<Self>, key: &str) -> Result<Root, StoreError> {
        let record = self.state.lock().roots.get(key).cloned();
        match record {
            Some(Some(root)) => self.open_root(key, &root),
            Some(None) => Err(StoreError::Damaged {
                path: self.settings.root.join("roots").join(key),
                reason: "its record cannot be read".to_owned(),
            }),
            None => Err(StoreError::NoRoot(key.to_owned())),
        }
    }

    /// Gives up a root.
    pub(crate) fn release(&self, key: &str) -> Result<bool, StoreError> {
        let mut state = self.state.lock();
        if !state.roots.contains_key(key) {
            return Ok(false);
        }
        let path = self.settings.root.join("roots").join(key);
        match fs::rename(&path, self.trash().join(unique())) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(at(&path)(e)),
            _ => {}
        }
        state.roots.remove(key);
        self.collect(&mut state);
        drop(state);
        self.wake.notify_one();
        Ok(true)
    }

    /// All keys.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.state.lock().roots.keys().cloned().collect()
    }

    /// The disk that a root's writable layer takes.
    pub(crate) fn usage_of(&self, key: &str) -> Result<Usage, StoreError> {
        if !self.state.lock().roots.contains_key(key) {
            return Err(StoreError::NoRoot(key.to_owned()));
        }
        let upper = self.settings.root.join("roots").join(key).join("upper");
        match tree::usage(&upper) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(StoreError::NoRoot(key.to_owned())),
            other => other.map_err(at(&upper)),
        }
    }

    /// The disk that the store takes.
    pub(crate) fn usage(&self) -> StoreUsage {
        let mut images = Usage::default();
        let keys: Vec<String> = {
            let state = self.state.lock();
            for layer in state.layers.values() {
                images.bytes += layer.bytes;
                images.inodes += layer.inodes;
            }
            for size in state.blobs.values() {
                images.bytes += size.div_ceil(4096) * 4096;
                images.inodes += 1;
            }
            state.roots.keys().cloned().collect()
        };
        let mut roots = Usage::default();
        for usage in keys.iter().filter_map(|key| self.usage_of(key).ok()) {
            roots.bytes += usage.bytes;
            roots.inodes += usage.inodes;
        }
        StoreUsage { path: self.settings.root.clone(), images, roots }
    }
}

/// The attributes of a layer's root directory.
pub(crate) fn attributes(root: &std::path::Path) -> std::io::Result<(u32, u32, u32)> {
    let facts = fs::metadata(root)?;
    Ok((facts.mode() & 0o7777, facts.uid(), facts.gid()))
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::LinuxIdMappingBuilder;

    use super::*;

    #[test]
    fn keys_are_names() {
        for good in ["a", "0123456789abcdef", "a.b_c-d", &"a".repeat(128)] {
            assert!(check_key(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "-a", ".a", "a b", "ä", "a\0", &"a".repeat(129)] {
            assert!(check_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_are_mapped() {
        let part = |inside, outside, size| {
            let part = LinuxIdMappingBuilder::default().container_id(inside).host_id(outside).size(size);
            part.build().unwrap()
        };
        let map_of = [part(0_u32, 65_536_u32, 1000_u32), part(1000, 200_000, 1)];
        for (inside, outside) in
            [(0, 65_536), (999, 66_535), (1000, 200_000), (1001, 65_536), (u32::MAX, 65_536)]
        {
            assert_eq!(map(&map_of, inside), outside);
        }
        assert_eq!(map(&[], 7), 7);
    }
}
