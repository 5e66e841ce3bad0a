//! Starts the runtime, and serves it at its socket.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use component::{Clock, Shutdown};
use containers::{Cgroups, Sandboxes};
use cri::runtime::CgroupDriver;
use cri::runtime::image_service_server::ImageServiceServer;
use cri::runtime::runtime_service_server::RuntimeServiceServer;
use images::Images;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use super::core::Core;
use super::deadline::Deadline;
use super::exec::Commands;
use super::runtime::Service;
use super::stats::Kept;
use super::{images as image_service, recover};
use crate::archives;
use crate::handlers::{Handler, Known};
use crate::network::Network;
use crate::shell::machine;
use crate::store::{Index, Records};
use crate::streaming;

/// The longest message that is taken; the kubelet's own limit.
const MAX_MESSAGE: usize = 16 << 20;
/// The socket for archives of images, below the directory.
pub const ARCHIVES: &str = "images.sock";
/// The number of events that a slow listener may be behind.
const EVENTS: usize = 1024;
/// How long another process that still has the directory is waited for, and how often it is looked.
const PATIENCE: (Duration, u32) = (Duration::from_millis(100), 100);

/// The settings of the runtime.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The directory in which the runtime keeps everything.
    pub root: PathBuf,
    /// The socket of CRI.
    pub socket: PathBuf,
    /// Directories with the settings of registries, as containerd's `config_path`.
    pub registries: Vec<PathBuf>,
    /// The OCI runtimes besides the own one.
    pub handlers: Vec<Handler>,
    /// The maker of the cgroups of containers that come: those that are there keep theirs.
    pub cgroup_driver: CgroupDriver,
    /// The clock.
    pub clock: Clock,
}

/// A runtime that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another process has the directory.
    #[error("another container runtime works in {0}; stop it first, or choose another directory")]
    InUse(PathBuf),
    /// Somebody else listens at the socket.
    #[error("another program listens at {0}; stop it first, or choose another socket")]
    Socket(PathBuf),
    /// A file or directory cannot be used.
    #[error("{path} cannot be used")]
    Io {
        /// The path.
        path: PathBuf,
        /// The fault.
        source: io::Error,
    },
    /// The program of a handler cannot be used.
    #[error("the OCI runtime {program} of the handler {name:?} cannot be used")]
    Handler {
        /// The handler's name.
        name: String,
        /// Its program.
        program: PathBuf,
        /// The fault.
        source: io::Error,
    },
    /// Two handlers have one name.
    #[error("two OCI runtimes have the handler {0:?}; choose another name for one of them")]
    Twice(String),
    /// The images cannot be opened.
    #[error(transparent)]
    Images(#[from] images::OpenError),
    /// Cgroups are to be systemd's, and there is none; runc's words.
    #[error(
        "systemd not running on this host, cannot use systemd cgroups manager: choose the cgroup driver cgroupfs"
    )]
    NoSystemd,
    /// The sandboxes cannot be opened.
    #[error("the sandboxes cannot be opened: {0}")]
    Sandboxes(#[source] containers::Error),
}

/// A runtime that serves. Containers outlive it.
#[derive(Clone)]
pub struct Runtime {
    images: Images,
    socket: PathBuf,
    _lock: Arc<File>,
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> StartError {
    let path = path.to_owned();
    move |source| StartError::Io { path, source }
}

impl Runtime {
    /// Starts the runtime: it takes over what an earlier process left, and serves in the background until `shutdown`.
    pub async fn start(
        settings: Settings,
        network: Arc<dyn Network>,
        shutdown: &Shutdown,
    ) -> Result<Self, StartError> {
        let systemd = settings.cgroup_driver == CgroupDriver::Systemd;
        if systemd && !systemd::is_running() {
            return Err(StartError::NoSystemd);
        }
        let root = settings.root.clone();
        DirBuilder::new().recursive(true).mode(0o700).create(&root).map_err(at(&root))?;
        let lock = Arc::new(lock(&root).await?);
        let mut of_images = images::Settings::new(root.join("images"));
        of_images.registries.clone_from(&settings.registries);
        let images = Images::open(of_images, shutdown).await?;
        let cgroups = Cgroups::detect().map_err(StartError::Sandboxes)?;
        let shims = Sandboxes::open(containers::Settings { state: root.join("shims"), cgroups }, shutdown);
        let shims = shims.map_err(StartError::Sandboxes)?;
        let records = root.join("records");
        let open = |name: &str| records.join(name);
        let (sandbox_records, sandboxes) = Records::open(&open("sandboxes")).map_err(at(&records))?;
        let (container_records, containers) = Records::open(&open("containers")).map_err(at(&records))?;
        let core = Arc::new(Core {
            joining: tokio::sync::RwLock::default(),
            root,
            machine: machine::look(systemd),
            images: images.clone(),
            shims: shims.clone(),
            network,
            handlers: handlers(settings.handlers).await?,
            sandboxes: Index::new("sandbox"),
            containers: Index::new("container"),
            sandbox_records,
            container_records,
            events: tokio::sync::broadcast::channel(EVENTS).0,
            clock: settings.clock,
        });
        let events = shims.events();
        recover::take_over(&core, sandboxes, containers).await;
        shutdown.spawn(recover::follow(core.clone(), events, shutdown.clone()));
        shutdown.spawn(recover::collect_networks(core.clone(), shutdown.clone()));
        let backend = Arc::new(Commands(core.clone()));
        let streaming =
            streaming::Server::start(backend, shutdown).await.map_err(at(Path::new("127.0.0.1")))?;
        let service = Service { core: core.clone(), kept: Arc::new(Kept::default()), streaming };
        serve(&settings.socket, service, image_service::Service(core.clone()), shutdown)?;
        let of_archives = core.root.join(ARCHIVES);
        archives::serve(&of_archives, images.clone(), shutdown).map_err(at(&of_archives))?;
        Ok(Self { images, socket: settings.socket, _lock: lock })
    }

    /// The store of images.
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// The socket of CRI.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

/// Asks the programs of all handlers what they can do.
async fn handlers(all: Vec<Handler>) -> Result<BTreeMap<String, Known>, StartError> {
    let mut known = BTreeMap::new();
    for handler in all {
        let (name, program) = (handler.name.clone(), handler.runtime.program.clone());
        let looked = handler.look().await;
        let looked = looked.map_err(|source| StartError::Handler { name: name.clone(), program, source })?;
        if known.insert(name.clone(), looked).is_some() {
            return Err(StartError::Twice(name));
        }
    }
    Ok(known)
}

/// Takes the directory for this process. One before may just be about to end.
async fn lock(root: &Path) -> Result<File, StartError> {
    let path = root.join("lock");
    let file = File::options().write(true).create(true).truncate(false).open(&path).map_err(at(&path))?;
    for _ in 0..PATIENCE.1 {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(at(&path)(error)),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(PATIENCE.0).await,
        }
    }
    Err(StartError::InUse(root.to_owned()))
}

/// Serves at a socket until `shutdown`.
fn serve(
    path: &Path,
    runtime: Service,
    images: image_service::Service,
    shutdown: &Shutdown,
) -> Result<(), StartError> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(at(dir))?;
    }
    // A socket that nobody answers at was left by a process that was killed.
    if path.exists() {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(StartError::Socket(path.to_owned()));
        }
        fs::remove_file(path).map_err(at(path))?;
    }
    let listener = UnixListener::bind(path).map_err(at(path))?;
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(at(path))?;
    let (stop, socket) = (shutdown.clone(), path.to_owned());
    let server = Server::builder()
        .add_service(Deadline(
            RuntimeServiceServer::new(runtime)
                .max_decoding_message_size(MAX_MESSAGE)
                .max_encoding_message_size(usize::MAX),
        ))
        .add_service(Deadline(
            ImageServiceServer::new(images)
                .max_decoding_message_size(MAX_MESSAGE)
                .max_encoding_message_size(usize::MAX),
        ));
    shutdown.spawn(async move {
        let serving = server.serve_with_incoming(UnixListenerStream::new(listener));
        if let Some(Err(error)) = stop.run(serving).await {
            tracing::error!(%error, "the container runtime serves no more");
        }
        let _ = fs::remove_file(socket);
    });
    Ok(())
}
