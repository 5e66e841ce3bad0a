//! Nodes on one link: hosts at a bridge, with addresses that others ask for.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use balancer::{Config, hold::Timing};
use client::Client;
use component::{Clock, Shutdown};
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::serde_json::{Value, json};
use netlink::{Frames, LinkChange, Routing, namespace};
use simulation::Cluster;
use testkit::Host;
use tokio::sync::oneshot;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);
const ARP: u16 = 0x0806;

fn within<T: Send>(host: &Host, work: impl FnOnce() -> T + Send) -> T {
    namespace::within(namespace::open(&host.network()).unwrap().as_fd(), work).unwrap()
}

/// The hardware address of a host.
fn hardware(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

/// Hosts at a bridge, with 192.0.2.NUMBER and 2001:db8::NUMBER, the bridge first.
fn hosts(count: u8) -> Vec<Host> {
    let bridge = Host::new("bridge").unwrap();
    bridge.run("ip", &["link", "add", "br0", "type", "bridge"]).unwrap();
    bridge.run("ip", &["link", "set", "br0", "up"]).unwrap();
    let mut all = vec![bridge];
    for number in 1..=count {
        let host = Host::new(&format!("n{number}")).unwrap();
        let far = namespace::open(&host.network()).unwrap();
        within(&all[0], || {
            let mut routing = Routing::open().unwrap();
            let master = routing.link("br0").unwrap().map(|link| link.index);
            let outside = LinkChange { up: Some(true), ..LinkChange::default() };
            let address = Some(hardware(number));
            let inside = LinkChange { address, namespace: Some(far.as_fd()), ..LinkChange::default() };
            let name = format!("v{number}");
            routing.add_veth(&name, &outside, "eth0", &inside).unwrap();
            let link = routing.link(&name).unwrap().unwrap();
            routing.change_link(link.index, &LinkChange { master, ..LinkChange::default() }).unwrap();
        });
        host.run("ip", &["link", "set", "eth0", "up"]).unwrap();
        host.run("ip", &["address", "add", &format!("192.0.2.{number}/24"), "dev", "eth0"]).unwrap();
        host.run("ip", &["address", "add", &format!("2001:db8::{number}/64"), "dev", "eth0", "nodad"])
            .unwrap();
        all.push(host);
    }
    all
}

/// A node's part, on a thread in the host's network.
struct Speaker {
    kill: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Speaker {
    fn start(host: &Host, client: Client) -> Self {
        let (kill, killed) = oneshot::channel();
        let (network, node) = (namespace::open(&host.network()).unwrap(), host.name().to_owned());
        let thread = std::thread::spawn(move || {
            namespace::within(network.as_fd(), move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let config = Config { node, clock: Clock::system(), timing: Timing::default() };
                runtime.block_on(async {
                    let shutdown = Shutdown::new();
                    // A kill: nothing is given back.
                    tokio::select! {
                        () = balancer::run(config, client, &shutdown) => {}
                        _ = killed => {}
                    }
                });
                runtime.shutdown_background();
            })
            .unwrap();
        });
        Self { kill: Some(kill), thread: Some(thread) }
    }

    fn kill(&mut self) {
        drop(self.kill.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Asks who has the address, and returns all who say so within the time.
fn answers(frames: &Frames, asker: u8, time: Duration) -> BTreeSet<[u8; 6]> {
    let (own, sender) = (hardware(asker), [192, 0, 2, asker]);
    let head = [0, 1, 8, 0, 6, 4, 0, 1];
    let parts: [&[u8]; 8] = [&[0xff; 6], &own, &[8, 6], &head, &own, &sender, &[0; 6], &ADDRESS.octets()];
    frames.send(&parts.concat()).unwrap();
    let (end, mut all, mut buffer) = (Instant::now() + time, BTreeSet::new(), [0; 100]);
    while Instant::now() < end {
        match frames.receive(&mut buffer) {
            Ok(length) if length >= 42 && buffer[20..22] == [0, 2] && buffer[28..32] == ADDRESS.octets() => {
                all.insert(buffer[22..28].try_into().unwrap());
            }
            Ok(_) => {}
            Err(_) => std::thread::sleep(Duration::from_millis(1)), // the pace of looking at the socket
        }
    }
    all
}

async fn prepared(cluster: &Cluster, nodes: u8) {
    cluster.create::<Namespace>(&json!({"metadata": {"name": balancer::NAMESPACE}})).await.unwrap();
    for number in 1..=nodes {
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        let node = json!({"metadata": {"name": format!("n{number}")}, "status": {"conditions": conditions}});
        cluster.put::<Node>(&node).await.unwrap();
    }
    let service = json!({
        "metadata": {"name": "web", "namespace": "default", "annotations": {"ferrokube.io/load-balancer": "pool"}},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.50"}, {"ip": "2001:db8::50"}]}},
    });
    cluster.put::<Service>(&service).await.unwrap();
    let status: Value = service["status"].clone();
    let api = cluster.admin().api::<Service>("default");
    api.patch_status("web", &client::Patch::Merge(json!({ "status": status }))).await.unwrap();
}

/// One node answers at each time; when it is killed, another one does within three seconds, and tells everybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_answers_and_another_takes_over() {
    let hosts = hosts(4);
    let cluster = Cluster::start().await.unwrap();
    prepared(&cluster, 3).await;
    let mut speakers: Vec<Speaker> =
        hosts[1..4].iter().map(|host| Speaker::start(host, cluster.admin())).collect();
    let asker = &hosts[4];
    tokio::task::block_in_place(|| {
        let frames = within(asker, || {
            let link = Routing::open().unwrap().link("eth0").unwrap().unwrap();
            Frames::open(link.index, ARP).unwrap()
        });
        let step = Duration::from_millis(40);
        // Asks until somebody who is none of `without` answers; nobody ever answers beside another.
        let first = |without: Option<[u8; 6]>, limit: Duration| {
            let began = Instant::now();
            loop {
                let all = answers(&frames, 4, step);
                assert!(all.len() <= 1, "{all:?} answer at once");
                match all.into_iter().next() {
                    Some(one) if Some(one) != without => return (one, began.elapsed()),
                    _ => assert!(began.elapsed() < limit, "nobody answers after {limit:?}"),
                }
            }
        };
        let (holder, _) = first(None, Duration::from_secs(15));
        for _ in 0..25 {
            assert_eq!(answers(&frames, 4, step), [holder].into());
        }
        // The IPv6 address has a holder, too, which may be another node.
        asker.run("curl", &["-s", "--max-time", "1", "http://[2001:db8::50]/"]).unwrap_err();
        let known = asker.run("ip", &["-6", "neigh", "show", "2001:db8::50"]).unwrap();
        assert!(known.contains("lladdr 02:00:00:00:00:0"), "{known}");

        let victim = usize::from(holder[5] - 1);
        let killed = Instant::now();
        speakers[victim].kill();
        let (next, _) = first(Some(holder), Duration::from_secs(3));
        assert!(killed.elapsed() < Duration::from_secs(3), "{:?}", killed.elapsed());
        eprintln!("taken over after {:?}", killed.elapsed());
        assert_ne!(next, holder);
        // The one who was killed comes back, and the address stays where it is.
        speakers[victim] = Speaker::start(&hosts[victim + 1], cluster.admin());
        for _ in 0..60 {
            assert_eq!(answers(&frames, 4, step), [next].into());
        }
        // A table that knew the old holder knows the new one without asking.
        let neighbour = asker.run("ip", &["neigh", "show", "192.0.2.50"]).unwrap();
        assert!(!neighbour.contains(&format!("0{}", holder[5])) || neighbour.is_empty(), "{neighbour}");
    });
    drop(speakers);
    cluster.stop().await;
}
