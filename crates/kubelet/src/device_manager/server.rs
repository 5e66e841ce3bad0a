//! The registration of plugins: by the kubelet's own socket, as of old, or by a socket of their own.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::Backoff;
use futures::future::BoxFuture;
use plugins::device as pb;
use plugins::device::registration_server::{Registration, RegistrationServer};
use plugins::socket::{incoming, listen};
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::manager::DeviceManager;
use super::record::FILE;
use crate::node::status::is_extended;
use crate::plugin_manager::{Plugin, PluginHandler};

/// The version that the kubelet speaks.
const VERSION: &str = "v1beta1";
/// The kubelet's socket, in the directory of the plugins' sockets.
const SOCKET: &str = "kubelet.sock";
/// The least and the most time between attempts to serve the registration.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// The prefix with which a resource's name must still be a name: that of quotas.
const OF_QUOTAS: &str = "requests.";

/// Whether a plugin may offer a resource of this name; upstream's rule.
fn is_name(resource: &str) -> bool {
    is_extended(resource) && api::names::qualified_name(&format!("{OF_QUOTAS}{resource}")).is_empty()
}

/// Upstream's text for a name that a plugin may not offer.
fn bad_name(resource: &str) -> String {
    let shown: String = resource.chars().take(253).collect();
    format!("the ResourceName {} is invalid", api::go::quote(&shown))
}

/// The socket that a plugin names; none if it is not below the directory. Upstream goes wherever the name leads.
fn below(dir: &Path, endpoint: &str) -> Option<PathBuf> {
    let name = Path::new(endpoint.trim_start_matches('/'));
    let inside = name.components().all(|part| matches!(part, Component::Normal(_)));
    (inside && name.file_name().is_some()).then(|| dir.join(name))
}

/// Removes the sockets that plugins had, as upstream does: a plugin sees by that that it must register again.
fn clean(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)?.flatten() {
        if entry.file_name() != FILE && entry.file_type().is_ok_and(|kind| kind.is_socket()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Lets plugins register, again and again if the socket is lost.
pub(crate) async fn serve(manager: &Arc<DeviceManager>) {
    let mut backoff = Backoff::new(AGAIN[0], AGAIN[1]);
    loop {
        if let Err(error) = try_serve(manager.clone()).await {
            tracing::error!(%error, "device plugins cannot register, will retry");
        }
        tokio::time::sleep(backoff.delay()).await;
    }
}

async fn try_serve(manager: Arc<DeviceManager>) -> io::Result<()> {
    clean(&manager.dir)?;
    let listener = listen(&manager.dir.join(SOCKET))?;
    let service = RegistrationServer::new(ByRequest(manager));
    let served = Server::builder().add_service(service).serve_with_incoming(incoming(listener));
    served.await.map_err(io::Error::other)
}

/// Registration by a request to the kubelet.
struct ByRequest(Arc<DeviceManager>);

#[tonic::async_trait]
impl Registration for ByRequest {
    async fn register(&self, request: Request<pb::RegisterRequest>) -> Result<Response<pb::Empty>, Status> {
        let request = request.into_inner();
        if request.version != VERSION {
            let version: String = request.version.chars().take(253).collect();
            return Err(Status::unknown(format!(
                "requested API version {} is not supported by kubelet. Supported version is [\"{VERSION}\"]",
                api::go::quote(&version)
            )));
        }
        if !is_name(&request.resource_name) {
            return Err(Status::unknown(bad_name(&request.resource_name)));
        }
        // DIFFERENCE: upstream counts other names, too, of which there is no end.
        self.0.metrics.registration(&request.resource_name);
        let socket = below(&self.0.dir, &request.endpoint)
            .ok_or_else(|| Status::unknown("the Endpoint is not below the directory of device plugins"))?;
        let connected = self.0.connect(&request.resource_name, &socket).await;
        connected.map_err(Status::unknown)?;
        Ok(Response::new(pb::Empty {}))
    }
}

/// Registration by a socket of the plugin's, below `plugins_registry`.
pub(crate) struct Registrar(pub(crate) Arc<DeviceManager>);

impl PluginHandler for Registrar {
    fn kind(&self) -> &'static str {
        "DevicePlugin"
    }
    /// It is looked at when the plugin is validated: it is a resource's.
    fn is_name(&self, _: &str) -> bool {
        true
    }
    fn validate(&self, plugin: &Plugin) -> Result<(), String> {
        if !plugin.versions.iter().any(|v| v == VERSION) {
            let versions = plugin.versions.iter().take(16).map(String::as_str).collect::<Vec<_>>().join(" ");
            return Err(format!(
                "manager version, {VERSION}, is not among plugin supported versions [{versions}]"
            ));
        }
        if is_name(&plugin.name) {
            Ok(())
        } else {
            Err(format!("invalid name of device plugin socket: {}", bad_name(&plugin.name)))
        }
    }
    fn register<'a>(&'a self, plugin: &'a Plugin) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(self.0.connect(&plugin.name, &plugin.endpoint))
    }
    fn deregister<'a>(&'a self, plugin: &'a Plugin) -> BoxFuture<'a, ()> {
        Box::pin(self.0.disconnect_endpoint(&plugin.name, &plugin.endpoint))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn names_of_resources() {
        let check = |name: &str, expected: bool| assert_eq!(is_name(name), expected, "{name}");
        check("example.com/dev", true);
        check("cpu", false);
        check("kubernetes.io/dev", false);
        check("a.kubernetes.io/dev", false);
        check("requests.example.com/dev", false);
        check("example.com/", false);
        check("example.com/a b", false);
        check("/dev", false);
        check("a/b/c", false);
        check("", false);
        check(&format!("example.com/{}", "x".repeat(64)), false);
    }

    #[test]
    fn sockets_are_below_the_directory() {
        let check = |endpoint: &str, expected: Option<&str>| {
            assert_eq!(below(Path::new("/d"), endpoint).as_deref(), expected.map(Path::new), "{endpoint}");
        };
        check("a.sock", Some("/d/a.sock"));
        check("/sub/a.sock", Some("/d/sub/a.sock"));
        check("../a.sock", None);
        check("a/../../b", None);
        check("", None);
        check("..", None);
    }

    #[test]
    fn sockets_of_before_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let _one = UnixListener::bind(dir.path().join("a.sock")).unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        let _other = UnixListener::bind(dir.path().join("d/b.sock")).unwrap();
        std::fs::write(dir.path().join(FILE), "kept").unwrap();
        std::fs::write(dir.path().join("file"), "kept").unwrap();
        clean(dir.path()).unwrap();
        let mut left: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["d", "file", FILE]);
        assert!(dir.path().join("d/b.sock").exists());
        assert!(clean(&dir.path().join("no")).is_err());
    }
}
