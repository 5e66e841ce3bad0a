//! Unix sockets of plugins and of the kubelet's services for them.

use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tonic::transport::{Channel, Endpoint, Uri};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Why a plugin's socket cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to the plugin's socket {}", path.display())]
pub struct ConnectError {
    /// The socket.
    path: PathBuf,
    /// The reason.
    #[source]
    source: tonic::transport::Error,
}

/// A connection to a socket, made when it is needed and made again when it is lost.
pub fn channel(path: &Path) -> Channel {
    let path = path.to_owned();
    endpoint().connect_with_connector_lazy(tower::service_fn(move |_: Uri| connection(path.clone())))
}

/// Connects to a socket at once.
///
/// # Errors
/// Nobody answers there.
pub async fn connect(path: &Path) -> Result<Channel, ConnectError> {
    let to = path.to_owned();
    let connector = tower::service_fn(move |_: Uri| connection(to.clone()));
    let failed = |source| ConnectError { path: path.to_owned(), source };
    endpoint().connect_with_connector(connector).await.map_err(failed)
}

/// The name of the host is for the headers alone: the connector decides where a connection leads.
fn endpoint() -> Endpoint {
    Endpoint::from_static("http://localhost").connect_timeout(CONNECT)
}

async fn connection(path: PathBuf) -> io::Result<TokioIo<UnixStream>> {
    Ok(TokioIo::new(UnixStream::connect(path).await?))
}

/// Listens at a path, in the place of a socket that an earlier process left there. Only the owner may connect.
///
/// # Errors
/// The path's directory cannot be written, or something else than a socket is there.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => {
            let message = format!("{} is there and is no socket", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use tokio_stream::wrappers::UnixListenerStream;
    use tonic::{Request, Response, Status};

    use super::*;
    use crate::registration as pb;
    use pb::registration_client::RegistrationClient;
    use pb::registration_server::{Registration, RegistrationServer};

    struct Plugin;

    #[tonic::async_trait]
    impl Registration for Plugin {
        async fn get_info(&self, _: Request<pb::InfoRequest>) -> Result<Response<pb::PluginInfo>, Status> {
            Ok(Response::new(pb::PluginInfo { name: "example.com".into(), ..pb::PluginInfo::default() }))
        }
        async fn notify_registration_status(
            &self,
            _: Request<pb::RegistrationStatus>,
        ) -> Result<Response<pb::RegistrationStatusResponse>, Status> {
            Err(Status::unimplemented("no"))
        }
    }

    #[tokio::test]
    async fn a_plugin_is_asked_through_its_socket() {
        let dir = tempfile::tempdir().unwrap();
        // Longer than a socket's name in a URI could be written without escapes.
        let path = dir.path().join("a plugin%20?.sock");
        assert!(connect(&path).await.is_err(), "nobody is there yet");
        let lazy = channel(&path);
        for _ in 0..2 {
            // The second time, the socket of the first server is still there.
            let listener = listen(&path).unwrap();
            let server = tonic::transport::Server::builder()
                .add_service(RegistrationServer::new(Plugin))
                .serve_with_incoming(UnixListenerStream::new(listener));
            let server = tokio::spawn(server);
            for channel in [connect(&path).await.unwrap(), lazy.clone()] {
                let info = RegistrationClient::new(channel).get_info(pb::InfoRequest {}).await.unwrap();
                assert_eq!(info.into_inner().name, "example.com");
            }
            server.abort();
            let _ = server.await;
        }
        let file = dir.path().join("file");
        std::fs::write(&file, "kept").unwrap();
        assert!(listen(&file).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    }
}
