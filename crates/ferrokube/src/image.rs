//! Work on the images of the built-in container runtime: through the runtime if it runs, otherwise on its store.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use component::Shutdown;
use cri::runtime as pb;
use images::{Credentials, Images, Settings};
use runtime::archives;

use crate::built_in;
use crate::cli::{Image, StoreOf};
use crate::say::say;

/// Those who have the images.
enum Store {
    /// A runtime that runs, by CRI and by the path of its socket for what CRI cannot do.
    Runtime(cri::Images, PathBuf),
    /// This process.
    Here(Images, Shutdown),
}

/// Runs a command.
pub(crate) async fn run(command: &Image) -> Result<()> {
    match command {
        Image::List(of) => list(&Store::open(of).await?).await,
        Image::Pull { names, creds, of } => {
            let store = Store::open(of).await?;
            for name in names {
                say(&store.pull(name, creds.as_deref()).await?);
            }
            store.close().await;
            Ok(())
        }
        Image::Rm { names, of } => {
            let store = Store::open(of).await?;
            for name in names {
                store.remove(name).await?;
            }
            store.close().await;
            Ok(())
        }
        Image::Import { files, of } => import(files, of).await,
        Image::Export { names, output, of } => export(names, output, of).await,
    }
}

impl Store {
    async fn open(of: &StoreOf) -> Result<Self> {
        let socket = std::path::absolute(built_in::socket(&of.data_dir))?;
        if let Ok(channel) = cri::connect(&socket.to_string_lossy()).await {
            let beside = built_in::root(&of.data_dir).join(runtime::ARCHIVES);
            return Ok(Self::Runtime(cri::Images::new(channel), beside));
        }
        let (images, shutdown) = open_here(&of.data_dir).await?;
        Ok(Self::Here(images, shutdown))
    }

    async fn close(self) {
        if let Self::Here(_, shutdown) = self {
            shutdown.finish().await;
        }
    }

    async fn pull(&self, name: &str, creds: Option<&str>) -> Result<String> {
        let (username, password) = creds.and_then(|text| text.split_once(':')).unwrap_or_default();
        let (username, password) = (username.to_owned(), password.to_owned());
        match self {
            Self::Runtime(service, _) => {
                let image = Some(pb::ImageSpec { image: name.to_owned(), ..pb::ImageSpec::default() });
                let auth = (!username.is_empty()).then(|| pb::AuthConfig {
                    username,
                    password,
                    ..pb::AuthConfig::default()
                });
                let pulled = service.pull_image(pb::PullImageRequest { image, auth, sandbox_config: None });
                Ok(pulled.await.map_err(said)?.into_inner().image_ref)
            }
            Self::Here(images, _) => {
                let credentials = Credentials { username, password, ..Credentials::default() };
                Ok(images.pull(name, &credentials).await?.id.to_string())
            }
        }
    }

    async fn remove(&self, name: &str) -> Result<()> {
        let removed = match self {
            Self::Runtime(_, beside) => {
                let (socket, name) = (beside.clone(), name.to_owned());
                tokio::task::spawn_blocking(move || archives::remove(&socket, &name)).await??
            }
            Self::Here(images, _) => images.remove(name).await?,
        };
        if !removed {
            bail!("there is no image {name}");
        }
        Ok(())
    }
}

/// A runtime's error as one sentence.
fn said(status: tonic::Status) -> anyhow::Error {
    anyhow::anyhow!("{}", status.message())
}

async fn open_here(data_dir: &Path) -> Result<(Images, Shutdown)> {
    let root = built_in::root(data_dir);
    if !root.exists() {
        bail!("{} has no built-in container runtime; name its --data-dir", data_dir.display());
    }
    let shutdown = Shutdown::new();
    let images = Images::open(Settings::new(root.join("images")), &shutdown).await;
    Ok((images.context("the images can't be opened")?, shutdown))
}

async fn list(store: &Store) -> Result<()> {
    let all: Vec<(Vec<String>, Vec<String>, String, u64)> = match store {
        Store::Runtime(service, _) => {
            let listed = service.list_images(pb::ListImagesRequest { filter: None }).await.map_err(said)?;
            let all = listed.into_inner().images.into_iter();
            all.map(|image| (image.repo_tags, image.repo_digests, image.id, image.size)).collect()
        }
        Store::Here(images, _) => {
            let all = images.list().into_iter();
            all.map(|image| (image.tags, image.digests, image.id.to_string(), image.size)).collect()
        }
    };
    for (tags, digests, id, size) in all {
        let names = if tags.is_empty() { digests } else { tags };
        let short = id.strip_prefix("sha256:").unwrap_or(&id).get(..12).unwrap_or(&id).to_owned();
        for name in if names.is_empty() { vec!["<none>".to_owned()] } else { names } {
            say(&format!("{name}\t{short}\t{:.1} MB", size as f64 / 1e6));
        }
    }
    Ok(())
}

async fn import(files: &[PathBuf], of: &StoreOf) -> Result<()> {
    let store = Store::open(of).await?;
    for path in files {
        let file = File::open(path).with_context(|| format!("{} can't be read", path.display()))?;
        let failed = || format!("{} can't be imported", path.display());
        let names = match &store {
            Store::Here(images, _) => {
                archives::names(&images.import(file, false).await.with_context(failed)?)
            }
            Store::Runtime(_, beside) => {
                let socket = beside.clone();
                let asked = tokio::task::spawn_blocking(move || archives::import(&socket, &file));
                asked.await?.with_context(failed)?
            }
        };
        for name in names {
            say(&name);
        }
    }
    store.close().await;
    Ok(())
}

async fn export(names: &[String], output: &Path, of: &StoreOf) -> Result<()> {
    let store = Store::open(of).await?;
    let file = File::create(output).with_context(|| format!("{} can't be written", output.display()))?;
    match &store {
        Store::Here(images, _) => images.export(names, file).await?,
        Store::Runtime(_, beside) => {
            let (socket, names) = (beside.clone(), names.to_vec());
            tokio::task::spawn_blocking(move || archives::export(&socket, &names, &file)).await??;
        }
    }
    store.close().await;
    Ok(())
}
