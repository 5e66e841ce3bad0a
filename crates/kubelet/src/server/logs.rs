//! `/containerLogs`: what a container wrote, as it was and as it is written.

use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::gate::Gate;
use bytes::{Bytes, BytesMut};
use cri::runtime as pb;
use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use rustix::fs::inotify;
use tokio::fs::File;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncSeekExt, SeekFrom};
use tokio::sync::mpsc;

use super::body::channel_body;
use super::log_lines::{Formatter, Options, Wanted};
use super::query::Query;
use super::served::Served;
use serving::{Body, Failure};

const BLOCK: usize = 64 << 10;
/// The longest line that is waited for; runtimes end theirs after 16 KiB.
const MAX_LINE: usize = 1 << 20;
/// How often a silent container is asked whether it still runs; its end is mostly seen on the file.
const ASK_RUNNING: Duration = Duration::from_secs(2);

/// Serves the log of a container of a Pod.
pub(super) async fn serve(
    served: &Served,
    namespace: &str,
    name: &str,
    container: &str,
    query: &Query,
) -> Result<Response<Body>, Failure> {
    let options = options(query, served.clock.now())?;
    let pod = served
        .pods
        .get(namespace, name, None)
        .ok_or_else(|| Failure::new(StatusCode::NOT_FOUND, format!("pod {name:?} does not exist")))?;
    if !has_container(&pod, container) {
        let text = format!("container {container:?} not found in pod {name:?}");
        return Err(Failure::new(StatusCode::NOT_FOUND, text));
    }
    if options.wanted != Wanted::All && !served.config.gates.enabled(Gate::PodLogsQuerySplitStreams) {
        let stream = query.get("stream").unwrap_or_default();
        return Err(Failure::bad_request(format!(
            "unable to return the given log stream: {stream:?}. Please enable PodLogsQuerySplitStreams feature gate in kubelet"
        )));
    }
    let previous = query.bool("previous");
    let id =
        container_id(&pod, name, container, previous).map_err(|e| Failure::bad_request(e.to_string()))?;
    let status = container_status(served, &id).await.map_err(|e| {
        tracing::debug!(error = e.message(), container, "no status of a container whose log is wanted");
        let runtime = &served.runtime.version().runtime_name;
        Failure::bad_request(format!("unable to retrieve container logs for {runtime}://{id}"))
    })?;
    let (sender, body) = channel_body();
    let mut log = Log::open(PathBuf::from(&status.log_path), options.tail).await.map_err(|e| {
        let what = match e.kind() {
            std::io::ErrorKind::NotFound => "try resolving symlinks in path",
            _ => "open log file",
        };
        Failure::bad_request(format!("failed to {what} {:?}: {e}", status.log_path))
    })?;
    let served = served.clone();
    tokio::spawn(async move {
        let running = || {
            let (served, id) = (served.clone(), id.clone());
            async move {
                let status = container_status(&served, &id).await;
                status.is_ok_and(|s| s.state() == pb::ContainerState::ContainerRunning)
            }
        };
        let copy = async {
            if let Err(error) = log.copy(options, running, &sender).await {
                tracing::debug!(%error, "cannot read a log any further");
            }
        };
        // A reader that goes away ends it also while the container is silent.
        tokio::select! {
            () = copy => {}
            () = sender.closed() => {}
        }
    });
    Ok(Response::new(body))
}

async fn container_status(served: &Served, id: &str) -> Result<pb::ContainerStatus, tonic::Status> {
    let request = pb::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    let answer = served.runtime.service().container_status(request).await?.into_inner();
    answer.status.ok_or_else(|| tonic::Status::internal("no status"))
}

fn options(query: &Query, now: Timestamp) -> Result<Options, Failure> {
    let invalid = || Failure::new(StatusCode::UNPROCESSABLE_ENTITY, r#"{"message": "Invalid request."}"#);
    let number = |key: &str| match query.get(key) {
        None => Ok(None),
        Some(text) => text
            .parse::<i64>()
            .map(Some)
            .map_err(|_| Failure::bad_request(r#"{"message": "Unable to decode query."}"#)),
    };
    let tail = match query.get("tail") {
        Some("all") => None,
        Some(_) => number("tail")?,
        None => number("tailLines")?,
    };
    let limit = number("limitBytes")?;
    let since_seconds = number("sinceSeconds")?;
    let since_time = match query.get("sinceTime").filter(|t| !t.is_empty()) {
        None => None,
        Some(text) => Some(
            text.parse::<Timestamp>()
                .map_err(|_| Failure::bad_request(r#"{"message": "Unable to decode query."}"#))?,
        ),
    };
    if tail.is_some_and(|n| n < 0)
        || limit.is_some_and(|n| n < 1)
        || since_seconds.is_some_and(|n| n < 1)
        || (since_seconds.is_some() && since_time.is_some())
    {
        return Err(invalid());
    }
    let wanted = match query.get("stream") {
        None | Some("All") => Wanted::All,
        // The last lines are looked for in the file, which has both streams.
        Some("Stdout" | "Stderr") if tail.is_some() => return Err(invalid()),
        Some("Stdout") => Wanted::Stdout,
        Some("Stderr") => Wanted::Stderr,
        Some(_) => return Err(invalid()),
    };
    let since = since_seconds
        .map(|n| now.checked_sub(SignedDuration::from_secs(n)).unwrap_or(Timestamp::MIN))
        .or(since_time);
    Ok(Options {
        wanted,
        timestamps: query.bool("timestamps"),
        since,
        tail: tail.map(|n| n as u64),
        limit: limit.map(|n| n as u64),
        follow: query.bool("follow"),
    })
}

/// Whether a Pod has a container of any kind of this name.
pub(super) fn has_container(pod: &Pod, name: &str) -> bool {
    pod.spec.as_ref().is_some_and(|spec| {
        spec.containers.iter().any(|c| c.name == name)
            || spec.init_containers.iter().flatten().any(|c| c.name == name)
            || spec.ephemeral_containers.iter().flatten().any(|c| c.name == name)
    })
}

/// Why a container has no log; upstream's texts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} {container:?} in pod {pod:?} {why}", if matches!(.why, Missing::Previous) { "previous terminated container" } else { "container" })]
struct NoLog {
    container: String,
    pod: String,
    why: Missing,
}

/// The reason why a container has no log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Missing {
    #[error("is not available")]
    Status,
    #[error("not found")]
    Previous,
    #[error("is terminated")]
    Terminated,
    #[error("is waiting to start - no logs yet")]
    Waiting,
    #[error("is waiting to start: {0}")]
    WaitingFor(String),
}

/// The CRI id of the container whose log is meant, from the Pod's status.
fn container_id(pod: &Pod, pod_name: &str, name: &str, previous: bool) -> Result<String, NoLog> {
    let missing = |why| NoLog { container: name.to_owned(), pod: pod_name.to_owned(), why };
    let statuses = pod.status.as_ref();
    let all = |pick: fn(&k8s_openapi::api::core::v1::PodStatus) -> &Option<Vec<ContainerStatus>>| {
        statuses.and_then(|s| pick(s).as_ref()).into_iter().flatten()
    };
    let status = all(|s| &s.container_statuses)
        .chain(all(|s| &s.init_container_statuses))
        .chain(all(|s| &s.ephemeral_container_statuses))
        .find(|s| s.name == name)
        .ok_or_else(|| missing(Missing::Status))?;
    let terminated = |state: &Option<ContainerState>| {
        state.as_ref().and_then(|s| s.terminated.as_ref()).and_then(|t| t.container_id.clone())
    };
    let bare = |id: String| id.split_once("://").map_or(id.clone(), |(_, id)| id.to_owned());
    let last = terminated(&status.last_state).filter(|id| !id.is_empty());
    if previous {
        return last.map(bare).ok_or_else(|| missing(Missing::Previous));
    }
    let state = status.state.clone().unwrap_or_default();
    if state.running.is_some() {
        return Ok(bare(status.container_id.clone().unwrap_or_default()));
    }
    if state.terminated.is_some() {
        return terminated(&status.state)
            .filter(|id| !id.is_empty())
            .or(last)
            .map(bare)
            .ok_or_else(|| missing(Missing::Terminated));
    }
    if status.last_state.as_ref().is_some_and(|last| last.terminated.is_some()) {
        return last.map(bare).ok_or_else(|| missing(Missing::Terminated));
    }
    let Some(waiting) = state.waiting else { return Err(missing(Missing::Waiting)) };
    let why = match waiting.reason.unwrap_or_default().as_str() {
        "ErrImagePull" => "image can't be pulled".to_owned(),
        "ImagePullBackOff" => "trying and failing to pull image".to_owned(),
        reason => reason.to_owned(),
    };
    Err(missing(Missing::WaitingFor(why)))
}

/// Opens a log off the async threads.
async fn open(path: &Path) -> std::io::Result<File> {
    let path = path.to_owned();
    let opened = tokio::task::spawn_blocking(move || crate::logs::open(&path)).await;
    Ok(File::from_std(opened.map_err(std::io::Error::other)??))
}

/// An open log file.
struct Log {
    path: PathBuf,
    file: File,
    buffer: BytesMut,
}

impl Log {
    async fn open(path: PathBuf, tail: Option<u64>) -> std::io::Result<Self> {
        let mut file = open(&path).await?;
        if let Some(lines) = tail {
            let start = tail_start(&mut file, lines).await?;
            file.seek(SeekFrom::Start(start)).await?;
        }
        Ok(Self { path, file, buffer: BytesMut::with_capacity(BLOCK) })
    }

    /// Sends what is wanted until the end; with `follow`, until the container has stopped.
    async fn copy<F: Future<Output = bool>>(
        &mut self,
        options: Options,
        running: impl Fn() -> F,
        sender: &mpsc::Sender<Bytes>,
    ) -> std::io::Result<()> {
        let follow = options.follow;
        let mut formatter = Formatter::new(options);
        let mut watch: Option<Watch> = None;
        let mut last_round = !follow;
        loop {
            self.drain(&mut formatter, sender).await?;
            if formatter.done() || sender.is_closed() {
                return Ok(());
            }
            if last_round {
                // A line without an end: the container was killed while it wrote.
                let mut out = BytesMut::new();
                formatter.line(&self.buffer.split(), &mut out);
                if !out.is_empty() {
                    let _ = sender.send(out.freeze()).await;
                }
                return Ok(());
            }
            let Some(watch) = &mut watch else {
                // Lines that came before the watch are read after it was set.
                watch = Some(Watch::new(&self.path)?);
                self.follow_rotation(&mut formatter, sender).await?;
                if !running().await {
                    last_round = true;
                }
                continue;
            };
            match tokio::time::timeout(ASK_RUNNING, watch.next()).await {
                Ok(Ok(Seen::Written)) => {}
                Ok(Ok(Seen::Recreated)) => self.follow_rotation(&mut formatter, sender).await?,
                Ok(Ok(Seen::Closed)) | Err(_) => last_round = !running().await,
                Ok(Err(e)) => return Err(e),
            }
        }
    }

    /// Goes on with the file that has the log's name, if that is another one by now.
    async fn follow_rotation(
        &mut self,
        formatter: &mut Formatter,
        sender: &mpsc::Sender<Bytes>,
    ) -> std::io::Result<()> {
        use std::os::unix::fs::MetadataExt;
        // In the middle of a rotation there is none; its coming is seen.
        let Ok(file) = open(&self.path).await else { return Ok(()) };
        if file.metadata().await?.ino() != self.file.metadata().await?.ino() {
            self.drain(formatter, sender).await?;
            self.file = file;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Reads to the end of the file; an unfinished line stays in the buffer.
    async fn drain(
        &mut self,
        formatter: &mut Formatter,
        sender: &mpsc::Sender<Bytes>,
    ) -> std::io::Result<()> {
        loop {
            self.buffer.reserve(BLOCK);
            if self.file.read_buf(&mut self.buffer).await? == 0 {
                return Ok(());
            }
            let Some(end) = self.buffer.iter().rposition(|b| *b == b'\n') else {
                if self.buffer.len() > MAX_LINE {
                    return Err(std::io::Error::other("a line of the log is too long"));
                }
                continue;
            };
            let lines = self.buffer.split_to(end + 1);
            let mut out = BytesMut::with_capacity(lines.len());
            for line in lines.split_inclusive(|b| *b == b'\n') {
                formatter.line(line, &mut out);
            }
            if !out.is_empty() && sender.send(out.freeze()).await.is_err() {
                return Ok(());
            }
            if formatter.done() {
                return Ok(());
            }
        }
    }
}

/// Where the last `lines` lines of a file begin.
async fn tail_start(file: &mut File, lines: u64) -> std::io::Result<u64> {
    let mut right = file.seek(SeekFrom::End(0)).await?;
    let mut found = 0;
    let mut block = vec![0; BLOCK];
    while right > 0 {
        let left = right.saturating_sub(BLOCK as u64);
        let block = &mut block[..(right - left) as usize];
        file.seek(SeekFrom::Start(left)).await?;
        file.read_exact(block).await?;
        for (at, _) in block.iter().enumerate().rev().filter(|(_, b)| **b == b'\n') {
            // The end of the last line is not the end of a line before it.
            if found == lines {
                return Ok(left + at as u64 + 1);
            }
            found += 1;
        }
        right = left;
    }
    Ok(0)
}

enum Seen {
    Written,
    Recreated,
    Closed,
}

/// Watches a log file's directory.
struct Watch {
    fd: AsyncFd<std::os::fd::OwnedFd>,
    name: std::ffi::OsString,
}

impl Watch {
    fn new(path: &Path) -> std::io::Result<Self> {
        use inotify::WatchFlags;
        let fd = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let flags = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE;
        let (dir, name) = crate::logs::directory(path)?;
        inotify::add_watch(&fd, format!("/proc/self/fd/{}", dir.as_raw_fd()), flags)?;
        #[allow(deprecated, reason = "its successor is unsafe for the sake of other types than OwnedFd")]
        let fd = AsyncFd::new(fd)?;
        Ok(Self { fd, name })
    }

    /// Waits for the next change of the file.
    async fn next(&mut self) -> std::io::Result<Seen> {
        use inotify::ReadFlags;
        use std::os::unix::ffi::OsStrExt;
        loop {
            let mut guard = self.fd.readable().await?;
            let mut seen = None;
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = inotify::Reader::new(self.fd.get_ref(), &mut buffer);
            loop {
                match reader.next() {
                    Ok(event) => {
                        let ours = event.file_name().is_some_and(|n| n.to_bytes() == self.name.as_bytes());
                        let flags = event.events();
                        if !ours {
                            continue;
                        }
                        if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                            seen = Some(Seen::Recreated);
                        } else if flags.contains(ReadFlags::CLOSE_WRITE)
                            && !matches!(seen, Some(Seen::Recreated))
                        {
                            seen = Some(Seen::Closed);
                        } else if seen.is_none() {
                            seen = Some(Seen::Written);
                        }
                    }
                    Err(rustix::io::Errno::AGAIN) => {
                        guard.clear_ready();
                        break;
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(e) => return Err(e.into()),
                }
                if reader.is_buffer_empty() && seen.is_some() {
                    break;
                }
            }
            if let Some(seen) = seen {
                return Ok(seen);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn queries() {
        let now: Timestamp = "2024-01-01T00:01:00Z".parse().unwrap();
        let ok =
            options(&Query::parse("tail=3&sinceSeconds=60&follow=1&stream=All&limitBytes=9"), now).unwrap();
        assert_eq!((ok.tail, ok.limit, ok.follow, ok.wanted), (Some(3), Some(9), true, Wanted::All));
        let one = options(&Query::parse("stream=Stderr&limitBytes=9"), now).unwrap();
        assert_eq!((one.limit, one.wanted), (Some(9), Wanted::Stderr));
        assert_eq!(ok.since, Some("2024-01-01T00:00:00Z".parse().unwrap()));
        let check = |query: &str, code: u16| {
            assert_eq!(options(&Query::parse(query), now).unwrap_err().code.as_u16(), code, "{query}");
        };
        check("tailLines=x", 400);
        check("tailLines=-1", 422);
        check("limitBytes=0", 422);
        check("sinceSeconds=1&sinceTime=2024-01-01T00:00:00Z", 422);
        // Upstream's cases of `TestValidatePodLogOptions`.
        check("stream=Both", 422);
        check("stream=", 422);
        check("stream=Stdout&tailLines=1", 422);
        assert!(options(&Query::parse("tail=all"), now).unwrap().tail.is_none());
    }

    /// Upstream's cases (`TestContainerLogs`, `TestContainerLogsWithInvalidTail` and `TestContainerLogsWithSeparateStream`).
    #[test]
    fn upstreams_queries() {
        let now = Timestamp::UNIX_EPOCH;
        for (query, expected) in [
            ("", (Wanted::All, None, None)),
            ("tailLines=5", (Wanted::All, Some(5), None)),
            ("tail=5", (Wanted::All, Some(5), None)),
            ("tail=all", (Wanted::All, None, None)),
            ("limitBytes=100", (Wanted::All, None, Some(100))),
            ("stream=Stdout", (Wanted::Stdout, None, None)),
            ("stream=Stderr", (Wanted::Stderr, None, None)),
            ("stream=All", (Wanted::All, None, None)),
            ("stream=All&tail=1", (Wanted::All, Some(1), None)),
            ("stream=All&tailLines=2", (Wanted::All, Some(2), None)),
            ("stream=Stdout&limitBytes=6", (Wanted::Stdout, None, Some(6))),
        ] {
            let got = options(&Query::parse(query), now).unwrap();
            assert_eq!((got.wanted, got.tail, got.limit), expected, "{query}");
        }
        for query in ["tail=-1", "stream=invalid"] {
            let failure = options(&Query::parse(query), now).unwrap_err();
            let expected = (StatusCode::UNPROCESSABLE_ENTITY, r#"{"message": "Invalid request."}"#);
            assert_eq!((failure.code, failure.text.as_str()), expected, "{query}");
        }
    }

    #[test]
    fn which_container() {
        let check = |state: serde_json::Value,
                     last: serde_json::Value,
                     previous: bool,
                     expected: Result<&str, &str>| {
            let pod: Pod = serde_json::from_value(json!({"status": {"containerStatuses": [{
                "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "containerID": "containerd://now", "state": state, "lastState": last}]}}))
            .unwrap();
            let got = container_id(&pod, "p", "c", previous);
            let got = got.map_err(|e| e.to_string());
            assert_eq!(got.as_deref().map_err(String::as_str), expected);
        };
        let dead = |id: &str| json!({"terminated": {"containerID": id, "exitCode": 1}});
        check(json!({"running": {}}), json!({}), false, Ok("now"));
        check(json!({"running": {}}), dead("containerd://old"), true, Ok("old"));
        check(
            json!({"running": {}}),
            json!({}),
            true,
            Err("previous terminated container \"c\" in pod \"p\" not found"),
        );
        check(dead("containerd://end"), json!({}), false, Ok("end"));
        check(dead(""), json!({}), false, Err("container \"c\" in pod \"p\" is terminated"));
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        check(waiting("CrashLoopBackOff"), dead("containerd://old"), false, Ok("old"));
        check(
            waiting("ErrImagePull"),
            json!({}),
            false,
            Err("container \"c\" in pod \"p\" is waiting to start: image can't be pulled"),
        );
        check(
            waiting("ContainerCreating"),
            json!({}),
            false,
            Err("container \"c\" in pod \"p\" is waiting to start: ContainerCreating"),
        );
    }

    /// Upstream's 9 cases of `TestValidateContainerLogStatus`: the state and the one before, whether there is a log, and one of
    /// the run before.
    #[test]
    fn containers_that_have_a_log() {
        let ended = |id: &str| json!({"terminated": {"containerID": id, "exitCode": 0}});
        let (known, lost, run) = (ended("docker://fakeid"), ended(""), json!({"running": {}}));
        let waits = |reason: &str| json!({"waiting": {"reason": reason}});
        for (state, last, now, before) in [
            (&run, &known, true, true),
            (&run, &json!({}), true, false),
            (&lost, &json!({}), false, false),
            (&known, &json!({}), true, false),
            (&lost, &lost, false, false),
            (&lost, &known, true, true),
            (&json!({"waiting": {}}), &json!({}), false, false),
            (&waits("ErrImagePull"), &json!({}), false, false),
            (&waits("ErrImagePullBackOff"), &json!({}), false, false),
            // One that waits after a run of which nothing is known.
            (&waits("CrashLoopBackOff"), &lost, false, false),
        ] {
            let pod: Pod = serde_json::from_value(json!({"status": {"containerStatuses": [{
                "name": "x", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": state, "lastState": last}]}}))
            .unwrap();
            for (previous, expected) in [(false, now), (true, before)] {
                let got = container_id(&pod, "podName", "x", previous);
                assert_eq!(got.is_ok(), expected, "{state} {last} {previous}");
            }
            let other = container_id(&pod, "podName", "blah", false).unwrap_err().to_string();
            assert_eq!(other, r#"container "blah" in pod "podName" is not available"#);
        }
    }

    fn all(follow: bool, tail: Option<u64>) -> Options {
        Options { wanted: Wanted::All, timestamps: false, since: None, tail, limit: None, follow }
    }

    #[tokio::test]
    async fn tails() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let line = |n: usize| format!("2024-01-01T00:00:00Z stdout F line {n} {}\n", "x".repeat(100));
        std::fs::write(&path, (0..2000).map(line).collect::<String>()).unwrap();
        for (tail, expected) in [(0, 0), (1, 1), (1500, 1500), (5000, 2000)] {
            let (sender, mut receiver) = mpsc::channel(8);
            let mut log = Log::open(path.clone(), Some(tail)).await.unwrap();
            let task = tokio::spawn(async move {
                log.copy(all(false, Some(tail)), || async { false }, &sender).await.unwrap();
            });
            let mut text = Vec::new();
            while let Some(piece) = receiver.recv().await {
                text.extend_from_slice(&piece);
            }
            task.await.unwrap();
            let text = String::from_utf8(text).unwrap();
            assert_eq!(text.lines().count(), expected);
            if expected > 0 {
                assert!(text.lines().next().unwrap().starts_with(&format!("line {} ", 2000 - expected)));
            }
        }
    }

    #[tokio::test]
    async fn follows_until_the_container_stops() {
        use std::io::Write;
        use std::sync::atomic::{AtomicBool, Ordering};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let mut writer = std::fs::File::create(&path).unwrap();
        writer.write_all(b"2024-01-01T00:00:00Z stdout F one\n").unwrap();
        let runs = Arc::new(AtomicBool::new(true));
        let (sender, mut receiver) = mpsc::channel(8);
        let task = tokio::spawn({
            let (runs, path) = (runs.clone(), path.clone());
            async move {
                let mut log = Log::open(path, None).await.unwrap();
                let running = || std::future::ready(runs.load(Ordering::SeqCst));
                log.copy(all(true, None), running, &sender).await.unwrap();
            }
        });
        assert_eq!(receiver.recv().await.unwrap(), "one\n");
        writer.write_all(b"2024-01-01T00:00:00Z stdout F t").unwrap();
        writer.write_all(b"wo\n").unwrap();
        assert_eq!(receiver.recv().await.unwrap(), "two\n");
        std::fs::rename(&path, dir.path().join("0.log.old")).unwrap();
        std::fs::write(&path, "2024-01-01T00:00:00Z stdout F three\n").unwrap();
        assert_eq!(receiver.recv().await.unwrap(), "three\n");
        runs.store(false, Ordering::SeqCst);
        drop(std::fs::OpenOptions::new().append(true).open(&path).unwrap());
        assert_eq!(receiver.recv().await, None);
        task.await.unwrap();
    }
}
