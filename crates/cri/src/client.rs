//! Clients of a runtime's two services, in which each call has a time limit.
//!
//! A call that changes something runs in a task of its own: it still ends by itself if its caller goes away. So a
//! runtime never sees such a call given up midway, unless its time is up.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::calls::{Calls, limited};
use crate::runtime as pb;

mod generated {
    #![allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::pedantic)]
    include!("../generated/clients.rs");
}
use generated::image_service_client::ImageServiceClient;
use generated::runtime_service_client::RuntimeServiceClient;

/// The time that a call may take; upstream's `runtimeRequestTimeout`.
pub const LIMIT: Duration = Duration::from_mins(2);
/// The largest message taken from a runtime; upstream's limit.
const MAX_MESSAGE: usize = 16 << 20;
/// The owner of calls that name none.
const NOBODY: &str = "";

/// The time limit of a call that itself waits so many seconds, and may take `limit` besides.
fn after(seconds: i64, limit: Duration) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).saturating_add(limit)
}

/// Hears of each call that has ended: its name, how long it took, and whether it failed.
type Hear = dyn Fn(&'static str, Duration, bool) + Send + Sync;

/// The listener that hears of the calls, if there is one.
#[derive(Clone, Default)]
struct Told(Option<Arc<Hear>>);

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Told")
    }
}

impl Told {
    async fn of<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let began = Instant::now();
        let answer = call.await;
        if let Some(hear) = &self.0 {
            hear(name, began.elapsed(), answer.is_err());
        }
        answer
    }
}

/// Defines calls that only read: they end with their callers.
macro_rules! reads {
    ($($name:ident: $request:ident => $answer:ident;)*) => {$(
        /// The call of this name.
        ///
        /// # Errors
        /// The runtime's, or `DeadlineExceeded` when the time is up.
        pub async fn $name(&self, request: pb::$request) -> Result<Response<pb::$answer>, Status> {
            let mut client = self.client.clone();
            // The call is boxed: its future is large, and its callers' futures are kept in many places.
            self.told.of(stringify!($name), limited(self.limit, Box::pin(client.$name(request)))).await
        }
    )*};
}

/// The most items of a list that is told in pieces.
const MOST: usize = 1 << 20;

/// Whether lists are asked for in pieces; upstream's gate `CRIListStreaming`. A runtime that does not know such calls is
/// asked for whole lists from then on.
#[derive(Debug, Clone, Default)]
struct Pieces(Arc<AtomicBool>);

impl Pieces {
    fn new(wanted: bool) -> Self {
        Self(Arc::new(AtomicBool::new(wanted)))
    }

    /// The items of a list in pieces, of which nothing is used unless all are there; none if the list is to be asked for
    /// as a whole.
    async fn of<P, T>(
        &self,
        call: impl Future<Output = Result<Response<tonic::Streaming<P>>, Status>>,
        items: fn(P) -> Vec<T>,
    ) -> Result<Option<Vec<T>>, Status> {
        if !self.0.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match Self::gather(call, items).await {
            Err(error) if error.code() == Code::Unimplemented => {
                self.0.store(false, Ordering::Relaxed);
                Ok(None)
            }
            gathered => gathered.map(Some),
        }
    }

    async fn gather<P, T>(
        call: impl Future<Output = Result<Response<tonic::Streaming<P>>, Status>>,
        items: fn(P) -> Vec<T>,
    ) -> Result<Vec<T>, Status> {
        let (mut stream, mut all) = (call.await?.into_inner(), Vec::new());
        while let Some(piece) = stream.message().await? {
            all.extend(items(piece));
            if all.len() > MOST {
                return Err(Status::resource_exhausted(format!("the list has more than {MOST} items")));
            }
        }
        Ok(all)
    }
}

/// Defines lists: calls that only read and whose answers may be asked for in pieces.
macro_rules! lists {
    ($($name:ident: $request:ident { $($field:ident)? } => $answer:ident { $items:ident },
       $stream:ident: $stream_request:ident => $stream_answer:ident { $pieces:ident };)*) => {$(
        /// The call of this name.
        ///
        /// # Errors
        /// The runtime's, or `DeadlineExceeded` when the time is up.
        pub async fn $name(&self, request: pb::$request) -> Result<Response<pb::$answer>, Status> {
            let mut client = self.client.clone();
            let pieces = self.pieces.clone();
            let call = Box::pin(async move {
                let mut streams = client.clone();
                let in_pieces = pb::$stream_request { $($field: request.$field.clone())? };
                let items = |piece: pb::$stream_answer| piece.$pieces;
                match pieces.of(streams.$stream(in_pieces), items).await? {
                    Some($items) => Ok(Response::new(pb::$answer { $items })),
                    None => client.$name(request).await,
                }
            });
            self.told.of(stringify!($name), limited(self.limit, call)).await
        }
    )*};
}

/// Defines calls that change something: they run to their end without their callers.
macro_rules! changes {
    ($($name:ident: $request:ident => $answer:ident, $times:literal;)*) => {$(
        /// The call of this name, which ends also when its caller has gone.
        ///
        /// # Errors
        /// The runtime's, or `DeadlineExceeded` when the time is up.
        pub async fn $name(&self, request: pb::$request) -> Result<Response<pb::$answer>, Status> {
            let mut client = self.client.clone();
            let call = Box::pin(async move { client.$name(request).await });
            let limit = self.limit.saturating_mul($times);
            self.told.of(stringify!($name), self.calls.finish(self.owner.clone(), limit, call)).await
        }
    )*};
}

/// The runtime service.
#[derive(Debug, Clone)]
pub struct Runtime {
    client: RuntimeServiceClient<Channel>,
    calls: Calls,
    owner: Arc<str>,
    told: Told,
    limit: Duration,
    pieces: Pieces,
}

impl Runtime {
    /// Makes the client of the service behind a channel, whose calls have upstream's limit.
    pub fn new(channel: Channel) -> Self {
        let client = RuntimeServiceClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        Self {
            client,
            calls: Calls::default(),
            owner: NOBODY.into(),
            told: Told::default(),
            limit: LIMIT,
            pieces: Pieces::default(),
        }
    }

    /// The same client; `hear` is told of each call that ended: its name, how long it took, and whether it failed.
    #[must_use]
    pub fn heard(self, hear: impl Fn(&'static str, Duration, bool) + Send + Sync + 'static) -> Self {
        Self { told: Told(Some(Arc::new(hear))), ..self }
    }

    /// The same client with another limit.
    #[must_use]
    pub fn limited(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// The same client; `wanted`: it asks for lists in pieces, as long as the service knows such calls. Clones find out
    /// together.
    #[must_use]
    pub fn in_pieces(self, wanted: bool) -> Self {
        Self { pieces: Pieces::new(wanted), ..self }
    }

    /// The same client with an owner, for whose calls one can wait.
    #[must_use]
    pub fn of(&self, owner: &str) -> Self {
        Self { owner: owner.into(), ..self.clone() }
    }

    /// Resolves once no call of `owner` is under way that makes or removes something.
    pub async fn idle(&self, owner: &str) {
        self.calls.idle(owner).await;
    }

    /// Refuses further calls that make or remove something; resolves once none is under way.
    pub async fn close(&self) {
        self.calls.close().await;
    }

    reads! {
        version: VersionRequest => VersionResponse;
        status: StatusRequest => StatusResponse;
        runtime_config: RuntimeConfigRequest => RuntimeConfigResponse;
        pod_sandbox_status: PodSandboxStatusRequest => PodSandboxStatusResponse;
        container_status: ContainerStatusRequest => ContainerStatusResponse;
        container_stats: ContainerStatsRequest => ContainerStatsResponse;
        exec: ExecRequest => ExecResponse;
        attach: AttachRequest => AttachResponse;
        port_forward: PortForwardRequest => PortForwardResponse;
        list_metric_descriptors: ListMetricDescriptorsRequest => ListMetricDescriptorsResponse;
    }

    lists! {
        list_pod_sandbox: ListPodSandboxRequest { filter } => ListPodSandboxResponse { items },
            stream_pod_sandboxes: StreamPodSandboxesRequest => StreamPodSandboxesResponse { pod_sandboxes };
        list_containers: ListContainersRequest { filter } => ListContainersResponse { containers },
            stream_containers: StreamContainersRequest => StreamContainersResponse { containers };
        list_container_stats: ListContainerStatsRequest { filter } => ListContainerStatsResponse { stats },
            stream_container_stats: StreamContainerStatsRequest => StreamContainerStatsResponse { container_stats };
        list_pod_sandbox_stats: ListPodSandboxStatsRequest { filter } => ListPodSandboxStatsResponse { stats },
            stream_pod_sandbox_stats: StreamPodSandboxStatsRequest => StreamPodSandboxStatsResponse { pod_sandbox_stats };
        list_pod_sandbox_metrics: ListPodSandboxMetricsRequest { } => ListPodSandboxMetricsResponse { pod_metrics },
            stream_pod_sandbox_metrics: StreamPodSandboxMetricsRequest => StreamPodSandboxMetricsResponse { pod_sandbox_metrics };
    }

    changes! {
        // Twice the limit, as upstream has it: the network of a Pod may take its time.
        run_pod_sandbox: RunPodSandboxRequest => RunPodSandboxResponse, 2;
        stop_pod_sandbox: StopPodSandboxRequest => StopPodSandboxResponse, 1;
        remove_pod_sandbox: RemovePodSandboxRequest => RemovePodSandboxResponse, 1;
        create_container: CreateContainerRequest => CreateContainerResponse, 1;
        start_container: StartContainerRequest => StartContainerResponse, 1;
        remove_container: RemoveContainerRequest => RemoveContainerResponse, 1;
        update_container_resources:
            UpdateContainerResourcesRequest => UpdateContainerResourcesResponse, 1;
        update_pod_sandbox_resources:
            UpdatePodSandboxResourcesRequest => UpdatePodSandboxResourcesResponse, 1;
        reopen_container_log: ReopenContainerLogRequest => ReopenContainerLogResponse, 1;
        update_runtime_config: UpdateRuntimeConfigRequest => UpdateRuntimeConfigResponse, 1;
    }

    /// Stops a container, which may take as long as its grace; the call ends also when its caller has gone. The calls
    /// that make something are waited for, but this one is not: a second call with a shorter grace overtakes it.
    ///
    /// # Errors
    /// The runtime's, or `DeadlineExceeded` when the time is up.
    pub async fn stop_container(
        &self,
        request: pb::StopContainerRequest,
    ) -> Result<Response<pb::StopContainerResponse>, Status> {
        let mut client = self.client.clone();
        let limit = after(request.timeout, self.limit);
        let call = detached(Box::pin(async move { limited(limit, client.stop_container(request)).await }));
        self.told.of("stop_container", call).await
    }

    /// Runs a command in a container. A command without a time limit is given up with its caller: the runtime ends it
    /// then. A command with a limit ends by itself.
    ///
    /// # Errors
    /// The runtime's, or `DeadlineExceeded` when the time is up.
    pub async fn exec_sync(
        &self,
        request: pb::ExecSyncRequest,
    ) -> Result<Response<pb::ExecSyncResponse>, Status> {
        let mut client = self.client.clone();
        if request.timeout <= 0 {
            return self.told.of("exec_sync", Box::pin(client.exec_sync(request))).await;
        }
        let limit = after(request.timeout, self.limit);
        let call = detached(Box::pin(async move { limited(limit, client.exec_sync(request)).await }));
        self.told.of("exec_sync", call).await
    }

    /// The events of containers as they come. The answer itself has the time limit, the stream none.
    ///
    /// # Errors
    /// The runtime's, or `DeadlineExceeded` when the time is up.
    pub async fn get_container_events(
        &self,
        request: pb::GetEventsRequest,
    ) -> Result<Response<tonic::Streaming<pb::ContainerEventResponse>>, Status> {
        let mut client = self.client.clone();
        let call = limited(self.limit, Box::pin(client.get_container_events(request)));
        self.told.of("get_container_events", call).await
    }
}

/// Runs a call to its end in a task of its own.
async fn detached<T: Send + 'static>(
    call: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    let call: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(call);
    tokio::spawn(call).await.unwrap_or_else(|error| Err(Status::internal(error.to_string())))
}

/// The image service.
#[derive(Debug, Clone)]
pub struct Images {
    client: ImageServiceClient<Channel>,
    told: Told,
    limit: Duration,
    pieces: Pieces,
}

impl Images {
    /// Makes the client of the service behind a channel, whose calls have upstream's limit.
    pub fn new(channel: Channel) -> Self {
        let client = ImageServiceClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        Self { client, told: Told::default(), limit: LIMIT, pieces: Pieces::default() }
    }

    /// The same client; `hear` is told of each call that ended: its name, how long it took, and whether it failed.
    #[must_use]
    pub fn heard(self, hear: impl Fn(&'static str, Duration, bool) + Send + Sync + 'static) -> Self {
        Self { told: Told(Some(Arc::new(hear))), ..self }
    }

    /// The same client with another limit.
    #[must_use]
    pub fn limited(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// The same client; `wanted`: it asks for lists in pieces, as long as the service knows such calls. Clones find out
    /// together.
    #[must_use]
    pub fn in_pieces(self, wanted: bool) -> Self {
        Self { pieces: Pieces::new(wanted), ..self }
    }

    reads! {
        image_status: ImageStatusRequest => ImageStatusResponse;
        image_fs_info: ImageFsInfoRequest => ImageFsInfoResponse;
    }

    lists! {
        list_images: ListImagesRequest { filter } => ListImagesResponse { images },
            stream_images: StreamImagesRequest => StreamImagesResponse { images };
    }

    /// Removes an image; the call ends also when its caller has gone.
    ///
    /// # Errors
    /// The runtime's, or `DeadlineExceeded` when the time is up.
    pub async fn remove_image(
        &self,
        request: pb::RemoveImageRequest,
    ) -> Result<Response<pb::RemoveImageResponse>, Status> {
        let mut client = self.client.clone();
        let limit = self.limit;
        let call = detached(Box::pin(async move { limited(limit, client.remove_image(request)).await }));
        self.told.of("remove_image", call).await
    }

    /// Pulls an image. Like upstream's, the call has no limit of its own, since the runtime watches the progress, and
    /// ends with its caller: the runtime keeps or collects the parts that were fetched.
    ///
    /// # Errors
    /// The runtime's.
    pub async fn pull_image(
        &self,
        request: pb::PullImageRequest,
    ) -> Result<Response<pb::PullImageResponse>, Status> {
        let mut client = self.client.clone();
        self.told.of("pull_image", Box::pin(client.pull_image(request))).await
    }
}
