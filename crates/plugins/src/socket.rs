//! Unix sockets of plugins and of the kubelet's services for them.

use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::{Channel, Endpoint, Uri};

pub use crate::authority::Caller;

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

/// The connections of clients, for a server of gRPC: also of those that call the socket's path the host.
pub fn incoming(listener: UnixListener) -> impl Stream<Item = io::Result<Caller>> {
    UnixListenerStream::new(listener).map(|stream| stream.map(Caller::new))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
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
                .serve_with_incoming(incoming(listener));
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

    /// The bytes of a client in Go that connects by a dialer of its own: the request's host is the socket's path.
    #[tokio::test]
    async fn a_client_may_call_the_path_the_host() {
        const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        const HEADERS: [u8; 95] = *b"\x00\x00\x56\x01\x04\x00\x00\x00\x01\
            \x83\x86\x45\x9c\x62\xba\x2d\x98\xd5\x58\x59\x8c\x84\xd8\x34\x98\xf5\x2f\xb4\xb3\x19\x09\xb0\x69\x31\
            \xea\x63\x11\x53\x92\xa9\x4f\x41\x90\x54\x58\x6c\xb6\xa5\x45\x87\xad\xb1\x96\x82\xa5\x74\x1c\x9d\x7f\
            \x5f\x8b\x1d\x75\xd0\x62\x0d\x26\x3d\x4c\x4d\x65\x64\x7a\x8a\x9a\xca\xc8\xb4\xc7\x60\x2b\xbc\x25\xc3\
            \x40\x02\x74\x65\x86\x4d\x83\x35\x05\xb1\x1f";
        // One empty message, the last of the stream.
        const DATA: [u8; 14] = [0, 0, 5, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0];
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubelet.sock");
        let server = tonic::transport::Server::builder()
            .add_service(RegistrationServer::new(Plugin))
            .serve_with_incoming(incoming(listen(&path).unwrap()));
        let server = tokio::spawn(server);
        let mut client = UnixStream::connect(&path).await.unwrap();
        for part in [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &SETTINGS, &HEADERS, &DATA] {
            client.write_all(part).await.unwrap();
        }
        let mut answer = Vec::new();
        let is_answered = |all: &[u8]| all.windows(11).any(|bytes| bytes == b"example.com");
        // The server's word that it ends the stream.
        let is_reset = |all: &[u8]| all.windows(9).any(|bytes| bytes == [0, 0, 4, 3, 0, 0, 0, 0, 1]);
        while !is_answered(&answer) {
            assert!(!is_reset(&answer), "{answer:?}");
            assert_ne!(client.read_buf(&mut answer).await.unwrap(), 0, "{answer:?}");
        }
        server.abort();
    }
}
