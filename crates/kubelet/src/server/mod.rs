//! The kubelet's HTTPS server: logs, exec, attach, port-forward, Pods, statistics and metrics.
//!
//! Every request is authenticated and authorized by the API server's word, and nothing is served to strangers, unless the
//! settings say so ([`Callers`](crate::config::Callers)).

mod auth;
mod body;
mod configz;
mod files;
mod flags;
mod gauges;
mod health;
mod journal;
mod log_lines;
mod logs;
mod metrics;
mod options;
mod query;
mod read_only;
mod reads;
mod requests;
mod served;
mod stream;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::Gate;
use api::zpages::{self, Running};
use cri::runtime as pb;
use http::header::HeaderMap;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use serde_json::json;
use serving::answer;
use serving::{Auth, Body, Failure, ServeError, User};

use self::health::Health;
pub use self::options::{Offer, Options, tls};
use self::query::{Query, unescape};
use self::reads::{json_answer, methods, read, read_pods, runtime_failure};
pub(crate) use self::served::Served;
use self::stream::Target;
use crate::config::Config;
use crate::pods::labels::ROOT_ANNOTATION;

struct Server {
    served: Served,
    auth: Auth,
    health: Arc<Health>,
    started: Timestamp,
    flags: BTreeMap<String, String>,
}

/// Answers for a file or a directory of this machine's logs, by its path below them.
pub async fn log_file(below: &str) -> Response<Body> {
    files::serve(below).await.unwrap_or_else(Failure::into_response)
}

/// The paths that `/statusz` names; upstream names those alone that tell of the kubelet itself.
const PATHS: [&str; 5] = ["/configz", "/flagz", "/healthz", "/metrics", "/statusz"];

/// Binds the port, and serves until the shutdown. Without options it does nothing more than to tell the watchdog of the
/// service manager, if there is one, every so often that the kubelet is well.
pub(crate) async fn start(served: Served, watchdog: Option<Duration>) -> Result<(), ServeError> {
    let shutdown = served.shutdown.clone();
    let health = Health::start(&served, &shutdown);
    if let Some(period) = watchdog {
        health.clone().feed_watchdog(period, &shutdown);
    }
    if let Some(address) = served.config.healthz {
        health.serve(address, &shutdown).await;
    }
    if let Some(address) = served.config.read_only {
        read_only::serve(served.clone(), health.clone(), address).await?;
    }
    let Some(options) = served.config.server.clone() else { return Ok(()) };
    let server = Server {
        auth: Auth::with(served.client.clone(), served.config.trust)
            .reading_tokens(served.config.callers.tokens),
        health,
        started: served.clock.now(),
        flags: options.flags,
        served,
    };
    serving::serve(server, options.address, options.tls, &shutdown)?;
    Ok(())
}

impl serving::Service for Server {
    async fn authenticate(
        &self,
        headers: &mut HeaderMap,
        chain: &[CertificateDer<'static>],
    ) -> Result<Arc<User>, Failure> {
        let user = self.auth.authenticate(headers, chain).await?;
        match user {
            None if self.served.config.callers.anonymous => Ok(Arc::new(User::anonymous())),
            user => user.ok_or_else(serving::auth::unauthorized),
        }
    }

    async fn handle(&self, request: Request<Incoming>, user: &Arc<User>) -> Result<Response<Body>, Failure> {
        let path = request.uri().path().to_owned();
        let _under_way = requests::UnderWay::new(&self.served.metrics, request.method(), &path);
        let node = &self.served.config.node_name;
        if self.served.config.callers.authorized {
            auth::authorize(&self.auth, node, user, request.method(), &path).await?;
        }
        let decoded = unescape(&path).ok_or_else(|| Failure::bad_request("invalid URL escape"))?;
        let query = Query::parse(request.uri().query().unwrap_or_default());
        self.route(request, &decoded, &query).await
    }
}

impl Server {
    fn running(&self) -> Running<'_> {
        Running {
            component: "kubelet",
            version: component::version::told(),
            api_version: component::version::EMULATION,
            started: self.started,
            now: self.served.clock.now(),
            paths: &PATHS,
        }
    }

    async fn route(
        &self,
        request: Request<Incoming>,
        path: &str,
        query: &Query,
    ) -> Result<Response<Body>, Failure> {
        let served = &self.served;
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        // Upstream has these for any method, and all others for their own.
        if let Some(answer) = read(served, &self.health, &parts, query).await {
            return answer;
        }
        match parts.as_slice() {
            ["configz"] => return json_answer(&configz::settings(&served.config)),
            ["statusz"] if served.config.gates.enabled(Gate::ComponentStatusz) => {
                let asked = answer::asked(request.headers(), query.get("pretty"));
                return Ok(answer::page(zpages::statusz(asked, &self.running())).map(answer::full));
            }
            ["flagz"] if served.config.gates.enabled(Gate::ComponentFlagz) => {
                let asked = answer::asked(request.headers(), query.get("pretty"));
                return Ok(answer::page(zpages::flagz(asked, "kubelet", &self.flags)).map(answer::full));
            }
            _ => {}
        }
        if parts == ["debug", "flags", "v"] && served.config.debugging_handlers {
            return flags::verbosity(&served.config, request).await;
        }
        let allowed = methods(&parts).ok_or_else(Failure::not_found)?;
        if let Some(why) = disabled(&served.config, &parts) {
            return Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, why));
        }
        if !allowed.contains(request.method()) {
            return Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed"));
        }
        if let Some(answer) = read_pods(served, &parts, query).await {
            return answer;
        }
        match parts.as_slice() {
            ["runningpods", ""] | ["runningpods"] => self.running_pods().await,
            ["containerLogs", namespace, pod, container] => {
                logs::serve(served, namespace, pod, container, query).await
            }
            ["exec", rest @ ..] => stream::exec(served, container_target(rest)?, query, request).await,
            ["attach", rest @ ..] => stream::attach(served, container_target(rest)?, query, request).await,
            ["run", rest @ ..] => stream::run(served, container_target(rest)?, query).await,
            ["portForward", namespace, pod] => {
                let target = Target { namespace, pod, uid: None, container: "" };
                stream::port_forward(served, target, query, request).await
            }
            ["portForward", namespace, pod, uid] => {
                let target = Target { namespace, pod, uid: Some(uid), container: "" };
                stream::port_forward(served, target, query, request).await
            }
            ["logs", rest @ ..] => {
                let asked = if served.config.system_log_query { journal::read(query)? } else { None };
                match asked {
                    Some(_) if rest.iter().any(|part| !part.is_empty()) => {
                        let text = "path not allowed in query mode";
                        Err(Failure::new(StatusCode::NOT_ACCEPTABLE, text))
                    }
                    Some(asked) => journal::serve(asked).await,
                    None => files::serve(&rest.join("/")).await,
                }
            }
            _ => Err(Failure::not_found()),
        }
    }

    /// This kubelet's Pods whose sandboxes run, with their running containers, as the runtime knows them.
    async fn running_pods(&self) -> Result<Response<Body>, Failure> {
        let ready = pb::PodSandboxFilter {
            state: Some(pb::PodSandboxStateValue { state: pb::PodSandboxState::SandboxReady.into() }),
            ..pb::PodSandboxFilter::default()
        };
        let running = pb::ContainerFilter {
            state: Some(pb::ContainerStateValue { state: pb::ContainerState::ContainerRunning.into() }),
            ..pb::ContainerFilter::default()
        };
        let runtime = &self.served.runtime;
        let sandboxes = pb::ListPodSandboxRequest { filter: Some(ready) };
        let sandboxes = runtime.service().list_pod_sandbox(sandboxes).await.map_err(runtime_failure)?;
        let containers = pb::ListContainersRequest { filter: Some(running) };
        let containers = runtime.service().list_containers(containers).await.map_err(runtime_failure)?;
        let root = self.served.config.root_dir.to_string_lossy();
        let (sandboxes, containers) = (sandboxes.into_inner().items, containers.into_inner().containers);
        json_answer(&running_list(&root, sandboxes, containers))
    }
}

/// The Pods of a kubelet among everything that runs in a runtime.
fn running_list(
    root: &str,
    sandboxes: Vec<pb::PodSandbox>,
    containers: Vec<pb::Container>,
) -> serde_json::Value {
    let mut of_sandbox: HashMap<String, Vec<serde_json::Value>> = HashMap::new();
    for c in containers {
        let name = c.metadata.map(|m| m.name).unwrap_or_default();
        let image = c.image.map(|i| i.image).unwrap_or_default();
        of_sandbox
            .entry(c.pod_sandbox_id)
            .or_default()
            .push(json!({ "name": name, "image": image, "resources": {} }));
    }
    let items: Vec<_> = sandboxes
        .into_iter()
        .filter(|s| s.annotations.get(ROOT_ANNOTATION).is_some_and(|of| of == root))
        .filter_map(|s| Some((s.metadata?, s.id)))
        .map(|(m, id)| {
            json!({
                "metadata": { "name": m.name, "namespace": m.namespace, "uid": m.uid },
                "spec": { "containers": of_sandbox.remove(&id).unwrap_or_default() },
                "status": {},
            })
        })
        .collect();
    json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items })
}

/// Why a path is not served here, though it is one; upstream's words.
fn disabled(config: &Config, parts: &[&str]) -> Option<&'static str> {
    match parts.first().copied() {
        Some("exec" | "attach" | "run" | "portForward" | "containerLogs" | "runningpods" | "logs")
            if !config.debugging_handlers =>
        {
            Some("Debug endpoints are disabled.")
        }
        Some("logs") if !config.system_log_handler => Some("logs endpoint is disabled."),
        _ => None,
    }
}

/// `{namespace}/{pod}/{container}` or `{namespace}/{pod}/{uid}/{container}`.
fn container_target<'a>(parts: &[&'a str]) -> Result<Target<'a>, Failure> {
    match *parts {
        [namespace, pod, container] => Ok(Target { namespace, pod, uid: None, container }),
        [namespace, pod, uid, container] => Ok(Target { namespace, pod, uid: Some(uid), container }),
        _ => Err(Failure::not_found()),
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn paths_have_their_methods() {
        let check = |path: &str, expected: Option<&[Method]>| {
            let parts: Vec<&str> = path.split('/').collect();
            assert_eq!(methods(&parts), expected, "{path}");
        };
        check("pods", Some(&[Method::GET]));
        check("exec/n/p/c", Some(&[Method::GET, Method::POST]));
        check("run/n/p/u/c", Some(&[Method::POST]));
        check("logs/a/b", Some(&[Method::GET]));
        check("exec/n/p", None);
        check("podsx", None);
        check("", None);
    }

    #[test]
    fn running_pods_are_this_kubelets_own() {
        let sandbox = |id: &str, root: &str| pb::PodSandbox {
            id: id.into(),
            metadata: Some(pb::PodSandboxMetadata { name: id.into(), ..pb::PodSandboxMetadata::default() }),
            annotations: HashMap::from([(ROOT_ANNOTATION.to_owned(), root.to_owned())]),
            ..pb::PodSandbox::default()
        };
        let container = |sandbox: &str, name: &str| pb::Container {
            pod_sandbox_id: sandbox.into(),
            metadata: Some(pb::ContainerMetadata { name: name.into(), attempt: 0 }),
            image: Some(pb::ImageSpec { image: "i".into(), ..pb::ImageSpec::default() }),
            ..pb::Container::default()
        };
        let sandboxes = vec![sandbox("a", "/one"), sandbox("b", "/two"), pb::PodSandbox::default()];
        let got = running_list("/one", sandboxes, vec![container("a", "c"), container("b", "d")]);
        assert_eq!(
            got["items"],
            json!([{"metadata": {"name": "a", "namespace": "", "uid": ""}, "status": {},
                "spec": {"containers": [{"name": "c", "image": "i", "resources": {}}]}}])
        );
    }

    #[test]
    fn targets() {
        let check = |parts: &[&str], expected: Option<(Option<&str>, &str)>| {
            let got = container_target(parts).ok().map(|t| (t.uid, t.container));
            assert_eq!(got, expected);
        };
        check(&["n", "p", "c"], Some((None, "c")));
        check(&["n", "p", "u", "c"], Some((Some("u"), "c")));
        check(&["n"], None);
    }
}
