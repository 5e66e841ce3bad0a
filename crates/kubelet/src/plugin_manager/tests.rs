//! Plugins that come, go, hang and fail.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use plugins::registration as pb;
use plugins::registration::registration_server::{Registration, RegistrationServer};
use plugins::socket::listen;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use super::plugin::Handlers;
use super::*;

/// A plugin of the test.
struct Fake {
    info: pb::PluginInfo,
    hangs: bool,
    told: mpsc::UnboundedSender<pb::RegistrationStatus>,
}

#[tonic::async_trait]
impl Registration for Fake {
    async fn get_info(&self, _: Request<pb::InfoRequest>) -> Result<Response<pb::PluginInfo>, Status> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(self.info.clone()))
    }
    async fn notify_registration_status(
        &self,
        status: Request<pb::RegistrationStatus>,
    ) -> Result<Response<pb::RegistrationStatusResponse>, Status> {
        let _ = self.told.send(status.into_inner());
        Ok(Response::new(pb::RegistrationStatusResponse {}))
    }
}

/// A handler that writes down what it is asked, and refuses as often as it is told to.
#[derive(Default)]
struct Notes {
    log: Mutex<Vec<String>>,
    refuse: Mutex<u32>,
}

impl PluginHandler for Notes {
    fn kind(&self) -> &'static str {
        "CSIPlugin"
    }
    fn validate(&self, plugin: &Plugin) -> Result<(), String> {
        if plugin.versions.is_empty() { Err("no versions".into()) } else { Ok(()) }
    }
    fn register<'a>(&'a self, plugin: &'a Plugin) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let mut left = self.refuse.lock();
            if *left > 0 {
                *left -= 1;
                return Err("not now".into());
            }
            self.log.lock().push(format!("+{}", plugin.name));
            Ok(())
        })
    }
    fn deregister<'a>(&'a self, plugin: &'a Plugin) -> BoxFuture<'a, ()> {
        self.log.lock().push(format!("-{}", plugin.name));
        Box::pin(std::future::ready(()))
    }
}

/// The kind, the name and the versions of a plugin.
type Info<'a> = (&'a str, &'a str, &'a [&'a str]);

struct World {
    dir: tempfile::TempDir,
    notes: Arc<Notes>,
    manager: Arc<PluginManager>,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let notes = Arc::new(Notes::default());
        let handlers: Handlers = Arc::new([notes.clone() as Arc<dyn PluginHandler>]);
        let manager = Arc::new(PluginManager::new(dir.path().to_owned(), handlers));
        Self { dir, notes, manager }
    }
    fn run(&self) -> tokio::task::JoinHandle<()> {
        let manager = self.manager.clone();
        tokio::spawn(async move { manager.run().await })
    }
    fn plugin(
        &self,
        socket: &str,
        info: Info<'_>,
        hangs: bool,
    ) -> mpsc::UnboundedReceiver<pb::RegistrationStatus> {
        let (told, heard) = mpsc::unbounded_channel();
        let (kind, name, versions) = info;
        let info = pb::PluginInfo {
            r#type: kind.into(),
            name: name.into(),
            endpoint: String::new(),
            supported_versions: versions.iter().map(ToString::to_string).collect(),
        };
        let path = self.dir.path().join(socket);
        let _ = std::fs::remove_file(&path);
        let listener = listen(&path).unwrap();
        let server = tonic::transport::Server::builder()
            .add_service(RegistrationServer::new(Fake { info, hangs, told }))
            .serve_with_incoming(UnixListenerStream::new(listener));
        tokio::spawn(server);
        heard
    }
    async fn until(&self, expected: &[&str]) {
        let wait = async {
            while *self.notes.log.lock() != expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = timeout(Duration::from_secs(20), wait).await;
        assert!(waited.is_ok(), "{:?} instead of {expected:?}", self.notes.log.lock());
    }
}

const GOOD: Info<'static> = ("CSIPlugin", "a.example.com", &["1.0.0"]);

#[tokio::test]
async fn plugins_come_and_go() {
    let world = World::new();
    let first = world.run();
    let mut heard = world.plugin("a-reg.sock", GOOD, false);
    world.until(&["+a.example.com"]).await;
    assert!(heard.recv().await.unwrap().plugin_registered);
    // Another kubelet finds it again; the one before took nothing away.
    first.abort();
    let _ = first.await;
    let _second = world.run();
    world.until(&["+a.example.com"; 2]).await;
    // A socket in a directory that comes later, and another plugin in the place of the first.
    std::fs::create_dir(world.dir.path().join("below")).unwrap();
    world.plugin("below/b.sock", ("CSIPlugin", "b", &["1.0.0"]), false);
    world.until(&["+a.example.com", "+a.example.com", "+b"]).await;
    world.notes.log.lock().clear();
    let _heard = world.plugin("a-reg.sock", GOOD, false);
    world.until(&["-a.example.com", "+a.example.com"]).await;
    std::fs::remove_file(world.dir.path().join("below/b.sock")).unwrap();
    world.until(&["-a.example.com", "+a.example.com", "-b"]).await;
}

#[tokio::test]
async fn plugins_that_cannot_be_used_are_told_why() {
    let world = World::new();
    let _running = world.run();
    // One that hangs holds up no other.
    let _hanging = world.plugin("0.sock", ("CSIPlugin", "hangs", &["1.0.0"]), true);
    let cases: [(&str, Info<'_>, &str); 4] = [
        ("b.sock", ("Odd", "b", &["1.0.0"]), "no handler registered for plugin type: Odd at socket "),
        ("c.sock", ("CSIPlugin", "c", &[]), "plugin validation failed with err: no versions"),
        ("d.sock", ("CSIPlugin", "../d", &["1.0.0"]), "the plugin's name \"../d\" cannot be used"),
        ("e.sock", ("CSIPlugin", "", &["1.0.0"]), "the plugin's name \"\" cannot be used"),
    ];
    for (socket, info, expected) in cases {
        let mut heard = world.plugin(socket, info, false);
        let told = heard.recv().await.unwrap();
        assert!(!told.plugin_registered && told.error.contains(expected), "{}", told.error);
    }
    assert!(world.notes.log.lock().is_empty());
    // One that is refused is tried again.
    *world.notes.refuse.lock() = 2;
    let mut heard = world.plugin("f.sock", GOOD, false);
    for _ in 0..2 {
        let told = heard.recv().await.unwrap();
        assert_eq!(told.error, "RegisterPlugin error -- plugin registration failed with err: not now");
    }
    assert!(heard.recv().await.unwrap().plugin_registered);
    world.until(&["+a.example.com"]).await;
}
