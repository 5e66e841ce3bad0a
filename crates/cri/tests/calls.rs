//! Calls to a runtime that hangs, dies, or answers late, over a real socket.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use ferrokube_cri::{self as cri, LIMIT, runtime as pb};
use pb::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use tokio::net::UnixListener;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::codegen::BoxStream;
use tonic::{Code, Request, Response, Status};

/// A runtime whose calls begin, and end when the test lets them.
#[derive(Default)]
struct Hanging {
    begun: watch::Sender<usize>,
    go: Notify,
    ended: watch::Sender<usize>,
    given_up: Arc<AtomicUsize>,
}

/// Counts a call that its caller has given up.
struct Watched(Arc<AtomicUsize>, bool);

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.1 {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Hanging {
    async fn hang<T: Default>(&self) -> Result<Response<T>, Status> {
        let mut watched = Watched(self.given_up.clone(), false);
        self.begun.send_modify(|n| *n += 1);
        self.go.notified().await;
        watched.1 = true;
        self.ended.send_modify(|n| *n += 1);
        Ok(Response::new(T::default()))
    }
    async fn begun(&self, calls: usize) {
        self.begun.subscribe().wait_for(|n| *n >= calls).await.unwrap();
    }
}

#[tonic::async_trait]
impl RuntimeService for Hanging {
    async fn status(&self, _: Request<pb::StatusRequest>) -> Result<Response<pb::StatusResponse>, Status> {
        self.hang().await
    }
    async fn run_pod_sandbox(
        &self,
        _: Request<pb::RunPodSandboxRequest>,
    ) -> Result<Response<pb::RunPodSandboxResponse>, Status> {
        self.hang().await
    }
    async fn stop_container(
        &self,
        _: Request<pb::StopContainerRequest>,
    ) -> Result<Response<pb::StopContainerResponse>, Status> {
        self.hang().await
    }
    async fn exec_sync(
        &self,
        _: Request<pb::ExecSyncRequest>,
    ) -> Result<Response<pb::ExecSyncResponse>, Status> {
        self.hang().await
    }
}

struct Fixture<T = Hanging> {
    server: Arc<T>,
    runtime: cri::Runtime,
    _dir: tempfile::TempDir,
}

/// Serves on this runtime of tokio or on another one, which may end before.
async fn start_on(elsewhere: Option<&tokio::runtime::Runtime>) -> Fixture {
    serve(Hanging::default(), elsewhere).await
}

async fn serve<T: RuntimeService>(server: T, elsewhere: Option<&tokio::runtime::Runtime>) -> Fixture<T> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cri.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let server = Arc::new(server);
    let service = RuntimeServiceServer::from_arc(server.clone());
    let serve = async move {
        let incoming = UnixListenerStream::new(UnixListener::from_std(listener).unwrap());
        tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await
    };
    match elsewhere {
        Some(runtime) => runtime.spawn(serve),
        None => tokio::spawn(serve),
    };
    let channel = cri::connect(path.to_str().unwrap()).await.unwrap();
    Fixture { server, runtime: cri::Runtime::new(channel), _dir: dir }
}

async fn start() -> Fixture {
    start_on(None).await
}

#[tokio::test]
async fn a_call_ends_when_its_time_is_up() {
    let f = start().await;
    let runtime = &f.runtime;
    let status = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.status(pb::StatusRequest::default()).await.map(drop) }
    });
    let sandbox = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.run_pod_sandbox(pb::RunPodSandboxRequest::default()).await.map(drop) }
    });
    let stop = tokio::spawn({
        let runtime = runtime.clone();
        let request = pb::StopContainerRequest { timeout: 30, ..Default::default() };
        async move { runtime.stop_container(request).await.map(drop) }
    });
    let exec = tokio::spawn({
        let runtime = runtime.clone();
        let request = pb::ExecSyncRequest { timeout: 5, ..Default::default() };
        async move { runtime.exec_sync(request).await.map(drop) }
    });
    f.server.begun(4).await;
    // From here on nothing but time passes.
    tokio::time::pause();
    let began = Instant::now();
    let check = async |call: tokio::task::JoinHandle<Result<(), Status>>, limit: Duration| {
        let error = call.await.unwrap().unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded);
        assert_eq!(error.message(), "context deadline exceeded");
        // The real time before the pause is less than a second.
        assert_eq!((began.elapsed() + Duration::from_millis(500)).as_secs(), limit.as_secs());
    };
    check(status, LIMIT).await;
    check(exec, LIMIT + Duration::from_secs(5)).await;
    check(stop, LIMIT + Duration::from_secs(30)).await;
    check(sandbox, LIMIT * 2).await;
}

#[tokio::test]
async fn a_change_ends_also_when_its_caller_has_gone() {
    let f = start().await;
    let mine = f.runtime.of("pod");
    for _ in 0..2 {
        let mine = mine.clone();
        let next = *f.server.begun.borrow() + 1;
        let caller =
            tokio::spawn(async move { mine.run_pod_sandbox(pb::RunPodSandboxRequest::default()).await });
        f.server.begun(next).await;
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());
    }
    let idle = tokio::spawn({
        let mine = mine.clone();
        async move { mine.idle("pod").await }
    });
    mine.idle("another").await;
    f.server.go.notify_one();
    f.server.ended.subscribe().wait_for(|n| *n == 1).await.unwrap();
    assert!(!idle.is_finished(), "one of two is still under way");
    f.server.go.notify_one();
    idle.await.unwrap();
    assert_eq!(*f.server.ended.borrow(), 2);
    assert_eq!(f.server.given_up.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn closing_waits_for_what_is_under_way_and_lets_nothing_begin() {
    let f = start().await;
    let request = pb::RunPodSandboxRequest::default();
    let mut call = Box::pin(f.runtime.run_pod_sandbox(request.clone()));
    assert!(poll_once(&mut call).await.is_none());
    drop(call);
    f.server.begun(1).await;
    let mut closing = Box::pin(f.runtime.close());
    assert!(poll_once(&mut closing).await.is_none(), "a call is under way");
    let refused = f.runtime.run_pod_sandbox(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::Cancelled);
    f.server.go.notify_one();
    closing.await;
    assert_eq!((*f.server.begun.borrow(), *f.server.ended.borrow()), (1, 1));
}

/// The result of a future's next poll.
async fn poll_once<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
    std::future::poll_fn(|context| match std::pin::Pin::new(&mut *future).poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[tokio::test]
async fn a_runtime_that_dies_is_an_error_at_once() {
    let elsewhere =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let f = start_on(Some(&elsewhere)).await;
    let runtime = f.runtime.clone();
    let call = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.run_pod_sandbox(pb::RunPodSandboxRequest::default()).await }
    });
    f.server.begun(1).await;
    elsewhere.shutdown_background();
    assert_ne!(call.await.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
    let error = runtime.status(pb::StatusRequest::default()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    runtime.idle("").await;
}

/// The end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    Fails,
    Unknown,
}

/// A runtime with three containers, of which it tells as a whole or in pieces.
struct Lists {
    end: End,
    calls: Mutex<Vec<&'static str>>,
}

fn container(id: &str) -> pb::Container {
    pb::Container { id: id.into(), ..pb::Container::default() }
}

#[tonic::async_trait]
impl RuntimeService for Lists {
    async fn list_containers(
        &self,
        _: Request<pb::ListContainersRequest>,
    ) -> Result<Response<pb::ListContainersResponse>, Status> {
        self.calls.lock().unwrap().push("list");
        let containers = ["a", "b", "c"].map(container).into();
        Ok(Response::new(pb::ListContainersResponse { containers }))
    }

    async fn stream_containers(
        &self,
        request: Request<pb::StreamContainersRequest>,
    ) -> Result<Response<BoxStream<pb::StreamContainersResponse>>, Status> {
        self.calls.lock().unwrap().push("stream");
        if self.end == End::Unknown {
            return Err(Status::unimplemented("unknown method StreamContainers"));
        }
        assert_eq!(request.into_inner().filter.unwrap_or_default().id, "filter");
        let piece = |containers| Ok(pb::StreamContainersResponse { containers });
        let mut pieces = vec![piece(vec![container("a"), container("b")]), piece(vec![container("c")])];
        if self.end == End::Fails {
            pieces.insert(1, Err(Status::internal("half of it")));
        }
        Ok(Response::new(Box::pin(tokio_stream::iter(pieces))))
    }
}

#[tokio::test]
async fn lists_come_in_pieces_where_the_runtime_can_tell_them_so() {
    let check = async |end: End, wanted: bool, expected: Result<usize, &str>, calls: &[&str]| {
        let f = serve(Lists { end, calls: Mutex::default() }, None).await;
        let (runtime, other) = {
            let runtime = f.runtime.clone().in_pieces(wanted);
            (runtime.clone(), runtime.of("pod"))
        };
        for runtime in [runtime, other] {
            let filter = pb::ContainerFilter { id: "filter".into(), ..pb::ContainerFilter::default() };
            let request = pb::ListContainersRequest { filter: Some(filter) };
            let got = runtime.list_containers(request).await;
            let got = got.map(|answer| answer.into_inner().containers.len());
            assert_eq!(
                got.as_ref().map_err(Status::message),
                expected.as_ref().map_err(|why| *why),
                "{end:?}"
            );
        }
        assert_eq!(*f.server.calls.lock().unwrap(), calls, "{end:?} {wanted}");
    };
    check(End::Whole, false, Ok(3), &["list", "list"]).await;
    check(End::Whole, true, Ok(3), &["stream", "stream"]).await;
    // Half of a list is none.
    check(End::Fails, true, Err("half of it"), &["stream", "stream"]).await;
    // It is asked once, and clones know.
    check(End::Unknown, true, Ok(3), &["stream", "list", "list"]).await;
}
