//! Requests that the API server hands on: exec, attach, port-forward and logs of Pods to the
//! kubelet, and the proxies of Pods, Services and Nodes.
//!
//! The caller is already authenticated and authorized for the verb of the request. Where a request
//! goes is decided in `location`, which is pure; the other modules carry the bytes.

mod backend;
mod command;
mod counts;
mod forward;
mod guard;
mod html;
mod link;
mod location;
mod logs;
mod options;
mod pace;
mod place;
mod query;
pub(crate) mod route;
mod sniff;

use std::sync::Arc;

use access::auth::{Access, Authorizer};
use access::reader::Reader;
use access::{Query, RequestInfo, UserInfo};
use api::Status;
use api::gate::Gate;
use bytes::Bytes;
use client::FromJson;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::{Endpoints, Node, Pod, Service};
use prometheus_client::registry::Registry;
use streaming::remotecommand;
use streaming::websocket::is_upgrade;

use self::backend::Dialer;
use self::counts::Counts;
pub use self::guard::Own;
use self::guard::Purpose;
use self::location::{Location, Transport, parse_id, rest_path, unavailable};
pub(crate) use self::options::options;
use crate::config::Calls;
use crate::front::{Body, full};
use crate::objects::Objects;
use crate::usage::Pages;

/// How much of a page of resource metrics is read: some ten thousand containers.
const MAX_RESOURCE_PAGE: usize = 8 << 20;

/// The kind of object that a request is to be connected with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// A Pod, through its kubelet or directly.
    Pod,
    /// A backend of a Service.
    Service,
    /// A Node's kubelet, or another of its ports.
    Node,
}

/// Serves the connecting subresources.
#[derive(Clone)]
pub struct Connect {
    objects: Arc<Objects>,
    dialer: Dialer,
    authorizer: Arc<dyn Authorizer>,
    /// The types of a Node's addresses of which the first that it has leads to its kubelet.
    preferred: Arc<[String]>,
    counts: Counts,
}

impl Connect {
    /// `objects` has the Pods, Nodes, Services and Endpoints that say where to;
    /// `kubelet` has the client certificate shown to kubelets and the roots that verify theirs.
    pub fn new(
        objects: Arc<Objects>,
        kubelet: Arc<rustls::ClientConfig>,
        authorizer: Arc<dyn Authorizer>,
        own: Own,
        calls: &Calls,
    ) -> Self {
        let dialer = Dialer::new(kubelet, own, calls.bytes_per_second);
        let (preferred, counts) = (calls.kubelet_addresses.clone().into(), Counts::default());
        Self { objects, dialer, authorizer, preferred, counts }
    }

    /// Shows on a page how many connections were made.
    pub(crate) fn register(&self, registry: &mut Registry) {
        self.counts.register(registry);
    }

    /// Answers a request for a connection with an object. Errors are answers, too.
    pub(crate) async fn handle(
        &self,
        request: Request<Incoming>,
        target: Target,
        user: &UserInfo,
        info: &RequestInfo,
    ) -> Response<Body> {
        let answer = match info.subresource.as_str() {
            "log" => self.log(request, info).await,
            "proxy" => self.proxy(request, target, info).await,
            _ => self.stream(request, user, info).await,
        };
        answer.unwrap_or_else(|e| failure(&e))
    }

    async fn log(&self, request: Request<Incoming>, info: &RequestInfo) -> Result<Response<Body>, Status> {
        only(&request, info, &[Method::GET])?;
        let streams = self.objects.gates.enabled(Gate::PodLogsQuerySplitStreams);
        let options = query::log_options(&query(&request), &info.name, streams)?;
        let pod: Pod = self.read(&info.namespace, &info.name).await?;
        let container = location::container(&pod, &options.container)?;
        let kubelet = match location::node_of(&pod) {
            None => None,
            Some(node) => {
                let mut kubelet = self.kubelet(node).await?;
                kubelet.path = format!("/containerLogs/{}/{}/{container}", info.namespace, info.name);
                kubelet.query = options.query;
                if options.unverified {
                    kubelet.transport = Transport::UnverifiedKubelet;
                }
                Some(kubelet)
            }
        };
        logs::serve(&self.dialer, kubelet.as_ref(), request, &info.name).await
    }

    /// Exec, attach and port-forward.
    async fn stream(
        &self,
        request: Request<Incoming>,
        user: &UserInfo,
        info: &RequestInfo,
    ) -> Result<Response<Body>, Status> {
        only(&request, info, &[Method::GET, Method::POST])?;
        self.ensure_create(user, info).await?;
        let query = query(&request);
        let forward = info.subresource == "portforward";
        let pod: Pod = self.read(&info.namespace, &info.name).await?;
        let container =
            if forward { String::new() } else { location::container(&pod, query.str("container"))? };
        let node = location::node_of(&pod)
            .ok_or_else(|| Status::bad_request(format!("pod {} does not have a host assigned", info.name)))?;
        let gates = self.objects.gates;
        let node: Node = self.read("", node).await?;
        let direct = gates.enabled(Gate::ExtendWebSocketsToKubelet) && location::speaks_web_sockets(&node);
        let mut kubelet = self.kubelet_of(&node).await?;
        let count = || self.counts.streamed(&info.subresource, gates, direct);
        if forward {
            kubelet.path = format!("/portForward/{}/{}", info.namespace, info.name);
            kubelet.query = query::port_query(&query)?;
            count();
            let protocols = streaming::tunnel::wanted(request.headers());
            if !protocols.is_empty() && gates.enabled(Gate::PortForwardWebsockets) && !direct {
                return command::tunnel((&self.dialer, &self.counts), &kubelet, request, &protocols).await;
            }
        } else {
            count();
            let options = query::stream_options(&query);
            kubelet.path = format!("/{}/{}/{}/{container}", info.subresource, info.namespace, info.name);
            kubelet.query = query::stream_query(options, &query, info.subresource == "exec");
            if remotecommand::is_wanted(request.headers())
                && gates.enabled(Gate::TranslateStreamCloseWebsocketRequests)
                && !direct
            {
                return command::remote_command((&self.dialer, &self.counts), kubelet, request, options);
            }
        }
        if !is_upgrade(request.headers()) {
            return Err(Status::bad_request("Upgrade request required"));
        }
        forward::upgrade(&self.dialer, &kubelet, request).await
    }

    async fn proxy(
        &self,
        request: Request<Incoming>,
        target: Target,
        info: &RequestInfo,
    ) -> Result<Response<Body>, Status> {
        let id = parse_id(info.resource.trim_end_matches('s'), &info.name)?;
        let mut location = match target {
            Target::Node => {
                let node: Node = self.read("", id.name).await?;
                location::node(&node, id, &self.preferred)?
            }
            Target::Service => self.service(info, id).await?,
            Target::Pod => {
                let pod: Pod = self.read(&info.namespace, id.name).await?;
                location::pod(&pod, id)?
            }
        };
        location = self.dialer.resolve(location, Purpose::Proxy).await?;
        let outer = request.uri().path();
        location.path = rest_path(outer, target != Target::Node)?;
        location.query = request.uri().query().unwrap_or_default().to_owned();
        if is_upgrade(request.headers()) {
            return forward::upgrade(&self.dialer, &location, request).await;
        }
        if location.path.is_empty() {
            if matches!(*request.method(), Method::GET | Method::HEAD) {
                return Ok(with_slash(request.uri()));
            }
            location.path = "/".into();
        }
        let outer = link::unescape(outer).map_err(|_| Status::bad_request("invalid URL escape"))?;
        let prefix = outer.strip_suffix(location.path.as_bytes()).unwrap_or(&outer).to_owned();
        forward::plain(&self.dialer, &location, request, prefix).await
    }

    /// A backend of a Service, chosen at random.
    async fn service(&self, info: &RequestInfo, id: location::Id<'_>) -> Result<Location, Status> {
        let namespace = info.namespace.as_str();
        let service: Service = self.read(namespace, id.name).await?;
        let port = if id.port.parse::<i64>().is_ok() {
            location::service_port(&service, id)?
        } else {
            id.port.to_owned()
        };
        let endpoints: Endpoints = self.read(namespace, id.name).await?;
        let seed = fastrand::usize(..);
        for candidate in location::endpoints(&endpoints, &port, id, namespace, seed) {
            let pod: Result<Pod, Status> = self.read(namespace, &candidate.pod).await;
            if pod.is_ok_and(|pod| location::has_ip(&pod, &candidate.location.host)) {
                return Ok(candidate.location);
            }
        }
        let subsets = endpoints.subsets.is_some_and(|s| !s.is_empty());
        let name = if subsets { info.name.as_str() } else { id.name };
        Err(unavailable(format!("no endpoints available for service {name:?}")))
    }

    /// An object as it is now.
    async fn read<T>(&self, namespace: &str, name: &str) -> Result<T, Status>
    where
        T: k8s_openapi::Resource + FromJson,
    {
        let of = (T::GROUP, T::URL_PATH_SEGMENT);
        let id = self.objects.id(of).ok_or_else(Status::no_such_resource)?;
        self.objects.fresh(&[id]).await?;
        let object = self.objects.get(of, namespace, name);
        let object = object.ok_or_else(|| Status::not_found(of.0, of.1, name))?;
        T::from_json(&object.data.body)
    }

    async fn kubelet(&self, node: &str) -> Result<Location, Status> {
        self.kubelet_of(&self.read("", node).await?).await
    }

    async fn kubelet_of(&self, node: &Node) -> Result<Location, Status> {
        self.dialer.resolve(location::kubelet(node, &self.preferred)?, Purpose::Kubelet).await
    }

    /// The page on which a node tells what it and its Pods use.
    async fn resource_page(&self, node: &str) -> Result<Bytes, Status> {
        let mut kubelet = self.kubelet(node).await?;
        kubelet.path = "/metrics/resource".into();
        let answer = self.dialer.send(&kubelet, Request::new(forward::empty())).await?;
        if answer.status() != StatusCode::OK {
            return Err(Status::internal(format_args!("the kubelet answers {}", answer.status())));
        }
        let body = Limited::new(answer.into_body(), MAX_RESOURCE_PAGE).collect().await;
        Ok(body.map_err(Status::internal)?.to_bytes())
    }

    /// Streaming into a Pod is a create, also where a browser can only say GET.
    async fn ensure_create(&self, user: &UserInfo, info: &RequestInfo) -> Result<(), Status> {
        if info.verb == "create" {
            return Ok(());
        }
        let create = Access { verb: "create", ..Access::from(info) };
        match self.authorizer.authorize(user, &create).get().await.refusal() {
            None => Ok(()),
            Some(why) => Err(Status::forbidden(&info.group, &info.resource, &info.name, why)),
        }
    }
}

impl Pages for Connect {
    fn page<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<Bytes, Status>> {
        self.resource_page(node).boxed()
    }
}

fn query(request: &Request<Incoming>) -> Query {
    Query::parse(request.uri().query().unwrap_or_default())
}

fn only(request: &Request<Incoming>, info: &RequestInfo, methods: &[Method]) -> Result<(), Status> {
    if methods.contains(request.method()) {
        return Ok(());
    }
    Err(Status::method_not_supported(&info.group, &info.resource, info.verb))
}

/// Sends a browser to the path with a slash at its end, so that the page's relative links work.
fn with_slash(uri: &http::Uri) -> Response<Body> {
    let query = uri.query().map(|q| format!("?{q}")).unwrap_or_default();
    let mut response = Response::new(forward::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(location) = HeaderValue::from_str(&format!("{}/{query}", uri.path())) {
        response.headers_mut().insert(http::header::LOCATION, location);
    }
    response
}

/// An error as an answer.
fn failure(status: &Status) -> Response<Body> {
    let mut response = Response::new(full(status.to_json()));
    *response.status_mut() = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
