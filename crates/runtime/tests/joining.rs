//! A sandbox joins the Pod network while the network is tidied.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result};
use component::{Clock, Shutdown};
use cri::runtime as pb;
use ferrokube_runtime::network::{Network, NetworkError, Pod, Work};
use ferrokube_runtime::{CgroupDriver, Runtime, Settings};
use parking_lot::Mutex;
use tokio::sync::watch;

/// How often a joining sandbox lets others go first.
const TURNS: usize = 1000;

/// A network that is there once the first sandbox joins it, so that it is tidied just then.
#[derive(Debug)]
struct Late {
    joining: watch::Sender<bool>,
    tidied: watch::Sender<bool>,
    members: Mutex<BTreeSet<String>>,
}

impl Network for Late {
    fn attach<'a>(&'a self, pod: &'a Pod) -> Work<'a, Result<Vec<std::net::IpAddr>, NetworkError>> {
        Box::pin(async {
            self.members.lock().insert(pod.id.clone());
            self.joining.send_replace(true);
            // The network may be tidied now: the test has one thread.
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            Ok(vec![std::net::Ipv4Addr::new(192, 0, 2, 1).into()])
        })
    }
    fn detach<'a>(&'a self, pod: &'a Pod) -> Work<'a, Result<(), NetworkError>> {
        self.members.lock().remove(&pod.id);
        Box::pin(async { Ok(()) })
    }
    fn collect<'a>(&'a self, present: &'a [String]) -> Work<'a, Result<(), NetworkError>> {
        self.members.lock().retain(|member| present.contains(member));
        self.tidied.send_replace(true);
        Box::pin(async { Ok(()) })
    }
    fn status(&self) -> Work<'_, Result<(), String>> {
        let mut joining = self.joining.subscribe();
        Box::pin(async move { joining.wait_for(|is| *is).await.map(|_| ()).map_err(|e| e.to_string()) })
    }
}

#[tokio::test]
async fn a_sandbox_that_joins_while_the_network_is_tidied_stays_in_it() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (joining, tidied) = (watch::Sender::new(false), watch::Sender::new(false));
    let network = Arc::new(Late { joining, tidied, members: Mutex::default() });
    let settings = Settings {
        root: directory.path().join("root"),
        socket: directory.path().join("cri.sock"),
        registries: Vec::new(),
        handlers: Vec::new(),
        cgroup_driver: CgroupDriver::Cgroupfs,
        clock: Clock::system(),
    };
    let shutdown = Shutdown::new();
    let served = Runtime::start(settings, network.clone(), &shutdown).await?;
    let channel = cri::connect(&served.socket().display().to_string()).await?;
    let service = cri::Runtime::new(channel);
    let config = pb::PodSandboxConfig {
        metadata: Some(pb::PodSandboxMetadata {
            name: "p".into(),
            namespace: "default".into(),
            uid: "u".into(),
            attempt: 0,
        }),
        linux: Some(pb::LinuxPodSandboxConfig::default()),
        ..Default::default()
    };
    let request = pb::RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
    let ran = service.run_pod_sandbox(request).await?.into_inner().pod_sandbox_id;
    network.tidied.subscribe().wait_for(|is| *is).await.context("nobody tidied the network")?;
    let members: Vec<String> = network.members.lock().iter().cloned().collect();
    service.remove_pod_sandbox(pb::RemovePodSandboxRequest { pod_sandbox_id: ran.clone() }).await?;
    assert_eq!(members, [ran]);
    assert!(network.members.lock().is_empty(), "it left with its sandbox");
    shutdown.finish().await;
    Ok(())
}
