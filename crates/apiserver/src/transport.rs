//! The transport of components in this process: the same pipe, without HTTP.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use access::request_info::selected_name;
use access::{Query, RequestInfo, UserInfo};
use api::Status;
use bytes::{BufMut, Bytes, BytesMut};
use client::{Call, Client, EventKind, ListAnswer, Transport, Verb, WatchEvent};
use futures::Stream;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use crate::aggregated::Elsewhere;
use crate::catalog::Catalog;
use crate::codec;
use crate::encoder::{Encoded, encode, object_json};
use crate::negotiate::Form;
use crate::outcome::Outcome;
use crate::pipe;
use crate::relay::Relay;
use crate::request::Request;
use crate::rooms::Rooms;
use crate::server::Server;
use crate::standalone;
use crate::watch::{WatchItem, WatchSource};

/// A caller inside this process.
struct Local {
    rooms: Arc<Rooms>,
    user: Arc<UserInfo>,
    agent: String,
}

impl Server {
    /// A transport with an identity. Authorization and admission apply as they do to anybody.
    /// `agent` stands for the user agent: who is recorded in managedFields when a write does not say.
    pub fn transport(&self, user: UserInfo, agent: &str) -> Arc<dyn Transport> {
        Arc::new(Local { rooms: Arc::clone(&self.0), user: Arc::new(user), agent: agent.to_owned() })
    }
    /// Clients that work as the server itself, as long as it is there: they do not keep it.
    pub(crate) fn own_clients(&self) -> impl Fn() -> Option<Client> + Send + Sync + use<> {
        const AGENT: &str = "kube-apiserver";
        let rooms = Arc::downgrade(&self.0);
        move || {
            let server = Self(rooms.upgrade()?);
            Some(Client::new(server.transport(standalone::own_identity(), AGENT), AGENT))
        }
    }
}

impl Local {
    /// The server that answers a request if it is another one, and the request's context, which has its seat.
    async fn elsewhere(&self, call: &Call) -> Result<Option<(Arc<Elsewhere>, Request)>, Status> {
        let client::Resource { group, version, .. } = &call.resource;
        if self.rooms.objects.catalog().services.find(group, version).is_none() {
            return Ok(None);
        }
        let mut request = self.request(call.clone());
        let Some(other) = request.elsewhere.clone() else { return Ok(None) };
        pipe::enter_local(&self.rooms, &mut request).await?;
        Ok(Some((other, request)))
    }
    /// The way to another server.
    fn relay<'r>(&'r self, other: &'r Elsewhere) -> Relay<'r> {
        Relay { other, user: &self.user, agent: &self.agent }
    }
    fn request(&self, call: Call) -> Request {
        let verb = match call.verb {
            Verb::Get => "get",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::JsonPatch | Verb::MergePatch | Verb::StrategicPatch | Verb::Apply => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::List => "list",
            Verb::Watch => "watch",
        };
        let content_type = match call.verb {
            Verb::JsonPatch => "application/json-patch+json",
            Verb::MergePatch => "application/merge-patch+json",
            Verb::StrategicPatch => "application/strategic-merge-patch+json",
            Verb::Apply => "application/apply-patch+yaml",
            _ => "application/json",
        };
        let mut query: Vec<(String, String)> =
            call.query.into_iter().map(|(k, v)| (k.to_string(), v)).collect();
        if call.verb == Verb::Watch {
            query.push(("watch".into(), "true".into()));
        }
        let query = Query::from_pairs(query);
        let catalog = self.rooms.objects.catalog();
        let client::Resource { group, version, plural } = &call.resource;
        let resource = catalog.resources.find(group, version, plural);
        let is_namespace = resource.is_some_and(|resource| resource.strategy.facts().is_namespace);
        let namespace = if is_namespace { call.name.clone() } else { call.namespace };
        let field_selector = query.str("fieldSelector").to_owned();
        let name = match verb {
            "list" | "watch" | "deletecollection" if call.name.is_empty() => {
                selected_name(&field_selector).unwrap_or_default()
            }
            _ => call.name,
        };
        let info = RequestInfo {
            is_resource: true,
            verb,
            prefix: if call.resource.group.is_empty() { "api".into() } else { "apis".into() },
            group: call.resource.group,
            version: call.resource.version,
            namespace,
            resource: call.resource.plural,
            subresource: call.subresource,
            name,
            field_selector,
            label_selector: query.str("labelSelector").to_owned(),
            ..RequestInfo::default()
        };
        let mut request = Request::new(catalog, info, query, None);
        request.user = Arc::clone(&self.user);
        request.content_type = content_type.into();
        request.user_agent.clone_from(&self.agent);
        request.body = call.body;
        request
    }
}

impl Transport for Local {
    fn call(&self, call: Call) -> BoxFuture<'_, Result<Bytes, Status>> {
        Box::pin(async move {
            if let Some((other, _seated)) = self.elsewhere(&call).await? {
                return self.relay(&other).object(&call).await;
            }
            let mut request = self.request(call);
            let outcome = pipe::local(&self.rooms, &mut request).await?;
            let (_, encoded) = encode(&self.rooms.encoder(&request.catalog), outcome, Form::JSON)?;
            Ok(match encoded {
                Encoded::Whole(bytes) => bytes,
                Encoded::Items(mut writer) => {
                    let mut all = BytesMut::new();
                    while let Some(chunk) = writer.next_chunk() {
                        all.put_slice(&chunk);
                    }
                    all.freeze()
                }
                Encoded::Pieces(pieces) => pieces.flatten().collect::<Vec<u8>>().into(),
            })
        })
    }
    fn raw(&self, path: &str) -> BoxFuture<'_, Result<Bytes, Status>> {
        let path = path.to_owned();
        Box::pin(async move { pipe::local_path(&self.rooms, &self.user, &path).await })
    }
    fn list(&self, call: Call) -> BoxFuture<'_, Result<ListAnswer, Status>> {
        Box::pin(async move {
            if let Some((other, _seated)) = self.elsewhere(&call).await? {
                return self.relay(&other).list(&call).await;
            }
            let mut request = self.request(call);
            match pipe::local(&self.rooms, &mut request).await? {
                Outcome::List(list) => Ok(ListAnswer {
                    resource_version: list.revision.to_string(),
                    items: list
                        .items
                        .iter()
                        .map(|o| object_json(&request.catalog, &list.resource, o))
                        .collect::<Result<_, _>>()?,
                    continue_token: list.token,
                }),
                Outcome::Computed { items, .. } => Ok(ListAnswer {
                    resource_version: String::new(),
                    items: items.iter().map(|i| codec::json_with(request.catalog.schema(), b"", i)).collect(),
                    continue_token: String::new(),
                }),
                _ => Err(Status::bad_request("not a list")),
            }
        })
    }
    fn watch(
        &self,
        call: Call,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchEvent, Status>>, Status>> {
        Box::pin(async move {
            if let Some((other, _seated)) = self.elsewhere(&call).await? {
                return self.relay(&other).watch(&call).await;
            }
            let mut request = self.request(call);
            match pipe::local(&self.rooms, &mut request).await? {
                Outcome::Watch(source) => {
                    let events = LocalWatch { catalog: Arc::clone(&request.catalog), source };
                    Ok(Box::pin(events) as BoxStream<'static, _>)
                }
                _ => Err(Status::bad_request("not a watch")),
            }
        })
    }
}

/// The form number of events in this process: an object's JSON, the same for every kind of event.
const LOCAL_FORM: u32 = 0xf00;

struct LocalWatch {
    catalog: Arc<Catalog>,
    source: Box<WatchSource>,
}

impl Stream for LocalWatch {
    type Item = Result<WatchEvent, Status>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let item = match Pin::new(&mut *this.source).poll_next(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(item)) => item,
        };
        let resource = &this.source.resource;
        Poll::Ready(Some(match item {
            WatchItem::Event { kind, object, event } => {
                let number = resource.number << 12 | LOCAL_FORM;
                let bytes = match event {
                    Some(event) if resource.same_version() => {
                        Ok(event.encoded(number, || object.json(&resource.stored_meta)))
                    }
                    _ => object_json(&this.catalog, resource, &object),
                };
                bytes.map(|object| WatchEvent { kind, object })
            }
            WatchItem::Bookmark { revision, initial_end } => {
                let tree = this.catalog.bookmark(resource, revision, initial_end);
                let object = codec::json_with(this.catalog.schema(), &resource.type_meta, &tree);
                Ok(WatchEvent { kind: EventKind::Bookmark, object })
            }
            WatchItem::Error(status) => Err(*status),
        }))
    }
}
