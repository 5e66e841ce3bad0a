//! Images that a node has from the start: archives in a directory, each imported when the node starts or when it is put
//! there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use component::Shutdown;

use crate::changes::Changes;
use crate::say::{say, whole};

/// An archive's file as it was imported: its size and the time of its last change.
type Stamp = (u64, SystemTime);

/// An archive that was imported, with the ids of its images as far as they are known.
type Imported = (Stamp, Vec<String>);

/// The runtime that takes the images.
pub(crate) enum Importer {
    /// The built-in one, by its store.
    BuiltIn(images::Images),
    /// Another one, by the command that imports an archive.
    Program(Box<dyn Fn(&Path) -> Command + Send + Sync>),
}

/// The archives of a directory, and those of them that a node has.
pub(crate) struct Archives {
    dir: PathBuf,
    imported: BTreeMap<PathBuf, Imported>,
    importer: Importer,
    /// The file in which those that were imported are kept; none if each process imports all.
    kept: Option<PathBuf>,
}

impl Archives {
    pub(crate) fn new(dir: &Path, importer: Importer) -> Self {
        Self { dir: dir.to_owned(), imported: BTreeMap::new(), importer, kept: None }
    }

    /// Keeps in a file which archives were imported, so that the next process does not import them again.
    pub(crate) fn kept_in(mut self, file: PathBuf) -> Self {
        let known = fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        self.imported = known.unwrap_or_default();
        self.kept = Some(file);
        self
    }

    /// Imports what the node has not yet. An archive that cannot be imported is told of, and tried again once it changes.
    pub(crate) async fn import(&mut self) {
        for (path, stamp) in archives(&self.dir) {
            if self.imported.get(&path).is_some_and(|(known, ids)| *known == stamp && self.has(ids)) {
                continue;
            }
            self.imported.insert(path.clone(), (stamp, Vec::new()));
            match self.import_one(&path).await {
                Ok(ids) => {
                    self.imported.insert(path.clone(), (stamp, ids));
                    tracing::info!(archive = %path.display(), "images are imported");
                    self.keep();
                }
                // Somebody writes it just now; the next change leads here again.
                Err(_) if stamp_of(&path) != Some(stamp) => {
                    self.imported.remove(&path);
                }
                Err(error) => {
                    eprintln!(
                        "ferrokube: the images of {} are not imported: {}",
                        path.display(),
                        whole(&error)
                    );
                }
            }
        }
    }

    /// Writes down what was imported. If that fails, it is imported again, which costs time alone.
    fn keep(&self) {
        let Some(file) = &self.kept else { return };
        let written = serde_json::to_vec(&self.imported).map_err(std::io::Error::from);
        if let Err(error) = written.and_then(|text| fs::write(file, text)) {
            tracing::warn!(%error, "imported archives are not written down");
        }
    }

    /// Whether images are there still: one that nobody used may have been collected.
    fn has(&self, ids: &[String]) -> bool {
        match &self.importer {
            Importer::BuiltIn(images) => ids.iter().all(|id| images.find(id).is_some()),
            Importer::Program(_) => true,
        }
    }

    async fn import_one(&self, path: &Path) -> Result<Vec<String>> {
        let mut command = match &self.importer {
            Importer::BuiltIn(images) => {
                let all = images.import(fs::File::open(path)?, true).await?;
                return Ok(all.iter().map(|image| image.id.to_string()).collect());
            }
            Importer::Program(program) => program(path),
        };
        command.stdin(Stdio::null());
        let ctr = command.get_program().to_owned();
        let out = tokio::process::Command::from(command).kill_on_drop(true).output().await;
        let out = out.with_context(|| format!("{} can't be started", Path::new(&ctr).display()))?;
        if !out.status.success() {
            bail!("{}", String::from_utf8_lossy(&out.stderr).trim());
        }
        Ok(Vec::new())
    }

    /// Imports archives that are put into the directory later, until `shutdown`.
    pub(crate) async fn follow(mut self, shutdown: Shutdown) {
        let result = shutdown.run(async {
            fs::create_dir_all(&self.dir)?;
            let mut changes = Changes::of([self.dir.as_path()])?;
            loop {
                self.import().await;
                changes.next().await?;
            }
        });
        if let Some(Err::<(), anyhow::Error>(error)) = result.await {
            say(&format!(
                "images that are put into {} later are not imported: {}",
                self.dir.display(),
                whole(&error)
            ));
        }
    }
}

/// The stamp of a file; none if it is not there.
fn stamp_of(path: &Path) -> Option<Stamp> {
    let meta = fs::metadata(path).ok()?;
    Some((meta.len(), meta.modified().ok()?))
}

/// Whether a path is that of an archive of images: a file, by its name.
pub(crate) fn is_archive(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let known = [".tar", ".tar.gz", ".tgz", ".tar.zst"].iter().any(|end| name.ends_with(end));
    known && !name.starts_with('.') && path.is_file()
}

/// The archives of a directory; none if it is not there.
fn archives(dir: &Path) -> Vec<(PathBuf, Stamp)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let path = entry.path();
            let stamp = stamp_of(&path).filter(|_| is_archive(&path))?;
            Some((path, stamp))
        })
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_of_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        assert!(archives(&dir.path().join("none")).is_empty());
        for name in ["b.tar", "a.tgz", "c.tar.gz", "notes.txt", ".d.tar"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        fs::create_dir(dir.path().join("e.tar")).unwrap();
        let names: Vec<_> =
            archives(dir.path()).iter().map(|(path, _)| path.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["a.tgz", "b.tar", "c.tar.gz"]);
    }
}
