//! Certificates and authorities in files, which are read again when the files change: a server goes on with the new
//! ones, and no connection ends. This is what cannot be used is told, and the one before stays.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use apiserver::config::Pair;
use apiserver::standalone::Exchange;
use component::Shutdown;

use crate::changes::Changes;

/// The time after which the files are looked at in any case, since a change behind a link is not told; upstream's.
const AGAIN: Duration = Duration::from_mins(1);

/// The files that are read again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Files {
    /// The certificate with which to serve, and its key.
    pub(crate) serving: Option<[PathBuf; 2]>,
    /// The certificates for certain names, and their keys.
    pub(crate) named: Vec<[PathBuf; 2]>,
    /// The certificate that is shown to aggregated servers, and its key.
    pub(crate) front_proxy: Option<[PathBuf; 2]>,
    /// The authorities of client certificates.
    pub(crate) client_authorities: Option<PathBuf>,
    /// The authorities of front proxies.
    pub(crate) front_proxy_authorities: Option<PathBuf>,
}

/// Takes over the texts of one part's files.
type Take = Box<dyn Fn(&[String]) -> Result<()> + Send>;

/// A part of the certificates: its files, what they held when they were looked at last, and what is done with it.
pub(crate) struct Part {
    files: Vec<PathBuf>,
    seen: Option<Vec<String>>,
    take: Take,
}

fn pair(texts: &[String]) -> Pair {
    let text = |at: usize| texts.get(at).cloned().unwrap_or_default();
    Pair { certificate_pem: text(0), key_pem: text(1) }
}

fn first(texts: &[String]) -> &str {
    texts.first().map_or("", String::as_str)
}

impl Files {
    fn parts(&self, exchange: &Exchange) -> Vec<Part> {
        type To = fn(&Exchange, &[String]) -> Result<()>;
        let both = |files: &Option<[PathBuf; 2]>| files.clone().map(Vec::from);
        let one = |file: &Option<PathBuf>| file.clone().map(|file| vec![file]);
        let all: [(Option<Vec<PathBuf>>, To); 4] = [
            (both(&self.serving), |to, texts| Ok(to.serving(&pair(texts))?)),
            (both(&self.front_proxy), |to, texts| Ok(to.front_proxy(&pair(texts))?)),
            (one(&self.client_authorities), |to, texts| Ok(to.client_authorities(first(texts))?)),
            (one(&self.front_proxy_authorities), |to, texts| Ok(to.front_proxy_authorities(first(texts))?)),
        ];
        let part = |(files, to): (Option<Vec<PathBuf>>, To)| {
            let exchange = exchange.clone();
            Some(Part::new(files?, move |texts| to(&exchange, texts)))
        };
        let named = self.named.iter().enumerate().map(|(at, files)| {
            let exchange = exchange.clone();
            Part::new(files.to_vec(), move |texts| Ok(exchange.named(at, &pair(texts))?))
        });
        all.into_iter().filter_map(part).chain(named).collect()
    }

    /// Follows the files until the shutdown.
    pub(crate) fn follow(&self, exchange: &Exchange, shutdown: &Shutdown) {
        follow(self.parts(exchange), shutdown);
    }
}

/// Follows the files of these parts until the shutdown.
pub(crate) fn follow(parts: Vec<Part>, shutdown: &Shutdown) {
    if parts.is_empty() {
        return;
    }
    let stop = shutdown.clone();
    shutdown.spawn(async move {
        stop.run(look_again(parts)).await;
    });
}

impl Part {
    /// A part whose texts, in the order of its files, `take` takes over.
    pub(crate) fn new(files: Vec<PathBuf>, take: impl Fn(&[String]) -> Result<()> + Send + 'static) -> Self {
        Self { files, seen: None, take: Box::new(take) }
    }

    /// Looks whether the files hold something else than before.
    fn look(&mut self) -> Result<()> {
        let read = |file: &PathBuf| {
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
        };
        let texts: Vec<String> = self.files.iter().map(read).collect::<Result<_>>()?;
        if self.seen.as_ref() == Some(&texts) {
            return Ok(());
        }
        let taken = (self.take)(&texts);
        self.seen = Some(texts);
        taken
    }
}

async fn look_again(mut parts: Vec<Part>) {
    let dirs: BTreeSet<&Path> = parts.iter().flat_map(|part| &part.files).map(|file| dir_of(file)).collect();
    let mut changes = Changes::of(dirs).inspect_err(only_each_minute).ok();
    loop {
        let looked = tokio::task::spawn_blocking(move || {
            for part in &mut parts {
                if let Err(error) = part.look() {
                    tracing::error!("{error:#}; the one before counts");
                }
            }
            parts
        });
        let Ok(back) = looked.await else { return };
        parts = back;
        let changed = async {
            match &mut changes {
                Some(told) => told.next().await,
                None => std::future::pending().await,
            }
        };
        if let Ok(Err(error)) = tokio::time::timeout(AGAIN, changed).await {
            only_each_minute(&error);
            changes = None;
        }
    }
}

fn only_each_minute(error: &std::io::Error) {
    tracing::warn!(%error, "files of certificates are looked at each minute only");
}

/// The directory of a file.
fn dir_of(file: &Path) -> &Path {
    file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
