//! Downloading a layer and unpacking it meanwhile. Three parties pass pieces on through short queues: a task that
//! reads from the registry, a thread that checks and keeps the archive, and a thread that unpacks it. A party that fails,
//! or is dropped, ends the others; what is downloaded stays, and the next try goes on from there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc as threads;

use bytes::{Buf, Bytes};
use http::header::CONTENT_RANGE;
use http::{Method, StatusCode};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::digest::{Digest, Hasher};
use crate::error::PullError;
use crate::layer::{LayerError, Space};
use crate::manifest::Descriptor;
use crate::pull::fetch::{Session, is_full, pause};
use crate::registry::client::{Failure, Remote};
use crate::store::Store;
use crate::store::collect::Item;
use crate::store::lease::Lease;
use crate::store::record::LayerId;
use crate::unpack::{Form, Unpacked, unpack};

/// How many pieces wait for the next party. A piece has at most some 400 KiB, hyper's largest buffer.
const QUEUE: usize = 16;
const BUFFER: usize = 256 << 10;
/// So much must come for an attempt to count as progress: a host that drips is given up.
const PROGRESS: u64 = 64 << 10;

/// A layer to be had.
pub(crate) struct LayerJob {
    /// The archive.
    pub descriptor: Descriptor,
    /// How it becomes files.
    pub form: Form,
    /// The layer's name if nothing below it matters.
    pub layer: LayerId,
    /// Its name if that does matter.
    pub chain: LayerId,
    /// Its place, from the lowest.
    pub number: usize,
}

/// A layer that is to be had.
#[derive(Debug)]
pub(crate) enum State {
    /// It is in the store.
    Ready(LayerId),
    /// It waits for those below it.
    Unpacked(Box<Unpacked>),
}

/// The things that are held while a layer is worked at: they last until the threads have ended, which may be after the pull.
struct Held {
    _lock: OwnedMutexGuard<()>,
    _slot: OwnedSemaphorePermit,
    _lease: Arc<Lease>,
}

impl Session<'_> {
    /// Sees to it that a layer is in the store, or unpacked.
    pub(crate) async fn layer(&self, lease: &Arc<Lease>, job: &LayerJob) -> Result<State, PullError> {
        let store = &self.puller.store;
        let digest = &job.descriptor.digest;
        let lock = store.downloads.take(digest.to_string()).await;
        lease.hold(Item::Blob(digest.clone()));
        for layer in [&job.layer, &job.chain] {
            lease.hold(Item::Layer(layer.clone()));
        }
        let size = store.blob(digest);
        if size.is_some_and(|size| size != job.descriptor.size) {
            return Err(self.invalid(&format!("its manifest says that {digest} has another size")));
        }
        let there = [&job.layer, &job.chain].into_iter().find(|layer| store.has_layer(layer)).cloned();
        if let Some(layer) = &there
            && (size.is_some() || store.settings.discard_archives)
        {
            return Ok(State::Ready(layer.clone()));
        }
        let slot = Arc::clone(&self.puller.slots).acquire_owned().await;
        let slot = slot.map_err(|e| self.invalid(&e.to_string()))?;
        let held = Arc::new(Held { _lock: lock, _slot: slot, _lease: Arc::clone(lease) });
        if let Some(layer) = there {
            // A root has kept the layer, but its archive went with its image.
            self.archive(&held, job, None).await?;
            return Ok(State::Ready(layer));
        }
        let unpacked = match size {
            Some(_) => self.unpack_kept(&held, job).await?,
            None => self.download_and_unpack(&held, job).await?,
        };
        if !unpacked.is_independent() {
            return Ok(State::Unpacked(Box::new(unpacked)));
        }
        let layer = job.layer.clone();
        let committed = tokio::task::spawn_blocking(move || {
            let _held = held;
            unpacked.commit(&layer).map(|()| State::Ready(layer))
        });
        committed.await.map_err(|e| self.invalid(&e.to_string()))?.map_err(|e| self.unpack(e))
    }

    /// A layer that the image has further below, too.
    pub(crate) async fn layer_again(&self, lease: &Arc<Lease>, job: &LayerJob) -> Result<State, PullError> {
        self.layer(lease, job).await
    }

    async fn unpack_kept(&self, held: &Arc<Held>, job: &LayerJob) -> Result<Unpacked, PullError> {
        let (store, held) = (Arc::clone(&self.puller.store), Arc::clone(held));
        let (path, form) = (store.blob_path(&job.descriptor.digest), job.form.clone());
        let done = tokio::task::spawn_blocking(move || {
            let _held = held;
            let file = File::open(path).map_err(LayerError::Archive)?;
            unpack(&store, io::BufReader::with_capacity(BUFFER, file), &form)
        });
        done.await.map_err(|e| self.invalid(&e.to_string()))?.map_err(|e| self.unpack(e))
    }

    async fn download_and_unpack(&self, held: &Arc<Held>, job: &LayerJob) -> Result<Unpacked, PullError> {
        let (to_unpack, queue) = threads::sync_channel::<Bytes>(QUEUE);
        let (hold, into, form) = (Arc::clone(held), Arc::clone(&self.puller.store), job.form.clone());
        let unpacking = tokio::task::spawn_blocking(move || {
            let _held = hold;
            unpack(&into, Pieces { queue, piece: Bytes::new() }, &form)
        });
        // If both fail, a download that is not what it should be is the cause.
        self.archive(held, job, Some(to_unpack)).await?;
        unpacking.await.map_err(|e| self.invalid(&e.to_string()))?.map_err(|e| self.unpack(e))
    }

    /// Downloads an archive into the store, and passes it on meanwhile.
    async fn archive(
        &self,
        held: &Arc<Held>,
        job: &LayerJob,
        next: Option<threads::SyncSender<Bytes>>,
    ) -> Result<(), PullError> {
        let store = &self.puller.store;
        let (pieces, to_keep) = mpsc::channel::<Bytes>(QUEUE);
        let (begin, offset) = oneshot::channel();
        let keeper = Keeper {
            store: Arc::clone(store),
            digest: job.descriptor.digest.clone(),
            size: job.descriptor.size,
            next,
            space: Space::new(store.settings.limits.reserve_percent),
        };
        let hold = Arc::clone(held);
        let mut kept: JoinHandle<Result<(), KeepError>> = tokio::task::spawn_blocking(move || {
            let _held = hold;
            keeper.run(begin, to_keep)
        });
        let Ok(offset) = offset.await else { return Err(self.keep_error(kept.await)) };
        let mut sending = pin!(self.download(job, offset, pieces));
        let ended = tokio::select! {
            biased;
            sent = &mut sending => {
                sent?;
                kept.await
            }
            early = &mut kept => {
                // It has all that it wants; whether the host sends more, the download shows.
                if matches!(early, Ok(Ok(()))) {
                    sending.await?;
                }
                early
            }
        };
        if matches!(ended, Ok(Ok(()))) { Ok(()) } else { Err(self.keep_error(ended)) }
    }

    fn keep_error(&self, ended: Result<Result<(), KeepError>, tokio::task::JoinError>) -> PullError {
        match ended {
            Ok(Err(KeepError::Full)) => self.no_space(),
            Ok(Err(KeepError::Disk(path, source))) => {
                self.store(crate::error::StoreError::Io { path, source })
            }
            Ok(Err(error)) => self.invalid(&error.to_string()),
            Ok(Ok(())) => self.invalid("a layer's download ended too early"),
            Err(error) => self.invalid(&error.to_string()),
        }
    }

    /// Reads a layer's archive from `offset` on, from the hosts in turn, as long as there is progress.
    async fn download(
        &self,
        job: &LayerJob,
        mut offset: u64,
        pieces: mpsc::Sender<Bytes>,
    ) -> Result<(), PullError> {
        let size = job.descriptor.size;
        let mut failures = 0;
        while offset < size {
            let mut last =
                PullError::NotFound(format!("{}: layer {}", self.reference(), job.descriptor.digest));
            let mut wait = None;
            let mut again = false;
            let before = offset;
            for remote in self.sources() {
                match self.download_from(remote, job, &mut offset, &pieces).await {
                    Ok(()) => return Ok(()),
                    Err(failure) => {
                        tracing::debug!(host = remote.host(), ?failure, offset, "a download broke off");
                        if let Failure::Unavailable(_, after) = &failure {
                            again = true;
                            wait = wait.max(*after);
                        }
                        if failure != Failure::NotFound {
                            last = self.failed(remote.host(), failure);
                        }
                    }
                }
            }
            failures = if offset >= before + PROGRESS { 1 } else { failures + 1 };
            if !again || failures >= self.attempts() {
                return Err(last);
            }
            pause(failures, wait).await;
        }
        Ok(())
    }

    async fn download_from(
        &self,
        remote: &Remote<'_>,
        job: &LayerJob,
        offset: &mut u64,
        pieces: &mpsc::Sender<Bytes>,
    ) -> Result<(), Failure> {
        let size = job.descriptor.size;
        let name = job.descriptor.digest.to_string();
        let answer = remote.get(Method::GET, "blobs", &name, "*/*", *offset).await?;
        // A host that knows no ranges sends everything once more.
        let mut skip = *offset;
        if answer.status() == StatusCode::PARTIAL_CONTENT {
            let range = answer.headers().get(CONTENT_RANGE).and_then(|r| r.to_str().ok());
            let start = range.and_then(|r| r.strip_prefix("bytes ")?.split('-').next()?.parse::<u64>().ok());
            if start != Some(*offset) {
                return Err(Failure::Unavailable(
                    "it sends another range than was asked for".to_owned(),
                    None,
                ));
            }
            skip = 0;
        }
        let mut body = answer.into_body();
        while let Some(mut part) = self.part(&mut body).await? {
            let skipped = usize::try_from(skip).unwrap_or(usize::MAX).min(part.len());
            part.advance(skipped);
            skip -= skipped as u64;
            if part.is_empty() {
                continue;
            }
            if part.len() as u64 > size - *offset {
                return Err(Failure::Fatal(format!(
                    "layer {name} is longer than its manifest says ({size} bytes)"
                )));
            }
            *offset += part.len() as u64;
            if pieces.send(part).await.is_err() {
                // The keeper has ended; its error is the one that counts.
                std::future::pending::<()>().await;
            }
        }
        if *offset == size { Ok(()) } else { Err(Failure::Unavailable("it broke off".to_owned(), None)) }
    }
}

/// A layer's archive that cannot be kept.
#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error("a layer has the digest {0}, its manifest says {1}")]
    Digest(Digest, Digest),
    #[error("the download was given up")]
    GivenUp,
    #[error("no space left")]
    Full,
    #[error("{0}: {1}")]
    Disk(PathBuf, #[source] io::Error),
}

/// Checks and keeps an archive, and passes it on.
struct Keeper {
    store: Arc<Store>,
    digest: Digest,
    size: u64,
    /// The unpacker, as long as it takes anything: its error is told in the end.
    next: Option<threads::SyncSender<Bytes>>,
    space: Space,
}

impl Keeper {
    fn run(
        mut self,
        begin: oneshot::Sender<u64>,
        mut pieces: mpsc::Receiver<Bytes>,
    ) -> Result<(), KeepError> {
        let name = format!("{}-{}.part", self.digest.algorithm().name(), self.digest.hex());
        let path = self.store.ingest().join(name);
        let disk =
            |e: io::Error| if is_full(&e) { KeepError::Full } else { KeepError::Disk(path.clone(), e) };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(disk)?;
        let mut hasher = Hasher::new(self.digest.algorithm());
        let mut length = self.take_up(&mut file, &mut hasher).map_err(disk)?;
        if begin.send(length).is_err() {
            return Err(KeepError::GivenUp);
        }
        while length < self.size {
            let Some(piece) = pieces.blocking_recv() else { return Err(KeepError::GivenUp) };
            hasher.update(&piece);
            file.write_all(&piece).map_err(disk)?;
            length += piece.len() as u64;
            let enough = self.space.take(&file, piece.len() as u64, 0).map_err(|e| disk(e.into()))?;
            if !enough {
                remove(&path);
                return Err(KeepError::Full);
            }
            self.pass_on(piece);
        }
        let found = hasher.finish();
        if found != self.digest {
            // Nothing of it stays, and the unpacker gets no end that looks like one.
            remove(&path);
            return Err(KeepError::Digest(found, self.digest.clone()));
        }
        let committed = self.store.commit_blob(&path, &self.digest, self.size);
        committed.map_err(|e| KeepError::Disk(path.clone(), io::Error::other(e.to_string())))
    }

    /// Takes up the part that an earlier try has left.
    fn take_up(&mut self, file: &mut File, hasher: &mut Hasher) -> io::Result<u64> {
        let length = file.metadata()?.len();
        if length > self.size {
            file.set_len(0)?;
            return Ok(0);
        }
        let mut left = length;
        while left > 0 {
            let mut buffer = vec![0; BUFFER.min(usize::try_from(left).unwrap_or(BUFFER))];
            file.read_exact(&mut buffer)?;
            hasher.update(&buffer);
            left -= buffer.len() as u64;
            self.pass_on(buffer.into());
        }
        Ok(length)
    }

    fn pass_on(&mut self, piece: Bytes) {
        if let Some(next) = &self.next
            && next.send(piece).is_err()
        {
            self.next = None;
        }
    }
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!(path = %path.display(), %error, "it cannot be removed");
    }
}

/// The pieces of an archive, read by the unpacker.
struct Pieces {
    queue: threads::Receiver<Bytes>,
    piece: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let piece = self.fill_buf()?;
        let count = piece.len().min(buffer.len());
        buffer[..count].copy_from_slice(&piece[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Pieces {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.piece.is_empty() {
            match self.queue.recv() {
                Ok(piece) => self.piece = piece,
                // The keeper has ended: with the archive's end, or with an error that it tells.
                Err(_) => break,
            }
        }
        Ok(&self.piece)
    }

    fn consume(&mut self, count: usize) {
        self.piece.advance(count);
    }
}
