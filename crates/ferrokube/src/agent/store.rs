//! The files of a certificate with its key, as upstream's kubelet keeps them: each in a file of its own with the time in
//! its name, and a link `NAME-current.pem` to the one in use. The file before it is kept.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jiff::Timestamp;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::private;

/// The files of one certificate.
#[derive(Debug, Clone)]
pub(super) struct Store {
    dir: PathBuf,
    name: &'static str,
}

/// A certificate chain with its key.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl Store {
    pub(super) fn new(dir: &Path, name: &'static str) -> Self {
        Self { dir: dir.to_owned(), name }
    }

    /// The path of the certificate in use.
    pub(super) fn current(&self) -> PathBuf {
        self.dir.join(format!("{}-current.pem", self.name))
    }

    /// Reads the certificate in use; `None` if there is none that can be used.
    pub(super) fn read(&self) -> Result<Option<Pair>> {
        let path = self.current();
        match fs::read(&path) {
            Ok(pem) => Ok(parse(&pem)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Writes a new certificate with its key, and makes it the one in use, in one step.
    pub(super) fn write(&self, chain: &str, key: &str, now: Timestamp) -> Result<()> {
        let path = self.dir.join(format!("{}-{}.pem", self.name, now.strftime("%Y-%m-%d-%H-%M-%S-%f")));
        let failed = || format!("cannot write {}", path.display());
        let mut file = private::create(&path).with_context(failed)?;
        file.write_all(format!("{chain}{key}").as_bytes()).with_context(failed)?;
        file.sync_all().with_context(failed)?;
        let current = self.current();
        let before = fs::read_link(&current).ok();
        let link = self.dir.join(format!("{}-updated.pem", self.name));
        match fs::remove_file(&link) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e).with_context(failed),
            _ => {}
        }
        symlink(path.file_name().unwrap_or_default(), &link).with_context(failed)?;
        fs::rename(&link, &current).with_context(failed)?;
        self.remove_others(&[path.file_name().map(PathBuf::from), before]);
        Ok(())
    }

    /// Removes the files of certificates that were in use long ago.
    fn remove_others(&self, kept: &[Option<PathBuf>]) {
        let prefix = format!("{}-2", self.name);
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let name = PathBuf::from(entry.file_name());
            let own = name.to_string_lossy().starts_with(&prefix);
            if own && !kept.iter().flatten().any(|k| *k == name) {
                // A file that stays costs only its room.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// A certificate chain and its key in PEM.
pub(super) fn parse(pem: &[u8]) -> Option<Pair> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().ok()?;
    let key = PrivateKeyDer::from_pem_slice(pem).ok()?;
    (!chain.is_empty()).then_some(Pair { chain, key })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_last_two_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path(), "kubelet-client");
        assert!(store.read().unwrap().is_none());
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut last = Vec::new();
        for at in 0..4 {
            let made = rcgen::generate_simple_self_signed(vec![format!("n{at}")]).unwrap();
            let now = now + jiff::SignedDuration::from_secs(at);
            store.write(&made.cert.pem(), &made.signing_key.serialize_pem(), now).unwrap();
            last = made.cert.der().to_vec();
        }
        let pair = store.read().unwrap().unwrap();
        assert_eq!((pair.chain.len(), &pair.chain[0][..]), (1, &last[..]));
        let files: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap()).collect();
        assert_eq!(files.len(), 3, "{files:?}");
        for file in files {
            assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
        }
        fs::write(store.current(), "junk").unwrap();
        assert!(store.read().unwrap().is_none());
    }
}
