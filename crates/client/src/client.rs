//! The typed client: requests about k8s-openapi's types over any [`Transport`].

use std::marker::PhantomData;
use std::sync::Arc;

use api::Status;
use bytes::Bytes;
use compact_str::CompactString as Text;
use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::Binding;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta};

use crate::json::{FromJson, ToJson};
use crate::requests::{Counted, Requests};
use crate::transport::{Call, EventKind, Resource, Transport, Verb};

/// A type of k8s-openapi that the API serves with object metadata. [`json`](crate::json) lists them.
pub trait KubeObject:
    k8s_openapi::Metadata<Ty = ObjectMeta> + FromJson + ToJson + Clone + Send + Sync
{
}

impl<T> KubeObject for T where
    T: k8s_openapi::Metadata<Ty = ObjectMeta> + FromJson + ToJson + Clone + Send + Sync
{
}

/// The resource of a type.
pub fn resource_of<T: KubeObject>() -> Resource {
    Resource { group: T::GROUP.into(), version: T::VERSION.into(), plural: T::URL_PATH_SEGMENT.into() }
}

/// Sends requests with one identity. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    transport: Arc<dyn Transport>,
    field_manager: Text,
    requests: Option<Requests>,
}

impl Client {
    /// A client over `transport`; `field_manager` is the name that its writes leave in `managedFields`.
    pub fn new(transport: Arc<dyn Transport>, field_manager: &str) -> Self {
        Self { transport, field_manager: field_manager.into(), requests: None }
    }
    /// The same client, whose requests are counted from now on.
    #[must_use]
    pub fn counted(self) -> Self {
        self.counted_among(Requests::default())
    }
    /// The same client, whose requests are counted among those of others.
    #[must_use]
    pub fn counted_among(self, requests: Requests) -> Self {
        let host = self.transport.server().unwrap_or("in-process").into();
        let counted = Counted { inner: self.transport, host, requests: requests.clone() };
        Self { transport: Arc::new(counted), requests: Some(requests), ..self }
    }
    /// The requests so far, of a client that counts them.
    pub fn requests(&self) -> Option<&Requests> {
        self.requests.as_ref()
    }
    /// The transport of its requests.
    pub fn transport(&self) -> &Arc<dyn Transport> {
        &self.transport
    }
    /// The name its writes leave in `managedFields`.
    pub fn field_manager(&self) -> &str {
        &self.field_manager
    }
    /// Requests about one type in a namespace; "" stands for the cluster's resources and for all namespaces.
    pub fn api<T: KubeObject>(&self, namespace: &str) -> Api<T> {
        self.resource(resource_of::<T>(), namespace)
    }
    /// Requests about a resource known only at run time; `T` is what its answers are decoded into.
    pub fn resource<T>(&self, resource: Resource, namespace: &str) -> Api<T> {
        Api { client: self.clone(), resource, namespace: namespace.into(), kind: PhantomData }
    }
    /// A GET of a path that is no resource (discovery, version, health), decoded.
    pub async fn raw<R: FromJson>(&self, path: &str) -> Result<R, Status> {
        R::from_json(&self.transport.raw(path).await?)
    }
}

/// The selection of a list. The default is everything, at the newest revision.
#[derive(Debug, Clone, Default)]
pub struct ListParams {
    /// Label selector, "" for all.
    pub label_selector: String,
    /// Field selector, "" for all.
    pub field_selector: String,
    /// The most items of an answer; 0 for all of them.
    pub limit: u32,
    /// The token of the page before.
    pub continue_token: String,
    /// `resourceVersion`: "" for the newest state, "0" for any.
    pub resource_version: String,
    /// `resourceVersionMatch`.
    pub resource_version_match: String,
}

impl ListParams {
    pub(crate) fn query(&self) -> Vec<(Text, String)> {
        let mut q = Query::default();
        q.put("labelSelector", &self.label_selector);
        q.put("fieldSelector", &self.field_selector);
        if self.limit != 0 {
            q.put("limit", &self.limit.to_string());
        }
        q.put("continue", &self.continue_token);
        q.put("resourceVersion", &self.resource_version);
        q.put("resourceVersionMatch", &self.resource_version_match);
        q.0
    }
}

/// The selection of a watch, and where it starts.
#[derive(Debug, Clone, Default)]
pub struct WatchParams {
    /// Label selector, "" for all.
    pub label_selector: String,
    /// Field selector, "" for all.
    pub field_selector: String,
    /// Where it starts: after this revision.
    pub resource_version: String,
    /// `resourceVersionMatch`.
    pub resource_version_match: String,
    /// Whether bookmarks are wanted.
    pub bookmarks: bool,
    /// Whether the present state is to be sent first, closed by a bookmark.
    pub initial_events: bool,
    /// After how many seconds the server ends it; 0 leaves it to the server.
    pub timeout_seconds: u32,
}

impl WatchParams {
    pub(crate) fn query(&self) -> Vec<(Text, String)> {
        let mut q = Query::default();
        q.put("watch", "true");
        q.put("labelSelector", &self.label_selector);
        q.put("fieldSelector", &self.field_selector);
        q.put("resourceVersion", &self.resource_version);
        q.put("resourceVersionMatch", &self.resource_version_match);
        if self.bookmarks {
            q.put("allowWatchBookmarks", "true");
        }
        if self.initial_events {
            q.put("sendInitialEvents", "true");
        }
        if self.timeout_seconds != 0 {
            q.put("timeoutSeconds", &self.timeout_seconds.to_string());
        }
        q.0
    }
}

#[derive(Default)]
struct Query(Vec<(Text, String)>);

impl Query {
    fn put(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.0.push((key.into(), value.to_owned()));
        }
    }
}

/// A list's answer.
#[derive(Debug, Clone)]
pub struct List<T> {
    /// The revision it shows.
    pub resource_version: String,
    /// The token of the next page, "" at the end.
    pub continue_token: String,
    /// The objects.
    pub items: Vec<T>,
}

/// An event of a watch.
#[derive(Debug, Clone)]
pub enum Event<T> {
    /// The object is there, or came into the selection.
    Added(T),
    /// The object changed.
    Modified(T),
    /// The object is gone, or left the selection; its last state.
    Deleted(T),
    /// Everything up to this revision was sent.
    Bookmark {
        /// The revision.
        resource_version: String,
        /// Whether it closes the initial events.
        initial_events_end: bool,
    },
}

/// A change of an object.
#[derive(Debug, Clone)]
pub enum Patch {
    /// RFC 6902: a list of operations.
    Json(serde_json::Value),
    /// RFC 7386.
    Merge(serde_json::Value),
    /// Strategic merge patch.
    Strategic(serde_json::Value),
    /// Server-side apply by the client's field manager; `force` takes over what others own.
    Apply {
        /// The wanted fields, with kind and API version.
        object: serde_json::Value,
        /// Whether conflicts are won.
        force: bool,
    },
}

/// Requests about one resource in one namespace.
pub struct Api<T> {
    client: Client,
    resource: Resource,
    namespace: Text,
    kind: PhantomData<fn() -> T>,
}

impl<T> Clone for Api<T> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            resource: self.resource.clone(),
            namespace: self.namespace.clone(),
            kind: PhantomData,
        }
    }
}

impl<T> Api<T> {
    fn request(&self, verb: Verb, name: &str, subresource: &str, body: Bytes) -> Call {
        let query = match verb {
            Verb::Create
            | Verb::Update
            | Verb::JsonPatch
            | Verb::MergePatch
            | Verb::StrategicPatch
            | Verb::Apply
                if !self.client.field_manager.is_empty() =>
            {
                vec![(Text::const_new("fieldManager"), self.client.field_manager.to_string())]
            }
            _ => Vec::new(),
        };
        Call {
            verb,
            resource: self.resource.clone(),
            namespace: self.namespace.clone(),
            name: name.into(),
            subresource: subresource.into(),
            query,
            body,
        }
    }

    async fn call<R: FromJson>(&self, call: Call) -> Result<R, Status> {
        R::from_json(&self.client.transport.call(call).await?)
    }

    /// The resource.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Deletes an object: with `None`, as the kind's own default has it. It may live on while
    /// finalizers or a grace period hold it.
    pub async fn delete(&self, name: &str, options: Option<&DeleteOptions>) -> Result<(), Status> {
        let body = options.map_or(Ok(Bytes::new()), ToJson::to_json)?;
        self.client.transport.call(self.request(Verb::Delete, name, "", body)).await.map(drop)
    }

    /// Deletes what `params` select.
    pub async fn delete_collection(
        &self,
        options: Option<&DeleteOptions>,
        params: &ListParams,
    ) -> Result<(), Status> {
        let body = options.map_or(Ok(Bytes::new()), ToJson::to_json)?;
        let mut call = self.request(Verb::DeleteCollection, "", "", body);
        call.query = params.query();
        self.client.transport.call(call).await.map(drop)
    }

    /// Reads a subresource.
    pub async fn get_subresource<R: FromJson>(&self, name: &str, subresource: &str) -> Result<R, Status> {
        self.call(self.request(Verb::Get, name, subresource, Bytes::new())).await
    }

    /// Posts to a subresource and decodes its answer.
    pub async fn post<B, R>(&self, name: &str, subresource: &str, body: &B) -> Result<R, Status>
    where
        B: ToJson,
        R: FromJson,
    {
        self.call(self.request(Verb::Create, name, subresource, body.to_json()?)).await
    }

    /// Puts a subresource and decodes its answer.
    pub async fn put<B, R>(&self, name: &str, subresource: &str, body: &B) -> Result<R, Status>
    where
        B: ToJson,
        R: FromJson,
    {
        self.call(self.request(Verb::Update, name, subresource, body.to_json()?)).await
    }

    /// Binds a Pod to a Node.
    pub async fn bind(&self, pod: &str, binding: &Binding) -> Result<(), Status> {
        let call = self.request(Verb::Create, pod, "binding", binding.to_json()?);
        self.client.transport.call(call).await.map(drop)
    }

    /// Evicts a Pod.
    pub async fn evict(&self, pod: &str, eviction: &Eviction) -> Result<(), Status> {
        let call = self.request(Verb::Create, pod, "eviction", eviction.to_json()?);
        self.client.transport.call(call).await.map(drop)
    }

    /// Requests a token of a ServiceAccount.
    pub async fn token(&self, account: &str, request: &TokenRequest) -> Result<TokenRequest, Status> {
        self.post(account, "token", request).await
    }
}

impl<T: FromJson> Api<T> {
    /// Reads an object.
    pub async fn get(&self, name: &str) -> Result<T, Status> {
        self.call(self.request(Verb::Get, name, "", Bytes::new())).await
    }

    /// Lists objects: one page of them if `params.limit` says so.
    pub async fn list(&self, params: &ListParams) -> Result<List<T>, Status> {
        let mut call = self.request(Verb::List, "", "", Bytes::new());
        call.query = params.query();
        let answer = self.client.transport.list(call).await?;
        Ok(List {
            resource_version: answer.resource_version,
            continue_token: answer.continue_token,
            items: answer.items.iter().map(|i| T::from_json(i)).collect::<Result<_, _>>()?,
        })
    }

    /// Changes an object, or with a `subresource` only that part of it.
    pub async fn patch_subresource(&self, name: &str, subresource: &str, patch: &Patch) -> Result<T, Status> {
        let (verb, body) = match patch {
            Patch::Json(v) => (Verb::JsonPatch, v),
            Patch::Merge(v) => (Verb::MergePatch, v),
            Patch::Strategic(v) => (Verb::StrategicPatch, v),
            Patch::Apply { object, .. } => (Verb::Apply, object),
        };
        let mut call = self.request(verb, name, subresource, body.to_json()?);
        if matches!(patch, Patch::Apply { force: true, .. }) {
            call.query.push((Text::const_new("force"), "true".into()));
        }
        self.call(call).await
    }

    /// Changes an object.
    pub async fn patch(&self, name: &str, patch: &Patch) -> Result<T, Status> {
        self.patch_subresource(name, "", patch).await
    }

    /// Changes the status of an object.
    pub async fn patch_status(&self, name: &str, patch: &Patch) -> Result<T, Status> {
        self.patch_subresource(name, "status", patch).await
    }

    /// Watches objects. The stream ends when the server ends it, or after its first error.
    pub async fn watch(
        &self,
        params: &WatchParams,
    ) -> Result<BoxStream<'static, Result<Event<T>, Status>>, Status> {
        let mut call = self.request(Verb::Watch, "", "", Bytes::new());
        call.query = params.query();
        let stream = self.client.transport.watch(call).await?;
        Ok(stream
            .map(|event| {
                let event = event?;
                Ok(match event.kind {
                    EventKind::Added => Event::Added(T::from_json(&event.object)?),
                    EventKind::Modified => Event::Modified(T::from_json(&event.object)?),
                    EventKind::Deleted => Event::Deleted(T::from_json(&event.object)?),
                    EventKind::Bookmark => {
                        let (resource_version, initial_events_end) = bookmark(&event.object)?;
                        Event::Bookmark { resource_version, initial_events_end }
                    }
                })
            })
            .boxed())
    }
}

/// The part of a bookmark that is read.
#[derive(serde::Deserialize)]
struct Marked {
    metadata: ObjectMeta,
}

crate::from_json!(Marked);

/// The revision of a bookmark, and whether it closes the initial events.
pub(crate) fn bookmark(object: &[u8]) -> Result<(String, bool), Status> {
    let marked = Marked::from_json(object)?;
    let end = marked
        .metadata
        .annotations
        .is_some_and(|a| a.get("k8s.io/initial-events-end").is_some_and(|v| v == "true"));
    Ok((marked.metadata.resource_version.unwrap_or_default(), end))
}

impl<T: KubeObject> Api<T> {
    /// Makes an object; the answer is what was stored.
    pub async fn create(&self, object: &T) -> Result<T, Status> {
        self.call(self.request(Verb::Create, "", "", object.to_json()?)).await
    }

    /// Replaces an object; a conflict if it was written since the `resourceVersion` it carries.
    pub async fn update(&self, object: &T) -> Result<T, Status> {
        self.update_subresource("", object).await
    }

    /// Replaces the status of an object.
    pub async fn update_status(&self, object: &T) -> Result<T, Status> {
        self.update_subresource("status", object).await
    }

    /// Replaces one part of an object.
    pub async fn update_subresource(&self, subresource: &str, object: &T) -> Result<T, Status> {
        let name = object.metadata().name.as_deref().unwrap_or_default();
        self.call(self.request(Verb::Update, name, subresource, object.to_json()?)).await
    }
}
